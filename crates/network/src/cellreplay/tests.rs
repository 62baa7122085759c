use std::collections::VecDeque;
use std::sync::Arc;

use ontempo_foundation::{Bytes, Duration, Packets, Rate, Time};
use proptest::prelude::*;

use super::*;
use crate::{
    Capacity, DelayLaw, DropReason, Extras, Fate, Limit, Link, LinkParameters, LossModel,
    Opportunities, Queue, RateLaw, Schedule,
};

const SIZE: Bytes = Bytes::new(1400);

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

fn micros(micros: u64) -> Time {
    Time::ZERO + Duration::from_micros(micros)
}

fn light(lines: &[(u64, u64, &[u64])]) -> Result<LightTrace, ScheduleError> {
    let (mut all, mut opportunities) = (Vec::new(), Vec::new());
    for (time, base_delay, train) in lines {
        let (time, base_delay) = (at(*time), Duration::from_millis(*base_delay));
        all.push(LightLine { time, base_delay, first: opportunities.len() });
        opportunities.extend(train.iter().map(|millis| u32::try_from(*millis).unwrap()));
    }
    LightTrace::new(all, opportunities)
}

/// A link with the pair of traces; the heavy one has the times given, in milliseconds.
fn link(trace: LightTrace, timer: u64, heavy: &[u64], queue: Queue) -> Link {
    with_size(trace, timer, heavy, queue, SIZE)
}

fn with_size(
    light: LightTrace,
    timer: u64,
    heavy: &[u64],
    queue: Queue,
    opportunity: Bytes,
) -> Link {
    let times = heavy.iter().map(|millis| at(*millis)).collect();
    let heavy = Opportunities::of_size(times, opportunity).unwrap();
    let capacity = Capacity::new([(Time::ZERO, RateLaw::Opportunities(Arc::new(heavy)))]).unwrap();
    let cell = CellReplay { light, timer: Duration::from_millis(timer), opportunity };
    let schedule = Schedule { capacity, delay: None, loss: None, cellreplay: Some(Arc::new(cell)) };
    let parameters = LinkParameters {
        rate: Rate::from_bits_per_sec(1_000_000),
        delay: DelayLaw::Constant(Duration::from_millis(3)),
        mtu: None,
        queue,
        loss: LossModel::None,
        reordering: false,
        extras: Extras { schedule: Some(Arc::new(schedule)), ..Extras::default() },
    };
    Link::new(parameters, 5, "test")
}

fn arrival(fate: Fate) -> Option<Time> {
    match fate {
        Fate::Arrives { at, .. } => Some(at),
        Fate::Dropped(_) => None,
    }
}

/// Arrivals, in milliseconds, of packets of 1,400 bytes offered at times in milliseconds.
fn arrivals(link: &mut Link, offered: &[u64]) -> Vec<Option<u64>> {
    let millis = |time: Time| time.as_nanos() / 1_000_000;
    offered.iter().map(|time| arrival(link.offer(at(*time), SIZE, false)).map(millis)).collect()
}

/// Base delays of 20 ms, then 40, then 20; trains of four packets.
const SLOPES: [(u64, u64, &[u64]); 3] =
    [(0, 20, &[0, 1, 5, 5]), (100, 40, &[0, 2, 4, 6]), (200, 20, &[0])];

#[test]
fn the_base_delay_lies_on_the_straight_line_between_those_of_the_lines_and_repeats() {
    let trace = light(&SLOPES).unwrap();
    for (time, delay) in [(0, 20_000), (50, 30_000), (100, 40_000), (125, 35_000), (199, 20_200)] {
        for time in [time, time + 200, time + 2_000] {
            assert_eq!(trace.base_delay(at(time)), Duration::from_micros(delay), "{time} ms");
        }
    }
    assert_eq!(trace.period(), Duration::from_millis(200));
    // Before its first line, the trace has the values of that.
    let late = light(&[(10, 7, &[0]), (20, 9, &[0]), (20, 30, &[0]), (30, 40, &[0])]).unwrap();
    let delays = [0, 9, 15, 20, 25].map(|time| late.base_delay(at(time)).as_nanos() / 1_000_000);
    // Of two lines at a time the second holds from then on.
    assert_eq!(delays, [7, 7, 8, 30, 35]);
}

#[test]
fn the_packets_of_a_train_leave_at_its_opportunities_and_a_base_delay() {
    let mut link = link(light(&SLOPES).unwrap(), 20, &[1000], Queue::unlimited());
    // At 0 ms the base delay is 20. The first packet has the opportunity of 0 ms.
    assert_eq!(arrivals(&mut link, &[0, 0, 0, 0]), [20, 21, 25, 25].map(Some));
    // At 50 ms 30: later packets take the earliest opportunity that they have not missed.
    assert_eq!(arrivals(&mut link, &[50, 52, 54]), [80, 85, 85].map(Some));
    // From 100 ms on, other opportunities; the packet of 103 ms has missed one.
    assert_eq!(arrivals(&mut link, &[100, 100, 103, 104]), [140, 142, 144, 146].map(Some));
    let statistics = link.statistics(at(200));
    assert_eq!((statistics.departures, statistics.busy), (Packets::new(11), 0.0));
}

#[test]
fn a_packet_that_does_not_fit_takes_the_next_opportunity_and_a_larger_one_several() {
    let trace = light(&[(0, 10, &[0, 10, 20, 30, 40, 50]), (100, 10, &[0]), (200, 10, &[0])]);
    let trace = trace.unwrap();
    let departures = |sizes: &[u64]| {
        let mut link = link(trace.clone(), 0, &[1000], Queue::unlimited());
        let offer = |size: &u64| arrival(link.offer(at(0), Bytes::new(*size), false)).unwrap();
        sizes.iter().map(offer).map(|time| time.as_nanos() / 1_000_000).collect::<Vec<_>>()
    };
    assert_eq!(departures(&[400, 1000, 1, 1399, 1400]), [10, 10, 20, 20, 30]);
    // 400 bytes are lost, as 1,000 more do not fit beside 1,000.
    assert_eq!(departures(&[1000, 1000, 400]), [10, 20, 20]);
    // 4,000 bytes: the 1,000 that are left, two whole opportunities and 200 bytes of a fourth.
    assert_eq!(departures(&[400, 4000, 1200, 1]), [10, 40, 40, 50]);
    // The first packet never waits, whatever it uses.
    assert_eq!(departures(&[2000, 800, 1]), [10, 20, 30]);
}

#[test]
fn what_finds_no_opportunity_passes_the_queue_of_the_heavy_trace_after_the_base_delay() {
    // Opportunities each 10 ms.
    let trace = light(&[(0, 15, &[0, 1]), (500, 15, &[0]), (1000, 15, &[0])]).unwrap();
    let mut link = link(trace, 0, &[10], Queue::drop_tail(Packets::new(1)));
    // The third to fifth leave the light stage at 16 ms, behind the second: one is next to leave, one
    // waits, one is dropped.
    let third = [Some(15), Some(16), Some(20), Some(30), None];
    assert_eq!(arrivals(&mut link, &[0, 0, 0, 0, 0]), third);
    // 3 ms after the last release a train begins, but what is queued goes first.
    assert_eq!(arrivals(&mut link, &[4, 14]), [None, Some(40)]);
    // At 45 ms nothing is queued any more.
    assert_eq!(arrivals(&mut link, &[45]), [Some(60)]);
    assert_eq!(link.statistics(at(60)).drops.queue_full, Packets::new(2));
}

#[test]
fn an_opportunity_at_the_time_of_a_release_is_missed_and_the_rest_of_one_is_shared() {
    let trace = light(&[(0, 10, &[0]), (500, 10, &[0]), (1000, 10, &[0])]).unwrap();
    let mut link = link(trace, 100, &[10], Queue::unlimited());
    assert_eq!(arrivals(&mut link, &[0, 0]), [10, 20].map(Some));
    let mut offer =
        |millis, size| arrival(link.offer(at(millis), Bytes::new(size), false)).unwrap();
    // Two packets share the opportunity of 30 ms; the third has 200 bytes in it and the rest in the
    // next.
    assert_eq!([offer(12, 600), offer(12, 600), offer(12, 600)], [at(30), at(30), at(40)]);
}

#[test]
fn a_train_begins_after_more_than_the_timer_in_whole_milliseconds() {
    let lines: [(u64, u64, &[u64]); 3] = [(0, 10, &[0]), (500, 10, &[0]), (1000, 10, &[0])];
    // One opportunity: all but the first packet of a train wait for the heavy trace, at 100 ms.
    for (timer, gap, is_new) in [
        (0, 999, false),
        (0, 1_000, true),
        (5, 5_999, false),
        (5, 6_000, true),
        (90, 80_000, false),
    ] {
        let mut link = link(light(&lines).unwrap(), timer, &[100], Queue::unlimited());
        link.offer(at(0), SIZE, false);
        let arrives = arrival(link.offer(micros(gap), SIZE, false)).unwrap();
        let expected = if is_new { micros(gap + 10_000) } else { at(100) };
        assert_eq!(arrives, expected, "{timer} ms, {gap} us");
    }
}

#[test]
fn a_train_of_a_shorter_base_delay_does_not_overtake() {
    let trace = light(&[(0, 50, &[0]), (10, 0, &[0]), (1000, 0, &[0])]).unwrap();
    let mut link = link(trace, 0, &[7], Queue::unlimited());
    // The second begins a train of base delay 0, at 10 ms; it joins the queue of the heavy trace when the
    // first leaves.
    assert_eq!(arrivals(&mut link, &[0, 10]), [50, 56].map(Some));
    assert_eq!(arrivals(&mut link, &[60]), [Some(60)]);
}

#[test]
fn the_queue_holds_what_has_been_released_and_has_not_begun_to_leave() {
    let trace = light(&[(0, 10, &[0]), (500, 10, &[0]), (1000, 10, &[0])]).unwrap();
    let mut link = link(trace, 400, &[40], Queue::unlimited());
    // Released at 10 ms; they leave at 10, 40, 80 and 120 ms.
    assert_eq!(arrivals(&mut link, &[0, 0, 0, 0]), [10, 40, 80, 120].map(Some));
    let mut waiting = |millis| link.occupancy(at(millis)).packets.get();
    assert_eq!([5, 10, 39, 40, 79, 80, 120].map(&mut waiting), [0, 2, 2, 1, 1, 0, 0]);
    let trace = light(&[(0, 10, &[0]), (500, 10, &[0]), (1000, 10, &[0])]).unwrap();
    let mut link = self::link(trace, 400, &[40], Queue::unlimited());
    arrivals(&mut link, &[0, 0, 0, 0]);
    let statistics = link.statistics(at(50));
    assert_eq!((statistics.departures, statistics.waiting), (Packets::new(3), Packets::new(1)));
    assert_eq!(statistics.bytes_departed, SIZE * 3);
    // Two wait from 10 to 40 ms and one until 50; the transmitter waits for opportunities from 10 ms on.
    assert!((statistics.mean_packets - (2.0 * 30.0 + 10.0) / 50.0).abs() < 1e-9);
    assert!((statistics.busy - 40.0 / 50.0).abs() < 1e-9);
}

#[test]
fn what_makes_no_light_trace_is_refused() {
    let refused = |lines: &[(u64, u64, &[u64])]| light(lines).unwrap_err();
    assert_eq!(refused(&[]), ScheduleError::FewLines(0));
    assert_eq!(refused(&[(0, 1, &[0]), (1, 1, &[0])]), ScheduleError::FewLines(2));
    let three =
        |second, third: &'static [u64]| [(5, 1, &[0][..]), (second, 1, &[0]), (9, 1, third)];
    assert_eq!(refused(&three(4, &[0])), ScheduleError::Backwards(1));
    assert_eq!(refused(&three(5, &[])), ScheduleError::Empty);
    assert_eq!(refused(&three(5, &[2, 1])), ScheduleError::Backwards(2));
    assert_eq!(refused(&[(0, 1, &[0][..]); 3]), ScheduleError::ShortPeriod(Duration::ZERO));
}

/// A pair of traces in milliseconds, and what is sent through it.
#[derive(Clone, Debug)]
struct Load {
    lines: Vec<(u64, u64, Vec<u64>)>,
    heavy: Vec<u64>,
    timer: u64,
    opportunity: u64,
    limit: Option<u64>,
    /// Time in microseconds, size.
    packets: Vec<(u64, u64)>,
}

fn ascending(gaps: Vec<u64>, first: u64) -> Vec<u64> {
    let mut time = first;
    gaps.into_iter()
        .map(|gap| {
            time += gap;
            time
        })
        .collect()
}

fn loads() -> impl Strategy<Value = Load> {
    let train = prop::collection::vec(0u64..4, 1..6).prop_map(|gaps| ascending(gaps, 0));
    let line = (0u64..12, 0u64..30, train);
    let lines = prop::collection::vec(line, 3..8).prop_map(|lines| {
        let mut time = 0;
        let placed = lines.into_iter().enumerate();
        let placed = placed.map(|(place, (gap, base, train))| {
            time += gap + u64::from(place == 2);
            (time, base, train)
        });
        placed.collect::<Vec<_>>()
    });
    let heavy = prop::collection::vec(0u64..9, 1..8).prop_map(|gaps| ascending(gaps, 1));
    let packet = (prop_oneof![Just(0), 0u64..40, 0u64..8_000], 40u64..3_000);
    let packets = prop::collection::vec(packet, 1..60).prop_map(|packets| {
        let mut time = 0;
        packets
            .into_iter()
            .map(|(gap, size)| {
                time += gap;
                (time, size)
            })
            .collect()
    });
    let opportunity = prop_oneof![Just(1400u64), Just(1500), 200u64..2_000];
    let limit = prop::option::of(0u64..5);
    (lines, heavy, 0u64..12, opportunity, limit, packets).prop_map(
        |(lines, heavy, timer, opportunity, limit, packets)| Load {
            lines,
            heavy,
            timer,
            opportunity,
            limit,
            packets,
        },
    )
}

fn link_of(load: &Load) -> Link {
    let lines: Vec<_> =
        load.lines.iter().map(|(time, base, train)| (*time, *base, &**train)).collect();
    let queue =
        load.limit.map_or(Queue::unlimited(), |limit| Queue::drop_tail(Packets::new(limit)));
    let opportunity = Bytes::new(load.opportunity);
    with_size(light(&lines).unwrap(), load.timer, &load.heavy, queue, opportunity)
}

/// The same link as a delay line and a queue that is served opportunity by opportunity; `None` for what
/// is dropped. Times are in nanoseconds.
struct Model<'a> {
    load: &'a Load,
    /// Bytes left at each opportunity of the train, with its time; the train's base delay.
    train: Option<(Vec<(i128, u64)>, i128)>,
    released: i128,
    /// Packet and bytes that are left of it.
    queue: VecDeque<(usize, u64)>,
    /// How many opportunities of the heavy trace have been used.
    used: usize,
    left_at: Vec<Option<i128>>,
}

const MS: i128 = 1_000_000;

impl Model<'_> {
    fn departures(load: &Load) -> Vec<Option<i128>> {
        let mut model = Model {
            load,
            train: None,
            released: 0,
            queue: VecDeque::new(),
            used: 0,
            left_at: vec![None; load.packets.len()],
        };
        for place in 0..load.packets.len() {
            model.packet(place);
        }
        while !model.queue.is_empty() {
            model.serve_next();
        }
        model.left_at
    }

    fn packet(&mut self, place: usize) {
        let (now, size) = self.load.packets[place];
        let now = i128::from(now) * 1_000;
        let (release, mut passes) = self.light_stage(now, size);
        if release < self.released {
            passes = false;
        }
        self.released = self.released.max(release);
        while self.next_opportunity() <= self.released {
            self.serve_next();
        }
        if passes && self.queue.is_empty() {
            self.left_at[place] = Some(self.released);
            return;
        }
        // The first of the queue is in transmission.
        let waiting = self.queue.len().saturating_sub(1) as u64;
        if self.queue.is_empty() || self.load.limit.is_none_or(|limit| waiting < limit) {
            self.queue.push_back((place, size));
        }
    }

    /// When a packet is released, and whether it had an opportunity.
    fn light_stage(&mut self, now: i128, size: u64) -> (i128, bool) {
        let full = self.load.opportunity;
        if let Some((train, base)) = &mut self.train
            && now + *base - self.released < (i128::from(self.load.timer) + 1) * MS
        {
            train.retain(|(time, _)| *time >= now);
            // A packet that fits into one opportunity is not divided.
            while size <= full && train.first().is_some_and(|(_, bytes)| *bytes < size) {
                train.remove(0);
            }
            let mut missing = size;
            while let Some((time, bytes)) = train.first_mut() {
                let taken = missing.min(*bytes);
                (missing, *bytes) = (missing - taken, *bytes - taken);
                if missing == 0 {
                    return (*time + *base, true);
                }
                train.remove(0);
            }
            return (now + *base, false);
        }
        let (line, base) = self.line(now);
        let mut train: Vec<(i128, u64)> =
            line.iter().map(|millis| (now + i128::from(*millis) * MS, full)).collect();
        let mut missing = size;
        while let Some((_, bytes)) = train.first_mut() {
            let taken = missing.min(*bytes);
            (missing, *bytes) = (missing - taken, *bytes - taken);
            if missing == 0 {
                break;
            }
            train.remove(0);
        }
        self.train = Some((train, base));
        (now + base, true)
    }

    fn line(&self, now: i128) -> (&[u64], i128) {
        let lines = &self.load.lines;
        let time = |place: usize| i128::from(lines[place].0) * MS;
        let base = |place: usize| i128::from(lines[place].1) * MS;
        let phase = now % time(lines.len() - 1);
        if phase < time(0) {
            return (&lines[0].2, base(0));
        }
        let mut place = 0;
        while time(place + 1) <= phase {
            place += 1;
        }
        let span = time(place + 1) - time(place);
        let delay = base(place) + (base(place + 1) - base(place)) * (phase - time(place)) / span;
        (&lines[place].2, delay)
    }

    fn next_opportunity(&self) -> i128 {
        let heavy = &self.load.heavy;
        let round = (self.used / heavy.len()) as i128 * i128::from(heavy[heavy.len() - 1]);
        (round + i128::from(heavy[self.used % heavy.len()])) * MS
    }

    fn serve_next(&mut self) {
        let (now, mut budget) = (self.next_opportunity(), self.load.opportunity);
        self.used += 1;
        while let Some((place, left)) = self.queue.front_mut() {
            let sent = budget.min(*left);
            (budget, *left) = (budget - sent, *left - sent);
            if *left > 0 {
                break;
            }
            self.left_at[*place] = Some(now);
            self.queue.pop_front();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn departures_are_those_of_a_delay_line_and_a_queue_served_step_by_step(load in loads()) {
        let mut link = link_of(&load);
        let departed = load.packets.iter().map(|(time, size)| {
            let arrives = arrival(link.offer(micros(*time), Bytes::new(*size), false));
            arrives.map(|time| i128::from(time.as_nanos()))
        });
        let departed: Vec<_> = departed.collect();
        prop_assert_eq!(Model::departures(&load), departed);
    }

    #[test]
    fn packets_keep_their_order_take_the_base_delay_and_are_counted(
        load in loads(),
        until in 0u64..100_000,
    ) {
        let mut link = link_of(&load);
        let least = load.lines.iter().map(|(_, base, _)| *base).min().unwrap();
        let (mut last, mut passed, mut heavy) = (Time::ZERO, 0, Vec::new());
        let (mut ends, mut dropped) = (Vec::new(), 0);
        for (time, size) in &load.packets {
            match link.offer(micros(*time), Bytes::new(*size), false) {
                Fate::Arrives { at, starts, marked, .. } => {
                    prop_assert!(at >= last && starts >= last && at >= starts && !marked);
                    prop_assert!(at >= micros(*time) + Duration::from_millis(least));
                    if at > starts {
                        heavy.push((at, *size));
                    }
                    ends.push((starts, *size));
                    (last, passed) = (at, passed + 1);
                }
                Fate::Dropped(reason) => {
                    prop_assert_eq!(reason, DropReason::QueueFull);
                    dropped += 1;
                }
            }
        }
        // No opportunity of the heavy trace carries more than its bytes.
        let period = *load.heavy.last().unwrap();
        for place in 0..heavy.len() {
            let (time, _) = heavy[place];
            let sent: u64 = heavy[..=place].iter().map(|(_, size)| size).sum();
            let nanos = time.as_nanos() / 1_000_000;
            let within = load.heavy.iter().filter(|one| **one <= nanos % period).count() as u64;
            let offered = (nanos / period) * load.heavy.len() as u64 + within;
            prop_assert!(sent <= offered * load.opportunity, "{} of {} at {}", sent, offered, time);
        }
        let now = micros(load.packets.last().unwrap().0 + until);
        let statistics = link.statistics(now);
        let departed = ends.iter().filter(|(starts, _)| *starts <= now);
        prop_assert_eq!(statistics.departures.get(), departed.clone().count() as u64);
        let bytes: u64 = departed.map(|(_, size)| size).sum();
        prop_assert_eq!(statistics.bytes_departed.get(), bytes);
        prop_assert_eq!(statistics.departures + statistics.waiting, Packets::new(passed));
        prop_assert_eq!(statistics.drops.queue_full, Packets::new(dropped));
        prop_assert_eq!(statistics.arrivals, Packets::new(passed + dropped));
        prop_assert!((0.0..=1.0).contains(&statistics.busy), "{:?}", statistics);
        let most = load.limit.unwrap_or(u64::MAX);
        prop_assert!(link.occupancy(now).packets.get() <= most);
        prop_assert!(link.occupancy(now).packets <= statistics.waiting);
    }

    #[test]
    fn opportunities_of_a_train_carry_no_more_than_their_bytes(
        sizes in prop::collection::vec(0u64..5_000, 1..30),
        count in 1usize..20,
        opportunity in 1u64..3_000,
    ) {
        let mut train =
            Train { begins: Time::ZERO, base_delay: Duration::ZERO, rest: 0..count, left: opportunity };
        let (mut sum, mut last, mut is_over) = (0, 0, false);
        for size in sizes {
            match train.take(size, opportunity) {
                None => is_over = true,
                Some(place) => {
                    sum += size;
                    prop_assert!(!is_over && place >= last && place < count);
                    prop_assert!(sum + train.left <= (place as u64 + 1) * opportunity);
                    last = place;
                }
            }
        }
    }
}

#[test]
fn a_limit_in_bytes_counts_the_bytes_that_wait() {
    let trace = light(&[(0, 10, &[0]), (500, 10, &[0]), (1000, 10, &[0])]).unwrap();
    let queue = Queue::DropTail(crate::DropTail::new(Limit::bytes(Bytes::new(1000))));
    let mut link = link(trace, 400, &[50], queue);
    let mut passes = |size| arrival(link.offer(at(0), Bytes::new(size), false)).is_some();
    // The first passes, the second is next to leave; then there is room for 1,000 bytes.
    assert_eq!(
        [1400, 1400, 600, 500, 400, 1].map(&mut passes),
        [true, true, true, false, true, false]
    );
    assert_eq!(link.occupancy(at(20)).bytes, Bytes::new(1000));
}
