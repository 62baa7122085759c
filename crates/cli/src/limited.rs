//! Lines that strangers cause: a few at once, then a few a second; the others are counted.

use std::time::{Duration, Instant};

/// A token bucket of lines.
#[derive(Debug)]
pub(crate) struct LineLimit {
    burst: u32,
    /// Time until the next line may be written after a burst.
    interval: Duration,
    tokens: u32,
    filled: Instant,
    not_shown: u64,
}

impl LineLimit {
    /// At most `burst` lines at once, at least 1, and one in each `interval` after them.
    pub(crate) fn new(now: Instant, burst: u32, interval: Duration) -> Self {
        Self { burst, interval, tokens: burst, filled: now, not_shown: 0 }
    }

    /// Whether a line may be written now; otherwise it is counted.
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        self.fill(now);
        // The last one is for the number of the others.
        let allows = self.tokens > u32::from(self.not_shown > 0);
        if allows {
            self.tokens -= 1;
        } else {
            self.not_shown += 1;
        }
        allows
    }

    /// The number of lines that were not allowed since the last call, if there are any and a line
    /// may be written now.
    pub(crate) fn not_shown(&mut self, now: Instant) -> Option<u64> {
        self.fill(now);
        if self.not_shown == 0 || self.tokens == 0 {
            return None;
        }
        self.tokens -= 1;
        Some(std::mem::take(&mut self.not_shown))
    }

    /// The same at the end, when no more lines follow.
    pub(crate) fn rest(&mut self) -> Option<u64> {
        Some(std::mem::take(&mut self.not_shown)).filter(|count| *count > 0)
    }

    /// Counts lines that were dropped before they could ask.
    pub(crate) fn count(&mut self, dropped: u64) {
        self.not_shown += dropped;
    }

    fn fill(&mut self, now: Instant) {
        while self.tokens < self.burst
            && now.saturating_duration_since(self.filled) >= self.interval
        {
            self.tokens += 1;
            self.filled += self.interval;
        }
        if self.tokens == self.burst {
            self.filled = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_many_as_time_allows_and_the_others_are_counted() {
        let start = Instant::now();
        let mut limit = LineLimit::new(start, 4, Duration::from_secs(1));
        let mut shown = 0;
        let mut counted = 0;
        for millis in 0..10_000 {
            let now = start + Duration::from_millis(millis);
            shown += u64::from(limit.allows(now));
            counted += limit.not_shown(now).unwrap_or(0);
        }
        let end = start + Duration::from_secs(20);
        let late = limit.not_shown(end).expect("the last ones");
        assert_eq!(limit.not_shown(end), None);
        assert!(shown <= 4 + 10, "{shown}");
        assert_eq!(shown + counted + late, 10_000);
        assert!(limit.allows(end), "as before");
        limit.count(7);
        assert_eq!((limit.rest(), limit.rest()), (Some(7), None));
    }
}
