//! The messages between sender and receiver.
//!
//! A sender opens one flow, whose label is a [`Label`]: that of frames of an elementary stream names the
//! coding, that of several the coding of each in the order of their numbers (`h264+opus`). Each of the two has a
//! version of its own, which receivers that do not know it refuse. Each of the flow's units is a media unit
//! ([`Unit::write`]) or begins with a byte whose highest bit is set, which no media unit does: 128 for
//! a gap, the numbers of datagrams that will not arrive, 8 bytes each, big-endian, 129 for the end of
//! the stream: how many datagrams it had, 8 bytes, and 1 if it was sent to its end, 0 if it was cut
//! short. The receiver opens one flow with
//! the label [`REPORTS`]; each of its units is a [`Report`] as JSON. Any bytes can be given to the
//! parsers; invalid ones are an error.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use ontempo_foundation::{Duration, Time};
use ontempo_media::{Codings, Unit};
use serde::{Deserialize, Serialize};

/// A bit of the first byte of what is no media unit; a gap, the end.
const OTHER: u8 = 0x80;
const GAP: u8 = OTHER;
const END: u8 = OTHER | 1;

/// The version of the messages, as a label has it.
pub const VERSION: u64 = 7;

/// The version that a label of an elementary stream has.
const ELEMENTARY_VERSION: u64 = 8;

/// The version that a label of several elementary streams has.
const STREAMS_VERSION: u64 = 9;

/// What a label begins with.
const MEDIA: &str = "ontempo media ";

/// Maximum datagram numbers in one gap message.
pub const MAX_GAPS: usize = 16_384;

/// The label of the flow of a receiver's reports.
pub const REPORTS: &str = "ontempo reports 1";

/// The label of a sender's flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// A random number, the same for all connections of a sender: the secret by which a receiver
    /// knows the sender of a stream again.
    pub session: u128,
    /// The sender's target delay from its input to the receiver's output.
    pub latency: Duration,
    /// How much longer the receiver waits for what is missing then, and units live.
    pub grace: Duration,
    /// Number of earlier connections of the sender.
    pub before: u64,
    /// When the flow was opened, by the clock of the arrivals at the sender: the label itself shows how fast the path
    /// is, before the stream fills it.
    pub opened: Time,
    /// The datagrams are [those of an elementary stream](ontempo_media::ElementaryDatagram), or of several,
    /// each behind the [number](ontempo_media::split_number) of its stream; `None`: of MPEG-TS, RTP or
    /// anything else.
    pub elementary: Option<Codings>,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session, latency, grace, before, opened, elementary } = self;
        let [latency, grace] = [latency, grace].map(|span| span.as_nanos());
        let opened = opened.as_nanos();
        let version = match elementary.as_ref().map(Codings::only) {
            None => VERSION,
            Some(Some(_)) => ELEMENTARY_VERSION,
            Some(None) => STREAMS_VERSION,
        };
        write!(f, "{MEDIA}{version} {session:032x} {latency} {grace} {before} {opened}")?;
        elementary.map_or(Ok(()), |codings| write!(f, " {}", codings.words()))
    }
}

impl Label {
    /// That of the first connection of a stream of MPEG-TS, RTP or anything else.
    pub const fn of(session: u128, latency: Duration, grace: Duration) -> Self {
        Self { session, latency, grace, before: 0, opened: Time::ZERO, elementary: None }
    }
}

/// The longest latency, and the longest grace, that a receiver accepts. It holds data back for as long as a peer says.
pub const MAX_LATENCY: Duration = Duration::from_secs(60);

/// Why a flow's label is not that of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelError {
    /// Something else, or a latency or grace above [`MAX_LATENCY`].
    NotMedia,
    /// A sender with another version of the messages.
    Version(u64),
    /// Frames of an elementary stream whose coding this side does not know.
    Coding,
}

impl fmt::Display for LabelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMedia => f.write_str("what it was sent is not from ontempo send"),
            Self::Version(theirs) => write!(
                f,
                "this receiver speaks versions {VERSION} to {STREAMS_VERSION} of the media messages, the sender \
                 version {theirs}"
            ),
            Self::Coding => f.write_str(
                "the sender sends frames of a coding that this receiver does not know: it is newer",
            ),
        }
    }
}

impl std::error::Error for LabelError {}

impl FromStr for Label {
    type Err = LabelError;

    /// # Errors
    /// If it is no label or one of another version, or its latency or grace exceeds
    /// [`MAX_LATENCY`].
    fn from_str(text: &str) -> Result<Self, LabelError> {
        const OTHER: LabelError = LabelError::NotMedia;
        let (version, words) =
            text.strip_prefix(MEDIA).and_then(|words| words.split_once(' ')).ok_or(OTHER)?;
        let version = version.parse().map_err(|_| OTHER)?;
        let (words, elementary) = match version {
            VERSION => (words, None),
            ELEMENTARY_VERSION | STREAMS_VERSION => {
                let (words, codings) = words.rsplit_once(' ').ok_or(OTHER)?;
                let codings: Codings = codings.parse().map_err(|()| LabelError::Coding)?;
                if codings.only().is_some() != (version == ELEMENTARY_VERSION) {
                    return Err(OTHER);
                }
                (words, Some(codings))
            }
            _ => return Err(LabelError::Version(version)),
        };
        let words: Vec<&str> = words.split(' ').collect();
        let &[session, latency, grace, before, opened] = words.as_slice() else {
            return Err(OTHER);
        };
        let time = |word: &str| {
            let time = Duration::from_nanos(word.parse().map_err(|_| OTHER)?);
            if time <= MAX_LATENCY { Ok(time) } else { Err(OTHER) }
        };
        Ok(Self {
            session: u128::from_str_radix(session, 16).map_err(|_| OTHER)?,
            latency: time(latency)?,
            grace: time(grace)?,
            before: before.parse().map_err(|_| OTHER)?,
            opened: Time::from_nanos(opened.parse().map_err(|_| OTHER)?),
            elementary,
        })
    }
}

/// A message of a sender's flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A media unit.
    Unit(Unit),
    /// Numbers of datagrams of which a part was dropped before it was sent.
    Gap(Vec<u64>),
    /// The end of the stream, with full reliability.
    End {
        /// The highest number of a datagram of the stream plus 1.
        datagrams: u64,
        /// False if the sender was stopped, or its source failed, before the source's end.
        is_whole: bool,
    },
}

/// Encodes a media unit.
pub fn media(unit: &Unit) -> Bytes {
    let mut bytes = Vec::with_capacity(unit.data.len() + 64);
    unit.write(&mut bytes);
    bytes.into()
}

/// Encodes a gap. A receiver refuses more than [`MAX_GAPS`] numbers.
pub fn gap(datagrams: &[u64]) -> Bytes {
    let mut bytes = vec![GAP];
    datagrams.iter().for_each(|datagram| bytes.extend(datagram.to_be_bytes()));
    bytes.into()
}

/// Encodes the end of a stream.
pub fn end(datagrams: u64, is_whole: bool) -> Bytes {
    let mut bytes = vec![END];
    bytes.extend(datagrams.to_be_bytes());
    bytes.push(is_whole.into());
    bytes.into()
}

/// A number of 8 bytes, big-endian.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Decodes a message that came as the unit with this number of its flow.
///
/// # Errors
/// A sentence: the first byte is unknown, or the content is invalid.
pub fn read(id: u64, bytes: &[u8]) -> Result<Content, String> {
    match bytes.split_first() {
        Some((&first, _)) if first & OTHER == 0 => {
            Unit::read(id, bytes).map(Content::Unit).map_err(|error| error.to_string())
        }
        Some((&GAP, rest)) if rest.len() % 8 == 0 && rest.len() / 8 <= MAX_GAPS => {
            Ok(Content::Gap(rest.chunks_exact(8).map(number).collect()))
        }
        Some((&END, [datagrams @ .., is_whole @ (0 | 1)])) if datagrams.len() == 8 => {
            Ok(Content::End { datagrams: number(datagrams), is_whole: *is_whole == 1 })
        }
        _ => Err("a message of an unknown kind".to_owned()),
    }
}

/// A receiver report; all counters are since the beginning of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Units received.
    pub units: u64,
    /// Bytes of these units.
    pub bytes: u64,
    /// Units received after their deadline.
    pub late_units: u64,
    /// Units that the sender dropped at their deadline.
    pub dropped_units: u64,
    /// Units that had come before over another path.
    #[serde(default)]
    pub copies: u64,
    /// Datagrams restored whole.
    pub whole_datagrams: u64,
    /// Datagrams with a part missing.
    pub damaged_datagrams: u64,
    /// Datagrams missing altogether.
    pub missing_datagrams: u64,
    /// Mean delay of units from the sender's program to delivery, seconds.
    pub mean_delay_s: f64,
    /// The maximum of this delay, seconds.
    pub max_delay_s: f64,
    /// The stream has ended and the counters are final.
    pub is_final: bool,
}

impl Report {
    /// Number of all datagrams, and of those that are damaged or missing.
    pub fn datagrams(&self) -> (u64, u64) {
        let wrong = self.damaged_datagrams.saturating_add(self.missing_datagrams);
        (self.whole_datagrams.saturating_add(wrong), wrong)
    }

    /// Whether it is older than `other`, or of a receiver that was started since.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        self.whole_datagrams < other.whole_datagrams || self.units < other.units
    }

    /// A sentence with the damaged, missing and late data since the report `before`; `None` if
    /// there is none.
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
        let were = |count| if count == 1 { "was" } else { "were" };
        let units = |count| if count == 1 { "1 unit".to_owned() } else { format!("{count} units") };
        let parts = [
            (
                wrong,
                format!(
                    "{wrong} of {all} datagrams ({share:.2} %) {} missing or damaged",
                    were(wrong)
                ),
            ),
            (
                dropped,
                format!(
                    "{} {} left out, so that others arrive in time",
                    units(dropped),
                    were(dropped)
                ),
            ),
            (
                late,
                format!(
                    "{} came late, the longest so far took {:.0} ms",
                    units(late),
                    self.max_delay_s * 1e3
                ),
            ),
        ];
        let parts: Vec<String> =
            parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, part)| part).collect();
        Some(format!("not all was delivered within {latency}: {}", parts.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use ontempo_media::Kind;

    use super::*;
    use crate::latency::GRACE;

    #[test]
    fn a_media_unit_of_any_kind_is_read_back_and_taken_for_nothing_else() {
        use Kind::{Datagram, Filler, Frame, Key, Other, Sound, Tables};
        for kind in [Filler, Other, Datagram, Frame, Key, Sound, Tables] {
            let unit = Unit {
                id: 7,
                kind,
                media_time: Some(Duration::from_millis(5)),
                slack: Some(Duration::from_millis(6)),
                continues: None,
                dependencies: Vec::new(),
                parts: Vec::new(),
                data: Vec::new(),
            };
            assert_eq!(read(7, &media(&unit)), Ok(Content::Unit(unit)));
        }
    }

    #[test]
    fn labels_and_gaps_are_read_back() {
        let opened = Time::from_nanos(5);
        let of = Label::of(7, Duration::from_millis(200), GRACE);
        let label = Label { before: 3, opened, ..of };
        assert_eq!(label.to_string().parse(), Ok(label));
        for (words, version) in
            [("h264", 8), ("h265", 8), ("av1", 8), ("aac", 8), ("opus", 8), ("h264+opus+aac", 9)]
        {
            let label = Label { elementary: words.parse().ok(), ..label };
            let text = label.to_string();
            assert!(
                text.starts_with(&format!("ontempo media {version} ")) && text.ends_with(words)
            );
            assert_eq!(text.parse(), Ok(label));
            for other in [VERSION, 17 - version] {
                let changed = text.replace(&format!("media {version}"), &format!("media {other}"));
                assert_eq!(changed.parse::<Label>(), Err(LabelError::NotMedia), "{changed}");
            }
            let unknown = text.replace(words, "vp8").parse::<Label>();
            assert_eq!(unknown, Err(LabelError::Coding));
        }
        assert_eq!("something else".parse::<Label>(), Err(LabelError::NotMedia));
        let before = label.to_string().replace("media 7", "media 4").parse::<Label>();
        assert_eq!(before, Err(LabelError::Version(4)));
        let sentence = LabelError::Version(4).to_string();
        assert!(
            sentence.contains("versions 7 to 9") && sentence.contains("version 4"),
            "{sentence}"
        );
        let too_long = Duration::from_nanos(1 << 62);
        for held_for_ever in
            [Label { latency: too_long, ..label }, Label { grace: too_long, ..label }]
        {
            assert_eq!(held_for_ever.to_string().parse::<Label>(), Err(LabelError::NotMedia));
        }
        assert_eq!(read(0, &gap(&[1, u64::MAX])), Ok(Content::Gap(vec![1, u64::MAX])));
        let last = Content::End { datagrams: u64::MAX - 1, is_whole: true };
        assert_eq!(read(0, &end(u64::MAX - 1, true)), Ok(last));
        let wrong: [&[u8]; 5] =
            [&[], &[GAP, 1], &[9], &[END, 1], &[END, 0, 0, 0, 0, 0, 0, 0, 0, 2]];
        assert!(wrong.into_iter().all(|bytes| read(0, bytes).is_err()));
    }

    #[test]
    fn a_missed_target_is_described_with_the_share_of_bad_datagrams() {
        let before = Report { whole_datagrams: 10, ..Report::default() };
        let after = Report { whole_datagrams: 19, missing_datagrams: 1, ..Report::default() };
        let latency = Duration::from_millis(200);
        assert_eq!(before.missed(&Report::default(), latency), None);
        let sentence = after.missed(&before, latency).expect("missed");
        assert!(sentence.contains("10.00 %") && sentence.contains("1 of 10"), "{sentence}");
    }

    #[test]
    fn the_longest_delay_is_that_of_the_whole_stream_so_far() {
        let before = Report { late_units: 5, max_delay_s: 2.0, ..Report::default() };
        let now = Report { late_units: 6, ..before };
        let said = now.missed(&before, Duration::from_millis(200)).expect("one is late");
        assert!(said.ends_with("1 unit came late, the longest so far took 2000 ms"), "{said}");
    }
}
