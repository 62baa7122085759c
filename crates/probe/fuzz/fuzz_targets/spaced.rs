//! Any bytes are read as packets of a spaced session, and answered at both of its ends. From
//! `crates/probe`:
//! `cargo +nightly fuzz run spaced`.

#![no_main]

#[path = "../exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::spaced(bytes));
