//! Any bytes are cut as a transport stream and put back the same, and read as a unit. From
//! `crates/media`:
//! `cargo +nightly fuzz run ts`.

#![no_main]

#[path = "../exercise.rs"]
#[allow(dead_code)] // the other targets' part
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::ts(bytes));
