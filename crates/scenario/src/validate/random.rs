//! Schedules that vary at random: parts that can be drawn, and not too many changes.

use ontempo_foundation::{Duration, Rate};

use super::Findings;
use super::varying::{MAX_CHANGES, delay_at, values};
use crate::model::{Delay, Episode, LinkSpec, ScheduleSpec};
use crate::path::FieldPath;

/// The largest deviation of a logarithm: one of 20 in 3 values is then outside a factor of 20.
const MAX_DEVIATION: f64 = 3.0;
/// The most parts of a kind.
const MAX_PARTS: usize = 100;

/// What is wrong with the random schedule of a link.
pub(super) fn link(spec: &LinkSpec, duration: Duration, path: &FieldPath, findings: &mut Findings) {
    let Some(ScheduleSpec::Random { rate, min_rate, max_rate, delay, episodes, .. }) =
        &spec.schedule
    else {
        return;
    };
    let path = path.key("schedule");
    let varied = !rate.is_empty() || episodes.iter().any(|one| one.rate < 1.0);
    if varied && spec.rate == Rate::UNLIMITED {
        findings.add(&path, "a rate without a limit cannot vary; write rate = \"10 Mbit/s\"");
    }
    let delayed = !delay.is_empty() || episodes.iter().any(|one| one.delay > Duration::ZERO);
    if delayed && matches!(spec.delay, Delay::Law(_)) {
        let what = "a delay that is drawn for each packet cannot vary too; write the link's delay \
                    as a duration, or leave out the delays of the schedule";
        findings.add(&path, what);
    }
    if let (Some(low), Some(high)) = (min_rate, max_rate)
        && low > high
    {
        findings.add(&path.key("max-rate"), format!("{high} is less than `min-rate`, {low}"));
    }
    let mut changes = 0.0;
    let mut often = |every: Duration| changes += duration.as_secs_f64() / every.as_secs_f64();
    let rates = rate.iter().map(|part| (part.every, part.deviation));
    variations("rate", rates, &path, findings, &mut often);
    let delays = delay.iter().map(|part| (part.every, part.deviation));
    variations("delay", delays, &path, findings, &mut often);
    for (place, part) in delay.iter().enumerate() {
        delay_at(part.median, &path.key("delay").index(place).key("median"), findings);
    }
    few(episodes.len(), &path.key("episodes"), findings);
    for (place, part) in episodes.iter().enumerate() {
        let path = path.key("episodes").index(place);
        episode(part, &path, findings);
        let every = part.every.unwrap_or_default()
            + part.gap.map_or(Duration::ZERO, |gap| gap + part.length);
        if every > Duration::ZERO {
            often(every / 2);
        }
    }
    if changes > MAX_CHANGES as f64 {
        let what = format!(
            "about {changes:.0} changes in a run of {duration} are too many; at most {MAX_CHANGES} \
             will do: a shorter run, or longer steps, gaps and lengths"
        );
        findings.add(&path, what);
    }
}

fn variations(
    field: &str,
    parts: impl Iterator<Item = (Duration, f64)>,
    path: &FieldPath,
    findings: &mut Findings,
    often: &mut impl FnMut(Duration),
) {
    let path = path.key(field);
    let mut count = 0;
    for (place, (every, deviation)) in parts.enumerate() {
        let path = path.index(place);
        count += 1;
        match every {
            Duration::ZERO => {
                findings.add(&path.key("every"), "the step takes no time; write every = \"1 s\"");
            }
            every => often(every),
        }
        if !(0.0..=MAX_DEVIATION).contains(&deviation) {
            let what =
                format!("{deviation} will not do; a number from 0 to {MAX_DEVIATION} is needed");
            findings.add(&path.key("deviation"), what);
        }
    }
    few(count, &path, findings);
}

fn episode(part: &Episode, path: &FieldPath, findings: &mut Findings) {
    match (part.gap, part.every) {
        (Some(_), Some(_)) => {
            findings.add(&path.key("every"), "`gap` is given already; leave one of both out");
        }
        (None, None) => {
            findings.add(path, "when it takes place is not said; write gap = \"30 s\"");
        }
        (Some(Duration::ZERO), None) => {
            findings.add(&path.key("gap"), "the gap takes no time; write gap = \"30 s\"");
        }
        (None, Some(Duration::ZERO)) => {
            findings.add(&path.key("every"), "the time between is zero; write every = \"15 s\"");
        }
        _ => {}
    }
    let what = "the episode takes no time; write length = \"100 ms\"";
    findings.require(part.length > Duration::ZERO, &path.key("length"), what);
    findings.probability(&path.key("probability"), part.probability);
    if !(0.0..=1.0).contains(&part.rate) {
        let what = format!("{} is no factor of a rate; a number from 0 to 1 is needed", part.rate);
        findings.add(&path.key("rate"), what);
    }
    values(Some(part.delay), part.loss, path, findings);
    let changes = part.rate < 1.0 || part.delay > Duration::ZERO || part.loss.is_some();
    findings.require(changes, path, "nothing changes meanwhile; write rate = 0 for an outage");
}

fn few(count: usize, path: &FieldPath, findings: &mut Findings) {
    if count > MAX_PARTS {
        findings.add(path, format!("{count} parts are too many; at most {MAX_PARTS} will do"));
    }
}
