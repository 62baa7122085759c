//! Errors of senders and receivers.

use std::fmt;

use ontempo_transport::{Closed, live};

/// Why sending or receiving a stream ended early.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The connection failed, or a flow or unit was refused.
    Transport(live::Error),
    /// The receiver closed the connection for a reason for which connecting again is of no use.
    EndedByReceiver(Closed),
    /// The relay refused or ended the connection for a reason for which calling again is of no use.
    EndedByRelay(Closed),
    /// The source failed; an error sentence.
    Source(String),
    /// The target could not be opened or written to; an error sentence.
    Target(String),
    /// The stream should be delivered whole and was not: a sentence that says what is missing.
    Incomplete(String),
    /// The receiver was lost, and could not be reached again; a sentence.
    Lost(String),
    /// The event handler returned `Break`.
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
            Self::EndedByRelay(closed) => {
                let said = if closed.said.is_empty() { &closed.sentence } else { &closed.said };
                write!(f, "the relay ended it: {said}")
            }
            Self::Source(sentence) | Self::Target(sentence) | Self::Incomplete(sentence) => {
                f.write_str(sentence)
            }
            Self::Lost(sentence) => write!(f, "the receiver was lost: {sentence}"),
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

/// The error of a target with the text of `error`.
pub(crate) fn target(error: impl fmt::Display) -> Error {
    Error::Target(error.to_string())
}
