//! How late packets leave the network, beyond what the model says.

use ontempo_foundation::Duration;

/// What is later counts as this late.
const MAX_MICROS: usize = 10_000;

/// How late each packet was, in whole microseconds.
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

    /// How many packets there were.
    pub fn packets(&self) -> u64 {
        self.total
    }

    /// What `share` of all packets, 0 to 1, were not later than, up to 10 ms; zero where there
    /// was none.
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
