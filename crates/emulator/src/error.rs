//! Why a scenario cannot be emulated.

use std::fmt::{self, Display};

use ontempo_elements::ElementError;
use ontempo_scenario::{FieldPath, ScenarioError};

/// Why a scenario was not emulated, or not to its end.
#[derive(Debug)]
pub enum EmulationError {
    /// The scenario or an option is wrong, or needs something that only a simulation can do.
    Input(String),
    /// The scenario has fields that only a simulation supports.
    Refused {
        /// What cannot be.
        what: &'static str,
        /// Each such field, and why; at least one.
        problems: Vec<(FieldPath, String)>,
    },
    /// Rights, programs or kernel features are missing on this machine, or a command of the
    /// scenario failed.
    System(String),
    /// It was cancelled.
    Cancelled,
}

impl EmulationError {
    /// A system call about `what` failed.
    pub(crate) fn system(what: &dyn Display, error: &dyn Display) -> Self {
        Self::System(format!("{what}: {error}"))
    }
}

impl Display for EmulationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(what) | Self::System(what) => f.write_str(what),
            Self::Refused { what, problems } => {
                write!(f, "{what}:")?;
                let between = if problems.len() == 1 { " " } else { "\n  " };
                problems.iter().try_for_each(|(field, why)| write!(f, "{between}{field}: {why}"))
            }
            Self::Cancelled => f.write_str("the emulation was cancelled"),
        }
    }
}

impl std::error::Error for EmulationError {}

impl From<ScenarioError> for EmulationError {
    fn from(error: ScenarioError) -> Self {
        Self::Input(error.to_string())
    }
}

impl From<ElementError> for EmulationError {
    fn from(error: ElementError) -> Self {
        Self::Input(error.to_string())
    }
}
