//! Headers of application data units.

use ontempo_foundation::{Duration, Time};

use super::WireError;
use super::number::{MAX_VARINT, Reader, write};

/// How many units one unit may name as those that it depends on.
pub const MAX_DEPENDENCIES: usize = 32;

/// The longest header, in bytes: six numbers, a count, the dependencies.
pub const MAX_UNIT_HEADER: usize = 8 * (6 + 1 + MAX_DEPENDENCIES);

/// What stands before a unit's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitHeader {
    /// The flow that it belongs to.
    pub flow: u64,
    /// Its number within the flow, from 0 without a gap.
    pub id: u64,
    /// How many bytes follow.
    pub length: u64,
    /// When it was handed over for sending, by the sender's clock; whole microseconds.
    pub sent: Time,
    /// How long after `sent` it is wanted at the latest; whole microseconds.
    pub lifetime: Option<Duration>,
    /// More important units have a larger one.
    pub priority: u8,
    /// Units of the flow that it is of no use without, each before it.
    pub depends_on: Vec<u64>,
}

impl UnitHeader {
    /// Appends it to `out`.
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

    /// Reads a header and tells how many bytes it took.
    ///
    /// # Errors
    /// [`WireError::Short`] where more bytes are needed; any other is final.
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

/// The most microseconds that our units of time hold.
pub(super) const MAX_MICROS: u64 = u64::MAX / 1000;

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// What stands at the front of a datagram that carries a piece of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FragmentHeader {
    /// The first piece.
    First(UnitHeader),
    /// A later one.
    Later {
        /// The flow that the unit belongs to.
        flow: u64,
        /// Its number.
        id: u64,
        /// Bytes of the whole unit.
        length: u64,
        /// Where in the unit this piece begins; not 0.
        offset: u64,
    },
}

impl FragmentHeader {
    /// Appends it to `out`.
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

    /// Reads a header and tells how many bytes it took.
    ///
    /// # Errors
    /// Where the bytes end too early or name what cannot be.
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
