//! Phrases for links that change.

use ontempo_foundation::{Duration, Rate, Time};
use ontempo_network::{OPPORTUNITY, Schedule};

use super::words;
use crate::model::{Event, LinkSpec, ScheduleSpec};
use crate::traces::{TraceRow, read_csv, read_mahimahi};

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
            let times = read_mahimahi(text.as_deref().unwrap_or_default()).unwrap_or_default();
            let span = times.last().map_or(Duration::ZERO, |last| last.since(Time::ZERO));
            let mean = Rate::of(OPPORTUNITY * times.len() as u64, span);
            let count = words::grouped(times.len() as u64);
            parts.push(format!(
                "a mahimahi trace of {count} opportunities in {span} ({})",
                words::rounded_rate(mean)
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
    }
    if !spec.outages.is_empty() {
        let total: Duration = spec.outages.iter().map(|outage| outage.lasts).sum();
        let count = words::count(spec.outages.len() as u64, "outage");
        let together = if spec.outages.len() > 1 { " together" } else { "" };
        parts.push(format!("{count} of {total}{together}"));
    }
    parts
}

/// `12 rows (500 kbit/s to 8 Mbit/s)`.
fn table(rows: &[TraceRow]) -> String {
    let count = words::count(rows.len() as u64, "row");
    let rates = || rows.iter().filter_map(|row| row.rate);
    match (rates().min(), rates().max()) {
        (Some(low), Some(high)) if low < high => format!("{count} ({low} to {high})"),
        (Some(rate), Some(_)) => format!("{count} ({rate})"),
        _ => count,
    }
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
