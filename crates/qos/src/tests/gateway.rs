//! A gateway between peers that do anything, in virtual time: the far end of its QoS stream and the
//! near end of its TCP stream send, stall and close at every point.
//!
//! `ONTEMPO_HOSTILE_SEEDS=100000` runs as many, in place of a few hundred.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use ontempo_testing::hostile::{Dice, seeds};

use super::link::Link;
use super::memory::{End, Memory};
use super::setups::offer;
use super::*;
use crate::handshakes::{Handshakes, MAX_PENDING};
use crate::relay::Relayed;
use crate::setup::{self, Established, SetupBytes, Verdict};
use crate::wire::{Offer, Reason, Setup};

/// Gateways of each test, unless the environment says how many.
const SEEDS: u64 = 200;
const STEPS: usize = 150;
const MAX_RELAYED: usize = 4;

/// The clock begins here, after some hours.
const BEGIN: u64 = 20_000_000_000_000;

/// Acts and time of one gateway.
struct World {
    seed: u64,
    dice: Dice,
    clock: Arc<AtomicU64>,
    links: Vec<Link>,
    relayed: Relayed<u64>,
    started: Instant,
    served: u64,
}

impl World {
    fn new(seed: u64, purpose: &str) -> Self {
        Self {
            seed,
            dice: Dice::new(seed, purpose),
            clock: Arc::new(AtomicU64::new(BEGIN)),
            links: Vec::new(),
            relayed: Relayed::new(MAX_RELAYED),
            started: Instant::now(),
            served: 0,
        }
    }

    fn now(&self) -> Instant {
        self.started + Wall::from_nanos(self.clock.load(Relaxed) - BEGIN)
    }

    fn options(&mut self) -> QosOptions {
        match self.dice.below(3) {
            0 => QosOptions::default(),
            1 => QosOptions::receiving(video()),
            _ => QosOptions::both(video()),
        }
    }

    /// A connection whose handshake is complete.
    fn begin(&mut self, wire: (Memory, usize), options: &QosOptions, established: &Established) {
        let from = IpAddr::from([10, 0, 0, self.dice.below(3) as u8]);
        let Some(begun) = self.relayed.begin(self.now(), from) else {
            assert_eq!(self.links.len(), MAX_RELAYED, "seed {}: a place is free", self.seed);
            return;
        };
        let number = begun.number;
        self.served += 1;
        self.relayed.agreed(number, number);
        if let Some(ended) = begun.ended {
            let place = self.links.iter().position(|link| link.number == ended);
            let mut link = self.links.remove(place.expect("a connection that is relayed"));
            link.finish(self.seed);
        }
        let mut link = Link::new(number, wire, options, established, &self.clock);
        // The first of a gateway keeps to the protocol, beside the others.
        link.is_honest = number == 1;
        self.links.push(link);
        assert!(self.links.len() <= MAX_RELAYED, "seed {}", self.seed);
    }

    fn act(&mut self) {
        if !self.links.is_empty() {
            let place = self.dice.below(self.links.len() as u64) as usize;
            let link = &mut self.links[place];
            match self.dice.below(8) {
                0..=4 => link.act_far(&mut self.dice),
                5 | 6 => link.act_near(&mut self.dice),
                _ => link.tick(),
            }
            link.pump(self.seed);
        }
        self.clock.fetch_add(self.dice.below(200_000_000), Relaxed);
        self.links.retain_mut(|link| {
            if link.has_ended() {
                link.check_far(self.seed);
                assert!(self.relayed.end(link.number).is_some(), "seed {}", self.seed);
            }
            !link.has_ended()
        });
    }

    /// All ends close: every place is free afterwards.
    fn end(mut self) -> u64 {
        for mut link in std::mem::take(&mut self.links) {
            link.finish(self.seed);
            assert!(self.relayed.end(link.number).is_some(), "seed {}", self.seed);
        }
        let (now, from) = (self.now(), IpAddr::from([10, 0, 0, 1]));
        for _ in 0..MAX_RELAYED {
            assert!(self.relayed.begin(now, from).is_some(), "seed {}: a place is lost", self.seed);
        }
        assert!(self.relayed.begin(now, from).is_none(), "seed {}", self.seed);
        self.served
    }
}

/// A client of a gateway near a server, while its handshake lasts.
struct Client {
    wire: Memory,
    hello: Vec<u8>,
}

fn near_server(seed: u64) -> (u64, u64) {
    let mut world = World::new(seed, "clients of a gateway");
    let options = world.options();
    let own = options.offer();
    let mut handshakes: Handshakes<Memory> = Handshakes::default();
    let mut clients: Vec<Client> = Vec::new();
    let mut refused = 0;
    for step in 0..STEPS {
        let dice = &mut world.dice;
        let since = Wall::from_nanos(world.clock.load(Relaxed) - BEGIN);
        let now = world.started + since;
        let strangers = match dice.below(12) {
            _ if step == 0 => 1,
            // Many at once, which say nothing.
            0 => dice.below(200),
            1..=3 => 1,
            _ => 0,
        };
        for _ in 0..strangers {
            let wire = Memory::default();
            wire.with(|state| state.room = 1 << 20);
            let from = if step == 0 { own } else { offer(dice) };
            let (session, sent) = (dice.any(), dice.number(since.as_nanos() as u64));
            // What an honest end answers to its own offer, the other way round.
            let offer = if step == 0 {
                Offer { send: from.receive, receive: from.send, ..from }
            } else {
                from
            };
            let cookie = [0; 16];
            let mut hello = Setup::Hello { session, cookie, sent, offer }.to_bytes();
            if step > 0 {
                dice.damage(&mut hello);
            }
            handshakes.begin(
                wire.clone(),
                SocketAddr::from(([10, 0, 0, 1], 7)),
                now + options.setup_timeout,
            );
            clients.push(Client { wire, hello });
        }
        assert!(handshakes.len() <= MAX_PENDING, "seed {seed}");
        // One of them goes on with its hello, or leaves.
        let back = if step == 0 { 1 } else { 1 + dice.below(3) as usize };
        // The first has said everything.
        let place = clients.len().checked_sub(back).filter(|place| *place > 0 || step == 0);
        if let Some(place) = place {
            let client = &mut clients[place];
            let part = dice.below(3) == 0 && step > 0;
            let count = if part { dice.below(40) as usize } else { client.hello.len() };
            let said: Vec<u8> = client.hello.drain(..count.min(client.hello.len())).collect();
            client.wire.with(|state| {
                state.incoming.extend(said);
                if step > 0 && dice.once_in(10) {
                    state.ended = Some(if dice.once_in(2) { End::Reset } else { End::Finished });
                }
            });
        }
        let time = || ontempo_foundation::Time::from_nanos(world.clock.load(Relaxed));
        let mut complete = Vec::new();
        while let Some(one) = handshakes.next(now, time, &own) {
            complete.push(one);
        }
        for one in complete {
            let (answer, established) = match one.verdict {
                Verdict::Ignore | Verdict::Return(_) => {
                    panic!("seed {seed}: an ignored peer was returned")
                }
                Verdict::Refuse(answer, _) => (answer, None),
                Verdict::Accept(answer, established) => (answer, Some(established)),
            };
            let answer = answer.to_bytes();
            assert!(answer.len() <= crate::wire::MAX_SETUP, "seed {seed}");
            one.stream.with(|state| state.outgoing.extend(&answer));
            match established {
                Some(established) => {
                    let wire = (one.stream, answer.len());
                    world.begin(wire, &options, &established);
                }
                None => refused += 1,
            }
        }
        assert!(world.served > 0, "seed {seed}: the first client is not served");
        world.act();
    }
    (world.end(), refused)
}

/// What the far gateway of a gateway near its clients answers to a hello.
fn answer(dice: &mut Dice, hello: &Setup, own: &Offer) -> Vec<u8> {
    let Setup::Hello { session, sent, .. } = *hello else { panic!("no hello") };
    let of = if dice.once_in(10) { dice.any() } else { session };
    let offer = match dice.below(3) {
        0 => offer(dice),
        _ => Offer { send: own.receive, receive: own.send, ..*own },
    };
    let echo = if dice.once_in(3) { dice.number(sent) } else { sent };
    let (arrived, at) = (dice.number(sent), dice.number(sent));
    let reasons = [Reason::Specification, Reason::Version, Reason::Busy];
    let answer = match dice.below(10) {
        0 => {
            let reason = reasons[dice.below(3) as usize];
            Setup::Refuse { session: of, reason, offer }
        }
        1 => Setup::Challenge { session: of, cookie: [3; 16] },
        2 => *hello,
        _ => Setup::Accept { session: of, echo, arrived, sent: at, offer },
    };
    let mut bytes = answer.to_bytes();
    dice.damage(&mut bytes);
    bytes
}

fn near_clients(seed: u64) -> (u64, u64) {
    let mut world = World::new(seed, "far ends of a gateway");
    let options = world.options();
    let own = options.offer();
    let mut refused = 0;
    for step in 0..STEPS {
        if step == 0 || world.dice.once_in(12) {
            let now = world.clock.load(Relaxed);
            let time = ontempo_foundation::Time::from_nanos(now);
            let session = world.dice.any();
            let hello = setup::hello(&own, session, [0; 16], time);
            let mut said = if step == 0 {
                let offer = Offer { send: own.receive, receive: own.send, ..own };
                Setup::Accept { session, echo: now, arrived: 5, sent: 5, offer }.to_bytes()
            } else {
                answer(&mut world.dice, &hello, &own)
            };
            let mut got = SetupBytes::default();
            let concluded = loop {
                match got.missing() {
                    Ok(0) => {
                        break got.read().map_err(SetupError::from).and_then(|answer| {
                            let concluded =
                                setup::conclude(&own, (session, [0; 16]), &answer, time);
                            concluded.unwrap_or(Err(SetupError::Silent))
                        });
                    }
                    Ok(missing) if missing <= said.len() => {
                        got.push(&said.drain(..missing).collect::<Vec<_>>());
                    }
                    Ok(_) => break Err(SetupError::Silent),
                    Err(error) => break Err(error.into()),
                }
            };
            match concluded {
                Ok(established) => {
                    let wire = Memory::default();
                    // What follows the answer are messages.
                    wire.with(|state| state.incoming.extend(said));
                    world.begin((wire, 0), &options, &established);
                }
                Err(_) => refused += 1,
            }
        }
        world.act();
    }
    (world.end(), refused)
}

#[test]
fn no_client_of_a_gateway_makes_it_panic_spin_lose_a_place_or_mix_up_bytes() {
    let (mut served, mut refused) = (0, 0);
    for seed in seeds(SEEDS) {
        let (of_seed, refused_of_seed) = near_server(seed);
        served += of_seed;
        refused += refused_of_seed;
    }
    println!("{served} connections relayed, {refused} refused");
    assert!(served > 0);
}

#[test]
fn no_far_gateway_makes_a_gateway_panic_spin_lose_a_place_or_mix_up_bytes() {
    let (mut served, mut refused) = (0, 0);
    for seed in seeds(SEEDS) {
        let (of_seed, refused_of_seed) = near_clients(seed);
        served += of_seed;
        refused += refused_of_seed;
    }
    println!("{served} connections relayed, {refused} refused");
    assert!(served > 0);
}
