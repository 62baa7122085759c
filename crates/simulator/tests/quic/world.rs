//! Two QUIC endpoints and a bottleneck between them, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Instant;

use noq_proto::{AckFrequencyConfig, EcnCodepoint, TransportConfig};
use ontempo_foundation::{Bytes, Duration, Packets, Rate, Time};
use ontempo_mechanisms::congestion::{CongestionControl, Snapshot, Start, Window};
use ontempo_network::{
    DelayLaw, DropTail, Extras, Fate, Limit, Link, LinkParameters, LossModel, Queue,
};

use crate::checksum::Checksum;
use crate::content::{Application, Receiver, Sender};
use crate::endpoint::{Datagram, Node};
use ontempo_transport::quic::{Epoch, Factory, Log, Pacing, SharedAccount, SharedLog};

/// UDP payload of a full packet: QUIC's minimum, and fixed, since path MTU discovery is off.
/// Windows and pacing rates count packets of this size.
pub(crate) const PAYLOAD: u16 = 1200;

/// Headers of IPv4 and UDP, which the link carries in addition.
pub(crate) const HEADERS: Bytes = Bytes::new(28);

/// The path: the same in both directions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) rate: Rate,
    /// One-way delay, from the end of a packet's transmission.
    pub(crate) delay: Duration,
    /// Limit of the queue in packets, without the one in transmission.
    pub(crate) buffer: Packets,
}

/// All other parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Seed of content, connection ids and every random choice of the stack.
    pub(crate) seed: u64,
    pub(crate) pacing: Pacing,
    pub(crate) initial_window: Window,
    /// ACK frequency in packets, requested by the extension; `None` leaves
    /// the extension unused, which means every second packet.
    pub(crate) ack_every: Option<u32>,
    pub(crate) mishaps: Mishaps,
}

/// Impairments of the sender's packets besides the bottleneck.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mishaps {
    /// Flips a bit in every n-th packet.
    pub(crate) damage_every: Option<u64>,
    /// Marks every n-th packet (ECN).
    pub(crate) mark_every: Option<u64>,
    /// Loses all packets from the first time until the second.
    pub(crate) outage: Option<(Time, Time)>,
}

impl Default for Setup {
    /// Closest to the papers' TCP: no pacing, an initial window of 2 packets.
    fn default() -> Self {
        Self {
            seed: 1,
            pacing: Pacing::Off,
            initial_window: Start::default().initial_window,
            ack_every: None,
            mishaps: Mishaps::default(),
        }
    }
}

/// The results of a run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// From the client's first packet to the last byte's arrival, handshake included.
    pub(crate) duration: Duration,
    /// Goodput.
    pub(crate) goodput: Rate,
    /// Bytes that arrived, in order.
    pub(crate) received: Bytes,
    /// Where the content first was not what had been sent.
    pub(crate) wrong_at: Option<u64>,
    /// Offset of the first content that differs.
    pub(crate) window_trace: Vec<(Time, Window)>,
    /// Other records of the adapter.
    pub(crate) log: Log,
    /// Packets that the bottleneck dropped on their way to the receiver.
    pub(crate) drops: Packets,
    /// Packets that the sender declared lost.
    pub(crate) lost: Packets,
    /// Packets sent by either side.
    pub(crate) packets: Packets,
    /// Packets that left the sender at the same instant as the previous one.
    pub(crate) back_to_back: Packets,
    /// Checksum over the time, direction, size and bytes of every packet sent.
    pub(crate) trace: u64,
    /// Wall-clock time of the run.
    pub(crate) wall: std::time::Duration,
}

impl Outcome {
    /// The window in packets, averaged over time from `from` to the end.
    pub(crate) fn mean_window(&self, from: Time) -> f64 {
        let end = Time::ZERO + self.duration;
        let ends = self.window_trace.iter().skip(1).map(|(at, _)| *at).chain([end]);
        let area: f64 = self
            .window_trace
            .iter()
            .zip(ends)
            .map(|((at, window), until)| {
                window.packets() * until.min(end).since((*at).max(from)).as_secs_f64()
            })
            .sum();
        area / end.since(from).as_secs_f64()
    }

    /// The controller's state at the end.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.log.snapshot.expect("a connection has a controller")
    }

    /// Packets of either side, per second of wall-clock time.
    pub(crate) fn packets_per_second(&self) -> f64 {
        self.packets.get() as f64 / self.wall.as_secs_f64()
    }
}

/// Sends `bytes` over `path` under the controller that `controller` creates.
pub(crate) fn run<C>(
    path: Path,
    controller: impl Fn(Start) -> C + Send + Sync + 'static,
    bytes: Bytes,
) -> Outcome
where
    C: CongestionControl + Clone + Send + Sync + 'static,
{
    run_with(path, Setup::default(), controller, bytes)
}

/// [`run`] with a full set of parameters.
pub(crate) fn run_with<C>(
    path: Path,
    setup: Setup,
    controller: impl Fn(Start) -> C + Send + Sync + 'static,
    bytes: Bytes,
) -> Outcome
where
    C: CongestionControl + Clone + Send + Sync + 'static,
{
    let wall = Instant::now();
    let epoch = Epoch::new();
    let log = SharedLog::default();
    let start = Start { initial_window: setup.initial_window, ..Start::default() };
    let factory = Factory {
        make: controller,
        start,
        largest: PAYLOAD,
        pacing: setup.pacing,
        corrected: false,
        epoch,
        account: SharedAccount::default(),
        log: Some(log.clone()),
    };
    let mut sending = transport();
    sending.congestion_controller_factory(Arc::new(factory));
    sending.ack_frequency_config(setup.ack_every.map(|packets| {
        let mut config = AckFrequencyConfig::default();
        config.ack_eliciting_threshold(packets.saturating_sub(1).into());
        config
    }));

    let sender = Application::Sender(Sender::new(setup.seed, bytes));
    let receiver = Application::Receiver(Receiver::new(setup.seed));
    let mut world = World {
        now: Time::ZERO,
        arrivals: BinaryHeap::new(),
        nodes: [
            Node::client(setup.seed, epoch, sending, sender),
            Node::server(setup.seed, epoch, transport(), receiver),
        ],
        links: [
            bottleneck(path, setup.seed, "to the receiver"),
            bottleneck(path, setup.seed, "to the sender"),
        ],
        setup,
        sent: [0; 2],
        last_sent: Time::NEVER,
        back_to_back: 0,
        trace: Checksum::new(0),
    };
    world.run_until_received(time_limit(path, bytes));
    world.outcome(log, wall)
}

/// Transport configuration of either side.
fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.initial_mtu(PAYLOAD);
    transport.mtu_discovery_config(None);
    transport.enable_segmentation_offload(false);
    transport.allow_spin(false);
    transport
}

/// One direction of the path.
fn bottleneck(path: Path, seed: u64, name: &str) -> Link {
    let parameters = LinkParameters {
        rate: path.rate,
        delay: DelayLaw::Constant(path.delay),
        mtu: None,
        queue: Queue::DropTail(DropTail::new(Limit::packets(path.buffer))),
        loss: LossModel::None,
        reordering: false,
        extras: Extras::default(),
    };
    Link::new(parameters, seed, name)
}

/// `payload` with a bit flipped in the middle.
fn damaged(payload: &[u8]) -> bytes::Bytes {
    let mut damaged = payload.to_vec();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    damaged.into()
}

/// Time limit: a tenth of the path's rate, one packet per RTT, and a minute
/// for the start.
fn time_limit(path: Path, bytes: Bytes) -> Time {
    let round_trips = (path.delay * 2) * (bytes.get() / u64::from(PAYLOAD));
    Time::ZERO + path.rate.time_to_send(bytes * 10) + round_trips + Duration::from_secs(60)
}

/// Index of the sender among the nodes, and of its outgoing link.
const SENDER: usize = 0;
/// Index of the receiver.
const RECEIVER: usize = 1;

/// A datagram with its arrival time and node; of two at the same time, the one sent first.
struct Arrival {
    at: Time,
    order: u64,
    to: usize,
    datagram: Datagram,
}

impl Ord for Arrival {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for Arrival {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Arrival {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Arrival {}

/// Two endpoints, two directions, one queue of arrivals. An endpoint's timer is not in the
/// queue: it has one deadline, which moves with every packet.
struct World {
    now: Time,
    arrivals: BinaryHeap<Reverse<Arrival>>,
    nodes: [Node; 2],
    links: [Link; 2],
    setup: Setup,
    /// Packets that each node sent.
    sent: [u64; 2],
    /// When the sender last sent.
    last_sent: Time,
    back_to_back: u64,
    trace: Checksum,
}

impl World {
    fn run_until_received(&mut self, give_up: Time) {
        let mut out = Vec::new();
        while !self.receiver().finished {
            let node = self.step(&mut out);
            for datagram in out.drain(..) {
                self.send(node, datagram);
            }
            let (now, seed) = (self.now, self.setup.seed);
            assert!(now < give_up, "seed {seed}: still not received at {now}");
        }
    }

    /// Processes the next event, and returns the index of its endpoint.
    fn step(&mut self, out: &mut Vec<Datagram>) -> usize {
        let [sender, receiver] = &self.nodes;
        let waking = if receiver.deadline < sender.deadline { RECEIVER } else { SENDER };
        let deadline = self.nodes[waking].deadline;
        let arrival = self.arrivals.peek().map_or(Time::NEVER, |Reverse(next)| next.at);
        if arrival <= deadline
            && let Some(Reverse(arrival)) = self.arrivals.pop()
        {
            self.now = arrival.at;
            self.nodes[arrival.to].receive(self.now, arrival.datagram, out);
            return arrival.to;
        }
        self.now = self.now.max(deadline);
        self.nodes[waking].wake(self.now, out);
        waking
    }

    /// Sends a datagram on the outgoing link of the node `from`.
    fn send(&mut self, from: usize, mut datagram: Datagram) {
        self.sent[from] += 1;
        self.trace.word(self.now.as_nanos());
        self.trace.word(from as u64);
        self.trace.bytes(&datagram.payload);
        if from == SENDER {
            self.back_to_back += u64::from(self.last_sent == self.now);
            self.last_sent = self.now;
            let Some(suffered) = self.impair(datagram) else {
                return;
            };
            datagram = suffered;
        }
        let size = Bytes::new(datagram.payload.len() as u64) + HEADERS;
        let capable = datagram.ecn.is_some();
        if let Fate::Arrives { at, marked, .. } = self.links[from].offer(self.now, size, capable) {
            if marked {
                datagram.ecn = Some(EcnCodepoint::Ce);
            }
            let to = SENDER + RECEIVER - from;
            self.arrivals.push(Reverse(Arrival {
                at,
                order: self.sent.iter().sum(),
                to,
                datagram,
            }));
        }
    }

    /// A sender's datagram after its impairment before the link; `None` if it is lost.
    fn impair(&self, mut datagram: Datagram) -> Option<Datagram> {
        let Mishaps { damage_every, mark_every, outage } = self.setup.mishaps;
        let due =
            |every: Option<u64>| every.is_some_and(|every| self.sent[SENDER].is_multiple_of(every));
        if outage.is_some_and(|(from, until)| (from..until).contains(&self.now)) {
            return None;
        }
        if due(damage_every) {
            datagram.payload = damaged(&datagram.payload);
        }
        if due(mark_every) && datagram.ecn.is_some() {
            datagram.ecn = Some(EcnCodepoint::Ce);
        }
        Some(datagram)
    }

    fn receiver(&self) -> &Receiver {
        match &self.nodes[RECEIVER].application {
            Application::Receiver(receiver) => receiver,
            Application::Sender(_) => unreachable!("the receiver's node has a receiver"),
        }
    }

    fn outcome(mut self, log: SharedLog, wall: Instant) -> Outcome {
        let log = log.lock().clone();
        let lost = self.nodes[SENDER].connection().map(|sender| sender.stats().lost_packets);
        let receiver = self.receiver();
        let duration = self.now.since(Time::ZERO);
        let received = Bytes::new(receiver.received);
        Outcome {
            duration,
            goodput: Rate::of(received, duration),
            received,
            wrong_at: receiver.wrong_at,
            window_trace: log.window.clone(),
            log,
            drops: self.links[SENDER].statistics(self.now).drops.total(),
            lost: Packets::new(lost.unwrap_or(0)),
            packets: Packets::new(self.sent.iter().sum()),
            back_to_back: Packets::new(self.back_to_back),
            trace: self.trace.finish(),
            wall: wall.elapsed(),
        }
    }
}
