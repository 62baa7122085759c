//! A stream whose sender's address changes on a path with random losses: the new address is soon validated,
//! also where a challenge or its answer is lost and where the window is full meanwhile.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ontempo_foundation::{Duration, RandomStream, Time};
use ontempo_session::simulated::{End, Stream, StreamOptions};
use ontempo_transport::{Congestion, DeliveryOrder, Reliability};

/// One way.
const DELAY: Duration = Duration::from_millis(50);
const LOSS: f64 = 0.05;

/// A datagram of 1,316 bytes each: 4 Mbit/s.
const EVERY: Duration = Duration::from_micros(2_632);

/// A datagram under way: when it arrives, its number, whether to the receiver, the sender's address, its data.
type UnderWay = Reverse<(Time, u64, bool, u8, Vec<u8>)>;

/// Of the 1,140 datagrams of three seconds about a change at 8 s, those that are not there on time.
fn missing(seed: u64, change: Time) -> u64 {
    let options = StreamOptions {
        grace: ontempo_session::latency::GRACE,
        latency: Some(Duration::from_millis(400)),
        order: DeliveryOrder::InOrder,
        reliability: Reliability::Deadline,
        congestion: Congestion::default(),
        custom: None,
    };
    let mut random = RandomStream::new(seed, "loss");
    let mut stream = Stream::new(Time::ZERO, options, seed).expect("it can be set up");
    let (counted, until) = (Time::from_secs_f64(7.8), Time::from_secs_f64(10.8));
    let (mut path, mut number, mut restored) = (BinaryHeap::<UnderWay>::new(), 0, 0);
    let (mut now, mut pushed) = (Time::ZERO, 0);
    let packet: Vec<u8> = [0x47, 0x1f, 0xff, 0x10].into_iter().chain([0xff; 184]).collect();
    while now < until {
        while let Some((end, datagram)) = stream.poll_transmit() {
            let to_receiver = end == End::Sender;
            let address = if to_receiver { u8::from(now >= change) } else { datagram.to };
            number += 1;
            if !random.chance(LOSS) {
                path.push(Reverse((now + DELAY, number, to_receiver, address, datagram.data)));
            }
        }
        while stream.poll_restored(now).is_some() {
            restored += u64::from(now >= counted);
        }
        let push_at = Time::ZERO + EVERY * pushed;
        let arrival = path.peek().map_or(Time::NEVER, |Reverse(packet)| packet.0);
        now = now.max(push_at.min(arrival).min(stream.next_timeout()));
        if push_at <= now {
            stream.push(now, &packet.repeat(7));
            pushed += 1;
        } else if arrival <= now {
            let Reverse((_, _, to_receiver, address, data)) = path.pop().expect("it was there");
            let end = if to_receiver { End::Receiver } else { End::Sender };
            if to_receiver || address == u8::from(now >= change) {
                stream.receive(now, (end, address), data, false);
            }
        } else {
            stream.handle_timeout(now);
        }
    }
    1_140_u64.saturating_sub(restored)
}

#[test]
fn a_lost_challenge_or_answer_does_not_silence_the_connection() {
    let change = Time::from_secs_f64(8.0);
    let missing: Vec<_> = (1..=16).map(|seed| missing(seed, change)).collect();
    // A second's silence, as a stack that takes a new address for one of an unknown round trip makes it,
    // costs 540 datagrams of seeds 1 and 15. What is lost in 200 ms and arrives too late costs some.
    assert!(missing.iter().all(|count| *count < 60), "{missing:?}");
}
