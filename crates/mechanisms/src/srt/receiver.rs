use std::collections::VecDeque;

use ontempo_foundation::{Duration, Packets, Time};

use super::receiver_connection::{Delivery, ReceiverConnection};
use super::{Handshake, HandshakeStep, MAX_QUEUED_CONTROL, SrtPacket, SrtParameters};

/// No caller gets that far; numbers after it do not overflow.
const MAX_INITIAL_SEQUENCE: u64 = u64::MAX / 2;

/// The listener, which delivers the media.
///
/// It accepts one connection at a time, and the next when that one is broken or closed, as
/// `srt-live-transmit` does. What it has not delivered by then is lost.
#[derive(Clone, Debug)]
pub struct SrtReceiver {
    parameters: SrtParameters,
    connection: Option<Box<ReceiverConnection>>,
    /// Answers of the handshake and the end of a connection.
    answers: VecDeque<SrtPacket>,
    /// RTT of the last connection (`CCache`).
    last_rtt: Option<Duration>,
    statistics: SrtReceiverStatistics,
}

/// What happened so far, over all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SrtReceiverStatistics {
    /// Connections accepted.
    pub connections: u64,
    /// Data packets that came, of all kinds.
    pub received: Packets,
    /// Those sent again.
    pub retransmitted: Packets,
    /// Those that had come before, and came before their delivery.
    pub duplicates: Packets,
    /// Those acknowledged or given up before.
    pub belated: Packets,
    /// Those for which there was no room.
    pub no_room: Packets,
    /// Packets missing when a later one came, also if it was only out of order.
    pub lost: Packets,
    /// Packets given up because a later one was due.
    pub dropped: Packets,
    /// Datagrams given to the application.
    pub delivered: Packets,
    /// Loss reports sent.
    pub naks: Packets,
}

impl SrtReceiver {
    /// A listener.
    pub fn new(parameters: SrtParameters) -> Self {
        Self {
            parameters,
            connection: None,
            answers: VecDeque::new(),
            last_rtt: None,
            statistics: SrtReceiverStatistics::default(),
        }
    }

    /// A packet from the caller.
    pub fn on_packet(&mut self, now: Time, packet: &SrtPacket) {
        match (packet, &mut self.connection) {
            (SrtPacket::Handshake(handshake), _) => self.on_handshake(now, handshake),
            (SrtPacket::Shutdown { attempt }, Some(connection)) => {
                if *attempt == connection.attempt() {
                    self.listen();
                }
            }
            (_, Some(connection)) => {
                if connection.on_packet(now, packet, &mut self.statistics).is_err() {
                    self.break_connection();
                }
            }
            (_, None) => {}
        }
    }

    /// The next packet to send now.
    pub fn poll_transmit(&mut self, _now: Time) -> Option<SrtPacket> {
        self.answers.pop_front().or_else(|| self.connection.as_mut()?.poll_transmit())
    }

    /// When [`handle_timeout`](Self::handle_timeout), [`poll_delivery`](Self::poll_delivery) and
    /// [`poll_transmit`](Self::poll_transmit) are to be called if nothing else happens.
    pub fn next_timeout(&self) -> Time {
        if !self.answers.is_empty() {
            return Time::ZERO;
        }
        self.connection.as_ref().map_or(Time::NEVER, |connection| connection.next_timeout())
    }

    /// Timers.
    pub fn handle_timeout(&mut self, now: Time) {
        if let Some(connection) = &mut self.connection
            && now >= connection.next_check()
            && connection.check_timers(now, &mut self.statistics).is_err()
        {
            self.break_connection();
        }
    }

    /// The number of the datagram that the application is given now; `None` if none is due.
    pub fn poll_delivery(&mut self, now: Time) -> Option<u64> {
        let connection = self.connection.as_mut()?;
        let Delivery { message, dropped } = connection.poll_delivery(now)?;
        self.statistics.dropped += Packets::new(dropped);
        self.statistics.delivered += Packets::new(1);
        Some(message)
    }

    /// Whether a caller is connected.
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Datagrams that wait for their delivery.
    pub fn buffered(&self) -> Packets {
        self.connection.as_ref().map_or(Packets::default(), |connection| connection.buffered())
    }

    /// What happened so far.
    pub fn statistics(&self) -> SrtReceiverStatistics {
        self.statistics
    }

    fn on_handshake(&mut self, now: Time, handshake: &Handshake) {
        if handshake.initial_sequence > MAX_INITIAL_SEQUENCE {
            return;
        }
        let current = self.connection.as_ref().map(|connection| connection.attempt());
        let step = match (handshake.step, current) {
            (HandshakeStep::Induction, None) => HandshakeStep::InductionAnswer,
            (HandshakeStep::Conclusion, None) => {
                self.connection = Some(Box::new(ReceiverConnection::new(
                    self.parameters,
                    now,
                    handshake,
                    self.last_rtt,
                )));
                self.statistics.connections += 1;
                HandshakeStep::ConclusionAnswer
            }
            // The answer was lost (`newConnection` in `api.cpp`).
            (HandshakeStep::Conclusion, Some(attempt)) if attempt == handshake.attempt => {
                HandshakeStep::ConclusionAnswer
            }
            // Nobody listens while a connection lasts (`AcceptNewClient` in `transmitmedia.cpp`).
            _ => return,
        };
        self.answer(SrtPacket::Handshake(Handshake {
            step,
            attempt: handshake.attempt,
            timestamp: Duration::ZERO,
            initial_sequence: handshake.initial_sequence,
            flow_window: self.parameters.flight_capacity(),
        }));
    }

    fn answer(&mut self, packet: SrtPacket) {
        if self.answers.len() < MAX_QUEUED_CONTROL {
            self.answers.push_back(packet);
        }
    }

    fn break_connection(&mut self) {
        if let Some(connection) = &self.connection {
            let attempt = connection.attempt();
            self.answer(SrtPacket::Shutdown { attempt });
        }
        self.listen();
    }

    fn listen(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.last_rtt = Some(connection.rtt());
        }
    }
}
