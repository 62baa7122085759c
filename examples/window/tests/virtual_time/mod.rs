//! Units over a path of virtual time, in one delivery order.

use std::net::{Ipv4Addr, SocketAddr};

use ontempo_foundation::{Duration, Rate, Time};
use ontempo_network::LossModel;
use ontempo_transport::simulated::{Network, Path};
use ontempo_transport::{
    Configuration, ConnectionId, Delivery, DeliveryOrder, Endpoint, Event, FlowConfig, FlowId,
    Identity, Outgoing, Reliability, SendError, Token, Trust,
};

/// The packets are the same in both orders, but for frames that give credit as units are delivered: a few bytes more
/// in a packet, which arrives some microseconds later.
pub(crate) const CREDIT: Duration = Duration::from_micros(100);

/// 5 % lost, a round trip of 100 ms.
fn path() -> [Path; 2] {
    let way = Path::clean(Rate::from_bits_per_sec(5_000_000), Duration::from_millis(50));
    let loss = LossModel::bernoulli(0.05).expect("a probability");
    [Path { loss, ..way.clone() }, way]
}

/// Two ends and what has happened to them.
struct World {
    network: Network,
    ids: [Option<ConnectionId>; 2],
    flow: Option<FlowId>,
    delivered: Vec<Option<Time>>,
}

impl World {
    fn new(seed: u64, units: usize) -> Self {
        let identity = Identity::self_signed(&["board"]).expect("a certificate");
        let token = Token::new(b"shared").expect("short");
        let address = |host| SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 4433));
        let mut near = Endpoint::new(Configuration::default(), [1; 32]);
        let mut far = Endpoint::new(Configuration::default(), [2; 32]);
        far.listen(&identity, token.clone()).expect("it listens");
        let trust = Trust::Fingerprint(identity.fingerprint());
        let id = near.connect(Time::ZERO, address(2), "board", &trust, token).expect("it begins");
        let mut network = Network::new(seed);
        network.add(near, address(1));
        network.add(far, address(2));
        let [there, back] = path();
        network.join(0, 1, &there, &back);
        network.flush(0);
        Self { network, ids: [Some(id), None], flow: None, delivered: vec![None; units] }
    }

    /// Runs to a time.
    fn run(&mut self, until: Time) {
        while self.network.step(until).is_some() {
            for node in [0, 1] {
                self.poll(node);
            }
        }
    }

    fn poll(&mut self, node: usize) {
        while let Some(event) = self.network.endpoint(node).poll_event() {
            match event {
                Event::Connected { connection, .. } => self.ids[node] = Some(connection),
                Event::FlowOpened { flow, .. } => self.flow = Some(flow),
                Event::Closed { closed, .. } => panic!("{closed}"),
                _ => {}
            }
        }
        let (Some(id), Some(flow)) = (self.ids[1], self.flow) else { return };
        let now = self.network.now();
        let Some(connection) = self.network.endpoint(1).connection(id) else { return };
        while let Some(delivery) = connection.receive(flow) {
            let Delivery::Unit(unit) = delivery else { panic!("{delivery:?}") };
            self.delivered[unit.id as usize] = Some(now);
        }
        self.network.flush(1);
    }
}

/// Sends units, one each `gap`; from its sending to its delivery, of each.
pub(crate) fn times(
    order: DeliveryOrder,
    seed: u64,
    units: &[(&[u8], &[u64])],
    gap: Duration,
) -> Vec<Duration> {
    let mut world = World::new(seed, units.len());
    let begun = Time::ZERO + Duration::from_secs(5);
    world.run(begun);
    let id = world.ids[0].expect("connected");
    let config = FlowConfig { order, reliability: Reliability::Full, label: String::new() };
    let flow =
        world.network.endpoint(0).connection(id).expect("open").open_flow(config).expect("a flow");
    let mut sent = Vec::new();
    for (number, (data, depends_on)) in units.iter().enumerate() {
        let due = begun + gap * number as u64;
        world.run(due.max(world.network.now()));
        loop {
            let now = world.network.now();
            let data = data.to_vec().into();
            let unit = Outgoing { data, depends_on: depends_on.to_vec(), ..Outgoing::default() };
            let connection = world.network.endpoint(0).connection(id).expect("open");
            match connection.send(now, flow, unit) {
                Ok(given) => {
                    assert_eq!(given, number as u64);
                    break;
                }
                Err(SendError::Full) => world.run(now + Duration::from_millis(1)),
                Err(error) => panic!("{error}"),
            }
        }
        world.network.flush(0);
        sent.push(due);
    }
    let until = world.network.now() + Duration::from_secs(60);
    world.run(until);
    let delivered = world.delivered.iter().map(|at| at.expect("every unit is delivered"));
    delivered.zip(sent).map(|(at, sent)| at.since(sent)).collect()
}
