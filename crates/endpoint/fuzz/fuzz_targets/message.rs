//! Any bytes are read as a message of the control stream, or refused. From `crates/endpoint`:
//! `cargo +nightly fuzz run message`.

#![no_main]

use ontempo_endpoint::wire::Message;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((message, taken))) = Message::read(bytes) {
        assert!(taken <= bytes.len());
        let mut again = Vec::new();
        message.write(&mut again);
        let read = Message::read(&again).map(|read| read.map(|(message, _)| message));
        assert_eq!(read, Ok(Some(message)));
    }
});
