//! What a peer or a program does wrong.

use std::fmt;

use crate::wire::WireError;

/// How a peer violated the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// An unreadable message.
    Unreadable(WireError),
    /// A message in the wrong state.
    OutOfPlace,
    /// An answer without a request.
    Unasked,
    /// An impossible size or number.
    Absurd,
    /// More than its credit allows.
    Credit,
    /// Requests without reading the answers.
    Deaf,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => write!(f, "unreadable: {error}"),
            Self::OutOfPlace => f.write_str("a message out of place"),
            Self::Unasked => f.write_str("an answer to what was not asked"),
            Self::Absurd => f.write_str("a size or number that cannot be"),
            Self::Credit => f.write_str("more than there was leave to send"),
            Self::Deaf => f.write_str("questions, whose answers were not read"),
        }
    }
}

impl From<WireError> for Violation {
    fn from(error: WireError) -> Self {
        Self::Unreadable(error)
    }
}

/// Why a flow could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowError {
    /// The connection is not open.
    NotOpen,
    /// The peer allows no more concurrent flows.
    TooMany {
        /// Its limit.
        most: u64,
    },
    /// Flows that this side has finished are not yet taken by the peer's program. An event
    /// `FlowAllowed` follows when one is.
    NotTaken {
        /// The peer's limit of concurrent flows.
        most: u64,
    },
    /// The label is longer than 256 bytes.
    LabelTooLong,
}

impl fmt::Display for FlowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOpen => f.write_str("the connection is not open"),
            Self::TooMany { most } => write!(f, "the peer takes {most} flows at a time"),
            Self::NotTaken { most } => write!(
                f,
                "the peer takes {most} flows at a time, and its program has not taken the last ones"
            ),
            Self::LabelTooLong => f.write_str("a flow's label has at most 256 bytes"),
        }
    }
}

impl std::error::Error for FlowError {}
