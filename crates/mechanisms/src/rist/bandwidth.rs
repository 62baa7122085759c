//! The sender's estimate of what it sends.

use ontempo_foundation::{Duration, Time};

/// Intervals of the two estimates (rist-common.c, `rist_calculate_bitrate`).
const SLOW: Duration = Duration::from_secs(1);
const FAST: Duration = Duration::from_millis(100);

/// One average: bits per second of each interval, smoothed by 1/8.
#[derive(Clone, Copy, Debug)]
struct Average {
    interval: Duration,
    since: Time,
    bytes: u64,
    eight_times: u64,
}

impl Average {
    fn add(&mut self, now: Time, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        let span = now.since(self.since);
        if span < self.interval {
            return;
        }
        let bits = u128::from(self.bytes) * 8 * 1_000_000_000 / u128::from(span.as_nanos());
        let bits = u64::try_from(bits).unwrap_or(u64::MAX);
        self.eight_times = self.eight_times.saturating_add(bits) - self.eight_times / 8;
        self.since = now;
        self.bytes = 0;
    }
}

/// Both estimates of one kind of packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bandwidth {
    slow: Average,
    fast: Average,
    has_started: bool,
}

impl Bandwidth {
    pub(super) fn new() -> Self {
        let average = |interval| Average { interval, since: Time::ZERO, bytes: 0, eight_times: 0 };
        Self { slow: average(SLOW), fast: average(FAST), has_started: false }
    }

    /// Counts bytes sent; with zero, ends the intervals that are over. What comes first is not counted.
    pub(super) fn add(&mut self, now: Time, bytes: u64) {
        if !self.has_started {
            self.has_started = true;
            self.slow.since = now;
            self.fast.since = now;
            return;
        }
        self.fast.add(now, bytes);
        self.slow.add(now, bytes);
    }

    /// Bits per second over some seconds.
    pub(super) fn slow(&self) -> u64 {
        self.slow.eight_times / 8
    }

    /// Bits per second over some hundreds of milliseconds.
    pub(super) fn fast(&self) -> u64 {
        self.fast.eight_times / 8
    }
}
