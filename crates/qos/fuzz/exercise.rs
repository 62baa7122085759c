//! What the fuzz targets of QoS sockets do with bytes, and the tests on stable with every file of
//! the corpus.

use ontempo_qos::wire::{
    Change, Counted, Header, Kind, MAX_SETUP, PREFACE, Pong, Refused, Setup, Status, TCP_HEADER,
    UDP_HEADER, setup_length,
};

/// What is read is written as it was.
fn body(kind: Kind, bytes: &[u8]) {
    match kind {
        Kind::Status => {
            if let Ok(status) = Status::read(bytes) {
                assert_eq!(Status::read(&status.to_bytes()), Ok(status));
            }
        }
        Kind::Pong => {
            if let Ok(pong) = Pong::read(bytes) {
                assert_eq!(pong.to_bytes(), bytes);
            }
        }
        Kind::Change => {
            if let Ok(change) = Change::read(bytes) {
                assert_eq!(change.to_bytes(), bytes);
            }
        }
        Kind::Refused => {
            if let Ok(refused) = Refused::read(bytes) {
                // Escapes can make it longer than what is sent of it.
                let again = Refused::read(&refused.to_bytes()).map(|again| again.reason);
                assert!(again.is_ok_and(|again| refused.reason.starts_with(&again)));
            }
        }
        Kind::Ack | Kind::End => {
            if let Ok(counted) = Counted::read(bytes) {
                assert_eq!(counted.to_bytes(), bytes);
            }
        }
        Kind::Data | Kind::Bye => {}
    }
}

/// A stream: the set-up, and messages behind it.
pub(crate) fn qos_tcp(bytes: &[u8]) {
    let mut rest = bytes;
    if let Some(Ok(length)) = bytes.first_chunk::<PREFACE>().map(setup_length)
        && let Some((setup, after)) = bytes.split_at_checked(PREFACE + length)
    {
        assert!(setup.len() <= MAX_SETUP);
        if let Ok(read) = Setup::read(setup) {
            assert_eq!(read.to_bytes(), setup);
        }
        rest = after;
    }
    while let Some((header, after)) = rest.split_first_chunk::<TCP_HEADER>() {
        let Ok(header) = Header::of_tcp(header, 60_000) else { return };
        assert!(header.length <= 60_000);
        assert_eq!(Header::of_tcp(&header.to_tcp(), 60_000), Ok(header));
        let Some((one, after)) = after.split_at_checked(header.length) else { return };
        body(header.kind, one);
        rest = after;
    }
}

/// A datagram.
pub(crate) fn qos_udp(bytes: &[u8]) {
    if Setup::begins(bytes) {
        if let Ok(read) = Setup::read(bytes) {
            assert_eq!(read.to_bytes(), bytes);
        }
        return;
    }
    let Some((head, rest)) = bytes.split_at_checked(UDP_HEADER) else { return };
    let session = u64::from_be_bytes(head[8..16].try_into().expect("8 bytes"));
    if let Ok(header) = Header::of_udp(head, rest.len(), session) {
        assert_eq!(header.to_udp(session), head);
        body(header.kind, rest);
    }
}
