//! Any bytes are taken for coded pictures and sound, and give a valid table of frames or an error. From `crates/media`:
//! `cargo +nightly fuzz run marks`.

#![no_main]

#[path = "../exercise.rs"]
#[allow(dead_code)] // the other targets' part
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::marks(bytes));
