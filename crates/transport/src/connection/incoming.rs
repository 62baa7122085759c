//! Open streams with units, and what is missing of them.

use std::collections::BTreeMap;

use bytes::BytesMut;
use noq_proto::StreamId;
use ontempo_foundation::{Duration, Time};

use super::assembly::Assembly;
use super::clocks::Clocks;
use super::receive_flow::Partial;
use crate::wire::{MAX_RANGES, Missing, Range};

/// Memory of an open stream, here and in the QUIC stack, bytes.
const STREAM_COST: u64 = 512;

/// What is missing is asked for from this many round trips before the deadline on: an answer takes one, and asking
/// twice in each leaves several attempts. Before, the stack's retransmissions suffice.
const FIRST_REQUEST: f64 = 2.25;

/// Later an answer comes too late: half a round trip before, what is asked for reaches the sender at the deadline.
const LAST_REQUEST: f64 = 0.5;

/// The same is asked for again after so many round trips.
const AGAIN: f64 = 0.5;

/// A gap is no loss before so many round trips: packets overtake each other.
const OVERTAKEN: f64 = 0.25;

/// A rest of which nothing comes is not lost before so many round trips: it may not have been sent.
const UNSENT: f64 = 1.25;

/// Streams with gaps are looked at so often: eight times a round trip, and not more often than this.
const LOOKS: f64 = 8.0;
const MIN_LOOK: Duration = Duration::from_millis(5);

/// Repairs are taken up to so many bytes beyond what is known of a stream.
const UNKNOWN: u64 = 16 << 10;

/// A stream with units.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    pub(super) assembly: Assembly,
    /// The beginning of a header; on a parked stream, also the data received with it.
    pub(super) header: BytesMut,
    pub(super) unit: Option<(u64, Partial)>,
    /// The stream was read to its end, but its data waits.
    pub(super) is_finished: bool,
    /// When it was first seen, and when data of it last came.
    seen: Option<Time>,
    heard: Option<Time>,
    /// Gaps before this offset are there since this time.
    gap: Option<(u64, Time)>,
    /// When it was last asked for what is missing.
    asked: Option<Time>,
}

impl Incoming {
    /// Memory that it takes, in bytes.
    fn memory(&self) -> u64 {
        let partial = self.unit.as_ref().map_or(0, |(_, partial)| partial.memory());
        STREAM_COST + self.waiting() + partial
    }

    /// Memory of data that waits for other data.
    fn waiting(&self) -> u64 {
        self.assembly.memory() + self.header.capacity() as u64
    }

    /// Data of it came.
    pub(super) fn on_data(&mut self, now: Time) {
        self.heard = Some(now);
    }

    /// It is left until more comes.
    fn leave(&mut self, now: Time) {
        self.seen.get_or_insert(now);
        let gap = self.assembly.gap().or_else(|| self.is_empty().then_some(0));
        self.gap = match (gap, self.gap) {
            (Some(gap), Some((reach, since))) if gap < reach => Some((reach, since)),
            (gap, _) => gap.map(|_| (self.assembly.reach().max(1), now)),
        };
    }

    /// Whether nothing of it came.
    fn is_empty(&self) -> bool {
        self.assembly.reach() == 0
    }

    /// Whether it goes on behind what came.
    fn is_open(&self) -> bool {
        self.unit.is_some() || !self.header.is_empty() || self.is_empty()
    }

    /// Whether something may be missing.
    fn is_incomplete(&self) -> bool {
        self.gap.is_some() || self.is_open()
    }

    /// Up to where repairs are taken.
    pub(super) fn bound(&self) -> u64 {
        let next = self.assembly.next_offset();
        let unit = self.unit.as_ref().map_or(0, |(_, partial)| partial.missing());
        // Small units may follow on the stream.
        self.assembly.reach().max(next.saturating_add(unit)).saturating_add(UNKNOWN)
    }

    /// Whether it was asked for something.
    pub(super) fn was_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// What is to be asked for now, at most so many ranges.
    fn missing(&mut self, now: Time, path: &Asking<'_>, most: usize) -> Vec<Range> {
        let ago = |at: Time, trips: f64| at + path.trips(trips) <= now;
        if self.asked.is_some_and(|asked| !ago(asked, AGAIN)) {
            return Vec::new();
        }
        let is_gap = self.gap.is_some_and(|(_, since)| ago(since, OVERTAKEN));
        let is_cut =
            self.is_open() && self.heard.or(self.seen).is_some_and(|heard| ago(heard, UNSENT));
        if !is_gap && !is_cut {
            return Vec::new();
        }
        // Of a stream of which nothing came, all is the rest.
        let missing = self.assembly.missing(is_cut || self.is_empty(), most);
        if !missing.is_empty() {
            self.asked = Some(now);
        }
        missing
    }

    /// From when to when it is asked for: when the deadline is so near that an answer is needed, and so far that one
    /// helps. Without a header, by the lifetime of other units.
    fn asks(&self, now: Time, path: &Asking<'_>) -> Option<(Time, Time)> {
        let deadline = match &self.unit {
            Some((_, unit)) if unit.is_discarded() => None,
            Some((_, unit)) => {
                let sent = path.clocks.ours_of(unit.header.sent, now);
                sent.zip(unit.header.lifetime).map(|(sent, lifetime)| sent + lifetime)
            }
            // It was seen half a round trip after it was sent.
            None => self.seen.map(|seen| seen + path.lifetime.saturating_sub(path.trips(0.5))),
        }?;
        let before = |trips: f64| Time::ZERO + deadline.since(Time::ZERO + path.trips(trips));
        Some((before(FIRST_REQUEST), before(LAST_REQUEST)))
    }
}

/// What is known of the path and of units.
pub(super) struct Asking<'a> {
    pub(super) round_trip: Duration,
    /// The longest of a unit.
    pub(super) lifetime: Duration,
    pub(super) clocks: &'a Clocks,
}

impl Asking<'_> {
    /// So many round trips.
    fn trips(&self, count: f64) -> Duration {
        self.round_trip.mul_f64(count)
    }
}

/// All open streams with units.
#[derive(Debug, Default)]
pub(super) struct Streams {
    all: BTreeMap<StreamId, Incoming>,
    pub(super) memory: u64,
    /// The part of it that waits for other data.
    pub(super) waiting: u64,
    /// When they are next looked at for what is missing, while something may be, and before when they are not.
    look: Option<Time>,
    earliest_look: Time,
}

impl Streams {
    /// Leaves a stream until more of it comes.
    pub(super) fn insert(&mut self, now: Time, stream: StreamId, mut incoming: Incoming) {
        incoming.leave(now);
        self.memory += incoming.memory();
        self.waiting += incoming.waiting();
        if incoming.is_incomplete() {
            self.look = Some(self.earliest_look);
        }
        self.all.insert(stream, incoming);
    }

    /// A stream that is open.
    pub(super) fn take(&mut self, stream: StreamId) -> Option<Incoming> {
        let incoming = self.all.remove(&stream)?;
        self.memory -= incoming.memory();
        self.waiting -= incoming.waiting();
        Some(incoming)
    }

    /// When [`missing`](Self::missing) is to be called, if nothing comes.
    pub(super) fn next_look(&self) -> Time {
        self.look.unwrap_or(Time::NEVER)
    }

    /// What is to be asked for now; nothing before the path is known.
    pub(super) fn missing(&mut self, now: Time, path: Option<&Asking<'_>>) -> Vec<Missing> {
        if self.look.is_none_or(|look| now < look) {
            return Vec::new();
        }
        let Some(path) = path else {
            self.look = None;
            return Vec::new();
        };
        self.earliest_look = now + path.trips(1.0 / LOOKS).max(MIN_LOOK);
        self.look = None;
        let mut most = MAX_RANGES;
        let mut streams = Vec::new();
        for (stream, incoming) in &mut self.all {
            if !incoming.is_incomplete() {
                continue;
            }
            let asks = incoming.asks(now, path);
            let Some((from, _)) = asks.filter(|(_, to)| now <= *to) else { continue };
            let look = from.max(self.earliest_look);
            self.look = Some(self.look.map_or(look, |other| other.min(look)));
            if now < from || most == 0 {
                continue;
            }
            let ranges = incoming.missing(now, path, most);
            most -= ranges.len();
            if !ranges.is_empty() {
                streams.push(Missing { stream: stream.index(), ranges });
            }
        }
        streams
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use noq_proto::{Dir, Side};

    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn stream() -> StreamId {
        StreamId::new(Side::Client, Dir::Uni, 3)
    }

    /// When something is asked for, in ms, looking as often as asked to.
    fn asked(streams: &mut Streams) -> Vec<u64> {
        let clocks = Clocks::default();
        let round_trip = Duration::from_millis(100);
        let path = Asking { round_trip, lifetime: Duration::from_millis(400), clocks: &clocks };
        let mut times = Vec::new();
        for ms in 0..2_000 {
            if streams.next_look() <= at(ms) && !streams.missing(at(ms), Some(&path)).is_empty() {
                times.push(ms);
            }
        }
        assert_eq!(streams.next_look(), Time::NEVER, "nothing wakes it for ever");
        times
    }

    #[test]
    fn a_stream_of_which_nothing_came_is_asked_for_twice_a_round_trip_near_its_deadline() {
        let mut streams = Streams::default();
        streams.insert(at(50), stream(), Incoming::default());
        // Sent at 0, it lives until 400; looks are 12.5 ms apart.
        assert_eq!(asked(&mut streams), [175, 227, 279, 331]);
    }

    #[test]
    fn what_has_come_whole_is_not_asked_for() {
        let mut streams = Streams::default();
        let mut incoming = Incoming::default();
        incoming.on_data(at(60));
        assert!(incoming.assembly.insert(0, Bytes::from_static(b"all")).is_ok());
        streams.insert(at(60), stream(), incoming);
        assert_eq!(asked(&mut streams), [0_u64; 0]);
    }

    #[test]
    fn nothing_is_asked_for_of_an_unknown_path() {
        let mut streams = Streams::default();
        streams.insert(at(50), stream(), Incoming::default());
        assert_eq!(streams.missing(at(300), None), []);
        assert_eq!(streams.next_look(), Time::NEVER);
    }
}
