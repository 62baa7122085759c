//! Which congestion control suits media best: `cargo bench -p ontempo-transport --bench
//! controllers`.
//!
//! Everything runs in virtual time, so the results do not depend on the machine. One connection
//! sends video (4 Mbit/s, 25 units a second, each
//! dropped 1.5 round trips and 100 ms after it was made) and endless data, over 10 Mbit/s,
//! alone or beside a CUBIC connection that sends endless data. It prints the share of video units
//! that arrived late or never, the goodput of video and data, and the queueing delay of the
//! connection's packets at the bottleneck.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use ontempo_foundation::{Duration, Packets, Rate, Time};
use ontempo_network::LossModel;
use ontempo_transport::simulated::{Network, Path};
use ontempo_transport::{
    Configuration, CongestionName, ConnectionId, Delivery, DeliveryOrder, Endpoint, Event,
    FlowConfig, FlowId, Identity, Outgoing, Reliability, Token, Trust,
};

const RATE: Rate = Rate::from_bits_per_sec(10_000_000);
/// Bytes of a packet with the headers of IPv4 and UDP.
const PACKET: f64 = 1_228.0;
const FRAME: Duration = Duration::from_millis(40);
const FRAME_BYTES: usize = 20_000;
const DATA_BYTES: usize = 10_000;
/// Measuring starts here, after the start of congestion control.
const FROM: Time = Time::from_nanos(5_000_000_000);
const UNTIL: Time = Time::from_nanos(35_000_000_000);

const MEDIA: usize = 0;
const SERVER: usize = 1;
const OTHER: usize = 2;

const CONTROLS: [CongestionName; 6] = [
    CongestionName::Pert,
    CongestionName::Cubic,
    CongestionName::NewReno,
    CongestionName::Bbr,
    CongestionName::Psp,
    CongestionName::PspDamped,
];

/// The setting of one run.
#[derive(Clone, Copy, Debug)]
struct Setting {
    control: CongestionName,
    round_trip: Duration,
    /// As a multiple of the bandwidth-delay product.
    buffer: f64,
    loss: f64,
    beside_cubic: bool,
}

/// The result of one run.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// Share of late or lost video units, 0 to 1.
    late: f64,
    /// Video and data, Mbit/s.
    goodput: f64,
    /// Goodput of the other connection, Mbit/s.
    other: f64,
    /// Queueing delay, mean and 95th percentile, ms.
    queueing: [f64; 2],
}

fn address(host: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 4433))
}

/// A connection's sender.
struct Sender {
    node: usize,
    id: ConnectionId,
    open: bool,
    video: Option<FlowId>,
    data: Option<FlowId>,
    next_frame: Time,
    /// When each frame was made.
    made: Vec<Time>,
}

impl Sender {
    fn start(network: &mut Network, node: usize, endpoint: Endpoint, identity: &Identity) -> Self {
        let at = network.add(endpoint, address(node as u8 + 1));
        assert_eq!(at, node);
        let trust = Trust::Fingerprint(identity.fingerprint());
        let id = network
            .endpoint(node)
            .connect(Time::ZERO, address(2), "server", &trust, Token::anyone())
            .expect("the handshake can be started");
        Self {
            node,
            id,
            open: false,
            video: None,
            data: None,
            next_frame: Time::ZERO,
            made: Vec::new(),
        }
    }

    /// Sends a due frame, and data while the send queue has space; returns the time of the next
    /// frame.
    fn send_due(&mut self, network: &mut Network, lifetime: Duration) -> Time {
        let now = network.now();
        while let Some(event) = network.endpoint(self.node).poll_event() {
            match event {
                Event::Connected { .. } => self.open = true,
                Event::Closed { closed, .. } => panic!("node {}: {closed}", self.node),
                _ => {}
            }
        }
        if !self.open {
            return UNTIL;
        }
        let connection = network.endpoint(self.node).connection(self.id).expect("it is open");
        if self.data.is_none() {
            let data = FlowConfig { order: DeliveryOrder::InOrder, ..FlowConfig::default() };
            self.data = connection.open_flow(data).ok();
            if self.node == MEDIA {
                let video = FlowConfig {
                    order: DeliveryOrder::OutOfOrder,
                    reliability: Reliability::Deadline,
                    label: "video".to_owned(),
                };
                self.video = connection.open_flow(video).ok();
                self.next_frame = now;
            }
        }
        if let (Some(video), true) = (self.video, now >= self.next_frame) {
            let unit = Outgoing {
                data: Bytes::from_static(&[7; FRAME_BYTES]),
                deadline: Some(now + lifetime),
                priority: 200,
                ..Outgoing::default()
            };
            // A frame that finds the send queue full counts as late.
            if connection.send(now, video, unit).is_ok() {
                self.made.push(now);
            }
            self.next_frame += FRAME;
        }
        if let Some(data) = self.data {
            let unit =
                Outgoing { data: Bytes::from_static(&[1; DATA_BYTES]), ..Outgoing::default() };
            while connection.send(now, data, unit.clone()).is_ok() {}
        }
        if self.video.is_some() { self.next_frame } else { UNTIL }
    }
}

/// Received by the server: the arrival of each video unit, and bytes since `FROM`.
#[derive(Default)]
struct Received {
    accepted: Vec<ConnectionId>,
    video: BTreeMap<u64, Time>,
    is_video: BTreeMap<(ConnectionId, FlowId), bool>,
    bytes: BTreeMap<ConnectionId, u64>,
}

impl Received {
    fn read(&mut self, network: &mut Network) {
        let now = network.now();
        let server = network.endpoint(SERVER);
        while let Some(event) = server.poll_event() {
            match event {
                Event::Connected { connection, .. } => self.accepted.push(connection),
                Event::FlowOpened { connection, flow, config } => {
                    self.is_video.insert((connection, flow), config.label == "video");
                }
                _ => {}
            }
        }
        let mut any = false;
        for ((id, flow), is_video) in &self.is_video {
            let Some(connection) = server.connection(*id) else { continue };
            while let Some(delivery) = connection.receive(*flow) {
                any = true;
                let Delivery::Unit(unit) = delivery else { continue };
                if now >= FROM {
                    *self.bytes.entry(*id).or_default() += unit.data.len() as u64;
                }
                if *is_video {
                    self.video.insert(unit.id, unit.arrived);
                }
            }
        }
        if any {
            network.flush(SERVER);
        }
    }
}

fn run(setting: &Setting, identity: &Identity) -> Outcome {
    let mut path = Path::clean(RATE, setting.round_trip / 2);
    let product = RATE.as_bits_per_sec() as f64 / 8.0 * setting.round_trip.as_secs_f64();
    let back = path.clone();
    path.buffer = Packets::new((setting.buffer * product / PACKET).round().max(2.0) as u64);
    path.loss = LossModel::bernoulli(setting.loss).expect("a probability");
    let lifetime = setting.round_trip * 3 / 2 + Duration::from_millis(100);

    let mut network = Network::new(1);
    network.keep_passages();
    let with = |name: CongestionName| Configuration {
        congestion: name.into(),
        ..Configuration::default()
    };
    let client = Endpoint::new(with(setting.control), [1; 32]);
    let mut senders = vec![Sender::start(&mut network, MEDIA, client, identity)];
    let mut server = Endpoint::new(Configuration::default(), [2; 32]);
    server.listen(identity, Token::anyone()).expect("the identity can be used");
    network.add(server, address(2));
    network.join(MEDIA, SERVER, &path, &back);
    if setting.beside_cubic {
        let other = Endpoint::new(with(CongestionName::Cubic), [3; 32]);
        senders.push(Sender::start(&mut network, OTHER, other, identity));
        network.join_beside(OTHER, MEDIA, SERVER);
    }
    let mut received = Received::default();
    loop {
        let mut next = UNTIL;
        for sender in &mut senders {
            next = next.min(sender.send_due(&mut network, lifetime));
            network.flush(sender.node);
        }
        if network.now() >= UNTIL {
            break;
        }
        network.step(next);
        received.read(&mut network);
    }
    outcome(setting, lifetime, &network, &senders[0], &received)
}

fn outcome(
    setting: &Setting,
    lifetime: Duration,
    network: &Network,
    media: &Sender,
    received: &Received,
) -> Outcome {
    let frames = (UNTIL.since(FROM).as_nanos() - lifetime.as_nanos()) / FRAME.as_nanos();
    let until = UNTIL - lifetime;
    let in_time = media.made.iter().zip(0u64..).filter(|(made, id)| {
        (FROM..until).contains(made)
            && received.video.get(id).is_some_and(|arrived| arrived.since(**made) <= lifetime)
    });
    let late = 1.0 - (in_time.count() as f64 / frames as f64).min(1.0);
    let seconds = UNTIL.since(FROM).as_secs_f64();
    let videos =
        |id: &ConnectionId| received.is_video.iter().any(|((of, _), video)| of == id && *video);
    let (mut goodput, mut other) = (0.0, 0.0);
    for (id, bytes) in &received.bytes {
        let rate = *bytes as f64 * 8.0 / seconds / 1e6;
        if videos(id) { goodput += rate } else { other += rate }
    }
    let mut delays: Vec<f64> = network
        .passages()
        .iter()
        .filter(|passage| passage.from == MEDIA && passage.left >= FROM)
        .filter_map(|passage| {
            let bits = (passage.size + 28) as f64 * 8.0;
            let alone =
                bits / RATE.as_bits_per_sec() as f64 + setting.round_trip.as_secs_f64() / 2.0;
            Some((passage.arrives?.since(passage.left).as_secs_f64() - alone) * 1e3)
        })
        .collect();
    delays.sort_by(f64::total_cmp);
    let mean = delays.iter().sum::<f64>() / delays.len().max(1) as f64;
    let p95 = delays.get(delays.len() * 95 / 100).copied().unwrap_or(0.0);
    Outcome { late, goodput, other, queueing: [mean, p95] }
}

fn settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    for beside_cubic in [false, true] {
        for round_trip in [20, 100, 300].map(Duration::from_millis) {
            for buffer in [0.5, 1.0, 4.0] {
                for loss in [0.0, 0.01, 0.05] {
                    settings.extend(CONTROLS.map(|control| Setting {
                        control,
                        round_trip,
                        buffer,
                        loss,
                        beside_cubic,
                    }));
                }
            }
        }
    }
    settings
}

fn run_all(settings: &[Setting], identity: &Identity) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(vec![Outcome::default(); settings.len()]);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some((place, setting)) = {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    settings.get(place).map(|setting| (place, setting))
                } {
                    let outcome = run(setting, identity);
                    outcomes.lock().expect("no panic with the lock")[place] = outcome;
                }
            });
        }
    });
    outcomes.into_inner().expect("no panic with the lock")
}

fn print_means(settings: &[Setting], outcomes: &[Outcome]) {
    println!(
        "\n| control | setting | late, % | goodput, Mbit/s | the other's | queueing, ms | 95 % |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for control in CONTROLS {
        for beside_cubic in [false, true] {
            for lossy in [false, true] {
                let of: Vec<&Outcome> = settings
                    .iter()
                    .zip(outcomes)
                    .filter(|(setting, _)| {
                        setting.control == control
                            && setting.beside_cubic == beside_cubic
                            && (setting.loss > 0.0) == lossy
                    })
                    .map(|(_, outcome)| outcome)
                    .collect();
                let mean = |read: fn(&Outcome) -> f64| {
                    of.iter().map(|outcome| read(outcome)).sum::<f64>() / of.len() as f64
                };
                println!(
                    "| {} | {}, {} | {:.1} | {:.2} | {:.2} | {:.0} | {:.0} |",
                    control.name(),
                    if beside_cubic { "beside CUBIC" } else { "alone" },
                    if lossy { "1 and 5 % loss" } else { "no loss" },
                    mean(|outcome| outcome.late) * 100.0,
                    mean(|outcome| outcome.goodput),
                    mean(|outcome| outcome.other),
                    mean(|outcome| outcome.queueing[0]),
                    mean(|outcome| outcome.queueing[1]),
                );
            }
        }
    }
}

fn main() {
    // `cargo test` runs benches too; building is enough there.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let identity = Identity::self_signed(&["server"]).expect("a certificate can be made");
    let settings = settings();
    let outcomes = run_all(&settings, &identity);
    println!(
        "| beside | RTT, ms | buffer, BDP | loss, % | control | late, % | goodput | other | queueing, ms | 95 % |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (setting, outcome) in settings.iter().zip(&outcomes) {
        println!(
            "| {} | {} | {} | {} | {} | {:.1} | {:.2} | {:.2} | {:.0} | {:.0} |",
            if setting.beside_cubic { "CUBIC" } else { "-" },
            setting.round_trip.as_nanos() / 1_000_000,
            setting.buffer,
            setting.loss * 100.0,
            setting.control.name(),
            outcome.late * 100.0,
            outcome.goodput,
            outcome.other,
            outcome.queueing[0],
            outcome.queueing[1],
        );
    }
    print_means(&settings, &outcomes);
}
