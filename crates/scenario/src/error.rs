//! What is wrong with a scenario, and where it was written.

use std::fmt;
use std::sync::Arc;

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In a file.
    File {
        /// Its name, as it was given.
        name: Arc<str>,
        /// The line, from 1.
        line: usize,
    },
    /// On the command line: the text of `--set`.
    Override(Arc<str>),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, line } => write!(f, "{name}:{line}"),
            Self::Override(text) => write!(f, "--set {text}"),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it was written; `None` in a scenario that no file gave.
    pub origin: Option<Origin>,
    /// The field, such as `topology.bottleneck.rate`; empty for the scenario as a whole.
    pub field: String,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl Problem {
    /// What problems are sorted by: the command line's first, then by file and line.
    pub(crate) fn place(&self) -> (Option<Arc<str>>, usize) {
        match &self.origin {
            Some(Origin::File { name, line }) => (Some(name.clone()), *line),
            _ => (None, usize::MAX),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.what)
    }
}

/// Why a scenario cannot be used: one problem a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    problems: Vec<Problem>,
}

impl ScenarioError {
    /// Everything that is wrong; at least one problem.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The error that `problems` amount to; `Ok` where there is none.
    pub(crate) fn unless_empty(problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self { problems }) }
    }
}

impl From<Problem> for ScenarioError {
    fn from(problem: Problem) -> Self {
        Self { problems: vec![problem] }
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, problem) in self.problems.iter().enumerate() {
            if place > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ScenarioError {}
