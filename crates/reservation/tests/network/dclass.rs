//! What senders are asked to mark their packets with (DCLASS, RFC 2996).

use std::net::IpAddr;

use ontempo_foundation::{Duration, Rate};
use ontempo_reservation::htb::{Aggregate, Serves};
use ontempo_reservation::local::Room;
use ontempo_reservation::machine::{Arrival, Change, Config, Event, InterfaceId};
use ontempo_reservation::message::{
    Body, Dclass, Descriptor, Hop, Mark, Marked, Message, Resv, Sender, Session, Style,
};

use super::world::{Settings, World};
use super::{LINE, RTT, announce, fixed, load, reserve, sender, session};

/// An aggregate for controlled load up to a rate in bytes a second.
fn aggregate(dscp: u8, up_to: u64) -> Aggregate {
    let up_to = Some(Rate::from_bits_per_sec(up_to * 8));
    Aggregate { dscp, serves: Serves::ControlledLoad, up_to }
}

fn any(dscp: u8) -> Vec<Aggregate> {
    vec![aggregate(dscp, 1 << 40)]
}

/// A line of four whose routers have aggregates on the links of these numbers, and one reservation.
fn marked(aggregates: &[(usize, usize, Vec<Aggregate>)]) -> (World, Session, Sender) {
    let mut world = World::new(1, 4, &LINE, Settings::default());
    let to = session(world.host(3));
    for (node, link, of) in aggregates {
        world.aggregates.insert((*node, *link), of.clone());
        world.start(*node);
    }
    let from = sender(world.host(0));
    reserve(&mut world, 3, to, from, 50_000.0);
    announce(&mut world, 0, to, 50_000.0);
    world.run_for(RTT * 3);
    (world, to, from)
}

/// The marks of the last notice that the node's application got.
fn marks(world: &World, node: usize) -> Vec<Mark> {
    let reserved = world.events.iter().rev().find_map(|(_, at, event)| match event {
        Event::Reserved { marks, .. } if *at == node => Some(marks.clone()),
        _ => None,
    });
    reserved.expect("the sender was told")
}

fn mark(from: Sender, dscp: u8) -> Vec<Mark> {
    vec![Mark { senders: vec![from], dscps: Dclass::of(dscp) }]
}

/// DSCPs of the lines about marks at a node: asked for, and not served.
fn lines(world: &World, node: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let told = world.told.iter().filter(|(at, _)| *at == node);
    told.filter_map(|(_, change)| match change {
        Change::Marked { dscps, unserved, .. } => Some(((*dscps).into(), (*unserved).into())),
        _ => None,
    })
    .collect()
}

#[test]
fn a_router_with_aggregates_asks_for_the_dscp_and_the_others_hand_it_on() {
    // The second router has them; the first one and the host forward it.
    let (mut world, to, from) = marked(&[(2, 2, any(34))]);
    assert_eq!(marks(&world, 0), mark(from, 34));
    assert_eq!([0, 1, 2, 3].map(|node| lines(&world, node).len()), [1, 1, 1, 0]);
    assert_eq!(lines(&world, 0), [(vec![34], vec![])]);
    let room = Room { places: 10, bytes: 10_000 };
    let status = |world: &World, node: usize| {
        let machine = world.machines[node].as_ref().expect("it runs");
        machine.sessions_within(room).remove(0)
    };
    for (node, asked, told) in [(0, 34, 34), (1, 34, 34), (2, 0, 34)] {
        let status = status(&world, node);
        let dscps = [status.reservations[0].dscps, status.paths[0].dscps];
        let of = |dscp| if dscp == 0 { Dclass::NONE } else { Dclass::of(dscp) };
        assert_eq!(dscps, [of(asked), of(told)], "node {node}");
    }
    assert!(status(&world, 3).paths[0].dscps.is_empty());
    // Refreshes say nothing new.
    let events = world.events.len();
    world.run_for(Duration::from_secs(600));
    assert_eq!((world.events.len(), lines(&world, 0).len()), (events, 1));
    world.call(3, |machine, now| machine.release(now, to));
    world.run_for(RTT * 2);
    assert_eq!(marks(&world, 0), []);
}

#[test]
fn refreshes_in_full_keep_it_too() {
    let settings = Settings { refresh_reduction: false, ..Settings::default() };
    let mut world = World::new(1, 4, &LINE, settings);
    world.aggregates.insert((1, 1), any(34));
    world.start(1);
    let (to, from) = (session(world.host(3)), sender(world.host(0)));
    reserve(&mut world, 3, to, from, 50_000.0);
    announce(&mut world, 0, to, 50_000.0);
    world.run_for(Duration::from_secs(600));
    assert_eq!((marks(&world, 0), lines(&world, 0).len()), (mark(from, 34), 1));
}

#[test]
fn without_aggregates_nobody_is_asked() {
    let (world, ..) = marked(&[]);
    assert_eq!(marks(&world, 0), []);
    assert!((0..4).all(|node| lines(&world, node).is_empty()));
}

#[test]
fn the_network_that_packets_come_to_first_has_its_way_and_the_other_is_told_of() {
    let (world, _, from) = marked(&[(1, 1, any(34)), (2, 2, any(26))]);
    assert_eq!(marks(&world, 0), mark(from, 34));
    assert_eq!(lines(&world, 1), [(vec![34], vec![26])]);
    assert_eq!(lines(&world, 0), [(vec![34], vec![])]);
    // The same is no conflict.
    let (world, ..) = marked(&[(1, 1, any(34)), (2, 2, any(34))]);
    assert_eq!(lines(&world, 1), [(vec![34], vec![])]);
    // A host can have aggregates, too.
    let (world, _, from) = marked(&[(0, 0, any(18)), (1, 1, any(34))]);
    assert_eq!((marks(&world, 0), lines(&world, 0)), (mark(from, 18), vec![(vec![18], vec![34])]));
}

#[test]
fn the_aggregate_is_that_of_what_is_reserved_now() {
    let small_and_large = vec![aggregate(34, 20_000), aggregate(26, 60_000)];
    let (mut world, to, from) = marked(&[(1, 1, small_and_large)]);
    assert_eq!(marks(&world, 0), mark(from, 26));
    reserve(&mut world, 3, to, from, 10_000.0);
    world.run_for(RTT * 2);
    assert_eq!(marks(&world, 0), mark(from, 34));
    // None takes it: it has a class of its own, found by its addresses.
    world.call(0, |machine, now| {
        machine.announce(now, to, from, super::traffic(70_000.0)).expect("it is right");
    });
    reserve(&mut world, 3, to, from, 70_000.0);
    world.run_for(RTT * 4);
    assert_eq!(marks(&world, 0), []);
    assert_eq!(lines(&world, 0).last(), Some(&(vec![], vec![])));
}

#[test]
fn other_aggregates_of_a_router_are_told_upstream_at_once() {
    let (mut world, _, from) = marked(&[(1, 1, any(34))]);
    world.aggregates.insert((1, 1), any(26));
    let config = world.interface_config(1, (1, 0));
    world.call(1, |machine, now| machine.change_interface(now, InterfaceId(1), config, true));
    world.run_for(RTT);
    assert_eq!(marks(&world, 0), mark(from, 26));
}

/// Two senders' hosts, a router with an aggregate, a receiver's.
fn two_senders(style: Style) -> (World, [Sender; 2]) {
    let mut world = World::new(1, 4, &[(0, 2), (1, 2), (2, 3)], Settings::default());
    world.aggregates.insert((2, 2), vec![aggregate(34, 30_000), aggregate(26, 1 << 40)]);
    world.start(2);
    let to = session(world.host(3));
    let senders = [announce(&mut world, 0, to, 25_000.0), announce(&mut world, 1, to, 50_000.0)];
    let flow = |rate, filters| Descriptor { flowspec: load(rate), filters };
    let flows = match style {
        Style::FixedFilter => {
            vec![flow(25_000.0, vec![senders[0]]), flow(50_000.0, vec![senders[1]])]
        }
        Style::SharedExplicit => vec![flow(40_000.0, senders.to_vec())],
        Style::Wildcard => vec![flow(40_000.0, Vec::new())],
    };
    world.call(3, |machine, now| machine.reserve(now, to, style, &flows, false)).expect("right");
    world.run_for(RTT * 3);
    (world, senders)
}

#[test]
fn each_sender_of_ff_has_its_own_and_those_of_a_shared_reservation_the_same() {
    let (world, senders) = two_senders(Style::FixedFilter);
    assert_eq!(marks(&world, 0), mark(senders[0], 34));
    assert_eq!(marks(&world, 1), mark(senders[1], 26));
    let (world, senders) = two_senders(Style::SharedExplicit);
    assert_eq!(marks(&world, 0), mark(senders[0], 26));
    assert_eq!(marks(&world, 1), mark(senders[1], 26));
    let (world, senders) = two_senders(Style::Wildcard);
    for (node, from) in senders.iter().enumerate() {
        let [of_all] = &marks(&world, node)[..] else { panic!("one mark") };
        assert_eq!(of_all, &Mark { senders: Vec::new(), dscps: Dclass::of(26) });
        assert!(of_all.is_for(from));
    }
}

/// A group's router has two next hops; each may have an aggregate behind it.
fn group(aggregates: [Option<u8>; 2]) -> (World, Sender) {
    let links = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 5)];
    let mut world = World::new(1, 6, &links, Settings::default());
    let group = IpAddr::from([224, 1, 2, 3]);
    for (node, dscp) in [2, 3].into_iter().zip(aggregates) {
        if let Some(dscp) = dscp {
            world.aggregates.insert((node, node + 1), any(dscp));
            world.start(node);
        }
    }
    world.join(group, 4);
    world.join(group, 5);
    world.start(0);
    let to = session(group);
    let from = announce(&mut world, 0, to, 50_000.0);
    world.run_for(RTT * 2);
    for node in [4, 5] {
        reserve(&mut world, node, to, from, 20_000.0);
    }
    world.run_for(RTT * 2);
    (world, from)
}

#[test]
fn next_hops_that_ask_for_different_dscps_have_none_in_common() {
    let (world, from) = group([Some(34), Some(34)]);
    assert_eq!(marks(&world, 0), mark(from, 34));
    // One that has no wish is served by any.
    let (world, from) = group([None, Some(34)]);
    assert_eq!(marks(&world, 0), mark(from, 34));
    let (world, _) = group([Some(26), Some(34)]);
    assert_eq!(marks(&world, 0), []);
    assert_eq!(lines(&world, 1).last(), Some(&(vec![], vec![26, 34])));
}

/// A RESV of the line's first router to the sender's host, with these DSCPs.
fn forge(world: &mut World, to: Session, from: Sender, dclass: Dclass) {
    let hop = Hop { address: world.address(0, 1), interface: world.interface(0, 1).0 };
    let [descriptor] = &fixed(load(50_000.0), from)[..] else { panic!("one flow") };
    let resv = Resv {
        session: to,
        hop,
        refresh: Duration::from_secs(30),
        confirm: None,
        scope: Vec::new(),
        style: Style::FixedFilter,
        flows: vec![Marked { descriptor: descriptor.clone(), dclass }],
    };
    let mut message = Message::new(Body::Resv(resv));
    message.send_ttl = 64;
    let payload = message.encode().expect("it fits");
    let interface = world.interface(0, 1);
    let arrival = Arrival { interface, source: hop.address, ttl: 64, payload: &payload };
    world.call(0, |machine, now| machine.on_packet(now, arrival));
}

#[test]
fn no_neighbour_has_a_host_mark_best_effort_or_network_control() {
    let (mut world, to, from) = marked(&[]);
    let left_out = |world: &World| {
        let told = world.told.iter().filter(|(at, _)| *at == 0);
        told.filter(|(_, change)| matches!(change, Change::Unmarkable { .. })).count()
    };
    for (number, dscp) in [0].into_iter().chain(48..64).enumerate() {
        forge(&mut world, to, from, Dclass::of(dscp));
        assert_eq!((marks(&world, 0), left_out(&world)), (vec![], number + 1), "DSCP {dscp}");
        // The reservation stands all the same; the same again is told once.
        assert_eq!(world.towards(0, 1).len(), 1);
        forge(&mut world, to, from, Dclass::of(dscp));
        assert_eq!(left_out(&world), number + 1);
    }
    // Beside one that is right it is left out.
    forge(&mut world, to, from, Dclass::of(56).or(Dclass::of(34)));
    assert_eq!(marks(&world, 0), mark(from, 34));
    // Nor does an aggregate that has such a DSCP, of a router's configuration, ask for it; what is behind
    // it would not fit it.
    for dscp in [50, 63] {
        let (world, ..) = marked(&[(1, 1, any(dscp)), (2, 2, any(34))]);
        assert_eq!((marks(&world, 0), lines(&world, 1)), (vec![], vec![(vec![], vec![34])]));
    }
}

#[test]
fn a_host_that_trusts_no_network_takes_it_for_its_own_senders_alone() {
    let config = Config { trust_network: false, ..Config::default() };
    let mut world = World::new(1, 2, &[(0, 1)], Settings { config, ..Settings::default() });
    world.stop(1);
    let to = session(world.address(0, 1));
    world.point(0, to.destination, 1);
    let from = announce(&mut world, 0, to, 50_000.0);
    forge(&mut world, to, from, Dclass::of(34));
    assert_eq!(marks(&world, 0), mark(from, 34));
    let other = Sender { port: 4001, ..from };
    let before = world.events.len();
    forge(&mut world, to, other, Dclass::of(26));
    assert!(
        world.events[before..].iter().all(|(.., event)| !matches!(event, Event::Reserved { .. }))
    );
}
