//! The wire after a transmitter: loss, maximum packet size, and propagation delay; and what few links
//! have besides: a schedule, a policer, duplicates, bit errors, aggregation.

use std::sync::Arc;

use ontempo_foundation::{Bytes, Packets, RandomStream, Time};

use crate::aggregation::Aggregator;
use crate::cellreplay::{Release, Replay};
use crate::{AggregationParameters, DelayLaw, LossModel, Schedule, TokenBucket};

/// What few links have: a link without any of it costs nothing for it.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// How the link changes during the run. The rate of its parameters is then the nominal one, by
    /// which queues estimate waits while nothing passes.
    pub schedule: Option<Arc<Schedule>>,
    /// Drops what does not conform before it reaches the queue (RFC 2697, with one bucket).
    pub policer: Option<TokenBucket>,
    /// Probability, 0 to 1, that a packet that crosses the wire arrives twice.
    pub duplicate: f64,
    /// Probability, 0 to 1, that a packet that crosses the wire arrives with bit errors.
    pub corrupt: f64,
    /// The link sends in aggregates; a packet leaves as soon as the link is free if `None`.
    pub aggregation: Option<AggregationParameters>,
}

impl Extras {
    pub(crate) fn is_none(&self) -> bool {
        self.schedule.is_none()
            && self.policer.is_none()
            && !self.harms()
            && self.aggregation.is_none()
    }

    fn harms(&self) -> bool {
        self.duplicate > 0.0 || self.corrupt > 0.0
    }
}

/// What the wire did to packets that arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Harm {
    /// Packets with bit errors.
    pub(crate) corrupted: Packets,
    /// Packets that arrive twice.
    pub(crate) duplicated: Packets,
}

/// A wire with loss, a maximum packet size, a variable delay or extras.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    mtu: Option<Bytes>,
    /// The size from which on a packet is none for [`loses`](Wire::loses) and
    /// [`arrival`](Wire::arrival): beyond the maximum, or any on a link with extras.
    special_from: u64,
    loss: LossModel,
    loss_random: RandomStream,
    delay: DelayLaw,
    delay_random: RandomStream,
    reordering: bool,
    /// Latest arrival so far; unused if packets may overtake.
    last_arrival: Time,
    special: Option<Box<Special>>,
}

/// State of a link's extras.
#[derive(Clone, Debug)]
struct Special {
    schedule: Option<Arc<Schedule>>,
    /// What the last packet left of its last opportunity.
    left: u128,
    policer: Option<TokenBucket>,
    duplicate: f64,
    duplicate_random: RandomStream,
    corrupt: f64,
    corrupt_random: RandomStream,
    harm: Harm,
    aggregator: Option<Aggregator>,
    /// Of a link whose schedule is a pair of traces.
    replay: Option<Replay>,
}

impl Special {
    fn new(extras: Extras, stream: impl Fn(&str) -> RandomStream) -> Self {
        let Extras { schedule, policer, duplicate, corrupt, aggregation } = extras;
        let is_replay = schedule.as_ref().is_some_and(|schedule| schedule.cellreplay.is_some());
        Self {
            replay: is_replay.then(Replay::default),
            schedule,
            left: 0,
            policer,
            duplicate,
            duplicate_random: stream("duplicate"),
            corrupt,
            corrupt_random: stream("corrupt"),
            harm: Harm::default(),
            aggregator: aggregation
                .map(|parameters| Aggregator::new(parameters, stream("aggregation"))),
        }
    }

    fn harms(&self) -> bool {
        self.duplicate > 0.0 || self.corrupt > 0.0
    }
}

impl Wire {
    /// `name` names its streams of random numbers (`NAME loss`, `NAME delay`, `NAME duplicate`,
    /// `NAME corrupt`, `NAME aggregation`).
    pub(crate) fn new(
        mtu: Option<Bytes>,
        loss: LossModel,
        delay: DelayLaw,
        reordering: bool,
        extras: Extras,
        (seed, name): (u64, &str),
    ) -> Self {
        let stream = |purpose: &str| RandomStream::new(seed, &format!("{name} {purpose}"));
        let special = (!extras.is_none()).then(|| Box::new(Special::new(extras, stream)));
        Self {
            mtu,
            special_from: match special {
                Some(_) => 0,
                None => mtu.map_or(u64::MAX, |mtu| mtu.get().saturating_add(1)),
            },
            loss,
            loss_random: stream("loss"),
            delay,
            delay_random: stream("delay"),
            reordering,
            last_arrival: Time::ZERO,
            special,
        }
    }

    /// The schedule of a link that changes.
    #[inline]
    pub(crate) fn schedule(&self) -> Option<&Schedule> {
        self.special.as_ref()?.schedule.as_deref()
    }

    /// Replaces the schedule of a link that has one; `left`: what the last packet that has ended left
    /// of its last opportunity, if a transmission is to be computed anew.
    pub(crate) fn set_schedule(&mut self, schedule: Arc<Schedule>, left: Option<u128>) {
        if let Some(special) = &mut self.special {
            special.schedule = Some(schedule);
            special.left = left.unwrap_or(special.left);
        }
    }

    /// What the last packet left of its last opportunity, in billionths of a bit.
    pub(crate) fn left(&self) -> u128 {
        self.special.as_ref().map_or(0, |special| special.left)
    }

    /// Whether the link has extras.
    #[inline]
    pub(crate) fn has_extras(&self) -> bool {
        self.special.is_some()
    }

    /// Whether a packet of `size` that arrives at `now` passes the policer; called once for each
    /// packet.
    pub(crate) fn conforms(&mut self, now: Time, size: Bytes) -> bool {
        let policer = self.special.as_mut().and_then(|special| special.policer.as_mut());
        policer.is_none_or(|policer| policer.conforms(now, size))
    }

    /// The aggregates of the link, if it sends in such.
    pub(crate) fn aggregator(&self) -> Option<&Aggregator> {
        self.special.as_ref()?.aggregator.as_ref()
    }

    pub(crate) fn aggregator_mut(&mut self) -> Option<&mut Aggregator> {
        self.special.as_mut()?.aggregator.as_mut()
    }

    /// The state of a link that follows a pair of traces.
    pub(crate) fn replay(&self) -> Option<&Replay> {
        self.special.as_ref()?.replay.as_ref()
    }

    pub(crate) fn replay_mut(&mut self) -> Option<&mut Replay> {
        self.special.as_mut()?.replay.as_mut()
    }

    /// When a packet that arrives at `now` leaves the light stage, on such a link.
    pub(crate) fn release(&mut self, now: Time, size: Bytes) -> Option<Release> {
        let Special { schedule, replay, .. } = &mut **self.special.as_mut()?;
        let cell = schedule.as_ref()?.cellreplay.as_ref()?;
        Some(replay.as_mut()?.release(cell, now, size))
    }

    /// Whether packets may arrive twice, or with bit errors.
    pub(crate) fn harms(&self) -> bool {
        self.special.as_ref().is_some_and(|special| special.harms())
    }

    /// Whether the next packet that arrives is corrupted, and whether it arrives twice; called once
    /// for each.
    pub(crate) fn next_harm(&mut self) -> (bool, bool) {
        let Some(special) = self.special.as_mut().filter(|special| special.harms()) else {
            return (false, false);
        };
        let corrupted = special.corrupt > 0.0 && special.corrupt_random.chance(special.corrupt);
        let duplicated =
            special.duplicate > 0.0 && special.duplicate_random.chance(special.duplicate);
        special.harm.corrupted += Packets::new(u64::from(corrupted));
        special.harm.duplicated += Packets::new(u64::from(duplicated));
        (corrupted, duplicated)
    }

    /// What the wire did so far.
    pub(crate) fn harm(&self) -> Harm {
        self.special.as_ref().map_or(Harm::default(), |special| special.harm)
    }

    /// The end of a transmission that starts at `starts`, on a link that changes; `waited` if the
    /// packet has waited for the end of the one before it.
    pub(crate) fn transmit(&mut self, starts: Time, waited: bool, size: Bytes) -> Option<Time> {
        let special = self.special.as_mut()?;
        let schedule = special.schedule.as_ref()?;
        let left = if waited { special.left } else { 0 };
        let sent = schedule.capacity.send(starts, left, size);
        special.left = sent.left;
        Some(sent.ends)
    }

    /// Whether a packet of `size` exceeds the maximum, or any packet is on a link with extras.
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
