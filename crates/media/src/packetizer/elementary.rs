//! Datagrams of elementary streams.

use super::{Key, Packetizer, Piece, Stream};
use crate::elementary::ElementaryDatagram;
use crate::frames::FrameKind;
use crate::streams::split_number;
use crate::unit::Kind;

/// In place of a PID, which has 13 bits: the first elementary stream; the others follow.
const ELEMENTARY: u16 = 0x2000;

impl Packetizer {
    /// The piece of a part of a frame, of what a decoder has to know, or of a stream's end.
    pub(super) fn piece_of_frame(&mut self, datagram: &[u8], is_numbered: bool) -> Piece {
        let alone = Piece::alone(datagram);
        let (number, of_stream) = match is_numbered.then(|| split_number(datagram)) {
            None => (0, datagram),
            Some(Some((_, []))) => return Piece { kind: Kind::Tables, ..alone },
            Some(Some(numbered)) => numbered,
            Some(None) => return alone,
        };
        // Below MAX_STREAMS.
        let pid = ELEMENTARY + number as u16;
        let part = match ElementaryDatagram::read(of_stream) {
            Ok(ElementaryDatagram::Description(_)) => {
                return Piece { key: Key::Description(pid), kind: Kind::Tables, ..alone };
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
        self.streams.entry(pid).or_insert(Stream::new(kind));
        let media_time = part.first.and_then(|head| head.times.shown);
        let (begins, ends) = (part.first.is_some(), part.is_last);
        Piece { key: Key::Pid(pid), kind, begins, ends, media_time, ..alone }
    }
}
