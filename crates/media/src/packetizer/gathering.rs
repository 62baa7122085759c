//! Units that leave together, so that packets are full and headers are shared.

use ontempo_foundation::{Duration, Time};

use super::{Key, Packetizer, Piece};
use crate::ts;
use crate::unit::Unit;

/// How much a paced source gathers, so that the headers of packets and units are shared by more.
///
/// It is paced where its datagrams are further apart than
/// [`PacketizerOptions::hold`](super::PacketizerOptions::hold).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathering {
    /// Bytes of the transport that are gathered: of data, with the headers of units.
    pub bytes: usize,
    /// How long the first of them waits at most.
    pub within: Duration,
}

impl Gathering {
    /// Nothing is gathered.
    pub const NONE: Self = Self { bytes: 0, within: Duration::ZERO };
}

impl Default for Gathering {
    fn default() -> Self {
        // Two packets of 1,500 bytes. A stream of 4 Mbit/s has two datagrams within 3 ms; with 6 ms,
        // which fill both packets, repairs that just fit a short latency came too late.
        Self { bytes: 2_830, within: Duration::from_millis(3) }
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
    /// Datagrams in a row that came neither in a burst nor after a pause.
    paced: u32,
}

/// Datagrams in a row after which a source is known to pace.
const PACED: u32 = 8;

impl Gathered {
    /// A datagram came so long after the one before it.
    pub(super) fn note_gap(&mut self, gap: Option<Duration>, hold: Duration, within: Duration) {
        self.is_burst = gap.is_some_and(|gap| gap < hold);
        let is_paced = gap.is_some_and(|gap| gap >= hold && gap <= within);
        self.paced = if is_paced { self.paced.saturating_add(1) } else { 0 };
    }
}

impl Packetizer {
    /// True if what comes until [`next_timeout`](Self::next_timeout) may be
    /// [pushed](Self::push) then, with the times at which it came: units would leave hardly
    /// earlier, as the source paces and its units wait for more.
    pub fn may_wait(&self) -> bool {
        let Gathered { since, full, paced, .. } = self.gathered;
        self.gathers() && since.is_some() && full.is_none() && paced >= PACED
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
        let most = self.options.gathering.bytes;
        let Gathered { bytes, is_burst, .. } = self.gathered;
        if bytes > 0 && bytes + cost > most && !is_burst {
            self.emit(false);
        }
        self.gathered.bytes += cost;
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
        let is_full = self.gathered.bytes >= self.options.gathering.bytes
            || self.open.iter().any(|open| matches!(open.key, Key::Frame(..)));
        if !is_full {
            self.gathered.full = None;
        }
    }
}
