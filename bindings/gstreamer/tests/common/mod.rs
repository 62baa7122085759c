//! Pipelines of the tests.
#![allow(dead_code, reason = "each test uses some of it")]

use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Once;
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
    pipeline.set_state(gst::State::Playing).expect("it begins to play");
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
