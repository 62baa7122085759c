//! The wire after a transmitter: loss, maximum packet size, and propagation delay; and how they and
//! the rate change during a run.

use std::sync::Arc;

use ontempo_foundation::{Bytes, RandomStream, Time};

use crate::{DelayLaw, LossModel, Schedule};

/// A wire with loss, a maximum packet size, a variable delay or a schedule.
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
    varying: Option<Box<Varying>>,
}

/// State of a link that changes.
#[derive(Clone, Debug)]
struct Varying {
    schedule: Arc<Schedule>,
    /// What the last packet left of its last opportunity.
    left: u128,
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
            varying: None,
        }
    }

    /// The same wire with a schedule.
    pub(crate) fn with_schedule(self, schedule: Arc<Schedule>) -> Self {
        Self { varying: Some(Box::new(Varying { schedule, left: 0 })), ..self }
    }

    /// The schedule of a link that changes.
    #[inline]
    pub(crate) fn schedule(&self) -> Option<&Schedule> {
        self.varying.as_ref().map(|varying| &*varying.schedule)
    }

    /// Whether the link changes.
    #[inline]
    pub(crate) fn varies(&self) -> bool {
        self.varying.is_some()
    }

    /// The end of a transmission that starts at `starts`, on a link that changes; `waited` if the
    /// packet has waited for the end of the one before it.
    pub(crate) fn transmit(&mut self, starts: Time, waited: bool, size: Bytes) -> Option<Time> {
        let varying = self.varying.as_mut()?;
        let left = if waited { varying.left } else { 0 };
        let sent = varying.schedule.capacity.send(starts, left, size);
        varying.left = sent.left;
        Some(sent.ends)
    }

    /// Whether a packet of `size` exceeds the maximum.
    #[inline]
    pub(crate) fn exceeds_mtu(&self, size: Bytes) -> bool {
        self.mtu.is_some_and(|mtu| size > mtu)
    }

    /// Whether the next packet, whose last bit leaves at `ends`, is lost; called once per packet.
    #[inline]
    pub(crate) fn loses(&mut self, ends: Time) -> bool {
        if let Some(varying) = &self.varying
            && let Some(loss) = varying.schedule.loss_at(ends)
        {
            return self.loss_random.chance(loss);
        }
        self.loss.lost(&mut self.loss_random)
    }

    /// When a packet arrives whose last bit leaves at `ends`.
    #[inline]
    pub(crate) fn arrival(&mut self, ends: Time) -> Time {
        let scheduled = self.varying.as_ref().and_then(|varying| varying.schedule.delay_at(ends));
        let delay = match scheduled {
            Some(delay) => delay,
            None => self.delay.sample(&mut self.delay_random),
        };
        let at = ends + delay;
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
