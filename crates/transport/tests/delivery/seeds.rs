//! Order, reliability and limits hold over thousands of random networks.
//!
//! `ONTEMPO_NETWORK_SEEDS=20000` runs as many, `ONTEMPO_NETWORK_SEEDS=17..18` one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ontempo_foundation::{Bytes, Duration, Packets, RandomStream, Rate, Time};
use ontempo_network::{DelayLaw, LossModel};
use ontempo_testing::hostile::seeds_of;
use ontempo_transport::simulated::{Mishaps, Path};
use ontempo_transport::{
    AckRequest, CloseReason, Configuration, CongestionName, Delivery, DeliveryOrder, Event,
    FlowConfig, FlowId, Limits, Outgoing, PacingConfig, Reliability, SendError,
};

use crate::basics::content;
use crate::world::{CLIENT, SERVER, World, address};

const SEEDS: u64 = 2_000;

/// Maximum events of a run; more mean that virtual time no longer advances.
const MAX_STEPS: u64 = 400_000;

fn pick<T: Clone>(random: &mut RandomStream, from: &[T]) -> T {
    from[(random.next_u64() % from.len() as u64) as usize].clone()
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn path(random: &mut RandomStream) -> Path {
    let base = millis(1 + random.next_u64() % 80);
    let varies = random.chance(0.5);
    let delay = if varies {
        DelayLaw::uniform(base, base + millis(30)).expect("low is below high")
    } else {
        DelayLaw::Constant(base)
    };
    let loss = match random.next_u64() % 3 {
        0 => LossModel::None,
        1 => LossModel::bernoulli(random.uniform_between(0.0, 0.2)).expect("a probability"),
        _ => LossModel::gilbert(0.02, 0.3).expect("probabilities"),
    };
    let mut maybe = |share| if random.chance(0.3) { share } else { 0.0 };
    let (damaged, repeated, marked) = (maybe(0.02), maybe(0.05), maybe(0.05));
    let mut stalls = Vec::new();
    if random.chance(0.2) {
        let begins = Time::ZERO + millis(random.next_u64() % 2000);
        stalls.push((begins, begins + millis(random.next_u64() % 1500)));
    }
    Path {
        rate: Rate::from_bits_per_sec(pick(random, &[1_000_000, 5_000_000, 50_000_000])),
        delay,
        buffer: Packets::new(pick(random, &[5, 20, 100])),
        loss,
        reordering: varies,
        mishaps: Mishaps { damaged, repeated, marked, stalls, shrinks: None },
    }
}

fn configuration(random: &mut RandomStream) -> Configuration {
    let burst = Packets::new(1 + random.next_u64() % 6);
    let quantum = if burst.get().is_multiple_of(2) { millis(1) } else { Duration::ZERO };
    let bytes = pick(random, &[20_000, 200_000]);
    Configuration {
        congestion: pick(random, &CongestionName::ALL).into(),
        rtt_correction: random.chance(0.3),
        pacing: random.chance(0.8).then_some(PacingConfig { gain: 1.25, burst, quantum }),
        acknowledge: pick(
            random,
            &[AckRequest::Immediate, AckRequest::Delayed, AckRequest::Adaptive],
        ),
        packet_threshold: pick(random, &[3, 10, 50]),
        limits: Limits { flows: 3, units: pick(random, &[4, 32, 500]), bytes, unit_bytes: 15_000 },
        streams: pick(random, &[3, 100]),
        send_units: pick(random, &[8, 100]),
        send_bytes: Bytes::new(100_000),
        idle_timeout: Duration::from_secs(30),
        handshake_timeout: Duration::from_secs(30),
        asks_once: random.chance(0.5),
        discover_packet_size: random.chance(0.3),
        retry: random.chance(0.1),
        ..Configuration::default()
    }
}

/// A flow to be sent and its units.
struct Plan {
    config: FlowConfig,
    units: Vec<Outgoing>,
    /// For each unit, the earliest time to send it, and its lifetime.
    times: Vec<(Time, Option<Duration>)>,
    sent: usize,
    id: Option<FlowId>,
}

fn plan(random: &mut RandomStream) -> Plan {
    let order = pick(
        random,
        &[DeliveryOrder::InOrder, DeliveryOrder::OutOfOrder, DeliveryOrder::PartialOrder],
    );
    let reliability = pick(random, &[Reliability::Full, Reliability::Deadline, Reliability::None]);
    let count = 1 + random.next_u64() % 50;
    let pace = random.next_u64() % 20;
    let (mut units, mut times) = (Vec::new(), Vec::new());
    for id in 0..count {
        let size = pick(random, &[0, 10, 200, 1000, 1200, 5000, 15_000]);
        let mut depends_on: Vec<u64> = Vec::new();
        if order == DeliveryOrder::PartialOrder && id > 0 {
            depends_on = (0..random.next_u64() % 3).map(|_| random.next_u64() % id).collect();
            depends_on.sort_unstable();
            depends_on.dedup();
        }
        let lifetime = millis(random.next_u64() % 400);
        let has_deadline = reliability != Reliability::Full && random.chance(0.7);
        units.push(Outgoing {
            data: content(id, size),
            deadline: None,
            priority: random.next_u64() as u8,
            depends_on,
            ..Outgoing::default()
        });
        times.push((Time::ZERO + millis(id * pace), has_deadline.then_some(lifetime)));
    }
    let config = FlowConfig { order, reliability, label: "planned".to_owned() };
    Plan { config, units, times, sent: 0, id: None }
}

impl Plan {
    /// Sends units that are due while the send queue has space; returns the time of the next one.
    fn send_due(&mut self, world: &mut World) -> Time {
        let now = world.now();
        let Some(connection) = world.connection(CLIENT).filter(|one| one.is_open()) else {
            return Time::NEVER;
        };
        let flow = match self.id {
            Some(flow) => flow,
            None => connection.open_flow(self.config.clone()).expect("another flow is allowed"),
        };
        self.id = Some(flow);
        while let Some(unit) = self.units.get(self.sent) {
            let (due, lifetime) = self.times[self.sent];
            if due > now {
                return due;
            }
            let deadline = lifetime.map(|lifetime| now + lifetime);
            match connection.send(now, flow, Outgoing { deadline, ..unit.clone() }) {
                Ok(id) => assert_eq!(id, self.sent as u64),
                Err(SendError::Full | SendError::NotOpen) => return Time::NEVER,
                Err(error) => panic!("unit {}: {error}", self.sent),
            }
            self.sent += 1;
        }
        connection.finish_flow(flow);
        Time::NEVER
    }

    fn check(&self, world: &World, seed: u64) {
        let flow = self.id.expect("it was opened");
        let mut seen = BTreeSet::new();
        let mut dropped = BTreeSet::new();
        let mut last = None;
        for delivery in world.delivered(flow) {
            let id = match delivery {
                Delivery::Dropped(id) => {
                    dropped.insert(*id);
                    *id
                }
                Delivery::Unit(unit) => {
                    let sent = &self.units[unit.id as usize];
                    assert_eq!(
                        unit.data, sent.data,
                        "seed {seed}: unit {} has other data",
                        unit.id
                    );
                    assert_eq!(unit.priority, sent.priority);
                    if self.config.reliability != Reliability::None {
                        let lacking: Vec<u64> = sent
                            .depends_on
                            .iter()
                            .copied()
                            .filter(|on| self.is_partial() && dropped.contains(on))
                            .collect();
                        assert_eq!(unit.missing, lacking, "seed {seed}: unit {}", unit.id);
                        let all = sent.depends_on.iter().all(|on| seen.contains(on));
                        assert!(all || !self.is_partial(), "seed {seed}: {} too early", unit.id);
                    }
                    unit.id
                }
            };
            assert!(seen.insert(id), "seed {seed}: unit {id} twice");
            if self.config.order == DeliveryOrder::InOrder {
                assert!(last < Some(id), "seed {seed}: {id} after {last:?}");
            }
            last = Some(id);
        }
        if self.config.reliability != Reliability::None {
            assert_eq!(seen.len(), self.units.len(), "seed {seed}: units of {:?}", self.config);
        }
        if self.config.reliability == Reliability::Full {
            assert!(dropped.is_empty(), "seed {seed}: dropped {dropped:?}");
        }
        if self.config.reliability == Reliability::Deadline {
            assert_eq!(reported_dropped(world, flow), dropped, "seed {seed}: sides disagree");
        }
    }

    fn is_partial(&self) -> bool {
        self.config.order == DeliveryOrder::PartialOrder
    }
}

/// Numbers of the dropped units reported to the sender.
fn reported_dropped(world: &World, of: FlowId) -> BTreeSet<u64> {
    let mut all = BTreeSet::new();
    for event in &world.events[CLIENT] {
        if let Event::Dropped { flow, units, .. } = event
            && *flow == of
        {
            for unit in units {
                assert!(all.insert(*unit), "unit {unit} reported twice");
            }
        }
    }
    all
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Done,
    /// The handshake failed because the network lost all packets of a direction.
    Unreachable,
    /// The network lost all packets of a direction for the idle timeout (RFC 9000, section 10.1).
    Severed,
}

fn run(seed: u64) -> Ended {
    let mut random = RandomStream::new(seed, "plan");
    let config = configuration(&mut random);
    let (there, back) = (path(&mut random), path(&mut random));
    let rebinds = random.chance(0.15);
    let mut plans: Vec<Plan> = (0..=random.next_u64() % 3).map(|_| plan(&mut random)).collect();
    let mut world = World::new(seed, &there, &back, &config);
    // Half of the clients send as soon as they may, the others once they are welcome.
    let is_early = RandomStream::new(seed, "early").chance(0.5);
    if !world.connects(is_early) {
        check_unreachable(&world, seed);
        return Ended::Unreachable;
    }
    let mut rebound = false;
    let pauses = random.chance(0.3);
    let slow = world.now() + millis(random.next_u64() % 800);
    let end = world.now() + Duration::from_secs(600);
    let mut steps = 0;
    loop {
        steps += 1;
        let mut next = end;
        for plan in &mut plans {
            next = next.min(plan.send_due(&mut world));
        }
        if pauses {
            world.reads = world.now() >= slow;
            next = if world.reads { next } else { next.min(slow) };
        }
        // QUIC knows a client at another address only after the handshake (RFC 9000, section 9).
        let is_connected = world.is_open(CLIENT) && world.is_open(SERVER);
        if rebinds && !rebound && is_connected && world.now() > slow {
            rebound = true;
            world.network.rebind(CLIENT, address(77));
        }
        world.network.flush(CLIENT);
        let ended = plans.iter().all(|plan| plan.id.is_some_and(|flow| world.has_ended(flow)));
        let idle = world.connection(CLIENT).is_none_or(|connection| connection.is_idle());
        if ended && idle {
            break;
        }
        let closed = world.events.iter().flatten().find(|e| matches!(e, Event::Closed { .. }));
        if closed.is_some() || world.now() >= end || steps > MAX_STEPS {
            let closed = closed.cloned();
            if closed.is_some() && !world.is_open(CLIENT) {
                check_unreachable(&world, seed);
                return Ended::Unreachable;
            }
            if is_severed(&world, closed.as_ref(), &config) {
                return Ended::Severed;
            }
            let state = state(&mut world, &plans);
            panic!("seed {seed}: not done, {closed:?}, {state}, {config:#?}, {there:#?}");
        }
        world.step(next);
    }
    plans.iter().for_each(|plan| plan.check(&world, seed));
    check_memory(&world, &config, seed);
    if let Some(pacing) = config.pacing {
        // 64 KB of the smallest packets.
        let at_once = if pacing.quantum > Duration::ZERO { (64 << 10) / 1200 } else { 1 };
        let max_burst = at_once.max(pacing.burst.get() as usize);
        let burst = world.network.largest_burst();
        assert!(burst <= max_burst.max(1), "seed {seed}: a burst of {burst}, {max_burst} allowed");
    }
    Ended::Done
}

/// The state of a run, for the message of a failure.
fn state(world: &mut World, plans: &[Plan]) -> String {
    let now = world.now();
    let mut state = format!("at {now}");
    for plan in plans {
        state += &format!("\n{:?} {} of {} sent", plan.config, plan.sent, plan.units.len());
        let Some(flow) = plan.id else { continue };
        state += &format!(", {} delivered", world.delivered(flow).len());
        if let Some(connection) = world.connection(CLIENT) {
            state += &format!("\n  {:?}", connection.send_statistics(now, flow));
        }
        if let Some(connection) = world.connection(SERVER) {
            let flow = FlowId { outgoing: false, ..flow };
            state += &format!("\n  {:?}", connection.receive_statistics(now, flow));
        }
    }
    for node in [CLIENT, SERVER] {
        if let Some(connection) = world.connection(node) {
            state += &format!("\n{:?}", connection.statistics());
        }
    }
    state
}

/// Whether the connection ended because the network let nothing undamaged pass in a direction for the idle timeout.
fn is_severed(world: &World, closed: Option<&Event>, config: &Configuration) -> bool {
    let timed_out = CloseReason::TimedOut;
    if !matches!(closed, Some(Event::Closed { closed, .. }) if closed.reason == timed_out) {
        return false;
    }
    let last_of = |from| {
        let passages = world.network.passages().iter();
        let came = passages.filter(|p| p.from == from && !p.damaged).filter_map(|p| p.arrives);
        came.filter(|at| *at <= world.now()).max().unwrap_or(Time::ZERO)
    };
    let latest = last_of(CLIENT).min(last_of(SERVER));
    world.now().since(latest) >= config.idle_timeout
}

/// A handshake may fail only if no undamaged packet arrived in at least one direction.
fn check_unreachable(world: &World, seed: u64) {
    let passages = world.network.passages();
    let whole = |from| {
        passages.iter().filter(|p| p.from == from && p.arrives.is_some() && !p.damaged).count()
    };
    let arrived = [whole(CLIENT), whole(SERVER)];
    println!("seed {seed}: {arrived:?} of {} datagrams arrived undamaged", passages.len());
    let events = &world.events;
    assert!(
        arrived.contains(&0),
        "seed {seed}: {arrived:?} arrived undamaged, but no connection: {events:?}"
    );
}

fn check_memory(world: &World, config: &Configuration, seed: u64) {
    let mut max_held = BTreeMap::new();
    for event in &world.events[SERVER] {
        if let Event::FlowEnded { flow, statistics, .. } = event {
            max_held.insert(*flow, statistics.most_held_bytes);
        }
    }
    for (flow, held) in max_held {
        assert!(held <= config.limits.bytes, "seed {seed}: {flow:?} held {held} bytes");
    }
}

#[test]
fn delivery_guarantees_hold_over_thousands_of_random_networks() {
    let seeds = seeds_of("ONTEMPO_NETWORK_SEEDS", SEEDS);
    let next = AtomicU64::new(seeds.start);
    let (unreachable, severed) = (AtomicU64::new(0), AtomicU64::new(0));
    let failed = Mutex::new(Vec::new());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    match std::panic::catch_unwind(|| run(seed)) {
                        Ok(Ended::Done) => {}
                        Ok(Ended::Unreachable) => {
                            unreachable.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(Ended::Severed) => {
                            severed.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(_) => failed.lock().expect("no panic with the lock").push(seed),
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panic with the lock");
    assert!(failed.is_empty(), "failed seeds: {failed:?}");
    let (unreachable, severed) = (unreachable.into_inner(), severed.into_inner());
    let of = seeds.count();
    println!(
        "{unreachable} of {of} networks lost all packets of a direction, {severed} later for 30 s"
    );
}
