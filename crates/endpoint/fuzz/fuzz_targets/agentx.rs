//! Any bytes are read as what a master agent sends. From `crates/endpoint`:
//! `cargo +nightly fuzz run agentx`.

#![no_main]

#[path = "../exercise_agentx.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::agentx(bytes));
