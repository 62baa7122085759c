//! Films of real encoders: frames are those that ffprobe finds, marks those that ffmpeg prints, and what
//! does not depend on a damaged frame decodes as if nothing was damaged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ontempo_media::ts::{PACKET, header, pes};
use ontempo_media::{Codec, Frame, FrameKind, FrameTable, Kind, TransportStreamIndex};

/// A folder that is gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ontempo-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(program: &str, arguments: &[&str]) -> (String, String) {
    let output = Command::new(program).args(arguments).output().expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {err}");
    (out, err)
}

/// Encodes 4 s of moving pictures, with a change of scene, and sound.
fn encode(folder: &Folder, name: &str, options: &str) -> PathBuf {
    let path = folder.0.join(name);
    let pictures = "testsrc2=size=320x180:rate=25,noise=alls=8:allf=t,negate=enable='gte(t,1.3)',\
                    rotate=t/9:enable='gte(t,2)'";
    let sound = "sine=frequency=440:sample_rate=48000";
    let mut arguments = vec!["-v", "error", "-y", "-f", "lavfi", "-i", pictures];
    arguments
        .extend(["-f", "lavfi", "-i", sound, "-t", "4", "-pix_fmt", "yuv420p", "-threads", "1"]);
    arguments.extend(options.split_whitespace());
    arguments.push(path.to_str().expect("a name"));
    run("ffmpeg", &arguments);
    path
}

/// Rows of ffprobe: the values of `entries`, in its own order.
fn probed(path: &Path, stream: &str, entries: &str) -> Vec<Vec<String>> {
    probed_with(&[], path, stream, entries)
}

fn probed_with(more: &[&str], path: &Path, stream: &str, entries: &str) -> Vec<Vec<String>> {
    let path = path.to_str().expect("a name");
    let arguments = ["-v", "error", "-select_streams", stream, "-show_entries", entries];
    let (out, _) = run("ffprobe", &[&arguments[..], more, &["-of", "csv=p=0", path]].concat());
    let rows = out.lines().filter(|line| !line.is_empty());
    rows.map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

fn read(path: &Path) -> (FrameTable, Vec<String>) {
    let bytes = fs::read(path).expect("the film");
    let (table, untold) = FrameTable::from_transport_stream(&bytes).expect("a film");
    assert_eq!(table.check(), Ok(()));
    assert_eq!(FrameTable::read_csv(&table.write_csv()).as_ref(), Ok(&table));
    (table, untold)
}

fn pictures(table: &FrameTable) -> Vec<&Frame> {
    table.frames.iter().filter(|frame| frame.kind != FrameKind::Sound).collect()
}

/// Checks numbers, sizes, times and key pictures of all frames by those of ffprobe.
#[track_caller]
fn assert_as_probed(path: &Path, table: &FrameTable) {
    let seconds = |text: &str| text.parse::<f64>().expect("a time");
    let rows = |stream| probed(path, stream, "packet=dts_time,size,flags");
    let (mut video, sound) = (rows("v"), rows("a"));
    if table.codec == Codec::Hevc {
        // ffmpeg's parser of HEVC counts the first of a start code's zero bytes with the picture before.
        let unparsed = probed_with(&["-fflags", "+noparse"], path, "v", "packet=size");
        for (row, own) in video.iter_mut().zip(unparsed) {
            let size = |row: &str| row.parse::<u32>().expect("a size");
            assert!(size(&row[1]).abs_diff(size(&own[0])) <= 1, "{row:?} {own:?}");
            row[1].clone_from(&own[0]);
        }
    }
    let first =
        [&video[0], &sound[0]].map(|row| seconds(&row[0])).into_iter().fold(f64::MAX, f64::min);
    let of_sound = table.frames.iter().filter(|frame| frame.kind == FrameKind::Sound).collect();
    for (rows, frames) in [(video, pictures(table)), (sound, of_sound)] {
        assert_eq!(rows.len(), frames.len());
        for (row, frame) in rows.iter().zip(frames) {
            assert_eq!(row[1], frame.size.to_string(), "{row:?} {frame:?}");
            let made = frame.made.as_secs_f64();
            assert!((seconds(&row[0]) - first - made).abs() < 2e-5, "{row:?} {frame:?}");
            if frame.kind != FrameKind::Sound {
                assert_eq!(row[2].starts_with('K'), frame.kind == FrameKind::Key, "{row:?}");
            }
        }
    }
}

/// `pict_type` of the pictures, in decoding order.
fn picture_types(path: &Path) -> Vec<char> {
    let mut rows = probed(path, "v", "frame=pkt_pos,pict_type");
    // By the place in the file.
    rows.sort_by_key(|row| row[0].parse::<u64>().expect("a place"));
    rows.iter().map(|row| row[1].chars().next().expect("a type")).collect()
}

/// A value of the headers of each picture's first slice, as ffmpeg prints them (`trace_headers`).
fn headers(path: &Path, field: &str, is_slice: impl Fn(u64) -> bool) -> Vec<u64> {
    let path = path.to_str().expect("a name");
    let arguments = ["-v", "verbose", "-i", path, "-map", "0:v", "-c", "copy"];
    let (_, err) =
        run("ffmpeg", &[&arguments[..], &["-bsf:v", "trace_headers", "-f", "null", "-"]].concat());
    let (mut values, mut unit): (Vec<u64>, BTreeMap<&str, u64>) = (Vec::new(), BTreeMap::new());
    for line in err.lines().filter(|line| line.contains("trace_headers")) {
        let mut words = line.split_whitespace().skip(4);
        let (Some(name), Some(value)) = (words.next(), words.last()) else { continue };
        let Ok(value) = value.parse() else { continue };
        if matches!(name, "nal_ref_idc" | "nal_unit_type") {
            unit.insert(name, value);
        }
        let first = name == "first_mb_in_slice" && value == 0
            || name == "first_slice_segment_in_pic_flag" && value == 1;
        if first && is_slice(unit["nal_unit_type"]) {
            values.push(unit[field]);
        }
    }
    values
}

/// Damages one picture after the other: ffmpeg decodes all that do not depend on it as they were.
/// Returns how many others were compared, and how many that depend on a damaged one differ.
fn damage_each(folder: &Folder, path: &Path, table: &FrameTable, step: usize) -> (usize, usize) {
    let bytes = fs::read(path).expect("the film");
    let whole = decoded(path);
    let places = bytes_of_pictures(&bytes);
    // The numbers of the pictures among the frames of the table.
    let numbers: Vec<usize> = (0..table.frames.len())
        .filter(|&number| table.frames[number].kind != FrameKind::Sound)
        .collect();
    assert_eq!(places.len(), numbers.len());
    let shown = probed(path, "v", "packet=pts");
    let shown: Vec<i64> = shown.iter().map(|row| row[0].parse().expect("a time")).collect();
    let (mut compared, mut differ) = (0, 0);
    for hit in (0..numbers.len()).step_by(step) {
        let mut depend: BTreeSet<usize> = BTreeSet::from([numbers[hit]]);
        for number in numbers[hit]..table.frames.len() {
            let on = &table.frames[number].depends_on;
            if on.iter().any(|&other| depend.contains(&(other as usize))) {
                depend.insert(number);
            }
        }
        let mut damaged = bytes.clone();
        damage(&mut damaged, &places[hit], table.codec);
        let copy = folder.0.join("damaged.ts");
        fs::write(&copy, damaged).expect("written");
        let after = decoded(&copy);
        for (place, number) in numbers.iter().enumerate() {
            let (is, was) = (after.get(&shown[place]), whole.get(&shown[place]));
            assert!(was.is_some(), "picture {place} is not decoded");
            if depend.contains(number) {
                differ += usize::from(is != was);
            } else {
                assert_eq!(is, was, "picture {place} is said not to depend on {hit}");
                compared += 1;
            }
        }
    }
    (compared, differ)
}

/// Bytes of a slice that stay, so that its header does: reference lists and their marking.
const SLICE_HEADER: usize = 40;

/// Overwrites the data of the slices of a picture, whose bytes are at these places.
fn damage(bytes: &mut [u8], places: &[usize], codec: Codec) {
    let begins = |at: usize| {
        at + 3 < places.len() && [0, 1, 2].map(|more| bytes[places[at + more]]) == [0, 0, 1]
    };
    let begin: Vec<usize> = (0..places.len()).filter(|&at| begins(at)).collect();
    for (unit, &at) in begin.iter().enumerate() {
        let head = bytes[places[at + 3]];
        let is_slice = match codec {
            Codec::H264 => matches!(head & 0x1f, 1 | 5),
            _ => head >> 1 & 0x3f < 32,
        };
        let end = begin.get(unit + 1).map_or(places.len(), |next| next - 1);
        if is_slice {
            for &place in places.get(at + 3 + SLICE_HEADER..end).unwrap_or_default() {
                // Never a byte of a start code.
                bytes[place] = bytes[place] ^ 0x55 | 8;
            }
        }
    }
}

/// The places of each picture's bytes in the stream.
fn bytes_of_pictures(bytes: &[u8]) -> Vec<Vec<usize>> {
    let index = TransportStreamIndex::read(bytes).expect("a stream");
    let kinds = [Kind::Key, Kind::Frame, Kind::Disposable];
    let pictures = index.units.iter().filter(|unit| kinds.contains(&unit.kind));
    let places = pictures.map(|unit| {
        let mut places: Vec<usize> = Vec::new();
        for &packet in &unit.packets {
            let packet = packet * PACKET..(packet + 1) * PACKET;
            let begin = header(&bytes[packet.clone()]).expect("a packet").payload;
            let head = if places.is_empty() { pes(&bytes[packet.start + begin..]) } else { None };
            let skipped = head.map_or(0, |pes| pes.payload);
            places.extend(packet.start + begin + skipped..packet.end);
        }
        places
    });
    places.collect()
}

/// Hashes of the decoded pictures by the time at which they are shown.
fn decoded(path: &Path) -> BTreeMap<i64, String> {
    let path = path.to_str().expect("a name");
    let arguments = ["-v", "quiet", "-copyts", "-threads", "1", "-i", path, "-map", "0:v"];
    let to = ["-enc_time_base", "1:90000", "-fps_mode", "passthrough", "-f", "framemd5", "-"];
    let output = Command::new("ffmpeg").args(arguments).args(to).output().expect("ffmpeg starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        (fields[2].parse().expect("a time"), fields[5].to_owned())
    })
    .collect()
}

const X264: &str =
    "-c:v libx264 -g 30 -bf 3 -b_strategy 2 -x264-params b-pyramid=normal:ref=3 -c:a aac";

fn is_h264_slice(kind: u64) -> bool {
    matches!(kind, 1 | 5)
}

#[track_caller]
fn assert_h264_marks(path: &Path, table: &FrameTable) {
    let references = headers(path, "nal_ref_idc", is_h264_slice);
    let pictures = pictures(table);
    assert_eq!(references.len(), pictures.len());
    for (reference, picture) in references.iter().zip(&pictures) {
        assert_eq!(*reference == 0, picture.kind == FrameKind::Disposable, "{picture:?}");
    }
    for (kind, picture) in picture_types(path).iter().zip(&pictures) {
        match kind {
            'I' => assert!(picture.depends_on.is_empty(), "{picture:?}"),
            'P' => assert!(!picture.depends_on.is_empty(), "{picture:?}"),
            // Of leading pictures, also on the reference decoded before their key.
            _ => assert!((2..=3).contains(&picture.depends_on.len()), "{picture:?}"),
        }
    }
}

#[test]
fn frames_of_x264_with_a_pyramid_of_b_pictures_are_those_of_ffprobe() {
    if !ontempo_testing::require_programs(&["ffmpeg", "ffprobe"]) {
        return;
    }
    let folder = Folder::new("films-pyramid");
    let path = encode(&folder, "film.ts", X264);
    let (table, untold) = read(&path);
    assert_eq!((table.codec, untold), (Codec::H264, Vec::new()));
    assert_as_probed(&path, &table);
    assert_h264_marks(&path, &table);
    let kinds = |kind| pictures(&table).iter().filter(|one| one.kind == kind).count();
    assert!(kinds(FrameKind::Key) >= 4 && kinds(FrameKind::Disposable) >= 20);
    let (compared, differ) = damage_each(&folder, &path, &table, 3);
    assert!(compared > 500 && differ > 60, "{compared} compared, {differ} differ");
}

#[test]
fn many_references_and_slices_of_x264_and_intra_refresh_leave_nothing_out_of_a_chain() {
    if !ontempo_testing::require_programs(&["ffmpeg", "ffprobe"]) {
        return;
    }
    let folder = Folder::new("films-references");
    let options = [
        "bframes=8:ref=8:b-pyramid=strict:b-adapt=0:slices=4",
        "bframes=5:ref=16:weightp=2:keyint=40:min-keyint=40:scenecut=60",
        "bframes=2:ref=4:tff=1",
        "bframes=0:ref=4:keyint=20:intra-refresh=1",
    ];
    for one in options {
        let path = encode(&folder, "film.ts", &format!("-c:v libx264 -c:a aac -x264-params {one}"));
        let (table, untold) = read(&path);
        assert_eq!(untold.len(), usize::from(one.contains("intra-refresh")), "{one}: {untold:?}");
        if untold.is_empty() {
            assert_as_probed(&path, &table);
        }
        let (compared, differ) = damage_each(&folder, &path, &table, 13);
        assert!(compared > 200 && differ > 20, "{one}: {compared} compared, {differ} differ");
    }
}

#[test]
fn leading_pictures_of_an_open_group_of_x264_depend_on_both_sides_of_their_key() {
    if !ontempo_testing::require_programs(&["ffmpeg", "ffprobe"]) {
        return;
    }
    let folder = Folder::new("films-open");
    let path = encode(&folder, "film.ts", &X264.replace("ref=3", "ref=3:open-gop=1"));
    let (table, untold) = read(&path);
    assert_eq!(untold, Vec::<String>::new());
    assert_as_probed(&path, &table);
    assert_h264_marks(&path, &table);
    let (compared, differ) = damage_each(&folder, &path, &table, 5);
    assert!(compared > 500 && differ > 60, "{compared} compared, {differ} differ");
}

#[test]
fn frames_of_x264_without_delay_are_those_of_ffprobe() {
    if !ontempo_testing::require_programs(&["ffmpeg", "ffprobe"]) {
        return;
    }
    let folder = Folder::new("films-zerolatency");
    let path = encode(&folder, "film.ts", "-c:v libx264 -tune zerolatency -g 50 -c:a mp2");
    let (table, untold) = read(&path);
    assert_eq!((table.codec, untold), (Codec::H264, Vec::new()));
    assert_as_probed(&path, &table);
    assert_h264_marks(&path, &table);
    assert!(pictures(&table).iter().all(|one| one.depends_on.len() <= 1));
}

#[test]
fn frames_of_x265_are_those_of_ffprobe() {
    if !ontempo_testing::require_programs(&["ffmpeg", "ffprobe"]) {
        return;
    }
    let folder = Folder::new("films-hevc");
    // Open groups, the default, have RASL pictures; temporal layers put B pictures into a higher one.
    let base =
        "-c:v libx265 -preset fast -c:a aac -x265-params log-level=error:keyint=25:bframes=4";
    for (name, more) in [("open", ""), ("closed", ":open-gop=0"), ("layers", ":temporal-layers=1")]
    {
        let path = encode(&folder, &format!("{name}.ts"), &format!("{base}{more}"));
        let (table, untold) = read(&path);
        assert_eq!((table.codec, untold), (Codec::Hevc, Vec::new()), "{name}");
        assert_as_probed(&path, &table);
        let types = headers(&path, "nal_unit_type", |kind| kind < 32);
        let found = pictures(&table);
        assert_eq!(types.len(), found.len());
        for (kind, picture) in types.iter().zip(&found) {
            let is_disposable = *kind <= 14 && kind % 2 == 0;
            if is_disposable && name == "layers" {
                // Those of the lower layer may have pictures of the higher one that depend on them.
                assert!(picture.kind != FrameKind::Key, "{kind}");
                continue;
            }
            assert_eq!(is_disposable, picture.kind == FrameKind::Disposable, "{name} {kind}");
        }
        assert!(
            types.iter().any(|kind| matches!(kind, 8 | 9)) || name == "closed",
            "no leading pictures"
        );
        let kinds = picture_types(&path);
        for (kind, picture) in kinds.iter().zip(&found) {
            assert_eq!(*kind == 'I', picture.depends_on.is_empty(), "{name} {kind} {picture:?}");
        }
        let (compared, differ) = damage_each(&folder, &path, &table, 14);
        assert!(compared > 200 && differ > 20, "{name}: {compared} compared, {differ} differ");
    }
}

#[test]
fn sizes_and_times_of_an_unknown_codec_are_those_of_ffprobe_and_what_is_unknown_is_said() {
    if !ontempo_testing::require_programs(&["ffmpeg", "ffprobe"]) {
        return;
    }
    let folder = Folder::new("films-mpeg2");
    let path = encode(&folder, "film.ts", "-c:v mpeg2video -bf 2 -g 12 -b:v 1M -c:a mp2");
    let (table, untold) = read(&path);
    assert_eq!(table.codec, Codec::Unknown);
    assert!(untold.len() == 1 && untold[0].contains("is unknown"), "{untold:?}");
    assert_as_probed(&path, &table);
    let frames = pictures(&table);
    // Each on the one before; leading pictures on both sides of their key.
    let mut leading = 0;
    for (place, frame) in frames.iter().enumerate() {
        match (frame.kind, frame.depends_on.len()) {
            (FrameKind::Key, count) => assert_eq!(count, 0),
            (kind, 1) => {
                let before = &table.frames[frame.depends_on[0] as usize];
                let has_leading = before.kind == FrameKind::Key;
                assert!(
                    kind == FrameKind::Reference && (has_leading || before == frames[place - 1])
                );
            }
            (_, count) => {
                assert!(count <= 3, "{frame:?}");
                leading += 1;
            }
        }
    }
    assert!((2..20).contains(&leading), "{leading}");
}
