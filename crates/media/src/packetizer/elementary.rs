//! Datagrams of an elementary stream.

use super::{Key, Packetizer, Piece, Stream};
use crate::elementary::ElementaryDatagram;
use crate::frames::FrameKind;
use crate::unit::Kind;

/// In place of a PID, which has 13 bits: the elementary stream.
const ELEMENTARY: u16 = 0x2000;

impl Packetizer {
    /// The piece of a part of a frame, or of what a decoder has to know.
    pub(super) fn piece_of_frame(&mut self, datagram: &[u8]) -> Piece {
        let alone = Piece::alone(datagram);
        let part = match ElementaryDatagram::read(datagram) {
            Ok(ElementaryDatagram::Description(_)) => {
                return Piece { key: Key::Tables, kind: Kind::Tables, ..alone };
            }
            Ok(ElementaryDatagram::Part(part)) => part,
            Err(_) => return alone,
        };
        let kind = match part.kind {
            FrameKind::Disposable => Kind::Disposable,
            FrameKind::Reference => Kind::Frame,
            FrameKind::Key => Kind::Key,
            FrameKind::Sound => Kind::Sound,
        };
        self.streams.entry(ELEMENTARY).or_insert(Stream::new(kind));
        let media_time = part.first.and_then(|head| head.times.shown);
        let (begins, ends) = (part.first.is_some(), part.is_last);
        Piece { key: Key::Pid(ELEMENTARY), kind, begins, ends, media_time, ..alone }
    }
}
