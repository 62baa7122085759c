//! What the application needs, and whether the path delivers it at all.

use ontempo_foundation::{Duration, Time};

use super::Span;

/// Up to the first share of losses the floor stands, and from the second on there is none (the circuit
/// breaker in the spirit of RFC 8083).
pub(super) const FULL_FLOOR_TO: f64 = 0.1;

/// What a picture needs in flight is the most of one to two of these: key pictures may be seconds apart.
const PERIOD: Duration = Duration::from_secs(10);

/// The floor is so much more: what waits in others' queue is in flight, too.
const SPARE: f64 = 1.5;

/// The weight of a span of a round trip in the smoothed share of losses, of a second.
const SMOOTHED_OVER: f64 = 2.0;

/// What the application had in flight, and the flow's losses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    /// The smoothed share of losses.
    lost: f64,
    /// The most in flight while the application limited the flow: before and in the present period.
    used: [f64; 2],
    period_ends: Time,
}

impl Demand {
    /// A span of so many seconds has ended.
    pub(super) fn on_span(&mut self, now: Time, span: &Span, seconds: f64) {
        let packets = span.delivered + span.lost;
        if packets > 0.0 {
            self.lost += (span.lost / packets - self.lost) * (seconds / SMOOTHED_OVER).min(0.5);
        }
        if now >= self.period_ends {
            self.used = [self.used[1], 0.0];
            self.period_ends = now + PERIOD;
        }
        if !span.was_limited {
            self.used[1] = self.used[1].max(span.used);
        }
    }

    /// The smoothed share of losses.
    pub(super) fn lost(&self) -> f64 {
        self.lost
    }

    /// The window that the application's pictures need, in packets, as far as losses let them have it.
    pub(super) fn floor(&self, breaker: f64) -> f64 {
        let width = (breaker - FULL_FLOOR_TO).max(0.01);
        let factor = ((breaker - self.lost) / width).clamp(0.0, 1.0);
        self.used[0].max(self.used[1]) * factor * SPARE
    }
}
