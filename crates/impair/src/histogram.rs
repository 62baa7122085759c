//! Percentiles of durations in a fixed amount of memory.

use ontempo_foundation::Duration;

/// Durations by size, in classes 2 % wide from 1 µs on.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

/// Each class is this many times as wide as the one below.
const STEP: f64 = 1.02;

/// Up to more than 15 minutes.
const CLASSES: usize = 1_050;

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; CLASSES], total: 0 }
    }
}

impl Histogram {
    /// Counts a duration.
    pub fn add(&mut self, duration: Duration) {
        let micros = duration.as_nanos() as f64 / 1e3;
        let class = if micros <= 1.0 { 0.0 } else { micros.ln() / STEP.ln() };
        self.counts[(class as usize).min(CLASSES - 1)] += 1;
        self.total += 1;
    }

    /// The duration, in seconds and within 1 %, that `share` (0 to 1) of those counted do not
    /// exceed; `None` if there are none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let rank = ((share * self.total as f64).ceil() as u64).max(1);
        let mut below = 0;
        for (class, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= rank {
                return Some(STEP.powf(class as f64 + 0.5) / 1e6);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_hundredth() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        for micros in 1..=10_000 {
            histogram.add(Duration::from_micros(micros));
        }
        for (share, expected) in [(0.5, 5e-3), (0.95, 9.5e-3), (0.99, 9.9e-3)] {
            let found = histogram.quantile(share).unwrap();
            assert!((found / expected - 1.0).abs() < 0.011, "{share}: {found}");
        }
        histogram.add(Duration::from_secs(1_000_000));
        assert!(histogram.quantile(1.0).is_some());
    }
}
