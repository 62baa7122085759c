//! Sources that are read later than their datagrams come.

use ontempo_foundation::{Duration, Time};
use proptest::prelude::*;

use super::{VIDEO, at, more, pat, pes, pmt};
use crate::{Packetizer, PacketizerOptions, Unit};

/// Cuts datagrams that come at these times; `is_late`: they are pushed at the next look where they
/// may wait. Answers the units, and how often something was pushed.
fn cut_when_due(datagrams: &[Vec<u8>], times: &[Time], is_late: bool) -> (Vec<Unit>, usize) {
    let (mut packetizer, mut units) = (Packetizer::new(PacketizerOptions::default()), Vec::new());
    let (mut coming, mut visits) = (times.iter().zip(datagrams).peekable(), 0);
    while let Some(&(&first, _)) = coming.peek() {
        let (due, look) = (packetizer.next_timeout(), packetizer.next_look());
        let now = if is_late && look < Time::NEVER { look.min(due) } else { first.min(due) };
        visits += 1;
        while let Some((&came, datagram)) = coming.next_if(|(came, _)| **came <= now) {
            packetizer.push(came, datagram);
        }
        packetizer.handle_timeout(now);
        units.extend(std::iter::from_fn(|| packetizer.poll()));
    }
    packetizer.finish();
    units.extend(std::iter::from_fn(|| packetizer.poll()));
    (units, visits)
}

proptest! {
    #[test]
    fn a_source_that_is_read_later_where_it_may_be_gives_the_same_units(
        gaps in prop::collection::vec(prop_oneof![3 => 500u64..3_000, 1 => 0u64..40_000], 30..120),
        begins in prop::collection::vec(any::<bool>(), 120),
    ) {
        let mut datagrams = vec![[pat(), pmt(), pes(VIDEO, true, 0, 0, 100)].concat()];
        let pictures = begins.iter().take(gaps.len() - 1).map(|begins| {
            let first = if *begins { pes(VIDEO, false, 0, 0, 100) } else { more(VIDEO) };
            [first, more(VIDEO), more(VIDEO), more(VIDEO)].concat()
        });
        datagrams.extend(pictures);
        let times: Vec<Time> = gaps.iter().scan(0, |now, gap| { *now += gap; Some(at(*now)) }).collect();
        let (units, _) = cut_when_due(&datagrams, &times, false);
        prop_assert_eq!(units, cut_when_due(&datagrams, &times, true).0);
    }
}

/// Datagrams of one picture, some microseconds apart.
fn evenly(gap: u64, count: usize) -> (Vec<Vec<u8>>, Vec<Time>) {
    let first = [pat(), pmt(), pes(VIDEO, true, 0, 0, 100)].concat();
    let others = std::iter::repeat_n(more(VIDEO).repeat(7), count - 1);
    let times = (0..count as u64).map(|place| at(place * gap)).collect();
    (std::iter::once(first).chain(others).collect(), times)
}

#[test]
fn an_even_source_is_read_once_for_all_that_leaves_together() {
    // 8 Mbit/s: three datagrams within 3 ms; 25 Mbit/s: as many as fit four packets.
    for (gap, together) in [(1_316, 3), (421, 4)] {
        let (datagrams, times) = evenly(gap, 600);
        let (units, visits) = cut_when_due(&datagrams, &times, true);
        assert!(visits <= 600 / together + 20, "{visits} visits, {gap} us apart");
        let of_most = units[20..units.len() - 1].iter().all(|unit| unit.parts.len() == together);
        assert!(of_most, "{gap} us apart");
    }
}

#[test]
fn what_comes_too_seldom_to_be_gathered_does_not_wait() {
    let (datagrams, times) = evenly(5_264, 40);
    let mut packetizer = Packetizer::new(PacketizerOptions::default());
    for (place, (datagram, now)) in datagrams.iter().zip(&times).enumerate() {
        packetizer.push(*now, datagram);
        if place > 10 {
            assert_eq!(packetizer.held(), 0, "datagram {place}");
        }
        packetizer.handle_timeout(*now + Duration::from_millis(3));
    }
}

#[test]
fn a_source_that_pauses_is_read_at_once_when_it_goes_on() {
    let (datagrams, times) = evenly(1_316, 40);
    let mut packetizer = Packetizer::new(PacketizerOptions::default());
    for (datagram, now) in datagrams.iter().zip(&times) {
        packetizer.push(*now, datagram);
    }
    let last = times[39];
    packetizer.handle_timeout(last + Duration::from_millis(3));
    assert!(packetizer.next_look() < Time::NEVER);
    packetizer.handle_timeout(last + Duration::from_millis(6));
    assert_eq!((packetizer.next_look(), packetizer.held()), (Time::NEVER, 0));
}

#[test]
fn a_paced_source_is_read_half_as_often_where_it_may_wait() {
    let packets = [pes(VIDEO, true, 0, 0, 100), more(VIDEO), more(VIDEO), more(VIDEO)].concat();
    let mut datagrams = vec![[pat(), pmt()].concat()];
    datagrams.extend(std::iter::repeat_n([packets.clone(), more(VIDEO)].concat(), 200));
    let times: Vec<Time> = (0..datagrams.len() as u64).map(|place| at(place * 1_300)).collect();
    let (units, visits) = cut_when_due(&datagrams, &times, false);
    let (later, fewer) = cut_when_due(&datagrams, &times, true);
    assert_eq!(units, later);
    assert!(fewer * 3 < visits * 2, "{fewer} visits instead of {visits}");
    // In bursts nothing waits: the socket's buffer may be smaller than a picture.
    let bursts: Vec<Time> = (0..datagrams.len() as u64)
        .map(|place| at(place / 10 * 40_000 + place % 10 * 50))
        .collect();
    let (units, visits) = cut_when_due(&datagrams, &bursts, false);
    assert_eq!((units, visits), cut_when_due(&datagrams, &bursts, true));
}
