//! A session's state (RFC 2209 section 1), in ordered maps: nothing depends on a hash. A map's
//! least node has room for eleven values, so that these are boxed: most sessions have one of each.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ontempo_foundation::{Duration, Time};

use super::admission::Share;
use super::boundary::{Handle, InterfaceId, NextHop, Reservation};
use crate::message::{
    AdSpec, Descriptor, FlowSpec, Hop, RawObject, Sender, Session, Style, TrafficSpec,
};

/// A neighbour by the interface that leads to it; the node's own applications are one, too.
pub(super) type Neighbour = (InterfaceId, IpAddr);

/// Which reservation of a session: of one sender (FF), or shared (`None`: SE, WF).
pub(super) type FlowId = Option<Sender>;

/// The number that a neighbour gave to a message: epoch and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TheirId {
    pub(super) neighbour: IpAddr,
    pub(super) epoch: u32,
    pub(super) id: u32,
}

/// The number that we gave to the message that announces a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OurId {
    pub(super) id: Option<u32>,
    /// Who has acknowledged it, and is refreshed by it.
    pub(super) acked_by: Option<Neighbour>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SessionState {
    pub(super) paths: BTreeMap<Sender, Box<PathState>>,
    pub(super) reservations: BTreeMap<Neighbour, Box<ResvState>>,
    pub(super) installed: BTreeMap<(InterfaceId, FlowId), Box<Installed>>,
    pub(super) upstream: BTreeMap<Neighbour, Box<Upstream>>,
    /// When the session's timer is set to look for what has ended.
    pub(super) expiry_at: ExpiryTime,
}

/// A timer's time; not set at first.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpiryTime(pub(super) Time);

impl Default for ExpiryTime {
    fn default() -> Self {
        Self(Time::NEVER)
    }
}

/// Path state (PSB).
#[derive(Clone, Debug)]
pub(super) struct PathState {
    pub(super) incoming: InterfaceId,
    pub(super) hop: Hop,
    pub(super) traffic: TrafficSpec,
    pub(super) adspec: Option<AdSpec>,
    pub(super) forwarded: Vec<RawObject>,
    /// The IP TTL that PATH came with.
    pub(super) ttl: u8,
    /// The TTL that its sender gave it.
    pub(super) send_ttl: u8,
    pub(super) period: Duration,
    /// [`Time::NEVER`] for the node's own senders.
    pub(super) expires: Time,
    pub(super) outgoing: Vec<NextHop>,
    /// The way before a route change: its reservation counts until the new way has one, or until
    /// the time given (RFC 2205 section 3.6).
    pub(super) leaving: Option<(Vec<NextHop>, Time)>,
    pub(super) refresh_at: Time,
    pub(super) sent: BTreeMap<InterfaceId, OurId>,
    pub(super) source: Option<TheirId>,
    /// A request of at least this much was refused upstream (RFC 2205 section 3.5).
    pub(super) blockade: Option<(FlowSpec, Time)>,
    /// When what is announced last changed.
    pub(super) changed: Time,
}

impl PathState {
    pub(super) fn previous(&self) -> Neighbour {
        (self.incoming, self.hop.address)
    }

    /// A hop before this node does not speak RSVP (RFC 2205 section 3.8).
    pub(super) fn beyond(&self) -> bool {
        self.send_ttl != self.ttl
    }

    /// Whether a reservation on the interface is one on the sender's way.
    pub(super) fn reaches(&self, interface: InterfaceId) -> bool {
        let leads = |hops: &[NextHop]| hops.iter().any(|hop| hop.interface == interface);
        leads(&self.outgoing) || self.leaving.as_ref().is_some_and(|(hops, _)| leads(hops))
    }
}

/// Reservation state of one next hop (RSB).
#[derive(Clone, Debug)]
pub(super) struct ResvState {
    pub(super) style: Style,
    pub(super) flows: BTreeMap<FlowId, Flow>,
    pub(super) source: Option<TheirId>,
    pub(super) period: Duration,
    /// The IP TTL that RESV came with, and the one that its sender gave it.
    pub(super) ttls: (u8, u8),
    /// Set by an application that wants a confirmation, until previous hops have been asked for
    /// one of all its senders.
    pub(super) confirm: Option<IpAddr>,
}

#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) flowspec: FlowSpec,
    /// None under WF.
    pub(super) filters: BTreeSet<Sender>,
    pub(super) expires: Time,
    /// When what is asked for last changed.
    pub(super) changed: Time,
}

impl Flow {
    /// Whether both ask for the same.
    pub(super) fn asks_as(&self, other: &Self) -> bool {
        (self.flowspec, &self.filters) == (other.flowspec, &other.filters)
    }
}

/// Traffic-control state (TCSB).
#[derive(Clone, Debug)]
pub(super) struct Installed {
    pub(super) handle: Handle,
    pub(super) share: Share,
    pub(super) reservation: Reservation,
    /// What was refused last while this stayed in place, so that it is told once.
    pub(super) refused: Option<Share>,
}

/// What a previous hop was last asked for (in place of RFC 2209's blocks for refresh).
#[derive(Clone, Debug)]
pub(super) struct Upstream {
    /// Its handle of its interface.
    pub(super) handle: u32,
    pub(super) style: Style,
    pub(super) flows: Vec<Descriptor>,
    pub(super) refresh_at: Time,
    pub(super) sent: OurId,
    /// When what is asked for last changed.
    pub(super) changed: Time,
}

impl SessionState {
    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.reservations.is_empty()
    }

    /// The style that the session is reserved in, if it is.
    pub(super) fn style(&self) -> Option<Style> {
        self.reservations.values().find(|resv| !resv.flows.is_empty()).map(|resv| resv.style)
    }

    /// When next something ends.
    pub(super) fn ends(&self) -> Time {
        let paths = self.paths.values().flat_map(|path| {
            let blockade = path.blockade.map_or(Time::NEVER, |(_, until)| until);
            let leaving = path.leaving.as_ref().map_or(Time::NEVER, |(_, until)| *until);
            [path.expires, blockade, leaving]
        });
        let flows = self.reservations.values().flat_map(|resv| resv.flows.values());
        paths.chain(flows.map(|flow| flow.expires)).min().unwrap_or(Time::NEVER)
    }
}

/// What a numbered message announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Announced {
    Path(Session, Sender),
    Resv(Session, Neighbour),
}
