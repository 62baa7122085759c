//! Any bytes are read as a scenario with values set over it, or refused. From `crates/scenario`:
//! `cargo +nightly fuzz run scenario_overrides`.

#![no_main]

#[path = "../exercise.rs"]
#[allow(dead_code)] // the other targets' parts
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::scenario_overrides(bytes));
