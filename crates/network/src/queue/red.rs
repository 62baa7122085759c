use core::fmt;

use ontempo_foundation::{Bytes, Duration, RandomStream, Rate, math};

use crate::{DropReason, Limit, Offered, Verdict};

/// The unit of RED's average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedMeasure {
    /// Packets, whatever their size.
    Packets,
    /// Bytes: thresholds are multiplied by the mean packet size (`queue_in_bytes_` of ns-2).
    Bytes,
}

/// Parameters of random early detection (Floyd and Jacobson, "Random early detection
/// gateways for congestion avoidance", 1993), named as there; in brackets the name and
/// default of ns-2 2.35.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedParameters {
    /// Average queue below which nothing is dropped, in packets (of the mean size where the
    /// queue is measured in bytes); 0 or more \[`thresh_`, 0: computed, see
    /// [`RedParameters::automatic`]\].
    pub min_th: f64,
    /// Average queue at which `max_p` is reached, in packets as above; at least `min_th`
    /// \[`maxthresh_`, 0: three times `min_th`\].
    pub max_th: f64,
    /// Drop probability at `max_th`, 0 to 1 \[1 / `linterm_`, 1/10\].
    pub max_p: f64,
    /// Weight w_q of a new sample in the average, 0 to 1 \[`q_weight_`, -1: computed\].
    pub weight: f64,
    /// The packet size by which thresholds and drop probabilities are scaled, and whose
    /// transmission time is the unit of idle periods; above 0 \[`mean_pktsize_`, 500 bytes\].
    pub mean_packet_size: Bytes,
    /// The unit of the average \[`queue_in_bytes_`, true\].
    pub measure: RedMeasure,
    /// Whether a packet's drop probability is in proportion to its size \[`bytes_`, true\].
    pub by_size: bool,
    /// Whether to wait, after a drop, between one and two times 1/p packets for the next
    /// rather than between none and 1/p \[`wait_`, true\].
    pub wait: bool,
    /// Whether the probability rises from `max_p` to 1 between `max_th` and twice that,
    /// rather than jump to 1 (Floyd, "Recommendation on using the gentle variant of RED",
    /// 2000) \[`gentle_`, true\].
    pub gentle: bool,
    /// Whether to mark ECN-capable packets rather than drop them (RFC 3168) \[`setbit_`,
    /// false\].
    pub ecn: bool,
    /// Probability, before it is spread evenly, from which even ECN-capable packets are
    /// dropped, 0 to 1: past it the queue is heavily congested (RFC 3168 section 7)
    /// \[`mark_p_`, 0.1\].
    pub mark_p: f64,
    /// Limit of the queue; once reached, every packet is dropped, so that a limit in bytes
    /// may be exceeded by less than one packet (as in ns-2) \[`limit_`, 50 packets; if the
    /// queue is measured in bytes, as many times the mean size\].
    pub limit: Limit,
}

/// A parameter of RED is out of its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RedError {
    /// A probability or the weight is outside 0 to 1.
    NotAProbability(f64),
    /// The thresholds are not finite, negative, or in the wrong order.
    Thresholds(f64, f64),
    /// The mean packet size is zero.
    EmptyPackets,
}

impl fmt::Display for RedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAProbability(value) => {
                write!(f, "probabilities and the weight of RED lie between 0 and 1, not at {value}")
            }
            Self::Thresholds(min, max) => {
                write!(f, "the thresholds of RED must rise from 0, not go from {min} to {max}")
            }
            Self::EmptyPackets => f.write_str("the mean packet of RED must have some bytes"),
        }
    }
}

impl core::error::Error for RedError {}

impl RedParameters {
    /// The RTT that ns-2 assumes when it chooses the weight: 100 ms.
    const ASSUMED_RTT: f64 = 0.1;

    /// The mean delay that thresholds aim at where none is given (ns-2's `targetdelay_`): 5 ms.
    pub const TARGET_DELAY: Duration = Duration::from_millis(5);

    /// The values that ns-2 2.35 computes by default: `min_th` is half of what the link
    /// sends in `target_delay` but at least 5 packets, `max_th` three times that, and the
    /// weight such that the average follows over ten round trips of 100 ms, 1 - exp(-1/C) for
    /// a link of C packets a second. All else has ns-2's defaults (gentle, in bytes, a limit
    /// of 50 mean packets). ns-2's own `mean_packet_size` is 500 bytes, its `target_delay` 5 ms.
    pub fn automatic(rate: Rate, mean_packet_size: Bytes, target_delay: Duration) -> Self {
        let min_th =
            5f64.max(target_delay.as_secs_f64() * packets_per_second(rate, mean_packet_size) / 2.0);
        Self {
            min_th,
            max_th: 3.0 * min_th,
            max_p: 0.1,
            weight: Self::automatic_weight(rate, mean_packet_size, Duration::ZERO),
            mean_packet_size,
            measure: RedMeasure::Bytes,
            by_size: true,
            wait: true,
            gentle: true,
            ecn: false,
            mark_p: 0.1,
            limit: Limit::bytes(mean_packet_size * 50),
        }
    }

    /// The weight that ns-2 2.35 chooses by default (`q_weight_` of -1) for a link with this
    /// propagation delay: 1 - exp(-1 / (10 R C)) with R the greater of 100 ms and three times
    /// the link's propagation and transmission delay. Only beyond 33 ms does the delay matter.
    pub fn automatic_weight(rate: Rate, mean_packet_size: Bytes, link_delay: Duration) -> f64 {
        let per_second = packets_per_second(rate, mean_packet_size);
        let round_trip = 3.0 * (link_delay.as_secs_f64() + 1.0 / per_second);
        1.0 - math::exp(-1.0 / (10.0 * round_trip.max(Self::ASSUMED_RTT) * per_second))
    }

    fn check(&self) -> Result<(), RedError> {
        let chances = [self.max_p, self.weight, self.mark_p];
        if let Some(&wrong) = chances.iter().find(|chance| !(0.0..=1.0).contains(*chance)) {
            return Err(RedError::NotAProbability(wrong));
        }
        if !(self.min_th >= 0.0 && self.max_th >= self.min_th && self.max_th.is_finite()) {
            return Err(RedError::Thresholds(self.min_th, self.max_th));
        }
        if self.mean_packet_size == Bytes::ZERO {
            return Err(RedError::EmptyPackets);
        }
        Ok(())
    }
}

fn packets_per_second(rate: Rate, size: Bytes) -> f64 {
    rate.as_bits_per_sec() as f64 / (8.0 * size.get() as f64)
}

/// Random early detection: drops or marks with a probability that rises with the average
/// queue, so that senders react to congestion before the queue is full.
///
/// Follows the algorithm of the 1993 paper as implemented in ns-2 2.35, without adaptive RED. As there
/// (`use_mark_p_`) nothing is forced above the upper threshold: p_b is 1, but is still spread, so that
/// with drops by size a packet smaller than the mean passes right after a drop. The paper drops all.
#[derive(Clone, Debug)]
pub struct Red {
    parameters: RedParameters,
    /// `min_th` in the unit of the average.
    min_th: f64,
    /// `max_th` in the unit of the average.
    max_th: f64,
    /// The average queue, in packets or bytes.
    average: f64,
    /// Packets admitted since the last early drop or mark; `None` while the average is below
    /// `min_th`, when no drop is due.
    since_drop: Option<Admitted>,
}

/// Packets admitted since a drop, including the current one.
#[derive(Clone, Copy, Debug, Default)]
struct Admitted {
    packets: u64,
    bytes: u64,
}

impl Red {
    /// A queue with these parameters, empty and with an average of 0.
    ///
    /// # Errors
    /// A parameter is out of its documented range.
    pub fn new(parameters: RedParameters) -> Result<Self, RedError> {
        parameters.check()?;
        let scale = match parameters.measure {
            RedMeasure::Packets => 1.0,
            RedMeasure::Bytes => parameters.mean_packet_size.get() as f64,
        };
        Ok(Self {
            min_th: parameters.min_th * scale,
            max_th: parameters.max_th * scale,
            parameters,
            average: 0.0,
            since_drop: None,
        })
    }

    /// The queue's parameters.
    pub const fn parameters(&self) -> &RedParameters {
        &self.parameters
    }

    /// The average queue, in packets or bytes according to [`RedParameters::measure`].
    pub const fn average(&self) -> f64 {
        self.average
    }

    /// Decides on one packet.
    pub fn admit(&mut self, offered: &Offered, random: &mut RandomStream) -> Verdict {
        let waiting = match self.parameters.measure {
            RedMeasure::Packets => offered.waiting.packets.get(),
            RedMeasure::Bytes => offered.waiting.bytes.get(),
        };
        self.follow(waiting, offered);
        let early = self.early(waiting, offered, random);
        // A packet sent directly on the idle link needs no buffer space.
        if offered.idle.is_none() && self.parameters.limit.is_reached(offered.waiting) {
            self.start_counting_anew();
            return Verdict::Drop(DropReason::QueueFull);
        }
        early
    }

    /// Moves the average towards the current queue. An idle link counts as an empty queue seen
    /// by each mean-sized packet that it could have sent meanwhile (section 4 of the paper).
    fn follow(&mut self, waiting: u64, offered: &Offered) {
        let keep = 1.0 - self.parameters.weight;
        if let Some(idle) = offered.idle
            && self.average > 0.0
        {
            let per_second = packets_per_second(offered.rate, self.parameters.mean_packet_size);
            let missed = (idle.as_secs_f64() * per_second).floor();
            if missed >= 1.0 {
                self.average *= math::pow(keep, missed);
            }
        }
        self.average = self.average * keep + self.parameters.weight * waiting as f64;
    }

    /// The early decision, before the limit is checked.
    fn early(&mut self, waiting: u64, offered: &Offered, random: &mut RandomStream) -> Verdict {
        // As in ns-2, a queue of at most one (packet or byte) is spared.
        if self.average < self.min_th || waiting <= 1 {
            self.since_drop = None;
            return Verdict::Accept;
        }
        let Some(admitted) = &mut self.since_drop else {
            // The packet that lifts the average over the threshold only starts the count.
            self.since_drop = Some(Admitted { packets: 1, bytes: offered.size.get() });
            return Verdict::Accept;
        };
        admitted.packets += 1;
        admitted.bytes += offered.size.get();
        let admitted = *admitted;
        let probability = self.probability();
        let due = self.spread(probability, admitted, offered.size);
        // One draw per packet even if the result is certain: as ns-2, and the stream then
        // advances equally under all parameters.
        if random.uniform() >= due {
            return Verdict::Accept;
        }
        self.start_counting_anew();
        if self.parameters.ecn && offered.ecn_capable && probability < self.parameters.mark_p {
            Verdict::Mark
        } else {
            Verdict::Drop(DropReason::Early)
        }
    }

    fn start_counting_anew(&mut self) {
        if let Some(admitted) = &mut self.since_drop {
            *admitted = Admitted::default();
        }
    }

    /// p_b of the paper, from the average alone.
    fn probability(&self) -> f64 {
        let max_p = self.parameters.max_p;
        if self.average < self.max_th {
            max_p * (self.average - self.min_th) / (self.max_th - self.min_th)
        } else if self.parameters.gentle && self.max_th > 0.0 {
            let above = (self.average - self.max_th) / self.max_th;
            (max_p + (1.0 - max_p) * above).min(1.0)
        } else {
            1.0
        }
    }

    /// p_a of the paper: spaces drops evenly rather than in clusters. In units of
    /// the mean packet, and proportional to the packet's size if drops are by size.
    fn spread(&self, probability: f64, admitted: Admitted, size: Bytes) -> f64 {
        let mean = self.parameters.mean_packet_size.get();
        let count = if self.parameters.by_size { admitted.bytes / mean } else { admitted.packets };
        let expected = count as f64 * probability;
        let due = match (self.parameters.wait, expected) {
            (true, ..1.0) => 0.0,
            (true, ..2.0) => probability / (2.0 - expected),
            (false, ..1.0) => probability / (1.0 - expected),
            _ => 1.0,
        };
        if self.parameters.by_size && due < 1.0 {
            (due * size.get() as f64 / mean as f64).min(1.0)
        } else {
            due
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
