use ontempo_foundation::Rate;

use super::*;
use crate::{DelayLaw, Extras, Fate, Link, LinkParameters, LossModel, Queue};

const RATE: Rate = Rate::from_bits_per_sec(8_000_000);
/// 1 ms on the link.
const SIZE: Bytes = Bytes::new(1000);

fn link(parameters: PieParameters) -> Link {
    let parameters = LinkParameters {
        rate: RATE,
        delay: DelayLaw::Constant(Duration::ZERO),
        mtu: None,
        queue: Queue::Pie(Box::new(Pie::new(parameters))),
        loss: LossModel::None,
        reordering: false,
        extras: Extras::default(),
    };
    Link::new(parameters, 3, "pie")
}

fn micros(micros: u64) -> Time {
    Time::ZERO + Duration::from_micros(micros)
}

#[test]
fn under_constant_overload_the_wait_settles_at_the_target() {
    let mut link = link(PieParameters { limit: Limit::NONE, ..PieParameters::default() });
    let (mut waits, mut accepted) = (0.0, 0u64);
    // Twice the link's rate for 60 s; the first 20 s settle.
    for packet in 0..120_000u64 {
        let now = micros(packet * 500);
        if let Fate::Arrives { starts, .. } = link.offer(now, SIZE, false)
            && packet > 40_000
        {
            waits += starts.since(now).as_secs_f64();
            accepted += 1;
        }
    }
    let mean = waits / accepted as f64;
    assert!((0.010..0.020).contains(&mean), "{mean}");
    let share = link.statistics(micros(60_000_000)).drops.early.get() as f64 / 120_000.0;
    assert!((0.45..0.55).contains(&share), "{share}");
}

#[test]
fn a_burst_within_the_allowance_passes() {
    let mut link = link(PieParameters::default());
    for packet in 0..100 {
        assert!(matches!(link.offer(micros(packet), SIZE, false), Fate::Arrives { .. }));
    }
}

#[test]
fn ecn_capable_flows_are_marked_while_the_probability_is_small() {
    let mut link = link(PieParameters { ecn: true, ..PieParameters::default() });
    let mut dropped = 0;
    for packet in 0..20_000u64 {
        dropped +=
            u64::from(matches!(link.offer(micros(packet * 990), SIZE, true), Fate::Dropped(_)));
    }
    let statistics = link.statistics(micros(20_000_000));
    assert!(statistics.marks > Packets::new(0));
    assert_eq!(statistics.drops.total().get(), dropped);
}

#[test]
fn after_a_long_silence_it_is_as_new_and_no_slower() {
    let mut pie = Pie::new(PieParameters { update: Duration::from_nanos(1), ..Default::default() });
    let mut random = RandomStream::new(1, "pie");
    let offered = |now, idle| Offered {
        now,
        size: SIZE,
        ecn_capable: false,
        waiting: crate::Occupancy::default(),
        idle,
        wait: Duration::ZERO,
        rate: RATE,
    };
    pie.admit(&offered(micros(1), Some(Duration::ZERO)), &mut random);
    let year = Duration::from_secs(365 * 86_400);
    let verdict = pie.admit(&offered(micros(1) + year, Some(year)), &mut random);
    assert_eq!((verdict, pie.probability()), (Verdict::Accept, 0.0));
}

fn at(probability: f64, old_delay_ms: u64) -> Pie {
    let old_delay = Duration::from_millis(old_delay_ms);
    Pie { probability, old_delay, ..Pie::new(PieParameters::default()) }
}

#[test]
fn the_step_is_smaller_where_the_probability_is_small() {
    // RFC 8033 section 4.2: 0.125 (20 - 15 ms) + 1.25 (20 - 10 ms) = 0.013125, divided by the
    // table's number.
    for (probability, divisor) in [
        (0.0, 2048.0),
        (0.000_000_9, 2048.0),
        (0.000_001, 512.0),
        (0.000_01, 128.0),
        (0.000_1, 32.0),
        (0.001, 8.0),
        (0.01, 2.0),
        (0.099, 2.0),
        (0.1, 1.0),
        (0.5, 1.0),
    ] {
        let mut pie = at(probability, 10);
        pie.update(Duration::from_millis(20));
        let expected = probability + 0.013_125 / divisor;
        assert!((pie.probability - expected).abs() < 1e-12, "{probability}: {}", pie.probability);
    }
}

#[test]
fn the_probability_decays_only_once_two_updates_found_no_wait() {
    let mut pie = at(0.5, 1);
    pie.update(Duration::ZERO);
    let falls = 0.125 * 0.015;
    let once = 0.5 - falls - 1.25 * 0.001;
    assert!((pie.probability - once).abs() < 1e-12);
    pie.update(Duration::ZERO);
    assert!((pie.probability - (once - falls) * 0.98).abs() < 1e-12);
}

#[test]
fn the_burst_allowance_runs_out_and_comes_back_when_the_queue_is_calm() {
    let mut pie = at(0.0, 0);
    let long = Duration::from_millis(50);
    for updates in 1..=10 {
        pie.update(long);
        assert_eq!(pie.burst_left, Duration::from_millis(150 - 15 * updates));
    }
    pie.update(long);
    assert_eq!(pie.burst_left, Duration::ZERO);
    pie.probability = 0.0;
    pie.old_delay = Duration::from_millis(8);
    pie.update(Duration::ZERO);
    assert_eq!(pie.burst_left, Duration::ZERO, "half the target had been passed");
    pie.update(Duration::ZERO);
    assert_eq!((pie.probability, pie.burst_left), (0.0, Duration::from_millis(150)));
}

#[test]
fn a_short_queue_and_a_calm_one_are_spared() {
    let offered = |bytes, probability, old_delay_ms| {
        let waiting = crate::Occupancy { packets: Packets::new(2), bytes: Bytes::new(bytes) };
        let offered = Offered {
            now: micros(1),
            size: SIZE,
            ecn_capable: false,
            waiting,
            idle: None,
            wait: Duration::from_millis(1),
            rate: RATE,
        };
        at(probability, old_delay_ms).is_safe(&offered)
    };
    // RFC 8033 section 4.1.
    assert!(offered(2000, 1.0, 100), "two mean packets wait");
    assert!(!offered(2001, 1.0, 100));
    assert!(offered(9000, 0.19, 7), "below half the target");
    assert!(!offered(9000, 0.2, 7));
    assert!(!offered(9000, 0.19, 8));
}
