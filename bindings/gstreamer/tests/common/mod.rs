//! Pipelines of the tests.
#![allow(dead_code, reason = "each test uses some of it")]

pub mod harnesses;

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use gstreamer as gst;
use gstreamer::prelude::*;

/// How long anything may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Registers the elements.
pub fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        gst::init().expect("GStreamer");
        gstontempo::plugin_desc::plugin_register_static().expect("registered");
    });
}

/// True if GStreamer has these elements; otherwise the running test is recorded as skipped.
pub fn require_elements(names: &[&str]) -> bool {
    init();
    let missing = names.iter().find(|name| gst::ElementFactory::find(name).is_none());
    if let Some(name) = missing {
        ontempo_testing::record_skip(&format!("the GStreamer element {name} is missing"));
    }
    missing.is_none()
}

/// A UDP port that was free a moment ago.
pub fn free_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.local_addr().expect("bound").port()
}

pub fn pipeline(text: &str) -> gst::Pipeline {
    init();
    let parsed = gst::parse::launch(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    parsed.downcast().expect("a pipeline")
}

pub fn play(pipeline: &gst::Pipeline) {
    let begun = pipeline.set_state(gst::State::Playing);
    assert!(begun.is_ok(), "it does not play: {:?}", end_of(pipeline));
}

/// Stops it, and says how long that took.
pub fn stop(pipeline: &gst::Pipeline) -> Duration {
    let begun = Instant::now();
    pipeline.set_state(gst::State::Null).expect("stopped");
    begun.elapsed()
}

/// Waits for the end of the stream, `Ok`, or an error: its code's domain and number, and its sentence.
pub fn end_of(pipeline: &gst::Pipeline) -> Result<(), (gst::glib::Error, String)> {
    let bus = pipeline.bus().expect("a bus");
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let limit = gst::ClockTime::from_seconds(PATIENCE.as_secs());
    let message = bus.timed_pop_filtered(Some(limit), &kinds).expect("an end in time");
    match message.view() {
        gst::MessageView::Error(error) => {
            Err((error.error(), error.debug().map(|text| text.to_string()).unwrap_or_default()))
        }
        _ => Ok(()),
    }
}

/// The sentences of the warnings and infos so far.
pub fn said(pipeline: &gst::Pipeline) -> Vec<String> {
    let bus = pipeline.bus().expect("a bus");
    let kinds = [gst::MessageType::Warning, gst::MessageType::Info];
    let mut all = Vec::new();
    while let Some(message) = bus.pop_filtered(&kinds) {
        match message.view() {
            gst::MessageView::Warning(warning) => all.push(warning.error().message().to_owned()),
            gst::MessageView::Info(info) => all.push(info.error().message().to_owned()),
            _ => {}
        }
    }
    all
}

/// Waits until this is true.
pub fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The program `ontempo`, if it is built: beside these tests.
pub fn program() -> Option<PathBuf> {
    let test = std::env::current_exe().expect("this program");
    let built = test.ancestors().nth(2).expect("target/PROFILE").join("ontempo");
    if !built.is_file() {
        ontempo_testing::record_skip("the program ontempo is not built");
    }
    Some(built).filter(|path| path.is_file())
}

/// A child that ends with the test.
pub struct Running(pub Child);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("it starts"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An element by its name.
pub fn element(pipeline: &gst::Pipeline, name: &str) -> gst::Element {
    pipeline.by_name(name).unwrap_or_else(|| panic!("no {name}"))
}

/// Where senders of a pipeline with `ontemposrc name=src` send to: HOST:PORT/FINGERPRINT.
pub fn url(pipeline: &gst::Pipeline) -> String {
    element(pipeline, "src").property::<Option<String>>("url").expect("it listens")
}

/// A frame as a pad has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub bytes: Vec<u8>,
    pub pts: Option<gst::ClockTime>,
    /// Running time of `pts`.
    pub running: Option<gst::ClockTime>,
    pub is_delta: bool,
}

/// The frames that pass a pad.
pub fn seen(pipeline: &gst::Pipeline, name: &str, pad: &str) -> Arc<Mutex<Vec<Seen>>> {
    let all = Arc::<Mutex<Vec<Seen>>>::default();
    let noted = Arc::clone(&all);
    let pad = element(pipeline, name).static_pad(pad).expect("a pad");
    pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
        let buffer = info.buffer().expect("a buffer");
        let bytes = buffer.map_readable().expect("readable").to_vec();
        let is_delta = buffer.flags().contains(gst::BufferFlags::DELTA_UNIT);
        let pts = buffer.pts();
        let segment = pad.sticky_event::<gst::event::Segment>(0).expect("a segment");
        let segment = segment.segment().downcast_ref::<gst::ClockTime>().cloned();
        let running = segment.and_then(|segment| segment.to_running_time(pts));
        noted.lock().expect("no panic").push(Seen { bytes, pts, running, is_delta });
        gst::PadProbeReturn::Ok
    });
    all
}

/// A receiver refuses what this pipeline sends, and says so at both ends.
pub fn is_refused(
    sending: &gst::Pipeline,
    mut lines: std::io::Lines<BufReader<ChildStderr>>,
    expected: &str,
) {
    play(sending);
    let (error, _) = end_of(sending).expect_err("refused");
    assert!(error.message().contains(expected), "{error}");
    stop(sending);
    let line = lines.find_map(|line| line.ok().filter(|line| line.contains(expected)));
    assert!(line.expect("its user is told").contains("was refused"));
}

/// Starts a program that says where it listens, with the option `--to` for senders.
pub fn listening(
    command: &mut Command,
) -> (Running, String, std::io::Lines<BufReader<ChildStderr>>) {
    let mut running = Running::start(command.stderr(Stdio::piped()));
    let mut lines = BufReader::new(running.0.stderr.take().expect("piped")).lines();
    let to = lines.find_map(|line| Some(line.ok()?.split_once("--to ")?.1.to_owned()));
    (running, to.expect("it says where it listens"), lines)
}

/// 2 s of pictures, and of sound.
pub const PICTURES: &str = "videotestsrc num-buffers=50 is-live=true ! video/x-raw,format=I420,width=160,height=120,framerate=25/1 ! x264enc speed-preset=ultrafast key-int-max=10";
pub const SOUND: &str = "audiotestsrc num-buffers=94 is-live=true samplesperbuffer=1024 ! audio/x-raw,rate=48000,channels=2";

/// A pipeline that sends pictures to `sink` and sound to a pad that is asked for.
pub fn sender(pictures: &str, sound: &str, url: &str) -> gst::Pipeline {
    pipeline(&format!(
        "{pictures} ! ontemposink name=sink sync=false latency=1000 uri={url} {sound} ! sink.sink_0"
    ))
}

/// A pipeline that receives, and what follows.
pub fn source(then: &str) -> gst::Pipeline {
    pipeline(&format!("ontemposrc name=src uri=ontempo://127.0.0.1:{} {then}", free_port()))
}

/// What has passed a pad.
pub type Frames = Arc<Mutex<Vec<Seen>>>;

/// Takes what has passed so far.
pub fn taken(frames: &Frames) -> Vec<Seen> {
    std::mem::take(&mut *frames.lock().expect("no panic"))
}
