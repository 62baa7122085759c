//! Each element by itself, in the harness of GStreamer's own tests.

mod common;

use common::{free_port, init};
use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_check::Harness;

/// 14 null packets of a transport stream.
fn packets() -> gst::Buffer {
    let packet = |_| [&[0x47, 0x1f, 0xff, 0x10][..], &[0xff; 184]].concat();
    gst::Buffer::from_slice((0..14).flat_map(packet).collect::<Vec<u8>>())
}

fn transport_stream() -> gst::Caps {
    gst::Caps::builder("video/mpegts").field("systemstream", true).build()
}

fn source(port: u16) -> gst::Element {
    init();
    gst::ElementFactory::make("ontemposrc")
        .property("uri", format!("ontempo://127.0.0.1:{port}"))
        .build()
        .expect("made")
}

#[test]
fn bytes_that_are_pushed_into_the_sink_are_pulled_from_the_source() {
    let element = source(free_port());
    let mut receiving = Harness::with_element(&element, None, Some("src"));
    receiving.play();
    let url: Option<String> = element.property("url");
    let sink = gst::ElementFactory::make("ontemposink")
        .property("uri", url)
        .property("sync", false)
        .build()
        .expect("made");
    let mut sending = Harness::with_element(&sink, Some("sink"), None);
    sending.set_src_caps(transport_stream());
    sending.play();
    sending.push(packets()).expect("taken");
    sending.push_event(gst::event::Eos::new());
    let mut received = Vec::new();
    while received.len() < 14 * 188 {
        let buffer = receiving.pull().expect("more");
        received.extend_from_slice(&buffer.map_readable().expect("readable"));
    }
    assert!(packets().map_readable().expect("readable").as_slice() == received);
    let caps = receiving.sinkpad().and_then(|pad| pad.current_caps()).expect("caps");
    assert!(caps.can_intersect(&transport_stream()), "{caps}");
}

#[test]
fn caps_that_change_in_mid_stream_are_refused_with_a_sentence() {
    let element = source(free_port());
    let mut receiving = Harness::with_element(&element, None, Some("src"));
    receiving.play();
    let url: Option<String> = element.property("url");
    let sink = gst::ElementFactory::make("ontemposink").property("uri", url).build().expect("made");
    let bus = gst::Bus::new();
    sink.set_bus(Some(&bus));
    let mut sending = Harness::with_element(&sink, Some("sink"), None);
    sending.set_src_caps(transport_stream());
    sending.play();
    sending.push(packets()).expect("taken");
    sending.push_event(gst::event::Caps::new(&gst::Caps::new_empty_simple("application/x-rtp")));
    assert!(sending.push(packets()).is_err());
    let error = bus.pop_filtered(&[gst::MessageType::Error]).expect("an error");
    let gst::MessageView::Error(error) = error.view() else { panic!("another message") };
    let sentence = error.error().message().to_owned();
    assert!(sentence.contains("from MPEG-TS to RTP in mid-stream"), "{sentence}");
}

/// Caps of pictures of this width.
fn h264(width: i32) -> gst::Caps {
    init();
    gst::Caps::builder("video/x-h264")
        .field("stream-format", "byte-stream")
        .field("alignment", "au")
        .field("width", width)
        .build()
}

/// A frame shown at this time, ms.
fn frame(bytes: &[u8], at: u64, flags: gst::BufferFlags) -> gst::Buffer {
    let mut buffer = gst::Buffer::from_slice(bytes.to_vec());
    let changed = buffer.get_mut().expect("alone");
    changed.set_pts(gst::ClockTime::from_mseconds(at));
    changed.set_flags(flags);
    buffer
}

/// A source that plays in a harness, and a sink that sends to it in another, with its bus.
fn pair(caps: gst::Caps) -> (Harness, Harness, gst::Bus) {
    let element = source(free_port());
    let mut receiving = Harness::with_element(&element, None, Some("src"));
    receiving.play();
    let url: Option<String> = element.property("url");
    let sink = gst::ElementFactory::make("ontemposink")
        .property("uri", url)
        .property("sync", false)
        .property("latency", 300_u32)
        .build()
        .expect("made");
    let bus = gst::Bus::new();
    sink.set_bus(Some(&bus));
    let mut sending = Harness::with_element(&sink, Some("sink"), None);
    sending.set_src_caps(caps);
    sending.play();
    (sending, receiving, bus)
}

/// Waits for the end of the stream, before which no more frames come.
fn ends(receiving: &mut Harness) {
    while receiving.pull_event().expect("the end").type_() != gst::EventType::Eos {}
    assert!(receiving.try_pull().is_none());
}

/// The caps of the source's pad now.
fn caps(receiving: &Harness) -> gst::Caps {
    receiving.sinkpad().and_then(|pad| pad.current_caps()).expect("caps")
}

#[test]
fn a_new_size_in_mid_stream_is_told_with_the_frame_that_has_it() {
    let (mut sending, mut receiving, _bus) = pair(h264(320));
    let (key, delta) = (gst::BufferFlags::empty(), gst::BufferFlags::DELTA_UNIT);
    let droppable = delta | gst::BufferFlags::DROPPABLE;
    sending.push(frame(b"key", 0, key)).expect("taken");
    sending.push(frame(b"delta", 40, delta)).expect("taken");
    sending.push(frame(b"droppable", 80, droppable)).expect("taken");
    for (bytes, flags) in [(&b"key"[..], key), (b"delta", delta), (b"droppable", droppable)] {
        let buffer = receiving.pull().expect("a frame");
        assert_eq!(buffer.map_readable().expect("readable").as_slice(), bytes);
        let of_kind = buffer.flags() & (gst::BufferFlags::DELTA_UNIT | gst::BufferFlags::DROPPABLE);
        assert_eq!(of_kind, flags);
    }
    assert_eq!(caps(&receiving), h264(320));
    sending.push_event(gst::event::Caps::new(&h264(640)));
    // Longer than a datagram, and than a unit of the network.
    let long = vec![7; 700_000];
    sending.push(frame(&long, 120, key)).expect("taken");
    let buffer = receiving.pull().expect("a frame");
    assert!(buffer.map_readable().expect("readable").as_slice() == long);
    assert!(!buffer.flags().contains(gst::BufferFlags::DISCONT));
    assert_eq!(caps(&receiving), h264(640));
    sending.push_event(gst::event::Eos::new());
    ends(&mut receiving);
}

#[test]
fn another_coding_in_mid_stream_is_refused_with_a_sentence() {
    let (mut sending, _receiving, bus) = pair(h264(320));
    sending.push(frame(b"key", 0, gst::BufferFlags::empty())).expect("taken");
    let h265 = gst::Caps::builder("video/x-h265")
        .field("stream-format", "byte-stream")
        .field("alignment", "au")
        .build();
    sending.push_event(gst::event::Caps::new(&h265));
    let error = bus.pop_filtered(&[gst::MessageType::Error]).expect("an error");
    let gst::MessageView::Error(error) = error.view() else { panic!("another message") };
    let sentence = error.error().message().to_owned();
    assert!(sentence.contains("from H.264 to H.265 in mid-stream"), "{sentence}");
}

#[test]
fn forms_that_need_something_beside_the_frames_are_not_negotiated() {
    init();
    let sink = gst::ElementFactory::make("ontemposink").build().expect("made");
    let pad = sink.static_pad("sink").expect("a pad");
    for (text, is_taken) in [
        ("video/x-h264,stream-format=byte-stream,alignment=au", true),
        ("video/x-h264,stream-format=avc,alignment=au", false),
        ("video/x-h264,stream-format=byte-stream,alignment=nal", false),
        ("video/x-av1,stream-format=obu-stream,alignment=tu", true),
        ("audio/mpeg,mpegversion=4,stream-format=raw,framed=true", false),
        ("audio/mpeg,mpegversion=4,stream-format=adts,framed=true", true),
        ("audio/x-opus,channel-mapping-family=0", true),
        ("video/x-vp8", false),
    ] {
        let caps: gst::Caps = text.parse().expect("caps");
        assert_eq!(pad.query_accept_caps(&caps), is_taken, "{text}");
    }
}

/// What the latency query says, and whether it is live.
fn latency(element: &gst::Element) -> (bool, gst::ClockTime) {
    let mut query = gst::query::Latency::new();
    assert!(element.query(&mut query));
    let (is_live, least, _) = query.result();
    (is_live, least)
}

#[test]
fn the_source_says_its_latency_when_the_stream_has_told_it_and_asks_to_distribute_it() {
    let (mut sending, mut receiving, _bus) = pair(h264(320));
    let source = receiving.element().expect("the source");
    let bus = gst::Bus::new();
    source.set_bus(Some(&bus));
    assert_eq!(latency(&source), (true, gst::ClockTime::ZERO));
    sending.push(frame(b"key", 0, gst::BufferFlags::empty())).expect("taken");
    receiving.pull().expect("a frame");
    assert_eq!(latency(&source), (true, gst::ClockTime::from_mseconds(350)));
    assert!(bus.pop_filtered(&[gst::MessageType::Latency]).is_some());
    source.set_bus(None);
}

#[test]
fn a_flush_leaves_both_elements_working() {
    let (mut sending, mut receiving, _bus) = pair(h264(320));
    let key = gst::BufferFlags::empty();
    sending.push(frame(b"before", 0, key)).expect("taken");
    receiving.pull().expect("a frame");
    assert!(sending.push_event(gst::event::FlushStart::new()));
    assert_eq!(sending.push(frame(b"meanwhile", 40, key)), Err(gst::FlowError::Flushing));
    assert!(sending.push_event(gst::event::FlushStop::new(true)));
    let segment = gst::FormattedSegment::<gst::ClockTime>::new();
    assert!(sending.push_event(gst::event::Segment::new(&segment)));
    sending.push(frame(b"after", 80, key)).expect("taken");
    assert_eq!(receiving.pull().expect("a frame").size(), 5);
    let source = receiving.element().expect("the source");
    assert!(source.send_event(gst::event::FlushStart::new()));
    assert!(source.send_event(gst::event::FlushStop::new(true)));
    sending.push(frame(b"at last", 120, key)).expect("taken");
    assert_eq!(receiving.pull().expect("a frame").size(), 7);
    sending.push_event(gst::event::Eos::new());
    ends(&mut receiving);
}

#[test]
fn both_elements_go_through_their_states_again_and_again() {
    let port = free_port();
    let source = source(port);
    let nobody = format!("ontempo://127.0.0.1:{}/{}", free_port(), "0".repeat(64));
    let sink = gst::ElementFactory::make("ontemposink").property("uri", nobody).build();
    let sink = sink.expect("made");
    for _ in 0..3 {
        for state in [gst::State::Ready, gst::State::Paused, gst::State::Ready, gst::State::Null] {
            source.set_state(state).expect("changed");
            // A sink in PAUSED waits for a buffer.
            sink.set_state(state).expect("changed");
        }
        for state in [gst::State::Playing, gst::State::Null] {
            source.set_state(state).expect("changed");
            sink.set_state(state).expect("changed");
        }
    }
    // The port is free again.
    drop(std::net::UdpSocket::bind(("127.0.0.1", port)).expect("free"));
}

#[test]
fn a_uri_is_checked_when_it_is_set() {
    init();
    let kinds = [(gst::URIType::Sink, "ontemposink"), (gst::URIType::Src, "ontemposrc")];
    for (kind, name) in kinds {
        let element = gst::Element::make_from_uri(kind, "ontempo://host.example:4433", None);
        let element = element.expect("an element for the protocol");
        assert_eq!(element.factory().expect("a factory").name(), name);
        let handler = element.dynamic_cast_ref::<gst::URIHandler>().expect("a handler");
        assert_eq!(handler.uri().as_deref(), Some("ontempo://host.example:4433"));
        let error = handler.set_uri("ontempo://host.example").expect_err("no port");
        assert!(error.message().contains("the port is missing"), "{error}");
    }
}
