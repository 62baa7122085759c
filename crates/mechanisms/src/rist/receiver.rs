//! `ristreceiver`: listens, and gives what arrives to its application after the buffer's time.

use std::collections::VecDeque;

use ontempo_foundation::{Duration, Time};

use super::flow::{Flow, Media};
use super::{
    LOOP, MAX_OUTBOX, REPORT_INTERVAL, RistEnd, RistPacket, RistParameters, SEQUENCES, echo_rtt,
};

pub use super::flow::RistReceiverStatistics;

/// How often dead peers are looked for (rist-common.c, `receiver_pthread_protocol`).
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// A dead peer is forgotten after this (rist-common.c, `rist_timeout_check`).
const FORGOTTEN_AFTER: Duration = Duration::from_secs(5);

/// The sender, as the receiver knows it.
#[derive(Clone, Copy, Debug)]
struct Peer {
    /// When it died.
    dead_since: Option<Time>,
    last_received: Time,
    is_authenticated: bool,
    answers_echoes: bool,
    next_report: Time,
    eight_times_rtt_ms: u64,
}

/// The receiving end, which listens.
#[derive(Clone, Debug)]
pub struct RistReceiver {
    parameters: RistParameters,
    peer: Option<Peer>,
    flow: Option<Flow>,
    /// When the loop that handles packets last began to wait. Its timers go by this.
    loop_started: Time,
    next_nacks: Time,
    next_check: Time,
    /// When the loop that gives out datagrams last ran.
    output_ran: Time,
    next_datagram: u64,
    outbox: VecDeque<RistPacket>,
    deliveries: VecDeque<u64>,
    statistics: RistReceiverStatistics,
}

impl RistReceiver {
    /// A receiver that listens from now on.
    pub fn new(parameters: RistParameters, now: Time) -> Self {
        Self {
            parameters,
            peer: None,
            flow: None,
            loop_started: now,
            next_nacks: now,
            next_check: now,
            output_ran: now,
            next_datagram: 0,
            outbox: VecDeque::new(),
            deliveries: VecDeque::new(),
            statistics: RistReceiverStatistics::default(),
        }
    }

    /// A packet arrives (rist-common.c, `rist_peer_recv`).
    pub fn on_packet(&mut self, now: Time, packet: &RistPacket) {
        let is_media = matches!(packet, RistPacket::Data { .. });
        match &mut self.peer {
            Some(peer) => {
                peer.dead_since = None;
                peer.last_received = now;
                if let Some(flow) = &mut self.flow {
                    flow.last_received = now;
                }
                self.receive(now, packet);
            }
            // A peer is made by its first RTCP packet, which is not read any further.
            None if !is_media => self.meet(now),
            None => self.statistics.refused += 1,
        }
        self.run_loop(now);
    }

    /// What arrives from now on comes from another address, and so from a new peer: its media is taken
    /// into the flow once it has named itself (rist-common.c, `rist_peer_recv`,
    /// `rist_receiver_rtcp_authenticate`). What the receiver sends goes to it alone here; librist also
    /// sends to the old one, until that is forgotten.
    pub fn on_new_address(&mut self) {
        self.peer = None;
    }

    /// The next packet to send now.
    pub fn poll_transmit(&mut self, _now: Time) -> Option<RistPacket> {
        self.outbox.pop_front()
    }

    /// The next datagram that the application is given now.
    pub fn poll_delivery(&mut self, _now: Time) -> Option<u64> {
        self.deliveries.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub fn next_timeout(&self) -> Time {
        if self.peer.is_none() && self.flow.is_none() {
            return Time::NEVER;
        }
        let next_loop = self.loop_started + LOOP;
        if self.has_media() { next_loop.min(self.output_ran + LOOP) } else { next_loop }
    }

    /// The timeout has passed. Earlier, nothing happens.
    pub fn handle_timeout(&mut self, now: Time) {
        if now >= self.output_ran + LOOP && self.has_media() {
            self.output(now);
        }
        if now >= self.loop_started + LOOP {
            self.run_loop(now);
        }
    }

    /// Counters since the start.
    pub fn statistics(&self) -> RistReceiverStatistics {
        let rtt = self.peer.map_or(0, |peer| peer.eight_times_rtt_ms / 8);
        RistReceiverStatistics { rtt: Duration::from_millis(rtt), ..self.statistics }
    }

    fn has_media(&self) -> bool {
        self.flow.as_ref().is_some_and(Flow::is_occupied)
    }

    /// A sender unknown until now.
    fn meet(&mut self, now: Time) {
        self.peer = Some(Peer {
            dead_since: None,
            last_received: now,
            is_authenticated: false,
            answers_echoes: false,
            next_report: Time::ZERO,
            eight_times_rtt_ms: self.parameters.rtt_min.as_nanos() / 1_000_000 * 8,
        });
        if self.flow.is_none() {
            self.loop_started = now;
            self.next_nacks = now;
            self.next_check = now;
            self.output_ran = now;
        }
        self.put(RistPacket::Notice);
    }

    fn receive(&mut self, now: Time, packet: &RistPacket) {
        match *packet {
            RistPacket::Data { sequence, datagram, timestamp, is_retransmission, .. } => {
                self.receive_media(now, Media { sequence, datagram, timestamp, is_retransmission });
            }
            RistPacket::SenderReport { echo_request } => {
                self.authenticate(now);
                if let Some(sent) = echo_request {
                    self.answer(sent);
                }
            }
            RistPacket::EchoRequest { sent } => {
                self.authenticate(now);
                self.answer(sent);
            }
            RistPacket::EchoResponse { from: RistEnd::Sender, request_sent } => {
                self.authenticate(now);
                if let Some(peer) = &mut self.peer {
                    peer.answers_echoes = true;
                    let rtt = echo_rtt(now, request_sent).as_nanos() / 1_000_000;
                    peer.eight_times_rtt_ms =
                        peer.eight_times_rtt_ms - peer.eight_times_rtt_ms / 8 + rtt;
                }
            }
            // Of the receiver's own kinds; no sender sends them.
            _ => {}
        }
    }

    /// The sender's name (SDES) makes it a peer whose media is taken, and its flow, where it has none
    /// (rist-common.c, `rist_receiver_rtcp_authenticate`).
    fn authenticate(&mut self, now: Time) {
        let Some(peer) = &mut self.peer else { return };
        peer.is_authenticated = true;
        let (parameters, next_datagram) = (self.parameters, self.next_datagram);
        self.flow.get_or_insert_with(|| Flow::new(parameters, now, next_datagram));
    }

    fn answer(&mut self, request_sent: Time) {
        if let Some(peer) = &mut self.peer {
            peer.answers_echoes = true;
        }
        self.put(RistPacket::EchoResponse { from: RistEnd::Receiver, request_sent });
    }

    fn receive_media(&mut self, now: Time, media: Media) {
        // rist-common.c, `rist_receiver_recv_data`: half a round-trip time, at least the reorder buffer.
        let wait = (self.rtt() / 2).max(self.parameters.reorder_buffer);
        let is_authenticated = self.peer.is_some_and(|peer| peer.is_authenticated);
        match &mut self.flow {
            Some(flow) if is_authenticated => flow.receive(now, media, wait, &mut self.statistics),
            _ => self.statistics.refused += 1,
        }
        // A packet wakes the loop that gives out.
        self.output(now);
    }

    /// The round-trip time within its bounds.
    fn rtt(&self) -> Duration {
        let rtt = self.peer.map_or(0, |peer| peer.eight_times_rtt_ms / 8);
        self.parameters.bounded_rtt(Duration::from_millis(rtt))
    }

    fn output(&mut self, now: Time) {
        self.output_ran = now;
        let Some(flow) = &mut self.flow else { return };
        let (deliveries, statistics) = (&mut self.deliveries, &mut self.statistics);
        let mut overflowed = 0;
        flow.output(
            now,
            &mut |datagram| {
                if deliveries.len() < SEQUENCES {
                    deliveries.push_back(datagram);
                } else {
                    overflowed += 1;
                }
            },
            statistics,
        );
        statistics.overflowed += overflowed;
    }

    /// The rest of a pass of rist-common.c, `receiver_pthread_protocol`, after it waited for packets. Its
    /// timers go by the time before it waited.
    fn run_loop(&mut self, now: Time) {
        let started = self.loop_started;
        self.report(now, started);
        if started >= self.next_nacks {
            self.next_nacks += LOOP;
            self.ask(now);
        }
        if started >= self.next_check {
            self.next_check += CHECK_INTERVAL;
            self.check_peer(now, started);
        }
        self.loop_started = now;
        if self.flow.as_mut().is_some_and(|flow| flow.check(now)) {
            self.delete_flow();
        }
    }

    /// rist-common.c, `receiver_peer_events`: nothing to a dead peer.
    fn report(&mut self, now: Time, started: Time) {
        let Some(peer) = &mut self.peer else { return };
        if started < peer.next_report {
            return;
        }
        peer.next_report = started + REPORT_INTERVAL;
        if peer.dead_since.is_none() {
            let is_extended = !peer.answers_echoes;
            self.put(RistPacket::ReceiverReport { echo_request: now, is_extended });
        }
    }

    /// A dead peer is asked, too (rist-common.c, `send_nack_group`).
    fn ask(&mut self, now: Time) {
        let rtt = self.rtt();
        let has_peer = self.peer.is_some();
        let Some(flow) = &mut self.flow else { return };
        let (outbox, statistics) = (&mut self.outbox, &mut self.statistics);
        let mut overflowed = 0;
        flow.ask(
            now,
            rtt,
            &mut |ranges| {
                if has_peer && outbox.len() < MAX_OUTBOX {
                    outbox.push_back(RistPacket::Nack { ranges });
                } else {
                    overflowed += 1;
                }
            },
            statistics,
        );
        statistics.overflowed += overflowed;
    }

    /// rist-common.c, `rist_timeout_check`.
    fn check_peer(&mut self, now: Time, started: Time) {
        let Some(peer) = &mut self.peer else { return };
        match peer.dead_since {
            None if started.since(peer.last_received) > self.parameters.session_timeout => {
                peer.dead_since = Some(now);
            }
            Some(since) if started.since(since) > FORGOTTEN_AFTER => self.peer = None,
            _ => {}
        }
    }

    /// flow.c, `rist_delete_flow`: the sender has to name itself again.
    fn delete_flow(&mut self) {
        if let Some(flow) = self.flow.take() {
            self.next_datagram = flow.next_datagram();
        }
        if let Some(peer) = &mut self.peer {
            peer.is_authenticated = false;
        }
    }

    fn put(&mut self, packet: RistPacket) {
        if self.outbox.len() < MAX_OUTBOX {
            self.outbox.push_back(packet);
        } else {
            self.statistics.overflowed += 1;
        }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let flow = self.flow.as_ref().map_or(0, Flow::held);
        flow + self.outbox.len() + self.deliveries.len()
    }
}
