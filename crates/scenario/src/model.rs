//! The scenario as a user writes it: one struct a table, one field a key.
//!
//! The doc comments here are what a user reads: the reference of the file format and its
//! JSON Schema are generated from them.

use std::collections::BTreeMap;

use ontempo_foundation::{Bytes, Duration, Packets, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A network, the flows that cross it, and what is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    /// One line that says what this scenario shows.
    #[serde(default)]
    pub title: String,
    /// How long it runs, in virtual time.
    pub duration: Duration,
    /// What the run's random streams are drawn from, unless the command line says otherwise.
    #[serde(default = "defaults::seed")]
    pub seed: u64,
    /// Nodes and links.
    pub topology: Topology,
    /// Groups of like flows, by name.
    pub flows: BTreeMap<String, FlowGroup>,
    /// What flows have reserved on links, as RSVP would have installed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reservations: Vec<Reservation>,
    /// What is recorded.
    #[serde(default)]
    pub measure: Measure,
    /// What only an emulation heeds.
    #[serde(default, skip_serializing_if = "Emulation::is_default")]
    pub emulation: Emulation,
}

/// How the network is emulated; a simulation is the same, whatever stands here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Emulation {
    /// What the nodes are at which no flow begins or ends.
    pub routers: Routers,
}

impl Emulation {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What routers are in an emulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Routers {
    /// Places where links meet: packets go from link to link by the model alone.
    #[default]
    Modelled,
    /// Network namespaces whose kernel forwards, with an interface for each link; the rate and
    /// queue of links between routers are HTB's, to which classes may be added.
    Kernel,
}

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
    /// How fast bits leave.
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
        /// The size that thresholds in packets are converted by.
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

/// What a flow has reserved: a token bucket that each link polices, and a class there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Reservation {
    /// The group whose flows it is for; each flow has a reservation of its own.
    pub flows: String,
    /// The flow's number in its group, for one flow alone; all where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Which of the flow's packets it is for.
    #[serde(default)]
    pub direction: Direction,
    /// Controlled load or guaranteed.
    #[serde(default)]
    pub service: Service,
    /// Token rate r, headers counted (TSpec, RFC 2215).
    pub rate: Rate,
    /// Bucket depth b: what may come at once.
    pub bucket: Bytes,
    /// Peak rate p, policed where given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<Rate>,
    /// Minimum policed unit m: a smaller packet counts as this much.
    #[serde(default = "defaults::smallest")]
    pub smallest: Bytes,
    /// Maximum packet size M: a larger packet is not covered.
    #[serde(default = "defaults::largest")]
    pub largest: Bytes,
    /// Reserved rate R of the guaranteed service (RSpec, RFC 2212), at least `rate`; as `rate`
    /// where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Rate>,
    /// The links between routers on which it stands; each needs a queue `wfq` or `cbq`.
    pub links: Vec<String>,
}

/// Which way packets go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From sender to receiver.
    #[default]
    Data,
    /// Acknowledgements, from receiver to sender.
    Acks,
}

/// A service of integrated services (RFC 1633).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// As on an unloaded network (RFC 2211): the class has the token rate.
    #[default]
    ControlledLoad,
    /// With a bound on the delay (RFC 2212): the class has the reserved rate.
    Guaranteed,
}

impl Default for QueueSpec {
    fn default() -> Self {
        Self::DropTail { limit: None }
    }
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

/// Flows that are alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FlowGroup {
    /// How many.
    #[serde(default = "defaults::one")]
    pub count: u32,
    /// Where they begin: `left` or `right` of a dumbbell, a router of a parking lot, a node of
    /// a graph. Where not given: `left` in a dumbbell, the first router of a parking lot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Where they end. Where not given: the other side of a dumbbell, the last router of a
    /// parking lot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// What sends.
    pub application: Application,
    /// What carries it.
    pub transport: Transport,
    /// When they start: a time, or a range that each flow's start is drawn from.
    #[serde(default)]
    pub start: Start,
    /// When they stop sending; at the end where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Duration>,
    /// Start-up delays for which late units are counted (`cbr` only).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub playout: Vec<Duration>,
}

/// A moment, or a range that it is drawn from.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
pub enum Start {
    /// At this time.
    At(Duration),
    /// Uniformly between two times, for each flow.
    Between {
        /// The earliest.
        low: Duration,
        /// The latest.
        high: Duration,
    },
}

impl Default for Start {
    fn default() -> Self {
        Self::At(Duration::ZERO)
    }
}

/// What a flow sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "kind",
    deny_unknown_fields,
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case"
)]
pub enum Application {
    /// As much as the transport takes, for ever.
    Ftp {},
    /// A given number of bytes, as fast as the transport takes them.
    File {
        /// How many.
        size: Bytes,
    },
    /// Constant bit rate: one packet each interval. Give `rate` or `interval`.
    Cbr {
        /// Bits per second, headers counted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<Rate>,
        /// Time from packet to packet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interval: Option<Duration>,
    },
    /// Constant bit rate while on, silent while off.
    OnOff {
        /// Bits per second while on, headers counted.
        rate: Rate,
        /// Mean time on.
        on: Duration,
        /// Mean time off.
        off: Duration,
        /// Tail exponent of Pareto times; exponential times where not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shape: Option<f64>,
    },
    /// A web user: thinks, fetches a page of several objects, thinks again (the model of
    /// Barford and Crovella, SIGMETRICS 1998).
    Http {
        /// Mean time from the end of one page to the request of the next.
        #[serde(default = "defaults::http_think")]
        think: Duration,
        /// Tail exponent of the thinking time, Pareto distributed.
        #[serde(default = "defaults::http_think_shape")]
        think_shape: f64,
        /// Mean number of objects in a page, Pareto distributed.
        #[serde(default = "defaults::http_objects")]
        objects: f64,
        /// Tail exponent of the number of objects.
        #[serde(default = "defaults::http_objects_shape")]
        objects_shape: f64,
        /// Mean size of an object, Pareto distributed.
        #[serde(default = "defaults::http_size")]
        size: Bytes,
        /// Tail exponent of the size.
        #[serde(default = "defaults::http_size_shape")]
        size_shape: f64,
    },
    /// Messages of one packet each. The application makes one, writes it, waits for an interval
    /// and makes the next; while the transport's buffer is full, the write waits.
    Messages {
        /// Time from a message written to the next one.
        interval: Interval,
        /// The most that the transport holds, unsent or unacknowledged (TCP only); no limit where
        /// not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        buffer: Option<Packets>,
    },
    /// Requests to flows of another group, one at a time: the next one follows the answer after
    /// a pause. Both are TCP; flow `i` asks flow `i`.
    Request {
        /// The group that answers, with application `respond`, of as many flows.
        of: String,
        /// Payload of a request.
        size: Bytes,
        /// From an answer's last byte to the next request.
        think: Duration,
    },
    /// Answers to the requests of another group: one message each, of a size drawn uniformly.
    Respond {
        /// The smallest payload of an answer.
        smallest: Bytes,
        /// The largest.
        largest: Bytes,
    },
    /// Application data units (ADUs), all there from the start: a file, an image, a page. Each
    /// is one packet; a receiving application takes them one after the other (rr3216).
    Adus {
        /// How many.
        count: u64,
        /// How long the receiving application takes for one.
        #[serde(default)]
        processing: Duration,
        /// Which others an ADU names as those that it depends on, for a transport that
        /// delivers in partial order; none where not given.
        #[serde(default)]
        depends: Dependencies,
    },
    /// Any program, in its host's network; emulated only. In its words, `{source}` and `{sink}`
    /// stand for the addresses of the flow's two ends.
    Command {
        /// The program and its arguments, run where the flow begins, from its start on.
        command: Vec<String>,
        /// A program that is run where the flow ends, before any flow starts, such as a server.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        peer: Vec<String>,
    },
}

/// A duration drawn uniformly between two bounds, which may be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Interval {
    /// The shortest.
    pub low: Duration,
    /// The longest.
    pub high: Duration,
}

/// Which ADUs an ADU depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "kind",
    deny_unknown_fields,
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case"
)]
pub enum Dependencies {
    /// On none.
    None {},
    /// Images one after the other: an image's tables come in sequence and before its data, as
    /// JPEG's do; its data come in any order.
    Images {
        /// ADUs of an image, its tables included.
        adus: u64,
        /// How many of them, the first, hold its tables.
        tables: u64,
        /// Whether an image waits for all of the image before it, as in a video.
        #[serde(default)]
        in_sequence: bool,
    },
    /// As listed; an ADU that is not listed depends on none.
    Listed {
        /// One entry an ADU.
        adus: Vec<Dependency>,
    },
}

impl Default for Dependencies {
    fn default() -> Self {
        Self::None {}
    }
}

/// An ADU and those that it depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Dependency {
    /// Its number, from 0.
    pub adu: u64,
    /// The numbers of those that it depends on, each less than its own.
    pub on: Vec<u64>,
}

/// What carries a flow's packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "kind",
    deny_unknown_fields,
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case"
)]
pub enum Transport {
    /// TCP, one way: data forward, ACKs of 40 bytes back.
    Tcp(TcpSpec),
    /// UDP.
    Udp {
        /// Size of a packet on the wire, headers counted.
        #[serde(default = "defaults::packet")]
        packet: Bytes,
    },
    /// UDP whose packets are spaced (psp, section 2): at a fixed distance, or at one that a
    /// controller adapts to reports of the receiver. Give `spacing` or `controller`.
    Spaced {
        /// Size of a packet on the wire, headers counted.
        #[serde(default = "defaults::packet")]
        packet: Bytes,
        /// The distance between packets. Packets follow each other no faster than the first
        /// link takes for one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spacing: Option<Duration>,
        /// From where to where the spacing is.
        #[serde(default)]
        spacing_from: SpacingFrom,
        /// Who adapts the spacing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        controller: Option<SpacingKind>,
    },
    /// ADUs, acknowledged selectively and sent again where lost; their order is the
    /// application's choice (rr3216).
    Adu(AduSpec),
    /// Whatever a `command` opens itself; emulated only.
    Own {},
}

/// From where the spacing to the next packet's start is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpacingFrom {
    /// From the start of a packet: the interval of a timer.
    #[default]
    Start,
    /// From the end of a packet, as its first link sends it (psp, fig. 3).
    End,
}

/// Controllers of the spacing between packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpacingKind {
    /// The packet-spacing protocol (psp, section 2.1).
    Psp,
    /// The same, damped: a loss that a smaller spacing caused restores the one before
    /// (psp, section 2.2).
    PspDamped,
    /// The same, where only the decision before the report counts: a loss restores the spacing
    /// if that was a decrease, whatever spacing the lost packets were sent at.
    PspDampedLast,
}

/// How a flow of ADUs is carried. The defaults are those of rr3216, section 3.2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AduSpec {
    /// Size of an ADU on the wire, headers counted.
    pub packet: Bytes,
    /// From one emission to the next; zero for as fast as the window allows.
    pub interval: Duration,
    /// The receiver's window in ADUs.
    pub window: Packets,
    /// What the window counts.
    pub window_counts: WindowCounts,
    /// The receiver acknowledges after so many ADUs.
    pub ack_every: Packets,
    /// The order in which ADUs are delivered.
    pub delivery: DeliveryKind,
    /// When a lost ADU is sent again.
    pub retransmission: RetransmissionKind,
    /// How many later ones must have arrived before an ADU is held to be lost: 1 where links
    /// keep the order, 3 where they may not (RFC 9002, section 6.1.1).
    pub lost_after: Packets,
    /// Least retransmission timeout.
    pub min_rto: Duration,
    /// Whether the timeout doubles with each that follows another (RFC 6298, section 5.5).
    pub back_off: bool,
}

impl Default for AduSpec {
    fn default() -> Self {
        Self {
            packet: defaults::packet(),
            interval: Duration::from_millis(10),
            window: Packets::new(32),
            window_counts: WindowCounts::default(),
            ack_every: Packets::new(2),
            delivery: DeliveryKind::default(),
            retransmission: RetransmissionKind::default(),
            lost_after: Packets::new(1),
            min_rto: Duration::from_millis(200),
            back_off: true,
        }
    }
}

/// What the receiver's window counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WindowCounts {
    /// Buffers: an ADU leaves the window when the application takes it.
    #[default]
    Buffers,
    /// Numbers: an ADU may be sent where it is less than a window beyond the lowest one not
    /// acknowledged.
    Numbers,
}

/// The order of delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DeliveryKind {
    /// By number, without a gap.
    #[default]
    Ordered,
    /// As they arrive.
    OutOfSequence,
    /// Each after those that it depends on.
    Partial,
}

/// When a lost ADU is sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RetransmissionKind {
    /// At the next emission, before new ADUs.
    #[default]
    Paced,
    /// As soon as it is known to be lost, whatever the interval.
    AtOnce,
}

/// How a TCP flow behaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TcpSpec {
    /// The congestion controller: a name, or a table with its parameters.
    pub congestion: Congestion,
    /// Size of a full packet on the wire, 40 bytes of headers counted.
    pub packet: Bytes,
    /// How losses are found and repaired.
    pub recovery: RecoveryKind,
    /// When the receiver acknowledges.
    pub ack: AckKind,
    /// How packets are spread over a round trip.
    pub pacing: PacingKind,
    /// Remove the delay that a train of packets inflicts on itself from the RTT samples
    /// (pert, ch. V).
    pub correct_self_induced_delay: bool,
    /// Window at the start and after an idle restart.
    pub initial_window: Packets,
    /// The receiver's window: the most that may be in flight.
    pub receive_window: Packets,
    /// Slow-start threshold at the start; none where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_ssthresh: Option<Packets>,
    /// Send a new packet for each of the first two duplicate ACKs (RFC 3042).
    pub limited_transmit: bool,
    /// Least retransmission timeout.
    pub min_rto: Duration,
    /// Granularity of the retransmission clock; zero for an exact one.
    pub clock: Duration,
    /// Take an RTT sample from every ACK, as timestamps allow (RFC 7323); otherwise one a
    /// round trip.
    pub timestamps: bool,
    /// Let the window grow while the application, not the window, limits what is sent (as ns-2
    /// does; Linux does not).
    pub grow_when_application_limited: bool,
    /// Begin again from the initial window after an idle time of one RTO (RFC 5681, 4.1).
    pub idle_restart: bool,
    /// Negotiate ECN (RFC 3168).
    pub ecn: bool,
}

impl Default for TcpSpec {
    fn default() -> Self {
        Self {
            congestion: Congestion::default(),
            packet: defaults::packet(),
            recovery: RecoveryKind::Sack,
            ack: AckKind::Immediate {},
            pacing: PacingKind::Off,
            correct_self_induced_delay: false,
            initial_window: Packets::new(2),
            receive_window: Packets::new(100_000),
            initial_ssthresh: None,
            limited_transmit: true,
            min_rto: Duration::from_millis(200),
            clock: Duration::ZERO,
            timestamps: true,
            grow_when_application_limited: true,
            idle_restart: true,
            ecn: false,
        }
    }
}

/// A congestion controller by name, or with parameters.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Congestion {
    /// `"reno"`, `"newreno"`, `"cubic"`, `"vegas"`, `"pert"` or `"bbr"`, with its defaults.
    Named(CongestionName),
    /// With parameters.
    With(CongestionSpec),
}

impl Default for Congestion {
    fn default() -> Self {
        Self::Named(CongestionName::Reno)
    }
}

/// The names of the congestion controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CongestionName {
    /// Reno (RFC 5681).
    Reno,
    /// Reno that reacts once per window of data (RFC 6582).
    NewReno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// Vegas (Brakmo and Peterson, 1995).
    Vegas,
    /// PERT (pert, ch. II).
    Pert,
    /// BBR, as the Linux kernel has it; emulated only.
    Bbr,
}

/// A congestion controller with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "kind",
    deny_unknown_fields,
    rename_all = "lowercase",
    rename_all_fields = "kebab-case"
)]
pub enum CongestionSpec {
    /// Reno (RFC 5681).
    Reno {
        /// Grow by packets acknowledged (RFC 3465) instead of by ACKs.
        #[serde(default)]
        count_packets: bool,
    },
    /// Reno that reacts once per window of data (RFC 6582).
    NewReno {
        /// Grow by packets acknowledged (RFC 3465) instead of by ACKs.
        #[serde(default)]
        count_packets: bool,
    },
    /// CUBIC (RFC 9438).
    Cubic {
        /// `rfc9438`, or `linux-2.6` for the one that ns-2 carries.
        #[serde(default)]
        variant: CubicVariant,
    },
    /// Vegas (Brakmo and Peterson, 1995).
    Vegas {},
    /// PERT (pert, ch. II).
    Pert {
        /// Which reading of PERT's open points.
        #[serde(default)]
        variant: PertVariant,
        /// Queueing delay below which PERT never responds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t_min: Option<Duration>,
        /// Queueing delay at which it responds with probability `p-max`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        t_max: Option<Duration>,
        /// Probability of a response at `t-max`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        p_max: Option<f64>,
        /// The largest additive increase, in packets per round trip.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        alpha_max: Option<f64>,
    },
    /// Any that the Linux kernel has; emulated only.
    Kernel {
        /// What the kernel calls it.
        name: String,
    },
}

/// Which CUBIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CubicVariant {
    /// RFC 9438.
    #[default]
    #[serde(rename = "rfc9438")]
    Rfc9438,
    /// Linux 2.6, as ns-2 carries it.
    #[serde(rename = "linux-2.6")]
    Linux26,
}

/// Which reading of PERT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PertVariant {
    /// The thesis: compete from 0.65 of the largest queueing delay, alpha at once.
    Thesis,
    /// The public ns-3 port: a ramp from 0.5, alpha in steps.
    #[default]
    Reference,
}

/// How losses are found and repaired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RecoveryKind {
    /// Fast retransmit and fast recovery, left at the first new ACK (RFC 5681).
    Reno,
    /// Fast recovery that partial ACKs prolong (RFC 6582).
    NewReno,
    /// Selective acknowledgements (RFC 2018, RFC 6675).
    #[default]
    Sack,
}

/// When a receiver acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "kind",
    deny_unknown_fields,
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case"
)]
pub enum AckKind {
    /// Each packet.
    Immediate {},
    /// Each second packet, or after `timeout` (RFC 5681, 4.2).
    Delayed {
        /// The longest wait, at most 500 ms.
        #[serde(default = "defaults::ack_timeout")]
        timeout: Duration,
    },
    /// One ACK for up to `most` packets, adapted to order and arrival rate (pert, ch. IV).
    Adaptive {
        /// The most packets that one ACK covers.
        #[serde(default = "defaults::ack_most")]
        most: Packets,
    },
}

/// How packets are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PacingKind {
    /// Not at all: as the window opens.
    #[default]
    Off,
    /// At `srtt / cwnd` from packet to packet.
    Window,
    /// At the rate that the congestion controller answers.
    Controller,
}

/// What is recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Measure {
    /// Where the totals of the tables `flows` and `links` begin: what happened before does not count.
    pub from: Duration,
    /// Sample every flow's window, RTT, goodput and buffer, and every named queue, at this interval;
    /// no samples where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_every: Option<Duration>,
    /// Flow groups that are sampled; all where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_flows: Option<Vec<String>>,
    /// Links whose queue is sampled and whose queue length is counted at each arrival, by flow
    /// group: table `queues`.
    pub queues: Vec<String>,
    /// Links of which every packet is recorded: table `packets`.
    pub packets: Vec<String>,
    /// Record every unit of the groups with a playout, and every ADU: table `adus`.
    pub adus: bool,
    /// Record window reductions, timeouts and early responses: table `events`.
    pub events: bool,
    /// Record the delay and jitter of every message received from `from` on, of the applications
    /// that have messages (`messages`, `request`, `respond` and `cbr`): table `messages`.
    pub messages: bool,
    /// Throughput and loss of those applications in intervals of this length, from `from` on:
    /// table `intervals`; none where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intervals: Option<Duration>,
}

impl Default for Measure {
    fn default() -> Self {
        Self {
            from: Duration::ZERO,
            sample_every: None,
            sample_flows: None,
            queues: Vec::new(),
            packets: Vec::new(),
            adus: false,
            events: false,
            messages: false,
            intervals: None,
        }
    }
}

pub(crate) mod defaults {
    use super::{Bytes, Duration, Packets, QueueLimit};

    pub(crate) fn seed() -> u64 {
        1
    }
    pub(crate) fn yes() -> bool {
        true
    }
    pub(crate) fn one() -> u32 {
        1
    }
    pub(crate) fn packet() -> Bytes {
        Bytes::new(1000)
    }
    pub(crate) fn red_max_p() -> f64 {
        0.1
    }
    pub(crate) fn red_mean_packet() -> Bytes {
        Bytes::new(500)
    }
    pub(crate) fn reservable() -> f64 {
        0.75
    }
    pub(crate) fn smallest() -> Bytes {
        Bytes::new(40)
    }
    pub(crate) fn largest() -> Bytes {
        Bytes::new(1500)
    }
    pub(crate) fn aqm_limit() -> QueueLimit {
        QueueLimit::Packets(Packets::new(1000))
    }
    pub(crate) fn codel_target() -> Duration {
        Duration::from_millis(5)
    }
    pub(crate) fn codel_interval() -> Duration {
        Duration::from_millis(100)
    }
    pub(crate) fn fq_limit() -> QueueLimit {
        QueueLimit::Packets(Packets::new(10_240))
    }
    pub(crate) fn fq_quantum() -> Bytes {
        Bytes::new(1514)
    }
    pub(crate) fn fq_queues() -> u32 {
        1024
    }
    pub(crate) fn pie_target() -> Duration {
        Duration::from_millis(15)
    }
    pub(crate) fn pie_burst() -> Duration {
        Duration::from_millis(150)
    }
    pub(crate) fn ack_timeout() -> Duration {
        Duration::from_millis(100)
    }
    pub(crate) fn ack_most() -> Packets {
        Packets::new(4)
    }
    pub(crate) fn http_think() -> Duration {
        Duration::from_secs(10)
    }
    pub(crate) fn http_think_shape() -> f64 {
        1.4
    }
    pub(crate) fn http_objects() -> f64 {
        1.7
    }
    pub(crate) fn http_objects_shape() -> f64 {
        2.43
    }
    pub(crate) fn http_size() -> Bytes {
        Bytes::new(12_000)
    }
    pub(crate) fn http_size_shape() -> f64 {
        1.2
    }
}
