//! An encoder that follows `target-bitrate`, over a path that falls from 6 to 1.5 Mbit/s.

mod common;

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{
    PATIENCE, Running, element, free_port, pipeline, play, program, require_elements, stop, url,
    wait_until,
};
use gstreamer as gst;
use gstreamer::prelude::*;

/// When the path falls after it was started, seconds, and how long the stream is watched after that.
const FALL: u64 = 10;
const AFTER: u64 = 20;

/// Latency and grace, milliseconds, and what a busy machine takes.
const LATENCY: u32 = 500;
const GRACE: u32 = 50;
const SLACK: u64 = 150;

/// What the path bears after it has fallen, bits a second, with the headers of all layers.
const FALLEN: f64 = 1_500_000.0;

/// The share of frames that has to be on time: less than the 96 % that a quiet machine has, since a busy one
/// keeps frames and acknowledgements waiting.
const ON_TIME: f64 = 0.8;

/// A frame: when it was encoded, how long it is, and when it arrived whole.
#[derive(Clone, Copy, Debug)]
struct Frame {
    encoded: Instant,
    bytes: usize,
    is_key: bool,
    arrived: Option<Instant>,
}

#[derive(Default)]
struct Frames {
    all: Vec<Frame>,
    /// By what they contain.
    places: HashMap<u64, usize>,
}

/// A number for the content of a frame.
fn digest(bytes: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn scenario(folder: &std::path::Path) -> std::path::PathBuf {
    let file = folder.join("falling.toml");
    let text = format!(
        r#"duration = "60 s"
[topology]
kind = "dumbbell"
bottleneck = {{ rate = "6 Mbit/s", delay = "20 ms", queue = {{ kind = "drop-tail", limit = "60 packets" }}, schedule = {{ kind = "csv", text = "time_s,rate_mbps\n0,6\n{FALL},1.5\n" }} }}
reverse = {{ rate = "6 Mbit/s", delay = "20 ms" }}
access = {{ rate = "1 Gbit/s", delay = "0 ms" }}
[flows.line]
application = {{ kind = "cbr", rate = "1 Mbit/s" }}
transport = {{ kind = "udp" }}
"#
    );
    std::fs::write(&file, text).expect("written");
    file
}

/// Notes frames when they are encoded, and when they arrive.
fn watch(sending: &gst::Pipeline, receiving: &gst::Pipeline) -> Arc<Mutex<Frames>> {
    let frames = Arc::<Mutex<Frames>>::default();
    let pad = element(sending, "enc").static_pad("src").expect("a pad");
    let encoded = Arc::clone(&frames);
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let buffer = info.buffer().expect("a buffer");
        let map = buffer.map_readable().expect("readable");
        let mut frames = encoded.lock().expect("no panic");
        let place = frames.all.len();
        frames.places.insert(digest(&map), place);
        let is_key = !buffer.flags().contains(gst::BufferFlags::DELTA_UNIT);
        frames.all.push(Frame { encoded: Instant::now(), bytes: map.len(), is_key, arrived: None });
        gst::PadProbeReturn::Ok
    });
    let pad = element(receiving, "out").static_pad("sink").expect("a pad");
    let arrived = Arc::clone(&frames);
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let map = info.buffer().expect("a buffer").map_readable().expect("readable");
        let mut frames = arrived.lock().expect("no panic");
        if let Some(&place) = frames.places.get(&digest(&map)) {
            frames.all[place].arrived = Some(Instant::now());
        }
        gst::PadProbeReturn::Ok
    });
    frames
}

/// Mean bits a second of the frames encoded from `from` to `to`.
fn rate(frames: &[Frame], from: Instant, to: Instant) -> f64 {
    let within = frames.iter().filter(|frame| (from..to).contains(&frame.encoded));
    within.map(|frame| frame.bytes).sum::<usize>() as f64 * 8.0 / (to - from).as_secs_f64()
}

/// The shares of frames on time, and of those whose frames before them are, too, from a key frame on.
fn shares(frames: &[Frame]) -> (f64, f64) {
    let limit = Duration::from_millis(u64::from(LATENCY + GRACE) + SLACK);
    let is_on_time = |frame: &Frame| frame.arrived.is_some_and(|at| at - frame.encoded <= limit);
    let (mut is_decodable, mut on_time, mut decodable) = (false, 0, 0);
    for frame in frames {
        is_decodable = is_on_time(frame) && (is_decodable || frame.is_key);
        on_time += u32::from(is_on_time(frame));
        decodable += u32::from(is_decodable);
    }
    let all = frames.len().max(1) as f64;
    (f64::from(on_time) / all, f64::from(decodable) / all)
}

/// What the encoder makes of what it is asked for, as in `examples/follow.py`.
struct Measured {
    share: f64,
    /// Bits since that was measured.
    asked: f64,
    made: f64,
}

impl Default for Measured {
    fn default() -> Self {
        Self { share: 1.0, asked: 0.0, made: 0.0 }
    }
}

/// Asks for what the path bears, less 3 % for headers.
fn follow(sink: &gst::Element, encoder: &gst::Element, share: f64) {
    let target: u32 = sink.property("target-bitrate");
    if target > 0 {
        let kbit_s = (f64::from(target) * 0.97 / share / 1e3).round() as u32;
        encoder.set_property("bitrate", kbit_s.clamp(100, 5_000));
    }
}

/// Compares once a second what the encoder makes with what it was asked for.
fn measure(sink: &gst::Element, encoder: &gst::Element, measured: &Arc<Mutex<Measured>>) {
    let (sink, of_probe, measured) = (sink.clone(), encoder.clone(), Arc::clone(measured));
    let pad = encoder.static_pad("src").expect("a pad");
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let frame = info.buffer().expect("a buffer");
        let bitrate = f64::from(of_probe.property::<u32>("bitrate")) * 1e3;
        let mut all = measured.lock().expect("no panic");
        all.asked += bitrate * frame.duration().map_or(0.0, |time| time.nseconds() as f64 / 1e9);
        all.made += frame.size() as f64 * 8.0;
        if all.asked >= bitrate {
            let share = all.made / all.asked;
            // Beyond, it has not yet followed a change.
            let has_followed = (0.85..1.1).contains(&share);
            let share = if has_followed { (all.share + share) / 2.0 } else { all.share };
            *all = Measured { share, ..Measured::default() };
            follow(&sink, &of_probe, share);
        }
        gst::PadProbeReturn::Ok
    });
}

#[test]
fn the_encoder_is_within_what_the_path_bears_three_seconds_after_it_has_fallen() {
    let elements = ["videotestsrc", "x264enc", "capsfilter"];
    if !require_elements(&elements) {
        return;
    }
    let Some(program) = program() else { return };
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (at, through) = (free_port(), free_port());
    let receiving = pipeline(&format!(
        "ontemposrc name=src uri=ontempo://127.0.0.1:{at} token=t ! fakesink name=out sync=false"
    ));
    play(&receiving);
    let fingerprint = url(&receiving).rsplit_once('/').expect("a URL").1.to_owned();
    let begun = Instant::now();
    let mut impair = Command::new(program);
    impair.args(["impair", "--listen", &format!(":{through}"), "--to", &format!("127.0.0.1:{at}")]);
    impair.arg("--scenario").arg(scenario(folder)).stdout(Stdio::null()).stderr(Stdio::null());
    let relay = Running::start(&mut impair);
    let sending = pipeline(&format!(
        "videotestsrc is-live=true pattern=snow ! video/x-raw,width=640,height=360,framerate=25/1 \
         ! x264enc name=enc tune=zerolatency speed-preset=ultrafast bitrate=1000 key-int-max=50 \
           vbv-buf-capacity=300 ! video/x-h264,profile=main ! ontemposink name=sink sync=false \
           uri=ontempo://127.0.0.1:{through} fingerprint={fingerprint} token=t latency={LATENCY} grace={GRACE}"
    ));
    let frames = watch(&sending, &receiving);
    let (sink, encoder) = (element(&sending, "sink"), element(&sending, "enc"));
    let targets = Arc::<Mutex<Vec<(Instant, u32)>>>::default();
    let noted = Arc::clone(&targets);
    let measured = Arc::new(Mutex::new(Measured::default()));
    measure(&sink, &encoder, &measured);
    sink.connect_notify(Some("target-bitrate"), move |sink, _| {
        let target: u32 = sink.property("target-bitrate");
        noted.lock().expect("no panic").push((Instant::now(), target));
        let share = measured.lock().expect("no panic").share;
        follow(sink, &encoder, share);
    });
    play(&sending);
    let fallen = begun + Duration::from_secs(FALL);
    wait_until("the fall", || Instant::now() >= fallen + Duration::from_secs(AFTER));
    assert!(PATIENCE > Duration::from_secs(FALL + AFTER));
    stop(&sending);
    stop(&receiving);
    drop(relay);
    let frames = frames.lock().expect("no panic").all.clone();
    let end = fallen + Duration::from_secs(AFTER - 1);
    let watched: Vec<_> = frames.into_iter().filter(|frame| frame.encoded < end).collect();
    let shares = shares(&watched);
    let window = (fallen + Duration::from_secs(3), fallen + Duration::from_secs(5));
    let encoder = rate(&watched, window.0, window.1) / FALLEN;
    for second in 0..FALL + AFTER {
        let from = begun + Duration::from_secs(second);
        let made = rate(&watched, from, from + Duration::from_secs(1)) / 1e6;
        println!("{second} s: the encoder made {made:.2} Mbit/s");
    }
    println!(
        "{} frames: {:.1} % on time, {:.1} % with all that they need; the encoder at {encoder:.2} of the path \
         from 3 to 5 s after the fall",
        watched.len(),
        shares.0 * 100.0,
        shares.1 * 100.0,
    );
    for (at, target) in targets.lock().expect("no panic").iter() {
        let since = at.saturating_duration_since(begun).as_secs_f64();
        println!("{since:.2} s: target {:.2} Mbit/s", f64::from(*target) / 1e6);
    }
    assert!(watched.len() > 400, "the machine encodes too slowly: {}", watched.len());
    assert!(shares.0 >= ON_TIME, "{:.3} on time", shares.0);
    assert!((0.6..=1.1).contains(&encoder), "the encoder at {encoder:.2} of the path");
}
