use std::collections::VecDeque;

use ontempo_foundation::{Bytes, Duration, Packets, Time};

use super::arrivals::Arrivals;
use super::liveness::Liveness;
use super::packet::nak_words;
use super::ranges::Ranges;
use super::rtt::SrtRtt;
use super::sender_connection::Broken;
use super::timebase::TimeBase;
use super::{
    FullAck, Handshake, MAX_QUEUED_CONTROL, SYN_INTERVAL, SrtPacket, SrtParameters,
    SrtReceiverStatistics,
};

/// A light ACK is due after so many packets within one interval of ACKs (SELF_CLOCK_INTERVAL).
const LIGHT_ACK_EVERY: u64 = 64;
/// Full ACKs whose times are kept for their ACKACK (ACK_WND_SIZE).
const ACK_WINDOW: usize = 1_024;
/// The period of loss reports until the first one (m_tdMinNakInterval before `setupCC`).
const FIRST_NAK_INTERVAL: Duration = Duration::from_millis(300);
/// The shortest period of loss reports (LiveCC in `congctl.cpp`).
const MIN_NAK_INTERVAL: Duration = Duration::from_millis(20);
/// Words of 4 bytes in a loss report at most: a payload of 1,456 bytes.
const MAX_NAK_WORDS: u64 = 364;

/// A datagram for the application.
pub(super) struct Delivery {
    pub(super) message: u64,
    /// Packets given up before it.
    pub(super) dropped: u64,
}

/// The listener's side of a connection that is established.
#[derive(Clone, Debug)]
pub(super) struct ReceiverConnection {
    parameters: SrtParameters,
    attempt: u64,
    started: Time,
    liveness: Liveness,
    rtt: SrtRtt,
    timebase: TimeBase,
    arrivals: Arrivals,
    control: VecDeque<SrtPacket>,
    /// Packets from `first` on; the last one is present.
    buffer: VecDeque<Option<Slot>>,
    buffered: u64,
    /// The first packet that is neither delivered nor given up (m_iStartSeqNo).
    first: u64,
    /// Packets before it are belated (m_iRcvLastSkipAck).
    skipped_to: u64,
    /// One after the highest packet that came (m_iRcvCurrSeqNo + 1).
    next: u64,
    /// The same, counting also packets for which there was no room (m_iRcvCurrPhySeqNo + 1).
    next_seen: u64,
    lost: Ranges,
    acks: Acks,
    nak_interval: Duration,
    next_nak: Time,
    /// When the delivering thread wakes up.
    wake: Time,
    /// It waits for an ACK, as the buffer was empty (m_bTsbPdAckWakeup).
    wakes_with_ack: bool,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    message: u64,
    timestamp: Duration,
}

#[derive(Clone, Debug)]
struct Acks {
    next_time: Time,
    /// What the last full ACK acknowledged, and what an ACKACK confirmed.
    acknowledged: u64,
    confirmed: u64,
    /// When the last full ACK with rates was sent.
    last_full: Option<Time>,
    /// Number, what it acknowledged, and time of full ACKs without ACKACK.
    sent: VecDeque<(u64, u64, Time)>,
    last_number: u64,
    /// Packets since the last full ACK was due, and light ACKs since then and one.
    packets: u64,
    light: u64,
}

impl ReceiverConnection {
    pub(super) fn new(
        parameters: SrtParameters,
        now: Time,
        handshake: &Handshake,
        last_rtt: Option<Duration>,
    ) -> Self {
        let first = handshake.initial_sequence;
        Self {
            parameters,
            attempt: handshake.attempt,
            started: now,
            liveness: Liveness::new(now),
            rtt: SrtRtt::new(last_rtt),
            timebase: TimeBase::new(now, handshake.timestamp),
            arrivals: Arrivals::new(now),
            control: VecDeque::new(),
            buffer: VecDeque::new(),
            buffered: 0,
            first,
            skipped_to: first,
            next: first,
            next_seen: first,
            lost: Ranges::default(),
            acks: Acks {
                next_time: now + SYN_INTERVAL,
                acknowledged: first,
                confirmed: first,
                last_full: None,
                sent: VecDeque::new(),
                last_number: 0,
                packets: 0,
                light: 1,
            },
            nak_interval: FIRST_NAK_INTERVAL,
            next_nak: now + FIRST_NAK_INTERVAL,
            wake: Time::NEVER,
            wakes_with_ack: true,
        }
    }

    pub(super) fn attempt(&self) -> u64 {
        self.attempt
    }

    pub(super) fn rtt(&self) -> Duration {
        self.rtt.smoothed
    }

    pub(super) fn buffered(&self) -> Packets {
        Packets::new(self.buffered)
    }

    pub(super) fn next_check(&self) -> Time {
        self.liveness.next_check()
    }

    pub(super) fn next_timeout(&self) -> Time {
        if !self.control.is_empty() {
            return Time::ZERO;
        }
        self.next_check().min(self.wake)
    }

    pub(super) fn poll_transmit(&mut self) -> Option<SrtPacket> {
        self.control.pop_front()
    }

    pub(super) fn on_packet(
        &mut self,
        now: Time,
        packet: &SrtPacket,
        statistics: &mut SrtReceiverStatistics,
    ) -> Result<(), Broken> {
        self.liveness.on_packet(now);
        match packet {
            SrtPacket::Data { sequence, message, timestamp, is_retransmission, payload } => {
                if *is_retransmission {
                    statistics.retransmitted += Packets::new(1);
                }
                let slot = Slot { message: *message, timestamp: *timestamp };
                self.on_data(now, *sequence, slot, *payload, statistics)?;
            }
            SrtPacket::AckAck { number, timestamp } => self.on_ack_ack(now, *number, *timestamp),
            SrtPacket::DropRequest { first, last } => self.on_drop_request(*first, *last),
            SrtPacket::KeepAlive { timestamp } => self.timebase.on_sample(now, *timestamp, None),
            _ => {}
        }
        self.check_timers(now, statistics)
    }

    /// `processData`.
    fn on_data(
        &mut self,
        now: Time,
        sequence: u64,
        slot: Slot,
        payload: Bytes,
        statistics: &mut SrtReceiverStatistics,
    ) -> Result<(), Broken> {
        statistics.received += Packets::new(1);
        self.acks.packets += 1;
        self.arrivals.on_packet(now, payload);
        if sequence < self.skipped_to {
            statistics.belated += Packets::new(1);
            return Ok(());
        }
        if sequence - self.skipped_to >= self.available() {
            // Nothing can arrive any more that would make room.
            if self.parameters.drop_too_late && self.buffer.is_empty() {
                return Err(Broken);
            }
            statistics.no_room += Packets::new(1);
            return Ok(());
        }
        statistics.lost += Packets::new(sequence.saturating_sub(self.next_seen));
        self.next_seen = self.next_seen.max(sequence + 1);
        let is_new = self.insert(sequence, slot);
        let gap = (self.next, sequence);
        if sequence >= self.next {
            self.next = sequence + 1;
        } else {
            self.lost.remove(sequence, sequence);
        }
        if !is_new {
            statistics.duplicates += Packets::new(1);
            return Ok(());
        }
        if gap.0 < gap.1 {
            let range = (gap.0, gap.1 - 1);
            self.lost.insert(range.0, range.1);
            self.send_nak(now, vec![range], statistics);
            self.wake_up();
        } else if !self.parameters.drop_too_late {
            self.wake_up();
        }
        Ok(())
    }

    /// Returns whether it was not there.
    fn insert(&mut self, sequence: u64, slot: Slot) -> bool {
        let Some(index) = sequence.checked_sub(self.first) else { return false };
        if index >= self.capacity() {
            return false;
        }
        let index = index as usize;
        if index >= self.buffer.len() {
            self.buffer.resize(index + 1, None);
        }
        let entry = &mut self.buffer[index];
        if entry.is_some() {
            return false;
        }
        *entry = Some(slot);
        self.buffered += 1;
        true
    }

    /// One place stays empty (`capacity` in `buffer_rcv.h`).
    fn capacity(&self) -> u64 {
        self.parameters.receive_buffer.get().saturating_sub(1)
    }

    /// The first number for which there is no place, however empty the buffer is.
    fn room_end(&self) -> u64 {
        self.first + self.capacity()
    }

    /// Room in the buffer, without what is acknowledged and not read (`getAvailSize`).
    fn available(&self) -> u64 {
        self.capacity().saturating_sub(self.first.abs_diff(self.acks.acknowledged))
    }

    /// `processCtrlAckAck`.
    fn on_ack_ack(&mut self, now: Time, number: u64, timestamp: Duration) {
        let Some(index) = self.acks.sent.iter().position(|entry| entry.0 == number) else { return };
        let (_, next, sent) = self.acks.sent[index];
        self.acks.sent.drain(..=index);
        let rtt = now.since(sent);
        if rtt == Duration::ZERO {
            return;
        }
        self.rtt.on_sample(rtt);
        self.timebase.on_sample(now, timestamp, Some(rtt));
        self.acks.confirmed = self.acks.confirmed.max(next);
    }

    /// The sender does not have these any more. They are not reported again, but delivery waits for
    /// them as long as it would otherwise (`processCtrlDropReq`).
    fn on_drop_request(&mut self, first: u64, last: u64) {
        self.wake_up();
        self.lost.remove(first, last);
        if first <= self.next && (self.next..self.room_end()).contains(&last) {
            self.next = last + 1;
        }
    }

    /// `checkTimers`.
    pub(super) fn check_timers(
        &mut self,
        now: Time,
        statistics: &mut SrtReceiverStatistics,
    ) -> Result<(), Broken> {
        self.liveness.on_check(now);
        self.check_ack(now);
        self.check_nak(now, statistics);
        if self.liveness.is_broken(now, &self.rtt, self.parameters.peer_idle_timeout) {
            return Err(Broken);
        }
        if self.liveness.needs_keep_alive(now) {
            let timestamp = now.since(self.started);
            self.send_control(now, SrtPacket::KeepAlive { timestamp });
        }
        Ok(())
    }

    /// A full ACK each 10 ms, a light one after each 64 packets in between (`checkACKTimer`).
    fn check_ack(&mut self, now: Time) {
        let next = self.lost.first().unwrap_or(self.next);
        if now > self.acks.next_time {
            self.acks.next_time = now + SYN_INTERVAL;
            (self.acks.packets, self.acks.light) = (0, 1);
            self.full_ack(now, next);
        } else if self.acks.packets >= LIGHT_ACK_EVERY * self.acks.light {
            self.acks.light += 1;
            if self.acks.confirmed != next {
                self.send_control(now, SrtPacket::LightAck { next });
            }
        }
    }

    /// An ACK with nothing new is repeated after SRTT + 4 variances, until an ACKACK confirms it
    /// (`sendCtrlAck`).
    fn full_ack(&mut self, now: Time, next: u64) {
        if next == self.acks.confirmed || next < self.acks.acknowledged {
            return;
        }
        if next > self.acks.acknowledged {
            self.acks.acknowledged = next;
            self.skipped_to = next;
            if self.wakes_with_ack {
                self.wake_up();
            }
        } else if self.acks.last_full.is_some_and(|last| now.since(last) < self.rtt.upper()) {
            return;
        }
        if self.acks.acknowledged <= self.acks.confirmed {
            return;
        }
        let has_rates = self.acks.last_full.is_none_or(|last| now.since(last) > SYN_INTERVAL);
        if has_rates {
            self.acks.last_full = Some(now);
        }
        self.acks.last_number += 1;
        let ack = FullAck {
            number: self.acks.last_number,
            next: self.acks.acknowledged,
            rtt: self.rtt.smoothed,
            rtt_variance: self.rtt.variance,
            // Never less than 2, against a deadlock.
            available_buffer: Packets::new(self.available().max(2)),
            receiving_rate: has_rates.then(|| self.arrivals.rate()),
        };
        self.send_control(now, SrtPacket::Ack(ack));
        if self.acks.sent.len() == ACK_WINDOW {
            self.acks.sent.pop_front();
        }
        self.acks.sent.push_back((ack.number, ack.next, now));
    }

    /// All that is missing is reported again, one interval after the last report of this kind or
    /// after the last time that nothing was missing (`checkNAKTimer`).
    fn check_nak(&mut self, now: Time, statistics: &mut SrtReceiverStatistics) {
        if !self.parameters.periodic_nak {
            return;
        }
        if !self.lost.is_empty() {
            if now <= self.next_nak {
                return;
            }
            let mut words = 0;
            let fits = |range: &&(u64, u64)| {
                words += nak_words(range);
                words <= MAX_NAK_WORDS
            };
            let ranges = self.lost.as_slice().iter().take_while(fits).copied().collect();
            self.send_nak(now, ranges, statistics);
        }
        self.next_nak = now + self.nak_interval;
    }

    /// A report also sets the interval: half of SRTT + 4 variances, at least 20 ms (`sendCtrl`;
    /// LiveCC's `updateNAKInterval`).
    fn send_nak(
        &mut self,
        now: Time,
        ranges: Vec<(u64, u64)>,
        statistics: &mut SrtReceiverStatistics,
    ) {
        self.send_control(now, SrtPacket::Nak { ranges });
        statistics.naks += Packets::new(1);
        self.nak_interval = (self.rtt.upper() / 2).max(MIN_NAK_INTERVAL);
    }

    /// The first packet that is there: its distance from the first in the buffer, and when it is due.
    fn head(&self) -> Option<(usize, Slot, Time)> {
        let index = self.buffer.iter().position(Option::is_some)?;
        let slot = self.buffer[index]?;
        let at = self.timebase.delivery(slot.timestamp, self.parameters.latency);
        Some((index, slot, at))
    }

    /// The delivering thread looks at the buffer and waits for the first packet there is; it does
    /// not notice one that arrives later and is due before (`tsbpd`).
    fn wake_up(&mut self) {
        self.wakes_with_ack = false;
        self.wake = match self.head() {
            None => {
                self.wakes_with_ack = true;
                Time::NEVER
            }
            Some((index, ..)) if index > 0 && !self.parameters.drop_too_late => Time::NEVER,
            Some((.., at)) => at,
        };
    }

    /// When a packet is due, those missing before it are given up (`tsbpd`, `rcvDropTooLateUpTo`):
    /// a missing packet has time until the next one that is there is due.
    pub(super) fn poll_delivery(&mut self, now: Time) -> Option<Delivery> {
        if now < self.wake {
            return None;
        }
        let due = self
            .head()
            .filter(|(index, _, at)| *at <= now && (*index == 0 || self.parameters.drop_too_late));
        let Some((index, slot, _)) = due else {
            self.wake_up();
            return None;
        };
        self.buffer.drain(..=index);
        self.buffered -= 1;
        let missing = self.first..self.first + index as u64;
        self.first = missing.end + 1;
        if missing.end > missing.start && missing.end > self.skipped_to {
            self.lost.remove(missing.start.min(self.skipped_to), missing.end - 1);
            self.skipped_to = missing.end;
        }
        Some(Delivery { message: slot.message, dropped: missing.end - missing.start })
    }

    fn send_control(&mut self, now: Time, packet: SrtPacket) {
        self.liveness.on_sent(now);
        if self.control.len() < MAX_QUEUED_CONTROL {
            self.control.push_back(packet);
        }
    }
}
