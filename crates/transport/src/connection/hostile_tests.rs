//! Peers that know the token, speak our framing and mean ill.

use std::net::{Ipv4Addr, SocketAddr};

use noq_proto::Dir;
use ontempo_foundation::{Duration, RandomStream, Rate, Time};

use super::*;
use crate::flow::{DeliveryOrder, Reliability};
use crate::identity::{Identity, Trust};
use crate::simulated::{Network, Path};
use crate::wire::{DatagramHeader, DroppedUnit, FlowOpened, Limits, Message, Sent, UnitHeader};
use crate::{ConnectionId, Endpoint, Event};

pub(super) const VILLAIN: usize = 0;
pub(super) const VICTIM: usize = 1;

const LIMITS: Limits = Limits { flows: 3, units: 50, bytes: 60_000, unit_bytes: 20_000 };

pub(super) struct World {
    pub(super) network: Network,
    pub(super) ids: [ConnectionId; 2],
    pub(super) closed: Option<crate::Closed>,
    /// Events of the victim.
    pub(super) events: Vec<Event>,
    limits: Limits,
}

pub(super) fn address(host: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 4433))
}

impl World {
    fn new(seed: u64, identity: &Identity) -> Self {
        let path = Path::clean(Rate::from_bits_per_sec(50_000_000), Duration::from_millis(5));
        let config = Configuration { limits: LIMITS, streams: 40, ..Configuration::default() };
        Self::with(seed, identity, config, [&path, &path])
    }

    /// A villain that has connected to a victim of this configuration, by these paths there and
    /// back.
    pub(super) fn with(
        seed: u64,
        identity: &Identity,
        config: Configuration,
        paths: [&Path; 2],
    ) -> Self {
        let mut world = Self::begun(seed, identity, config, paths);
        world.run(Duration::from_millis(300));
        world
    }

    /// One that has sent its first packet.
    fn begun(
        seed: u64,
        identity: &Identity,
        config: Configuration,
        [path, back]: [&Path; 2],
    ) -> Self {
        let limits = config.limits;
        let mut villain = Endpoint::new(Configuration::default(), [seed as u8; 32]);
        let mut victim = Endpoint::new(config, [(seed as u8).wrapping_add(1); 32]);
        victim.listen(identity, Token::anyone()).unwrap();
        let trust = Trust::Fingerprint(identity.fingerprint());
        let id = villain.connect(Time::ZERO, address(2), "a", &trust, Token::anyone()).unwrap();
        let mut network = Network::new(seed);
        network.add(villain, address(1));
        network.add(victim, address(2));
        network.join(VILLAIN, VICTIM, path, back);
        network.flush(VILLAIN);
        Self { network, ids: [id, id], closed: None, events: Vec::new(), limits }
    }

    pub(super) fn run(&mut self, span: Duration) {
        let until = self.network.now() + span;
        loop {
            let stepped = self.network.step(until).is_some();
            while let Some(event) = self.network.endpoint(VICTIM).poll_event() {
                match &event {
                    Event::Connected { connection, .. } => self.ids[VICTIM] = *connection,
                    Event::Closed { closed, .. } => self.closed = Some(closed.clone()),
                    _ => {}
                }
                self.events.push(event);
            }
            if !stepped {
                return;
            }
            self.check();
        }
    }

    /// The victim holds no more than it said it would.
    fn check(&mut self) {
        let limits = self.limits;
        let Some(victim) = self.network.endpoint(VICTIM).connection(self.ids[VICTIM]) else {
            return;
        };
        let held = victim.memory();
        // What is promised, 4,096 dropped units of each flow, and overhead.
        let most = limits.flows * (limits.bytes + 4096 * 300) + limits.bytes + (400 << 10);
        assert!(held <= most, "{held} bytes");
        assert!(victim.control.out_len() <= 256 << 10);
    }

    pub(super) fn villain(&mut self) -> Option<&mut Connection> {
        self.network.endpoint(VILLAIN).connection(self.ids[VILLAIN])
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        let Some(villain) = self.villain() else { return };
        let Some(stream) = villain.control.stream else { return };
        let _ = villain.stack.send_stream(stream).write(bytes);
        villain.urgent = true;
        self.network.flush(VILLAIN);
    }

    pub(super) fn message(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        self.send(&bytes);
    }

    fn open_flow(&mut self, flow: u64, reliability: Reliability) {
        let order = DeliveryOrder::PartialOrder;
        let opened = FlowOpened { flow, order, reliability, label: String::new() };
        self.message(&Message::FlowOpened(opened));
    }

    pub(super) fn stream(&mut self, bytes: &[u8], finish: bool) {
        let Some(villain) = self.villain() else { return };
        let Some(stream) = villain.stack.streams().open(Dir::Uni) else { return };
        let mut send = villain.stack.send_stream(stream);
        let _ = send.write(bytes);
        if finish {
            let _ = send.finish();
        }
        villain.urgent = true;
        self.network.flush(VILLAIN);
    }

    fn datagram(&mut self, header: &DatagramHeader, size: usize) {
        let mut bytes = Vec::new();
        header.write(&mut bytes);
        bytes.resize(bytes.len() + size, 7);
        let Some(villain) = self.villain() else { return };
        let _ = villain.stack.datagrams().send(bytes.into(), true);
        villain.urgent = true;
        self.network.flush(VILLAIN);
    }
}

fn unit(flow: u64, id: u64, length: u64) -> Vec<u8> {
    let (sent, lifetime, continues) = (Sent::At(Time::ZERO), None, None);
    let (priority, depends_on) = (0, Vec::new());
    let header = UnitHeader { flow, id, length, sent, lifetime, priority, continues, depends_on };
    let mut bytes = Vec::new();
    header.write(&mut bytes);
    bytes
}

/// What breaks the rules, and with what word the victim ends it.
type Attack = (&'static str, fn(&mut World), &'static str);

const ATTACKS: [Attack; 17] = [
    ("a flow out of turn", |w| w.open_flow(5, Reliability::Full), "cannot be"),
    (
        "flows without end",
        |w| (1..9).for_each(|f| w.open_flow(f, Reliability::Full)),
        "leave to send",
    ),
    (
        "flows that are ended and never taken",
        |w| {
            w.message(&Message::FlowFinished { flow: 0, units: 0 });
            for flow in 1..9 {
                w.open_flow(flow, Reliability::Full);
                w.message(&Message::FlowFinished { flow, units: 0 });
                w.run(Duration::from_millis(20));
            }
        },
        "leave to send",
    ),
    (
        "an end of a flow never opened",
        |w| w.message(&Message::FlowFinished { flow: 7, units: 1 }),
        "out of place",
    ),
    (
        "drops of a flow never opened",
        |w| w.message(&Message::Dropped { flow: 7, units: Vec::new() }),
        "out of place",
    ),
    (
        "drops of a reliable flow",
        |w| {
            w.message(&Message::Dropped { flow: 0, units: vec![DroppedUnit { id: 0, bytes: 0 }] });
        },
        "out of place",
    ),
    (
        "an answer never asked for",
        |w| w.message(&Message::Settled { flow: 0, arrived: Vec::new() }),
        "cannot be",
    ),
    (
        "credit for what was never opened",
        |w| w.message(&Message::Credit { flow: 3, units: 1 << 61, bytes: 1 << 61 }),
        "cannot be",
    ),
    (
        "a second hello",
        |w| {
            let (limits, acknowledge) = (LIMITS, crate::AckRequest::Immediate);
            w.message(&Message::Welcome { limits, acknowledge });
        },
        "out of place",
    ),
    ("a message of a gigabyte", |w| w.send(&[0xc0, 0, 0, 0, 0x40, 0, 0, 0]), "unreadable"),
    ("a unit of a flow far off", |w| w.stream(&unit(900, 0, 10), false), "leave to send"),
    ("a unit of a terabyte", |w| w.stream(&unit(0, 0, 1 << 40), false), "cannot be"),
    ("a number far off", |w| w.stream(&unit(0, 51, 10), false), "leave to send"),
    (
        "claims beyond the leave",
        |w| (0..5).for_each(|id| w.stream(&unit(0, id, 20_000), false)),
        "leave to send",
    ),
    ("half a unit", |w| w.stream(&unit(0, 0, 10), true), "too early"),
    // Flow 0, unit 3, no bytes, sent at 0, no lifetime, no priority, one dependency: itself.
    (
        "a unit that needs itself",
        |w| w.stream(&[0x20, 3, 0, 0, 0, 0, 0, 1, 0], false),
        "dependency",
    ),
    (
        "a fragment of a reliable flow",
        |w| w.datagram(&DatagramHeader::Later { flow: 0, id: 0, length: 9, offset: 3 }, 2),
        "out of place",
    ),
];

#[test]
fn who_breaks_the_rules_is_shut_out_with_a_reason() {
    let identity = Identity::self_signed(&["a"]).unwrap();
    for (name, attack, word) in ATTACKS {
        let mut world = World::new(1, &identity);
        world.open_flow(0, Reliability::Full);
        world.run(Duration::from_millis(50));
        assert_eq!(world.closed, None);
        attack(&mut world);
        world.run(Duration::from_secs(1));
        let closed = world.closed.expect("it was shut out");
        assert_eq!(closed.reason, crate::CloseReason::ProtocolViolation, "{name}");
        let sentence = closed.sentence;
        assert!(
            sentence.contains("broke the protocol") && sentence.contains(word),
            "{name}: {sentence}"
        );
    }
}

/// A client that never presents its token makes a server hold a little, and no more.
#[test]
fn what_comes_before_a_token_has_a_bound() {
    let identity = Identity::self_signed(&["a"]).unwrap();
    let path = Path::clean(Rate::from_bits_per_sec(50_000_000), Duration::from_millis(5));
    for (units, is_shut_out) in [(1, false), (2, false), (20, true)] {
        let mut world = World::begun(1, &identity, Configuration::default(), [&path, &path]);
        world.villain().expect("it connects").control.is_mute = true;
        world.run(Duration::from_millis(100));
        for id in 0..units {
            world.stream(&[unit(0, id, 20_000), vec![7; 10_000]].concat(), false);
            world.run(Duration::from_millis(50));
        }
        world.run(Duration::from_secs(1));
        let closed = world.closed.as_ref().map(|closed| closed.reason);
        let expected = is_shut_out.then_some(crate::CloseReason::ProtocolViolation);
        assert_eq!(closed, expected, "{units} units: {:?}", world.closed);
    }
}

/// Whichever of its packets are lost, that with the token again and again: what an honest client sends early is not too
/// much.
#[test]
fn a_client_whose_token_does_not_come_through_sends_no_more_than_a_server_holds() {
    let identity = Identity::self_signed(&["a"]).unwrap();
    let path = Path::clean(Rate::from_bits_per_sec(50_000_000), Duration::from_millis(5));
    for size in [100, 3_000, 50_000] {
        let mut world = World::begun(1, &identity, Configuration::default(), [&path, &path]);
        world.villain().expect("it connects").control.is_mute = true;
        world.run(Duration::from_millis(30));
        let now = world.network.now();
        let client = world.villain().expect("it may send");
        assert!(client.is_early());
        let flow = client.open_flow(FlowConfig::default()).expect("early");
        for _ in 0..20 {
            let unit = Outgoing { data: vec![7; size].into(), ..Outgoing::default() };
            client.send(now, flow, unit).expect("room");
        }
        world.network.flush(VILLAIN);
        world.run(Duration::from_secs(3));
        let written = world.villain().expect("it waits").sending.written;
        assert!(written > 1_900 && world.closed.is_none(), "{size}: {written} {:?}", world.closed);
        assert!(written < 52_000, "{size}: {written}");
    }
}

#[test]
fn what_the_rules_allow_cannot_fill_the_memory() {
    let identity = Identity::self_signed(&["a"]).unwrap();
    for seed in 0..200 {
        let mut random = RandomStream::new(seed, "villain");
        let mut world = World::new(seed, &identity);
        world.open_flow(0, Reliability::Full);
        world.open_flow(1, Reliability::Deadline);
        world.open_flow(2, Reliability::None);
        let mut dropped = 0;
        for _ in 0..150 {
            let id = random.next_u64() % 60;
            match random.next_u64() % 6 {
                // A unit that never ends.
                0 => world.stream(&unit(0, id % 50, 1000)[..], false),
                // A header that never ends.
                1 => world.stream(&unit(1, id, 1000)[..3], false),
                // Fragments of units that never come whole, a byte at a time.
                2 | 3 => {
                    let offset = 1 + random.next_u64() % 15_000;
                    let later = DatagramHeader::Later { flow: 2, id, length: 20_000, offset };
                    world.datagram(&later, 1 + random.next_u64() as usize % 900);
                }
                // Drops without end.
                4 => {
                    let units = (dropped..dropped + 40).map(|id| DroppedUnit { id, bytes: 0 });
                    world.message(&Message::Dropped { flow: 1, units: units.collect() });
                    dropped += 40;
                }
                _ => {
                    let asked = world.network.now();
                    (0..20).for_each(|_| world.message(&Message::Clock { asked }));
                }
            }
            world.run(Duration::from_millis(5));
        }
        let now = world.network.now();
        let id = world.ids[VICTIM];
        if let Some(victim) = world.network.endpoint(VICTIM).connection(id) {
            let flow = FlowId::incoming(1);
            let ready = victim.receive_statistics(now, flow).map_or(0, |flow| flow.ready);
            assert!(ready <= 4096 + LIMITS.units, "{ready} wait");
        }
    }
}

/// Passes first packets of clients at `remotes` to `victim`, which answers nobody; returns how
/// often it asked for a proof of the address.
fn knock(
    victim: &mut Endpoint,
    identity: &Identity,
    remotes: impl Iterator<Item = SocketAddr>,
) -> usize {
    let mut out = Vec::new();
    let mut retries = 0;
    for remote in remotes {
        let mut seed = [3; 32];
        let text = remote.to_string();
        seed[..text.len()].copy_from_slice(text.as_bytes());
        let mut villain = Endpoint::new(Configuration::default(), seed);
        let trust = Trust::Fingerprint(identity.fingerprint());
        villain.connect(Time::ZERO, address(2), "a", &trust, Token::anyone()).unwrap();
        while let crate::Poll::Transmit(transmit) = villain.poll_transmit(Time::ZERO, &mut out) {
            let datagram = bytes::BytesMut::from(&out[..transmit.size]);
            victim.handle(Time::ZERO, crate::Source::of(remote), datagram);
        }
        while let crate::Poll::Transmit(_) = victim.poll_transmit(Time::ZERO, &mut out) {
            // A long header of type 3 (RFC 9000, section 17.2.5), its fixed bit greased or not.
            retries += usize::from(out[0] & 0xb0 == 0xb0);
        }
    }
    retries
}

fn victim(identity: &Identity, half_open: usize) -> Endpoint {
    let config = Configuration { half_open, ..Configuration::default() };
    let mut victim = Endpoint::new(config, [9; 32]);
    victim.listen(identity, Token::anyone()).unwrap();
    victim
}

#[test]
fn half_open_connections_are_few_and_then_addresses_must_be_validated() {
    let identity = Identity::self_signed(&["a"]).unwrap();
    let mut victim = victim(&identity, 64);
    let retries = knock(&mut victim, &identity, (0..100).map(address));
    assert_eq!(victim.connections(), 8);
    assert_eq!(retries, 92, "clients were asked to validate their address");
    // And they are forgotten.
    let mut out = Vec::new();
    let later = Time::ZERO + Duration::from_secs(6);
    victim.handle_timeout(later);
    while let crate::Poll::Transmit(_) = victim.poll_transmit(later, &mut out) {}
    victim.handle_timeout(later + Duration::from_secs(60));
    while let crate::Poll::Transmit(_) = victim.poll_transmit(later, &mut out) {}
    assert_eq!(victim.connections(), 0);
}

#[test]
fn one_address_leaves_places_for_others() {
    let identity = Identity::self_signed(&["a"]).unwrap();
    let mut victim = victim(&identity, 512);
    let attacker = |port: u16| SocketAddr::from((Ipv4Addr::new(10, 0, 0, 9), 1000 + port));
    let retries = knock(&mut victim, &identity, (0..1000).map(attacker));
    assert_eq!((victim.connections(), retries), (16, 984));
    // The others are accepted at once.
    let before = victim.connections();
    assert_eq!(knock(&mut victim, &identity, (20..26).map(address)), 0);
    assert_eq!(victim.connections(), before + 6);
}
