//! What a connection is asked for, and why something could not be done.

use std::fmt;
use std::net::SocketAddr;

use crate::{
    CloseReason, Closed, Configuration, ConnectFailed, FlowError, IdentityError, SendError,
};
use ontempo_udp::{BindError, DriverOptions, SocketOptions};

/// What a connection's endpoint, socket and thread are asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Of the protocol.
    pub configuration: Configuration,
    /// Of the UDP socket.
    pub socket: SocketOptions,
    /// Of the thread.
    pub driver: DriverOptions,
}

/// Why something could not be done.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no socket.
    Bind(BindError),
    /// The system has no thread, random number or file left.
    System(std::io::Error),
    /// The certificate or key cannot be used.
    Identity(IdentityError),
    /// No connection could be begun.
    Connect(ConnectFailed),
    /// The peer did not answer, refused, or was not who it should be.
    NotConnected {
        /// Where it should be.
        remote: SocketAddr,
        /// Why.
        closed: Closed,
    },
    /// The connection is over.
    Closed(Closed),
    /// A flow could not be opened.
    Flow(FlowError),
    /// A unit is not one.
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
    /// Why there is no connection, or no longer; `None` where the error is another.
    pub fn close_reason(&self) -> Option<CloseReason> {
        match self {
            Self::NotConnected { closed, .. } | Self::Closed(closed) => Some(closed.reason),
            _ => None,
        }
    }

    /// True where the user has to change something before a connection is possible: the
    /// certificate, the token, the address, or the version.
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
