//! Links that change: rate, delay and loss as functions of time, known before the run.

mod capacity;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod discipline_tests;
mod steps;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use capacity::{Capacity, OPPORTUNITY, Opportunities, RateLaw, RateSteps, Sent};
use std::sync::Arc;

use ontempo_foundation::{Duration, Rate, Time};
pub use steps::{ScheduleError, Steps, Timeline};

use crate::CellReplay;

/// How one direction of a link changes during a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Its rate.
    pub capacity: Capacity,
    /// Its propagation delay; `None`, or `None` at a time: that of the link's parameters.
    pub delay: Option<Timeline<Option<Duration>>>,
    /// The probability, 0 to 1, that a packet is lost; `None`, or `None` at a time: by the loss
    /// model of the link's parameters.
    pub loss: Option<Timeline<Option<f64>>>,
    /// A pair of traces: `capacity` is the heavy one, and its base delay replaces `delay`. Only a
    /// [`Link`](crate::Link) follows it.
    pub cellreplay: Option<Arc<CellReplay>>,
}

impl Schedule {
    /// The first time after `time` at which something may change; [`Time::NEVER`] if none follows.
    pub fn next_change(&self, time: Time) -> Time {
        let delay = self.delay.as_ref().map_or(Time::NEVER, |delay| delay.next_change(time));
        let loss = self.loss.as_ref().map_or(Time::NEVER, |loss| loss.next_change(time));
        self.capacity.next_change(time).min(delay).min(loss)
    }

    /// The delay at `time`, if it is scheduled; of a pair of traces, the base delay.
    pub fn delay_at(&self, time: Time) -> Option<Duration> {
        if let Some(cell) = &self.cellreplay {
            return Some(cell.light.base_delay(time));
        }
        self.delay.as_ref().and_then(|delay| delay.at(time))
    }

    /// The probability of loss at `time`, if it is scheduled.
    pub fn loss_at(&self, time: Time) -> Option<f64> {
        self.loss.as_ref().and_then(|loss| loss.at(time))
    }

    /// The rate by which a queue estimates waits at `time`: the present one, or `nominal` while
    /// nothing passes.
    pub(crate) fn rate_of_decisions(&self, time: Time, nominal: Rate) -> Rate {
        match self.capacity.rate_at(time) {
            rate if rate == Rate::from_bits_per_sec(0) => nominal,
            rate => rate,
        }
    }
}
