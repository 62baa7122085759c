//! Reservations end to end: several machines, links between them, and what goes wrong.

mod abuse;
mod attacks;
mod branches;
mod chaos;
mod dclass;
mod mixed_keys;
mod world;

use std::net::IpAddr;

use ontempo_foundation::{Duration, Rate, Time};
use ontempo_reservation::machine::{Arrival, Config, Event, InterfaceConfig, RequestError};
use ontempo_reservation::message::{
    Body, Cause, Descriptor, FlowSpec, Message, Sender, Session, Style, TrafficSpec,
};
use world::{Settings, Weather, World};

/// Sender, router, router, receiver.
const LINE: [(usize, usize); 3] = [(0, 1), (1, 2), (2, 3)];
const RTT: Duration = Duration::from_millis(60);

pub(crate) fn traffic(bytes_per_second: f32) -> TrafficSpec {
    TrafficSpec {
        rate: bytes_per_second,
        burst: 3_000.0,
        peak: bytes_per_second * 2.0,
        smallest: 64,
        largest: 1_500,
    }
}

pub(crate) fn load(bytes_per_second: f32) -> FlowSpec {
    FlowSpec::ControlledLoad(traffic(bytes_per_second))
}

pub(crate) fn session(destination: IpAddr) -> Session {
    Session { destination, protocol: 17, port: 5004 }
}

pub(crate) fn sender(address: IpAddr) -> Sender {
    Sender { address, port: 4000 }
}

pub(crate) fn fixed(flowspec: FlowSpec, filter: Sender) -> Vec<Descriptor> {
    vec![Descriptor { flowspec, filters: vec![filter] }]
}

fn announce(world: &mut World, node: usize, to: Session, rate: f32) -> Sender {
    let from = sender(world.host(node));
    world
        .call(node, |machine, now| machine.announce(now, to, from, traffic(rate)))
        .expect("the request is right");
    from
}

fn reserve(world: &mut World, node: usize, to: Session, from: Sender, rate: f32) {
    let flows = fixed(load(rate), from);
    world
        .call(node, |machine, now| machine.reserve(now, to, Style::FixedFilter, &flows, true))
        .expect("the request is right");
}

/// A line of four with one reservation asked for from the first to the last.
fn line(settings: Settings, rate: f32) -> (World, Session, Sender) {
    let mut world = World::new(1, 4, &LINE, settings);
    let to = session(world.host(3));
    let from = sender(world.host(0));
    reserve(&mut world, 3, to, from, rate);
    announce(&mut world, 0, to, rate);
    (world, to, from)
}

fn resv_errors(world: &World, node: usize) -> Vec<(Time, ontempo_reservation::message::ErrorSpec)> {
    let errors = world.events.iter().filter_map(|(at, place, event)| match event {
        Event::ResvError { error, .. } if *place == node => Some((*at, *error)),
        _ => None,
    });
    errors.collect()
}

#[test]
fn a_reservation_stands_within_three_round_trips_over_two_routers() {
    let (mut world, to, from) = line(Settings::default(), 50_000.0);
    world.run_for(RTT * 3);
    for (node, peer) in LINE {
        let there = world.towards(node, peer);
        assert_eq!(there.len(), 1);
        assert_eq!(there[0].filters, [from]);
        assert_eq!(there[0].rate, Rate::from_bits_per_sec(400_000));
    }
    let reserved = world.events.iter().find_map(|(at, node, event)| match event {
        Event::Reserved { flows, .. } if *node == 0 => Some((*at, flows.clone())),
        _ => None,
    });
    let (at, flows) = reserved.unwrap();
    assert_eq!(at.since(Time::ZERO), RTT, "PATH there, RESV back");
    assert_eq!(flows, fixed(load(50_000.0), from));
    let confirmed = world.events.iter().find_map(|(at, node, event)| match event {
        Event::Confirmed { session, .. } if *node == 3 => Some((*at, *session)),
        _ => None,
    });
    assert_eq!(confirmed, Some((Time::ZERO + RTT / 2 * 3, to)));
}

#[test]
fn a_sender_that_comes_later_is_confirmed_like_the_first() {
    let mut world = World::new(1, 4, &LINE, Settings::default());
    let to = session(world.host(3));
    let senders = [4000, 4001].map(|port| Sender { address: world.host(0), port });
    let flows: Vec<Descriptor> =
        senders.iter().flat_map(|sender| fixed(load(50_000.0), *sender)).collect();
    world
        .call(3, |machine, now| machine.reserve(now, to, Style::FixedFilter, &flows, true))
        .expect("the request is right");
    for sender in senders {
        world
            .call(0, |machine, now| machine.announce(now, to, sender, traffic(50_000.0)))
            .expect("the request is right");
        world.run_for(RTT * 3);
    }
    let confirmed = world.events.iter().filter_map(|(_, node, event)| match event {
        Event::Confirmed { flows, .. } if *node == 3 => Some(flows.len()),
        _ => None,
    });
    assert_eq!(confirmed.collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn the_advertisement_collects_what_the_path_offers() {
    let (mut world, ..) = line(Settings::default(), 50_000.0);
    world.run_for(RTT);
    let adspec = world.events.iter().find_map(|(_, node, event)| match event {
        Event::Path { adspec, .. } if *node == 3 => *adspec,
        _ => None,
    });
    let adspec = adspec.unwrap();
    assert!(!adspec.broken);
    assert_eq!((adspec.hops, adspec.mtu, adspec.latency), (3, 1500, 30_000));
    assert_eq!(adspec.bandwidth, 187_500.0);
    let guaranteed = adspec.guaranteed.unwrap();
    assert_eq!((guaranteed.c_total, guaranteed.d_total), (4_500, 24_000));
}

#[test]
fn a_hop_that_does_not_speak_rsvp_is_noticed_by_its_ttl() {
    let (mut world, to, from) = line(Settings::default(), 50_000.0);
    let packet = world.call(0, |machine, now| {
        machine.announce(now, to, from, traffic(40_000.0)).unwrap();
        machine.poll_transmit().unwrap()
    });
    let interface = packet.interface;
    world.call(1, |machine, now| {
        let (source, ttl) = (packet.source, packet.ttl - 1);
        machine.on_packet(now, Arrival { interface, source, ttl, payload: &packet.payload });
    });
    world.run_for(RTT);
    let broken = world.events.iter().any(|(_, node, event)| {
        matches!(event, Event::Path { adspec: Some(adspec), .. } if *node == 3 && adspec.broken)
    });
    assert!(broken);
}

#[test]
fn nothing_flaps_in_an_hour_of_refreshes() {
    for refresh_reduction in [false, true] {
        let settings = Settings { refresh_reduction, ..Settings::default() };
        let (mut world, ..) = line(settings, 50_000.0);
        world.run_for(Duration::from_secs(10));
        let (changes, events, sent) = (world.changes, world.events.len(), world.sent);
        world.run_for(Duration::from_secs(3600));
        assert_eq!((world.changes, world.events.len()), (changes, events));
        // Six refreshes of state a period; in reduction an Srefresh for each neighbour.
        let refreshes = (world.sent - sent) as f64 / (3600.0 / 30.0);
        assert!((4.5..8.0).contains(&refreshes), "{refreshes} messages a period");
    }
}

#[test]
fn another_refresh_period_is_announced_before_anything_times_out_by_the_old_one() {
    for refresh_reduction in [false, true] {
        for nodes in [&[1][..], &[0, 1, 2, 3]] {
            let settings = Settings { refresh_reduction, ..Settings::default() };
            let (mut world, ..) = line(settings, 50_000.0);
            world.run_for(Duration::from_secs(10));
            let (changes, events) = (world.changes, world.events.len());
            let config = Config { refresh: Duration::from_secs(300), ..Config::default() };
            for node in nodes {
                world.call(*node, |machine, now| machine.configure(now, config));
            }
            world.run_for(Duration::from_secs(3600));
            assert_eq!((world.changes, world.events.len()), (changes, events), "{nodes:?}");
        }
    }
}

#[test]
fn what_is_lost_around_another_refresh_period_is_sent_again_at_once() {
    // The first PATH, or the first RESV of the receiver's host, is lost.
    for lost_after in [Duration::ZERO, RTT / 2] {
        let mut world = World::new(1, 4, &LINE, Settings::default());
        let (to, from) = (session(world.host(3)), sender(world.host(0)));
        reserve(&mut world, 3, to, from, 50_000.0);
        let lose = |world: &mut World, loss| world.weather = Weather { loss, ..Weather::default() };
        if lost_after == Duration::ZERO {
            lose(&mut world, 1.0);
        }
        announce(&mut world, 0, to, 50_000.0);
        // The last hop is there; what comes of it is lost.
        world.run_for(lost_after.saturating_sub(Duration::from_nanos(1)));
        lose(&mut world, 1.0);
        world.run_for(Duration::from_millis(1));
        lose(&mut world, 0.0);
        let config = Config { refresh: Duration::from_secs(60), ..Config::default() };
        for node in 0..4 {
            world.call(node, |machine, now| machine.configure(now, config));
        }
        world.run_for(RTT * 3);
        let confirmed = world
            .events
            .iter()
            .any(|(_, node, event)| *node == 3 && matches!(event, Event::Confirmed { .. }));
        let stands = LINE.map(|(node, peer)| world.towards(node, peer).len());
        assert_eq!((stands, confirmed), ([1; 3], true), "lost after {lost_after}");
    }
}

#[test]
fn what_an_interface_no_longer_offers_is_told_downstream_at_once_and_nothing_else_changes() {
    let (mut world, ..) = line(Settings::default(), 50_000.0);
    world.run_for(Duration::from_secs(10));
    let (changes, events, sent) = (world.changes, world.events.len(), world.sent);
    let (by, before) = (world.interface(1, 2), world.interface_config(1, (1, 0)));
    let change = |world: &mut World, config: InterfaceConfig| {
        world.call(1, |machine, now| machine.change_interface(now, by, config, true));
        world.run_for(RTT);
    };
    // An address more is nobody's business.
    let mut addresses = before.addresses.clone();
    addresses.push([10, 9, 9, 9].into());
    change(&mut world, InterfaceConfig { addresses, ..before.clone() });
    assert_eq!((world.events.len(), world.sent), (events, sent));
    change(&mut world, InterfaceConfig { guaranteed: None, ..before });
    let told = world.events.iter().skip(events).find_map(|(_, node, event)| match event {
        Event::Path { adspec, .. } if *node == 3 => adspec.and_then(|adspec| adspec.guaranteed),
        _ => None,
    });
    assert!(told.is_some_and(|ad| ad.broken), "{told:?}");
    assert_eq!(world.changes, changes);
}

#[test]
fn a_teardown_from_either_end_leaves_nothing() {
    for by_sender in [false, true] {
        let (mut world, to, from) = line(Settings::default(), 50_000.0);
        world.run_for(Duration::from_secs(5));
        if by_sender {
            world.call(0, |machine, now| machine.withdraw(now, to, from));
            world.run_for(RTT);
            assert!(world.enforced.iter().all(|there| there.is_empty()));
            world.call(3, |machine, now| machine.release(now, to));
        } else {
            world.call(3, |machine, now| machine.release(now, to));
            world.run_for(RTT);
            assert!(world.enforced.iter().all(|there| there.is_empty()));
            world.call(0, |machine, now| machine.withdraw(now, to, from));
        }
        world.run_for(Duration::from_secs(10));
        assert!(world.is_empty());
    }
}

#[test]
fn more_than_the_link_is_refused_where_it_does_not_fit() {
    let mut world = World::new(1, 4, &LINE, Settings::default());
    world.links[1].reservable = Rate::from_bits_per_sec(300_000);
    world.start(1);
    let to = session(world.host(3));
    let from = sender(world.host(0));
    reserve(&mut world, 3, to, from, 50_000.0);
    announce(&mut world, 0, to, 50_000.0);
    world.run_for(RTT * 3);
    let errors = resv_errors(&world, 3);
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].1.cause, Cause::Bandwidth);
    assert_eq!(errors[0].1.node, world.address(1, 0), "the first router, at the narrow link");
    assert_eq!(world.towards(2, 3).len(), 1, "below the narrow link it stands");
    assert!(world.towards(1, 2).is_empty() && world.towards(0, 1).is_empty());
    // What fits is then taken.
    reserve(&mut world, 3, to, from, 30_000.0);
    world.run_for(RTT * 3);
    assert!(LINE.iter().all(|&(node, peer)| world.towards(node, peer).len() == 1));
}

#[test]
fn what_is_accepted_is_confirmed_though_another_flow_of_the_same_resv_is_refused() {
    // At the host of the senders, or on the way to it.
    for narrow in [0, 1] {
        let mut world = World::new(1, 3, &[(0, 1), (1, 2)], Settings::default());
        world.links[narrow].reservable = Rate::from_bits_per_sec(300_000);
        world.start(narrow);
        let to = session(world.host(2));
        let rates = [(4000, 50_000.0), (4001, 20_000.0)];
        let senders = rates.map(|(port, rate)| (Sender { address: world.host(0), port }, rate));
        let mut flows = Vec::new();
        // The second is asked for beside the first, which does not fit.
        for (sender, rate) in senders {
            world
                .call(0, |machine, now| machine.announce(now, to, sender, traffic(rate)))
                .expect("the request is right");
            world.run_for(RTT);
            flows.extend(fixed(load(rate), sender));
            world
                .call(2, |machine, now| machine.reserve(now, to, Style::FixedFilter, &flows, true))
                .expect("the request is right");
            world.run_for(RTT);
        }
        let refused = resv_errors(&world, 2);
        assert!(
            !refused.is_empty() && refused.iter().all(|(_, one)| one.cause == Cause::Bandwidth)
        );
        let (small, rate) = senders[1];
        let confirmed = world.events.iter().filter_map(|(_, node, event)| match event {
            Event::Confirmed { flows, .. } if *node == 2 => Some(flows.clone()),
            _ => None,
        });
        assert_eq!(confirmed.collect::<Vec<_>>(), [fixed(load(rate), small)], "link {narrow}");
        assert_eq!(world.towards(narrow, narrow + 1)[0].filters, [small]);
    }
}

#[test]
fn a_larger_request_that_is_refused_leaves_the_smaller_one_in_place() {
    let mut world = World::new(1, 4, &LINE, Settings::default());
    world.links[1].reservable = Rate::from_bits_per_sec(300_000);
    world.start(1);
    let to = session(world.host(3));
    let from = announce(&mut world, 0, to, 50_000.0);
    reserve(&mut world, 3, to, from, 30_000.0);
    world.run_for(RTT * 3);
    reserve(&mut world, 3, to, from, 50_000.0);
    world.run_for(Duration::from_secs(1_000));
    let errors = resv_errors(&world, 3);
    assert!(errors.iter().all(|(_, error)| error.in_place), "{errors:?}");
    assert_eq!(world.towards(1, 2)[0].rate, Rate::from_bits_per_sec(240_000));
    assert_eq!(world.towards(0, 1)[0].rate, Rate::from_bits_per_sec(240_000));
}

/// A sender, a router, two receivers of a group; the sender's link is narrow.
fn tree() -> (World, Session, Sender) {
    let mut world = World::new(1, 4, &[(0, 1), (1, 2), (1, 3)], Settings::default());
    let group = IpAddr::from([224, 1, 2, 3]);
    world.links[0].reservable = Rate::from_bits_per_sec(300_000);
    world.join(group, 2);
    world.join(group, 3);
    world.start(0);
    let to = session(group);
    let from = announce(&mut world, 0, to, 100_000.0);
    world.run_for(RTT);
    (world, to, from)
}

#[test]
fn next_hops_are_merged_to_what_serves_both() {
    let (mut world, to, from) = tree();
    reserve(&mut world, 2, to, from, 20_000.0);
    reserve(&mut world, 3, to, from, 30_000.0);
    world.run_for(RTT);
    assert_eq!(world.towards(1, 2)[0].rate, Rate::from_bits_per_sec(160_000));
    assert_eq!(world.towards(1, 3)[0].rate, Rate::from_bits_per_sec(240_000));
    assert_eq!(world.towards(0, 1)[0].rate, Rate::from_bits_per_sec(240_000));
    world.call(3, |machine, now| machine.release(now, to));
    world.run_for(RTT);
    assert_eq!(world.towards(0, 1)[0].rate, Rate::from_bits_per_sec(160_000));
}

#[test]
fn blockade_keeps_a_large_request_from_starving_a_small_one() {
    for large_first in [true, false] {
        let (mut world, to, from) = tree();
        let requests = [(2, 90_000.0), (3, 20_000.0)];
        let order = if large_first { [0, 1] } else { [1, 0] };
        for which in order {
            let (node, rate) = requests[which];
            reserve(&mut world, node, to, from, rate);
            world.run_for(Duration::from_secs(1));
        }
        assert_eq!(world.towards(0, 1)[0].rate, Rate::from_bits_per_sec(160_000));
        let small = world.changes;
        // The large one is tried again when the blockade ends; the small one stands all the while.
        for _ in 0..400 {
            world.run_for(Duration::from_secs(1));
            assert_eq!(world.towards(0, 1)[0].rate, Rate::from_bits_per_sec(160_000));
        }
        assert_eq!(world.changes, small);
        assert!(!resv_errors(&world, 2).is_empty());
    }
}

#[test]
fn shared_styles_reserve_once_for_all_senders() {
    for style in [Style::SharedExplicit, Style::Wildcard] {
        let mut world = World::new(1, 4, &[(0, 2), (1, 2), (2, 3)], Settings::default());
        let to = session(world.host(3));
        let senders =
            [announce(&mut world, 0, to, 30_000.0), announce(&mut world, 1, to, 30_000.0)];
        let filters = if style == Style::Wildcard { vec![] } else { senders.to_vec() };
        let flows = [Descriptor { flowspec: load(40_000.0), filters: filters.clone() }];
        world.call(3, |machine, now| machine.reserve(now, to, style, &flows, false)).unwrap();
        world.run_for(RTT * 3);
        assert_eq!(world.towards(2, 3).len(), 1);
        assert_eq!(world.towards(2, 3)[0].rate, Rate::from_bits_per_sec(320_000));
        assert_eq!(world.towards(2, 3)[0].filters, filters);
        // Before the senders' ways meet, no more than each sends.
        assert_eq!(world.towards(0, 2)[0].rate, Rate::from_bits_per_sec(240_000));
        world.call(0, |machine, now| machine.withdraw(now, to, senders[0]));
        world.run_for(RTT);
        assert!(world.towards(0, 2).is_empty());
        assert_eq!(world.towards(2, 3)[0].rate, Rate::from_bits_per_sec(240_000));
    }
}

#[test]
fn a_restarted_router_gets_its_state_back_and_nobody_else_changes_anything() {
    let (mut world, ..) = line(Settings::default(), 50_000.0);
    world.run_for(Duration::from_secs(60));
    let others = (world.enforced[0].clone(), world.enforced[2].clone());
    let before = world.changes;
    world.start(1);
    world.run_for(Duration::from_secs(60));
    assert_eq!(world.towards(1, 2).len(), 1);
    assert_eq!((world.enforced[0].clone(), world.enforced[2].clone()), others);
    assert_eq!(world.changes, before + 1, "the restarted router's own");
}

#[test]
fn a_restarted_router_that_asks_its_neighbours_waits_for_no_refresh() {
    for sealed in [false, true] {
        let settings = Settings { sealed, ..Settings::default() };
        let (mut world, ..) = line(settings, 50_000.0);
        world.run_for(Duration::from_secs(60));
        let neighbours: Vec<_> = world.machines[1]
            .as_ref()
            .map(|machine| machine.neighbours().map(|(by, address, _)| (by, address)).collect())
            .expect("it runs");
        assert_eq!(neighbours.len(), 2, "{neighbours:?}");
        world.start(1);
        world.call(1, |machine, _| {
            neighbours.iter().for_each(|(by, address)| machine.ask(*by, *address));
        });
        // Half a second for the question, and as much for the challenge where messages are sealed.
        world.run_for(Duration::from_millis(if sealed { 1_500 } else { 700 }));
        assert_eq!(world.towards(1, 2).len(), 1, "sealed {sealed}");
        // Whoever asks again and again draws a summary in each half second, and no more.
        let sent = |world: &World| world.sent;
        let before = sent(&world);
        for _ in 0..1_000 {
            world.call(1, |machine, _| machine.ask(neighbours[0].0, neighbours[0].1));
        }
        world.run_for(Duration::from_secs(2));
        assert!(sent(&world) - before < 1_000 + 50, "{}", sent(&world) - before);
    }
}

#[test]
fn a_route_change_is_repaired_at_once_and_the_old_way_is_cleared() {
    let diamond = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5)];
    let mut world = World::new(1, 6, &diamond, Settings::default());
    let to = session(world.host(5));
    let from = announce(&mut world, 0, to, 50_000.0);
    reserve(&mut world, 5, to, from, 50_000.0);
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.towards(1, 2).len(), 1);
    let sender_side = world.enforced[0].clone();
    let asked = world.events.len();
    world.links[1].up = false;
    world.route();
    world.run_for(RTT * 3);
    assert_eq!((world.towards(1, 3).len(), world.towards(3, 4).len()), (1, 1));
    assert!(world.towards(1, 2).is_empty());
    assert_eq!(world.enforced[0], sender_side, "the sender's side did not even notice");
    assert_eq!(world.events.len(), asked, "no failure was reported");
    world.run_for(Duration::from_secs(200));
    assert!(world.enforced[2].is_empty(), "the old way is cleared");
}

#[test]
fn the_old_way_is_torn_down_by_its_next_hop_to_which_no_route_leads_any_more() {
    let diamond = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5)];
    let mut world = World::new(1, 6, &diamond, Settings::default());
    let to = session(world.host(5));
    let from = announce(&mut world, 0, to, 50_000.0);
    reserve(&mut world, 5, to, from, 50_000.0);
    world.run_for(RTT * 3);
    let old = world.interface(1, 2);
    world.point(1, to.destination, 3);
    world.run_for(RTT * 3);
    let tears = world.recorded.iter().filter(|(node, packet)| {
        let body = Message::decode(&packet.payload).map(|message| message.body);
        *node == 1 && packet.interface == old && matches!(body, Ok(Body::PathTear(_)))
    });
    let destinations: Vec<IpAddr> = tears.map(|(_, packet)| packet.destination).collect();
    assert_eq!(destinations, [world.address(1, 1)], "not the session's");
    assert_eq!((world.towards(1, 3).len(), world.towards(2, 4).len()), (1, 0));
}

#[test]
fn with_a_key_only_neighbours_that_have_it_reserve() {
    let settings = Settings { sealed: true, ..Settings::default() };
    let (mut world, to, from) = line(settings, 50_000.0);
    world.run_for(Duration::from_secs(3));
    assert!(LINE.iter().all(|&(node, peer)| world.towards(node, peer).len() == 1));
    // Somebody on the sender's link without the key.
    let hop = ontempo_reservation::message::Hop { address: world.host(0), interface: 0 };
    let tear =
        Body::PathTear(ontempo_reservation::message::PathTear { session: to, hop, sender: from });
    let forged = Message::new(tear).encode().unwrap();
    let (interface, source) = (world.interface(1, 0), world.host(0));
    world.call(1, |machine, now| {
        machine.on_packet(now, Arrival { interface, source, ttl: 64, payload: &forged });
    });
    world.run_for(RTT);
    assert!(LINE.iter().all(|&(node, peer)| world.towards(node, peer).len() == 1));
    let reason = world.events.iter().find_map(|(_, node, event)| match event {
        Event::Dropped { reason, .. } if *node == 1 && reason.contains("INTEGRITY") => Some(reason),
        _ => None,
    });
    assert!(reason.is_some());
    // A restarted router proves itself by a challenge.
    world.start(1);
    world.run_for(Duration::from_secs(60));
    assert_eq!(world.towards(1, 2).len(), 1);
}

#[test]
fn requests_that_contradict_themselves_are_refused_with_a_sentence() {
    let mut world = World::new(1, 4, &LINE, Settings::default());
    let to = session(world.host(3));
    let from = sender(world.host(0));
    let wrong = TrafficSpec { peak: 1.0, ..traffic(50_000.0) };
    let refused = world.call(0, |machine, now| machine.announce(now, to, from, wrong));
    assert_eq!(refused, Err(RequestError::Contradiction));
    let elsewhere = world.call(1, |machine, now| machine.announce(now, to, from, traffic(1.0)));
    assert_eq!(elsewhere, Err(RequestError::NotOurs));
    let slow = FlowSpec::Guaranteed { traffic: traffic(50_000.0), rate: 40_000.0, slack: 0 };
    let flows = fixed(slow, from);
    let refused =
        world.call(3, |machine, now| machine.reserve(now, to, Style::FixedFilter, &flows, false));
    assert_eq!(refused, Err(RequestError::RateBelowTraffic));
    assert!(world.is_empty());
}
