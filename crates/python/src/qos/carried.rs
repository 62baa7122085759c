//! How a connection is begun, whatever carries it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration as Wall;

use ontempo_qos::{AnySocket, QosConnection, QosOptions, QosSocket, QosStream, SetupError};
use ontempo_transport::{Token, Trust};
use pyo3::PyErr;
use pyo3::exceptions::PyValueError;

/// How long a thread waits for the network before it looks whether the connection is closed.
const LOOK_EVERY: Wall = Wall::from_millis(200);

/// What a connection is begun by.
pub(super) enum Calling {
    Tcp,
    Udp,
    /// Whom to connect to, and by what the ends know each other.
    Quic(String, Trust, Token),
}

/// The exception of a carrier that is none, or lacks what it needs.
pub(super) fn no_carrier(name: &str) -> PyErr {
    PyValueError::new_err(format!("no connection over `{name}` with these arguments"))
}

impl Calling {
    pub(super) fn connect(
        &self,
        to: SocketAddr,
        options: &QosOptions,
    ) -> Result<AnySocket, SetupError> {
        match self {
            Self::Tcp => QosStream::connect(to, options).map(AnySocket::Tcp),
            Self::Udp => QosSocket::connect(to, options).map(AnySocket::Udp),
            Self::Quic(name, trust, token) => {
                QosConnection::connect(to, name, (trust, token), options).map(AnySocket::Quic)
            }
        }
    }
}

/// Has waiting threads look now and then.
pub(super) fn look_around(socket: &AnySocket) -> io::Result<()> {
    socket.set_write_timeout(Some(LOOK_EVERY))?;
    socket.set_read_timeout(Some(LOOK_EVERY))
}
