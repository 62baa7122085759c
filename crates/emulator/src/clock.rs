//! The run's clock: `CLOCK_MONOTONIC`, counted from the start of the run.

use ontempo_foundation::{Duration, Time};
use rustix::time::{ClockId, Timespec, clock_gettime};

const NANOS: u64 = 1_000_000_000;

/// A clock whose zero is the start of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The system's time at zero, in nanoseconds.
    origin: u64,
}

fn system() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The system's clock counts from its start, and has no negative times.
    now.tv_sec as u64 * NANOS + now.tv_nsec as u64
}

impl Clock {
    /// One that is zero `ahead` from now.
    pub(crate) fn starting_in(ahead: Duration) -> Self {
        Self { origin: system() + ahead.as_nanos() }
    }

    /// The time; zero before the start.
    #[inline]
    pub(crate) fn now(&self) -> Time {
        Time::from_nanos(system().saturating_sub(self.origin))
    }

    /// The smallest step that the system's clock makes, found by looking at it.
    pub(crate) fn step() -> Duration {
        const LOOKS: u32 = 16;
        let next = |last: u64| loop {
            let now = system();
            if now > last {
                break now;
            }
        };
        let mut last = next(system());
        let mut least = u64::MAX;
        for _ in 0..LOOKS {
            let now = next(last);
            least = least.min(now - last);
            last = now;
        }
        Duration::from_nanos(least)
    }

    /// What the system's clock shows at `time`.
    pub(crate) fn system_time(&self, time: Time) -> Timespec {
        let nanos = self.origin.saturating_add(time.as_nanos()).max(1);
        Timespec { tv_sec: (nanos / NANOS) as i64, tv_nsec: (nanos % NANOS) as i64 }
    }
}
