//! Any bytes are read as a scenario or refused. From `crates/scenario`:
//! `cargo +nightly fuzz run scenario_text`.

#![no_main]

#[path = "../exercise.rs"]
#[allow(dead_code)] // the other targets' parts
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::scenario_text(bytes));
