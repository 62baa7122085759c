use std::time::Instant;

use ontempo_foundation::{Duration, Time};

/// The instant that corresponds to [`Time::ZERO`].
///
/// The stack uses `std::time::Instant`, which cannot be constructed. One is taken
/// from the clock, once; only differences to it are used.
#[derive(Clone, Copy, Debug)]
pub struct Epoch(Instant);

/// Maximum distance of an instant from the epoch: a hundred years.
const FARTHEST: u64 = 100 * 366 * 86_400 * 1_000_000_000;

impl Epoch {
    /// Now.
    #[expect(clippy::new_without_default, reason = "two epochs are never equal")]
    pub fn new() -> Self {
        Self(Instant::now())
    }

    /// Converts `time` for the stack.
    pub fn instant(self, time: Time) -> Instant {
        self.0 + std::time::Duration::from_nanos(time.as_nanos().min(FARTHEST))
    }

    /// Converts `instant` for the mechanisms.
    pub fn time(self, instant: Instant) -> Time {
        Time::ZERO + span(instant.saturating_duration_since(self.0))
    }
}

/// Converts `wall` for the mechanisms.
pub fn span(wall: std::time::Duration) -> Duration {
    Duration::from_nanos(u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX))
}
