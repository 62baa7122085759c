//! Schedulers: which of several classes sends the next packet.
//!
//! Classification is done elsewhere: [`Reserving`] finds a packet's class by its
//! flow, polices reservations, and is the [`Discipline`](crate::Discipline) of a scheduled
//! link.

mod bucket;
mod cbq;
mod classes;
mod reserving;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod wfq;

pub use bucket::{TokenBucket, TrafficSpec, TrafficSpecError};
pub use cbq::Cbq;
pub use classes::{ClassParameters, ClassesError};
use ontempo_foundation::{Rate, Time};
pub use reserving::Reserving;
pub use wfq::Wfq;

use crate::{DropReason, Occupancy, Queued};

/// The discipline of a scheduled link.
#[derive(Clone, Debug)]
pub enum Scheduler {
    /// Weighted fair queueing.
    Wfq(Wfq),
    /// Class-based queueing.
    Cbq(Cbq),
}

impl Scheduler {
    /// Appends a packet to the queue of the class at this index.
    ///
    /// # Errors
    /// If the class's queue is at its limit ([`DropReason::QueueFull`]) or the class does not
    /// exist: the packet is dropped.
    pub fn enqueue(&mut self, now: Time, class: usize, packet: Queued) -> Result<(), DropReason> {
        match self {
            Self::Wfq(wfq) => wfq.enqueue(now, class, packet),
            Self::Cbq(cbq) => cbq.enqueue(class, packet),
        }
    }

    /// The packet whose transmission begins at `now`; `None` if nothing waits or nothing may
    /// leave yet.
    pub fn dequeue(&mut self, now: Time) -> Option<Queued> {
        match self {
            Self::Wfq(wfq) => wfq.dequeue(now),
            Self::Cbq(cbq) => cbq.dequeue(now),
        }
    }

    /// When a packet may leave, at `now`; never if none waits.
    pub fn ready_at(&self, now: Time) -> Time {
        match self {
            Self::Wfq(wfq) if wfq.occupancy().packets.get() == 0 => Time::NEVER,
            Self::Wfq(_) => now,
            Self::Cbq(cbq) => cbq.ready_at(now),
        }
    }

    /// The link's mean rate since the last call of [`enqueue`](Self::enqueue) or
    /// [`dequeue`](Self::dequeue). Weighted fair queueing advances its virtual time by it; the
    /// allocations of class-based queueing are rates of their own.
    pub fn set_rate(&mut self, rate: Rate) {
        match self {
            Self::Wfq(wfq) => wfq.set_rate(rate),
            Self::Cbq(_) => {}
        }
    }

    /// The packets waiting, over all classes.
    pub fn occupancy(&self) -> Occupancy {
        match self {
            Self::Wfq(wfq) => wfq.occupancy(),
            Self::Cbq(cbq) => cbq.occupancy(),
        }
    }
}
