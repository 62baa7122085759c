//! What the fuzz targets do with bytes, and the tests on stable with every file of the corpus.

use ontempo_scenario::model::Scenario;
use ontempo_scenario::{Overrides, ScenarioError, parse, parse_with};

/// Above it a layout takes too long to be asked for with every input.
const MAX_FLOWS: u64 = 1_000;

/// Parts the file from the overrides, of which there is one a line.
const OVERRIDES_BEGIN: &str = "\n--set\n";

/// Reads the bytes as a scenario and uses it up.
pub(crate) fn scenario_text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    answered(parse(text, "fuzz.toml"));
}

/// Reads the bytes as a scenario, a line `--set` and overrides.
pub(crate) fn scenario_overrides(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (text, overrides) = text.split_once(OVERRIDES_BEGIN).unwrap_or((text, ""));
    let overrides = overrides.lines().filter(|line| !line.is_empty());
    answered(Overrides::parse(overrides).and_then(|set| parse_with(text, "fuzz.toml", &set)));
}

/// What was refused says why; what is a scenario can be told, written, read again and laid out.
fn answered(read: Result<Scenario, ScenarioError>) {
    let scenario = match read {
        Ok(scenario) => scenario,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert!(!scenario.explain().is_empty());
    let written = scenario.canonical();
    let again: Scenario = serde_json::from_str(&written).expect("what is written can be read");
    assert_eq!(again, scenario);
    assert_eq!(again.canonical(), written);
    if scenario.flows.values().map(|group| u64::from(group.count)).sum::<u64>() < MAX_FLOWS {
        scenario.layout(1).expect("a valid scenario can be laid out");
    }
}
