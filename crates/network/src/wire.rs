//! The wire behind a transmitter: what it loses, what is too large for it, how long it is.

use ontempo_foundation::{Bytes, RandomStream, Time};

use crate::{DelayLaw, LossModel};

/// A wire that loses packets, turns large ones away or varies in delay.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    mtu: Option<Bytes>,
    loss: LossModel,
    loss_random: RandomStream,
    delay: DelayLaw,
    delay_random: RandomStream,
    reordering: bool,
    /// When the last packet that arrives does; unused where packets may overtake.
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

    /// Whether a packet of `size` is too large for it.
    #[inline]
    pub(crate) fn turns_away(&self, size: Bytes) -> bool {
        self.mtu.is_some_and(|mtu| size > mtu)
    }

    /// Whether it loses the packet at hand; asked once a packet.
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
