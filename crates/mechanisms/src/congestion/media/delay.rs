//! The queueing delay: the current round trip above the base one, both made robust against varying delays.

use ontempo_foundation::{Duration, Time};

/// The base round trip is the least of one to two of these: a route may change.
const BASE_WINDOW: Duration = Duration::from_secs(10);

/// So long before a window ends, a base that was not seen in it again to within so much is looked for.
const BEFORE_END: Duration = Duration::from_millis(1_500);
const SEEN: Duration = Duration::from_millis(5);

/// The current round trip is the least of at least so long: a picture's packets, and those of the next.
const MIN_SPAN: Duration = Duration::from_millis(100);

/// A minimum over one to two spans.
#[derive(Clone, Copy, Debug, Default)]
struct Minimum {
    before: Option<Duration>,
    current: Option<Duration>,
    until: Time,
}

impl Minimum {
    fn add(&mut self, now: Time, rtt: Duration, span: Duration) {
        if now >= self.until {
            self.before = if now >= self.until + span { None } else { self.current };
            self.current = None;
            self.until = now + span;
        }
        self.current = Some(self.current.map_or(rtt, |least| least.min(rtt)));
    }

    fn get(&self) -> Option<Duration> {
        [self.before, self.current].into_iter().flatten().min()
    }
}

/// The round trips of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delays {
    base: Minimum,
    // Of the span that is being collected.
    least: Option<Duration>,
    most: Option<Duration>,
    until: Time,
}

/// What a span of time says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Queues {
    /// The least queueing delay, in seconds: that of a queue that stands.
    pub(super) least: f64,
    /// The largest, in seconds.
    pub(super) most: f64,
}

impl Delays {
    /// A round trip was measured, by a flow with this smoothed one. At the end of a span: its queues.
    pub(super) fn on_rtt(&mut self, now: Time, rtt: Duration, srtt: Duration) -> Option<Queues> {
        self.base.add(now, rtt, BASE_WINDOW);
        self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
        self.most = Some(self.most.map_or(rtt, |most| most.max(rtt)));
        if now < self.until {
            return None;
        }
        self.until = now + srtt.max(MIN_SPAN);
        let (least, most) = (self.least.take()?, self.most.take()?);
        let base = self.base.get()?;
        let above = |rtt: Duration| rtt.saturating_sub(base).as_secs_f64();
        Some(Queues { least: above(least), most: above(most) })
    }

    /// Whether the base is about to be forgotten and was not seen again.
    pub(super) fn is_base_stale(&self, now: Time) -> bool {
        let base = &self.base;
        let is_unseen = base.before.zip(base.current).is_none_or(|(old, new)| new > old + SEEN);
        is_unseen && now + BEFORE_END >= base.until
    }

    /// The base round trip.
    pub(super) fn base(&self) -> Option<Duration> {
        self.base.get()
    }
}
