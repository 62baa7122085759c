//! A QoS socket whose transport is chosen at run time.

use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration as Wall;

use ontempo_mechanisms::qos::{Refusal, Specification};
use ontempo_monitor::{Reservation, SocketReport};
use ontempo_udp::Dscp;

use crate::{Delivery, Direction, Events, Message, QosConnection, QosSocket, QosStream};

/// A QoS socket over TCP, UDP or QUIC. Clones share the connection.
#[derive(Clone)]
pub enum AnySocket {
    /// Over TCP.
    Tcp(QosStream),
    /// Over UDP.
    Udp(QosSocket),
    /// Over QUIC.
    Quic(QosConnection),
}

/// Calls a method that the sockets of all transports have.
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
    /// Those of the transport's socket, such as [`QosStream::send_message`].
    pub fn send_message(&self, data: &[u8]) -> io::Result<()> {
        each!(self, socket => socket.send_message(data))
    }

    /// Waits for a message and writes it to `buffer`; `None` at the end.
    ///
    /// # Errors
    /// Those of the transport's socket, such as [`QosStream::receive_message`].
    pub fn receive_message(&self, buffer: &mut [u8]) -> io::Result<Option<Message>> {
        each!(self, socket => socket.receive_message(buffer))
    }

    /// Sets the time limit of [`receive_message`](Self::receive_message); `None`: no limit.
    ///
    /// # Errors
    /// Over TCP and UDP, those of the system, for a limit of zero for example.
    pub fn set_read_timeout(&self, timeout: Option<Wall>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
            Self::Udp(socket) => socket.set_read_timeout(timeout),
            Self::Quic(connection) => {
                connection.set_read_timeout(timeout);
                Ok(())
            }
        }
    }

    /// Sets the time limit of [`send_message`](Self::send_message); `None`: no limit. Without
    /// effect over UDP, where sending does not wait.
    ///
    /// # Errors
    /// Over TCP, those of the system, for a limit of zero for example.
    pub fn set_write_timeout(&self, timeout: Option<Wall>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(timeout),
            Self::Udp(_) => Ok(()),
            Self::Quic(connection) => {
                connection.set_write_timeout(timeout);
                Ok(())
            }
        }
    }

    /// Ends this end's sending direction: the peer sees the end of the stream. Without effect over
    /// UDP.
    pub fn finish(&self) {
        match self {
            Self::Tcp(stream) => {
                // Fails if the peer has closed already.
                let _ = stream.shutdown(Shutdown::Write);
            }
            Self::Udp(_) => {}
            Self::Quic(connection) => connection.finish(),
        }
    }

    /// Ends both directions at once, whatever has not arrived: over QUIC the peer gets an error, over
    /// TCP the end of the stream. Without effect over UDP.
    pub fn hang_up(&self) {
        match self {
            Self::Tcp(stream) => {
                // It may be closed already.
                let _ = stream.shutdown(Shutdown::Both);
            }
            Self::Udp(_) => {}
            Self::Quic(connection) => connection.hang_up(),
        }
    }

    /// Closes the connection after the peer has received all messages; over UDP, at once.
    ///
    /// # Errors
    /// That took longer than `timeout`, or the connection was lost.
    pub fn close(self, timeout: Wall) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.close(timeout),
            Self::Udp(_) => Ok(()),
            Self::Quic(connection) => connection.close(timeout),
        }
    }

    /// The agreed specification of a direction.
    pub fn agreed(&self, direction: Direction) -> Specification {
        each!(self, socket => socket.agreed(direction))
    }

    /// Renegotiates the specification of the sending direction; returns the agreed one.
    ///
    /// # Errors
    /// It is outside the bounds agreed at set-up.
    pub fn change(&self, asked: Specification) -> Result<Specification, Refusal> {
        each!(self, socket => socket.change(asked))
    }

    /// Events from now on: violations, steps of the ladder, changes, reservations.
    pub fn events(&self) -> Events {
        each!(self, socket => socket.events())
    }

    /// Recent delivery statistics of a direction.
    pub fn delivery(&self, direction: Direction) -> Delivery {
        each!(self, socket => socket.delivery(direction))
    }

    /// The reports to the monitor.
    pub fn reports(&self) -> Vec<SocketReport> {
        each!(self, socket => socket.reports())
    }

    /// The state of a direction's reservation, and the reason if it was refused or lost.
    pub fn reservation(&self, direction: Direction) -> (Reservation, String) {
        each!(self, socket => socket.reservation(direction))
    }

    /// Maximum size of a sent message in bytes.
    pub fn max_send_size(&self) -> usize {
        each!(self, socket => socket.max_send_size())
    }

    /// Maximum size of a received message in bytes.
    pub fn max_receive_size(&self) -> usize {
        each!(self, socket => socket.max_receive_size())
    }

    /// The DSCP of sent packets.
    pub fn dscp(&self) -> Dscp {
        each!(self, socket => socket.dscp())
    }

    /// This end's address.
    pub fn local_address(&self) -> SocketAddr {
        each!(self, socket => socket.local_address())
    }

    /// The other end's address.
    pub fn peer_address(&self) -> SocketAddr {
        each!(self, socket => socket.peer_address())
    }
}

/// Bytes of messages, as of a stream; over UDP, which has no streams, an error.
impl Read for &AnySocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            AnySocket::Tcp(stream) => (&*stream).read(buffer),
            AnySocket::Udp(_) => Err(ErrorKind::Unsupported.into()),
            AnySocket::Quic(connection) => (&*connection).read(buffer),
        }
    }
}
