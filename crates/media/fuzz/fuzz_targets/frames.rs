//! Any bytes are read as a table of frames, written and read again. From `crates/media`:
//! `cargo +nightly fuzz run frames`.

#![no_main]

#[path = "../exercise.rs"]
#[allow(dead_code)] // the other targets' part
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::frames(bytes));
