//! The objects of RSVP-MIB (RFC 2206).
//!
//! Omitted: what only serves to create rows (`rsvpSenderNewIndex`, `rsvpResvNewIndex`,
//! `rsvpResvFwdNewIndex`), as nothing can be set; flow labels, which no session here has
//! (`rsvpSenderFlowId`, `rsvpResvFlowId`, `rsvpResvFwdFlowId`); the notifications `newFlow` and
//! `lostFlow`, as the daemon reports flows only when queried. `rsvpResvScope` and
//! `rsvpResvPolicy` are always empty: a SCOPE is read but not stored, nor are policy data of a
//! RESV. If a hop is the host itself, its interface is omitted.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ontempo_reservation::local::{InterfaceStatus, PathStatus, SessionStatus, Status};
use ontempo_reservation::message::{
    AdSpec, FlowSpec, LATENCY_UNKNOWN, Session, Style, TrafficSpec,
};

use super::reservations::{Asked, Clock, Requested, bits, bytes, ends, service};
use super::{
    ACTIVE, Module, Oid, Part, Value, address, columns, gauge, integer, octets, row, truth,
};

/// `rsvp`: mib-2 51.
const ROOT: [u32; 7] = [1, 3, 6, 1, 2, 1, 51];
const SESSION: [u32; 3] = [1, 1, 1];
const SENDER: [u32; 3] = [1, 2, 1];
const SENDER_OUT: [u32; 3] = [1, 3, 1];
const RESV: [u32; 3] = [1, 4, 1];
const RESV_FWD: [u32; 3] = [1, 5, 1];
const INTERFACE: [u32; 3] = [1, 6, 1];
const NEIGHBOUR: [u32; 3] = [1, 7, 1];
const BAD_PACKETS: [u32; 3] = [2, 1, 0];

pub(super) const MODULE: Module = Module {
    root: &ROOT,
    parts: &[
        Part { entry: &SESSION, columns: &[(2, 9)] },
        Part { entry: &SENDER, columns: &[(2, 9), (11, 45)] },
        Part { entry: &SENDER_OUT, columns: &[(1, 1)] },
        Part { entry: &RESV, columns: &[(2, 29)] },
        Part { entry: &RESV_FWD, columns: &[(2, 29)] },
        Part { entry: &INTERFACE, columns: &[(1, 11)] },
        Part { entry: &NEIGHBOUR, columns: &[(2, 3)] },
        Part { entry: &[2], columns: &[(1, 1)] },
    ],
};

/// `RsvpEncapsulation`: in IP, the only one that the daemon speaks.
const IN_IP: i32 = 1;

/// `rsvpBadPackets`.
pub(super) fn scalars(status: &Status) -> Vec<(Oid, Value)> {
    vec![(Oid::of(&[&ROOT, &BAD_PACKETS]), gauge(status.bad_packets))]
}

/// `rsvpSessionTable`. `counts` are the rows of the session in `rsvpResvTable` and
/// `rsvpResvFwdTable`.
pub(super) fn session(
    number: u32,
    session: &SessionStatus,
    counts: (usize, usize),
) -> Vec<(Oid, Value)> {
    let [kind, to, _, length, _, protocol, port, _] = ends(&session.session, None);
    let senders = gauge(session.paths.len());
    let values = [kind, to, length, protocol, port, senders, gauge(counts.0), gauge(counts.1)];
    row(&ROOT, &SESSION, &[number], columns(2, values))
}

/// `rsvpSenderTable` and `rsvpSenderOutInterfaceTable`.
pub(super) fn sender(
    index: [u32; 2],
    session: &Session,
    path: &PathStatus,
    clock: Clock,
) -> Vec<(Oid, Value)> {
    let mut found: Vec<(u32, Value)> = columns(2, ends(session, Some(path.sender))).collect();
    found.extend(hop(11, path.previous, path.handle, path.incoming));
    found.extend(columns(14, traffic(&path.traffic)));
    let status = [
        integer(path.period_ms),
        truth(path.rsvp_hop),
        clock.stamp(path.changed_s),
        Value::OctetString(path.policy.clone()),
    ];
    found.extend(columns(19, status));
    found.extend(columns(23, offered(path.adspec.as_ref())));
    found.extend(columns(44, [ACTIVE, integer(path.send_ttl)]));
    let mut objects = row(&ROOT, &SENDER, &index, found);
    for by in &path.outgoing {
        let index = [index[0], index[1], *by];
        objects.extend(row(&ROOT, &SENDER_OUT, &index, columns(1, [ACTIVE])));
    }
    objects
}

/// `rsvpResvTable`.
pub(super) fn reservation(index: [u32; 2], asked: &Asked<'_>, clock: Clock) -> Vec<(Oid, Value)> {
    let status = asked.status;
    // A RESV names our own interface, by which the flow leaves.
    let handle = status.interface.unwrap_or(0);
    let mut found: Vec<(u32, Value)> = columns(2, ends(asked.session, asked.which)).collect();
    found.extend(hop(10, status.next, handle, status.interface));
    found.extend(columns(13, request_of(&status.flowspec)));
    found.extend(columns(21, [integer(status.period_ms), Value::OctetString(Vec::new())]));
    found.extend(columns(23, style(status.style)));
    found.extend(columns(25, [truth(status.rsvp_hop), clock.stamp(status.changed_s)]));
    let policy = Value::OctetString(Vec::new());
    found.extend(columns(27, [policy, ACTIVE, integer(status.send_ttl)]));
    row(&ROOT, &RESV, &index, found)
}

/// `rsvpResvFwdTable`.
pub(super) fn request(
    index: [u32; 2],
    requested: &Requested<'_>,
    daemon: &Status,
    clock: Clock,
) -> Vec<(Oid, Value)> {
    let Requested { session, which, status } = requested;
    let is_previous = |path: &&PathStatus| {
        (path.incoming, path.previous) == (Some(status.interface), status.previous)
    };
    let rsvp_hop = session.paths.iter().filter(is_previous).all(|path| path.rsvp_hop);
    let mut found: Vec<(u32, Value)> = columns(2, ends(&session.session, *which)).collect();
    found.extend(hop(10, status.previous, status.handle, Some(status.interface)));
    found.extend(columns(13, request_of(&status.flowspec)));
    let period = integer(daemon.protocol.refresh_ms);
    found.extend(columns(21, [period, Value::OctetString(Vec::new())]));
    found.extend(columns(23, style(status.style)));
    found.extend(columns(25, [truth(rsvp_hop), clock.stamp(status.changed_s)]));
    let policy = Value::OctetString(Vec::new());
    found.extend(columns(27, [policy, ACTIVE, integer(daemon.protocol.ttl)]));
    row(&ROOT, &RESV_FWD, &index, found)
}

/// `rsvpIfTable`.
pub(super) fn interface(status: &Status, interface: &InterfaceStatus) -> Vec<(Oid, Value)> {
    let known = neighbours_of(status).into_iter().filter(|(by, _)| *by == interface.index);
    let neighbours = gauge(known.count());
    let protocol = &status.protocol;
    // `TimeInterval` is hundredths of a second, whatever the module's UNITS say: its default of
    // 3000 is "30 seconds".
    let hundredths = |ms: u64| integer(ms.div_ceil(10));
    let values = [
        gauge(0u32),
        neighbours.clone(),
        neighbours,
        integer(protocol.blockade_periods),
        integer(protocol.refreshes_lost),
        integer(protocol.ttl),
        hundredths(protocol.refresh_ms),
        hundredths(protocol.settling_ms),
        truth(true),
        truth(false),
        ACTIVE,
    ];
    row(&ROOT, &INTERFACE, &[interface.index], columns(1, values))
}

/// `rsvpNbrTable`.
pub(super) fn neighbours(status: &Status) -> Vec<(Oid, Value)> {
    let mut objects = Vec::new();
    for (by, neighbour) in neighbours_of(status) {
        // An index of variable length is preceded by its length (RFC 2578, 7.7).
        let octets: Vec<u32> = octets(neighbour).into_iter().map(u32::from).collect();
        let index = [&[by, octets.len() as u32], &octets[..]].concat();
        objects.extend(row(&ROOT, &NEIGHBOUR, &index, columns(2, [integer(IN_IP), ACTIVE])));
    }
    objects
}

/// The neighbours whose messages have left state here, with the interfaces that lead to them.
fn neighbours_of(status: &Status) -> BTreeSet<(u32, IpAddr)> {
    let paths = status.sessions.iter().flat_map(|session| &session.paths);
    let asked = status.sessions.iter().flat_map(|session| &session.reservations);
    let previous = paths.filter_map(|path| Some((path.incoming?, path.previous)));
    let next = asked.filter_map(|asked| Some((asked.interface?, asked.next)));
    previous.chain(next).collect()
}

/// Address, logical interface handle and interface of a hop; for the host itself, the address.
fn hop(
    first: u32,
    hop: IpAddr,
    handle: u32,
    interface: Option<u32>,
) -> impl Iterator<Item = (u32, Value)> {
    // A handle is 32 bits without a sign on the wire, and with one in the module.
    let handle = Value::Integer(interface.map_or(0, |_| handle as i32));
    columns(first, [address(hop), handle]).chain(interface.map(|index| (first + 2, integer(index))))
}

fn traffic(traffic: &TrafficSpec) -> [Value; 5] {
    [
        bits(traffic.rate),
        bits(traffic.peak),
        bytes(traffic.burst),
        integer(traffic.smallest),
        integer(traffic.largest),
    ]
}

/// Service, TSpec, and RSpec, which controlled load does not have.
fn request_of(flowspec: &FlowSpec) -> [Value; 8] {
    let [rate, peak, burst, smallest, largest] = traffic(flowspec.traffic());
    let (reserved, slack) = match flowspec {
        FlowSpec::Guaranteed { rate, slack, .. } => (bits(*rate), integer(*slack)),
        FlowSpec::ControlledLoad(_) => (integer(0), integer(0)),
    };
    [service(flowspec), rate, peak, burst, smallest, largest, reserved, slack]
}

/// Whether senders share, and whether they are named.
fn style(style: Style) -> [Value; 2] {
    let (shared, explicit) = match style {
        Style::FixedFilter => (false, true),
        Style::SharedExplicit => (true, true),
        Style::Wildcard => (true, false),
    };
    [truth(shared), truth(explicit)]
}

/// The ADSPEC's columns. What a service overrides of the general part (RFC 2210, section 3.3.2)
/// is not stored and reported as 0, like everything absent.
fn offered(adspec: Option<&AdSpec>) -> [Value; 21] {
    let latency = adspec.map(|ad| ad.latency).filter(|latency| *latency != LATENCY_UNKNOWN);
    let guaranteed = adspec.and_then(|ad| ad.guaranteed);
    let ad = guaranteed.unwrap_or_default();
    let controlled = adspec.and_then(|ad| ad.controlled_load_broken);
    let none = || integer(0);
    [
        truth(adspec.is_some_and(|ad| ad.broken)),
        integer(adspec.map_or(0, |ad| ad.hops.min(65_535))),
        bits(adspec.map_or(0.0, |ad| ad.bandwidth)),
        integer(latency.unwrap_or(0)),
        integer(adspec.map_or(0, |ad| ad.mtu.min(65_535))),
        truth(guaranteed.is_some()),
        truth(ad.broken),
        integer(ad.c_total),
        integer(ad.d_total),
        integer(ad.c_since),
        integer(ad.d_since),
        none(),
        none(),
        none(),
        none(),
        truth(controlled.is_some()),
        truth(controlled.unwrap_or(false)),
        none(),
        none(),
        none(),
        none(),
    ]
}
