//! Errors of senders and receivers.

use std::fmt;
use std::net::SocketAddr;

use ontempo_transport::{CloseReason, Closed, live};

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
    /// It was stopped before the receiver at this address had answered.
    Unanswered(SocketAddr),
    /// The event handler returned `Break`.
    Handler,
}

impl Error {
    /// Why the connection was closed, if that ended it.
    pub fn close_reason(&self) -> Option<CloseReason> {
        match self {
            Self::Transport(error) => error.close_reason(),
            Self::EndedByReceiver(closed) | Self::EndedByRelay(closed) => Some(closed.reason),
            _ => None,
        }
    }

    /// The sentence of the error, with what its reader can do about it where that is known.
    pub fn advised(&self) -> String {
        let reason = match self {
            Self::EndedByRelay(_) => None,
            other => other.close_reason(),
        };
        let advice = match reason {
            Some(CloseReason::NoAnswer | CloseReason::TimedOut | CloseReason::Reset) => {
                "start ontempo receive there (or the relay), check address and port, and let UDP to this port \
                 through firewalls"
            }
            // Whoever gets so far has a token of the relay's.
            Some(CloseReason::WrongToken) if matches!(self, Self::EndedByReceiver(_)) => {
                "take the URL that the relay prints for ontempo send, or its --token-file"
            }
            Some(CloseReason::WrongToken) => {
                "paste the URL that the receiver, or the relay, prints now, or give both sides the same \
                 --token-file (a relay's viewers its --viewers-token-file); without one each start makes a new \
                 token"
            }
            Some(CloseReason::Busy) => {
                "end that sender, or start a receiver at another port for this one; a relay carries another \
                 stream beside it with --stream NAME"
            }
            Some(CloseReason::IncompatibleVersion | CloseReason::Unsupported) => {
                "install the same version of ontempo at both sides"
            }
            _ => return self.to_string(),
        };
        format!("{self}; {advice}")
    }
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
            Self::Unanswered(remote) => write!(f, "stopped before {remote} had answered"),
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
