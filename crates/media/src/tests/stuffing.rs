//! Stuffing, and what is gathered to fill packets.

use super::*;

/// A null packet with this counter: of 0xff, of 0, of a byte, of a pattern, or with a flag that
/// none has.
pub(super) fn null(counter: u8, fill: u8) -> Vec<u8> {
    let mut bytes = vec![ts::SYNC, 0x1f, 0xff, 0x10 | counter];
    match fill {
        0 | 4 => bytes.resize(ts::PACKET, 0xff),
        1 => bytes.resize(ts::PACKET, 0),
        2 => bytes.resize(ts::PACKET, 0x55),
        _ => bytes.extend((0..184u8).map(|byte| byte ^ 0x21)),
    }
    bytes[1] |= if fill == 4 { 0x80 } else { 0 };
    bytes
}

/// Written and read, a unit's bytes beside those of its data.
fn written(unit: &Unit) -> usize {
    let mut bytes = Vec::new();
    unit.write(&mut bytes);
    bytes.len()
}

#[test]
fn stuffing_is_described_and_not_sent() {
    let mut counter = 0;
    for (fill, most) in [(0, 130), (1, 130), (2, 170), (3, 170 + 2 * 184)] {
        // Two packets of pictures and five null ones; then ten datagrams of stuffing alone.
        let mut stuffing = |count: usize| -> Vec<u8> {
            let packets = (0..count).flat_map(|_| {
                counter = (counter + 1) & 0x0f;
                null(counter, fill)
            });
            packets.collect()
        };
        let mut datagrams = vec![[more(VIDEO), stuffing(3), more(VIDEO), stuffing(2)].concat()];
        datagrams.extend((0..10).map(|_| stuffing(7)));
        let units = cut(&datagrams, PacketizerOptions::default());
        let data: usize = units.iter().map(|unit| unit.data.len()).sum();
        let bytes: usize = units.iter().map(written).sum();
        assert_eq!(data, 2 * ts::PACKET, "no null packet is in the data");
        assert!(bytes <= data + most, "fill {fill}: {bytes} bytes for {data} of pictures");
        let back: Vec<_> = joined(&units, Release::InOrder).into_iter().map(|j| j.data).collect();
        assert_eq!(back, datagrams);
    }
}

#[test]
fn a_lost_description_of_stuffing_takes_no_other_packet() {
    let datagrams = [
        [more(VIDEO), null(0, 0), counted(0, 1), null(0, 0)].concat(),
        [null(0, 0), null(0, 0)].concat(),
        [null(1, 1), counted(1, 1), null(2, 1)].concat(),
    ];
    let mut units = cut(&datagrams, PacketizerOptions::default());
    // The picture's packet carried the first datagram's description, the third's is the sound's.
    units.retain(|unit| unit.data.first_chunk() == Some(&[0x47, 1, 1]));
    let all = joined(&units, Release::AsArrived { delay: Duration::ZERO, grace: Duration::ZERO });
    let all: Vec<_> = all.into_iter().map(|one| (one.datagram, one.data, one.is_whole)).collect();
    assert_eq!(
        all,
        [(0, counted(0, 1), false), (2, datagrams[2].clone(), true)],
        "stuffing without its description is left out"
    );
}

#[test]
fn a_paced_stream_is_gathered_to_fill_packets_and_a_burst_is_one_unit() {
    let times = |step: u64, units: &mut Vec<(u64, Unit)>| {
        let mut packetizer = Packetizer::new(PacketizerOptions::default());
        for place in 0..40 {
            let now = at(1_000 + place * step);
            while packetizer.next_timeout() <= now {
                let due = packetizer.next_timeout();
                packetizer.handle_timeout(due);
                let micros = due.as_nanos() / 1_000;
                units.extend(std::iter::from_fn(|| packetizer.poll()).map(|unit| (micros, unit)));
            }
            let packets = (7 * place..7 * place + 7).map(|counter| {
                let mut packet = more(VIDEO);
                packet[3] |= counter as u8 & 0x0f;
                packet
            });
            packetizer.push(now, &packets.collect::<Vec<_>>().concat());
            let micros = now.as_nanos() / 1_000;
            units.extend(std::iter::from_fn(|| packetizer.poll()).map(|unit| (micros, unit)));
        }
        packetizer.finish();
        units.extend(std::iter::from_fn(|| packetizer.poll()).map(|unit| (u64::MAX, unit)));
    };
    let (mut paced, mut burst) = (Vec::new(), Vec::new());
    times(2_632, &mut paced);
    times(10, &mut burst);
    let most = PacketizerOptions::default().gathering;
    for (left, unit) in &paced[..paced.len() - 1] {
        assert!((2_000..=most.bytes).contains(&written(unit)), "{} bytes", written(unit));
        let waited = left - unit.parts[0].arrived.as_nanos() / 1_000;
        assert!(waited <= most.within.as_nanos() / 1_000, "{waited} us");
    }
    assert!(paced.windows(2).all(|two| two[1].1.continues == Some(two[0].1.id)));
    assert_eq!(burst.len(), 1, "a frame of a moment is one unit");
}

proptest! {
    #[test]
    fn a_lost_unit_takes_only_what_it_carried(
        datagrams in proptest::collection::vec(any_datagram(), 1..40),
        gap in 1u64..3_000, lost in any::<u64>(),
    ) {
        let mut packetizer = Packetizer::new(PacketizerOptions::default());
        let mut units = Vec::new();
        for (place, datagram) in datagrams.iter().enumerate() {
            packetizer.push(at(place as u64 * gap), datagram);
            units.extend(std::iter::from_fn(|| packetizer.poll()));
        }
        packetizer.finish();
        units.extend(std::iter::from_fn(|| packetizer.poll()));
        let mut random = ontempo_foundation::RandomStream::new(lost, "lost");
        let (lost, kept): (Vec<_>, Vec<_>) =
            units.into_iter().partition(|_| random.next_u64().is_multiple_of(3));
        let hurt: Vec<u64> =
            lost.iter().flat_map(|unit| unit.parts.iter().map(|part| part.datagram)).collect();
        let kept: Vec<_> = kept.iter().map(|unit| {
            let mut bytes = Vec::new();
            unit.write(&mut bytes);
            Unit::read(unit.id, &bytes).expect("a unit")
        }).collect();
        let all = joined(&kept, Release::AsArrived { delay: Duration::ZERO, grace: Duration::ZERO });
        let whole = all.iter().filter(|one| one.is_whole).count();
        for one in all {
            let sent = &datagrams[one.datagram as usize];
            prop_assert!(one.is_whole != hurt.contains(&one.datagram));
            prop_assert!(!one.is_whole || one.data == *sent);
            prop_assert!(one.data.len() <= sent.len());
        }
        let unhurt = (0..datagrams.len() as u64).filter(|one| !hurt.contains(one)).count();
        prop_assert_eq!(whole, unhurt);
    }
}
