//! How much a link has sent by a given time, if it always has something to send.
//!
//! Work is counted in billionths of a bit: what one bit a second sends in a nanosecond. With rates
//! and times in whole numbers all sums are exact; only the end of a transmission is rounded, up to
//! a nanosecond, as on a link of constant rate.

use std::sync::Arc;

use ontempo_foundation::{Bytes, Duration, Rate, Time};

use super::steps::{ScheduleError, Steps, check_parts};

/// What leaves at one opportunity of a mahimahi trace, unless its reader says otherwise.
pub const OPPORTUNITY: Bytes = Bytes::new(1500);

/// Work of a byte.
const BYTE: u128 = 8 * 1_000_000_000;

/// How a link's capacity comes.
#[derive(Clone, Debug, PartialEq)]
pub enum RateLaw {
    /// At one rate.
    Constant(Rate),
    /// At rates that change at known times.
    Steps(Arc<RateSteps>),
    /// In opportunities to send so many bytes at once.
    Opportunities(Arc<Opportunities>),
}

/// Rates that change at known times.
#[derive(Clone, Debug, PartialEq)]
pub struct RateSteps {
    steps: Steps<Rate>,
    /// Work done before each step, from the start of the period.
    before: Box<[u128]>,
    /// Work of a whole period; 0 without one.
    of_period: u128,
}

/// Times at each of which up to 1,500 bytes leave, or as many as are given; they repeat after the last
/// of them.
///
/// The format of the network emulator mahimahi (Netravali et al., "Mahimahi: accurate
/// record-and-replay for HTTP", USENIX ATC 2015): a packet may use the rest of one opportunity and a
/// part of the next; what no waiting packet uses is lost.
#[derive(Clone, Debug, PartialEq)]
pub struct Opportunities {
    /// Ascending; several may be equal. The last is the period.
    times: Box<[Time]>,
    period: Duration,
    /// What leaves at each.
    size: Bytes,
}

/// A link's capacity over the whole run: laws, each from a time on.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    parts: Box<[Part]>,
}

#[derive(Clone, Debug, PartialEq)]
struct Part {
    from: Time,
    /// Work done by all parts before this one.
    before: u128,
    /// What the law would have done before `from`.
    skipped: u128,
    law: RateLaw,
}

/// The end of a transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When the last bit leaves; [`Time::NEVER`] if nothing comes any more.
    pub ends: Time,
    /// What is left of the opportunities of that moment, for a packet that already waits; in
    /// billionths of a bit.
    pub left: u128,
}

impl RateSteps {
    /// The law of these steps.
    pub fn new(steps: Steps<Rate>) -> Self {
        let (times, rates) = (steps.times(), steps.values());
        let ends = times[1..].iter().copied();
        let period_ends = steps.period().map(|period| Time::ZERO + period);
        let mut before = Vec::with_capacity(times.len());
        let mut sum = 0;
        for ((begins, rate), ends) in times.iter().zip(rates).zip(ends.chain(period_ends)) {
            before.push(sum);
            sum += work(*rate, ends.since(*begins));
        }
        let of_period = if steps.period().is_some() { sum } else { 0 };
        if before.len() < times.len() {
            before.push(sum);
        }
        Self { steps, before: before.into(), of_period }
    }

    /// The steps.
    pub const fn steps(&self) -> &Steps<Rate> {
        &self.steps
    }

    fn by(&self, time: Time) -> u128 {
        let (begun, phase) = self.steps.phase(time);
        let place = self.steps.place(phase);
        let periods = self.steps.period().map_or(0, |period| begun.as_nanos() / period.as_nanos());
        let since = phase.since(self.steps.times()[place]);
        u128::from(periods) * self.of_period
            + self.before[place]
            + work(self.steps.values()[place], since)
    }

    /// When `amount`, more than 0, is done.
    fn when(&self, amount: u128) -> Time {
        let (begun, rest) = match self.steps.period() {
            Some(_) if self.of_period == 0 => return Time::NEVER,
            Some(period) => {
                let periods = (amount - 1) / self.of_period;
                let rest = amount - periods * self.of_period;
                (periods.saturating_mul(u128::from(period.as_nanos())), rest)
            }
            None => (0, amount),
        };
        let place = self.before.partition_point(|before| *before < rest).saturating_sub(1);
        let rate = self.steps.values()[place];
        let Some(span) = span(rate, rest - self.before[place]) else { return Time::NEVER };
        let begins = u128::from(self.steps.times()[place].as_nanos());
        at(begun.saturating_add(begins).saturating_add(span))
    }
}

impl Opportunities {
    /// Opportunities of 1,500 bytes at these times, ascending, where several may be equal; they repeat
    /// after the last.
    ///
    /// # Errors
    /// There is none, the times go back, or the last is zero.
    pub fn new(times: Vec<Time>) -> Result<Self, ScheduleError> {
        Self::of_size(times, OPPORTUNITY)
    }

    /// Opportunities of `size`, more than 0.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_size(times: Vec<Time>, size: Bytes) -> Result<Self, ScheduleError> {
        let Some(last) = times.last() else { return Err(ScheduleError::Empty) };
        if let Some(place) = times.windows(2).position(|pair| pair[0] > pair[1]) {
            return Err(ScheduleError::Backwards(place + 1));
        }
        let period = last.since(Time::ZERO);
        if period == Duration::ZERO {
            return Err(ScheduleError::ShortPeriod(period));
        }
        Ok(Self { times: times.into(), period, size: size.max(Bytes::new(1)) })
    }

    /// The rate that the opportunities amount to.
    pub fn mean_rate(&self) -> Rate {
        Rate::of(self.size * self.times.len() as u64, self.period)
    }

    /// How many there are before they repeat.
    pub const fn count(&self) -> usize {
        self.times.len()
    }

    /// After which time they repeat.
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// Work of one.
    fn work(&self) -> u128 {
        u128::from(self.size.get()) * BYTE
    }

    fn by(&self, time: Time) -> u128 {
        let (periods, phase) =
            (time.as_nanos() / self.period.as_nanos(), time.as_nanos() % self.period.as_nanos());
        let within = self.times.partition_point(|one| one.as_nanos() <= phase);
        (u128::from(periods) * self.times.len() as u128 + within as u128) * self.work()
    }

    fn when(&self, amount: u128) -> Time {
        let place = amount.div_ceil(self.work()).saturating_sub(1);
        let count = self.times.len() as u128;
        let (periods, within) = (place / count, (place % count) as usize);
        let begun = periods.saturating_mul(u128::from(self.period.as_nanos()));
        at(begun.saturating_add(u128::from(self.times[within].as_nanos())))
    }
}

impl RateLaw {
    /// Work done from the start to `time`, with what leaves at `time` itself.
    fn by(&self, time: Time) -> u128 {
        match self {
            Self::Constant(rate) => work(*rate, time.since(Time::ZERO)),
            Self::Steps(steps) => steps.by(time),
            Self::Opportunities(opportunities) => opportunities.by(time),
        }
    }

    /// Work done from the start to `time`, without what leaves at `time` itself.
    fn before(&self, time: Time) -> u128 {
        match self {
            Self::Opportunities(_) if time == Time::ZERO => 0,
            Self::Opportunities(opportunities) => opportunities.by(time - Duration::from_nanos(1)),
            _ => self.by(time),
        }
    }

    /// When `amount`, more than 0, is done.
    fn when(&self, amount: u128) -> Time {
        match self {
            Self::Constant(rate) => span(*rate, amount).map_or(Time::NEVER, at),
            Self::Steps(steps) => steps.when(amount),
            Self::Opportunities(opportunities) => opportunities.when(amount),
        }
    }

    fn rate_at(&self, time: Time) -> Rate {
        match self {
            Self::Constant(rate) => *rate,
            Self::Steps(steps) => steps.steps.at(time),
            Self::Opportunities(opportunities) => opportunities.mean_rate(),
        }
    }
}

impl Capacity {
    /// Laws and the times from which they hold, the first zero, each later than the one before it.
    /// Laws are in absolute time: they do not begin anew where a part begins.
    ///
    /// # Errors
    /// There is no part, or the times are not so.
    pub fn new(laws: impl IntoIterator<Item = (Time, RateLaw)>) -> Result<Self, ScheduleError> {
        let laws: Vec<_> = laws.into_iter().collect();
        check_parts(laws.iter().map(|(from, _)| *from))?;
        let mut parts: Vec<Part> = Vec::with_capacity(laws.len());
        for (from, law) in laws {
            let before =
                parts.last().map_or(0, |last| last.before + (last.law.before(from) - last.skipped));
            parts.push(Part { from, before, skipped: law.before(from), law });
        }
        Ok(Self { parts: parts.into() })
    }

    /// A transmission of `size` that starts at `starts`. A packet that waited for the end of the
    /// one before it also uses what that one `left` of its last opportunity; others pass 0.
    pub fn send(&self, starts: Time, left: u128, size: Bytes) -> Sent {
        if starts == Time::NEVER || size == Bytes::ZERO {
            return Sent { ends: starts, left };
        }
        let begins = self.by(starts).saturating_sub(left);
        let target = begins.saturating_add(u128::from(size.get()) * BYTE);
        let part = self.parts.partition_point(|part| part.before < target).saturating_sub(1);
        let part = &self.parts[part];
        let ends = part.law.when(part.skipped.saturating_add(target - part.before));
        let ends = ends.max(part.from).max(starts);
        let is_opportunity =
            ends < Time::NEVER && matches!(self.law_at(ends), RateLaw::Opportunities(_));
        let left = if is_opportunity { self.by(ends).saturating_sub(target) } else { 0 };
        Sent { ends, left }
    }

    /// The rate at `time`; of opportunities, their mean rate.
    pub fn rate_at(&self, time: Time) -> Rate {
        self.law_at(time).rate_at(time)
    }

    /// The mean rate from `from` to `to`; the rate at `to` if no time lies between them.
    pub fn mean_rate(&self, from: Time, to: Time) -> Rate {
        let span = to.since(from);
        if span == Duration::ZERO || self.rate_at(to) == Rate::UNLIMITED {
            return self.rate_at(to);
        }
        let bits = self.by(to).saturating_sub(self.by(from)) / u128::from(span.as_nanos());
        Rate::from_bits_per_sec(u64::try_from(bits).unwrap_or(u64::MAX))
    }

    /// The first time after `time` at which the rate may change, opportunities counted as one rate;
    /// [`Time::NEVER`] if none follows.
    pub fn next_change(&self, time: Time) -> Time {
        let place = self.place(time);
        let next = self.parts.get(place + 1).map_or(Time::NEVER, |part| part.from);
        match &self.parts[place].law {
            RateLaw::Steps(steps) => steps.steps.next_change(time).min(next),
            RateLaw::Constant(_) | RateLaw::Opportunities(_) => next,
        }
    }

    /// Whether the rate at `time` is that of opportunities.
    pub fn has_opportunities(&self, time: Time) -> bool {
        matches!(self.law_at(time), RateLaw::Opportunities(_))
    }

    fn place(&self, time: Time) -> usize {
        self.parts.partition_point(|part| part.from <= time).saturating_sub(1)
    }

    fn law_at(&self, time: Time) -> &RateLaw {
        &self.parts[self.place(time)].law
    }

    /// Work done from the start to `time`, with what leaves at `time` itself.
    fn by(&self, time: Time) -> u128 {
        let part = &self.parts[self.place(time)];
        part.before + (part.law.by(time) - part.skipped)
    }
}

fn work(rate: Rate, span: Duration) -> u128 {
    u128::from(rate.as_bits_per_sec()) * u128::from(span.as_nanos())
}

/// How many nanoseconds `amount` takes at `rate`, rounded up; `None` for ever.
fn span(rate: Rate, amount: u128) -> Option<u128> {
    match rate.as_bits_per_sec() {
        _ if amount == 0 || rate == Rate::UNLIMITED => Some(0),
        0 => None,
        bits => Some(amount.div_ceil(u128::from(bits))),
    }
}

fn at(nanos: u128) -> Time {
    u64::try_from(nanos).map_or(Time::NEVER, Time::from_nanos)
}
