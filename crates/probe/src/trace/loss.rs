//! Which packets the path lost, and when; those that the recorder's own queue lost are not among them.

use super::control::QUEUED;
use super::estimate::Arrival;
use super::rate::{Departure, place_of};
use super::recorder::Recording;

/// Span over which losses are counted, s: shorter ones have too few packets.
const LOSS_SPAN: f64 = 1.0;

/// Losses depend on the queue if they are more frequent in a long one by this factor, and
/// by this probability.
const OVERFLOW_FACTOR: f64 = 2.0;
const OVERFLOW_MORE: f64 = 0.005;

/// The path passes nothing once so many packets in a row are lost, sent over so long, ns. Shorter bursts
/// are counted with the other losses.
const OUTAGE: (usize, i64) = (10, 100_000_000);

/// The most that losses are taken off again from a rate.
const MAX_COUNTED: f64 = 0.99;

/// A burst of at least so many is the path's if it took this share of the time that the bottleneck takes to
/// send it: what a queue does not take in takes none.
const PLACED: (usize, f64) = (3, 0.5);

/// Packets on each side of a burst that tell the pace of the bottleneck, among so many.
const PACE: (usize, usize) = (8, 64);

/// What the path lost.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The probability of loss in each window.
    pub(super) by_window: Vec<f64>,
    /// In each window: the share of packets that the path lost without it being known which, since the
    /// recorder's queue lost some, too.
    unplaced: Vec<f64>,
    /// Packets that the bottleneck sent and the path lost, in the order of time.
    lost: Vec<Departure>,
}

impl Losses {
    /// What left the bottleneck, lost or not, as far as is known, in `window`s of so many ns.
    pub(super) fn departures<'a>(
        &'a self,
        arrivals: &'a [Arrival],
        window: i64,
    ) -> impl Iterator<Item = Departure> + 'a {
        let arrived = arrivals.iter().map(move |arrival| {
            let departure = arrival.departure();
            let place = place_of(departure.left, window, self.unplaced.len());
            Departure { bits: departure.bits / (1.0 - self.unplaced[place]), ..departure }
        });
        let (mut arrived, mut lost) = (arrived.peekable(), self.lost.iter().copied().peekable());
        std::iter::from_fn(move || match (arrived.peek(), lost.peek()) {
            (Some(one), Some(other)) if other.left < one.left => lost.next(),
            (None, Some(_)) => lost.next(),
            _ => arrived.next(),
        })
    }
}

/// Packets lost one after the other.
struct Burst {
    /// The first, and the one after the last.
    numbers: (usize, usize),
    /// When the arrivals before and after them left the bottleneck, ns.
    left: (i64, i64),
    /// The path lost it, not the recorder's queue.
    is_placed: bool,
}

impl Burst {
    /// When the packet of this place among them left, or would have: they are spread evenly.
    fn left(&self, place: usize) -> i64 {
        let (from, until) = self.left;
        let count = (self.numbers.1 - self.numbers.0) as i128 + 1;
        from + (i128::from((until - from).max(0)) * (place as i128 + 1) / count) as i64
    }
}

impl Recording {
    /// What the path lost in `count` windows of `window` ns; recording is counted from `begun` ns on.
    pub(super) fn losses(
        &self,
        arrivals: &[Arrival],
        begun: i64,
        window: i64,
        count: usize,
    ) -> Losses {
        let Fates { fates, bursts, outages } = self.fates(arrivals, begun);
        let longest = most_by_second(&fates, |fate| fate.waited);
        let largest = most_by_second(&fates, |fate| fate.ahead);
        // Queues are limited in time or in size.
        let is_deep = |fate: &Fate| {
            let second = second_of(fate.left);
            fate.waited * 2.0 > longest[second] || fate.ahead * 2.0 > largest[second]
        };
        let (mut deep, mut shallow) = (Tally::default(), Tally::default());
        for fate in fates.iter().flatten().filter(|fate| !fate.is_placed) {
            if is_deep(fate) { deep.add(fate) } else { shallow.add(fate) }
        }
        let more = deep.share() - shallow.share();
        let overflows = more > OVERFLOW_MORE && deep.share() > OVERFLOW_FACTOR * shallow.share();
        let span = ((LOSS_SPAN * 1e9) as i64 / window).max(1) as usize;
        // Those whose burst is known to be the path's, and others.
        let mut placed = vec![Tally::default(); count.div_ceil(span)];
        let mut others = placed.clone();
        let last = placed.len() - 1;
        for fate in fates.iter().flatten() {
            let place = (place_of(fate.left, window, count) / span).min(last);
            if fate.is_placed || !fate.is_lost {
                placed[place].add(fate);
            }
            if !(fate.is_placed || overflows && is_deep(fate)) {
                others[place].add(fate);
            }
        }
        let share = |tallies: &[Tally], place: usize| tallies[place / span].share();
        let unplaced = |place| if overflows { share(&others, place) } else { 0.0 };
        let unplaced = (0..count).map(|place| unplaced(place).min(MAX_COUNTED)).collect();
        let mut passed = vec![window; count];
        outages.iter().for_each(|outage| take(*outage, window, &mut passed));
        let by_window = passed.iter().enumerate().map(|(place, passed)| {
            let passing = (1.0 - share(&placed, place)) * (1.0 - share(&others, place));
            1.0 - passing * (*passed as f64 / window as f64)
        });
        let by_window = by_window.collect();
        let known = bursts.iter().filter(|burst| burst.is_placed || !overflows);
        Losses { by_window, unplaced, lost: self.departures(known, begun) }
    }

    fn bits_of(&self, number: usize) -> f64 {
        if self.packets[number].is_scout { self.bits.1 } else { self.bits.0 }
    }

    /// What these bursts took of the bottleneck's time. It was busy with one if each packet, and the arrival
    /// after them, came before the one before it had left.
    fn departures<'a>(
        &self,
        bursts: impl Iterator<Item = &'a Burst>,
        begun: i64,
    ) -> Vec<Departure> {
        let mut departures = Vec::new();
        for burst in bursts {
            let (first, after) = burst.numbers;
            let before = |number: usize| match number.checked_sub(first + 1) {
                Some(place) => burst.left(place),
                None => burst.left.0,
            };
            let waited = |number: usize| before(number) - (self.packets[number].sent - begun);
            let is_busy = (first..=after).all(|number| waited(number) >= QUEUED);
            departures.extend((first..after).map(|number| {
                let left = burst.left(number - first);
                let came = if is_busy { before(number) - QUEUED } else { left };
                Departure { came, left, bits: self.bits_of(number) }
            }));
        }
        departures.sort_by_key(|departure| departure.left);
        departures
    }

    /// From when until when nothing passed, ns, if this burst is an outage. One of which no packet came
    /// after the one before it had left may be due to a queue that was full.
    fn outage(&self, burst: &Burst, begun: i64) -> Option<(i64, i64)> {
        let (first, after) = burst.numbers;
        let sent = |number: usize| self.packets[number].sent - begun;
        let from = burst.left.0.max(sent(first));
        let last = after - 1;
        // Behind a queue the last one left later than it was sent, just before the next.
        let left = burst.left(last - first);
        let is_behind = left - sent(after) >= QUEUED;
        let until = if is_behind { left } else { sent(last).min(burst.left.1) };
        let is_long = after - first >= OUTAGE.0 && until - from >= OUTAGE.1;
        (is_long && sent(last) - burst.left.0 >= QUEUED).then_some((from, until))
    }

    /// Whether it is certain that the path lost this burst: it took the bottleneck's time, or the queue was
    /// empty.
    fn is_placed(&self, burst: &Burst, fates: &[Option<Fate>], begun: i64) -> bool {
        let (first, after) = burst.numbers;
        if after - first < PLACED.0 {
            return false;
        }
        let sent = |number: usize| self.packets[number].sent - begun;
        if sent(after - 1) - burst.left.0 >= QUEUED {
            return true;
        }
        // ns for a bit, of packets behind others.
        let pace = |numbers: &mut dyn Iterator<Item = usize>| {
            let (mut time, mut bits) = (0, 0.0);
            let spans = numbers.take(PACE.1).filter_map(|number| {
                let before = fates[number.checked_sub(1)?].filter(|fate| !fate.is_lost)?.left;
                let left = fates[number].filter(|fate| !fate.is_lost)?.left;
                (before - sent(number) >= QUEUED).then_some((left - before, self.bits_of(number)))
            });
            for (span, size) in spans.take(PACE.0) {
                (time, bits) = (time + span, bits + size);
            }
            (bits > 0.0).then(|| time as f64 / bits)
        };
        let before = pace(&mut (0..first).rev());
        let later = pace(&mut (after + 1..fates.len()));
        let Some(pace) = [before, later].into_iter().flatten().reduce(f64::max) else {
            return false;
        };
        let lost: f64 = (first..after).map(|number| self.bits_of(number)).sum();
        let taken = (burst.left.1 - burst.left.0) as f64 - self.bits_of(after) * pace;
        taken > lost * pace * PLACED.1
    }

    /// What became of the packets up to the last that arrived. (A copy without `Option` would be as large
    /// again.)
    fn fates(&self, arrivals: &[Arrival], begun: i64) -> Fates {
        let Some(last) = arrivals.iter().map(|arrival| arrival.number).max() else {
            return Fates::default();
        };
        let mut fates: Vec<Option<Fate>> = vec![None; last + 1];
        let (mut first, mut ahead) = (0, 0.0);
        for (place, arrival) in arrivals.iter().enumerate() {
            let waited = (arrival.at - arrival.sent - arrival.base).max(0) as f64;
            // Those that left since it was sent were before it in the queue.
            while first < place && arrivals[first].left() <= arrival.sent {
                ahead -= arrivals[first].bits;
                first += 1;
            }
            let left = arrival.left();
            let fate = Fate { left, waited, ahead, is_lost: false, is_placed: false };
            fates[arrival.number] = Some(fate);
            ahead += arrival.bits;
        }
        let (mut bursts, mut outages) = (Vec::new(), Vec::new());
        let mut before = fates[arrivals[0].number];
        let mut lost_since = 0;
        for number in 0..=last {
            let Some(after) = fates[number] else {
                lost_since += 1;
                continue;
            };
            let numbers = (number - lost_since, number);
            let was = before.replace(after);
            let Some(was) = was.filter(|_| std::mem::take(&mut lost_since) > 0) else { continue };
            let mut burst = Burst { numbers, left: (was.left, after.left), is_placed: false };
            if let Some(outage) = self.outage(&burst, begun) {
                outages.push(outage);
                continue;
            }
            burst.is_placed = self.is_placed(&burst, &fates, begun);
            // A lost packet was where those around it were: the longer queue of both counts.
            let (waited, ahead) = (was.waited.max(after.waited), was.ahead.max(after.ahead));
            for (place, lost) in (numbers.0..numbers.1).enumerate() {
                let (left, is_placed) = (burst.left(place), burst.is_placed);
                fates[lost] = Some(Fate { left, waited, ahead, is_lost: true, is_placed });
            }
            bursts.push(burst);
        }
        Fates { fates, bursts, outages }
    }
}

/// What became of all packets.
#[derive(Default)]
struct Fates {
    /// By number; none of those lost in an outage.
    fates: Vec<Option<Fate>>,
    bursts: Vec<Burst>,
    /// From when until when nothing passed, ns.
    outages: Vec<(i64, i64)>,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug)]
struct Fate {
    /// When it left the bottleneck, or would have, ns.
    left: i64,
    /// Queueing delay, ns.
    waited: f64,
    /// Bits that waited before it.
    ahead: f64,
    is_lost: bool,
    /// It is known that the path lost it.
    is_placed: bool,
}

/// Packets, and those lost.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    all: u64,
    lost: u64,
}

impl Tally {
    fn add(&mut self, fate: &Fate) {
        self.all += 1;
        self.lost += u64::from(fate.is_lost);
    }

    fn share(&self) -> f64 {
        if self.all == 0 { 0.0 } else { self.lost as f64 / self.all as f64 }
    }
}

/// Takes this time from what is left of each window of so many ns.
fn take((from, until): (i64, i64), window: i64, windows: &mut [i64]) {
    let first = usize::try_from(from.max(0) / window).unwrap_or(0);
    for (place, rest) in windows.iter_mut().enumerate().skip(first) {
        let begin = place as i64 * window;
        if begin >= until {
            break;
        }
        let common = until.min(begin + window) - from.max(begin);
        *rest = (*rest - common.max(0)).max(0);
    }
}

fn second_of(left: i64) -> usize {
    usize::try_from(left.max(0) / 1_000_000_000).unwrap_or(0)
}

/// The largest value of the packets of each second and those beside it.
fn most_by_second(fates: &[Option<Fate>], value: impl Fn(&Fate) -> f64) -> Vec<f64> {
    let fates = || fates.iter().flatten();
    let seconds = fates().map(|fate| second_of(fate.left)).max().unwrap_or(0) + 1;
    let mut most = vec![0.0_f64; seconds];
    for fate in fates() {
        let second = &mut most[second_of(fate.left)];
        *second = value(fate).max(*second);
    }
    let around = |second: usize| {
        let beside = &most[second.saturating_sub(1)..(second + 2).min(seconds)];
        beside.iter().copied().fold(0.0, f64::max)
    };
    (0..seconds).map(around).collect()
}
