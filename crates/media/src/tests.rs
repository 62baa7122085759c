//! Whatever is cut is put back the same; and a real stream of a real encoder is.

use std::path::PathBuf;
use std::process::Command;

use ontempo_foundation::{Duration, Time};
use proptest::prelude::*;

use super::*;

mod damaged;
mod elementary;
mod repeated;
mod stuffing;
mod timing;
mod waiting;

use stuffing::null;

fn at(micros: u64) -> Time {
    Time::from_nanos(micros * 1_000)
}

/// Cuts datagrams that come 100 us apart; each unit is written and read again on its way.
fn cut(datagrams: &[Vec<u8>], options: PacketizerOptions) -> Vec<Unit> {
    let (mut packetizer, mut units) = (Packetizer::new(options), Vec::new());
    for (place, datagram) in datagrams.iter().enumerate() {
        let now = at(1_000 + place as u64 * 100);
        while packetizer.next_timeout() <= now {
            let due = packetizer.next_timeout();
            packetizer.handle_timeout(due);
        }
        packetizer.push(now, datagram);
        units.extend(std::iter::from_fn(|| packetizer.poll()));
        assert!(packetizer.held() <= 64 * (options.max_bytes + 65_535), "{}", packetizer.held());
    }
    packetizer.finish();
    units.extend(std::iter::from_fn(|| packetizer.poll()));
    for unit in &units {
        let mut bytes = Vec::new();
        unit.write(&mut bytes);
        assert_eq!(Unit::read(unit.id, &bytes), Ok(carried(unit)));
        assert!(unit.continues.is_none_or(|continued| unit.dependencies == [continued]));
        assert!(unit.dependencies.iter().all(|&dependency| dependency < unit.id));
    }
    units
}

/// A unit as it is read: what it depends on is the transport's to carry.
fn carried(unit: &Unit) -> Unit {
    Unit { continues: None, dependencies: vec![], ..unit.clone() }
}

/// Puts units back that all come at once; answers the datagrams in the order in which they leave.
fn joined(units: &[Unit], release: Release) -> Vec<RestoredDatagram> {
    let mut depacketizer =
        Depacketizer::new(DepacketizerOptions { release, ..DepacketizerOptions::default() });
    for unit in units {
        depacketizer.push(at(0), unit);
    }
    depacketizer.finish();
    let all: Vec<_> = std::iter::from_fn(|| depacketizer.poll(Time::NEVER)).collect();
    assert_eq!(depacketizer.waiting(), 0);
    all
}

/// One packet of a transport stream.
fn packet(pid: u16, begins: bool, adaptation: &[u8], payload: &[u8]) -> Vec<u8> {
    let room = ts::PACKET - 4 - payload.len();
    let mut bytes = vec![ts::SYNC, (pid >> 8) as u8 | if begins { 0x40 } else { 0 }, pid as u8];
    bytes.push(if room > 0 { 0x30 } else { 0x10 });
    if room > 0 {
        bytes.push((room - 1) as u8);
        bytes.extend(adaptation);
        bytes.resize(4 + room, 0xff);
        if adaptation.is_empty() && room > 1 {
            bytes[5] = 0;
        }
    }
    bytes.extend(payload);
    assert_eq!(bytes.len(), ts::PACKET);
    bytes
}

const VIDEO: u16 = 0x100;
const AUDIO: u16 = 0x101;
const PMT: u16 = 0x1000;

fn pat() -> Vec<u8> {
    packet(0, true, &[], &section(&[0, 0xb0, 13, 0, 1, 0xc1, 0, 0, 0, 1, 0xf0, 0]))
}

/// The payload of a packet in which this section begins, with its checksum.
fn section(bytes: &[u8]) -> Vec<u8> {
    [&[0], bytes, &crate::sections::checksum(bytes).to_be_bytes()].concat()
}

fn pmt() -> Vec<u8> {
    let mut table = vec![2, 0xb0, 23, 0, 1, 0xc1, 0, 0, 0xe1, 0, 0xf0, 0];
    table.extend([0x1b, 0xe1, 0x00, 0xf0, 0]);
    table.extend([0x0f, 0xe1, 0x01, 0xf0, 0]);
    packet(PMT, true, &[], &section(&table))
}

/// The first packet of a PES packet of `length` bytes (0: unknown), shown at `pts`.
fn pes(pid: u16, key: bool, length: u16, pts: u64, payload: usize) -> Vec<u8> {
    let mut bytes = vec![0, 0, 1, 0xe0];
    bytes.extend(length.to_be_bytes());
    bytes.extend([0x80, 0x80, 5]);
    bytes.push(0x21 | (pts >> 30) as u8 & 7 << 1);
    bytes.extend([
        (pts >> 22) as u8,
        (pts >> 15 << 1) as u8 | 1,
        (pts >> 7) as u8,
        (pts << 1) as u8 | 1,
    ]);
    bytes.resize(14 + payload, 7);
    // Random access, and a clock reference of 1 s.
    let pcr = 90_000u64;
    let mut adaptation = vec![if key { 0x50 } else { 0x10 }];
    adaptation.extend(((pcr >> 1) as u32).to_be_bytes());
    adaptation.extend([(pcr as u8 & 1) << 7 | 0x7e, 0]);
    packet(pid, true, &adaptation, &bytes)
}

fn more(pid: u16) -> Vec<u8> {
    packet(pid, false, &[], &[9; 184])
}

fn kinds(units: &[Unit]) -> Vec<(Kind, usize)> {
    units.iter().map(|unit| (unit.kind, unit.data.len() / ts::PACKET)).collect()
}

#[test]
fn a_transport_stream_is_cut_at_tables_keyframes_frames_and_sound() {
    let datagrams = [
        [pat(), pmt(), pes(VIDEO, true, 0, 180_000, 100)].concat(),
        [more(VIDEO), pes(AUDIO, true, 108, 135_000, 100), more(VIDEO)].concat(),
        [pes(VIDEO, false, 0, 183_600, 100), packet(0x1fff, false, &[], &[0; 184])].concat(),
    ];
    let mut units = cut(&datagrams, PacketizerOptions::default());
    assert_eq!(
        joined(&units, Release::InOrder).into_iter().map(|j| j.data).collect::<Vec<_>>(),
        datagrams
    );
    units.sort_by_key(|unit| unit.id);
    assert_eq!(
        kinds(&units),
        [(Kind::Tables, 2), (Kind::Key, 3), (Kind::Sound, 1), (Kind::Frame, 1)]
    );
    let needs: Vec<_> = units.iter().map(|unit| unit.dependencies.clone()).collect();
    assert_eq!(needs, [vec![], vec![0], vec![0], vec![0, 1]]);
    let nulls = units[3].parts.iter().flat_map(|part| &part.stuffing);
    assert_eq!(nulls.map(|null| null.packets).sum::<u16>(), 1, "described beside the frame");
    assert_eq!(units[1].media_time, Some(Duration::from_secs(2)));
    assert_eq!(units[1].slack, Some(Duration::from_secs(1)));
    assert_eq!(units[3].media_time, Some(Duration::from_millis(2_040)));
    assert!(Kind::Tables.priority() > Kind::Key.priority());
    assert!(Kind::Key.priority() > Kind::Frame.priority());
}

#[test]
fn a_lost_frame_leaves_the_sound_in_the_same_datagrams_whole() {
    let datagrams = [
        [pat(), pmt()].concat(),
        [pes(VIDEO, true, 0, 0, 100), pes(AUDIO, true, 108, 0, 100), more(VIDEO)].concat(),
    ];
    let mut units = cut(&datagrams, PacketizerOptions::default());
    units.retain(|unit| unit.kind != Kind::Key);
    let all = joined(&units, Release::AsArrived { delay: Duration::ZERO, grace: Duration::ZERO });
    assert_eq!((all.len(), all[0].is_whole, all[1].is_whole), (2, true, false));
    assert_eq!(all[1].data, datagrams[1][188..376]);
}

#[test]
fn a_unit_whose_end_does_not_come_is_handed_on_and_what_follows_continues_it() {
    let options = PacketizerOptions {
        hold: Duration::from_micros(250),
        gathering: Gathering::NONE,
        ..PacketizerOptions::default()
    };
    let mut datagrams = vec![[pat(), pmt(), pes(VIDEO, true, 0, 0, 100)].concat()];
    datagrams.extend((0..5).map(|_| more(VIDEO)));
    let units = cut(&datagrams, options);
    assert_eq!(kinds(&units), [(Kind::Tables, 2), (Kind::Key, 3), (Kind::Key, 3)]);
    assert_eq!((units[2].continues, units[2].dependencies.as_slice()), (Some(1), [1].as_slice()));
    let each = PacketizerOptions { hold: Duration::ZERO, ..options };
    assert_eq!(cut(&datagrams, each).len(), 7, "a unit a datagram, and the tables");
}

#[test]
fn packets_with_parity_are_packets_of_a_transport_stream() {
    let mut datagram = Vec::new();
    for packet in [pat(), pmt(), pes(VIDEO, true, 0, 0, 100)] {
        datagram.extend(packet);
        datagram.extend([0x47; 16]);
    }
    let units = cut(&[datagram.clone()], PacketizerOptions::default());
    assert_eq!(units.iter().map(|unit| unit.kind).collect::<Vec<_>>(), [Kind::Tables, Kind::Key]);
    assert_eq!(joined(&units, Release::InOrder)[0].data, datagram);
}

fn rtp(sequence: u16, timestamp: u32, marker: bool, ssrc: u32) -> Vec<u8> {
    let mut bytes = vec![0x80, 96 | u8::from(marker) << 7];
    bytes.extend(sequence.to_be_bytes());
    bytes.extend(timestamp.to_be_bytes());
    bytes.extend(ssrc.to_be_bytes());
    bytes.extend([sequence as u8; 50]);
    bytes
}

/// Which datagrams each unit has, in the order of their ids.
fn members(units: &[Unit]) -> Vec<Vec<u64>> {
    let mut units: Vec<_> = units.iter().collect();
    units.sort_by_key(|unit| unit.id);
    units.iter().map(|unit| unit.parts.iter().map(|part| part.datagram).collect()).collect()
}

#[test]
fn rtp_is_cut_by_timestamp_and_marker_across_the_wrap_of_its_numbers() {
    let datagrams = [
        rtp(65_534, u32::MAX - 100, false, 1),
        rtp(65_535, u32::MAX - 100, true, 1),
        rtp(0, 3_499, false, 1),
        rtp(1, 3_499, false, 1),
        rtp(2, 7_099, false, 1),
        rtp(900, 5, true, 2),
    ];
    let units = cut(&datagrams, PacketizerOptions::default());
    assert_eq!(members(&units), [vec![0, 1], vec![2, 3], vec![4], vec![5]]);
    let times: Vec<_> = units.iter().map(|unit| unit.media_time).collect();
    assert!(times.contains(&Some(Duration::from_millis(40))), "{times:?}");
}

#[test]
fn a_packet_of_rtp_that_comes_late_joins_its_frame() {
    let datagrams = [
        rtp(10, 100, true, 1),
        rtp(11, 200, false, 1),
        rtp(13, 200, true, 1),
        rtp(14, 300, false, 1),
        rtp(12, 200, false, 1),
        rtp(15, 300, true, 1),
    ];
    let units = cut(&datagrams, PacketizerOptions::default());
    assert_eq!(members(&units), [vec![0], vec![1, 2, 4], vec![3, 5]]);
    let back = joined(&units, Release::InOrder).into_iter().map(|one| one.data);
    assert!(back.eq(datagrams), "in the order in which they came");
}

#[test]
fn what_is_missing_is_waited_for_until_the_grace_is_over_unless_nothing_will_come_of_it() {
    let datagrams: Vec<_> = (0..5u8).map(|byte| vec![byte; 10]).collect();
    let units = cut(&datagrams, PacketizerOptions::default());
    // When the second datagram arrives, us; which are left, and when.
    let left = |second: Option<u64>, is_absent: bool| {
        let (delay, grace) = (Duration::from_millis(5), Duration::from_millis(20));
        let release = Release::AsArrived { delay, grace };
        let options = DepacketizerOptions { release, ..DepacketizerOptions::default() };
        let mut depacketizer = Depacketizer::new(options);
        let arrivals = [(0, Some(0)), (2, Some(2_000)), (3, Some(3_000)), (1, second)];
        let mut left = Vec::new();
        for (unit, now) in arrivals.into_iter().filter_map(|(unit, now)| Some((unit, now?))) {
            while depacketizer.next_timeout() <= at(now) {
                let due = depacketizer.next_timeout();
                left.extend(depacketizer.poll(due).map(|one| (one.datagram, due)));
            }
            depacketizer.push(at(now), &units[unit]);
            if is_absent {
                depacketizer.abandon(1);
            }
        }
        let mut now = second.map_or(Time::ZERO, at);
        while depacketizer.next_timeout() < Time::NEVER {
            now = now.max(depacketizer.next_timeout());
            left.extend(depacketizer.poll(now).map(|one| (one.datagram, now)));
        }
        left
    };
    let (first, late) = ((0, at(5_000)), at(15_000));
    assert_eq!(left(Some(15_000), false), [first, (1, late), (2, late), (3, late)]);
    assert_eq!(left(None, false), [first, (2, at(25_200)), (3, at(25_200))]);
    assert_eq!(left(None, true), [first, (2, at(5_200)), (3, at(5_300))]);
}

#[test]
fn datagrams_leave_at_the_distances_at_which_they_came() {
    let datagrams: Vec<_> = (0..4u8).map(|byte| vec![byte; 10]).collect();
    let units = cut(&datagrams, PacketizerOptions::default());
    let delay = Duration::from_millis(5);
    let release = Release::AsArrived { delay, grace: Duration::ZERO };
    let mut depacketizer =
        Depacketizer::new(DepacketizerOptions { release, ..DepacketizerOptions::default() });
    // The clocks are 1 s apart; the second and third are overtaken by the fourth.
    let mut left = Vec::new();
    for (unit, now) in [(0, 1_003_000), (3, 1_003_300), (2, 1_007_000), (1, 1_009_100)] {
        while depacketizer.next_timeout() <= at(now) {
            let due = depacketizer.next_timeout();
            left.extend(depacketizer.poll(due).map(|one| (one.datagram, due)));
        }
        depacketizer.push(at(now), &units[unit]);
    }
    while depacketizer.next_timeout() < Time::NEVER {
        let due = depacketizer.next_timeout();
        left.extend(depacketizer.poll(due).map(|one| (one.datagram, due)));
    }
    // 1 came after its time: 2 and 3 have left.
    assert_eq!(left, [(0, at(1_008_000)), (2, at(1_008_200)), (3, at(1_008_300))]);
    assert_eq!(depacketizer.statistics().late, 1);
}

#[test]
fn waiting_bytes_are_bounded_and_the_oldest_leave_first() {
    let datagrams: Vec<_> = (0..100u8).map(|byte| vec![byte; 1_000]).collect();
    let mut units = cut(&datagrams, PacketizerOptions::default());
    units.remove(0);
    let options = DepacketizerOptions { release: Release::InOrder, max_bytes: 20_000 };
    let (mut depacketizer, mut left) = (Depacketizer::new(options), Vec::new());
    for unit in &units {
        depacketizer.push(at(0), unit);
        left.extend(std::iter::from_fn(|| depacketizer.poll(at(0))).map(|one| one.datagram));
        assert!(depacketizer.waiting() <= 20_000);
    }
    assert!(left.iter().copied().eq(1..100), "{left:?}");
    assert_eq!(depacketizer.statistics().forced, 1, "after that they are in order again");
}

#[test]
fn pieces_that_contradict_each_other_are_counted_and_left_out() {
    let unit = |datagram, length, offset, data: &[u8]| Unit {
        id: 0,
        kind: Kind::Other,
        media_time: None,
        slack: None,
        continues: None,
        dependencies: vec![],
        parts: vec![Part {
            datagram,
            length,
            arrived: at(0),
            spans: vec![Span { offset, length: data.len() as u16 }],
            stuffing: vec![],
        }],
        data: data.to_vec(),
    };
    let units =
        [unit(0, 4, 0, b"ab"), unit(0, 4, 1, b"xx"), unit(0, 9, 2, b"yy"), unit(0, 4, 2, b"cd")];
    let mut depacketizer = Depacketizer::new(DepacketizerOptions {
        release: Release::InOrder,
        ..DepacketizerOptions::default()
    });
    units.iter().for_each(|unit| depacketizer.push(at(0), unit));
    assert_eq!(depacketizer.poll(at(0)).expect("whole").data, b"abcd");
    assert_eq!(depacketizer.statistics().conflicting, 2);
}

/// Datagrams of any kind: stream packets with random headers, RTP, noise.
fn any_datagram() -> impl Strategy<Value = Vec<u8>> {
    let packet = (0u16..6, any::<[u8; 24]>(), any::<bool>()).prop_map(|(pid, noise, begins)| {
        let pid = [0, VIDEO, AUDIO, PMT, 0x1fff, 0x11][usize::from(pid)];
        let mut bytes = vec![ts::SYNC, (pid >> 8) as u8 | u8::from(begins) << 6, pid as u8];
        bytes.extend(noise);
        bytes.resize(ts::PACKET, 1);
        bytes
    });
    let packets = proptest::collection::vec(packet, 1..8).prop_map(|all| all.concat());
    let known = (0usize..3).prop_map(|which| match which {
        0 => [pat(), pmt()].concat(),
        1 => [pes(VIDEO, true, 0, 90_000, 100), more(AUDIO)].concat(),
        _ => [more(VIDEO), pes(AUDIO, false, 108, 5, 100)].concat(),
    });
    let null = (0u8..5, 0u8..16).prop_map(|(fill, counter)| null(counter, fill));
    let nulls = proptest::collection::vec(
        prop_oneof![
            3 => null,
            1 => Just(more(VIDEO)),
            1 => Just(counted(3, 9)),
        ],
        1..9,
    );
    let stuffed = (nulls, 0usize..3).prop_map(|(packets, kind)| match kind {
        0 => packets.concat(),
        1 => [rtp(7, 7, false, 7)[..12].to_vec(), packets.concat()].concat(),
        _ => packets.iter().flat_map(|packet| [&packet[..], &[0; 16]].concat()).collect(),
    });
    let frame = (0u16..30, 0u32..5, any::<bool>(), 0u32..3)
        .prop_map(|(sequence, time, marker, ssrc)| rtp(sequence, time, marker, ssrc));
    let noise = proptest::collection::vec(any::<u8>(), 0..400);
    prop_oneof![packets, known, stuffed, frame, noise]
}

/// A packet of sound with this continuity counter.
fn counted(counter: u8, payload: u8) -> Vec<u8> {
    let mut bytes = packet(AUDIO, false, &[], &[payload; 100]);
    bytes[3] |= counter;
    bytes
}

#[test]
fn an_index_lists_units_with_the_packets_that_carry_them() {
    let no_payload = packet(VIDEO, false, &[], &[]);
    let stream = [
        more(VIDEO), // before the first start: no unit
        pat(),
        pmt(),
        pes(VIDEO, true, 0, 90_000, 100),
        pes(AUDIO, false, 108, 5, 100),
        more(VIDEO),
        no_payload,
        pes(VIDEO, false, 0, 93_600, 100),
    ];
    let index = TransportStreamIndex::read(&stream.concat()).expect("a stream");
    let units: Vec<_> =
        index.units.iter().map(|unit| (unit.kind, unit.pid, unit.packets.clone())).collect();
    assert_eq!(
        units,
        [
            (Kind::Tables, 0, vec![1, 2]),
            (Kind::Key, VIDEO, vec![3, 5]),
            (Kind::Sound, AUDIO, vec![4]),
            (Kind::Frame, VIDEO, vec![7]),
        ]
    );
    assert_eq!(index.units[1].media_time, Some(Duration::from_secs(1)));
    assert_eq!((index.packets, index.due.len()), (8, 8));
}

#[test]
fn continuity_errors_are_found_where_the_counter_jumps() {
    let counters = [14, 15, 0, 0, 2, 3, 3, 3];
    let mut stream: Vec<_> = counters.iter().map(|&counter| counted(counter, counter)).collect();
    // A packet without payload does not count; stuffing never does.
    let mut no_payload = packet(AUDIO, false, &[], &[]);
    no_payload[3] = 0x23;
    stream.push(no_payload);
    stream.push(packet(0x1fff, false, &[], &[7; 184]));
    stream.push(counted(9, 9));
    let mut jump = packet(AUDIO, false, &[0x80], &[9; 100]);
    jump[3] |= 1;
    stream.push(jump);
    let index = TransportStreamIndex::read(&stream.concat()).expect("a stream");
    assert!(index.due.is_empty(), "without clock references nothing is due");
    assert_eq!(index.continuity_errors, [4, 7, 10], "missing; sent a third time; missing");
}

proptest! {
    #[test]
    fn cut_and_joined_in_any_order_is_the_same(
        datagrams in proptest::collection::vec(any_datagram(), 0..60),
        hold in 0u64..2_000, max_bytes in 1usize..3_000, seed in any::<u64>(),
    ) {
        let options =
            PacketizerOptions { hold: Duration::from_micros(hold), max_bytes, ..Default::default() };
        let mut units = cut(&datagrams, options);
        let mut random = ontempo_foundation::RandomStream::new(seed, "order");
        for place in (1..units.len()).rev() {
            units.swap(place, (random.next_u64() % (place as u64 + 1)) as usize);
        }
        for release in [Release::InOrder, Release::AsArrived { delay: Duration::ZERO, grace: Duration::ZERO }] {
            let all = joined(&units, release);
            prop_assert!(all.iter().all(|one| one.is_whole));
            let all: Vec<_> = all.into_iter().map(|one| one.data).collect();
            prop_assert_eq!(&all, &datagrams);
        }
        let mut all = joined(&units, Release::WhenWhole);
        all.sort_by_key(|one| one.datagram);
        let all: Vec<_> = all.into_iter().map(|one| one.data).collect();
        prop_assert_eq!(&all, &datagrams);
    }

    #[test]
    fn any_bytes_are_a_unit_or_refused_and_join_without_panic(
        bytes in proptest::collection::vec(prop_oneof![0u8..5, any::<u8>()], 0..60)
    ) {
        if let Ok(unit) = Unit::read(7, &bytes) {
            let mut again = Vec::new();
            unit.write(&mut again);
            prop_assert_eq!(Unit::read(7, &again), Ok(unit.clone()));
            for release in [Release::InOrder, Release::WhenWhole] {
                joined(&[unit.clone(), unit.clone()], release);
            }
        }
    }

    #[test]
    fn a_stream_of_bytes_chopped_is_the_same_bytes(
        parts in proptest::collection::vec(any_datagram(), 0..20),
        at_once in 1usize..2_000, size in 1u16..2_000,
    ) {
        let bytes = parts.concat();
        let (mut chunker, mut out, mut clock) = (Chunker::new(size), Vec::new(), PcrClock::default());
        for some in bytes.chunks(at_once) {
            chunker.push(some);
            while let Some(datagram) = chunker.poll() {
                prop_assert!(!datagram.is_empty());
                clock.due(datagram);
                out.extend_from_slice(datagram);
            }
        }
        chunker.finish();
        while let Some(datagram) = chunker.poll() {
            out.extend_from_slice(datagram);
        }
        prop_assert_eq!(out, bytes);
    }
}

/// A transport stream of three seconds of pictures and sound; `None` without ffmpeg.
fn encoded() -> Option<(PathBuf, Vec<u8>)> {
    let file = std::env::temp_dir().join(format!("ontempo-media-{}.ts", std::process::id()));
    let made = Command::new("ffmpeg")
        .args(["-y", "-loglevel", "error", "-f", "lavfi", "-i", "testsrc2=size=320x240:rate=25"])
        .args(["-f", "lavfi", "-i", "sine", "-t", "3", "-c:v", "mpeg2video", "-g", "25"])
        .args(["-c:a", "mp2", "-f", "mpegts"])
        .arg(&file)
        .status();
    if !made.is_ok_and(|status| status.success()) {
        ontempo_testing::record_skip("no ffmpeg that makes MPEG-2 video");
        return None;
    }
    let bytes = std::fs::read(&file).expect("what ffmpeg has written");
    Some((file, bytes))
}

fn count_frames(file: &PathBuf) -> Option<String> {
    let output = Command::new("ffprobe")
        .args(["-loglevel", "error", "-count_frames", "-select_streams", "v"])
        .args(["-show_entries", "stream=nb_read_frames", "-of", "default=nk=1:nw=1"])
        .arg(file)
        .output();
    let text = String::from_utf8(output.ok()?.stdout).ok()?;
    text.split_whitespace().next().map(str::to_owned)
}

#[test]
fn a_real_stream_is_cut_into_its_frames_and_decodes_after_it_is_joined() {
    let Some((file, bytes)) = encoded() else { return };
    let (mut chunker, mut clock) = (Chunker::new(1_316), PcrClock::default());
    chunker.push(&bytes);
    chunker.finish();
    let (mut datagrams, mut dues) = (Vec::new(), Vec::new());
    while let Some(datagram) = chunker.poll() {
        dues.push(clock.due(datagram));
        datagrams.push(datagram.to_vec());
    }
    assert!(dues.is_sorted());
    let last = dues.last().expect("many").as_secs_f64();
    assert!((2.0..4.0).contains(&last), "three seconds by its clock: {last}");
    // All at one time: nothing is cut for having waited.
    let options =
        PacketizerOptions { hold: Duration::from_secs(3_600), ..PacketizerOptions::default() };
    let units = cut(&datagrams, options);
    let count = |kind| units.iter().filter(|unit| unit.kind == kind).count();
    assert_eq!((count(Kind::Key), count(Kind::Frame)), (3, 72), "75 frames, a key each 25");
    assert!(count(Kind::Sound) > 10 && count(Kind::Tables) > 5);
    assert_eq!(count(Kind::Datagram), 0);
    assert!(units.iter().filter(|unit| unit.kind == Kind::Frame).all(|u| u.slack.is_some()));
    let back = joined(&units, Release::InOrder).into_iter().flat_map(|one| one.data);
    assert!(back.eq(bytes.iter().copied()), "the same bytes");
    // Without one frame that nothing needs, the file has one frame less, and still decodes.
    let last_frame = units.iter().rposition(|unit| unit.kind == Kind::Frame).expect("frames");
    let some: Vec<_> = units
        .iter()
        .enumerate()
        .filter(|(place, _)| *place != last_frame)
        .map(|(_, u)| u.clone())
        .collect();
    let back: Vec<_> =
        joined(&some, Release::AsArrived { delay: Duration::ZERO, grace: Duration::ZERO })
            .into_iter()
            .flat_map(|one| one.data)
            .collect();
    let whole = count_frames(&file);
    std::fs::write(&file, back).expect("written");
    let without = count_frames(&file);
    std::fs::remove_file(&file).expect("removed");
    let (Some(whole), Some(without)) = (whole, without) else {
        ontempo_testing::skip!("the program ffprobe is missing");
    };
    assert_eq!((whole.as_str(), without.as_str()), ("75", "74"));
}

#[test]
fn nothing_waits_for_a_datagram_that_will_not_come() {
    let units = cut(&[vec![1; 20], vec![2; 20], vec![3; 20]], PacketizerOptions::default());
    let options =
        DepacketizerOptions { release: Release::InOrder, ..DepacketizerOptions::default() };
    let mut depacketizer = Depacketizer::new(options);
    depacketizer.push(at(0), &units[0]);
    depacketizer.push(at(0), &units[2]);
    assert_eq!(depacketizer.poll(at(1)).map(|left| left.datagram), Some(0));
    assert_eq!(depacketizer.poll(at(1)), None);
    depacketizer.abandon(1);
    let left: Vec<_> = std::iter::from_fn(|| depacketizer.poll(at(2))).collect();
    assert_eq!(
        left.iter().map(|left| (left.datagram, left.is_whole)).collect::<Vec<_>>(),
        [(1, false), (2, true)]
    );
    assert_eq!(depacketizer.waiting(), 0);
}
