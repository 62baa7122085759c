//! Attackers on a link: without the key they must not change state; without any key their effect is
//! bounded.

use std::net::{IpAddr, Ipv4Addr};

use ontempo_foundation::Duration;
use ontempo_reservation::local::Room;
use ontempo_reservation::machine::{Arrival, Census, Config, Event, InterfaceId, Transmit};
use ontempo_reservation::message::{
    Body, Cause, Descriptor, ErrorSpec, Hop, Message, Path, PathErr, PathTear, RawObject, Resv,
    ResvErr, ResvTear, Session, Style,
};

use super::world::{Settings, World};
use super::{LINE, RTT, line, load, sender, session, traffic};

fn sealed() -> Settings {
    Settings { sealed: true, ..Settings::default() }
}

fn body(packet: &Transmit) -> Body {
    Message::decode(&packet.payload).expect("a message").body
}

/// A recorded message without RSVP_HOP from one node to the other's address.
fn recorded(world: &World, from: usize, to: IpAddr) -> Transmit {
    let is_hopless = |packet: &Transmit| matches!(body(packet), Body::Ack | Body::Srefresh(_));
    let mut sent = world.recorded.iter().rev();
    let found =
        sent.find(|(node, packet)| *node == from && packet.destination == to && is_hopless(packet));
    found.expect("an Ack or Srefresh").1.clone()
}

fn deliver(world: &mut World, node: usize, interface: InterfaceId, source: IpAddr, bytes: &[u8]) {
    world.call(node, |machine, now| {
        machine.on_packet(now, Arrival { interface, source, ttl: 64, payload: bytes });
    });
}

fn stands(world: &World) -> bool {
    LINE.iter().all(|&(node, peer)| world.towards(node, peer).len() == 1)
}

#[test]
fn a_nodes_own_sealed_message_sent_back_to_it_locks_no_neighbour_out() {
    let (mut world, ..) = line(sealed(), 50_000.0);
    world.run_for(Duration::from_secs(3));
    assert!(stands(&world));
    let neighbour = world.address(1, 0);
    let reflected = recorded(&world, 2, neighbour);
    let interface = world.interface(2, 1);
    deliver(&mut world, 2, interface, neighbour, &reflected.payload);
    // Longer than the cleanup timeout of 157.5 s.
    for _ in 0..40 {
        world.run_for(Duration::from_secs(10));
        assert!(stands(&world), "at {:?}", world.now);
    }
}

#[test]
fn a_sender_with_the_address_of_a_group_of_all_or_of_this_node_is_no_neighbour() {
    let (mut world, ..) = line(Settings::default(), 50_000.0);
    world.run_for(Duration::from_secs(3));
    let (interface, source) = (world.interface(1, 0), world.address(0, 0));
    let known: Vec<IpAddr> =
        world.call(1, |machine, _| machine.neighbours().map(|(_, address, _)| address).collect());
    let own = world.address(0, 1);
    let wrong = [[224, 0, 0, 5], [255; 4], [0; 4], [127, 0, 0, 1]].map(IpAddr::from);
    for address in wrong.into_iter().chain([own]) {
        let hop = Hop { address, interface: 0 };
        let (to, from) = (session(world.host(3)), sender(world.host(0)));
        let tear = Message::new(Body::PathTear(PathTear { session: to, hop, sender: from }));
        for message in [tear.clone(), Message::new(Body::Bundle(vec![tear]))] {
            deliver(&mut world, 1, interface, source, &message.encode().expect("it is short"));
            assert!(stands(&world), "{address}");
            let heard: Vec<IpAddr> = world.call(1, |machine, _| {
                machine.neighbours().map(|(_, address, _)| address).collect()
            });
            assert_eq!(heard, known, "{address}");
        }
    }
}

#[test]
fn a_message_on_an_interface_without_a_key_changes_nothing_on_one_that_has_a_key() {
    let mut world = World::new(1, 4, &LINE, sealed());
    world.open_links.insert(0);
    (0..4).for_each(|node| world.start(node));
    let (to, from) = (session(world.host(3)), sender(world.host(0)));
    super::reserve(&mut world, 3, to, from, 50_000.0);
    super::announce(&mut world, 0, to, 50_000.0);
    world.run_for(Duration::from_secs(3));
    assert!(stands(&world));
    let named = world.interface(1, 2);
    let hop = Hop { address: world.address(1, 1), interface: named.0 };
    let (incoming, before) = (world.interface(1, 0), world.changes);
    let style = Style::FixedFilter;
    let tear = ResvTear { session: to, hop, scope: Vec::new(), style, filters: vec![from] };
    let flows = vec![Descriptor { flowspec: load(90_000.0), filters: vec![from] }.into()];
    let refresh = Duration::from_secs(30);
    let (confirm, scope) = (None, Vec::new());
    let resv = Resv { session: to, hop, refresh, confirm, scope, style, flows };
    let bundle = Body::Bundle(vec![Message::new(Body::ResvTear(tear.clone()))]);
    for body in [Body::Resv(resv), bundle, Body::ResvTear(tear)] {
        let forged = Message::new(body).encode().expect("it fits");
        deliver(&mut world, 1, incoming, hop.address, &forged);
    }
    assert_eq!(world.changes, before, "the forged messages changed reservations");
}

fn path(session: Session, hop: IpAddr, refresh: Duration) -> Message {
    let hop = Hop { address: hop, interface: 0 };
    let (sender, traffic) = (sender(hop.address), traffic(1_000.0));
    let mut message =
        Message::new(Body::Path(Path { session, hop, refresh, sender, traffic, adspec: None }));
    message.send_ttl = 64;
    message
}

/// A router whose neighbours are not there, so that whatever it sends goes nowhere.
fn lone_router() -> World {
    let mut world = World::new(1, 3, &[(0, 1), (1, 2)], Settings::default());
    [0, 2].into_iter().for_each(|host| world.stop(host));
    world.hear_all_routes(1);
    world
}

fn paths(world: &World) -> usize {
    world.machines[1].as_ref().expect("the router runs").census().paths
}

#[test]
fn a_path_with_a_refresh_period_of_weeks_ends_within_the_bound() {
    let mut world = lone_router();
    let hop = world.address(0, 0);
    let message = path(session(world.address(1, 1)), hop, Duration::from_millis(u32::MAX.into()));
    deliver(&mut world, 1, InterfaceId(0), hop, &message.encode().expect("it fits"));
    assert_eq!(paths(&world), 1);
    // 10 R = 300 s at most, of which the cleanup timeout is 5.25 times.
    world.run_for(Duration::from_secs(1_600));
    assert_eq!(paths(&world), 0);
}

#[test]
fn forwarded_objects_have_a_budget_for_all_paths_together() {
    let mut world = lone_router();
    let hop = world.address(0, 0);
    const BYTES: usize = 60_000;
    for port in 1..=600 {
        let to = Session { port, ..session(world.address(1, 1)) };
        let mut message = path(to, hop, Duration::from_secs(30));
        message.forwarded = vec![RawObject { class: 0xc1, ctype: 1, body: vec![0; BYTES] }];
        deliver(&mut world, 1, InterfaceId(0), hop, &message.encode().expect("it fits"));
        world.recorded.clear();
    }
    let kept = paths(&world) * BYTES;
    assert!((1 << 20..=16 << 20).contains(&kept), "{kept} bytes are kept");
    // A PATH without such objects is still accepted.
    let before = paths(&world);
    let message = path(session(world.address(1, 1)), hop, Duration::from_secs(30));
    deliver(&mut world, 1, InterfaceId(0), hop, &message.encode().expect("it fits"));
    assert_eq!(paths(&world), before + 1);
    world.run_for(Duration::from_secs(400));
    assert!(world.is_empty());
    // What has ended is given back.
    let mut message = path(session(world.address(1, 1)), hop, Duration::from_secs(30));
    message.forwarded = vec![RawObject { class: 0xc1, ctype: 1, body: vec![0; BYTES] }];
    deliver(&mut world, 1, InterfaceId(0), hop, &message.encode().expect("it fits"));
    assert_eq!(paths(&world), 1);
}

/// A RESV for many senders that nobody knows, from an address that may be forged.
fn refused_resv(world: &mut World, hop: IpAddr) -> usize {
    let to = session(world.address(1, 1));
    let flow = |port: u16| Descriptor {
        flowspec: load(1_000.0),
        filters: vec![ontempo_reservation::message::Sender { address: hop, port }],
    };
    let resv = Resv {
        session: to,
        hop: Hop { address: hop, interface: 1 },
        refresh: Duration::from_secs(30),
        confirm: None,
        scope: Vec::new(),
        style: Style::FixedFilter,
        flows: (1..=22).map(|port| flow(port).into()).collect(),
    };
    let bytes = Message::new(Body::Resv(resv)).encode().expect("it fits");
    deliver(world, 1, InterfaceId(1), hop, &bytes);
    bytes.len()
}

fn errors(world: &World) -> Vec<usize> {
    let sent = world.recorded.iter().filter(|(_, packet)| matches!(body(packet), Body::ResvErr(_)));
    sent.map(|(_, packet)| packet.payload.len()).collect()
}

#[test]
fn a_refused_resv_gets_one_error_and_errors_have_a_rate() {
    let mut world = lone_router();
    let hop = world.address(0, 0);
    let message = path(session(world.address(1, 1)), hop, Duration::from_secs(30));
    deliver(&mut world, 1, InterfaceId(0), hop, &message.encode().expect("it fits"));
    let size = refused_resv(&mut world, [10, 1, 0, 3].into());
    world.run_for(Duration::from_secs(20));
    let sent = errors(&world);
    assert_eq!(sent.len(), 1, "one RESV of {size} bytes draws {sent:?}");
    assert!(sent[0] < size);
    for last in 0..=250 {
        for third in 0..4 {
            refused_resv(&mut world, [10, 1, third, last].into());
        }
    }
    let sent = errors(&world).len();
    assert!((2..=300).contains(&sent), "{sent} errors at once");
}

#[test]
fn a_neighbour_restarted_with_its_clock_behind_is_challenged_and_accepted() {
    let (mut world, ..) = line(sealed(), 50_000.0);
    world.run_for(Duration::from_secs(3));
    world.clocks_behind = true;
    world.start(1);
    world.run_for(Duration::from_secs(60));
    assert!(stands(&world));
    world.run_for(Duration::from_secs(400));
    assert!(stands(&world));
}

#[test]
fn a_message_replayed_from_many_addresses_keeps_no_neighbour_out() {
    let (mut world, ..) = line(sealed(), 50_000.0);
    world.run_for(Duration::from_secs(3));
    let replayed = recorded(&world, 1, world.address(1, 1));
    let interface = world.interface(2, 1);
    world.start(2);
    for source in 0..300u16 {
        let [high, low] = source.to_be_bytes();
        let source = Ipv4Addr::new(10, 9, high, low).into();
        deliver(&mut world, 2, interface, source, &replayed.payload);
    }
    // As after any restart: a cleanup timeout, then a refresh or two.
    world.run_for(RTT * 2 + Duration::from_secs(157 + 4 * 30));
    let refused = world.events.iter().any(|(_, node, event)| {
        matches!(event, Event::Dropped { reason, .. } if *node == 2 && reason.contains("too many"))
    });
    assert!(!refused, "a neighbour was refused for want of room");
    assert!(stands(&world));
}

fn untrusting(sealed: bool) -> Settings {
    let config = Config { trust_network: false, ..Config::default() };
    Settings { config, sealed, ..Settings::default() }
}

#[test]
fn a_router_without_keys_serves_nobody_unless_it_trusts_the_network() {
    let (mut world, ..) = line(untrusting(false), 50_000.0);
    world.run_for(Duration::from_secs(60));
    for router in [1, 2] {
        assert_eq!(
            world.machines[router].as_ref().expect("it runs").census(),
            Census::default(),
            "node {router}"
        );
    }
    let dropped =
        |event: &Event| matches!(event, Event::Dropped { reason, .. } if reason.contains("no key"));
    assert!(world.events.iter().any(|(_, node, event)| *node == 1 && dropped(event)));
    let (mut world, ..) = line(untrusting(true), 50_000.0);
    world.run_for(Duration::from_secs(3));
    assert!(stands(&world));
}

#[test]
fn hosts_without_keys_reserve_for_their_own_applications() {
    let mut world = World::new(1, 2, &[(0, 1)], untrusting(false));
    (0..2).for_each(|node| world.start(node));
    let (to, from) = (session(world.host(1)), sender(world.host(0)));
    super::reserve(&mut world, 1, to, from, 50_000.0);
    super::announce(&mut world, 0, to, 50_000.0);
    world.run_for(Duration::from_secs(3));
    assert_eq!(world.towards(0, 1).len(), 1);
}

#[test]
fn a_reservation_by_an_interface_without_a_key_is_not_made_for_others() {
    // The sender's side of router 1 has a key, the other side none.
    let mut world = World::new(1, 4, &LINE, untrusting(true));
    world.open_links.insert(1);
    (0..4).for_each(|node| world.start(node));
    let (to, from) = (session(world.host(3)), sender(world.host(0)));
    super::reserve(&mut world, 3, to, from, 50_000.0);
    super::announce(&mut world, 0, to, 50_000.0);
    world.run_for(Duration::from_secs(60));
    assert!(world.towards(1, 2).is_empty());
}

/// A host with one neighbour that is not there, by an interface without a key.
fn lone_host(trust_network: bool) -> World {
    let config = Config { trust_network, ..Config::default() };
    let mut world = World::new(1, 2, &[(0, 1)], Settings { config, ..Settings::default() });
    world.stop(0);
    world
}

fn census(world: &World) -> Census {
    world.machines[1].as_ref().expect("the host runs").census()
}

fn flood(world: &mut World, sessions: u16, senders: u16) {
    let (to, hop) = (session(world.host(1)), world.address(0, 0));
    for port in 1..=sessions {
        let mut message = path(Session { port, ..to }, hop, Duration::from_secs(30));
        for number in 1..=senders {
            if let Body::Path(path) = &mut message.body {
                path.sender.port = number;
            }
            deliver(world, 1, InterfaceId(0), hop, &message.encode().expect("it fits"));
        }
        world.recorded.clear();
    }
}

#[test]
fn strangers_take_no_sessions_of_a_host_without_a_key() {
    let mut world = lone_host(false);
    flood(&mut world, 20_010, 1);
    assert_eq!(census(&world), Census::default());
    let dropped = world.events.iter().filter(
        |(.., event)| matches!(event, Event::Dropped { reason, .. } if reason.contains("opened")),
    );
    assert!(dropped.count() > 1_000, "they are counted");
    let (to, from) = (session(world.host(1)), sender(world.address(0, 0)));
    super::reserve(&mut world, 1, Session { port: 30_000, ..to }, from, 50_000.0);
}

#[test]
fn an_application_that_opens_its_session_late_has_the_path_at_once() {
    let mut world = lone_host(false);
    let to = session(world.host(1));
    let hop = world.address(0, 0);
    let message = path(to, hop, Duration::from_secs(30)).encode().expect("it fits");
    deliver(&mut world, 1, InterfaceId(0), hop, &message);
    assert_eq!(paths(&world), 0);
    world.call(1, |machine, now| machine.open(now, to));
    assert_eq!(paths(&world), 1);
    // Closed, its state ends though PATHs still come.
    world.call(1, |machine, _| machine.close(to));
    for _ in 0..20 {
        world.run_for(Duration::from_secs(20));
        deliver(&mut world, 1, InterfaceId(0), hop, &message);
    }
    assert_eq!(paths(&world), 0);
    // An old one is not taken.
    world.run_for(Duration::from_secs(200));
    world.call(1, |machine, now| machine.open(now, to));
    assert_eq!(paths(&world), 0);
}

#[test]
fn a_trusted_network_leaves_sessions_to_others_and_to_applications() {
    let mut world = lone_host(true);
    flood(&mut world, 20_010, 1);
    assert_eq!(census(&world).sessions, 10_000, "half of them for one previous hop");
    let (to, from) = (session(world.host(1)), sender(world.address(0, 0)));
    super::reserve(&mut world, 1, Session { port: 30_000, ..to }, from, 50_000.0);
}

#[test]
fn senders_of_all_sessions_have_a_bound() {
    let mut world = lone_host(true);
    flood(&mut world, 1_000, 64);
    assert_eq!(census(&world).paths, 50_000, "half of all for one previous hop");
    world.run_for(Duration::from_secs(400));
    assert!(world.is_empty());
    flood(&mut world, 1, 64);
    assert_eq!(census(&world).paths, 64, "what has ended is given back");
}

#[test]
fn a_status_of_many_sessions_lists_the_first_and_stays_small() {
    let mut world = lone_host(true);
    flood(&mut world, 1_200, 1);
    flood(&mut world, 10, 64);
    // Policy data are written as numbers: four bytes for each.
    let hop = world.address(0, 0);
    let mut message = path(session(world.host(1)), hop, Duration::from_secs(30));
    message.forwarded = vec![RawObject { class: 14, ctype: 1, body: vec![255; 60_000] }];
    deliver(&mut world, 1, InterfaceId(0), hop, &message.encode().expect("it fits"));
    let machine = world.machines[1].as_ref().expect("the host runs");
    let listed = machine.sessions_within(Room { places: 1_000, bytes: 512 << 10 });
    assert_eq!(listed.len(), 1_000);
    let paths = listed.iter().map(|session| session.paths.len()).sum::<usize>();
    assert!((100..=1_000).contains(&paths), "{paths} paths");
    let bytes = serde_json::to_vec(&listed).expect("it is written").len();
    assert!(bytes < 1 << 20, "{bytes} bytes");
    let few = machine.sessions_within(Room { places: 1_000, bytes: 1_000 });
    assert!(few.iter().map(|session| session.paths.len()).sum::<usize>() <= 10);
}

/// Of each kind of error, how many notices the applications of a node got.
fn notified(world: &World, node: usize) -> [usize; 2] {
    let count = |is_counted: fn(&Event) -> bool| {
        world.events.iter().filter(|(_, at, event)| *at == node && is_counted(event)).count()
    };
    [
        count(|event| matches!(event, Event::PathError { .. })),
        count(|event| matches!(event, Event::ResvError { .. })),
    ]
}

#[test]
fn errors_that_a_neighbour_draws_are_told_to_applications_at_a_rate() {
    let (mut world, to, from) = line(Settings::default(), 50_000.0);
    world.run_for(Duration::from_secs(3));
    let cause = Cause::Bandwidth;
    let flood = |world: &mut World| {
        for _ in 0..5_000 {
            let (incoming, source) = (world.interface(0, 1), world.address(0, 1));
            let error = ErrorSpec { node: source, in_place: false, not_guilty: false, cause };
            let traffic = traffic(50_000.0);
            let path_err = Body::PathErr(PathErr { session: to, error, sender: from, traffic });
            let bytes = Message::new(path_err).encode().expect("it fits");
            deliver(world, 0, incoming, source, &bytes);
            let (incoming, source) = (world.interface(3, 2), world.address(2, 0));
            let error = ErrorSpec { node: source, in_place: true, ..error };
            let flow = Descriptor { flowspec: load(50_000.0), filters: vec![from] };
            let hop = Hop { address: source, interface: incoming.0 };
            let (scope, style) = (Vec::new(), Style::FixedFilter);
            let resv_err = ResvErr { session: to, hop, error, scope, style, flow };
            let bytes = Message::new(Body::ResvErr(resv_err)).encode().expect("it fits");
            deliver(world, 3, incoming, source, &bytes);
        }
    };
    flood(&mut world);
    assert_eq!((notified(&world, 0)[0], notified(&world, 3)[1]), (200, 200), "at once");
    world.run_for(Duration::from_secs(2));
    flood(&mut world);
    assert_eq!((notified(&world, 0)[0], notified(&world, 3)[1]), (400, 400), "100 a second");
}
