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
