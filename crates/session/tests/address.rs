//! A stream whose sender's address changes (RFC 9000, section 9.3): the connection goes on.

use std::collections::BinaryHeap;

use ontempo_foundation::{Duration, Time};
use ontempo_session::simulated::{End, Stream, StreamOptions};
use ontempo_transport::{Congestion, DeliveryOrder, Reliability};

/// One way.
const DELAY: Duration = Duration::from_millis(20);

/// What a path of constant delay carries.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct UnderWay {
    arrives: std::cmp::Reverse<(Time, u64)>,
    to_receiver: bool,
    address: u8,
    data: Vec<u8>,
}

#[test]
fn a_receiver_answers_the_new_address_and_the_connection_lives_on() {
    let options = StreamOptions {
        grace: ontempo_session::latency::GRACE,
        latency: Some(Duration::from_millis(200)),
        order: DeliveryOrder::InOrder,
        reliability: Reliability::Deadline,
        congestion: Congestion::default(),
        custom: None,
    };
    let mut stream = Stream::new(Time::ZERO, options, 1).expect("it can be set up");
    let second = |seconds: u64| Time::ZERO + Duration::from_secs(seconds);
    let address = |now: Time| [second(2), second(4)].iter().filter(|at| **at <= now).count() as u8;
    let (mut path, mut number, mut pushed, mut restored) = (BinaryHeap::new(), 0, 0u64, 0u64);
    let (mut stale, mut answered) = (0, [0; 3]);
    let mut now = Time::ZERO;
    // A transport stream of 200 datagrams a second; stuffing would not be sent.
    let packet: Vec<u8> = [0x47, 0x01, 0x00, 0x10].into_iter().chain([0xff; 184]).collect();
    while now < second(6) {
        while let Some((end, datagram)) = stream.poll_transmit() {
            let to_receiver = end == End::Sender;
            let address = if to_receiver { address(now) } else { datagram.to };
            if !to_receiver {
                answered[usize::from(address)] += 1;
            }
            let arrives = std::cmp::Reverse((now + DELAY, number));
            number += 1;
            path.push(UnderWay { arrives, to_receiver, address, data: datagram.data });
        }
        while stream.poll_restored(now).is_some() {
            restored += 1;
        }
        let push_at = Time::ZERO + Duration::from_millis(5) * pushed;
        let arrival = path.peek().map_or(Time::NEVER, |packet| packet.arrives.0.0);
        now = now.max(push_at.min(arrival).min(stream.next_timeout()));
        if push_at <= now {
            stream.push(now, &packet.repeat(7));
            pushed += 1;
        } else if arrival <= now {
            let packet = path.pop().expect("it was there");
            let end = if packet.to_receiver { End::Receiver } else { End::Sender };
            if end == End::Sender && packet.address != address(now) {
                stale += 1;
                continue;
            }
            stream.receive(now, (end, packet.address), packet.data, false);
        } else {
            stream.handle_timeout(now);
        }
    }
    assert!(restored + 100 > pushed, "{restored} of {pushed} datagrams");
    assert!(stale > 0, "what was under way to an old address is lost");
    assert!(answered.iter().all(|answers| *answers > 100), "{answered:?}");
}
