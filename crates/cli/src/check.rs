//! `ontempo check`: describes a scenario, or lists its errors.

use std::path::Path;

use ontempo_emulator::{EmulationError, Version};
use ontempo_scenario::model::Scenario;
use ontempo_scenario::{Overrides, ScenarioError, load_with, located};
use ontempo_simulator::{SetupError, Simulation};

use crate::arguments::{Check, Input};
use crate::failure::Failure;
use crate::output::{columns, emit, scenario_failure, wrapped, write_stderr};
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
            Ok(simulation) => standstills(&simulation),
        },
    };
    if arguments.input.json {
        return emit(&scenario.canonical());
    }
    let given = (arguments.input.file.as_path(), &*arguments.input.set);
    let not_emulated = not_emulated(&scenario, given, Version::V4)?;
    let only = [not_simulated, not_emulated].into_iter().flatten();
    let only: String = only.map(|sentence| format!("\n{}\n", wrapped(&sentence, 2))).collect();
    emit(&(scenario.explain_in(columns()) + &only))
}

/// What of `scenario`, from this file with these values set, only a simulation supports, with file, line and
/// field; `None` if it can be emulated, as far as that does not depend on the machine.
pub(crate) fn not_emulated(
    scenario: &Scenario,
    (file, set): (&Path, &[String]),
    version: Version,
) -> Result<Option<String>, Failure> {
    let error = match ontempo_emulator::check(scenario, version) {
        Ok(()) => return Ok(None),
        Err(error) => error,
    };
    let EmulationError::Refused { what, problems } = &error else { return Err(error.into()) };
    let overrides = Overrides::parse(set)?;
    Ok(Some(match located(file, &overrides, problems).as_deref() {
        Ok([problem]) => format!("{what}: {problem}"),
        Ok(problems) => {
            let lines: Vec<String> = problems.iter().map(|one| format!("  {one}")).collect();
            format!("{what}:\n{}", lines.join("\n"))
        }
        // A pipe is read once.
        Err(_) => error.to_string(),
    }))
}

/// Sentences about links over which nothing passes until the end of the run.
fn standstills(simulation: &Simulation) -> Option<String> {
    const MAX_NAMED: usize = 5;
    let found = simulation.standing_still();
    found.first()?;
    let more = found.len().saturating_sub(MAX_NAMED);
    let mut names: Vec<_> = found
        .iter()
        .take(MAX_NAMED)
        .map(|(link, since)| format!("{link} from {} s on", since.as_secs_f64()))
        .collect();
    if more > 0 {
        names.push(format!("{more} more links"));
    }
    Some(format!(
        "Nothing passes {}, to the end of the run: what waits there then stays, and flows over it do not \
         finish.",
        names.join(", ")
    ))
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
