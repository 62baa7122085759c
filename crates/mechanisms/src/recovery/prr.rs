//! Proportional rate reduction (RFC 9937, as in Linux's `tcp_cwnd_reduction`).

/// The window during a loss episode: from what was in flight at its beginning to the controller's
/// new threshold, in proportion to what is delivered, so that ACKs clock out packets all the way.
#[derive(Clone, Copy, Debug)]
pub struct ProportionalReduction {
    /// The window before the episode, in packets (RecoverFS; Linux's `prior_cwnd`).
    prior: u64,
    /// The controller's threshold, in packets (ssthresh).
    target: u64,
    delivered: u64,
    sent: u64,
    window: u64,
}

impl ProportionalReduction {
    /// An episode begins: the window was `prior` packets and falls to `target`.
    pub fn new(prior: u64, target: u64) -> Self {
        Self { prior: prior.max(1), target, delivered: 0, sent: 0, window: prior.max(1) }
    }

    /// An acknowledgement of the episode arrived, the one that began it included: `delivered` packets
    /// newly acknowledged. `is_safe`: the cumulative acknowledgement moved and no packet was found
    /// lost.
    pub fn on_ack(&mut self, in_flight: u64, delivered: u64, is_safe: bool) {
        if delivered == 0 {
            return;
        }
        self.delivered += delivered;
        let allowed = if in_flight > self.target {
            (self.target * self.delivered).div_ceil(self.prior).saturating_sub(self.sent)
        } else {
            let due = self.delivered.saturating_sub(self.sent).max(delivered);
            (due + u64::from(is_safe)).min(self.target - in_flight)
        };
        // The first retransmission leaves at once.
        let allowed = allowed.max(u64::from(self.sent == 0));
        self.window = in_flight + allowed;
    }

    /// A packet was sent during the episode.
    pub fn on_sent(&mut self) {
        self.sent += 1;
    }

    /// The window in packets.
    pub fn window(&self) -> u64 {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One window of packets whose first is lost: how many packets leave for each of the ACKs.
    fn sent_per_ack(prior: u64, target: u64) -> Vec<u64> {
        let mut reduction = ProportionalReduction::new(prior, target);
        let mut in_flight = prior - 1;
        (1..prior)
            .map(|_| {
                in_flight -= 1;
                reduction.on_ack(in_flight, 1, false);
                let sent = reduction.window().saturating_sub(in_flight);
                (0..sent).for_each(|_| reduction.on_sent());
                in_flight += sent;
                sent
            })
            .collect()
    }

    #[test]
    fn packets_leave_at_the_reduced_rate_throughout_the_round_trip() {
        let sent = sent_per_ack(20, 14);
        assert!(sent.iter().all(|packets| *packets <= 1), "{sent:?}");
        let halves = sent.split_at(sent.len() / 2);
        let total = |half: &[u64]| half.iter().sum::<u64>();
        assert!(total(halves.0).abs_diff(total(halves.1)) <= 1, "{sent:?}");
        assert_eq!(total(&sent), (14 * 19_u64).div_ceil(20));
    }

    #[test]
    fn after_many_losses_the_window_grows_by_what_is_delivered_and_one_where_that_is_safe() {
        let mut reduction = ProportionalReduction::new(20, 14);
        reduction.on_ack(4, 1, false);
        assert_eq!(reduction.window(), 5);
        reduction.on_sent();
        reduction.on_ack(4, 1, true);
        assert_eq!(reduction.window(), 6);
    }

    #[test]
    fn it_never_fills_beyond_the_threshold() {
        let mut reduction = ProportionalReduction::new(20, 14);
        reduction.on_ack(10, 30, true);
        assert_eq!(reduction.window(), 14);
    }
}
