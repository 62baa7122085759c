//! Elements in harnesses, whose frames are any bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_check::Harness;

use super::{free_port, init, wait_until};

pub fn source(port: u16) -> gst::Element {
    init();
    gst::ElementFactory::make("ontemposrc")
        .property("uri", format!("ontempo://127.0.0.1:{port}"))
        .build()
        .expect("made")
}

/// Caps of pictures of this width.
pub fn h264(width: i32) -> gst::Caps {
    init();
    gst::Caps::builder("video/x-h264")
        .field("stream-format", "byte-stream")
        .field("alignment", "au")
        .field("width", width)
        .build()
}

/// Caps of sound.
pub fn opus() -> gst::Caps {
    init();
    gst::Caps::builder("audio/x-opus").field("channel-mapping-family", 0).build()
}

/// A source that plays in a harness, and a sink that sends to it in another, with its bus.
pub fn pair(caps: gst::Caps) -> (Harness, Harness, gst::Bus) {
    pair_with(source(free_port()), caps)
}

/// A sink for a harness, to this URL, which waits for no clock.
pub fn sink_to<'a>(
    url: impl Into<gst::glib::Value> + Send + 'a,
) -> gst::element_factory::ElementBuilder<'a> {
    init();
    gst::ElementFactory::make("ontemposink").property("uri", url).property("sync", false)
}

pub fn pair_with(element: gst::Element, caps: gst::Caps) -> (Harness, Harness, gst::Bus) {
    let mut receiving = Harness::with_element(&element, None, Some("src"));
    receiving.play();
    let url: Option<String> = element.property("url");
    let sink = sink_to(url).property("latency", 300_u32).build().expect("made");
    let bus = gst::Bus::new();
    sink.set_bus(Some(&bus));
    let mut sending = Harness::with_element(&sink, Some("sink"), None);
    sending.set_src_caps(caps);
    sending.play();
    (sending, receiving, bus)
}

/// A frame shown at this time, ms.
pub fn frame(bytes: &[u8], at: u64, flags: gst::BufferFlags) -> gst::Buffer {
    let mut buffer = gst::Buffer::from_slice(bytes.to_vec());
    let changed = buffer.get_mut().expect("alone");
    changed.set_pts(gst::ClockTime::from_mseconds(at));
    changed.set_flags(flags);
    buffer
}

/// The two pads of a sink, each with its harness, and its bus; pictures at the first.
pub fn two_pads(url: &str) -> ([Harness; 2], gst::Element, gst::Bus) {
    two_pads_with(url, "deadline")
}

pub fn two_pads_with(url: &str, reliability: &str) -> ([Harness; 2], gst::Element, gst::Bus) {
    let sink = sink_to(url)
        // A harness pushes into one pad after the other.
        .property("async", false)
        .property("latency", 300_u32)
        .property_from_str("reliability", reliability)
        .build()
        .expect("made");
    let bus = gst::Bus::new();
    sink.set_bus(Some(&bus));
    let mut pads = ["sink_0", "sink_1"].map(|pad| Harness::with_element(&sink, Some(pad), None));
    pads[0].play();
    pads[0].set_src_caps(h264(320));
    pads[1].set_src_caps(opus());
    (pads, sink, bus)
}

/// The harnesses behind the pads of streams, which are linked as soon as they are there.
pub type Pads = Arc<Mutex<BTreeMap<String, Harness>>>;

/// A source that plays, where its senders send to, and what comes.
pub fn several_streams() -> (gst::Element, String, Pads) {
    several_streams_of(source(free_port()))
}

pub fn several_streams_of(element: gst::Element) -> (gst::Element, String, Pads) {
    let linked = Pads::default();
    let linking = Arc::clone(&linked);
    element.connect_pad_added(move |_, pad| {
        let mut harness = Harness::new_empty();
        harness.add_element_src_pad(pad);
        linking.lock().expect("no panic").insert(pad.name().to_string(), harness);
    });
    element.set_state(gst::State::Playing).expect("it plays");
    let url = element.property::<Option<String>>("url").expect("it listens");
    (element, url, linked)
}

/// The harness of a pad, once that is there.
pub fn come(pads: &Pads, name: &str) -> Harness {
    wait_until(name, || pads.lock().expect("no panic").contains_key(name));
    pads.lock().expect("no panic").remove(name).expect("there")
}

pub const KEY: gst::BufferFlags = gst::BufferFlags::empty();

pub fn is_next(receiving: &mut Harness, bytes: &[u8]) {
    let buffer = receiving.pull().expect("a frame");
    assert_eq!(buffer.map_readable().expect("readable").as_slice(), bytes);
}

/// The first frame of both pads of a sink comes at a pad of its own.
pub fn begin(pictures: &mut Harness, sound: &mut Harness, pads: &Pads) -> [Harness; 2] {
    pictures.push(frame(b"key", 0, KEY)).expect("taken");
    sound.push(frame(b"voice", 0, KEY)).expect("taken");
    let [mut film, mut voice] = ["src_0", "src_1"].map(|name| come(pads, name));
    is_next(&mut film, b"key");
    is_next(&mut voice, b"voice");
    [film, voice]
}

/// The warnings on a bus that have this in their sentence.
pub fn warnings(bus: &gst::Bus, part: &str) -> usize {
    let mut count = 0;
    while let Some(message) = bus.pop_filtered(&[gst::MessageType::Warning]) {
        let gst::MessageView::Warning(warning) = message.view() else { continue };
        count += usize::from(warning.error().message().contains(part));
    }
    count
}

/// Waits for the end of the stream, before which no more frames come.
pub fn ends(receiving: &mut Harness) {
    while receiving.pull_event().expect("the end").type_() != gst::EventType::Eos {}
    assert!(receiving.try_pull().is_none());
}
