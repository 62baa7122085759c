use ontempo_foundation::{Bytes, Duration, Packets, Rate};
use proptest::prelude::*;

use super::*;
use crate::{Discipline, Limit};

const LINK: Rate = Rate::from_bits_per_sec(1_000_000);
const MAX_PACKET: u64 = 1500;

fn class(kbits: u64) -> ClassParameters {
    ClassParameters {
        rate: Rate::from_bits_per_sec(kbits * 1000),
        limit: Limit::NONE,
        resume: None,
        priority: 0,
        borrows: true,
    }
}

fn packet(handle: u32, size: u64) -> Queued {
    let (size, enqueued) = (Bytes::new(size), Time::ZERO);
    Queued { handle, flow: 0, class: 0, size, ecn_capable: false, l4s: false, enqueued }
}

fn both(classes: &[ClassParameters]) -> [Scheduler; 2] {
    [
        Scheduler::Wfq(Wfq::new(LINK, classes).unwrap()),
        Scheduler::Cbq(Cbq::new(LINK, classes).unwrap()),
    ]
}

/// One packet: when it arrived, its class, its size.
type Arrival = (Time, usize, u64);

/// A departure: when transmission began and ended, and the packet's index among the arrivals.
type Departure = (Time, Time, usize);

/// Runs a link of rate [`LINK`] until it is empty.
fn run(scheduler: &mut Scheduler, arrivals: &[Arrival]) -> Vec<Departure> {
    let mut departures = Vec::new();
    let mut free = Time::ZERO;
    let mut next = 0;
    loop {
        let comes = arrivals.get(next).map_or(Time::NEVER, |arrival| arrival.0);
        let leaves = scheduler.ready_at(free).max(free);
        if comes == Time::NEVER && scheduler.occupancy().packets.get() == 0 {
            return departures;
        }
        if comes <= leaves {
            let (time, class, size) = arrivals[next];
            scheduler.enqueue(time, class, packet(next as u32, size)).unwrap();
            next += 1;
            free = free.max(time);
            continue;
        }
        let packet = scheduler.dequeue(leaves).expect("what is ready leaves");
        free = leaves + LINK.time_to_send(packet.size);
        departures.push((leaves, free, packet.handle as usize));
    }
}

fn arrivals(classes: usize) -> impl Strategy<Value = Vec<Arrival>> {
    let one = (0u64..20_000, 0..classes, 40..=MAX_PACKET);
    proptest::collection::vec(one, 1..200).prop_map(|gaps| {
        let mut now = Time::ZERO;
        let arrive = |(gap, class, size)| {
            now += Duration::from_micros(gap);
            (now, class, size)
        };
        gaps.into_iter().map(arrive).collect()
    })
}

/// When the fluid model finishes each packet: a reference by small steps of exact arithmetic.
fn fluid(rates: &[f64], arrivals: &[Arrival]) -> Vec<f64> {
    let link = LINK.as_bits_per_sec() as f64;
    let mut queues: Vec<std::collections::VecDeque<(usize, f64)>> =
        vec![Default::default(); rates.len()];
    let mut finished = vec![0.0; arrivals.len()];
    let (mut now, mut next) = (0.0, 0);
    loop {
        let comes = arrivals.get(next).map_or(f64::INFINITY, |arrival| arrival.0.as_secs_f64());
        let busy = |queues: &[std::collections::VecDeque<_>]| -> f64 {
            let served = queues.iter().zip(rates).filter(|(queue, _)| !queue.is_empty());
            served.map(|(_, rate)| rate).sum()
        };
        let weight = busy(&queues);
        if weight == 0.0 && comes.is_infinite() {
            return finished;
        }
        let ends = queues
            .iter()
            .zip(rates)
            .filter_map(|(queue, rate)| Some(queue.front()?.1 * weight / (rate * link)))
            .fold(f64::INFINITY, f64::min);
        let span = ends.min(comes - now);
        for (queue, rate) in queues.iter_mut().zip(rates) {
            if let Some(front) = queue.front_mut() {
                front.1 -= span * link * rate / weight;
            }
        }
        now += span;
        for queue in &mut queues {
            if queue.front().is_some_and(|front| front.1 < 1e-6) {
                let (place, _) = queue.pop_front().unwrap();
                finished[place] = now;
            }
        }
        if now >= comes {
            let (_, class, size) = arrivals[next];
            queues[class].push_back((next, size as f64 * 8.0));
            next += 1;
        }
    }
}

proptest! {
    #[test]
    fn every_packet_leaves_once_and_each_class_keeps_its_order(arrivals in arrivals(3)) {
        for mut scheduler in both(&[class(600), class(300), class(100)]) {
            let departures = run(&mut scheduler, &arrivals);
            let mut places: Vec<_> = departures.iter().map(|departure| departure.2).collect();
            for one in 0..3 {
                let of = places.iter().filter(|place| arrivals[**place].1 == one);
                prop_assert!(of.is_sorted(), "class {} is out of order", one);
            }
            places.sort_unstable();
            prop_assert!(places.into_iter().eq(0..arrivals.len()));
        }
    }

    #[test]
    fn the_link_is_never_idle_while_something_waits(arrivals in arrivals(3)) {
        let mut fifo = Time::ZERO;
        for (time, _, size) in &arrivals {
            fifo = fifo.max(*time) + LINK.time_to_send(Bytes::new(*size));
        }
        for mut scheduler in both(&[class(600), class(300), class(100)]) {
            let departures = run(&mut scheduler, &arrivals);
            prop_assert_eq!(departures.last().map(|last| last.1), Some(fifo));
        }
    }

    #[test]
    fn fair_queueing_is_never_later_than_the_fluid_by_more_than_one_largest_packet(
        arrivals in arrivals(3),
    ) {
        let mut wfq = both(&[class(600), class(300), class(100)])[0].clone();
        let finished = fluid(&[600_000.0, 300_000.0, 100_000.0], &arrivals);
        let packet = LINK.time_to_send(Bytes::new(MAX_PACKET)).as_secs_f64();
        for (_, ends, place) in run(&mut wfq, &arrivals) {
            prop_assert!(ends.as_secs_f64() <= finished[place] + packet + 1e-6);
        }
    }

    #[test]
    fn a_flow_within_its_bucket_meets_the_delay_bound_of_parekh_and_gallager(
        greedy in 100u64..1500, bucket in 1500u64..20_000, gaps in proptest::collection::vec(0u64..60_000, 1..60),
    ) {
        let rate = Rate::from_bits_per_sec(300_000);
        let spec = TrafficSpec {
            rate, bucket: Bytes::new(bucket), peak: None,
            smallest: Bytes::new(0), largest: Bytes::new(MAX_PACKET),
        };
        let mut meter = TokenBucket::new(spec).unwrap();
        let mut now = Time::ZERO;
        let mut arrivals: Vec<Arrival> = Vec::new();
        for gap in gaps {
            now += Duration::from_micros(gap);
            while meter.conforms(now, Bytes::new(1000)) {
                arrivals.push((now, 0, 1000));
            }
        }
        // The other class is always backlogged.
        let crowd = 2 * now.as_nanos() / LINK.time_to_send(Bytes::new(greedy)).as_nanos() + 200;
        arrivals.extend((0..crowd).map(|_| (Time::ZERO, 1, greedy)));
        arrivals.sort_by_key(|arrival| arrival.0);
        let mut wfq = both(&[class(300), class(700)])[0].clone();
        let bound = rate.time_to_send(Bytes::new(bucket)) + LINK.time_to_send(Bytes::new(MAX_PACKET));
        for (_, ends, place) in run(&mut wfq, &arrivals) {
            let (came, class, _) = arrivals[place];
            prop_assert!(class == 1 || ends.since(came) <= bound + Duration::from_nanos(1000));
        }
    }

    #[test]
    fn a_guaranteed_flow_meets_the_delay_bound_of_rfc_2212(
        reserved in 300u64..700, peak in 700u64..2_000, bucket in 1_500u64..20_000,
        greedy in 100..=MAX_PACKET, gaps in proptest::collection::vec(0u64..80_000, 1..60),
    ) {
        let kbits = |kbits: u64| Rate::from_bits_per_sec(kbits * 1000);
        let (token_rate, size) = (300, 1000);
        let spec = TrafficSpec {
            rate: kbits(token_rate), bucket: Bytes::new(bucket), peak: Some(kbits(peak)),
            smallest: Bytes::new(0), largest: Bytes::new(size),
        };
        let mut meter = TokenBucket::new(spec).unwrap();
        let mut now = Time::ZERO;
        let mut arrivals: Vec<Arrival> = Vec::new();
        for gap in gaps {
            // Each burst at the peak rate, until the bucket is empty.
            now += Duration::from_micros(gap);
            while meter.conforms(now, Bytes::new(size)) {
                arrivals.push((now, 0, size));
                now += kbits(peak).time_to_send(Bytes::new(size)) + Duration::from_nanos(1);
            }
        }
        let crowd = 2 * now.as_nanos() / LINK.time_to_send(Bytes::new(greedy)).as_nanos() + 200;
        arrivals.extend((0..crowd).map(|_| (Time::ZERO, 1, greedy)));
        arrivals.sort_by_key(|arrival| arrival.0);
        let mut wfq = both(&[class(reserved), class(1000 - reserved)])[0].clone();
        // Section 3, p > R >= r, with C = 0 and D = one largest packet of the link: milliseconds.
        let (r, big_r, p) = (token_rate as f64, reserved as f64, peak as f64);
        let bits = |bytes: u64| bytes as f64 * 8.0;
        let burst = (bits(bucket) - bits(size)) / big_r * (p - big_r) / (p - r);
        let bound = burst + bits(size) / big_r + bits(MAX_PACKET) / 1000.0;
        for (_, ends, place) in run(&mut wfq, &arrivals) {
            let (came, class, _) = arrivals[place];
            let waited = ends.since(came).as_secs_f64() * 1e3;
            prop_assert!(class == 1 || waited <= bound + 1e-3, "{waited} ms of {bound} ms");
        }
    }

    #[test]
    fn classes_that_always_wait_get_their_shares(
        sizes in proptest::collection::vec(200..=MAX_PACKET, 3),
    ) {
        let rates = [500, 300, 200];
        let classes = rates.map(class);
        for mut scheduler in both(&classes) {
            let mut sent = [0.0f64; 3];
            for (one, size) in sizes.iter().enumerate() {
                for _ in 0..4000 {
                    scheduler.enqueue(Time::ZERO, one, packet(one as u32, *size)).unwrap();
                }
            }
            let mut now = Time::ZERO;
            // 2.5 s: no class becomes empty in that time.
            while now < Time::from_secs_f64(2.5) {
                now = scheduler.ready_at(now);
                let packet = scheduler.dequeue(now).unwrap();
                sent[packet.handle as usize] += packet.size.get() as f64;
                now += LINK.time_to_send(packet.size);
            }
            let total: f64 = sent.iter().sum();
            for (sent, rate) in sent.iter().zip(rates) {
                let share = total * rate as f64 / 1000.0;
                // Class-based queueing lets each class finish its round, and the burst of 16
                // packets of 1,000 bytes that it may have saved up.
                let slack = match scheduler {
                    Scheduler::Wfq(_) => 2.0 * MAX_PACKET as f64,
                    Scheduler::Cbq(_) => 15.0 * rate as f64 + 16_000.0,
                };
                prop_assert!((sent - share).abs() <= slack, "{sent} of {share}");
            }
        }
    }

    #[test]
    fn conforming_traffic_stays_below_the_bucket_and_the_peak(
        packets in proptest::collection::vec((0u64..5_000, 1u64..2000), 1..200),
    ) {
        let spec = TrafficSpec {
            rate: Rate::from_bits_per_sec(480_000), bucket: Bytes::new(6000),
            peak: Some(Rate::from_bits_per_sec(1_440_000)),
            smallest: Bytes::new(64), largest: Bytes::new(1500),
        };
        let mut meter = TokenBucket::new(spec).unwrap();
        let mut now = Time::ZERO;
        let mut conforming: Vec<(f64, f64)> = Vec::new();
        for (gap, size) in packets {
            now += Duration::from_micros(gap);
            let size = Bytes::new(size);
            if meter.conforms(now, size) {
                prop_assert!(size <= spec.largest);
                conforming.push((now.as_secs_f64(), size.max(spec.smallest).get() as f64));
            }
        }
        for first in 0..conforming.len() {
            let mut sum = 0.0;
            for (time, size) in &conforming[first..] {
                sum += size;
                let span = time - conforming[first].0;
                prop_assert!(sum <= 6000.0 + 60_000.0 * span + 1e-3);
                prop_assert!(sum <= 1500.0 + 180_000.0 * span + 1e-3);
            }
        }
    }
}

#[test]
fn a_class_that_may_not_borrow_keeps_to_its_rate_on_an_idle_link() {
    let bounded = ClassParameters { borrows: false, ..class(200) };
    let mut cbq = Scheduler::Cbq(Cbq::new(LINK, &[bounded, class(800)]).unwrap());
    let arrivals: Vec<Arrival> = (0..500).map(|_| (Time::ZERO, 0, 1000)).collect();
    let departures = run(&mut cbq, &arrivals);
    let seconds = departures.last().unwrap().1.as_secs_f64();
    // 500 packets of 8,000 bits at 200 kbit/s are 20 s, less the burst saved up at the start.
    assert!((19.0..=20.1).contains(&seconds), "{seconds} s");
}

#[test]
fn a_class_over_its_limit_gives_way_to_one_under_it_whatever_their_priority() {
    let low = ClassParameters { priority: 1, ..class(500) };
    let mut cbq = Scheduler::Cbq(Cbq::new(LINK, &[class(500), low]).unwrap());
    let mut arrivals: Vec<Arrival> = Vec::new();
    for _ in 0..1000 {
        arrivals.extend([(Time::ZERO, 0, 1000), (Time::ZERO, 1, 1000)]);
    }
    let departures = run(&mut cbq, &arrivals);
    let early = departures.iter().filter(|one| one.0 < Time::from_secs_f64(6.0));
    let classes: Vec<usize> = early.map(|one| arrivals[one.2].1).collect();
    let first = classes.iter().filter(|class| **class == 0).count();
    let share = first as f64 / classes.len() as f64;
    assert!((share - 0.5).abs() < 0.05, "{share}");
}

#[test]
fn packets_beyond_a_class_limit_are_dropped_and_other_classes_unaffected() {
    let narrow = ClassParameters { limit: Limit::packets(Packets::new(2)), ..class(500) };
    for mut scheduler in both(&[narrow, class(500)]) {
        let mut offer = |class| scheduler.enqueue(Time::ZERO, class, packet(0, 1000));
        assert_eq!([offer(0), offer(0)], [Ok(()), Ok(())]);
        assert_eq!(offer(0), Err(DropReason::QueueFull));
        assert_eq!(offer(1), Ok(()));
        assert_eq!(offer(7), Err(DropReason::QueueFull), "there is no class 7");
    }
}

#[test]
fn a_class_that_dropped_accepts_nothing_until_it_has_drained() {
    let narrow = ClassParameters {
        limit: Limit::packets(Packets::new(4)),
        resume: Some(Packets::new(2)),
        ..class(1000)
    };
    for mut scheduler in both(&[narrow]) {
        let mut now = Time::ZERO;
        for _ in 0..2 {
            let mut taken = (0..6).map(|_| scheduler.enqueue(now, 0, packet(0, 1000)).is_ok());
            assert!(taken.by_ref().take(3).all(|ok| ok), "below the limit it takes all");
            taken.by_ref().for_each(drop);
            while scheduler.occupancy().packets >= Packets::new(2) {
                assert_eq!(
                    scheduler.enqueue(now, 0, packet(0, 1000)),
                    Err(DropReason::QueueFull),
                    "{} wait",
                    scheduler.occupancy().packets.get()
                );
                scheduler.dequeue(now).unwrap();
                now += LINK.time_to_send(Bytes::new(1000));
            }
        }
    }
}

#[test]
fn invalid_classes_are_refused_with_a_reason() {
    let refuse = |classes: &[ClassParameters]| Wfq::new(LINK, classes).unwrap_err().to_string();
    assert_eq!(refuse(&[]), "a scheduler needs at least one class");
    assert_eq!(refuse(&[class(1), class(0)]), "class 1 has a rate of zero");
    assert_eq!(
        refuse(&[class(600), class(500)]),
        "the classes are given 1.1 Mbit/s of a link of 1 Mbit/s"
    );
}

#[test]
fn the_excess_of_a_reservation_is_best_effort_and_flows_keep_their_classes() {
    let wfq = Wfq::new(LINK, &[class(400), class(600)]).unwrap();
    let spec = TrafficSpec {
        rate: Rate::from_bits_per_sec(600_000),
        bucket: Bytes::new(2000),
        peak: None,
        smallest: Bytes::new(0),
        largest: Bytes::new(1500),
    };
    let mut reserving = Reserving::new(Scheduler::Wfq(wfq), 0);
    reserving.reserve(7, 1, TokenBucket::new(spec).unwrap());
    let mut drops = Vec::new();
    for handle in 0..3 {
        let of_others = Queued { flow: 1, ..packet(10 + handle, 1000) };
        reserving.enqueue(Time::ZERO, of_others, &mut drops);
        let reserved = Queued { flow: 7, ..packet(handle, 1000) };
        reserving.enqueue(Time::ZERO, reserved, &mut drops);
    }
    let mut order = Vec::new();
    let mut now = Time::ZERO;
    while let Some(chosen) = reserving.dequeue(now, &mut drops) {
        order.push(chosen.packet.handle);
        now += LINK.time_to_send(chosen.packet.size);
    }
    // Two packets fill the bucket; the third of flow 7 is the last of the others' queue.
    assert_eq!(order, [0, 10, 1, 11, 12, 2]);
    assert!(drops.is_empty());
}
