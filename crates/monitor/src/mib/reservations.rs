//! The state of an RSVP daemon as numbered rows.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ontempo_reservation::htb::Counters;
use ontempo_reservation::local::{
    EnforcedStatus, InterfaceStatus, RequestStatus, ReservationStatus, SessionStatus, Status,
};
use ontempo_reservation::message::{FlowSpec, Sender, Session};

use super::super::numbers::Numbers;
use super::{Oid, Value, address, int_srv, integer, port, qos, rsvp, ticks};

/// Counters of classes, by interface number and class name.
pub type Classes = BTreeMap<u32, BTreeMap<String, Counters>>;

/// One sender of a shared reservation, or all of them.
type Which = Option<Sender>;

/// The tables of RSVP-MIB and INTEGRATED-SERVICES-MIB. Sessions, senders, requests and flows
/// keep their numbers while they exist.
#[derive(Debug, Default)]
pub struct Reservations {
    sessions: Numbers<Session>,
    senders: Numbers<(Session, Sender)>,
    reservations: Numbers<(Session, Option<u32>, IpAddr, Which)>,
    requests: Numbers<(Session, u32, IpAddr, Which)>,
    flows: Numbers<(u32, Session, Which)>,
    /// The daemon's process, and when it started.
    daemon: Option<(u32, u64)>,
}

/// Start times, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    daemon_ms: u64,
    agent_ms: u64,
}

impl Clock {
    /// A time in seconds since the daemon's start, as time stamp.
    pub(super) fn stamp(&self, at_s: f64) -> Value {
        // A cast saturates, and converts NaN to 0.
        ticks(Some(self.daemon_ms.saturating_add((at_s * 1e3) as u64)), self.agent_ms)
    }
}

/// A reservation, as far as it applies to one sender or to all.
pub(super) struct Asked<'a> {
    pub(super) session: &'a Session,
    pub(super) which: Which,
    pub(super) status: &'a ReservationStatus,
}

/// A request to a previous hop, as far as it applies to one sender or to all.
pub(super) struct Requested<'a> {
    pub(super) session: &'a SessionStatus,
    pub(super) which: Which,
    pub(super) status: &'a RequestStatus,
}

/// An enforced class, as far as it applies to one sender or to all.
pub(super) struct Flow<'a> {
    pub(super) interface: &'a InterfaceStatus,
    pub(super) which: Which,
    pub(super) status: &'a EnforcedStatus,
}

impl Reservations {
    /// The objects of a daemon. Of `times`, in milliseconds since 1970, the first is the time of
    /// the query, the second the zero of time stamps.
    pub fn objects(
        &mut self,
        status: &Status,
        classes: &Classes,
        times: (u64, u64),
    ) -> Vec<(Oid, Value)> {
        let clock = self.clock(status, times);
        let mut objects = rsvp::scalars(status);
        objects.extend(qos::daemon(status));
        for interface in &status.interfaces {
            objects.extend(rsvp::interface(status, interface));
            objects.extend(int_srv::interface(interface));
        }
        self.add_sessions(&mut objects, status, clock);
        self.add_flows(&mut objects, status, classes);
        objects
    }

    /// Computed once for each daemon: computed twice, its start would differ by a millisecond.
    fn clock(&mut self, status: &Status, (asked_ms, agent_ms): (u64, u64)) -> Clock {
        let known = self.daemon.filter(|(process, _)| *process == status.process);
        let (_, daemon_ms) = known.unwrap_or_else(|| {
            (status.process, asked_ms.saturating_sub((status.up_s * 1e3) as u64))
        });
        self.daemon = Some((status.process, daemon_ms));
        Clock { daemon_ms, agent_ms }
    }

    fn add_sessions(&mut self, objects: &mut Vec<(Oid, Value)>, status: &Status, clock: Clock) {
        let numbers = self.sessions.look(status.sessions.iter().map(|one| one.session));
        let (mut senders, mut asked, mut requested) = (Vec::new(), Vec::new(), Vec::new());
        for (number, session) in numbers.into_iter().zip(&status.sessions) {
            let first = (asked.len(), requested.len());
            senders.extend(session.paths.iter().map(|path| (number, session.session, path)));
            for known in &session.reservations {
                asked.extend(each(&known.senders).map(|which| {
                    (number, Asked { session: &session.session, which, status: known })
                }));
            }
            for known in &session.requests {
                requested.extend(
                    each(&known.senders)
                        .map(|which| (number, Requested { session, which, status: known })),
                );
            }
            let counts = (asked.len() - first.0, requested.len() - first.1);
            objects.extend(rsvp::session(number, session, counts));
        }
        let numbers = self.senders.look(senders.iter().map(|(_, to, path)| (*to, path.sender)));
        for (number, (session, to, path)) in numbers.into_iter().zip(senders) {
            objects.extend(rsvp::sender([session, number], &to, path, clock));
        }
        let numbers = self.reservations.look(
            asked
                .iter()
                .map(|(_, one)| (*one.session, one.status.interface, one.status.next, one.which)),
        );
        for (number, (session, one)) in numbers.into_iter().zip(asked) {
            objects.extend(rsvp::reservation([session, number], &one, clock));
        }
        let numbers = self.requests.look(requested.iter().map(|(_, one)| {
            (one.session.session, one.status.interface, one.status.previous, one.which)
        }));
        for (number, (session, one)) in numbers.into_iter().zip(requested) {
            objects.extend(rsvp::request([session, number], &one, status, clock));
        }
        objects.extend(rsvp::neighbours(status));
    }

    fn add_flows(&mut self, objects: &mut Vec<(Oid, Value)>, status: &Status, classes: &Classes) {
        let flows: Vec<Flow<'_>> = status.interfaces.iter().flat_map(flows_of).collect();
        let numbers = self
            .flows
            .look(flows.iter().map(|flow| (flow.interface.index, flow.status.session, flow.which)));
        for (number, flow) in numbers.into_iter().zip(flows) {
            let of = classes.get(&flow.interface.index);
            let counters = of.and_then(|of| of.get(&flow.status.class)).copied();
            objects.extend(int_srv::flow(number, &flow, counters.unwrap_or_default()));
        }
    }
}

/// Classifier entries of an interface: one for each sender, or one for all.
pub(super) fn flows_of(interface: &InterfaceStatus) -> impl Iterator<Item = Flow<'_>> {
    interface.enforced.iter().flat_map(move |status| {
        each(&status.senders).map(move |which| Flow { interface, which, status })
    })
}

/// Each sender; if none is named, all together.
fn each(senders: &[Sender]) -> impl Iterator<Item = Which> {
    let all = senders.is_empty().then_some(None);
    all.into_iter().chain(senders.iter().copied().map(Some))
}

/// C-Type of a session, both addresses, their lengths, the protocol, both ports: as four tables
/// have them. All senders together are the address of zeroes.
pub(super) fn ends(session: &Session, which: Which) -> [Value; 8] {
    let unspecified: (i32, i32, IpAddr) = match session.destination {
        IpAddr::V4(_) => (1, 32, Ipv4Addr::UNSPECIFIED.into()),
        IpAddr::V6(_) => (2, 128, Ipv6Addr::UNSPECIFIED.into()),
    };
    let (kind, length, all) = unspecified;
    [
        integer(kind),
        address(session.destination),
        address(which.map_or(all, |sender| sender.address)),
        integer(length),
        integer(if which.is_some() { length } else { 0 }),
        integer(session.protocol),
        port(session.port),
        port(which.map_or(0, |sender| sender.port)),
    ]
}

/// `QosService` (RFC 2213).
pub(super) fn service(flowspec: &FlowSpec) -> Value {
    integer(match flowspec {
        FlowSpec::Guaranteed { .. } => 2,
        FlowSpec::ControlledLoad(_) => 5,
    })
}

/// `BitRate` of bytes a second; an unbounded one is not specified, which is 0.
pub(super) fn bits(bytes_a_second: f32) -> Value {
    if bytes_a_second.is_infinite() {
        return integer(0);
    }
    // A cast saturates, and converts NaN to 0.
    integer((f64::from(bytes_a_second) * 8.0).round() as u64)
}

/// Bytes, rounded.
pub(super) fn bytes(value: f32) -> Value {
    integer(value.round() as u64)
}

#[cfg(test)]
mod tests {
    use ontempo_reservation::message::Style;

    use super::super::super::tests::{session_status, status};
    use super::super::{Module, Objects, octets};
    use super::*;

    fn at(objects: &Objects, module: &Module, name: &[u32]) -> Value {
        objects.get(&Oid::of(&[module.root, name]))
    }

    fn objects_of(reservations: &mut Reservations, status: &Status) -> Objects {
        let counters = Counters { sent: 240, borrowed: 40, dropped: 3 };
        let class = ("1:1001".to_owned(), counters);
        let classes = BTreeMap::from([(2, BTreeMap::from([class]))]);
        let mut objects = Objects::default();
        objects.set_reservations(reservations.objects(status, &classes, (20_000, 1_000)));
        objects
    }

    #[test]
    fn a_router_with_a_reservation_fills_every_table() {
        let objects = objects_of(&mut Reservations::default(), &status(1));
        let rsvp = |name: &[u32]| at(&objects, &rsvp::MODULE, name);
        let octets_of = |text: &str| Value::OctetString(octets(text.parse().unwrap()));
        assert_eq!(rsvp(&[1, 1, 1, 3, 1]), octets_of("10.0.3.2"));
        assert_eq!(rsvp(&[1, 1, 1, 6, 1]), Value::OctetString(vec![0x13, 0x8c]), "port 5004");
        assert_eq!(rsvp(&[1, 1, 1, 8, 1]), Value::Gauge32(1), "requests that came");
        assert_eq!(rsvp(&[1, 2, 1, 14, 1, 1]), Value::Integer(500_000), "bits a second");
        assert_eq!(rsvp(&[1, 2, 1, 15, 1, 1]), Value::Integer(0), "no peak rate");
        // The daemon started at 10 s, the agent at 1 s; the sender changed 2.5 s later.
        assert_eq!(rsvp(&[1, 2, 1, 21, 1, 1]), Value::TimeTicks(1150));
        assert_eq!(rsvp(&[1, 3, 1, 1, 1, 1, 2]), ACTIVE_ROW);
        assert_eq!(rsvp(&[1, 4, 1, 10, 1, 1]), octets_of("10.0.1.2"));
        assert_eq!(rsvp(&[1, 5, 1, 10, 1, 1]), octets_of("10.0.0.1"));
        assert_eq!(rsvp(&[1, 6, 1, 2, 1]), Value::Gauge32(1), "neighbours");
        assert_eq!(rsvp(&[1, 6, 1, 7, 2]), Value::Integer(3000), "hundredths of a second");
        assert_eq!(rsvp(&[1, 7, 1, 2, 2, 4, 10, 0, 1, 2]), Value::Integer(1), "over IP");
        assert_eq!(rsvp(&[2, 1, 0]), Value::Gauge32(7), "bad packets");
        let int_srv = |name: &[u32]| at(&objects, &int_srv::MODULE, name);
        assert_eq!(int_srv(&[1, 1, 1, 1, 2]), Value::Integer(500_000), "allocated");
        assert_eq!(int_srv(&[1, 2, 1, 17, 1]), Value::Integer(0x1001), "the class");
        assert_eq!(int_srv(&[1, 2, 1, 20, 1]), Value::Counter32(40), "beyond the rate");
        assert_eq!(int_srv(&[1, 2, 1, 21, 1]), Value::Counter32(43), "and dropped");
    }

    const ACTIVE_ROW: Value = super::super::ACTIVE;

    #[test]
    fn senders_that_share_have_a_row_each_and_all_senders_one() {
        let mut shared = status(1);
        let sender = |port| Sender { address: "10.0.0.1".parse().unwrap(), port };
        let known = &mut shared.sessions[0].reservations[0];
        (known.style, known.senders) = (Style::SharedExplicit, vec![sender(4000), sender(4001)]);
        let rsvp = |status: &Status, name: &[u32]| {
            at(&objects_of(&mut Reservations::default(), status), &rsvp::MODULE, name)
        };
        assert_eq!(rsvp(&shared, &[1, 4, 1, 9, 1, 2]), port(4001));
        assert_eq!(rsvp(&shared, &[1, 4, 1, 23, 1, 2]), Value::Integer(1), "shared");
        let known = &mut shared.sessions[0].reservations[0];
        (known.style, known.senders) = (Style::Wildcard, Vec::new());
        assert_eq!(rsvp(&shared, &[1, 4, 1, 4, 1, 1]), Value::OctetString(vec![0; 4]));
        assert_eq!(rsvp(&shared, &[1, 4, 1, 24, 1, 1]), Value::Integer(2), "not explicit");
        assert_eq!(rsvp(&shared, &[1, 4, 1, 4, 1, 2]), Value::NoSuchInstance);
    }

    #[test]
    fn a_session_keeps_its_number_while_others_come_and_go() {
        let mut reservations = Reservations::default();
        let port_of = |objects: &Objects, number| at(objects, &rsvp::MODULE, &[1, 1, 1, 6, number]);
        let mut status = status(2);
        objects_of(&mut reservations, &status);
        status.sessions = vec![session_status(1), session_status(2)];
        let objects = objects_of(&mut reservations, &status);
        assert_eq!(port_of(&objects, 1), Value::NoSuchInstance, "it is gone");
        assert_eq!(port_of(&objects, 2), port(5005));
        assert_eq!(port_of(&objects, 3), port(5006));
    }

    #[test]
    fn what_belongs_to_the_host_itself_has_no_interface() {
        let mut status = status(1);
        let session = &mut status.sessions[0];
        (session.paths[0].incoming, session.reservations[0].interface) = (None, None);
        let objects = objects_of(&mut Reservations::default(), &status);
        let rsvp = |name: &[u32]| at(&objects, &rsvp::MODULE, name);
        assert_eq!(rsvp(&[1, 2, 1, 13, 1, 1]), Value::NoSuchInstance);
        assert_eq!(rsvp(&[1, 4, 1, 12, 1, 1]), Value::NoSuchInstance);
        assert_eq!(rsvp(&[1, 2, 1, 12, 1, 1]), Value::Integer(0));
    }
}
