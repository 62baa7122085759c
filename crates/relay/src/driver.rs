//! Runs a relay over a socket.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use bytes::BytesMut;
use ontempo_foundation::{Duration, Time};
use ontempo_transport::{Endpoint, Poll, Source};
use ontempo_udp::{Datagram, Next, Protocol, Transmit};

use crate::figures::RelayStatistics;
use crate::hub::Hub;
use crate::inbox::Handed;
use crate::relay::{Relay, RelayEvent};

/// Time limit for telling all connections that the relay ends.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Bytes of a receive buffer, which several datagrams share.
const RECEIVE_BUFFER: usize = 16 << 10;

/// Datagrams handed over by other threads that are taken in a row: these may hand over as fast as they are taken.
const MAX_HANDED: usize = 256;

/// What a program asks of a relay on its thread.
#[derive(Debug)]
pub enum Command {
    /// The figures, and what has happened since the last such command to any of its threads. Of several threads
    /// the last has the figures of streams.
    Report(SyncSender<(RelayStatistics, Vec<RelayEvent>)>),
    /// Close all connections and end.
    End,
}

/// A relay and its endpoint, or those of one of its threads, as the [`Protocol`] of a UDP driver.
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
    /// A relay over an endpoint that listens; of several both have the same place.
    pub fn new(endpoint: Endpoint, relay: Relay) -> Self {
        debug_assert_eq!(endpoint.share().place(), relay.worker, "places of endpoint and relay");
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

    pub(crate) fn hub(&self) -> Arc<Hub> {
        Arc::clone(&self.relay.hub)
    }

    /// Its place among the threads.
    pub(crate) fn place(&self) -> usize {
        self.relay.worker
    }

    /// Takes datagrams for this thread that others have received. While more of them wait, the timeout is due.
    fn take_handed(&mut self, now: Time) {
        for _ in 0..MAX_HANDED {
            let Some(Handed { source, data }) = self.relay.inbox().next_datagram() else { return };
            self.endpoint.handle(now, source, data);
            self.relay.take(now, &mut self.endpoint);
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
        let (source, owner) = (Source::from(&datagram), self.endpoint.share().owner(&data));
        if owner != self.relay.worker {
            // A buffer of its own: what waits is counted by its bytes.
            let data = BytesMut::from(&data[..]);
            self.relay.hub.inbox(owner).hand(Handed { source, data });
            return;
        }
        self.endpoint.handle(now, source, data);
        self.relay.take(now, &mut self.endpoint);
    }

    fn handle_command(&mut self, now: Time, command: Command) {
        match command {
            Command::Report(reply) => {
                let events = std::iter::from_fn(|| self.relay.poll_event()).collect();
                let is_last =
                    self.relay.worker + 1 == usize::from(self.relay.options.threads.get());
                let figures = if is_last { self.relay.statistics() } else { self.relay.counts() };
                let statistics = RelayStatistics {
                    bytes_received: self.bytes_received,
                    bytes_sent: self.bytes_sent,
                    ..figures
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
        self.take_handed(now);
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU8;

    use ontempo_transport::{Configuration, Share};

    use super::*;
    use crate::options::RelayOptions;

    #[test]
    fn a_thread_that_is_handed_datagrams_without_end_comes_to_its_other_work() {
        let threads = NonZeroU8::new(2).expect("some");
        let options = RelayOptions { threads, ..RelayOptions::default() };
        let relay = Relay::parts(options, 1).swap_remove(0);
        let share = Share::among(threads).swap_remove(0);
        let endpoint = Endpoint::with_share(Configuration::default(), [1; 32], share);
        let mut driver = RelayDriver::new(endpoint, relay);
        let hub = driver.hub();
        for _ in 0..=2 * MAX_HANDED {
            let source = Source::of("10.0.0.1:1".parse().expect("an address"));
            hub.inbox(0).hand(Handed { source, data: BytesMut::zeroed(10) });
        }
        let (now, mut turns) = (Time::from_nanos(1), 0);
        while driver.next_timeout() <= now {
            driver.handle_timeout(now);
            turns += 1;
        }
        assert_eq!(turns, 3);
    }
}
