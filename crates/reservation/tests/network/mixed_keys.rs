//! Attackers on a link without a key, at nodes whose other links have one, and a neighbour with a key
//! of its own that speaks for another: what a neighbour with the key has made stays as it is. What
//! they draw from a node has a rate.

use std::net::IpAddr;

use ontempo_foundation::Duration;
use ontempo_reservation::integrity::{self, Algorithm, Key, Seal};
use ontempo_reservation::machine::{Arrival, Config, Event, InterfaceId};
use ontempo_reservation::message::{
    Body, Cause, Descriptor, ErrorSpec, Hop, Message, MessageId, Path, PathErr, PathTear, Resv,
    ResvConf, Sender, Session, Style,
};

use super::world::{Settings, World, own_key, shared_key};
use super::{announce, load, reserve, sender, session, traffic};

/// Sender, router, router, receiver, and an attacker's link to the first router and the receiver.
const LINKS: [(usize, usize); 5] = [(0, 1), (1, 2), (2, 3), (1, 4), (3, 4)];
const WAY: [(usize, usize); 3] = [(0, 1), (1, 2), (2, 3)];
const ATTACKER: usize = 4;
const REFRESH: Duration = Duration::from_secs(30);

/// The attacker's links have no key; the others have one. A reservation stands.
fn attacked(trust_network: bool) -> (World, Session, Sender) {
    let config = Config { trust_network, ..Config::default() };
    let settings = Settings { config, sealed: true, ..Settings::default() };
    let mut world = World::new(1, 5, &LINKS, settings);
    world.open_links.extend([3, 4]);
    (0..4).for_each(|node| world.start(node));
    world.stop(ATTACKER);
    let to = session(world.address(2, 1));
    let from = sender(world.host(0));
    reserve(&mut world, 3, to, from, 50_000.0);
    announce(&mut world, 0, to, 50_000.0);
    world.run_for(Duration::from_secs(3));
    assert!(stands(&world));
    (world, to, from)
}

fn stands(world: &World) -> bool {
    WAY.iter().all(|&(node, peer)| world.towards(node, peer).len() == 1)
}

fn deliver(
    world: &mut World,
    node: usize,
    interface: InterfaceId,
    source: IpAddr,
    message: &Message,
) {
    let payload = message.encode().expect("it fits");
    world.call(node, |machine, now| {
        machine.on_packet(now, Arrival { interface, source, ttl: 64, payload: &payload });
    });
}

fn path(session: Session, hop: IpAddr, sender: Sender) -> Message {
    let hop = Hop { address: hop, interface: 0 };
    let traffic = traffic(50_000.0);
    let body = Path { session, hop, refresh: REFRESH, sender, traffic, adspec: None };
    let mut message = Message::new(Body::Path(body));
    message.send_ttl = 64;
    message
}

fn body(payload: &[u8]) -> Body {
    Message::decode(payload).expect("a message").body
}

/// Messages of a kind that a node has sent, by an interface or by all.
fn sent(
    world: &World,
    node: usize,
    by: Option<InterfaceId>,
    is_counted: impl Fn(&Body) -> bool,
) -> usize {
    let of_node = world
        .recorded
        .iter()
        .filter(|(from, packet)| *from == node && by.is_none_or(|by| by == packet.interface));
    of_node.filter(|(_, packet)| is_counted(&body(&packet.payload))).count()
}

fn is_conf(body: &Body) -> bool {
    matches!(body, Body::ResvConf(_))
}

fn is_path_err(body: &Body) -> bool {
    matches!(body, Body::PathErr(_))
}

fn was_dropped(world: &World, node: usize, why: &str) -> bool {
    world.events.iter().any(|(_, at, event)| {
        *at == node && matches!(event, Event::Dropped { reason, .. } if reason.contains(why))
    })
}

#[test]
fn a_path_by_an_interface_without_a_key_replaces_none_of_a_neighbour_with_a_key() {
    // A router that trusts the network, and the receiving host with the daemon's defaults.
    for (trust_network, node, previous, link) in [(true, 1, 0, 3), (false, 3, 2, 4)] {
        let (mut world, to, from) = attacked(trust_network);
        let (hop, incoming) = (world.address(link, 1), world.interface(node, ATTACKER));
        // Longer than the cleanup timeout of 157.5 s.
        for _ in 0..30 {
            deliver(&mut world, node, incoming, hop, &path(to, hop, from));
            world.run_for(Duration::from_secs(10));
            assert!(stands(&world), "node {node} at {:?}", world.now);
        }
        let towards = Some(world.interface(node, previous));
        let torn = sent(&world, node, towards, |body| matches!(body, Body::ResvTear(_)));
        let redirected = sent(&world, node, Some(incoming), |body| matches!(body, Body::Resv(_)));
        assert_eq!((torn, redirected), (0, 0), "node {node}");
        assert!(was_dropped(&world, node, "a neighbour with a key"), "it is counted");
    }
}

#[test]
fn a_path_by_an_interface_without_a_key_takes_over_once_the_sealed_one_has_timed_out() {
    let (mut world, to, from) = attacked(true);
    let (hop, incoming) = (world.address(3, 1), world.interface(1, ATTACKER));
    world.stop(0);
    let redirected =
        |world: &World| sent(world, 1, Some(incoming), |body| matches!(body, Body::Resv(_)));
    for _ in 0..10 {
        deliver(&mut world, 1, incoming, hop, &path(to, hop, from));
        world.run_for(Duration::from_secs(10));
    }
    assert_eq!(redirected(&world), 0, "the sealed state lives");
    for _ in 0..10 {
        deliver(&mut world, 1, incoming, hop, &path(to, hop, from));
        world.run_for(Duration::from_secs(10));
    }
    assert!(redirected(&world) > 0);
}

#[test]
fn a_route_change_to_a_link_without_a_key_waits_and_one_back_does_not() {
    let diamond = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5)];
    let settings = Settings { sealed: true, ..Settings::default() };
    let mut world = World::new(1, 6, &diamond, settings);
    world.open_links.insert(4);
    (0..6).for_each(|node| world.start(node));
    let to = session(world.host(5));
    let from = announce(&mut world, 0, to, 50_000.0);
    reserve(&mut world, 5, to, from, 50_000.0);
    world.run_for(Duration::from_secs(20));
    assert_eq!((world.towards(2, 4).len(), world.towards(3, 4).len()), (1, 0));
    world.links[1].up = false;
    world.route();
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.towards(3, 4).len(), 0, "the state of the keyed neighbour lives");
    // Its cleanup timeout, then a refresh.
    world.run_for(Duration::from_secs(158 + 45));
    assert_eq!((world.towards(1, 3).len(), world.towards(3, 4).len()), (1, 1));
    world.links[1].up = true;
    world.links[2].up = false;
    world.route();
    world.run_for(Duration::from_secs(1));
    assert_eq!((world.towards(1, 2).len(), world.towards(2, 4).len()), (1, 1));
}

#[test]
fn numbers_of_messages_without_a_key_take_no_refresh_from_a_neighbour_with_a_key() {
    for with_its_epoch in [true, false] {
        let (mut world, to, from) = attacked(true);
        let of_sender = world.recorded.iter().find_map(|(node, packet)| {
            let message = Message::decode(&packet.payload).expect("a message");
            message.id.filter(|_| *node == 0 && matches!(message.body, Body::Path(_)))
        });
        let seen = of_sender.expect("its PATH has a number");
        let epoch = if with_its_epoch { seen.epoch } else { seen.epoch ^ 1 };
        let neighbour = world.address(0, 0);
        let incoming = world.interface(1, ATTACKER);
        let before = sent(&world, 0, None, |body| matches!(body, Body::Path(_)));
        for _ in 0..30 {
            // Another session, the neighbour's address, and the number of its PATH.
            let mut forged = path(Session { port: 9, ..to }, neighbour, from);
            forged.id = Some(MessageId { ack_desired: false, epoch, id: seen.id });
            deliver(&mut world, 1, incoming, neighbour, &forged);
            world.run_for(Duration::from_secs(10));
            assert!(stands(&world), "at {:?}", world.now);
        }
        let after = sent(&world, 0, None, |body| matches!(body, Body::Path(_)));
        assert_eq!(after, before, "its PATH is refreshed by number alone");
    }
}

fn conf(session: Session, node: IpAddr, confirm: IpAddr, from: Sender) -> Message {
    let error = ErrorSpec { node, in_place: false, not_guilty: false, cause: Cause::Confirmed };
    let flows = vec![Descriptor { flowspec: load(90_000.0), filters: vec![from] }];
    let style = Style::FixedFilter;
    let mut message =
        Message::new(Body::ResvConf(ResvConf { session, error, confirm, style, flows }));
    message.send_ttl = 64;
    message
}

fn confirmed(world: &World, node: usize) -> usize {
    let confirmed = |(_, at, event): &&(_, usize, Event)| {
        *at == node && matches!(event, Event::Confirmed { .. })
    };
    world.events.iter().filter(confirmed).count()
}

#[test]
fn a_confirmation_by_another_way_than_the_request_is_neither_told_nor_forwarded() {
    for trust_network in [true, false] {
        let (mut world, to, from) = attacked(trust_network);
        assert_eq!(confirmed(&world, 3), 1, "the one that was asked for");
        let receiver = to.destination;
        let before = sent(&world, 1, None, is_conf);
        for (node, link) in [(1, 3), (3, 4)] {
            let incoming = world.interface(node, ATTACKER);
            // As a neighbour of its own, and as the one that was asked.
            for source in [world.address(link, 1), world.address(node - 1, 0)] {
                let forged = conf(to, source, receiver, from);
                deliver(&mut world, node, incoming, source, &forged);
                assert!(was_dropped(&world, node, "ResvConf"));
            }
        }
        world.run_for(Duration::from_secs(5));
        assert_eq!((sent(&world, 1, None, is_conf), confirmed(&world, 3)), (before, 1));
    }
}

/// A line without keys, whose first router is asked for a confirmation.
fn asked() -> (World, Session, Sender) {
    let mut world = World::new(1, 4, &LINKS[..3], Settings::default());
    let to = session(world.host(3));
    let from = sender(world.host(0));
    reserve(&mut world, 3, to, from, 50_000.0);
    announce(&mut world, 0, to, 50_000.0);
    world.run_for(Duration::from_secs(3));
    assert_eq!(confirmed(&world, 3), 1);
    world.recorded.clear();
    (world, to, from)
}

#[test]
fn a_confirmation_that_nobody_asked_for_is_dropped() {
    let (mut world, to, from) = asked();
    let (incoming, neighbour) = (world.interface(1, 0), world.address(0, 0));
    let (elsewhere, stranger) = (world.address(2, 0), world.address(0, 2));
    let other = Session { port: 9, ..to };
    for (session, source, confirm) in [
        (other, neighbour, to.destination),
        (to, neighbour, elsewhere),
        (to, stranger, to.destination),
    ] {
        let forged = conf(session, neighbour, confirm, from);
        deliver(&mut world, 1, incoming, source, &forged);
        assert_eq!(sent(&world, 1, None, is_conf), 0, "from {source} for {confirm}");
    }
    // As long as state lives without a refresh, 157.5 s; not for ever.
    let forged = conf(to, neighbour, to.destination, from);
    deliver(&mut world, 1, incoming, neighbour, &forged);
    assert_eq!(sent(&world, 1, None, is_conf), 1, "the one that was asked for");
    world.run_for(Duration::from_secs(200));
    let before = sent(&world, 1, None, is_conf);
    deliver(&mut world, 1, incoming, neighbour, &forged);
    assert_eq!(sent(&world, 1, None, is_conf), before, "it is not asked for any more");
}

#[test]
fn confirmations_have_a_rate() {
    let (mut world, to, from) = asked();
    let (incoming, neighbour) = (world.interface(1, 0), world.address(0, 0));
    for _ in 0..5_000 {
        let forged = conf(to, neighbour, to.destination, from);
        deliver(&mut world, 1, incoming, neighbour, &forged);
    }
    let forwarded = sent(&world, 1, None, is_conf);
    assert!((2..=200).contains(&forwarded), "{forwarded} are forwarded at once");
    // Those of a node's own, for a RESV that changes nothing.
    let hop = Hop { address: world.address(1, 1), interface: world.interface(1, 2).0 };
    let flows = vec![Descriptor { flowspec: load(50_000.0), filters: vec![from] }.into()];
    let (confirm, style, scope) = (Some(to.destination), Style::FixedFilter, Vec::new());
    let resv = Resv { session: to, hop, refresh: REFRESH, confirm, scope, style, flows };
    let message = Message::new(Body::Resv(resv));
    let by = world.interface(1, 2);
    for _ in 0..5_000 {
        deliver(&mut world, 1, by, hop.address, &message);
    }
    let own = sent(&world, 1, None, is_conf) - forwarded;
    assert!((2..=200).contains(&own), "{own} are made at once");
}

#[test]
fn path_errors_drawn_by_strangers_have_a_rate() {
    let mut world = World::new(1, 3, &LINKS[..2], Settings::default());
    [0, 2].into_iter().for_each(|host| world.stop(host));
    world.hear_all_routes(1);
    let to = session(world.address(1, 1));
    // Refused: the peak rate is below the mean rate. Each from an address that may be forged.
    let flood = |world: &mut World| {
        let mut longest = 0;
        for number in 0..5_000u16 {
            let [high, low] = number.to_be_bytes();
            let hop = IpAddr::from([10, 9, high, low]);
            let mut message = path(to, hop, sender(hop));
            if let Body::Path(path) = &mut message.body {
                path.traffic.peak = 1.0;
            }
            longest = longest.max(message.encode().expect("it fits").len());
            deliver(world, 1, InterfaceId(0), hop, &message);
        }
        longest
    };
    let longest = flood(&mut world);
    assert_eq!(sent(&world, 1, None, is_path_err), 200, "at once");
    let errors = world.recorded.iter().filter(|(node, _)| *node == 1);
    assert!(errors.clone().all(|(_, packet)| packet.payload.len() <= longest), "none is larger");
    world.run_for(Duration::from_secs(2));
    assert_eq!(sent(&world, 1, None, is_path_err), 200, "none is repeated");
    flood(&mut world);
    assert_eq!(sent(&world, 1, None, is_path_err), 400, "100 a second");
}

#[test]
fn path_errors_of_strangers_are_forwarded_at_a_rate() {
    let (mut world, to, from) = asked();
    let (incoming, source) = (world.interface(1, 2), world.address(1, 1));
    let cause = Cause::Bandwidth;
    let error = ErrorSpec { node: source, in_place: false, not_guilty: false, cause };
    let traffic = traffic(50_000.0);
    let body = PathErr { session: to, error, sender: from, traffic };
    let message = Message::new(Body::PathErr(body));
    for _ in 0..5_000 {
        deliver(&mut world, 1, incoming, source, &message);
    }
    let forwarded = sent(&world, 1, None, is_path_err);
    assert!((2..=200).contains(&forwarded), "{forwarded} are forwarded at once");
}

#[test]
fn a_reservation_by_an_interface_without_a_key_is_made_for_the_hosts_own_sender_alone() {
    let config = Config { trust_network: false, ..Config::default() };
    let settings = Settings { config, sealed: true, ..Settings::default() };
    let mut world = World::new(1, 3, &LINKS[..2], settings);
    world.open_links.insert(1);
    (0..3).for_each(|node| world.start(node));
    let to = session(world.host(2));
    let other = announce(&mut world, 0, to, 10_000.0);
    // The router sends to the same session itself.
    let own = sender(world.address(0, 1));
    world.call(1, |machine, now| machine.announce(now, to, own, traffic(10_000.0))).unwrap();
    let styles = [
        (Style::FixedFilter, vec![vec![other], vec![own]], 1),
        (Style::SharedExplicit, vec![vec![other, own]], 1),
        (Style::Wildcard, vec![vec![]], 0),
    ];
    for (style, filters, reservations) in styles {
        let with = |filters| Descriptor { flowspec: load(10_000.0), filters };
        let flows: Vec<_> = filters.into_iter().map(with).collect();
        world.call(2, |machine, now| machine.reserve(now, to, style, &flows, false)).unwrap();
        world.run_for(Duration::from_secs(10));
        let there = world.towards(1, 2);
        assert_eq!(there.len(), reservations, "{style:?}");
        assert!(there.iter().all(|kept| kept.filters == [own]), "{style:?}");
        assert!(world.towards(0, 1).is_empty(), "{style:?}");
        world.call(2, |machine, now| machine.release(now, to));
        world.run_for(Duration::from_secs(10));
    }
}

#[test]
fn a_path_error_by_an_interface_without_a_key_is_not_forwarded_for_others() {
    let config = Config { trust_network: false, ..Config::default() };
    let settings = Settings { config, sealed: true, ..Settings::default() };
    let mut world = World::new(1, 4, &LINKS[..3], settings);
    // The sender's side of router 1 has a key, the other side none.
    world.open_links.insert(1);
    (0..4).for_each(|node| world.start(node));
    let to = session(world.host(3));
    let from = announce(&mut world, 0, to, 50_000.0);
    world.run_for(Duration::from_secs(3));
    let (incoming, source) = (world.interface(1, 2), world.address(1, 1));
    let cause = Cause::Bandwidth;
    let error = ErrorSpec { node: source, in_place: false, not_guilty: false, cause };
    let traffic = traffic(50_000.0);
    let body = PathErr { session: to, error, sender: from, traffic };
    deliver(&mut world, 1, incoming, source, &Message::new(Body::PathErr(body)));
    assert_eq!(sent(&world, 1, None, is_path_err), 0);
    assert!(was_dropped(&world, 1, "not trusted"));
}

/// A number above all that were used.
const NEW: Seal = Seal { handshake: true, sequence: 1 << 60 };

/// Delivers a message of a neighbour's address, sealed with a key.
fn deliver_sealed(
    world: &mut World,
    (node, interface): (usize, InterfaceId),
    source: IpAddr,
    message: &Message,
    (key, seal): (&Key, Seal),
) {
    let payload = message.encode().expect("it fits");
    let sealed = integrity::seal(&payload, key, seal);
    let payload = sealed.expect("it fits");
    world.call(node, |machine, now| {
        machine.on_packet(now, Arrival { interface, source, ttl: 64, payload: &payload });
    });
}

/// A line whose nodes have keys of their own; a reservation stands.
fn own_keys() -> (World, Session, Sender) {
    let settings = Settings { sealed: true, own_keys: true, ..Settings::default() };
    let mut world = World::new(1, 4, &LINKS[..3], settings);
    let to = session(world.address(2, 1));
    let from = sender(world.host(0));
    reserve(&mut world, 3, to, from, 50_000.0);
    announce(&mut world, 0, to, 50_000.0);
    world.run_for(Duration::from_secs(3));
    assert!(stands(&world), "neighbours with keys of their own reserve");
    (world, to, from)
}

#[test]
fn a_neighbour_with_a_key_of_its_own_cannot_speak_for_another_in_a_bundle() {
    let (mut world, to, from) = own_keys();
    let (sender_end, third) = (world.address(0, 0), world.address(0, 2));
    let incoming = world.interface(1, 0);
    let tear = |address| {
        let hop = Hop { address, interface: 0 };
        Message::new(Body::PathTear(PathTear { session: to, hop, sender: from }))
    };
    let bundle = |parts: &[Message]| Message::new(Body::Bundle(parts.to_vec()));
    let of_third = own_key(0, 2).of_sender(third);
    // It has proven itself, or its make knows no Challenge.
    let seal = Seal { handshake: false, ..NEW };
    for parts in [vec![tear(sender_end)], vec![tear(third), tear(sender_end)]] {
        world.events.clear();
        let sealed = (&of_third, seal);
        deliver_sealed(&mut world, (1, incoming), third, &bundle(&parts), sealed);
        assert!(was_dropped(&world, 1, "a part of the bundle"), "{:?}", world.events);
        assert!(stands(&world));
    }
    // What is its own it may bundle, and so may the other.
    let pair = own_key(0, 0).of_sender(sender_end);
    for (source, key, is_left) in [(third, of_third, true), (sender_end, pair, false)] {
        world.events.clear();
        let message = bundle(&[tear(source), tear(source)]);
        deliver_sealed(&mut world, (1, incoming), source, &message, (&key, seal));
        assert!(!was_dropped(&world, 1, ""), "{:?}", world.events);
        assert_eq!(world.towards(1, 2).len(), usize::from(is_left));
    }
}

#[test]
fn a_neighbour_with_a_key_of_its_own_cannot_speak_for_another_of_the_same_link() {
    let (mut world, to, from) = own_keys();
    // At the first router: the sender is a neighbour on link 0, and so is a third node.
    let (sender_end, third) = (world.address(0, 0), world.address(0, 2));
    let incoming = world.interface(1, 0);
    let hop = Hop { address: sender_end, interface: 0 };
    let tear = Message::new(Body::PathTear(PathTear { session: to, hop, sender: from }));
    let smaller = {
        let mut message = path(to, sender_end, from);
        if let Body::Path(path) = &mut message.body {
            path.traffic = traffic(1_000.0);
        }
        message
    };
    let (pair, of_third) = (own_key(0, 0), own_key(0, 2));
    let renamed = Key::new(2, Algorithm::HmacSha256, b"of the third of link 0".to_vec());
    let known = [
        // Its own key under its own name and the other's, under the other's number, and that of all.
        of_third.of_sender(third),
        of_third.of_sender(sender_end),
        renamed.of_sender(sender_end),
        shared_key().of_sender(sender_end),
        shared_key().of_sender(third),
    ];
    let before = (world.changes, world.towards(1, 2)[0].rate);
    for key in &known {
        for message in [&tear, &smaller] {
            for source in [sender_end, third] {
                world.events.clear();
                let sealed = (key, NEW);
                deliver_sealed(&mut world, (1, incoming), source, message, sealed);
                assert!(was_dropped(&world, 1, "the message's"), "{:?}", world.events);
            }
        }
    }
    // Longer than the cleanup timeout of 157.5 s: what it said has used up no numbers of the other.
    for _ in 0..20 {
        world.run_for(Duration::from_secs(10));
        assert!(stands(&world), "at {:?}", world.now);
    }
    assert_eq!((world.changes, world.towards(1, 2)[0].rate), before);
    // Who has the sender's key ends it.
    let sealed = (&pair.of_sender(sender_end), NEW);
    world.events.clear();
    deliver_sealed(&mut world, (1, incoming), sender_end, &tear, sealed);
    assert!(!was_dropped(&world, 1, ""), "{:?}", world.events);
    assert!(world.towards(1, 2).is_empty(), "the attack would work with the right key");
}

#[test]
fn to_a_group_neighbours_with_keys_of_their_own_use_that_of_the_interface() {
    let group = IpAddr::from([224, 1, 2, 3]);
    let settings = Settings { sealed: true, own_keys: true, ..Settings::default() };
    let mut world = World::new(1, 4, &[(0, 1), (1, 2), (1, 3)], settings);
    world.join(group, 2);
    world.join(group, 3);
    let to = session(group);
    let from = announce(&mut world, 0, to, 50_000.0);
    for receiver in [2, 3] {
        reserve(&mut world, receiver, to, from, 50_000.0);
    }
    world.run_for(Duration::from_secs(40));
    assert_eq!((world.towards(0, 1).len(), world.towards(1, 2).len()), (1, 1));
    // A PATH to a group that is sealed for one neighbour alone is refused.
    let (hop, incoming) = (world.address(0, 0), world.interface(1, 0));
    let pair = own_key(0, 0).of_sender(hop);
    world.events.clear();
    deliver_sealed(&mut world, (1, incoming), hop, &path(to, hop, from), (&pair, NEW));
    assert!(was_dropped(&world, 1, "Key Identifier"));
}
