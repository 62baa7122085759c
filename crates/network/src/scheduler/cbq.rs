//! Class-based queueing: each class has its allocation, and may borrow what others leave unused.

use ontempo_foundation::{Bytes, Duration, Rate, Time};

use super::classes::{ClassParameters, ClassQueue, ClassesError, check, together};
use crate::{DropReason, Occupancy, Queued};

/// The weight of a new sample in a class's average idle time (Floyd and Van Jacobson, 1995).
const WEIGHT: f64 = 1.0 / 16.0;

/// How many packets back to back a class that was idle may send before it is over its limit.
const BURST: i32 = 16;

/// The packet size from which bursts are computed.
const MEAN_PACKET: Bytes = Bytes::new(1000);

/// Bytes per round for a class with the full rate of the link: ten largest Ethernet packets,
/// so that even a small class's share of it is not far below one packet.
const ROUND: f64 = 15_000.0;

/// Class-based queueing with borrowing (Floyd and Van Jacobson, *Link-sharing and resource
/// management models for packet networks*, 1995), for one level of classes below the link.
///
/// An estimator determines for each class whether it is over its limit: an exponential average of
/// how much later its packets follow each other than its rate requires. A class under its limit
/// may send. A class over it may send only if it may borrow and no class under its limit has
/// packets waiting (the paper's formal link-sharing rule); otherwise it waits until its average
/// has recovered. Among the classes that may send, lower priority numbers go first, and equal
/// ones share by deficit round robin in proportion to their rates.
#[derive(Clone, Debug)]
pub struct Cbq {
    classes: Vec<Class>,
    /// The index of the class whose turn it is within each priority.
    turn: usize,
}

#[derive(Clone, Debug)]
struct Class {
    rate: Rate,
    queue: ClassQueue<()>,
    priority: u8,
    borrows: bool,
    /// Bytes that it may send in each round.
    quantum: f64,
    /// Bytes left in its current round.
    deficit: f64,
    /// Average lateness of its packets against its rate, in seconds; negative if it is over
    /// its limit.
    idle: f64,
    /// The average's upper bound: the credit that it collects while idle.
    max_idle: f64,
    /// When its last packet began and how large it was.
    last: Option<(Time, Bytes)>,
    /// When it will be under its limit again.
    under_limit_from: Time,
}

impl Cbq {
    /// A scheduler of these classes on a link of this rate.
    ///
    /// # Errors
    /// If there is no class, a class without a rate, or the rates exceed the link's.
    pub fn new(link: Rate, classes: &[ClassParameters]) -> Result<Self, ClassesError> {
        check(classes, link)?;
        let class = |parameters: &ClassParameters| {
            let share = parameters.rate.as_bits_per_sec() as f64 / link.as_bits_per_sec() as f64;
            let max_idle = max_idle(link, share);
            Class {
                rate: parameters.rate,
                queue: ClassQueue::new(parameters),
                priority: parameters.priority,
                borrows: parameters.borrows,
                quantum: ROUND * share,
                deficit: 0.0,
                idle: max_idle,
                max_idle,
                last: None,
                under_limit_from: Time::ZERO,
            }
        };
        Ok(Self { classes: classes.iter().map(class).collect(), turn: 0 })
    }

    /// See [`Scheduler::enqueue`](super::Scheduler::enqueue).
    pub(super) fn enqueue(&mut self, class: usize, packet: Queued) -> Result<(), DropReason> {
        let class = self.classes.get_mut(class).ok_or(DropReason::QueueFull)?;
        class.queue.push(packet, ())
    }

    /// See [`Scheduler::dequeue`](super::Scheduler::dequeue).
    pub(super) fn dequeue(&mut self, now: Time) -> Option<Queued> {
        let unsatisfied = self.has_unsatisfied(now);
        let priority = self
            .classes
            .iter()
            .filter(|class| class.may_send(now, unsatisfied))
            .map(|class| class.priority)
            .min()?;
        let may = |class: &Class| class.priority == priority && class.may_send(now, unsatisfied);
        // Each turn adds to the deficit of a class that may send, so that a packet is found; once a turn,
        // so that it ends.
        loop {
            let class = &mut self.classes[self.turn];
            if may(class)
                && let Some((packet, ())) = class.queue.front()
            {
                let size = packet.size.get() as f64;
                if class.deficit >= size {
                    class.deficit -= size;
                    return class.send(now);
                }
            }
            self.turn = (self.turn + 1) % self.classes.len();
            let next = &mut self.classes[self.turn];
            // A class that had to stop at its limit still has what it was given.
            let lacks = |class: &Class| {
                let size = class.queue.front().map(|(packet, ())| packet.size.get() as f64);
                size.is_some_and(|size| class.deficit < size)
            };
            if may(next) && lacks(next) {
                next.deficit += next.quantum;
            }
        }
    }

    /// When a packet may leave, at `now`; never if none waits.
    pub(super) fn ready_at(&self, now: Time) -> Time {
        let unsatisfied = self.has_unsatisfied(now);
        let waiting = self.classes.iter().filter(|class| !class.queue.is_empty());
        let ready = |class: &Class| {
            if class.may_send(now, unsatisfied) { now } else { class.under_limit_from }
        };
        waiting.map(ready).min().unwrap_or(Time::NEVER)
    }

    pub(super) fn occupancy(&self) -> Occupancy {
        together(self.classes.iter().map(|class| class.queue.occupancy()))
    }

    /// Whether a class under its limit has packets waiting.
    fn has_unsatisfied(&self, now: Time) -> bool {
        let is = |class: &Class| !class.queue.is_empty() && class.is_under_limit(now);
        self.classes.iter().any(is)
    }
}

impl Class {
    fn is_under_limit(&self, now: Time) -> bool {
        now >= self.under_limit_from
    }

    fn may_send(&self, now: Time, unsatisfied: bool) -> bool {
        let allowed = self.is_under_limit(now) || self.borrows && !unsatisfied;
        allowed && !self.queue.is_empty()
    }

    /// Takes the first packet and updates the estimator.
    fn send(&mut self, now: Time) -> Option<Queued> {
        let packet = self.queue.pop()?;
        if self.queue.is_empty() {
            self.deficit = 0.0;
        }
        if let Some((began, size)) = self.last {
            let due = self.rate.time_to_send(size).as_secs_f64();
            let idle = now.since(began).as_secs_f64() - due;
            self.idle = (self.idle + WEIGHT * (idle - self.idle)).min(self.max_idle);
        }
        self.last = Some((now, packet.size));
        self.under_limit_from = now;
        if self.idle < 0.0 {
            // So late that the next sample brings the average back to zero.
            let rest = -self.idle * (1.0 - WEIGHT) / WEIGHT;
            let due = self.rate.time_to_send(packet.size);
            self.under_limit_from = now + due + Duration::from_secs_f64(rest);
        }
        Some(packet)
    }
}

/// The idle credit that allows a class a burst of [`BURST`] packets (Floyd, *Notes on
/// CBQ and guaranteed service*, 1995): t (1/p - 1) (1 - g^n) / g^n, with t the time of a packet
/// on the link, p the class's share and g = 1 - [`WEIGHT`].
fn max_idle(link: Rate, share: f64) -> f64 {
    let packet = link.time_to_send(MEAN_PACKET).as_secs_f64();
    let decay = (0..BURST).fold(1.0, |power, _| power * (1.0 - WEIGHT));
    packet * (1.0 / share - 1.0) * (1.0 - decay) / decay
}
