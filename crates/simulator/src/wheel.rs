//! The event queue: a timing wheel that is a radix heap, and a sorted list of the next events.
//!
//! A time is a number of digits. An event's place is decided by the highest digit in which its time differs
//! from the present: the lowest level holds the events of the present 128 ns, one slot a nanosecond; the
//! next those of the present 16,384 ns, one slot for 128 ns; and so on. When time enters a crowded slot of a
//! higher level, its events move to lower ones. All digits are of 7 bits but one of 10, the wide level,
//! which follows the rate of events: its slots hold about a dozen each, and it reaches a thousand slots
//! ahead, so that most events are put into their slot at once and are sorted from there. A push and a
//! pop cost the same whether ten events wait or a million (a binary heap's cost grows with them).
//! The events of the next slots are sorted at once, which costs less than moving them further
//! down, and exposes the next events for prefetching.
//!
//! Events of the same time come out in the order in which they were pushed: an event and its
//! successor move together, first in, first out, and sorting is stable.

use std::iter::successors;

use ontempo_foundation::Time;

const DIGIT_BITS: u32 = 7;
const SLOTS: usize = 1 << DIGIT_BITS;
const WIDE_BITS: u32 = 10;
const WIDE_SLOTS: usize = 1 << WIDE_BITS;
/// The number of the wide level; those of smaller slots are below it.
const WIDE: usize = 6;
const LEVELS: usize = 16;
const NONE: u32 = u32::MAX;
/// Events in a chunk: of 16 bytes each, 256 bytes.
const CHUNK: usize = 16;
/// From as many events on, up to a chunk, those of a slot are sorted by their [`ranks`].
const MIN_RANKED: usize = 8;
/// Bits of a place in a chunk.
const PLACE_BITS: u32 = CHUNK.ilog2();
/// Events of slots no longer than 2 to the power of this are sorted by keys of 31 bits: when, and which of a chunk.
const MAX_KEY_SHIFT: u32 = i32::BITS - 1 - PLACE_BITS;
/// Slots of the wide level last 2 to the power of this, in nanoseconds, at the start.
const FIRST_SHIFT: u32 = 20;
/// And at most: there are but six levels below.
const MAX_SHIFT: u32 = DIGIT_BITS * WIDE as u32;
/// Events after which the rate of events is looked at, at least.
const EVENTS_OF_RATE: u64 = 1024;
/// Events that a slot of the wide level is to hold, if they come evenly. Its length follows when there
/// are less than half or more than twice as many.
const EVENTS_OF_SLOT: u64 = 16;

/// Maximum number of events of several slots that are sorted at once, with many flows: enough to prefetch.
pub(crate) const FAR_SIGHT: usize = 64;
/// With few: a later event between them is inserted at a cost in proportion to it.
pub(crate) const NEAR_SIGHT: usize = 16;

/// Maximum number of events of one slot that are sorted at once: beyond it, moving them down is cheaper.
const MAX_OF_SLOT: usize = 64;

/// From as many sorted events on, the later half returns to its slots before another is inserted.
const MAX_NEAR: usize = MAX_OF_SLOT + FAR_SIGHT;

/// A piece of a slot's list. Chunks rather than single events: following a list event by event
/// through more memory than the cache holds would dominate the cost.
struct Chunk<E> {
    events: [(u64, E); CHUNK],
}

/// A list of chunks. All but the last are full, so that `len` says where the next event goes: a push
/// reads no more than this and writes the event.
#[derive(Clone, Copy)]
struct Slot {
    first: u32,
    last: u32,
    len: u32,
}

impl Slot {
    /// How many events the chunk has of which `left` events and those of later chunks are left.
    #[inline]
    fn in_chunk(left: u32) -> usize {
        (left as usize).min(CHUNK)
    }
}

const EMPTY: Slot = Slot { first: NONE, last: NONE, len: 0 };

/// Which slots of a level are occupied: a bit for each, and one for each word of them.
#[derive(Clone, Copy, Default)]
struct Occupied {
    words: [u64; WIDE_SLOTS / 64],
    any: u32,
}

impl Occupied {
    fn set(&mut self, digit: usize) {
        self.words[digit / 64] |= 1 << (digit % 64);
        self.any |= 1 << (digit / 64);
    }

    /// True if none is left.
    fn clear(&mut self, digit: usize) -> bool {
        let word = &mut self.words[digit / 64];
        *word &= !(1 << (digit % 64));
        if *word == 0 {
            self.any &= !(1 << (digit / 64));
        }
        self.any == 0
    }

    fn first(&self) -> Option<usize> {
        if self.any == 0 {
            return None;
        }
        let word = self.any.trailing_zeros() as usize;
        Some(64 * word + self.words[word].trailing_zeros() as usize)
    }
}

/// Events in order of time, and of pushing where times are equal.
pub(crate) struct Wheel<E> {
    /// The events before `near_end`, in order; those before `taken` are gone.
    near: Vec<(u64, E)>,
    taken: usize,
    near_end: u64,
    /// Maximum number of events of several slots that are sorted at once.
    sight: usize,
    present: u64,
    /// A slot of the wide level lasts 2 to the power of this.
    shift: u32,
    chunks: Vec<Chunk<E>>,
    /// For each chunk, the one behind it in its list.
    next: Vec<u32>,
    /// The first chunk of the free list.
    free: u32,
    /// One bit per level: has an occupied slot.
    levels: u32,
    /// All later events: those of the wide level first, then those of the others by level and digit.
    slots: [Slot; WIDE_SLOTS + LEVELS * SLOTS],
    occupied: [Occupied; LEVELS],
    /// Events sorted since the rate of events was looked at, and when that was.
    sorted: u64,
    looked: u64,
    /// How many until it is looked at again: no fewer than were moved the last time.
    until_look: u64,
}

impl<E: Copy> Wheel<E> {
    pub(crate) fn new() -> Self {
        Self {
            near: Vec::with_capacity(2 * MAX_NEAR),
            taken: 0,
            near_end: 0,
            sight: NEAR_SIGHT,
            present: 0,
            shift: FIRST_SHIFT,
            chunks: Vec::new(),
            next: Vec::new(),
            free: NONE,
            levels: 0,
            slots: [EMPTY; WIDE_SLOTS + LEVELS * SLOTS],
            occupied: [Occupied::default(); LEVELS],
            sorted: 0,
            looked: 0,
            until_look: EVENTS_OF_RATE,
        }
    }

    /// At most as many events of several slots are sorted at once.
    pub(crate) fn set_sight(&mut self, events: usize) {
        self.sight = events.min(FAR_SIGHT);
    }

    /// Schedules `event` at `time`; a time in the past becomes the present.
    #[inline]
    pub(crate) fn push(&mut self, time: Time, event: E) {
        let time = time.as_nanos().max(self.present);
        if time < self.near_end {
            self.push_near(time, event);
        } else {
            self.append(time, event);
        }
    }

    /// Schedules `event` among those that are sorted. Most come late among them, so that few are moved.
    #[inline(never)]
    fn push_near(&mut self, time: u64, event: E) {
        let count = self.near.len() - self.taken;
        if count >= MAX_NEAR {
            self.spill();
        }
        if time >= self.near_end {
            return self.append(time, event);
        }
        if self.near.len() >= 2 * MAX_NEAR {
            self.near.drain(..self.taken);
            self.taken = 0;
        }
        self.near.push((time, event));
        let events = &mut self.near[self.taken..];
        let mut to = events.len() - 1;
        while to > 0 && events[to - 1].0 > time {
            events[to] = events[to - 1];
            to -= 1;
        }
        events[to] = (time, event);
    }

    /// Takes the next event if it is due by `until`; time advances to it.
    #[cfg(test)]
    fn pop_until(&mut self, until: Time) -> Option<(Time, E)> {
        self.refill(until);
        self.pop_near(until)
    }

    /// Takes the next event if it is sorted already and due by `until`; time advances to it.
    #[inline]
    pub(crate) fn pop_near(&mut self, until: Time) -> Option<(Time, E)> {
        let (time, event) = *self.near.get(self.taken)?;
        if time > until.as_nanos() {
            return None;
        }
        self.taken += 1;
        self.present = time;
        Some((Time::from_nanos(time), event))
    }

    /// The next events that are already sorted.
    #[inline]
    pub(crate) fn near(&self) -> &[(u64, E)] {
        &self.near[self.taken..]
    }

    /// Every waiting event with its time, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Time, E)> + '_ {
        let far = self.slots.iter().flat_map(move |slot| {
            let begin = (slot.first, slot.len);
            let behind = move |(index, left): &(u32, u32)| {
                let left = left.saturating_sub(CHUNK as u32);
                (left > 0).then(|| (self.next[*index as usize], left))
            };
            let pieces = successors((slot.len > 0).then_some(begin), behind);
            pieces.flat_map(|(index, left)| {
                &self.chunks[index as usize].events[..Slot::in_chunk(left)]
            })
        });
        let all = self.near().iter().chain(far);
        all.map(|(time, event)| (Time::from_nanos(*time), *event))
    }

    /// Sorts the next events if none are sorted, if any is due by `until`.
    pub(crate) fn refill(&mut self, until: Time) {
        if self.taken < self.near.len() {
            return;
        }
        self.near.clear();
        self.taken = 0;
        if self.sorted >= self.until_look {
            self.follow_rate();
        }
        while self.levels != 0 {
            let level = self.levels.trailing_zeros() as usize;
            // A slot of a higher level lasts so long that most of what follows would come before its end.
            if level <= WIDE {
                self.gather(level);
            }
            if !self.near.is_empty() || !self.enter(level, until.as_nanos()) {
                return;
            }
        }
    }

    /// Takes whole slots of the lowest occupied level, in order, as long as they are few events.
    fn gather(&mut self, level: usize) {
        let mut end = None;
        while let Some(digit) = self.occupied[level].first() {
            let from = self.near.len();
            let is_one_instant = self.shift_of(level) == 0 && from == 0;
            let limit = if from == 0 { MAX_OF_SLOT } else { self.sight };
            let len = self.slots[Self::place_of(level, digit)].len as usize;
            if from + len > limit && !is_one_instant {
                break;
            }
            let start = self.start_of(level, digit);
            let slot = self.vacate(level, digit);
            if (MIN_RANKED..=CHUNK).contains(&len) && self.shift_of(level) <= MAX_KEY_SHIFT {
                let events = &self.chunks[slot.first as usize].events[..len];
                self.near.extend_from_slice(events);
                let sorted = &mut self.near[from..];
                for (event, rank) in events.iter().zip(ranks(events, start)) {
                    sorted[rank as usize] = *event;
                }
                self.release(slot.first);
            } else {
                self.take_and_sort(slot);
            }
            end = Some(start.saturating_add(1 << self.shift_of(level)));
        }
        if let Some(end) = end {
            self.near_end = end;
            self.sorted += self.near.len() as u64;
        }
    }

    /// Sorts the events of a slot behind those that are sorted.
    fn take_and_sort(&mut self, slot: Slot) {
        let from = self.near.len();
        let Slot { first: mut index, len: mut left, .. } = slot;
        while left > 0 {
            let events = &self.chunks[index as usize].events[..Slot::in_chunk(left)];
            self.near.extend_from_slice(events);
            left -= events.len() as u32;
            index = self.release(index);
        }
        sort(&mut self.near[from..]);
    }

    /// Returns the later half of the sorted events to their slots, whole slots at a time: sorted
    /// insertion costs in proportion to their number. Events of a single instant stay.
    #[cold]
    fn spill(&mut self) {
        let (middle, _) = self.near[self.taken.midpoint(self.near.len())];
        let shift = self.shift_of(self.level_of(middle));
        let start = middle >> shift << shift;
        if start <= self.present {
            return;
        }
        let kept = self.near.partition_point(|(time, _)| *time < start);
        for place in kept..self.near.len() {
            let (time, event) = self.near[place];
            self.append(time, event);
        }
        self.near.truncate(kept);
        self.near_end = start;
    }

    /// Advances time to the start of the next slot and moves its events down; returns false and
    /// changes nothing if that is after `until`.
    fn enter(&mut self, level: usize, until: u64) -> bool {
        let Some(digit) = self.occupied[level].first() else { return false };
        let start = self.start_of(level, digit);
        if start > until {
            return false;
        }
        self.present = start;
        let Slot { first: mut index, len: mut left, .. } = self.vacate(level, digit);
        while left > 0 {
            let count = Slot::in_chunk(left);
            for place in 0..count {
                let (time, event) = self.chunks[index as usize].events[place];
                self.append(time, event);
            }
            left -= count as u32;
            index = self.release(index);
        }
        true
    }

    /// Lets the slots of the wide level follow the rate of events, unless they are near it.
    #[cold]
    fn follow_rate(&mut self) {
        let span = self.present.saturating_sub(self.looked) / self.sorted;
        (self.sorted, self.looked) = (0, self.present);
        let wanted = span.saturating_mul(EVENTS_OF_SLOT).max(1);
        if wanted / 2 <= 1 << self.shift && wanted >= 1 << self.shift >> 1 {
            return;
        }
        let mut all = Vec::new();
        while self.levels != 0 {
            let level = self.levels.trailing_zeros() as usize;
            while let Some(digit) = self.occupied[level].first() {
                let Slot { first: mut index, len: mut left, .. } = self.vacate(level, digit);
                while left > 0 {
                    let count = Slot::in_chunk(left);
                    all.extend_from_slice(&self.chunks[index as usize].events[..count]);
                    left -= count as u32;
                    index = self.release(index);
                }
            }
        }
        self.shift = wanted.ilog2().min(MAX_SHIFT);
        self.until_look = EVENTS_OF_RATE.max(all.len() as u64);
        for (time, event) in all {
            self.append(time, event);
        }
    }

    /// The least bit of the digit of a level.
    #[inline]
    fn shift_of(&self, level: usize) -> u32 {
        match level {
            WIDE => self.shift,
            ..WIDE => DIGIT_BITS * level as u32,
            _ => self.shift + WIDE_BITS + DIGIT_BITS * (level - WIDE - 1) as u32,
        }
    }

    /// The bit above the digit of a level.
    #[inline]
    fn bit_above(&self, level: usize) -> u32 {
        match level {
            WIDE => self.shift + WIDE_BITS,
            ..WIDE => (DIGIT_BITS * (level as u32 + 1)).min(self.shift),
            _ => self.shift_of(level) + DIGIT_BITS,
        }
    }

    /// Where the slot of a level and digit is.
    #[inline]
    fn place_of(level: usize, digit: usize) -> usize {
        if level == WIDE { digit } else { WIDE_SLOTS + SLOTS * level + digit }
    }

    /// When a slot of the current turn of its level begins.
    fn start_of(&self, level: usize, digit: usize) -> u64 {
        let above = self.bit_above(level);
        let higher = if above >= u64::BITS { 0 } else { self.present >> above << above };
        higher | (digit as u64) << self.shift_of(level)
    }

    /// Empties a slot; returns its list.
    #[inline]
    fn vacate(&mut self, level: usize, digit: usize) -> Slot {
        if self.occupied[level].clear(digit) {
            self.levels &= !(1 << level);
        }
        std::mem::replace(&mut self.slots[Self::place_of(level, digit)], EMPTY)
    }

    /// Frees a chunk; returns the next one.
    #[inline]
    fn release(&mut self, index: u32) -> u32 {
        std::mem::replace(&mut self.next[index as usize], std::mem::replace(&mut self.free, index))
    }

    /// The level of the highest digit in which `time` differs from the present; the lowest if none does.
    #[inline]
    fn level_of(&self, time: u64) -> usize {
        let bit = (time ^ self.present | 1).ilog2();
        if bit < self.shift {
            return (bit / DIGIT_BITS) as usize;
        }
        let above = (bit - self.shift).checked_sub(WIDE_BITS);
        above.map_or(WIDE, |bit| WIDE + 1 + (bit / DIGIT_BITS) as usize)
    }

    #[inline]
    fn append(&mut self, time: u64, event: E) {
        let differing = (time ^ self.present) >> self.shift;
        if differing.wrapping_sub(1) < WIDE_SLOTS as u64 - 1 {
            let digit = (time >> self.shift) as usize % WIDE_SLOTS;
            self.put(WIDE, digit, time, event);
        } else {
            self.append_elsewhere(time, event);
        }
    }

    /// As [`append`](Self::append), not to the wide level.
    #[inline(never)]
    fn append_elsewhere(&mut self, time: u64, event: E) {
        let level = self.level_of(time);
        let (shift, above) = (self.shift_of(level), self.bit_above(level));
        let digit = (time >> shift & ((1 << (above - shift)) - 1)) as usize;
        self.put(level, digit, time, event);
    }

    #[inline(always)]
    fn put(&mut self, level: usize, digit: usize, time: u64, event: E) {
        let slot = &mut self.slots[Self::place_of(level, digit)];
        let place = slot.len as usize % CHUNK;
        slot.len += 1;
        if place == 0 {
            self.add_chunk(level, digit, (time, event));
        } else {
            self.chunks[slot.last as usize].events[place] = (time, event);
        }
    }

    /// Adds a chunk to the list of a slot, whose others are full.
    #[inline(never)]
    fn add_chunk(&mut self, level: usize, digit: usize, first: (u64, E)) {
        let index = if self.free == NONE {
            self.chunks.push(Chunk { events: [first; CHUNK] });
            self.next.push(NONE);
            (self.chunks.len() - 1) as u32
        } else {
            let index = self.free;
            self.free = std::mem::replace(&mut self.next[index as usize], NONE);
            self.chunks[index as usize].events[0] = first;
            index
        };
        let slot = &mut self.slots[Self::place_of(level, digit)];
        if let Some(next) = self.next.get_mut(slot.last as usize) {
            *next = index;
        } else {
            slot.first = index;
            self.occupied[level].set(digit);
            self.levels |= 1 << level;
        }
        self.slots[Self::place_of(level, digit)].last = index;
    }
}

/// Where each of these events, no more than a chunk holds, belongs among them: by time, and in the order in
/// which they are where times are equal. All lie within 2 to the power of [`MAX_KEY_SHIFT`] behind `start`.
///
/// No branch depends on the times. They come in any order, so that a processor would guess wrongly once for
/// each event, which costs more than comparing all with all.
#[inline]
fn ranks<E>(events: &[(u64, E)], start: u64) -> [i32; CHUNK] {
    let mut keys = [i32::MAX; CHUNK];
    for (place, (key, (time, _))) in keys.iter_mut().zip(events).enumerate() {
        *key = ((time - start) as i32) << PLACE_BITS | place as i32;
    }
    let mut ranks = [0; CHUNK];
    for key in keys {
        for (rank, other) in ranks.iter_mut().zip(keys) {
            *rank += i32::from(key < other);
        }
    }
    ranks
}

/// Sorts by time, and keeps the order of events of the same time. Slots are small and often in order.
#[inline]
fn sort<E: Copy>(events: &mut [(u64, E)]) {
    /// Beyond this, insertion costs more than merging.
    const FEW: usize = 24;
    if events.len() > FEW {
        events.sort_by_key(|(time, _)| *time);
        return;
    }
    for place in 1..events.len() {
        let event = events[place];
        let mut to = place;
        while to > 0 && events[to - 1].0 > event.0 {
            events[to] = events[to - 1];
            to -= 1;
        }
        events[to] = event;
    }
}

#[cfg(test)]
mod tests;
