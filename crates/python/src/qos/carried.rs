//! A connection, whatever carries it.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration as Wall;

use ontempo_mechanisms::qos::{Refusal, Specification};
use ontempo_monitor::{Reservation, SocketReport};
use ontempo_qos::{
    Delivery, Direction, Events, Message, QosConnection, QosOptions, QosSocket, QosStream,
    SetupError,
};
use ontempo_transport::{Token, Trust};
use pyo3::PyErr;
use pyo3::exceptions::PyValueError;

/// How long a thread blocks in the network before it checks whether the connection is closed.
const LOOK_EVERY: Wall = Wall::from_millis(200);

/// The carrier of a connection to be made, with name, trust and token over QUIC.
pub(super) enum ClientCarrier {
    Tcp,
    Udp,
    /// The name in the certificate, the trust in it, and the token.
    Quic(String, Trust, Token),
}

/// The exception for an unknown carrier, or one whose arguments do not fit it.
pub(super) fn no_carrier(name: &str) -> PyErr {
    PyValueError::new_err(format!("no connection over `{name}` with these arguments"))
}

/// A connection. A clone is the same one.
#[derive(Clone)]
pub(super) enum AnyConnection {
    Tcp(QosStream),
    Udp(QosSocket),
    Quic(QosConnection),
}

/// Calls a method that all kinds have.
macro_rules! each {
    ($carried:expr, $one:ident => $call:expr) => {
        match $carried {
            AnyConnection::Tcp($one) => $call,
            AnyConnection::Udp($one) => $call,
            AnyConnection::Quic($one) => $call,
        }
    };
}

impl AnyConnection {
    pub(super) fn connect(
        calling: &ClientCarrier,
        to: SocketAddr,
        options: &QosOptions,
    ) -> Result<Self, SetupError> {
        match calling {
            ClientCarrier::Tcp => QosStream::connect(to, options).map(Self::Tcp),
            ClientCarrier::Udp => QosSocket::connect(to, options).map(Self::Udp),
            ClientCarrier::Quic(name, trust, token) => {
                QosConnection::connect(to, name, (trust, token), options).map(Self::Quic)
            }
        }
    }

    /// Sets timeouts, so that blocked threads notice when the connection is closed.
    pub(super) fn set_timeouts(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_write_timeout(Some(LOOK_EVERY))?;
                stream.set_read_timeout(Some(LOOK_EVERY))
            }
            Self::Udp(socket) => socket.set_read_timeout(Some(LOOK_EVERY)),
            Self::Quic(connection) => {
                connection.set_write_timeout(Some(LOOK_EVERY));
                connection.set_read_timeout(Some(LOOK_EVERY));
                Ok(())
            }
        }
    }

    pub(super) fn send(&self, data: &[u8]) -> io::Result<()> {
        each!(self, one => one.send_message(data))
    }

    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Message>> {
        each!(self, one => one.receive_message(buffer))
    }

    /// Says that nothing more will be sent, where the carrier can.
    pub(super) fn finish(&self) {
        match self {
            Self::Tcp(stream) => {
                // The other end may have closed already.
                let _ = stream.shutdown(Shutdown::Write);
            }
            Self::Udp(_) => {}
            Self::Quic(connection) => connection.finish(),
        }
    }

    pub(super) fn is_udp(&self) -> bool {
        matches!(self, Self::Udp(_))
    }

    pub(super) fn agreed(&self, direction: Direction) -> Specification {
        each!(self, one => one.agreed(direction))
    }

    pub(super) fn change(&self, asked: Specification) -> Result<Specification, Refusal> {
        each!(self, one => one.change(asked))
    }

    pub(super) fn events(&self) -> Events {
        each!(self, one => one.events())
    }

    pub(super) fn delivery(&self, direction: Direction) -> Delivery {
        each!(self, one => one.delivery(direction))
    }

    pub(super) fn reports(&self) -> Vec<SocketReport> {
        each!(self, one => one.reports())
    }

    pub(super) fn reservation(&self, direction: Direction) -> (Reservation, String) {
        each!(self, one => one.reservation(direction))
    }

    pub(super) fn max_send_size(&self) -> usize {
        each!(self, one => one.most_sent())
    }

    pub(super) fn max_receive_size(&self) -> usize {
        each!(self, one => one.most_received())
    }

    pub(super) fn dscp(&self) -> u8 {
        each!(self, one => one.dscp()).get()
    }

    pub(super) fn local(&self) -> SocketAddr {
        each!(self, one => one.local_address())
    }

    pub(super) fn remote(&self) -> SocketAddr {
        each!(self, one => one.peer_address())
    }
}
