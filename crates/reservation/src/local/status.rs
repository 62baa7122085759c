//! The daemon's status report.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::message::{AdSpec, Dclass, FlowSpec, Sender, Session, Style, TrafficSpec};

/// How much of one kind of state a status lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// How many more.
    pub places: usize,
    /// How many more bytes of JSON.
    pub bytes: usize,
}

impl Room {
    /// The first of these that there is room for; after one that does not fit there is none.
    pub fn list<T: Serialize>(&mut self, all: impl IntoIterator<Item = T>) -> Vec<T> {
        let mut listed = Vec::new();
        if self.places == 0 {
            return listed;
        }
        for one in all {
            // With the comma.
            let length = serde_json::to_vec(&one).map_or(usize::MAX, |text| text.len() + 1);
            let Some(left) = self.bytes.checked_sub(length) else {
                self.places = 0;
                break;
            };
            (self.bytes, self.places) = (left, self.places - 1);
            listed.push(one);
            if self.places == 0 {
                break;
            }
        }
        listed
    }
}

/// What a daemon knows and enforces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its process.
    pub process: u32,
    /// Seconds since it started.
    pub up_s: f64,
    /// The interfaces with RSVP.
    pub interfaces: Vec<InterfaceStatus>,
    /// The first sessions with state, and their first paths, reservations and requests: at most
    /// 1,000 of each kind. `census` counts all.
    pub sessions: Vec<SessionStatus>,
    /// The number of each kind of state.
    pub census: Census,
    /// The protocol's constants, as they are here.
    pub protocol: ProtocolStatus,
    /// Packets dropped on receipt or not sent, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets received and dropped.
    pub bad_packets: u64,
    /// Packets received.
    pub packets_in: u64,
    /// Packets sent.
    pub packets_out: u64,
    /// Neighbours heard within the lifetime of state.
    #[serde(default)]
    pub neighbours: usize,
    /// Requests refused here: of neighbours, and of applications of this host.
    #[serde(default)]
    pub refused: u64,
}

/// The constants of the protocol (RFC 2205 sections 3.5 to 3.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtocolStatus {
    /// R: mean time between refreshes, in milliseconds.
    pub refresh_ms: u64,
    /// K: refreshes in a row that may be lost before state ends.
    pub refreshes_lost: u32,
    /// Kb: how many refresh periods a refused request stays out of the merge.
    pub blockade_periods: u32,
    /// Milliseconds from a change of routes until it is looked at.
    pub settling_ms: u64,
    /// TTL of the messages that begin here.
    pub ttl: u8,
}

/// Sums over all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Census {
    /// Sessions with any state.
    pub sessions: usize,
    /// Senders.
    pub paths: usize,
    /// Flow descriptors of all reservation state.
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
    /// Its latency without queueing, in microseconds; `None` where it is not known.
    pub latency_us: Option<u64>,
    /// Messages must be sealed (RFC 2747).
    pub authenticated: bool,
    /// Classes that were there when the interface was set up, whose reservation has not been refreshed yet.
    pub adopted: usize,
    /// What is enforced: the first 1,000 of all interfaces.
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
    /// The service, with the traffic that is served.
    pub flowspec: FlowSpec,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Where it goes.
    pub session: Session,
    /// Its senders.
    pub paths: Vec<PathStatus>,
    /// Reservation state of next hops and local applications.
    pub reservations: Vec<ReservationStatus>,
    /// RESVs sent to previous hops.
    pub requests: Vec<RequestStatus>,
}

/// A sender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathStatus {
    /// Who sends.
    pub sender: Sender,
    /// Its traffic.
    pub traffic: TrafficSpec,
    /// What the path offers up to here.
    pub adspec: Option<AdSpec>,
    /// Its policy data (RFC 2205 section A.13), with their headers; most have none.
    pub policy: Vec<u8>,
    /// The previous hop (PHOP); the sender itself for one of this host.
    pub previous: IpAddr,
    /// The logical interface handle (LIH) of the previous hop.
    pub handle: u32,
    /// By which interface it came; `None` for a sender of this host.
    pub incoming: Option<u32>,
    /// By which interfaces it leaves.
    pub outgoing: Vec<u32>,
    /// The TTL in its header.
    pub send_ttl: u8,
    /// No hop before this node lacks RSVP.
    pub rsvp_hop: bool,
    /// Its refresh period R, in milliseconds.
    pub period_ms: u64,
    /// When its contents last changed, in seconds from the daemon's start.
    pub changed_s: f64,
    /// What the previous hop, or the application, is told to mark its packets with: one of these;
    /// none where nothing is asked for, or it is not reserved.
    #[serde(default)]
    pub dscps: Dclass,
}

/// A flow descriptor of a next hop, or of an application of this host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReservationStatus {
    /// Which senders share.
    pub style: Style,
    /// The next hop.
    pub next: IpAddr,
    /// By which interface the flow leaves; `None` for an application of this host.
    pub interface: Option<u32>,
    /// For whom; none stands for anybody.
    pub senders: Vec<Sender>,
    /// The flowspec.
    pub flowspec: FlowSpec,
    /// The DSCPs that the next hop asks for, but for those that no host may be asked for.
    #[serde(default)]
    pub dscps: Dclass,
    /// The TTL in the message's header.
    pub send_ttl: u8,
    /// No hop between lacks RSVP.
    pub rsvp_hop: bool,
    /// Its refresh period R, in milliseconds.
    pub period_ms: u64,
    /// When its contents last changed, in seconds from the daemon's start.
    pub changed_s: f64,
}

/// A flow descriptor of the RESV to a previous hop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestStatus {
    /// Which senders share.
    pub style: Style,
    /// The previous hop.
    pub previous: IpAddr,
    /// By which interface.
    pub interface: u32,
    /// The logical interface handle (LIH) of the previous hop.
    pub handle: u32,
    /// For whom; none stands for anybody.
    pub senders: Vec<Sender>,
    /// The flowspec.
    pub flowspec: FlowSpec,
    /// The DSCPs that it asks for.
    #[serde(default)]
    pub dscps: Dclass,
    /// When its contents last changed, in seconds from the daemon's start.
    pub changed_s: f64,
}
