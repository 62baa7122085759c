use ontempo_foundation::{Bytes, Duration, Packets, Time};

use super::codel::Fifo;
use crate::{Chosen, Discipline, DropReason, Dropped, Limit, Occupancy, Queued};

/// Parameters of DualPI2 (RFC 9332, appendix A), with the RFC's name in brackets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DualPi2Parameters {
    /// The wait at which the classic queue is held; above 0 \[`target`, 15 ms\].
    pub target: Duration,
    /// Time between two updates of the base probability; above 0 \[`Tupdate`, 16 ms\].
    pub update: Duration,
    /// Weight of the distance from the target, per second \[`alpha`, 0.16\].
    pub alpha: f64,
    /// Weight of the change of the wait, per second \[`beta`, 3.2\].
    pub beta: f64,
    /// The marking probability of the L4S queue, in units of the base probability; above 0
    /// \[`k`, 2\].
    pub coupling: f64,
    /// A packet of the L4S queue that waited longer is marked, if others wait behind it: a step in
    /// place of the RFC's ramp, as in Linux (`step_thresh`, 1 ms).
    pub step: Duration,
    /// The share of the link, above 0 and below 1, that the classic queue gets while both have
    /// packets: weighted round robin as in Linux (`classic_protection`, 10 %).
    pub classic_share: f64,
    /// Limit of both queues together \[`limit`\].
    pub limit: Limit,
}

impl Default for DualPi2Parameters {
    /// Values of RFC 9332 (appendix A.1), and where it leaves them open of Linux (`tc-dualpi2`).
    fn default() -> Self {
        Self {
            target: Duration::from_millis(15),
            update: Duration::from_millis(16),
            alpha: 0.16,
            beta: 3.2,
            coupling: 2.0,
            step: Duration::from_millis(1),
            classic_share: 0.1,
            limit: Limit::packets(Packets::new(10_000)),
        }
    }
}

/// One of the two queues.
#[derive(Clone, Debug, Default)]
struct Side {
    fifo: Fifo,
    /// The RFC's `q.count`: likelihoods since the last packet that they met.
    count: f64,
}

impl Side {
    /// The RFC's `recur`: true for a share `likelihood` of the calls, at even distances.
    fn recur(&mut self, likelihood: f64) -> bool {
        self.count += likelihood;
        let is_met = self.count > 1.0;
        if is_met {
            self.count -= 1.0;
        }
        is_met
    }

    fn has_packets(&self) -> bool {
        self.fifo.occupancy().packets > Packets::new(0)
    }

    /// How long its first packet has waited.
    fn wait(&self, now: Time) -> Duration {
        self.fifo.front().map_or(Duration::ZERO, |packet| now.since(packet.enqueued))
    }
}

/// DualPI2, the coupled dual-queue AQM of RFC 9332: packets of the L4S service (ECT(1) or CE) wait
/// in a queue of their own with a very short wait, all others in a classic queue.
///
/// A proportional integral controller moves a base probability p by the longer wait of the two.
/// Classic packets are dropped, or marked if they are ECN-capable, with probability p squared, and
/// L4S packets marked with k p or by a step of their own wait. So a classic flow (whose rate falls
/// with the root of its losses) and a scalable one (whose rate falls with its marks) get about the
/// same. Overload as in appendix A.2: from p = 1/k on L4S packets are dropped, too, and
/// classic ones no longer marked.
///
/// Nothing is drawn at random: the RFC's `recur` spreads drops and marks evenly.
#[derive(Clone, Debug)]
pub struct DualPi2 {
    parameters: DualPi2Parameters,
    low_latency: Side,
    classic: Side,
    /// The RFC's p'.
    base: f64,
    /// The wait at the last update.
    old_wait: Duration,
    next_update: Time,
    /// Weighted bytes by which the classic queue is behind its share; the L4S queue goes first up
    /// to 0. Counts while both have packets: what one sends alone takes nothing from the other.
    credit: f64,
}

/// The MTU by which the L4S queue goes first when both queues begin.
const MTU: f64 = 1514.0;

impl DualPi2 {
    /// Empty queues; an update interval of zero counts as a nanosecond.
    pub fn new(parameters: DualPi2Parameters) -> Self {
        let update = parameters.update.max(Duration::from_nanos(1));
        let parameters = DualPi2Parameters { update, ..parameters };
        let mut queue = Self {
            parameters,
            low_latency: Side::default(),
            classic: Side::default(),
            base: 0.0,
            old_wait: Duration::ZERO,
            next_update: Time::ZERO + update,
            credit: 0.0,
        };
        queue.reset_credit();
        queue
    }

    /// The base probability p, 0 to 1.
    pub const fn base_probability(&self) -> f64 {
        self.base
    }

    fn reset_credit(&mut self) {
        self.credit = MTU * (2.0 * self.parameters.classic_share - 1.0);
    }

    /// Makes the updates that were due since the last call. The queues have not changed since, so
    /// the waits at an update are known.
    fn catch_up(&mut self, now: Time) {
        let interval = self.parameters.update;
        while self.next_update <= now {
            let due = self.next_update;
            self.update(self.low_latency.wait(due).max(self.classic.wait(due)));
            self.next_update = due + interval;
            let is_idle = !self.low_latency.has_packets() && !self.classic.has_packets();
            let rests = self.base == 0.0 && self.old_wait == Duration::ZERO;
            if rests && is_idle && self.next_update <= now {
                // Nothing changes any more until now.
                let left = now.since(self.next_update).as_nanos() / interval.as_nanos();
                self.next_update += interval * (left + 1);
            }
        }
    }

    /// RFC 9332, appendix A.2, `dualpi2_update`.
    fn update(&mut self, wait: Duration) {
        let (now, before) = (wait.as_secs_f64(), self.old_wait.as_secs_f64());
        self.base += self.parameters.alpha * (now - self.parameters.target.as_secs_f64())
            + self.parameters.beta * (now - before);
        self.base = self.base.clamp(0.0, 1.0);
        self.old_wait = wait;
    }

    /// Takes the next packet of the L4S queue: the packet and whether it is marked, or a drop.
    fn take_low_latency(&mut self, now: Time) -> Option<Result<Chosen, Queued>> {
        let packet = self.low_latency.fifo.pop()?;
        let coupled = self.parameters.coupling * self.base;
        let likelihood = if coupled < 1.0 {
            let waited = now.since(packet.enqueued) > self.parameters.step;
            if waited && self.low_latency.has_packets() { 1.0 } else { coupled }
        } else {
            if self.low_latency.recur(self.base * self.base) {
                return Some(Err(packet));
            }
            1.0
        };
        let marked = self.low_latency.recur(likelihood);
        Some(Ok(Chosen { packet, marked }))
    }

    /// The same of the classic queue.
    fn take_classic(&mut self) -> Option<Result<Chosen, Queued>> {
        let packet = self.classic.fifo.pop()?;
        let likelihood = self.base * self.base;
        let is_met = self.classic.recur(likelihood);
        let is_overload = self.parameters.coupling * self.base >= 1.0;
        if is_met && (!packet.ecn_capable || is_overload) {
            return Some(Err(packet));
        }
        Some(Ok(Chosen { packet, marked: is_met }))
    }

    /// Whether the L4S queue is next; `None` if nothing waits.
    fn is_low_latency_next(&mut self) -> Option<bool> {
        let is_next = match (self.low_latency.has_packets(), self.classic.has_packets()) {
            (false, false) => {
                self.reset_credit();
                return None;
            }
            (has_packets, false) => has_packets,
            (false, true) => false,
            (true, true) => self.credit <= 0.0,
        };
        Some(is_next)
    }
}

impl Discipline for DualPi2 {
    fn enqueue(&mut self, now: Time, packet: Queued, drops: &mut Vec<Dropped>) {
        self.catch_up(now);
        if self.parameters.limit.is_exceeded_by(self.occupancy(), packet.size) {
            drops.push(Dropped { packet, reason: DropReason::QueueFull });
        } else if packet.l4s {
            self.low_latency.fifo.push(packet);
        } else {
            self.classic.fifo.push(packet);
        }
    }

    fn dequeue(&mut self, now: Time, drops: &mut Vec<Dropped>) -> Option<Chosen> {
        self.catch_up(now);
        while let Some(is_low_latency) = self.is_low_latency_next() {
            let is_shared = self.low_latency.has_packets() && self.classic.has_packets();
            let share = self.parameters.classic_share;
            let (taken, weight) = if is_low_latency {
                (self.take_low_latency(now)?, share)
            } else {
                (self.take_classic()?, share - 1.0)
            };
            match taken {
                Ok(chosen) => {
                    if is_shared {
                        self.credit += weight * chosen.packet.size.get() as f64;
                    }
                    return Some(chosen);
                }
                Err(packet) => drops.push(Dropped { packet, reason: DropReason::Early }),
            }
        }
        None
    }

    fn on_idle(&mut self) {
        self.reset_credit();
    }

    fn occupancy(&self) -> Occupancy {
        let (one, other) = (self.low_latency.fifo.occupancy(), self.classic.fifo.occupancy());
        let bytes: Bytes = one.bytes + other.bytes;
        Occupancy { packets: one.packets + other.packets, bytes }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
