use proptest::prelude::*;

use super::*;
use crate::{DropTail, Limit, Red, RedParameters};

const MEGABIT: Rate = Rate::from_bits_per_sec(1_000_000);
/// 8 ms on a link of 1 Mbit/s.
const SIZE: Bytes = Bytes::new(1000);
const DELAY: Duration = Duration::from_millis(10);

fn parameters(queue: Queue) -> LinkParameters {
    LinkParameters {
        rate: MEGABIT,
        delay: DelayLaw::Constant(DELAY),
        mtu: None,
        queue,
        loss: LossModel::None,
        reordering: false,
        extras: Extras::default(),
    }
}

fn link(parameters: LinkParameters) -> Link {
    Link::new(parameters, 5, "test")
}

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

fn arrives(at: Time, starts: Time) -> Fate {
    Fate::Arrives { at, starts, marked: false, corrupted: false, duplicated: false }
}

fn packets(number: u64) -> Packets {
    Packets::new(number)
}

#[test]
fn a_packet_on_an_idle_link_takes_its_transmission_and_its_delay() {
    let mut link = link(parameters(Queue::unlimited()));
    assert_eq!(link.offer(at(100), SIZE, false), arrives(at(118), at(100)));
    assert_eq!(link.busy_until(), at(108));
}

#[test]
fn a_packet_behind_another_waits_for_its_end() {
    let mut link = link(parameters(Queue::unlimited()));
    link.offer(at(0), SIZE, false);
    assert_eq!(link.offer(at(3), Bytes::new(500), false), arrives(at(22), at(8)));
    assert_eq!(link.offer(at(12), SIZE, false), arrives(at(30), at(12)));
}

#[test]
fn the_packet_in_transmission_does_not_count_in_the_queue() {
    let mut link = link(parameters(Queue::drop_tail(packets(2))));
    let fates: Vec<Fate> = (0..4).map(|_| link.offer(at(0), SIZE, false)).collect();
    assert_eq!(fates[2], arrives(at(34), at(16)));
    assert_eq!(fates[3], Fate::Dropped(DropReason::QueueFull));
    assert_eq!(link.occupancy(at(7)), Occupancy { packets: packets(2), bytes: Bytes::new(2000) });
    assert_eq!(link.occupancy(at(8)), Occupancy { packets: packets(1), bytes: SIZE });
    assert_eq!(link.occupancy(at(16)), Occupancy::default());
}

#[test]
fn a_burst_of_twelve_has_the_losses_of_ns2() {
    // ns-2 2.35, `queue-limit` 5, twelve packets at once: 5 received, 7 dropped.
    let mut link = link(parameters(Queue::DropTail(DropTail::like_ns2(5))));
    let passed = (0..12).filter(|_| matches!(link.offer(at(0), SIZE, false), Fate::Arrives { .. }));
    assert_eq!(passed.count(), 5);
}

#[test]
fn an_oversized_packet_is_dropped_before_the_queue() {
    let mut link = link(LinkParameters { mtu: Some(SIZE), ..parameters(Queue::unlimited()) });
    assert_eq!(link.offer(at(0), Bytes::new(1001), false), Fate::Dropped(DropReason::TooLarge));
    assert_eq!(link.offer(at(0), SIZE, false), arrives(at(18), at(0)));
}

#[test]
fn a_packet_lost_on_the_wire_has_taken_its_time_on_the_link() {
    let loss = LossModel::trace([0], None).unwrap();
    let mut link = link(LinkParameters { loss, ..parameters(Queue::unlimited()) });
    assert_eq!(link.offer(at(0), SIZE, false), Fate::Dropped(DropReason::Loss));
    assert_eq!(link.offer(at(0), SIZE, false), arrives(at(26), at(8)));
    let statistics = link.statistics(at(16));
    assert_eq!((statistics.drops.loss, statistics.departures), (packets(1), packets(2)));
}

#[test]
fn statistics_stop_at_the_time_asked_for() {
    let mut link = link(parameters(Queue::unlimited()));
    for _ in 0..3 {
        link.offer(at(4), SIZE, false);
    }
    let statistics = link.statistics(at(16));
    // In transmission from 4 to 12 and from 12 on; waited so far: 8 ms and 12 ms.
    assert_eq!(statistics.mean_packets, 20.0 / 16.0);
    assert_eq!(statistics.busy, 12.0 / 16.0);
    assert_eq!((statistics.departures, statistics.waiting), (packets(2), packets(1)));
    assert_eq!(statistics.bytes_departed, Bytes::new(2000));
    let at_the_end = link.statistics(at(32));
    assert_eq!((at_the_end.mean_packets, at_the_end.busy), (24.0 / 32.0, 24.0 / 32.0));
}

#[test]
fn packets_that_reach_the_link_later_are_in_no_counter() {
    let later = [Ahead { at: at(5), size: SIZE }, Ahead { at: at(30), size: SIZE }];
    // It waits for the first, which is under way.
    let mut one = link(parameters(Queue::unlimited()));
    for time in [at(0), at(5)] {
        one.offer(time, SIZE, false);
    }
    let statistics = one.statistics_without(at(2), &later[..1]);
    let counts = (statistics.arrivals, statistics.departures, statistics.waiting);
    assert_eq!(counts, (packets(1), packets(1), packets(0)));
    assert_eq!((statistics.mean_packets, statistics.busy), (0.0, 1.0));
    // A second one waits for nothing.
    one.offer(at(30), SIZE, false);
    let statistics = one.statistics_without(at(9), &later[1..]);
    let counts = (statistics.arrivals, statistics.departures, statistics.waiting);
    assert_eq!(counts, (packets(2), packets(2), packets(0)));
    assert_eq!(statistics.mean_packets, 3.0 / 9.0);
    // Another waits before it.
    let mut link = link(parameters(Queue::unlimited()));
    link.offer(at(0), SIZE, false);
    link.offer(at(0), SIZE, false);
    link.offer(at(5), SIZE, false);
    let statistics = link.statistics_without(at(2), &later[..1]);
    assert_eq!((statistics.mean_packets, statistics.busy), (1.0, 1.0));
    assert_eq!(statistics.bytes_departed, SIZE);
}

#[test]
fn before_anything_happens_statistics_are_zero() {
    let statistics = link(parameters(Queue::unlimited())).statistics(Time::ZERO);
    assert_eq!((statistics.mean_packets, statistics.busy), (0.0, 0.0));
}

#[test]
fn nothing_waits_for_an_unlimited_link_and_nothing_leaves_a_dead_one() {
    let mut fast =
        link(LinkParameters { rate: Rate::UNLIMITED, ..parameters(Queue::drop_tail(packets(0))) });
    (0..9).for_each(|_| assert_eq!(fast.offer(at(1), SIZE, false), arrives(at(11), at(1))));
    let dead =
        LinkParameters { rate: Rate::from_bits_per_sec(0), ..parameters(Queue::unlimited()) };
    let mut dead = link(dead);
    assert_eq!(dead.offer(at(1), SIZE, false), arrives(Time::NEVER, at(1)));
    assert_eq!(dead.offer(at(2), SIZE, false), arrives(Time::NEVER, Time::NEVER));
    let statistics = dead.statistics(at(4));
    assert_eq!((statistics.mean_packets, statistics.busy), (0.5, 0.75));
}

#[test]
fn packets_overtake_only_if_reordering_is_allowed() {
    let late = |reordering| {
        let delay = DelayLaw::uniform(Duration::ZERO, Duration::from_millis(50)).unwrap();
        let mut link = link(LinkParameters { delay, reordering, ..parameters(Queue::unlimited()) });
        let arrivals = arrival_times(&mut link, 200);
        arrivals.windows(2).filter(|pair| pair[1] < pair[0]).count()
    };
    assert_eq!(late(false), 0);
    assert!(late(true) > 50);
}

#[test]
fn delays_in_order_are_longer_than_those_drawn() {
    // Exponential delays of mean 5 ms, a packet each millisecond.
    let mean = |reordering| {
        let delay = DelayLaw::Exponential(Duration::from_millis(5));
        let rate = Rate::UNLIMITED;
        let mut link =
            link(LinkParameters { rate, delay, reordering, ..parameters(Queue::unlimited()) });
        let arrivals = arrival_times(&mut link, 20_000);
        let delays = arrivals.iter().zip(0..).map(|(time, sent)| time.since(at(sent)));
        delays.sum::<Duration>().as_secs_f64() / 20_000.0
    };
    assert!((mean(true) - 5e-3).abs() < 2e-4, "{}", mean(true));
    assert!((10e-3..20e-3).contains(&mean(false)), "{}", mean(false));
}

fn arrival_times(link: &mut Link, number: u64) -> Vec<Time> {
    (0..number)
        .map(|millis| match link.offer(at(millis), Bytes::new(100), false) {
            Fate::Arrives { at, .. } => at,
            Fate::Dropped(reason) => panic!("dropped: {reason:?}"),
        })
        .collect()
}

#[test]
fn random_streams_are_named_after_the_link() {
    let of = |seed, name| {
        let delay = DelayLaw::Exponential(DELAY);
        let parameters = LinkParameters { delay, ..parameters(Queue::unlimited()) };
        arrival_times(&mut Link::new(parameters, seed, name), 20)
    };
    assert_eq!(of(1, "a"), of(1, "a"));
    assert_ne!(of(1, "a"), of(1, "b"));
    assert_ne!(of(1, "a"), of(2, "a"));
}

#[test]
fn the_ring_does_not_grow_after_warm_up() {
    let mut link = link(parameters(Queue::drop_tail(packets(20))));
    for millis in 0..1000 {
        link.offer(at(millis), SIZE, false);
    }
    let warm = link.rest.waiting.capacity();
    for millis in 1000..9000 {
        link.offer(at(millis), SIZE, false);
    }
    assert_eq!(link.rest.waiting.capacity(), warm);
}

/// A reference FIFO link with an event for every departure.
#[derive(Default)]
struct EventByEvent {
    limit: Limit,
    now: u64,
    /// End of the current transmission.
    sending_until: Option<u64>,
    /// Index among the offered, and size.
    queue: VecDeque<(usize, u64)>,
    /// Start of transmission by index among the offered.
    starts: Vec<Option<u64>>,
    /// Packets waiting, summed over every nanosecond.
    integral: u128,
    busy: u64,
    dropped: u64,
}

impl EventByEvent {
    fn run_to(&mut self, time: u64) {
        while let Some(end) = self.sending_until
            && end <= time
        {
            self.pass_time(end);
            self.sending_until = None;
            if let Some((place, size)) = self.queue.pop_front() {
                self.send(place, size);
            }
        }
        self.pass_time(time);
    }

    fn pass_time(&mut self, time: u64) {
        self.integral += u128::from(time - self.now) * self.queue.len() as u128;
        self.busy += if self.sending_until.is_some() { time - self.now } else { 0 };
        self.now = time;
    }

    fn send(&mut self, place: usize, size: u64) {
        self.starts[place] = Some(self.now);
        let duration = MEGABIT.time_to_send(Bytes::new(size)).as_nanos();
        self.sending_until = Some(self.now + duration);
    }

    fn offer(&mut self, time: u64, size: u64) {
        self.run_to(time);
        let place = self.starts.len();
        self.starts.push(None);
        let bytes: u64 = self.queue.iter().map(|packet| packet.1).sum();
        let full = self.limit.packets.is_some_and(|limit| self.queue.len() as u64 >= limit.get())
            || self.limit.bytes.is_some_and(|limit| bytes + size > limit.get());
        if self.sending_until.is_none() {
            self.send(place, size);
        } else if full {
            self.dropped += 1;
        } else {
            self.queue.push_back((place, size));
        }
    }
}

fn offers() -> impl Strategy<Value = Vec<(u64, u64)>> {
    // Gaps around a packet's transmission time, including zero and very long ones.
    let gap = prop_oneof![3 => 0u64..12_000_000, 1 => Just(0), 1 => 0u64..90_000_000];
    proptest::collection::vec((gap, 40u64..1500), 1..200)
}

fn limits() -> impl Strategy<Value = Limit> {
    let packets = proptest::option::of((0u64..8).prop_map(Packets::new));
    let bytes = proptest::option::of((0u64..8000).prop_map(Bytes::new));
    (packets, bytes).prop_map(|(packets, bytes)| Limit { packets, bytes })
}

proptest! {
    #[test]
    fn the_computed_link_agrees_with_one_run_event_by_event(
        offers in offers(), limit in limits(), after in 0u64..60_000_000,
    ) {
        let mut slow = EventByEvent { limit, ..Default::default() };
        let mut fast = link(parameters(Queue::DropTail(DropTail::new(limit))));
        let (mut now, mut fates) = (0, Vec::new());
        for &(gap, size) in &offers {
            now += gap;
            slow.offer(now, size);
            fates.push(fast.offer(Time::from_nanos(now), Bytes::new(size), false));
            let waiting = fast.occupancy(Time::from_nanos(now));
            prop_assert_eq!(waiting.packets.get(), slow.queue.len() as u64);
            prop_assert!(limit.packets.is_none_or(|limit| waiting.packets <= limit));
            prop_assert!(limit.bytes.is_none_or(|limit| waiting.bytes <= limit));
        }
        let until = now + after;
        slow.run_to(until);
        let statistics = fast.statistics(Time::from_nanos(until));
        prop_assert_eq!(statistics.waiting.get(), slow.queue.len() as u64);
        prop_assert_eq!(statistics.drops.queue_full.get(), slow.dropped);
        prop_assert_eq!(
            statistics.arrivals,
            statistics.departures + statistics.drops.refused() + statistics.waiting
        );
        if until > 0 {
            prop_assert_eq!(statistics.mean_packets, slow.integral as f64 / until as f64);
            prop_assert_eq!(statistics.busy, slow.busy as f64 / until as f64);
        }
        let departed = offers.iter().zip(&slow.starts).filter(|(_, start)| start.is_some());
        prop_assert_eq!(statistics.bytes_departed.get(), departed.map(|(offer, _)| offer.1).sum::<u64>());
        slow.run_to(u64::MAX / 2);
        for ((fate, start), (_, size)) in fates.into_iter().zip(slow.starts).zip(offers) {
            let sent = MEGABIT.time_to_send(Bytes::new(size));
            let expected = start.map(Time::from_nanos).map_or(
                Fate::Dropped(DropReason::QueueFull),
                |start| arrives(start + sent + DELAY, start),
            );
            prop_assert_eq!(fate, expected);
        }
    }

    #[test]
    fn a_link_without_reordering_never_reorders_and_conserves_packets(
        offers in offers(), seed: u64, red: bool, p in 0.0f64..0.5,
    ) {
        let red_parameters = RedParameters {
            max_th: 3.0, min_th: 1.0, weight: 0.2, limit: Limit::packets(Packets::new(5)), ecn: true,
            ..RedParameters::automatic(MEGABIT, Bytes::new(500), Duration::from_millis(5))
        };
        let queue = if red {
            Queue::Red(Box::new(Red::new(red_parameters).unwrap()))
        } else {
            Queue::drop_tail(Packets::new(5))
        };
        let mut link = Link::new(LinkParameters {
            delay: DelayLaw::Exponential(DELAY),
            mtu: Some(Bytes::new(1400)),
            loss: LossModel::gilbert(p, 0.5).unwrap(),
            ..parameters(queue)
        }, seed, "test");
        let (mut now, mut last, mut arrived, mut marks) = (Time::ZERO, Time::ZERO, 0, 0);
        for (place, &(gap, size)) in offers.iter().enumerate() {
            now += Duration::from_nanos(gap);
            let fate = link.offer(now, Bytes::new(size), place % 2 == 0);
            if let Fate::Arrives { at, starts, marked, .. } = fate {
                prop_assert!(at >= last && at >= starts && starts >= now);
                (last, arrived) = (at, arrived + 1);
                marks += u64::from(marked);
            }
            prop_assert!(link.occupancy(now).packets <= Packets::new(5));
        }
        let statistics = link.statistics(now);
        let drops = statistics.drops;
        prop_assert_eq!(statistics.arrivals.get(), offers.len() as u64);
        prop_assert_eq!(statistics.arrivals, drops.total() + Packets::new(arrived));
        prop_assert_eq!(statistics.arrivals,
            statistics.departures + drops.refused() + statistics.waiting);
        // Packets lost on the wire may have been marked, too.
        prop_assert!(statistics.marks.get() >= marks);
    }
}
