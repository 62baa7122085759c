//! Whether this machine bears what a scenario takes.

use ontempo_scenario::model::Scenario;
use ontempo_scenario::rounded_time;

use crate::failure::Failure;
use crate::output::write_stderr;

/// Longest estimated time that is not reported beforehand, in seconds. The estimate is good to a factor
/// of three: below a minute, whoever reads it has all but waited for the end.
const MAX_UNREPORTED: f64 = 60.0;

/// Refuses a scenario of which `at_once` runs, estimated, take more memory than this machine has,
/// or one takes more than a day.
///
/// # Errors
/// A sentence with the estimate, and what makes the scenario smaller.
pub(crate) fn require_bearable(scenario: &Scenario, at_once: usize) -> Result<(), Failure> {
    refused(scenario.too_large(at_once))
}

/// The same for an emulation, of which only the memory counts.
///
/// # Errors
/// As of [`require_bearable`].
pub(crate) fn require_bearable_in_emulation(scenario: &Scenario) -> Result<(), Failure> {
    refused(scenario.too_large_to_emulate())
}

fn refused(why: Option<String>) -> Result<(), Failure> {
    match why {
        Some(why) => Err(Failure::Input(format!("{why}, and --any-size runs it as it is"))),
        None => Ok(()),
    }
}

/// Says on standard error how long `runs` runs take, `at_once` at a time, if that is longer than a
/// minute.
pub(crate) fn report_time(scenario: &Scenario, runs: usize, at_once: usize) {
    if let Some(sentence) = time_sentence(scenario.cost().seconds, runs, at_once) {
        write_stderr(&sentence);
    }
}

fn time_sentence(seconds: f64, runs: usize, at_once: usize) -> Option<String> {
    let all = seconds * runs.div_ceil(at_once.max(1)) as f64;
    if all <= MAX_UNREPORTED {
        return None;
    }
    let what = match runs {
        1 => String::new(),
        _ => format!(" for {runs} runs, {} at a time", at_once.min(runs)),
    };
    let time = rounded_time(all);
    Some(format!("this takes about {time}{what}, by an estimate within a factor of three"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_above_a_minute_is_reported_for_all_runs_together() {
        assert_eq!(time_sentence(60.0, 1, 1), None);
        assert_eq!(time_sentence(20.0, 4, 2), None);
        let estimate = "by an estimate within a factor of three";
        let sentence = time_sentence(7_200.0, 1, 8).unwrap();
        assert_eq!(sentence, format!("this takes about 2 hours, {estimate}"));
        let sentence = time_sentence(20.0, 50, 2).unwrap();
        assert_eq!(
            sentence,
            format!("this takes about 8 minutes for 50 runs, 2 at a time, {estimate}")
        );
    }
}
