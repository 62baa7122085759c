//! Lateness: when something was done minus when it was due.

use ontempo_foundation::Duration;

/// Values below are counted by microsecond, those above by millisecond.
const FINE_MICROS: u64 = 10_000;

/// Microseconds of a coarse place.
const COARSE: u64 = 1_000;

/// Larger values count as this.
const MAX_MICROS: u64 = 10_000_000;

/// Histogram of lateness: in whole microseconds up to 10 ms, in whole milliseconds beyond.
#[derive(Clone, Debug)]
pub struct Lateness {
    counts: Vec<u64>,
    total: u64,
    most: Duration,
}

/// The place in the histogram of `micros`.
const fn place(micros: u64) -> u64 {
    if micros < FINE_MICROS {
        return micros;
    }
    let micros = if micros < MAX_MICROS { micros } else { MAX_MICROS };
    FINE_MICROS + (micros - FINE_MICROS) / COARSE
}

impl Default for Lateness {
    fn default() -> Self {
        Self { counts: vec![0; place(MAX_MICROS) as usize + 1], total: 0, most: Duration::ZERO }
    }
}

impl Lateness {
    #[inline]
    pub(crate) fn note(&mut self, late: Duration) {
        self.counts[place(late.as_nanos() / 1000) as usize] += 1;
        self.total += 1;
        self.most = self.most.max(late);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The quantile `share`, 0 to 1, at most 10 s; zero where nothing was counted.
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (place, count) in (0..).zip(&self.counts) {
            seen += count;
            if seen >= wanted {
                let beyond = u64::saturating_sub(place, FINE_MICROS);
                return Duration::from_micros(place.min(FINE_MICROS) + beyond * COARSE);
            }
        }
        Duration::ZERO
    }

    /// The largest, exactly.
    pub fn most(&self) -> Duration {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_what_that_share_did_not_exceed() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.quantile(0.99), Duration::ZERO);
        for micros in 1..=100 {
            lateness.note(Duration::from_micros(micros));
        }
        lateness.note(Duration::from_secs(100));
        assert_eq!(lateness.quantile(0.5), Duration::from_micros(51));
        assert_eq!(lateness.quantile(1.0), Duration::from_secs(10));
        assert_eq!((lateness.count(), lateness.most()), (101, Duration::from_secs(100)));
    }

    #[test]
    fn beyond_ten_milliseconds_it_counts_milliseconds() {
        for (micros, read) in [(9_999, 9_999), (10_000, 10_000), (10_999, 10_000), (13_900, 13_000)]
        {
            let mut lateness = Lateness::default();
            lateness.note(Duration::from_micros(micros));
            assert_eq!(lateness.quantile(0.99), Duration::from_micros(read));
        }
    }
}
