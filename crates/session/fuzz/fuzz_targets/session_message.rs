//! Parses any bytes as messages between sender and receiver. From `crates/session`:
//! `cargo +nightly fuzz run session_message`.

#![no_main]

#[path = "../exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::session_message(bytes));
