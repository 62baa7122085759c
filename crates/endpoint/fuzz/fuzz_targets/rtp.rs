//! Any bytes are cut as datagrams of RTP and put back the same. From `crates/endpoint`:
//! `cargo +nightly fuzz run rtp`.

#![no_main]

#[path = "../exercise_media.rs"]
#[allow(dead_code)] // the other targets' parts
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::rtp(bytes));
