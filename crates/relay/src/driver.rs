//! Runs a relay over a socket.

use std::sync::mpsc::SyncSender;

use bytes::BytesMut;
use ontempo_foundation::{Duration, Time};
use ontempo_transport::{Endpoint, Poll, Source};
use ontempo_udp::{Datagram, Next, Protocol, Transmit};

use crate::relay::{Relay, RelayEvent, RelayStatistics};

/// Time limit for telling all connections that the relay ends.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Bytes of a receive buffer, which several datagrams share.
const RECEIVE_BUFFER: usize = 16 << 10;

/// What a program asks of a relay on its thread.
#[derive(Debug)]
pub enum Command {
    /// The figures, and what has happened since the last such command.
    Report(SyncSender<(RelayStatistics, Vec<RelayEvent>)>),
    /// Close all connections and end.
    End,
}

/// A relay and its endpoint, as the [`Protocol`] of a UDP driver.
#[derive(Debug)]
pub struct RelayDriver {
    endpoint: Endpoint,
    relay: Relay,
    wake: Time,
    ends_at: Time,
    receive_buffer: BytesMut,
    bytes_received: u64,
    bytes_sent: u64,
}

impl RelayDriver {
    /// A relay over an endpoint that listens.
    pub fn new(endpoint: Endpoint, relay: Relay) -> Self {
        let (wake, ends_at) = (Time::NEVER, Time::NEVER);
        Self {
            endpoint,
            relay,
            wake,
            ends_at,
            receive_buffer: BytesMut::new(),
            bytes_received: 0,
            bytes_sent: 0,
        }
    }
}

impl Protocol for RelayDriver {
    type Command = Command;

    fn handle(&mut self, now: Time, datagram: Datagram<'_>) {
        self.bytes_received += datagram.data.len() as u64;
        if self.receive_buffer.capacity() < datagram.data.len() {
            self.receive_buffer.reserve(RECEIVE_BUFFER.max(datagram.data.len()));
        }
        self.receive_buffer.extend_from_slice(datagram.data);
        let data = self.receive_buffer.split();
        self.endpoint.handle(now, Source::from(&datagram), data);
        self.relay.take(now, &mut self.endpoint);
    }

    fn handle_command(&mut self, now: Time, command: Command) {
        match command {
            Command::Report(reply) => {
                let events = std::iter::from_fn(|| self.relay.poll_event()).collect();
                let statistics = RelayStatistics {
                    bytes_received: self.bytes_received,
                    bytes_sent: self.bytes_sent,
                    ..self.relay.statistics()
                };
                // Sending fails if the program no longer waits.
                let _ = reply.send((statistics, events));
            }
            Command::End => {
                self.relay.close_all(now, &mut self.endpoint);
                self.ends_at = now + CLOSE_TIMEOUT;
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.wake = Time::NEVER;
        self.endpoint.handle_timeout(now);
        self.relay.take(now, &mut self.endpoint);
        if now >= self.ends_at {
            self.ends_at = Time::ZERO;
        }
    }

    fn next_timeout(&self) -> Time {
        self.wake.min(self.relay.next_timeout()).min(self.ends_at)
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next {
        let poll = loop {
            let poll = self.endpoint.poll_transmit(now, buffer);
            self.relay.take(now, &mut self.endpoint);
            if matches!(poll, Poll::Transmit(_)) || !self.relay.offer(now, &mut self.endpoint) {
                break poll;
            }
        };
        self.wake = Time::NEVER;
        match poll {
            Poll::Transmit(of) => {
                buffer.truncate(of.size);
                self.bytes_sent += of.size as u64;
                Next::Transmit(Transmit::from(&of))
            }
            Poll::WaitUntil(until) => {
                self.wake = until;
                Next::WaitUntil(until)
            }
            Poll::Idle => Next::Idle,
        }
    }

    fn is_finished(&self) -> bool {
        self.ends_at == Time::ZERO
            || (self.ends_at < Time::NEVER && self.endpoint.connections() == 0)
    }
}
