//! The share of packets that a path loses whatever the rate: losses of a radio link, say. Not of the
//! draft; the idea of an inherent loss is that of WebRTC's `LossBasedBweV2`.

use ontempo_foundation::Duration;

use super::flow::Event;

/// What became of so many packets is looked at together.
const BLOCK: f64 = 50.0;

/// A round trip shows no queue below this factor times the least of the path, and this much more, in seconds.
const WITHOUT_QUEUE: (f64, f64) = (1.25, 0.002);

/// The weight of a block, once so many have been seen; before, all weigh the same.
const BLOCK_WEIGHT: f64 = 0.1;

/// Losses are more than the inherent ones beyond so many standard deviations: by chance alone in one of about forty
/// rounds where packets are lost independently, more often where they are lost in bursts.
const DEVIATIONS: f64 = 2.0;

/// Whether a path whose least round trip is `least` had no queue that counts when it took `rtt`.
pub(super) fn is_without_queue(rtt: Duration, least: Duration) -> bool {
    let (factor, margin) = WITHOUT_QUEUE;
    rtt.as_secs_f64() < factor * least.as_secs_f64() + margin
}

/// The losses of blocks of packets during which the path had no queue. The estimate of a path without
/// such losses is 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InherentLoss {
    /// The estimate, 0 to 1.
    share: f64,
    /// The variance of a block's losses, for each of its packets: `share` where packets are lost independently, more
    /// where they are lost in bursts.
    variance: f64,
    blocks: u32,
    // Of the block that is being collected.
    delivered: f64,
    lost: f64,
    least_rtt: Option<Duration>,
    /// Packets lost in this round, and packets of which it is known what became of them.
    round: (f64, f64),
}

impl InherentLoss {
    /// The estimated share of packets.
    pub(super) fn share(&self) -> f64 {
        self.share
    }

    /// An acknowledgement; `min_rtt` is the path's least round trip.
    pub(super) fn on_ack(&mut self, event: &Event, min_rtt: Option<Duration>) {
        self.delivered += event.newly;
        self.lost += event.lost;
        self.least_rtt = [self.least_rtt, event.rtt].into_iter().flatten().min();
        self.round.0 += event.lost;
        self.round.1 += event.lost + event.newly;
        let packets = self.delivered + self.lost;
        if packets < BLOCK {
            return;
        }
        if self.least_rtt.zip(min_rtt).is_some_and(|(block, path)| is_without_queue(block, path)) {
            self.blocks = self.blocks.saturating_add(1);
            let weight = (1.0 / f64::from(self.blocks)).max(BLOCK_WEIGHT);
            let beyond = self.lost - packets * self.share;
            self.share += weight * beyond / packets;
            self.variance = (1.0 - weight) * (self.variance + weight * beyond * beyond / packets);
        }
        (self.delivered, self.lost, self.least_rtt) = (0.0, 0.0, None);
    }

    /// Whether `lost` of so many packets is more than the path loses anyway, by more than `threshold` of
    /// them and the chance of independent losses: for a time in which the rate rises, and losses that come
    /// together may come from it.
    pub(super) fn is_exceeded(&self, lost: f64, packets: f64, threshold: f64) -> bool {
        self.is_beyond(lost, packets, threshold, self.share)
    }

    /// The same with the chance of losses that come in bursts, as those before: for a time in which the rate does
    /// not rise.
    pub(super) fn is_exceeded_by_bursts(&self, lost: f64, packets: f64, threshold: f64) -> bool {
        self.is_beyond(lost, packets, threshold, self.share.max(self.variance))
    }

    fn is_beyond(&self, lost: f64, packets: f64, threshold: f64, variance: f64) -> bool {
        let chance = DEVIATIONS * (packets * variance).sqrt();
        lost > packets * (threshold + self.share) + chance
    }

    /// A round ends: whether its losses [exceed](Self::is_exceeded_by_bursts) those of the path.
    pub(super) fn ends_round_exceeded(&mut self, threshold: f64) -> bool {
        let (lost, packets) = std::mem::take(&mut self.round);
        self.is_exceeded_by_bursts(lost, packets, threshold)
    }
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::{RandomStream, Time};

    use super::*;
    use crate::recovery::Repair;

    const PATH: Duration = Duration::from_millis(100);

    /// The estimate after `packets`, of which a share is lost at random in bursts of so many, with the given round trip.
    fn estimate_of(share: f64, burst: u32, rtt: Duration, packets: u32) -> InherentLoss {
        let mut random = RandomStream::new(7, "inherent");
        let mut inherent = InherentLoss::default();
        for _ in 0..packets / burst {
            let is_lost = random.chance(share);
            let event = Event {
                now: Time::ZERO,
                newly: f64::from(!is_lost),
                lost: f64::from(is_lost),
                in_flight: 10.0,
                rtt: (!is_lost).then_some(rtt),
                sample: None,
                repair: Repair::None,
            };
            (0..burst).for_each(|_| inherent.on_ack(&event, Some(PATH)));
        }
        inherent
    }

    fn estimate(share: f64, rtt: Duration, packets: u32) -> InherentLoss {
        estimate_of(share, 1, rtt, packets)
    }

    #[test]
    fn losses_without_a_queue_are_the_path_s_own_and_no_sign_of_congestion() {
        let inherent = estimate(0.05, PATH, 5_000);
        assert!((inherent.share() - 0.05).abs() < 0.03, "{inherent:?}");
        assert!(!inherent.is_exceeded(5.0, 100.0, 0.02), "{inherent:?}");
        assert!(inherent.is_exceeded(25.0, 100.0, 0.02), "{inherent:?}");
    }

    #[test]
    fn losses_while_a_queue_stands_are_not_the_path_s_own() {
        let inherent = estimate(0.05, PATH * 2, 5_000);
        assert_eq!(inherent.share(), 0.0);
        assert!(inherent.is_exceeded(5.0, 100.0, 0.02));
    }

    #[test]
    fn a_burst_of_losses_as_those_before_is_chance_unless_the_rate_rises() {
        let bursts = estimate_of(0.05, 20, PATH, 20_000);
        assert!((bursts.share() - 0.05).abs() < 0.04, "{bursts:?}");
        assert!(!bursts.is_exceeded_by_bursts(15.0, 100.0, 0.02), "{bursts:?}");
        assert!(bursts.is_exceeded(15.0, 100.0, 0.02), "{bursts:?}");
        assert!(bursts.is_exceeded_by_bursts(60.0, 100.0, 0.02), "{bursts:?}");
        let single = estimate(0.05, PATH, 20_000);
        assert!(single.is_exceeded_by_bursts(15.0, 100.0, 0.02), "{single:?}");
    }
}
