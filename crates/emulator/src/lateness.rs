//! Lateness of packets: delivery time minus the time that the model gives.

use ontempo_foundation::Duration;

/// Larger values count as this.
const MAX_MICROS: usize = 10_000;

/// Histogram of lateness, in whole microseconds.
#[derive(Clone, Debug)]
pub struct Lateness {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { counts: vec![0; MAX_MICROS + 1], total: 0 }
    }
}

impl Lateness {
    #[inline]
    pub(crate) fn note(&mut self, late: Duration) {
        let micros = (late.as_nanos() / 1000).min(MAX_MICROS as u64) as usize;
        self.counts[micros] += 1;
        self.total += 1;
    }

    /// Number of packets.
    pub fn packets(&self) -> u64 {
        self.total
    }

    /// The quantile `share`, 0 to 1, at most 10 ms; zero without packets.
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (micros, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_micros(micros as u64);
            }
        }
        Duration::ZERO
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
        lateness.note(Duration::from_secs(1));
        assert_eq!(lateness.quantile(0.5), Duration::from_micros(51));
        assert_eq!(lateness.quantile(1.0), Duration::from_millis(10));
    }
}
