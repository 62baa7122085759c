//! Any bytes are read as what a process delivers. From `crates/monitor`:
//! `cargo +nightly fuzz run delivery`.

#![no_main]

#[path = "../exercise.rs"]
#[allow(dead_code)] // the other targets' part
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::delivery(bytes));
