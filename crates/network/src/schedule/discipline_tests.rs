//! Disciplines on links whose rate changes, held against models that step through the rates.

use std::sync::Arc;

use ontempo_foundation::{Bytes, Duration, Packets, Rate, Time};
use proptest::prelude::*;

use super::*;
use crate::{
    Cbq, ClassParameters, DelayLaw, DropReason, Extras, Fate, Limit, Link, LinkParameters,
    LossModel, Queue, Queued, Red, RedMeasure, RedParameters, Reserving, ScheduledLink,
    ScheduledLinkParameters, Scheduler, Wfq,
};

const NOMINAL: u64 = 1_000_000;
const SIZE: Bytes = Bytes::new(1000);
const PACKET_BITS: u64 = 8_000;

/// Rates in bits per second and how long each holds in milliseconds; the last holds for ever.
type Phases = Vec<(u64, u64)>;

fn rate(bits: u64) -> Rate {
    Rate::from_bits_per_sec(bits)
}

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

fn extras(phases: &[(u64, u64)]) -> Extras {
    let mut begins = 0;
    let steps = phases.iter().map(|(bits, millis)| {
        let step = (at(begins), rate(*bits));
        begins += millis;
        step
    });
    let steps = RateSteps::new(Steps::new(steps, None).unwrap());
    let capacity = Capacity::new([(Time::ZERO, RateLaw::Steps(Arc::new(steps)))]).unwrap();
    let schedule = Schedule { capacity, delay: None, loss: None, cellreplay: None };
    Extras { schedule: Some(Arc::new(schedule)), ..Extras::default() }
}

/// Bits that the link can carry between two times: the sum over the phases.
fn carried(phases: &[(u64, u64)], from: Time, to: Time) -> f64 {
    let (mut begins, mut sum) = (0.0, 0.0);
    let (from, to) = (from.as_secs_f64(), to.as_secs_f64());
    for (place, (bits, millis)) in phases.iter().enumerate() {
        let is_last = place + 1 == phases.len();
        let ends = if is_last { f64::INFINITY } else { begins + *millis as f64 / 1e3 };
        sum += (to.min(ends) - from.max(begins)).max(0.0) * *bits as f64;
        begins = ends;
    }
    sum
}

// RED. With both thresholds at one place and without the gentle variant, a packet is dropped exactly
// if the average is there, another waits, and an earlier one was there already: the fates tell
// the average.

struct Average {
    threshold: f64,
    weight: f64,
    value: f64,
    has_begun: bool,
    /// When each admitted packet began; and when the last one ends.
    starts: Vec<Time>,
    ends: Time,
}

impl Average {
    /// Whether the packet at `now` is dropped, by the text of Floyd and Jacobson: an idle link lets
    /// the average fall as if an empty queue had been seen by each packet that could have left
    /// meanwhile.
    fn drops(&mut self, phases: &[(u64, u64)], now: Time) -> bool {
        let waiting = self.starts.iter().filter(|start| **start > now).count() as f64;
        if now >= self.ends {
            let missed = carried(phases, self.ends, now) / PACKET_BITS as f64;
            // The integral is exact to a nanosecond; whole packets are.
            for _ in 0..(missed + 1e-7).floor() as u64 {
                self.value *= 1.0 - self.weight;
            }
        }
        self.value += self.weight * (waiting - self.value);
        if self.value < self.threshold || waiting <= 1.0 {
            self.has_begun = false;
            return false;
        }
        std::mem::replace(&mut self.has_begun, true)
    }
}

fn red(threshold: f64, weight: f64) -> Queue {
    let parameters = RedParameters {
        min_th: threshold,
        max_th: threshold,
        weight,
        measure: RedMeasure::Packets,
        by_size: false,
        wait: false,
        gentle: false,
        limit: Limit::NONE,
        ..RedParameters::automatic(rate(NOMINAL), SIZE, Duration::from_millis(5))
    };
    Queue::Red(Box::new(Red::new(parameters).unwrap()))
}

fn phases() -> impl Strategy<Value = Phases> {
    let bits = prop_oneof![Just(0), 100_000u64..4_000_000];
    let middle = prop::collection::vec((bits, 20u64..400), 1..8);
    // What waits leaves in the end.
    middle.prop_map(|mut phases| {
        phases.push((NOMINAL, 1));
        phases
    })
}

proptest! {
    #[test]
    fn the_average_of_red_follows_the_queue_and_falls_by_what_the_link_could_have_sent(
        phases in phases(),
        gaps in prop::collection::vec(prop_oneof![4 => 100_001u64..9_000_000, 1 => 50_000_000u64..600_000_000], 50..400),
        threshold in 2.5f64..8.0,
        weight in 0.02f64..0.5,
    ) {
        let parameters = LinkParameters {
            rate: rate(NOMINAL),
            delay: DelayLaw::Constant(Duration::ZERO),
            mtu: None,
            queue: red(threshold, weight),
            loss: LossModel::None,
            reordering: false,
            extras: extras(&phases),
        };
        let mut link = Link::new(parameters, 1, "test");
        let mut model =
            Average { threshold, weight, value: 0.0, has_begun: false, starts: vec![], ends: Time::ZERO };
        let mut now = Time::ZERO;
        for gap in gaps {
            now += Duration::from_nanos(gap);
            let expected = model.drops(&phases, now);
            // What lies at the threshold but for rounding tells nothing.
            prop_assume!((model.value / threshold - 1.0).abs() > 1e-6);
            match link.offer(now, SIZE, false) {
                Fate::Arrives { at, .. } => {
                    prop_assert!(!expected, "{} at {now:?}, average {}", phases.len(), model.value);
                    model.starts.push(now.max(model.ends));
                    model.ends = at;
                }
                Fate::Dropped(reason) => {
                    prop_assert_eq!(reason, DropReason::Early);
                    prop_assert!(expected, "average {} at {:?}", model.value, now);
                }
            }
        }
    }
}

#[test]
fn an_outage_ages_the_average_of_red_by_nothing() {
    // 1 s idle, 0.9 s of it without a rate: 100 kbit are 12 packets.
    let phases = [(NOMINAL, 150), (0, 900), (NOMINAL, 1)];
    assert!((carried(&phases, at(50), at(1050)) - 100_000.0).abs() < 1e-6);
    let mut queue = red(5.0, 0.1);
    let mut random = ontempo_foundation::RandomStream::new(1, "red");
    let capacity = extras(&phases).schedule.unwrap();
    let offered = |waiting: u64, idle, rate| crate::Offered {
        now: Time::ZERO,
        size: SIZE,
        ecn_capable: false,
        waiting: crate::Occupancy { packets: Packets::new(waiting), bytes: SIZE * waiting },
        idle,
        wait: Duration::ZERO,
        rate,
    };
    queue.admit(&offered(10, None, rate(NOMINAL)), &mut random);
    let before = queue.average().unwrap();
    let mean = capacity.capacity.mean_rate(at(50), at(1050));
    queue.admit(&offered(0, Some(Duration::from_secs(1)), mean), &mut random);
    let expected = (0..13).fold(before, |average, _| average * 0.9);
    assert!((queue.average().unwrap() - expected).abs() < 1e-9);
}

// Fair queueing and CBQ.

fn class(bits: u64, priority: u8, borrows: bool) -> ClassParameters {
    ClassParameters { rate: rate(bits), limit: Limit::NONE, resume: None, priority, borrows }
}

fn wfq(classes: &[ClassParameters]) -> Scheduler {
    Scheduler::Wfq(Wfq::new(rate(NOMINAL), classes).unwrap())
}

fn cbq(classes: &[ClassParameters]) -> Scheduler {
    Scheduler::Cbq(Cbq::new(rate(NOMINAL), classes).unwrap())
}

/// Bits of each of two classes that leave in each phase. Packets of class `place` come `offers[place]`
/// times a second; `None`: packets of it always wait.
fn served(scheduler: Scheduler, phases: &[(u64, u64)], offers: [Option<u64>; 2]) -> Vec<[f64; 2]> {
    let mut discipline = Reserving::new(scheduler, 0);
    discipline.separate(1, 1);
    let parameters = ScheduledLinkParameters {
        rate: rate(NOMINAL),
        delay: DelayLaw::Constant(Duration::ZERO),
        mtu: None,
        discipline: Box::new(discipline),
        loss: LossModel::None,
        reordering: false,
        extras: extras(phases),
    };
    let mut link = ScheduledLink::new(parameters, 1, "test");
    let packet = |flow: usize, enqueued| Queued {
        handle: 0,
        flow: flow as u32,
        class: 0,
        size: SIZE,
        ecn_capable: false,
        l4s: false,
        enqueued,
    };
    let ends: Vec<Time> = phases
        .iter()
        .scan(0, |sum, (_, millis)| {
            *sum += millis;
            Some(at(*sum))
        })
        .collect();
    let mut sums = vec![[0.0; 2]; phases.len()];
    let (mut now, mut drops) = (Time::ZERO, Vec::new());
    let mut next = offers.map(|offered| if offered.is_some() { Time::ZERO } else { Time::NEVER });
    for (flow, offered) in offers.iter().enumerate() {
        for _ in 0..if offered.is_none() { 3 } else { 0 } {
            link.enqueue(now, packet(flow, now), &mut drops);
        }
    }
    while now < *ends.last().unwrap() {
        let arrives = next[0].min(next[1]);
        let leaves = link.next_dequeue(now).max(now);
        if arrives <= leaves {
            let flow = usize::from(next[1] < next[0]);
            now = arrives;
            link.enqueue(now, packet(flow, now), &mut drops);
            next[flow] += Duration::from_nanos(1_000_000_000 / offers[flow].unwrap());
            continue;
        }
        now = leaves;
        if let Some(departure) = link.dequeue(now, &mut drops) {
            let flow = departure.packet.flow as usize;
            // By the middle of its transmission.
            let arrives = departure.arrives.unwrap().as_nanos();
            let middle = Time::from_nanos((now.as_nanos() + arrives) / 2);
            if let Some(phase) = ends.iter().position(|end| middle < *end) {
                sums[phase][flow] += PACKET_BITS as f64;
            }
            if offers[flow].is_none() {
                link.enqueue(now, packet(flow, now), &mut drops);
            }
        }
    }
    assert!(drops.is_empty());
    sums
}

/// A few packets: those across a change of the rate, a round of each class, and the 16 packets that a
/// class of CBQ may send at once after it was idle.
const TOLERANCE: f64 = 30.0 * PACKET_BITS as f64;

#[track_caller]
fn assert_near(served: f64, expected: f64, what: &str) {
    assert!((served - expected).abs() <= TOLERANCE, "{what}: {served} bits, not {expected}");
}

/// Fast, slow, without a rate, nominal.
const CHANGES: [(u64, u64); 5] =
    [(NOMINAL, 20_000), (8 * NOMINAL, 5_000), (NOMINAL / 5, 40_000), (0, 3_000), (NOMINAL, 20_000)];

#[test]
fn classes_that_always_wait_share_each_rate_of_a_link_by_their_own() {
    let classes = [class(NOMINAL / 4, 1, true), class(3 * NOMINAL / 4, 1, true)];
    for (name, scheduler) in [("wfq", wfq(&classes)), ("cbq", cbq(&classes))] {
        let sums = served(scheduler, &CHANGES, [None, None]);
        for ((bits, millis), [one, other]) in CHANGES.iter().zip(sums) {
            let all = (bits * millis / 1000) as f64;
            let what = format!("{name} at {bits} bit/s");
            assert_near(one, all / 4.0, &what);
            assert_near(other, all * 3.0 / 4.0, &what);
        }
    }
}

#[test]
fn a_class_that_needs_less_than_its_share_gets_it_and_the_other_what_is_left() {
    // 100 kbit/s of a class that has 250: more than its quarter where the link has 200.
    let offered = 100_000;
    let shares = [class(NOMINAL / 4, 1, true), class(3 * NOMINAL / 4, 1, true)];
    let first = [class(NOMINAL / 4, 0, true), class(3 * NOMINAL / 4, 1, true)];
    let offers = [Some(offered / PACKET_BITS + 1), None];
    let offered = (offered / PACKET_BITS + 1) as f64 * PACKET_BITS as f64;
    // Before the slow phase, during which the class falls behind unless it goes first.
    for (name, scheduler) in [("wfq", wfq(&shares)), ("cbq", cbq(&first))] {
        let sums = served(scheduler, &CHANGES[..2], offers);
        for ((bits, millis), [one, other]) in CHANGES.iter().zip(sums) {
            let seconds = *millis as f64 / 1000.0;
            assert_near(one, offered * seconds, name);
            assert_near(other, (*bits as f64 - offered) * seconds, name);
        }
    }
    let slow = [(NOMINAL / 5, 40_000), (NOMINAL, 10_000)];
    // By weight: a quarter of 200 kbit/s; afterwards what has waited is sent by the quarter of 1 Mbit/s.
    let sums = served(wfq(&shares), &slow, offers);
    assert_near(sums[0][0], 2e6, "wfq, slow");
    assert_near(sums[1][0], 2.5e6_f64.min(offered * 50.0 - 2e6), "wfq, afterwards");
    // By priority: all of it.
    let sums = served(cbq(&first), &slow, offers);
    assert_near(sums[0][0], offered * 40.0, "cbq, slow");
    assert_near(sums[1][0], offered * 10.0, "cbq, afterwards");
}

#[test]
fn a_class_that_may_not_borrow_keeps_to_its_rate_where_the_link_is_faster_and_gets_its_share_where_slower()
 {
    let classes = [class(NOMINAL / 4, 1, false), class(3 * NOMINAL / 4, 1, true)];
    let sums = served(cbq(&classes), &CHANGES, [None, None]);
    for ((bits, millis), [one, other]) in CHANGES.iter().zip(sums) {
        let seconds = *millis as f64 / 1000.0;
        let own = (*bits as f64 / 4.0).min(NOMINAL as f64 / 4.0);
        assert_near(one, own * seconds, &format!("own at {bits} bit/s"));
        assert_near(other, (*bits as f64 - own) * seconds, &format!("rest of {bits} bit/s"));
    }
}
