//! How a connection is begun, whatever carries it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration as Wall;

use ontempo_qos::{AnySocket, QosConnection, QosOptions, QosSocket, QosStream, SetupError};
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

impl ClientCarrier {
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

/// Sets timeouts, so that blocked threads notice when the connection is closed.
pub(super) fn set_timeouts(socket: &AnySocket) -> io::Result<()> {
    socket.set_write_timeout(Some(LOOK_EVERY))?;
    socket.set_read_timeout(Some(LOOK_EVERY))
}
