//! Any bytes are read as what a master agent sends. From `crates/monitor`:
//! `cargo +nightly fuzz run agentx`.

#![no_main]

#[path = "../exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::agentx(bytes));
