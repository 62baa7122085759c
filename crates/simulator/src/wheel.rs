//! The event queue: a timing wheel that is a radix heap, and a sorted list of the next events.
//!
//! An event's place is decided by the highest base-128 digit in which its time differs from the
//! present: level 0 holds the events of the present 128 ns, one slot a nanosecond; level 1 those
//! of the present 16,384 ns, one slot for 128 ns; and so on. When time enters a crowded slot of a
//! higher level, its events move to lower ones; each event moves at most a few times, so a push
//! and a pop cost the same whether ten events wait or a million (a binary heap's cost grows with
//! them). The slots of the next few dozen events are then sorted at once, which costs less
//! than moving them further down, and exposes the next events for prefetching.
//!
//! Events of the same time come out in the order in which they were pushed: an event and its
//! successor move together, first in, first out, and sorting is stable.

use std::iter::successors;

use ontempo_foundation::Time;

const DIGIT_BITS: u32 = 7;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;
const NONE: u32 = u32::MAX;
/// Events in a chunk: of 16 bytes each, 512 bytes.
const CHUNK: usize = 32;

/// Maximum number of events of several slots that are sorted at once: a later event between them is
/// inserted at a cost in proportion to it.
pub(crate) const MAX_NEAR: usize = 64;

/// Maximum number of events of one slot that are sorted at once: beyond it, moving them down is cheaper.
const MAX_OF_SLOT: usize = 256;

/// From as many sorted events on, the later half returns to its slots before another is inserted.
const MOST_NEAR: usize = MAX_OF_SLOT + MAX_NEAR;

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

/// Events in order of time, and of pushing where times are equal.
pub(crate) struct Wheel<E> {
    /// The events before `near_end`, the next one last.
    near: Vec<(u64, E)>,
    near_end: u64,
    /// All later events, in slots by level and digit.
    slots: [[Slot; SLOTS]; LEVELS],
    chunks: Vec<Chunk<E>>,
    /// For each chunk, the one behind it in its list.
    next: Vec<u32>,
    /// The first chunk of the free list.
    free: u32,
    /// One bit per slot: occupied.
    occupied: [u128; LEVELS],
    /// One bit per level: has an occupied slot.
    levels: u32,
    present: u64,
}

impl<E: Copy> Wheel<E> {
    pub(crate) fn new() -> Self {
        Self {
            near: Vec::with_capacity(MAX_OF_SLOT),
            near_end: 0,
            slots: [[EMPTY; SLOTS]; LEVELS],
            chunks: Vec::new(),
            next: Vec::new(),
            free: NONE,
            occupied: [0; LEVELS],
            levels: 0,
            present: 0,
        }
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

    /// Schedules `event` among those that are sorted.
    #[inline(never)]
    fn push_near(&mut self, time: u64, event: E) {
        if self.near.len() >= MOST_NEAR {
            self.spill();
        }
        if time < self.near_end {
            let later = self.near.partition_point(|(other, _)| *other > time);
            self.near.insert(later, (time, event));
        } else {
            self.append(time, event);
        }
    }

    /// Takes the next event if it is due by `until`; time advances to it.
    #[inline]
    pub(crate) fn pop_until(&mut self, until: Time) -> Option<(Time, E)> {
        if self.near.is_empty() {
            self.refill(until);
        }
        let (time, event) = *self.near.last()?;
        if time > until.as_nanos() {
            return None;
        }
        self.near.pop();
        self.present = time;
        Some((Time::from_nanos(time), event))
    }

    /// The next events that are already sorted; the next one last.
    #[inline]
    pub(crate) fn near(&self) -> &[(u64, E)] {
        &self.near
    }

    /// Every waiting event with its time, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Time, E)> + '_ {
        let far = self.slots.iter().flatten().flat_map(move |slot| {
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
        let all = self.near.iter().chain(far);
        all.map(|(time, event)| (Time::from_nanos(*time), *event))
    }

    /// Sorts the next events if none are sorted, if any is due by `until`.
    pub(crate) fn refill(&mut self, until: Time) {
        while self.levels != 0 {
            let level = self.levels.trailing_zeros() as usize;
            self.gather(level);
            if !self.near.is_empty() || !self.enter(level, until.as_nanos()) {
                return;
            }
        }
    }

    /// Takes whole slots of the lowest occupied level, in order, as long as they are few events.
    fn gather(&mut self, level: usize) {
        let mut end = None;
        while let Some(digit) = self.first_digit(level) {
            let from = self.near.len();
            let is_one_instant = level == 0 && from == 0;
            let limit = if from == 0 { MAX_OF_SLOT } else { MAX_NEAR };
            if from + self.slots[level][digit].len as usize > limit && !is_one_instant {
                break;
            }
            let Slot { first: mut index, len: mut left, .. } = self.vacate(level, digit);
            while left > 0 {
                let chunk = &self.chunks[index as usize];
                let events = &chunk.events[..Slot::in_chunk(left)];
                self.near.extend_from_slice(events);
                left -= events.len() as u32;
                index = self.release(index);
            }
            sort(&mut self.near[from..]);
            end =
                Some(self.start_of(level, digit).saturating_add(1 << (DIGIT_BITS * level as u32)));
        }
        if let Some(end) = end {
            self.near_end = end;
            self.near.reverse();
        }
    }

    /// Returns the later half of the sorted events to their slots, whole slots at a time: sorted
    /// insertion costs in proportion to their number. Events of a single instant stay.
    fn spill(&mut self) {
        let (middle, _) = self.near[self.near.len() / 2];
        let level = self.level_of(middle);
        let start = middle >> (DIGIT_BITS * level) << (DIGIT_BITS * level);
        if start <= self.present {
            return;
        }
        let given = self.near.partition_point(|(time, _)| *time >= start);
        for place in (0..given).rev() {
            let (time, event) = self.near[place];
            self.append(time, event);
        }
        self.near.drain(..given);
        self.near_end = start;
    }

    /// Advances time to the start of the next slot and moves its events down; returns false and
    /// changes nothing if that is after `until`.
    fn enter(&mut self, level: usize, until: u64) -> bool {
        let Some(digit) = self.first_digit(level) else { return false };
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

    /// The next occupied slot of a level.
    #[inline]
    fn first_digit(&self, level: usize) -> Option<usize> {
        let occupied = self.occupied[level];
        (occupied != 0).then(|| occupied.trailing_zeros() as usize)
    }

    /// When a slot of the current turn of its level begins.
    fn start_of(&self, level: usize, digit: usize) -> u64 {
        let shift = DIGIT_BITS * level as u32;
        let above = shift + DIGIT_BITS;
        let higher = if above >= u64::BITS { 0 } else { self.present >> above << above };
        higher | (digit as u64) << shift
    }

    /// Empties a slot; returns its list.
    #[inline]
    fn vacate(&mut self, level: usize, digit: usize) -> Slot {
        self.occupied[level] &= !(1 << digit);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
        std::mem::replace(&mut self.slots[level][digit], EMPTY)
    }

    /// Frees a chunk; returns the next one.
    #[inline]
    fn release(&mut self, index: u32) -> u32 {
        std::mem::replace(&mut self.next[index as usize], std::mem::replace(&mut self.free, index))
    }

    /// The highest digit in which `time` differs from the present; 0 if none does.
    #[inline]
    fn level_of(&self, time: u64) -> u32 {
        let differing = time ^ self.present;
        (u64::BITS - 1 - (differing | 1).leading_zeros()) / DIGIT_BITS
    }

    #[inline]
    fn append(&mut self, time: u64, event: E) {
        let level = self.level_of(time) as usize;
        let digit = (time >> (DIGIT_BITS * level as u32)) as usize & (SLOTS - 1);
        let slot = &mut self.slots[level][digit];
        let place = slot.len as usize % CHUNK;
        slot.len += 1;
        if place == 0 {
            self.add_chunk(level, digit, (time, event));
        }
        let last = self.slots[level][digit].last;
        self.chunks[last as usize].events[place] = (time, event);
    }

    /// Adds a chunk to the list of a slot, whose others are full.
    #[cold]
    #[inline(never)]
    fn add_chunk(&mut self, level: usize, digit: usize, filler: (u64, E)) {
        let index = if self.free == NONE {
            self.chunks.push(Chunk { events: [filler; CHUNK] });
            self.next.push(NONE);
            (self.chunks.len() - 1) as u32
        } else {
            let index = self.free;
            self.free = std::mem::replace(&mut self.next[index as usize], NONE);
            index
        };
        self.occupied[level] |= 1 << digit;
        self.levels |= 1 << level;
        let slot = &mut self.slots[level][digit];
        if let Some(next) = self.next.get_mut(slot.last as usize) {
            *next = index;
        } else {
            slot.first = index;
        }
        slot.last = index;
    }
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a sorted list, with pushes between pops, and a stop before the end.
        #[test]
        fn events_come_in_order_of_time_then_of_pushing(
            steps in proptest::collection::vec(
                (prop_oneof![9 => 0u64..3, 1 => 60u64..200], 0u32..62, any::<u64>(), 0usize..4),
                1..100,
            )
        ) {
            let mut wheel = Wheel::new();
            let mut expected: Vec<(u64, usize)> = Vec::new();
            let mut present = 0u64;
            for (number, (repeats, bits, noise, pops)) in steps.into_iter().enumerate() {
                let time = present + (noise >> (63 - bits));
                for repeat in 0..=repeats {
                    let event = number * 1000 + repeat as usize;
                    wheel.push(Time::from_nanos(time), event);
                    expected.push((time, event));
                }
                expected.sort_by_key(|(time, _)| *time);
                prop_assert_eq!(wheel.iter().count(), expected.len());
                for _ in 0..pops.min(expected.len()) {
                    let (time, event) = expected.remove(0);
                    if time > present {
                        prop_assert!(wheel.pop_until(Time::from_nanos(time - 1)).is_none());
                    }
                    let until = Time::from_nanos(time);
                    prop_assert_eq!(wheel.pop_until(until), Some((until, event)));
                    present = time;
                }
            }
        }
    }

    /// Thousands of events one after the other before the end of a slot that was sorted
    /// as a whole, and a thousand of one instant.
    #[test]
    fn many_events_soon_or_at_once_come_in_order() {
        let mut wheel = Wheel::new();
        let slot = 1 << (4 * DIGIT_BITS);
        wheel.push(Time::from_nanos(slot), 0);
        let first = wheel.pop_until(Time::NEVER);
        assert_eq!(first, Some((Time::from_nanos(slot), 0)));
        for event in 1..=10_000 {
            wheel.push(Time::from_nanos(slot + 1_000 * event), event);
        }
        for event in 10_001..=11_000 {
            wheel.push(Time::from_nanos(slot + 10_000_000), event);
        }
        for event in 1..=11_000 {
            let time = slot + 1_000 * event.min(10_000);
            assert_eq!(wheel.pop_until(Time::NEVER), Some((Time::from_nanos(time), event)));
            assert!(wheel.near().len() <= MOST_NEAR || event >= 9_999);
        }
    }
}
