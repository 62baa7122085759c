//! Packets between events, averaged as TFRC averages loss intervals (RFC 5348, section 5.4).

/// The lengths of the last eight intervals between events, and the open one.
///
/// PERT has two: between losses, and between early responses.
#[derive(Clone, Debug, Default)]
pub struct IntervalHistory {
    /// Closed intervals in packets, the most recent first.
    closed: [f64; Self::LENGTH],
    /// Number of closed intervals.
    known: usize,
    /// Packets since the last event, or since the start.
    open: f64,
}

impl IntervalHistory {
    /// Maximum number of intervals (RFC 5348, section 5.4: n = 8).
    pub const LENGTH: usize = 8;

    /// Weights, the most recent first (RFC 5348, section 5.4). They sum to 6.
    pub const WEIGHTS: [f64; Self::LENGTH] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];

    /// `packets` were acknowledged.
    pub fn on_packets(&mut self, packets: f64) {
        self.open += packets;
    }

    /// An event closes the open interval.
    pub fn close(&mut self) {
        self.closed.copy_within(..Self::LENGTH - 1, 1);
        self.closed[0] = self.open;
        self.known = (self.known + 1).min(Self::LENGTH);
        self.open = 0.0;
    }

    /// The weighted mean interval in packets, at least 1; `None` before the first event.
    ///
    /// The open interval counts if it increases the mean, so that the rate falls for a flow
    /// without further events. With fewer than eight intervals, only the
    /// weights of the existing ones are summed, as in RFC 5348.
    pub fn mean(&self) -> Option<f64> {
        let known = &self.closed[..self.known];
        if known.is_empty() {
            return None;
        }
        let weight: f64 = Self::WEIGHTS[..self.known].iter().sum();
        let closed = weighted(known.iter());
        let with_open = weighted(core::iter::once(&self.open).chain(known).take(self.known));
        Some((closed.max(with_open) / weight).max(1.0))
    }

    /// Events per packet, above 0 and at most 1; `None` before the first event.
    pub fn rate(&self) -> Option<f64> {
        self.mean().map(|mean| 1.0 / mean)
    }
}

fn weighted<'a>(intervals: impl Iterator<Item = &'a f64>) -> f64 {
    intervals.zip(IntervalHistory::WEIGHTS).map(|(length, weight)| length * weight).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(lengths: &[f64]) -> IntervalHistory {
        let mut history = IntervalHistory::default();
        for &length in lengths {
            history.on_packets(length);
            history.close();
        }
        history
    }

    #[test]
    fn no_event_gives_no_rate() {
        let mut history = IntervalHistory::default();
        history.on_packets(1000.0);
        assert_eq!(history.rate(), None);
    }

    #[test]
    fn eight_intervals_are_weighted_from_the_oldest_to_the_newest() {
        let history = history(&[9999.0, 80.0, 70.0, 60.0, 50.0, 40.0, 30.0, 20.0, 10.0]);
        let sum = 0.2 * 80.0 + 0.4 * 70.0 + 0.6 * 60.0 + 0.8 * 50.0 + 40.0 + 30.0 + 20.0 + 10.0;
        assert!((history.rate().expect("known") - 6.0 / sum).abs() < 1e-15);
    }

    #[test]
    fn few_intervals_are_averaged_by_their_own_weights() {
        assert_eq!(history(&[100.0, 300.0]).mean(), Some(200.0));
    }

    #[test]
    fn a_long_open_interval_lowers_the_rate_and_a_short_one_leaves_it() {
        let mut history = history(&[100.0; 8]);
        history.on_packets(50.0);
        assert_eq!(history.mean(), Some(100.0));
        history.on_packets(1150.0);
        assert!((history.mean().expect("known") - (1200.0 + 500.0) / 6.0).abs() < 1e-12);
    }

    #[test]
    fn events_without_packets_between_them_keep_the_rate_finite() {
        assert_eq!(history(&[0.0, 0.0]).rate(), Some(1.0));
    }
}
