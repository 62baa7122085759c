//! Headers of units.

use ontempo_foundation::{Duration, Time};

use super::WireError;
use super::number::{MAX_VARINT, Reader, write};

/// Maximum dependencies of a unit.
pub const MAX_DEPENDENCIES: usize = 32;

/// Maximum size of a header, in bytes: six numbers, a count, the dependencies.
pub const MAX_UNIT_HEADER: usize = 8 * (6 + 1 + MAX_DEPENDENCIES);

/// Header before a unit's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitHeader {
    /// Its flow.
    pub flow: u64,
    /// Its number in the flow, from 0 without gaps.
    pub id: u64,
    /// Number of bytes that follow.
    pub length: u64,
    /// When it was passed to the sender, by the sender's clock; whole microseconds.
    pub sent: Time,
    /// Deadline as a duration since `sent`; whole microseconds.
    pub lifetime: Option<Duration>,
    /// A larger number is more important.
    pub priority: u8,
    /// Earlier units of the flow without which it is of no use.
    pub depends_on: Vec<u64>,
}

impl UnitHeader {
    /// Appends its encoding to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        write(out, self.flow);
        write(out, self.id);
        write(out, self.length);
        write(out, self.sent.as_nanos() / 1000);
        write(out, self.lifetime.map_or(0, |lifetime| lifetime.as_nanos() / 1000 + 1));
        write(out, self.priority.into());
        write(out, self.depends_on.len() as u64);
        for dependency in &self.depends_on {
            write(out, self.id - dependency);
        }
    }

    /// Parses a header and returns its encoded length.
    ///
    /// # Errors
    /// [`WireError::Short`] if more bytes are needed; any other is final.
    pub fn read(bytes: &[u8]) -> Result<(Self, usize), WireError> {
        let mut reader = Reader::new(bytes);
        let header = Self::take(&mut reader)?;
        Ok((header, bytes.len() - reader.left()))
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let flow = reader.number()?;
        let id = reader.number()?;
        let length = reader.number()?;
        let sent = micros(reader.at_most(MAX_MICROS, "a unit's time")?);
        let lifetime = reader.at_most(MAX_MICROS, "a unit's lifetime")?.checked_sub(1).map(micros);
        let priority = reader.at_most(255, "a unit's priority")? as u8;
        let count = reader.at_most(MAX_DEPENDENCIES as u64, "a unit's number of dependencies")?;
        let mut depends_on = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let back = reader.number()?;
            let named = id.checked_sub(back).filter(|_| back > 0);
            depends_on.push(named.ok_or(WireError::OutOfRange("a unit's dependency"))?);
        }
        Ok(Self { flow, id, length, sent: Time::ZERO + sent, lifetime, priority, depends_on })
    }
}

/// The largest number of microseconds that `Time` holds.
pub(super) const MAX_MICROS: u64 = u64::MAX / 1000;

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Header of a datagram with a fragment of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FragmentHeader {
    /// The first fragment.
    First(UnitHeader),
    /// A later fragment.
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
}

impl FragmentHeader {
    /// Appends its encoding to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::First(header) => {
                write(out, 0);
                header.write(out);
            }
            Self::Later { flow, id, length, offset } => {
                for number in [*offset, *flow, *id, *length] {
                    write(out, number);
                }
            }
        }
    }

    /// Parses a header and returns its encoded length.
    ///
    /// # Errors
    /// If the bytes are truncated, or a number is out of range.
    pub fn read(bytes: &[u8]) -> Result<(Self, usize), WireError> {
        let mut reader = Reader::new(bytes);
        let offset = reader.number()?;
        let header = if offset == 0 {
            Self::First(UnitHeader::take(&mut reader)?)
        } else {
            let (flow, id) = (reader.number()?, reader.number()?);
            let length = reader.at_most(MAX_VARINT, "a unit's length")?;
            if offset >= length {
                return Err(WireError::OutOfRange("a fragment's offset"));
            }
            Self::Later { flow, id, length, offset }
        };
        Ok((header, bytes.len() - reader.left()))
    }
}
