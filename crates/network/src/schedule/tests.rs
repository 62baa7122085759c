use std::sync::Arc;

use ontempo_foundation::{Bytes, Duration, Packets, Rate, Time};
use proptest::prelude::*;

use super::*;
use crate::{
    CoDel, CoDelParameters, DelayLaw, Discipline, DropReason, Extras, Fate, Link, LinkParameters,
    LossModel, Queue, Queued, ScheduledLink, ScheduledLinkParameters,
};

const MEGABIT: u64 = 1_000_000;
const SIZE: Bytes = Bytes::new(1000);

fn rate(bits: u64) -> Rate {
    Rate::from_bits_per_sec(bits)
}

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

fn nanos(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

fn rates(steps: &[(u64, u64)], period: Option<u64>) -> RateLaw {
    let steps = steps.iter().map(|(time, bits)| (nanos(*time), rate(*bits)));
    let steps = Steps::new(steps, period.map(Duration::from_nanos)).unwrap();
    RateLaw::Steps(Arc::new(RateSteps::new(steps)))
}

fn opportunities(millis: &[u64]) -> RateLaw {
    let times = millis.iter().map(|millis| at(*millis)).collect();
    RateLaw::Opportunities(Arc::new(Opportunities::new(times).unwrap()))
}

fn only(law: RateLaw) -> Capacity {
    Capacity::new([(Time::ZERO, law)]).unwrap()
}

fn scheduled(schedule: Arc<Schedule>) -> Extras {
    Extras { schedule: Some(schedule), ..Extras::default() }
}

fn varying(parameters: LinkParameters, schedule: Arc<Schedule>) -> Link {
    Link::new(LinkParameters { extras: scheduled(schedule), ..parameters }, 5, "test")
}

fn parameters(queue: Queue) -> LinkParameters {
    LinkParameters {
        rate: rate(MEGABIT),
        delay: DelayLaw::Constant(Duration::from_millis(10)),
        mtu: None,
        queue,
        loss: LossModel::None,
        reordering: false,
        extras: Extras::default(),
    }
}

fn of_rate(capacity: Capacity) -> Schedule {
    Schedule { capacity, delay: None, loss: None, cellreplay: None }
}

fn link(queue: Queue, schedule: Schedule) -> Link {
    varying(parameters(queue), Arc::new(schedule))
}

fn arrival(fate: Fate) -> Option<Time> {
    match fate {
        Fate::Arrives { at, .. } => Some(at),
        Fate::Dropped(_) => None,
    }
}

#[test]
fn a_packet_across_a_change_of_rate_leaves_when_the_integral_of_the_rate_is_its_size() {
    // 1000 bytes at 1 Mbit/s take 8 ms; after 4 ms the other half goes at 4 Mbit/s, in 1 ms.
    let capacity = only(rates(&[(0, MEGABIT), (4_000_000, 4 * MEGABIT)], None));
    let mut link = link(Queue::unlimited(), of_rate(capacity));
    assert_eq!(arrival(link.offer(at(0), SIZE, false)), Some(at(5 + 10)));
    assert_eq!(arrival(link.offer(at(0), SIZE, false)), Some(at(7 + 10)));
    assert_eq!(arrival(link.offer(at(100), SIZE, false)), Some(at(102 + 10)));
}

#[test]
fn a_packet_waits_through_an_outage_and_goes_on() {
    let parts = [(0, MEGABIT), (4, 0), (1004, MEGABIT)];
    let laws = parts.map(|(time, bits)| (at(time), RateLaw::Constant(rate(bits))));
    let mut link = link(Queue::drop_tail(Packets::new(2)), of_rate(Capacity::new(laws).unwrap()));
    let fates: Vec<Fate> = (0..4).map(|_| link.offer(at(0), SIZE, false)).collect();
    let arrivals: Vec<_> = fates.iter().map(|fate| arrival(*fate)).collect();
    assert_eq!(arrivals, [Some(at(1018)), Some(at(1026)), Some(at(1034)), None]);
    assert_eq!(fates[3], Fate::Dropped(DropReason::QueueFull));
    // The queue is full until the outage is over.
    assert_eq!(link.offer(at(1007), SIZE, false), Fate::Dropped(DropReason::QueueFull));
    assert_eq!(arrival(link.offer(at(1008), SIZE, false)), Some(at(1042)));
}

#[test]
fn what_is_stuck_for_ever_never_arrives_and_is_counted_as_waiting() {
    for law in [
        rates(&[(0, MEGABIT), (4_000_000, 0)], None),
        rates(&[(0, 0)], Some(1_000_000)),
        RateLaw::Constant(rate(0)),
    ] {
        let mut link = link(Queue::drop_tail(Packets::new(2)), of_rate(only(law)));
        let fates: Vec<Fate> = (0..4).map(|_| link.offer(at(1), SIZE, false)).collect();
        assert!(fates[..3].iter().all(|fate| arrival(*fate) == Some(Time::NEVER)), "{fates:?}");
        assert_eq!(fates[3], Fate::Dropped(DropReason::QueueFull));
        let statistics = link.statistics(at(1001));
        assert_eq!(statistics.waiting, Packets::new(2));
        assert_eq!(statistics.departures, Packets::new(1));
        assert!((statistics.mean_packets - 2.0 * 1000.0 / 1001.0).abs() < 1e-9);
        assert!((statistics.busy - 1000.0 / 1001.0).abs() < 1e-9);
    }
}

#[test]
fn a_shorter_delay_does_not_let_a_packet_overtake_unless_reordering_is_allowed() {
    let steps = [(at(0), Some(Duration::from_millis(50))), (at(10), Some(Duration::ZERO))];
    let delay = Timeline::new(vec![(Time::ZERO, Steps::new(steps, None).unwrap())]).unwrap();
    let capacity = only(RateLaw::Constant(rate(MEGABIT)));
    let schedule =
        Arc::new(Schedule { capacity, delay: Some(delay), loss: None, cellreplay: None });
    for (reordering, second) in [(false, at(58)), (true, at(16))] {
        let parameters = LinkParameters { reordering, ..parameters(Queue::unlimited()) };
        let mut link = varying(parameters, schedule.clone());
        assert_eq!(arrival(link.offer(at(0), SIZE, false)), Some(at(58)));
        assert_eq!(arrival(link.offer(at(0), SIZE, false)), Some(second));
    }
}

#[test]
fn losses_have_the_probability_of_the_time_at_which_the_last_bit_leaves() {
    let steps = [(at(0), Some(0.0)), (at(1000), Some(1.0)), (at(2000), None)];
    let loss = Timeline::new(vec![(Time::ZERO, Steps::new(steps, None).unwrap())]).unwrap();
    let capacity = only(RateLaw::Constant(rate(MEGABIT)));
    let schedule = Arc::new(Schedule { capacity, delay: None, loss: Some(loss), cellreplay: None });
    let own = LossModel::trace([0], None).unwrap();
    let parameters = LinkParameters { loss: own, ..parameters(Queue::unlimited()) };
    let mut link = varying(parameters, schedule);
    // It takes 8 ms. The link's own model sees its first packet only after 2 s.
    for (time, passes) in
        [(0, true), (991, true), (992, false), (1991, false), (1992, false), (2200, true)]
    {
        assert_eq!(arrival(link.offer(at(time), SIZE, false)).is_some(), passes, "at {time} ms");
    }
}

#[test]
fn packets_share_opportunities_and_lose_what_no_one_uses() {
    let mut link = link(Queue::unlimited(), of_rate(only(opportunities(&[10, 20, 20, 50]))));
    let mut offer = |time, size| arrival(link.offer(at(time), Bytes::new(size), false)).unwrap();
    // 10 ms of delay. Two share the opportunity at 10 ms; the third takes its rest and part of the
    // next.
    assert_eq!(offer(1, 600), at(20));
    assert_eq!(offer(1, 600), at(20));
    assert_eq!(offer(1, 600), at(30));
    // The rest of 20 ms is lost to a packet that arrives then or later.
    assert_eq!(offer(20, 100), at(60));
    // Then the trace begins anew: 60, 70, 70, 100 ms.
    assert_eq!(offer(55, 1500), at(70));
    assert_eq!(offer(55, 3000), at(80));
}

#[test]
fn an_outage_takes_the_opportunities_within_it() {
    let trace = opportunities(&[10, 20, 30]);
    let nothing = RateLaw::Constant(rate(0));
    let parts = [(at(0), trace.clone()), (at(15), nothing), (at(30), trace)];
    let capacity = Capacity::new(parts).unwrap();
    let ends = |starts, size| capacity.send(starts, 0, Bytes::new(size)).ends;
    assert_eq!(ends(at(0), 1500), at(10));
    assert_eq!(ends(at(0), 1501), at(30));
    assert_eq!(ends(at(12), 1500), at(30));
    assert_eq!(ends(at(12), 1501), at(40));
    assert_eq!(capacity.rate_at(at(16)), rate(0));
    assert_eq!(capacity.rate_at(at(40)), rate(3 * 12_000 * 1000 / 30));
    assert_eq!(capacity.next_change(at(16)), at(30));
    assert_eq!(capacity.next_change(at(30)), Time::NEVER);
}

#[test]
fn unlimited_steps_take_no_time() {
    let unlimited = Rate::UNLIMITED.as_bits_per_sec();
    let capacity = only(rates(&[(0, MEGABIT), (4_000_000, unlimited), (5_000_000, MEGABIT)], None));
    assert_eq!(capacity.send(at(0), 0, SIZE).ends, at(4));
    assert_eq!(capacity.send(nanos(4_500_000), 0, SIZE).ends, nanos(4_500_000));
    assert_eq!(capacity.send(at(6), 0, SIZE).ends, at(14));
}

#[test]
fn mean_rates_are_integrals() {
    let capacity = only(rates(&[(0, MEGABIT), (4_000_000, 3 * MEGABIT)], Some(8_000_000)));
    assert_eq!(capacity.mean_rate(at(0), at(80)), rate(2 * MEGABIT));
    assert_eq!(capacity.mean_rate(at(6), at(10)), rate(2 * MEGABIT));
    assert_eq!(capacity.mean_rate(at(4), at(4)), rate(3 * MEGABIT));
    assert_eq!(capacity.next_change(at(5)), at(8));
    assert_eq!(only(opportunities(&[1, 2, 3])).mean_rate(at(0), at(3000)), rate(12 * MEGABIT));
}

#[test]
fn times_that_make_no_schedule_are_refused() {
    let steps = |times: &[u64], period: Option<u64>| {
        let steps = times.iter().map(|time| (nanos(*time), ()));
        Steps::new(steps, period.map(Duration::from_nanos)).map(|_| ())
    };
    assert_eq!(steps(&[], None), Err(ScheduleError::Empty));
    assert_eq!(steps(&[1], None), Err(ScheduleError::LateStart(nanos(1))));
    assert_eq!(steps(&[0, 5, 5], None), Err(ScheduleError::Backwards(2)));
    let short = ScheduleError::ShortPeriod(Duration::from_nanos(5));
    assert_eq!(steps(&[0, 5], Some(5)), Err(short));
    assert_eq!(steps(&[0, 5], Some(6)), Ok(()));
    let back = Opportunities::new(vec![at(2), at(1)]);
    assert_eq!(back.map(|_| ()), Err(ScheduleError::Backwards(1)));
    let at_once = Opportunities::new(vec![at(0)]).map(|_| ());
    assert_eq!(at_once, Err(ScheduleError::ShortPeriod(Duration::ZERO)));
    assert_eq!(short.to_string(), "a schedule cannot repeat after 5 ns, before its last step");
}

#[test]
fn weighted_fair_queueing_shares_a_rate_that_changes_by_weight() {
    use crate::{ClassParameters, Limit, Reserving, Scheduler, Wfq};
    let class = |bits| ClassParameters {
        rate: rate(bits),
        limit: Limit::NONE,
        resume: None,
        priority: 0,
        borrows: true,
    };
    let wfq = Wfq::new(rate(MEGABIT), &[class(MEGABIT / 4), class(3 * MEGABIT / 4)]).unwrap();
    let mut discipline = Reserving::new(Scheduler::Wfq(wfq), 0);
    discipline.separate(1, 1);
    let capacity = only(rates(
        &[(0, MEGABIT), (500_000_000, 8 * MEGABIT), (600_000_000, MEGABIT / 5)],
        Some(1_000_000_000),
    ));
    let parameters = ScheduledLinkParameters {
        rate: rate(MEGABIT),
        delay: DelayLaw::Constant(Duration::ZERO),
        mtu: None,
        discipline: Box::new(discipline),
        loss: LossModel::None,
        reordering: false,
        extras: Extras::default(),
    };
    let schedule = Arc::new(of_rate(capacity));
    let mut link = ScheduledLink::new(
        ScheduledLinkParameters { extras: scheduled(schedule), ..parameters },
        1,
        "test",
    );
    let mut drops = Vec::new();
    let mut sent = [0u64; 2];
    // Both classes always have packets waiting: each departure is replaced.
    let packet = |flow, enqueued| Queued {
        handle: 0,
        flow,
        class: 0,
        size: SIZE,
        ecn_capable: false,
        l4s: false,
        enqueued,
    };
    for flow in [0, 0, 0, 0, 1, 1, 1, 1] {
        link.enqueue(Time::ZERO, packet(flow, Time::ZERO), &mut drops);
    }
    let mut now = Time::ZERO;
    while now < at(20_000) {
        let departure = link.dequeue(now, &mut drops).unwrap();
        sent[departure.packet.flow as usize] += 1;
        link.enqueue(now, packet(departure.packet.flow, now), &mut drops);
        now = link.next_dequeue(now);
    }
    let share = sent[1] as f64 / (sent[0] + sent[1]) as f64;
    assert!((share - 0.75).abs() < 0.005, "{sent:?}");
    // 0.5 + 0.8 + 0.08 Mbit in each second.
    let bits = (sent[0] + sent[1]) as f64 * 8000.0;
    assert!((bits / (20.0 * 1.38e6) - 1.0).abs() < 0.002, "{bits}");
}

/// Steps with rates that send a byte in some nanoseconds, and a period.
fn some_steps() -> impl Strategy<Value = (Vec<(u64, u64)>, Option<u64>)> {
    let bits = prop_oneof![Just(0), 1u64..5_000_000_000];
    let step = (1u64..200, bits);
    (prop::collection::vec(step, 1..8), any::<bool>(), 1u64..300).prop_map(
        |(steps, repeats, rest)| {
            let mut time = 0;
            let mut placed = Vec::new();
            for (span, bits) in steps {
                placed.push((time, bits));
                time += span;
            }
            let last = placed.last().map_or(0, |(time, _)| *time);
            (placed, repeats.then_some(last + rest))
        },
    )
}

/// The rate in each nanosecond.
fn brute_rate(steps: &[(u64, u64)], period: Option<u64>, time: u64) -> u64 {
    let phase = period.map_or(time, |period| time % period);
    steps.iter().rev().find(|(from, _)| *from <= phase).unwrap().1
}

/// A queue served at opportunities as mahimahi's `mm-link` does it, in steps of a millisecond: what
/// waits at an opportunity uses it. Returns departures in milliseconds.
fn brute_opportunities(trace: &[u64], packets: &[(u64, u64)], until: u64) -> Vec<Option<u64>> {
    let period = *trace.last().unwrap();
    let mut left: Vec<u64> = packets.iter().map(|(_, size)| *size).collect();
    let mut departed = vec![None; packets.len()];
    for time in 0..until {
        let repeats =
            (0..=time / period).flat_map(|round| trace.iter().map(move |one| (round, one)));
        let count = repeats.filter(|(round, one)| round * period + **one == time).count() as u64;
        let mut budget = count * 1500;
        for (place, (arrived, _)) in packets.iter().enumerate() {
            if *arrived >= time || departed[place].is_some() {
                continue;
            }
            let used = budget.min(left[place]);
            (left[place], budget) = (left[place] - used, budget - used);
            if left[place] == 0 {
                departed[place] = Some(time);
            }
        }
    }
    departed
}

proptest! {
    #[test]
    fn departures_by_integral_are_those_of_a_nanosecond_after_the_other(
        (steps, period) in some_steps(),
        outage in (0u64..1500, 1u64..500),
        start in 0u64..1000,
        size in 1u64..200,
    ) {
        let law = rates(&steps, period);
        let ends_at = outage.0 + outage.1;
        let mut parts = vec![
            (nanos(outage.0), RateLaw::Constant(rate(0))), (nanos(ends_at), law.clone()),
        ];
        if outage.0 > 0 {
            parts.insert(0, (Time::ZERO, law));
        }
        let capacity = Capacity::new(parts).unwrap();
        let need = u128::from(size) * 8_000_000_000;
        let (mut done, mut time) = (0u128, start);
        while done < need && time < 200_000 {
            let is_out = (outage.0..ends_at).contains(&time);
            done += if is_out { 0 } else { u128::from(brute_rate(&steps, period, time)) };
            time += 1;
        }
        let ends = capacity.send(nanos(start), 0, Bytes::new(size)).ends;
        if done >= need {
            prop_assert_eq!(ends, nanos(time));
        } else {
            prop_assert!(ends > nanos(time));
        }
    }

    #[test]
    fn opportunities_serve_as_a_queue_that_is_served_at_each_of_them(
        gaps in prop::collection::vec(0u64..6, 1..12),
        offered in prop::collection::vec((0u64..8, 1u64..4000), 1..20),
    ) {
        let mut time = 1;
        let trace: Vec<u64> = gaps.iter().map(|gap| { time += gap; time }).collect();
        let mut time = 0;
        let packets: Vec<(u64, u64)> =
            offered.iter().map(|(gap, size)| { time += gap; (time, *size) }).collect();
        let mut link = link(Queue::unlimited(), of_rate(only(opportunities(&trace))));
        let departed = packets.iter().map(|(time, size)| {
            let arrives = arrival(link.offer(at(*time), Bytes::new(*size), false)).unwrap();
            Some((arrives - Duration::from_millis(10)).as_nanos() / 1_000_000)
        });
        let departed: Vec<_> = departed.collect();
        prop_assert_eq!(brute_opportunities(&trace, &packets, 3000), departed);
    }

    #[test]
    fn many_equal_steps_are_a_constant_link(
        cuts in prop::collection::vec(1u64..30_000_000, 1..20),
        repeats in any::<bool>(),
        offered in prop::collection::vec((0u64..12_000_000, 40u64..1500), 1..60),
        loss in prop_oneof![Just(0.0), Just(0.2)],
    ) {
        let mut time = 0;
        let mut steps = vec![(0, MEGABIT)];
        steps.extend(cuts.iter().map(|cut| { time += cut; (time, MEGABIT) }));
        let law = rates(&steps, repeats.then_some(time + 7));
        let schedule = Arc::new(of_rate(only(law)));
        let model = LossModel::bernoulli(loss).unwrap();
        let with = |queue| LinkParameters { loss: model.clone(), ..parameters(queue) };
        let queue = || Queue::drop_tail(Packets::new(3));
        let mut constant = Link::new(with(queue()), 5, "test");
        let mut varying = varying(with(queue()), schedule);
        let mut now = Time::ZERO;
        for (gap, size) in offered {
            now += Duration::from_nanos(gap);
            let size = Bytes::new(size);
            prop_assert_eq!(constant.offer(now, size, false), varying.offer(now, size, false));
            prop_assert_eq!(constant.occupancy(now), varying.occupancy(now));
            prop_assert_eq!(constant.statistics(now), varying.statistics(now));
        }
    }

    #[test]
    fn every_packet_is_sent_waits_or_was_dropped_whatever_the_rate_does(
        (steps, period) in some_steps(),
        offered in prop::collection::vec((0u64..400, 40u64..1500), 1..60),
        by_class in any::<bool>(),
        until in 0u64..5_000,
    ) {
        let schedule = Arc::new(of_rate(only(rates(&steps, period))));
        let mut now = Time::ZERO;
        let statistics = if by_class {
            let discipline: Box<dyn Discipline> = Box::new(CoDel::new(CoDelParameters::default()));
            let parameters = ScheduledLinkParameters {
                rate: rate(MEGABIT),
                delay: DelayLaw::Constant(Duration::ZERO),
                mtu: None,
                discipline,
                loss: LossModel::None,
                reordering: false,
                extras: Extras::default(),
            };
            let mut link = ScheduledLink::new(
        ScheduledLinkParameters { extras: scheduled(schedule), ..parameters },
        5,
        "test",
    );
            let mut drops = Vec::new();
            for (place, (gap, size)) in offered.iter().enumerate() {
                let next = now + Duration::from_nanos(*gap);
                while link.next_dequeue(now) <= next {
                    now = link.next_dequeue(now);
                    link.dequeue(now, &mut drops);
                }
                now = next;
                let size = Bytes::new(*size);
                let packet = Queued {
                    handle: place as u32, flow: 0, class: 0, size, ecn_capable: false, l4s: false, enqueued: now,
                };
                link.enqueue(now, packet, &mut drops);
            }
            link.statistics(now)
        } else {
            let mut link = link(Queue::drop_tail(Packets::new(4)), of_rate(only(rates(&steps, period))));
            let (mut last, mut passed) = (Time::ZERO, 0);
            for (gap, size) in &offered {
                now += Duration::from_nanos(*gap);
                if let Some(arrives) = arrival(link.offer(now, Bytes::new(*size), false)) {
                    prop_assert!(arrives >= last);
                    (last, passed) = (arrives, passed + 1);
                }
            }
            now += Duration::from_nanos(until);
            let statistics = link.statistics(now);
            prop_assert_eq!(statistics.departures + statistics.waiting, Packets::new(passed));
            statistics
        };
        let counted = statistics.departures + statistics.waiting + statistics.drops.refused();
        prop_assert_eq!(counted, statistics.arrivals);
        prop_assert_eq!(statistics.arrivals, Packets::new(offered.len() as u64));
    }
}
