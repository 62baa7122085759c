//! CellReplay: what a cellular network does under light load, and under heavy load.
//!
//! Sentosa et al., "CellReplay: Towards accurate record-and-replay for cellular networks", NSDI 2025.
//! A packet first passes the stage of the light trace: a base delay, and the opportunities of a
//! *packet train*. What finds none left passes the queue of the heavy trace besides.

use std::collections::VecDeque;
use std::ops::Range;

use ontempo_foundation::{Bytes, Duration, Packets, Time};

use crate::{Occupancy, ScheduleError};

/// The fewest lines of a light trace, as in the paper's program.
const MIN_LINES: usize = 3;

/// The resolution of the traces, and of the clock of the paper's program: "more than `timer`" counts
/// whole milliseconds. Without it every packet of a burst would begin a train of its own if `timer`
/// is zero.
const RESOLUTION: Duration = Duration::from_millis(1);

/// How a link treats packets that come alone or in short trains; the capacity of the link's
/// [`Schedule`](crate::Schedule) is that of the heavy trace.
#[derive(Clone, Debug, PartialEq)]
pub struct CellReplay {
    /// The light trace.
    pub light: LightTrace,
    /// A packet begins a train if, with the base delay of the one before it, it is due later than the
    /// last release by more than this, in whole milliseconds.
    pub timer: Duration,
    /// What leaves at one opportunity of the light trace; more than 0.
    pub opportunity: Bytes,
}

/// A line of a light trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LightLine {
    /// When the train was sent.
    pub time: Time,
    /// The delay of its first packet.
    pub base_delay: Duration,
    /// The place of its first opportunity in the list of all; the last is before that of the next line.
    pub first: usize,
}

/// Base delays and packet trains over time; they repeat after the time of the last line.
#[derive(Clone, Debug, PartialEq)]
pub struct LightTrace {
    lines: Box<[LightLine]>,
    /// Of all lines, each in milliseconds since the first packet of its train.
    opportunities: Box<[u32]>,
    period: Duration,
}

const fn since_first(opportunity: u32) -> Duration {
    Duration::from_millis(opportunity as u64)
}

impl LightTrace {
    /// Three lines or more, in the order of time, the last after zero; each with one opportunity or
    /// more, in milliseconds since the first packet of its train, which do not go back.
    ///
    /// # Errors
    /// The lines or opportunities are not so.
    pub fn new(lines: Vec<LightLine>, opportunities: Vec<u32>) -> Result<Self, ScheduleError> {
        if lines.len() < MIN_LINES {
            return Err(ScheduleError::FewLines(lines.len()));
        }
        if let Some(place) = lines.windows(2).position(|pair| pair[0].time > pair[1].time) {
            return Err(ScheduleError::Backwards(place + 1));
        }
        let ends = lines[1..].iter().map(|line| line.first).chain([opportunities.len()]);
        for (place, (line, end)) in lines.iter().zip(ends).enumerate() {
            match opportunities.get(line.first..end) {
                None | Some([]) => return Err(ScheduleError::Empty),
                Some(train) if !train.is_sorted() => return Err(ScheduleError::Backwards(place)),
                Some(_) => {}
            }
        }
        let period = lines.last().map_or(Duration::ZERO, |last| last.time.since(Time::ZERO));
        if period == Duration::ZERO {
            return Err(ScheduleError::ShortPeriod(period));
        }
        Ok(Self { lines: lines.into(), opportunities: opportunities.into(), period })
    }

    /// Its lines.
    pub fn lines(&self) -> &[LightLine] {
        &self.lines
    }

    /// How many opportunities all lines have together.
    pub const fn opportunity_count(&self) -> usize {
        self.opportunities.len()
    }

    /// After which time it repeats.
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// The base delay at `time`: on the straight line between those of the lines around it; before the
    /// first line, that of the first.
    pub fn base_delay(&self, time: Time) -> Duration {
        let phase = self.phase(time);
        let place = self.place(phase);
        let (one, next) = (&self.lines[place], self.lines.get(place + 1));
        let Some(next) = next.filter(|next| next.time > phase && one.time <= phase) else {
            return one.base_delay;
        };
        let part = |change: Duration| {
            let [since, span] = [phase, next.time].map(|time| time.since(one.time).as_nanos());
            let nanos = u128::from(change.as_nanos()) * u128::from(since) / u128::from(span);
            Duration::from_nanos(nanos as u64)
        };
        if next.base_delay > one.base_delay {
            one.base_delay + part(next.base_delay - one.base_delay)
        } else {
            one.base_delay - part(one.base_delay - next.base_delay)
        }
    }

    /// The opportunities of a train that begins at `time`, as places in the list of all.
    fn train(&self, time: Time) -> Range<usize> {
        let place = self.place(self.phase(time));
        let end = self.lines.get(place + 1).map_or(self.opportunities.len(), |next| next.first);
        self.lines[place].first..end
    }

    fn phase(&self, time: Time) -> Time {
        Time::from_nanos(time.as_nanos() % self.period.as_nanos())
    }

    /// The last line that is not after `phase`; the first if all are.
    fn place(&self, phase: Time) -> usize {
        self.lines.partition_point(|line| line.time <= phase).saturating_sub(1)
    }
}

/// What a link does with a packet at the end of the light stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    /// When it leaves the stage.
    pub(crate) at: Time,
    /// Whether it has had an opportunity of its train, so that it passes the queue of the heavy trace
    /// if that is empty.
    pub(crate) is_light: bool,
}

/// The state of a link that follows a pair of traces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replay {
    /// `None` before the first packet.
    train: Option<Train>,
    last_release: Time,
    /// What has not left yet, in order.
    passing: VecDeque<Passing>,
    /// Bytes of all packets that were admitted.
    bytes: u64,
}

#[derive(Clone, Debug)]
struct Train {
    begins: Time,
    base_delay: Duration,
    /// The opportunities that are not used up, as places in the list of all.
    rest: Range<usize>,
    /// Bytes left of the first of them.
    left: u64,
}

/// A packet between the end of its light stage and its departure.
#[derive(Clone, Copy, Debug)]
struct Passing {
    /// When it leaves the light stage.
    enters: Time,
    /// When it is next to leave the queue of the heavy trace; as `enters` without a wait.
    starts: Time,
    /// When it has left; as `enters` if it passes that queue.
    ends: Time,
    /// [`Replay::bytes`] before it.
    before: u64,
}

impl Train {
    /// Uses the opportunities left for a packet; the place of the one that carries its last byte, `None`
    /// if they do not suffice. A packet that fits into one opportunity is not divided; a larger one uses
    /// what is left of one and parts of the next.
    fn take(&mut self, size: u64, opportunity: u64) -> Option<usize> {
        let skipped = match size {
            size if size <= self.left => 0,
            size if size <= opportunity => 1,
            size => (size - self.left).div_ceil(opportunity),
        };
        let place = usize::try_from(skipped).unwrap_or(usize::MAX).saturating_add(self.rest.start);
        if place >= self.rest.end {
            self.rest.start = self.rest.end;
            return None;
        }
        self.left = match skipped {
            0 => self.left - size,
            1 if size <= opportunity => opportunity - size,
            more => self.left + more * opportunity - size,
        };
        self.rest.start = place;
        Some(place)
    }
}

impl Replay {
    /// When a packet that arrives at `now`, no earlier than the one before it, leaves the light stage.
    pub(crate) fn release(&mut self, cell: &CellReplay, now: Time, size: Bytes) -> Release {
        let opportunity = cell.opportunity.get().max(1);
        let begins_train = |train: &&mut Train| {
            now + train.base_delay >= self.last_release + cell.timer + RESOLUTION
        };
        let (at, is_light) = match self.train.as_mut().filter(|train| !begins_train(train)) {
            None => {
                let base_delay = cell.light.base_delay(now);
                let rest = cell.light.train(now);
                let train = Train { begins: now, base_delay, rest, left: opportunity };
                // The first packet waits for no opportunity, but uses it.
                self.train.insert(train).take(size.get(), opportunity);
                (now + base_delay, true)
            }
            Some(train) => {
                let all = &cell.light.opportunities;
                let missed = all[train.rest.clone()]
                    .partition_point(|one| train.begins + since_first(*one) < now);
                if missed > 0 {
                    (train.rest.start, train.left) = (train.rest.start + missed, opportunity);
                }
                match train.take(size.get(), opportunity) {
                    Some(place) => {
                        (train.begins + since_first(all[place]) + train.base_delay, true)
                    }
                    None => (now + train.base_delay, false),
                }
            }
        };
        // A train of a shorter base delay does not overtake the one before it: as in the paper's
        // program, it joins the queue behind it.
        let is_light = is_light && at >= self.last_release;
        self.last_release = self.last_release.max(at);
        Release { at: self.last_release, is_light }
    }

    /// Forgets what has left by `now`.
    pub(crate) fn settle(&mut self, now: Time) {
        while self.passing.front().is_some_and(|packet| packet.ends <= now) {
            self.passing.pop_front();
        }
    }

    /// A packet enters the queue at `enters` (no earlier than the one before it), is next from `starts` and
    /// leaves it at `ends`.
    pub(crate) fn admit(&mut self, (enters, starts, ends): (Time, Time, Time), size: Bytes) {
        self.passing.push_back(Passing { enters, starts, ends, before: self.bytes });
        self.bytes += size.get();
    }

    /// What waits in the queue of the heavy trace at `time`, no earlier than the last call of
    /// [`settle`](Self::settle).
    pub(crate) fn waiting(&self, time: Time) -> Occupancy {
        let entered = self.passing.partition_point(|packet| packet.enters <= time);
        let started = self.passing.partition_point(|packet| packet.starts <= time);
        self.between(started, entered)
    }

    /// What is on its way to that queue, or waits in it, at `time`.
    pub(crate) fn not_started(&self, time: Time) -> Occupancy {
        let started = self.passing.partition_point(|packet| packet.starts <= time);
        self.between(started, self.passing.len())
    }

    /// The packets from one place of `passing` to another.
    fn between(&self, from: usize, to: usize) -> Occupancy {
        let before = |place: usize| self.passing.get(place).map_or(self.bytes, |one| one.before);
        Occupancy {
            packets: Packets::new(to.saturating_sub(from) as u64),
            bytes: Bytes::new(before(to).saturating_sub(before(from))),
        }
    }

    /// The waits of all packets after `until`, in nanoseconds.
    pub(crate) fn wait_after(&self, until: Time) -> u128 {
        let wait = |one: &Passing| u128::from(one.starts.since(one.enters.max(until)).as_nanos());
        self.passing.iter().map(wait).sum()
    }

    /// The time after `until` that transmissions take.
    pub(crate) fn busy_after(&self, until: Time) -> Duration {
        self.passing.iter().map(|one| one.ends.since(one.starts.max(until))).sum()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
