//! The event queue: a timing wheel that is a radix heap.
//!
//! An event's place is decided by the highest base-64 digit in which its time differs from the
//! present: level 0 holds the events of the present 64 ns, one slot a nanosecond; level 1 those
//! of the present 4,096 ns, one slot for 64 ns; and so on. When time enters a slot of a higher
//! level, its events fall to lower ones; each event falls at most a few times, so a push and a
//! pop cost the same whether ten events wait or a million (a binary heap's cost grows with
//! them). Events of the same time come out in the order in which they were pushed: an event and
//! its successor fall together, first in, first out.

use ontempo_foundation::Time;

const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node<E> {
    time: u64,
    next: u32,
    event: E,
}

#[derive(Clone, Copy)]
struct Slot {
    first: u32,
    last: u32,
}

/// Events in order of time, and of pushing where times are equal.
pub(crate) struct Wheel<E> {
    nodes: Vec<Node<E>>,
    free: u32,
    slots: [[Slot; SLOTS]; LEVELS],
    /// One bit a slot: which hold events.
    occupied: [u64; LEVELS],
    /// One bit a level: which have an occupied slot.
    levels: u32,
    present: u64,
}

impl<E: Copy> Wheel<E> {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: NONE,
            slots: [[Slot { first: NONE, last: NONE }; SLOTS]; LEVELS],
            occupied: [0; LEVELS],
            levels: 0,
            present: 0,
        }
    }

    /// Puts `event` at `time`; a time in the past becomes the present.
    #[inline]
    pub(crate) fn push(&mut self, time: Time, event: E) {
        let node = Node { time: time.as_nanos().max(self.present), next: NONE, event };
        let index = if self.free == NONE {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        } else {
            let index = self.free;
            self.free = self.nodes[index as usize].next;
            self.nodes[index as usize] = node;
            index
        };
        self.append(index);
    }

    /// Takes the next event if it is due at or before `until`; time moves on to it.
    #[inline]
    pub(crate) fn pop_until(&mut self, until: Time) -> Option<(Time, E)> {
        loop {
            if self.levels == 0 {
                return None;
            }
            let level = self.levels.trailing_zeros() as usize;
            let digit = self.occupied[level].trailing_zeros() as usize;
            let slot = self.slots[level][digit];
            if level > 0 && slot.first != slot.last {
                if !self.enter(level, digit, until.as_nanos()) {
                    return None;
                }
                continue;
            }
            let node = self.nodes[slot.first as usize];
            if node.time > until.as_nanos() {
                return None;
            }
            self.present = node.time;
            self.take_first(level, digit, slot, node.next);
            return Some((Time::from_nanos(node.time), node.event));
        }
    }

    /// Every waiting event with its time, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Time, E)> + '_ {
        let firsts = self.slots.iter().flatten().map(|slot| slot.first);
        firsts.flat_map(move |first| {
            std::iter::successors((first != NONE).then_some(first), |index| {
                let next = self.nodes[*index as usize].next;
                (next != NONE).then_some(next)
            })
            .map(|index| {
                let node = &self.nodes[index as usize];
                (Time::from_nanos(node.time), node.event)
            })
        })
    }

    #[inline]
    fn take_first(&mut self, level: usize, digit: usize, slot: Slot, next: u32) {
        if next == NONE {
            self.empty(level, digit);
        } else {
            self.slots[level][digit].first = next;
        }
        self.nodes[slot.first as usize].next = self.free;
        self.free = slot.first;
    }

    #[inline]
    fn empty(&mut self, level: usize, digit: usize) {
        self.slots[level][digit] = Slot { first: NONE, last: NONE };
        self.occupied[level] &= !(1 << digit);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    /// Moves time to the start of a slot and lets its events fall; false, and nothing moves,
    /// where that is after `until`.
    fn enter(&mut self, level: usize, digit: usize, until: u64) -> bool {
        let shift = DIGIT_BITS * level as u32;
        let above = shift + DIGIT_BITS;
        let higher = if above >= u64::BITS { 0 } else { self.present >> above << above };
        let start = higher | (digit as u64) << shift;
        if start > until {
            return false;
        }
        self.present = start;
        let mut index = self.slots[level][digit].first;
        self.empty(level, digit);
        while index != NONE {
            let next = self.nodes[index as usize].next;
            self.nodes[index as usize].next = NONE;
            self.append(index);
            index = next;
        }
        true
    }

    #[inline]
    fn append(&mut self, index: u32) {
        let time = self.nodes[index as usize].time;
        let differing = time ^ self.present;
        let level = ((u64::BITS - 1 - (differing | 1).leading_zeros()) / DIGIT_BITS) as usize;
        let digit = (time >> (DIGIT_BITS * level as u32)) as usize & (SLOTS - 1);
        let slot = &mut self.slots[level][digit];
        if slot.last == NONE {
            slot.first = index;
            self.occupied[level] |= 1 << digit;
            self.levels |= 1 << level;
        } else {
            self.nodes[slot.last as usize].next = index;
        }
        slot.last = index;
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
