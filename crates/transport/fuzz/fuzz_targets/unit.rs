//! Any bytes are read as a unit's or a fragment's header, or refused. From `crates/transport`:
//! `cargo +nightly fuzz run unit`.

#![no_main]

#[path = "../exercise.rs"]
#[allow(dead_code)] // the other target's part
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::unit(bytes));
