//! Both ends in virtual time, over a bottleneck with a queue, a delay and random loss.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

use ontempo_foundation::{Bytes, Duration, RandomStream, Rate, Time};
use ontempo_udp::{Datagram, Dscp, Ecn, Next, Protocol};
use proptest::prelude::*;

use super::*;
use crate::wire::{self, Message};
use crate::{Failure, Receiver, ReceiverOptions, SenderOptions};

const PACKET: u64 = 1_400;

fn address(place: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, place], 5_000))
}

/// A path: Mbit/s, round trip in ms, queue in round trips (at least two packets), loss each way.
#[derive(Clone, Copy, Debug)]
struct Path {
    mbit: f64,
    millis: u64,
    queue: f64,
    loss: f64,
}

impl Path {
    /// Bytes that may wait.
    fn limit(&self) -> f64 {
        let product = self.mbit * 1e6 / 8.0 * self.millis as f64 / 1e3;
        (product * self.queue).max(2.0 * PACKET as f64)
    }

    /// The longest queueing delay, ms.
    fn queue_millis(&self) -> f64 {
        self.limit() * 8.0 / self.mbit / 1e3
    }

    fn bdp(&self) -> f64 {
        self.mbit * 1e6 / 8.0 * self.millis as f64 / 1e3
    }
}

type Flying = (Time, u64, bool, Vec<u8>);

struct Run {
    answer: Option<Answer>,
    failure: Option<Failure>,
}

/// Measures over the path; `spoil` may change what the receiver sends.
fn run(path: Path, seed: u64, mut spoil: impl FnMut(&mut Vec<u8>)) -> Run {
    let options = PathOptions {
        packet: Bytes::new(PACKET),
        max_rate: Rate::from_bits_per_sec(1_000_000_000),
        sender: SenderOptions::to(address(2)),
        secret: seed,
    };
    let mut sender = Measure::new(options, 77, |_| {});
    let state = sender.state();
    let mut receiver = Receiver::new(ReceiverOptions::default(), 99, |_| {});
    let mut random = RandomStream::new(seed, "network");
    let mut flying: BinaryHeap<Reverse<Flying>> = BinaryHeap::new();
    let (mut now, mut free, mut count) = (Time::ZERO, Time::ZERO, 0);
    let rate = Rate::from_bits_per_sec((path.mbit * 1e6) as u64);
    let one_way = Duration::from_micros(path.millis * 500);
    while !sender.is_finished() && now < Time::from_secs_f64(30.0) {
        let mut next = Time::NEVER;
        for is_sender in [true, false] {
            let end: &mut dyn End = if is_sender { &mut sender } else { &mut receiver };
            let mut buffer = Vec::new();
            let (sent, again) = end.serve(now, &mut buffer);
            next = next.min(again);
            if !sent {
                continue;
            }
            // 1 Gbit/s at either end.
            next = next.min(now + Duration::from_nanos(buffer.len() as u64 * 8));
            let mut leaves = now;
            if is_sender {
                let size = buffer.len() as u64 + 28;
                let waiting = free.since(now).as_secs_f64() * path.mbit * 1e6 / 8.0;
                if waiting + size as f64 > path.limit() + PACKET as f64 {
                    continue;
                }
                free = free.max(now) + rate.time_to_send(Bytes::new(size));
                leaves = free;
            } else {
                spoil(&mut buffer);
            }
            if random.uniform() >= path.loss {
                count += 1;
                flying.push(Reverse((leaves + one_way, count, is_sender, buffer)));
            }
        }
        let arrival = flying.peek().map_or(Time::NEVER, |Reverse(first)| first.0);
        now = next.min(arrival).max(now);
        while flying.peek().is_some_and(|Reverse(first)| first.0 <= now) {
            let Some(Reverse((received, _, is_senders, data))) = flying.pop() else { break };
            let (ecn, dscp, local) = (Ecn::default(), Dscp::default(), None);
            let source = address(if is_senders { 1 } else { 2 });
            let datagram = Datagram { source, local, received, ecn, dscp, data: &data };
            match is_senders {
                true => receiver.handle(now, datagram),
                false => sender.handle(now, datagram),
            }
        }
    }
    assert!(sender.is_finished(), "it ends");
    let state = state.lock().expect("no panic");
    Run { answer: state.answer(), failure: state.failure }
}

/// One of the two programs.
trait End {
    /// Whether it sent something, and when it is to be asked again.
    fn serve(&mut self, now: Time, buffer: &mut Vec<u8>) -> (bool, Time);
}

impl<P: Protocol> End for P {
    fn serve(&mut self, now: Time, buffer: &mut Vec<u8>) -> (bool, Time) {
        if self.next_timeout() <= now {
            self.handle_timeout(now);
        }
        match self.poll_transmit(now, buffer) {
            Next::Transmit(_) => (true, self.next_timeout()),
            Next::WaitUntil(until) => (false, until.min(self.next_timeout())),
            Next::Idle => (false, self.next_timeout()),
        }
    }
}

#[test]
fn rate_round_trip_queue_and_loss_of_a_path_are_answered_within_ten_seconds() {
    let mut wrong = Vec::new();
    for mbit in [2.0, 20.0, 100.0] {
        for millis in [10, 100, 300] {
            for queue in [0.5, 1.0, 4.0] {
                for loss in [0.0, 0.02, 0.1] {
                    let path = Path { mbit, millis, queue, loss };
                    let answer = run(path, 1, |_| {}).answer.expect("an answer");
                    if let Some(what) = fault(&path, &answer) {
                        wrong.push(format!("{path:?}: {what}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of 81:\n{}", wrong.len(), wrong.join("\n"));
}

/// What is wrong with an answer.
fn fault(path: &Path, answer: &Answer) -> Option<String> {
    let rate = answer.rate.map_or(0.0, |rate| rate.as_mbit_per_sec());
    let queue = answer.queue.as_secs_f64() * 1e3;
    let (round_trip, loss) = (answer.round_trip.as_secs_f64() * 1e3, answer.loss.unwrap_or(1.0));
    let packet = PACKET as f64 * 8.0 / path.mbit / 1e3;
    let beyond = answer.beyond.get() as f64;
    // What the path takes in four of its round trips, queue and 40 ms of reports included.
    let most = 4.0 * (path.bdp() + path.mbit * 1e6 / 8.0 * 0.04 + path.limit());
    let is_slow = answer.time > Duration::from_secs(8);
    let is_least = answer.limit == Some(Limit::Time) && is_slow && path.millis == 300;
    let fits = [
        (
            (rate / path.mbit - 1.0).abs() < 0.05 || is_least && rate < path.mbit,
            format!("{rate} Mbit/s"),
        ),
        ((round_trip - path.millis as f64).abs() < 1.0 + packet, format!("{round_trip} ms")),
        (
            (queue - path.queue_millis()).abs() < 0.15 * path.queue_millis() + 2.0 * packet
                || !answer.is_queue_full && queue < path.queue_millis(),
            format!("queue {queue} ms of {}", path.queue_millis()),
        ),
        (
            answer.is_queue_full || is_slow && path.millis == 300,
            "the queue is not known to be full".to_owned(),
        ),
        ((loss - path.loss).abs() < 0.005 + 0.3 * path.loss, format!("loss {loss}")),
        (answer.time < Duration::from_secs(10), format!("after {}", answer.time)),
        ((answer.limit.is_none() || is_least) && !answer.is_partial, format!("{:?}", answer.limit)),
        (beyond < most, format!("{beyond} bytes beyond, not {most}")),
    ];
    let wrong: Vec<_> = fits.into_iter().filter(|(fits, _)| !fits).map(|(_, what)| what).collect();
    (!wrong.is_empty()).then(|| wrong.join("; "))
}

/// Reports everything up to the last packet as arrived.
#[test]
fn a_receiver_that_reports_what_it_cannot_know_is_found_out() {
    let path = Path { mbit: 2.0, millis: 20, queue: 0.5, loss: 0.0 };
    let mut from = 0;
    let ran = run(path, 1, |bytes| {
        let Ok((session, Message::Arrivals(arrivals))) = wire::read(bytes) else { return };
        let last = arrivals.records().map(|(number, _)| number).max().unwrap_or(0);
        let mut records = Vec::new();
        for number in from..=last {
            wire::push_record(number, arrivals.clock, &mut records);
        }
        let all = wire::Arrivals::new(u64::from(from), arrivals.clock, &records);
        from = last;
        let mut lie = Vec::new();
        wire::write(session, &Message::Arrivals(all), &mut lie);
        *bytes = lie;
    });
    assert_eq!(ran.failure, Some(Failure::False));
}

proptest! {
    #[test]
    fn whatever_is_reported_two_packets_leave_for_one_that_arrived(
        reports in proptest::collection::vec(
            (0u64..40_000_000, any::<u64>(), proptest::collection::vec((0u32..400, any::<u64>()), 0..40)),
            1..120,
        ),
        secret: u64,
    ) {
        let options = PathOptions {
            packet: Bytes::new(PACKET),
            max_rate: Rate::from_bits_per_sec(1_000_000_000),
            sender: SenderOptions::to(address(2)),
            secret,
        };
        let mut sender = Measure::new(options, 77, |_| {});
        let mut now = Time::from_secs_f64(1.0);
        let mut told = std::collections::BTreeSet::new();
        let (mut loads, mut scouts) = (0_usize, 0_usize);
        let began = now;
        let hear = |sender: &mut Measure, now: Time, message: &Message<'_>| {
            let mut data = Vec::new();
            wire::write(77, message, &mut data);
            let (ecn, dscp, local) = (Ecn::default(), Dscp::default(), None);
            let (source, data) = (address(2), &data);
            sender.handle(now, Datagram { source, local, received: now, ecn, dscp, data });
        };
        sender.poll_transmit(now, &mut Vec::new());
        hear(&mut sender, now, &Message::Accept { stamp: now.as_nanos() });
        for (wait, clock, records) in reports {
            let until = now + Duration::from_nanos(wait);
            while now < until {
                let mut buffer = Vec::new();
                if sender.next_timeout() <= now {
                    sender.handle_timeout(now);
                }
                match sender.poll_transmit(now, &mut buffer) {
                    Next::Transmit(_) if buffer.len() > 1_000 => loads += 1,
                    Next::Transmit(_) => scouts += 1,
                    Next::WaitUntil(at) => now = at.max(now + Duration::from_nanos(1)).min(until),
                    Next::Idle => now = until,
                }
                now += Duration::from_micros(1);
            }
            let mut bytes = Vec::new();
            for &(number, at) in &records {
                wire::push_record(number, at, &mut bytes);
                told.insert(number);
            }
            let arrivals = wire::Arrivals::new(clock % 500, clock, &bytes);
            hear(&mut sender, now, &Message::Arrivals(arrivals));
            // Stalled, it adds a packet each 100 ms.
            let spare = (now.since(began).as_secs_f64() / 0.1) as usize + 1;
            prop_assert!(loads <= 10 + 2 * told.len() + spare, "{} for {}", loads, told.len());
            prop_assert!(scouts as f64 <= 20.0 + now.since(began).as_secs_f64() * 1_000.0);
        }
    }
}
