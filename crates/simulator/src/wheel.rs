//! The event queue: a timing wheel that is a radix heap, and the next events in order.
//!
//! An event's place is decided by the highest base-64 digit in which its time differs from the
//! present: level 0 holds the events of the present 64 ns, one slot a nanosecond; level 1 those
//! of the present 4,096 ns, one slot for 64 ns; and so on. When time enters a crowded slot of a
//! higher level, its events fall to lower ones; each event falls at most a few times, so a push
//! and a pop cost the same whether ten events wait or a million (a binary heap's cost grows with
//! them). What slots the next few dozen events lie in is then sorted at once, which costs less
//! than letting them fall on, and shows what comes next.
//!
//! Events of the same time come out in the order in which they were pushed: an event and its
//! successor fall together, first in, first out, and sorting is stable.

use ontempo_foundation::Time;

const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;

/// At most so many events are sorted at once: beyond, falling is cheaper.
pub(crate) const MOST_NEAR: usize = 64;

/// Events in order of time, and of pushing where times are equal.
pub(crate) struct Wheel<E> {
    /// The events before `near_end`, the next one last.
    near: Vec<(u64, E)>,
    near_end: u64,
    /// All later events by level and digit. Arrays rather than linked lists: to follow a list
    /// through more memory than the cache holds would cost more than everything else here.
    slots: Vec<Vec<(u64, E)>>,
    /// Emptied slots' memory, to be used again.
    spare: Vec<Vec<(u64, E)>>,
    /// One bit a slot: which hold events.
    occupied: [u64; LEVELS],
    /// One bit a level: which have an occupied slot.
    levels: u32,
    present: u64,
}

impl<E: Copy> Wheel<E> {
    pub(crate) fn new() -> Self {
        Self {
            near: Vec::with_capacity(2 * MOST_NEAR),
            near_end: 0,
            slots: (0..LEVELS * SLOTS).map(|_| Vec::new()).collect(),
            spare: Vec::new(),
            occupied: [0; LEVELS],
            levels: 0,
            present: 0,
        }
    }

    /// Puts `event` at `time`; a time in the past becomes the present.
    #[inline]
    pub(crate) fn push(&mut self, time: Time, event: E) {
        let time = time.as_nanos().max(self.present);
        if time < self.near_end {
            let later = self.near.iter().rposition(|(other, _)| *other > time);
            self.near.insert(later.map_or(0, |place| place + 1), (time, event));
        } else {
            self.append(time, event);
        }
    }

    /// Takes the next event if it is due at or before `until`; time moves on to it.
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

    /// The next events, as far as they are in order already; the next one last.
    #[inline]
    pub(crate) fn near(&self) -> &[(u64, E)] {
        &self.near
    }

    /// Every waiting event with its time, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Time, E)> + '_ {
        let all = self.slots.iter().chain([&self.near]).flatten();
        all.map(|(time, event)| (Time::from_nanos(*time), *event))
    }

    /// Puts the next events in order where none are, if any is due until `until`.
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
            let slot = &mut self.slots[level * SLOTS + digit];
            let from = self.near.len();
            if from + slot.len() > MOST_NEAR {
                break;
            }
            self.near.append(slot);
            self.near[from..].sort_by_key(|(time, _)| *time);
            self.vacate(level, digit);
            end =
                Some(self.start_of(level, digit).saturating_add(1 << (DIGIT_BITS * level as u32)));
        }
        if let Some(end) = end {
            self.near_end = end;
            self.near.reverse();
        }
    }

    /// Moves time to the start of the next slot and lets its events fall; false, and nothing
    /// moves, where that is after `until`.
    fn enter(&mut self, level: usize, until: u64) -> bool {
        let Some(digit) = self.first_digit(level) else { return false };
        let start = self.start_of(level, digit);
        if start > until {
            return false;
        }
        self.present = start;
        let mut falling = std::mem::take(&mut self.slots[level * SLOTS + digit]);
        self.vacate(level, digit);
        for (time, event) in falling.drain(..) {
            self.append(time, event);
        }
        self.spare.push(falling);
        true
    }

    /// The next occupied slot of a level.
    #[inline]
    fn first_digit(&self, level: usize) -> Option<usize> {
        let occupied = self.occupied[level];
        (occupied != 0).then(|| occupied.trailing_zeros() as usize)
    }

    /// When a slot of the present turn of its level begins.
    fn start_of(&self, level: usize, digit: usize) -> u64 {
        let shift = DIGIT_BITS * level as u32;
        let above = shift + DIGIT_BITS;
        let higher = if above >= u64::BITS { 0 } else { self.present >> above << above };
        higher | (digit as u64) << shift
    }

    #[inline]
    fn vacate(&mut self, level: usize, digit: usize) {
        self.occupied[level] &= !(1 << digit);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    #[inline]
    fn append(&mut self, time: u64, event: E) {
        let differing = time ^ self.present;
        let level = ((u64::BITS - 1 - (differing | 1).leading_zeros()) / DIGIT_BITS) as usize;
        let digit = (time >> (DIGIT_BITS * level as u32)) as usize & (SLOTS - 1);
        self.occupied[level] |= 1 << digit;
        self.levels |= 1 << level;
        let slot = &mut self.slots[level * SLOTS + digit];
        if slot.capacity() == 0
            && let Some(spare) = self.spare.pop()
        {
            *slot = spare;
        }
        slot.push((time, event));
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
            steps in proptest::collection::vec((0u64..3, 0u32..62, any::<u64>(), 0usize..4), 1..300)
        ) {
            let mut wheel = Wheel::new();
            let mut expected: Vec<(u64, usize)> = Vec::new();
            let mut present = 0u64;
            for (number, (repeats, bits, noise, pops)) in steps.into_iter().enumerate() {
                let time = present + (noise >> (63 - bits));
                for repeat in 0..=repeats {
                    let event = number * 10 + repeat as usize;
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
}
