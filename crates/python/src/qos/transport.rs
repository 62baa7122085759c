//! Connecting over TCP, UDP or QUIC.

use std::io;
use std::net::SocketAddr;
use std::time::Duration as Wall;

use ontempo_qos::{AnySocket, QosConnection, QosOptions, QosSocket, QosStream, SetupError};
use ontempo_transport::{Token, Trust};
use pyo3::PyErr;
use pyo3::exceptions::PyValueError;

/// Maximum time that a thread blocks in the network before it checks whether the connection is
/// closed.
const POLL_INTERVAL: Wall = Wall::from_millis(200);

/// The transport of a client's connection, with its arguments over QUIC.
pub(super) enum ClientTransport {
    Tcp,
    Udp,
    /// The name in the certificate, how it is verified, and the token.
    Quic(String, Trust, Token),
}

/// The exception for an unknown transport, or for arguments that do not fit it.
pub(super) fn unknown_transport(name: &str) -> PyErr {
    PyValueError::new_err(format!("no connection over `{name}` with these arguments"))
}

impl ClientTransport {
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
    socket.set_write_timeout(Some(POLL_INTERVAL))?;
    socket.set_read_timeout(Some(POLL_INTERVAL))
}
