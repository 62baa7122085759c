//! A socket, a folder and a daemon to test with.

use std::path::PathBuf;

use ontempo_reservation::local::{
    EnforcedStatus, InterfaceStatus, PathStatus, ProtocolStatus, RequestStatus, ReservationStatus,
    SessionStatus, Status,
};
use ontempo_reservation::message::{FlowSpec, Sender, Session, Style, TrafficSpec};

use super::*;

/// A folder of this test alone, empty.
pub(super) fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ontempo-qos-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

pub(super) fn socket(id: u32) -> SocketReport {
    let parameter = |parameter, agreed| ParameterReport {
        parameter,
        asked: Some(agreed + 3),
        agreed,
        coerced: false,
        delivered: Some(agreed + 1),
        violated: true,
        begun: 2,
        changed_ms: Some(5_000),
    };
    SocketReport {
        id,
        name: format!("café {id}"),
        role: Role::Receiver,
        carrier: Carrier::Udp,
        local: "192.0.2.1:5000".to_owned(),
        remote: "192.0.2.2:5000".to_owned(),
        dscp: 34,
        reservation: Reservation::ControlledLoad,
        reason: String::new(),
        opened_ms: 1_000,
        sent_messages: 40,
        sent_bytes: 51_200,
        messages: 35,
        bytes: 44_800,
        lost_messages: 5,
        throughput: 614_400.0,
        loss: Some(12.5),
        delay: Some(0.0125),
        delay_error: Some(0.0005),
        jitter: Some(0.001),
        rungs: 3,
        rung: 1,
        held: None,
        parameters: vec![parameter(1, 60_000), parameter(6, 100_000)],
        violations: Vec::new(),
    }
}

/// A receiver over two paths.
pub(super) fn flow(id: u32) -> FlowReport {
    let path = |path| PathReport {
        path,
        peer: format!("192.0.2.{path}:4433"),
        up: Some(true),
        carries: Some(path == 1),
        round_trip_s: Some(0.04),
        bytes: 500_000,
        packets: Some(800),
        lost_packets: Some(4),
    };
    let cumulative = [0, 0, 10, 80, 95, 97, 98, 99, 99, 100, 100, 100, 100];
    FlowReport {
        id,
        role: FlowRole::Receiver,
        name: "film".to_owned(),
        place: "udp://127.0.0.1:5001".to_owned(),
        flowing: true,
        peers: vec!["192.0.2.1:4433".to_owned()],
        input_bps: 4_000_000.0,
        output_bps: Some(3_900_000.0),
        target_bps: Some(6_000_000.0),
        round_trip_s: Some(0.04),
        loss: Some(0.01),
        latency_s: Some(0.3),
        input_bytes: 1_000_000,
        output_bytes: Some(990_000),
        units: 100,
        late_units: 3,
        dropped_units: 2,
        whole_datagrams: Some(700),
        damaged_datagrams: Some(1),
        missing_datagrams: Some(5),
        packets: Some(1_600),
        lost_packets: Some(8),
        lost_bytes: Some(9_600),
        reconnections: 1,
        paths: vec![path(1), path(2)],
        viewers: Some(ViewersReport {
            count: 3,
            median_bad_share: Some(0.0),
            worst_bad_share: Some(0.25),
            late_units: 4,
            dropped_units: 5,
        }),
        delays: Some(DelayReport { cumulative, sum_s: 4.5 }),
    }
}

pub(super) fn collected_flow(index: u32) -> CollectedFlow {
    CollectedFlow { index, process: 7, user: 0, flow: flow(1) }
}

pub(super) fn collected(index: u32) -> Collected {
    Collected { index, process: 7, user: 0, socket: SocketReport { id: 1, ..socket(1) } }
}

/// A router's daemon, with as many reservations from interface 1 to interface 2.
pub(super) fn status(sessions: u16) -> Status {
    let interface = |index: u32| InterfaceStatus {
        name: format!("l{index}"),
        index,
        addresses: vec![format!("10.0.{}.1", index - 1).parse().unwrap()],
        mtu: 1500,
        rate: 1_500_000,
        reservable: 1_350_000,
        reserved: if index == 2 { 500_000 * u64::from(sessions) } else { 0 },
        latency_us: None,
        authenticated: false,
        adopted: 0,
        enforced: if index == 2 { (0..sessions).map(enforced).collect() } else { Vec::new() },
    };
    Status {
        process: 7,
        up_s: 10.0,
        interfaces: vec![interface(1), interface(2)],
        sessions: (0..sessions).map(session_status).collect(),
        protocol: ProtocolStatus {
            refresh_ms: 30_000,
            refreshes_lost: 3,
            blockade_periods: 3,
            settling_ms: 5,
            ttl: 64,
        },
        bad_packets: 7,
        ..Status::default()
    }
}

fn session(number: u16) -> Session {
    let destination = "10.0.3.2".parse().unwrap();
    Session { destination, protocol: 17, port: 5004 + number }
}

fn sender() -> Sender {
    Sender { address: "10.0.0.1".parse().unwrap(), port: 4000 }
}

fn traffic() -> TrafficSpec {
    let peak = f32::INFINITY;
    TrafficSpec { rate: 62_500.0, burst: 4000.0, peak, smallest: 64, largest: 1500 }
}

fn enforced(number: u16) -> EnforcedStatus {
    EnforcedStatus {
        class: format!("1:{:x}", 0x1001 + number),
        session: session(number),
        senders: vec![sender()],
        rate: 500_000,
        burst: 4000,
        flowspec: FlowSpec::ControlledLoad(traffic()),
    }
}

/// One of them.
pub(super) fn session_status(number: u16) -> SessionStatus {
    let (style, flowspec) = (Style::FixedFilter, FlowSpec::ControlledLoad(traffic()));
    SessionStatus {
        session: session(number),
        paths: vec![PathStatus {
            sender: sender(),
            traffic: traffic(),
            adspec: None,
            policy: Vec::new(),
            previous: "10.0.0.1".parse().unwrap(),
            handle: 9,
            incoming: Some(1),
            outgoing: vec![2],
            send_ttl: 63,
            rsvp_hop: true,
            period_ms: 30_000,
            changed_s: 2.5,
            dscps: Default::default(),
        }],
        reservations: vec![ReservationStatus {
            style,
            next: "10.0.1.2".parse().unwrap(),
            interface: Some(2),
            senders: vec![sender()],
            flowspec,
            dscps: Default::default(),
            send_ttl: 64,
            rsvp_hop: true,
            period_ms: 30_000,
            changed_s: 3.0,
        }],
        requests: vec![RequestStatus {
            style,
            previous: "10.0.0.1".parse().unwrap(),
            interface: 1,
            handle: 9,
            senders: vec![sender()],
            flowspec,
            dscps: Default::default(),
            changed_s: 3.0,
        }],
    }
}
