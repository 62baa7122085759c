use ontempo_foundation::{Bytes, Duration, Packets, RandomStream, Time};

use crate::{DropReason, Limit, Offered, Verdict};

/// Parameters of PIE (RFC 8033), with the RFC's name in brackets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PieParameters {
    /// The target wait; above 0 \[`QDELAY_REF`, 15 ms\].
    pub target: Duration,
    /// Time between two updates of the drop probability; above 0 \[`T_UPDATE`, 15 ms\].
    pub update: Duration,
    /// How long a burst passes without drops \[`MAX_BURST`, 150 ms\].
    pub burst: Duration,
    /// Weight of the distance from the target, per second \[`alpha`, 1/8\].
    pub alpha: f64,
    /// Weight of the change of the wait, per second \[`beta`, 1 1/4\].
    pub beta: f64,
    /// The mean packet size; a queue of up to two such packets drops none
    /// \[`MEAN_PKTSIZE`\].
    pub mean_packet_size: Bytes,
    /// Whether to mark ECN-capable packets rather than drop them (RFC 8033 section 5.1).
    pub ecn: bool,
    /// The drop probability from which even ECN-capable packets are dropped, 0 to 1
    /// \[`mark_ecnth`, 0.1\].
    pub mark_p: f64,
    /// Limit of the queue \[`TAIL_DROP`\].
    pub limit: Limit,
}

impl Default for PieParameters {
    /// RFC 8033's values; mean packets of 1000 bytes, and a limit of 1000 packets, as in Linux.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(15),
            update: Duration::from_millis(15),
            burst: Duration::from_millis(150),
            alpha: 0.125,
            beta: 1.25,
            mean_packet_size: Bytes::new(1000),
            ecn: false,
            mark_p: 0.1,
            limit: Limit::packets(Packets::new(1000)),
        }
    }
}

/// PIE (RFC 8033): drops at enqueue with a probability that a proportional integral
/// controller adjusts to keep the wait at a target.
///
/// Sections 4 and 5.1 of the RFC; of its optional parts the departure rate is not estimated
/// (the link's own rate is known, so the wait is exact; on a link that changes it is that of the
/// queue at the present rate), and PIE is always on. Updates take place at their times: between two
/// packets a queue only drains, so its length at an update is known when the next packet comes. The
/// first is due an interval after the first packet, and the burst allowance is renewed at updates
/// (section 4.4).
#[derive(Clone, Copy, Debug)]
pub struct Pie {
    parameters: PieParameters,
    probability: f64,
    /// The wait at the last update.
    old_delay: Duration,
    burst_left: Duration,
    /// When the next update is due; `None` before the first packet.
    next_update: Option<Time>,
}

impl Pie {
    /// An empty queue; an update interval of zero counts as a nanosecond.
    pub fn new(parameters: PieParameters) -> Self {
        let update = parameters.update.max(Duration::from_nanos(1));
        Self {
            parameters: PieParameters { update, ..parameters },
            probability: 0.0,
            old_delay: Duration::ZERO,
            burst_left: parameters.burst,
            next_update: None,
        }
    }

    /// The drop probability, 0 to 1.
    pub const fn probability(&self) -> f64 {
        self.probability
    }

    /// Decides about one packet.
    pub fn admit(&mut self, offered: &Offered, random: &mut RandomStream) -> Verdict {
        self.catch_up(offered);
        let full = self.parameters.limit.is_exceeded_by(offered.waiting, offered.size);
        if offered.idle.is_none() && full {
            return Verdict::Drop(DropReason::QueueFull);
        }
        if self.burst_left > Duration::ZERO || self.is_safe(offered) {
            return Verdict::Accept;
        }
        if random.uniform() >= self.probability {
            return Verdict::Accept;
        }
        if self.parameters.ecn && offered.ecn_capable && self.probability < self.parameters.mark_p {
            Verdict::Mark
        } else {
            Verdict::Drop(DropReason::Early)
        }
    }

    /// RFC 8033 section 4.1: packets that are never dropped, whatever the probability.
    fn is_safe(&self, offered: &Offered) -> bool {
        let parameters = &self.parameters;
        let calm = self.old_delay + self.old_delay < parameters.target && self.probability < 0.2;
        calm || offered.waiting.bytes <= parameters.mean_packet_size * 2
    }

    /// Makes the updates that were due since the last packet.
    fn catch_up(&mut self, offered: &Offered) {
        let now = offered.now;
        let interval = self.parameters.update;
        // Until when the link is, or was, busy with earlier packets.
        let busy_until = match offered.idle {
            Some(idle) => Time::from_nanos(now.as_nanos() - idle.as_nanos()),
            None => now + offered.wait,
        };
        let mut due = self.next_update.unwrap_or(now + interval);
        while due <= now {
            let delay = busy_until.since(due);
            self.update(delay);
            due += interval;
            let rests = delay == Duration::ZERO && self.probability == 0.0;
            if rests && offered.idle.is_some() && due <= now {
                // Nothing changes any more until the next packet.
                due = due + interval * (now.since(due).as_nanos() / interval.as_nanos() + 1);
                self.burst_left = self.parameters.burst;
            }
        }
        self.next_update = Some(due);
    }

    /// RFC 8033 sections 4.2 and 4.4.
    fn update(&mut self, delay: Duration) {
        let parameters = &self.parameters;
        let (now, old) = (delay.as_secs_f64(), self.old_delay.as_secs_f64());
        let change = parameters.alpha * (now - parameters.target.as_secs_f64())
            + parameters.beta * (now - old);
        self.probability += change * self.tuning();
        if delay == Duration::ZERO && self.old_delay == Duration::ZERO {
            self.probability *= 0.98;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        self.burst_left = self.burst_left.saturating_sub(parameters.update);
        let calm = |delay: Duration| delay + delay < parameters.target;
        if self.probability == 0.0 && calm(delay) && calm(self.old_delay) {
            self.burst_left = parameters.burst;
        }
        self.old_delay = delay;
    }

    /// RFC 8033 section 4.2: smaller steps at a small probability.
    fn tuning(&self) -> f64 {
        match self.probability {
            ..0.000_001 => 1.0 / 2048.0,
            ..0.000_01 => 1.0 / 512.0,
            ..0.000_1 => 1.0 / 128.0,
            ..0.001 => 1.0 / 32.0,
            ..0.01 => 1.0 / 8.0,
            ..0.1 => 1.0 / 2.0,
            _ => 1.0,
        }
    }
}

#[cfg(test)]
mod tests;
