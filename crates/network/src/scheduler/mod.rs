//! Schedulers: of several classes' packets, which one leaves next.
//!
//! A first-in first-out link knows a packet's departure when it is offered; a scheduled one does
//! not, since what comes later may leave earlier. So a scheduler is driven from outside: packets
//! are [enqueued](Scheduler::enqueue) as they come, and each time the link falls idle the next
//! is [dequeued](Scheduler::dequeue). A discipline that holds packets back says until
//! [when](Scheduler::ready_at).

mod bucket;
mod cbq;
mod classes;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod wfq;

pub use bucket::{TokenBucket, TrafficSpec, TrafficSpecError};
pub use cbq::Cbq;
pub use classes::{ClassParameters, ClassesError, Item};
use ontempo_foundation::Time;
pub use wfq::Wfq;

use crate::{DropReason, Occupancy};

/// The discipline of a scheduled link.
#[derive(Clone, Debug)]
pub enum Scheduler {
    /// Weighted fair queueing.
    Wfq(Wfq),
    /// Class-based queueing.
    Cbq(Cbq),
}

impl Scheduler {
    /// Takes a packet to the end of its class's queue.
    ///
    /// # Errors
    /// Where the class's queue is at its limit ([`DropReason::QueueFull`]): the packet is
    /// dropped, as is one of a class that there is not.
    pub fn enqueue(&mut self, now: Time, item: Item) -> Result<(), DropReason> {
        match self {
            Self::Wfq(wfq) => wfq.enqueue(now, item),
            Self::Cbq(cbq) => cbq.enqueue(item),
        }
    }

    /// The packet whose transmission begins at `now`; `None` where nothing waits or nothing may
    /// leave yet.
    pub fn dequeue(&mut self, now: Time) -> Option<Item> {
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
