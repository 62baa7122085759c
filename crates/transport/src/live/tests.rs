//! Over loopback, with real sockets and threads.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread::spawn;
use std::time::{Duration as Wall, Instant};

use bytes::Bytes;
use ontempo_foundation::{Duration, Time};

use super::*;
use crate::{
    CloseReason, Configuration, Delivery, DeliveryOrder, FlowConfig, Identity, Reliability, Token,
    Trust,
};
use ontempo_testing::path_that_can_be_cut;
use ontempo_udp::{Clock, Datagram, Driver, DriverOptions, Dscp, Ecn, Next, Protocol, Socket};

const SOON: Wall = Wall::from_secs(10);

fn local() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

fn token(text: &str) -> Token {
    if text.is_empty() {
        return Token::anyone();
    }
    Token::new(text.as_bytes()).expect("short")
}

fn listener(options: &Options) -> (Listener, Trust) {
    let identity = Identity::self_signed(&["localhost"]).expect("made");
    let trust = Trust::Fingerprint(identity.fingerprint());
    let listener = Listener::bind(local(), &identity, token("open"), options).expect("bound");
    (listener, trust)
}

fn pair(options: &Options) -> (Connection, Connection) {
    let (listener, trust) = listener(options);
    let remote = listener.local();
    let near = connect(remote, "localhost", &trust, token("open"), options).expect("connected");
    (near, listener.accept())
}

fn content(id: u64, size: usize) -> Bytes {
    (0..size).map(|at| (id as usize * 31 + at * 7) as u8).collect::<Vec<_>>().into()
}

/// Sends `count` units in one direction and returns those that arrived.
fn send_and_receive(
    config: FlowConfig,
    lifetime: Option<Duration>,
    count: u64,
) -> Vec<crate::Unit> {
    let (near, far) = pair(&Options::default());
    let flow = near.open_flow(config.clone()).expect("opened");
    let receiver = spawn(move || {
        let flow = far.accept_flow().expect("a flow");
        assert_eq!(*flow.config(), config);
        let mut units = Vec::new();
        while let Some(delivery) = flow.receive().expect("whole") {
            if let Delivery::Unit(unit) = delivery {
                units.push(unit);
            }
        }
        let statistics = flow.statistics().expect("known at the end");
        assert_eq!(statistics.units, units.len() as u64);
        far.close("had all");
        units
    });
    for id in 0..count {
        let data = content(id, [0, 1, 200, 1200, 30_000][id as usize % 5]);
        let depends_on = id.checked_sub(3).into_iter().collect();
        let message =
            Message { data, lifetime, priority: (id % 3) as u8, depends_on, ..Message::default() };
        assert_eq!(flow.send(message).expect("sent"), id);
    }
    flow.finish();
    let settled = flow.settled(SOON).expect("in time").expect("settled");
    assert_eq!((settled.units, settled.settled), (count, count));
    let units = receiver.join().expect("no panic");
    let closed = near.closed(SOON).expect("closed");
    assert_eq!((closed.reason, closed.said.as_str()), (CloseReason::Done, "had all"));
    units
}

#[test]
fn units_arrive_in_every_order_and_reliability() {
    use DeliveryOrder::{InOrder, OutOfOrder, PartialOrder};
    let soon = Some(Duration::from_secs(10));
    for order in [InOrder, OutOfOrder, PartialOrder] {
        for (reliability, lifetime) in [(Reliability::Full, None), (Reliability::Deadline, soon)] {
            let config = FlowConfig { order, reliability, label: "a label".to_owned() };
            let mut units = send_and_receive(config, lifetime, 2_000);
            let in_order = units.is_sorted_by_key(|unit| unit.id);
            assert!(in_order || order != InOrder);
            units.sort_by_key(|unit| unit.id);
            assert_eq!(units.len(), 2_000);
            for (id, unit) in (0..).zip(&units) {
                let size = [0, 1, 200, 1200, 30_000][id as usize % 5];
                assert_eq!((unit.id, &unit.data), (id, &content(id, size)));
            }
        }
    }
}

#[test]
fn a_program_that_reads_nothing_causes_backpressure_and_no_loss() {
    let (near, far) = pair(&Options::default());
    let flow = near.open_flow(FlowConfig::default()).expect("opened");
    let data = Bytes::from(vec![7; 64 << 10]);
    let mut sent = 0;
    while flow.send_within(data.clone(), Wall::from_millis(300)).is_ok() {
        sent += 1;
        assert!(sent < 2_000, "no bound");
    }
    flow.finish();
    let incoming = far.accept_flow().expect("a flow");
    let mut received = 0;
    while let Some(Delivery::Unit(unit)) = incoming.receive().expect("whole") {
        assert_eq!(unit.data.len(), data.len());
        received += 1;
    }
    assert_eq!(received, sent);
    assert!(flow.settled(SOON).is_some_and(|settled| settled.is_ok()));
}

#[test]
fn units_past_their_deadline_are_dropped_and_reported_to_the_sender() {
    let mut options = Options::default();
    options.configuration.congestion = crate::CongestionName::Cubic.into();
    options.configuration.limits.bytes = 64 << 10;
    let (near, far) = pair(&options);
    let reliability = Reliability::Deadline;
    let flow = near.open_flow(FlowConfig { reliability, ..FlowConfig::default() }).expect("opened");
    // The program reads only after all deadlines; units in the receive buffer have arrived in time.
    for id in 0..200 {
        let lifetime = Some(Duration::from_millis(200));
        let message = Message { data: content(id, 4096), lifetime, ..Message::default() };
        flow.send(message).expect("sent");
    }
    flow.finish();
    std::thread::sleep(Wall::from_millis(400));
    let incoming = far.accept_flow().expect("a flow");
    let (mut received, mut missed) = (Vec::new(), Vec::new());
    while let Some(delivery) = incoming.receive().expect("whole") {
        match delivery {
            Delivery::Unit(unit) => received.push(unit.id),
            Delivery::Dropped(id) => missed.push(id),
        }
    }
    let settled = flow.settled(SOON).expect("in time").expect("settled");
    let mut dropped = flow.dropped();
    dropped.sort_unstable();
    assert_eq!(dropped, missed, "both sides agree");
    assert!(!dropped.is_empty() && received.len() + missed.len() == 200);
    assert_eq!(settled.dropped, missed.len() as u64);
}

#[test]
fn a_deadline_on_a_flow_that_drops_nothing_is_an_error() {
    let (near, _far) = pair(&Options::default());
    let flow = near.open_flow(FlowConfig::default()).expect("opened");
    let lifetime = Some(Duration::from_millis(200));
    let message = Message { data: content(0, 100), lifetime, ..Message::default() };
    let error = flow.send(message).expect_err("a deadline has no effect here").to_string();
    assert!(error.contains("open the flow with reliability until-deadline or none"), "{error}");
    // The flow can still be used.
    let message = Message { data: content(0, 100), ..Message::default() };
    assert_eq!(flow.send(message).expect("sent"), 0);
}

/// Sends the DSCP and ECN of each datagram to the test.
struct Watch(Sender<(Dscp, Ecn)>);

impl Protocol for Watch {
    type Command = ();

    fn handle(&mut self, _: Time, datagram: Datagram<'_>) {
        let _ = self.0.send((datagram.dscp, datagram.ecn));
    }

    fn handle_command(&mut self, _: Time, (): ()) {}

    fn handle_timeout(&mut self, _: Time) {}

    fn next_timeout(&self) -> Time {
        Time::NEVER
    }

    fn poll_transmit(&mut self, _: Time, _: &mut Vec<u8>) -> Next {
        Next::Idle
    }
}

#[test]
fn packets_carry_dscp_and_ecn() {
    let watch = Socket::bind(local(), Default::default()).expect("bound");
    let remote = watch.local_address().expect("an address");
    let mut options = Options::default();
    options.socket.dscp = Dscp::VIDEO;
    let (sender, seen) = channel();
    let _driver = Driver::spawn(watch, Watch(sender), Clock::new(), DriverOptions::default());
    let pending = Pending::begin(remote, "localhost", &Trust::Insecure, token(""), &options);
    let _pending = pending.expect("started");
    let seen = seen.recv_timeout(SOON);
    assert_eq!(seen, Ok((Dscp::VIDEO, Ecn::Capable0)));
}

fn connect_error(remote: SocketAddr, trust: &Trust, token: Token, options: &Options) -> String {
    let refused = connect(remote, "localhost", trust, token, options);
    refused.err().expect("no connection").to_string()
}

#[test]
fn connecting_to_a_silent_peer_fails_at_the_handshake_timeout() {
    let silent = UdpSocket::bind(local()).expect("bound");
    let remote = silent.local_addr().expect("an address");
    let handshake_timeout = Duration::from_millis(300);
    let configuration = Configuration { handshake_timeout, ..Configuration::default() };
    let options = Options { configuration, ..Options::default() };
    let started = Instant::now();
    let message = connect_error(remote, &Trust::Insecure, token(""), &options);
    assert_eq!(message, format!("no connection to {remote}: no answer came within 300 ms"));
    assert!(started.elapsed() < Wall::from_secs(2));
}

#[test]
fn the_close_reason_of_a_program_arrives_as_an_error_code() {
    let options = Options::default();
    let (listener, trust) = listener(&options);
    let sentences = ["another is served", "", "ünüsual"];
    let reasons = [CloseReason::Busy, CloseReason::Complete, CloseReason::Other(4_711)];
    for (reason, sentence) in reasons.into_iter().zip(sentences) {
        let near = connect(listener.local(), "localhost", &trust, token("open"), &options);
        let near = near.expect("connected");
        let far = listener.accept();
        far.close_with(reason, sentence);
        let closed = near.closed(SOON).expect("closed");
        assert_eq!((closed.reason, closed.said.as_str()), (reason, sentence));
        assert_eq!(far.closed(SOON).expect("closed").reason, reason);
        let error = near.open_flow(FlowConfig::default()).err().expect("it is over");
        assert_eq!(error.close_reason(), Some(reason));
    }
}

#[test]
fn a_wrong_token_or_fingerprint_is_reported_on_both_sides() {
    let options = Options::default();
    let (listener, trust) = listener(&options);
    let refusal = || match listener.accept_within(SOON) {
        Some(Accepted::Refused { remote, closed }) => (remote.is_some(), closed),
        _ => panic!("no client was refused"),
    };
    let message = connect_error(listener.local(), &trust, token("guess"), &options);
    assert!(message.contains("the peer refused our token"), "{message}");
    let (is_known, closed) = refusal();
    assert!(is_known);
    assert_eq!(closed.reason, CloseReason::WrongToken);
    assert_eq!(closed.sentence, "a client had the wrong token");
    let other = Identity::self_signed(&["localhost"]).expect("made").fingerprint();
    let message =
        connect_error(listener.local(), &Trust::Fingerprint(other), token("open"), &options);
    assert!(message.contains(&format!("expected is {other}")), "{message}");
    let (_, closed) = refusal();
    assert_eq!(closed.reason, CloseReason::Untrusted);
    assert!(closed.sentence.contains("does not trust our certificate"), "{closed}");
}

#[test]
fn who_has_the_token_is_accepted_before_others_are_reported_who_have_not() {
    let options = Options::default();
    let (listener, trust) = listener(&options);
    for _ in 0..3 {
        connect_error(listener.local(), &trust, token("guess"), &options);
    }
    let near = connect(listener.local(), "localhost", &trust, token("open"), &options);
    near.expect("connected");
    assert!(matches!(listener.accept_within(SOON), Some(Accepted::Connection(_))));
    assert!(matches!(listener.accept_within(SOON), Some(Accepted::Refused { .. })));
}

#[test]
fn closing_reaches_the_peer_and_ends_its_waits() {
    let (near, far) = pair(&Options::default());
    let (sender, started) = channel();
    let waiting = spawn(move || {
        sender.send(()).expect("the test waits");
        far.accept_flow().err().expect("no flow is opened").to_string()
    });
    started.recv().expect("started");
    near.close("enough");
    let message = waiting.join().expect("no panic");
    assert_eq!(message, "the connection is over: the peer closed: enough");
    assert!(near.open_flow(FlowConfig::default()).is_err());
}

#[test]
fn a_flow_has_its_last_statistics_when_the_peer_has_closed() {
    let (near, far) = pair(&Options::default());
    let flow = near.open_flow(FlowConfig::default()).expect("opened");
    for id in 0..3 {
        flow.send(Message::from(content(id, 100))).expect("sent");
    }
    let received = far.accept_flow().expect("a flow");
    for _ in 0..3 {
        received.receive().expect("it is open").expect("a unit");
    }
    far.close("");
    let closed = near.closed(SOON).expect("closed");
    assert_eq!(closed.sentence, "the peer closed the connection");
    assert_eq!(flow.statistics().map(|all| all.units), Some(3));
}

#[test]
fn what_was_acknowledged_can_be_read_though_the_connection_is_closed_or_lost() {
    for is_lost in [false, true] {
        let mut options = Options::default();
        options.configuration.idle_timeout = Duration::from_secs(1);
        let (listener, trust) = listener(&options);
        let (at, is_cut) = path_that_can_be_cut(listener.local());
        let near = connect(at, "localhost", &trust, token("open"), &options).expect("connected");
        let far = listener.accept();
        let flow = near.open_flow(FlowConfig::default()).expect("opened");
        for id in 0..200 {
            flow.send(content(id, 10_000)).expect("sent");
        }
        let incoming = far.accept_flow().expect("a flow");
        let end = Instant::now() + SOON;
        while flow.statistics().is_none_or(|all| all.settled < 200) {
            assert!(Instant::now() < end, "not acknowledged");
            std::thread::sleep(Wall::from_millis(5));
        }
        is_cut.store(is_lost, Ordering::Relaxed);
        near.close("");
        let closed = far.closed(SOON).expect("closed");
        let expected = if is_lost { CloseReason::TimedOut } else { CloseReason::Done };
        assert_eq!(closed.reason, expected);
        let mut read = 0;
        while let Ok(Some(Delivery::Unit(unit))) = incoming.receive() {
            assert_eq!(unit.data, content(read, 10_000));
            read += 1;
        }
        assert_eq!(read, 200, "lost {is_lost}");
    }
}

#[test]
fn what_closed_connections_leave_unread_is_bounded_also_of_flows_that_ended_and_seems_whole_to_nobody()
 {
    let configuration = Configuration {
        receive_memory: ontempo_foundation::Bytes::new(1 << 20),
        ..Configuration::default()
    };
    let (listener, trust) = listener(&Options { configuration, ..Options::default() });
    let mut flows = Vec::new();
    // A quarter of the memory is for what they leave: for the first of them.
    for is_accepted in [true, true, false] {
        let options = Options::default();
        let near = connect(listener.local(), "localhost", &trust, token("open"), &options);
        let near = near.expect("connected");
        let far = listener.accept();
        let flow = near.open_flow(FlowConfig::default()).expect("opened");
        flow.send(content(1, 200_000)).expect("sent");
        flow.finish();
        let early = is_accepted.then(|| far.accept_flow().expect("a flow"));
        assert!(flow.settled(SOON).is_some(), "it has arrived");
        near.close("");
        while far.is_closed().is_none() {
            std::thread::sleep(Wall::from_millis(1));
        }
        flows.push(early.unwrap_or_else(|| far.accept_flow().expect("a flow")));
    }
    let got: Vec<_> = flows
        .iter()
        .map(|flow| {
            let first = flow.receive().map(|delivery| matches!(delivery, Some(Delivery::Unit(_))));
            first.map_err(|error| error.close_reason())
        })
        .collect();
    let discarded = Err(Some(CloseReason::Done));
    assert_eq!(got, [Ok(true), discarded, discarded]);
    assert!(flows[0].receive().is_ok_and(|end| end.is_none()), "it arrived whole");
}

#[test]
fn a_listener_that_is_dropped_accepts_nobody_and_its_connections_go_on() {
    let options = Options::default();
    let (listener, trust) = listener(&options);
    let remote = listener.local();
    let to_listener = || connect(remote, "localhost", &trust, token("open"), &options);
    let near = to_listener().expect("connected");
    let far = listener.accept();
    let waiting = to_listener().expect("connected");
    drop(listener);
    let closed = waiting.closed(SOON).expect("nobody will accept it");
    assert_eq!(closed.reason, CloseReason::Refused);
    let refused = to_listener().err().expect("nobody listens");
    assert_eq!(refused.close_reason(), Some(CloseReason::Refused));
    let flow = near.open_flow(FlowConfig::default()).expect("opened");
    flow.send(content(1, 1_000)).expect("sent");
    let incoming = far.accept_flow().expect("a flow");
    assert!(matches!(incoming.receive(), Ok(Some(Delivery::Unit(_)))));
}

#[test]
fn a_unit_that_waits_for_room_goes_when_there_is_some_and_not_at_the_next_timeout() {
    let configuration = Configuration {
        send_bytes: ontempo_foundation::Bytes::new(100_000),
        pacing: None,
        keep_alive: None,
        clock_interval: Duration::from_secs(60),
        ..Configuration::default()
    };
    let (near, far) = pair(&Options { configuration, ..Options::default() });
    // The handshake and its acknowledgements are over.
    std::thread::sleep(Wall::from_millis(300));
    for _ in 0..12 {
        let flow = near.open_flow(FlowConfig::default()).expect("opened");
        for id in 0..2 {
            flow.send(content(id, 80_000)).expect("sent");
        }
        flow.finish();
        let settled = flow.settled(SOON).expect("in time").expect("not timed out");
        assert_eq!(settled.arrived, 2);
    }
    drop(far);
}

#[test]
fn what_is_queued_leaves_with_who_runs_the_endpoint_and_is_acknowledged_while_the_player_is_stuck()
{
    let (near, far) = pair(&Options::default());
    let flow = near.open_flow(FlowConfig::default()).expect("opened");
    let (stuck, is_stuck) = channel();
    let (go_on, goes_on) = channel::<()>();
    let player = spawn(move || {
        let flow = far.accept_flow().expect("a flow");
        flow.wake_no_reader(true);
        let mut numbers = Vec::new();
        while numbers.is_empty() || !flow.over(Wall::ZERO) {
            match flow.receive_within(Wall::from_millis(1)) {
                Some(Ok(Some(Delivery::Unit(unit)))) => numbers.push(unit.id),
                Some(Ok(None) | Err(_)) => break,
                _ => {}
            }
            if numbers.len() == 1 {
                stuck.send(()).expect("the test waits");
                goes_on.recv_timeout(SOON).expect("it goes on");
            }
        }
        numbers
    });
    for id in 0..50 {
        assert_eq!(flow.queue(content(id, 1_000)).expect("there is room"), id);
        flow.run_here();
        if id == 0 {
            is_stuck.recv_timeout(SOON).expect("it came");
        }
    }
    flow.finish();
    let settled = flow.settled(SOON).expect("acknowledged").expect("open");
    assert_eq!(settled.settled, 50);
    go_on.send(()).expect("it waits");
    assert!(player.join().expect("no panic").into_iter().eq(0..50));
}

#[test]
fn what_lies_unread_for_a_while_has_arrived_when_it_came() {
    let (near, far) = pair(&Options::default());
    let flow = near.open_flow(FlowConfig::default()).expect("opened");
    let send = |id| flow.send(content(id, 1_000)).expect("there is room");
    send(0);
    let arriving = far.accept_flow().expect("a flow");
    let patience = Duration::from_millis(300);
    let next = |limit| match arriving.receive_within(limit) {
        Some(Ok(Some(Delivery::Unit(unit)))) => Some(unit),
        None => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(next(SOON).map(|unit| unit.id), Some(0));
    // The thread of the endpoint reads until it has noticed the visits; only Linux notes when something came.
    let was_left = (1..50).any(|id| {
        std::thread::sleep(Wall::from_millis(50));
        arriving.visit(patience);
        send(id);
        let read_itself = next(Wall::from_millis(60));
        let visited = far.clock().now();
        arriving.visit(patience);
        let unit = read_itself.clone().or_else(|| next(SOON)).expect("it arrives");
        assert_eq!(unit.id, id);
        read_itself.is_none() && unit.arrived + Duration::from_millis(40) < visited
    });
    assert_eq!(was_left, cfg!(target_os = "linux"));
}

#[test]
fn a_comparison_of_clocks_does_not_count_how_long_a_question_lies_unread() {
    let interval = Duration::from_millis(50);
    let configuration = Configuration { clock_interval: interval, ..Configuration::default() };
    let (near, far) = pair(&Options { configuration, ..Options::default() });
    let flow = near.open_flow(FlowConfig::default()).expect("opened");
    flow.send(content(0, 1_000)).expect("there is room");
    let arriving = far.accept_flow().expect("a flow");
    let is_short = (0..50).any(|_| {
        // As many as are remembered.
        for _ in 0..10 {
            std::thread::sleep(Wall::from_millis(60));
            arriving.visit(Duration::from_millis(300));
        }
        let round_trip = near.statistics().and_then(|all| all.clock_round_trip);
        round_trip.is_some_and(|round_trip| round_trip < Duration::from_millis(10))
    });
    assert!(is_short);
}
