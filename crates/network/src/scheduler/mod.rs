//! Schedulers: of several classes' packets, which one leaves next.
//!
//! Which class a packet belongs to is not theirs to know: [`Reserving`] finds it by the packet's
//! flow, polices what is reserved, and is the [`Discipline`](crate::Discipline) of a scheduled
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
use ontempo_foundation::Time;
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
    /// Takes a packet to the end of the queue of the class at this place.
    ///
    /// # Errors
    /// Where the class's queue is at its limit ([`DropReason::QueueFull`]): the packet is
    /// dropped, as is one of a class that there is not.
    pub fn enqueue(&mut self, now: Time, class: usize, packet: Queued) -> Result<(), DropReason> {
        match self {
            Self::Wfq(wfq) => wfq.enqueue(now, class, packet),
            Self::Cbq(cbq) => cbq.enqueue(class, packet),
        }
    }

    /// The packet whose transmission begins at `now`; `None` where nothing waits or nothing may
    /// leave yet.
    pub fn dequeue(&mut self, now: Time) -> Option<Queued> {
        match self {
            Self::Wfq(wfq) => wfq.dequeue(now),
            Self::Cbq(cbq) => cbq.dequeue(now),
        }
    }

    /// When a packet may leave, seen from `now`; never where none waits.
    pub fn ready_at(&self, now: Time) -> Time {
        match self {
            Self::Wfq(wfq) if wfq.occupancy().packets.get() == 0 => Time::NEVER,
            Self::Wfq(_) => now,
            Self::Cbq(cbq) => cbq.ready_at(now),
        }
    }

    /// What waits, over all classes.
    pub fn occupancy(&self) -> Occupancy {
        match self {
            Self::Wfq(wfq) => wfq.occupancy(),
            Self::Cbq(cbq) => cbq.occupancy(),
        }
    }
}
