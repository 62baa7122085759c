//! What ends, or is released, and what goes on behind that.

mod common;

use std::net::UdpSocket;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::harnesses::{
    KEY, begin, ends, frame, h264, is_next, opus, pair_with, several_streams, several_streams_of,
    sink_to, source, two_pads,
};
use common::{free_port, wait_until};
use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_check::Harness;

/// A flushing seek, as of a film that begins again.
fn flush(sending: &mut Harness) {
    assert!(sending.push_event(gst::event::FlushStart::new()));
    assert!(sending.push_event(gst::event::FlushStop::new(true)));
    let segment = gst::FormattedSegment::<gst::ClockTime>::new();
    assert!(sending.push_event(gst::event::Segment::new(&segment)));
}

#[test]
fn a_flush_while_the_end_waits_for_the_connection_takes_the_end_back() {
    // Nobody answers there yet.
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("bound").port();
    let sink = sink_to(format!("ontempo://127.0.0.1:{port}"))
        .property("insecure", true)
        .property("async", false)
        .build()
        .expect("made");
    let mut sending = Harness::with_element(&sink, Some("sink"), None);
    sending.play();
    sending.set_src_caps(opus());
    let pad = sending.srcpad().expect("a pad").clone();
    let ending = thread::spawn(move || pad.push_event(gst::event::Eos::new()));
    thread::sleep(Duration::from_millis(200));
    assert!(sending.push_event(gst::event::FlushStart::new()));
    assert!(!ending.join().expect("no panic"), "it was broken off");
    assert!(sending.push_event(gst::event::FlushStop::new(false)));
    drop(silent);
    let element = source(port);
    element.set_property("anyone", true);
    let mut receiving = Harness::with_element(&element, None, Some("src"));
    receiving.play();
    let segment = gst::FormattedSegment::<gst::ClockTime>::new();
    assert!(sending.push_event(gst::event::Segment::new(&segment)));
    sending.push(frame(b"voice", 0, KEY)).expect("it goes on");
    is_next(&mut receiving, b"voice");
    sending.push_event(gst::event::Eos::new());
    ends(&mut receiving);
}

#[test]
fn a_flush_after_the_end_takes_it_back_and_the_stream_goes_on_over_another_connection() {
    let element = source(free_port());
    element.set_property("keep-listening", true);
    let (mut sending, mut receiving, bus) = pair_with(element, h264(320));
    for _ in 0..3 {
        sending.push(frame(b"film", 0, KEY)).expect("taken");
        is_next(&mut receiving, b"film");
        assert!(sending.push_event(gst::event::Eos::new()));
        flush(&mut sending);
    }
    assert!(bus.pop_filtered(&[gst::MessageType::Error]).is_none());
}

#[test]
fn a_flush_after_the_end_of_all_pads_takes_it_back_at_all_that_are_left() {
    let element = source(free_port());
    element.set_property("keep-listening", true);
    let (source, url, pads) = several_streams_of(element);
    let ([mut pictures, mut sound], sink, bus) = two_pads(&url);
    let [mut film, mut voice] = begin(&mut pictures, &mut sound, &pads);
    assert!(sound.push_event(gst::event::Eos::new()));
    assert!(pictures.push_event(gst::event::Eos::new()));
    [&mut pictures, &mut sound].into_iter().for_each(flush);
    pictures.push(frame(b"key", 0, KEY)).expect("taken");
    sound.push(frame(b"voice", 0, KEY)).expect("taken");
    is_next(&mut film, b"key");
    is_next(&mut voice, b"voice");
    // Of one pad alone, whose stream has ended while the other goes on.
    assert!(sound.push_event(gst::event::Eos::new()));
    flush(&mut sound);
    sound.push(frame(b"more", 20, KEY)).expect("taken");
    is_next(&mut voice, b"more");
    // Without a pad that is released the other goes on alone.
    sink.release_request_pad(&sink.static_pad("sink_1").expect("a pad"));
    assert!(pictures.push_event(gst::event::Eos::new()));
    flush(&mut pictures);
    pictures.push(frame(b"alone", 0, KEY)).expect("taken");
    assert!(bus.pop_filtered(&[gst::MessageType::Error]).is_none());
    source.set_state(gst::State::Null).expect("stopped");
}

#[test]
fn a_sink_that_was_stopped_before_it_was_answered_says_nothing_of_that_later() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("bound").port();
    let sink = sink_to(format!("ontempo://127.0.0.1:{port}"))
        .property("insecure", true)
        .build()
        .expect("made");
    let bus = gst::Bus::new();
    sink.set_bus(Some(&bus));
    let mut unanswered = Harness::with_element(&sink, Some("sink"), None);
    unanswered.set_src_caps(opus());
    unanswered.play();
    thread::sleep(Duration::from_millis(500));
    sink.set_state(gst::State::Null).expect("stopped");
    drop(unanswered);
    let element = source(free_port());
    let mut receiving = Harness::with_element(&element, None, Some("src"));
    receiving.play();
    sink.set_property("insecure", false);
    sink.set_property("uri", element.property::<Option<String>>("url"));
    let mut sending = Harness::with_element(&sink, Some("sink"), None);
    sending.set_src_caps(opus());
    sending.play();
    sending.push(frame(b"voice", 0, KEY)).expect("taken");
    is_next(&mut receiving, b"voice");
    // Longer than a handshake may take.
    let limit = gst::ClockTime::from_seconds(8);
    let error = bus.timed_pop_filtered(Some(limit), &[gst::MessageType::Error]);
    assert!(error.is_none(), "{error:?}");
}

type Pushing = JoinHandle<(Harness, Result<gst::FlowSuccess, gst::FlowError>)>;

/// A sink whose pad `sink_0` has got a buffer, which waits for the caps of `sink_1`, as is said.
fn waiting(url: &str) -> (gst::Element, Pushing) {
    let sink = sink_to(url).property("async", false).build().expect("made");
    let bus = gst::Bus::new();
    sink.set_bus(Some(&bus));
    let mut sending = Harness::with_element(&sink, Some("sink_0"), None);
    sink.request_pad_simple("sink_1").expect("a pad");
    sending.set_src_caps(opus());
    sending.play();
    let pushing = push(sending);
    let limit = gst::ClockTime::from_seconds(20);
    let warning = bus.timed_pop_filtered(Some(limit), &[gst::MessageType::Warning]);
    let warning = warning.expect("a warning");
    let gst::MessageView::Warning(warning) = warning.view() else { panic!("another message") };
    let sentence = warning.error().message().to_owned();
    assert!(sentence.starts_with("waiting for the caps of sink_1: "), "{sentence}");
    (sink, pushing)
}

/// Pushes a buffer in a thread.
fn push(mut sending: Harness) -> Pushing {
    thread::spawn(move || {
        let pushed = sending.push(frame(b"voice", 0, KEY));
        (sending, pushed)
    })
}

/// Releases a pad while a buffer is inside, which comes back.
fn release(sink: &gst::Element, name: &str, pushing: Pushing) {
    let pad = sink.static_pad(name).expect("a pad");
    let of_pad = sink.clone();
    let releasing = thread::spawn(move || of_pad.release_request_pad(&pad));
    wait_until("it is released", || releasing.is_finished());
    let (_sending, pushed) = pushing.join().expect("no panic");
    assert_eq!(pushed, Err(gst::FlowError::Flushing));
    assert!(sink.static_pad(name).is_none());
}

#[test]
fn a_pad_whose_caps_do_not_come_is_named() {
    let (source, url, _pads) = several_streams();
    let (sink, pushing) = waiting(&url);
    // Without it the connection begins.
    sink.release_request_pad(&sink.static_pad("sink_1").expect("a pad"));
    let (_sending, pushed) = pushing.join().expect("no panic");
    pushed.expect("taken");
    source.set_state(gst::State::Null).expect("stopped");
}

#[test]
fn a_pad_is_released_while_a_buffer_waits_inside() {
    let (source, url, _pads) = several_streams();
    let (sink, pushing) = waiting(&url);
    release(&sink, "sink_0", pushing);
    sink.set_state(gst::State::Null).expect("stopped");
    // Before it plays the first buffer waits.
    let sink = gst::ElementFactory::make("ontemposink").property("uri", url).build().expect("made");
    let mut sending = Harness::with_element(&sink, Some("sink_0"), None);
    // The harness has begun to play it, without preroll.
    sink.set_state(gst::State::Ready).expect("stopped");
    sink.set_property("async", true);
    assert_eq!(sink.set_state(gst::State::Paused), Ok(gst::StateChangeSuccess::Async));
    sending.set_src_caps(opus());
    let pushing = push(sending);
    let (paused, state, _) = sink.state(gst::ClockTime::from_seconds(20));
    assert_eq!((paused, state), (Ok(gst::StateChangeSuccess::Success), gst::State::Paused));
    release(&sink, "sink_0", pushing);
    sink.set_state(gst::State::Null).expect("stopped");
    source.set_state(gst::State::Null).expect("stopped");
}

#[test]
fn a_source_that_has_played_is_freed() {
    let source = source(free_port());
    let pad = source.static_pad("src").expect("a pad").downgrade();
    source.set_state(gst::State::Playing).expect("it plays");
    source.set_state(gst::State::Null).expect("stopped");
    let element = source.downgrade();
    drop(source);
    wait_until("nobody holds it", || element.upgrade().is_none() && pad.upgrade().is_none());
}
