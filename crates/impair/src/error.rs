use std::fmt;

use ontempo_elements::ElementError;
use ontempo_scenario::ScenarioError;

/// Why a scenario gives no path.
#[derive(Debug)]
pub enum ImpairError {
    /// The scenario cannot be laid out.
    Scenario(ScenarioError),
    /// A link refuses its parameters.
    Element(ElementError),
    /// No flow was named, and the scenario has several: their names.
    WhichFlow(Vec<String>),
    /// The scenario has no such flow: the name, and those that it has.
    NoFlow(String, Vec<String>),
}

/// Names in an error; more are counted.
const MAX_NAMES: usize = 8;

fn listed(names: &[String]) -> String {
    let more = names.len().saturating_sub(MAX_NAMES);
    let shown = names[..names.len().min(MAX_NAMES)].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

impl fmt::Display for ImpairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scenario(error) => error.fmt(f),
            Self::Element(error) => error.fmt(f),
            Self::WhichFlow(flows) => write!(
                f,
                "the scenario has {} flows: name the one whose path is used, of {}",
                flows.len(),
                listed(flows)
            ),
            Self::NoFlow(name, flows) => {
                write!(f, "the scenario has no flow `{name}`: it has {}", listed(flows))
            }
        }
    }
}

impl std::error::Error for ImpairError {}

impl From<ScenarioError> for ImpairError {
    fn from(error: ScenarioError) -> Self {
        Self::Scenario(error)
    }
}

impl From<ElementError> for ImpairError {
    fn from(error: ElementError) -> Self {
        Self::Element(error)
    }
}
