//! Each element by itself, in the harness of GStreamer's own tests. gst-validate would look at pipelines, too; Debian 12
//! has no package of it.

mod common;

use common::harnesses::{
    KEY, begin, come, ends, frame, h264, is_next, opus, pair, several_streams, sink_to, source,
    two_pads,
};
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

#[test]
fn bytes_that_are_pushed_into_the_sink_are_pulled_from_the_source() {
    let element = source(free_port());
    let mut receiving = Harness::with_element(&element, None, Some("src"));
    receiving.play();
    let url: Option<String> = element.property("url");
    let sink = sink_to(url).build().expect("made");
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

/// The pictures are the last stream to end: then the sink is at its end, and the source has no pads of streams once it
/// is stopped.
fn end_of_all(pictures: &mut Harness, film: &mut Harness, source: &gst::Element, bus: &gst::Bus) {
    pictures.push_event(gst::event::Eos::new());
    ends(film);
    let limit = gst::ClockTime::from_seconds(10);
    assert!(bus.timed_pop_filtered(Some(limit), &[gst::MessageType::Eos]).is_some());
    source.set_state(gst::State::Null).expect("stopped");
    assert!(source.static_pad("src_0").is_none(), "pads of streams go with them");
}

#[test]
fn each_stream_has_its_pad_its_caps_and_its_end() {
    let (source, url, pads) = several_streams();
    let ([mut pictures, mut sound], _sink, bus) = two_pads(&url);
    let [mut film, mut voice] = begin(&mut pictures, &mut sound, &pads);
    assert_eq!((caps(&film), caps(&voice)), (h264(320), opus()));
    let groups = [&film, &voice].map(|harness| {
        let pad = harness.sinkpad().expect("a pad");
        let start = pad.sticky_event::<gst::event::StreamStart>(0).expect("begun");
        (start.group_id(), start.stream_id().to_owned())
    });
    assert_eq!(groups[0].0, groups[1].0, "they belong together");
    assert_ne!(groups[0].1, groups[1].1, "they are not the same");
    for pad in ["src_0", "src_1"] {
        let mut query = gst::query::Latency::new();
        assert!(source.static_pad(pad).expect("a pad").query(&mut query));
        assert_eq!(query.result().1, gst::ClockTime::from_mseconds(350));
    }

    // New caps at one pad are of that stream alone.
    pictures.push_event(gst::event::Caps::new(&h264(640)));
    pictures.push(frame(b"wide", 40, KEY)).expect("taken");
    is_next(&mut film, b"wide");
    assert_eq!((caps(&film), caps(&voice)), (h264(640), opus()));

    // So is the end; the others go on.
    sound.push_event(gst::event::Eos::new());
    ends(&mut voice);
    pictures.push(frame(b"silent", 80, KEY)).expect("taken");
    is_next(&mut film, b"silent");
    assert!(bus.pop_filtered(&[gst::MessageType::Eos]).is_none(), "not all are at their end");
    assert_eq!(sound.push(frame(b"more", 80, KEY)), Err(gst::FlowError::Eos));
    end_of_all(&mut pictures, &mut film, &source, &bus);
}

#[test]
fn a_pad_that_is_released_in_mid_stream_ends_its_stream_and_a_new_one_comes_too_late() {
    let (source, url, pads) = several_streams();
    let ([mut pictures, mut sound], sink, bus) = two_pads(&url);
    let [mut film, mut voice] = begin(&mut pictures, &mut sound, &pads);
    assert!(sink.request_pad_simple("sink_%u").is_none());
    let warning = bus.pop_filtered(&[gst::MessageType::Warning]).expect("a warning");
    let gst::MessageView::Warning(warning) = warning.view() else { panic!("another message") };
    assert!(warning.error().message().contains("a pad is asked for in mid-stream"));
    let pad = sink.static_pad("sink_1").expect("a pad");
    sink.release_request_pad(&pad);
    assert!(sink.static_pad("sink_1").is_none());
    ends(&mut voice);
    pictures.push(frame(b"silent", 40, KEY)).expect("taken");
    is_next(&mut film, b"silent");
    end_of_all(&mut pictures, &mut film, &source, &bus);
}

#[test]
fn a_flush_of_one_pad_leaves_the_other_alone() {
    let (source, url, pads) = several_streams();
    let ([mut pictures, mut sound], _sink, _bus) = two_pads(&url);
    pictures.push(frame(b"key", 0, KEY)).expect("taken");
    sound.push(frame(b"voice", 0, KEY)).expect("taken");
    let [mut film, mut voice] = ["src_0", "src_1"].map(|name| come(&pads, name));
    assert!(sound.push_event(gst::event::FlushStart::new()));
    assert_eq!(sound.push(frame(b"lost", 20, KEY)), Err(gst::FlowError::Flushing));
    pictures.push(frame(b"meanwhile", 40, KEY)).expect("taken");
    assert!(sound.push_event(gst::event::FlushStop::new(false)));
    let segment = gst::FormattedSegment::<gst::ClockTime>::new();
    assert!(sound.push_event(gst::event::Segment::new(&segment)));
    sound.push(frame(b"after", 60, KEY)).expect("taken");
    is_next(&mut film, b"key");
    is_next(&mut film, b"meanwhile");
    is_next(&mut voice, b"voice");
    is_next(&mut voice, b"after");
    source.set_state(gst::State::Null).expect("stopped");
}

#[test]
fn one_pad_that_is_asked_for_is_a_stream_as_any_other() {
    let element = source(free_port());
    let mut receiving = Harness::with_element(&element, None, Some("src"));
    receiving.play();
    let url = element.property::<Option<String>>("url").expect("it listens");
    let sink = sink_to(url).build().expect("made");
    let mut sending = Harness::with_element(&sink, Some("sink_7"), None);
    sending.set_src_caps(opus());
    sending.play();
    sending.push(frame(b"voice", 0, KEY)).expect("taken");
    is_next(&mut receiving, b"voice");
    sending.push_event(gst::event::Eos::new());
    ends(&mut receiving);
}

#[test]
fn a_frame_that_is_too_long_is_left_out_with_a_warning_that_says_how_long() {
    let (mut sending, mut receiving, bus) = pair(h264(320));
    sending.push(frame(b"key", 0, KEY)).expect("taken");
    is_next(&mut receiving, b"key");
    let long = vec![0; (16 << 20) + 1];
    sending.push(frame(&long, 40, gst::BufferFlags::DELTA_UNIT)).expect("left out");
    let warning = bus.pop_filtered(&[gst::MessageType::Warning]).expect("a warning");
    let gst::MessageView::Warning(warning) = warning.view() else { panic!("another message") };
    assert!(warning.error().matches(gst::StreamError::Encode), "{:?}", warning.error());
    let sentence = warning.error().message().to_owned();
    let expected =
        "sink: a frame of 16777217 bytes, more than the 16777216 that are carried; it is left out";
    assert_eq!(sentence, expected);
    // What comes then does not follow.
    sending.push(frame(b"next", 80, KEY)).expect("taken");
    let buffer = receiving.pull().expect("a frame");
    assert!(buffer.flags().contains(gst::BufferFlags::DISCONT));
}

#[test]
fn more_pads_than_a_connection_carries_are_not_given() {
    init();
    let sink = gst::ElementFactory::make("ontemposink").build().expect("made");
    let pads: Vec<_> = (0..9).map(|_| sink.request_pad_simple("sink_%u")).collect();
    assert_eq!(pads.iter().flatten().count(), 8);
    let names: Vec<_> = pads.iter().flatten().map(|pad| pad.name().to_string()).collect();
    assert_eq!(names[7], "sink_7");
    let ts = transport_stream();
    assert!(!pads[0].as_ref().expect("a pad").query_accept_caps(&ts), "MPEG-TS goes alone");
    pads.iter().flatten().for_each(|pad| sink.release_request_pad(pad));
    assert!(sink.request_pad_simple("sink_%u").is_some());
}
