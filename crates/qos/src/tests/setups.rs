//! Peers of a listener that do anything during set-up, over TCP and over UDP, in virtual time.
//!
//! `ONTEMPO_HOSTILE_SEEDS=100000` runs as many, in place of a few hundred.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use ontempo_foundation::Time;
use ontempo_mechanisms::qos::agree;
use ontempo_testing::hostile::{Dice, seeds};

use super::memory::{End, Memory};
use super::*;
use crate::door::{Asked, Door, MAX_FLOWS, MAX_FLOWS_OF_HOST};
use crate::handshakes::{Handshakes, MAX_PENDING};
use crate::setup::Verdict;
use crate::wire::{Cookie, Offer, Reason, Setup};

/// Listeners of each test, unless the environment says how many.
const SEEDS: u64 = 200;
const STEPS: usize = 300;

/// An offer of a peer: a usual one, or one that few programs make.
pub(super) fn offer(dice: &mut Dice) -> Offer {
    let mut one = || {
        let size = Term { value: Some(Bytes::new(dice.number(1_280))), coerced: dice.once_in(2) };
        match dice.below(4) {
            0 => video(),
            1 => Specification { size, ..Specification::default() },
            2 => Specification { size, ..video() },
            _ => Specification::default(),
        }
    };
    let (send, receive) = (one(), one());
    Offer {
        send,
        receive,
        reserves: dice.once_in(2),
        must_reserve: dice.once_in(8),
        recovers: dice.once_in(4),
    }
}

fn garbage(dice: &mut Dice) -> Vec<u8> {
    let length = dice.below(400) as usize;
    dice.bytes(length, 0)
}

/// A message of the set-up, with the cookie that its sender knows.
fn message(dice: &mut Dice, session: u64, cookie: Cookie) -> Vec<u8> {
    let (sent, offer) = (dice.number(session), offer(dice));
    let reasons = [Reason::Specification, Reason::Version, Reason::Busy];
    let message = match dice.below(8) {
        0 => Setup::Challenge { session, cookie },
        1 => Setup::Accept { session, echo: sent, arrived: sent, sent, offer },
        2 => Setup::Refuse { session, reason: reasons[dice.below(3) as usize], offer },
        _ => Setup::Hello { session, cookie, sent, offer },
    };
    let mut bytes = message.to_bytes();
    if dice.once_in(20) {
        bytes[4] = dice.number(1) as u8;
    }
    dice.damage(&mut bytes);
    bytes
}

fn own(dice: &mut Dice) -> Offer {
    if dice.once_in(2) { Offer::default() } else { QosOptions::both(video()).offer() }
}

/// Whether both ends come to the same agreement on these offers.
fn is_agreed(own: &Offer, peer: &Offer) -> bool {
    agree(&own.send, &peer.receive).is_ok() && agree(&peer.send, &own.receive).is_ok()
}

/// Clients of a TCP listener; how many were accepted and refused.
fn play_tcp(seed: u64) -> (u64, u64) {
    let mut dice = Dice::new(seed, "set-up over TCP");
    let own = own(&mut dice);
    let mut handshakes: Handshakes<Memory> = Handshakes::default();
    let mut streams: Vec<(Memory, Vec<u8>)> = Vec::new();
    let mut now = Instant::now();
    let mut time = Time::from_nanos(dice.below(1 << 50));
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..STEPS {
        let passed = if dice.once_in(4) { dice.below(3_000_000_000) } else { 0 };
        now += Wall::from_nanos(passed);
        time += Duration::from_nanos(passed);
        if dice.once_in(3) {
            for _ in 0..=(if dice.once_in(10) { dice.below(300) } else { 0 }) {
                let stream = Memory::default();
                let bytes = match dice.below(4) {
                    0 => garbage(&mut dice),
                    _ => message(&mut dice, time.as_nanos(), [0; 16]),
                };
                let remote = SocketAddr::from(([10, 0, 0, 1], 7));
                handshakes.begin(stream.clone(), remote, now + Wall::from_secs(5));
                streams.push((stream, bytes));
            }
        }
        assert!(handshakes.len() <= MAX_PENDING, "seed {seed}");
        if !streams.is_empty() {
            let place = streams.len() - 1 - dice.below(streams.len().min(8) as u64) as usize;
            let (stream, bytes) = &mut streams[place];
            let count = dice.below(2 * bytes.len() as u64 + 1) as usize;
            let said: Vec<u8> = bytes.drain(..count.min(bytes.len())).collect();
            stream.with(|state| {
                state.incoming.extend(said);
                if dice.once_in(20) {
                    state.ended = Some(if dice.once_in(2) { End::Reset } else { End::Finished });
                }
            });
        }
        if dice.once_in(50) {
            let before = handshakes.len();
            assert_eq!(handshakes.give_up_one(), before > 0, "seed {seed}");
            assert_eq!(handshakes.len(), before.saturating_sub(1), "seed {seed}");
        }
        while let Some(complete) = handshakes.next(now, || time, &own) {
            match complete.verdict {
                Verdict::Ignore => panic!("seed {seed}: an ignored peer was returned"),
                Verdict::Accept(Setup::Accept { .. }, established) => {
                    accepted += 1;
                    assert!(is_agreed(&own, &established.peer), "seed {seed}");
                }
                Verdict::Refuse(Setup::Refuse { .. }, error) => {
                    refused += 1;
                    assert!(!error.to_string().is_empty());
                }
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        // Whoever is left may still finish in time.
        assert!(handshakes.next_timeout().is_none_or(|until| until > now), "seed {seed}");
    }
    (accepted, refused)
}

/// Peers of a UDP listener; how many flows were made, and how many peers were refused.
fn play_udp(seed: u64) -> (u64, u64) {
    let mut dice = Dice::new(seed, "set-up over UDP");
    let own = own(&mut dice);
    let mut door: Door<Rc<Cell<bool>>> = Door::new(u128::from(dice.any()));
    let mut time = Time::from_nanos(dice.below(1 << 50));
    let address =
        |place: u64| SocketAddr::from(([10, 0, 0, place as u8 / 4], 5_000 + place as u16));
    // The cookie that an address was sent last, for a session.
    let mut cookies: BTreeMap<(SocketAddr, u64), Cookie> = BTreeMap::new();
    let mut proved = BTreeSet::new();
    let mut flows: Vec<Rc<Cell<bool>>> = Vec::new();
    let (mut made, mut refused) = (0, 0);
    let flood = dice.once_in(20);
    for _ in 0..(if flood { 8 * STEPS } else { STEPS }) {
        if dice.once_in(8) {
            time += Duration::from_nanos(dice.below(8_000_000_000));
        }
        let remote = address(dice.below(if flood { 200 } else { 12 }));
        let session = if flood { dice.below(30) } else { dice.below(3) };
        // Its own cookie, one sent to another address, or none.
        let cookie = match dice.below(6) {
            0 => [0; 16],
            1 => cookies.values().next().copied().unwrap_or_default(),
            _ => cookies.get(&(remote, session)).copied().unwrap_or_default(),
        };
        let bytes = match dice.below(8) {
            0 => garbage(&mut dice),
            _ => message(&mut dice, session, cookie),
        };
        let known: BTreeSet<SocketAddr> = cookies.keys().map(|(remote, _)| *remote).collect();
        let asked = door.on_datagram(time, &own, (remote, &bytes), |flow| flow.get());
        let answer = match asked {
            Asked::Nothing => continue,
            Asked::Answer(answer) => {
                if let Setup::Challenge { session, cookie } = answer {
                    cookies.insert((remote, session), cookie);
                }
                answer
            }
            Asked::Refuse(answer, _) => {
                refused += 1;
                answer
            }
            Asked::Accept(answer, session, established) => {
                assert!(known.contains(&remote), "seed {seed}: {remote} was never challenged");
                assert!(is_agreed(&own, &established.peer), "seed {seed}");
                // A system without descriptors makes no flow.
                if !dice.once_in(10) {
                    let flow = Rc::new(Cell::new(true));
                    door.begun(remote, session, Rc::clone(&flow));
                    flows.push(flow);
                    proved.insert(remote);
                    made += 1;
                }
                answer
            }
        };
        assert!(answer.to_bytes().len() <= bytes.len(), "seed {seed}: it amplifies");
        assert!(door.len() <= MAX_FLOWS, "seed {seed}");
        if !flood && dice.once_in(10) && !flows.is_empty() {
            let place = dice.below(flows.len() as u64) as usize;
            flows.remove(place).set(false);
        }
    }
    (made, refused)
}

#[test]
fn no_client_of_a_tcp_listener_makes_it_panic_or_hold_more_handshakes() {
    let (mut accepted, mut refused) = (0, 0);
    for seed in seeds(SEEDS) {
        let (of_seed, refused_of_seed) = play_tcp(seed);
        accepted += of_seed;
        refused += refused_of_seed;
    }
    println!("{accepted} accepted, {refused} refused");
    assert!(accepted > 0);
}

#[test]
fn no_peer_of_a_udp_listener_makes_it_panic_amplify_or_believe_an_address() {
    let (mut made, mut refused) = (0, 0);
    for seed in seeds(SEEDS) {
        let (of_seed, refused_of_seed) = play_udp(seed);
        made += of_seed;
        refused += refused_of_seed;
    }
    println!("{made} flows, {refused} refused");
    assert!(made > 0);
}

/// A hello that the listener accepts, with the cookie for its sender.
fn good_hello(session: u64, cookie: Cookie) -> Vec<u8> {
    Setup::Hello { session, cookie, sent: 1, offer: Offer::default() }.to_bytes()
}

#[test]
fn silent_handshakes_of_one_host_take_no_place_from_those_of_another() {
    let mut handshakes: Handshakes<Memory> = Handshakes::default();
    let now = Instant::now();
    let from = |last: u8, port: u16| SocketAddr::from(([10, 0, 0, last], port));
    let slow = Memory::default();
    handshakes.begin(slow.clone(), from(2, 1), now + Wall::from_secs(5));
    for port in 0..1_000 {
        handshakes.begin(Memory::default(), from(1, port), now + Wall::from_secs(5));
    }
    // Descriptors run out, too, until each host has one.
    assert!((0..MAX_PENDING - 2).all(|_| handshakes.give_up_one()));
    slow.with(|state| state.incoming.extend(good_hello(1, [0; 16])));
    let next = handshakes.next(now, || Time::from_nanos(1), &Offer::default());
    let next = next.expect("the handshake of the other host goes on");
    assert_eq!(next.remote, from(2, 1));
}

#[test]
fn flows_of_one_host_leave_places_for_others() {
    let own = Offer::default();
    let mut door: Door<()> = Door::new(1);
    let mut ask = |remote: SocketAddr| {
        let now = Time::from_nanos(1);
        let mut hello =
            |cookie| door.on_datagram(now, &own, (remote, &good_hello(1, cookie)), |()| true);
        let Asked::Answer(Setup::Challenge { cookie, .. }) = hello([0; 16]) else {
            panic!("no challenge")
        };
        match hello(cookie) {
            Asked::Accept(..) => {
                door.begun(remote, 1, ());
                true
            }
            Asked::Answer(Setup::Refuse { reason: Reason::Busy, .. }) => false,
            other => panic!("{other:?}"),
        }
    };
    let from = |last: u8, port: u16| SocketAddr::from(([10, 0, 0, last], port));
    let of_one = (0..2_000).filter(|port| ask(from(1, *port))).count();
    assert_eq!(of_one, MAX_FLOWS_OF_HOST);
    for last in 2..=4 {
        assert!(ask(from(last, 1)), "host {last}");
    }
}
