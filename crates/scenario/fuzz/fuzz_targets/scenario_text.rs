//! Any text is read as a scenario or refused. From `crates/scenario`:
//! `cargo +nightly fuzz run scenario_text`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(scenario) = ontempo_scenario::parse(text, "fuzz.toml") else { return };
    let _ = scenario.explain();
    let read_again: ontempo_scenario::model::Scenario =
        serde_json::from_str(&scenario.canonical()).expect("what is written can be read");
    assert_eq!(read_again, scenario);
    if scenario.flows.values().map(|group| u64::from(group.count)).sum::<u64>() < 1_000 {
        scenario.layout(1).expect("a valid scenario can be laid out");
    }
});
