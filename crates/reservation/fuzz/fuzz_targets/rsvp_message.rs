//! Any bytes are read as an RSVP message or refused. From `crates/reservation`:
//! `cargo +nightly fuzz run rsvp_message`.

#![no_main]

#[path = "../exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::rsvp_message(bytes));
