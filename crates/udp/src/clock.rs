//! The endpoint's clock: `CLOCK_MONOTONIC`, counted from its creation.

use std::time::Instant;

use ontempo_foundation::{Duration, Time};
use rustix::time::{ClockId, clock_gettime};

const NANOS: u64 = 1_000_000_000;

/// Older arrivals are not believed: the wall clock was set meanwhile.
const MAX_AGE: Duration = Duration::from_secs(10);

/// A monotonic clock; copies show the same time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The system's monotonic time at zero, in nanoseconds.
    origin: u64,
}

#[inline]
fn nanos(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    // Neither clock is before its own start.
    now.tv_sec as u64 * NANOS + now.tv_nsec as u64
}

impl Clock {
    /// A clock that is zero now.
    #[expect(clippy::new_without_default, reason = "two clocks made by default would differ")]
    pub fn new() -> Self {
        Self { origin: nanos(ClockId::Monotonic) }
    }

    /// The time.
    #[inline]
    pub fn now(&self) -> Time {
        Time::from_nanos(nanos(ClockId::Monotonic).saturating_sub(self.origin))
    }

    /// Nanoseconds of the wall clock since 1970, to compare times of two machines.
    pub fn wall() -> u64 {
        nanos(ClockId::Realtime)
    }

    /// Our time when the wall clock showed `wall`, a moment ago. The kernel stamps
    /// arrivals by the wall clock: only their age is used, so that setting the wall clock
    /// has no effect.
    pub(super) fn at_wall(now: Time, wall_now: u64, wall: u64) -> Time {
        match wall_now.checked_sub(wall).map(Duration::from_nanos) {
            Some(age) if age <= MAX_AGE => Time::ZERO + now.since(Time::ZERO).saturating_sub(age),
            _ => now,
        }
    }
}

/// The longest tick of Linux: 100 a second.
const MAX_TICK: Duration = Duration::from_millis(10);

/// When a call ends that has a timeout. As that is rarely reached, it is made of the time of the system's last
/// tick, which costs a quarter of a reading of the clock, and is up to 10 ms later than asked for.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// `CLOCK_MONOTONIC`, ns.
    at: u64,
}

impl Deadline {
    /// That of a call which begins now.
    #[inline]
    pub fn after(timeout: Duration) -> Self {
        let tick = nanos(ClockId::MonotonicCoarse);
        Self { at: tick.saturating_add((timeout.saturating_add(MAX_TICK)).as_nanos()) }
    }

    /// What is left of the call's time; zero: it is over.
    pub fn left(self) -> Duration {
        Duration::from_nanos(self.at.saturating_sub(nanos(ClockId::Monotonic)))
    }

    /// The same as a time of the standard library.
    pub fn instant(self) -> Instant {
        Instant::now() + std::time::Duration::from_nanos(self.left().as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_call_ends_before_its_timeout(nanos: u64, shorter in 0u32..64) {
            let timeout = Duration::from_nanos(nanos >> shorter);
            let before = Clock::new();
            let deadline = Deadline::after(timeout);
            let (left, passed) = (deadline.left(), before.now().since(Time::ZERO));
            prop_assert!(left.saturating_add(passed) >= timeout.min(Duration::from_nanos(u64::MAX >> 1)));
            prop_assert!(left <= timeout.saturating_add(MAX_TICK));
        }
    }
}
