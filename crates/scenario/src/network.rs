//! A scenario laid out: every node, link and flow of one run, each random draw made.

use std::sync::Arc;

use ontempo_foundation::{Bytes, Rate, Time};
use ontempo_network::Schedule;

use crate::model::{AggregationSpec, Delay, LossSpec, PolicerSpec, QueueSpec, Reservation};

/// What a world (simulator or emulator) builds: the graph and the flows on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Names of the nodes; a node is named by its place here.
    pub nodes: Vec<String>,
    /// Every link, one direction each.
    pub links: Vec<LaidLink>,
    /// Names of the flow groups, in the order of the file's sorted keys.
    pub groups: Vec<String>,
    /// Every flow.
    pub flows: Vec<LaidFlow>,
    /// Every reservation of one flow on one link.
    pub reservations: Vec<LaidReservation>,
}

/// A reservation of one flow on one link.
#[derive(Clone, Debug, PartialEq)]
pub struct LaidReservation {
    /// Place of the link.
    pub link: usize,
    /// Place of the flow.
    pub flow: usize,
    /// What is reserved.
    pub reservation: Reservation,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LaidLink {
    /// `FROM -> TO`; the bottleneck of a dumbbell is `bottleneck`, its way back `reverse`, those
    /// of a parking lot `hop 0`, `hop 1`, … and `hop 0 reverse`, ….
    pub name: String,
    /// Place of the node it leaves.
    pub from: usize,
    /// Place of the node it reaches.
    pub to: usize,
    /// How fast bits leave; the nominal rate if there is a schedule.
    pub rate: Rate,
    /// Delay; a law drawn per link has become fixed.
    pub delay: Delay,
    /// Largest packet.
    pub mtu: Option<Bytes>,
    /// Queue before it.
    pub queue: QueueSpec,
    /// Losses on it.
    pub loss: Option<LossSpec>,
    /// Whether packets may overtake.
    pub reordering: bool,
    /// How it changes during the run, by its schedule, its outages and the scenario's events
    /// together; `None` where it does not.
    pub schedule: Option<Arc<Schedule>>,
    /// What drops before the queue.
    pub policer: Option<PolicerSpec>,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that a packet arrives with bit errors.
    pub corrupt: f64,
    /// How it sends in aggregates.
    pub aggregation: Option<AggregationSpec>,
}

/// One flow.
#[derive(Clone, Debug, PartialEq)]
pub struct LaidFlow {
    /// Place of its group in [`Layout::groups`].
    pub group: usize,
    /// Its number within the group.
    pub index: u32,
    /// Links from sender to receiver, by place.
    pub forward: Vec<usize>,
    /// Links from receiver to sender, by place.
    pub reverse: Vec<usize>,
    /// When it starts.
    pub start: Time,
    /// From when on it sends nothing new: a moment of the run, as `start` is; `None` where it
    /// sends to the end.
    pub stop: Option<Time>,
    /// When the address of its sender changes, in ascending order.
    pub address_changes: Vec<Time>,
}
