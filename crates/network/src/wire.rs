//! The wire after a transmitter: loss, maximum packet size, and propagation delay; and how they and
//! the rate change during a run.

use std::sync::Arc;

use ontempo_foundation::{Bytes, RandomStream, Time};

use crate::{DelayLaw, LossModel, Schedule};

/// A wire with loss, a maximum packet size, a variable delay or a schedule.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    mtu: Option<Bytes>,
    /// The size from which on a packet is none for [`loses`](Wire::loses) and
    /// [`arrival`](Wire::arrival): beyond the maximum, or any on a link that changes.
    special_from: u64,
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
            special_from: mtu.map_or(u64::MAX, |mtu| mtu.get().saturating_add(1)),
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
        let varying = Some(Box::new(Varying { schedule, left: 0 }));
        Self { varying, special_from: 0, ..self }
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

    /// Whether a packet of `size` exceeds the maximum, or any packet is on a link that changes.
    #[inline]
    pub(crate) fn is_special(&self, size: Bytes) -> bool {
        size.get() >= self.special_from
    }

    /// Whether a packet of `size` exceeds the maximum.
    #[inline]
    pub(crate) fn exceeds_mtu(&self, size: Bytes) -> bool {
        self.mtu.is_some_and(|mtu| size > mtu)
    }

    /// Whether the next packet is lost; called once per packet. On a link that changes:
    /// [`loses_at`](Self::loses_at).
    #[inline]
    pub(crate) fn loses(&mut self) -> bool {
        self.loss.lost(&mut self.loss_random)
    }

    /// When a packet arrives whose last bit leaves at `ends`. On a link that changes:
    /// [`arrival_at`](Self::arrival_at).
    #[inline]
    pub(crate) fn arrival(&mut self, ends: Time) -> Time {
        let at = ends + self.delay.sample(&mut self.delay_random);
        self.in_order(at)
    }

    /// Whether the next packet is lost, whose last bit leaves at `ends`, on any link.
    pub(crate) fn loses_at(&mut self, ends: Time) -> bool {
        match self.schedule().and_then(|schedule| schedule.loss_at(ends)) {
            Some(loss) => self.loss_random.chance(loss),
            None => self.loses(),
        }
    }

    /// When a packet arrives whose last bit leaves at `ends`, on any link.
    pub(crate) fn arrival_at(&mut self, ends: Time) -> Time {
        match self.schedule().and_then(|schedule| schedule.delay_at(ends)) {
            Some(delay) => self.in_order(ends + delay),
            None => self.arrival(ends),
        }
    }

    #[inline]
    fn in_order(&mut self, at: Time) -> Time {
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
