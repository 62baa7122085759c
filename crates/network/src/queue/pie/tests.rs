use ontempo_foundation::Rate;

use super::*;
use crate::{DelayLaw, Fate, Link, LinkParameters, LossModel, Queue};

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
    // Twice what the link carries, for 60 s; the first 20 s settle.
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
fn flows_that_understand_marks_are_marked_while_the_probability_is_small() {
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
