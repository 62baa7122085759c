//! Which streams the tables name, and which of them are the film.

use std::collections::BTreeMap;
use std::ops::Range;

use super::*;

/// The flags before a section's length, and the length.
fn section_length(bytes: usize) -> [u8; 2] {
    (0xb000 | bytes as u16).to_be_bytes()
}

/// A PAT that names these PMTs, and a PMT, as payloads; `version` is their version_number and current_next_indicator.
fn programs(version: u8, entries: &[(u16, u16)]) -> Vec<u8> {
    let [length_high, length] = section_length(9 + 4 * entries.len());
    let mut pat = vec![0, length_high, length, 0, 1, 0xc0 | version, 0, 0];
    for (program, pid) in entries {
        pat.extend([program.to_be_bytes(), (pid | 0xe000).to_be_bytes()].concat());
    }
    section(&pat)
}

fn program_map(version: u8, program: u16, streams: &[(u8, u16)]) -> Vec<u8> {
    let [length_high, length] = section_length(13 + 5 * streams.len());
    let [high, low] = program.to_be_bytes();
    let mut pmt =
        vec![2, length_high, length, high, low, 0xc0 | version, 0, 0, 0xff, 0xff, 0xf0, 0];
    for (coding, pid) in streams {
        let [high, low] = (pid | 0xe000).to_be_bytes();
        pmt.extend([*coding, high, low, 0xf0, 0]);
    }
    section(&pmt)
}

/// Pictures on this PID, after tables.
fn pictures_on(pid: u16, tables: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let (mut counter, mut bytes) = (0, Vec::new());
    for (pid, payload) in tables {
        bytes.extend(packet(*pid, true, 0, payload));
    }
    for place in 0..3 {
        let at = 90_000 + place * 3_600;
        bytes.extend(pes(pid, &mut counter, (at, at), &slice(place == 0, 2, 0)));
    }
    bytes
}

#[test]
fn an_encoder_that_is_started_anew_with_other_pids_is_shown() {
    let with = |table: u16, program: u16, pid: u16| {
        let pat = programs(1, &[(program, table)]);
        let pmt = program_map(1, program, &[(0x1b, pid), (0x0f, pid + 1)]);
        pictures_on(pid, &[(0, pat), (table, pmt)])
    };
    let before = with(0x1000, 1, 0x100);
    // Another PID of pictures; another one of the table; another program with the same table.
    for after in [with(0x1000, 1, 0x200), with(0x1001, 1, 0x200), with(0x1000, 2, 0x200)] {
        let mut demultiplexer = LiveDemultiplexer::new();
        assert_eq!(pictures(&units(&mut demultiplexer, &before)).len(), 3);
        let shown = units(&mut demultiplexer, &after);
        assert_eq!(pictures(&shown).len(), 3);
        assert!(shown.iter().all(|unit| unit.timeline == 1));
    }
}

#[test]
fn tables_that_are_damaged_or_not_yet_in_force_change_nothing() {
    let table = |version: u8, pid: u16| program_map(version, 1, &[(0x1b, pid)]);
    let tables = [(0, programs(1, &[(1, 0x1000)])), (0x1000, table(1, 0x200))];
    let mut damaged = table(1, 0x100);
    damaged[15] ^= 0x10;
    for (pid, payload) in
        [(0x1000, damaged), (0x1000, table(2, 0x100)), (0, programs(2, &[(1, 0x1001)]))]
    {
        let mut demultiplexer = LiveDemultiplexer::new();
        assert_eq!(pictures(&units(&mut demultiplexer, &pictures_on(0x200, &tables))).len(), 3);
        let shown = units(&mut demultiplexer, &pictures_on(0x200, &[(pid, payload)]));
        let shown = pictures(&shown);
        // The times go back, by which alone a timeline begins.
        assert_eq!((shown.len(), shown[2].timeline), (3, 1));
    }
}

#[test]
fn a_section_that_spans_packets_is_read_whole_and_not_with_a_hole() {
    // 60 streams need two packets; pictures are the last.
    let mut streams: Vec<(u8, u16)> = (0..59).map(|place| (0x06, 0x300 + place)).collect();
    streams.push((0x1b, 0x200));
    let [high, low] = ((13_u16 + 5 * 60) | 0xb000).to_be_bytes();
    let mut pmt = program_map(1, 1, &streams);
    let end = pmt.len() - 4;
    pmt[2..4].copy_from_slice(&[high, low]);
    let sum = checksum(&pmt[1..end]).to_be_bytes();
    pmt[end..].copy_from_slice(&sum);
    let parts: Vec<&[u8]> = pmt.chunks(170).collect();
    assert_eq!(parts.len(), 2);
    let pat = packet(0, true, 0, &programs(1, &[(1, 0x1000)]));
    for (counter, count) in [(1, 3), (2, 0)] {
        let second = packet(0x1000, false, counter, parts[1]);
        let bytes =
            [&pat[..], &packet(0x1000, true, 0, parts[0]), &second, &pictures_on(0x200, &[])];
        let shown = units(&mut LiveDemultiplexer::new(), &bytes.concat());
        assert_eq!(pictures(&shown).len(), count);
    }
    // The end of a section, then another one in the same packet: the pointer field says where.
    let after = [&[parts[1].len() as u8][..], parts[1], &program_map(1, 1, &[(0x1b, 0x200)])[1..]];
    let second = packet(0x1000, true, 1, &after.concat());
    let first = packet(0x1000, true, 0, parts[0]);
    let bytes = [&pat[..], &first, &second, &pictures_on(0x200, &[])].concat();
    assert_eq!(pictures(&units(&mut LiveDemultiplexer::new(), &bytes)).len(), 3);
}

#[test]
fn a_table_of_programs_removes_what_it_no_longer_names_once_it_is_whole() {
    let mut multiplex = Multiplex::default();
    let mut learn = |pid: u16, payload: &[u8]| {
        let packet = packet(pid, true, 0, payload);
        multiplex.learn(&packet, &ts::header(&packet).expect("a packet"));
        multiplex.streams().map(|stream| stream.pid).collect::<Vec<_>>()
    };
    learn(0, &programs(1, &[(1, 0x1000), (2, 0x1001)]));
    learn(0x1000, &program_map(1, 1, &[(0x1b, 0x100)]));
    let all = learn(0x1001, &program_map(1, 2, &[(0x1b, 0x200), (0x1b, 0x100)]));
    assert_eq!(all, [0x100, 0x200, 0x1000, 0x1001]);
    // Of two sections the first: the other one may name the rest.
    let of_two = |number: u8, entry: (u16, u16)| {
        let mut pat = programs(3, &[entry]);
        (pat[7], pat[8]) = (number, 1);
        section(&pat[1..pat.len() - 4])
    };
    assert_eq!(learn(0, &of_two(0, (2, 0x1001))), all);
    // What two programs have is of the one that is left.
    assert_eq!(learn(0, &of_two(1, (3, 0x1002))), [0x100, 0x200, 0x1001, 0x1002]);
}

#[test]
fn a_full_list_of_streams_is_still_kept_up_to_date() {
    let mut multiplex = Multiplex::default();
    let mut learn = |pid: u16, payload: &[u8]| {
        let packet = packet(pid, true, 0, payload);
        multiplex.learn(&packet, &ts::header(&packet).expect("a packet"));
        multiplex.streams().copied().collect::<Vec<_>>()
    };
    let entries: Vec<(u16, u16)> = (1..=20).map(|program| (program, 0x1000 + program)).collect();
    learn(0, &programs(1, &entries));
    for program in 1..=20 {
        let streams: Vec<(u8, u16)> = (0..30).map(|place| (0x06, program * 0x40 + place)).collect();
        learn(0x1000 + program, &program_map(1, program, &streams));
    }
    let all = learn(0x1001, &program_map(1, 1, &[(0x1b, 0x40)]));
    let is_video = |stream: &&NamedStream| stream.content == Content::Video;
    assert_eq!(all.iter().find(is_video).map(|stream| stream.pid), Some(0x40));
    assert!(all.len() <= 512);
}

/// A film of pictures of this size, on a PID, at 40 ms each from this place on.
fn some(counters: &mut BTreeMap<u16, u8>, pid: u16, places: Range<u64>, size: usize) -> Vec<u8> {
    let counter = counters.entry(pid).or_default();
    let picture = |place: u64| {
        let content = [&slice(place.is_multiple_of(10), 2, 0)[..], &vec![0x55; size]].concat();
        let at = 90_000 + place * 3_600;
        pes(pid, counter, (at, at), &content)
    };
    places.flat_map(picture).collect()
}

/// AAC, a frame with each picture.
fn sound(counters: &mut BTreeMap<u16, u8>, pid: u16, places: Range<u64>) -> Vec<u8> {
    let counter = counters.entry(pid).or_default();
    let aac = [0xff, 0xf1, 3 << 2, 0, 2, 0x1f, 0xfc, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    let frame = |place: u64| {
        let at = 90_000 + place * 3_600;
        pes(pid, counter, (at, at), &aac)
    };
    places.flat_map(frame).collect()
}

/// Pictures of a film, their common size, its frames of sound, and what is not reported.
fn read_film(bytes: &[u8]) -> (usize, u32, usize, Vec<String>) {
    let (table, untold) = FrameTable::from_transport_stream(bytes).expect("a film");
    let (sound, pictures): (Vec<&Frame>, Vec<&Frame>) =
        table.frames.iter().partition(|one| one.kind == FrameKind::Sound);
    assert!(pictures.iter().all(|one| one.size == pictures[0].size), "one stream");
    (pictures.len(), pictures[0].size, sound.len(), untold)
}

/// Packets with these tables.
fn with(tables: &[(u16, Vec<u8>)]) -> Vec<u8> {
    tables.iter().flat_map(|(pid, payload)| packet(*pid, true, 0, payload)).collect()
}

/// What is said of streams that are left out.
fn left_out(count: usize) -> Vec<String> {
    let what = "streams that are left out, being of other programs, further ones of pictures or of unknown content";
    vec![format!("{what}: {count}")]
}

#[test]
fn the_first_program_is_that_of_the_pat_and_its_first_pictures_that_of_the_pmt() {
    let mut counters = BTreeMap::new();
    let streams = |counters: &mut BTreeMap<u16, u8>| {
        [
            some(counters, 0x200, 0..20, 200),
            some(counters, 0x100, 0..20, 100),
            some(counters, 0x050, 0..20, 50),
        ]
        .concat()
    };
    // Program 7 comes first; the other one's table comes first.
    let two = [
        (0, programs(1, &[(7, 0x1001), (2, 0x1000)])),
        (0x1000, program_map(1, 2, &[(0x1b, 0x100), (0x1b, 0x50)])),
        (0x1001, program_map(1, 7, &[(0x06, 0x30), (0x1b, 0x200)])),
    ];
    let bytes = [with(&two), streams(&mut counters)].concat();
    assert_eq!(read_film(&bytes), (20, 506, 0, left_out(3)));
    let shown = units(&mut LiveDemultiplexer::new(), &bytes);
    assert!(shown.len() == 20 && shown.iter().all(|unit| unit.bytes.len() == 506));
    // One program without pictures, then one with two streams of them.
    let order = [
        (0, programs(1, &[(1, 0x1000), (2, 0x1001)])),
        (0x1000, program_map(1, 1, &[(0x0f, 0x30)])),
        (0x1001, program_map(1, 2, &[(0x1b, 0x100), (0x1b, 0x50)])),
    ];
    let bytes = [with(&order), streams(&mut BTreeMap::new())].concat();
    assert_eq!(read_film(&bytes), (20, 406, 0, left_out(2)));
    let shown = units(&mut LiveDemultiplexer::new(), &bytes);
    assert!(shown.len() == 20 && shown.iter().all(|unit| unit.bytes.len() == 406));
}

#[test]
fn programs_whose_tables_share_a_pid_are_two() {
    let tables = [
        (0, programs(1, &[(1, 0x1000), (2, 0x1000)])),
        (0x1000, program_map(1, 1, &[(0x1b, 0x100), (0x0f, 0x101)])),
        (0x1000, program_map(1, 2, &[(0x1b, 0x200), (0x0f, 0x201), (0x0f, 0x101)])),
    ];
    let counters = &mut BTreeMap::new();
    let streams = [
        some(counters, 0x100, 0..20, 100),
        some(counters, 0x200, 0..20, 200),
        sound(counters, 0x101, 0..20),
        sound(counters, 0x201, 0..20),
    ];
    assert_eq!(read_film(&[with(&tables), streams.concat()].concat()), (20, 406, 20, left_out(2)));
}

#[test]
fn pictures_and_sound_go_on_where_a_later_table_has_them() {
    let pat = (0, programs(1, &[(1, 0x1000)]));
    let first = with(&[pat.clone(), (0x1000, program_map(1, 1, &[(0x1b, 0x100), (0x0f, 0x101)]))]);
    let of = |counters: &mut BTreeMap<u16, u8>, pids: (u16, u16), places: Range<u64>| {
        let each = |place: u64| {
            let both = [
                some(counters, pids.0, place..place + 1, 100),
                sound(counters, pids.1, place..place + 1),
            ];
            both.concat()
        };
        places.flat_map(each).collect::<Vec<u8>>()
    };
    let whole = [first.clone(), of(&mut BTreeMap::new(), (0x100, 0x101), 0..40)].concat();
    let whole = FrameTable::from_transport_stream(&whole).expect("a film");
    assert_eq!(whole.1, Vec::<String>::new());
    // Another PID of the pictures; of the sound; of both; and both change places.
    for pids in [(0x200, 0x101), (0x100, 0x050), (0x200, 0x201), (0x101, 0x100)] {
        let later = program_map(3, 1, &[(0x0f, pids.1), (0x1b, pids.0)]);
        let later = with(&[(0x1000, later)]);
        // The table is right there, or only comes after the first two pictures, or two before.
        for (until, more) in [(20, 0..0), (20, 20..22), (18, 18..20)] {
            if pids == (0x101, 0x100) && !more.is_empty() {
                continue;
            }
            let counters = &mut BTreeMap::new();
            let before = of(counters, (0x100, 0x101), 0..until);
            let (between, rest) = (more.clone(), more.end.max(20));
            let between = of(counters, if until < 20 { (0x100, 0x101) } else { pids }, between);
            let table = if until < 20 {
                [later.clone(), between].concat()
            } else {
                [between, later.clone()].concat()
            };
            let bytes = [first.clone(), before, table, of(counters, pids, rest..40)].concat();
            let read = FrameTable::from_transport_stream(&bytes).expect("a film");
            assert_eq!(read, whole, "{pids:x?} {more:?}");
        }
    }
    // Another encoder, whose program has another number and the times of its own.
    let counters = &mut BTreeMap::new();
    let other = [
        (0, programs(3, &[(2, 0x1001)])),
        (0x1001, program_map(1, 2, &[(0x1b, 0x300), (0x0f, 0x301)])),
    ];
    let bytes = [
        first.clone(),
        of(counters, (0x100, 0x101), 0..20),
        with(&other),
        of(counters, (0x300, 0x301), 0..20),
    ];
    let (table, untold) = FrameTable::from_transport_stream(&bytes.concat()).expect("a film");
    assert_eq!(table, whole.0);
    assert_eq!(untold, ["jumps of the time stamps, after which time goes on as before: 2"]);
    // Another coding is left out, and that is said.
    let other = with(&[(0x1000, program_map(3, 1, &[(0x24, 0x200), (0x0f, 0x101)]))]);
    let counters = &mut BTreeMap::new();
    let bytes =
        [first, of(counters, (0x100, 0x101), 0..20), other, of(counters, (0x200, 0x101), 20..40)]
            .concat();
    let (pictures, _, sound, untold) = read_film(&bytes);
    assert_eq!((pictures, sound, untold.len()), (20, 40, 2), "{untold:?}");
    assert_eq!(
        untold[1],
        "parts of the film whose pictures have another coding, which are left out: 1"
    );
}

#[test]
fn a_later_table_does_not_change_what_is_there_to_other_pictures() {
    let pat = (0, programs(1, &[(1, 0x1000), (2, 0x1001)]));
    let other = (0x1001, program_map(1, 2, &[(0x1b, 0x300)]));
    let first = (0x1000, program_map(1, 1, &[(0x1b, 0x200), (0x1b, 0x100)]));
    // The order changes; then the first is gone; the other program has what the first had no longer.
    let second = with(&[(0x1000, program_map(2 << 1 | 1, 1, &[(0x1b, 0x100), (0x1b, 0x200)]))]);
    let third = with(&[
        (0x1000, program_map(3 << 1 | 1, 1, &[(0x1b, 0x100)])),
        (0x1001, program_map(3 << 1 | 1, 2, &[(0x1b, 0x300), (0x1b, 0x200)])),
    ]);
    let counters = &mut BTreeMap::new();
    let mut all = |places: Range<u64>, sizes: [usize; 2]| {
        let streams = [(0x200, sizes[0]), (0x100, sizes[1]), (0x300, 300)];
        let streams = streams.map(|(pid, size)| some(counters, pid, places.clone(), size));
        streams.concat()
    };
    let bytes = [
        with(&[pat, other, first]),
        all(0..10, [100, 50]),
        second,
        all(10..20, [100, 50]),
        third,
        all(20..30, [50, 100]),
    ];
    assert_eq!(read_film(&bytes.concat()), (30, 406, 0, left_out(1)));
}
