//! Where packets go: nodes, links, delays and losses.

use ontempo_foundation::{Bytes, Duration, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    AccessDirection, AggregationSpec, LinkProfile, Outage, PolicerSpec, QueueSpec, ScheduleSpec,
    defaults,
};

/// How nodes are joined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "kind",
    deny_unknown_fields,
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case"
)]
pub enum Topology {
    /// Two routers, `left` and `right`, joined by one bottleneck; every flow has a host of its
    /// own on each side.
    Dumbbell {
        /// The link from `left` to `right`, and back unless `reverse` says otherwise.
        bottleneck: Box<LinkSpec>,
        /// The link from `right` to `left`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reverse: Option<Box<LinkSpec>>,
        /// The links between each sender's host and its router, both ways.
        access: Box<LinkSpec>,
        /// The links between each receiver's host and its router; as `access` where not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receiver_access: Option<Box<LinkSpec>>,
    },
    /// A row of routers `r0`, `r1`, …, each joined to the next by a bottleneck; every flow has
    /// a host of its own at the routers it enters and leaves by.
    ParkingLot {
        /// How many bottlenecks stand in the row.
        hops: u32,
        /// Each link between neighbouring routers, both ways.
        bottleneck: Box<LinkSpec>,
        /// The links between each host and its router, both ways.
        access: Box<LinkSpec>,
    },
    /// Any graph. Flows begin and end at its nodes; routes are the shortest by delay, then by
    /// number of links, then by name.
    Graph {
        /// The links.
        links: Vec<GraphLink>,
    },
}

/// One link of a graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GraphLink {
    /// The node it leaves.
    pub from: String,
    /// The node it reaches.
    pub to: String,
    /// False for a link that carries packets one way only.
    #[serde(default = "defaults::yes")]
    pub duplex: bool,
    /// Rate, delay, queue and losses.
    #[serde(flatten)]
    pub link: LinkSpec,
}

/// A link: rate, delay, queue, losses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkSpec {
    /// The technology that the fields not given are those of, in both directions
    /// ([docs/profiles.md](../profiles.md)). A field that is given replaces the profile's in both;
    /// one within `back` in that direction alone. The reader of a scenario fills the values in; the
    /// profile itself is not part of the result.
    #[serde(default, skip_serializing)]
    pub(crate) profile: Option<LinkProfile>,
    /// With `profile`: the direction of packets that take the link as it is written, the other one
    /// being `back`. Where not given: `downlink`; for `reverse` of a dumbbell, and for packets that
    /// leave a host by its access link, `uplink`.
    #[serde(default, skip_serializing)]
    pub(crate) direction: Option<AccessDirection>,
    /// How fast bits leave. With a `schedule`, the nominal rate: what automatic parameters of
    /// queues and reservations are computed from.
    pub rate: Rate,
    /// Propagation delay: a duration, or a law that each packet's delay (or, with
    /// `drawn = "per-link"`, each link's) is drawn from.
    pub delay: Delay,
    /// The largest packet that passes; any size where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Bytes>,
    /// The queue before the link; without a limit where not given.
    #[serde(default)]
    pub queue: QueueSpec,
    /// Losses on the wire; none where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossSpec>,
    /// Whether a packet of smaller delay may overtake others.
    #[serde(default)]
    pub reordering: bool,
    /// How the link changes during the run; constant where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleSpec>,
    /// Times in which nothing leaves the link.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<Outage>,
    /// A policer before the queue; none where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policer: Option<PolicerSpec>,
    /// Probability, 0 to 1, that a packet that crosses the link arrives twice.
    #[serde(default, skip_serializing_if = "defaults::is_zero")]
    pub duplicate: f64,
    /// Probability, 0 to 1, that a packet that crosses the link arrives with bit errors, so that
    /// its receiver drops it.
    #[serde(default, skip_serializing_if = "defaults::is_zero")]
    pub corrupt: f64,
    /// How the link sends in aggregates; each packet on its own where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<AggregationSpec>,
    /// The way back, where it differs: all of its fields. Of an access link, the way to the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<Box<LinkSpec>>,
}

impl LinkSpec {
    /// The link in the other direction.
    pub fn way_back(&self) -> &Self {
        self.back.as_deref().unwrap_or(self)
    }
}

/// A fixed duration, or a law.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Delay {
    /// Always the same.
    Fixed(Duration),
    /// Drawn from a law.
    Law(DelayLaw),
}

/// The law of a random delay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "kind",
    deny_unknown_fields,
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case"
)]
pub enum DelayLaw {
    /// Always the same: a term of a sum.
    Constant {
        /// The delay.
        value: Duration,
    },
    /// Between two bounds.
    Uniform {
        /// The smallest.
        low: Duration,
        /// The largest.
        high: Duration,
        /// Whether each packet or each link draws anew.
        #[serde(default)]
        drawn: Drawn,
    },
    /// Exponential.
    Exponential {
        /// Its mean.
        mean: Duration,
    },
    /// A mixture of exponential laws.
    HyperExponential {
        /// How probable each branch is; together 1.
        probabilities: Vec<f64>,
        /// The mean of each branch.
        means: Vec<Duration>,
    },
    /// The sum of `k` exponential stages.
    Erlang {
        /// The number of stages.
        k: u32,
        /// The mean of the sum.
        mean: Duration,
    },
    /// The sum of several laws.
    Sum {
        /// Its terms.
        terms: Vec<DelayLaw>,
    },
}

/// When a random value is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Drawn {
    /// Anew for each packet.
    #[default]
    PerPacket,
    /// Once for each link (the same in both directions), as the run begins.
    PerLink,
}

/// Losses on the wire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "kind",
    deny_unknown_fields,
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case"
)]
pub enum LossSpec {
    /// Each packet is lost independently.
    Bernoulli {
        /// Probability of loss, 0 to 1.
        rate: f64,
    },
    /// Two states, good and bad (Gilbert, 1960); every packet in the bad state is lost.
    Gilbert {
        /// Probability of going from good to bad, for each packet.
        p: f64,
        /// Probability of going from bad to good, for each packet.
        q: f64,
    },
    /// The packets named are lost.
    Trace {
        /// Numbers of the lost packets on this link, from 0.
        lost: Vec<u64>,
    },
}
