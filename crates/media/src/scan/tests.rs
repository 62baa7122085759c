//! Made-up streams: what is damaged is an error or named, and no bytes make a table that is none.

use ontempo_foundation::RandomStream;

use super::marks::Refers;
use super::*;
use crate::rtp;
use crate::sections::checksum;
use crate::ts::Multiplex;
use crate::{begins_transport_stream, stuffing_share};

mod headers;
mod stamps;
mod tables;

const VIDEO: u16 = 0x100;
const SOUND: u16 = 0x101;

/// A packet whose payload is filled up by its adaptation field.
fn packet(pid: u16, begins: bool, counter: u8, payload: &[u8]) -> Vec<u8> {
    let room = PACKET - 4 - payload.len();
    let mut bytes = vec![ts::SYNC, (pid >> 8) as u8 | if begins { 0x40 } else { 0 }, pid as u8];
    bytes.push(if room > 0 { 0x30 } else { 0x10 } | counter & 0x0f);
    if room > 0 {
        bytes.push((room - 1) as u8);
        bytes.extend([0].iter().take(room - 1));
        bytes.resize(4 + room, 0xff);
    }
    bytes.extend(payload);
    bytes
}

/// The payload of a packet in which this section begins, with its checksum.
fn section(bytes: &[u8]) -> Vec<u8> {
    [&[0], bytes, &checksum(bytes).to_be_bytes()].concat()
}

/// The tables of a film with pictures of this type and AAC.
fn tables(stream_type: u8) -> Vec<u8> {
    let pat = section(&[0, 0xb0, 13, 0, 1, 0xc1, 0, 0, 0, 1, 0xf0, 0]);
    let mut pmt = vec![2, 0xb0, 23, 0, 1, 0xc1, 0, 0, 0xe1, 0, 0xf0, 0];
    pmt.extend([stream_type, 0xe1, 0x00, 0xf0, 0, 0x0f, 0xe1, 0x01, 0xf0, 0]);
    [packet(0, true, 0, &pat), packet(0x1000, true, 0, &section(&pmt))].concat()
}

fn stamp(mark: u8, ticks: u64) -> [u8; 5] {
    let byte = |shift: u64| (ticks >> shift) as u8;
    [mark | byte(29) & 0x0e | 1, byte(22), byte(14) | 1, byte(7), byte(0) << 1 | 1]
}

/// The packets of a PES packet with PTS and DTS.
fn pes(pid: u16, counter: &mut u8, (pts, dts): (u64, u64), content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 1, 0xe0, 0, 0, 0x80, 0xc0, 10];
    bytes.extend(stamp(0x30, pts));
    bytes.extend(stamp(0x10, dts));
    bytes.extend(content);
    let mut packets = Vec::new();
    for (place, part) in bytes.chunks(PACKET - 4).enumerate() {
        packets.extend(packet(pid, place == 0, *counter, part));
        *counter = counter.wrapping_add(1);
    }
    packets
}

/// A NAL unit of H.264 with a slice: `slice_type` 0 P, 1 B, 2 I.
fn slice(is_idr: bool, reference: u8, slice_type: u8) -> Vec<u8> {
    let kind = if is_idr { 5 } else { 1 };
    // first_mb_in_slice 0, then the type in Exp-Golomb code.
    let header = [0b1100_0000, 0b1010_0000, 0b1011_0000][usize::from(slice_type)];
    [&[0, 0, 0, 1, reference << 5 | kind, header][..], &[0x55; 300]].concat()
}

/// A film whose time stamps wrap around: I0 P4 B2 b1 b3 P5, then an open group I9 b7 P10; sound beside.
fn film() -> Vec<u8> {
    let recovery = [0, 0, 1, 6, 6, 1, 0b1000_0000, 0x80];
    let pictures = [
        (0, slice(true, 3, 2)),
        (4, slice(false, 2, 0)),
        (2, slice(false, 1, 1)),
        (1, slice(false, 0, 1)),
        (3, slice(false, 0, 1)),
        (5, slice(false, 2, 2)),
        (6, slice(false, 2, 0)),
        (9, [&recovery[..], &slice(false, 3, 2)].concat()),
        (7, slice(false, 1, 1)),
        (10, slice(false, 2, 0)),
    ];
    let mut bytes = tables(0x1b);
    let (mut video, mut sound) = (0, 0);
    let base = (1 << 33) - 5 * 3_600;
    for (place, (shown, content)) in pictures.iter().enumerate() {
        let at = |place: u64| (base + place * 3_600) % (1 << 33);
        bytes.extend(pes(VIDEO, &mut video, (at(shown + 2), at(place as u64)), content));
        let aac = [0xff, 0xf1, 3 << 2, 0, 2, 0x1f, 0xfc, 1, 2, 3, 4, 5, 6, 7, 8, 9];
        let now = at(place as u64);
        bytes.extend(pes(SOUND, &mut sound, (now, now), &aac));
    }
    bytes
}

#[test]
fn a_film_is_told_with_its_chains_across_a_wrap_of_its_clock() {
    let (table, untold) = FrameTable::from_transport_stream(&film()).expect("a film");
    assert_eq!(untold, Vec::<String>::new());
    assert_eq!((table.codec, table.check()), (Codec::H264, Ok(())));
    assert_eq!(table.period, Duration::from_millis(400));
    // Every second frame is sound.
    let shown: Vec<String> = table
        .frames
        .chunks(2)
        .enumerate()
        .map(|(place, pair)| {
            assert_eq!(pair[0].made, Duration::from_millis(40 * place as u64));
            assert_eq!(
                (pair[1].made, pair[1].kind, pair[1].size),
                (pair[0].made, FrameKind::Sound, 16)
            );
            let on: Vec<String> =
                pair[0].depends_on.iter().map(|on| (on / 2).to_string()).collect();
            format!("{}{}", &pair[0].kind.name()[..1], on.join(","))
        })
        .collect();
    // The P picture behind the I picture that is no key depends on both; the leading picture of the open
    // group on both sides; the one after it on nothing before.
    assert_eq!(shown.join(" "), "k r0 r0,1 d0,2 d1,2 r r2,5 k r6,7 r7");
    assert_eq!(table.frames[0].size, 306);
    assert_eq!(table.frames[14].size, 314);
}

#[test]
fn what_is_no_film_says_why() {
    let whole = film();
    let error = |bytes: &[u8]| FrameTable::from_transport_stream(bytes).expect_err("an error");
    assert_eq!(error(&[]), FilmError::NoStream(0));
    assert_eq!(error(b"RIFF0000WAVE"), FilmError::NoPacket(0));
    assert_eq!(error(&[0; 3 * PACKET]), FilmError::NoPacket(0));
    assert!(error(&[0; 3 * PACKET]).to_string().contains("192 with 4 bytes before each (M2TS)"));
    // Beyond the bound: every fourth packet is damaged.
    let mut damaged = whole.clone();
    damaged.chunks_mut(PACKET).skip(3).step_by(4).for_each(|packet| packet[0] = 0);
    assert!(matches!(error(&damaged), FilmError::NoPacket(1..)), "{:?}", error(&damaged));
    assert_eq!(error(&tables(0x1b)), FilmError::NoPictures);
    assert_eq!(error(&tables(0x0f)), FilmError::NoStream(2));
    let mut scrambled = whole.clone();
    scrambled
        .chunks_mut(PACKET)
        .filter(|one| one[2] == 0 && one[1] & 0x1f == 1)
        .for_each(|one| one[3] |= 0x80);
    assert_eq!(error(&scrambled), FilmError::Scrambled);
    let first = 2 * PACKET;
    let big = tables(0x1b).into_iter().chain(whole[first..first + PACKET].iter().copied());
    let mut big: Vec<u8> = big.collect();
    let filled = packet(VIDEO, false, 0, &[7; 184]);
    for counter in 1..95_000u32 {
        big.extend(&filled);
        let at = big.len() - PACKET + 3;
        big[at] = 0x10 | counter as u8 & 0x0f;
    }
    assert!(matches!(error(&big), FilmError::TooLarge(17_000_000..)), "{:?}", error(&big));
}

#[test]
fn what_is_missing_is_told() {
    let whole = film();
    let read = |bytes: &[u8]| FrameTable::from_transport_stream(bytes).expect("a film");
    // The second packet of the first picture.
    let lost = [&whole[..3 * PACKET], &whole[4 * PACKET..]].concat();
    let (table, untold) = read(&lost);
    assert!(untold.len() == 1 && untold[0].contains("packets are missing"), "{untold:?}");
    assert!(table.frames[0].size < 306);
    // A packet that comes twice counts once (section 2.4.3.3).
    let twice = [&whole[..4 * PACKET], &whole[3 * PACKET..]].concat();
    assert_eq!(read(&twice), read(&whole));
    let (table, untold) = read(&[tables(0x02), whole[2 * PACKET..].to_vec()].concat());
    assert_eq!((table.codec, untold.len()), (Codec::Unknown, 2), "{untold:?}");
    assert_eq!(table.frames[4].depends_on, [2], "each on the one before");
}

#[test]
fn any_damage_gives_a_valid_table_or_an_error() {
    let mut random = RandomStream::new(1, "damaged films");
    let mut below = |most: usize| (random.next_u64() % most as u64) as usize;
    let (mut read, whole) = (0, film());
    for round in 0..4_000 {
        let mut bytes = whole.clone();
        let types = [0x1b, 0x24, 0x02, 0x42];
        bytes.splice(..2 * PACKET, tables(types[round % 4]));
        for _ in 0..below(30) {
            let at = below(bytes.len());
            // Most damage spares the sync bytes.
            if at % PACKET != 0 || below(20) == 0 {
                bytes[at] = below(256) as u8;
            }
        }
        if below(4) == 0 {
            bytes.drain(below(bytes.len() / PACKET) * PACKET..);
        }
        if let Ok((table, _)) = FrameTable::from_transport_stream(&bytes) {
            assert_eq!(table.check(), Ok(()));
            read += 1;
        }
    }
    assert!((1_000..3_900).contains(&read), "{read} of 4,000 are still films");
}

#[test]
fn slices_of_any_bytes_are_marks_or_none() {
    let mut random = RandomStream::new(2, "slices");
    let mut found = 0;
    for codec in [Codec::H264, Codec::Hevc] {
        let mut reader = MarkReader::new(codec);
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            for _ in 0..1 + random.next_u64() % 4 {
                bytes.extend([0, 0, 1]);
                let length = random.next_u64() % 24;
                bytes.extend(
                    (0..length).map(|_| (random.next_u64() >> (random.next_u64() % 60)) as u8),
                );
            }
            let Some(marks) = reader.read(&bytes, false) else { continue };
            found += 1;
            assert!(!marks.is_key || marks.refers == Refers::Nothing);
            assert!(marks.layer < 7);
        }
    }
    assert!(found > 4_000, "{found}");
}

/// All units of these packets, taken in datagrams of up to seven.
fn units(demultiplexer: &mut LiveDemultiplexer, bytes: &[u8]) -> Vec<AccessUnit> {
    let mut units = Vec::new();
    bytes.chunks(7 * PACKET).for_each(|datagram| demultiplexer.push(datagram, &mut units));
    units
}

fn pictures(units: &[AccessUnit]) -> Vec<&AccessUnit> {
    units.iter().filter(|unit| !unit.coding.is_sound).collect()
}

#[test]
fn a_live_film_gives_each_picture_and_each_frame_of_sound_with_its_last_packet() {
    let mut demultiplexer = LiveDemultiplexer::new();
    let units = units(&mut demultiplexer, &film());
    let sound: Vec<&AccessUnit> = units.iter().filter(|unit| unit.coding.is_sound).collect();
    let pictures = pictures(&units);
    assert_eq!((pictures.len(), sound.len()), (10, 10), "nothing waits for what comes next");
    let keys: Vec<bool> = pictures.iter().map(|unit| unit.is_key).collect();
    assert_eq!(keys.iter().position(|key| *key), Some(0));
    assert_eq!((keys[7], keys.iter().filter(|key| **key).count()), (true, 2));
    let disposable: Vec<bool> = pictures.iter().map(|unit| unit.is_disposable).collect();
    assert_eq!(disposable.iter().filter(|one| **one).count(), 2, "b1 and b3");
    // Times go on across the wrap of the clock: the pictures as they are shown, after two frames.
    let first = sound[0].shown;
    let shown: Vec<u64> =
        pictures.iter().map(|unit| (unit.shown - first).as_nanos() / 40_000_000).collect();
    assert_eq!(shown, [2, 6, 4, 3, 5, 7, 8, 11, 9, 12]);
    assert!(units.iter().all(|unit| unit.timeline == 0 && !unit.is_damaged));
    assert!(pictures[0].bytes.starts_with(&[0, 0, 0, 1, 0x65]) && sound[0].bytes.len() == 16);
    assert_eq!(demultiplexer.foreign(), 0);
}

#[test]
fn a_live_film_in_rtp_is_the_same() {
    let (mut plain, mut packed) = (LiveDemultiplexer::new(), LiveDemultiplexer::new());
    let mut in_rtp = Vec::new();
    for datagram in film().chunks(7 * PACKET) {
        let header = [0x80, rtp::TRANSPORT_STREAM, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        packed.push(&[&header[..], datagram].concat(), &mut in_rtp);
    }
    assert_eq!(in_rtp, units(&mut plain, &film()));
}

#[test]
fn a_live_picture_with_a_missing_packet_is_damaged_and_no_other() {
    let film = film();
    let whole = units(&mut LiveDemultiplexer::new(), &film);
    // The second packet of the first picture, whose last packet is its third or later.
    let cut = [&film[..3 * PACKET], &film[4 * PACKET..]].concat();
    let damaged = units(&mut LiveDemultiplexer::new(), &cut);
    let (whole, damaged) = (pictures(&whole), pictures(&damaged));
    assert_eq!((damaged.len(), damaged[0].is_damaged), (whole.len(), true));
    assert_eq!(damaged[1..], whole[1..]);
}

#[test]
fn a_jump_of_the_clock_begins_a_timeline_for_pictures_and_sound_together() {
    let mut demultiplexer = LiveDemultiplexer::new();
    let before = units(&mut demultiplexer, &film());
    let mut later = tables(0x1b);
    let (mut video, mut sound) = (100, 100);
    for place in 0..3 {
        let at = 50_000_000 + place * 3_600;
        later.extend(pes(VIDEO, &mut video, (at, at), &slice(place == 0, 2, 0)));
        let aac = [0xff, 0xf1, 3 << 2, 0, 2, 0x1f, 0xfc, 1, 2, 3, 4, 5, 6, 7, 8, 9];
        later.extend(pes(SOUND, &mut sound, (at, at), &aac));
    }
    let after = units(&mut demultiplexer, &later);
    assert_eq!(after.len(), 6);
    assert!(before.iter().all(|unit| unit.timeline == 0));
    assert!(after.iter().all(|unit| unit.timeline == 1));
    for pair in after.chunks(2) {
        assert_eq!(pair[0].shown, pair[1].shown, "in step");
    }
}

#[test]
fn where_stuffing_is_amid_a_picture_the_next_one_ends_it_from_then_on() {
    let mut counter = 0;
    let mut bytes = tables(0x1b);
    for place in 0..4u64 {
        let content = slice(place == 0, 2, 0);
        let mut packets = pes(VIDEO, &mut counter, (place * 3_600, place * 3_600), &content);
        // A further packet after the stuffed one.
        packets.extend(packet(VIDEO, false, counter, &[0x55; 100]));
        counter = counter.wrapping_add(1);
        bytes.extend(packets);
    }
    let units = units(&mut LiveDemultiplexer::new(), &bytes);
    let sizes: Vec<usize> = units.iter().map(|unit| unit.bytes.len()).collect();
    // The first is taken too early, the last is still open.
    assert_eq!(sizes, [306, 406, 406]);
}

#[test]
fn no_bytes_make_a_live_stream_fail_or_hold_more_than_its_bound() {
    let mut random = RandomStream::new(1, "live");
    let mut demultiplexer = LiveDemultiplexer::new();
    let film = film();
    for round in 0..300 {
        let mut bytes = film.clone();
        for _ in 0..round % 40 {
            let at = (random.next_u64() % bytes.len() as u64) as usize;
            bytes[at] = random.next_u64() as u8;
        }
        for unit in units(&mut demultiplexer, &bytes) {
            assert!(unit.bytes.len() <= demultiplexer::MAX_LIVE_PES + PACKET);
        }
    }
    units(&mut demultiplexer, &[0; 1_000]);
    assert!(demultiplexer.foreign() > 0);
}

#[test]
fn a_film_that_is_cut_or_damaged_is_read_and_that_is_said() {
    let whole = film();
    let read = |bytes: &[u8]| FrameTable::from_transport_stream(bytes).expect("a film");
    let all = read(&whole).0.frames.len();
    // Within the last packet, which has a frame of sound.
    let (table, untold) = read(&whole[..whole.len() - 50]);
    assert_eq!(table.frames.len(), all - 1);
    assert_eq!(untold, ["bytes of a packet that is cut at the end, left out: 138"]);
    // One sync byte, of the first picture's second packet; what it begins is still there.
    let mut damaged = whole.clone();
    damaged[3 * PACKET] = 0;
    let (table, untold) = read(&damaged);
    assert_eq!(table.frames.len(), all);
    assert_eq!(untold.len(), 2, "{untold:?}");
    assert_eq!(untold[0], "places where no packet begins, whose bytes are left out (188 bytes): 1");
    // The beginning of a packet is missing, at the beginning of the stream and in its middle.
    let twice = [&whole[..], &whole[2 * PACKET..]].concat();
    let (table, untold) = read(&[&whole[99..PACKET], &twice].concat());
    assert_eq!((table.frames.len(), table.codec), (2 * all, Codec::H264));
    assert!(untold[0].contains("(89 bytes): 1"), "{untold:?}");
    let (table, untold) = read(&[&twice[..8 * PACKET], &twice[8 * PACKET + 50..]].concat());
    assert!(table.frames.len() >= 2 * all - 1);
    assert!(untold[0].contains("(138 bytes): 1"), "{untold:?}");
}

#[test]
fn packets_with_arrival_times_or_parity_are_those_between() {
    let whole = film();
    let read = |bytes: &[u8]| FrameTable::from_transport_stream(bytes);
    let (table, _) = read(&whole).expect("a film");
    for (head, tail) in [(4, 0), (0, 16)] {
        let other = |packet: &[u8]| [&vec![0x11; head], packet, &vec![0x22; tail]].concat();
        let packets: Vec<Vec<u8>> = whole.chunks(PACKET).map(other).collect();
        let bytes = packets.concat();
        assert!(!begins_transport_stream(&bytes));
        assert_eq!(read(&bytes), Ok((table.clone(), vec![])), "{head} {tail}");
        // The last packet without its parity is whole; otherwise it is cut.
        let (_, untold) = read(&bytes[..bytes.len() - 10]).expect("a film");
        assert_eq!(untold.len(), usize::from(head > 0), "{untold:?}");
        // Some bytes are missing in the first picture.
        let lost = [&bytes[..700], &bytes[760..]].concat();
        let (again, untold) = read(&lost).expect("a film");
        assert_eq!((again.frames.len(), untold.len()), (table.frames.len(), 2), "{untold:?}");
        let skipped = format!("({} bytes): 1", PACKET + head + tail - 60);
        assert!(untold[0].contains(&skipped), "{untold:?}");
    }
    // Sync bytes in the payload of another file do not make it one.
    let pictures: Vec<u8> = (0..9_000_u32).map(|at| if at % 192 == 8 { 0x47 } else { 0 }).collect();
    assert!(!begins_transport_stream(&pictures) && !begins_transport_stream(b"GIF89a"));
    assert!(begins_transport_stream(&whole) && begins_transport_stream(&whole[..1_000]));
}

#[test]
fn the_share_of_stuffing_is_that_of_the_packets_that_are_found() {
    let null = packet(ts::FILLER, false, 0, &[0xff; 184]);
    let stream: Vec<u8> = film().chunks(PACKET).flat_map(|one| [one, &null].concat()).collect();
    let whole = stuffing_share(&stream);
    assert!((whole - 0.5).abs() < 1e-9, "{whole}");
    let cut = stuffing_share(&[&stream[..500], &stream[510..]].concat());
    assert!((cut - whole).abs() < 0.02, "{cut}");
    assert!(stuffing_share(&[]) == 0.0);
}

#[test]
fn a_film_of_which_most_packets_are_scrambled_is_refused_and_a_few_are_damage() {
    let whole = film();
    let read = |bytes: &[u8]| FrameTable::from_transport_stream(bytes);
    let of_pictures = |packet: &[u8]| packet[2] == 0 && packet[1] & 0x1f == 1;
    let places = (0..whole.len()).step_by(PACKET).filter(|at| of_pictures(&whole[*at..]));
    let places: Vec<usize> = places.collect();
    let (table, _) = read(&whole).expect("a film");
    for at in &places {
        let mut one = whole.clone();
        one[at + 3] ^= 0x80;
        let untold = vec![
            "packets that say that they are scrambled, which are taken as they are: 1".to_owned(),
        ];
        assert_eq!(read(&one), Ok((table.clone(), untold)));
    }
    let scrambled = |count: usize| {
        let mut bytes = whole.clone();
        places[..count].iter().for_each(|at| bytes[at + 3] |= 0x80);
        read(&bytes)
    };
    assert!(scrambled(places.len() / 2).is_ok());
    assert_eq!(scrambled(places.len() / 2 + 1), Err(FilmError::Scrambled));
}
