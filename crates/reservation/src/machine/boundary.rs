//! What goes in and comes out, and the two traits that a daemon fills.

use core::fmt;
use std::net::IpAddr;

use ontempo_foundation::{Bytes, Duration, Rate};

use crate::htb::Aggregate;
use crate::integrity::Guard;
use crate::message::{
    AdSpec, Cause, Dclass, Descriptor, ErrorSpec, FlowSpec, Mark, Sender, Session, Style,
    TrafficSpec,
};

/// One of the node's interfaces; also the logical interface handle in its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceId(pub u32);

impl InterfaceId {
    /// Stands for the node's own applications.
    pub const LOCAL: Self = Self(u32::MAX);
}

/// Where packets leave for a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NextHop {
    /// By this interface.
    pub interface: InterfaceId,
    /// To this neighbour, or to the destination itself on its own link.
    pub gateway: IpAddr,
}

/// The node's routes, as they are now.
pub trait Routes {
    /// The next hops of packets from `source` to `destination`: one for a unicast destination, none
    /// where there is no route. Not called for the node's own addresses.
    fn towards(&self, destination: IpAddr, source: IpAddr) -> Vec<NextHop>;
}

/// The system's traffic control (RFC 2205 section 3.11.2). It gets each [`ControlRequest`] in
/// order.
pub trait TrafficControl {
    /// Carries the requests out, in order. Returns the places of those that the system refused,
    /// with the reason; the daemon then calls
    /// [`Machine::control_failed`](super::Machine::control_failed) for each.
    fn apply(&mut self, requests: &[ControlRequest]) -> Vec<(usize, ControlError)>;
}

/// The system's traffic control refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlError {
    /// The error value of the ResvErr (RFC 2205 appendix B, code 22), for example an `errno`.
    pub value: u16,
    /// A sentence.
    pub reason: String,
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl core::error::Error for ControlError {}

impl ControlRequest {
    /// Its interface and handle.
    pub fn place(&self) -> (InterfaceId, Handle) {
        match self {
            Self::Add(interface, handle, _)
            | Self::Modify(interface, handle, _)
            | Self::Remove(interface, handle) => (*interface, *handle),
        }
    }
}

/// The handle of an installed reservation on its interface (RFC 2205's Rhandle): from 1 on; free
/// again after its removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle(pub u16);

/// A change of the reservations installed on an interface.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlRequest {
    /// A reservation under a handle that is free.
    Add(InterfaceId, Handle, Reservation),
    /// A changed reservation under a handle in use.
    Modify(InterfaceId, Handle, Reservation),
    /// The reservation ends; its handle is free.
    Remove(InterfaceId, Handle),
}

/// A reservation as traffic control installs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    /// Where the packets go.
    pub session: Session,
    /// Who sends them; none stands for anybody.
    pub filters: Vec<Sender>,
    /// The service, with the traffic that is to be served and policed.
    pub flowspec: FlowSpec,
    /// What is set aside of the link: the flow's rate with the link's headers, rounded up to a byte
    /// per second.
    pub rate: Rate,
    /// The bucket's depth on the link, rounded up.
    pub burst: Bytes,
}

/// An interface that runs RSVP.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// Its addresses, of one or both families.
    pub addresses: Vec<IpAddr>,
    /// What of the link's rate may be reserved.
    pub reservable: Rate,
    /// Sum of the reservations' bursts: what the buffers hold.
    pub reservable_burst: Bytes,
    /// The link's rate, for ADSPEC.
    pub rate: Rate,
    /// Its latency without queueing, for ADSPEC; `None` where it is not known.
    pub latency: Option<Duration>,
    /// Its largest IP packet.
    pub mtu: u32,
    /// Bytes that each packet takes on the link beyond those of IP, which a TSpec counts.
    pub overhead: Bytes,
    /// Error terms of guaranteed service (RFC 2212); `None` where it is not offered.
    pub guaranteed: Option<ErrorTerms>,
    /// What reservations share a class, to which packets come by their DSCP: previous hops are told of it
    /// (DCLASS, RFC 2996).
    pub aggregates: Vec<Aggregate>,
    /// Messages are numbered and refreshed by number (RFC 2961); off where routers that do not
    /// know it would refuse them.
    pub refresh_reduction: bool,
    /// Seals and checks messages (RFC 2747); `None` takes them from anybody.
    pub guard: Option<Guard>,
}

/// How far a scheduler falls behind a fluid server of the reserved rate (RFC 2212).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorTerms {
    /// C: depends on the rate.
    pub c: Bytes,
    /// D: does not.
    pub d: Duration,
}

/// A packet to be sent: an IP packet of protocol 46.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The outgoing interface, whatever the routing table has.
    pub interface: InterfaceId,
    /// Its source address: that of the flow's sender for PATH, which must follow the flow's route.
    pub source: IpAddr,
    /// Its destination address.
    pub destination: IpAddr,
    /// With the Router Alert option (RFC 2113, RFC 2711).
    pub router_alert: bool,
    /// Its TTL or hop limit.
    pub ttl: u8,
    /// The RSVP message.
    pub payload: Vec<u8>,
}

/// The IP header of a message, and its outgoing interface.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    pub(super) interface: InterfaceId,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// The neighbour for which the message is sealed; for a PATH, the one to which the route leads.
    pub(super) neighbour: Option<IpAddr>,
    pub(super) router_alert: bool,
    pub(super) ttl: u8,
}

/// A packet that has come.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// By this interface.
    pub interface: InterfaceId,
    /// Its source address.
    pub source: IpAddr,
    /// Its TTL or hop limit on arrival.
    pub ttl: u8,
    /// The RSVP message.
    pub payload: &'a [u8],
}

/// A notification for applications or the operator.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Path state of a sender to an address of this node was created or has changed.
    Path {
        /// Where it goes.
        session: Session,
        /// Who sends.
        sender: Sender,
        /// Its traffic.
        traffic: TrafficSpec,
        /// What the path offers.
        adspec: Option<AdSpec>,
    },
    /// That sender is gone.
    PathGone {
        /// Where it went.
        session: Session,
        /// Who sent.
        sender: Sender,
    },
    /// The reservation for senders of this node has changed; without flows, it has ended.
    Reserved {
        /// Where the flows go.
        session: Session,
        /// The style.
        style: Style,
        /// What is reserved for whom.
        flows: Vec<Descriptor>,
        /// What packets are to be marked with, as far as the network asks for it (RFC 2996).
        marks: Vec<Mark>,
    },
    /// A sender's PATH failed.
    PathError {
        /// Where the flow goes.
        session: Session,
        /// Who sends.
        sender: Sender,
        /// Where and why.
        error: ErrorSpec,
    },
    /// A reservation of this node failed.
    ResvError {
        /// Where the flows go.
        session: Session,
        /// What failed.
        flow: Descriptor,
        /// Where and why.
        error: ErrorSpec,
    },
    /// A reservation of this node is confirmed by a ResvConf.
    Confirmed {
        /// Where the flows go.
        session: Session,
        /// What stands.
        flows: Vec<Descriptor>,
        /// The node that sent the ResvConf.
        node: IpAddr,
    },
    /// State of the node has changed: for the operator.
    Changed(Change),
    /// A packet was dropped.
    Dropped {
        /// The incoming interface.
        interface: InterfaceId,
        /// Its source address.
        source: IpAddr,
        /// A sentence.
        reason: String,
    },
}

/// A change of a node's state, for its operator.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Path state of a sender is new.
    Path {
        /// Where the flow goes.
        session: Session,
        /// Who sends.
        sender: Sender,
        /// The previous hop.
        previous: IpAddr,
        /// By this interface; [`InterfaceId::LOCAL`] for an application of this node.
        by: InterfaceId,
    },
    /// That state has ended.
    PathEnded {
        /// Where the flow went.
        session: Session,
        /// Who sent.
        sender: Sender,
    },
    /// Reservation state of a next hop is new or different.
    Resv {
        /// Where the flows go.
        session: Session,
        /// The next hop.
        next: IpAddr,
        /// By this interface.
        by: InterfaceId,
    },
    /// A previous hop, or an application of this node, is told other DSCPs for packets than before
    /// (RFC 2996).
    Marked {
        /// Where the flows go.
        session: Session,
        /// Who sends them; none stands for all.
        senders: Vec<Sender>,
        /// What they are to be marked with; none: nothing is asked any more.
        dscps: Dclass,
        /// What else nodes downstream ask for, which this cannot serve.
        unserved: Dclass,
        /// Who is told.
        previous: IpAddr,
        /// By this interface; [`InterfaceId::LOCAL`] for an application of this node.
        by: InterfaceId,
    },
    /// A next hop asks for DSCPs that no host may be asked for (0, and 48 to 63): they are left out.
    Unmarkable {
        /// Where the flows go.
        session: Session,
        /// The next hop.
        next: IpAddr,
        /// By this interface.
        by: InterfaceId,
        /// Which.
        dscps: Dclass,
    },
    /// That state has ended.
    ResvEnded {
        /// Where the flows went.
        session: Session,
        /// The next hop.
        next: IpAddr,
        /// By this interface.
        by: InterfaceId,
    },
    /// A neighbour's PATH or RESV is refused.
    Refused {
        /// Where the flow goes.
        session: Session,
        /// Whose message it was.
        neighbour: IpAddr,
        /// By this interface.
        by: InterfaceId,
        /// Why.
        cause: Cause,
    },
}

/// Why an application's request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The traffic or the flowspec contradicts itself.
    Contradiction,
    /// The sender's address, or the destination of a reservation, is not this node's.
    NotOurs,
    /// Flows and style do not fit.
    Descriptors,
    /// Addresses of two families.
    MixedFamilies,
    /// A limit of the configuration is reached.
    TooMany,
    /// Guaranteed service with a rate below the traffic's.
    RateBelowTraffic,
    /// A session without a port, whose protocol has ports or whose destination has sessions with
    /// ports; or the reverse. Likewise of senders (RFC 2205 section 3.2).
    Ports,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Contradiction => {
                "the traffic contradicts itself: its mean rate must be above 0 and at most its \
                 peak rate, its burst at least its largest packet, its smallest packet at most its \
                 largest"
            }
            Self::NotOurs => "the address is none of this node's",
            Self::Descriptors => {
                "the flows do not fit the style: one sender each under FF, one flow with senders \
                 under SE, one without under WF"
            }
            Self::MixedFamilies => "addresses of IPv4 and IPv6 are mixed",
            Self::TooMany => "the node has as many sessions, senders, flows or receivers as it may",
            Self::RateBelowTraffic => {
                "the rate of guaranteed service must be at least the traffic's mean rate"
            }
            Self::Ports => {
                "a session needs a port where its protocol has ports, and with and without ports \
                 do not mix"
            }
        })
    }
}

impl core::error::Error for RequestError {}
