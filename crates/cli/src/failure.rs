//! Errors of the command line program and their exit codes.

use std::fmt::Display;
use std::process::ExitCode;

use ontempo_kernel::{KernelError, SettingError};
use ontempo_scenario::ScenarioError;
use ontempo_simulator::{ReadError, SetupError};

use crate::output::write_stderr;

/// A failure of the environment with the message of `error`.
pub(crate) fn environment(error: impl Display) -> Failure {
    Failure::Environment(error.to_string())
}

/// An error that ends the program; each kind has its exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The scenario or the command line is wrong.
    Input(String),
    /// The disk, the network, rights, or a file's version.
    Environment(String),
    /// Ctrl-C.
    Interrupted(String),
}

impl Failure {
    /// An output that cannot be written.
    pub(crate) fn writing(error: &std::io::Error) -> Self {
        Self::Environment(format!("cannot write {error}"))
    }

    pub(crate) fn report(&self) {
        write_stderr(self.text());
    }

    /// Its sentence.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Input(what) | Self::Environment(what) | Self::Interrupted(what) => what,
        }
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.number())
    }

    /// The exit code as a number.
    pub(crate) fn number(&self) -> u8 {
        match self {
            Self::Input(_) => 2,
            Self::Environment(_) => 3,
            Self::Interrupted(_) => 130,
        }
    }

    /// Appends the line `more`.
    pub(crate) fn and(self, more: &str) -> Self {
        let both = |what: String| format!("{what}\n{more}");
        match self {
            Self::Input(what) => Self::Input(both(what)),
            Self::Environment(what) => Self::Environment(both(what)),
            Self::Interrupted(what) => Self::Interrupted(both(what)),
        }
    }
}

impl From<ScenarioError> for Failure {
    fn from(error: ScenarioError) -> Self {
        Self::Input(error.to_string())
    }
}

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        Self::Input(error.to_string())
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::Environment(error.to_string())
    }
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Self {
        Self::Input(format!("--set {error}"))
    }
}

impl From<KernelError> for Failure {
    fn from(error: KernelError) -> Self {
        let what = error.to_string();
        match error {
            KernelError::BadName(_) => Self::Input(what),
            _ => Self::Environment(what),
        }
    }
}
