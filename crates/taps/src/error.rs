//! Errors, and the events of RFC 9622 that are errors here.

use std::fmt;
use std::io;

use ontempo_foundation::printable;
use ontempo_qos::SetupError;
use ontempo_transport::{IdentityError, TokenError, live};

/// A property cannot be had, or has a wrong value. The text begins with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropertyError {
    /// This transport does not have what it asks for, or has always what it prohibits.
    NotProvided {
        /// Its name, as in the field.
        property: &'static str,
        /// Why, in a sentence.
        why: String,
    },
    /// It is out of its range.
    OutOfRange {
        /// Its name, as in the field.
        property: &'static str,
        /// What it is, and what would be right.
        wrong: String,
    },
}

/// Why a property that is nowhere is refused.
pub(crate) const NOT_HERE: &str = "this transport does not have it";

impl PropertyError {
    pub(crate) fn not_provided(property: &'static str, why: impl Into<String>) -> Self {
        Self::NotProvided { property, why: why.into() }
    }

    pub(crate) fn out_of_range(property: &'static str, wrong: impl Into<String>) -> Self {
        Self::OutOfRange { property, wrong: wrong.into() }
    }

    /// The property's name.
    pub const fn property(&self) -> &'static str {
        match self {
            Self::NotProvided { property, .. } | Self::OutOfRange { property, .. } => property,
        }
    }
}

impl fmt::Display for PropertyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotProvided { property, why } => write!(f, "{property}: {why}"),
            Self::OutOfRange { property, wrong } => write!(f, "{property} is {wrong}"),
        }
    }
}

impl std::error::Error for PropertyError {}

/// The event EstablishmentError: no connection, or no listener, could be made (RFC 9622,
/// section 7.1).
#[derive(Debug)]
#[non_exhaustive]
pub enum EstablishmentError {
    /// Something that is needed is missing in the preconnection; its name, and what for.
    Missing(&'static str),
    /// The properties cannot be fulfilled.
    Property(PropertyError),
    /// The name has no address.
    Name {
        /// The host's name.
        host: String,
        /// The system's error.
        error: io::Error,
    },
    /// The certificate could not be made or read.
    Identity(IdentityError),
    /// The token cannot be one.
    Token(TokenError),
    /// The message that goes with the connection cannot be sent.
    FirstMessage(SendError),
    /// No answer, a refusal, a peer that could not be verified, or an address that cannot be bound.
    Live(live::Error),
    /// The same of a QoS socket; also that the ends do not agree.
    Qos(SetupError),
}

impl fmt::Display for EstablishmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) => f.write_str(what),
            Self::Property(error) => error.fmt(f),
            Self::Name { host, error } => write!(f, "{}: no such name: {error}", printable(host)),
            Self::Identity(error) => error.fmt(f),
            Self::Token(error) => write!(f, "token: {error}"),
            Self::FirstMessage(error) => write!(f, "the first message: {error}"),
            Self::Live(error) => error.fmt(f),
            Self::Qos(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for EstablishmentError {}

impl From<PropertyError> for EstablishmentError {
    fn from(error: PropertyError) -> Self {
        Self::Property(error)
    }
}

impl From<live::Error> for EstablishmentError {
    fn from(error: live::Error) -> Self {
        Self::Live(error)
    }
}

impl From<SetupError> for EstablishmentError {
    fn from(error: SetupError) -> Self {
        Self::Qos(error)
    }
}

/// The event SendError: a message that cannot be sent (RFC 9622, section 9.2.2.3).
#[derive(Debug)]
#[non_exhaustive]
pub enum SendError {
    /// This side does not send: the property `direction`, its final message, or its end.
    NotSending,
    /// A property of the message cannot be had.
    Property(PropertyError),
    /// The send queue is full; of the calls with a limit only.
    Full,
    /// The message is too long or names a wrong dependency, or the connection has ended.
    Live(live::Error),
    /// The same of a QoS socket.
    Qos(io::Error),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSending => {
                f.write_str("this connection does not send: it has ended, or is one-way")
            }
            Self::Property(error) => error.fmt(f),
            Self::Full => f.write_str("the send queue is full"),
            Self::Live(error) => error.fmt(f),
            Self::Qos(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SendError {}

impl From<PropertyError> for SendError {
    fn from(error: PropertyError) -> Self {
        Self::Property(error)
    }
}

/// The connection is closed, here or by the peer, or was lost: the events ReceiveError and
/// CloneError.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aborted(pub String);

impl fmt::Display for Aborted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Aborted {}
