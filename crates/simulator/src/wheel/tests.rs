use super::*;
use proptest::prelude::*;

proptest! {
    /// Against a sorted list, with pushes between pops, and a stop before the end.
    #[test]
    fn events_come_in_order_of_time_then_of_pushing(
        steps in proptest::collection::vec(
            (prop_oneof![9 => 0u64..3, 1 => 60u64..200], 0u32..62, any::<u64>(), 0usize..4),
            1..100,
        )
    ) {
        let mut wheel = Wheel::new();
        let mut expected: Vec<(u64, usize)> = Vec::new();
        let mut present = 0u64;
        for (number, (repeats, bits, noise, pops)) in steps.into_iter().enumerate() {
            let time = present + (noise >> (63 - bits));
            for repeat in 0..=repeats {
                let event = number * 1000 + repeat as usize;
                wheel.push(Time::from_nanos(time), event);
                expected.push((time, event));
            }
            expected.sort_by_key(|(time, _)| *time);
            prop_assert_eq!(wheel.iter().count(), expected.len());
            for _ in 0..pops.min(expected.len()) {
                let (time, event) = expected.remove(0);
                if time > present {
                    prop_assert!(wheel.pop_until(Time::from_nanos(time - 1)).is_none());
                }
                let until = Time::from_nanos(time);
                prop_assert_eq!(wheel.pop_until(until), Some((until, event)));
                present = time;
            }
        }
    }
}

proptest! {
    /// Up to a chunk of a slot, as long as slots may be, with equal times among them.
    #[test]
    fn ranks_are_the_places_after_a_stable_sort(
        times in proptest::collection::vec(
            prop_oneof![0u64..4, 0u64..1 << MAX_KEY_SHIFT, Just((1 << MAX_KEY_SHIFT) - 1)],
            1..=CHUNK,
        )
    ) {
        let start = 5 << MAX_KEY_SHIFT;
        let events: Vec<_> = times.iter().map(|time| start + time).zip(0..).collect();
        let mut expected = events.clone();
        expected.sort_by_key(|(time, _)| *time);
        for (event, rank) in events.iter().zip(ranks(&events, start)) {
            prop_assert_eq!(*event, expected[rank as usize]);
        }
    }
}

/// Thousands of events one after the other before the end of a slot that was sorted
/// as a whole, and a thousand of one instant.
#[test]
fn many_events_soon_or_at_once_come_in_order() {
    let mut wheel = Wheel::new();
    let slot = 1 << (4 * DIGIT_BITS);
    wheel.push(Time::from_nanos(slot), 0);
    let first = wheel.pop_until(Time::NEVER);
    assert_eq!(first, Some((Time::from_nanos(slot), 0)));
    for event in 1..=10_000 {
        wheel.push(Time::from_nanos(slot + 1_000 * event), event);
    }
    for event in 10_001..=11_000 {
        wheel.push(Time::from_nanos(slot + 10_000_000), event);
    }
    for event in 1..=11_000 {
        let time = slot + 1_000 * event.min(10_000);
        assert_eq!(wheel.pop_until(Time::NEVER), Some((Time::from_nanos(time), event)));
        assert!(wheel.near().len() <= MAX_NEAR || event >= 9_999);
    }
}

/// Where events come by nanoseconds, by seconds and by microseconds in turn, each slot of the wide level
/// holds a few, and all come in order.
#[test]
fn slots_follow_the_rate_of_events() {
    let mut wheel = Wheel::new();
    let (mut now, mut pushed, mut last) = (0, 0u32, None);
    for spacing in [3u64, 2_000_000_000, 7_000] {
        for _ in 0..10_000 {
            for _ in 0..2 {
                if pushed % 97 < 60 {
                    let ahead = u64::from(pushed) * 31 % 50 * spacing;
                    wheel.push(Time::from_nanos(now + ahead), pushed);
                }
                pushed += 1;
            }
            let Some((time, event)) = wheel.pop_until(Time::NEVER) else { continue };
            assert!(last < Some((time.as_nanos(), event)), "{last:?}, then {event} at {time}");
            now = time.as_nanos();
            last = Some((now, event));
        }
        let held = (50 * spacing) >> wheel.shift;
        assert!(held < 50 * EVENTS_OF_SLOT, "slots of 2^{} for {spacing} ns", wheel.shift);
    }
}
