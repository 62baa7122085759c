//! The share of packets that a path loses whatever the rate, and whether losses rise with the rate. The
//! idea of an inherent loss is that of WebRTC's `LossBasedBweV2`.

/// What became of so many packets is looked at together.
const BLOCK: f64 = 40.0;

/// What is known is of the last ten blocks or so.
const KEPT: f64 = 0.9;

/// A block is slow below this share of the mean rate.
const SLOW: f64 = 0.85;

/// Before anything is known: one packet of twenty.
const FIRST: Counts = Counts { lost: 1.5, packets: 30.0 };

/// Losses beyond the inherent ones by so many standard deviations of a Poisson distribution are no
/// chance.
const DEVIATIONS: f64 = 3.0;

/// Losses rise with the rate if they are more by this share of packets and half of the inherent ones.
const RISES: f64 = 0.02;

/// Losses come in bursts of so many at most: their variance is larger by that.
const MOST_BURST: f64 = 8.0;

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    lost: f64,
    packets: f64,
}

impl Counts {
    fn share(self) -> f64 {
        if self.packets > 0.0 { self.lost / self.packets } else { 0.0 }
    }

    fn add(&mut self, lost: f64, packets: f64) {
        self.lost = self.lost * KEPT + lost;
        self.packets = self.packets * KEPT + packets;
    }
}

/// The losses of blocks of packets, those sent fast and those sent slowly apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct InherentLoss {
    /// Sent more slowly than the mean by a seventh or more.
    slow: Counts,
    /// The others.
    fast: Counts,
    /// How much of `fast` is still what was assumed first.
    assumed: f64,
    /// The mean rate of blocks, in packets a second.
    mean_rate: f64,
    // Of the block that is being collected.
    block: Counts,
    seconds: f64,
    /// Packets lost on end in the mean, smoothed.
    burst: f64,
}

impl Default for InherentLoss {
    fn default() -> Self {
        Self {
            slow: Counts::default(),
            fast: FIRST,
            assumed: 1.0,
            mean_rate: 0.0,
            block: Counts::default(),
            seconds: 0.0,
            burst: 1.0,
        }
    }
}

impl InherentLoss {
    /// The estimated share of packets, 0 to 1.
    pub(super) fn share(&self) -> f64 {
        if self.slow.packets >= BLOCK { self.slow.share() } else { self.fast.share() }
    }

    /// So many packets were delivered and lost within `seconds`, while a queue stood or not.
    pub(super) fn on_packets(&mut self, delivered: f64, lost: f64, seconds: f64, has_queue: bool) {
        if lost > 0.0 {
            self.burst += (lost.min(MOST_BURST) - self.burst) / 16.0;
        }
        self.block.lost += lost;
        self.block.packets += lost + delivered;
        self.seconds += seconds;
        if self.block.packets < BLOCK {
            return;
        }
        let block = std::mem::take(&mut self.block);
        let rate = block.packets / std::mem::take(&mut self.seconds).max(1e-3);
        if has_queue {
            return;
        }
        if rate < SLOW * self.mean_rate {
            self.slow.add(block.lost, block.packets);
        } else {
            self.fast.add(block.lost, block.packets);
            self.assumed *= KEPT;
        }
        self.mean_rate += (rate - self.mean_rate) * if self.mean_rate > 0.0 { 0.1 } else { 1.0 };
    }

    /// Whether `lost` of so many packets is more than the path loses anyway, by more than `threshold` of
    /// them and chance.
    pub(super) fn is_exceeded(&self, lost: f64, packets: f64, threshold: f64) -> bool {
        let inherent = packets * self.share();
        lost > packets * threshold + inherent + DEVIATIONS * (inherent * self.burst).sqrt()
    }

    /// Whether `lost` of so many packets is more than what the path was seen to lose by itself, by chance
    /// at most: a loss-based flow responds.
    pub(super) fn is_loss(&self, lost: f64, packets: f64) -> bool {
        let seen = Counts {
            lost: self.slow.lost + self.fast.lost - self.assumed * FIRST.lost,
            packets: self.slow.packets + self.fast.packets - self.assumed * FIRST.packets,
        };
        let inherent = packets * seen.share().max(0.0);
        lost > inherent + DEVIATIONS * (inherent * self.burst).sqrt()
    }

    /// Whether more is lost of what is sent fast than of what is sent slowly, beyond chance: the rate is
    /// the cause (a policer, a queue of a few packets).
    pub(super) fn rises_with_rate(&self) -> bool {
        let known = self.slow.packets >= BLOCK && self.fast.packets >= 2.0 * BLOCK;
        known
            && self.is_exceeded(self.fast.lost, self.fast.packets, RISES + self.slow.share() / 2.0)
    }
}
