//! A unit and its bytes.

use std::fmt;

use ontempo_foundation::{Duration, Time};

use super::stuffing::Stuffing;

/// Dependencies of one unit: tables, key frame, the part before.
pub(super) const MAX_DEPENDENCIES: usize = 4;

/// Maximum parts of a unit, spans of all its parts, and null packets that it describes: each takes
/// memory beside the data, or becomes some. The largest unit of a packetizer with default options,
/// 256 KiB of packets of RTP without payload, has fewer.
pub const MAX_PIECES: usize = 32_768;

/// Bytes of memory of a part, of a span and of a description of stuffing beside the data.
const PART_BYTES: usize = size_of::<Part>() + 16;
const SPAN_BYTES: usize = size_of::<Span>();
const STUFFING_BYTES: usize = size_of::<Stuffing>() + 16;

/// Bytes of memory of a unit without parts and data.
const UNIT_BYTES: usize = 256;

/// Content of a unit, in ascending order of priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Stuffing: packets that keep a rate constant.
    Filler,
    /// Something else.
    Other,
    /// A datagram of unknown content.
    Datagram,
    /// A picture that no other one needs.
    Disposable,
    /// A picture that needs earlier ones.
    Frame,
    /// A picture at which decoding can begin.
    Key,
    /// An audio frame: small, and a gap is heard at once.
    Sound,
    /// Tables, which a decoder needs before anything else.
    Tables,
}

pub(super) const KINDS: [Kind; 8] = [
    Kind::Filler,
    Kind::Other,
    Kind::Datagram,
    Kind::Disposable,
    Kind::Frame,
    Kind::Key,
    Kind::Sound,
    Kind::Tables,
];

impl Kind {
    /// 0 (stuffing) to 7 (tables); a larger number is sent first.
    pub const fn priority(self) -> u8 {
        self as u8
    }
}

/// A range of bytes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub offset: u16,
    /// Number of bytes, at least 1 (0 in the only span of an empty datagram).
    pub length: u16,
}

/// The part of a unit that lies in one datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The datagram, counted from 0.
    pub datagram: u64,
    /// Bytes of the whole datagram.
    pub length: u16,
    /// When it arrived at the packetizer, to the microsecond.
    pub arrived: Time,
    /// The bytes, in order, without overlap.
    pub spans: Vec<Span>,
    /// Null packets of the datagram, described in place of their bytes; in order, without overlap
    /// of each other or of the spans.
    pub stuffing: Vec<Stuffing>,
}

/// A unit of media: bytes that are useful only together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Counted from 0 in the order in which units began.
    pub id: u64,
    /// Its content.
    pub kind: Kind,
    /// Presentation time, by the media's clock, from that clock's zero. `None` also where it
    /// continues another.
    pub media_time: Option<Duration>,
    /// How long after its sending a player that follows the media's clock needs it (MPEG-TS: DTS
    /// less PCR), in addition to the delay that the transport is allowed. `None` also where it
    /// continues another.
    pub slack: Option<Duration>,
    /// The unit that it continues: both are parts of the same frame.
    pub continues: Option<u64>,
    /// Units without which it is of no use, all of them earlier; at most 4. One that continues
    /// another depends on that alone, and thereby on what that depends on.
    pub dependencies: Vec<u64>,
    /// The places of its bytes in datagrams, in ascending order of these.
    pub parts: Vec<Part>,
    /// The bytes, in the order of the parts' spans.
    pub data: Vec<u8>,
}

/// Why bytes are not a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitError {
    /// Too short, or a number is too large.
    CutShort,
    /// An unknown kind or flag.
    UnknownKind,
    /// Spans or stuffing that overlap, lie outside their datagram, or do not add up to the data.
    Spans,
    /// More than [`MAX_PIECES`] parts, spans or null packets.
    Pieces,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CutShort => "a unit of media that ends too early",
            Self::UnknownKind => "a unit of media of an unknown kind",
            Self::Spans => "a unit of media whose pieces do not fit",
            Self::Pieces => return write!(f, "a unit of media of more than {MAX_PIECES} pieces"),
        })
    }
}

impl std::error::Error for UnitError {}

impl Unit {
    /// Bytes of memory that it takes, at least 256.
    pub fn memory(&self) -> usize {
        let parts = self.parts.iter().map(|part| {
            let stuffing = part.stuffing.iter().map(|one| STUFFING_BYTES + one.memory());
            PART_BYTES + SPAN_BYTES * part.spans.len().max(4) + stuffing.sum::<usize>()
        });
        UNIT_BYTES + self.data.len() + parts.sum::<usize>()
    }

    /// The pieces: each with its part, its span and its bytes.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (&Part, Span, &[u8])> {
        let mut rest = self.data.as_slice();
        let spans =
            self.parts.iter().flat_map(|part| part.spans.iter().map(move |&span| (part, span)));
        spans.map_while(move |(part, span)| {
            let (piece, after) = rest.split_at_checked(usize::from(span.length))?;
            rest = after;
            Some((part, span, piece))
        })
    }
}
