//! The objects of INTEGRATED-SERVICES-MIB (RFC 2213).
//!
//! Omitted: what only serves to create rows (`intSrvFlowNewIndex`), as nothing can be set; the flow
//! label, which no reservation here has (`intSrvFlowFlowId`).

use ontempo_reservation::htb::Counters;
use ontempo_reservation::local::InterfaceStatus;

use super::reservations::{Flow, bytes, ends, flows_of, service};
use super::{ACTIVE, Module, Oid, Part, Value, address, columns, gauge, integer, row, truth};

/// `intSrv`: mib-2 52.
const ROOT: [u32; 7] = [1, 3, 6, 1, 2, 1, 52];
const INTERFACE: [u32; 3] = [1, 1, 1];
const FLOW: [u32; 3] = [1, 2, 1];

pub(super) const MODULE: Module = Module {
    root: &ROOT,
    parts: &[
        Part { entry: &INTERFACE, columns: &[(1, 6)] },
        Part { entry: &FLOW, columns: &[(2, 10), (12, 25)] },
    ],
};

/// `intSrvFlowOwner`: RSVP has installed it.
const BY_RSVP: i32 = 2;

/// `intSrvIfAttribTable`.
pub(super) fn interface(interface: &InterfaceStatus) -> Vec<(Oid, Value)> {
    let buffer: u64 = interface.enforced.iter().map(|known| known.burst).sum();
    let values = [
        integer(interface.reserved),
        integer(interface.reservable),
        integer(buffer),
        gauge(flows_of(interface).count()),
        integer(interface.latency_us.unwrap_or(0)),
        ACTIVE,
    ];
    row(&ROOT, &INTERFACE, &[interface.index], columns(1, values))
}

/// `intSrvFlowTable`: an entry of the classifier. Those that share a reservation have the same
/// `intSrvFlowQueue`, which is HTB's class, and its counters.
pub(super) fn flow(number: u32, flow: &Flow<'_>, counters: Counters) -> Vec<(Oid, Value)> {
    let (status, interface) = (flow.status, flow.interface);
    let [kind, rest @ ..] = ends(&status.session, flow.which);
    let is_v4 = status.session.destination.is_ipv4();
    let own = interface.addresses.iter().find(|own| own.is_ipv4() == is_v4);
    let class = status.class.split_once(':').map_or("", |(_, minor)| minor);
    let traffic = status.flowspec.traffic();
    // HTB lends to traffic above its rate as best effort; what exceeds its queue is
    // dropped (docs/mechanisms/reservation.md).
    let policed = counters.borrowed.wrapping_add(counters.dropped);
    let mut found = vec![(2, kind), (3, integer(BY_RSVP))];
    found.extend(columns(4, rest));
    found.push((12, integer(interface.index)));
    found.extend(own.map(|own| (13, address(*own))));
    found.extend(columns(
        14,
        [
            integer(status.rate),
            bytes(traffic.burst),
            // Classes have no weight: HTB serves each at its rate.
            integer(0),
            integer(u32::from_str_radix(class, 16).unwrap_or(0)),
            integer(traffic.smallest),
            integer(traffic.largest),
            counter(counters.borrowed),
            counter(policed),
            truth(false),
            service(&status.flowspec),
            // No two entries take the same packet.
            integer(0),
            ACTIVE,
        ],
    ));
    row(&ROOT, &FLOW, &[number], found)
}

/// `Counter32`, which wraps around.
fn counter(value: u64) -> Value {
    Value::Counter32(value as u32)
}
