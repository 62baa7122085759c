//! One set of streams behind another, and branches that stand still.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use common::harnesses::{
    self, KEY, Pads, begin, frame, is_next, several_streams, two_pads, two_pads_with, warnings,
};
use common::{
    Frames, PICTURES, SOUND, element, end_of, free_port, pipeline, play, require_elements, said,
    seen, sender, source, stop, url, wait_until,
};
use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_check::Harness;

fn count(frames: &Frames) -> usize {
    frames.lock().expect("no panic").len()
}

/// Pictures and sound as they go to a sink's pads.
fn both() -> (String, String) {
    (format!("{PICTURES} tune=zerolatency ! h264parse"), format!("{SOUND} ! opusenc"))
}

/// Where senders send to, of a receiver with `token=t`.
fn to(receiving: &gst::Pipeline) -> String {
    format!("{} token=t", url(receiving))
}

fn send_all(sending: &gst::Pipeline) {
    play(sending);
    end_of(sending).expect("sent");
    stop(sending);
}

#[test]
fn what_is_left_of_a_set_is_played_to_its_end_before_the_next_begins() {
    if !require_elements(&["x264enc", "h264parse", "opusenc", "opusparse"]) {
        return;
    }
    let receiving = source(
        "token=t keep-listening=true ! h264parse name=film ! fakesink sync=false \
         src. ! opusparse name=voice ! fakesink sync=true",
    );
    let [film, voice] = ["film", "voice"].map(|name| seen(&receiving, name, "sink"));
    let (of_first, heard) = (Arc::clone(&film), Arc::clone(&voice));
    // What had been heard as the first picture of the next set came.
    let before = Arc::new(AtomicUsize::new(0));
    let noted = Arc::clone(&before);
    let pad = element(&receiving, "film").static_pad("sink").expect("a pad");
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        if count(&of_first) == 51 {
            noted.store(count(&heard), Ordering::Relaxed);
        }
        gst::PadProbeReturn::Ok
    });
    let ended = Arc::<Mutex<bool>>::default();
    let noted = Arc::clone(&ended);
    let pad = element(&receiving, "voice").static_pad("sink").expect("a pad");
    pad.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
        let is_end = info.event().is_some_and(|event| event.type_() == gst::EventType::Eos);
        *noted.lock().expect("no panic") |= is_end;
        gst::PadProbeReturn::Ok
    });
    play(&receiving);
    let (pictures, sound) = both();
    let sending = sender(&pictures, &sound, &to(&receiving));
    let of_voice = seen(&sending, "sink", "sink_0");
    send_all(&sending);
    let sent = count(&of_voice);
    let next = format!("{pictures} ! ontemposink sync=false latency=1000 uri={}", to(&receiving));
    send_all(&pipeline(&next));
    wait_until("all pictures", || count(&film) == 100);
    assert!(sent >= 90 && count(&voice) == sent, "{} of {sent}", count(&voice));
    assert_eq!(before.load(Ordering::Relaxed), sent);
    assert!(*ended.lock().expect("no panic"), "what follows is told the end");
    stop(&receiving);
}

#[test]
fn a_branch_that_stands_still_keeps_nobody_from_the_next_streams_and_gets_the_rest_of_its_own() {
    if !require_elements(&["x264enc", "h264parse", "opusenc", "opusparse"]) {
        return;
    }
    let receiving = source(
        "token=t keep-listening=true ! h264parse name=film ! fakesink sync=false \
         src. ! opusparse name=voice ! fakesink sync=false async=false",
    );
    let [film, voice] = ["film", "voice"].map(|name| seen(&receiving, name, "src"));
    play(&receiving);
    let (pictures, sound) = both();
    let sending = sender(&pictures, &sound, &to(&receiving));
    let of_voice = seen(&sending, "sink", "sink_0");
    play(&sending);
    wait_until("both", || count(&film) > 5 && count(&voice) > 5);
    let blocked = element(&receiving, "voice").static_pad("sink").expect("a pad");
    let block = gst::PadProbeType::BLOCK_DOWNSTREAM;
    let probe = blocked.add_probe(block, |_, _| gst::PadProbeReturn::Ok).expect("a probe");
    end_of(&sending).expect("sent");
    stop(&sending);
    let more = format!("{sound} ! sink.sink_1 {sound}");
    send_all(&sender(&pictures, &more, &to(&receiving)));
    wait_until("the pictures of both", || count(&film) == 100);
    assert!(count(&voice) < count(&of_voice));
    let source = element(&receiving, "src");
    let pads = || source.pads().iter().map(|pad| pad.name().to_string()).collect::<Vec<_>>();
    // The first is still there, so that another has its place.
    assert_eq!(pads(), ["src", "src_1", "src_8", "src_2"]);
    let expected = "src_1 has ended, and what follows it takes nothing: ";
    let said = said(&receiving);
    assert_eq!(said.iter().filter(|one| one.starts_with(expected)).count(), 1, "{said:?}");
    blocked.remove_probe(probe);
    wait_until("its own rest", || count(&voice) == count(&of_voice));
    wait_until("the pad to go", || pads() == ["src", "src_8", "src_2"]);
    stop(&receiving);
}

#[test]
fn what_a_branch_that_stands_still_does_not_take_is_left_out_in_whole_frames_and_the_other_goes_on()
{
    const FRAMES: u8 = 44;
    let (source, url, pads) = several_streams();
    let of_source = gst::Bus::new();
    source.set_bus(Some(&of_source));
    let ([mut pictures, mut sound], _sink, _bus) = two_pads_with(&url, "full");
    let [mut film, mut voice] = begin(&mut pictures, &mut sound, &pads);
    let blocked = source.static_pad("src_1").expect("a pad");
    let block = gst::PadProbeType::BLOCK_DOWNSTREAM;
    let probe = blocked.add_probe(block, |_, _| gst::PadProbeReturn::Ok).expect("a probe");
    let pushing = std::thread::spawn(move || {
        for number in 0..FRAMES {
            let buffer = frame(&vec![number; 1 << 20], 20 * u64::from(number), KEY);
            sound.push(buffer).expect("taken");
        }
        sound
    });
    wait_until("all of the sound is taken", || pushing.is_finished());
    let mut sound = pushing.join().expect("no panic");
    pictures.push(frame(b"meanwhile", 40, KEY)).expect("taken");
    is_next(&mut film, b"meanwhile");
    assert_eq!(warnings(&of_source, "src_1: more than 32 MiB wait for what follows it"), 1);
    blocked.remove_probe(probe);
    sound.push(frame(b"last", 2_000, KEY)).expect("taken");
    let (mut numbers, mut gaps) = (Vec::new(), 0);
    loop {
        let buffer = voice.pull().expect("a frame");
        let bytes = buffer.map_readable().expect("readable");
        if bytes.as_slice() == b"last" {
            break;
        }
        assert!(bytes.len() == 1 << 20 && bytes.iter().all(|byte| *byte == bytes[0]));
        let follows = numbers.last().is_none_or(|last| last + 1 == bytes[0]);
        assert!(follows || buffer.flags().contains(gst::BufferFlags::DISCONT));
        gaps += usize::from(!follows);
        numbers.push(bytes[0]);
    }
    assert_eq!((gaps, numbers.last()), (1, Some(&(FRAMES - 1))), "{numbers:?}");
    // A frame with what is counted for its datagrams beside it is 1.07 MiB.
    assert!((28..34).contains(&numbers.len()), "{numbers:?}");
    source.set_bus(None);
    source.set_state(gst::State::Null).expect("stopped");
}

#[test]
fn a_source_that_is_started_again_while_an_application_still_handles_a_pad_of_before_has_its_own() {
    let element = harnesses::source(free_port());
    // Of the first run a pad is handled for longer than the source waits for it as it stops.
    let stages = Arc::new((Mutex::new(0), Condvar::new()));
    let (linked, handled) = (Pads::default(), Arc::clone(&stages));
    let linking = Arc::clone(&linked);
    element.connect_pad_added(move |_, pad| {
        let (stage, changed) = &*handled;
        let mut stage = stage.lock().expect("no panic");
        if *stage < 2 {
            *stage = 1;
            changed.notify_all();
            drop(changed.wait_while(stage, |stage| *stage < 2).expect("no panic"));
            return;
        }
        drop(stage);
        let mut harness = Harness::new_empty();
        harness.add_element_src_pad(pad);
        linking.lock().expect("no panic").insert(pad.name().to_string(), harness);
    });
    element.set_state(gst::State::Playing).expect("it plays");
    let url = |element: &gst::Element| element.property::<Option<String>>("url").expect("a URL");
    let ([mut pictures, mut sound], sink, _bus) = two_pads(&url(&element));
    pictures.push(frame(b"key", 0, KEY)).expect("taken");
    sound.push(frame(b"voice", 0, KEY)).expect("taken");
    wait_until("the pad", || *stages.0.lock().expect("no panic") == 1);
    element.set_state(gst::State::Null).expect("stopped");
    sink.set_state(gst::State::Null).expect("stopped");
    element.set_state(gst::State::Playing).expect("it plays");
    *stages.0.lock().expect("no panic") = 2;
    stages.1.notify_all();
    // What is left of the first run ends, where it does.
    std::thread::sleep(std::time::Duration::from_millis(500));
    linked.lock().expect("no panic").clear();
    let ([mut pictures, mut sound], _sink, _bus) = two_pads(&url(&element));
    let [mut film, mut voice] = begin(&mut pictures, &mut sound, &linked);
    pictures.push(frame(b"more", 40, KEY)).expect("taken");
    is_next(&mut film, b"more");
    sound.push(frame(b"more", 40, KEY)).expect("taken");
    is_next(&mut voice, b"more");
    element.set_state(gst::State::Null).expect("stopped");
}
