//! Any bytes are read as packets of a spaced session, and answered at both of its ends. From `crates/endpoint`:
//! `cargo +nightly fuzz run spaced`.

#![no_main]

#[path = "../exercise_media.rs"]
#[allow(dead_code)] // the other targets' parts
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::spaced(bytes));
