//! Pipelines with both elements, and with `ontempo send` and `ontempo receive`.

mod common;

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use common::{
    Running, element, end_of, free_port, pipeline, play, program, require_elements, said, stop,
    url, wait_until,
};
use gstreamer as gst;
use gstreamer::prelude::*;

const NEEDED: [&str; 6] =
    ["videotestsrc", "x264enc", "mpegtsmux", "tsdemux", "h264parse", "avdec_h264"];

/// A film of this many pictures, encoded and multiplexed.
fn film(pictures: u32) -> String {
    format!(
        "videotestsrc num-buffers={pictures} is-live=true ! video/x-raw,width=320,height=240,framerate=25/1 \
         ! x264enc name=enc tune=zerolatency speed-preset=ultrafast key-int-max=25 ! mpegtsmux"
    )
}

fn sink(url: &str, options: &str) -> String {
    format!("ontemposink name=sink sync=false uri={url} {options}")
}

fn source(port: u16, options: &str) -> String {
    format!("ontemposrc name=src uri=ontempo://127.0.0.1:{port} {options}")
}

/// Counts the buffers that reach an element.
fn counted(pipeline: &gst::Pipeline, name: &str) -> Arc<AtomicU64> {
    let count = Arc::<AtomicU64>::default();
    let counting = Arc::clone(&count);
    let pad = element(pipeline, name).static_pad("sink").expect("a pad");
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        counting.fetch_add(1, Relaxed);
        gst::PadProbeReturn::Ok
    });
    count
}

fn statistic(element: &gst::Element, name: &str) -> u64 {
    element.property::<gst::Structure>("stats").get(name).unwrap_or_default()
}

#[test]
fn every_picture_goes_from_sink_to_source_and_the_end_ends_both() {
    if !require_elements(&NEEDED) {
        return;
    }
    let receiving = pipeline(&format!(
        "{} ! tsdemux ! h264parse ! avdec_h264 ! fakesink name=out sync=false",
        source(free_port(), "token=secret")
    ));
    let pictures = counted(&receiving, "out");
    play(&receiving);
    let to = url(&receiving);
    assert!(!to.contains("secret"), "a token that was given is not told: {to}");
    let sending = pipeline(&format!("{} ! {}", film(75), sink(&to, "token=secret latency=500")));
    play(&sending);
    end_of(&sending).expect("sent");
    end_of(&receiving).expect("received");
    assert_eq!(pictures.load(Relaxed), 75);
    let (sink, source) = (element(&sending, "sink"), element(&receiving, "src"));
    assert_eq!(statistic(&sink, "latency"), 500_000_000);
    assert_eq!(statistic(&sink, "bad-datagrams"), 0);
    assert!(statistic(&source, "whole-datagrams") >= 75);
    assert!(sink.property::<u32>("target-bitrate") > 0);
    let mut query = gst::query::Latency::new();
    assert!(source.query(&mut query));
    let (is_live, least, most) = query.result();
    assert_eq!((is_live, least, most), (true, gst::ClockTime::from_mseconds(550), None));
    stop(&sending);
    stop(&receiving);
}

#[test]
fn ontempo_receive_gets_what_the_sink_sends_and_the_source_what_ontempo_send_sends() {
    if !require_elements(&NEEDED) {
        return;
    }
    let Some(program) = program() else { return };
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (file, again) = (folder.join("sent.ts"), folder.join("received.ts"));
    let mut receive = Command::new(&program);
    receive.args(["receive", "--listen", "127.0.0.1:0", "--overwrite", "--to"]).arg(&file);
    let mut receive = Running::start(receive.stderr(Stdio::piped()));
    let mut lines = BufReader::new(receive.0.stderr.take().expect("piped")).lines();
    let to = lines.find_map(|line| Some(line.ok()?.split_once("--to ")?.1.to_owned()));
    let to = to.expect("it says where it listens");
    let sending = pipeline(&format!(
        "{} ! tee name=t ! queue ! {} t. ! queue ! filesink name=file",
        film(50),
        sink(&to, "latency=500")
    ));
    let copy = folder.join("copy.ts");
    element(&sending, "file").set_property("location", copy.to_str().expect("text"));
    play(&sending);
    end_of(&sending).expect("sent");
    stop(&sending);
    assert!(receive.0.wait().expect("it ends").success());
    let read = |path: &std::path::Path| std::fs::read(path).expect("written");
    assert!(read(&file) == read(&copy), "other bytes than those of the multiplexer");

    let receiving = pipeline(&format!("{} ! filesink name=file", source(free_port(), "")));
    element(&receiving, "file").set_property("location", again.to_str().expect("text"));
    play(&receiving);
    let mut send = Command::new(&program);
    send.args(["send", "--realtime", "--reliability", "deadline", "--latency", "500 ms", "--from"]);
    send.arg(&file).args(["--to", &url(&receiving)]).stderr(Stdio::null());
    assert!(Running::start(&mut send).0.wait().expect("it ends").success());
    end_of(&receiving).expect("received");
    stop(&receiving);
    assert!(read(&again) == read(&file), "other bytes than those of the file");
}

#[test]
fn a_wrong_token_and_a_wrong_fingerprint_are_errors_with_a_sentence() {
    if !require_elements(&NEEDED) {
        return;
    }
    let receiving = pipeline(&format!("{} ! fakesink", source(free_port(), "token=right")));
    play(&receiving);
    let to = url(&receiving);
    let (address, _) = to.rsplit_once('/').expect("a URL");
    let other = format!("{address}/{}", "0".repeat(64));
    for (url, token, expected) in
        [(to.as_str(), "wrong", "token"), (other.as_str(), "right", "fingerprint")]
    {
        let token = format!("token={token}");
        let sending = pipeline(&format!("{} ! {}", film(500), sink(url, &token)));
        play(&sending);
        let (error, _) = end_of(&sending).expect_err("refused");
        assert!(error.matches(gst::ResourceError::NotAuthorized), "{error:?}");
        assert!(error.message().contains(expected), "{error}");
        assert!(stop(&sending) < Duration::from_secs(10));
    }
    wait_until("a warning about a sender without the token", || {
        said(&receiving).iter().any(|sentence| sentence.contains("was refused"))
    });
    stop(&receiving);
}

#[test]
fn nobody_there_is_an_error_and_stopping_meanwhile_does_not_wait_for_it() {
    if !require_elements(&NEEDED) {
        return;
    }
    let nobody = format!("ontempo://127.0.0.1:{}/{}", free_port(), "0".repeat(64));
    let text = format!("{} ! {}", film(500), sink(&nobody, ""));
    let sending = pipeline(&text);
    play(&sending);
    let (error, _) = end_of(&sending).expect_err("not reached");
    assert!(error.matches(gst::ResourceError::NotFound), "{error:?}");
    assert!(error.message().contains("start ontempo receive there"), "{error}");
    stop(&sending);
    let sending = pipeline(&text);
    play(&sending);
    std::thread::sleep(Duration::from_millis(300));
    let took = stop(&sending);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn wrong_settings_are_named_before_anything_begins() {
    if !require_elements(&NEEDED) {
        return;
    }
    for (text, expected) in [
        ("fakesrc ! ontemposink", "uri: it is not set"),
        ("fakesrc ! ontemposink uri=ontempo://a:1", "cannot be verified"),
        ("fakesrc ! ontemposink insecure=true uri=ontempo://a:1 congestion=swift", "congestion: "),
        ("fakesrc ! ontemposink insecure=true uri=ontempo://a:1 stream=\"a b\"", "stream: "),
        ("ontemposrc uri=http://a:1 ! fakesink", "uri: "),
        ("ontemposrc uri=ontempo://192.0.2.1:4433 ! fakesink", "cannot listen at 192.0.2.1:4433"),
        ("ontemposrc uri=ontempo://127.0.0.1:1#t anyone=true ! fakesink", "anyone: "),
    ] {
        let pipeline = pipeline(text);
        assert!(pipeline.set_state(gst::State::Playing).is_err(), "{text}");
        let (error, _) = end_of(&pipeline).expect_err("an error");
        assert!(error.message().contains(expected), "{text}: {error}");
        stop(&pipeline);
    }
}

#[test]
fn a_receiver_that_is_started_again_gets_pictures_again_and_a_key_picture_first() {
    if !require_elements(&NEEDED) {
        return;
    }
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let identity = folder.join(format!("again-{}.pem", std::process::id()));
    let options = format!("token=t keep-listening=true identity={}", identity.display());
    let port = free_port();
    let text = format!(
        "{} ! tsdemux ! h264parse ! avdec_h264 ! fakesink name=out sync=false",
        source(port, &options)
    );
    let receiving = pipeline(&text);
    let pictures = counted(&receiving, "out");
    play(&receiving);
    // One key picture at the beginning, and another only when the sink asks for it.
    let film = film(100_000).replace("key-int-max=25", "key-int-max=100000");
    let sending = pipeline(&format!("{film} ! {}", sink(&url(&receiving), "token=t latency=200")));
    play(&sending);
    wait_until("pictures", || pictures.load(Relaxed) > 10);
    stop(&receiving);
    drop(receiving);
    // An element that stops waits a second for the end of its connections, which may take three.
    wait_until("its port is free", || UdpSocket::bind(("127.0.0.1", port)).is_ok());
    let receiving = pipeline(&text);
    let pictures = counted(&receiving, "out");
    play(&receiving);
    wait_until("pictures again", || pictures.load(Relaxed) > 10);
    assert_eq!(statistic(&element(&sending, "sink"), "reconnected"), 1);
    let took = stop(&sending);
    assert!(took < Duration::from_secs(10), "{took:?}");
    stop(&receiving);
    let _ = std::fs::remove_file(identity);
}

#[test]
fn rtp_is_carried_packet_by_packet_with_the_caps_that_the_source_is_given() {
    let elements = ["videotestsrc", "x264enc", "rtph264pay", "rtph264depay", "avdec_h264"];
    if !require_elements(&elements) {
        return;
    }
    let film = film(50).replace("mpegtsmux", "rtph264pay config-interval=-1");
    let caps = "application/x-rtp,media=video,clock-rate=90000,encoding-name=H264,payload=96";
    let receiving = pipeline(&format!(
        "{} ! rtpjitterbuffer latency=0 ! rtph264depay ! avdec_h264 ! fakesink name=out sync=false",
        source(free_port(), &format!("caps=\"{caps}\""))
    ));
    let pictures = counted(&receiving, "out");
    play(&receiving);
    let sending = pipeline(&format!("{film} ! {}", sink(&url(&receiving), "latency=500")));
    play(&sending);
    end_of(&sending).expect("sent");
    end_of(&receiving).expect("received");
    assert_eq!(pictures.load(Relaxed), 50);
    stop(&sending);
    stop(&receiving);

    let receiving = pipeline(&format!("{} ! fakesink", source(free_port(), "")));
    play(&receiving);
    let sending = pipeline(&format!("{film} ! {}", sink(&url(&receiving), "")));
    play(&sending);
    let (error, _) = end_of(&receiving).expect_err("it cannot know the caps");
    assert!(error.matches(gst::StreamError::Format), "{error:?}");
    assert!(error.message().contains("the sender sends RTP: set caps"), "{error}");
    stop(&sending);
    stop(&receiving);
}

#[test]
fn what_is_not_carried_is_not_linked() {
    if !require_elements(&["videotestsrc", "vp8enc"]) {
        return;
    }
    let text = "videotestsrc ! vp8enc ! ontemposink";
    let error = gst::parse::launch(text).expect_err("refused").to_string();
    assert!(error.contains("could not link vp8enc0 to ontemposink0"), "{error}");
}
