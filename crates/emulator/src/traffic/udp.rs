//! UDP: each packet leaves when the application offers it, numbered and stamped.

use std::io::ErrorKind;

use ontempo_foundation::{Duration, Time};
use ontempo_world::{FlowTotals, Source};
use socket2::Socket;

use super::Receiver;

/// A packet's number and when it was sent, which its payload begins with.
pub(crate) const STAMP: usize = 16;

/// How long to wait where the kernel takes no more.
const RETRY: Duration = Duration::from_millis(1);

/// Both ends' sockets.
pub(crate) struct UdpSockets {
    pub(crate) source: Socket,
    pub(crate) sink: Socket,
}

/// Both ends of a UDP flow.
pub(crate) struct Udp {
    pub(crate) sockets: UdpSockets,
    /// Bytes of a packet on the wire.
    packet: u64,
    /// What is sent: a stamp, and zeros.
    payload: Vec<u8>,
    source: Source,
    stop: Time,
    sent: u64,
    pub(crate) receiver: Receiver,
    /// Whether each number has arrived, for a stream whose missing units count.
    arrived: Vec<bool>,
    blocked: bool,
}

impl Udp {
    pub(crate) fn new(
        sockets: UdpSockets,
        (packet, payload): (u64, usize),
        source: Source,
        stop: Time,
        receiver: Receiver,
    ) -> Self {
        Self {
            sockets,
            packet,
            payload: vec![0; payload],
            source,
            stop,
            sent: 0,
            receiver,
            arrived: Vec::new(),
            blocked: false,
        }
    }

    /// Sends what is offered by `now`.
    pub(crate) fn on_time(&mut self, now: Time) -> Time {
        if now < self.stop {
            let offered = self.source.offered(now);
            self.blocked = false;
            while self.sent < offered {
                self.payload[..8].copy_from_slice(&self.sent.to_be_bytes());
                self.payload[8..STAMP].copy_from_slice(&now.as_nanos().to_be_bytes());
                match self.sockets.source.send(&self.payload) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        self.blocked = true;
                        break;
                    }
                    // Whatever else the kernel says (nobody listens yet, say), the packet counts
                    // as sent: UDP promises nothing.
                    _ => {}
                }
                self.sent += 1;
                self.receiver.sent(now);
            }
            self.source.on_acknowledged(now, self.sent);
        }
        self.next(now)
    }

    /// When to ask again.
    pub(crate) fn next(&self, now: Time) -> Time {
        let next = if self.blocked { now + RETRY } else { self.source.next_offer(now) };
        if next < self.stop { next } else { Time::NEVER }
    }

    /// Takes what has arrived by `now`.
    pub(crate) fn receive(&mut self, now: Time) {
        let mut buffer = [0; STAMP];
        // A datagram longer than the buffer is cut, which is all the same to its count.
        while let Ok(length) = std::io::Read::read(&mut &self.sockets.sink, &mut buffer) {
            if length < STAMP {
                continue;
            }
            let number = u64::from_be_bytes(std::array::from_fn(|place| buffer[place]));
            let sent = u64::from_be_bytes(std::array::from_fn(|place| buffer[8 + place]));
            if number >= self.sent {
                continue;
            }
            self.receiver.deliver(now, number, self.source.due(number));
            self.receiver.received(now, number, Time::from_nanos(sent));
            if self.receiver.has_playout() {
                let place = number as usize;
                if self.arrived.len() <= place {
                    self.arrived.resize(place + 1, false);
                }
                self.arrived[place] = true;
            }
        }
    }

    /// The run has ended.
    pub(crate) fn end(&mut self, now: Time) {
        self.receive(now);
        for number in 0..self.sent {
            if !self.arrived.get(number as usize).copied().unwrap_or_default() {
                self.receiver.miss(self.source.due(number), now);
            }
        }
        self.receiver.end(now);
    }

    pub(crate) fn totals(&self) -> FlowTotals {
        FlowTotals {
            sent: self.sent,
            delivered: self.receiver.delivered(),
            ..FlowTotals::default()
        }
    }

    pub(crate) fn packet_size(&self) -> u64 {
        self.packet
    }
}
