//! Time stamps that are missing, jump, or are damaged.

use super::*;

#[test]
fn a_jump_of_the_clock_does_not_turn_time_back() {
    let (mut counter, mut bytes) = (0, tables(0x1b));
    for ticks in [90_000, 93_600, 5_000_000, 5_003_600, 1_000, 4_600] {
        bytes.extend(pes(VIDEO, &mut counter, (ticks, ticks), &slice(true, 3, 2)));
    }
    let (table, untold) = FrameTable::from_transport_stream(&bytes).expect("a film");
    let times: Vec<u64> = table.frames.iter().map(|one| one.made.as_nanos() / 1_000_000).collect();
    assert_eq!(times, [0, 40, 80, 120, 160, 200]);
    assert_eq!(untold, ["jumps of the time stamps, after which time goes on as before: 2"]);
}

/// 60 pictures a second, of which each `distance`th has a time stamp.
fn seldom_stamped(distance: u64, count: u64) -> Vec<u8> {
    let (mut counter, mut bytes) = (0, tables(0x1b));
    for place in 0..count {
        let (at, content) = (90_000 + place * 1_500, slice(place == 0, 2, 0));
        if place % distance == 0 {
            bytes.extend(pes(VIDEO, &mut counter, (at, at), &content));
            continue;
        }
        let unstamped = [&[0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0][..], &content].concat();
        for (number, part) in unstamped.chunks(PACKET - 4).enumerate() {
            bytes.extend(packet(VIDEO, number == 0, counter, part));
            counter = counter.wrapping_add(1);
        }
    }
    bytes
}

#[test]
fn pictures_without_a_time_stamp_lie_between_those_with_one_and_are_no_jump() {
    for distance in [2, 3, 30] {
        let bytes = seldom_stamped(distance, 240);
        let (table, untold) = FrameTable::from_transport_stream(&bytes).expect("a film");
        for (place, frame) in (0..).zip(&table.frames) {
            let truth = place * 1_000_000_000 / 60;
            assert!(
                frame.made.as_nanos().abs_diff(truth) < 1_000,
                "{distance}: {place}, {frame:?}"
            );
        }
        let millis = table.period.as_nanos() / 1_000;
        assert!(millis.abs_diff(4_000_000) < 10, "{distance}: {millis} us");
        assert!(untold.iter().all(|one| !one.contains("jump")), "{untold:?}");
        let shown = units(&mut LiveDemultiplexer::new(), &bytes);
        assert_eq!(shown.len(), 240);
        assert!(shown.iter().all(|unit| unit.timeline == 0));
        // From the second stamp on their distance is known.
        let first = shown[0].shown;
        for (place, unit) in (0..).zip(&shown).skip(distance as usize) {
            let truth = place * 1_000_000_000 / 60;
            assert!((unit.shown - first).as_nanos().abs_diff(truth) < 1_000, "{place}");
        }
    }
}

/// How many ms frames and film of a table may be apart from those of the film without damage: that of a picture, and
/// rounding.
const NEAR_MS: u64 = 41;

/// 40 pictures of 25 a second, with B pictures, and AAC; with a wrap of the clock after the tenth.
fn with_sound(has_sound: bool) -> Vec<u8> {
    let (mut bytes, mut video, mut audio) = (tables(0x1b), 0, 0);
    let base = (1 << 33) - 10 * 3_600;
    let at = |place: u64| (base + place * 3_600) % (1 << 33);
    for place in 0..40 {
        let shown = place + 1 + [0, 2, 0][place as usize % 3];
        let content = slice(place % 10 == 0, 2, 0);
        bytes.extend(pes(VIDEO, &mut video, (at(shown), at(place)), &content));
        if has_sound {
            let aac = [0xff, 0xf1, 3 << 2, 0, 2, 0x1f, 0xfc, 1, 2, 3, 4, 5, 6, 7, 8, 9];
            let now = at(place) + 700;
            bytes.extend(pes(SOUND, &mut audio, (now % (1 << 33), now % (1 << 33)), &aac));
        }
    }
    bytes
}

/// Where the stamps of PES headers are in these bytes.
fn stamps_in(bytes: &[u8]) -> Vec<usize> {
    let begins =
        |at: &usize| bytes[at + 1] & 0x40 != 0 && bytes[at + 2] < 2 && bytes[at + 1] & 0x1f == 1;
    let packets = (0..bytes.len()).step_by(PACKET).filter(begins);
    let places = packets.map(|at| at + ts::header(&bytes[at..]).expect("a packet").payload + 9);
    places.flat_map(|at| at..at + 10).collect()
}

#[test]
fn one_bit_of_a_time_stamp_changes_no_film_by_more_than_a_picture() {
    for has_sound in [false, true] {
        let whole = with_sound(has_sound);
        let (truth, untold) = FrameTable::from_transport_stream(&whole).expect("a film");
        assert_eq!(untold, Vec::<String>::new());
        let millis =
            |one: Duration, other: Duration| one.as_nanos().abs_diff(other.as_nanos()) / 1_000_000;
        for at in stamps_in(&whole) {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                let (table, untold) = FrameTable::from_transport_stream(&bytes).expect("a film");
                let place = (at / PACKET, at % PACKET, bit);
                assert_eq!(table.frames.len(), truth.frames.len());
                assert!(millis(table.period, truth.period) <= NEAR_MS, "{place:?} {untold:?}");
                let ends = [&table, &truth].map(|one| one.frames[one.frames.len() - 1].made);
                assert!(millis(ends[0], ends[1]) <= NEAR_MS, "{place:?} {untold:?}");
                let lengths = [&table, &truth].map(FrameTable::length_of_pictures);
                assert!(millis(lengths[0], lengths[1]) <= NEAR_MS, "{place:?} {untold:?}");
                assert!(untold.iter().all(|one| !one.contains("jump")), "{place:?} {untold:?}");
            }
        }
    }
}

/// The times of pictures with these stamps, in 40 ms, and what is not reported.
fn placed(places: &[u64]) -> (Vec<u64>, Vec<String>) {
    let (mut counter, mut bytes) = (0, tables(0x1b));
    for place in places {
        let ticks = place * 3_600;
        bytes.extend(pes(VIDEO, &mut counter, (ticks, ticks), &slice(true, 3, 2)));
    }
    let (table, untold) = FrameTable::from_transport_stream(&bytes).expect("a film");
    (table.frames.iter().map(|one| one.made.as_nanos() / 40_000_000).collect(), untold)
}

#[test]
fn stamps_are_left_out_that_those_around_them_contradict_and_no_others() {
    let left_out = |count: u64| {
        let of_them = "which are left out";
        vec![
            format!("time stamps that those around them contradict, {of_them}: {count}"),
            format!(
                "pictures that do not say when they are shown, whose neighbours are not known: {count}"
            ),
        ]
    };
    let jumps = |count: u64| {
        vec![format!("jumps of the time stamps, after which time goes on as before: {count}")]
    };
    let on: Vec<u64> = (0..12).collect();
    // Too late by less than 10 s, too early, and too late by more, in each place.
    for place in 0..12 {
        for wrong in [100 + place as u64 + 150, 20, 100_000] {
            let mut places: Vec<u64> = (100..112).collect();
            places[place] = wrong;
            assert_eq!(placed(&places), (on.clone(), left_out(1)), "{place} {wrong}");
        }
    }
    // Two in a row, and two apart.
    let (times, untold) = placed(&[100, 101, 102, 90, 200, 105, 106, 107, 30, 109, 110, 111]);
    assert_eq!((times, untold), (on.clone(), left_out(3)));
    // A gap is none: packets are missing.
    let (times, untold) = placed(&[100, 101, 102, 200, 201, 202]);
    assert_eq!((times, untold), (vec![0, 1, 2, 100, 101, 102], vec![]));
    // A jump that its successors confirm, forth and back, is one.
    let (times, untold) = placed(&[100, 101, 102, 900, 901, 902, 40, 41, 42, 43, 44, 45]);
    assert_eq!((times, untold), (on, jumps(2)));
    // A still picture, then one of the usual distance: the first is to be seen for 4 s.
    let (times, _) = placed(&[100, 200, 201, 302, 303]);
    assert_eq!(times, [0, 100, 101, 202, 203]);
}

#[test]
fn a_long_step_at_an_end_is_believed_if_the_sound_has_it_too() {
    let film = |has_sound: bool| {
        let (mut bytes, mut video, mut audio) = (tables(0x1b), 0, 0);
        for place in (0..200).filter(|place| has_sound || *place == 0 || (100..110).contains(place))
        {
            let at = 90_000 + place * 3_600;
            if place == 0 || (100..110).contains(&place) || place == 199 {
                bytes.extend(pes(VIDEO, &mut video, (at, at), &slice(place == 0, 2, 0)));
            }
            if has_sound {
                let aac = [0xff, 0xf1, 3 << 2, 0, 2, 0x1f, 0xfc, 1, 2, 3, 4, 5, 6, 7, 8, 9];
                bytes.extend(pes(SOUND, &mut audio, (at, at), &aac));
            }
        }
        FrameTable::from_transport_stream(&bytes).expect("a film")
    };
    let (table, untold) = film(true);
    assert_eq!(untold, Vec::<String>::new());
    let pictures = table.frames.iter().filter(|one| one.kind != FrameKind::Sound);
    let times: Vec<u64> = pictures.map(|one| one.made.as_nanos() / 40_000_000).collect();
    assert_eq!((times[0], times[1], times[10], times.len()), (0, 100, 199 - 90, 12));
    assert_eq!(times[11], 199);
    // Without sound nothing says that, and it is reported.
    let (table, untold) = film(false);
    assert_eq!((table.period, untold.len()), (Duration::from_millis(440), 2), "{untold:?}");
}

#[test]
fn pictures_without_any_time_stamp_begin_beside_the_sound() {
    let (mut bytes, mut counters) = (tables(0x1b), [0, 0]);
    for place in 0..5 {
        let content = [&[0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0][..], &slice(place == 0, 2, 0)].concat();
        for (number, part) in content.chunks(PACKET - 4).enumerate() {
            bytes.extend(packet(VIDEO, number == 0, counters[0], part));
            counters[0] = counters[0].wrapping_add(1);
        }
        let aac = [0xff, 0xf1, 3 << 2, 0, 2, 0x1f, 0xfc, 1, 2, 3, 4, 5, 6, 7, 8, 9];
        let now = 10 * 3_600 * 90_000 + place * 3_600;
        bytes.extend(pes(SOUND, &mut counters[1], (now, now), &aac));
    }
    let (table, _) = FrameTable::from_transport_stream(&bytes).expect("a film");
    assert_eq!(table.period, Duration::from_millis(200));
}
