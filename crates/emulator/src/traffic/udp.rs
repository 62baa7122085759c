//! UDP: each packet is sent when the application offers it, with a number and a timestamp.

use std::io::{ErrorKind, Read};

use ontempo_foundation::{Duration, Time};
use ontempo_runtime::{Arrivals, FlowTotals, Source};
use socket2::Socket;

use super::Receiver;
use super::sending::{Sending, next_due};

/// Bytes of a packet's number and sending time, with which its payload begins.
pub(crate) const STAMP: usize = 16;

/// How long to wait if the kernel accepts no more.
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
    /// The payload: number, sending time, and zeros.
    payload: Vec<u8>,
    source: Source,
    stop: Time,
    sent: u64,
    /// Packets that the application has offered, as far as was looked.
    offered: u64,
    /// When the last of them was due, if that is a matter of time.
    due: Option<Time>,
    pub(crate) receiver: Receiver,
    /// What has arrived: a copy that a link made is not counted.
    arrived: Arrivals,
    /// Whether the kernel took no more, and not all that was offered since is sent.
    pub(super) blocked: bool,
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
            offered: 0,
            due: None,
            receiver,
            arrived: Arrivals::default(),
            blocked: false,
        }
    }

    /// Sends what is offered by `now`.
    pub(super) fn on_time(&mut self, now: Time, sending: &mut Sending) -> Time {
        while self.send_next(now, None, sending) {}
        self.next(now)
    }

    /// Sends the next packet, if the application has offered it and the kernel accepts it; true
    /// if it was sent. It was due at `allowed`, unless the application offered it later.
    pub(super) fn send_next(
        &mut self,
        now: Time,
        allowed: Option<Time>,
        sending: &mut Sending,
    ) -> bool {
        if self.has_stopped(now) {
            return false;
        }
        if self.sent == self.offered {
            self.due = next_due(&self.source, self.offered, now);
            // Only as far as this packet, so that the next has its own due time.
            self.offered = self.source.offered(self.due.unwrap_or(now));
        }
        if self.sent >= self.offered {
            self.blocked = false;
            return false;
        }
        let called = sending.now();
        self.payload[..STAMP].copy_from_slice(&words(self.sent, now.as_nanos()));
        match self.sockets.source.send(&self.payload) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.blocked = true;
                return false;
            }
            // On any other error (such as no listener yet) the packet counts as sent:
            // UDP does not guarantee delivery.
            _ => {}
        }
        // What waited for the kernel was prevented.
        if let Some(due) = self.due.max(allowed).filter(|_| !self.blocked) {
            sending.note(called, due);
        }
        self.sent += 1;
        self.receiver.sent(now);
        self.source.on_acknowledged(now, self.sent);
        true
    }

    pub(super) fn has_stopped(&self, now: Time) -> bool {
        now >= self.stop
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// When to call again.
    pub(crate) fn next(&self, now: Time) -> Time {
        let next = if self.blocked { now + RETRY } else { self.source.next_offer(now) };
        if next < self.stop { next } else { Time::NEVER }
    }

    /// Receives the packets that arrived by `now`.
    pub(crate) fn receive(&mut self, now: Time) {
        while let Some((number, stamp)) = take(&self.sockets.sink) {
            self.on_packet(now, number, stamp);
        }
    }

    /// Packet `number`, sent at `stamp`, has arrived; false if it is not from this flow, or a copy.
    pub(super) fn on_packet(&mut self, now: Time, number: u64, stamp: u64) -> bool {
        // A number that was never sent is not from this flow.
        if number >= self.sent || !self.arrived.add(number) {
            return false;
        }
        self.receiver.deliver(now, number, self.source.due(number));
        self.receiver.received(now, number, Time::from_nanos(stamp));
        true
    }

    /// The run has ended.
    pub(crate) fn end(&mut self, now: Time) {
        self.receive(now);
        for number in 0..self.sent {
            if !self.arrived.contains(number) {
                self.receiver.miss(number, self.source.due(number));
            }
        }
        self.receiver.end(now);
    }

    pub(crate) fn totals(&self) -> FlowTotals {
        FlowTotals {
            sent: self.sent,
            delivered: self.receiver.delivered(),
            retransmitted: Some(0),
            ..FlowTotals::default()
        }
    }

    pub(crate) fn packet_size(&self) -> u64 {
        self.packet
    }
}

/// Number and sending time at the start of a payload.
pub(super) fn words(first: u64, second: u64) -> [u8; STAMP] {
    let mut bytes = [0; STAMP];
    bytes[..8].copy_from_slice(&first.to_be_bytes());
    bytes[8..].copy_from_slice(&second.to_be_bytes());
    bytes
}

/// Number and sending time of the next datagram; `None` if none is waiting. Datagrams too short
/// to be from this flow are skipped.
pub(super) fn take(mut socket: &Socket) -> Option<(u64, u64)> {
    let mut bytes = [0; STAMP];
    // A longer datagram is truncated, which does no harm here.
    while let Ok(length) = socket.read(&mut bytes) {
        if length == STAMP {
            let first = u64::from_be_bytes(std::array::from_fn(|place| bytes[place]));
            let second = u64::from_be_bytes(std::array::from_fn(|place| bytes[8 + place]));
            return Some((first, second));
        }
    }
    None
}
