//! Headers of units.

use ontempo_foundation::{Duration, Time};

use super::WireError;
use super::number::{Reader, write};

/// Maximum dependencies of a unit.
pub const MAX_DEPENDENCIES: usize = 32;

/// Maximum size of a header, in bytes: the flags, the priority, six numbers, a count, the
/// dependencies.
pub const MAX_UNIT_HEADER: usize = 2 + 8 * (6 + 1 + MAX_DEPENDENCIES);

/// The priority in the flags' lowest bits that says: it follows.
const PRIORITY: u8 = 0x07;
/// The unit continues another: how many numbers earlier.
const CONTINUES: u8 = 0x08;
/// A deadline.
const LIFETIME: u8 = 0x10;
/// A list of dependencies. Without it a unit that continues another depends on that, and any other
/// on none.
const DEPENDENCIES: u8 = 0x20;
/// The time in full.
const WHOLE_TIME: u8 = 0x40;
/// A flow other than the first.
const FLOW: u8 = 0x80;

/// The age of a unit when it is written, up to which a part of its time suffices: its transit is
/// far shorter than the rest of what 32 bits of microseconds hold, 71 minutes.
const MAX_AGE: Duration = Duration::from_secs(600);

/// How much later than now, by the receiver's estimate of the sender's clock, a unit may seem to
/// have been sent, microseconds.
const MAX_AHEAD: u64 = 60_000_000;

/// When a unit was passed to its sender, by the sender's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Whole microseconds.
    At(Time),
    /// The lowest 32 bits of the number of microseconds, for a unit that is not old.
    Low(u32),
}

impl Sent {
    /// Of a unit that is written at `now`.
    pub fn of(sent: Time, now: Time) -> Self {
        if now.since(sent) <= MAX_AGE {
            Self::Low((sent.as_nanos() / 1_000) as u32)
        } else {
            Self::At(sent)
        }
    }

    /// The time, if it is `now` at the sender, about.
    pub fn by(self, now: Time) -> Time {
        match self {
            Self::At(time) => time,
            Self::Low(low) => {
                let most = now.as_nanos() / 1_000 + MAX_AHEAD;
                let behind = u64::from((most as u32).wrapping_sub(low));
                Time::from_nanos(most.saturating_sub(behind).saturating_mul(1_000))
            }
        }
    }
}

/// Header before a unit's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitHeader {
    /// Its flow.
    pub flow: u64,
    /// Its number in the flow, from 0 without gaps.
    pub id: u64,
    /// Number of bytes that follow.
    pub length: u64,
    /// When it was passed to the sender.
    pub sent: Sent,
    /// Deadline as a duration since `sent`; whole milliseconds, rounded up.
    pub lifetime: Option<Duration>,
    /// A larger number is more important.
    pub priority: u8,
    /// The earlier unit of the flow that it continues.
    pub continues: Option<u64>,
    /// Earlier units of the flow without which it is of no use.
    pub depends_on: Vec<u64>,
}

impl UnitHeader {
    /// Appends its encoding to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let implied = self.continues.as_slice();
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        out.push(
            self.priority.min(PRIORITY)
                | flag(self.continues.is_some(), CONTINUES)
                | flag(self.lifetime.is_some(), LIFETIME)
                | flag(self.depends_on != implied, DEPENDENCIES)
                | flag(matches!(self.sent, Sent::At(_)), WHOLE_TIME)
                | flag(self.flow != 0, FLOW),
        );
        if self.priority >= PRIORITY {
            out.push(self.priority);
        }
        if self.flow != 0 {
            write(out, self.flow);
        }
        write(out, self.id);
        write(out, self.length);
        match self.sent {
            Sent::At(time) => write(out, time.as_nanos() / 1_000),
            Sent::Low(low) => out.extend_from_slice(&low.to_be_bytes()),
        }
        if let Some(lifetime) = self.lifetime {
            write(out, lifetime.as_nanos().div_ceil(1_000_000));
        }
        if let Some(continues) = self.continues {
            write(out, self.id - continues);
        }
        if self.depends_on != implied {
            write(out, self.depends_on.len() as u64);
            for dependency in &self.depends_on {
                write(out, self.id - dependency);
            }
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

    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let byte = |reader: &mut Reader<'_>| Ok(reader.take(1)?[0]);
        let flags = byte(reader)?;
        let has = |flag: u8| flags & flag != 0;
        let low = flags & PRIORITY;
        let priority = if low == PRIORITY { byte(reader)? } else { low };
        let flow = if has(FLOW) { reader.number()? } else { 0 };
        let id = reader.number()?;
        let length = reader.number()?;
        let sent = if has(WHOLE_TIME) {
            Sent::At(Time::ZERO + micros(reader.at_most(MAX_MICROS, "a unit's time")?))
        } else {
            let low = reader.take(4)?.iter().fold(0, |low, byte| low << 8 | u32::from(*byte));
            Sent::Low(low)
        };
        let lifetime = if has(LIFETIME) {
            let millis = reader.at_most(MAX_MICROS / 1_000, "a unit's lifetime")?;
            Some(Duration::from_millis(millis))
        } else {
            None
        };
        let earlier = |reader: &mut Reader<'_>| {
            let back = reader.number()?;
            let named = id.checked_sub(back).filter(|_| back > 0);
            named.ok_or(WireError::OutOfRange("a unit's dependency"))
        };
        let continues = if has(CONTINUES) { Some(earlier(reader)?) } else { None };
        let depends_on = if has(DEPENDENCIES) {
            let most = MAX_DEPENDENCIES as u64;
            let count = reader.at_most(most, "a unit's number of dependencies")?;
            (0..count).map(|_| earlier(reader)).collect::<Result<_, _>>()?
        } else {
            continues.into_iter().collect()
        };
        Ok(Self { flow, id, length, sent, lifetime, priority, continues, depends_on })
    }
}

/// The largest number of microseconds that `Time` holds.
pub(super) const MAX_MICROS: u64 = u64::MAX / 1000;

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}
