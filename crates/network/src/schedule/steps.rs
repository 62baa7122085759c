//! A value that changes at known times.

use core::fmt;
use std::sync::Arc;

use ontempo_foundation::{Duration, Time};

/// A value as a function of time: each holds from its time to the next; repeats after a period if
/// it has one. Clones share the steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps<T> {
    /// Ascending; the first is zero.
    times: Arc<[Time]>,
    values: Arc<[T]>,
    period: Option<Duration>,
}

/// Times that make no schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleError {
    /// There is no step, opportunity or part.
    Empty,
    /// The first value holds only from this time on, not from the start.
    LateStart(Time),
    /// The item at this place, from 0, is no later than the one before it (an opportunity:
    /// earlier than the one before it).
    Backwards(usize),
    /// The schedule repeats before its last step begins, or at once.
    ShortPeriod(Duration),
    /// A light trace of so few lines.
    FewLines(usize),
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a schedule needs at least one step"),
            Self::LateStart(time) => write!(f, "a schedule begins at 0 s, not at {time}"),
            Self::Backwards(place) => write!(f, "step {place} of a schedule goes back in time"),
            Self::ShortPeriod(period) => {
                write!(f, "a schedule cannot repeat after {period}, before its last step")
            }
            Self::FewLines(count) => write!(f, "a light trace of {count} lines is too short"),
        }
    }
}

impl core::error::Error for ScheduleError {}

impl<T: Copy> Steps<T> {
    /// Values and the times from which they hold, the first zero, each later than the one before
    /// it; they repeat after `period`, if given, which is longer than the last time.
    ///
    /// # Errors
    /// There is no step, or times or period are not so.
    pub fn new(
        steps: impl IntoIterator<Item = (Time, T)>,
        period: Option<Duration>,
    ) -> Result<Self, ScheduleError> {
        let (times, values): (Vec<Time>, Vec<T>) = steps.into_iter().unzip();
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            return Err(ScheduleError::Empty);
        };
        if *first > Time::ZERO {
            return Err(ScheduleError::LateStart(*first));
        }
        if let Some(place) = times.windows(2).position(|pair| pair[0] >= pair[1]) {
            return Err(ScheduleError::Backwards(place + 1));
        }
        if let Some(period) = period.filter(|period| last.since(Time::ZERO) >= *period) {
            return Err(ScheduleError::ShortPeriod(period));
        }
        Ok(Self { times: times.into(), values: values.into(), period })
    }

    /// One value throughout.
    pub fn constant(value: T) -> Self {
        Self { times: [Time::ZERO].into(), values: [value].into(), period: None }
    }

    /// The value at `time`.
    pub fn at(&self, time: Time) -> T {
        self.values[self.place(self.phase(time).1)]
    }

    /// The first step after `time`; [`Time::NEVER`] if none follows.
    pub fn next_change(&self, time: Time) -> Time {
        let (begun, phase) = self.phase(time);
        let within = self.times.get(self.place(phase) + 1).map(|next| next.since(Time::ZERO));
        let within = within.or(self.period.filter(|_| self.times.len() > 1));
        within.map_or(Time::NEVER, |within| begun + within)
    }

    /// The times and values of one period.
    pub fn iter(&self) -> impl Iterator<Item = (Time, T)> + '_ {
        self.times.iter().copied().zip(self.values.iter().copied())
    }

    /// After which time the steps repeat.
    pub const fn period(&self) -> Option<Duration> {
        self.period
    }

    /// When the repetition around `time` began, and the time within it.
    pub(super) fn phase(&self, time: Time) -> (Time, Time) {
        let Some(period) = self.period else { return (Time::ZERO, time) };
        let phase = time.as_nanos() % period.as_nanos();
        (time - Duration::from_nanos(phase), Time::from_nanos(phase))
    }

    /// The place of the step that holds at `phase`.
    pub(super) fn place(&self, phase: Time) -> usize {
        self.times.partition_point(|from| *from <= phase).saturating_sub(1)
    }

    pub(super) fn times(&self) -> &[Time] {
        &self.times
    }

    pub(super) fn values(&self) -> &[T] {
        &self.values
    }
}

/// Steps that are replaced by others at known times.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline<T> {
    parts: Box<[(Time, Steps<T>)]>,
}

impl<T: Copy + PartialEq> Timeline<T> {
    /// Steps and the times from which they hold, the first zero, each later than the one before
    /// it. Steps are in absolute time: they do not begin anew where a part begins.
    ///
    /// # Errors
    /// There is no part, or the times are not so.
    pub fn new(parts: Vec<(Time, Steps<T>)>) -> Result<Self, ScheduleError> {
        check_parts(parts.iter().map(|(from, _)| *from))?;
        Ok(Self { parts: parts.into() })
    }

    /// The value at `time`.
    pub fn at(&self, time: Time) -> T {
        self.parts[part_at(&self.parts, time)].1.at(time)
    }

    /// The first time after `time` at which the value may change; [`Time::NEVER`] if none follows.
    pub fn next_change(&self, time: Time) -> Time {
        let place = part_at(&self.parts, time);
        let next = self.parts.get(place + 1).map_or(Time::NEVER, |(from, _)| *from);
        self.parts[place].1.next_change(time).min(next)
    }
}

fn part_at<T>(parts: &[(Time, Steps<T>)], time: Time) -> usize {
    parts.partition_point(|(from, _)| *from <= time).saturating_sub(1)
}

/// Whether parts begin at zero and each after the one before it.
pub(super) fn check_parts(froms: impl Iterator<Item = Time>) -> Result<(), ScheduleError> {
    let mut before = None;
    for (place, from) in froms.enumerate() {
        match before {
            None if from > Time::ZERO => return Err(ScheduleError::LateStart(from)),
            Some(before) if before >= from => return Err(ScheduleError::Backwards(place)),
            _ => before = Some(from),
        }
    }
    before.map(|_| ()).ok_or(ScheduleError::Empty)
}
