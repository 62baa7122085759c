//! Pictures and sound over one connection.

mod common;

use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use common::{
    Frames, PICTURES, Running, SOUND, Seen, element, end_of, free_port, is_refused, listening,
    pipeline, play, program, require_elements, said, seen, sender, source, stop, taken, url,
    wait_until,
};
use gstreamer as gst;
use gstreamer::prelude::*;

fn bytes(frames: &[Seen]) -> Vec<&[u8]> {
    frames.iter().map(|seen| seen.bytes.as_slice()).collect()
}

/// How much later than at the sender the frame at this twentieth of these is shown, ns.
fn moved(sent: &[Seen], received: &[Seen], twentieth: usize) -> i64 {
    let nanos = |frames: &[Seen]| {
        let one = frames.get(sent.len() * twentieth / 20).and_then(|seen| seen.running);
        one.expect("a time").nseconds() as i64
    };
    nanos(received) - nanos(sent)
}

/// How far pictures and sound are out of step, ns: the median over frames late enough for both to be known well, and
/// before the end, where encoders give out at once what they have held. On a busy machine encoders become faster while
/// they run, and at that moment a picture is placed by what is newer than for the sound beside it.
fn apart(sent: [&[Seen]; 2], received: [&[Seen]; 2]) -> i64 {
    let mut all: Vec<i64> = (8..=16)
        .map(|at| moved(sent[0], received[0], at) - moved(sent[1], received[1], at))
        .map(i64::abs)
        .collect();
    all.sort_unstable();
    all[all.len() / 2]
}

/// All frames of both arrive, the same bytes, decoded, and in step.
fn are_carried(elements: &[&str], pictures: &str, sound: &str, then: &str) {
    if !require_elements(elements) {
        return;
    }
    let receiving = source(then);
    let [film, voice] = ["film", "voice"].map(|name| seen(&receiving, name, "sink"));
    let [shown, heard] = ["shown", "heard"].map(|name| seen(&receiving, name, "sink"));
    play(&receiving);
    let sending = sender(pictures, sound, &url(&receiving));
    let [of_film, of_voice] = ["sink", "sink_0"].map(|pad| seen(&sending, "sink", pad));
    play(&sending);
    end_of(&sending).expect("sent");
    end_of(&receiving).expect("received");
    let said = said(&sending);
    stop(&sending);
    stop(&receiving);
    let ([of_film, of_voice], [film, voice]) =
        ([&of_film, &of_voice].map(taken), [&film, &voice].map(taken));
    assert_eq!(of_film.len(), 50, "{said:?}");
    assert!(of_voice.len() >= 90, "{}", of_voice.len());
    assert!(bytes(&film) == bytes(&of_film), "{} of {}", film.len(), of_film.len());
    assert!(bytes(&voice) == bytes(&of_voice), "{} of {}", voice.len(), of_voice.len());
    assert_eq!(taken(&shown).len(), 50);
    assert!(taken(&heard).len() >= 85);
    // Less than is noticed (EBU R 37).
    let apart = apart([&of_film, &of_voice], [&film, &voice]);
    assert!(apart < 60_000_000, "{apart} ns out of step");
}

#[test]
fn h264_and_opus_are_carried_whole_and_in_step_over_one_connection() {
    are_carried(
        &["x264enc", "h264parse", "avdec_h264", "opusenc", "opusparse", "opusdec"],
        &format!("{PICTURES} tune=zerolatency ! h264parse"),
        &format!("{SOUND} ! opusenc"),
        "! h264parse name=film ! avdec_h264 ! fakesink name=shown sync=false \
         src. ! opusparse name=voice ! opusdec ! fakesink name=heard sync=false",
    );
}

#[test]
fn pictures_out_of_order_and_aac_are_carried_whole_whichever_is_linked_first() {
    are_carried(
        &["x264enc", "h264parse", "avdec_h264", "avenc_aac", "aacparse", "avdec_aac"],
        &format!(
            "{PICTURES} rc-lookahead=0 sync-lookahead=0 sliced-threads=true bframes=2 b-adapt=false ! h264parse"
        ),
        &format!("{SOUND} ! audioconvert ! avenc_aac ! aacparse"),
        "! aacparse name=voice ! avdec_aac ! fakesink name=heard sync=false \
         src. ! h264parse name=film ! avdec_h264 ! fakesink name=shown sync=false",
    );
}

#[test]
fn decodebin_decodes_each_and_a_stream_that_nobody_wants_is_no_error() {
    if !require_elements(&["x264enc", "avdec_h264", "opusenc", "opusdec", "decodebin"]) {
        return;
    }
    for then in [
        "! decodebin ! videoconvert ! fakesink name=shown sync=false \
         src. ! decodebin ! audioconvert ! fakesink name=heard sync=false",
        "! h264parse ! avdec_h264 ! fakesink name=shown sync=false",
    ] {
        let receiving = source(then);
        let shown = seen(&receiving, "shown", "sink");
        let heard = receiving.by_name("heard").map(|_| seen(&receiving, "heard", "sink"));
        play(&receiving);
        let pictures = format!("{PICTURES} tune=zerolatency ! h264parse");
        let sending = sender(&pictures, &format!("{SOUND} ! opusenc"), &url(&receiving));
        play(&sending);
        end_of(&sending).expect("sent");
        end_of(&receiving).expect("received");
        stop(&sending);
        stop(&receiving);
        assert_eq!(taken(&shown).len(), 50, "{then}");
        assert!(heard.is_none_or(|heard| taken(&heard).len() >= 85), "{then}");
    }
}

#[test]
fn pads_that_are_asked_for_need_no_other_and_films_preroll() {
    if !require_elements(&["x264enc", "opusenc", "opusparse"]) {
        return;
    }
    let receiving =
        source("! opusparse name=voice ! fakesink src. ! h264parse name=film ! fakesink");
    let [film, voice] = ["film", "voice"].map(|name| seen(&receiving, name, "sink"));
    play(&receiving);
    // Nothing is live, and `sink` is not linked.
    let pictures = PICTURES.replace("is-live=true ", "");
    let sound = SOUND.replace("is-live=true ", "");
    let sending = pipeline(&format!(
        "ontemposink name=sink reliability=full uri={} {pictures} tune=zerolatency ! h264parse ! queue ! sink.sink_0 \
         {sound} ! opusenc ! queue ! sink.sink_1",
        url(&receiving)
    ));
    let [of_film, of_voice] = ["sink_0", "sink_1"].map(|pad| seen(&sending, "sink", pad));
    play(&sending);
    end_of(&sending).expect("sent");
    end_of(&receiving).expect("received");
    stop(&sending);
    stop(&receiving);
    assert_eq!(taken(&film).len(), 50);
    assert!(taken(&of_film).len() == 50 && taken(&of_voice).len() == taken(&voice).len());
}

#[test]
fn another_sender_may_have_other_streams_and_each_set_has_its_pads() {
    if !require_elements(&["x264enc", "opusenc", "opusparse"]) {
        return;
    }
    let receiving =
        source("token=t keep-listening=true ! h264parse name=film ! fakesink sync=false");
    let film = seen(&receiving, "film", "sink");
    let pads = Arc::<Mutex<Vec<String>>>::default();
    for (signal, sign) in [("pad-added", "+"), ("pad-removed", "-")] {
        let noted = Arc::clone(&pads);
        element(&receiving, "src").connect(signal, false, move |values| {
            let pad = values[1].get::<gst::Pad>().expect("a pad");
            noted.lock().expect("no panic").push(format!("{sign}{}", pad.name()));
            None
        });
    }
    play(&receiving);
    // On a busy machine pictures would be late otherwise, and left out.
    let to = format!("{} token=t reliability=full", url(&receiving));
    let pictures = format!("{PICTURES} tune=zerolatency ! h264parse");
    let sound = format!("{SOUND} ! opusenc");
    let more = format!("{sound} ! sink.sink_1 {sound}");
    let expected = [
        (&sound, &["+src_1"][..]),
        // The same streams have the same pads.
        (&sound, &["+src_1"]),
        (&more, &["+src_1", "-src_1", "+src_1", "+src_2"]),
    ];
    for (number, (sound, expected)) in (1..).zip(expected) {
        let sending = sender(&pictures, sound, &to);
        play(&sending);
        end_of(&sending).expect("sent");
        stop(&sending);
        let all = format!("all pictures of {number} senders");
        wait_until(&all, || film.lock().expect("no panic").len() == number * 50);
        assert_eq!(*pads.lock().expect("no panic"), expected);
    }
    let sending = pipeline(&format!("{pictures} ! ontemposink sync=false latency=1000 uri={to}"));
    play(&sending);
    end_of(&sending).expect("sent");
    stop(&sending);
    wait_until("all pictures at last", || film.lock().expect("no panic").len() == 200);
    stop(&receiving);
    let pads = pads.lock().expect("no panic");
    assert_eq!(pads.iter().filter(|pad| pad.starts_with('+')).count(), 3, "{pads:?}");
    assert_eq!(pads.iter().filter(|pad| pad.starts_with('-')).count(), 3, "{pads:?}");
}

#[test]
fn ontempo_receive_refuses_several_streams_with_a_sentence() {
    if !require_elements(&["x264enc", "opusenc"]) {
        return;
    }
    let Some(program) = program() else { return };
    let mut command = Command::new(&program);
    command.args(["receive", "--listen", "127.0.0.1:0", "--overwrite", "--to"]);
    command.arg(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("several.h264"));
    let (_receiving, to, lines) = listening(&mut command);
    let pictures = format!("{PICTURES} tune=zerolatency ! h264parse");
    let sending = sender(&pictures, &format!("{SOUND} ! opusenc"), &to);
    let expected =
        "--to: frames of H.264 and Opus without MPEG-TS: a file has one of them; put mpegtsmux";
    is_refused(&sending, lines, expected);
}

/// A relay, and the URLs of its sources and viewers; `None` if the program is not built.
fn relay() -> Option<(Running, String, String)> {
    let mut relay = Command::new(program()?);
    relay.args(["relay", "--listen", "127.0.0.1:0"]);
    let (running, to, mut lines) = listening(&mut relay);
    let from = lines.find_map(|line| Some(line.ok()?.split_once("--from ")?.1.to_owned()));
    let bare =
        |url: &str| url.split_whitespace().next().expect("a URL").trim_matches('\'').to_owned();
    let from = bare(&from.expect("it says where viewers go"));
    Some((running, bare(&to), from))
}

#[test]
fn a_relay_begins_each_of_two_films_with_a_key_picture_for_one_who_comes_late() {
    if !require_elements(&["x264enc", "h264parse"]) {
        return;
    }
    let Some((_relay, to, from)) = relay() else { return };
    // Groups of 0.4 s and of 1 s.
    let one = PICTURES.replace("num-buffers=50 ", "");
    let other = one.replace("key-int-max=10", "key-int-max=25");
    let [one, other] =
        [one, other].map(|pictures| format!("{pictures} tune=zerolatency ! h264parse"));
    let sending = sender(&one, &other, &to);
    let sent = seen(&sending, "sink", "sink_0");
    play(&sending);
    let count = |frames: &Frames| frames.lock().expect("no panic").len();
    for viewer in 0..4 {
        // In another place of the groups each time.
        wait_until("frames", || count(&sent) > 30 + viewer * 36);
        let receiving = pipeline(&format!(
            "ontemposrc name=src uri={from} ! h264parse name=one ! fakesink sync=false \
             src. ! h264parse name=other ! fakesink sync=false"
        ));
        let [one, other] = ["one", "other"].map(|name| seen(&receiving, name, "sink"));
        play(&receiving);
        wait_until("both", || count(&one) > 10 && count(&other) > 10);
        stop(&receiving);
        assert!([&one, &other].iter().all(|film| !taken(film)[0].is_delta), "viewer {viewer}");
    }
    stop(&sending);
}

#[test]
fn a_relay_hands_both_on_to_one_who_comes_late() {
    if !require_elements(&["x264enc", "h264parse", "avdec_h264", "opusenc", "opusdec"]) {
        return;
    }
    let Some((_relay, to, from)) = relay() else { return };
    let endless = |text: &str| text.replace("num-buffers=50 ", "").replace("num-buffers=94 ", "");
    let pictures = endless(&format!("{PICTURES} tune=zerolatency ! h264parse"));
    let sending = sender(&pictures, &endless(&format!("{SOUND} ! opusenc")), &to);
    let sent = seen(&sending, "sink", "sink");
    play(&sending);
    wait_until("frames", || sent.lock().expect("no panic").len() > 25);
    let receiving = pipeline(&format!(
        "ontemposrc name=src uri={from} ! h264parse name=film ! avdec_h264 ! fakesink name=shown sync=false \
         src. ! opusparse ! opusdec ! fakesink name=heard sync=false"
    ));
    let [film, shown, heard] =
        ["film", "shown", "heard"].map(|name| seen(&receiving, name, "sink"));
    play(&receiving);
    let count = |frames: &Frames| frames.lock().expect("no panic").len();
    wait_until("both", || count(&shown) > 10 && count(&heard) > 10);
    assert!(!film.lock().expect("no panic")[0].is_delta);
    stop(&receiving);
    stop(&sending);
}

#[test]
fn what_is_linked_to_src_and_takes_none_of_the_streams_is_an_error() {
    if !require_elements(&["x264enc", "opusenc", "tsdemux"]) {
        return;
    }
    let receiving = source("! tsdemux ! fakesink");
    play(&receiving);
    let pictures = format!("{PICTURES} tune=zerolatency ! h264parse");
    let sending = sender(&pictures, &format!("{SOUND} ! opusenc"), &url(&receiving));
    play(&sending);
    let (error, _) = end_of(&receiving).expect_err("an error");
    assert!(error.matches(gst::StreamError::Format), "{error:?}");
    let expected = "the sender sends H.264 and Opus, of which what is linked to src takes nothing";
    assert!(error.message().contains(expected), "{error}");
    stop(&sending);
    stop(&receiving);
}

#[test]
fn mpeg_ts_goes_alone() {
    if !require_elements(&["x264enc", "mpegtsmux", "opusenc"]) {
        return;
    }
    let receiving = source("! fakesink");
    play(&receiving);
    let film = format!("{PICTURES} tune=zerolatency ! mpegtsmux");
    let sending = sender(&film, &format!("{SOUND} ! opusenc"), &url(&receiving));
    // What stands before the pads may tell it at once.
    let _ = sending.set_state(gst::State::Playing);
    let (error, _) = end_of(&sending).expect_err("an error");
    assert!(error.message().contains("sink has MPEG-TS, which goes alone"), "{error}");
    stop(&sending);
    stop(&receiving);
}

#[test]
fn a_branch_that_is_stopped_alone_leaves_the_other_running() {
    if !require_elements(&["x264enc", "h264parse", "opusenc", "opusparse"]) {
        return;
    }
    let receiving = source(
        "! h264parse name=film ! fakesink sync=false async=false \
         src. ! opusparse name=voice ! fakesink name=heard sync=false async=false",
    );
    let [film, voice] = ["film", "voice"].map(|name| seen(&receiving, name, "sink"));
    play(&receiving);
    let pictures = format!("{PICTURES} tune=zerolatency ! h264parse");
    // On a busy machine pictures would be late otherwise, and left out.
    let to = format!("{} reliability=full", url(&receiving));
    let sending = sender(&pictures, &format!("{SOUND} ! opusenc"), &to);
    play(&sending);
    let count = |frames: &Frames| frames.lock().expect("no panic").len();
    wait_until("both", || count(&film) > 5 && count(&voice) > 5);
    for name in ["heard", "voice"] {
        let stopped = element(&receiving, name);
        stopped.set_locked_state(true);
        stopped.set_state(gst::State::Null).expect("stopped");
    }
    // On a busy machine all of it may have come by then.
    let heard = count(&voice);
    end_of(&sending).expect("sent");
    wait_until("all pictures", || count(&film) == 50);
    assert_eq!(count(&voice), heard);
    stop(&sending);
    stop(&receiving);
}

/// A path that bears 1 Mbit/s.
const NARROW: &str = r#"duration = "60 s"
[topology]
kind = "dumbbell"
bottleneck = { rate = "1 Mbit/s", delay = "20 ms", queue = { kind = "drop-tail", limit = "30 packets" } }
reverse = { rate = "1 Mbit/s", delay = "20 ms" }
access = { rate = "1 Gbit/s", delay = "0 ms" }
[flows.line]
application = { kind = "cbr", rate = "1 Mbit/s" }
transport = { kind = "udp" }
"#;

#[test]
fn sound_arrives_though_its_pictures_are_three_times_what_the_path_bears() {
    if !require_elements(&["x264enc", "h264parse", "opusenc", "opusparse"]) {
        return;
    }
    let Some(program) = program() else { return };
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("narrow.toml");
    std::fs::write(&file, NARROW).expect("written");
    let receiving = source(
        "token=t ! h264parse name=film ! fakesink sync=false src. ! opusparse name=voice ! fakesink sync=false",
    );
    let [film, voice] = ["film", "voice"].map(|name| seen(&receiving, name, "sink"));
    play(&receiving);
    let to = url(&receiving);
    let (at, fingerprint) = to.rsplit_once('/').expect("a URL");
    let (at, through) = (at.trim_start_matches("ontempo://"), free_port());
    let mut impair = Command::new(program);
    impair
        .args(["impair", "--listen", &format!(":{through}"), "--to", at, "--scenario"])
        .arg(&file);
    let path = Running::start(impair.stdout(Stdio::null()).stderr(Stdio::null()));
    let to = format!("ontempo://127.0.0.1:{through}/{fingerprint} token=t latency=400");
    let noise = "videotestsrc num-buffers=150 is-live=true pattern=snow \
                 ! video/x-raw,format=I420,width=320,height=240,framerate=25/1 \
                 ! x264enc speed-preset=ultrafast tune=zerolatency key-int-max=25 bitrate=3000 ! h264parse";
    let sound = SOUND.replace("num-buffers=94", "num-buffers=281");
    let sending = sender(noise, &format!("{sound} ! opusenc bitrate=64000"), &to);
    let [of_film, of_voice] = ["sink", "sink_0"].map(|pad| seen(&sending, "sink", pad));
    play(&sending);
    end_of(&sending).expect("sent");
    end_of(&receiving).expect("received");
    stop(&sending);
    stop(&receiving);
    drop(path);
    let share =
        |received: &Frames, sent: &Frames| taken(received).len() as f64 / taken(sent).len() as f64;
    let (film, voice) = (share(&film, &of_film), share(&voice, &of_voice));
    println!("{:.1} % of the pictures, {:.1} % of the sound", film * 100.0, voice * 100.0);
    assert!(film < 0.5, "the path bears {film:.2} of the pictures");
    // Nearly all on a quiet machine; a third, if sound had to wait its turn.
    assert!(voice > 0.6, "{voice:.3} of the sound");
}
