//! Options and errors of connections.

use std::fmt;
use std::net::SocketAddr;

use crate::{
    CloseReason, Closed, Configuration, ConnectFailed, FlowError, IdentityError, SendError,
};
use ontempo_udp::{BindError, DriverOptions, SocketOptions};

/// Options of an endpoint, its UDP socket and its thread.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Options of the protocol.
    pub configuration: Configuration,
    /// Options of the UDP socket.
    pub socket: SocketOptions,
    /// Options of the thread.
    pub driver: DriverOptions,
}

/// The error of an operation on a listener, connection or flow.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The UDP socket cannot be opened or bound.
    Bind(BindError),
    /// The system has no more threads, file descriptors or random numbers.
    System(std::io::Error),
    /// The certificate or key cannot be used.
    Identity(IdentityError),
    /// The handshake could not be started.
    Connect(ConnectFailed),
    /// The handshake failed: the peer did not answer, refused, or could not be verified.
    NotConnected {
        /// The peer's address.
        remote: SocketAddr,
        /// The close reason.
        closed: Closed,
    },
    /// The connection is closed or lost.
    Closed(Closed),
    /// A flow could not be opened.
    Flow(FlowError),
    /// A unit is invalid: too long, or with a wrong deadline or dependency.
    Unit(SendError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(error) => write!(f, "{error}"),
            Self::System(error) => write!(f, "{error}"),
            Self::Identity(error) => write!(f, "{error}"),
            Self::Connect(error) => write!(f, "{error}"),
            Self::NotConnected { remote, closed } => {
                write!(f, "no connection to {remote}: {closed}")
            }
            Self::Closed(closed) => write!(f, "the connection is over: {closed}"),
            Self::Flow(error) => write!(f, "{error}"),
            Self::Unit(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// The close reason of a failed handshake or closed connection; `None` for other errors.
    pub fn close_reason(&self) -> Option<CloseReason> {
        match self {
            Self::NotConnected { closed, .. } | Self::Closed(closed) => Some(closed.reason),
            _ => None,
        }
    }

    /// True if trying again is of no use until the user changes the certificate, the token, the
    /// address, or the version.
    pub fn is_misconfigured(&self) -> bool {
        matches!(self, Self::Identity(_) | Self::Connect(_))
            || self.close_reason().is_some_and(CloseReason::is_misconfigured)
    }
}

impl From<BindError> for Error {
    fn from(error: BindError) -> Self {
        Self::Bind(error)
    }
}

impl From<IdentityError> for Error {
    fn from(error: IdentityError) -> Self {
        Self::Identity(error)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::System(error)
    }
}
