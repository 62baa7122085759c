//! Whether others keep the queue full, and the window that a flow has beside them.

use ontempo_foundation::{Duration, Time};

use super::LEAST;

/// A queue that did not go within so many spans on end, though the window fell, tells of others
/// (PERT's number); one of a flow that its application limits, and whose own the queue hardly is, counts
/// more.
const FUTILE: u32 = 8;
const NOT_OWN: u32 = 3;

/// So many on end with a short queue say that they have gone.
const GONE: u32 = 8;

const GONE_ON_TRIAL: u32 = 2;

/// Trials, in which the window is again that of a flow alone, are so far apart, and last so many spans.
const BETWEEN_TRIALS: Duration = Duration::from_secs(16);
const TRIAL: u32 = 5;

/// The window beside others is that of two flows with additive increase and multiplicative decrease
/// (MulTCP: Crowcroft and Oechslin, CCR 28(3), 1998), each with the factor of CUBIC (RFC 9438, 4.6).
const INCREASE: f64 = 2.0;
const DECREASE: f64 = 0.85;

/// It is at most so many times what is in flight.
const MOST_OF_USED: f64 = 2.0;

/// All flows try at the same times, those of the wall clock: who tries while others do not finds a queue.
fn next_trial(now: Time) -> Time {
    let period = BETWEEN_TRIALS.as_nanos();
    Time::from_nanos((now.as_nanos() / period + 1) * period)
}

/// What a span has seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Its queue never was short.
    pub(super) stands: bool,
    /// Packets were lost, by no fault of the path's.
    pub(super) is_loss: bool,
    /// The circuit breaker is open.
    pub(super) is_broken: bool,
    /// The most in flight, packets.
    pub(super) used: f64,
}

/// Beside others or not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Competition {
    /// The window beside others, in packets.
    window: Option<f64>,
    standing: u32,
    short: u32,
    next_trial: Time,
    trial: u32,
}

impl Competition {
    /// The window beside others; `None` while alone, or on trial.
    pub(super) fn window(&self) -> Option<f64> {
        if self.trial > 0 { None } else { self.window }
    }

    /// A span has ended. `was_limited`: by the window, so that the queue may be the flow's own.
    pub(super) fn on_span(&mut self, now: Time, seen: &Seen, was_limited: bool) {
        let counts = if was_limited { 1 } else { NOT_OWN };
        (self.standing, self.short) =
            if seen.stands { (self.standing + counts, 0) } else { (0, self.short + 1) };
        let Some(window) = self.window else {
            if self.standing >= FUTILE {
                self.window = Some(seen.used.max(LEAST));
                self.next_trial = next_trial(now);
            }
            return;
        };
        if self.short >= GONE || (self.trial > 0 && self.short >= GONE_ON_TRIAL) {
            *self = Self::default();
            return;
        }
        let grown = match (seen.is_broken, seen.is_loss) {
            (true, _) => window / 2.0,
            (false, true) => window * DECREASE,
            (false, false) => window + INCREASE,
        };
        self.window = Some(grown.min(seen.used * MOST_OF_USED).max(LEAST));
        if self.trial > 0 {
            self.trial -= 1;
        } else if now >= self.next_trial {
            self.next_trial = next_trial(now);
            self.trial = if was_limited { TRIAL } else { 0 };
        }
    }
}
