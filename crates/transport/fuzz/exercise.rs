// What the fuzzer does with bytes that are to be read as ontempo's own headers, and what the
// corpus tests do on the stable compiler.

use ontempo_transport::wire::{DatagramHeader, Message, UnitHeader};

/// Any bytes are read as a message of the control stream, or refused.
pub(crate) fn message(bytes: &[u8]) {
    if let Ok(Some((message, taken))) = Message::read(bytes) {
        assert!(taken <= bytes.len());
        let mut again = Vec::new();
        message.write(&mut again);
        let read = Message::read(&again).map(|read| read.map(|(message, _)| message));
        assert_eq!(read, Ok(Some(message)));
    }
}

/// Any bytes are read as a unit's or a fragment's header, or refused.
pub(crate) fn unit(bytes: &[u8]) {
    if let Ok((header, taken)) = UnitHeader::read(bytes) {
        assert!(taken <= bytes.len());
        assert!(header.depends_on.iter().all(|on| *on < header.id));
        let mut again = Vec::new();
        header.write(&mut again);
        assert_eq!(UnitHeader::read(&again), Ok((header, again.len())));
    }
    if let Ok((header, taken)) = DatagramHeader::read(bytes) {
        assert!(taken <= bytes.len());
        let mut again = Vec::new();
        header.write(&mut again);
        assert_eq!(DatagramHeader::read(&again), Ok((header, again.len())));
    }
}
