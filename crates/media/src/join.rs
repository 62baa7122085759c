//! Puts datagrams back together from units.

use std::collections::BTreeMap;

use ontempo_foundation::{Duration, Time};

use super::unit::Unit;

/// How long the fastest way is remembered, in two halves: clocks of two machines drift apart.
const MEMORY: Duration = Duration::from_secs(30);

/// What is kept for a datagram beside its bytes; counted in, so that empty ones are bounded, too.
const OVERHEAD: usize = 128;

/// When datagrams leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// At the distances at which they came to the cutter, this much later than the fastest of the
    /// last half minute; what has not come by then is left out.
    AsArrived {
        /// What the network may take longer than at its fastest.
        delay: Duration,
    },
    /// In order, each as soon as it and all before it are whole: for files.
    InOrder,
    /// Each as soon as it is whole, whatever the order.
    WhenWhole,
}

/// How datagrams are put back.
#[derive(Clone, Copy, Debug)]
pub struct JoinerOptions {
    /// When they leave.
    pub release: Release,
    /// Bytes that may wait; above it the oldest leave as they are.
    pub most_bytes: usize,
}

impl Default for JoinerOptions {
    fn default() -> Self {
        let release = Release::AsArrived { delay: Duration::from_millis(120) };
        Self { release, most_bytes: 64 << 20 }
    }
}

/// A datagram as it leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Its number.
    pub datagram: u64,
    /// Its bytes; of one that is not whole, what has come, in order.
    pub data: Vec<u8>,
    /// Nothing of it is missing.
    pub is_whole: bool,
}

/// What has come and left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinerStatistics {
    /// Datagrams that left whole.
    pub whole: u64,
    /// Datagrams that left with something missing.
    pub partial: u64,
    /// Pieces that came after their datagram had left.
    pub late: u64,
    /// Pieces that contradict others of their datagram.
    pub conflicting: u64,
    /// Datagrams that left early because too many bytes waited.
    pub forced: u64,
}

#[derive(Debug)]
struct Slot {
    length: u16,
    arrived: Time,
    /// By where they begin.
    pieces: BTreeMap<u16, Vec<u8>>,
    have: usize,
    /// What is missing of it will not come.
    is_abandoned: bool,
}

impl Slot {
    fn is_whole(&self) -> bool {
        self.have == usize::from(self.length) && !self.pieces.is_empty()
    }

    /// False where it overlaps with another.
    fn take(&mut self, offset: u16, piece: &[u8]) -> bool {
        let end = usize::from(offset) + piece.len();
        let before = self.pieces.range(..=offset).next_back();
        let is_free = before.is_none_or(|(&at, other)| {
            at != offset && usize::from(at) + other.len() <= usize::from(offset)
        });
        let after = self.pieces.range(offset..).next();
        if !is_free || after.is_some_and(|(&at, _)| usize::from(at) < end) {
            return false;
        }
        self.have += piece.len();
        self.pieces.insert(offset, piece.to_vec());
        true
    }
}

/// Puts datagrams back together.
#[derive(Debug)]
pub struct Joiner {
    options: JoinerOptions,
    slots: BTreeMap<u64, Slot>,
    bytes: usize,
    /// Below it all have left, or are given up (not of [`Release::WhenWhole`]).
    next: u64,
    /// Whole ones of [`Release::WhenWhole`].
    whole: Vec<u64>,
    fastest: Fastest,
    finished: bool,
    statistics: JoinerStatistics,
}

impl Joiner {
    /// One that has nothing.
    pub fn new(options: JoinerOptions) -> Self {
        Self {
            options,
            slots: BTreeMap::new(),
            bytes: 0,
            next: 0,
            whole: Vec::new(),
            fastest: Fastest::default(),
            finished: false,
            statistics: JoinerStatistics::default(),
        }
    }

    /// A unit has come. Then [`poll`](Self::poll) until nothing more may leave.
    pub fn push(&mut self, now: Time, unit: &Unit) {
        for part in &unit.parts {
            self.fastest.note(now, part.arrived);
        }
        for (part, span, piece) in unit.pieces() {
            if part.datagram < self.next {
                self.statistics.late += 1;
                continue;
            }
            let new = || Slot {
                length: part.length,
                arrived: part.arrived,
                pieces: BTreeMap::new(),
                have: 0,
                is_abandoned: false,
            };
            let is_new = !self.slots.contains_key(&part.datagram);
            let slot = self.slots.entry(part.datagram).or_insert_with(new);
            if slot.is_abandoned && slot.pieces.is_empty() {
                slot.length = part.length;
            }
            let fits = slot.length == part.length;
            if !fits || !slot.take(span.offset, piece) {
                self.statistics.conflicting += 1;
                continue;
            }
            self.bytes += piece.len() + if is_new { OVERHEAD } else { 0 };
            if self.options.release == Release::WhenWhole && slot.is_whole() {
                self.whole.push(part.datagram);
            }
        }
    }

    /// Nothing before this datagram will come, where nothing has come yet: the stream is joined
    /// midway.
    pub fn begin_at(&mut self, datagram: u64) {
        self.next = self.next.max(datagram);
    }

    /// What is missing of a datagram will not come: in order, nothing waits for it any longer.
    pub fn abandon(&mut self, datagram: u64) {
        if self.options.release != Release::InOrder || datagram < self.next {
            return;
        }
        let slot = self.slots.entry(datagram).or_insert_with(|| {
            self.bytes += OVERHEAD;
            Slot {
                length: 0,
                arrived: Time::ZERO,
                pieces: BTreeMap::new(),
                have: 0,
                is_abandoned: true,
            }
        });
        slot.is_abandoned = true;
    }

    /// No more units are to come: what waits for others waits no longer.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// When [`poll`](Self::poll) will have something, if nothing comes before.
    pub fn next_timeout(&self) -> Time {
        match (self.options.release, self.slots.first_key_value()) {
            (_, None) => Time::NEVER,
            _ if self.must_leave() => Time::ZERO,
            (Release::AsArrived { delay }, Some((_, slot))) => {
                self.fastest.here(slot.arrived, delay)
            }
            (Release::InOrder, Some((&number, slot))) => {
                if number == self.next && (slot.is_whole() || slot.is_abandoned) {
                    Time::ZERO
                } else {
                    Time::NEVER
                }
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

    /// The next datagram that may leave.
    pub fn poll(&mut self, now: Time) -> Option<Joined> {
        let number = if let Some(whole) = self.whole.pop() {
            whole
        } else if self.next_timeout() <= now {
            if self.bytes > self.options.most_bytes {
                self.statistics.forced += 1;
            }
            self.slots.first_key_value().map(|(&number, _)| number)?
        } else {
            return None;
        };
        let slot = self.slots.remove(&number)?;
        self.bytes -= slot.have + OVERHEAD;
        if self.options.release != Release::WhenWhole {
            self.next = number.saturating_add(1);
        }
        let is_whole = slot.is_whole();
        let count =
            if is_whole { &mut self.statistics.whole } else { &mut self.statistics.partial };
        *count += 1;
        let data = slot.pieces.into_values().flatten().collect();
        Some(Joined { datagram: number, data, is_whole })
    }

    /// Nothing may wait any longer.
    fn must_leave(&self) -> bool {
        self.finished || self.bytes > self.options.most_bytes
    }

    /// What has come and left so far.
    pub const fn statistics(&self) -> JoinerStatistics {
        self.statistics
    }

    /// Bytes that wait, with what keeping them takes.
    pub const fn waiting(&self) -> usize {
        self.bytes
    }
}

/// The least difference between the two clocks, which is the fastest way, of the last half minute.
#[derive(Debug, Default)]
struct Fastest {
    since: Time,
    /// Of this half of the memory and of the one before, ns; the clocks begin where they like.
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

    /// When what came to the cutter at `arrived` is due here.
    fn here(&self, arrived: Time, delay: Duration) -> Time {
        let least = self.this.into_iter().chain(self.before).min().unwrap_or(0);
        let nanos = i128::from(arrived.as_nanos()) + least + i128::from(delay.as_nanos());
        u64::try_from(nanos).map_or(Time::ZERO, Time::from_nanos)
    }
}
