//! A socket over the carrier that was chosen when the program ran.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration as Wall;

use ontempo_mechanisms::qos::{Refusal, Specification};
use ontempo_monitor::{Reservation, SocketReport};
use ontempo_udp::Dscp;

use crate::{Delivery, Direction, Events, Message, QosConnection, QosSocket, QosStream};

/// A socket over TCP, UDP or QUIC. A clone is the same one.
#[derive(Clone)]
pub enum AnySocket {
    /// Over TCP.
    Tcp(QosStream),
    /// Over UDP.
    Udp(QosSocket),
    /// Over QUIC.
    Quic(QosConnection),
}

/// Calls a method that all kinds have.
macro_rules! each {
    ($socket:expr, $one:ident => $call:expr) => {
        match $socket {
            AnySocket::Tcp($one) => $call,
            AnySocket::Udp($one) => $call,
            AnySocket::Quic($one) => $call,
        }
    };
}

impl AnySocket {
    /// Sends a message.
    ///
    /// # Errors
    /// As of the carrier's own socket.
    pub fn send_message(&self, data: &[u8]) -> io::Result<()> {
        each!(self, one => one.send_message(data))
    }

    /// Waits for a message and writes it to `buffer`; `None` at the end.
    ///
    /// # Errors
    /// As of the carrier's own socket.
    pub fn receive_message(&self, buffer: &mut [u8]) -> io::Result<Option<Message>> {
        each!(self, one => one.receive_message(buffer))
    }

    /// Bounds how long [`receive_message`](Self::receive_message) waits.
    ///
    /// # Errors
    /// The system refuses.
    pub fn set_read_timeout(&self, patience: Option<Wall>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(patience),
            Self::Udp(socket) => socket.set_read_timeout(patience),
            Self::Quic(connection) => {
                connection.set_read_timeout(patience);
                Ok(())
            }
        }
    }

    /// Bounds how long [`send_message`](Self::send_message) waits; over UDP it never does.
    ///
    /// # Errors
    /// The system refuses.
    pub fn set_write_timeout(&self, patience: Option<Wall>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(patience),
            Self::Udp(_) => Ok(()),
            Self::Quic(connection) => {
                connection.set_write_timeout(patience);
                Ok(())
            }
        }
    }

    /// Says that nothing more will be sent, where the carrier can.
    pub fn finish(&self) {
        match self {
            Self::Tcp(stream) => {
                // The other end may have closed already.
                let _ = stream.shutdown(Shutdown::Write);
            }
            Self::Udp(_) => {}
            Self::Quic(connection) => connection.finish(),
        }
    }

    /// Ends it once the other end has what was sent, where the carrier can tell.
    ///
    /// # Errors
    /// That took longer than `patience`, or the connection is lost.
    pub fn close(self, patience: Wall) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.close(patience),
            Self::Udp(_) => Ok(()),
            Self::Quic(connection) => connection.close(patience),
        }
    }

    /// What both ends agreed on.
    pub fn agreed(&self, direction: Direction) -> Specification {
        each!(self, one => one.agreed(direction))
    }

    /// Asks for another quality of what is sent.
    ///
    /// # Errors
    /// What was agreed does not admit it.
    pub fn change(&self, asked: Specification) -> Result<Specification, Refusal> {
        each!(self, one => one.change(asked))
    }

    /// What happens to the quality.
    pub fn events(&self) -> Events {
        each!(self, one => one.events())
    }

    /// What was delivered lately.
    pub fn delivery(&self, direction: Direction) -> Delivery {
        each!(self, one => one.delivery(direction))
    }

    /// What the monitor is given.
    pub fn reports(&self) -> Vec<SocketReport> {
        each!(self, one => one.reports())
    }

    /// How the reservation stands, and why.
    pub fn reservation(&self, direction: Direction) -> (Reservation, String) {
        each!(self, one => one.reservation(direction))
    }

    /// Bytes of the longest message that may be sent.
    pub fn most_sent(&self) -> usize {
        each!(self, one => one.most_sent())
    }

    /// Bytes of the longest message that may come.
    pub fn most_received(&self) -> usize {
        each!(self, one => one.most_received())
    }

    /// The class of its packets.
    pub fn dscp(&self) -> Dscp {
        each!(self, one => one.dscp())
    }

    /// This end's address.
    pub fn local_address(&self) -> SocketAddr {
        each!(self, one => one.local_address())
    }

    /// The other end's address.
    pub fn peer_address(&self) -> SocketAddr {
        each!(self, one => one.peer_address())
    }
}
