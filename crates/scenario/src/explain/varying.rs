//! Phrases for links that change.

use std::iter::Sum;

use ontempo_foundation::{Bytes, Duration, Rate, Time, math};
use ontempo_network::{OPPORTUNITY, Schedule};

use super::words;
use crate::model::{DelayVariation, Episode, Event, LinkSpec, RateVariation, ScheduleSpec};
use crate::traces::{TraceRow, read_csv, read_light, read_mahimahi};

/// A higher mean is that of a link whose rate is unlimited at times.
const MAX_MEAN: Rate = Rate::from_bits_per_sec(1_000_000_000_000_000);

/// What changes a link, each a phrase; empty for a constant one.
pub(super) fn link(spec: &LinkSpec) -> Vec<String> {
    let mut parts = Vec::new();
    match &spec.schedule {
        None => {}
        Some(ScheduleSpec::Csv { text, repeat_every, .. }) => {
            let rows = read_csv(text.as_deref().unwrap_or_default()).unwrap_or_default();
            let again =
                repeat_every.map_or(String::new(), |every| format!(", again every {every}"));
            parts.push(format!("changed by a table of {}{again}", table(&rows)));
        }
        Some(ScheduleSpec::Mahimahi { text, .. }) => {
            parts
                .push(format!("a mahimahi trace of {}", opportunities(text.as_ref(), OPPORTUNITY)));
        }
        Some(ScheduleSpec::Cellreplay { light_text, heavy_text, timer, opportunity, .. }) => {
            let light = light(light_text.as_ref());
            let heavy = opportunities(heavy_text.as_ref(), *opportunity);
            parts.push(format!(
                "a CellReplay pair of traces (light: {light}; heavy: {heavy}; of {opportunity} each, a \
                 new train after {timer})"
            ));
        }
        Some(ScheduleSpec::Periodic { steps }) => {
            let period: Duration = steps.iter().map(|step| step.lasts).sum();
            let steps = words::count(steps.len() as u64, "step");
            parts.push(format!("changed in {steps}, again every {period}"));
        }
        Some(ScheduleSpec::Markov { states }) => {
            parts.push(format!("changed by a Markov chain of {} states", states.len()));
        }
        Some(ScheduleSpec::Random { title, rate, delay, episodes, .. }) => {
            let title = title.as_ref().map_or(String::new(), |title| format!(" as {title}"));
            parts.push(format!("varying at random{title}"));
            parts.extend(random(rate, delay, episodes));
        }
    }
    if !spec.outages.is_empty() {
        let total: Duration = spec.outages.iter().map(|outage| outage.lasts).sum();
        let count = words::count(spec.outages.len() as u64, "outage");
        let together = if spec.outages.len() > 1 { " together" } else { "" };
        parts.push(format!("{count} of {total}{together}"));
    }
    parts
}

/// `500 opportunities in 1 s (6 Mbit/s)`.
fn opportunities(text: Option<&String>, size: Bytes) -> String {
    let times = read_mahimahi(text.map_or("", String::as_str)).unwrap_or_default();
    let span = times.last().map_or(Duration::ZERO, |last| last.since(Time::ZERO));
    let mean = words::rounded_rate(Rate::of(size * times.len() as u64, span));
    let count = words::grouped(times.len() as u64);
    format!("{count} opportunities in {span} ({mean})")
}

/// `60 trains in 30 s, base delays of 18 ms to 45 ms, 40 opportunities on average`.
fn light(text: Option<&String>) -> String {
    let Ok(trace) = read_light(text.map_or("", String::as_str)) else { return String::new() };
    let delays = || trace.lines().iter().map(|line| line.base_delay);
    let (low, high) = (delays().min().unwrap_or_default(), delays().max().unwrap_or_default());
    let delays = if low < high { format!("{low} to {high}") } else { low.to_string() };
    let count = trace.lines().len();
    let mean = trace.opportunity_count() as f64 / count as f64;
    format!(
        "{} trains in {}, base delays of {delays}, {mean:.0} opportunities on average",
        words::grouped(count as u64),
        trace.period()
    )
}

/// What varies, each a phrase.
fn random(rate: &[RateVariation], delay: &[DelayVariation], episodes: &[Episode]) -> Vec<String> {
    let kept = |time: Duration| match time {
        Duration::ZERO => String::new(),
        time => format!(", correlated over {time}"),
    };
    let rates = rate.iter().map(|part| {
        let percent = 100.0 * (math::exp(part.deviation) - 1.0);
        format!("rate ± {percent:.0} % every {}{}", part.every, kept(part.correlation_time))
    });
    let delays = delay.iter().map(|part| {
        format!("{} more delay every {}{}", part.median, part.every, kept(part.correlation_time))
    });
    rates.chain(delays).chain(episodes.iter().map(episode)).collect()
}

/// `episodes of 30 ms with gaps of about 43 s (nothing passes)`.
fn episode(part: &Episode) -> String {
    let often = match (part.gap, part.every) {
        (Some(gap), _) => format!("with gaps of about {gap}"),
        (None, every) => {
            let chance = match part.probability {
                1.0 => String::new(),
                probability => format!(", with probability {probability}"),
            };
            format!("every {}{chance}", every.unwrap_or_default())
        }
    };
    let about = if part.fixed_length { "" } else { "about " };
    let rate = match part.rate {
        1.0 => None,
        0.0 => Some("nothing passes".to_owned()),
        rate => Some(format!("{:.0} % of the rate", 100.0 * rate)),
    };
    let delay = (part.delay > Duration::ZERO).then(|| format!("{} more delay", part.delay));
    let loss = part.loss.map(|loss| format!("each packet lost with probability {loss}"));
    let what: Vec<String> = [rate, delay, loss].into_iter().flatten().collect();
    format!("episodes of {about}{} {often} ({})", part.length, what.join(", "))
}

/// `12 rows (500 kbit/s to 8 Mbit/s, delay 20 ms to 60 ms, loss 0 to 0.01)`.
fn table(rows: &[TraceRow]) -> String {
    let count = words::count(rows.len() as u64, "row");
    let parts = [
        span("", rows.iter().filter_map(|row| row.rate)),
        span("delay ", rows.iter().filter_map(|row| row.delay)),
        span("loss ", rows.iter().filter_map(|row| row.loss)),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { count } else { format!("{count} ({})", parts.join(", ")) }
}

/// `delay 20 ms to 60 ms`; `None` without values.
fn span<T: PartialOrd + Copy + std::fmt::Display>(
    name: &str,
    values: impl Iterator<Item = T>,
) -> Option<String> {
    let range = values.fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => {
            Some((if value < low { value } else { low }, if value > high { value } else { high }))
        }
    });
    range.map(|(low, high)| match low < high {
        true => format!("{name}{low} to {high}"),
        false => format!("{name}{low}"),
    })
}

/// Propagation delays over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DelayRange {
    pub(super) low: Duration,
    pub(super) high: Duration,
    pub(super) mean: Duration,
}

impl DelayRange {
    /// Of a link that nothing changes.
    pub(super) fn of(spec: &LinkSpec) -> Self {
        let (low, high) = spec.delay.range();
        Self { low, high, mean: spec.delay.mean() }
    }
}

impl Sum for DelayRange {
    fn sum<I: Iterator<Item = Self>>(links: I) -> Self {
        links.fold(Self::default(), |all, link| Self {
            low: all.low + link.low,
            high: all.high + link.high,
            mean: all.mean + link.mean,
        })
    }
}

/// The delays of a link until `end`.
pub(super) fn delays(spec: &LinkSpec, schedule: Option<&Schedule>, end: Duration) -> DelayRange {
    let own = DelayRange::of(spec);
    let Some(delay) = schedule.and_then(|schedule| schedule.delay.as_ref()) else { return own };
    let (mut from, end) = (Time::ZERO, Time::ZERO + end);
    let mut all: Option<DelayRange> = None;
    let mut sum = 0u128;
    while from < end {
        let to = delay.next_change(from).min(end);
        let held =
            delay.at(from).map_or(own, |delay| DelayRange { low: delay, high: delay, mean: delay });
        sum += u128::from(held.mean.as_nanos()) * u128::from(to.since(from).as_nanos());
        let (low, high) = all
            .map_or((held.low, held.high), |all| (all.low.min(held.low), all.high.max(held.high)));
        all = Some(DelayRange { low, high, mean: held.mean });
        from = to;
    }
    let mean = sum.checked_div(u128::from(end.since(Time::ZERO).as_nanos()));
    let mean = mean.and_then(|mean| u64::try_from(mean).ok()).map(Duration::from_nanos);
    all.map_or(own, |all| DelayRange { mean: mean.unwrap_or(all.mean), ..all })
}

/// `at 30 s, bottleneck: rate 2 Mbit/s, loss 0.01`.
pub(super) fn event(event: &Event) -> String {
    let set = &event.set;
    let changes = [
        set.rate.map(|rate| format!("rate {}", words::rate(rate))),
        set.delay.map(|delay| format!("delay {delay}")),
        set.loss.map(|loss| format!("each packet lost with probability {loss}")),
    ];
    let changes: Vec<String> = changes.into_iter().flatten().collect();
    format!("at {}, {}: {}", event.at, event.link, changes.join(", "))
}

/// The rate that a link has on average until `end`, and how that is said.
pub(super) fn mean_rate(
    nominal: Rate,
    schedule: Option<&Schedule>,
    end: Duration,
) -> (Rate, String) {
    match schedule {
        None => (nominal, nominal.to_string()),
        Some(schedule) => {
            let mean = schedule.capacity.mean_rate(Time::ZERO, Time::ZERO + end);
            if mean > MAX_MEAN {
                return (Rate::UNLIMITED, "a rate that at times has no limit".to_owned());
            }
            if mean == nominal {
                return (nominal, nominal.to_string());
            }
            (mean, format!("{} on average", words::rounded_rate(mean)))
        }
    }
}
