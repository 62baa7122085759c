//! Thousands of seeds: loss, repetition, reordering, restarts, cuts; then calm.

use ontempo_foundation::{Duration, RandomStream, Rate};
use ontempo_reservation::htb::{Aggregate, Serves};
use ontempo_reservation::machine::{Config, Event};
use ontempo_reservation::message::{Dclass, Sender, Session, Style};

use super::world::{Settings, Weather, World};
use super::{fixed, load, sender, session, traffic};

const SEEDS: u64 = 2_000;
/// Two hosts, a ring of four routers, two hosts.
const RING: [(usize, usize); 8] = [(0, 2), (1, 2), (2, 3), (2, 4), (3, 5), (4, 5), (5, 6), (5, 7)];
const ROUTERS: core::ops::Range<usize> = 2..6;
const SENDERS: [usize; 2] = [0, 1];
const RECEIVERS: [usize; 2] = [6, 7];
const REFRESH: Duration = Duration::from_secs(5);
/// DSCPs of aggregates.
const OF_THE_WAY: u8 = 26;
const OF_ALL: u8 = 34;

fn settings(seed: u64) -> Settings {
    Settings {
        config: Config { refresh: REFRESH, ..Config::default() },
        refresh_reduction: !seed.is_multiple_of(2),
        sealed: seed.is_multiple_of(5),
        own_keys: seed.is_multiple_of(10),
    }
}

/// One flow from each sender to each receiver; two fit a link, three do not.
fn flows(world: &World) -> Vec<(usize, usize, Session, Sender)> {
    let pair =
        |from: usize, to: usize| (from, to, session(world.host(to)), sender(world.host(from)));
    vec![pair(0, 6), pair(1, 7)]
}

/// Trouble for a while: messages are lost, repeated and overtaken; routers restart; a link of the
/// ring fails and comes back.
fn trouble(world: &mut World, seed: u64) {
    let mut random = RandomStream::new(seed, "trouble");
    world.weather = Weather {
        loss: random.uniform_between(0.0, 0.4),
        repeat: random.uniform_between(0.0, 0.3),
        jitter: Duration::from_millis(100),
    };
    for _ in 0..6 {
        world.run_for(random.duration_between(Duration::ZERO, REFRESH * 3));
        match random.next_u64() % 4 {
            0 => {
                let routers = ROUTERS.end - ROUTERS.start;
                world.start(ROUTERS.start + random.next_u64() as usize % routers);
            }
            1 => {
                let link = 2 + random.next_u64() as usize % 2;
                world.links[link].up = !world.links[link].up;
                world.route();
            }
            _ => {}
        }
    }
    world.weather = Weather::default();
    for link in &mut world.links {
        link.up = true;
    }
    world.route();
}

/// The routers of the ring that the flows take now, both the same ones.
fn ways(world: &World) -> [[(usize, usize); 4]; 2] {
    let over = if world.towards(2, 3).is_empty() { 4 } else { 3 };
    [[(0, 2), (2, over), (over, 5), (5, 6)], [(1, 2), (2, over), (over, 5), (5, 7)]]
}

fn ask(world: &mut World) {
    for (from, to, session, sender) in flows(world) {
        world
            .call(from, |machine, now| machine.announce(now, session, sender, traffic(50_000.0)))
            .expect("the request is right");
        let flows = fixed(load(50_000.0), sender);
        world
            .call(to, |machine, now| {
                machine.reserve(now, session, Style::FixedFilter, &flows, false)
            })
            .expect("the request is right");
    }
}

fn settle(world: &mut World) {
    // Old state lives for (K + 0.5) * 1.5 * R; then a refresh or two bring the rest.
    let lifetime = Config { refresh: REFRESH, ..Config::default() }.lifetime(REFRESH);
    world.run_for(lifetime + REFRESH * 4);
}

/// Aggregates of the last router, and of one of the two ways to it: what senders are to mark with depends
/// on the way.
fn aggregated(seed: u64) -> World {
    let mut world = World::new(seed, 8, &RING, settings(seed));
    for ((node, link), dscp) in [((3, 4), OF_THE_WAY), ((5, 6), OF_ALL), ((5, 7), OF_ALL)] {
        let aggregate = Aggregate { dscp, serves: Serves::Both, up_to: None };
        world.aggregates.insert((node, link), vec![aggregate]);
    }
    [3, 5].into_iter().for_each(|node| world.start(node));
    world
}

/// What an application was told last.
fn marked(world: &World, node: usize) -> Vec<Dclass> {
    let reserved = world.events.iter().rev().find_map(|(_, at, event)| match event {
        Event::Reserved { marks, .. } if *at == node => Some(marks),
        _ => None,
    });
    reserved.expect("it was told").iter().map(|mark| mark.dscps).collect()
}

fn one(seed: u64) {
    let mut world = aggregated(seed);
    ask(&mut world);
    trouble(&mut world, seed);
    settle(&mut world);
    let total: usize = world.enforced.iter().map(|there| there.len()).sum();
    assert_eq!(total, 8, "four links each, and nothing on the other way");
    for (way, (.., sender)) in ways(&world).into_iter().zip(flows(&world)) {
        for (node, peer) in way {
            let there = world.towards(node, peer);
            let of_flow = there.iter().find(|kept| kept.filters == [sender]);
            let rate = of_flow.map(|kept| kept.rate);
            assert_eq!(rate, Some(Rate::from_bits_per_sec(400_000)), "from {node} to {peer}");
        }
        let dscp = if way[1].1 == 3 { OF_THE_WAY } else { OF_ALL };
        assert_eq!(marked(&world, way[0].0), [Dclass::of(dscp)]);
    }
    let changes = world.changes;
    world.run_for(REFRESH * 10);
    assert_eq!(world.changes, changes, "something flaps");
    end(&mut world, seed);
}

/// Either everybody tears down, in bad weather, or the hosts fall silent; then nothing is left.
fn end(world: &mut World, seed: u64) {
    if seed.is_multiple_of(3) {
        SENDERS.into_iter().chain(RECEIVERS).for_each(|host| world.stop(host));
    } else {
        world.weather = Weather { loss: 0.3, repeat: 0.2, jitter: Duration::from_millis(100) };
        for (from, to, session, sender) in flows(world) {
            world.call(from, |machine, now| machine.withdraw(now, session, sender));
            world.call(to, |machine, now| machine.release(now, session));
        }
    }
    settle(world);
    world.weather = Weather::default();
    settle(world);
    assert!(world.is_empty(), "something is left");
}

#[test]
fn whatever_happens_reservations_converge_and_end() {
    for seed in 0..SEEDS {
        let run = std::panic::catch_unwind(|| one(seed));
        assert!(run.is_ok(), "seed {seed} fails");
    }
}

#[test]
fn the_same_seed_gives_the_same_messages() {
    let run = || {
        let mut world = World::new(77, 8, &RING, settings(77));
        ask(&mut world);
        trouble(&mut world, 77);
        (world.sent, world.changes, world.events)
    };
    assert_eq!(run(), run());
}
