use ontempo_foundation::{Bytes, Duration, Packets, Time};

use super::input::Input;
use super::sender_connection::SenderConnection;
use super::{Handshake, HandshakeStep, SrtPacket, SrtParameters};

/// A request of the handshake is repeated after this time (250 ms; `qualifyToHandle` in `queue.cpp`).
const REPEAT_REQUEST: Duration = Duration::from_millis(250);

/// The caller, which has the media.
///
/// It connects at once, and again whenever the connection breaks, as `srt-live-transmit` does.
#[derive(Clone, Debug)]
pub struct SrtSender {
    parameters: SrtParameters,
    started: Time,
    state: State,
    input: Option<Input>,
    attempt: u64,
    /// Number of the application's next datagram.
    next_message: u64,
    /// The sequence number with which the next connection begins.
    next_sequence: u64,
    /// RTT of the last connection (`CCache`).
    last_rtt: Option<Duration>,
    /// A connection that has to be closed at the peer.
    shutdown: Option<u64>,
    statistics: SrtSenderStatistics,
}

/// What happened so far, over all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SrtSenderStatistics {
    /// Connections established.
    pub connections: u64,
    /// Datagrams that were refused: not connected, buffer full, empty or too large.
    pub refused: Packets,
    /// Data packets sent for the first time.
    pub sent: Packets,
    /// Data packets sent again.
    pub retransmitted: Packets,
    /// Packets that the peer reported as lost, each time that it was not yet known.
    pub reported_lost: Packets,
    /// Datagrams given up because they were too late.
    pub dropped: Packets,
    /// Datagrams that were in the buffer when a connection broke, sent or not.
    pub abandoned: Packets,
}

#[derive(Clone, Debug)]
enum State {
    Connecting { step: HandshakeStep, since: Time, next_request: Time },
    Connected(Box<SenderConnection>),
}

impl SrtSender {
    /// A caller that begins to connect at `now`.
    pub fn new(parameters: SrtParameters, now: Time) -> Self {
        Self {
            parameters,
            started: now,
            state: connecting(now),
            input: parameters.input_interval.map(|interval| Input::new(interval, now)),
            attempt: 0,
            next_message: 0,
            next_sequence: 0,
            last_rtt: None,
            shutdown: None,
            statistics: SrtSenderStatistics::default(),
        }
    }

    /// The application's next datagram; they are numbered from 0, also those refused. Refused
    /// (`false`) and lost is one that comes while there is no connection or the send buffer is full
    /// (`srt-live-transmit` does not wait), is empty, or is larger than 1,316 bytes. With
    /// [`input_interval`](SrtParameters::input_interval) this turns out when it is read, later: the
    /// answer is then `true`, and it is counted as refused.
    pub fn push(&mut self, now: Time, payload: Bytes) -> bool {
        let message = self.next_message;
        self.next_message += 1;
        let taken = match &mut self.input {
            None => return self.submit(now, message, payload),
            Some(input) => input.push(now, message, payload),
        };
        if !taken {
            self.statistics.refused += Packets::new(1);
        }
        taken
    }

    fn submit(&mut self, now: Time, message: u64, payload: Bytes) -> bool {
        let accepted = match &mut self.state {
            State::Connecting { .. } => false,
            State::Connected(connection) => {
                connection.push(now, message, payload, &mut self.statistics)
            }
        };
        if !accepted {
            self.statistics.refused += Packets::new(1);
        }
        accepted
    }

    fn read_input(&mut self, now: Time) {
        while let Some((message, payload)) = self.input.as_mut().and_then(|input| input.read(now)) {
            self.submit(now, message, payload);
        }
    }

    /// A packet from the listener.
    pub fn on_packet(&mut self, now: Time, packet: &SrtPacket) {
        match (packet, &mut self.state) {
            (SrtPacket::Handshake(handshake), _) => self.on_handshake(now, handshake),
            (SrtPacket::Shutdown { attempt }, State::Connected(_)) => {
                if *attempt == self.attempt {
                    self.reconnect(now);
                }
            }
            (_, State::Connected(connection)) => {
                let before = connection.acknowledged();
                if connection.on_packet(now, packet, &mut self.statistics).is_err() {
                    self.break_connection(now);
                } else if connection.acknowledged() > before {
                    // `updateSndLossListOnACK` triggers the event for which the program waits.
                    self.input.iter_mut().for_each(|input| input.wake(now));
                    self.read_input(now);
                }
            }
            (_, State::Connecting { .. }) => {}
        }
    }

    /// The next packet to send now.
    pub fn poll_transmit(&mut self, now: Time) -> Option<SrtPacket> {
        if let Some(attempt) = self.shutdown.take() {
            return Some(SrtPacket::Shutdown { attempt });
        }
        let timestamp = now.since(self.started);
        match &mut self.state {
            State::Connecting { step, next_request, .. } if *next_request <= now => {
                *next_request = now + REPEAT_REQUEST;
                Some(SrtPacket::Handshake(Handshake {
                    step: *step,
                    attempt: self.attempt,
                    timestamp,
                    initial_sequence: self.next_sequence,
                    flow_window: self.parameters.flight_capacity(),
                }))
            }
            State::Connecting { .. } => None,
            State::Connected(connection) => connection.poll_transmit(now, &mut self.statistics),
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) and then [`poll_transmit`](Self::poll_transmit)
    /// are to be called if nothing else happens.
    pub fn next_timeout(&self) -> Time {
        if self.shutdown.is_some() {
            return Time::ZERO;
        }
        let input = self.input.as_ref().map_or(Time::NEVER, Input::next_read);
        input.min(match &self.state {
            State::Connecting { since, next_request, .. } => {
                (*next_request).min(*since + self.parameters.connection_timeout)
            }
            State::Connected(connection) => connection.next_timeout(),
        })
    }

    /// Timers.
    pub fn handle_timeout(&mut self, now: Time) {
        self.read_input(now);
        match &mut self.state {
            State::Connecting { since, .. } => {
                if now >= *since + self.parameters.connection_timeout {
                    self.reconnect(now);
                }
            }
            State::Connected(connection) => {
                if now >= connection.next_check()
                    && connection.check_timers(now, &mut self.statistics).is_err()
                {
                    self.break_connection(now);
                }
            }
        }
    }

    /// Whether the handshake is done.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected(_))
    }

    /// Datagrams that wait or are not acknowledged.
    pub fn buffered(&self) -> Packets {
        match &self.state {
            State::Connecting { .. } => Packets::default(),
            State::Connected(connection) => connection.buffered(),
        }
    }

    /// What happened so far.
    pub fn statistics(&self) -> SrtSenderStatistics {
        self.statistics
    }

    fn on_handshake(&mut self, now: Time, handshake: &Handshake) {
        if handshake.attempt != self.attempt {
            return;
        }
        let State::Connecting { step, next_request, .. } = &mut self.state else { return };
        match (handshake.step, *step) {
            (HandshakeStep::InductionAnswer, HandshakeStep::Induction) => {
                // The next request leaves at once (`processAsyncConnectRequest`).
                (*step, *next_request) = (HandshakeStep::Conclusion, now);
            }
            (HandshakeStep::ConclusionAnswer, HandshakeStep::Conclusion) => {
                self.statistics.connections += 1;
                self.state = State::Connected(Box::new(SenderConnection::new(
                    self.parameters,
                    now,
                    self.started,
                    self.next_sequence,
                    handshake.flow_window,
                    self.last_rtt,
                )));
            }
            _ => {}
        }
    }

    /// The application closes a broken connection, which tells the peer (`closeInternal`).
    fn break_connection(&mut self, now: Time) {
        self.shutdown = Some(self.attempt);
        self.reconnect(now);
    }

    fn reconnect(&mut self, now: Time) {
        if let State::Connected(connection) = &self.state {
            self.next_sequence = connection.next_sequence();
            self.last_rtt = Some(connection.rtt());
            self.statistics.abandoned += connection.buffered();
        }
        self.attempt += 1;
        self.state = connecting(now);
    }
}

fn connecting(now: Time) -> State {
    State::Connecting { step: HandshakeStep::Induction, since: now, next_request: now }
}
