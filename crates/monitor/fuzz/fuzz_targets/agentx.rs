//! Any bytes are read as what a master agent sends. From `crates/monitor`:
//! `cargo +nightly fuzz run agentx`.

#![no_main]

#[path = "../exercise.rs"]
#[allow(dead_code)] // the other targets' part
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::agentx(bytes));
