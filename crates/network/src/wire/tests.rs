use ontempo_foundation::{Duration, Packets, Rate};
use proptest::prelude::*;

use super::*;
use crate::{
    AggregationParameters, CoDel, CoDelParameters, DropReason, Fate, Link, LinkParameters, Queue,
    Queued, ScheduledLink, ScheduledLinkParameters,
};

/// A byte takes 1 us.
const RATE: Rate = Rate::from_bits_per_sec(8_000_000);
const DELAY: Duration = Duration::from_millis(10);

fn link_of(rate: Rate, extras: Extras, seed: u64) -> Link {
    let parameters = LinkParameters {
        rate,
        delay: DelayLaw::Constant(DELAY),
        mtu: None,
        queue: Queue::unlimited(),
        loss: LossModel::None,
        reordering: false,
        extras,
    };
    Link::new(parameters, seed, "test")
}

fn scheduled_of(rate: Rate, extras: Extras, seed: u64) -> ScheduledLink {
    let parameters = ScheduledLinkParameters {
        rate,
        delay: DelayLaw::Constant(DELAY),
        mtu: None,
        // It never drops: no wait is longer than its target.
        discipline: Box::new(CoDel::new(CoDelParameters {
            target: Duration::from_secs(3600),
            limit: crate::Limit::NONE,
            ..CoDelParameters::default()
        })),
        loss: LossModel::None,
        reordering: false,
        extras,
    };
    ScheduledLink::new(parameters, seed, "test")
}

fn queued(handle: u32, size: Bytes, enqueued: Time) -> Queued {
    Queued { handle, flow: 0, class: 0, size, ecn_capable: false, l4s: false, enqueued }
}

/// Times and sizes of packets, in order.
fn offers(gap: u64) -> impl Strategy<Value = Vec<(Time, Bytes)>> {
    prop::collection::vec((0..gap, 40u64..1600), 1..300).prop_map(|packets| {
        let mut now = Time::ZERO;
        let offer = |(gap, size)| {
            now += Duration::from_nanos(gap);
            (now, Bytes::new(size))
        };
        packets.into_iter().map(offer).collect()
    })
}

fn policed(burst: u64) -> Extras {
    let policer = TokenBucket::policer(RATE, Bytes::new(burst)).unwrap();
    Extras { policer: Some(policer), ..Extras::default() }
}

/// The policer of Linux (`net/sched/act_police.c`, `tcf_police_act`) without a peak rate: tokens are
/// nanoseconds at the rate, and the time of the last update is that of the last conforming packet.
struct Police {
    burst: i64,
    tokens: i64,
    conformed: i64,
}

impl Police {
    fn new(burst: u64) -> Self {
        let burst = burst as i64 * 1_000;
        Self { burst, tokens: burst, conformed: 0 }
    }

    fn conforms(&mut self, now: Time, size: Bytes) -> bool {
        let now = now.as_nanos() as i64;
        let gained = (now - self.conformed).min(self.burst);
        let tokens = (self.tokens + gained).min(self.burst) - size.get() as i64 * 1_000;
        if tokens >= 0 {
            (self.conformed, self.tokens) = (now, tokens);
        }
        tokens >= 0
    }
}

proptest! {
    #[test]
    fn a_policer_passes_what_linux_passes_on_links_of_both_kinds(
        offers in offers(2_000_000), burst in 40u64..20_000,
    ) {
        let mut police = Police::new(burst);
        let mut link = link_of(Rate::UNLIMITED, policed(burst), 1);
        let mut scheduled = scheduled_of(Rate::UNLIMITED, policed(burst), 1);
        let mut drops = Vec::new();
        let mut passed: Vec<(Time, Bytes)> = Vec::new();
        for (place, (now, size)) in offers.iter().enumerate() {
            let expected = police.conforms(*now, *size);
            let fate = link.offer(*now, *size, false);
            prop_assert_eq!(fate != Fate::Dropped(DropReason::Policer), expected);
            scheduled.enqueue(*now, queued(place as u32, *size, *now), &mut drops);
            let is_dropped = drops.pop().is_some_and(|drop| drop.reason == DropReason::Policer);
            prop_assert_eq!(!is_dropped, expected);
            if expected {
                passed.push((*now, *size));
            }
        }
        // Over any span, no more than the burst and the rate times the span.
        for first in 0..passed.len() {
            let mut bytes = 0;
            for (time, size) in &passed[first..] {
                bytes += size.get();
                let span = time.since(passed[first].0).as_nanos();
                prop_assert!(bytes * 1_000 <= burst * 1_000 + span);
            }
        }
        let until = offers.last().unwrap().0;
        let dropped = (offers.len() - passed.len()) as u64;
        for statistics in [link.statistics(until), scheduled.statistics(until)] {
            prop_assert_eq!(statistics.drops.policer.get(), dropped);
            prop_assert_eq!(statistics.drops.total().get(), dropped);
            prop_assert_eq!(statistics.arrivals.get(), offers.len() as u64);
        }
    }
}

#[test]
fn what_does_not_conform_takes_no_place_in_the_queue_and_no_time() {
    let mut link = link_of(RATE, policed(2_000), 1);
    let size = Bytes::new(1_000);
    let fates: Vec<Fate> = (0..4).map(|_| link.offer(Time::ZERO, size, false)).collect();
    let arrives = |ends: u64, starts: u64| Fate::Arrives {
        at: Time::ZERO + Duration::from_millis(ends) + DELAY,
        starts: Time::ZERO + Duration::from_millis(starts),
        marked: false,
        corrupted: false,
        duplicated: false,
    };
    let dropped = Fate::Dropped(DropReason::Policer);
    assert_eq!(fates, [arrives(1, 0), arrives(2, 1), dropped, dropped]);
    assert_eq!(link.occupancy(Time::ZERO).packets, Packets::new(1));
    let larger = link.offer(Time::ZERO + Duration::from_secs(9), Bytes::new(2_001), false);
    assert_eq!(larger, dropped, "a packet larger than the burst never conforms");
    let statistics = link.statistics(Time::ZERO + Duration::from_secs(10));
    assert_eq!(statistics.departures, Packets::new(2));
    assert!((statistics.busy - 2e-4).abs() < 1e-12);
    assert!(TokenBucket::policer(Rate::from_bits_per_sec(0), size).is_err());
}

/// What became of packets offered to links of both kinds: corrupted or not, and arriving twice or not.
fn harms(extras: &Extras, seed: u64, packets: u32) -> [Vec<(bool, bool)>; 2] {
    let mut link = link_of(RATE, extras.clone(), seed);
    let mut scheduled = scheduled_of(RATE, extras.clone(), seed);
    let (mut offered, mut dequeued) = (Vec::new(), Vec::new());
    for number in 0..packets {
        let now = Time::ZERO + Duration::from_millis(1) * u64::from(number);
        let size = Bytes::new(100);
        match link.offer(now, size, false) {
            Fate::Arrives { corrupted, duplicated, .. } => offered.push((corrupted, duplicated)),
            Fate::Dropped(reason) => panic!("dropped: {reason:?}"),
        }
        scheduled.enqueue(now, queued(number, size, now), &mut Vec::new());
        let departure = scheduled.dequeue(now, &mut Vec::new()).unwrap();
        dequeued.push((departure.corrupted, departure.duplicated));
    }
    let until = Time::ZERO + Duration::from_secs(100);
    for statistics in [link.statistics(until), scheduled.statistics(until)] {
        let corrupted = offered.iter().filter(|(corrupted, _)| *corrupted).count() as u64;
        let duplicated = offered.iter().filter(|(_, duplicated)| *duplicated).count() as u64;
        assert_eq!(
            (statistics.corrupted.get(), statistics.duplicated.get()),
            (corrupted, duplicated)
        );
        assert_eq!(statistics.drops.total(), Packets::new(0));
    }
    [offered, dequeued]
}

#[test]
fn packets_are_corrupted_and_duplicated_with_their_probabilities_on_links_of_both_kinds() {
    let extras = Extras { duplicate: 0.1, corrupt: 0.02, ..Extras::default() };
    let [offered, dequeued] = harms(&extras, 1, 20_000);
    assert_eq!(offered, dequeued, "one implementation");
    let share = |which: fn(&(bool, bool)) -> bool| {
        offered.iter().filter(|harm| which(harm)).count() as f64 / 20_000.0
    };
    // Within four standard deviations.
    for (share, expected) in [
        (share(|harm| harm.0), 0.02),
        (share(|harm| harm.1), 0.1),
        (share(|harm| harm.0 && harm.1), 0.002),
    ] {
        let deviation = f64::sqrt(expected * (1.0 - expected) / 20_000.0);
        assert!((share - expected).abs() < 4.0 * deviation, "{share} for {expected}");
    }
}

#[test]
fn each_harm_has_its_own_stream() {
    let both = Extras { duplicate: 0.3, corrupt: 0.3, ..Extras::default() };
    let [both, _] = harms(&both, 7, 500);
    let [first, _] = harms(&Extras { corrupt: 0.3, ..Extras::default() }, 7, 500);
    let [second, _] = harms(&Extras { duplicate: 0.3, ..Extras::default() }, 7, 500);
    assert!(both.iter().zip(&first).all(|(both, one)| both.0 == one.0 && !one.1));
    assert!(both.iter().zip(&second).all(|(both, one)| both.1 == one.1 && !one.0));
    assert!(both.iter().any(|harm| harm.0 != harm.1));
}

fn aggregated(parameters: AggregationParameters) -> Extras {
    Extras { aggregation: Some(parameters), ..Extras::default() }
}

fn aggregation() -> impl Strategy<Value = AggregationParameters> {
    let time = |longest: u64| (0..longest).prop_map(Duration::from_nanos);
    let limit = (prop::option::of(1u64..8), prop::option::of(40u64..5_000));
    (prop::option::of(time(5_000_000)), time(1_000_000), time(500_000), limit).prop_map(
        |(every, access, contention, (packets, bytes))| AggregationParameters {
            every: every.filter(|every| *every > Duration::ZERO),
            access,
            contention,
            limit: crate::Limit {
                packets: packets.map(Packets::new),
                bytes: bytes.map(Bytes::new),
            },
        },
    )
}

/// Starts and arrivals on a link that decides when packets are offered.
fn offered(link: &mut Link, offers: &[(Time, Bytes)]) -> Vec<(Time, Time)> {
    let offer = |(now, size): &(Time, Bytes)| match link.offer(*now, *size, false) {
        Fate::Arrives { at, starts, .. } => (starts, at),
        Fate::Dropped(reason) => panic!("dropped: {reason:?}"),
    };
    offers.iter().map(offer).collect()
}

/// The same on a link that decides later.
fn served(link: &mut ScheduledLink, offers: &[(Time, Bytes)]) -> Vec<(Time, Time)> {
    let (mut drops, mut departed) = (Vec::new(), Vec::new());
    let mut serve = |link: &mut ScheduledLink, mut now: Time, until: Time| loop {
        let next = link.next_dequeue(now);
        if next > until || next == Time::NEVER {
            return;
        }
        now = next;
        departed
            .extend(link.dequeue(now, &mut Vec::new()).map(|sent| (now, sent.arrives.unwrap())));
    };
    let mut now = Time::ZERO;
    for (number, (time, size)) in (0..).zip(offers) {
        serve(link, now, *time);
        now = *time;
        link.enqueue(now, queued(number, *size, now), &mut drops);
        serve(link, now, now);
    }
    serve(link, now, Time::from_nanos(u64::MAX / 2));
    departed
}

proptest! {
    #[test]
    fn both_kinds_of_links_send_the_same_aggregates_within_their_limits(
        offers in offers(900_000), parameters in aggregation(), seed: u64, at in 0.0f64..1.2,
    ) {
        let mut link = link_of(RATE, aggregated(parameters), seed);
        let mut scheduled = scheduled_of(RATE, aggregated(parameters), seed);
        // The counters at a time in the run: of what has been offered by then.
        let end = offers.last().unwrap().0;
        let until = Time::from_nanos((end.as_nanos() as f64 * at) as u64);
        let before = offers.partition_point(|(time, _)| *time <= until);
        let mut times = offered(&mut link, &offers[..before]);
        let statistics = link.statistics(until);
        times.extend(offered(&mut link, &offers[before..]));
        let served = served(&mut scheduled, &offers);
        prop_assert_eq!(&times, &served);
        let sizes: Vec<Bytes> = offers.iter().map(|(_, size)| *size).collect();
        let ends = |place: usize| times[place].0 + RATE.time_to_send(sizes[place]);
        let overlap = |place: usize| ends(place).min(until).since(times[place].0).as_secs_f64();
        let busy: f64 = (0..before).map(overlap).sum();
        prop_assert!((statistics.busy * until.as_secs_f64() - busy).abs() < 1e-6);
        let waiting = (0..before).filter(|place| times[*place].0 > until).count();
        prop_assert_eq!(statistics.waiting.get(), waiting as u64);
        // Aggregates: packets that follow each other at once and waited when the first began.
        let mut first = 0;
        for place in 0..offers.len() {
            let begins = times[first].0;
            let follows = place > first && times[place].0 == ends(place - 1) && offers[place].0 < begins;
            let members = &sizes[first..place];
            let limit = parameters.limit;
            let is_full = limit.is_reached(crate::Occupancy {
                packets: Packets::new(members.len() as u64),
                bytes: members.iter().copied().sum(),
            });
            if place > first && (!follows || is_full) {
                let free = ends(place - 1).max(offers[place].0);
                prop_assert!(times[place].0 >= free + parameters.access);
                first = place;
            }
            let opportunity = parameters.every.unwrap_or(Duration::ZERO) + parameters.access
                + parameters.contention;
            let free = if first == 0 { Time::ZERO } else { ends(first - 1) };
            prop_assert!(times[first].0 <= free.max(offers[first].0) + opportunity);
        }
    }
}

#[test]
fn packets_of_one_opportunity_leave_as_a_burst() {
    let parameters = AggregationParameters {
        every: Some(Duration::from_millis(10)),
        access: Duration::from_millis(1),
        contention: Duration::ZERO,
        limit: crate::Limit::packets(Packets::new(4)),
    };
    let mut link = link_of(RATE, aggregated(parameters), 1);
    let at = |millis| Time::ZERO + Duration::from_millis(millis);
    // 0.5 ms each; the one offered at the begin of the first aggregate is not in it, and it is full.
    let offers: Vec<_> = [0, 2, 3, 9, 11, 12].map(|millis| (at(millis), Bytes::new(500))).into();
    let starts: Vec<f64> =
        offered(&mut link, &offers).iter().map(|(starts, _)| starts.as_secs_f64() * 1e3).collect();
    assert_eq!(starts, [11.0, 11.5, 12.0, 12.5, 21.0, 21.5]);
    assert_eq!(link.occupancy(at(12)).packets, Packets::new(3));
}
