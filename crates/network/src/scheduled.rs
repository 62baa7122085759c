//! Links whose discipline decides at dequeue: which packet is sent next, and which are dropped.

use core::fmt::Debug;
use std::sync::Arc;

use ontempo_foundation::{Bytes, Duration, Packets, Rate, Time};

use crate::wire::Wire;
use crate::{DelayLaw, DropReason, Drops, Extras, LinkStatistics, LossModel, Occupancy, Schedule};

/// A packet that waits in a scheduled link, as its discipline sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Identifies the packet to the link's owner; not used here.
    pub handle: u32,
    /// Its flow. Packets of one flow leave in the order in which they arrived.
    pub flow: u32,
    /// Its class, set by the owner (the simulator: its flow's group), for disciplines
    /// that treat classes differently.
    pub class: u32,
    /// Its size on the wire.
    pub size: Bytes,
    /// Whether it is ECN-capable (RFC 3168).
    pub ecn_capable: bool,
    /// Whether it is of the L4S service: ECT(1) or CE (RFC 9331, section 4.1).
    pub l4s: bool,
    /// When it was offered.
    pub enqueued: Time,
}

/// A packet that a discipline passes to the transmitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The packet.
    pub packet: Queued,
    /// Whether it is marked (CE of RFC 3168).
    pub marked: bool,
}

/// A packet that a discipline drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The packet: the one offered, or one that waited.
    pub packet: Queued,
    /// The reason.
    pub reason: DropReason,
}

/// A queue discipline that decides when the transmitter is free.
///
/// Every packet comes out exactly once: from [`dequeue`](Discipline::dequeue), or as a drop
/// of either call. Packets of one flow must leave in the order in which they arrived. `now` does
/// not decrease from call to call.
pub trait Discipline: Debug + Send {
    /// Enqueues `packet`; packets dropped for it (itself, or waiting ones) are appended to `drops`.
    fn enqueue(&mut self, now: Time, packet: Queued, drops: &mut Vec<Dropped>);

    /// The next packet to transmit at `now`, with the transmitter free; packets dropped before
    /// it are appended to `drops`. `None` if nothing waits, or nothing may leave yet.
    fn dequeue(&mut self, now: Time, drops: &mut Vec<Dropped>) -> Option<Chosen>;

    /// The packets waiting.
    fn occupancy(&self) -> Occupancy;

    /// The transmitter has become free and found nothing waiting, as it would have learnt from
    /// [`dequeue`](Discipline::dequeue). Nobody asks an empty discipline, so that an idle link costs
    /// no event; so it is notified before the next [`enqueue`](Discipline::enqueue).
    fn on_idle(&mut self) {}

    /// On a link that changes: its mean rate since the last call of
    /// [`enqueue`](Discipline::enqueue) or [`dequeue`](Discipline::dequeue), before the next.
    fn set_rate(&mut self, _rate: Rate) {}

    /// On a link that is [changeable](ScheduledLink::changeable), before each
    /// [`enqueue`](Discipline::enqueue): for how long the transmitter has been free, `None` while it
    /// sends; and the rate by which a queue estimates waits.
    fn set_transmitter(&mut self, _idle: Option<Duration>, _rate: Rate) {}

    /// The earliest time, not before `now`, at which [`dequeue`](Discipline::dequeue) may
    /// return a packet if no other arrives; [`Time::NEVER`] if nothing waits. Only a
    /// discipline that delays packets on a free link (a shaper) returns a time
    /// after `now`.
    fn ready(&self, now: Time) -> Time {
        if self.occupancy().packets > Packets::new(0) { now } else { Time::NEVER }
    }
}

/// Parameters of a scheduled link: as [`LinkParameters`](crate::LinkParameters), with a
/// discipline in place of the queue.
#[derive(Debug)]
pub struct ScheduledLinkParameters {
    /// Transmission rate.
    pub rate: Rate,
    /// Propagation delay, from the end of a packet's transmission to its arrival.
    pub delay: DelayLaw,
    /// Maximum packet size; `None` for no limit.
    pub mtu: Option<Bytes>,
    /// The queue discipline.
    pub discipline: Box<dyn Discipline>,
    /// Loss on the wire.
    pub loss: LossModel,
    /// Whether a packet may overtake an earlier one that has a longer delay.
    pub reordering: bool,
    /// What few links have; none by default.
    pub extras: Extras,
}

/// A packet whose transmission has begun; on a [changeable](ScheduledLink::changeable) link, has
/// ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The packet.
    pub packet: Queued,
    /// When its transmission began.
    pub starts: Time,
    /// When its last bit arrives at the other end; `None` if it is lost on the wire.
    pub arrives: Option<Time>,
    /// Whether the discipline marked it (ECN).
    pub marked: bool,
    /// Whether it arrives with bit errors ([`Extras::corrupt`]).
    pub corrupted: bool,
    /// Whether a copy of it arrives right behind it ([`Extras::duplicate`]).
    pub duplicated: bool,
}

/// One direction of a link whose discipline decides at dequeue.
///
/// A [`Link`](crate::Link) knows a packet's times when it is offered. Here they depend on later
/// arrivals, so the owner drives the link: it calls [`enqueue`](Self::enqueue) at arrivals, and
/// [`dequeue`](Self::dequeue) at the time that [`next_dequeue`](Self::next_dequeue) returns.
///
/// ```
/// # use ontempo_foundation::{Bytes, Duration, Rate, Time};
/// # use ontempo_network::{CoDel, CoDelParameters, DelayLaw, Extras, LossModel};
/// # use ontempo_network::{Queued, ScheduledLink, ScheduledLinkParameters};
/// let discipline = Box::new(CoDel::new(CoDelParameters::default()));
/// let mut link = ScheduledLink::new(ScheduledLinkParameters {
///     rate: Rate::from_bits_per_sec(1_000_000),
///     delay: DelayLaw::Constant(Duration::from_millis(10)),
///     mtu: None,
///     discipline,
///     loss: LossModel::None,
///     reordering: false,
///     extras: Extras::default(),
/// }, 1, "link");
/// let mut drops = Vec::new();
/// let size = Bytes::new(1000);
/// let enqueued = Time::ZERO;
/// let packet = Queued { handle: 7, flow: 0, class: 0, size, ecn_capable: false, l4s: false, enqueued };
/// link.enqueue(Time::ZERO, packet, &mut drops);
/// assert_eq!(link.next_dequeue(Time::ZERO), Time::ZERO);
/// let departure = link.dequeue(Time::ZERO, &mut drops).expect("one waits");
/// assert_eq!(departure.arrives, Some(Time::ZERO + Duration::from_millis(18)));
/// assert!(drops.is_empty());
/// ```
#[derive(Debug)]
pub struct ScheduledLink {
    /// The nominal rate if there is a schedule.
    rate: Rate,
    discipline: Box<dyn Discipline>,
    wire: Wire,
    /// Whether the schedule may be replaced.
    changeable: bool,
    /// The packet in transmission of a changeable link.
    sending: Option<Sending>,
    /// When the packet in transmission has left; the transmitter is free from then on.
    busy_until: Time,
    /// Until when the discipline knows the rates of a link that changes.
    rated_until: Time,
    arrivals: u64,
    departures: u64,
    bytes_departed: Bytes,
    marks: u64,
    drops: Drops,
    /// Total time of all transmissions, to their ends.
    busy: Duration,
    /// The integral of the packets waiting over time, in packet-nanoseconds, until `counted`.
    wait: u128,
    counted: Time,
}

/// A packet in transmission on a changeable link.
#[derive(Clone, Copy, Debug)]
struct Sending {
    packet: Queued,
    marked: bool,
    starts: Time,
    /// Whether it had waited for the end of the one before it.
    waited: bool,
    /// What that one had left of its last opportunity ([`Sent::left`](crate::Sent::left)).
    left: u128,
}

impl ScheduledLink {
    /// An idle link; `name` names its streams of random numbers (`NAME loss`, `NAME delay`) in
    /// the run with `seed`.
    pub fn new(parameters: ScheduledLinkParameters, seed: u64, name: &str) -> Self {
        let ScheduledLinkParameters { rate, delay, mtu, discipline, loss, reordering, extras } =
            parameters;
        Self {
            rate,
            discipline,
            wire: Wire::new(mtu, loss, delay, reordering, extras, (seed, name)),
            changeable: false,
            sending: None,
            busy_until: Time::ZERO,
            rated_until: Time::ZERO,
            arrivals: 0,
            departures: 0,
            bytes_departed: Bytes::ZERO,
            marks: 0,
            drops: Drops::default(),
            busy: Duration::ZERO,
            wait: 0,
            counted: Time::ZERO,
        }
    }

    /// A link whose schedule may be [replaced](Self::set_schedule) while it is used: the fate of a
    /// packet is decided as its last bit leaves, not as its transmission begins. Times and draws are
    /// those of a link that has had the last schedule from the start.
    ///
    /// Only a link that has a schedule and sends no aggregates is changed; others stay as they are.
    #[must_use]
    pub fn changeable(mut self) -> Self {
        self.changeable = self.wire.schedule().is_some() && self.wire.aggregator().is_none();
        self
    }

    /// Whether the schedule may be replaced.
    pub const fn is_changeable(&self) -> bool {
        self.changeable
    }

    /// Replaces the schedule by one that says the same of all until now; false if the link
    /// is not [changeable](Self::changeable). The owner then asks for
    /// [`next_dequeue`](Self::next_dequeue) again.
    pub fn set_schedule(&mut self, schedule: Arc<Schedule>) -> bool {
        if !self.changeable {
            return false;
        }
        let left = self.sending.map(|sending| sending.left);
        self.wire.set_schedule(schedule, left);
        if let Some(Sending { packet, starts, waited, .. }) = self.sending
            && let Some(ends) = self.wire.transmit(starts, waited, packet.size)
        {
            self.busy = self.busy - self.busy_until.since(starts) + ends.since(starts);
            self.busy_until = ends;
        }
        true
    }

    /// The rate, delay and probability of loss at `now` that its schedule says.
    pub fn schedule(&self) -> Option<&Schedule> {
        self.wire.schedule()
    }

    /// Whether a packet may overtake an earlier one of its flow.
    pub fn reorders(&self) -> bool {
        self.wire.reorders()
    }

    /// Whether packets may arrive twice, or with bit errors.
    pub fn harms(&self) -> bool {
        self.wire.harms()
    }

    /// Enqueues a packet; packets dropped for it (itself, or others) are appended to `drops`.
    pub fn enqueue(&mut self, now: Time, packet: Queued, drops: &mut Vec<Dropped>) {
        self.count_wait(now);
        self.arrivals += 1;
        let dropped_before = drops.len();
        if self.wire.exceeds_mtu(packet.size) {
            drops.push(Dropped { packet, reason: DropReason::TooLarge });
        } else if !self.wire.conforms(now, packet.size) {
            drops.push(Dropped { packet, reason: DropReason::Policer });
        } else {
            self.pass_rate(now);
            self.pass_transmitter(now);
            if self.is_idle(now) {
                self.discipline.on_idle();
            }
            self.discipline.enqueue(now, packet, drops);
        }
        self.count_drops(&drops[dropped_before..]);
        if let Some(aggregator) = self.wire.aggregator_mut()
            && self.discipline.occupancy().packets > Packets::new(0)
        {
            aggregator.on_enqueued(now.max(self.busy_until));
        }
    }

    /// When to call [`dequeue`](Self::dequeue) next; to be called at `now` after all other
    /// calls. [`Time::NEVER`] if nothing waits.
    pub fn next_dequeue(&self, now: Time) -> Time {
        if self.sending.is_some() {
            return self.busy_until;
        }
        self.discipline.ready(now.max(self.free_from()))
    }

    /// Whether the transmitter has asked for a packet by `now`, in vain since nothing waits.
    fn is_idle(&self, now: Time) -> bool {
        self.sending.is_none()
            && now >= self.free_from()
            && self.occupancy().packets == Packets::new(0)
    }

    /// When the transmitter may send the next packet.
    fn free_from(&self) -> Time {
        match self.wire.aggregator() {
            Some(aggregator) => self.busy_until.max(aggregator.opens()),
            None => self.busy_until,
        }
    }

    /// Begins the transmission of the next packet, if the transmitter is free and the
    /// discipline has one to send; packets that it drops instead are appended to `drops`. On a
    /// [changeable](Self::changeable) link, ends it: what has begun is returned at its end.
    pub fn dequeue(&mut self, now: Time, drops: &mut Vec<Dropped>) -> Option<Departure> {
        if now < self.free_from() {
            return None;
        }
        if let Some(sending) = self.sending.take() {
            return Some(self.leave(sending));
        }
        self.count_wait(now);
        self.pass_rate(now);
        let dropped_before = drops.len();
        if let Some(aggregator) = self.wire.aggregator_mut() {
            aggregator.on_dequeue(self.discipline.occupancy().packets);
        }
        let chosen = self.discipline.dequeue(now, drops);
        self.count_drops(&drops[dropped_before..]);
        let Some(Chosen { packet, marked }) = chosen else {
            self.count_sent(None, now);
            return None;
        };
        let waited = now == self.busy_until && packet.enqueued < now;
        let sending = Sending { packet, marked, starts: now, waited, left: self.wire.left() };
        let ends = self.wire.transmit(now, waited, packet.size);
        self.busy_until = ends.unwrap_or_else(|| now + self.rate.time_to_send(packet.size));
        self.count_sent(Some(packet.size), self.busy_until);
        self.busy += self.busy_until.since(now);
        self.departures += 1;
        self.bytes_departed += packet.size;
        self.marks += u64::from(marked);
        if self.changeable {
            self.sending = Some(sending);
            return None;
        }
        Some(self.leave(sending))
    }

    /// What becomes of a packet whose last bit leaves at `busy_until`.
    fn leave(&mut self, Sending { packet, marked, starts, .. }: Sending) -> Departure {
        if self.wire.loses_at(self.busy_until) {
            self.drops.loss += Packets::new(1);
            let (corrupted, duplicated) = (false, false);
            return Departure { packet, starts, arrives: None, marked, corrupted, duplicated };
        }
        let arrives = Some(self.wire.arrival_at(self.busy_until));
        let (corrupted, duplicated) = self.wire.next_harm();
        Departure { packet, starts, arrives, marked, corrupted, duplicated }
    }

    /// A packet of `size` was sent, or none, and the transmitter is free from `free` on.
    fn count_sent(&mut self, size: Option<Bytes>, free: Time) {
        if let Some(aggregator) = self.wire.aggregator_mut() {
            aggregator.on_sent(size, self.discipline.occupancy().packets, free);
        }
    }

    /// The packets waiting now, without the one in transmission.
    pub fn occupancy(&self) -> Occupancy {
        self.discipline.occupancy()
    }

    /// Counters from the start to `until`, which must not be before the last call.
    pub fn statistics(&self, until: Time) -> LinkStatistics {
        let waiting = self.occupancy().packets;
        let wait = self.wait + self.wait_since(until);
        let busy = self.busy - self.busy_until.since(until);
        let span = until.as_nanos() as f64;
        let mean = |total: f64| if until > Time::ZERO { total / span } else { 0.0 };
        LinkStatistics {
            arrivals: Packets::new(self.arrivals),
            departures: Packets::new(self.departures),
            waiting,
            drops: self.drops,
            marks: Packets::new(self.marks),
            corrupted: self.wire.harm().corrupted,
            duplicated: self.wire.harm().duplicated,
            bytes_departed: self.bytes_departed,
            mean_packets: mean(wait as f64),
            busy: mean(busy.as_nanos() as f64),
        }
    }

    /// Passes the mean rate since the last call to the discipline of a link that changes.
    fn pass_rate(&mut self, now: Time) {
        if let Some(schedule) = self.wire.schedule() {
            self.discipline.set_rate(schedule.capacity.mean_rate(self.rated_until, now));
            self.rated_until = now;
        }
    }

    /// Tells the discipline of a changeable link what its transmitter does.
    fn pass_transmitter(&mut self, now: Time) {
        let Some(schedule) = self.wire.schedule().filter(|_| self.changeable) else { return };
        let is_idle = self.sending.is_none() && now >= self.busy_until;
        let (idle, rate) = if is_idle {
            let mean = schedule.capacity.mean_rate(self.busy_until, now);
            (Some(now.since(self.busy_until)), mean)
        } else {
            (None, schedule.rate_of_decisions(now, self.rate))
        };
        self.discipline.set_transmitter(idle, rate);
    }

    fn count_wait(&mut self, now: Time) {
        self.wait += self.wait_since(now);
        self.counted = now;
    }

    fn wait_since(&self, now: Time) -> u128 {
        u128::from(self.occupancy().packets.get()) * u128::from(now.since(self.counted).as_nanos())
    }

    fn count_drops(&mut self, dropped: &[Dropped]) {
        for drop in dropped {
            *self.drops.count(drop.reason) += Packets::new(1);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod changeable_tests;
#[cfg(test)]
mod tests;
