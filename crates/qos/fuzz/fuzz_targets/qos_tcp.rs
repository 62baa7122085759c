//! Any bytes are read as a stream of QoS messages. From `crates/qos`:
//! `cargo +nightly fuzz run qos_tcp`.

#![no_main]

#[path = "../exercise.rs"]
#[allow(dead_code)] // the other target's part
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::qos_tcp(bytes));
