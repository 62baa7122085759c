//! Which packets the path lost, and when; those that the recorder's own queue lost are not among them.

use super::control::{QUEUED, STALL_GAP};
use super::estimate::Arrival;
use super::rate::{Departure, place_of};
use super::recorder::Recording;
use super::refused::{Judged, Kinds, Refusal, Refused, Taken, shrunk};

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
pub(super) const MAX_COUNTED: f64 = 0.99;

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
    pub(super) unplaced: Vec<f64>,
    /// Packets that the bottleneck sent and the path lost, in the order of time.
    pub(super) lost: Vec<Departure>,
    /// In each window: the rate beyond which packets were refused without a queue, bit/s, if they were.
    pub(super) policed: Vec<Option<f64>>,
    /// What refused packets.
    pub(super) refused: Refused,
    /// So much more or less the loss may be, 0 to 1, as the causes are not told apart better: two standard errors.
    pub(super) doubt: f64,
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
pub(super) struct Burst {
    /// The first, and the one after the last.
    pub(super) numbers: (usize, usize),
    /// When the arrivals before and after them left the bottleneck, ns.
    pub(super) left: (i64, i64),
    /// The path lost it, not the recorder's queue.
    is_placed: bool,
    /// The bottleneck was idle in between: what passed of the time says nothing.
    is_idle: bool,
    /// What was lost next was sent after the queue had gone: how much time this took is not known.
    is_cut: bool,
}

impl Burst {
    const fn new(numbers: (usize, usize), left: (i64, i64)) -> Self {
        Self { numbers, left, is_placed: false, is_idle: false, is_cut: false }
    }

    /// Too few for it to be known of this burst alone whether it took the bottleneck's time.
    fn is_short(&self) -> bool {
        self.count() < PLACED.0
    }

    pub(super) fn count(&self) -> usize {
        self.numbers.1 - self.numbers.0
    }

    /// It is the path's, and took the bottleneck's time.
    fn is_paths(&self) -> bool {
        self.is_placed && !self.is_idle
    }

    /// When the packet of this place among them left, or would have: they are spread evenly.
    fn left(&self, place: usize) -> i64 {
        let (from, until) = self.left;
        let count = (self.numbers.1 - self.numbers.0) as i128 + 1;
        from + (i128::from((until - from).max(0)) * (place as i128 + 1) / count) as i64
    }
}

/// ns for a bit, of packets behind others: before a burst, and after it.
type Paces = (Option<f64>, Option<f64>);

/// Windows of the span over which losses are counted.
pub(super) fn windows_of_span(window: i64) -> usize {
    ((LOSS_SPAN * 1e9) as i64 / window).max(1) as usize
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
        let span = windows_of_span(window);
        let all = self.fates(arrivals, begun, (span as i64 * window, count.div_ceil(span)));
        let mut passing = vec![window; count];
        all.outages.iter().for_each(|outage| take(*outage, window, &mut passing));
        let times = (begun, window);
        let Judged { refusal, doubt } = self.refusal_of(&all, begun);
        let losses = match refusal {
            Refusal::None => self.losses_of_path(&all, &passing, times),
            Refusal::Queue { before } => self.losses_behind(&all, &passing, times, before),
            Refusal::Policer { loss } => self.losses_policed(&all, &passing, times, loss),
        };
        Losses { refused: refusal.refused(), doubt, ..losses }
    }

    /// When packets were first refused without a queue, ns, if they were.
    pub(super) fn policed_since(&self, arrivals: &[Arrival]) -> Option<i64> {
        let all = self.fates(arrivals, 0, (i64::MAX, 1));
        match self.refusal_of(&all, 0).refusal {
            Refusal::Policer { .. } => {
                let mut alone = all.bursts.iter().filter(|burst| !self.is_behind(burst, 0));
                alone.next().map(|burst| burst.left.0)
            }
            _ => None,
        }
    }

    fn refusal_of(&self, all: &Fates, begun: i64) -> Judged {
        let Fates { fates, bursts, taken, .. } = all;
        let mut kinds = Kinds::default();
        for burst in bursts.iter().filter(|burst| !self.packets[burst.numbers.0].is_scout) {
            let kind = match () {
                () if !self.is_behind(burst, begun) => &mut kinds.alone,
                () if burst.is_paths() => &mut kinds.placed,
                () => &mut kinds.queued,
            };
            *kind += burst.count() as u64;
        }
        let fate = |number: usize| {
            let fate = fates.get(number).copied().flatten()?;
            Some((fate.is_lost, fate.ahead))
        };
        self.refusal(fate, kinds, &taken.all)
    }

    /// Whether a queue waited while this burst was lost.
    pub(super) fn is_behind(&self, burst: &Burst, begun: i64) -> bool {
        let place = if burst.is_cut { burst.numbers.1 - 1 } else { burst.numbers.1 };
        burst.left.0 - (self.packets[place].sent - begun) >= QUEUED
    }

    /// Losses of a path whose queue refuses packets before it is full: those that took the bottleneck's
    /// time, and `before` of those before the queue.
    fn losses_behind(
        &self,
        all: &Fates,
        passing: &[i64],
        (begun, window): (i64, i64),
        before: f64,
    ) -> Losses {
        let Fates { fates, bursts, taken, .. } = all;
        let taken = taken.shares();
        let count = passing.len();
        let span = windows_of_span(window);
        let place = |left: i64| place_of(left, window, count) / span;
        // What was sent after the queue had gone was not refused by it.
        let is_gone =
            |burst: &Burst| self.packets[burst.numbers.0].sent - begun - burst.left.0 >= QUEUED;
        let weight = |burst: &Burst| match burst.is_paths() || is_gone(burst) {
            true => 1.0,
            false => taken[place(burst.left.1)],
        };
        let mut lost = vec![0.0; count.div_ceil(span)];
        let mut all = lost.clone();
        for burst in bursts {
            for number in 0..burst.count() {
                lost[place(burst.left(number))] += weight(burst);
            }
        }
        for fate in fates.iter().flatten().filter(|fate| !fate.is_lost) {
            all[place(fate.left)] += 1.0;
        }
        let by_window = passing.iter().enumerate().map(|(place, passed)| {
            let (lost, all) = (lost[place / span], all[place / span]);
            let share = if lost > 0.0 { lost / (lost + all) } else { 0.0 };
            1.0 - (1.0 - share) * (1.0 - before) * (*passed as f64 / window as f64)
        });
        // Of the others the time is not known.
        let is_known =
            |burst: &&Burst| burst.is_paths() || !burst.is_cut && self.is_behind(burst, begun);
        let known = bursts.iter().filter(is_known);
        let known = known.map(|burst| (burst, weight(burst)));
        Losses {
            by_window: by_window.collect(),
            unplaced: vec![before.min(MAX_COUNTED); count],
            lost: self.departures(known.filter(|(_, weight)| *weight > 0.0), begun),
            policed: vec![None; count],
            ..Losses::default()
        }
    }

    /// Losses of a path whose queue, if it loses any, loses them while it is full.
    fn losses_of_path(&self, all: &Fates, passing: &[i64], (begun, window): (i64, i64)) -> Losses {
        let Fates { fates, bursts, .. } = all;
        let count = passing.len();
        let span = windows_of_span(window);
        let longest = most_by_second(fates, |fate| fate.waited);
        let largest = most_by_second(fates, |fate| fate.ahead);
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
        let by_window = passing.iter().enumerate().map(|(place, passed)| {
            let kept = (1.0 - share(&placed, place)) * (1.0 - share(&others, place));
            1.0 - kept * (*passed as f64 / window as f64)
        });
        let by_window = by_window.collect();
        let known = bursts.iter().filter(|burst| burst.is_placed || !(overflows || burst.is_cut));
        let lost = self.departures(known.map(|burst| (burst, 1.0)), begun);
        Losses { by_window, unplaced, lost, policed: vec![None; count], ..Losses::default() }
    }

    fn bits_of(&self, number: usize) -> f64 {
        if self.packets[number].is_scout { self.bits.1 } else { self.bits.0 }
    }

    /// What these bursts took of the bottleneck's time, as so many times their packets. It was busy with one if each packet, and the arrival
    /// after them, came before the one before it had left.
    fn departures<'a>(
        &self,
        bursts: impl Iterator<Item = (&'a Burst, f64)>,
        begun: i64,
    ) -> Vec<Departure> {
        let mut departures = Vec::new();
        for (burst, weight) in bursts {
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
                Departure { came, left, bits: self.bits_of(number) * weight }
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
        let last = self.witnessed(first..after);
        // Behind a queue the last one left later than it was sent, just before the next.
        let left = burst.left(last - first);
        let is_behind = left - sent(after) >= QUEUED;
        let until = if is_behind { left } else { sent(last).min(burst.left.1) };
        let is_long = last + 1 - first >= OUTAGE.0 && until - from >= OUTAGE.1;
        (is_long && sent(last) - burst.left.0 >= QUEUED).then_some((from, until))
    }

    /// The last of these lost packets that shows an outage: while nothing was sent nothing was lost, and of what was
    /// sent after that one or two may be lost for another reason.
    fn witnessed(&self, lost: std::ops::Range<usize>) -> usize {
        let is_far = |number: &usize| {
            self.packets[*number].sent - self.packets[number - 1].sent
                > 2 * STALL_GAP.as_nanos() as i64
        };
        let (first, mut last) = (lost.start, lost.end - 1);
        while let Some(after) = (first + 1..=last).rev().find(is_far) {
            if last + 1 - after >= PLACED.0 {
                break;
            }
            last = after - 1;
        }
        last
    }

    /// Whether it is certain that the path lost this burst: it took the bottleneck's time, or the queue was
    /// empty.
    fn is_placed(&self, burst: &Burst, (before, later): Paces, begun: i64) -> bool {
        let (first, after) = burst.numbers;
        if burst.is_short() {
            return false;
        }
        let sent = |number: usize| self.packets[number].sent - begun;
        if sent(after - 1) - burst.left.0 >= QUEUED {
            return true;
        }
        let Some(pace) = [before, later].into_iter().flatten().reduce(f64::max) else {
            return false;
        };
        let lost: f64 = (first..after).map(|number| self.bits_of(number)).sum();
        let taken = (burst.left.1 - burst.left.0) as f64 - self.bits_of(after) * pace;
        taken > lost * pace * PLACED.1
    }

    /// ns for a bit, of packets behind others: before this burst, and after it.
    fn paces(&self, burst: &Burst, fates: &[Option<Fate>], begun: i64) -> Paces {
        let (first, after) = burst.numbers;
        let sent = |number: usize| self.packets[number].sent - begun;
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
        (pace(&mut (0..first).rev()), pace(&mut (after + 1..fates.len())))
    }

    /// Whether the queue was empty before the packet after this burst came, and all of the burst was sent
    /// before.
    fn is_idle(&self, burst: &Burst, (before, later): Paces, begun: i64) -> bool {
        let (_, after) = burst.numbers;
        let sent = |number: usize| self.packets[number].sent - begun;
        if self.is_behind(burst, begun) || sent(after - 1) - burst.left.0 >= QUEUED {
            return false;
        }
        let pace = before.or(later).unwrap_or(0.0);
        (burst.left.1 - sent(after)) as f64 - self.bits_of(after) * pace < QUEUED as f64
    }

    /// The time that this burst took of the bottleneck, and would have taken, ns, if it was lost behind a
    /// queue and is not known to be the path's.
    fn taken(&self, burst: &Burst, (before, later): Paces, begun: i64) -> Option<(f64, f64)> {
        if burst.is_placed || burst.is_cut || !self.is_behind(burst, begun) {
            return None;
        }
        let pace = f64::midpoint(before.or(later)?, later.or(before)?);
        let (first, after) = burst.numbers;
        let lost: f64 = (first..after).map(|number| self.bits_of(number)).sum();
        let span = (burst.left.1 - burst.left.0) as f64;
        Some((span - self.bits_of(after) * pace, lost * pace))
    }

    /// A burst, or both of it: what was sent behind a queue, and what after that had gone. A queue that refuses
    /// something does so to the first only.
    fn cut(&self, burst: Burst, begun: i64) -> impl Iterator<Item = Burst> {
        let (first, after) = burst.numbers;
        let is_gone = |number: &usize| self.packets[*number].sent - begun - burst.left.0 >= QUEUED;
        let gone = (first..after).find(is_gone).unwrap_or(after);
        let is_two = gone > first && gone < after;
        let begin =
            Burst { is_cut: true, ..Burst::new((first, gone), (burst.left.0, burst.left.0)) };
        let rest = if is_two { Burst::new((gone, after), burst.left) } else { burst };
        is_two.then_some(begin).into_iter().chain([rest])
    }

    /// What became of the packets up to the last that arrived. (A copy without `Option` would be as large
    /// again.)
    ///
    /// What losses took of the bottleneck's time is by spans of so many ns, and so many of them.
    fn fates(&self, arrivals: &[Arrival], begun: i64, spans: (i64, usize)) -> Fates {
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
        let mut taken =
            TakenBySpan { all: Taken::default(), spans: vec![Taken::default(); spans.1] };
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
            let whole = Burst::new(numbers, (was.left, after.left));
            if let Some(outage) = self.outage(&whole, begun) {
                outages.push(outage);
                continue;
            }
            for mut burst in self.cut(whole, begun) {
                let paces = self.paces(&burst, &fates, begun);
                burst.is_placed = self.is_placed(&burst, paces, begun);
                burst.is_idle = self.is_idle(&burst, paces, begun);
                if let Some((time, due)) = self.taken(&burst, paces, begun) {
                    taken.all.add(time, due);
                    taken.spans[place_of(after.left, spans.0, spans.1)].add(time, due);
                }
                // A lost packet was where those around it were: the longer queue of both counts.
                let (waited, ahead) = (was.waited.max(after.waited), was.ahead.max(after.ahead));
                for (place, lost) in (burst.numbers.0..burst.numbers.1).enumerate() {
                    let (left, is_placed) = (burst.left(place), burst.is_placed);
                    fates[lost] = Some(Fate { left, waited, ahead, is_lost: true, is_placed });
                }
                bursts.push(burst);
            }
        }
        Fates { fates, bursts, outages, taken }
    }
}

/// What became of all packets.
#[derive(Default)]
pub(super) struct Fates {
    /// By number; none of those lost in an outage.
    pub(super) fates: Vec<Option<Fate>>,
    pub(super) bursts: Vec<Burst>,
    /// From when until when nothing passed, ns.
    outages: Vec<(i64, i64)>,
    taken: TakenBySpan,
}

/// Of bursts behind a queue of which it is not known who lost them.
#[derive(Default)]
struct TakenBySpan {
    all: Taken,
    spans: Vec<Taken>,
}

impl TakenBySpan {
    /// The share of losses behind the bottleneck in each span.
    fn shares(&self) -> Vec<f64> {
        let usual = if self.all.is_some() { self.all.share() } else { None };
        let Some(usual) = usual else { return vec![0.0; self.spans.len()] };
        let seen: Vec<_> = self.spans.iter().map(|span| span.seen(&self.all)).collect();
        shrunk(&seen).into_iter().map(|share| share.unwrap_or(usual).clamp(0.0, 1.0)).collect()
    }
}

/// What became of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fate {
    /// When it left the bottleneck, or would have, ns.
    pub(super) left: i64,
    /// Queueing delay, ns.
    waited: f64,
    /// Bits that waited before it.
    ahead: f64,
    pub(super) is_lost: bool,
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
