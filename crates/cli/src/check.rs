//! `ontempo check`: a scenario in words, or what is wrong with it.

use ontempo_scenario::model::Scenario;
use ontempo_scenario::{Overrides, ScenarioError, load_with};
use ontempo_simulator::{SetupError, Simulation};

use crate::arguments::{Check, Input};
use crate::failure::Failure;
use crate::output::{emit, refuse};

pub(crate) fn check(arguments: &Check) -> Result<(), Failure> {
    let scenario = load(&arguments.input)?;
    // What only its network elements could refuse.
    let other_world = match Simulation::new(&scenario, scenario.seed) {
        Err(error @ SetupError::NotSimulated { .. }) => Some(error.to_string()),
        Err(error) => return Err(error.into()),
        Ok(_) => None,
    };
    if arguments.input.json {
        return emit(&scenario.canonical());
    }
    let only = other_world.map(|sentence| format!("\n{sentence}\n")).unwrap_or_default();
    emit(&(scenario.explain() + &only))
}

/// The scenario that the command line asks for.
pub(crate) fn load(input: &Input) -> Result<Scenario, Failure> {
    let read = || -> Result<Scenario, ScenarioError> {
        load_with(&input.file, &Overrides::parse(&input.set)?)
    };
    read().map_err(|error| refuse(error, input.json))
}
