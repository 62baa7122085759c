use std::collections::VecDeque;

use ontempo_foundation::{Bytes, Packets, RandomStream, Time};

use super::codel::{CoDelLaw, Fifo};
use crate::{Chosen, CoDelParameters, Discipline, DropReason, Dropped, Limit, Occupancy, Queued};

/// Parameters of FQ-CoDel (RFC 8290).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FqCoDelParameters {
    /// CoDel's parameters for each queue; the limit holds for all queues together.
    pub codel: CoDelParameters,
    /// Bytes that a queue may send in its turn; 1 or more (RFC 8290 section 5.2.2).
    pub quantum: Bytes,
    /// Queues that flows are hashed to; 1 or more (RFC 8290 section 5.2.5).
    pub queues: u32,
}

impl Default for FqCoDelParameters {
    /// 1514 bytes, 1024 queues, 10240 packets in all (RFC 8290 section 5.2); with ECN marking.
    fn default() -> Self {
        Self {
            codel: CoDelParameters {
                ecn: true,
                limit: Limit::packets(Packets::new(10_240)),
                ..CoDelParameters::default()
            },
            quantum: Bytes::new(1514),
            queues: 1024,
        }
    }
}

/// Maximum number of packets dropped at a time from the longest queue (RFC 8290 section 4.1).
const DROP_BATCH: usize = 64;

/// One of the queues that flows are hashed to.
#[derive(Clone, Debug, Default)]
struct FlowQueue {
    fifo: Fifo,
    law: CoDelLaw,
    /// Bytes that it may still send in its turn; the turn ends at 0 or below.
    deficit: i64,
    /// Whether it is on one of the two lists.
    is_listed: bool,
}

/// FQ-CoDel (RFC 8290): deficit round robin over queues that flows are hashed to, each with
/// CoDel; a queue that just became active goes before the others for one quantum.
///
/// Where RFC 8290 can be read in two ways, or Linux differs, as Linux:
///
/// - A turn ends at a deficit of 0, too (section 4.2: "a negative number of credits", but also "at
///   least a quantum of bytes").
/// - A new queue that is found empty leaves the lists at once where no old one is listed. Section 4.2
///   moves it to the old ones in any case, so that it cannot starve them; here there are none.
/// - Half of the longest queue (section 4.1) is half of its bytes. Of equally long queues the one of
///   the lowest number loses.
#[derive(Clone, Debug)]
pub struct FqCoDel {
    parameters: FqCoDelParameters,
    queues: Vec<FlowQueue>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    waiting: Occupancy,
    /// Makes this link's hash differ from others'.
    perturbation: u64,
}

impl FqCoDel {
    /// Empty queues; `random` gives the perturbation of the hash (RFC 8290 section 4.1.1). A
    /// quantum or a number of queues of zero counts as one.
    pub fn new(parameters: FqCoDelParameters, random: &mut RandomStream) -> Self {
        let quantum = parameters.quantum.max(Bytes::new(1));
        let queues = parameters.queues.max(1);
        Self {
            parameters: FqCoDelParameters { quantum, queues, ..parameters },
            queues: vec![FlowQueue::default(); queues as usize],
            new: VecDeque::new(),
            old: VecDeque::new(),
            waiting: Occupancy::default(),
            perturbation: random.next_u64(),
        }
    }

    fn quantum(&self) -> i64 {
        i64::try_from(self.parameters.quantum.get()).unwrap_or(i64::MAX)
    }

    /// The queue of `flow`: the finaliser of MurmurHash3 over flow and perturbation.
    fn queue_of(&self, flow: u32) -> u32 {
        let mut hash = u64::from(flow) ^ self.perturbation;
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^= hash >> 33;
        (hash % u64::from(self.parameters.queues)) as u32
    }

    fn forget(&mut self, packet: &Queued) {
        self.waiting.packets -= Packets::new(1);
        self.waiting.bytes -= packet.size;
    }

    /// Drops half of the queue with the most bytes, up to a batch, from its head.
    fn drop_from_longest(&mut self, drops: &mut Vec<Dropped>) {
        let bytes = |queue: &u32| self.queues[*queue as usize].fifo.occupancy().bytes;
        let listed = self.new.iter().chain(&self.old).copied();
        let Some(longest) = listed.max_by_key(|queue| (bytes(queue), u32::MAX - queue)) else {
            return;
        };
        let half = Bytes::new(bytes(&longest).get() / 2);
        let mut dropped = Bytes::ZERO;
        for _ in 0..DROP_BATCH {
            let Some(packet) = self.queues[longest as usize].fifo.pop() else { break };
            self.forget(&packet);
            dropped += packet.size;
            drops.push(Dropped { packet, reason: DropReason::QueueFull });
            if dropped >= half {
                break;
            }
        }
    }

    /// The queue whose turn it is, and whether it is on the list of new ones.
    fn next_queue(&mut self) -> Option<(u32, bool)> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &self.new } else { &self.old };
            let queue = *list.front()?;
            if self.queues[queue as usize].deficit > 0 {
                return Some((queue, is_new));
            }
            let quantum = self.quantum();
            self.queues[queue as usize].deficit += quantum;
            self.leave_turn(is_new);
            self.old.push_back(queue);
        }
    }

    fn leave_turn(&mut self, is_new: bool) {
        if is_new {
            self.new.pop_front()
        } else {
            self.old.pop_front()
        };
    }
}

impl Discipline for FqCoDel {
    fn enqueue(&mut self, _now: Time, packet: Queued, drops: &mut Vec<Dropped>) {
        let number = self.queue_of(packet.flow);
        let quantum = self.quantum();
        let queue = &mut self.queues[number as usize];
        queue.fifo.push(packet);
        self.waiting.packets += Packets::new(1);
        self.waiting.bytes += packet.size;
        if !queue.is_listed {
            queue.is_listed = true;
            queue.deficit = quantum;
            self.new.push_back(number);
        }
        let limit = self.parameters.codel.limit;
        while self.waiting.packets > Packets::new(0) && is_over(limit, self.waiting) {
            self.drop_from_longest(drops);
        }
    }

    fn dequeue(&mut self, now: Time, drops: &mut Vec<Dropped>) -> Option<Chosen> {
        loop {
            let (number, is_new) = self.next_queue()?;
            let dropped_before = drops.len();
            let queue = &mut self.queues[number as usize];
            let chosen = queue.law.dequeue(now, &mut queue.fifo, &self.parameters.codel, drops);
            for dropped in &drops[dropped_before..] {
                self.forget(&dropped.packet);
            }
            if let Some(chosen) = chosen {
                self.forget(&chosen.packet);
                let size = i64::try_from(chosen.packet.size.get()).unwrap_or(i64::MAX);
                self.queues[number as usize].deficit -= size;
                return Some(chosen);
            }
            self.leave_turn(is_new);
            // A new queue that becomes empty goes behind the old ones, or a flow of few
            // packets would always be new (RFC 8290 section 4.2).
            if is_new && !self.old.is_empty() {
                self.old.push_back(number);
            } else {
                self.queues[number as usize].is_listed = false;
            }
        }
    }

    fn on_idle(&mut self) {
        // All are empty: each is found so when it is visited, and leaves the lists.
        for number in self.new.drain(..).chain(self.old.drain(..)) {
            let queue = &mut self.queues[number as usize];
            queue.is_listed = false;
            queue.law.on_empty();
        }
    }

    fn occupancy(&self) -> Occupancy {
        self.waiting
    }
}

fn is_over(limit: Limit, waiting: Occupancy) -> bool {
    limit.packets.is_some_and(|limit| waiting.packets > limit)
        || limit.bytes.is_some_and(|limit| waiting.bytes > limit)
}

#[cfg(test)]
mod tests;
