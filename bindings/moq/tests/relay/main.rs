//! `ontempo-moq` with the relay of moq-dev, as it is on crates.io, in this process.

#[allow(dead_code)]
#[path = "../../../../crates/cli/tests/page/browser.rs"]
mod browser;
mod common;
mod player;

use std::io::Read;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Killed, Place, Running, event, free_port, free_port_of_both, program, started};
use ontempo_testing::require_programs;
use serde_json::Value;

/// Pictures of the film: 8 s.
const PICTURES: usize = 200;

/// A subscriber that leaves nothing out on a busy machine either.
fn subscribing<'a>(url: &'a str, to: &'a str) -> [&'a str; 7] {
    ["subscribe", url, "--to", to, "--insecure", "--json", "--latency=5s"]
}

fn ran(words: &[&str]) -> Output {
    program(words).output().expect("it runs")
}

/// ffmpeg that sends the film, as if live, to a port.
fn film(port: u16) -> Killed {
    sent(port, &format!("-frames:v {PICTURES} -t 8"))
}

/// The same without an end.
fn endless(port: u16) -> Killed {
    sent(port, "")
}

fn sent(port: u16, length: &str) -> Killed {
    let arguments = format!(
        "-loglevel error -re -f lavfi -i testsrc2=size=320x180:rate=25 -f lavfi -i sine=frequency=440:sample_rate=48000 \
         {length} -c:v libx264 -preset ultrafast -tune zerolatency -g 25 -pix_fmt yuv420p -c:a aac \
         -pes_payload_size 0 -f mpegts udp://127.0.0.1:{port}?pkt_size=1316"
    );
    let mut command = Command::new("ffmpeg");
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    Killed(command.spawn().expect("ffmpeg"))
}

/// Pictures that ffmpeg decodes of a file, without an error, and seconds of sound.
fn decoded(file: &Path) -> (usize, usize) {
    let count = |stream: &str| {
        let mut probe = Command::new("ffprobe");
        probe.args(["-v", "error", "-select_streams", stream, "-count_frames"]);
        probe.args(["-show_entries", "stream=nb_read_frames", "-of", "csv=p=0"]).arg(file);
        let shown = probe.output().expect("ffprobe");
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        text.lines().next().and_then(|line| line.trim_matches(',').parse().ok()).unwrap_or(0)
    };
    (count("v:0"), count("a:0"))
}

#[test]
fn a_film_goes_through_the_relay_to_two_subscribers_who_get_its_pictures_and_sound() {
    if !require_programs(&["ffmpeg", "ffprobe"]) {
        return;
    }
    let (relay, place) = (Running::start(), Place::new("film"));
    let (from, to) = (free_port(), UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    let url = relay.url("film.hang");
    let source = format!("udp://127.0.0.1:{from}");
    let mut publisher = started(&["publish", &url, "--from", &source, "--insecure", "--json"]);
    let mut published = publisher.events();
    event(&mut published, "publishing");
    let file = place.path("film.ts");
    let target = file.to_str().expect("text");
    let mut subscriber = started(&subscribing(&url, target));
    let mut received = subscriber.events();
    event(&mut received, "receiving");
    let player = format!("udp://{}", to.local_addr().expect("an address"));
    let _other = started(&subscribing(&url, &player));
    let mut film = film(from);
    assert!(film.0.wait().expect("ffmpeg").success());
    // What was sent last comes within the latency.
    std::thread::sleep(Duration::from_millis(1_500));
    publisher.interrupt();
    assert!(publisher.0.wait().expect("it ends").success());
    let told = event(&mut published, "published");
    assert!(!told["text"].as_str().expect("a sentence").contains("left out"), "{told}");
    // The stream has ended, and so does the subscriber.
    assert!(subscriber.0.wait().expect("it ends").success());
    let figures = event(&mut received, "figures");
    assert!(figures["bytes"].as_u64() > Some(0), "{figures}");
    let (pictures, sound) = decoded(&file);
    println!("{pictures} of {PICTURES} pictures, {sound} frames of sound of 375");
    assert!(pictures * 100 >= PICTURES * 98, "{pictures}");
    assert!(sound * 100 >= 375 * 95, "{sound}");
    // The player got whole packets, as many as fit into a datagram.
    to.set_nonblocking(true).expect("it does not block");
    let (mut datagram, mut count) = (vec![0; 2_000], 0);
    while let Ok(size) = to.recv(&mut datagram) {
        assert!(size % 188 == 0 && size <= 1_316 && datagram[0] == 0x47, "{size}");
        count += 1;
    }
    assert!(count > 50, "{count}");
}

#[test]
fn a_pipe_that_ends_is_a_stream_that_ends() {
    if !require_programs(&["ffmpeg", "ffprobe"]) {
        return;
    }
    let (relay, place) = (Running::start(), Place::new("pipe"));
    let url = relay.url("pipe.hang");
    let file = place.path("pipe.ts");
    let target = file.to_str().expect("text");
    let mut subscriber = started(&subscribing(&url, target));
    // Nobody reads its events: it goes on.
    drop(subscriber.0.stdout.take());
    let mut film = Command::new("ffmpeg");
    let arguments = "-loglevel error -re -f lavfi -i testsrc2=size=320x180:rate=25 -frames:v 100 -c:v libx264 \
                     -preset ultrafast -tune zerolatency -g 25 -pix_fmt yuv420p -f mpegts -";
    film.args(arguments.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut film = Killed(film.spawn().expect("ffmpeg"));
    let mut publish = program(&["publish", &url, "--from", "-", "--insecure"]);
    publish.stdin(film.0.stdout.take().expect("its output"));
    let published = publish.output().expect("it runs");
    assert!(published.status.success(), "{published:?}");
    assert!(subscriber.0.wait().expect("it ends").success());
    let (pictures, _) = decoded(&file);
    assert!(pictures >= 98, "{pictures} of 100");
}

#[test]
fn a_relay_that_goes_away_and_one_that_is_not_there_are_told_in_a_sentence() {
    let relay = Running::start();
    let url = relay.url("gone");
    let from = format!("udp://127.0.0.1:{}", free_port());
    let mut publisher = started(&["publish", &url, "--from", &from, "--insecure", "--json"]);
    let mut events = publisher.events();
    event(&mut events, "publishing");
    relay.end();
    // It calls again for as long as it runs; Ctrl-C ends it, soon.
    std::thread::sleep(Duration::from_millis(300));
    let asked = Instant::now();
    publisher.interrupt();
    let mut rest = String::new();
    events.read_to_string(&mut rest).expect("text");
    assert!(publisher.0.wait().expect("it ends").success(), "{rest}");
    assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
    let nobody = format!("moq://127.0.0.1:{}/live/film", free_port());
    let arguments = ["subscribe", &nobody, "--to", "-", "--insecure", "--give-up", "1 s"];
    let told = ran(&arguments);
    assert_eq!(told.status.code(), Some(3), "{told:?}");
    let sentence = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(sentence.contains("127.0.0.1"), "{sentence}");
}

#[test]
fn a_stream_goes_on_when_a_relay_that_was_away_is_there_again() {
    if !require_programs(&["ffmpeg"]) {
        return;
    }
    // Those who are connected send something each 3 s.
    let (port, idle) = (free_port_of_both(), Duration::from_secs(5));
    let (relay, place) = (Running::start_at(port, idle), Place::new("again"));
    let (from, url) = (free_port(), relay.url("again.hang"));
    let source = format!("udp://127.0.0.1:{from}");
    let mut publisher = started(&["publish", &url, "--from", &source, "--insecure", "--json"]);
    let mut published = publisher.events();
    event(&mut published, "publishing");
    let _film = endless(from);
    let file = place.path("again.ts");
    let mut subscriber = started(&subscribing(&url, file.to_str().expect("text")));
    let mut received = subscriber.events();
    event(&mut received, "receiving");
    event(&mut received, "figures");
    let mut is_connected = |yes: bool| {
        while event(&mut published, "figures")["is_connected"] != yes {}
    };
    is_connected(true);
    relay.end();
    is_connected(false);
    let _relay = Running::start_at(port, idle);
    is_connected(true);
    event(&mut received, "receiving");
    let bytes = |figures: &Value| figures["bytes"].as_u64().expect("a number");
    let before = bytes(&event(&mut received, "figures"));
    assert!(bytes(&event(&mut received, "figures")) > before, "{before}");
}

#[test]
fn what_cannot_be_is_an_error_that_names_the_option() {
    let relay = Running::start();
    let (url, place) = (relay.url("wrong"), Place::new("wrong"));
    let there = place.path("there.ts");
    std::fs::write(&there, "kept").expect("a file");
    let there = there.to_str().expect("text");
    let cases: [(&[&str], i32, &str); 7] = [
        (&["subscribe", "https://relay.example/film", "--to", "-"], 2, "moq://"),
        (&["subscribe", &url, "--to", "rtp://:5004"], 2, "udp://"),
        (&["subscribe", &url, "--to", there, "--insecure"], 2, "--overwrite"),
        (&["subscribe", &url, "--to", "-", "--fingerprint", "12"], 2, "--fingerprint"),
        (&["subscribe", &url, "--to", "-", "--trust", "/nonexistent/ca.pem"], 2, "--trust"),
        (
            &["publish", &url, "--from", "/nonexistent/film.ts", "--insecure"],
            2,
            "/nonexistent/film.ts",
        ),
        // No certificate authority has signed that of the relay.
        (&["publish", &url, "--from", "-", "--give-up", "2 s"], 3, "certificate"),
    ];
    for (words, code, said) in cases {
        let told = ran(words);
        let sentence = String::from_utf8_lossy(&told.stderr).into_owned();
        assert_eq!(told.status.code(), Some(code), "{words:?}: {sentence}");
        assert!(sentence.contains(said), "{words:?}: {sentence}");
    }
    assert_eq!(std::fs::read_to_string(there).expect("it is there"), "kept");
    // What is no transport stream.
    let noise = place.path("noise.ts");
    std::fs::write(&noise, vec![7; 10_000]).expect("a file");
    let told = ran(&["publish", &url, "--from", noise.to_str().expect("text"), "--insecure"]);
    let sentence = String::from_utf8_lossy(&told.stderr).into_owned();
    assert_eq!(told.status.code(), Some(2), "{sentence}");
    assert!(sentence.contains("--from"), "{sentence}");
}
