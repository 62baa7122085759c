use std::collections::VecDeque;

use ontempo_foundation::{Bytes, Duration, Packets, Time, math};

use crate::{Chosen, Discipline, DropReason, Dropped, Limit, Occupancy, Queued};

/// Parameters of CoDel (RFC 8289).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoDelParameters {
    /// The acceptable minimum wait over an interval (RFC 8289 section 4.3).
    pub target: Duration,
    /// How long the wait must stay above the target before the first drop: a worst-case
    /// RTT (RFC 8289 section 4.3).
    pub interval: Duration,
    /// A queue of at most this many bytes is never a standing queue: one packet of maximum size.
    pub largest_packet: Bytes,
    /// Whether to mark ECN-capable packets rather than drop them.
    pub ecn: bool,
    /// Limit of the queue.
    pub limit: Limit,
}

impl Default for CoDelParameters {
    /// 5 ms, 100 ms, 1514 bytes; 1000 packets, as in Linux.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            largest_packet: Bytes::new(1514),
            ecn: false,
            limit: Limit::packets(Packets::new(1000)),
        }
    }
}

/// A first-in first-out queue of packets that counts its bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fifo {
    packets: VecDeque<Queued>,
    bytes: Bytes,
}

impl Fifo {
    pub(crate) fn push(&mut self, packet: Queued) {
        self.bytes += packet.size;
        self.packets.push_back(packet);
    }

    /// The packet that leaves next.
    pub(crate) fn front(&self) -> Option<&Queued> {
        self.packets.front()
    }

    pub(crate) fn pop(&mut self) -> Option<Queued> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.size;
        Some(packet)
    }

    pub(crate) fn occupancy(&self) -> Occupancy {
        Occupancy { packets: Packets::new(self.packets.len() as u64), bytes: self.bytes }
    }
}

/// The law that decides at dequeue, separate from its queue: FQ-CoDel has one
/// for each flow. Names as in RFC 8289 section 5.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CoDelLaw {
    /// When the wait will have been above the target for an interval; `None` while it is below.
    first_above: Option<Time>,
    /// When the next packet is dropped in the dropping state; not reset when the state is left.
    drop_next: Time,
    dropping: bool,
    /// Packets dropped since the dropping state was entered.
    count: u32,
    /// `count` at the start of the last dropping state.
    last_count: u32,
}

impl CoDelLaw {
    /// The next packet of `queue` to transmit; packets dropped before it are appended to `drops`.
    pub(crate) fn dequeue(
        &mut self,
        now: Time,
        queue: &mut Fifo,
        parameters: &CoDelParameters,
        drops: &mut Vec<Dropped>,
    ) -> Option<Chosen> {
        let (mut packet, mut above) = self.take(now, queue, parameters)?;
        if self.dropping {
            self.dropping = above;
            while self.dropping && now >= self.drop_next {
                self.count += 1;
                if parameters.ecn && packet.ecn_capable {
                    self.drop_next = self.control(self.drop_next, parameters);
                    return Some(Chosen { packet, marked: true });
                }
                drops.push(Dropped { packet, reason: DropReason::Early });
                (packet, above) = self.take(now, queue, parameters)?;
                self.dropping = above;
                if above {
                    self.drop_next = self.control(self.drop_next, parameters);
                }
            }
        } else if above {
            let marked = parameters.ecn && packet.ecn_capable;
            if !marked {
                drops.push(Dropped { packet, reason: DropReason::Early });
            }
            self.enter_dropping(now, parameters);
            if !marked {
                (packet, _) = self.take(now, queue, parameters)?;
            }
            return Some(Chosen { packet, marked });
        }
        Some(Chosen { packet, marked: false })
    }

    /// Takes the head of the queue, and returns whether the wait has been above the target for an
    /// interval. If the queue is empty, returns `None` and leaves the dropping state.
    fn take(
        &mut self,
        now: Time,
        queue: &mut Fifo,
        parameters: &CoDelParameters,
    ) -> Option<(Queued, bool)> {
        let Some(packet) = queue.pop() else {
            self.on_empty();
            return None;
        };
        let waited = now.since(packet.enqueued);
        // The bytes behind the packet count (RFC 8289 section 5.6): one packet is no queue.
        if waited < parameters.target || queue.bytes <= parameters.largest_packet {
            self.first_above = None;
            return Some((packet, false));
        }
        let since = *self.first_above.get_or_insert(now + parameters.interval);
        Some((packet, now >= since))
    }

    /// The queue was found empty: no packet waits above the target.
    pub(crate) fn on_empty(&mut self) {
        self.first_above = None;
        self.dropping = false;
    }

    fn enter_dropping(&mut self, now: Time, parameters: &CoDelParameters) {
        self.dropping = true;
        // A state left recently resumes at the drop rate that controlled the queue then.
        let dropped = self.count.saturating_sub(self.last_count);
        let lately = now.since(self.drop_next) < parameters.interval * 16;
        self.count = if dropped > 1 && lately { dropped } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.control(now, parameters);
    }

    fn control(&self, from: Time, parameters: &CoDelParameters) -> Time {
        from + parameters.interval.mul_f64(1.0 / math::sqrt(f64::from(self.count)))
    }
}

/// CoDel (RFC 8289): one queue, from whose head packets are dropped at an increasing rate while
/// every packet of an interval has waited longer than a target.
#[derive(Clone, Debug)]
pub struct CoDel {
    parameters: CoDelParameters,
    queue: Fifo,
    law: CoDelLaw,
}

impl CoDel {
    /// An empty queue.
    pub fn new(parameters: CoDelParameters) -> Self {
        Self { parameters, queue: Fifo::default(), law: CoDelLaw::default() }
    }
}

impl Discipline for CoDel {
    fn enqueue(&mut self, _now: Time, packet: Queued, drops: &mut Vec<Dropped>) {
        if self.parameters.limit.is_exceeded_by(self.queue.occupancy(), packet.size) {
            drops.push(Dropped { packet, reason: DropReason::QueueFull });
        } else {
            self.queue.push(packet);
        }
    }

    fn dequeue(&mut self, now: Time, drops: &mut Vec<Dropped>) -> Option<Chosen> {
        self.law.dequeue(now, &mut self.queue, &self.parameters, drops)
    }

    fn occupancy(&self) -> Occupancy {
        self.queue.occupancy()
    }
}

#[cfg(test)]
mod tests;
