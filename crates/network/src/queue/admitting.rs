use std::collections::VecDeque;

use ontempo_foundation::{Bytes, Duration, Packets, RandomStream, Rate, Time};

use crate::{Chosen, Discipline, Dropped, Occupancy, Offered, Queue, Queued, Verdict};

/// A [`Queue`], which decides at enqueue, as the discipline of a
/// [changeable](crate::ScheduledLink::changeable) link: first in, first out.
///
/// A [`Link`](crate::Link) with this queue does the same, but knows at enqueue when the packet will
/// leave, and so cannot take a change of its rate afterwards.
#[derive(Debug)]
pub struct Admitting {
    queue: Queue,
    random: RandomStream,
    waiting: VecDeque<Chosen>,
    bytes: Bytes,
    /// For how long the transmitter has been free; `None` while it sends.
    idle: Option<Duration>,
    /// The rate by which the queue estimates waits.
    rate: Rate,
}

impl Admitting {
    /// An empty queue, which draws from `random` (a link's stream `NAME queue`).
    pub fn new(queue: Queue, random: RandomStream) -> Self {
        let (waiting, bytes) = (VecDeque::new(), Bytes::ZERO);
        Self { queue, random, waiting, bytes, idle: Some(Duration::ZERO), rate: Rate::UNLIMITED }
    }
}

impl Discipline for Admitting {
    fn enqueue(&mut self, now: Time, packet: Queued, drops: &mut Vec<Dropped>) {
        let Queued { size, ecn_capable, .. } = packet;
        let wait = match self.idle {
            Some(_) => Duration::ZERO,
            None => self.rate.time_to_send(self.bytes + size),
        };
        let (waiting, idle, rate) = (self.occupancy(), self.idle, self.rate);
        let offered = Offered { now, size, ecn_capable, waiting, idle, wait, rate };
        let marked = match self.queue.admit(&offered, &mut self.random) {
            Verdict::Accept => false,
            Verdict::Mark => true,
            Verdict::Drop(reason) => return drops.push(Dropped { packet, reason }),
        };
        self.bytes += size;
        self.waiting.push_back(Chosen { packet, marked });
    }

    fn dequeue(&mut self, _now: Time, _drops: &mut Vec<Dropped>) -> Option<Chosen> {
        let chosen = self.waiting.pop_front()?;
        self.bytes -= chosen.packet.size;
        Some(chosen)
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy { packets: Packets::new(self.waiting.len() as u64), bytes: self.bytes }
    }

    fn set_transmitter(&mut self, idle: Option<Duration>, rate: Rate) {
        (self.idle, self.rate) = (idle, rate);
    }
}
