//! Why the program ends early, and with which exit code.

use std::fmt::Display;
use std::process::ExitCode;

use ontempo_kernel::{KernelError, SettingError};
use ontempo_scenario::ScenarioError;
use ontempo_simulator::{ReadError, SetupError};

use crate::output::complain;

/// A failure of the environment, in the words of `error`.
pub(crate) fn environment(error: impl Display) -> Failure {
    Failure::Environment(error.to_string())
}

/// Why the program ends early; each kind has its exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The scenario or the command line is wrong.
    Input(String),
    /// The disk, a file's version, or whatever else is none of the input's fault.
    Environment(String),
    /// The user wants no more.
    Interrupted(String),
}

impl Failure {
    /// An output that cannot be written.
    pub(crate) fn writing(error: &std::io::Error) -> Self {
        Self::Environment(format!("cannot write {error}"))
    }

    pub(crate) fn report(&self) {
        complain(match self {
            Self::Input(what) | Self::Environment(what) | Self::Interrupted(what) => what,
        });
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Input(_) => 2,
            Self::Environment(_) => 3,
            Self::Interrupted(_) => 130,
        })
    }

    /// The same, with `more` said behind it.
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
