//! Units that leave together, so that packets are full and headers are shared.

use ontempo_foundation::{Duration, Time};

use super::pace::Pace;
use super::{Key, Packetizer, PacketizerOptions, Piece};
use crate::ts;
use crate::unit::Unit;

/// How much is gathered, so that the headers of packets and units are shared by more.
///
/// A source whose datagrams come evenly, a fifth of [`PacketizerOptions::hold`](super::PacketizerOptions::hold) apart or more, is
/// known to pace them: what is gathered leaves as soon as the next would come too late or not fit. Another is taken to pace where
/// its datagrams are further apart than `hold`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathering {
    /// Bytes of the transport that are gathered: of data, with the headers of units.
    pub bytes: usize,
    /// The same, where the source is known to pace.
    pub paced_bytes: usize,
    /// How long the first of them waits at most.
    pub within: Duration,
}

impl Gathering {
    /// Nothing is gathered.
    pub const NONE: Self = Self { bytes: 0, paced_bytes: 0, within: Duration::ZERO };
}

impl Default for Gathering {
    fn default() -> Self {
        // Two packets of 1,500 bytes. A stream of 4 Mbit/s has two datagrams within 3 ms; with 6 ms,
        // which fill both packets, repairs that just fit a short latency came too late. Four packets are what may leave
        // at once: one turn of all threads for three datagrams at 8 Mbit/s, for four from 11 Mbit/s on.
        Self { bytes: 2_830, paced_bytes: 5_660, within: Duration::from_millis(3) }
    }
}

/// Bytes that a unit, and a part of one, take on their way beside their data, about.
const UNIT_COST: usize = 40;
const PART_COST: usize = 6;

/// Bytes of a transport packet that are left out behind another of the same unit.
const PREDICTED: usize = 4;

/// What is held back to fill packets.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Complete units.
    pub(super) units: Vec<Unit>,
    /// Bytes of these and of the incomplete ones, as the transport has them.
    pub(super) bytes: usize,
    /// When the first byte of them came.
    pub(super) since: Option<Time>,
    /// When they became enough.
    pub(super) full: Option<Time>,
    /// When the last datagram came.
    pub(super) last: Option<Time>,
    /// The datagram before the current one came a moment ago: the source does not pace.
    pub(super) is_burst: bool,
    pub(super) pace: Pace,
    /// Bytes of the last datagram, as the transport has them.
    last_cost: usize,
    /// Nothing came when something should have: what comes next is read at once.
    is_quiet: bool,
}

impl Gathered {
    /// A datagram came, which is of a transport stream or not.
    pub(super) fn note(&mut self, now: Time, is_transport_stream: bool, hold: Duration) {
        let gap = self.last.replace(now).map(|last| now.since(last));
        match gap.filter(|_| is_transport_stream) {
            Some(gap) => self.pace.note(gap),
            None => self.pace.forget(),
        }
        let is_paced = self.gap(hold).is_some();
        self.is_burst = !is_paced && gap.is_some_and(|gap| gap < hold);
        (self.last_cost, self.is_quiet) = (0, false);
    }

    /// The time between datagrams of a source that is known to pace. At 100 Mbit/s it is 0.1 ms, and less in a burst.
    fn gap(&self, hold: Duration) -> Option<Duration> {
        self.pace.known(hold / 5)
    }

    /// How many further datagrams of a paced source fit, and come in time; the last one's time and the gap between them. `None`
    /// if the source is not known to pace.
    fn room(&self, options: &PacketizerOptions) -> Option<(u64, Time, Duration)> {
        let (limits, gap, last) = (options.gathering, self.gap(options.hold)?, self.last?);
        let until = self.since.unwrap_or(last + gap) + limits.within;
        let in_time = until.since(last).as_nanos() / gap.as_nanos().max(1);
        let fit = limits.paced_bytes.saturating_sub(self.bytes) / self.last_cost.max(1);
        Some((in_time.min(fit as u64), last, gap))
    }
}

/// How much later than evenly a datagram of a paced source may come.
fn late(gap: Duration) -> Duration {
    (gap / 8).max(Duration::from_micros(100))
}

impl Packetizer {
    /// When to read what comes until then, and [push](Self::push) it with the times at which it came: units leave no
    /// later, as the source paces. [`Time::NEVER`] if each datagram is to be read when it comes.
    pub fn next_look(&self) -> Time {
        if !self.gathers() || self.gathered.is_quiet {
            return Time::NEVER;
        }
        match self.gathered.room(&self.options) {
            // For one alone it is as many visits if it is read when it comes.
            Some((room @ 2.., last, gap)) => {
                let first = self.gathered.since.unwrap_or(last + gap);
                (first + self.options.gathering.within).min(last + gap * room + late(gap))
            }
            _ => Time::NEVER,
        }
    }

    /// When units leave that are gathered.
    pub(super) fn gathered_until(&self) -> Time {
        let Gathered { since: Some(since), full, .. } = self.gathered else { return Time::NEVER };
        let latest = since + self.options.gathering.within;
        match self.gathered.room(&self.options) {
            Some((0, last, _)) => last,
            Some((room, last, gap)) => latest.min(last + gap * room + late(gap)),
            None => full.map_or(latest, |full| latest.min(full + self.options.hold)),
        }
    }

    /// The time of [`next_look`](Self::next_look) has come, and nothing else.
    pub(super) fn note_look(&mut self, now: Time) {
        let is_over = self.gathered.since.is_none() && self.next_look() <= now;
        self.gathered.is_quiet |= is_over;
    }

    fn most(&self) -> usize {
        let Gathering { bytes, paced_bytes, .. } = self.options.gathering;
        if self.gathered.gap(self.options.hold).is_some() { paced_bytes } else { bytes }
    }

    pub(super) fn gathers(&self) -> bool {
        self.options.gathering.bytes > 0 && self.options.hold > Duration::ZERO
    }

    /// Emits everything; `is_whole`: nothing follows.
    pub(super) fn emit(&mut self, is_whole: bool) {
        while !self.open.is_empty() {
            self.close(0, is_whole);
        }
        self.ready.extend(self.gathered.units.drain(..));
        (self.gathered.bytes, self.gathered.since, self.gathered.full) = (0, None, None);
    }

    /// Makes room for a piece of a paced source, and counts it.
    pub(super) fn gather(&mut self, now: Time, number: u64, piece: &Piece) {
        if matches!(piece.key, Key::Alone | Key::Frame(..)) {
            // Not of a transport stream: a frame is complete soon, or has all the packets it fills.
            self.gathered.since.get_or_insert(now);
            self.gathered.full.get_or_insert(now);
            return;
        }
        let open = self.open.iter().find(|open| open.key == piece.key);
        let has_part = open
            .is_some_and(|open| open.unit.parts.last().is_some_and(|part| part.datagram == number));
        let length = usize::from(piece.span.length);
        let saved = open.map_or(0, |_| PREDICTED * (length / ts::PACKET));
        let mut cost = length.saturating_sub(saved) + if has_part { 0 } else { PART_COST };
        cost += if open.is_some() { 0 } else { UNIT_COST };
        let most = self.most();
        let Gathered { bytes, is_burst, .. } = self.gathered;
        if bytes > 0 && bytes + cost > most && !is_burst {
            self.emit(false);
        }
        self.gathered.bytes += cost;
        self.gathered.last_cost += cost;
        self.gathered.since.get_or_insert(now);
        if self.gathered.bytes >= most {
            self.gathered.full.get_or_insert(now);
        }
    }

    /// Emits complete units if enough is gathered, and counts the rest anew.
    pub(super) fn release(&mut self) {
        if self.gathered.full.is_none() {
            return;
        }
        self.ready.extend(self.gathered.units.drain(..));
        let open = self.open.iter().map(|open| UNIT_COST + open.unit.data.len());
        self.gathered.bytes = open.sum();
        self.gathered.since = self.open.iter().map(|open| open.since).min();
        let is_full = self.gathered.bytes >= self.most()
            || self.open.iter().any(|open| matches!(open.key, Key::Frame(..)));
        if !is_full {
            self.gathered.full = None;
        }
    }
}
