//! Real video, by ffmpeg.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::thread::spawn;
use std::time::Duration;

use serde_json::Value;

use crate::common::{Place, SCENARIO, interrupt};
use crate::relay::Relay;
use crate::{Receiver, free_port, ran, send};

const FRAMES: u64 = 75;

/// Three seconds of video and sound in a transport stream; `None`, and reported, without ffmpeg.
fn film(place: &Place) -> Option<()> {
    let arguments = "-loglevel error -f lavfi -i testsrc2=size=480x270:rate=25 -f lavfi -i sine=500 \
                     -t 3 -c:v mpeg2video -b:v 2M -g 12 -c:a mp2 -f mpegts film.ts";
    let made =
        Command::new("ffmpeg").args(arguments.split_whitespace()).current_dir(&place.0).status();
    if made.is_ok_and(|made| made.success()) {
        return Some(());
    }
    ontempo_testing::record_skip("no ffmpeg that makes MPEG-2 video");
    None
}

/// Plays the film to `url` in real time.
fn play(place: &Place, format: &str, url: &str) {
    let arguments = format!("-loglevel error -re -i film.ts -c copy -f {format} {url}");
    let mut command = Command::new("ffmpeg");
    command.args(arguments.split_whitespace()).current_dir(&place.0).stdin(Stdio::null());
    assert!(command.stdout(Stdio::null()).status().expect("ffmpeg").success());
}

/// Frames that can be decoded.
fn frames(place: &Place, file: &str) -> u64 {
    let arguments = "-loglevel quiet -select_streams v:0 -count_frames -show_entries \
                     stream=nb_read_frames -of json";
    let output = Command::new("ffprobe")
        .args(arguments.split_whitespace())
        .arg(file)
        .current_dir(&place.0)
        .output()
        .expect("ffprobe");
    let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    printed["streams"][0]["nb_read_frames"].as_str().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Plays the film through a path that loses 5 % into `out.ts`; answers the totals of both sides.
fn through(place: &Place, options: &[&str]) -> (Value, Value) {
    let receiver = Receiver::start(place, &["--to", "out.ts"]);
    let relay = Relay::start(receiver.address, 0.05, Duration::from_millis(10));
    let port = free_port();
    let more = ["--json", "--fingerprint", &receiver.fingerprint];
    let from = format!("udp://127.0.0.1:{port}");
    let sender = send(place, relay.address, &from, &[&more[..], options].concat());
    std::thread::sleep(Duration::from_millis(300));
    play(place, "mpegts", &format!("udp://127.0.0.1:{port}?pkt_size=1316"));
    std::thread::sleep(Duration::from_millis(200));
    interrupt(&sender);
    let ran = ran(sender);
    ran.succeeds();
    let last = ran.out.lines().last().expect("totals");
    let totals: Value = serde_json::from_str(last).expect("JSON");
    let (code, printed) = receiver.end();
    assert_eq!(code, Some(0), "{printed}");
    let report = totals["receiver"].clone();
    let words = format!(
        "received {} units, {} bytes: {} late, {} dropped; {} datagrams undamaged, {} \
         damaged, {} missing",
        report["units"],
        report["bytes"],
        report["late_units"],
        report["dropped_units"],
        report["whole_datagrams"],
        report["damaged_datagrams"],
        report["missing_datagrams"],
    );
    assert!(printed.contains(&words), "both sides agree: {printed} but not {words}");
    (totals, report)
}

#[test]
fn every_frame_of_a_video_arrives_over_a_lossy_path() {
    let place = Place::new("deliver-video", SCENARIO);
    if film(&place).is_none() {
        return;
    }
    let (totals, report) = through(&place, &["--reliability", "full"]);
    assert_eq!((frames(&place, "film.ts"), frames(&place, "out.ts")), (FRAMES, FRAMES));
    assert_eq!(
        (&report["damaged_datagrams"], &report["missing_datagrams"]),
        (&0.into(), &0.into())
    );
    assert_eq!(totals["units"], report["units"]);
}

#[test]
fn both_sides_report_the_same_units_dropped_at_their_deadline() {
    let place = Place::new("deliver-deadline", SCENARIO);
    if film(&place).is_none() {
        return;
    }
    let options = ["--reliability", "deadline", "--latency", "50 ms", "--congestion", "bbr"];
    let (totals, report) = through(&place, &options);
    let (units, dropped) = (totals["units"].as_u64(), totals["dropped_units"].as_u64());
    assert_eq!(units, report["units"].as_u64().zip(dropped).map(|(came, gone)| came + gone));
    assert_eq!(totals["dropped_units"], report["dropped_units"]);
    // How many frames can be decoded depends on whether the first key frame is among those dropped.
    let came = report["units"].as_u64().zip(units).map(|(came, all)| 3 * came > all);
    assert_eq!(came, Some(true), "{report}");
    assert!(frames(&place, "out.ts") <= FRAMES);
}

#[test]
fn rtp_is_delivered_packet_by_packet_unchanged() {
    let place = Place::new("deliver-rtp", SCENARIO);
    if film(&place).is_none() {
        return;
    }
    let socket = || {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(2))).expect("set");
        let port = socket.local_addr().expect("an address").port();
        (socket, port)
    };
    let ((tap, tap_port), (sink, sink_port)) = (socket(), socket());
    let to = format!("udp://127.0.0.1:{sink_port}");
    let receiver = Receiver::start(&place, &["--to", &to]);
    let relay = Relay::start(receiver.address, 0.05, Duration::from_millis(5));
    let port = free_port();
    let from = format!("udp://127.0.0.1:{port}");
    let more = ["--fingerprint", &receiver.fingerprint, "--latency", "500 ms"];
    let sender = send(&place, relay.address, &from, &more);
    std::thread::sleep(Duration::from_millis(300));
    let take = |socket: UdpSocket, forward: Option<u16>| {
        spawn(move || {
            let (mut all, mut buffer) = (Vec::new(), [0; 65_536]);
            while let Ok(length) = socket.recv(&mut buffer) {
                all.push(buffer[..length].to_vec());
                if let Some(port) = forward {
                    let _ = socket.send_to(&buffer[..length], ("127.0.0.1", port));
                }
            }
            all
        })
    };
    let (sent, came) = (take(tap, Some(port)), take(sink, None));
    // ffmpeg sends RTP of one stream; RTCP goes to the next port, where nothing listens.
    let arguments = format!(
        "-loglevel error -re -i film.ts -map 0:v -c copy -f rtp rtp://127.0.0.1:{tap_port}?pkt_size=1300"
    );
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(arguments.split_whitespace()).current_dir(&place.0);
    let played = ffmpeg.stdin(Stdio::null()).stdout(Stdio::null()).status();
    assert!(played.is_ok_and(|played| played.success()));
    let sent = sent.join().expect("no panic");
    let came = came.join().expect("no panic");
    assert!(sent.len() > FRAMES as usize);
    assert_eq!(sent.len(), came.len());
    assert!(sent == came, "they differ");
    interrupt(&sender);
    ran(sender).succeeds();
    interrupt(&receiver.child);
    assert_eq!(receiver.end().0, Some(0));
}
