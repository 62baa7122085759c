//! The endpoint's clock: `CLOCK_MONOTONIC`, counted from its creation.

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
