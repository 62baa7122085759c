//! AV1 and Opus in transport streams: what is found in them is what ffmpeg's own reader of AV1, and ffprobe, find.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ontempo_foundation::Time;
use ontempo_media::ts::PRIVATE;
use ontempo_media::{
    AccessUnit, Codec, FrameKind, FrameTable, Kind, LiveDemultiplexer, Packetizer,
    PacketizerOptions, TransportStreamIndex, Unit,
};
use ontempo_testing::{Av1Framing, av1_transport_stream};

/// A folder that is gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ontempo-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a name").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(program: &str, arguments: &str) -> (String, String) {
    let output = Command::new(program).args(arguments.split_whitespace()).output();
    let output = output.expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{program} {arguments}: {err}");
    (out, err)
}

/// What ffmpeg prints of a frame's header.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Traced {
    is_key: bool,
    is_shown: bool,
    refreshes: u64,
}

/// The frames of each picture, as ffmpeg reads them (`trace_headers`).
fn traced(ivf: &str) -> Vec<Vec<Traced>> {
    let arguments = format!("-v verbose -i {ivf} -map 0:v -c copy -bsf:v trace_headers -f null -");
    let (_, err) = run("ffmpeg", &arguments);
    let mut pictures: Vec<Vec<Traced>> = Vec::new();
    let mut fields: BTreeMap<&str, u64> = BTreeMap::new();
    let mut kind = 0;
    for line in err.lines().filter(|line| line.contains("trace_headers")) {
        let mut words = line.split_whitespace().skip(4);
        let (Some(name), Some(value)) = (words.next(), words.last()) else { continue };
        let Ok(value) = value.parse() else { continue };
        if name == "obu_type" {
            end_frame(kind, &fields, &mut pictures);
            fields.clear();
            kind = value;
            if kind == 2 {
                pictures.push(Vec::new());
            }
        }
        fields.insert(name, value);
    }
    end_frame(kind, &fields, &mut pictures);
    pictures
}

fn end_frame(kind: u64, fields: &BTreeMap<&str, u64>, pictures: &mut [Vec<Traced>]) {
    let Some(picture) = pictures.last_mut().filter(|_| matches!(kind, 3 | 6)) else { return };
    if fields.get("show_existing_frame") == Some(&1) {
        picture.push(Traced { is_key: false, is_shown: true, refreshes: 0 });
        return;
    }
    let (is_key, is_shown) = (fields["frame_type"] == 0, fields["show_frame"] == 1);
    let all = if is_key && is_shown { 0xff } else { 0 };
    let refreshes = fields.get("refresh_frame_flags").copied().unwrap_or(all);
    picture.push(Traced { is_key, is_shown, refreshes });
}

/// The pictures of a file of IVF, each with its time.
fn pictures(ivf: &[u8]) -> Vec<&[u8]> {
    let (mut at, mut all) = (32, Vec::new());
    while at < ivf.len() {
        let size = u32::from_le_bytes(ivf[at..at + 4].try_into().expect("4 bytes")) as usize;
        all.push(&ivf[at..at + 12 + size]);
        at += 12 + size;
    }
    all
}

/// MD5 of each decoded picture, by its time.
fn decoded(ivf: &str) -> BTreeMap<u64, String> {
    let (out, _) = run("ffmpeg", &format!("-v error -i {ivf} -vsync passthrough -f framemd5 -"));
    let rows = out.lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        (fields[2].parse().expect("a time"), fields[5].to_owned())
    })
    .collect()
}

fn live(stream: &[u8]) -> Vec<AccessUnit> {
    let (mut demultiplexer, mut units) = (LiveDemultiplexer::new(), Vec::new());
    stream.chunks(7 * 188).for_each(|datagram| demultiplexer.push(datagram, &mut units));
    units
}

/// 4 s of moving pictures, with a key picture every second, as IVF.
fn encode(folder: &Folder, name: &str, options: &str) -> String {
    let path = folder.file(&format!("{name}.ivf"));
    run(
        "ffmpeg",
        &format!(
            "-v error -y -f lavfi -i testsrc2=size=320x180:rate=25,noise=alls=8:allf=t -t 4 \
             -pix_fmt yuv420p -g 25 {options} {path}"
        ),
    );
    path
}

#[test]
fn pictures_of_av1_are_found_with_their_keys_and_those_that_no_other_needs() {
    if !ontempo_testing::require_programs(&["ffmpeg"]) {
        return;
    }
    let folder = Folder::new("media-av1");
    for (name, options) in [
        ("svt", "-c:v libsvtav1 -preset 10"),
        ("aom", "-c:v libaom-av1 -cpu-used 8 -b:v 500k"),
        ("aom-live", "-c:v libaom-av1 -cpu-used 8 -usage realtime -lag-in-frames 0 -b:v 500k"),
    ] {
        let path = encode(&folder, name, options);
        let (ivf, traced) = (fs::read(&path).expect("the film"), traced(&path));
        let pictures = pictures(&ivf);
        assert_eq!(traced.len(), pictures.len(), "{name}");
        let kind = |picture: &Vec<Traced>| match picture {
            _ if picture[0].is_key && picture[0].is_shown => FrameKind::Key,
            _ if picture.iter().all(|frame| frame.refreshes == 0) => FrameKind::Disposable,
            _ => FrameKind::Reference,
        };
        let kinds: Vec<FrameKind> = traced.iter().map(kind).collect();
        assert!(kinds.iter().filter(|kind| **kind == FrameKind::Key).count() >= 4, "{name}");
        for framing in [Av1Framing::StartCodes, Av1Framing::LowOverhead] {
            let stream = av1_transport_stream(&ivf, framing);
            let (table, untold) = FrameTable::from_transport_stream(&stream).expect("a film");
            assert_eq!((table.codec, untold), (Codec::Av1, Vec::new()), "{name}");
            let found: Vec<FrameKind> = table.frames.iter().map(|frame| frame.kind).collect();
            assert_eq!(found, kinds, "{name} {framing:?}");
            // What a page gets is what the encoder made, but for the delimiter of two bytes.
            let units = live(&stream);
            assert!(
                units.iter().all(|unit| unit.coding.stream_type == PRIVATE && !unit.is_damaged)
            );
            let bytes: Vec<&[u8]> = units.iter().map(|unit| &unit.bytes[..]).collect();
            let made: Vec<&[u8]> = pictures.iter().map(|picture| &picture[14..]).collect();
            assert_eq!(bytes, made, "{name} {framing:?}");
            for (unit, kind) in units.iter().zip(&kinds) {
                let marks = (unit.is_key, unit.is_disposable);
                let wanted = (*kind == FrameKind::Key, *kind == FrameKind::Disposable);
                assert_eq!(marks, wanted, "{name}");
            }
            assert_units(&stream, framing, &traced, &kinds);
        }
        assert_disposable(&folder, &path, &kinds);
        if name == "svt" {
            assert!(traced.iter().any(|picture| picture.len() > 1), "no hidden frames");
            assert!(kinds.contains(&FrameKind::Disposable), "none can be left out");
        }
    }
}

/// Checks the units that `ontempo send` makes of the stream: one for each PES packet, and what each depends on.
fn assert_units(
    stream: &[u8],
    framing: Av1Framing,
    traced: &[Vec<Traced>],
    pictures: &[FrameKind],
) {
    let index = TransportStreamIndex::read(stream).expect("a stream");
    let is_picture = |kind| matches!(kind, Kind::Key | Kind::Frame | Kind::Disposable);
    let units: Vec<Kind> =
        index.units.iter().map(|unit| unit.kind).filter(|kind| is_picture(*kind)).collect();
    let of = |kind: &FrameKind| match kind {
        FrameKind::Key => Kind::Key,
        FrameKind::Disposable => Kind::Disposable,
        _ => Kind::Frame,
    };
    let wanted: Vec<Kind> = match framing {
        // All of a picture in a packet: its first 150 bytes tell of the first frame.
        Av1Framing::LowOverhead => {
            let kinds = pictures.iter().zip(traced).map(|(kind, frames)| match frames.len() {
                1 => of(kind),
                _ if *kind == FrameKind::Key => Kind::Key,
                _ => Kind::Frame,
            });
            kinds.collect()
        }
        Av1Framing::StartCodes => traced
            .iter()
            .flatten()
            .map(|frame| match frame {
                Traced { is_key: true, is_shown: true, .. } => Kind::Key,
                Traced { refreshes: 0, .. } => Kind::Disposable,
                _ => Kind::Frame,
            })
            .collect(),
    };
    assert_eq!(units, wanted, "{framing:?}");
    assert_dependencies(stream);
}

/// Checks that a whole frame that is dropped takes with it what needs it, and no more: up to the next key.
fn assert_dependencies(stream: &[u8]) {
    let mut packetizer = Packetizer::new(PacketizerOptions::default());
    let mut kinds: BTreeMap<u64, Kind> = BTreeMap::new();
    let (mut key, mut reference) = (None, None);
    let mut look = |unit: Unit| {
        let kind = |id: &u64| kinds.get(id).copied();
        // Tables, and what a unit goes on with, come beside the pictures.
        let on = unit.dependencies.clone();
        let is_picture = matches!(unit.kind, Kind::Key | Kind::Frame | Kind::Disposable);
        if is_picture && unit.continues.is_none() {
            assert!(on.iter().all(|id| kind(id) != Some(Kind::Disposable)), "{unit:?}");
            match unit.kind {
                Kind::Key => {
                    assert!(on.iter().all(|id| kind(id) == Some(Kind::Tables)), "{unit:?}");
                    (key, reference) = (Some(unit.id), Some(unit.id));
                }
                kind => {
                    let needed = [key, reference].map(|one| one.expect("a key came before"));
                    assert!(needed.iter().all(|one| on.contains(one)), "{unit:?}");
                    if kind == Kind::Frame {
                        reference = Some(unit.id);
                    }
                }
            }
        }
        kinds.insert(unit.id, unit.kind);
    };
    for (number, datagram) in stream.chunks(7 * 188).enumerate() {
        packetizer.push(Time::from_nanos(number as u64 * 100_000), datagram);
        while let Some(unit) = packetizer.poll() {
            look(unit);
        }
    }
    packetizer.finish();
    while let Some(unit) = packetizer.poll() {
        look(unit);
    }
    assert!(kinds.values().filter(|kind| **kind == Kind::Key).count() >= 4);
}

/// Without its disposable pictures a film decodes as before.
fn assert_disposable(folder: &Folder, path: &str, kinds: &[FrameKind]) {
    let ivf = fs::read(path).expect("the film");
    let mut rest = ivf[..32].to_vec();
    let (mut all, mut left) = (0, 0);
    for (picture, kind) in pictures(&ivf).iter().zip(kinds) {
        all += 1;
        if *kind != FrameKind::Disposable {
            rest.extend(*picture);
            left += 1;
        }
    }
    let thinned = folder.file("thinned.ivf");
    fs::write(&thinned, rest).expect("written");
    let (whole, after) = (decoded(path), decoded(&thinned));
    assert_eq!((whole.len(), after.len()), (all, left));
    for (time, picture) in after {
        assert_eq!(whole.get(&time), Some(&picture), "at {time}");
    }
}

#[test]
fn a_frame_of_av1_that_is_missing_or_cut_leaves_the_others_as_they_are() {
    if !ontempo_testing::require_programs(&["ffmpeg"]) {
        return;
    }
    let folder = Folder::new("media-av1-cut");
    let path = encode(&folder, "svt", "-c:v libsvtav1 -preset 10");
    let stream = av1_transport_stream(&fs::read(path).expect("a film"), Av1Framing::StartCodes);
    let whole = live(&stream);
    let packets: Vec<&[u8]> = stream.chunks(188).collect();
    for missing in (5..packets.len()).step_by(23) {
        let cut: Vec<u8> = packets
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != missing)
            .flat_map(|(_, one)| *one)
            .copied()
            .collect();
        let units = live(&cut);
        // A packet may hold a whole frame: then nothing is left of it, and that is all.
        let others = units.iter().filter(|unit| !whole.contains(unit)).count();
        assert!(others <= 2 && units.len() + 1 >= whole.len(), "{missing}: {others}");
    }
}

fn probed(path: &Path) -> Vec<(f64, usize)> {
    let path = path.display();
    let arguments =
        format!("-v error -select_streams a -show_entries packet=pts_time,size -of csv=p=0 {path}");
    let (out, _) = run("ffprobe", &arguments);
    let rows = out.lines().filter(|line| !line.is_empty()).map(|line| {
        let mut fields = line.split(',');
        let mut next = || fields.next().expect("a field");
        (next().parse().expect("a time"), next().parse().expect("a size"))
    });
    rows.collect()
}

#[test]
fn packets_of_opus_are_those_of_ffprobe_with_the_channels_of_their_table() {
    if !ontempo_testing::require_programs(&["ffmpeg", "ffprobe"]) {
        return;
    }
    let folder = Folder::new("media-opus");
    // Five packets in a PES packet, one, and one of 60 ms; of one, two and six channels.
    let ways = [
        (1, 20, "-pes_payload_size 0"),
        (2, 20, ""),
        (2, 60, ""),
        (2, 10, "-b:a 510k"),
        (6, 20, ""),
    ];
    for (channels, duration, more) in ways {
        let path = folder.0.join("sound.ts");
        run(
            "ffmpeg",
            &format!(
                "-v error -y -f lavfi -i testsrc2=size=160x90:rate=25 -f lavfi -i \
                 sine=500:sample_rate=48000 -t 3 -c:v mpeg2video -ac {channels} -c:a libopus \
                 -frame_duration {duration} {more} -f mpegts {}",
                path.display()
            ),
        );
        let stream = fs::read(&path).expect("the film");
        let units = live(&stream);
        let sound: Vec<&AccessUnit> = units.iter().filter(|unit| unit.coding.is_sound).collect();
        let wanted = probed(&path);
        assert_eq!(wanted.len(), sound.len(), "{channels} {duration}");
        for (unit, (time, size)) in sound.iter().zip(&wanted) {
            let coding = (unit.coding.stream_type, unit.coding.channel_code);
            assert_eq!((coding, unit.bytes.len()), ((PRIVATE, channels), *size));
            let after = (unit.shown - sound[0].shown).as_secs_f64();
            assert!((after - (time - wanted[0].0)).abs() < 2e-3, "{after} {time}");
        }
        let (table, untold) = FrameTable::from_transport_stream(&stream).expect("a film");
        let count = table.frames.iter().filter(|one| one.kind == FrameKind::Sound).count();
        assert_eq!(count, sound.len(), "{untold:?}");
        let index = TransportStreamIndex::read(&stream).expect("a stream");
        assert!(index.units.iter().any(|unit| unit.kind == Kind::Sound));
        assert!(index.units.iter().all(|unit| unit.kind != Kind::Other || unit.size < 400));
    }
}
