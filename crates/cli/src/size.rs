//! Whether this machine bears what a scenario takes.

use std::fs;

use ontempo_scenario::Cost;
use ontempo_scenario::model::Scenario;

use crate::failure::Failure;

/// Share of the available memory that runs may take: the rest of the machine lives on.
const MAX_SHARE: f64 = 0.8;

/// The longest estimated time that needs no word of the user's, in seconds: a day.
const MAX_SECONDS: f64 = 86_400.0;

/// Refuses a scenario of which `at_once` runs, estimated, take more memory than this machine has,
/// or one takes more than a day.
///
/// # Errors
/// A sentence with the estimate, and what makes the scenario smaller.
pub(crate) fn require_bearable(scenario: &Scenario, at_once: usize) -> Result<(), Failure> {
    let cost = scenario.cost();
    match refusal(&cost, at_once as f64, available_bytes()) {
        Some(why) => Err(Failure::Input(why)),
        None => Ok(()),
    }
}

fn refusal(cost: &Cost, at_once: f64, available: Option<f64>) -> Option<String> {
    let memory = cost.memory * at_once;
    let lacks = available.is_some_and(|available| memory > MAX_SHARE * available);
    if !lacks && cost.seconds <= MAX_SECONDS {
        return None;
    }
    let mut why =
        format!("a run takes {cost}: {:.1e} packets and {:.1e} rows", cost.packets, cost.rows);
    if lacks {
        let gigabytes = |bytes: f64| format!("{:.1} GB", bytes / 1e9);
        let free = available.map(gigabytes).unwrap_or_default();
        why += &format!("; {free} of memory are free, and {at_once} would run at a time");
    }
    Some(format!(
        "{why}; fewer flows, a shorter duration, lower rates or rarer samples make it smaller, and \
         --any-size runs it as it is"
    ))
}

/// Free memory in bytes; `None` where the system does not say.
fn available_bytes() -> Option<f64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kilobytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_refused_beyond_the_free_memory_or_a_day() {
        let cost = |memory, seconds| Cost { packets: 1e6, rows: 10.0, memory, seconds };
        let refused = |cost: Cost, runs| refusal(&cost, runs, Some(4e9));
        assert_eq!(refused(cost(3e9, 10.0), 1.0), None);
        let why = refused(cost(3e9, 10.0), 2.0).unwrap();
        assert!(
            why.contains("3.0 GB") && why.contains("4.0 GB of memory are free, and 2"),
            "{why}"
        );
        let why = refused(cost(1e6, 1e6), 1.0).unwrap();
        assert!(why.contains("12 days") && !why.contains("free"), "{why}");
        assert_eq!(refusal(&cost(1e15, 1.0), 1.0, None), None);
    }
}
