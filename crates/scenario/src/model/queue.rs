//! Queues of links.

use ontempo_foundation::{Bytes, Duration, Packets};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::defaults;

/// A number of packets or of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Packets waiting, the one in transmission not counted.
    Packets(Packets),
    /// Bytes waiting.
    Bytes(Bytes),
}

/// A queue discipline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "kind",
    deny_unknown_fields,
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case"
)]
pub enum QueueSpec {
    /// First in, first out; what does not fit is dropped.
    DropTail {
        /// `"150 packets"` or `"500 kB"`; no limit where not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<QueueLimit>,
    },
    /// Random early detection (Floyd and Jacobson, 1993). Thresholds not given are computed
    /// from the link's rate, for a mean delay of 5 ms (as ns-2 does).
    Red {
        /// The most that may wait.
        limit: QueueLimit,
        /// Average queue below which nothing is dropped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min_th: Option<Packets>,
        /// Average queue at which `max-p` is reached.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_th: Option<Packets>,
        /// Drop probability at `max-th`.
        #[serde(default = "defaults::red_max_p")]
        max_p: f64,
        /// Weight of a new sample in the average queue; from the link's rate where not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight: Option<f64>,
        /// Let the probability rise from `max-p` to 1 between `max-th` and twice that.
        #[serde(default = "defaults::yes")]
        gentle: bool,
        /// The size of a packet of `limit` and of thresholds, unless `byte-mode` is off: those given in packets
        /// are so many of this size, whatever the flows send.
        #[serde(default = "defaults::red_mean_packet")]
        mean_packet: Bytes,
        /// Measure the queue in bytes, so that a small packet is dropped less often.
        #[serde(default = "defaults::yes")]
        byte_mode: bool,
        /// Mark packets of flows with `ecn` instead of dropping them.
        #[serde(default)]
        ecn: bool,
    },
    /// Weighted fair queueing (Demers, Keshav and Shenker, 1989; Parekh and Gallager, 1993):
    /// each reservation has a class of its rate, and what is not reserved shares the rest.
    Wfq {
        /// The most that may wait of what is not reserved; of each flow, with
        /// `unreserved = "by-flow"`. No limit where not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<QueueLimit>,
        /// Once a packet was dropped, no other is taken until fewer than this wait (Cisco IOS: a
        /// quarter of the limit). Needs `limit`; not held back where not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resume: Option<Packets>,
        /// The share of the link, 0 to 1, that may be reserved (Cisco IOS: 0.75).
        #[serde(default = "defaults::reservable")]
        reservable: f64,
        /// How what is not reserved waits.
        #[serde(default)]
        unreserved: Unreserved,
    },
    /// Class-based queueing with borrowing (Floyd and Van Jacobson, 1995): each reservation has
    /// a class of its rate that goes first; what is not reserved shares the rest.
    Cbq {
        /// The most that may wait of what is not reserved. No limit where not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<QueueLimit>,
        /// The share of the link, 0 to 1, that may be reserved.
        #[serde(default = "defaults::reservable")]
        reservable: f64,
        /// Whether a reservation may use more than its rate while nothing else needs the link.
        #[serde(default = "defaults::yes")]
        borrow: bool,
    },
    /// Controlled delay (RFC 8289): drops at the head, ever more often, while every packet of
    /// an interval has waited longer than a target.
    Codel {
        /// The most that may wait.
        #[serde(default = "defaults::aqm_limit")]
        limit: QueueLimit,
        /// The longest wait that is no standing queue.
        #[serde(default = "defaults::codel_target")]
        target: Duration,
        /// How long the wait must be longer before the first drop.
        #[serde(default = "defaults::codel_interval")]
        interval: Duration,
        /// Mark packets of flows with `ecn` instead of dropping them.
        #[serde(default)]
        ecn: bool,
    },
    /// Fair queueing with CoDel (RFC 8290): flows are hashed to queues that take turns, each
    /// under CoDel.
    FqCodel {
        /// The most that may wait in all queues together.
        #[serde(default = "defaults::fq_limit")]
        limit: QueueLimit,
        /// The longest wait that is no standing queue.
        #[serde(default = "defaults::codel_target")]
        target: Duration,
        /// How long the wait must be longer before the first drop.
        #[serde(default = "defaults::codel_interval")]
        interval: Duration,
        /// Mark packets of flows with `ecn` instead of dropping them.
        #[serde(default = "defaults::yes")]
        ecn: bool,
        /// What a queue may send in its turn.
        #[serde(default = "defaults::fq_quantum")]
        quantum: Bytes,
        /// How many queues flows are hashed to.
        #[serde(default = "defaults::fq_queues")]
        queues: u32,
    },
    /// The coupled dual-queue AQM of L4S (RFC 9332): packets marked ECT(1) or CE wait in a queue of
    /// their own, which marks from a very short wait on; all others in a classic queue, which is
    /// held at a target. The marks of the first follow the drops of the second, so that flows share.
    Dualpi2 {
        /// The most that may wait in both queues together.
        #[serde(default = "defaults::dualpi2_limit")]
        limit: QueueLimit,
        /// The wait at which the classic queue is held.
        #[serde(default = "defaults::pie_target")]
        target: Duration,
        /// Time between two updates of the base probability.
        #[serde(default = "defaults::dualpi2_update")]
        update: Duration,
        /// The wait from which on the L4S queue marks each packet that others wait behind.
        #[serde(default = "defaults::dualpi2_step")]
        step: Duration,
        /// How much more often than the base probability, whose square is that of classic drops,
        /// the L4S queue marks.
        #[serde(default = "defaults::dualpi2_coupling")]
        coupling: f64,
        /// The share of the link, above 0 and below 1, that the classic queue gets while both have
        /// packets.
        #[serde(default = "defaults::dualpi2_classic_share")]
        classic_share: f64,
    },
    /// Proportional integral controller enhanced (RFC 8033): drops at the door with a
    /// probability that keeps the wait at a target.
    Pie {
        /// The most that may wait.
        #[serde(default = "defaults::aqm_limit")]
        limit: QueueLimit,
        /// The wait that is aimed at.
        #[serde(default = "defaults::pie_target")]
        target: Duration,
        /// Time between two updates of the drop probability.
        #[serde(default = "defaults::pie_target")]
        update: Duration,
        /// How long a burst passes untouched.
        #[serde(default = "defaults::pie_burst")]
        burst: Duration,
        /// Mark packets of flows with `ecn` instead of dropping them.
        #[serde(default)]
        ecn: bool,
    },
}

/// How packets without a reservation wait for a scheduled link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unreserved {
    /// All in one queue, first in, first out.
    #[default]
    Together,
    /// Each flow, and its ACKs, in a class of its own; all of the same weight.
    ByFlow,
}

impl Default for QueueSpec {
    fn default() -> Self {
        Self::DropTail { limit: None }
    }
}
