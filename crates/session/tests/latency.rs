//! The latency of a stream: chosen by the round trip, and counted without the fastest transit.

use std::collections::BinaryHeap;

use ontempo_foundation::{Duration, RandomStream, Time};
use ontempo_session::simulated::{End, Stream, StreamOptions};
use ontempo_transport::{Congestion, DeliveryOrder, Reliability};

/// From one datagram of the source to the next.
const EVERY: Duration = Duration::from_millis(5);

/// When the source begins, and the path to lose packets.
const BEGINS: Time = Time::from_nanos(2_000_000_000);

/// What a path of constant delay carries.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct UnderWay {
    arrives: std::cmp::Reverse<(Time, u64)>,
    to_receiver: bool,
    data: Vec<u8>,
}

/// The latency that is fixed, the delays of datagrams from source to output, and how many the source
/// had, over 5 s of a path with this delay each way, of which each tenth packet to the receiver is lost.
fn through(delay: Duration, latency: Option<Duration>) -> (Duration, Vec<Duration>, u64) {
    through_after(Duration::ZERO, [BEGINS; 2], delay, latency)
}

/// The same over a path that carries nothing for a time, of a source that begins, and losses that do, at these times.
fn through_after(
    silence: Duration,
    [begins, losses]: [Time; 2],
    delay: Duration,
    latency: Option<Duration>,
) -> (Duration, Vec<Duration>, u64) {
    carried(begins, delay, latency, |now, to_receiver, number| {
        now < Time::ZERO + silence || to_receiver && number % 10 == 0 && now > losses
    })
}

/// The same over a path that loses the datagrams of which this is true: when each was sent, whether to the receiver, and
/// its number.
fn carried(
    begins: Time,
    delay: Duration,
    latency: Option<Duration>,
    mut is_lost: impl FnMut(Time, bool, u64) -> bool,
) -> (Duration, Vec<Duration>, u64) {
    let options = StreamOptions {
        grace: Duration::ZERO,
        latency,
        order: DeliveryOrder::PartialOrder,
        reliability: Reliability::Deadline,
        congestion: Congestion::default(),
        custom: None,
    };
    let mut stream = Stream::new(Time::ZERO, options, 1).expect("it can be set up");
    let (mut path, mut number, mut pushed, mut delays) = (BinaryHeap::new(), 0u64, 0u64, vec![]);
    let mut now = Time::ZERO;
    while now < Time::ZERO + Duration::from_secs(9) {
        while let Some((end, datagram)) = stream.poll_transmit() {
            number += 1;
            let to_receiver = end == End::Sender;
            if is_lost(now, to_receiver, number) {
                continue;
            }
            let arrives = std::cmp::Reverse((now + delay, number));
            path.push(UnderWay { arrives, to_receiver, data: datagram.data });
        }
        while let Some(restored) = stream.poll_restored(now) {
            let bytes = restored.data[8..16].try_into().expect("eight bytes");
            delays.push(now.since(Time::from_nanos(u64::from_be_bytes(bytes))));
        }
        let is_over = pushed >= 1_000;
        let push_at = if is_over { Time::NEVER } else { begins + EVERY * pushed };
        let arrival = path.peek().map_or(Time::NEVER, |packet| packet.arrives.0.0);
        now = now.max(push_at.min(arrival).min(stream.next_timeout()));
        if push_at <= now {
            // Neither a transport stream nor RTP.
            let mut datagram = vec![0; 1_000];
            datagram[8..16].copy_from_slice(&now.as_nanos().to_be_bytes());
            stream.push(now, &datagram);
            pushed += 1;
        } else if arrival <= now {
            let packet = path.pop().expect("it was there");
            let end = if packet.to_receiver { End::Receiver } else { End::Sender };
            stream.receive(now, (end, 0), packet.data, false);
        } else {
            stream.handle_timeout(now);
        }
    }
    (stream.latency().expect("fixed"), delays, pushed)
}

#[test]
fn a_latency_that_is_not_given_is_four_measured_round_trips_and_repairs_losses_of_a_tenth() {
    for (one_way, expected) in [(50, 400), (100, 800), (5, 120)] {
        let mut missing = 0;
        // Whichever of ten datagrams are lost.
        for lost in 0..10 {
            let delay = Duration::from_millis(one_way);
            let (latency, delays, pushed) =
                carried(BEGINS, delay, None, |now, to_receiver, number| {
                    to_receiver && number % 10 == lost && now > BEGINS
                });
            assert_eq!(latency, Duration::from_millis(expected), "{one_way} ms each way");
            missing += pushed - delays.len() as u64;
        }
        // Of 10,000, with repairs that wait for acknowledgements and for the window.
        assert!(missing <= 100, "{missing} are missing at {one_way} ms each way");
    }
}

/// The stream begins after 2 s, the path carries something after 1.85 s. An attempt to connect begins within
/// 250 ms, costs two round trips, half of one is left for timers, and what is then younger than the
/// latency is sent. The repetitions of one attempt alone would be a second apart.
#[test]
fn a_stream_is_there_within_an_attempt_of_the_first_that_its_path_carries() {
    let (one_way, latency) = (Duration::from_millis(50), Duration::from_millis(300));
    let silence = Duration::from_millis(1_850);
    let (_, delays, pushed) = through_after(silence, [BEGINS; 2], one_way, Some(latency));
    let connected = silence + Duration::from_millis(250) + one_way * 5;
    let late = connected.saturating_sub(latency + Duration::from_secs(2));
    let unsent = late.as_nanos() / EVERY.as_nanos();
    let missing = pushed - delays.len() as u64;
    assert!(missing <= unsent + 10, "{missing} of {pushed} are missing, {unsent} were too old");
}

#[test]
fn the_output_is_the_fastest_transit_and_the_latency_after_the_input() {
    let (one_way, latency) = (Duration::from_millis(50), Duration::from_millis(300));
    let (fixed, delays, _) = through(one_way, Some(latency));
    assert_eq!(fixed, latency);
    let expected = one_way + latency;
    let near =
        |delay: &&Duration| **delay >= expected && **delay < expected + Duration::from_millis(2);
    let share = delays.iter().filter(near).count() as f64 / delays.len() as f64;
    assert!(share > 0.99, "{share}: {:?}", &delays[..20]);
}

#[test]
fn less_than_nine_eighths_of_a_round_trip_repairs_nothing() {
    let one_way = Duration::from_millis(50);
    let lost = |latency: u64| {
        let (_, delays, pushed) = through(one_way, Some(Duration::from_millis(latency)));
        pushed - delays.len() as u64
    };
    let (without, with) = (lost(100), lost(150));
    assert!(without > 60, "{without}");
    assert!(with * 3 < without, "{with} of {without}");
}

/// The latency is a quarter more than the round trip that passes until the client may send: what waited for the Welcome
/// would be late. That the path is faster than the first datagrams, which wait, is known by the flow's opening.
#[test]
fn a_source_that_is_there_before_the_connection_loses_nothing_and_is_on_time_from_the_start() {
    let (delay, latency) = (Duration::from_millis(20), Duration::from_millis(50));
    let times = [Time::ZERO, Time::NEVER];
    let (_, delays, pushed) = through_after(Duration::ZERO, times, delay, Some(latency));
    assert_eq!(delays.len() as u64, pushed);
    let due = delay + latency..=delay + latency + Duration::from_millis(3);
    assert!(delays.iter().all(|delay| due.contains(delay)), "{:?}", delays.iter().max());
}

#[test]
fn a_source_that_is_there_before_the_connection_loses_nothing_with_a_chosen_latency() {
    for (one_way, expected) in [(15, 120), (50, 400), (150, 1_200)] {
        let (delay, times) = (Duration::from_millis(one_way), [Time::ZERO, Time::NEVER]);
        let (latency, delays, pushed) = through_after(Duration::ZERO, times, delay, None);
        assert_eq!(latency, Duration::from_millis(expected), "{one_way} ms each way");
        assert_eq!(delays.len() as u64, pushed, "{one_way} ms each way");
    }
}

/// A repeated answer of the receiver would make the round trip longer by what it waited for.
#[test]
fn a_latency_is_chosen_by_the_round_trip_whatever_is_lost_of_the_handshake() {
    let delay = Duration::from_millis(50);
    for seed in 0..60 {
        let mut random = RandomStream::new(seed, "losses");
        let (latency, ..) =
            carried(Time::ZERO, delay, None, |_, _, _| random.next_u64().is_multiple_of(5));
        assert_eq!(latency, Duration::from_millis(400), "seed {seed}");
    }
}
