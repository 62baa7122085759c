//! What a profile generates, as a table that a schedule of `kind = "csv"` reads.

use std::fmt::Write;

use ontempo_foundation::{Duration, Time};
use ontempo_network::ScheduleError;

use super::Profile;
use crate::model::{AccessDirection, LinkProfile, LossSpec};
use crate::varying::schedule_of;

/// The first `duration` of one direction of a profile in the run with `seed`, drawn as for the link
/// `bottleneck` of a dumbbell. Where the schedule leaves losses to the link, their mean stands.
///
/// # Errors
/// The duration is zero.
pub fn trace(
    profile: LinkProfile,
    direction: AccessDirection,
    duration: Duration,
    seed: u64,
) -> Result<String, ScheduleError> {
    let link = Profile::of(profile).link(direction);
    let schedule = schedule_of(link, duration, seed, "bottleneck")?;
    let own_loss = match &link.loss {
        Some(LossSpec::Bernoulli { rate }) => *rate,
        Some(LossSpec::Gilbert { p, q }) => p / (p + q),
        Some(LossSpec::Trace { .. }) | None => 0.0,
    };
    let mut text = format!(
        "# ontempo profile {}, {}, seed {seed}\ntime_s,rate_bps,delay_ms,loss\n",
        profile.name(),
        direction.name()
    );
    let mut time = Time::ZERO;
    while time.since(Time::ZERO) < duration {
        let rate = schedule.capacity.rate_at(time).as_bits_per_sec();
        let delay = schedule.delay_at(time).unwrap_or_else(|| link.delay.mean());
        let loss = schedule.loss_at(time).unwrap_or(own_loss);
        _ = writeln!(
            text,
            "{},{rate},{},{}",
            decimal(time.since(Time::ZERO).as_nanos(), 1_000_000_000, 9),
            decimal(delay.as_nanos(), 1_000_000, 6),
            loss
        );
        time = schedule.next_change(time);
    }
    Ok(text)
}

/// A whole number of `1 / unit`s as a decimal number, exactly.
fn decimal(count: u64, unit: u64, digits: usize) -> String {
    let text = format!("{}.{:0digits$}", count / unit, count % unit);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
