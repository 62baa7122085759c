//! RTP and RTCP: two ports at each end, one stream between them.

use std::fs;
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Place, SCENARIO, interrupt};
use crate::relay::Relay;
use crate::{Receiver, ran, send};

/// Two sockets at neighbouring ports, as RTP and RTCP have.
fn pair() -> (u16, [UdpSocket; 2]) {
    for _ in 0..100 {
        let first = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let port = first.local_addr().expect("an address").port();
        let next = port.checked_add(1).and_then(|next| UdpSocket::bind(("127.0.0.1", next)).ok());
        if let Some(second) = next {
            let sockets = [first, second];
            sockets.iter().for_each(|socket| {
                socket.set_read_timeout(Some(Duration::from_secs(2))).expect("set");
            });
            return (port, sockets);
        }
    }
    panic!("no two neighbouring ports are free");
}

/// Two neighbouring ports that are free.
fn free_pair() -> u16 {
    pair().0
}

/// An RTP packet of 200 bytes, and an RTCP sender report (RFC 3550, section 6.4.1).
fn packet(number: u16) -> Vec<u8> {
    let mut packet = vec![0x80, 96, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    packet[2..4].copy_from_slice(&number.to_be_bytes());
    packet[4..8].copy_from_slice(&(u32::from(number) * 3_000).to_be_bytes());
    packet.resize(200, number as u8);
    packet
}

fn report(number: u16) -> Vec<u8> {
    let mut report = vec![0x80, 200, 0, 6, 0, 0, 0, 7];
    report.resize(28, number as u8);
    report
}

#[test]
fn rtcp_leaves_at_the_port_after_that_of_rtp_and_both_are_unchanged() {
    let place = Place::new("deliver-rtcp", SCENARIO);
    let (sink_port, [media, control]) = pair();
    let to = format!("rtp://127.0.0.1:{sink_port}");
    let receiver = Receiver::start(&place, &["--to", &to]);
    let port = free_pair();
    let from = format!("rtp://127.0.0.1:{port}");
    let more = ["--fingerprint", &receiver.fingerprint, "--latency", "300 ms"];
    let sender = send(&place, receiver.address, &from, &more);
    std::thread::sleep(Duration::from_millis(500));
    let encoder = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for number in 0..200 {
        encoder.send_to(&packet(number), ("127.0.0.1", port)).expect("sent");
        if number % 10 == 0 {
            encoder.send_to(&report(number), ("127.0.0.1", port + 1)).expect("sent");
            // What is no RTCP is not taken there.
            encoder.send_to(&packet(number), ("127.0.0.1", port + 1)).expect("sent");
            encoder.send_to(&[0x80; 3_000], ("127.0.0.1", port + 1)).expect("sent");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let all = |socket: UdpSocket| {
        let (mut all, mut buffer) = (Vec::new(), [0; 4_000]);
        while let Ok(length) = socket.recv(&mut buffer) {
            all.push(buffer[..length].to_vec());
        }
        all
    };
    let (media, control) = (all(media), all(control));
    let reports: Vec<_> = (0..200).step_by(10).map(report).collect();
    assert!(control == reports, "{} reports", control.len());
    let packets: Vec<_> = (0..200).map(packet).collect();
    assert!(media == packets, "{} packets", media.len());
    interrupt(&sender);
    ran(sender).succeeds();
    interrupt(&receiver.child);
    assert_eq!(receiver.end().0, Some(0));
}

#[test]
fn a_port_without_a_next_one_is_refused() {
    let place = Place::new("deliver-rtp-port", SCENARIO);
    for from in ["rtp://:65535", "rtp://127.0.0.1", "rtp://:0"] {
        place
            .run(&["send", "--from", from, "--to", "127.0.0.1:1", "--insecure"])
            .fails(2, &["write a port from 1 to 65534"]);
    }
}

/// ffmpeg with these words.
fn ffmpeg(place: &Place, words: &str) -> Child {
    let mut command = Command::new("ffmpeg");
    command.args(words.split_whitespace()).current_dir(&place.0).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("ffmpeg")
}

#[test]
fn a_session_description_is_for_rtp_and_replaces_no_file_unasked() {
    let place = Place::new("deliver-sdp", SCENARIO);
    let send =
        ["send", "--to", "127.0.0.1:1", "--insecure", "--sdp", "a.sdp", "--from", "udp://:5004"];
    place.run(&send).fails(2, &["--sdp: it describes RTP: --from rtp://:PORT"]);
    let receive = ["receive", "--listen", "127.0.0.1:0", "--sdp", "there.sdp", "--to"];
    let to = |sink| [&receive[..], &[sink]].concat();
    place.run(&to("udp://127.0.0.1:9")).fails(2, &["--sdp: it describes RTP"]);
    fs::write(place.path("there.sdp"), "mine").expect("written");
    place
        .run(&to("rtp://127.0.0.1:9"))
        .fails(2, &["--sdp there.sdp: it exists: --overwrite replaces it"]);
    assert_eq!(fs::read_to_string(place.path("there.sdp")).expect("read"), "mine");
}

#[test]
fn ffmpeg_plays_what_ffmpeg_sends_as_h_264_in_rtp_over_a_lossy_path() {
    let place = Place::new("deliver-h264", SCENARIO);
    if !ontempo_testing::require_programs(&["ffmpeg", "ffprobe"]) {
        return;
    }
    let film = "-loglevel error -f lavfi -i testsrc2=size=320x180:rate=25 -t 6 -c:v libx264 \
                -tune zerolatency -g 12 -b:v 800k film.mp4";
    if !ffmpeg(&place, film).wait().is_ok_and(|made| made.success()) {
        ontempo_testing::skip!("no ffmpeg that makes H.264");
    }
    let (sink, port) = (free_pair(), free_pair());
    let to = format!("rtp://127.0.0.1:{sink}");
    let receiver = Receiver::start(&place, &["--to", &to, "--sdp", "play.sdp"]);
    let relay = Relay::start(receiver.address, 0.05, Duration::from_millis(10));
    let more = ["--fingerprint", &receiver.fingerprint, "--sdp", "sent.sdp"];
    let sender = send(&place, relay.address, &format!("rtp://127.0.0.1:{port}"), &more);
    // The encoder writes its description; it arrives, with the port of the player.
    let words = format!(
        "-loglevel error -re -i film.mp4 -c copy -f rtp -sdp_file sent.sdp rtp://127.0.0.1:{port}"
    );
    let mut encoder = ffmpeg(&place, &words);
    let until = Instant::now() + Duration::from_secs(10);
    while !fs::read_to_string(place.path("play.sdp")).is_ok_and(|text| {
        text.contains("sprop-parameter-sets") && text.contains(&format!("m=video {sink} "))
    }) {
        assert!(Instant::now() < until, "no description arrives");
        std::thread::sleep(Duration::from_millis(20));
    }
    let play = "-loglevel error -protocol_whitelist file,udp,rtp -t 3 -i play.sdp -c copy out.mkv";
    let mut player = ffmpeg(&place, play);
    let until = Instant::now() + Duration::from_secs(30);
    while player.try_wait().expect("ffmpeg").is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = player.kill();
    assert!(player.wait().is_ok_and(|played| played.success()), "it does not play");
    let _ = encoder.wait();
    let words = "-loglevel error -select_streams v:0 -count_frames -show_entries \
                 stream=nb_read_frames -of csv=p=0 out.mkv";
    let counted =
        Command::new("ffprobe").args(words.split_whitespace()).current_dir(&place.0).output();
    let text = String::from_utf8(counted.expect("ffprobe").stdout).expect("text");
    let frames: u64 = text.trim().trim_end_matches(',').parse().expect("a number");
    // 75 pictures in 3 s, of which the player joins at the second key picture at the latest.
    assert!(frames >= 50, "{frames} pictures");
    interrupt(&sender);
    ran(sender).succeeds();
    interrupt(&receiver.child);
    assert_eq!(receiver.end().0, Some(0));
}
