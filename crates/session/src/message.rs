//! The messages between sender and receiver.
//!
//! A sender opens one flow, whose label is a [`Label`]. Each unit of it is one byte, 0 or 1, and
//! then media ([`Unit::write`]), or the numbers of datagrams that will not come, 8 bytes each,
//! big-endian. The receiver opens one flow with the label [`REPORTS`]; each of its units is a
//! [`Report`] as JSON. No parser here fails on any bytes: what is no message is an error.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use ontempo_foundation::Duration;
use ontempo_media::Unit;
use serde::{Deserialize, Serialize};

/// The first byte of a unit: media, or numbers of datagrams that will not come.
const MEDIA: u8 = 0;
const GAP: u8 = 1;

/// Numbers in one message of datagrams that will not come.
pub const MAX_GAPS: usize = 16_384;

/// What the flow of a receiver's reports is called.
pub const REPORTS: &str = "ontempo reports 1";

/// What a sender calls its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The same for all connections of a sender.
    pub session: u64,
    /// What the sender wants of the delay.
    pub latency: Duration,
    /// Connections that the sender had before this one.
    pub before: u64,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session, latency, before } = self;
        write!(f, "ontempo media 1 {session:016x} {} {before}", latency.as_nanos())
    }
}

impl FromStr for Label {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let words = text.strip_prefix("ontempo media 1 ").ok_or(())?;
        let words: Vec<&str> = words.split(' ').collect();
        let &[session, latency, before] = words.as_slice() else { return Err(()) };
        Ok(Self {
            session: u64::from_str_radix(session, 16).map_err(|_| ())?,
            latency: Duration::from_nanos(latency.parse().map_err(|_| ())?),
            before: before.parse().map_err(|_| ())?,
        })
    }
}

/// A unit of a flow of media.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Media.
    Unit(Unit),
    /// Datagrams of which something was dropped before it was sent.
    Gap(Vec<u64>),
}

/// The message that carries `unit`.
pub fn media(unit: &Unit) -> Bytes {
    let mut bytes = Vec::with_capacity(unit.data.len() + 64);
    bytes.push(MEDIA);
    unit.write(&mut bytes);
    bytes.into()
}

/// The message that says which datagrams will not come; at most [`MAX_GAPS`] are of use.
pub fn gap(datagrams: &[u64]) -> Bytes {
    let mut bytes = vec![GAP];
    datagrams.iter().for_each(|datagram| bytes.extend(datagram.to_be_bytes()));
    bytes.into()
}

/// Reads a message.
///
/// # Errors
/// A sentence that says what is wrong with it.
pub fn read(bytes: &[u8]) -> Result<Content, String> {
    match bytes.split_first() {
        Some((&MEDIA, rest)) => {
            Unit::read(rest).map(Content::Unit).map_err(|error| error.to_string())
        }
        Some((&GAP, rest)) if rest.len() % 8 == 0 && rest.len() / 8 <= MAX_GAPS => {
            let numbers = rest.chunks_exact(8);
            let number =
                |chunk: &[u8]| chunk.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
            Ok(Content::Gap(numbers.map(number).collect()))
        }
        _ => Err("a message of an unknown kind".to_owned()),
    }
}

/// What a receiver reports, all since the beginning of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Units that came whole.
    pub units: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Units that came after their deadline.
    pub late_units: u64,
    /// Units that the sender dropped at their deadline.
    pub dropped_units: u64,
    /// Datagrams that were handed on whole.
    pub whole_datagrams: u64,
    /// Datagrams of which something was missing.
    pub damaged_datagrams: u64,
    /// Datagrams that were missing altogether.
    pub missing_datagrams: u64,
    /// Mean delay of units from the sender's program to delivery, s.
    pub mean_delay_s: f64,
    /// The greatest such delay, s.
    pub greatest_delay_s: f64,
    /// The stream is over, and all of this is final.
    pub is_final: bool,
}

impl Report {
    /// Datagrams that should have been handed on, and those that were not, or not whole.
    pub fn datagrams(&self) -> (u64, u64) {
        let wrong = self.damaged_datagrams.saturating_add(self.missing_datagrams);
        (self.whole_datagrams.saturating_add(wrong), wrong)
    }

    /// Says by how much the target was missed since `before`; `None` where it was met.
    pub fn missed(&self, before: &Self, latency: Duration) -> Option<String> {
        let (all, wrong) = self.datagrams();
        let (all_before, wrong_before) = before.datagrams();
        let (all, wrong) = (all.saturating_sub(all_before), wrong.saturating_sub(wrong_before));
        let late = self.late_units.saturating_sub(before.late_units);
        let dropped = self.dropped_units.saturating_sub(before.dropped_units);
        if wrong == 0 && late == 0 && dropped == 0 {
            return None;
        }
        let share = wrong as f64 / all.max(1) as f64 * 100.0;
        Some(format!(
            "the target of {latency} is missed: {share:.2} % of datagrams missing or damaged \
             ({wrong} of {all}); {late} units late, {dropped} dropped; the longest took {:.0} ms",
            self.greatest_delay_s * 1e3
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let label = Label { session: 7, latency: Duration::from_millis(200), before: 3 };
        assert_eq!(label.to_string().parse(), Ok(label));
        assert_eq!("something else".parse::<Label>(), Err(()));
        assert_eq!(read(&gap(&[1, u64::MAX])), Ok(Content::Gap(vec![1, u64::MAX])));
        assert!(read(&[]).is_err() && read(&[GAP, 1]).is_err() && read(&[9]).is_err());
    }

    #[test]
    fn what_was_missed_since_is_told_with_its_share() {
        let before = Report { whole_datagrams: 10, ..Report::default() };
        let after = Report { whole_datagrams: 19, missing_datagrams: 1, ..Report::default() };
        let latency = Duration::from_millis(200);
        assert_eq!(before.missed(&Report::default(), latency), None);
        let said = after.missed(&before, latency).expect("missed");
        assert!(said.contains("10.00 %") && said.contains("1 of 10"), "{said}");
    }
}
