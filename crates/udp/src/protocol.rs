//! The interface of a protocol that knows neither socket nor clock.

use std::net::{IpAddr, SocketAddr};

use ontempo_foundation::Time;

use super::{Dscp, Ecn};

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The sender; an IPv4-mapped address is given as IPv4.
    pub source: SocketAddr,
    /// The local address that it was sent to, if the system reports it.
    pub local: Option<IpAddr>,
    /// Time of arrival, by the kernel's time stamp if there is one.
    pub received: Time,
    /// Its ECN, if the system reports it.
    pub ecn: Ecn,
    /// Its DSCP; 0 if the system does not report it.
    pub dscp: Dscp,
    /// Its payload.
    pub data: &'a [u8],
}

/// How to send the contents of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Destination.
    pub destination: SocketAddr,
    /// Local source address; `None`: the system's choice.
    pub source: Option<IpAddr>,
    /// Its ECN.
    pub ecn: Ecn,
    /// Its DSCP; `None`: the socket's.
    pub dscp: Option<Dscp>,
    /// Size in bytes of each of several datagrams, of which only the last may be shorter; `None`:
    /// the buffer is one datagram.
    pub segment: Option<u16>,
}

impl Transmit {
    /// One datagram to `destination`, not ECN-capable, with the socket's DSCP.
    pub const fn to(destination: SocketAddr) -> Self {
        Self { destination, source: None, ecn: Ecn::NotCapable, dscp: None, segment: None }
    }

    /// How many datagrams `data` is.
    pub(super) fn datagrams(&self, data: &[u8]) -> u64 {
        self.segment.map_or(1, |size| data.len().div_ceil(usize::from(size).max(1)) as u64)
    }
}

/// What a protocol does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send the buffer now and poll again at once.
    Transmit(Transmit),
    /// A paced or spaced packet is due then; a precise driver sends it on time to the microsecond.
    WaitUntil(Time),
    /// Nothing to send until an event.
    Idle,
}

/// A protocol without I/O. Events are passed in with their time; packets to send are
/// polled.
pub trait Protocol: Send + 'static {
    /// Commands from other threads.
    type Command: Send + 'static;

    /// Takes a datagram, which arrived at `datagram.received`, before `now`.
    fn handle(&mut self, now: Time, datagram: Datagram<'_>);

    /// Takes a command of another thread.
    fn handle_command(&mut self, now: Time, command: Self::Command);

    /// The time of [`next_timeout`](Self::next_timeout) has come.
    fn handle_timeout(&mut self, now: Time);

    /// When to call [`handle_timeout`](Self::handle_timeout); [`Time::NEVER`] if not at all.
    fn next_timeout(&self) -> Time;

    /// True if what arrives until [`next_timeout`](Self::next_timeout) may be read then, at once, as
    /// its arrival times are what counts: a wake-up for each datagram is saved. Only where the
    /// kernel notes them; until then the socket's buffer has to hold it.
    fn reads_at_timeout(&self) -> bool {
        false
    }

    /// Until when what arrives is to be read at once, also where another thread [visits](super::Driver::visit).
    fn hurries_until(&self) -> Time {
        Time::ZERO
    }

    /// Writes the next packet to `buffer`, which is empty.
    fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next;

    /// True if the driver may end: everything to be sent has been polled.
    fn is_finished(&self) -> bool {
        false
    }
}
