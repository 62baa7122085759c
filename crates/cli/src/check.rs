//! `ontempo check`: describes a scenario, or lists its errors.

use ontempo_scenario::model::Scenario;
use ontempo_scenario::{Overrides, ScenarioError, load_with};
use ontempo_simulator::{SetupError, Simulation};

use crate::arguments::{Check, Input};
use crate::failure::Failure;
use crate::output::{emit, scenario_failure, wrapped, write_stderr};
use crate::size::require_bearable;

pub(crate) fn check(arguments: &Check) -> Result<(), Failure> {
    let scenario = load(&arguments.input)?;
    // What only its network elements can refuse; they are the same for each flow of a group.
    let mut one_each = scenario.clone();
    one_each.flows.values_mut().for_each(|group| group.count = group.count.min(1));
    let not_simulated = match require_bearable(&scenario, 1) {
        Err(Failure::Input(why)) => Some(why),
        Err(failure) => return Err(failure),
        Ok(()) => match Simulation::new(&one_each, scenario.seed) {
            Err(error @ SetupError::NotSimulated { .. }) => Some(error.to_string()),
            Err(error) => return Err(error.into()),
            Ok(_) => None,
        },
    };
    if arguments.input.json {
        return emit(&scenario.canonical());
    }
    let only =
        not_simulated.map(|sentence| format!("\n{}\n", wrapped(&sentence, 2))).unwrap_or_default();
    emit(&(scenario.explain() + &only))
}

/// Loads the scenario file with its overrides.
pub(crate) fn load(input: &Input) -> Result<Scenario, Failure> {
    let read = || -> Result<Scenario, ScenarioError> {
        let overrides = Overrides::parse(&input.set)?;
        let scenario = load_with(&input.file, &overrides)?;
        overrides.fields_lost(&input.file)?.iter().for_each(|sentence| write_stderr(sentence));
        Ok(scenario)
    };
    read().map_err(|error| scenario_failure(error, input.json))
}
