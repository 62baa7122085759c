//! The scenario as a user writes it: one struct a table, one field a key.
//!
//! The doc comments here are what a user reads: the reference of the file format and its
//! JSON Schema are generated from them.

pub(crate) mod defaults;
mod extras;
mod flows;
mod hosts;
mod link_profile;
mod network;
mod queue;
mod reservation;
mod schedule;
mod tcp;
mod transport;

use std::collections::BTreeMap;

use ontempo_foundation::Duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::custom::CustomNames;

pub use extras::{AggregationSpec, PolicerSpec};
pub use flows::{
    Application, Dependencies, Dependency, FlowGroup, GeneratedFilm, Interval, MediaCodec,
    MediaSending, Start,
};
pub use hosts::Hosts;
pub use link_profile::{AccessDirection, LinkProfile};
pub use network::{Delay, DelayLaw, Drawn, GraphLink, LinkSpec, LossSpec, Topology};
pub use queue::{QueueLimit, QueueSpec, Unreserved};
pub use reservation::{Direction, Reservation, Service};
pub use schedule::{
    DelayVariation, Episode, Event, LinkChange, MarkovState, Outage, PeriodicStep, RateVariation,
    ScheduleSpec,
};
pub use tcp::{AckKind, Congestion, PacingKind, RecoveryKind, RtoKind, TcpProfile, TcpSpec};
pub use transport::{
    AduSpec, DeliveryKind, EcnCode, OntempoSpec, ReliabilityKind, RetransmissionKind, RistSpec,
    SpacingFeedback, SpacingFrom, SpacingIncrease, SpacingKind, SrtSpec, Transport, WindowCounts,
};

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
    /// Where the defaults of all TCP flows come from that name no `profile`. Reading a scenario fills
    /// them in, and the profile itself is not part of the result.
    #[serde(default, skip_serializing)]
    pub(crate) tcp_profile: TcpProfile,
    /// Nodes and links.
    pub topology: Topology,
    /// Groups of like flows, by name.
    pub flows: BTreeMap<String, FlowGroup>,
    /// What flows have reserved on links, as RSVP would have installed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reservations: Vec<Reservation>,
    /// Changes of links at times of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// What is recorded.
    #[serde(default)]
    pub measure: Measure,
    /// The hosts at which flows begin and end.
    #[serde(default)]
    pub hosts: Hosts,
    /// What only an emulation heeds.
    #[serde(default, skip_serializing_if = "Emulation::is_default")]
    pub emulation: Emulation,
    /// The congestion controllers that only the program which read the scenario has; no part of a file.
    #[serde(skip)]
    pub controllers: CustomNames,
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
