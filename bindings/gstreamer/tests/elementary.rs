//! Elementary streams of real encoders, frame by frame.

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use common::{
    Seen, end_of, free_port, is_refused, listening, pipeline, play, program, require_elements,
    said, seen, stop, url, wait_until,
};
use gstreamer as gst;

const PICTURES: &str = "videotestsrc num-buffers=40 is-live=true ! video/x-raw,format=I420,width=160,height=120,framerate=25/1";
const SOUND: &str = "audiotestsrc num-buffers=60 is-live=true samplesperbuffer=1024 ! audio/x-raw,rate=48000,channels=2";

/// Sends what an encoder makes, and decodes it; the frames at both ends and how many were decoded.
fn carried(encoder: &str, decoder: &str) -> (Vec<Seen>, Vec<Seen>, usize) {
    let receiving = pipeline(&format!(
        "ontemposrc name=src uri=ontempo://127.0.0.1:{} ! {decoder} ! fakesink name=out sync=false",
        free_port()
    ));
    let (received, decoded) = (seen(&receiving, "src", "src"), seen(&receiving, "out", "sink"));
    play(&receiving);
    let sending = pipeline(&format!(
        "{encoder} ! ontemposink name=sink sync=false latency=1000 uri={}",
        url(&receiving)
    ));
    let sent = seen(&sending, "sink", "sink");
    play(&sending);
    end_of(&sending).expect("sent");
    end_of(&receiving).expect("received");
    stop(&sending);
    stop(&receiving);
    let of = |all: Arc<Mutex<Vec<Seen>>>| std::mem::take(&mut *all.lock().expect("no panic"));
    (of(sent), of(received), of(decoded).len())
}

/// Distances of the frames' times, which are the sender's from the fastest frame on.
fn distances(frames: &[Seen]) -> Vec<i64> {
    let nanos = |seen: &Seen| seen.pts.expect("a time").nseconds() as i64;
    frames.windows(2).map(|two| nanos(&two[1]) - nanos(&two[0])).collect()
}

fn is_carried(elements: &[&str], encoder: &str, decoder: &str, least: usize) {
    if !require_elements(elements) {
        return;
    }
    let (sent, received, decoded) = carried(encoder, decoder);
    let without_times = |all: &[Seen]| -> Vec<Seen> {
        all.iter().map(|seen| Seen { pts: None, running: None, ..seen.clone() }).collect()
    };
    assert!(
        without_times(&sent) == without_times(&received),
        "{} of {}",
        received.len(),
        sent.len()
    );
    assert!(decoded >= least, "{decoded} decoded of {} frames", sent.len());
    // Where a frame was faster than all before it, the times step back a little: seldom.
    let (there, here) = (distances(&sent), distances(&received));
    let same = there.iter().zip(&here).filter(|(there, here)| there == here).count();
    assert!(same * 2 > there.len(), "{same} of {} distances: {there:?} {here:?}", there.len());
}

#[test]
fn h264_of_x264enc_is_parsed_and_decoded_also_with_pictures_out_of_order() {
    let elements = ["x264enc", "h264parse", "avdec_h264"];
    for options in ["tune=zerolatency key-int-max=10", "bframes=2 key-int-max=10 b-adapt=false"] {
        let encoder = format!("{PICTURES} ! x264enc speed-preset=ultrafast {options} ! h264parse");
        is_carried(&elements, &encoder, "h264parse ! avdec_h264", 40);
    }
    let direct = format!("{PICTURES} ! x264enc speed-preset=ultrafast");
    is_carried(&elements, &direct, "avdec_h264", 40);
}

#[test]
fn h265_of_x265enc_is_parsed_and_decoded() {
    let encoder =
        format!("{PICTURES} ! x265enc tune=zerolatency speed-preset=ultrafast ! h265parse");
    let elements = ["x265enc", "h265parse", "avdec_h265"];
    is_carried(&elements, &encoder, "h265parse ! avdec_h265", 40);
}

#[test]
fn av1_of_av1enc_is_parsed_and_decoded() {
    let encoder = format!(
        "{PICTURES} ! av1enc usage-profile=realtime cpu-used=8 lag-in-frames=0 keyframe-max-dist=10 ! av1parse"
    );
    is_carried(&["av1enc", "av1parse", "av1dec"], &encoder, "av1parse ! av1dec", 40);
}

#[test]
fn aac_of_avenc_aac_is_parsed_and_decoded() {
    let encoder = format!("{SOUND} ! audioconvert ! avenc_aac ! aacparse");
    let elements = ["avenc_aac", "aacparse", "avdec_aac"];
    is_carried(&elements, &encoder, "aacparse ! avdec_aac", 55);
}

#[test]
fn opus_of_opusenc_is_parsed_and_decoded() {
    let encoder = format!("{SOUND} ! opusenc");
    is_carried(&["opusenc", "opusparse", "opusdec"], &encoder, "opusparse ! opusdec", 55);
}

#[test]
fn ontempo_receive_writes_frames_to_a_file_and_refuses_them_where_it_cannot() {
    if !require_elements(&["x264enc", "h264parse", "avdec_h264", "opusenc"]) {
        return;
    }
    let Some(program) = program() else { return };
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("received.h264");
    let name = file.to_str().expect("text");
    let mut receive = Command::new(&program);
    receive.args(["receive", "--listen", "127.0.0.1:0", "--overwrite", "--to", name]);
    let (mut receiving, to, _lines) = listening(&mut receive);
    let film = format!("{PICTURES} ! x264enc tune=zerolatency speed-preset=ultrafast ! h264parse");
    let sending =
        pipeline(&format!("{film} ! ontemposink name=sink sync=false latency=1000 uri={to}"));
    let sent = seen(&sending, "sink", "sink");
    play(&sending);
    end_of(&sending).expect("sent");
    stop(&sending);
    assert!(receiving.0.wait().expect("it ends").success());
    let frames: Vec<u8> =
        sent.lock().expect("no panic").iter().flat_map(|seen| seen.bytes.clone()).collect();
    assert!(std::fs::read(&file).expect("written") == frames);
    let decoding = pipeline(&format!(
        "filesrc location={name} ! h264parse ! avdec_h264 ! fakesink name=out sync=false"
    ));
    let pictures = seen(&decoding, "out", "sink");
    play(&decoding);
    end_of(&decoding).expect("decoded");
    stop(&decoding);
    assert_eq!(pictures.lock().expect("no panic").len(), 40);

    let sound = format!("{SOUND} ! opusenc");
    for (to, film, expected) in [
        ("udp://127.0.0.1:9", &film, "--to: frames of H.264 without MPEG-TS: udp://"),
        (name, &sound, "--to: frames of Opus without MPEG-TS: its packets"),
    ] {
        let mut command = Command::new(&program);
        command.args(["receive", "--listen", "127.0.0.1:0", "--to", to]);
        if to == name {
            command.arg("--overwrite");
        }
        let (_receiving, url, lines) = listening(&mut command);
        let sending = pipeline(&format!("{film} ! ontemposink sync=false uri={url}"));
        is_refused(&sending, lines, expected);
    }
}

#[test]
fn a_relay_hands_frames_on_to_one_who_comes_late_from_a_key_frame_on() {
    if !require_elements(&["x264enc", "h264parse", "avdec_h264"]) {
        return;
    }
    let Some(program) = program() else { return };
    let mut relay = Command::new(&program);
    relay.args(["relay", "--listen", "127.0.0.1:0"]);
    let (_relay, to, mut lines) = listening(&mut relay);
    let from = lines.find_map(|line| Some(line.ok()?.split_once("--from ")?.1.to_owned()));
    let from = from.expect("it says where viewers go");
    let from = from.split_whitespace().next().expect("a URL").trim_matches('\'').to_owned();
    let film = PICTURES.replace("num-buffers=40 ", "");
    let sending = pipeline(&format!(
        "{film} ! x264enc tune=zerolatency speed-preset=ultrafast key-int-max=10 \
         ! ontemposink name=sink sync=false latency=300 uri={}",
        to.split_whitespace().next().expect("a URL").trim_matches('\'')
    ));
    let sent = seen(&sending, "sink", "sink");
    play(&sending);
    wait_until("frames", || sent.lock().expect("no panic").len() > 25);
    let receiving = pipeline(&format!(
        "ontemposrc name=src uri={from} ! h264parse ! avdec_h264 ! fakesink name=out sync=false"
    ));
    let (received, decoded) = (seen(&receiving, "src", "src"), seen(&receiving, "out", "sink"));
    play(&receiving);
    wait_until("pictures", || decoded.lock().expect("no panic").len() > 10);
    assert!(!received.lock().expect("no panic")[0].is_delta);
    stop(&receiving);
    stop(&sending);
}

#[test]
fn what_is_not_taken_behind_the_source_is_named() {
    if !require_elements(&["x264enc", "tsdemux"]) {
        return;
    }
    let receiving = pipeline(&format!(
        "ontemposrc name=src uri=ontempo://127.0.0.1:{} ! tsdemux name=demux ! fakesink",
        free_port()
    ));
    play(&receiving);
    let sending = pipeline(&format!(
        "{PICTURES} ! x264enc tune=zerolatency ! ontemposink sync=false uri={}",
        url(&receiving)
    ));
    play(&sending);
    let (error, _) = end_of(&receiving).expect_err("an error");
    assert!(error.matches(gst::StreamError::Format), "{error:?}");
    let expected = "the sender sends H.264 (video/x-h264), which demux does not take";
    assert!(error.message().contains(expected), "{error}");
    assert!(said(&sending).iter().all(|sentence| !sentence.contains("panic")));
    stop(&sending);
    stop(&receiving);
}
