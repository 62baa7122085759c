//! Why a stream could not be sent or received.

use std::fmt;

use ontempo_transport::{Closed, live};

/// Why a stream could not be sent or received to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no connection, or a flow or unit was refused.
    Transport(live::Error),
    /// The receiver ended it, and would again.
    EndedByReceiver(Closed),
    /// The source broke; a sentence.
    Source(String),
    /// The target could not be opened or written to; a sentence.
    Target(String),
    /// The handler asked to end.
    Handler,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(error) => write!(f, "{error}"),
            Self::EndedByReceiver(closed) => {
                let said = if closed.said.is_empty() { &closed.sentence } else { &closed.said };
                write!(f, "the receiver ended it: {said}")
            }
            Self::Source(sentence) | Self::Target(sentence) => f.write_str(sentence),
            Self::Handler => f.write_str("the program ended it"),
        }
    }
}

impl std::error::Error for Error {}

impl From<live::Error> for Error {
    fn from(error: live::Error) -> Self {
        Self::Transport(error)
    }
}

/// The error of a target, in the words of `error`.
pub(crate) fn target(error: impl fmt::Display) -> Error {
    Error::Target(error.to_string())
}
