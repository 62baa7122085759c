//! `ontempo send` and `ontempo receive`, over a path that loses packets.

mod admission;
#[path = "../common/mod.rs"]
mod common;
mod json;
mod paths;
mod player;
mod relay;
mod resume;
mod rtp;
mod video;
mod whole;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, ChildStderr};
use std::thread::spawn;
use std::time::Duration;

use common::{Place, SCENARIO, free_port, interrupt, noise, ran, send_with};
use relay::Relay;

/// `ontempo receive`, ended with the test.
pub(crate) struct Receiver {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) fingerprint: String,
    pub(crate) err: BufReader<ChildStderr>,
}

impl Receiver {
    pub(crate) fn start(place: &Place, more: &[&str]) -> Self {
        Self::start_at(place, "127.0.0.1:0", more)
    }

    /// With the token `open`.
    pub(crate) fn start_at(place: &Place, at: &str, more: &[&str]) -> Self {
        let words = ["receive", "--listen", at, "--token", "open"];
        let mut child = place.spawn(&[&words, more].concat());
        let mut err = BufReader::new(child.stderr.take().expect("its errors"));
        let mut line = String::new();
        err.read_line(&mut line).expect("a line");
        let words: Vec<&str> = line.split([' ', ',', '\n']).collect();
        let after = |word: &str| {
            let place = words.iter().position(|found| *found == word);
            let found = place.and_then(|at| words[at + 1..].iter().find(|word| !word.is_empty()));
            found.copied().unwrap_or_else(|| panic!("no {word} in: {line}"))
        };
        let (address, fingerprint) = (after("at"), after("fingerprint"));
        Self {
            address: address.parse().expect("an address"),
            fingerprint: fingerprint.into(),
            child,
            err,
        }
    }

    /// Waits for its end; returns its exit code and its output since it started to listen.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let mut printed = String::new();
        self.err.read_to_string(&mut printed).expect("text");
        let code = self.child.wait().expect("it ends").code();
        (code, printed)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts `ontempo send` to `to`, with the token `open`.
pub(crate) fn send(place: &Place, to: SocketAddr, from: &str, more: &[&str]) -> Child {
    send_with(place, &to.to_string(), from, &[&["--token", "open"], more].concat())
}

#[test]
fn a_pipe_is_delivered_unchanged_over_a_lossy_path() {
    let place = Place::new("deliver-pipe", SCENARIO);
    let mut receiver = Receiver::start(&place, &["--to", "-"]);
    let relay = Relay::start(receiver.address, 0.05, Duration::from_millis(5));
    let more = ["--fingerprint", &receiver.fingerprint];
    let mut sender = send(&place, relay.address, "-", &more);
    let (sent, mut pipe) = (noise(2_000_000), sender.stdin.take().expect("a pipe"));
    let mut out = receiver.child.stdout.take().expect("its output");
    let reading = spawn(move || {
        let mut all = Vec::new();
        out.read_to_end(&mut all).map(|_| all)
    });
    pipe.write_all(&sent).expect("written");
    drop(pipe);
    let ran = ran(sender);
    ran.succeeds();
    assert!(reading.join().expect("no panic").expect("read") == sent, "bytes differ");
    let (code, printed) = receiver.end();
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("0 damaged, 0 missing"), "{printed}");
    assert!(relay.lost.load(std::sync::atomic::Ordering::Relaxed) > 20);
}

#[test]
fn a_slow_reader_receives_everything() {
    let place = Place::new("deliver-slow-reader", SCENARIO);
    let mut receiver = Receiver::start(&place, &["--to", "-"]);
    // Less than the receiver holds: the sender is soon rid of it.
    let sent = noise(4_000_000);
    let mut sender = send(&place, receiver.address, "-", &["--insecure"]);
    let mut pipe = sender.stdin.take().expect("a pipe");
    pipe.write_all(&sent).expect("written");
    drop(pipe);
    // Longer than a sender of live media would wait for the last words.
    std::thread::sleep(Duration::from_secs(7));
    let mut all = Vec::new();
    receiver.child.stdout.take().expect("its output").read_to_end(&mut all).expect("read");
    assert!(all == sent, "{} of {} bytes came", all.len(), sent.len());
    let ran = ran(sender);
    ran.succeeds();
    assert!(ran.err.contains("waiting until the receiver has written them"), "{}", ran.err);
    assert_eq!(receiver.end().0, Some(0));
}

#[test]
fn an_unreachable_or_untrusted_receiver_is_reported_in_a_sentence() {
    let place = Place::new("deliver-refusals", SCENARIO);
    let mut receiver = Receiver::start(&place, &["--to", "out"]);
    let (to, right) = (receiver.address, receiver.fingerprint.clone());
    let wrong = "00".repeat(32);
    fs::write(place.path("in"), "a few bytes").expect("written");
    let address = to.to_string();
    let try_it = |more: &[&str]| ran(send_with(&place, &address, "in", more));
    try_it(&[]).fails(2, &["the receiver cannot be verified", "--fingerprint"]);
    try_it(&["--fingerprint", &right]).fails(2, &["the peer refused our token"]);
    let other = ["--token", "open", "--fingerprint", &wrong];
    try_it(&other).fails(2, &["its fingerprint is", &right, "expected is", &wrong]);
    let mut printed = String::new();
    for words in ["a client had the wrong token", "the peer does not trust our certificate"] {
        while !printed.contains(words) {
            assert_ne!(receiver.err.read_line(&mut printed).expect("text"), 0, "{printed}");
        }
    }
    let nobody = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let whole = ["--insecure", "--latency", "1 s"];
    let words = ["--latency does nothing with --reliability full", "no answer came within 3 s"];
    ran(send(&place, nobody, "in", &whole)).fails(3, &words);
    let words = ["--realtime: the file has no clock (PCR) at its beginning"];
    ran(send(&place, nobody, "in", &["--insecure", "--realtime"])).fails(3, &words);
    place.run(&["send", "--from", "udp://x", "--to", "x:1"]).fails(2, &["a port is missing"]);
    for from in ["udp://:9", "rtp://:9"] {
        let words = ["send", "--from", from, "--realtime", "--to", "127.0.0.1:9", "--insecure"];
        place.run(&words).fails(2, &["--realtime: it is for a file or a pipe"]);
    }
    place.run(&["receive", "--listen", ":x", "--to", "out"]).fails(2, &["`x` is no port"]);
    let words = ["send", "--from", "udp://:0", "--to", "127.0.0.1:9", "--insecure"];
    place.run(&words).fails(2, &["a port is missing: write one from 1 to 65535"]);
    try_from(&place, ".").fails(2, &["it is a folder: tar c . | ontempo send --from -"]);
    let address = format!("127.0.0.1:9/{wrong}#secret");
    let said = ran(send_with(&place, &address, "in", &[]));
    said.fails(2, &["not the URL of a receiver: it begins with ontempo://"]);
    assert!(!said.err.contains("secret"), "{}", said.err);
    interrupt(&receiver.child);
    assert_eq!(receiver.end().0, Some(0), "nothing was cut short");
}

fn try_from(place: &Place, from: &str) -> common::Ran {
    ran(send_with(place, "127.0.0.1:9", from, &["--insecure"]))
}

#[test]
fn a_target_that_cannot_be_made_is_an_error_before_a_sender_comes() {
    let place = Place::new("deliver-targets", SCENARIO);
    let receive =
        |more: &[&str]| place.run(&[&["receive", "--listen", "127.0.0.1:0"], more].concat());
    receive(&["--to", "no/out"]).fails(3, &["--to no/out: cannot be created"]);
    receive(&["--to", "."]).fails(2, &["--to .: it is a folder: name a file in it"]);
    let words = ["--stream: it is of a relay: --from"];
    receive(&["--to", "out", "--stream", "hall"]).fails(2, &words);
    let mut receiver = Receiver::start(&place, &["--to", "udp://a..b:9"]);
    let mut printed = String::new();
    while !printed.contains("it is looked up again when a sender comes") {
        assert_ne!(receiver.err.read_line(&mut printed).expect("text"), 0, "{printed}");
    }
    interrupt(&receiver.child);
    assert_eq!(receiver.end().0, Some(0));
}

#[test]
fn a_sender_that_is_interrupted_before_an_answer_says_so_by_its_exit_code() {
    let place = Place::new("deliver-unanswered", SCENARIO);
    fs::write(place.path("in"), "a few bytes").expect("written");
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = silent.local_addr().expect("an address").to_string();
    let sender = send_with(&place, &address, "in", &["--insecure"]);
    silent.recv(&mut [0; 2_000]).expect("its first packet");
    interrupt(&sender);
    ran(sender).fails(130, &["had answered"]);
}

#[test]
fn both_sides_write_qlog_traces_and_an_unusable_directory_is_reported_at_the_start() {
    let place = Place::new("deliver-qlog", SCENARIO);
    fs::write(place.path("in"), noise(200_000)).expect("written");
    let refused = ["--qlog: no qlog can be written to in"];
    place
        .run(&["receive", "--listen", "127.0.0.1:0", "--to", "out", "--qlog", "in"])
        .fails(3, &refused);
    let receiver = Receiver::start(&place, &["--to", "out", "--qlog", "traces"]);
    let to = receiver.address;
    ran(send(&place, to, "in", &["--insecure", "--qlog", "in"])).fails(3, &refused);
    ran(send(&place, to, "in", &["--insecure", "--qlog", "traces"])).succeeds();
    assert_eq!(receiver.end().0, Some(0));
    for side in ["_client.sqlog", "_server.sqlog"] {
        let entries = fs::read_dir(place.path("traces")).expect("the traces");
        let all: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        let is_it = |path: &&std::path::PathBuf| path.to_string_lossy().ends_with(side);
        let trace = fs::read(all.iter().find(is_it).expect("a trace")).expect("read");
        let records = trace.split(|byte| *byte == 0x1e).skip(1);
        let json = records.map(serde_json::from_slice::<serde_json::Value>);
        assert!(json.inspect(|one| assert!(one.is_ok())).count() > 50);
    }
    // The page draws both.
    let page = place.run(&["show", "traces", "--json"]);
    let page = page.succeeds().json();
    assert_eq!(page["runs"].as_array().map(Vec::len), Some(2));
    let charts = page["charts"].as_array().expect("charts").iter();
    let charts: Vec<_> = charts.map(|chart| chart["chart"].as_str().expect("a name")).collect();
    for chart in
        ["units", "rates", "window-bytes", "round-trip", "unit-delay", "delays", "acknowledged"]
    {
        assert!(charts.contains(&chart), "{chart} is missing: {charts:?}");
    }
}

#[test]
fn a_full_disk_ends_both_sides_with_an_error() {
    let place = Place::new("deliver-full", SCENARIO);
    if !std::path::Path::new("/dev/full").exists() {
        ontempo_testing::skip!("this machine has no /dev/full");
    }
    let receiver = Receiver::start(&place, &["--to", "/dev/full"]);
    fs::write(place.path("in"), noise(1_000_000)).expect("written");
    let sender = send(&place, receiver.address, "in", &["--insecure"]);
    ran(sender).fails(3, &["the receiver ended it: it cannot write what it receives"]);
    let (code, printed) = receiver.end();
    assert_eq!(code, Some(3), "{printed}");
    assert!(
        printed.contains("cannot write /dev/full") && printed.contains("it ends early"),
        "{printed}"
    );
}

#[test]
fn a_sender_reconnects_to_a_restarted_receiver_and_reports_overflow() {
    let place = Place::new("deliver-again", SCENARIO);
    let (source, sink) = (free_port(), UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    sink.set_read_timeout(Some(Duration::from_secs(15))).expect("set");
    let to = format!("udp://{}", sink.local_addr().expect("an address"));
    let more = ["--to", &to, "--identity", "who.pem"];
    let first = Receiver::start(&place, &more);
    let (at, fingerprint) = (first.address, first.fingerprint.clone());
    let from = format!("udp://127.0.0.1:{source}");
    let options = ["--fingerprint", &fingerprint, "--reliability", "full", "--buffer", "20 kB"];
    let sender = send(&place, at, &from, &options);
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = stop.clone();
    let encoder = spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let mut number = 0u64;
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            let mut datagram = vec![7; 1_000];
            datagram[..8].copy_from_slice(&number.to_be_bytes());
            let _ = socket.send_to(&datagram, ("127.0.0.1", source));
            number += 1;
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let take = || {
        let mut datagram = [0; 2_000];
        let length = sink.recv(&mut datagram).expect("a datagram in time");
        assert_eq!(length, 1_000);
        u64::from_be_bytes(datagram[..8].try_into().expect("eight"))
    };
    let before: Vec<u64> = (0..50).map(|_| take()).collect();
    assert!(before.is_sorted());
    drop(first);
    // Longer than the idle timeout: until then the connection holds what is sent.
    std::thread::sleep(Duration::from_secs(6));
    // What the first wrote before it was killed, and had not acknowledged, the second writes again.
    sink.set_nonblocking(true).expect("set");
    while sink.recv(&mut [0; 2_000]).is_ok() {}
    sink.set_nonblocking(false).expect("set");
    let second = Receiver::start_at(&place, &at.to_string(), &more);
    assert_eq!(second.fingerprint, fingerprint, "kept in its file");
    // Five seconds' worth: what could not wait so long is left out, the rest is in order.
    let mut after = vec![take()];
    while after.last().is_some_and(|last| *last < before[49] + 1_400) {
        after.push(take());
    }
    assert!(after.is_sorted(), "{after:?}");
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    encoder.join().expect("no panic");
    interrupt(&sender);
    let ran = ran(sender);
    ran.succeeds();
    for words in
        ["reconnecting", "again", "the source is faster than the network", "; 1 reconnection with "]
    {
        assert!(ran.err.contains(words), "`{words}` is missing from standard error: {}", ran.err);
    }
    interrupt(&second.child);
    let (code, printed) = second.end();
    assert_eq!(code, Some(0), "{printed}");
}

#[test]
fn congestion_control_and_its_parameters_are_checked_before_anything_is_sent() {
    let place = Place::new("deliver-congestion", SCENARIO);
    fs::write(place.path("in"), "something").expect("a file");
    let to = "127.0.0.1:1".parse().expect("an address");
    for (more, what) in [
        (&["--congestion", "tahoe"][..], &["reno", "pert", "psp-damped"][..]),
        (&["--set-congestion", "t-min"], &["--set-congestion t-min: write NAME=VALUE"]),
        (
            &["--congestion", "pert", "--set-congestion", "t-min=200s"],
            &["--congestion pert: --set-congestion t-min: 200s is out of range; write a duration"],
        ),
        (
            &["--set-congestion", "c=1"],
            &["--congestion bbr: --set-congestion c: no such parameter"],
        ),
    ] {
        ran(send(&place, to, "in", &[&["--insecure"], more].concat())).fails(2, what);
    }
}
