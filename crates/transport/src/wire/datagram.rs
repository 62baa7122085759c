//! Headers of datagrams: fragments of units, requests for repairs, repairs, and a server's limits.

use super::number::{MAX_VARINT, Reader, write};
use super::{Limits, UnitHeader, WireError};

/// Maximum ranges that one request names: in at most 1,000 bytes.
pub const MAX_RANGES: usize = 40;

const FIRST: u64 = 0;
const LATER: u64 = 1;
const REQUEST: u64 = 2;
const REPAIR: u64 = 3;
const LIMITS: u64 = 4;

/// Bytes of a stream, from an offset up to another; without it, up to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first byte.
    pub from: u64,
    /// The first byte behind it, after `from`.
    pub to: Option<u64>,
}

/// What has not arrived of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The index of the stream among the unidirectional ones that the side opens that is asked.
    pub stream: u64,
    /// One or more, in their order, none of which touches the next; only the last may be without an end.
    pub ranges: Vec<Range>,
}

/// Header of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatagramHeader {
    /// The first fragment of a unit; its bytes follow.
    First(UnitHeader),
    /// A later fragment; its bytes follow.
    Later {
        /// Its flow.
        flow: u64,
        /// Its unit's number.
        id: u64,
        /// Size of the whole unit, bytes.
        length: u64,
        /// Offset of the fragment in the unit; not 0.
        offset: u64,
    },
    /// A receiver asks for what is missing, at most [`MAX_RANGES`] in all; nothing follows.
    Request(Vec<Missing>),
    /// The answer; bytes of the stream follow.
    Repair {
        /// The index of the stream among the sender's unidirectional ones.
        stream: u64,
        /// Of the first byte in the stream.
        offset: u64,
    },
    /// The server's receive limits, before its Welcome; nothing follows.
    Limits(Limits),
}

impl DatagramHeader {
    /// Appends its encoding to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::First(header) => {
                write(out, FIRST);
                header.write(out);
            }
            Self::Later { flow, id, length, offset } => {
                for number in [LATER, *flow, *id, *length, *offset] {
                    write(out, number);
                }
            }
            Self::Request(streams) => {
                write(out, REQUEST);
                write(out, streams.len() as u64);
                streams.iter().for_each(|missing| missing.write(out));
            }
            Self::Repair { stream, offset } => {
                for number in [REPAIR, *stream, *offset] {
                    write(out, number);
                }
            }
            Self::Limits(limits) => {
                write(out, LIMITS);
                limits.write(out);
            }
        }
    }

    /// Parses a header and returns its encoded length.
    ///
    /// # Errors
    /// If the bytes are truncated, or a number is out of range.
    pub fn read(bytes: &[u8]) -> Result<(Self, usize), WireError> {
        let mut reader = Reader::new(bytes);
        let header = match reader.number()? {
            FIRST => Self::First(UnitHeader::take(&mut reader)?),
            LATER => {
                let (flow, id) = (reader.number()?, reader.number()?);
                let (length, offset) = (reader.number()?, reader.number()?);
                if offset == 0 || offset >= length {
                    return Err(WireError::OutOfRange("a fragment's offset"));
                }
                Self::Later { flow, id, length, offset }
            }
            REQUEST => {
                let mut left = MAX_RANGES as u64;
                let count = reader.at_most(left, "a request's number of streams")?;
                let streams = (0..count).map(|_| Missing::take(&mut reader, &mut left));
                let streams = streams.collect::<Result<_, _>>()?;
                reader.end()?;
                Self::Request(streams)
            }
            REPAIR => Self::Repair { stream: reader.number()?, offset: reader.number()? },
            LIMITS => {
                let limits = Limits::take(&mut reader)?;
                reader.end()?;
                Self::Limits(limits)
            }
            _ => return Err(WireError::OutOfRange("a datagram's kind")),
        };
        Ok((header, bytes.len() - reader.left()))
    }
}

impl Missing {
    /// The stream, the number of ranges, and of each the distance from the one before it and its length; 0 for one
    /// without an end.
    fn write(&self, out: &mut Vec<u8>) {
        write(out, self.stream);
        write(out, self.ranges.len() as u64);
        let mut before = 0;
        for Range { from, to } in &self.ranges {
            write(out, from - before);
            before = to.unwrap_or(*from);
            write(out, before - from);
        }
    }

    fn take(reader: &mut Reader<'_>, left: &mut u64) -> Result<Self, WireError> {
        let stream = reader.number()?;
        let count = reader.at_most(*left, "a request's number of ranges")?;
        *left -= count;
        let mut ranges = Vec::new();
        let mut before = Some(0);
        for place in 0..count {
            // Only the last may be without an end.
            let end = before.ok_or(WireError::OutOfRange("a request's range"))?;
            let from = end + reader.at_most(MAX_VARINT - end, "a request's offset")?;
            let length = reader.at_most(MAX_VARINT - from, "a request's length")?;
            if place > 0 && from == end {
                return Err(WireError::OutOfRange("a request's range"));
            }
            before = (length > 0).then_some(from + length);
            ranges.push(Range { from, to: before });
        }
        if ranges.is_empty() {
            return Err(WireError::OutOfRange("a request's number of ranges"));
        }
        Ok(Self { stream, ranges })
    }
}
