//! Time stamps of a film that those around them contradict.
//!
//! Decoding times rise in the order of the stream, a step at a time, except where the clock jumps. A damaged one does not fit
//! between those around it, while those after a real jump fit each other. So of all ways to read the stamps of a stream
//! the one is taken that leaves out the fewest and has the fewest jumps, and then that with
//! the most usual steps.

use super::demultiplexer::{CYCLE, MAX_STEP, USUAL_STEP};

/// What leaving a stamp out counts, and what a jump does: a wrong stamp would be one jump, or two; two after a
/// jump that fit each other are believed.
const LEFT_OUT: u32 = 2;
const JUMP: u32 = 3;

/// Stamps that are left out one after the other, at most.
const IN_A_ROW: usize = 3;

/// A PES packet with a time stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    /// The number of the PES packet in its stream.
    number: usize,
    /// DTS, 90 kHz, 33 bits.
    low: u64,
}

impl Stamp {
    /// The time from `before`, if it can be the next stamp after that.
    fn since(self, before: Self) -> Option<u64> {
        Some(distance(before.low, self.low)).filter(|step| *step <= MAX_STEP)
    }

    /// The same, for each PES packet.
    fn step(self, before: Self) -> Option<u64> {
        let count = self.number.abs_diff(before.number).max(1);
        self.since(before).map(|step| step / count as u64)
    }
}

/// From one stamp up to another.
const fn distance(from: u64, to: u64) -> u64 {
    to.wrapping_sub(from) & (CYCLE - 1)
}

/// The stamps of a stream as they come.
#[derive(Clone, Debug, Default)]
pub(super) struct Stamps {
    stamps: Vec<Stamp>,
    /// PES packets so far.
    count: usize,
}

/// What a stream's stamps say.
#[derive(Clone, Debug, Default)]
pub(super) struct Judged {
    /// The numbers of the PES packets whose stamps are left out, rising.
    pub(super) left_out: Vec<usize>,
    /// The first stamp that is believed, 33 bits, and how many PES packets come before it.
    pub(super) first: Option<(u64, usize)>,
    /// The distance of PES packets there.
    pub(super) step: u64,
}

impl Stamps {
    /// Takes the DTS of the next PES packet, if it has one.
    pub(super) fn push(&mut self, low: Option<u64>) {
        let number = self.count;
        self.stamps.extend(low.map(|low| Stamp { number, low }));
        self.count += 1;
    }

    /// Stamps so far.
    pub(super) fn count(&self) -> usize {
        self.stamps.len()
    }

    /// The usual step from one PES packet to the next.
    fn usual_step(&self) -> u64 {
        let steps = self.stamps.windows(2).filter_map(|pair| pair[1].step(pair[0]));
        let mut steps: Vec<u64> = steps.collect();
        let middle = steps.len() / 2;
        if steps.is_empty() { USUAL_STEP } else { *steps.select_nth_unstable(middle).1 }
    }

    /// The stamps that are believed. Of ways that count the same, that with the most usual steps.
    fn believed(&self) -> Vec<Stamp> {
        let (count, usual) = (self.stamps.len(), self.usual_step());
        // Of the best way up to each stamp: what it counts, how unusual its steps are, and how many places before it the
        // one before is.
        let mut ways: Vec<(u32, u64, u8)> = Vec::with_capacity(count);
        for (place, stamp) in self.stamps.iter().enumerate() {
            let begins = if place <= IN_A_ROW { place as u32 * LEFT_OUT } else { u32::MAX };
            let mut best = (begins, 0, 0);
            for back in 1..=place.min(IN_A_ROW + 1) {
                let before = self.stamps[place - back];
                let jump = stamp.since(before).map_or(JUMP, |_| 0);
                let (sum, unusual, _) = ways[place - back];
                let sum = sum.saturating_add(jump + (back as u32 - 1) * LEFT_OUT);
                let step = stamp.step(before).unwrap_or(usual);
                let unusual = unusual.saturating_add(step.abs_diff(usual));
                if (sum, unusual) < (best.0, best.1) {
                    best = (sum, unusual, back as u8);
                }
            }
            ways.push(best);
        }
        let last = (count.saturating_sub(IN_A_ROW + 1)..count).min_by_key(|place| {
            let (sum, unusual, _) = ways[*place];
            (sum + (count - 1 - place) as u32 * LEFT_OUT, unusual, count - place)
        });
        let mut believed = Vec::new();
        let mut at = last;
        while let Some(place) = at {
            believed.push(self.stamps[place]);
            let back = usize::from(ways[place].2);
            at = (back > 0).then(|| place - back);
        }
        believed.reverse();
        believed
    }
}

/// Judges the stamps of the streams of a film.
///
/// The first and the last stamp of a stream have only one neighbour. A step at an end of more than twice the largest of
/// the other steps is believed if another stream begins or ends there, too, at least twice as near to this stamp as to
/// the next one.
pub(super) fn judge(streams: &[Stamps]) -> Vec<Judged> {
    let mut all: Vec<Vec<Stamp>> = streams.iter().map(Stamps::believed).collect();
    let ends: Vec<Option<[u64; 2]>> =
        all.iter().map(|one| Some([one.first()?.low, one.last()?.low])).collect();
    for (place, believed) in all.iter_mut().enumerate() {
        let others = || {
            let others = ends.iter().enumerate().filter(move |(other, _)| *other != place);
            others.filter_map(|(_, ends)| *ends)
        };
        let is_last_wrong = is_wrong_at_end(believed, others().map(|ends| ends[1]));
        believed.reverse();
        let is_first_wrong = is_wrong_at_end(believed, others().map(|ends| ends[0]));
        if is_first_wrong {
            believed.pop();
        }
        believed.reverse();
        if is_last_wrong {
            believed.pop();
        }
    }
    let judged = |(stream, believed): (&Stamps, &Vec<Stamp>)| {
        let mut kept = believed.iter().map(|one| one.number).peekable();
        let numbers = stream.stamps.iter().map(|one| one.number);
        let left_out = numbers.filter(|number| kept.next_if_eq(number).is_none()).collect();
        let first = believed.first().map(|one| (one.low, one.number));
        let step = believed.first().zip(believed.get(1)).and_then(|(one, next)| next.step(*one));
        Judged { left_out, first, step: step.unwrap_or(USUAL_STEP) }
    };
    streams.iter().zip(&all).map(judged).collect()
}

/// Whether the last of these stamps, in the order of the stream or against it, is wrong; `ends` are those of other streams.
fn is_wrong_at_end(stamps: &[Stamp], mut ends: impl Iterator<Item = u64>) -> bool {
    let step = |pair: &[Stamp]| {
        let (one, next) = if pair[0].number < pair[1].number { (0, 1) } else { (1, 0) };
        pair[next].step(pair[one])
    };
    let [_, inner @ .., end] = stamps else { return false };
    let Some(before) = inner.last() else { return false };
    // The step at the other end may be wrong, too.
    let inner = if inner.len() > 1 { inner } else { &stamps[..2] };
    let largest = inner.windows(2).filter_map(step).max();
    let (Some(last), Some(largest)) = (step(&[*before, *end]), largest) else { return false };
    let apart = |one: u64, other: u64| distance(one, other).min(distance(other, one));
    last > largest * 2 && !ends.any(|other| 2 * apart(other, end.low) < apart(other, before.low))
}
