//! A client and a server over a simulated network, their applications and their events.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::OnceLock;

use ontempo_foundation::Time;
use ontempo_transport::simulated::{Network, Path};
use ontempo_transport::{
    Configuration, Connection, ConnectionId, Delivery, Endpoint, Event, FlowConfig, FlowId,
    Identity, Poll, Token, Trust,
};

pub(crate) const CLIENT: usize = 0;
pub(crate) const SERVER: usize = 1;

pub(crate) fn address(host: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 4433))
}

/// An identity for all tests, because generating one takes time.
pub(crate) fn identity() -> &'static Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(|| Identity::self_signed(&["server"]).expect("a certificate can be made"))
}

pub(crate) fn seed_bytes(seed: u64, node: usize) -> [u8; 32] {
    let mut bytes = [node as u8; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes
}

/// All datagrams that an endpoint has to send.
pub(crate) fn datagrams(now: Time, endpoint: &mut Endpoint) -> Vec<Vec<u8>> {
    let (mut sent, mut out) = (Vec::new(), Vec::new());
    while let Poll::Transmit(transmit) = endpoint.poll_transmit(now, &mut out) {
        let segment = transmit.segment.unwrap_or(transmit.size);
        sent.extend(out[..transmit.size].chunks(segment).map(<[u8]>::to_vec));
    }
    sent
}

/// A client and a server connected by a network, and all their events.
pub(crate) struct World {
    pub(crate) network: Network,
    pub(crate) ids: [Option<ConnectionId>; 2],
    pub(crate) events: [Vec<Event>; 2],
    /// Deliveries that the server's application has read, by flow.
    pub(crate) delivered: BTreeMap<FlowId, Vec<Delivery>>,
    /// False: the server's application reads nothing.
    pub(crate) reads: bool,
}

impl World {
    pub(crate) fn new(seed: u64, path: &Path, back: &Path, config: &Configuration) -> Self {
        let token = Token::new(b"shared").expect("short");
        Self::with(seed, path, back, [config.clone(), config.clone()], token)
    }

    pub(crate) fn with(
        seed: u64,
        path: &Path,
        back: &Path,
        configs: [Configuration; 2],
        token: Token,
    ) -> Self {
        let [client_config, server_config] = configs;
        let mut client = Endpoint::new(client_config, seed_bytes(seed, CLIENT));
        let mut server = Endpoint::new(server_config, seed_bytes(seed, SERVER));
        let shared = Token::new(b"shared").expect("short");
        server.listen(identity(), shared).expect("the identity can be used");
        let trust = Trust::Fingerprint(identity().fingerprint());
        let id = client
            .connect(Time::ZERO, address(2), "server", &trust, token)
            .expect("the handshake can be started");
        let mut network = Network::new(seed);
        network.keep_passages();
        network.add(client, address(1));
        network.add(server, address(2));
        network.join(CLIENT, SERVER, path, back);
        network.flush(CLIENT);
        Self {
            network,
            ids: [Some(id), None],
            events: [Vec::new(), Vec::new()],
            delivered: BTreeMap::new(),
            reads: true,
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.network.now()
    }

    pub(crate) fn connection(&mut self, node: usize) -> Option<&mut Connection> {
        let id = self.ids[node]?;
        self.network.endpoint(node).connection(id)
    }

    pub(crate) fn client(&mut self) -> &mut Connection {
        self.connection(CLIENT).expect("the client's connection exists")
    }

    /// Processes the next event of the network up to `until`; false if there is none.
    pub(crate) fn step(&mut self, until: Time) -> bool {
        let stepped = self.network.step(until);
        for node in [CLIENT, SERVER] {
            self.poll_events(node);
        }
        stepped.is_some()
    }

    fn poll_events(&mut self, node: usize) {
        while let Some(event) = self.network.endpoint(node).poll_event() {
            match &event {
                Event::Connected { connection, .. } => self.ids[node] = Some(*connection),
                Event::FlowEnded { connection, flow, .. } => {
                    let found = self.network.endpoint(node).connection(*connection);
                    found.into_iter().for_each(|found| found.release_flow(*flow));
                    self.network.flush(node);
                }
                _ => {}
            }
            self.events[node].push(event);
        }
        if node == SERVER && self.reads && self.read_all() {
            self.network.flush(SERVER);
            self.poll_events(SERVER);
        }
    }

    /// The server's application reads all ready deliveries; true if there were any.
    fn read_all(&mut self) -> bool {
        let flows: Vec<FlowId> = self.events[SERVER]
            .iter()
            .filter_map(|event| match event {
                Event::FlowOpened { flow, .. } => Some(*flow),
                _ => None,
            })
            .collect();
        let Some(id) = self.ids[SERVER] else { return false };
        let mut any = false;
        for flow in flows {
            let Some(connection) = self.network.endpoint(SERVER).connection(id) else { break };
            while let Some(delivery) = connection.receive(flow) {
                any = true;
                self.delivered.entry(flow).or_default().push(delivery);
            }
        }
        any
    }

    /// Runs until `done` is true, at most to `until`; false if `until` came first.
    pub(crate) fn run(&mut self, until: Time, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        while !done(self) {
            if !self.step(until) {
                return done(self);
            }
        }
        true
    }

    pub(crate) fn connect(&mut self) {
        assert!(self.connects(false), "no connection by {}: {:?}", self.now(), self.events);
    }

    /// Runs the handshake, or, if `early`, until the client may send; false if it failed, which the client must have
    /// reported.
    pub(crate) fn connects(&mut self, early: bool) -> bool {
        let until = self.now() + ontempo_foundation::Duration::from_secs(60);
        let open = self.run(until, |world| {
            let is_early = early && world.connection(CLIENT).is_some_and(|it| it.is_early());
            is_early || world.is_open(CLIENT) && world.is_open(SERVER)
        });
        let closed = self.events[CLIENT].iter().any(|event| matches!(event, Event::Closed { .. }));
        assert!(open || closed, "neither open nor closed by {}", self.now());
        open
    }

    pub(crate) fn is_open(&mut self, node: usize) -> bool {
        self.events[node].iter().any(|event| matches!(event, Event::Connected { .. }))
    }

    pub(crate) fn open_flow(&mut self, config: FlowConfig) -> FlowId {
        let flow = self.client().open_flow(config).expect("a flow can be opened");
        self.network.flush(CLIENT);
        flow
    }

    /// Deliveries that the server's application has read from a flow of the client.
    pub(crate) fn delivered(&self, flow: FlowId) -> &[Delivery] {
        let incoming = FlowId { outgoing: false, ..flow };
        self.delivered.get(&incoming).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn has_ended(&self, flow: FlowId) -> bool {
        self.events[SERVER].iter().any(
            |event| matches!(event, Event::FlowEnded { flow: ended, .. } if ended.number == flow.number),
        )
    }
}
