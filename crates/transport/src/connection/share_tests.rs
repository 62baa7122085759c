//! What peers that have the token leave to others.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use ontempo_foundation::{Bytes as Size, Duration, Rate, Time};

use super::hostile_tests::address;
use crate::identity::{Identity, Trust};
use crate::simulated::{Network, Path};
use crate::{
    CloseReason, Closed, Configuration, ConnectionId, Endpoint, Event, FlowConfig, Outgoing, Poll,
    Source, Token,
};

const VICTIM: usize = 0;

/// Memory that is counted for a connection, bytes.
const CONNECTION: u64 = 48 << 10;

/// A victim, and clients at addresses of their own, all with its token.
struct Crowd {
    network: Network,
    identity: Identity,
    /// How connections of clients ended: client and reason.
    closed: Vec<(usize, Closed)>,
    connected: Vec<usize>,
}

impl Crowd {
    fn new(config: Configuration, clients: u8) -> Self {
        let identity = Identity::self_signed(&["a"]).expect("made");
        let mut victim = Endpoint::new(config, [1; 32]);
        victim.listen(&identity, Token::anyone()).expect("usable");
        let mut network = Network::new(1);
        network.add(victim, address(100));
        let path = Path::clean(Rate::from_bits_per_sec(100_000_000), Duration::from_millis(5));
        for client in 1..=clients {
            let config = Configuration { connections: 10_000, ..Configuration::default() };
            let node = network.add(Endpoint::new(config, [1 + client; 32]), address(client));
            network.join(node, VICTIM, &path, &path);
        }
        Self { network, identity, closed: Vec::new(), connected: Vec::new() }
    }

    fn connect(&mut self, client: usize) -> ConnectionId {
        let now = self.network.now();
        let trust = Trust::Fingerprint(self.identity.fingerprint());
        let to: SocketAddr = address(100);
        let begun = self.network.endpoint(client).connect(now, to, "a", &trust, Token::anyone());
        self.network.flush(client);
        begun.expect("it begins")
    }

    fn run(&mut self, clients: usize, span: Duration) {
        let until = self.network.now() + span;
        while self.network.step(until).is_some() {
            while self.network.endpoint(VICTIM).poll_event().is_some() {}
            for client in 1..=clients {
                while let Some(event) = self.network.endpoint(client).poll_event() {
                    match event {
                        Event::Closed { closed, .. } => self.closed.push((client, closed)),
                        Event::Connected { .. } => self.connected.push(client),
                        _ => {}
                    }
                }
            }
        }
    }

    /// First packets of a new client at `remote`, which answers a Retry and nothing else.
    fn knock(&mut self, remote: SocketAddr, number: u64) {
        self.network.flush(VICTIM);
        let now = self.network.now();
        let mut seed = [0xee; 32];
        seed[..8].copy_from_slice(&number.to_be_bytes());
        let mut client = Endpoint::new(Configuration::default(), seed);
        let trust = Trust::Fingerprint(self.identity.fingerprint());
        client.connect(now, address(100), "a", &trust, Token::anyone()).expect("it begins");
        let victim = self.network.endpoint(VICTIM);
        let mut out = Vec::new();
        for _ in 0..2 {
            while let Poll::Transmit(transmit) = client.poll_transmit(now, &mut out) {
                let datagram = BytesMut::from(&out[..transmit.size]);
                victim.handle(now, Source::of(remote), datagram);
            }
            while let Poll::Transmit(transmit) = victim.poll_transmit(now, &mut out) {
                // A long header of type 3 (RFC 9000, section 17.2.5).
                if out[0] & 0xb0 == 0xb0 {
                    let datagram = BytesMut::from(&out[..transmit.size]);
                    client.handle(now, Source::of(address(100)), datagram);
                }
            }
        }
        self.network.flush(VICTIM);
    }

    fn connected(&self, client: usize) -> usize {
        self.connected.iter().filter(|one| **one == client).count()
    }
}

#[test]
fn a_peer_with_the_token_leaves_places_of_connections_to_others() {
    let config =
        Configuration { connections: 40, connections_of_host: 10, ..Configuration::default() };
    let mut crowd = Crowd::new(config, 2);
    for _ in 0..60 {
        crowd.connect(1);
        crowd.run(2, Duration::from_millis(30));
    }
    assert_eq!(crowd.connected(1), 10);
    assert!(crowd.closed.iter().all(|(_, closed)| closed.reason == CloseReason::Refused));
    crowd.connect(2);
    crowd.run(2, Duration::from_millis(300));
    assert_eq!(crowd.connected(2), 1, "another host is served beside it");
}

/// Two strangers, each with 16 first packets a second and no answer to what follows, against an
/// endpoint with the places of `ontempo receive`.
#[test]
fn strangers_without_the_token_take_no_places_of_senders_that_have_it() {
    let config = Configuration {
        connections: 8,
        connections_of_host: 6,
        handshake_timeout: Duration::from_secs(3),
        ..Configuration::default()
    };
    let mut crowd = Crowd::new(config, 4);
    let mut number = 0;
    let mut attack = |crowd: &mut Crowd, span: u64| {
        for _ in 0..span * 16 / 1000 {
            for stranger in [201, 202] {
                let remote = SocketAddr::new(address(stranger).ip(), 1024 + number as u16);
                crowd.knock(remote, number);
                number += 1;
            }
            crowd.run(4, Duration::from_micros(62_500));
        }
    };
    attack(&mut crowd, 4_000);
    let held = crowd.network.endpoint(VICTIM).connections();
    assert!((9..=64).contains(&held), "{held} connections: a sixteenth of 512 for each stranger");
    for sender in 0..20 {
        let client = 1 + sender % 4;
        let connection = crowd.connect(client);
        attack(&mut crowd, 500);
        assert_eq!(crowd.connected(client), 1 + sender / 4, "sender {sender}: {:?}", crowd.closed);
        let now = crowd.network.now();
        crowd.network.endpoint(client).connection(connection).expect("open").close(now, "");
        crowd.network.flush(client);
        attack(&mut crowd, 500);
    }
}

#[test]
fn clients_that_present_the_token_at_once_get_no_more_places_than_there_are() {
    let config = Configuration { connections: 2, ..Configuration::default() };
    let mut crowd = Crowd::new(config, 5);
    for client in 1..=5 {
        crowd.connect(client);
    }
    crowd.run(5, Duration::from_millis(300));
    assert_eq!((crowd.connected.len(), crowd.closed.len()), (2, 3));
    assert!(crowd.closed.iter().all(|(_, closed)| closed.reason == CloseReason::Refused));
}

#[test]
fn a_place_of_a_host_is_free_again_when_its_connection_has_ended() {
    let config =
        Configuration { connections: 40, connections_of_host: 2, ..Configuration::default() };
    let mut crowd = Crowd::new(config, 1);
    for round in 1..=5 {
        let connection = crowd.connect(1);
        crowd.run(1, Duration::from_millis(300));
        assert_eq!(crowd.connected(1), round);
        let now = crowd.network.now();
        crowd.network.endpoint(1).connection(connection).expect("open").close(now, "");
        crowd.network.flush(1);
        crowd.run(1, Duration::from_secs(2));
    }
}

#[test]
fn connections_that_hold_nothing_do_not_end_a_sender_as_overloaded() {
    let config = Configuration {
        receive_memory: Size::new(64 * CONNECTION),
        connections_of_host: 16,
        ..Configuration::default()
    };
    let mut crowd = Crowd::new(config, 5);
    let good = crowd.connect(5);
    crowd.run(5, Duration::from_millis(300));
    for _ in 0..20 {
        for villain in 1..=4 {
            crowd.connect(villain);
            crowd.run(5, Duration::from_millis(20));
        }
    }
    assert!(crowd.network.endpoint(VICTIM).connections() > 40, "the attack runs");
    let now = crowd.network.now();
    let sender = crowd.network.endpoint(5).connection(good).expect("open");
    let flow = sender.open_flow(FlowConfig::default()).expect("a flow");
    for _ in 0..50 {
        let unit = Outgoing { data: Bytes::from(vec![7; 10_000]), ..Outgoing::default() };
        sender.send(now, flow, unit).expect("sent");
    }
    crowd.network.flush(5);
    crowd.run(5, Duration::from_secs(3));
    let of_good: Vec<_> = crowd.closed.iter().filter(|(client, _)| *client == 5).collect();
    assert!(of_good.is_empty(), "{of_good:?}");
    let held = crowd.network.endpoint(VICTIM).memory();
    assert!(held > 41 * CONNECTION + 500_000, "{held} bytes: it waits for the program");
}

#[test]
fn packets_of_an_unknown_version_are_answered_with_less_than_they_have() {
    let identity = Identity::self_signed(&["a"]).expect("made");
    let mut victim = Endpoint::new(Configuration::default(), [1; 32]);
    victim.listen(&identity, Token::anyone()).expect("usable");
    let mut answer = |length: usize| {
        // A long header of a version that nobody has, with two IDs of 8 bytes.
        let mut packet = vec![0xc0, 0xba, 0xba, 0xba, 0xba, 8, 1, 2, 3, 4, 5, 6, 7, 8, 8];
        packet.resize(length, 9);
        let source = Source { remote: address(1), local: None, ecn: None };
        victim.handle(Time::ZERO, source, BytesMut::from(&packet[..]));
        let mut out = Vec::new();
        match victim.poll_transmit(Time::ZERO, &mut out) {
            Poll::Transmit(transmit) => transmit.size,
            _ => 0,
        }
    };
    for length in [23, 100, 1_199] {
        assert_eq!(answer(length), 0, "{length} bytes");
    }
    let answered = answer(1_200);
    assert!(0 < answered && answered < 1_200, "{answered} bytes");
}
