//! Any bytes are read as a message of the control stream, or refused. From `crates/transport`:
//! `cargo +nightly fuzz run message`.

#![no_main]

#[path = "../exercise.rs"]
#[allow(dead_code)] // the other target's part
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::message(bytes));
