//! Units to datagrams.

use std::collections::{BTreeMap, BTreeSet};

use ontempo_foundation::{Duration, Time};

use super::numbers::Numbers;
use super::stuffing::Stuffing;
use super::unit::{Part, Unit};

/// Window of the minimum clock difference, in two halves: the clocks of two machines drift.
const MEMORY: Duration = Duration::from_secs(30);

/// Bytes of memory of a datagram beside its pieces: a slot in a B-tree with half-full nodes, and the
/// first node of its own tree.
const SLOT_BYTES: usize = 512;

/// Bytes of memory of a piece beside its data: an entry in a B-tree with half-full nodes, and the
/// smallest allocation.
const PIECE_BYTES: usize = 128;

/// Maximum datagrams of which it is remembered that nothing will come of them, and maximum gaps between those
/// that were emitted.
const MAX_ABSENT: usize = 16_384;

/// When datagrams are emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// With the spacing at which they arrived at the packetizer, `delay` later than the fastest of
    /// the last 30 s; where something is missing then, it and all that follows wait for it up to
    /// `grace` longer. Pieces that arrive later are omitted.
    AsArrived {
        /// Allowance over the fastest transit time.
        delay: Duration,
        /// How long after its time a datagram is waited for.
        grace: Duration,
    },
    /// In order, each as soon as it and all before it are complete: for files.
    InOrder,
    /// Each as soon as it is complete, in any order.
    WhenWhole,
}

/// Options of a depacketizer.
#[derive(Clone, Copy, Debug)]
pub struct DepacketizerOptions {
    /// When datagrams are emitted.
    pub release: Release,
    /// Maximum bytes of memory that buffered datagrams take, with what each datagram and each piece
    /// needs beside its data; above it the oldest datagrams are emitted incomplete. A unit of
    /// [`MAX_PIECES`](crate::MAX_PIECES) is added as a whole, before any is emitted.
    pub max_bytes: usize,
}

impl Default for DepacketizerOptions {
    fn default() -> Self {
        let release = Release::AsArrived {
            delay: Duration::from_millis(120),
            grace: Duration::from_millis(50),
        };
        Self { release, max_bytes: 64 << 20 }
    }
}

/// A restored datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredDatagram {
    /// Its number, counted from 0 by the packetizer.
    pub datagram: u64,
    /// Its bytes; of an incomplete datagram, the received pieces in order.
    pub data: Vec<u8>,
    /// True if nothing is missing.
    pub is_whole: bool,
    /// When it arrived at the packetizer, by that one's clock.
    pub arrived: Time,
    /// When it was due; `None` except with [`Release::AsArrived`].
    pub due: Option<Time>,
}

/// Counters of a depacketizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DepacketizerStatistics {
    /// Datagrams emitted complete.
    pub whole: u64,
    /// Datagrams emitted with something missing.
    pub partial: u64,
    /// Pieces that arrived after their datagram had been emitted.
    pub late: u64,
    /// Pieces that conflict with others of their datagram.
    pub conflicting: u64,
    /// Datagrams emitted early because the buffer was full.
    pub forced: u64,
}

/// A piece of a datagram.
#[derive(Debug)]
enum Piece {
    Bytes(Vec<u8>),
    /// Null packets, which become bytes when the datagram is emitted.
    Stuffing(Stuffing),
}

impl Piece {
    /// Bytes of the datagram.
    fn length(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Stuffing(stuffing) => stuffing.length(),
        }
    }

    /// Bytes of memory.
    fn memory(&self) -> usize {
        PIECE_BYTES
            + match self {
                Self::Bytes(bytes) => bytes.len(),
                Self::Stuffing(stuffing) => stuffing.memory(),
            }
    }
}

#[derive(Debug)]
struct Slot {
    length: u16,
    arrived: Time,
    /// When its first piece came here.
    came: Time,
    /// By offset.
    pieces: BTreeMap<u16, Piece>,
    /// Bytes of the datagram that they have.
    have: usize,
    /// Memory of the pieces, bytes.
    memory: usize,
    /// The missing pieces will not arrive.
    is_abandoned: bool,
}

impl Slot {
    fn new(now: Time, length: u16, arrived: Time) -> Self {
        let (pieces, have, memory, is_abandoned) = (BTreeMap::new(), 0, 0, false);
        Self { length, arrived, came: now, pieces, have, memory, is_abandoned }
    }

    /// Memory that it takes, bytes.
    fn cost(&self) -> usize {
        SLOT_BYTES + self.memory
    }

    fn is_whole(&self) -> bool {
        self.have == usize::from(self.length) && !self.pieces.is_empty()
    }

    /// False if it overlaps another piece.
    fn take(&mut self, offset: u16, piece: Piece) -> bool {
        let end = usize::from(offset) + piece.length();
        let before = self.pieces.range(..=offset).next_back();
        let is_free = before.is_none_or(|(&at, other)| {
            at != offset && usize::from(at) + other.length() <= usize::from(offset)
        });
        let after = self.pieces.range(offset..).next();
        if !is_free || after.is_some_and(|(&at, _)| usize::from(at) < end) {
            return false;
        }
        self.have += piece.length();
        self.memory += piece.memory();
        self.pieces.insert(offset, piece);
        true
    }

    /// The bytes that have come.
    fn data(self) -> Vec<u8> {
        let mut data = Vec::with_capacity(self.have);
        for piece in self.pieces.into_values() {
            match piece {
                Piece::Bytes(bytes) => data.extend(bytes),
                Piece::Stuffing(stuffing) => stuffing.write_packets(&mut data),
            }
        }
        data
    }
}

/// Restores datagrams from units.
#[derive(Debug)]
pub struct Depacketizer {
    options: DepacketizerOptions,
    slots: BTreeMap<u64, Slot>,
    bytes: usize,
    /// All datagrams below it have been emitted or abandoned (except with [`Release::WhenWhole`]).
    next: u64,
    /// Datagrams from `next` on that nothing will come of, with [`Release::AsArrived`].
    absent: BTreeSet<u64>,
    /// Complete datagrams, with [`Release::WhenWhole`].
    whole: Vec<u64>,
    /// Those that were emitted, with [`Release::WhenWhole`]: units may come again.
    emitted: Numbers,
    fastest: Fastest,
    /// With [`Release::InOrder`], of a stream that was joined midway.
    joined: Option<Joined>,
    finished: bool,
    statistics: DepacketizerStatistics,
}

/// How long parts are waited for that may have been sent before the stream was joined.
#[derive(Clone, Copy, Debug)]
struct Joined {
    patience: Duration,
    /// When the first byte of the latest unit arrived at the packetizer.
    latest: Time,
}

impl Depacketizer {
    /// An empty depacketizer.
    pub fn new(options: DepacketizerOptions) -> Self {
        Self {
            options,
            slots: BTreeMap::new(),
            bytes: 0,
            next: 0,
            absent: BTreeSet::new(),
            whole: Vec::new(),
            emitted: Numbers::default(),
            fastest: Fastest::default(),
            joined: None,
            finished: false,
            statistics: DepacketizerStatistics::default(),
        }
    }

    /// The most bytes of memory by which [`push`](Self::push) of this unit raises
    /// [`waiting`](Self::waiting).
    pub fn cost(unit: &Unit) -> usize {
        let pieces = |part: &Part| {
            let stuffing = part.stuffing.iter().map(|one| PIECE_BYTES + one.memory());
            SLOT_BYTES + PIECE_BYTES * part.spans.len() + stuffing.sum::<usize>()
        };
        unit.data.len() + unit.parts.iter().map(pieces).sum::<usize>()
    }

    /// The most bytes of memory by which [`abandon`](Self::abandon) of so many datagrams raises
    /// [`waiting`](Self::waiting).
    pub const fn cost_of_abandoned(datagrams: usize) -> usize {
        SLOT_BYTES.saturating_mul(datagrams)
    }

    /// What left the packetizer's host at `left`, by the clock of [`Part::arrived`], is here at `now`: the path is that
    /// fast, also where all units so far have waited.
    pub fn note_transit(&mut self, now: Time, left: Time) {
        self.fastest.note(now, left);
    }

    /// Takes a unit. Call [`poll`](Self::poll) afterwards until it returns `None`.
    pub fn push(&mut self, now: Time, unit: &Unit) {
        for part in &unit.parts {
            self.fastest.note(now, part.arrived);
        }
        if let (Some(joined), Some(first)) = (&mut self.joined, unit.parts.first()) {
            joined.latest = joined.latest.max(first.arrived);
        }
        for (part, span, piece) in unit.pieces() {
            self.take(now, part, span.offset, Piece::Bytes(piece.to_vec()));
        }
        for part in &unit.parts {
            for stuffing in &part.stuffing {
                self.take(now, part, stuffing.offset, Piece::Stuffing(stuffing.clone()));
            }
        }
    }

    fn take(&mut self, now: Time, part: &Part, offset: u16, piece: Piece) {
        if part.datagram < self.next || self.emitted.contains(part.datagram) {
            self.statistics.late += 1;
            return;
        }
        let new = || {
            self.bytes += SLOT_BYTES;
            Slot::new(now, part.length, part.arrived)
        };
        let slot = self.slots.entry(part.datagram).or_insert_with(new);
        if slot.is_abandoned && slot.pieces.is_empty() {
            slot.length = part.length;
        }
        let (fits, before) = (slot.length == part.length, slot.memory);
        if !fits || !slot.take(offset, piece) {
            self.statistics.conflicting += 1;
            return;
        }
        self.bytes += slot.memory - before;
        if self.options.release == Release::WhenWhole && slot.is_whole() {
            self.whole.push(part.datagram);
        }
    }

    /// Begins with this datagram: the stream is joined midway, and parts of what follows may have been sent before. With
    /// [`Release::InOrder`] what is missing of a datagram, and in front of it, is no longer waited for once a unit has come
    /// whose first byte arrived at the packetizer more than `patience` after the datagram.
    pub fn begin_at(&mut self, datagram: u64, patience: Duration) {
        self.joined = Some(Joined { patience, latest: Time::ZERO });
        self.go_on_at(datagram);
    }

    /// All datagrams below this one, and absent ones that follow, are done with.
    fn go_on_at(&mut self, datagram: u64) {
        self.next = self.next.max(datagram);
        while let Some(&absent) = self.absent.first()
            && absent <= self.next
        {
            self.absent.pop_first();
            self.next = self.next.max(absent.saturating_add(1));
        }
    }

    /// The missing pieces of a datagram will not arrive: later datagrams no longer wait for them.
    pub fn abandon(&mut self, datagram: u64) {
        if datagram < self.next {
            return;
        }
        match self.options.release {
            Release::WhenWhole => return,
            Release::AsArrived { .. } => {
                // What is beyond the limit is waited for, as if nothing had been said.
                if self.absent.len() < MAX_ABSENT {
                    self.absent.insert(datagram);
                    self.go_on_at(self.next);
                }
                return;
            }
            Release::InOrder => {}
        }
        let slot = self.slots.entry(datagram).or_insert_with(|| {
            self.bytes += SLOT_BYTES;
            Slot::new(Time::ZERO, 0, Time::ZERO)
        });
        slot.is_abandoned = true;
    }

    /// End of input: nothing waits any longer.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// When [`poll`](Self::poll) returns the next datagram, if no unit arrives before.
    pub fn next_timeout(&self) -> Time {
        match (self.options.release, self.slots.first_key_value()) {
            (_, None) => Time::NEVER,
            _ if self.must_leave() => Time::ZERO,
            (Release::AsArrived { delay, grace }, Some((&number, slot))) => {
                let is_next = number == self.next && slot.is_whole();
                let wait = if is_next { Duration::ZERO } else { grace };
                self.due(slot, delay.saturating_add(wait))
            }
            (Release::InOrder, Some((&number, slot))) => {
                let is_next = number == self.next && (slot.is_whole() || slot.is_abandoned);
                let is_behind = |joined: Joined| slot.arrived + joined.patience < joined.latest;
                if is_next || self.joined.is_some_and(is_behind) { Time::ZERO } else { Time::NEVER }
            }
            (Release::WhenWhole, _) => {
                if self.whole.is_empty() {
                    Time::NEVER
                } else {
                    Time::ZERO
                }
            }
        }
    }

    /// The next datagram, if it is whole and due by `by`: what misses parts has its full time.
    pub fn poll_whole(&mut self, by: Time) -> Option<RestoredDatagram> {
        let (&number, slot) = self.slots.first_key_value()?;
        (number == self.next && slot.is_whole()).then(|| self.poll(by)).flatten()
    }

    /// The next datagram that is due.
    pub fn poll(&mut self, now: Time) -> Option<RestoredDatagram> {
        let number = if let Some(whole) = self.whole.pop() {
            whole
        } else if self.next_timeout() <= now {
            if self.bytes > self.options.max_bytes {
                self.statistics.forced += 1;
            }
            self.slots.first_key_value().map(|(&number, _)| number)?
        } else {
            return None;
        };
        let slot = self.slots.remove(&number)?;
        self.bytes -= slot.cost();
        if self.options.release == Release::WhenWhole {
            self.emitted.insert(number);
            self.emitted.limit_ranges(MAX_ABSENT);
        } else {
            self.go_on_at(number.saturating_add(1));
        }
        let is_whole = slot.is_whole();
        let count =
            if is_whole { &mut self.statistics.whole } else { &mut self.statistics.partial };
        *count += 1;
        let due = match self.options.release {
            Release::AsArrived { delay, .. } => Some(self.due(&slot, delay)),
            _ => None,
        };
        let arrived = slot.arrived;
        Some(RestoredDatagram { datagram: number, data: slot.data(), is_whole, arrived, due })
    }

    /// When a datagram is due with this delay: not later than if it had been the fastest, whatever the sender
    /// says of its arrival.
    fn due(&self, slot: &Slot, delay: Duration) -> Time {
        self.fastest.here(slot.arrived, delay).min(slot.came + delay)
    }

    /// Whether nothing may wait any longer.
    fn must_leave(&self) -> bool {
        self.finished || self.bytes > self.options.max_bytes
    }

    /// Counters so far.
    pub const fn statistics(&self) -> DepacketizerStatistics {
        self.statistics
    }

    /// Bytes of memory that buffered datagrams take.
    pub const fn waiting(&self) -> usize {
        self.bytes
    }
}

/// The minimum difference between the two clocks (the fastest transit) of the last 30 s.
#[derive(Debug, Default)]
struct Fastest {
    since: Time,
    /// Minimum of this half of the window and of the one before, ns; the clocks have arbitrary
    /// zeros.
    this: Option<i128>,
    before: Option<i128>,
}

impl Fastest {
    fn note(&mut self, now: Time, arrived: Time) {
        if now.since(self.since) > MEMORY / 2 {
            (self.before, self.this, self.since) = (self.this, None, now);
        }
        let difference = i128::from(now.as_nanos()) - i128::from(arrived.as_nanos());
        self.this = Some(self.this.map_or(difference, |least| least.min(difference)));
    }

    /// When a datagram that arrived at the packetizer at `arrived` is due here.
    fn here(&self, arrived: Time, delay: Duration) -> Time {
        let least = self.this.into_iter().chain(self.before).min().unwrap_or(0);
        let nanos = i128::from(arrived.as_nanos()) + least + i128::from(delay.as_nanos());
        u64::try_from(nanos).map_or(Time::ZERO, Time::from_nanos)
    }
}
