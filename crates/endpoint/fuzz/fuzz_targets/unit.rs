//! Any bytes are read as a unit's or a fragment's header, or refused. From `crates/endpoint`:
//! `cargo +nightly fuzz run unit`.

#![no_main]

use ontempo_endpoint::wire::{FragmentHeader, UnitHeader};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok((header, taken)) = UnitHeader::read(bytes) {
        assert!(taken <= bytes.len());
        assert!(header.depends_on.iter().all(|on| *on < header.id));
        let mut again = Vec::new();
        header.write(&mut again);
        assert_eq!(UnitHeader::read(&again), Ok((header, again.len())));
    }
    if let Ok((header, taken)) = FragmentHeader::read(bytes) {
        assert!(taken <= bytes.len());
        let mut again = Vec::new();
        header.write(&mut again);
        assert_eq!(FragmentHeader::read(&again), Ok((header, again.len())));
    }
});
