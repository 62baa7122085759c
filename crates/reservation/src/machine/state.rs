//! A session's state (RFC 2209 section 1), in ordered maps: nothing depends on a hash. A map's
//! least node has room for eleven values, so that these are boxed: most sessions have one of each.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ontempo_foundation::{Duration, Time};

use super::admission::Share;
use super::boundary::{Handle, InterfaceId, NextHop, Reservation};
use crate::message::{
    AdSpec, Dclass, Descriptor, FlowSpec, Hop, Mark, Marked, RawObject, Sender, Session, Style,
    TrafficSpec,
};

/// A neighbour by the interface that leads to it; the node's own applications are one, too.
pub(super) type Neighbour = (InterfaceId, IpAddr);

/// Which reservation of a session: of one sender (FF), or shared (`None`: SE, WF).
pub(super) type FlowId = Option<Sender>;

/// The flow of a flow descriptor: with FF each sender has its own.
pub(super) fn flow_id(style: Style, descriptor: &Descriptor) -> FlowId {
    match style {
        Style::FixedFilter => descriptor.filters.first().copied(),
        _ => None,
    }
}

/// The number that a neighbour gave to a message: epoch and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NeighbourMessageId {
    /// With the interface that the message came by: an address alone can be anybody's where there
    /// is no key.
    pub(super) neighbour: Neighbour,
    pub(super) epoch: u32,
    pub(super) id: u32,
}

/// The number that we gave to the message that announces a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnMessageId {
    pub(super) id: Option<u32>,
    /// The neighbour that has acknowledged it; its state is refreshed by Srefresh.
    pub(super) acked_by: Option<Neighbour>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SessionState {
    /// Whose request created it.
    pub(super) opened_by: Option<Neighbour>,
    pub(super) paths: BTreeMap<Sender, Box<PathState>>,
    pub(super) reservations: BTreeMap<Neighbour, Box<ResvState>>,
    pub(super) installed: BTreeMap<(InterfaceId, FlowId), Box<Installed>>,
    pub(super) upstream: BTreeMap<Neighbour, Box<UpstreamResv>>,
    /// When the cleanup timer of the session is due.
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

/// Path state block (PSB) of RFC 2209.
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
    /// The next hops before a route change: their reservations stay until the new route has one, or
    /// until this time (RFC 2205 section 3.6).
    pub(super) old_route: Option<(Vec<NextHop>, Time)>,
    pub(super) refresh_at: Time,
    pub(super) sent: BTreeMap<InterfaceId, OwnMessageId>,
    pub(super) source: Option<NeighbourMessageId>,
    /// Blockade state: the flowspec that was refused upstream, and when it ends (RFC 2205 section
    /// 3.5).
    pub(super) blockade: Option<(FlowSpec, Time)>,
    /// When the contents of the PATH last changed.
    pub(super) changed: Time,
}

impl PathState {
    pub(super) fn previous(&self) -> Neighbour {
        (self.incoming, self.hop.address)
    }

    /// Whether there is a non-RSVP hop before this node (RFC 2205 section 3.8).
    pub(super) fn non_rsvp_hop(&self) -> bool {
        self.send_ttl != self.ttl
    }

    /// Whether the sender's packets leave by the interface, on the present or the old route.
    pub(super) fn reaches(&self, interface: InterfaceId) -> bool {
        let leads = |hops: &[NextHop]| hops.iter().any(|hop| hop.interface == interface);
        leads(&self.outgoing) || self.old_route.as_ref().is_some_and(|(hops, _)| leads(hops))
    }
}

/// Reservation state block (RSB) of RFC 2209: of one next hop.
#[derive(Clone, Debug)]
pub(super) struct ResvState {
    pub(super) style: Style,
    pub(super) flows: BTreeMap<FlowId, Flow>,
    pub(super) source: Option<NeighbourMessageId>,
    /// What [`named`](Self::named) was when `source` came.
    pub(super) whole: usize,
    pub(super) period: Duration,
    /// The IP TTL that RESV came with, and the one that its sender gave it.
    pub(super) ttls: (u8, u8),
    /// RESV_CONFIRM of a local application; unset once it was sent in a RESV for all of its
    /// senders.
    pub(super) confirm: Option<IpAddr>,
}

impl ResvState {
    /// How many flows and filters there are of the RESV with the number `source`.
    pub(super) fn named(&self) -> usize {
        let named = self.flows.values().filter(|flow| flow.is_of_source);
        named.map(|flow| 1 + flow.filters.len()).sum()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) flowspec: FlowSpec,
    /// None under WF.
    pub(super) filters: BTreeSet<Sender>,
    /// The DSCPs that the next hop asks for, and those of them that no host may be asked for.
    pub(super) dclass: Dclass,
    pub(super) unmarkable: Dclass,
    pub(super) expires: Time,
    /// It is of the RESV with the number `source`, which refreshes it.
    pub(super) is_of_source: bool,
    /// When the flowspec, the filterspecs or the DSCPs last changed.
    pub(super) changed: Time,
}

impl Flow {
    /// Whether flowspec, filterspecs and DSCPs are equal.
    pub(super) fn is_equal_to(&self, other: &Self) -> bool {
        (self.flowspec, &self.filters, self.dclass, self.unmarkable)
            == (other.flowspec, &other.filters, other.dclass, other.unmarkable)
    }
}

/// Traffic control state block (TCSB) of RFC 2209.
#[derive(Clone, Debug)]
pub(super) struct Installed {
    pub(super) handle: Handle,
    pub(super) share: Share,
    pub(super) reservation: Reservation,
    /// The change that was last refused while this stayed in place: one ResvErr for each.
    pub(super) refused: Option<Share>,
}

/// The RESV last sent to a previous hop (in place of RFC 2209's BSB and RESV REFRESH).
#[derive(Clone, Debug)]
pub(super) struct UpstreamResv {
    /// The logical interface handle (LIH) of the previous hop.
    pub(super) handle: u32,
    pub(super) style: Style,
    pub(super) flows: Vec<Requested>,
    pub(super) refresh_at: Time,
    pub(super) sent: OwnMessageId,
    pub(super) confirms: Confirms,
    /// When the flowspec or the filterspecs last changed.
    pub(super) changed: Time,
}

/// A flow descriptor as a previous hop has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Requested {
    pub(super) marked: Marked,
    /// DSCPs that nodes downstream ask for, which those of `marked` cannot serve.
    pub(super) unserved: Dclass,
}

impl Requested {
    /// What its senders are to mark with, if anything.
    pub(super) fn mark(&self) -> Option<Mark> {
        let Marked { descriptor, dclass } = &self.marked;
        let mark = || Mark { senders: descriptor.filters.clone(), dscps: *dclass };
        (!dclass.is_empty()).then(mark)
    }
}

/// The receivers of the RESV_CONFIRMs sent to a previous hop, each with the time until which its
/// ResvConf is accepted; the latest last.
#[derive(Clone, Debug, Default)]
pub(super) struct Confirms(Vec<(IpAddr, Time)>);

impl Confirms {
    /// Receivers kept. Beyond, the oldest goes: its ResvConf is lost.
    const MAX_KEPT: usize = 16;

    pub(super) fn ask(&mut self, now: Time, receiver: IpAddr, until: Time) {
        self.0.retain(|(other, until)| *other != receiver && *until > now);
        if self.0.len() >= Self::MAX_KEPT {
            self.0.remove(0);
        }
        self.0.push((receiver, until));
    }

    pub(super) fn is_asked(&self, now: Time, receiver: IpAddr) -> bool {
        self.0.iter().any(|(other, until)| *other == receiver && *until > now)
    }
}

impl SessionState {
    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.reservations.is_empty()
    }

    /// How many flow descriptors its next hops have reserved.
    pub(super) fn flow_count(&self) -> usize {
        self.reservations.values().map(|resv| resv.flows.len()).sum()
    }

    /// The style that the session is reserved in, if it is.
    pub(super) fn style(&self) -> Option<Style> {
        self.reservations.values().find(|resv| !resv.flows.is_empty()).map(|resv| resv.style)
    }

    /// The earliest cleanup timeout, or end of blockade state or of an old route.
    pub(super) fn ends(&self) -> Time {
        let paths = self.paths.values().flat_map(|path| {
            let blockade = path.blockade.map_or(Time::NEVER, |(_, until)| until);
            let old_route = path.old_route.as_ref().map_or(Time::NEVER, |(_, until)| *until);
            [path.expires, blockade, old_route]
        });
        let flows = self.reservations.values().flat_map(|resv| resv.flows.values());
        paths.chain(flows.map(|flow| flow.expires)).min().unwrap_or(Time::NEVER)
    }
}

/// The state that a neighbour's MESSAGE_ID refreshes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefreshedState {
    Path(Session, Sender),
    Resv(Session, Neighbour),
}
