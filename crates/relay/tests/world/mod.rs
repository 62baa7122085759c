//! A relay on some threads, a source and viewers in virtual time, in which each thread has its turn after the other.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU8;

use bytes::Bytes;
use ontempo_foundation::{Duration, Rate, Time};
use ontempo_media::Kind;
use ontempo_relay::{
    Access, Relay, RelayEvent, RelayOptions, RelayStatistics, configuration, endpoints,
};
use ontempo_session::latency::GRACE;
use ontempo_session::message::{Label, REPORTS, Report};
use ontempo_session::with_name;
use ontempo_transport::simulated::{Network, Path};
use ontempo_transport::{
    CloseReason, Configuration, ConnectionId, Delivery, DeliveryOrder, Endpoint, Event, FlowConfig,
    FlowId, Identity, Outgoing, Reliability, Token, Trust,
};

/// The node of the relay's first thread; the others follow.
pub(crate) const RELAY: usize = 0;

/// 25 frames a second of 5,000 bytes: 1 Mbit/s.
pub(crate) const FRAME: Duration = Duration::from_millis(40);
pub(crate) const FRAME_BYTES: usize = 5_000;
pub(crate) const KEY_EVERY: u64 = 25;

pub(crate) fn address(host: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 4433))
}

pub(crate) fn clean(kbit: u64) -> Path {
    Path::clean(Rate::from_bits_per_sec(kbit * 1000), Duration::from_millis(10))
}

/// A client of the relay: a source or a viewer.
pub(crate) struct Client {
    pub(crate) node: usize,
    pub(crate) id: ConnectionId,
    /// Its own flow: of units, or of reports.
    pub(crate) flow: Option<FlowId>,
    pub(crate) label: String,
    pub(crate) config: FlowConfig,
    pub(crate) received: Vec<(Vec<u8>, Vec<u64>)>,
    pub(crate) opened: Option<FlowConfig>,
    pub(crate) ended: bool,
    pub(crate) closed: Option<CloseReason>,
    /// False: its program takes nothing of what has come.
    pub(crate) reads: bool,
}

pub(crate) struct World {
    pub(crate) network: Network,
    /// The part of each thread.
    pub(crate) relays: Vec<Relay>,
    pub(crate) trust: Trust,
    pub(crate) clients: Vec<Client>,
    /// Most bytes of units that were held at a time.
    pub(crate) most_held: u64,
}

impl World {
    pub(crate) fn new(options: RelayOptions, threads: u8) -> Self {
        let threads = NonZeroU8::new(threads).expect("some");
        let options = RelayOptions { threads, ..options };
        let identity = Identity::self_signed(&["relay"]).expect("an identity");
        let token = |text: &[u8]| Token::new(text).expect("short");
        let viewers = options.has_viewers_token.then(|| token(b"view"));
        let access = Access { identity: &identity, sources: token(b"publish"), viewers };
        let mut seed = 0;
        let next = || {
            seed += 1;
            [seed; 32]
        };
        let endpoints = endpoints(&configuration(&options), &access, &options, next);
        let mut network = Network::new(1);
        network.add_group(endpoints.expect("they listen"), address(1));
        let trust = Trust::Fingerprint(identity.fingerprint());
        let (clients, relays) = (Vec::new(), Relay::parts(options, 1));
        Self { network, relays, trust, clients, most_held: 0 }
    }

    /// The paths of a client to and from all threads.
    pub(crate) fn join(&mut self, node: usize, up: &Path, down: &Path) {
        self.network.join(node, RELAY, up, down);
        (1..self.relays.len()).for_each(|relay| self.network.join_beside(relay, RELAY, node));
    }

    /// A datagram of an attacker.
    pub(crate) fn inject(&mut self, from: SocketAddr, datagram: &[u8]) {
        let to = self.network.endpoint(RELAY).share().owner(datagram);
        self.network.inject(to, from, datagram);
    }

    /// All threads have their turns until none has sent another anything.
    pub(crate) fn work(&mut self, now: Time) {
        loop {
            for (node, relay) in self.relays.iter_mut().enumerate() {
                relay.work(now, self.network.endpoint(node));
                self.network.flush(node);
            }
            if self.relays.iter().all(|relay| relay.next_timeout() > now) {
                return;
            }
        }
    }

    pub(crate) fn statistics(&self) -> RelayStatistics {
        // The last has what all have reported.
        let all: Vec<RelayStatistics> = self.relays.iter().map(Relay::statistics).collect();
        all.last().expect("a thread").clone()
    }

    /// Connections and memory of all threads.
    pub(crate) fn connections(&mut self) -> usize {
        (0..self.relays.len()).map(|relay| self.network.endpoint(relay).connections()).sum()
    }

    pub(crate) fn memory(&mut self) -> u64 {
        (0..self.relays.len()).map(|relay| self.network.endpoint(relay).memory()).sum()
    }

    pub(crate) fn connect(
        &mut self,
        token: &[u8],
        label: String,
        config: FlowConfig,
        down: &Path,
    ) -> usize {
        let configuration = ontempo_session::configuration();
        self.connect_with(configuration, token, (label, config), down)
    }

    pub(crate) fn connect_with(
        &mut self,
        configuration: Configuration,
        token: &[u8],
        (label, config): (String, FlowConfig),
        down: &Path,
    ) -> usize {
        let number = self.clients.len() as u8 + 2;
        let mut endpoint = Endpoint::new(configuration, [number; 32]);
        let token = Token::new(token).expect("short");
        let now = self.network.now();
        let id = endpoint.connect(now, address(1), "relay", &self.trust, token).expect("begins");
        let node = self.network.add(endpoint, address(number));
        self.join(node, &clean(20_000), down);
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

    pub(crate) fn source(&mut self, session: u128, before: u64, reliability: Reliability) -> usize {
        let label = Label { before, ..Label::of(session, Duration::from_millis(500), GRACE) };
        let order = DeliveryOrder::PartialOrder;
        let config = FlowConfig { order, reliability, label: String::new() };
        self.connect(b"publish", with_name(label, None), config, &clean(20_000))
    }

    pub(crate) fn viewer(&mut self, token: &[u8], down: &Path) -> usize {
        self.connect(token, REPORTS.to_owned(), FlowConfig::default(), down)
    }

    pub(crate) fn run(&mut self, span: Duration) {
        let until = self.network.now() + span;
        loop {
            let due = self.relays.iter().map(Relay::next_timeout).min().expect("a thread");
            let next = until.min(due.max(self.network.now()));
            let stepped = self.network.step(next).is_some();
            let now = self.network.now();
            self.work(now);
            self.most_held = self.most_held.max(self.statistics().held);
            for place in 0..self.clients.len() {
                self.client_events(now, place);
            }
            if !stepped && now >= until {
                return;
            }
        }
    }

    pub(crate) fn client_events(&mut self, now: Time, place: usize) {
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
    pub(crate) fn send(&mut self, place: usize, number: u64, deadline: bool) {
        let is_key = number.is_multiple_of(KEY_EVERY);
        let kind = if is_key { Kind::Key } else { Kind::Frame };
        let outgoing = Outgoing {
            priority: kind.priority(),
            depends_on: if is_key { vec![] } else { vec![number - number % KEY_EVERY] },
            ..plain(number, FRAME_BYTES)
        };
        self.send_units(place, deadline, [(number, outgoing)]);
    }

    /// The source sends units of these numbers at once.
    pub(crate) fn send_units(
        &mut self,
        place: usize,
        deadline: bool,
        units: impl IntoIterator<Item = (u64, Outgoing)>,
    ) {
        let now = self.network.now();
        let client = &self.clients[place];
        let (id, flow, node) = (client.id, client.flow.expect("its flow"), client.node);
        let deadline = deadline.then(|| now + Duration::from_millis(500));
        let connection = self.network.endpoint(node).connection(id).expect("a connection");
        for (number, unit) in units {
            assert_eq!(connection.send(now, flow, Outgoing { deadline, ..unit }), Ok(number));
        }
        self.network.flush(node);
    }

    pub(crate) fn stream(&mut self, place: usize, frames: std::ops::Range<u64>, deadline: bool) {
        for number in frames {
            self.send(place, number, deadline);
            self.run(FRAME);
        }
    }

    /// As [`stream`](Self::stream), without key frames.
    pub(crate) fn stream_plain(
        &mut self,
        place: usize,
        units: std::ops::Range<u64>,
        deadline: bool,
    ) {
        for number in units {
            self.send_units(place, deadline, [(number, plain(number, FRAME_BYTES))]);
            self.run(FRAME);
        }
    }

    /// A client closes its connection.
    pub(crate) fn leave(&mut self, place: usize) {
        let now = self.network.now();
        let Client { id, node, .. } = self.clients[place];
        let connection = self.network.endpoint(node).connection(id).expect("a connection");
        connection.close(now, "it leaves");
        self.network.flush(node);
    }

    /// What has happened, as it is asked of one thread after the other.
    pub(crate) fn events(&mut self) -> Vec<RelayEvent> {
        let of =
            |relay: &mut Relay| -> Vec<_> { std::iter::from_fn(|| relay.poll_event()).collect() };
        self.relays.iter_mut().flat_map(of).collect()
    }

    pub(crate) fn finish(&mut self, place: usize) {
        let client = &self.clients[place];
        let (id, flow, node) = (client.id, client.flow.expect("its flow"), client.node);
        let connection = self.network.endpoint(node).connection(id).expect("a connection");
        connection.finish_flow(flow);
        self.network.flush(node);
    }

    /// The numbers of the frames that a viewer has received.
    pub(crate) fn numbers(&self, place: usize) -> Vec<u64> {
        let number = |data: &[u8]| u64::from_be_bytes(data[..8].try_into().expect("8 bytes"));
        self.clients[place].received.iter().map(|(data, _)| number(data)).collect()
    }
}

pub(crate) fn say(
    now: Time,
    endpoint: &mut Endpoint,
    (id, flow): (ConnectionId, FlowId),
    report: &Report,
) {
    let text = serde_json::to_vec(report).expect("JSON");
    let connection = endpoint.connection(id).expect("a connection");
    let outgoing = Outgoing { data: text.into(), ..Outgoing::default() };
    connection.send(now, flow, outgoing).expect("sent");
    connection.finish_flow(flow);
}

pub(crate) fn frame(number: u64) -> Bytes {
    plain(number, FRAME_BYTES).data
}

/// A unit of no frame, on which nothing depends.
pub(crate) fn plain(number: u64, size: usize) -> Outgoing {
    let mut data = number.to_be_bytes().to_vec();
    data.resize(size, number as u8);
    let priority = Kind::Datagram.priority();
    Outgoing { data: data.into(), priority, ..Outgoing::default() }
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);
