//! The state of a node for its operator, and its events for applications.

use ontempo_foundation::{Duration, Time};

use super::boundary::{Event, InterfaceId, Routes};
use super::node::Machine;
use super::state::{Neighbour, PathState, Requested, ResvState, SessionState, UpstreamResv};
use crate::local::{Notice, PathStatus, RequestStatus, ReservationStatus, Room, SessionStatus};
use crate::message::{RawObject, Sender, Session, class};

impl<R: Routes> Machine<R> {
    /// The first sessions, in order, with as many paths, reservations and requests as `room` has
    /// for each kind.
    pub fn sessions_within(&self, room: Room) -> Vec<SessionStatus> {
        let mut rooms = Rooms { paths: room, reservations: room, requests: room };
        let sessions = self.sessions.iter().take(room.places);
        sessions.map(|(session, state)| session_status(session, state, &mut rooms)).collect()
    }
}

impl Event {
    /// The notice that applications get of the event; none of a dropped packet and of what the operator alone gets.
    pub fn notice(self) -> Option<Notice> {
        Some(match self {
            Self::Path { session, sender, traffic, adspec } => {
                Notice::Path { session, sender, traffic, adspec }
            }
            Self::PathGone { session, sender } => Notice::PathGone { session, sender },
            Self::Reserved { session, style, flows, marks } => {
                Notice::Reserved { session, style, flows, marks }
            }
            Self::PathError { session, sender, error } => {
                Notice::PathError { session, sender, failure: error.into() }
            }
            Self::ResvError { session, flow, error } => {
                Notice::ResvError { session, flow, failure: error.into() }
            }
            Self::Confirmed { session, flows, node } => Notice::Confirmed { session, flows, node },
            Self::Dropped { .. } | Self::Changed(_) => return None,
        })
    }
}

/// What is left for each kind of state.
struct Rooms {
    paths: Room,
    reservations: Room,
    requests: Room,
}

fn session_status(session: &Session, state: &SessionState, rooms: &mut Rooms) -> SessionStatus {
    let paths = state.paths.iter().map(|(sender, path)| path_statuses(state, sender, path));
    let reservations =
        state.reservations.iter().flat_map(|(next, resv)| reservation_statuses(next, resv));
    let requests = state.upstream.iter().flat_map(|(previous, up)| request_statuses(previous, up));
    SessionStatus {
        session: *session,
        paths: rooms.paths.list(paths),
        reservations: rooms.reservations.list(reservations),
        requests: rooms.requests.list(requests),
    }
}

fn path_statuses(state: &SessionState, sender: &Sender, path: &PathState) -> PathStatus {
    let up = state.upstream.get(&path.previous());
    let mut marks = up.into_iter().flat_map(|up| up.flows.iter().filter_map(Requested::mark));
    PathStatus {
        sender: *sender,
        traffic: path.traffic,
        adspec: path.adspec,
        policy: policy(&path.forwarded),
        previous: path.hop.address,
        handle: path.hop.interface,
        incoming: index(path.incoming),
        outgoing: path.outgoing.iter().filter_map(|hop| index(hop.interface)).collect(),
        send_ttl: path.send_ttl,
        rsvp_hop: !path.non_rsvp_hop(),
        period_ms: millis(path.period),
        changed_s: seconds(path.changed),
        dscps: marks.find(|mark| mark.is_for(sender)).map(|mark| mark.dscps).unwrap_or_default(),
    }
}

fn reservation_statuses(
    next: &Neighbour,
    resv: &ResvState,
) -> impl Iterator<Item = ReservationStatus> {
    resv.flows.values().map(move |flow| ReservationStatus {
        style: resv.style,
        next: next.1,
        interface: index(next.0),
        senders: flow.filters.iter().copied().collect(),
        flowspec: flow.flowspec,
        dscps: flow.dclass,
        send_ttl: resv.ttls.1,
        rsvp_hop: resv.ttls.0 == resv.ttls.1,
        period_ms: millis(resv.period),
        changed_s: seconds(flow.changed),
    })
}

/// None where the previous hop is an application of this node, which gets no RESV.
fn request_statuses(
    previous: &Neighbour,
    up: &UpstreamResv,
) -> impl Iterator<Item = RequestStatus> {
    index(previous.0).into_iter().flat_map(move |interface| {
        up.flows.iter().map(|requested| &requested.marked).map(move |marked| RequestStatus {
            style: up.style,
            previous: previous.1,
            interface,
            handle: up.handle,
            senders: marked.descriptor.filters.clone(),
            flowspec: marked.descriptor.flowspec,
            dscps: marked.dclass,
            changed_s: seconds(up.changed),
        })
    })
}

/// Policy data as they stood in their message, with their headers (RFC 2205 section 3.1.2).
fn policy(objects: &[RawObject]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for object in objects.iter().filter(|object| object.class == class::POLICY_DATA) {
        // What came in a message is no longer than a message may be.
        let length = u16::try_from(object.body.len() + 4).unwrap_or(u16::MAX);
        bytes.extend(length.to_be_bytes());
        bytes.extend([object.class, object.ctype]);
        bytes.extend(&object.body);
    }
    bytes
}

fn index(id: InterfaceId) -> Option<u32> {
    (id != InterfaceId::LOCAL).then_some(id.0)
}

fn millis(period: Duration) -> u64 {
    period.as_nanos() / 1_000_000
}

fn seconds(at: Time) -> f64 {
    at.as_nanos() as f64 / 1e9
}
