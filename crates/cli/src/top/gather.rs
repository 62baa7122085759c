//! What is shown, collected at one time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration as Wall, Instant};

use ontempo_monitor::{Collected, CollectedFlow, Collector, FlowRole, Skipped};
use ontempo_reservation::local::{self, Answer, Client, Request, Status};
use ontempo_rsvpd::class_counters;

use super::history::{Histories, Key};
use crate::arguments::Top;
use crate::monitor::folders;
use crate::rsvp::{senders, service, to};

/// Minimum time between two queries of the RSVP daemon, and the part of the time that they may take.
const MIN_INTERVAL: Wall = Wall::from_millis(900);
const INTERVAL_PER_QUERY: u32 = 20;

/// Maximum reservations.
const MAX_RESERVATIONS: usize = 1_000;

/// A reservation through this host.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reserved {
    /// Where the flow goes, and from whom.
    pub(super) session: String,
    pub(super) senders: String,
    /// Service and rate.
    pub(super) service: String,
    pub(super) rate_bps: f64,
    /// The interface that it goes out of, if it is one of the daemon's.
    pub(super) interface: String,
    /// Its class of the kernel, where it is enforced.
    pub(super) class: Option<String>,
    /// Packets per second that the class has sent.
    pub(super) packets_per_s: Option<f64>,
}

impl Reserved {
    pub(super) fn key(&self) -> Key {
        Key::Reservation(format!("{} {} {}", self.session, self.senders, self.interface))
    }
}

/// Everything at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    /// Of `send`, `receive` and `relay`.
    pub(super) flows: Vec<CollectedFlow>,
    pub(super) sockets: Vec<Collected>,
    /// `None` where no RSVP daemon answers.
    pub(super) reservations: Option<Vec<Reserved>>,
    pub(super) skipped: Vec<Skipped>,
}

/// Packets of each class at a time.
struct Counted {
    at: Instant,
    packets: BTreeMap<(String, String), u64>,
}

/// Collects again and again, and keeps the last minute's rates.
pub(super) struct Gatherer {
    folder: Option<PathBuf>,
    collector: Collector,
    histories: Histories,
    daemon: PathBuf,
    reservations: Option<Vec<Reserved>>,
    next_query: Option<Instant>,
    counted: Option<Counted>,
}

impl Gatherer {
    pub(super) fn new(arguments: &Top) -> Self {
        Self {
            folder: arguments.folder.clone(),
            collector: Collector::new(),
            histories: Histories::default(),
            daemon: arguments.rsvp.clone().unwrap_or_else(local::socket),
            reservations: None,
            next_query: None,
            counted: None,
        }
    }

    pub(super) fn history(&self) -> &Histories {
        &self.histories
    }

    pub(super) fn look(&mut self, now: Instant) -> Look {
        let folders = folders(self.folder.as_ref());
        let (flows, mut skipped) = self.collector.collect_flows(&folders);
        let (sockets, more) = self.collector.collect(&folders);
        // A folder that cannot be opened is told of once.
        skipped.extend(more.into_iter().filter(|one| !skipped.contains(one)).collect::<Vec<_>>());
        self.query(now);
        let look = Look { flows, sockets, reservations: self.reservations.clone(), skipped };
        self.histories.add(now, rates(&look));
        look
    }

    /// Asks the RSVP daemon, unless it was asked a moment ago.
    fn query(&mut self, now: Instant) {
        if self.next_query.is_some_and(|at| now < at) {
            return;
        }
        self.reservations = status(&self.daemon).map(|status| self.reserved(now, &status));
        self.next_query = Some(now + MIN_INTERVAL.max(now.elapsed() * INTERVAL_PER_QUERY));
    }

    fn reserved(&mut self, now: Instant, status: &Status) -> Vec<Reserved> {
        let mut packets = BTreeMap::new();
        for interface in status.interfaces.iter().filter(|one| !one.enforced.is_empty()) {
            // Without the right to look at the kernel's classes there are no rates.
            for (class, counters) in class_counters(&interface.name).unwrap_or_default() {
                packets.insert((interface.name.clone(), class), counters.sent);
            }
        }
        let before = self.counted.replace(Counted { at: now, packets: packets.clone() });
        let rate = |key: &(String, String)| {
            let before = before.as_ref()?;
            let sent = packets.get(key)?.checked_sub(*before.packets.get(key)?)?;
            Some(sent as f64 / now.saturating_duration_since(before.at).as_secs_f64().max(1e-3))
        };
        of_status(status, rate)
    }
}

fn status(socket: &std::path::Path) -> Option<Status> {
    match Client::connect(socket).ok()?.ask(Request::Status).ok()? {
        Answer::Status(status) => Some(*status),
        _ => None,
    }
}

/// The reservations of a daemon; `rate` is that of a class of an interface.
fn of_status(status: &Status, rate: impl Fn(&(String, String)) -> Option<f64>) -> Vec<Reserved> {
    let all = status.sessions.iter().flat_map(|session| {
        session.reservations.iter().map(move |reservation| (session, reservation))
    });
    all.take(MAX_RESERVATIONS)
        .map(|(session, reservation)| {
            let interface =
                status.interfaces.iter().find(|one| Some(one.index) == reservation.interface);
            let class = interface.and_then(|interface| {
                let is_of = |one: &&local::EnforcedStatus| {
                    one.session == session.session && one.senders == reservation.senders
                };
                let class = interface.enforced.iter().find(is_of)?.class.clone();
                Some((interface.name.clone(), class))
            });
            Reserved {
                session: to(&session.session),
                senders: senders(&reservation.senders),
                service: service(&reservation.flowspec),
                rate_bps: f64::from(reservation.flowspec.reserved_rate()) * 8.0,
                interface: interface.map_or_else(String::new, |one| one.name.clone()),
                packets_per_s: class.as_ref().and_then(&rate),
                class: class.map(|(_, class)| class),
            }
        })
        .collect()
}

/// What each sparkline is of.
fn rates(look: &Look) -> Vec<(Key, f64)> {
    let flows = look.flows.iter().map(|one| {
        let flow = &one.flow;
        let rate = match flow.role {
            FlowRole::Sender | FlowRole::Relay => flow.output_bps.unwrap_or(flow.input_bps),
            FlowRole::Receiver | FlowRole::Stream => flow.input_bps,
        };
        (Key::Flow(one.index), rate)
    });
    let sockets = look.sockets.iter().map(|one| (Key::Socket(one.index), one.socket.throughput));
    let reserved = look.reservations.iter().flatten();
    let reserved = reserved.filter_map(|one| Some((one.key(), one.packets_per_s?)));
    flows.chain(sockets).chain(reserved).collect()
}

#[cfg(test)]
mod tests {
    use ontempo_reservation::local::{
        EnforcedStatus, InterfaceStatus, ReservationStatus, SessionStatus,
    };
    use ontempo_reservation::message::{FlowSpec, Sender, Session, Style, TrafficSpec};

    use super::*;

    #[test]
    fn a_reservation_is_shown_with_the_packets_of_its_class() {
        let session =
            Session { destination: "10.0.3.2".parse().unwrap(), protocol: 17, port: 5_004 };
        let sender = Sender { address: "10.0.0.1".parse().unwrap(), port: 4_000 };
        let peak = f32::INFINITY;
        let traffic =
            TrafficSpec { rate: 62_500.0, burst: 4_000.0, peak, smallest: 64, largest: 1_500 };
        let flowspec = FlowSpec::ControlledLoad(traffic);
        let class = "1:1001".to_owned();
        let enforced = EnforcedStatus {
            class: class.clone(),
            session,
            senders: vec![sender],
            rate: 500_000,
            burst: 4_000,
            flowspec,
        };
        let interface = InterfaceStatus {
            name: "eth1".to_owned(),
            index: 2,
            addresses: Vec::new(),
            mtu: 1_500,
            rate: 1_500_000,
            reservable: 1_350_000,
            reserved: 500_000,
            latency_us: None,
            authenticated: false,
            adopted: 0,
            enforced: vec![enforced],
        };
        let reservation = ReservationStatus {
            style: Style::FixedFilter,
            next: "10.0.1.2".parse().unwrap(),
            interface: Some(2),
            senders: vec![sender],
            flowspec,
            dscps: Default::default(),
            send_ttl: 64,
            rsvp_hop: true,
            period_ms: 30_000,
            changed_s: 3.0,
        };
        let session = SessionStatus {
            session,
            paths: Vec::new(),
            reservations: vec![reservation],
            requests: Vec::new(),
        };
        let status =
            Status { interfaces: vec![interface], sessions: vec![session], ..Status::default() };
        let rate =
            |key: &(String, String)| (*key == ("eth1".to_owned(), class.clone())).then_some(42.0);
        let expected = Reserved {
            session: "udp 10.0.3.2:5004".to_owned(),
            senders: "10.0.0.1:4000".to_owned(),
            service: "controlled load, 500 kbit/s".to_owned(),
            rate_bps: 500_000.0,
            interface: "eth1".to_owned(),
            class: Some("1:1001".to_owned()),
            packets_per_s: Some(42.0),
        };
        assert_eq!(of_status(&status, rate), [expected]);
    }
}
