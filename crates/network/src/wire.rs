//! The wire after a transmitter: loss, maximum packet size, and propagation delay.

use ontempo_foundation::{Bytes, RandomStream, Time};

use crate::{DelayLaw, LossModel};

/// A wire with loss, a maximum packet size or a variable delay.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    mtu: Option<Bytes>,
    loss: LossModel,
    loss_random: RandomStream,
    delay: DelayLaw,
    delay_random: RandomStream,
    reordering: bool,
    /// Latest arrival so far; unused if packets may overtake.
    last_arrival: Time,
}

impl Wire {
    /// `name` names its streams of random numbers (`NAME loss`, `NAME delay`).
    pub(crate) fn new(
        mtu: Option<Bytes>,
        loss: LossModel,
        delay: DelayLaw,
        reordering: bool,
        (seed, name): (u64, &str),
    ) -> Self {
        let stream = |purpose: &str| RandomStream::new(seed, &format!("{name} {purpose}"));
        Self {
            mtu,
            loss,
            loss_random: stream("loss"),
            delay,
            delay_random: stream("delay"),
            reordering,
            last_arrival: Time::ZERO,
        }
    }

    /// Whether a packet of `size` exceeds the maximum.
    #[inline]
    pub(crate) fn exceeds_mtu(&self, size: Bytes) -> bool {
        self.mtu.is_some_and(|mtu| size > mtu)
    }

    /// Whether the next packet is lost; called once per packet.
    #[inline]
    pub(crate) fn loses(&mut self) -> bool {
        self.loss.lost(&mut self.loss_random)
    }

    /// When a packet arrives whose last bit leaves at `ends`.
    #[inline]
    pub(crate) fn arrival(&mut self, ends: Time) -> Time {
        let at = ends + self.delay.sample(&mut self.delay_random);
        if self.reordering {
            return at;
        }
        self.last_arrival = self.last_arrival.max(at);
        self.last_arrival
    }

    /// Whether a packet may overtake an earlier one.
    pub(crate) fn reorders(&self) -> bool {
        self.reordering
    }
}
