//! Why a command ends without success.

use std::fmt;

/// A sentence, and the exit code that `ontempo` uses for such.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What the user has given is wrong; 2.
    Input(String),
    /// The machine, the network or the relay does not do it; 3.
    Environment(String),
}

impl Failure {
    /// The exit code.
    pub(crate) fn number(&self) -> u8 {
        match self {
            Self::Input(_) => 2,
            Self::Environment(_) => 3,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(text) | Self::Environment(text) => f.write_str(text),
        }
    }
}
