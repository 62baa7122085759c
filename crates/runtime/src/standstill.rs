//! Links over which nothing passes any more.

use ontempo_foundation::{Duration, Rate, Time};
use ontempo_network::{Capacity, Schedule};

/// A link whose rate is zero from some time to the end of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standstill {
    /// Its name.
    pub link: String,
    /// Since when.
    pub since: Time,
    /// Packets that wait there at the end.
    pub waiting: u64,
    /// By group, how many flows that cross it have not finished: those of which something sent has not
    /// been acknowledged, and those that know no acknowledgement.
    pub unfinished: Vec<(String, u64)>,
}

/// A shorter time without a rate at the end of a run is not told: links that vary at random have it often.
const MIN_STANDSTILL: Duration = Duration::from_secs(1);

/// Since when nothing passes a link of this schedule until `end`, the end of the run; `None` if something
/// does, or if that is a short time.
pub fn stands_still_since(schedule: &Schedule, end: Time) -> Option<Time> {
    // What a pair of traces lets pass is not in the capacity.
    let rated = schedule.cellreplay.is_none().then_some(&schedule.capacity);
    let since = nothing_leaves_since(rated?, end)?;
    (end.since(since) >= MIN_STANDSTILL).then_some(since)
}

/// How many flows there are of each group, from the group of each flow; those of one group are adjacent.
pub fn by_group<'a>(flows: impl Iterator<Item = &'a str>) -> Vec<(String, u64)> {
    let mut counts: Vec<(String, u64)> = Vec::new();
    for group in flows {
        match counts.last_mut().filter(|(name, _)| name == group) {
            Some((_, count)) => *count += 1,
            None => counts.push((group.to_owned(), 1)),
        }
    }
    counts
}

/// Since when nothing leaves until `end`; `None` if the rate is not zero before it.
fn nothing_leaves_since(capacity: &Capacity, end: Time) -> Option<Time> {
    let zero = Rate::from_bits_per_sec(0);
    let last = Time::from_nanos(end.as_nanos().saturating_sub(1));
    if capacity.rate_at(last) > zero {
        return None;
    }
    // The later from, the less can leave until the end: the first time from which it is nothing.
    let (mut from, mut to) = (0, last.as_nanos());
    while from < to {
        let middle = from + (to - from) / 2;
        match capacity.mean_rate(Time::from_nanos(middle), last) == zero {
            true => to = middle,
            false => from = middle + 1,
        }
    }
    // A few bits before the rate ends are a mean rate of zero, too.
    let since = Time::from_nanos(to);
    Some(if capacity.rate_at(since) > zero { capacity.next_change(since) } else { since })
}
