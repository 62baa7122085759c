use ontempo_foundation::{Packets, Time};

use super::*;
use crate::{DelayLaw, Extras, Fate, Link, LinkParameters, LossModel, Occupancy, Queue};

const RATE: Rate = Rate::from_bits_per_sec(10_000_000);
const SIZE: Bytes = Bytes::new(1000);

/// In packets, thresholds 5 and 15, and an average equal to the queue.
fn instant() -> RedParameters {
    RedParameters {
        min_th: 5.0,
        max_th: 15.0,
        weight: 1.0,
        measure: RedMeasure::Packets,
        by_size: false,
        wait: false,
        gentle: false,
        limit: Limit::packets(Packets::new(50)),
        ..RedParameters::automatic(RATE, SIZE, Duration::from_millis(5))
    }
}

fn offered(packets: u64) -> Offered {
    let waiting = Occupancy { packets: Packets::new(packets), bytes: SIZE * packets };
    let (now, wait) = (Time::ZERO, Duration::ZERO);
    Offered { now, size: SIZE, ecn_capable: false, waiting, idle: None, wait, rate: RATE }
}

fn random() -> RandomStream {
    RandomStream::new(1, "red")
}

/// Fraction of many packets dropped early at a constant queue.
fn share_dropped(parameters: RedParameters, offered: Offered) -> f64 {
    let (mut red, mut random) = (Red::new(parameters).unwrap(), random());
    let drops = (0..100_000)
        .filter(|_| red.admit(&offered, &mut random) == Verdict::Drop(DropReason::Early));
    drops.count() as f64 / 100_000.0
}

#[track_caller]
fn assert_close(measured: f64, expected: f64, tolerance: f64) {
    let fits = (measured - expected).abs() <= tolerance * expected;
    assert!(fits, "measured {measured}, expected {expected}");
}

#[test]
fn below_the_lower_threshold_nothing_is_dropped() {
    assert_eq!(share_dropped(instant(), offered(4)), 0.0);
}

#[test]
fn drops_are_half_of_one_over_p_apart_or_three_halves_if_they_wait() {
    // Spread evenly over 1 to 1/p - 1 packets (1/p to 2/p - 1 if they wait): section 7 of the
    // paper. Midway between the thresholds p is max_p / 2.
    let p = 0.05;
    assert_close(share_dropped(instant(), offered(10)), 2.0 * p, 0.03);
    let waiting = RedParameters { wait: true, ..instant() };
    assert_close(share_dropped(waiting, offered(10)), 2.0 / (3.0 / p - 1.0), 0.03);
}

#[test]
fn from_the_upper_threshold_on_all_is_dropped_unless_gentle() {
    assert!(share_dropped(instant(), offered(15)) > 0.9999);
    let gentle = Red::new(RedParameters { gentle: true, ..instant() }).unwrap();
    let at = |average| Red { average, ..gentle.clone() }.probability();
    assert_close(at(15.0), 0.1, 1e-9);
    assert_close(at(22.5), 0.55, 1e-9);
    assert_eq!((at(30.0), at(40.0)), (1.0, 1.0));
}

#[test]
fn a_small_packet_is_dropped_less_often_where_drops_are_by_size() {
    let by_size = RedParameters { by_size: true, ..instant() };
    let small = Offered { size: Bytes::new(100), ..offered(10) };
    let ratio = share_dropped(by_size, small) / share_dropped(by_size, offered(10));
    assert!((0.05..0.2).contains(&ratio), "{ratio}");
}

#[test]
fn at_the_limit_every_packet_is_dropped() {
    let limit = Limit::packets(Packets::new(4));
    let (mut red, mut random) = (Red::new(RedParameters { limit, ..instant() }).unwrap(), random());
    assert_eq!(red.admit(&offered(3), &mut random), Verdict::Accept);
    assert_eq!(red.admit(&offered(4), &mut random), Verdict::Drop(DropReason::QueueFull));
}

#[test]
fn ecn_capable_flows_are_marked_until_congestion_is_heavy() {
    let judge = |parameters, packets, ecn_capable| {
        let (mut red, mut random) = (Red::new(parameters).unwrap(), random());
        let offered = Offered { ecn_capable, ..offered(packets) };
        let verdicts: Vec<Verdict> = (0..500).map(|_| red.admit(&offered, &mut random)).collect();
        let has = |verdict| verdicts.contains(&verdict);
        (has(Verdict::Mark), has(Verdict::Drop(DropReason::Early)))
    };
    let ecn = RedParameters { ecn: true, ..instant() };
    assert_eq!(judge(ecn, 10, true), (true, false));
    assert_eq!(judge(ecn, 10, false), (false, true));
    assert_eq!(judge(ecn, 16, true), (false, true));
    assert_eq!(judge(instant(), 10, true), (false, true));
}

#[test]
fn an_idle_time_ages_the_average_by_the_packets_it_could_have_sent() {
    let parameters = RedParameters { weight: 0.01, ..instant() };
    let (mut red, mut random) = (Red::new(parameters).unwrap(), random());
    red.average = 8.0;
    // 100 mean packets of 0.8 ms each, and the one that arrives.
    let idle = Some(Duration::from_millis(80));
    red.admit(&Offered { idle, ..offered(0) }, &mut random);
    assert_close(red.average(), 8.0 * math::pow(0.99, 101.0), 1e-12);
}

#[test]
fn the_average_follows_the_queue_by_its_weight() {
    let parameters = RedParameters { weight: 0.25, ..instant() };
    let (mut red, mut random) = (Red::new(parameters).unwrap(), random());
    red.admit(&offered(4), &mut random);
    red.admit(&offered(3), &mut random);
    assert_eq!(red.average(), 0.75 * 1.0 + 0.25 * 3.0);
}

#[test]
fn automatic_parameters_are_those_of_ns2() {
    let slow = RedParameters::automatic(RATE, Bytes::new(500), Duration::from_millis(5));
    // 2500 packets a second: 12.5 in 5 ms, half of which is over 5.
    assert_close(slow.min_th, 6.25, 1e-12);
    assert_close(slow.max_th, 18.75, 1e-12);
    assert_close(slow.weight, 1.0 - math::exp(-1.0 / 2500.0), 1e-12);
    let megabit = Rate::from_bits_per_sec(1_000_000);
    let slower = RedParameters::automatic(megabit, Bytes::new(500), Duration::from_millis(5));
    assert_eq!((slower.min_th, slower.max_th), (5.0, 15.0));
    // A link of 100 ms: R is 3 (0.1 + 0.0004) s.
    let weight = RedParameters::automatic_weight(RATE, Bytes::new(500), Duration::from_millis(100));
    assert_close(weight, 1.0 - math::exp(-1.0 / (3.012 * 2500.0)), 1e-9);
}

#[test]
fn impossible_parameters_are_refused() {
    let error = |parameters| Red::new(parameters).err();
    let base = instant();
    assert_eq!(error(RedParameters { max_p: 1.5, ..base }), Some(RedError::NotAProbability(1.5)));
    assert_eq!(error(RedParameters { max_th: 4.0, ..base }), Some(RedError::Thresholds(5.0, 4.0)));
    assert!(error(RedParameters { min_th: f64::NAN, ..base }).is_some());
    assert_eq!(
        error(RedParameters { mean_packet_size: Bytes::ZERO, ..base }),
        Some(RedError::EmptyPackets)
    );
}

/// Loss and mean queue on a link of 10 Mbit/s after 500 s of packets of 1000 bytes.
fn run(parameters: RedParameters, mut gap: impl FnMut() -> Duration) -> (f64, f64) {
    let parameters = LinkParameters {
        rate: RATE,
        delay: DelayLaw::Constant(Duration::from_millis(10)),
        mtu: None,
        queue: Queue::Red(Box::new(Red::new(parameters).unwrap())),
        loss: LossModel::None,
        reordering: false,
        extras: Extras::default(),
    };
    let mut link = Link::new(parameters, 1, "red");
    let end = Time::ZERO + Duration::from_secs(500);
    let (mut now, mut drops, mut offers) = (Time::ZERO, 0u32, 0u32);
    while now < end {
        drops += u32::from(matches!(link.offer(now, SIZE, false), Fate::Dropped(_)));
        offers += 1;
        now += gap();
    }
    (f64::from(drops) / f64::from(offers), link.statistics(end).mean_packets)
}

/// Constant bit rate of 11 Mbit/s.
fn constant() -> impl FnMut() -> Duration {
    || Duration::from_nanos(727_273)
}

/// Exponential on and off times of 50 ms, 20 Mbit/s when on: `Traffic/Exponential` of ns-2,
/// which rounds a burst to packets.
fn on_off() -> impl FnMut() -> Duration {
    let interval = Duration::from_micros(400);
    let mut random = RandomStream::new(1, "source");
    let mut left = 0u32;
    move || {
        let mut gap = interval;
        if left == 0 {
            left = (random.exponential(125.0).round() as u32).max(1);
            gap += Duration::from_secs_f64(random.exponential(0.05));
        }
        left -= 1;
        gap
    }
}

fn ns2_defaults() -> RedParameters {
    RedParameters::automatic(RATE, Bytes::new(500), Duration::from_millis(5))
}

/// In packets, as in the paper; ns-2 still counts idle times in packets of 500 bytes.
fn classic() -> RedParameters {
    RedParameters { weight: 0.002, max_p: 0.02, mean_packet_size: Bytes::new(500), ..instant() }
}

// The expected numbers are those of ns-2 2.35 over 2000 s: drop rate, mean queue.

#[test]
fn under_constant_overload_the_queue_settles_where_that_of_ns2_does() {
    let (loss, mean) = run(ns2_defaults(), constant());
    assert_close(loss, 0.09091, 0.01);
    assert_close(mean, 7.764, 0.01);
    let (loss, mean) = run(classic(), constant());
    assert_close(loss, 0.09090, 0.01);
    assert_close(mean, 15.373, 0.01);
}

#[test]
fn under_bursts_the_average_ages_in_idle_times_as_that_of_ns2_does() {
    let (loss, mean) = run(ns2_defaults(), on_off());
    assert_close(loss, 0.3792, 0.03);
    assert_close(mean, 10.270, 0.03);
    let (loss, mean) = run(classic(), on_off());
    assert_close(loss, 0.3622, 0.03);
    assert_close(mean, 12.904, 0.03);
    // A limit that is often reached: 20 times the mean packet of 500 bytes.
    let mixed = RedParameters {
        min_th: 5.0,
        max_th: 15.0,
        weight: 0.002,
        by_size: false,
        limit: Limit::bytes(Bytes::new(20 * 500)),
        ..ns2_defaults()
    };
    let (loss, mean) = run(mixed, on_off());
    assert_close(loss, 1_072_278.0 / 2_490_544.0, 0.03);
    assert_close(mean, 4.838, 0.03);
    let packets = RedParameters {
        measure: RedMeasure::Packets,
        limit: Limit::packets(Packets::new(20)),
        ..mixed
    };
    let (loss, mean) = run(packets, on_off());
    assert_close(loss, 0.3793, 0.03);
    assert_close(mean, 9.791, 0.03);
}
