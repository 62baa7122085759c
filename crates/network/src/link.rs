//! Links on which packets leave in the order in which they came.

mod ahead;
mod fate;
mod special;
mod statistics;

use std::collections::VecDeque;

use ontempo_foundation::{Bytes, Duration, Packets, RandomStream, Rate, Time};

use crate::wire::Wire;
use crate::{DelayLaw, Extras, LossModel, Offered, Queue, Verdict};

pub use self::ahead::Ahead;
pub use self::fate::{DropReason, Drops, Fate};
pub use self::statistics::{LinkStatistics, Occupancy};

/// Parameters of one direction of a link.
#[derive(Clone, Debug)]
pub struct LinkParameters {
    /// Transmission rate; [`Rate::UNLIMITED`] for a link on which nothing ever waits.
    pub rate: Rate,
    /// Propagation delay, from the end of a packet's transmission to its arrival.
    pub delay: DelayLaw,
    /// Maximum packet size; `None` for no limit.
    pub mtu: Option<Bytes>,
    /// The queue in front of the link.
    pub queue: Queue,
    /// Loss on the wire.
    pub loss: LossModel,
    /// Whether a packet may overtake an earlier one that has a longer delay. If not,
    /// it arrives no earlier than that one (possibly at the same time).
    pub reordering: bool,
    /// What few links have; none by default.
    pub extras: Extras,
}

/// A packet that is waiting, or has been sent since the last update.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// When its transmission starts.
    starts: Time,
    size: Bytes,
}

/// One direction of a link: a queue, a transmitter and a wire.
///
/// Packets leave in the order in which they are offered, so all of a packet's times are known
/// when it is offered. The list of waiting packets is updated lazily, when a later call needs it.
///
/// A large simulation has tens of thousands of links, more than a processor's cache holds, so
/// all the state for a packet that finds a plain link idle fits into one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Link {
    /// When the last admitted packet has left; the link is idle from then on.
    busy_until: Time,
    /// The last size sent, in bytes, and its transmission time: sizes repeat, and division is slow.
    last_size: u32,
    last_duration: Duration,
    /// Whether a packet that finds the link idle always passes: no loss, no MTU, a constant
    /// delay, no extras, and a queue whose state it does not change.
    plain: bool,
    /// Whether `waiting` may hold anything.
    lingers: bool,
    /// The delay of a plain link.
    constant_delay: Duration,
    /// Transmissions of the last size that `sent` does not yet count: they are added up at once when
    /// another size comes.
    repeats: u64,
    rest: Box<Rest>,
}

/// Transmissions.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    packets: u64,
    bytes: Bytes,
    /// Their total time, to their ends.
    busy: Duration,
}

/// State needed when packets wait.
#[derive(Clone, Debug)]
struct Rest {
    sent: Sent,
    /// Packets that found the link busy, in order; some may have started since.
    waiting: VecDeque<Waiting>,
    /// Bytes of `waiting`, including those that have started.
    waiting_bytes: Bytes,
    /// Total time of all waits, to their ends, in nanoseconds; the integral of the queue over time.
    wait: u128,
    queue: Queue,
    queue_random: RandomStream,
    /// The nominal rate if there is a schedule.
    rate: Rate,
    marks: u64,
    drops: Drops,
    /// `None` for a plain link.
    wire: Option<Box<Wire>>,
}

impl Link {
    /// An idle link; `name` names its streams of random numbers (`NAME queue`, `NAME loss`,
    /// `NAME delay`) in the run with `seed`.
    pub fn new(parameters: LinkParameters, seed: u64, name: &str) -> Self {
        let LinkParameters { rate, delay, mtu, queue, loss, reordering, extras } = parameters;
        let constant_delay = match delay {
            DelayLaw::Constant(delay) => Some(delay),
            _ => None,
        };
        let is_simple = constant_delay.is_some()
            && mtu.is_none()
            && loss == LossModel::None
            && extras.is_none();
        let wire = (!is_simple)
            .then(|| Box::new(Wire::new(mtu, loss, delay, reordering, extras, (seed, name))));
        Self {
            busy_until: Time::ZERO,
            last_size: 0,
            last_duration: rate.time_to_send(Bytes::ZERO),
            plain: is_simple && matches!(queue, Queue::DropTail(_)),
            lingers: false,
            constant_delay: constant_delay.unwrap_or(Duration::ZERO),
            repeats: 0,
            rest: Box::new(Rest {
                sent: Sent::default(),
                waiting: VecDeque::new(),
                waiting_bytes: Bytes::ZERO,
                wait: 0,
                queue,
                queue_random: RandomStream::new(seed, &format!("{name} queue")),
                rate,
                marks: 0,
                drops: Drops::default(),
                wire,
            }),
        }
    }

    /// An unlimited, unused link: a placeholder for another kind of element.
    pub fn idle() -> Self {
        let parameters = LinkParameters {
            rate: Rate::UNLIMITED,
            delay: DelayLaw::Constant(Duration::ZERO),
            mtu: None,
            queue: Queue::unlimited(),
            loss: LossModel::None,
            reordering: false,
            extras: Extras::default(),
        };
        Self::new(parameters, 0, "idle")
    }

    /// Whether a packet may overtake an earlier one.
    pub fn reorders(&self) -> bool {
        self.rest.wire.as_ref().is_some_and(|wire| wire.reorders())
    }

    /// Whether packets may be offered before their time ([`statistics_without`]): to a link
    /// without [`Extras`].
    ///
    /// [`statistics_without`]: Self::statistics_without
    pub fn may_be_offered_ahead(&self) -> bool {
        !self.rest.wire.as_ref().is_some_and(|wire| wire.has_extras())
    }

    /// Whether packets may arrive twice, or with bit errors.
    pub fn harms(&self) -> bool {
        self.rest.wire.as_ref().is_some_and(|wire| wire.harms())
    }

    /// When the link will have sent all admitted packets; [`Time::NEVER`] if it cannot.
    pub const fn busy_until(&self) -> Time {
        self.busy_until
    }

    /// Takes a packet, or drops it. `now` must not decrease from call to call.
    #[inline]
    pub fn offer(&mut self, now: Time, size: Bytes, ecn_capable: bool) -> Fate {
        if !self.plain {
            return self.offer_to_any(now, size, ecn_capable);
        }
        let starts = now.max(self.busy_until);
        match self.offer_plain(now, size) {
            Some(at) => {
                Fate::Arrives { at, starts, marked: false, corrupted: false, duplicated: false }
            }
            None => Fate::Dropped(DropReason::QueueFull),
        }
    }

    /// Whether [`offer_plain`](Self::offer_plain) may take the place of [`offer`](Self::offer): a
    /// packet is dropped where the queue is full, arrives after a constant delay, and no more.
    #[inline]
    pub const fn is_plain(&self) -> bool {
        self.plain
    }

    /// As [`offer`](Self::offer) on a [plain](Self::is_plain) link: when the packet arrives; `None` if
    /// the queue is full.
    #[inline]
    pub fn offer_plain(&mut self, now: Time, size: Bytes) -> Option<Time> {
        let starts = if now >= self.busy_until && !self.lingers {
            now
        } else {
            self.offer_to_busy(now, size)?
        };
        Some(self.transmit(starts, size) + self.constant_delay)
    }

    /// When a packet's transmission starts on a plain link on which others wait or may have waited.
    fn offer_to_busy(&mut self, now: Time, size: Bytes) -> Option<Time> {
        self.settle(now);
        if now >= self.busy_until {
            return Some(now);
        }
        let Queue::DropTail(queue) = &self.rest.queue else {
            unreachable!("a plain link has a drop-tail queue")
        };
        if queue.limit().is_exceeded_by(self.lingering(), size) {
            self.drop_packet(DropReason::QueueFull);
            return None;
        }
        Some(self.wait(now, size))
    }

    fn offer_to_any(&mut self, now: Time, size: Bytes, ecn_capable: bool) -> Fate {
        if self.rest.wire.as_ref().is_some_and(|wire| wire.is_special(size)) {
            return self.offer_special(now, size, ecn_capable);
        }
        self.settle(now);
        let idle = (now >= self.busy_until).then(|| now.since(self.busy_until));
        let offered = Offered {
            now,
            size,
            ecn_capable,
            waiting: self.lingering(),
            idle,
            wait: self.busy_until.since(now),
            rate: self.rest.rate,
        };
        let rest = &mut *self.rest;
        let marked = match rest.queue.admit(&offered, &mut rest.queue_random) {
            Verdict::Accept => false,
            Verdict::Mark => true,
            Verdict::Drop(reason) => return self.drop_packet(reason),
        };
        let starts = if idle.is_some() { now } else { self.wait(now, size) };
        let ends = self.transmit(starts, size);
        self.rest.marks += u64::from(marked);
        if self.rest.wire.as_mut().is_some_and(|wire| wire.loses()) {
            return self.drop_packet(DropReason::Loss);
        }
        let at = self.propagate(ends);
        Fate::Arrives { at, starts, marked, corrupted: false, duplicated: false }
    }

    /// The queue at `now`, which must not be before the last packet was offered. A packet
    /// whose transmission starts at `now` no longer waits.
    pub fn occupancy(&mut self, now: Time) -> Occupancy {
        if !self.plain
            && let Some(replay) = self.rest.wire.as_mut().and_then(|wire| wire.replay_mut())
        {
            replay.settle(now);
            return replay.waiting(now);
        }
        self.settle(now);
        self.lingering()
    }

    /// Removes packets whose transmission has started.
    #[inline]
    fn settle(&mut self, now: Time) {
        if now >= self.busy_until {
            // The common case of an uncongested link: no need to go through the list.
            if self.lingers {
                self.rest.waiting.clear();
                self.rest.waiting_bytes = Bytes::ZERO;
                self.lingers = false;
            }
            return;
        }
        while let Some(first) = self.rest.waiting.front()
            && first.starts <= now
        {
            self.rest.waiting_bytes -= first.size;
            self.rest.waiting.pop_front();
        }
    }

    #[inline]
    fn lingering(&self) -> Occupancy {
        Occupancy {
            packets: Packets::new(self.rest.waiting.len() as u64),
            bytes: self.rest.waiting_bytes,
        }
    }

    /// Enqueues a packet; returns when its transmission starts.
    #[inline]
    fn wait(&mut self, now: Time, size: Bytes) -> Time {
        let starts = self.busy_until;
        self.wait_until(starts, now, size);
        starts
    }

    #[inline]
    fn wait_until(&mut self, starts: Time, now: Time, size: Bytes) {
        self.rest.waiting.push_back(Waiting { starts, size });
        self.lingers = true;
        self.rest.waiting_bytes += size;
        self.rest.wait += u128::from(starts.since(now).as_nanos());
    }

    #[inline]
    fn time_to_send(&mut self, size: Bytes) -> Duration {
        if u64::from(self.last_size) == size.get() {
            return self.last_duration;
        }
        let duration = self.rest.rate.time_to_send(size);
        if let Ok(size) = u32::try_from(size.get()) {
            self.rest.sent = self.sent();
            self.repeats = 0;
            (self.last_size, self.last_duration) = (size, duration);
        }
        duration
    }

    /// All transmissions so far.
    fn sent(&self) -> Sent {
        let Sent { packets, bytes, busy } = self.rest.sent;
        Sent {
            packets: packets + self.repeats,
            bytes: bytes + Bytes::new(u64::from(self.last_size) * self.repeats),
            busy: busy + self.last_duration * self.repeats,
        }
    }

    /// Transmits a packet; returns when its last bit has left.
    #[inline]
    fn transmit(&mut self, starts: Time, size: Bytes) -> Time {
        let ends = starts.as_nanos().checked_add(self.last_duration.as_nanos());
        if u64::from(self.last_size) == size.get()
            && let Some(ends) = ends
        {
            self.busy_until = Time::from_nanos(ends);
            self.repeats += 1;
            return self.busy_until;
        }
        self.transmit_another(starts, size)
    }

    /// As [`transmit`](Self::transmit), of another size than the last or without an end.
    #[inline(never)]
    fn transmit_another(&mut self, starts: Time, size: Bytes) -> Time {
        let ends = starts + self.time_to_send(size);
        self.occupy(starts, ends, size);
        ends
    }

    /// Counts a transmission.
    #[inline]
    fn occupy(&mut self, starts: Time, ends: Time, size: Bytes) {
        self.busy_until = ends;
        let sent = &mut self.rest.sent;
        sent.packets += 1;
        sent.bytes += size;
        sent.busy += ends.since(starts);
    }

    /// When the packet that the wire has just lost would have arrived. It takes the next delay of the
    /// link's law, and packets behind it keep the order with it.
    #[cold]
    pub fn missed_arrival(&mut self) -> Time {
        let ends = self.busy_until;
        match &mut self.rest.wire {
            Some(wire) if wire.has_extras() => wire.arrival_at(ends),
            _ => self.propagate(ends),
        }
    }

    /// The arrival of a packet whose last bit leaves at `ends`.
    #[inline]
    fn propagate(&mut self, ends: Time) -> Time {
        match &mut self.rest.wire {
            None => ends + self.constant_delay,
            Some(wire) => wire.arrival(ends),
        }
    }

    fn drop_packet(&mut self, reason: DropReason) -> Fate {
        *self.rest.drops.count(reason) += Packets::new(1);
        Fate::Dropped(reason)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
