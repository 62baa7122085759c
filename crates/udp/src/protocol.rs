//! What the driver carries: a protocol that knows neither socket nor clock.

use std::net::{IpAddr, SocketAddr};

use ontempo_foundation::Time;

use super::{Dscp, Ecn};

/// A datagram that has come.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Who sent it; an IPv4 address is one, whatever the socket.
    pub source: SocketAddr,
    /// The address of ours that it was sent to, where the system tells.
    pub local: Option<IpAddr>,
    /// When it came, by the kernel's note where there is one.
    pub received: Time,
    /// Its ECN, where the system tells.
    pub ecn: Ecn,
    /// Its DSCP, where the system tells; 0 otherwise.
    pub dscp: Dscp,
    /// What it holds.
    pub data: &'a [u8],
}

/// How what was written into the buffer is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// To whom.
    pub destination: SocketAddr,
    /// From which address of ours; the system's choice where `None`.
    pub source: Option<IpAddr>,
    /// Its ECN.
    pub ecn: Ecn,
    /// Its DSCP; the socket's where `None`.
    pub dscp: Option<Dscp>,
    /// Bytes of each of several datagrams, of which only the last may be shorter; the buffer is
    /// one datagram where `None`.
    pub segment: Option<u16>,
}

impl Transmit {
    /// One datagram to `destination`, without ECN, of the socket's DSCP.
    pub const fn to(destination: SocketAddr) -> Self {
        Self { destination, source: None, ecn: Ecn::NotCapable, dscp: None, segment: None }
    }
}

/// What a protocol wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The buffer is to leave now; ask again at once.
    Transmit(Transmit),
    /// A paced or spaced packet is due then; a precise driver meets it to the microsecond.
    WaitUntil(Time),
    /// Nothing to send, until something happens.
    Idle,
}

/// A protocol without I/O. Whatever happens comes in with its time, and what it wants to send is
/// asked for.
pub trait Protocol: Send + 'static {
    /// What other threads may ask of it.
    type Command: Send + 'static;

    /// A datagram has come. It came at `datagram.received`, before `now`.
    fn handle(&mut self, now: Time, datagram: Datagram<'_>);

    /// Another thread asks for something.
    fn handle_command(&mut self, now: Time, command: Self::Command);

    /// The time of [`next_timeout`](Self::next_timeout) has come.
    fn handle_timeout(&mut self, now: Time);

    /// When [`handle_timeout`](Self::handle_timeout) is wanted; [`Time::NEVER`] where not.
    fn next_timeout(&self) -> Time;

    /// Writes what is to leave now into `buffer`, which is empty.
    fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next;

    /// True when the driver may end: all that had to be sent was asked for.
    fn is_finished(&self) -> bool {
        false
    }
}
