//! What a daemon says of itself.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::message::{FlowSpec, Sender, Session, Style, TrafficSpec};

/// What a daemon knows and enforces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its process.
    pub process: u32,
    /// Seconds since it started.
    pub up_s: f64,
    /// The interfaces that it speaks RSVP on.
    pub interfaces: Vec<InterfaceStatus>,
    /// All sessions with state.
    pub sessions: Vec<SessionStatus>,
    /// How much is kept.
    pub census: Census,
    /// Packets not taken, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets received and sent.
    pub packets_in: u64,
    /// Packets sent.
    pub packets_out: u64,
}

/// Sums over all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Census {
    /// Sessions with any state.
    pub sessions: usize,
    /// Senders.
    pub paths: usize,
    /// Flows that next hops or applications have asked for.
    pub reservations: usize,
    /// Reservations that are enforced.
    pub enforced: usize,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its largest packet, in bytes.
    pub mtu: u32,
    /// The link's rate, in bit/s.
    pub rate: u64,
    /// What of it may be reserved, in bit/s.
    pub reservable: u64,
    /// What of it is reserved, in bit/s.
    pub reserved: u64,
    /// Messages must be sealed (RFC 2747).
    pub authenticated: bool,
    /// Classes of a daemon before this one that nobody has confirmed yet.
    pub adopted: usize,
    /// What is enforced.
    pub enforced: Vec<EnforcedStatus>,
}

/// A reservation that is enforced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnforcedStatus {
    /// Its class, as `tc class show` names it; empty where the interface has no traffic control.
    pub class: String,
    /// Where its packets go.
    pub session: Session,
    /// Who sends them; none stands for anybody.
    pub senders: Vec<Sender>,
    /// What is set aside, in bit/s.
    pub rate: u64,
    /// The bucket's depth, in bytes.
    pub burst: u64,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Where it goes.
    pub session: Session,
    /// Its senders.
    pub paths: Vec<PathStatus>,
    /// What is asked for.
    pub reservations: Vec<ReservationStatus>,
}

/// A sender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathStatus {
    /// Who sends.
    pub sender: Sender,
    /// Its traffic.
    pub traffic: TrafficSpec,
    /// Where its PATH came from; the sender itself for one of this host.
    pub previous: IpAddr,
    /// By which interface it came; `None` for a sender of this host.
    pub incoming: Option<u32>,
    /// By which interfaces it leaves.
    pub outgoing: Vec<u32>,
}

/// A flow that a next hop, or an application of this host, has asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReservationStatus {
    /// Which senders share.
    pub style: Style,
    /// Who asks.
    pub next: IpAddr,
    /// By which interface the flow leaves; `None` for an application of this host.
    pub interface: Option<u32>,
    /// For whom; none stands for anybody.
    pub senders: Vec<Sender>,
    /// What is asked.
    pub flowspec: FlowSpec,
}
