use std::collections::VecDeque;

use ontempo_foundation::{Bytes, Duration, Packets, Time};

use super::liveness::Liveness;
use super::pacing::Pacing;
use super::packet::MAX_PAYLOAD;
use super::ranges::Ranges;
use super::rtt::SrtRtt;
use super::{
    FullAck, MAX_QUEUED_CONTROL, SYN_INTERVAL, SrtPacket, SrtParameters, SrtSenderStatistics,
};

/// A packet is kept for a second at least, however short the latency (SRT_TLPKTDROP_MINTHRESHOLD_MS).
const MIN_KEEP: Duration = Duration::from_secs(1);

/// The connection cannot go on.
#[derive(Debug)]
pub(super) struct Broken;

/// The caller's side of a connection that is established.
#[derive(Clone, Debug)]
pub(super) struct SenderConnection {
    parameters: SrtParameters,
    started: Time,
    liveness: Liveness,
    rtt: SrtRtt,
    pacing: Pacing,
    control: VecDeque<SrtPacket>,
    /// Datagrams from `first` on, first those sent and then those that wait.
    buffer: VecDeque<Buffered>,
    /// Sequence number of the first in `buffer`; all before are acknowledged or given up.
    first: u64,
    /// Sequence number of the next packet that was never sent.
    next_new: u64,
    lost: Ranges,
    /// Packets that the peer accepts; light ACKs can take it below zero.
    flow_window: i64,
    congestion_window: i64,
    /// The highest full ACK.
    last_full_ack: u64,
    /// Number and time of the last ACKACK.
    last_ack_ack: (u64, Time),
    /// Since when no ACK came, and how often all was sent again since.
    last_ack_time: Time,
    repetitions: u64,
}

#[derive(Clone, Copy, Debug)]
struct Buffered {
    message: u64,
    payload: Bytes,
    origin: Time,
    last_repeated: Option<Time>,
}

impl SenderConnection {
    pub(super) fn new(
        parameters: SrtParameters,
        now: Time,
        started: Time,
        initial_sequence: u64,
        flow_window: Packets,
        last_rtt: Option<Duration>,
    ) -> Self {
        let window = i64::try_from(flow_window.get()).unwrap_or(i64::MAX);
        Self {
            parameters,
            started,
            liveness: Liveness::new(now),
            rtt: SrtRtt::new(last_rtt),
            pacing: Pacing::new(&parameters),
            control: VecDeque::new(),
            buffer: VecDeque::new(),
            first: initial_sequence,
            next_new: initial_sequence,
            lost: Ranges::default(),
            flow_window: window,
            congestion_window: window,
            last_full_ack: initial_sequence,
            last_ack_ack: (0, now),
            last_ack_time: now,
            repetitions: 1,
        }
    }

    pub(super) fn buffered(&self) -> Packets {
        Packets::new(self.buffer.len() as u64)
    }

    /// All before it is acknowledged or given up.
    pub(super) fn acknowledged(&self) -> u64 {
        self.first
    }

    /// The number after those of all datagrams accepted.
    pub(super) fn next_sequence(&self) -> u64 {
        self.first + self.buffer.len() as u64
    }

    pub(super) fn rtt(&self) -> Duration {
        self.rtt.smoothed
    }

    pub(super) fn next_check(&self) -> Time {
        self.liveness.next_check()
    }

    pub(super) fn next_timeout(&self) -> Time {
        if !self.control.is_empty() {
            return Time::ZERO;
        }
        self.next_check().min(self.pacing.due().unwrap_or(Time::NEVER))
    }

    /// A datagram of the application (`sendmsg2`).
    pub(super) fn push(
        &mut self,
        now: Time,
        message: u64,
        payload: Bytes,
        statistics: &mut SrtSenderStatistics,
    ) -> bool {
        if payload == Bytes::ZERO || payload > MAX_PAYLOAD {
            return false;
        }
        if self.buffer.is_empty() {
            (self.last_ack_time, self.repetitions) = (now, 1);
        }
        self.drop_too_late(now, statistics);
        if self.buffered() >= self.parameters.send_buffer {
            return false;
        }
        self.buffer.push_back(Buffered { message, payload, origin: now, last_repeated: None });
        self.pacing.on_input(now, payload);
        self.pacing.wake(now);
        true
    }

    /// Gives up what is older than the latency and the drop delay, at least 1 s, and 20 ms. This
    /// happens only when the application sends (`sndDropTooLate`; the draft, section 4.6).
    fn drop_too_late(&mut self, now: Time, statistics: &mut SrtSenderStatistics) {
        if !self.parameters.drop_too_late {
            return;
        }
        let keep = self.parameters.latency + self.parameters.send_drop_delay;
        let threshold = keep.max(MIN_KEEP) + SYN_INTERVAL * 2;
        let Some(oldest) = self.buffer.front() else { return };
        // Compared in whole milliseconds.
        if now.since(oldest.origin) < threshold + Duration::from_millis(1) {
            return;
        }
        while self.buffer.front().is_some_and(|entry| now.since(entry.origin) > threshold) {
            self.buffer.pop_front();
            self.first += 1;
            statistics.dropped += Packets::new(1);
        }
        self.lost.remove_before(self.first);
        self.next_new = self.next_new.max(self.first);
    }

    pub(super) fn on_packet(
        &mut self,
        now: Time,
        packet: &SrtPacket,
        statistics: &mut SrtSenderStatistics,
    ) -> Result<(), Broken> {
        self.liveness.on_packet(now);
        match packet {
            SrtPacket::Ack(ack) => self.on_ack(now, ack)?,
            SrtPacket::LightAck { next } => self.on_light_ack(now, *next)?,
            SrtPacket::Nak { ranges } => self.on_nak(now, ranges, statistics)?,
            _ => {}
        }
        self.check_timers(now, statistics)
    }

    fn on_ack(&mut self, now: Time, ack: &FullAck) -> Result<(), Broken> {
        self.acknowledge(now, ack.next)?;
        // One ACKACK in 10 ms, or for an ACK that came again.
        let (number, sent) = self.last_ack_ack;
        if now.since(sent) > SYN_INTERVAL || ack.number == number {
            self.send_control(
                now,
                SrtPacket::AckAck { number: ack.number, timestamp: now.since(self.started) },
            );
            self.last_ack_ack = (ack.number, now);
        }
        if ack.next >= self.first {
            self.flow_window = i64::try_from(ack.available_buffer.get()).unwrap_or(i64::MAX);
            (self.last_ack_time, self.repetitions) = (now, 1);
        }
        if ack.next <= self.last_full_ack {
            return Ok(());
        }
        self.last_full_ack = ack.next;
        self.rtt.adopt(ack.rtt, ack.rtt_variance);
        self.pacing.update();
        Ok(())
    }

    /// A light ACK takes what it acknowledges from the window, which only a full ACK sets anew.
    fn on_light_ack(&mut self, now: Time, next: u64) -> Result<(), Broken> {
        let before = self.first;
        self.acknowledge(now, next)?;
        if next >= before {
            let taken = i64::try_from(self.first - before).unwrap_or(i64::MAX);
            self.flow_window = self.flow_window.saturating_sub(taken);
            (self.last_ack_time, self.repetitions) = (now, 1);
        }
        Ok(())
    }

    /// Removes what is before `next` (`updateSndLossListOnACK`). More than was sent is an attack.
    fn acknowledge(&mut self, now: Time, next: u64) -> Result<(), Broken> {
        if next > self.next_new {
            return Err(Broken);
        }
        if next <= self.first {
            return Ok(());
        }
        // Not more than are sent, which are in the buffer.
        self.buffer.drain(..(next - self.first) as usize);
        self.first = next;
        self.lost.remove_before(next);
        self.pacing.wake(now);
        Ok(())
    }

    /// `processCtrlLossReport`: what is not acknowledged is sent again; what the sender does not
    /// have any more it asks the peer to give up, if it is a range. A report of a packet that was
    /// never sent breaks the connection.
    fn on_nak(
        &mut self,
        now: Time,
        ranges: &[(u64, u64)],
        statistics: &mut SrtSenderStatistics,
    ) -> Result<(), Broken> {
        for &(first, last) in ranges {
            if first > last || last >= self.next_new {
                return Err(Broken);
            }
            if last >= self.first {
                let new = self.lost.insert(first.max(self.first), last);
                statistics.reported_lost += Packets::new(new);
            } else if first != last {
                self.send_control(now, SrtPacket::DropRequest { first, last });
            }
        }
        self.pacing.update();
        self.pacing.wake(now);
        Ok(())
    }

    /// `checkTimers`.
    pub(super) fn check_timers(
        &mut self,
        now: Time,
        statistics: &mut SrtSenderStatistics,
    ) -> Result<(), Broken> {
        self.liveness.on_check(now);
        self.pacing.update();
        if self.liveness.is_broken(now, &self.rtt, self.parameters.peer_idle_timeout) {
            return Err(Broken);
        }
        self.repeat_unacknowledged(now, statistics);
        if self.liveness.needs_keep_alive(now) {
            let timestamp = now.since(self.started);
            self.send_control(now, SrtPacket::KeepAlive { timestamp });
        }
        Ok(())
    }

    /// Without periodic loss reports, all that is not acknowledged is lost when no ACK came for
    /// long (`checkRexmitTimer`, FASTREXMIT).
    fn repeat_unacknowledged(&mut self, now: Time, statistics: &mut SrtSenderStatistics) {
        let wait = (self.rtt.upper() + SYN_INTERVAL * 2) * self.repetitions + SYN_INTERVAL;
        if self.parameters.periodic_nak
            || self.buffer.is_empty()
            || now <= self.last_ack_time + wait
        {
            return;
        }
        if self.next_new > self.first {
            let new = self.lost.insert(self.first, self.next_new - 1);
            statistics.reported_lost += Packets::new(new);
        }
        self.repetitions += 1;
        self.pacing.wake(now);
    }

    /// The next control packet, or the data packet that is due.
    pub(super) fn poll_transmit(
        &mut self,
        now: Time,
        statistics: &mut SrtSenderStatistics,
    ) -> Option<SrtPacket> {
        if self.control.is_empty() && self.pacing.due().is_some_and(|due| due <= now) {
            if let Some(packet) = self.pack(now, statistics) {
                self.liveness.on_sent(now);
                return Some(packet);
            }
            self.pacing.idle();
        }
        self.control.pop_front()
    }

    /// `packData`. A new packet goes first, against section 4.6 of the draft: with too-late drop
    /// nothing is sent again while one waits, not even if the flow window holds it back
    /// (`isRetransmissionAllowed`).
    fn pack(&mut self, now: Time, statistics: &mut SrtSenderStatistics) -> Option<SrtPacket> {
        self.pacing.begin(now);
        let new_waits = self.next_new < self.next_sequence();
        if (!self.parameters.drop_too_late || !new_waits)
            && let Some(sequence) = self.next_lost(now)
        {
            statistics.retransmitted += Packets::new(1);
            return self.data(now, sequence, true);
        }
        let in_flight = i64::try_from(self.next_new - self.first).unwrap_or(i64::MAX);
        if !new_waits || self.flow_window.min(self.congestion_window) <= in_flight {
            return None;
        }
        let sequence = self.next_new;
        self.next_new += 1;
        statistics.sent += Packets::new(1);
        self.data(now, sequence, false)
    }

    /// The lowest lost packet that was not sent again within SRTT - 4 variances, with periodic
    /// reports: until then a report may be older than the repetition (`packLostData`;
    /// SRTO_RETRANSMITALGO = 1). A report that is passed over is forgotten.
    fn next_lost(&mut self, now: Time) -> Option<u64> {
        while let Some(sequence) = self.lost.pop() {
            let index = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
            let last = self.buffer.get(index)?.last_repeated;
            let is_early = last.is_some_and(|last| {
                self.rtt.smoothed >= self.rtt.variance * 4 && now.since(last) <= self.rtt.lower()
            });
            if !(is_early && self.parameters.periodic_nak) {
                return Some(sequence);
            }
        }
        None
    }

    fn data(&mut self, now: Time, sequence: u64, is_retransmission: bool) -> Option<SrtPacket> {
        let index = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        let entry = self.buffer.get_mut(index)?;
        if is_retransmission {
            entry.last_repeated = Some(now);
        }
        let packet = SrtPacket::Data {
            sequence,
            message: entry.message,
            timestamp: entry.origin.since(self.started),
            is_retransmission,
            payload: entry.payload,
        };
        self.pacing.on_sent(now, entry.payload, (!is_retransmission).then_some(sequence));
        Some(packet)
    }

    fn send_control(&mut self, now: Time, packet: SrtPacket) {
        self.liveness.on_sent(now);
        if self.control.len() < MAX_QUEUED_CONTROL {
            self.control.push_back(packet);
        }
    }
}
