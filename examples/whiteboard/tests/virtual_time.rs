//! Both orders in virtual time: the same objects over the same path, with the same losses.

use std::net::{Ipv4Addr, SocketAddr};

use ontempo_foundation::{Duration, RandomStream, Rate, Time};
use ontempo_network::LossModel;
use ontempo_transport::simulated::{Network, Path};
use ontempo_transport::{
    Configuration, ConnectionId, Delivery, DeliveryOrder, Endpoint, Event, FlowConfig, FlowId,
    Identity, Outgoing, Reliability, Token, Trust,
};
use ontempo_whiteboard::{Board, HEIGHT, Object, WIDTH};

/// An object each 20 ms, as of two participants who draw without a pause.
const GAP: Duration = Duration::from_millis(20);
const OBJECTS: u64 = 1_500;

/// The packets are the same in both orders, but for frames that give credit as units are delivered: a few bytes more
/// in a packet, which arrives some microseconds later.
const CREDIT: Duration = Duration::from_micros(100);

/// 5 % lost, a round trip of 100 ms.
fn path() -> [Path; 2] {
    let way = Path::clean(Rate::from_bits_per_sec(5_000_000), Duration::from_millis(50));
    let loss = LossModel::bernoulli(0.05).expect("a probability");
    [Path { loss, ..way.clone() }, way]
}

fn board(seed: u64) -> Board {
    let mut random = RandomStream::new(seed, "objects");
    let mut board = Board::new();
    for _ in 0..OBJECTS {
        let mut any = |most: i32| (random.next_u64() % most as u64) as i32;
        let from = (any(WIDTH - 60), any(HEIGHT - 40));
        let to = (from.0 + 8 + any(50), from.1 + 8 + any(30));
        let object = Object::Rectangle { from, to, colour: "#0b63c4".to_owned() };
        board.add(&object, vec![7; 120]).expect("it is not full");
    }
    board
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

/// From drawing to showing, of each unit.
fn times(order: DeliveryOrder, seed: u64) -> Vec<Duration> {
    let board = board(seed);
    let mut world = World::new(seed, board.entries().len());
    let begun = Time::ZERO + Duration::from_secs(5);
    world.run(begun);
    let id = world.ids[0].expect("connected");
    let config = FlowConfig { order, reliability: Reliability::Full, label: String::new() };
    let flow =
        world.network.endpoint(0).connection(id).expect("open").open_flow(config).expect("a flow");
    let mut drawn = Vec::new();
    for (number, entry) in board.entries().iter().enumerate() {
        let now = begun + GAP * (number as u64 + 1);
        world.run(now);
        let unit = Outgoing {
            data: entry.data.clone().into(),
            depends_on: entry.depends_on.clone(),
            ..Outgoing::default()
        };
        let connection = world.network.endpoint(0).connection(id).expect("open");
        assert_eq!(connection.send(now, flow, unit).expect("taken"), number as u64);
        world.network.flush(0);
        drawn.push(now);
    }
    let until = world.network.now() + Duration::from_secs(30);
    world.run(until);
    let shown = world.delivered.iter().map(|at| at.expect("every unit is delivered"));
    shown.zip(drawn).map(|(at, drawn)| at.since(drawn)).collect()
}

fn quantile(times: &[Duration], share: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[((sorted.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3
}

#[test]
fn in_partial_order_no_object_is_shown_later_and_many_are_sooner() {
    for seed in [1, 2, 3] {
        let in_order = times(DeliveryOrder::InOrder, seed);
        let partial = times(DeliveryOrder::PartialOrder, seed);
        let is_later =
            |(partial, in_order): &(&Duration, &Duration)| **partial > **in_order + CREDIT;
        let later = partial.iter().zip(&in_order).filter(is_later).count();
        assert_eq!(later, 0, "seed {seed}");
        let sooner = partial.iter().zip(&in_order).filter(|(partial, in_order)| partial < in_order);
        let sooner = sooner.count();
        let figures =
            [&in_order, &partial].map(|times| [0.5, 0.9, 0.95].map(|share| quantile(times, share)));
        println!(
            "seed {seed}: median, 90 and 95 %, ms: in order {:.1?}, partial order {:.1?}; sooner {sooner} of {}",
            figures[0],
            figures[1],
            partial.len()
        );
        assert!(sooner > partial.len() / 10, "seed {seed}: {sooner}");
        assert!(figures[1][0] <= figures[0][0] && figures[1][1] < figures[0][1], "{figures:?}");
    }
}
