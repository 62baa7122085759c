//! A relay, a source and viewers in virtual time.

use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use ontempo_foundation::{Duration, Rate, Time};
use ontempo_media::Kind;
use ontempo_relay::{Relay, RelayOptions, configuration};
use ontempo_session::latency::GRACE;
use ontempo_session::message::{Label, REPORTS, Report};
use ontempo_session::{RelayReport, split_name, with_name};
use ontempo_transport::simulated::{Network, Path};
use ontempo_transport::{
    CloseReason, Configuration, ConnectionId, Delivery, DeliveryOrder, Endpoint, Event, FlowConfig,
    FlowId, Identity, Outgoing, Poll, Reliability, Token, Trust,
};

const RELAY: usize = 0;

/// 25 frames a second of 5,000 bytes: 1 Mbit/s.
const FRAME: Duration = Duration::from_millis(40);
const FRAME_BYTES: usize = 5_000;
const KEY_EVERY: u64 = 25;

fn address(host: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 4433))
}

fn clean(kbit: u64) -> Path {
    Path::clean(Rate::from_bits_per_sec(kbit * 1000), Duration::from_millis(10))
}

/// A client of the relay: a source or a viewer.
struct Client {
    node: usize,
    id: ConnectionId,
    /// Its own flow: of units, or of reports.
    flow: Option<FlowId>,
    label: String,
    config: FlowConfig,
    received: Vec<(Vec<u8>, Vec<u64>)>,
    opened: Option<FlowConfig>,
    ended: bool,
    closed: Option<CloseReason>,
    /// False: its program takes nothing of what has come.
    reads: bool,
}

struct World {
    network: Network,
    relay: Relay,
    trust: Trust,
    clients: Vec<Client>,
    /// Most bytes of units that were held at a time.
    most_held: u64,
}

impl World {
    fn new(options: RelayOptions) -> Self {
        let identity = Identity::self_signed(&["relay"]).expect("an identity");
        let mut endpoint = Endpoint::new(configuration(&options), [1; 32]);
        endpoint.listen(&identity, Token::new(b"publish").expect("short")).expect("it listens");
        if options.has_viewers_token {
            endpoint.admit(Token::new(b"view").expect("short"));
        }
        let mut network = Network::new(1);
        network.add(endpoint, address(1));
        let trust = Trust::Fingerprint(identity.fingerprint());
        let (clients, relay) = (Vec::new(), Relay::new(options, 1));
        Self { network, relay, trust, clients, most_held: 0 }
    }

    fn connect(&mut self, token: &[u8], label: String, config: FlowConfig, down: &Path) -> usize {
        let number = self.clients.len() as u8 + 2;
        let configuration = ontempo_session::configuration();
        let mut endpoint = Endpoint::new(configuration, [number; 32]);
        let token = Token::new(token).expect("short");
        let now = self.network.now();
        let id = endpoint.connect(now, address(1), "relay", &self.trust, token).expect("begins");
        let node = self.network.add(endpoint, address(number));
        self.network.join(node, RELAY, &clean(20_000), down);
        self.network.flush(node);
        let (flow, received, opened, ended, closed) = (None, Vec::new(), None, false, None);
        self.clients.push(Client {
            node,
            id,
            flow,
            label,
            config,
            received,
            opened,
            ended,
            closed,
            reads: true,
        });
        self.clients.len() - 1
    }

    fn source(&mut self, session: u128, before: u64, reliability: Reliability) -> usize {
        let label = Label { before, ..Label::of(session, Duration::from_millis(500), GRACE) };
        let order = DeliveryOrder::PartialOrder;
        let config = FlowConfig { order, reliability, label: String::new() };
        self.connect(b"publish", with_name(label, None), config, &clean(20_000))
    }

    fn viewer(&mut self, token: &[u8], down: &Path) -> usize {
        self.connect(token, REPORTS.to_owned(), FlowConfig::default(), down)
    }

    fn run(&mut self, span: Duration) {
        let until = self.network.now() + span;
        loop {
            let next = until.min(self.relay.next_timeout().max(self.network.now()));
            let stepped = self.network.step(next).is_some();
            let now = self.network.now();
            self.relay.work(now, self.network.endpoint(RELAY));
            self.network.flush(RELAY);
            self.most_held = self.most_held.max(self.relay.statistics().held);
            for place in 0..self.clients.len() {
                self.client_events(now, place);
            }
            if !stepped && now >= until {
                return;
            }
        }
    }

    fn client_events(&mut self, now: Time, place: usize) {
        let Self { network, clients, .. } = self;
        let client = &mut clients[place];
        let endpoint = network.endpoint(client.node);
        let mut touched = false;
        while let Some(event) = endpoint.poll_event() {
            touched = true;
            match event {
                Event::Connected { connection, .. } => {
                    let config =
                        FlowConfig { label: client.label.clone(), ..client.config.clone() };
                    let opened = endpoint.connection(connection).map(|c| c.open_flow(config));
                    client.flow = opened.and_then(Result::ok);
                }
                Event::FlowOpened { config, .. } => client.opened = Some(config),
                Event::Readable { connection, flow } if client.reads => {
                    let Some(connection) = endpoint.connection(connection) else { continue };
                    while let Some(delivery) = connection.receive(flow) {
                        if let Delivery::Unit(unit) = delivery {
                            client.received.push((unit.data.to_vec(), unit.depends_on));
                        }
                    }
                }
                Event::FlowEnded { .. } => {
                    client.ended = true;
                    let (Some(flow), true) = (client.flow, client.label == REPORTS) else {
                        continue;
                    };
                    let units = client.received.len() as u64;
                    let report = Report {
                        units,
                        is_final: true,
                        whole_datagrams: units,
                        ..Report::default()
                    };
                    say(now, endpoint, (client.id, flow), &report);
                }
                Event::Closed { closed, .. } => client.closed = Some(closed.reason),
                _ => {}
            }
        }
        if touched {
            network.flush(client.node);
        }
    }

    /// The source sends frame `number`.
    fn send(&mut self, place: usize, number: u64, deadline: bool) {
        let now = self.network.now();
        let client = &self.clients[place];
        let (id, flow, node) = (client.id, client.flow.expect("its flow"), client.node);
        let is_key = number.is_multiple_of(KEY_EVERY);
        let kind = if is_key { Kind::Key } else { Kind::Frame };
        let outgoing = Outgoing {
            data: frame(number),
            deadline: deadline.then(|| now + Duration::from_millis(500)),
            priority: kind.priority(),
            depends_on: if is_key { vec![] } else { vec![number - number % KEY_EVERY] },
            continues: None,
        };
        let connection = self.network.endpoint(node).connection(id).expect("a connection");
        assert_eq!(connection.send(now, flow, outgoing), Ok(number));
        self.network.flush(node);
    }

    fn stream(&mut self, place: usize, frames: std::ops::Range<u64>, deadline: bool) {
        for number in frames {
            self.send(place, number, deadline);
            self.run(FRAME);
        }
    }

    fn finish(&mut self, place: usize) {
        let client = &self.clients[place];
        let (id, flow, node) = (client.id, client.flow.expect("its flow"), client.node);
        let connection = self.network.endpoint(node).connection(id).expect("a connection");
        connection.finish_flow(flow);
        self.network.flush(node);
    }

    /// The numbers of the frames that a viewer has received.
    fn numbers(&self, place: usize) -> Vec<u64> {
        let number = |data: &[u8]| u64::from_be_bytes(data[..8].try_into().expect("8 bytes"));
        self.clients[place].received.iter().map(|(data, _)| number(data)).collect()
    }
}

fn say(now: Time, endpoint: &mut Endpoint, (id, flow): (ConnectionId, FlowId), report: &Report) {
    let text = serde_json::to_vec(report).expect("JSON");
    let connection = endpoint.connection(id).expect("a connection");
    let outgoing = Outgoing { data: text.into(), ..Outgoing::default() };
    connection.send(now, flow, outgoing).expect("sent");
    connection.finish_flow(flow);
}

fn frame(number: u64) -> Bytes {
    let mut data = number.to_be_bytes().to_vec();
    data.resize(FRAME_BYTES, number as u8);
    data.into()
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_stream_reaches_all_viewers_byte_by_byte_and_their_reports_reach_the_source() {
    let mut world = World::new(RelayOptions::default());
    let viewers =
        [world.viewer(b"publish", &clean(20_000)), world.viewer(b"publish", &clean(20_000))];
    let source = world.source(7, 0, Reliability::Full);
    world.run(SECOND);
    world.stream(source, 0..60, false);
    world.finish(source);
    world.run(SECOND);
    for viewer in viewers {
        let client = &world.clients[viewer];
        let data: Vec<&[u8]> = client.received.iter().map(|(data, _)| data.as_slice()).collect();
        assert!((0..60).map(frame).eq(data), "{:?}", world.numbers(viewer));
        assert_eq!(client.received[30].1, [25], "what a frame depends on");
        let opened = client.opened.as_ref().expect("a flow");
        let label: Label = split_name(&opened.label).expect("a label").0.parse().expect("a label");
        assert!(label.session != 7, "the session is a secret of the source");
        assert_eq!((label.latency, label.before), (Duration::from_millis(500), 0));
        assert!(client.ended && client.closed == Some(CloseReason::Done));
    }
    let (text, _) = world.clients[source].received.last().expect("a report");
    let report: RelayReport = serde_json::from_slice(text).expect("a report");
    assert!(report.report.is_final);
    assert_eq!((report.viewers.count, report.report.units), (2, 60));
    let statistics = world.relay.statistics();
    assert_eq!((statistics.held, statistics.viewers, statistics.streams.len()), (0, 0, 0));
}

#[test]
fn a_slow_viewer_gets_fewer_frames_and_a_fast_one_all_of_them() {
    let mut world = World::new(RelayOptions::default());
    let fast = world.viewer(b"publish", &clean(20_000));
    let slow = world.viewer(b"publish", &clean(600));
    let source = world.source(7, 0, Reliability::Deadline);
    world.run(SECOND);
    world.stream(source, 0..500, true);
    world.run(SECOND);
    assert!(world.numbers(fast).into_iter().eq(0..500), "{:?}", world.numbers(fast));
    let got = world.numbers(slow).len();
    // How many is decided by the send queue; at least the key frames, which go first.
    assert!((20..450).contains(&got), "{got} of 500 frames");
    // The budget: a flow's send queue, and a group of frames for new viewers.
    assert!(world.most_held < (2 << 20) + 25 * 5_300, "{} bytes", world.most_held);
}

#[test]
fn a_viewer_that_joins_midway_begins_at_a_key_frame() {
    let mut world = World::new(RelayOptions::default());
    let source = world.source(7, 0, Reliability::Deadline);
    world.run(SECOND);
    world.stream(source, 0..65, true);
    let viewer = world.viewer(b"publish", &clean(20_000));
    world.stream(source, 65..100, true);
    world.run(SECOND);
    assert!(world.numbers(viewer).into_iter().eq(75..100), "{:?}", world.numbers(viewer));
    let opened = world.clients[viewer].opened.as_ref().expect("a flow");
    assert!(opened.label.ends_with(" 1"), "it began midway: {}", opened.label);
    // A little after a key frame, at that one.
    world.stream(source, 100..103, true);
    let next = world.viewer(b"publish", &clean(20_000));
    world.stream(source, 103..120, true);
    let mut numbers = world.numbers(next);
    // Frames depend on the key frame alone: they may overtake each other, and never that one.
    assert_eq!(numbers[0], 100, "{numbers:?}");
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(100..120), "{numbers:?}");
}

#[test]
fn a_source_that_comes_back_continues_its_stream_and_another_is_refused() {
    let mut world = World::new(RelayOptions::default());
    let viewer = world.viewer(b"publish", &clean(20_000));
    let first = world.source(7, 0, Reliability::Full);
    world.run(SECOND);
    world.stream(first, 0..25, false);
    let other = world.source(8, 0, Reliability::Full);
    world.run(SECOND);
    assert_eq!(world.clients[other].closed, Some(CloseReason::Busy));
    let again = world.source(7, 1, Reliability::Full);
    world.run(SECOND);
    world.stream(again, 0..25, false);
    world.run(SECOND);
    assert!(world.numbers(viewer).into_iter().eq((0..25).chain(0..25)));
    assert_eq!(world.relay.statistics().streams.len(), 1);
}

#[test]
fn strangers_are_refused_and_the_token_of_viewers_does_not_publish() {
    let options = RelayOptions { has_viewers_token: true, ..RelayOptions::default() };
    let mut world = World::new(options);
    let stranger = world.viewer(b"neither", &clean(20_000));
    let viewer = world.viewer(b"view", &clean(20_000));
    let label = Label::of(9, Duration::from_millis(500), GRACE);
    let pirate = world.connect(b"view", label.to_string(), FlowConfig::default(), &clean(20_000));
    world.run(SECOND);
    assert_eq!(world.clients[stranger].closed, Some(CloseReason::WrongToken));
    assert_eq!(world.clients[pirate].closed, Some(CloseReason::WrongToken));
    assert_eq!(world.clients[viewer].closed, None);
    assert_eq!(world.relay.statistics().streams.len(), 0);
}

#[test]
fn viewers_beyond_the_places_are_refused_and_those_that_ask_nothing_lose_theirs() {
    let options = RelayOptions { viewers: 2, viewers_of_host: 1, ..RelayOptions::default() };
    let mut world = World::new(options);
    let served =
        [world.viewer(b"publish", &clean(20_000)), world.viewer(b"publish", &clean(20_000))];
    world.run(SECOND);
    let third = world.viewer(b"publish", &clean(20_000));
    world.run(SECOND);
    assert_eq!(world.clients[third].closed, Some(CloseReason::Refused));
    assert!(served.iter().all(|viewer| world.clients[*viewer].closed.is_none()));
    let silent = world.connect(b"publish", "x".repeat(300), FlowConfig::default(), &clean(20_000));
    world.run(Duration::from_secs(7));
    assert_eq!(world.clients[silent].closed, Some(CloseReason::NoAnswer));
}

#[test]
fn a_viewer_of_a_whole_stream_that_does_not_keep_up_is_closed_and_others_get_all() {
    let mut world = World::new(RelayOptions::default());
    let slow = world.viewer(b"publish", &clean(100));
    let fast = world.viewer(b"publish", &clean(20_000));
    let source = world.source(7, 0, Reliability::Full);
    world.run(SECOND);
    world.stream(source, 0..900, false);
    world.run(SECOND);
    assert_eq!(world.clients[slow].closed, Some(CloseReason::Overloaded));
    assert!(world.numbers(fast).into_iter().eq(0..900));
    assert!(world.most_held < 5 << 20, "{} bytes", world.most_held);
}

#[test]
fn a_budget_that_is_used_up_costs_the_viewer_that_holds_most() {
    let options = RelayOptions {
        memory: ontempo_foundation::Bytes::new(300_000),
        start: ontempo_foundation::Bytes::new(50_000),
        ..RelayOptions::default()
    };
    let mut world = World::new(options);
    let slow = world.viewer(b"publish", &clean(100));
    let fast = world.viewer(b"publish", &clean(20_000));
    let source = world.source(7, 0, Reliability::Full);
    world.run(SECOND);
    world.stream(source, 0..200, false);
    world.run(SECOND);
    assert_eq!(world.clients[slow].closed, Some(CloseReason::Overloaded));
    assert!(world.numbers(fast).into_iter().eq(0..200));
    assert!(world.most_held < 320_000, "{} bytes", world.most_held);
}

#[test]
fn a_report_that_cannot_be_read_ends_its_viewer_alone() {
    let mut world = World::new(RelayOptions::default());
    let (bad, good) =
        (world.viewer(b"publish", &clean(20_000)), world.viewer(b"publish", &clean(20_000)));
    let source = world.source(7, 0, Reliability::Deadline);
    world.run(SECOND);
    let now = world.network.now();
    let client = &world.clients[bad];
    let (id, flow, node) = (client.id, client.flow.expect("its flow"), client.node);
    let connection = world.network.endpoint(node).connection(id).expect("a connection");
    let outgoing = Outgoing { data: vec![b'['; 100_000].into(), ..Outgoing::default() };
    connection.send(now, flow, outgoing).expect("sent");
    world.network.flush(node);
    world.stream(source, 0..25, true);
    world.run(SECOND);
    assert_eq!(world.clients[bad].closed, Some(CloseReason::Unsupported));
    assert!(world.numbers(good).into_iter().eq(0..25));
}

#[test]
fn a_viewer_that_reads_nothing_holds_a_bounded_amount_and_disturbs_nobody() {
    let mut world = World::new(RelayOptions::default());
    let mute = world.viewer(b"publish", &clean(20_000));
    let other = world.viewer(b"publish", &clean(20_000));
    world.clients[mute].reads = false;
    let source = world.source(7, 0, Reliability::Deadline);
    world.run(SECOND);
    // 10 MB, more than what the viewer's system and the relay hold for it.
    world.stream(source, 0..2_000, true);
    world.run(SECOND);
    assert!(world.numbers(other).into_iter().eq(0..2_000), "{:?}", world.numbers(other));
    assert!(world.numbers(mute).is_empty());
    assert!(world.most_held < (2 << 20) + 25 * 5_300, "{} bytes", world.most_held);
}

#[test]
fn a_viewer_that_acknowledges_nothing_and_half_open_connections_hold_what_the_budget_says() {
    const HALF_OPEN: u8 = 200;
    let options = RelayOptions { has_viewers_token: true, ..RelayOptions::default() };
    let budget = configuration(&options);
    let mut world = World::new(options);
    let silent = world.viewer(b"view", &clean(20_000));
    let honest = world.viewer(b"view", &clean(20_000));
    let source = world.source(7, 0, Reliability::Deadline);
    world.run(SECOND);
    world.stream(source, 0..50, true);
    // From now on nothing comes from one viewer, though all comes to it.
    let mut lost = clean(20_000);
    lost.mishaps.stalls = vec![(world.network.now(), Time::NEVER)];
    let node = world.clients[silent].node;
    world.network.join(node, RELAY, &lost, &clean(20_000));
    let places = Configuration { connections: HALF_OPEN.into(), ..Configuration::default() };
    let mut attacker = Endpoint::new(places, [99; 32]);
    let (now, mut datagram) = (world.network.now(), Vec::new());
    for number in 0..HALF_OPEN {
        let token = Token::new(b"view").expect("short");
        attacker.connect(now, address(1), "relay", &world.trust, token).expect("it begins");
        let from = Ipv4Addr::new(172, 16, 0, number);
        while let Poll::Transmit(of) = attacker.poll_transmit(now, &mut datagram) {
            world.network.inject(RELAY, (from, 5_000).into(), &datagram[..of.size]);
        }
    }
    let (mut most, mut connections) = (0, 0);
    for number in 50..400 {
        world.send(source, number, true);
        world.run(FRAME);
        most = most.max(world.network.endpoint(RELAY).memory());
        connections = connections.max(world.network.endpoint(RELAY).connections());
    }
    world.run(SECOND);
    assert!(world.numbers(honest).into_iter().eq(0..400), "{:?}", world.numbers(honest));
    assert!(world.numbers(silent).len() < 400, "it acknowledged something");
    // One flow's send queue, and a group of frames with its overhead for new viewers.
    let units = budget.send_bytes.get() + KEY_EVERY * (FRAME_BYTES as u64 + 300);
    assert!(world.most_held <= units, "{} of {units} bytes", world.most_held);
    // The silent one, the honest one, the source, and those half open, of which unvalidated ones may have
    // an eighth of the places.
    let places = 3 + budget.half_open / 8;
    assert!((4..=places).contains(&connections), "{connections} of {places}");
    let received = places as u64 * (48 << 10) + 2 * FRAME_BYTES as u64 + (64 << 10);
    assert!(most <= received, "{most} of {received} bytes");
    assert_eq!(world.relay.statistics().viewers, 1, "the silent one has lost its place");
}

#[test]
fn ten_thousand_half_open_connections_are_bounded_and_disturb_no_viewer() {
    const ATTACKERS: usize = 10_000;
    const AT_ONCE: usize = 100;
    let options = RelayOptions { has_viewers_token: true, ..RelayOptions::default() };
    let budget = configuration(&options);
    let mut world = World::new(options);
    let viewer = world.viewer(b"view", &clean(20_000));
    let source = world.source(7, 0, Reliability::Deadline);
    world.run(SECOND);
    let places = Configuration { connections: ATTACKERS, ..Configuration::default() };
    let mut attacker = Endpoint::new(places, [99; 32]);
    let (mut most, mut datagram) = (0, Vec::new());
    for round in 0..ATTACKERS / AT_ONCE {
        for number in 0..AT_ONCE {
            let now = world.network.now();
            let token = Token::new(b"view").expect("short");
            attacker.connect(now, address(1), "relay", &world.trust, token).expect("it begins");
            // Each from a host of its own: one alone is limited further.
            let from = Ipv4Addr::new(172, 16, round as u8, number as u8);
            while let Poll::Transmit(of) = attacker.poll_transmit(now, &mut datagram) {
                world.network.inject(RELAY, (from, 5_000).into(), &datagram[..of.size]);
            }
        }
        most = most.max(world.network.endpoint(RELAY).connections());
        let memory = world.network.endpoint(RELAY).memory();
        assert!(memory <= budget.receive_memory.get(), "{memory} bytes");
        world.send(source, round as u64, true);
        world.run(FRAME);
    }
    world.run(SECOND);
    assert!(most > 50, "some were begun: {most}");
    assert!(most <= budget.half_open + 2, "{most} connections");
    assert!(world.numbers(viewer).into_iter().eq(0..100), "{:?}", world.numbers(viewer));
    // Their places are free again.
    world.run(Duration::from_secs(10));
    assert_eq!(world.network.endpoint(RELAY).connections(), 2);
    let late = world.viewer(b"view", &clean(20_000));
    world.run(SECOND);
    assert!(world.clients[late].opened.is_some());
}
