//! Errors of setting up a run, and its cancellation.

use std::fmt;

use ontempo_elements::ElementError;
use ontempo_scenario::ScenarioError;

/// Why a scenario cannot be set up.
#[derive(Debug)]
pub enum SetupError {
    /// The scenario is invalid.
    Scenario(ScenarioError),
    /// A network element refused its parameters.
    Element(ElementError),
    /// Only an emulation can run the scenario.
    NotSimulated {
        /// The field that only an emulation supports.
        field: String,
        /// Why a simulation does not support it.
        why: String,
    },
    /// A flow's congestion controller is one of a program, which has not given it.
    UnknownController {
        /// The flow group.
        group: String,
        /// The controller's name.
        name: String,
    },
    /// A flow names a group that the scenario does not have.
    UnknownGroup(String),
    /// A link to be traced does not exist.
    UnknownLink(String),
}

impl SetupError {
    pub(crate) fn unknown_group(name: &str) -> Self {
        Self::UnknownGroup(name.to_owned())
    }

    pub(crate) fn unknown_controller(group: &str, name: &str) -> Self {
        Self::UnknownController { group: group.to_owned(), name: name.to_owned() }
    }

    /// `field` of the group `name` needs a kernel.
    pub(crate) fn not_simulated(name: &str, field: &str, why: &str) -> Self {
        let why = why.to_owned();
        Self::NotSimulated { field: format!("flows.{name}.{field}"), why }
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scenario(error) => error.fmt(f),
            Self::Element(error) => error.fmt(f),
            Self::NotSimulated { field, why } => {
                write!(f, "this scenario can only be emulated: {field}: {why}")
            }
            Self::UnknownController { group, name } => write!(
                f,
                "flows.{group}.transport.congestion: this run was given no controller `{name}`"
            ),
            Self::UnknownGroup(name) => write!(f, "no flow group is called `{name}`"),
            Self::UnknownLink(name) => write!(f, "no link is called `{name}`"),
        }
    }
}

impl std::error::Error for SetupError {}

impl From<ScenarioError> for SetupError {
    fn from(error: ScenarioError) -> Self {
        Self::Scenario(error)
    }
}

impl From<ElementError> for SetupError {
    fn from(error: ElementError) -> Self {
        Self::Element(error)
    }
}

/// A run was cancelled before its end and has no results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the run was cancelled")
    }
}

impl std::error::Error for Cancelled {}
