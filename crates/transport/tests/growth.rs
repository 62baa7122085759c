//! What connections hold that stay open for hours, counted by the allocator, in virtual time.

use std::net::SocketAddr;

use bytes::Bytes;
use ontempo_foundation::{Duration, Rate, Time};
use ontempo_testing::CountingAllocator;
use ontempo_transport::simulated::{Network, Path};
use ontempo_transport::{
    Configuration, ConnectionId, Endpoint, Event, FlowConfig, FlowId, Identity, Outgoing, Token,
    Trust,
};

#[global_allocator]
static HEAP: CountingAllocator = CountingAllocator::new();

const CONNECTIONS: usize = 50;

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 4433))
}

struct World {
    network: Network,
    flows: Vec<(ConnectionId, FlowId)>,
}

impl World {
    fn new() -> Self {
        let identity = Identity::self_signed(&["server"]).expect("made");
        let mut server = Endpoint::new(Configuration::default(), [2; 32]);
        server.listen(&identity, Token::anyone()).expect("usable");
        let mut network = Network::new(1);
        let client = network.add(Endpoint::new(Configuration::default(), [1; 32]), address(1));
        let server = network.add(server, address(2));
        let path = Path::clean(Rate::from_bits_per_sec(1_000_000_000), Duration::from_millis(5));
        network.join(client, server, &path, &path);
        let mut world = Self { network, flows: Vec::new() };
        let trust = Trust::Fingerprint(identity.fingerprint());
        for _ in 0..CONNECTIONS {
            let now = world.network.now();
            let client = world.network.endpoint(0);
            client.connect(now, address(2), "server", &trust, Token::anyone()).expect("begun");
            world.network.flush(0);
            world.run(Duration::from_millis(100));
        }
        assert_eq!(world.flows.len(), CONNECTIONS);
        world
    }

    fn run(&mut self, span: Duration) {
        let until = self.network.now() + span;
        while self.network.step(until).is_some() {
            while let Some(event) = self.network.endpoint(0).poll_event() {
                if let Event::Connected { connection, .. } = event {
                    let found = self.network.endpoint(0).connection(connection).expect("open");
                    let flow = found.open_flow(FlowConfig::default()).expect("a flow");
                    self.flows.push((connection, flow));
                    self.network.flush(0);
                }
            }
            while let Some(event) = self.network.endpoint(1).poll_event() {
                if let Event::FlowOpened { connection, flow, .. }
                | Event::Readable { connection, flow } = event
                {
                    let found = self.network.endpoint(1).connection(connection);
                    if let Some(found) = found {
                        while found.receive(flow).is_some() {}
                    }
                    self.network.flush(1);
                }
            }
        }
    }

    /// A unit on each connection.
    fn send(&mut self) {
        let now = self.network.now();
        for (connection, flow) in &self.flows {
            let found = self.network.endpoint(0).connection(*connection).expect("open");
            let unit = Outgoing { data: Bytes::from(vec![7; 3_000]), ..Outgoing::default() };
            found.send(now, *flow, unit).expect("sent");
        }
        self.network.flush(0);
    }
}

/// Bytes for each connection at both ends after each of some spans, of which `each` is repeated
/// every minute.
fn held(mut each: impl FnMut(&mut World)) -> Vec<usize> {
    let mut world = World::new();
    let before = HEAP.held();
    let _ = before;
    let mut all = Vec::new();
    for _ in 0..6 {
        for _ in 0..10 {
            each(&mut world);
            world.run(Duration::from_secs(60));
        }
        all.push(HEAP.held() / CONNECTIONS);
    }
    assert!(world.network.now() > Time::ZERO);
    all
}

#[test]
fn open_connections_hold_as_much_after_an_hour_as_after_ten_minutes() {
    let idle = held(|_| {});
    println!("idle: {idle:?} bytes a connection, both ends");
    let used = held(World::send);
    println!("one unit a minute: {used:?} bytes a connection, both ends");
    for all in [idle, used] {
        assert!(all[5] <= all[0] + 200, "{all:?}");
    }
}
