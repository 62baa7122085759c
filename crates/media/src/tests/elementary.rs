//! Frames of an elementary stream as units.

use super::*;

const OPTIONS: PacketizerOptions = PacketizerOptions {
    format: Some(Format::Elementary),
    hold: Duration::from_micros(500),
    gathering: Gathering::NONE,
    max_bytes: 256 << 10,
};

/// A description and then frames, each with its number in its bytes.
fn stream(kinds: &[FrameKind], length: usize) -> Vec<Vec<u8>> {
    let mut datagrams = vec![b"\0video/x-h264".to_vec()];
    for (number, kind) in kinds.iter().enumerate() {
        let shown = Some(Duration::from_millis(40 * number as u64));
        let times = FrameTimes { shown, ..FrameTimes::default() };
        let frame = vec![number as u8; length];
        cut_frame(*kind, number as u16, times, &frame, |part| datagrams.push(part.to_vec()))
            .expect("not too long");
    }
    datagrams
}

#[test]
fn a_frame_is_a_unit_that_needs_what_its_kind_says() {
    use FrameKind::{Disposable, Key as KeyFrame, Reference};
    let units = cut(&stream(&[KeyFrame, Reference, Disposable, Reference, KeyFrame], 9), OPTIONS);
    let is = |place: usize, kind, needs: &[u64]| {
        let unit = &units[place];
        assert_eq!((unit.kind, unit.dependencies.as_slice()), (kind, needs), "{place}");
    };
    is(0, Kind::Tables, &[]);
    is(1, Kind::Key, &[0]);
    is(2, Kind::Frame, &[0, 1]);
    is(3, Kind::Disposable, &[0, 1, 2]);
    is(4, Kind::Frame, &[0, 1, 2]);
    is(5, Kind::Key, &[0]);
    assert_eq!(units[4].media_time, Some(Duration::from_millis(120)));
    let sound = cut(&stream(&[FrameKind::Sound; 3], 9), OPTIONS);
    assert!(sound[1..].iter().all(|unit| unit.kind == Kind::Sound && unit.dependencies == [0]));
}

#[test]
fn a_frame_leaves_at_once_and_a_long_one_in_units_that_continue_each_other() {
    let mut packetizer = Packetizer::new(OPTIONS);
    for datagram in stream(&[FrameKind::Key], 100) {
        packetizer.push(at(1), &datagram);
        assert!(packetizer.poll().is_some());
    }
    assert_eq!(packetizer.next_timeout(), Time::NEVER);
    let datagrams = stream(&[FrameKind::Key, FrameKind::Reference], 1_000_000);
    let units = cut(&datagrams, OPTIONS);
    let frames = units.iter().filter(|unit| unit.continues.is_none()).count();
    assert!(units.len() > 8 && frames == 3, "{} units, {frames} begin", units.len());
    let back = joined(&units, Release::InOrder);
    assert!(back.iter().map(|one| &one.data).eq(&datagrams));
}

/// The datagrams of two streams, one of each in turn, behind their numbers.
fn in_turn(pictures: &[Vec<u8>], sound: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let numbered = |number: u8, datagram: &[u8]| [&[number][..], datagram].concat();
    let both = pictures.iter().zip(sound);
    both.flat_map(|(one, other)| [numbered(0, one), numbered(1, other)]).collect()
}

#[test]
fn frames_of_several_streams_need_only_what_is_of_their_own() {
    use FrameKind::{Key as KeyFrame, Reference, Sound};
    let options = PacketizerOptions { format: Some(Format::Elementaries), ..OPTIONS };
    let pictures = stream(&[KeyFrame, Reference, KeyFrame, Reference], 100_000);
    let sound = stream(&[Sound; 4], 90);
    let mut datagrams = in_turn(&pictures, &sound);
    // The end of a stream, which no other unit waits for.
    datagrams.push(vec![1]);
    let units = cut(&datagrams, options);
    let description = |number: u8| units[..2].iter().find(|unit| unit.data[0] == number);
    for unit in &units[2..units.len() - 1] {
        let of = unit.data[0];
        assert_eq!(unit.kind == Kind::Sound, of == 1);
        let by_id = |id: &u64| units.iter().find(|unit| unit.id == *id).expect("an earlier one");
        let needed = unit.dependencies.iter().map(by_id);
        assert!(needed.clone().all(|needed| needed.data[0] == of), "{}", unit.id);
        let id = description(of).expect("a description").id;
        assert!(unit.continues.is_some() || needed.clone().any(|needed| needed.id == id));
    }
    let end = units.last().expect("units");
    assert_eq!(
        (end.kind, end.dependencies.as_slice(), end.data.as_slice()),
        (Kind::Tables, &[][..], &[1][..])
    );
    let back = joined(&units, Release::InOrder);
    assert!(back.iter().map(|one| &one.data).eq(&datagrams));
}

#[test]
fn what_has_no_number_of_a_stream_is_a_unit_by_itself() {
    let options = PacketizerOptions { format: Some(Format::Elementaries), ..OPTIONS };
    let datagrams = [vec![], vec![8, 0x80], vec![0x47; 188], vec![0, 1]];
    let units = cut(&datagrams, options);
    assert_eq!(units.len(), datagrams.len());
    assert!(units.iter().all(|unit| unit.kind == Kind::Datagram && unit.dependencies.is_empty()));
}
