//! Any bytes are cut as datagrams of an elementary stream and put back the same. From `crates/media`:
//! `cargo +nightly fuzz run elementary`.

#![no_main]

#[path = "../exercise.rs"]
#[allow(dead_code)] // the other targets' part
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::elementary(bytes));
