//! `ristsender`: sends media at once, keeps it for a while, and sends again what is asked for.

use std::collections::VecDeque;

use ontempo_foundation::{Bytes, Duration, Time};

use super::bandwidth::Bandwidth;
use super::{
    LOOP, MAX_OUTBOX, MAX_PAYLOAD, NULL_DELETION_HEADER, NackRange, REPORT_INTERVAL,
    RistCongestionControl, RistEnd, RistPacket, RistParameters, SEQUENCES, TRANSPORT_PACKET,
    echo_rtt,
};

/// Requests for echoes at the start (rist-common.c, `rist_fsm_init_comm`).
const FIRST_ECHOES: usize = 3;
/// How often dead peers are looked for (rist-common.c, `sender_pthread_protocol`).
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Datagrams dropped from the store in one loop, at most (udp.c, `rist_clean_sender_enqueue`).
const DROPPED_PER_LOOP: usize = 9;
/// Size by which the retransmissions of a loop are reckoned (rist-common.c, `init_peer_settings`).
const ASSUMED_PACKET_BITS: u64 = 8 * 1400;
/// `RIST_RETRY_QUEUE_BUFFERS` (rist-private.h).
const MAX_RETRIES_QUEUED: usize = 4 * SEQUENCES;
/// What waits in the socket's receive buffer of 2 MiB between two loops: the kernel counts about 1 KiB
/// for a small packet.
const MAX_INBOX: usize = 2048;
/// Null packet deletion is for at most so many transport packets (mpegts.c, `suppress_null_packets`).
const MAX_TRANSPORT_PACKETS: u64 = 7;

/// Counters of a sender, since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RistSenderStatistics {
    /// Datagrams refused: before the receiver was heard of, or of a wrong size.
    pub refused: u64,
    /// Datagrams sent for the first time.
    pub sent: u64,
    /// Datagrams never sent, since the receiver counted as dead. They may be asked for later.
    pub held: u64,
    /// Retransmissions.
    pub retransmitted: u64,
    /// Requests ignored within a round-trip time of the last for the same datagram.
    pub repeated: u64,
    /// Requests not met because of the rate.
    pub over_rate: u64,
    /// Requests not met: the datagram was gone, the request old, or the datagram sent too often.
    pub unmet: u64,
    /// Packets lost in this host, since nothing took them from here.
    pub overflowed: u64,
    /// The last round-trip time.
    pub rtt: Duration,
}

/// A datagram that can be sent again.
#[derive(Clone, Copy, Debug)]
struct Stored {
    datagram: u64,
    payload: Bytes,
    /// When the application gave it.
    given: Time,
    last_request: Option<Time>,
    /// A request other than the first waits in the queue.
    is_queued: bool,
    retransmissions: u32,
}

#[derive(Clone, Copy, Debug)]
struct Retry {
    sequence: u16,
    requested: Time,
}

/// The sending end.
#[derive(Clone, Debug)]
pub struct RistSender {
    parameters: RistParameters,
    /// The receiver has been heard of: the program takes its input.
    is_connected: bool,
    is_dead: bool,
    last_received: Option<Time>,
    answers_echoes: bool,
    last_loop: Time,
    next_check: Time,
    next_report: Time,
    next_retries: Time,
    next_datagram: u64,
    next_sequence: u16,
    /// In the order of sequence numbers; the last has `next_sequence - 1`.
    stored: VecDeque<Stored>,
    retries: VecDeque<Retry>,
    sent_rate: Bandwidth,
    retry_rate: Bandwidth,
    inbox: VecDeque<RistPacket>,
    outbox: VecDeque<RistPacket>,
    statistics: RistSenderStatistics,
}

impl RistSender {
    /// A sender that starts now, and calls its receiver.
    pub fn new(parameters: RistParameters, now: Time) -> Self {
        let mut sender = Self {
            parameters,
            is_connected: false,
            is_dead: false,
            last_received: None,
            answers_echoes: false,
            last_loop: now,
            next_check: now,
            next_report: now,
            next_retries: now,
            next_datagram: 0,
            next_sequence: 0,
            stored: VecDeque::new(),
            retries: VecDeque::new(),
            sent_rate: Bandwidth::new(),
            retry_rate: Bandwidth::new(),
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            statistics: RistSenderStatistics::default(),
        };
        sender.put(now, RistPacket::SenderReport { echo_request: None });
        for _ in 0..FIRST_ECHOES {
            sender.put(now, RistPacket::EchoRequest { sent: now });
        }
        sender
    }

    /// The application gives a datagram; `null_packets` of its transport packets of 188 bytes carry
    /// nothing. False if it is refused: `ristsender` throws its input away until the receiver has been
    /// heard of (tools/ristsender.c, `input_udp_recv`). Datagrams are numbered from 0, refused ones
    /// included.
    pub fn push(&mut self, now: Time, payload: Bytes, null_packets: u8) -> bool {
        let datagram = self.next_datagram;
        self.next_datagram += 1;
        if !self.is_connected || payload == Bytes::ZERO || payload.get() > MAX_PAYLOAD {
            self.statistics.refused += 1;
            return false;
        }
        if self.stored.len() == SEQUENCES {
            self.stored.pop_front();
        }
        self.stored.push_back(Stored {
            datagram,
            payload: self.carried(payload, null_packets),
            given: now,
            last_request: None,
            is_queued: false,
            retransmissions: 0,
        });
        self.next_sequence = self.next_sequence.wrapping_add(1);
        // The datagram wakes the loop (rist.c, `rist_sender_data_write`).
        self.run_loop(now, true);
        true
    }

    /// A packet arrives. It is read by the next loop: after a datagram of the application, or 5 ms.
    pub fn on_packet(&mut self, _now: Time, packet: &RistPacket) {
        if self.inbox.len() < MAX_INBOX {
            self.inbox.push_back(packet.clone());
        } else {
            self.statistics.overflowed += 1;
        }
    }

    /// The next packet to send now.
    pub fn poll_transmit(&mut self, _now: Time) -> Option<RistPacket> {
        self.outbox.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub fn next_timeout(&self) -> Time {
        self.last_loop + LOOP
    }

    /// The timeout has passed. Earlier, nothing happens.
    pub fn handle_timeout(&mut self, now: Time) {
        if now >= self.next_timeout() {
            self.run_loop(now, false);
        }
    }

    /// Counters since the start.
    pub fn statistics(&self) -> RistSenderStatistics {
        self.statistics
    }

    /// True once the receiver has been heard of.
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// One pass of rist-common.c, `sender_pthread_protocol`. Its timers compare with a clock that has
    /// passed them, here they may be equal.
    fn run_loop(&mut self, now: Time, has_datagram: bool) {
        self.last_loop = now;
        if now >= self.next_check {
            self.next_check += CHECK_INTERVAL;
            let last = self.last_received.unwrap_or(now);
            self.is_dead |= now.since(last) > self.parameters.session_timeout;
        }
        while let Some(packet) = self.inbox.pop_front() {
            self.receive(now, packet);
        }
        if now >= self.next_report {
            self.next_report = now + REPORT_INTERVAL;
            let echo_request = self.answers_echoes.then_some(now);
            self.put(now, RistPacket::SenderReport { echo_request });
        }
        if has_datagram {
            self.send_media(now);
        }
        if !self.stored.is_empty() {
            if now >= self.next_retries {
                self.next_retries += LOOP;
                self.send_retries(now);
            }
            self.drop_old(now);
        }
    }

    /// rist-common.c, `rist_peer_recv` and `rist_recv_rtcp`: whatever comes revives, and a name (SDES,
    /// in all of the receiver's RTCP packets) establishes the connection.
    fn receive(&mut self, now: Time, packet: RistPacket) {
        let is_report = match packet {
            RistPacket::ReceiverReport { echo_request, .. } => {
                self.answers_echoes = true;
                self.put(
                    now,
                    RistPacket::EchoResponse { from: RistEnd::Sender, request_sent: echo_request },
                );
                true
            }
            RistPacket::EchoResponse { from: RistEnd::Receiver, request_sent } => {
                self.answers_echoes = true;
                self.statistics.rtt = echo_rtt(now, request_sent);
                true
            }
            RistPacket::Nack { ranges } => {
                for range in ranges {
                    self.request(now, range);
                }
                true
            }
            RistPacket::Notice => false,
            // Of the sender's own kinds; no receiver sends them.
            _ => return,
        };
        self.last_received = Some(now);
        self.is_dead = false;
        self.is_connected |= is_report;
    }

    fn request(&mut self, now: Time, range: NackRange) {
        for offset in 0..=range.additional {
            let sequence = range.first.wrapping_add(offset);
            if self.admits(now, sequence) && self.retries.len() < MAX_RETRIES_QUEUED {
                self.retries.push_back(Retry { sequence, requested: now });
            }
        }
    }

    /// udp.c, `rist_retry_enqueue`: whether a request is queued.
    fn admits(&mut self, now: Time, sequence: u16) -> bool {
        let mode = self.parameters.congestion_control;
        let mut spacing = self.parameters.bounded_rtt(self.statistics.rtt);
        if mode == RistCongestionControl::Aggressive {
            spacing = spacing * 2;
        }
        let Some(stored) = self.stored_mut(sequence) else {
            self.statistics.unmet += 1;
            return false;
        };
        if mode != RistCongestionControl::Off {
            if stored.is_queued {
                return false;
            }
            if let Some(last) = stored.last_request {
                if now.since(last) < spacing {
                    self.statistics.repeated += 1;
                    return false;
                }
                stored.is_queued = true;
            }
        }
        stored.last_request = Some(now);
        true
    }

    /// rist-common.c, `sender_send_nacks`: as many retransmissions as fit into 5 ms at the highest rate,
    /// scaled by the buffer to 1 s, twice (`init_peer_settings`: 88 by default).
    fn send_retries(&mut self, now: Time) {
        let kilobits = self.parameters.max_bitrate.as_bits_per_sec() / 1000;
        let buffer_ms = (self.parameters.buffer.as_nanos() / 1_000_000).max(1);
        let per_loop = kilobits.saturating_mul(5) / ASSUMED_PACKET_BITS * 1000 / buffer_ms;
        let mut left = per_loop.max(1) * 2;
        while left > 0 {
            let Some(retry) = self.retries.pop_front() else { return };
            if self.send_again(now, retry) {
                left -= 1;
            }
        }
    }

    /// udp.c, `rist_retry_dequeue`: meets a request, or not. A request over the rate is gone.
    fn send_again(&mut self, now: Time, retry: Retry) -> bool {
        let RistParameters { buffer, max_retries, max_bitrate, congestion_control, .. } =
            self.parameters;
        let Some(stored) = self.stored_mut(retry.sequence) else {
            self.statistics.unmet += 1;
            return false;
        };
        stored.is_queued = false;
        let Stored { datagram, payload, given, retransmissions, .. } = *stored;
        self.sent_rate.add(now, 0);
        self.retry_rate.add(now, 0);
        let (sent, again) = match congestion_control {
            RistCongestionControl::Aggressive => (self.sent_rate.fast(), self.retry_rate.fast()),
            RistCongestionControl::Normal => (self.sent_rate.slow(), self.retry_rate.fast()),
            RistCongestionControl::Off => (self.sent_rate.slow(), self.retry_rate.slow()),
        };
        if sent.saturating_add(again) > max_bitrate.as_bits_per_sec() {
            self.statistics.over_rate += 1;
            return false;
        }
        if now.since(retry.requested) > buffer || retransmissions >= max_retries {
            self.statistics.unmet += 1;
            return false;
        }
        let packet = RistPacket::Data {
            sequence: retry.sequence,
            datagram,
            timestamp: given,
            is_retransmission: true,
            payload,
        };
        self.retry_rate.add(now, packet.datagram_size());
        self.queue(packet);
        self.statistics.retransmitted += 1;
        if let Some(stored) = self.stored_mut(retry.sequence) {
            stored.retransmissions += 1;
        }
        true
    }

    /// udp.c, `rist_sender_send_data_balanced`: nothing is sent to a dead receiver.
    fn send_media(&mut self, now: Time) {
        let Some(stored) = self.stored.back().copied() else { return };
        if self.is_dead {
            self.statistics.held += 1;
            return;
        }
        self.statistics.sent += 1;
        let packet = RistPacket::Data {
            sequence: self.next_sequence.wrapping_sub(1),
            datagram: stored.datagram,
            timestamp: stored.given,
            is_retransmission: false,
            payload: stored.payload,
        };
        self.put(now, packet);
    }

    /// udp.c, `rist_clean_sender_enqueue`: what is older than the buffer and twice the longest round-trip
    /// time goes.
    fn drop_old(&mut self, now: Time) {
        let kept = self.parameters.buffer + self.parameters.rtt_max * 2;
        for _ in 0..DROPPED_PER_LOOP {
            if self.stored.front().is_none_or(|oldest| now.since(oldest.given) < kept) {
                return;
            }
            self.stored.pop_front();
        }
    }

    /// mpegts.c, `suppress_null_packets`: what is left of a payload of whole transport packets, behind an
    /// extension header; without null packets it stays as it is.
    fn carried(&self, payload: Bytes, null_packets: u8) -> Bytes {
        let packets = payload.get() / TRANSPORT_PACKET;
        let is_whole =
            payload.get().is_multiple_of(TRANSPORT_PACKET) && packets <= MAX_TRANSPORT_PACKETS;
        if !self.parameters.null_packet_deletion || !is_whole || null_packets == 0 {
            return payload;
        }
        let left = packets.saturating_sub(u64::from(null_packets));
        Bytes::new(left * TRANSPORT_PACKET + NULL_DELETION_HEADER)
    }

    fn stored_mut(&mut self, sequence: u16) -> Option<&mut Stored> {
        let back = usize::from(self.next_sequence.wrapping_sub(1).wrapping_sub(sequence));
        let place = self.stored.len().checked_sub(back + 1)?;
        self.stored.get_mut(place)
    }

    /// Sends what counts as the peer's rate: all but retransmissions.
    fn put(&mut self, now: Time, packet: RistPacket) {
        self.sent_rate.add(now, packet.datagram_size());
        self.queue(packet);
    }

    fn queue(&mut self, packet: RistPacket) {
        if self.outbox.len() < MAX_OUTBOX {
            self.outbox.push_back(packet);
        } else {
            self.statistics.overflowed += 1;
        }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.stored.len() + self.retries.len() + self.inbox.len() + self.outbox.len()
    }
}
