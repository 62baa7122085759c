//! `ontempo check`: a scenario in words, or what is wrong with it.

use ontempo_scenario::model::Scenario;
use ontempo_scenario::{Overrides, ScenarioError, load_with};
use ontempo_simulator::Simulation;

use crate::arguments::{Check, Input};
use crate::failure::Failure;
use crate::output::{emit, refuse};

pub(crate) fn check(arguments: &Check) -> Result<(), Failure> {
    let scenario = load(&arguments.input)?;
    // What only its network elements could refuse.
    Simulation::new(&scenario, scenario.seed)?;
    if arguments.input.json { emit(&scenario.canonical()) } else { emit(&scenario.explain()) }
}

/// The scenario that the command line asks for.
pub(crate) fn load(input: &Input) -> Result<Scenario, Failure> {
    let read = || -> Result<Scenario, ScenarioError> {
        load_with(&input.file, &Overrides::parse(&input.set)?)
    };
    read().map_err(|error| refuse(error, input.json))
}
