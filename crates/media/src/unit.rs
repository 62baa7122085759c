//! A unit and its bytes.

use std::fmt;

use ontempo_foundation::{Duration, Time};

/// Maximum size of a UDP datagram, bytes.
const MAX_LENGTH: u64 = 65_535;

/// Dependencies of one unit: tables, key frame, the part before.
pub(super) const MAX_DEPENDENCIES: usize = 4;

/// Maximum parts of a unit, and spans of all its parts: each takes memory beside the data. The
/// largest unit of a packetizer with default options, 256 KiB of packets of RTP without payload,
/// has fewer.
pub const MAX_PIECES: usize = 32_768;

/// Bytes of memory of a part and of a span beside the data.
const PART_BYTES: usize = std::mem::size_of::<Part>() + 16;
const SPAN_BYTES: usize = std::mem::size_of::<Span>();

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

const KINDS: [Kind; 8] = [
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
}

/// A unit of media: bytes that are useful only together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Counted from 0 in the order in which units began.
    pub id: u64,
    /// Its content.
    pub kind: Kind,
    /// Presentation time, by the media's clock, from that clock's zero.
    pub media_time: Option<Duration>,
    /// How long after its sending a player that follows the media's clock needs it (MPEG-TS: DTS
    /// less PCR), in addition to the delay that the transport is allowed.
    pub slack: Option<Duration>,
    /// Units without which it is of no use, all of them earlier; at most 4.
    pub dependencies: Vec<u64>,
    /// The unit whose frame this one continues; known to the packetizer, not written.
    pub continues: Option<u64>,
    /// The places of its bytes in datagrams.
    pub parts: Vec<Part>,
    /// The bytes, in the order of the parts' spans.
    pub data: Vec<u8>,
}

/// Why bytes are not a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitError {
    /// Too short, or a number is too large.
    CutShort,
    /// An unknown kind.
    UnknownKind,
    /// A dependency on itself or on a later unit, or too many.
    Dependencies,
    /// Spans that overlap, lie outside their datagram, or do not add up to the data.
    Spans,
    /// More than [`MAX_PIECES`] parts or spans.
    Pieces,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CutShort => "a unit of media that ends too early",
            Self::UnknownKind => "a unit of media of an unknown kind",
            Self::Dependencies => "a unit of media that depends on no earlier unit",
            Self::Spans => "a unit of media whose pieces do not fit",
            Self::Pieces => return write!(f, "a unit of media of more than {MAX_PIECES} pieces"),
        })
    }
}

impl std::error::Error for UnitError {}

impl Unit {
    /// Appends the unit's bytes: numbers of 7 bits a byte, the lowest first, then the data.
    pub fn write(&self, to: &mut Vec<u8>) {
        put(self.id, to);
        to.push(self.kind.priority());
        // 0 is none.
        let time =
            |time: Option<Duration>| time.map_or(0, |time| time.as_nanos().saturating_add(1));
        put(time(self.media_time), to);
        put(time(self.slack), to);
        put(self.dependencies.len() as u64, to);
        for &dependency in &self.dependencies {
            put(self.id.saturating_sub(dependency), to);
        }
        put(self.parts.len() as u64, to);
        let (mut datagram, mut arrived) = (0, 0);
        for part in &self.parts {
            let micros = part.arrived.as_nanos() / 1_000;
            put(part.datagram.wrapping_sub(datagram), to);
            put(u64::from(part.length), to);
            put(micros.wrapping_sub(arrived), to);
            put(part.spans.len() as u64, to);
            (datagram, arrived) = (part.datagram, micros);
            let mut end = 0;
            for span in &part.spans {
                put(u64::from(span.offset.saturating_sub(end)), to);
                put(u64::from(span.length), to);
                end = span.offset.saturating_add(span.length);
            }
        }
        to.extend(&self.data);
    }

    /// Reads a unit; `bytes` is all of it.
    ///
    /// # Errors
    /// If the bytes are not a whole unit.
    pub fn read(bytes: &[u8]) -> Result<Self, UnitError> {
        let mut rest = bytes;
        let rest = &mut rest;
        let id = take(rest)?;
        let (&kind, after) = rest.split_first().ok_or(UnitError::CutShort)?;
        *rest = after;
        let kind = *KINDS.get(usize::from(kind)).ok_or(UnitError::UnknownKind)?;
        let media_time = take(rest)?.checked_sub(1).map(Duration::from_nanos);
        let slack = take(rest)?.checked_sub(1).map(Duration::from_nanos);
        let count = take(rest)?;
        if count > MAX_DEPENDENCIES as u64 {
            return Err(UnitError::Dependencies);
        }
        let mut dependencies = Vec::new();
        for _ in 0..count {
            let back = take(rest)?;
            let earlier = id.checked_sub(back).filter(|_| back > 0);
            dependencies.push(earlier.ok_or(UnitError::Dependencies)?);
        }
        let count = take(rest)?;
        let mut parts: Vec<Part> = Vec::new();
        let (mut length, mut pieces) = (0, 0);
        for _ in 0..count {
            let part = read_part(rest, parts.last(), MAX_PIECES - pieces)?;
            pieces += part.spans.len().max(1);
            length += part.spans.iter().map(|span| usize::from(span.length)).sum::<usize>();
            parts.push(part);
        }
        if length != rest.len() {
            return Err(UnitError::Spans);
        }
        let (continues, data) = (None, rest.to_vec());
        Ok(Self { id, kind, media_time, slack, dependencies, continues, parts, data })
    }

    /// Bytes of memory that it takes, at least 256.
    pub fn memory(&self) -> usize {
        let spans = self.parts.iter().map(|part| PART_BYTES + SPAN_BYTES * part.spans.len().max(4));
        UNIT_BYTES + self.data.len() + spans.sum::<usize>()
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

/// Reads a part of at most `max_spans` spans.
fn read_part(rest: &mut &[u8], before: Option<&Part>, max_spans: usize) -> Result<Part, UnitError> {
    if max_spans == 0 {
        return Err(UnitError::Pieces);
    }
    let earlier = before.map_or((0, 0), |part| (part.datagram, part.arrived.as_nanos() / 1_000));
    let datagram = earlier.0.wrapping_add(take(rest)?);
    if before.is_some_and(|before| datagram <= before.datagram) {
        return Err(UnitError::Spans);
    }
    let length = short(take(rest)?)?;
    // Times may go back: only as far as they are counted.
    let micros = earlier.1.wrapping_add(take(rest)?);
    let arrived = Time::from_nanos(micros.checked_mul(1_000).ok_or(UnitError::CutShort)?);
    let count = take(rest)?;
    if count > max_spans as u64 {
        return Err(UnitError::Pieces);
    }
    let mut spans = Vec::new();
    let mut end = 0;
    for _ in 0..count {
        let offset = end + u64::from(short(take(rest)?)?);
        let span = Span { offset: short(offset)?, length: short(take(rest)?)? };
        end = offset + u64::from(span.length);
        let is_empty = span.length == 0 && !(length == 0 && count == 1);
        if end > u64::from(length) || is_empty {
            return Err(UnitError::Spans);
        }
        spans.push(span);
    }
    Ok(Part { datagram, length, arrived, spans })
}

fn short(number: u64) -> Result<u16, UnitError> {
    u16::try_from(number.min(MAX_LENGTH + 1)).map_err(|_| UnitError::Spans)
}

fn put(mut number: u64, to: &mut Vec<u8>) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

fn take(rest: &mut &[u8]) -> Result<u64, UnitError> {
    let mut number = 0u64;
    for place in 0..10 {
        let (&byte, after) = rest.split_first().ok_or(UnitError::CutShort)?;
        *rest = after;
        let bits = u64::from(byte & 0x7f);
        if place == 9 && bits > 1 {
            break;
        }
        number |= bits << (7 * place);
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(UnitError::CutShort)
}
