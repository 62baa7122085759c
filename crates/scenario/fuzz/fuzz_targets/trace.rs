//! Any bytes are read as a trace of a network, or refused. From `crates/scenario`:
//! `cargo +nightly fuzz run trace`.

#![no_main]

#[path = "../exercise.rs"]
#[allow(dead_code)] // the other targets' parts
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::trace(bytes));
