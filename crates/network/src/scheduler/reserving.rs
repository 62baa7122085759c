//! Reservations on a link: classification by flow, policing, and a scheduler.

use std::collections::BTreeMap;

use ontempo_foundation::{Rate, Time};

use super::{Scheduler, TokenBucket};
use crate::{Chosen, Discipline, Dropped, Occupancy, Queued};

/// The discipline of a link with reservations (RFC 1633: classifier, policing, scheduler).
///
/// A packet of a flow with a reservation that conforms to its token bucket goes to the class of the
/// reservation; one that does not is best effort (RFC 2211, section 3, and RFC 2212, section
/// 6), like those of other flows. A flow's conforming packets may thus overtake its excess.
#[derive(Debug)]
pub struct Reserving {
    scheduler: Scheduler,
    /// The class of packets whose flow has no other.
    best_effort: usize,
    /// Classes of flows without a reservation, and of their excess.
    own: BTreeMap<u32, usize>,
    /// Reservations by flow.
    reserved: BTreeMap<u32, Reserved>,
}

#[derive(Debug)]
struct Reserved {
    class: usize,
    meter: TokenBucket,
}

impl Reserving {
    /// No reservations yet: all packets go to the class at index `best_effort`.
    pub fn new(scheduler: Scheduler, best_effort: usize) -> Self {
        Self { scheduler, best_effort, own: BTreeMap::new(), reserved: BTreeMap::new() }
    }

    /// Reserves the class at this index for the packets of `flow` that conform to `meter`.
    pub fn reserve(&mut self, flow: u32, class: usize, meter: TokenBucket) {
        self.reserved.insert(flow, Reserved { class, meter });
    }

    /// Puts the unreserved packets of `flow` into the class at this index.
    pub fn separate(&mut self, flow: u32, class: usize) {
        self.own.insert(flow, class);
    }

    fn class_of(&mut self, now: Time, packet: &Queued) -> usize {
        if let Some(reserved) = self.reserved.get_mut(&packet.flow)
            && reserved.meter.conforms(now, packet.size)
        {
            return reserved.class;
        }
        self.own.get(&packet.flow).copied().unwrap_or(self.best_effort)
    }
}

impl Discipline for Reserving {
    fn enqueue(&mut self, now: Time, packet: Queued, drops: &mut Vec<Dropped>) {
        let class = self.class_of(now, &packet);
        if let Err(reason) = self.scheduler.enqueue(now, class, packet) {
            drops.push(Dropped { packet, reason });
        }
    }

    fn dequeue(&mut self, now: Time, _drops: &mut Vec<Dropped>) -> Option<Chosen> {
        let packet = self.scheduler.dequeue(now)?;
        Some(Chosen { packet, marked: false })
    }

    fn occupancy(&self) -> Occupancy {
        self.scheduler.occupancy()
    }

    fn set_rate(&mut self, rate: Rate) {
        self.scheduler.set_rate(rate);
    }

    fn ready(&self, now: Time) -> Time {
        self.scheduler.ready_at(now)
    }
}
