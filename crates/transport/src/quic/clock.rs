use std::time::Instant;

use ontempo_foundation::{Duration, Time};

/// The instant that is called [`Time::ZERO`].
///
/// The stack speaks of `std::time::Instant`, which cannot be made out of nothing. One is taken
/// from the clock, once; only distances from it are ever used.
#[derive(Clone, Copy, Debug)]
pub struct Epoch(Instant);

/// The farthest that an instant is ever put from the epoch: a hundred years.
const FARTHEST: u64 = 100 * 366 * 86_400 * 1_000_000_000;

impl Epoch {
    /// Now.
    #[expect(clippy::new_without_default, reason = "two epochs are never equal")]
    pub fn new() -> Self {
        Self(Instant::now())
    }

    /// `time` as the stack wants it.
    pub fn instant(self, time: Time) -> Instant {
        self.0 + std::time::Duration::from_nanos(time.as_nanos().min(FARTHEST))
    }

    /// `instant` as the mechanisms want it.
    pub fn time(self, instant: Instant) -> Time {
        Time::ZERO + span(instant.saturating_duration_since(self.0))
    }
}

/// `wall` as the mechanisms want it.
pub fn span(wall: std::time::Duration) -> Duration {
    Duration::from_nanos(u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX))
}
