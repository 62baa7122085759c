//! A file arrives whole though either side is killed, and media comes back.

use std::fs;
use std::io::BufRead;
use std::net::{SocketAddr, UdpSocket};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use serde_json::Value;

use super::common::{Place, SCENARIO, free_port, interrupt, json_lines, wait_until};
use super::relay::Relay;
use super::{Receiver, noise, ran, send};

/// Of the files that are sent, bytes.
const LENGTH: usize = 50_000_000;

/// The part at which a side is killed: a tenth, as the rest takes a while.
const KILLED_AT: u64 = LENGTH as u64 / 10;

fn size(place: &Place, name: &str) -> u64 {
    fs::metadata(place.path(name)).map_or(0, |file| file.len())
}

fn kill(child: &mut Child) {
    child.kill().expect("killed");
    child.wait().expect("it ends");
}

const KEPT: [&str; 4] = ["--to", "out", "--identity", "who.pem"];

/// A receiver of `out`, and a path to it that is slower than loopback.
fn receiver(place: &Place) -> (Receiver, Relay) {
    let receiver = Receiver::start(place, &KEPT);
    let relay = Relay::start(receiver.address, 0.0, Duration::from_millis(2));
    (receiver, relay)
}

fn wait_for_a_part(place: &Place) {
    wait_until("a part of the file", || size(place, "out.part") > KILLED_AT);
}

fn is_whole(place: &Place, sent: &[u8]) {
    assert!(fs::read(place.path("out")).expect("the file") == sent, "the bytes differ");
    for name in ["out.part", "out.part.json"] {
        assert!(!place.path(name).exists(), "{name} is left");
    }
}

#[test]
fn a_file_arrives_whole_though_its_receiver_is_killed_midway() {
    let place = Place::new("resume-receiver", SCENARIO);
    let sent = noise(LENGTH);
    fs::write(place.path("in"), &sent).expect("written");
    let (mut first, relay) = receiver(&place);
    let at = first.address.to_string();
    let sender = send(&place, relay.address, "in", &["--fingerprint", &first.fingerprint]);
    wait_for_a_part(&place);
    kill(&mut first.child);
    assert!(!place.path("out").exists());
    let second = Receiver::start_at(&place, &at, &KEPT);
    let sender = ran(sender);
    sender.succeeds();
    assert!(sender.err.contains("of 50000000 bytes: going on"), "{}", sender.err);
    let (code, printed) = second.end();
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("of 50000000 bytes are there: going on"), "{printed}");
    assert!(printed.contains("the file is whole: 50000000 bytes, SHA-256 "), "{printed}");
    is_whole(&place, &sent);
}

#[test]
fn a_file_arrives_whole_though_its_sender_is_killed_midway_and_started_again() {
    let place = Place::new("resume-sender", SCENARIO);
    let sent = noise(LENGTH);
    fs::write(place.path("in"), &sent).expect("written");
    let (receiver, relay) = receiver(&place);
    let mut first = send(&place, relay.address, "in", &["--insecure"]);
    wait_for_a_part(&place);
    kill(&mut first);
    // The path belongs to one client.
    let second = ran(send(&place, receiver.address, "in", &["--insecure"]));
    second.succeeds();
    assert!(second.err.contains("of 50000000 bytes: going on"), "{}", second.err);
    let (code, printed) = receiver.end();
    assert_eq!(code, Some(0), "{printed}");
    is_whole(&place, &sent);
}

#[test]
fn a_file_that_was_changed_between_two_attempts_is_sent_anew_and_nothing_is_mixed() {
    let place = Place::new("resume-changed", SCENARIO);
    fs::write(place.path("in"), noise(LENGTH)).expect("written");
    let (mut first, relay) = receiver(&place);
    let mut sender = send(&place, relay.address, "in", &["--insecure"]);
    wait_for_a_part(&place);
    kill(&mut sender);
    kill(&mut first.child);
    let mut changed = noise(LENGTH);
    changed[17] ^= 1;
    fs::write(place.path("in"), &changed).expect("written");
    let second = Receiver::start(&place, &KEPT);
    let sender = ran(send(&place, second.address, "in", &["--insecure"]));
    sender.succeeds();
    let (code, printed) = second.end();
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("are not of the sender's file: it begins anew"), "{printed}");
    is_whole(&place, &changed);
}

#[test]
fn a_file_that_changes_while_it_is_sent_is_an_error_on_both_sides() {
    let place = Place::new("resume-while", SCENARIO);
    for (name, new) in [("shorter", 2_000_000), ("longer", LENGTH + 1)] {
        let (from, to) = (format!("{name}-in"), format!("{name}-out"));
        fs::write(place.path(&from), noise(LENGTH)).expect("written");
        let receiver = Receiver::start(&place, &["--to", &to]);
        let relay = Relay::start(receiver.address, 0.0, Duration::from_millis(2));
        let sender = send(&place, relay.address, &from, &["--insecure"]);
        wait_until("a part of the file", || size(&place, &format!("{to}.part")) > KILLED_AT);
        let file = fs::OpenOptions::new().write(true).open(place.path(&from)).expect("opened");
        file.set_len(new as u64).expect("cut");
        let what = if name == "shorter" { "became shorter" } else { "was changed while" };
        ran(sender).fails(3, &[what]);
        let (code, printed) = receiver.end();
        assert_eq!(code, Some(3), "{printed}");
        assert!(printed.contains(what) && printed.contains("nothing of it is kept"), "{printed}");
        for left in [to.clone(), format!("{to}.part"), format!("{to}.part.json")] {
            assert!(!place.path(&left).exists(), "{left} is left");
        }
    }
}

#[test]
fn an_interrupted_file_says_what_is_missing_and_is_gone_on_with() {
    let place = Place::new("resume-interrupted", SCENARIO);
    let sent = noise(LENGTH);
    fs::write(place.path("in"), &sent).expect("written");
    let (first, relay) = receiver(&place);
    let sender = send(&place, relay.address, "in", &["--insecure"]);
    wait_for_a_part(&place);
    interrupt(&sender);
    ran(sender).fails(130, &["interrupted before the end of the source"]);
    let (code, printed) = first.end();
    assert_eq!(code, Some(3), "{printed}");
    assert!(printed.contains("of 50000000 bytes are missing"), "{printed}");
    assert!(printed.contains("out.part"), "{printed}");
    let second = Receiver::start(&place, &KEPT);
    let again = ran(send(&place, second.address, "in", &["--insecure"]));
    again.succeeds();
    assert!(again.err.contains("going on"), "{}", again.err);
    assert_eq!(second.end().0, Some(0));
    is_whole(&place, &sent);
}

/// Sends numbered datagrams until it is dropped.
struct Encoder(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Encoder {
    fn start(to: u16) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let thread = spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            let mut number = 0u64;
            while !stopped.load(Ordering::Relaxed) {
                let mut datagram = vec![7; 1_000];
                datagram[..8].copy_from_slice(&number.to_be_bytes());
                let _ = socket.send_to(&datagram, ("127.0.0.1", to));
                number += 1;
                sleep(Duration::from_millis(5));
            }
        });
        Self(stop, Some(thread))
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.1.take() {
            let _ = thread.join();
        }
    }
}

/// A player, and the receiver's options for it.
fn player() -> (UdpSocket, String) {
    let player = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    player.set_read_timeout(Some(Duration::from_secs(15))).expect("set");
    let to = format!("udp://{}", player.local_addr().expect("an address"));
    (player, to)
}

fn take(player: &UdpSocket) -> u64 {
    let mut datagram = [0; 2_000];
    assert_eq!(player.recv(&mut datagram).expect("a datagram in time"), 1_000);
    u64::from_be_bytes(datagram[..8].try_into().expect("eight"))
}

fn live(place: &Place, to: SocketAddr, source: u16) -> Child {
    send(place, to, &format!("udp://127.0.0.1:{source}"), &["--insecure"])
}

#[test]
fn media_goes_on_after_an_outage_and_what_was_lost_is_counted_on_both_sides() {
    let place = Place::new("resume-outage", SCENARIO);
    let ((player, to), source) = (player(), free_port());
    let receiver = Receiver::start(&place, &["--to", &to]);
    let relay = Relay::start(receiver.address, 0.0, Duration::from_millis(5));
    let sender = live(&place, relay.address, source);
    let encoder = Encoder::start(source);
    let before = (0..50).map(|_| take(&player)).max().expect("some");
    relay.cut(true);
    // Longer than the idle timeout.
    sleep(Duration::from_secs(6));
    relay.cut(false);
    while take(&player) < before + 1_000 {}
    drop(encoder);
    interrupt(&sender);
    let sender = ran(sender);
    sender.succeeds();
    assert!(sender.err.contains("nothing was heard of"), "{}", sender.err);
    assert!(sender.err.contains("s without the receiver"), "{}", sender.err);
    interrupt(&receiver.child);
    let (code, printed) = receiver.end();
    assert_eq!(code, Some(0), "{printed}");
    let totals = printed.lines().find(|line| line.starts_with("received ")).expect("totals");
    let missing = totals.split(", ").last().and_then(|last| last.split(' ').next());
    let missing: u64 = missing.and_then(|number| number.parse().ok()).expect("a number");
    assert!(missing > 500, "{totals}");
}

#[test]
fn a_sender_that_is_started_again_takes_over_but_a_second_one_is_refused() {
    let place = Place::new("resume-takeover", SCENARIO);
    let ((player, to), source) = (player(), free_port());
    let receiver = Receiver::start(&place, &["--to", &to]);
    let encoder = Encoder::start(source);
    let mut first = live(&place, receiver.address, source);
    for _ in 0..50 {
        take(&player);
    }
    // Another encoder's.
    let second = ran(live(&place, receiver.address, free_port()));
    second.fails(
        3,
        &["the receiver ended it: another sender is connected", "waiting for up to 10 s"],
    );
    kill(&mut first);
    let third = live(&place, receiver.address, source);
    for _ in 0..500 {
        take(&player);
    }
    drop(encoder);
    interrupt(&third);
    ran(third).succeeds();
    interrupt(&receiver.child);
    let (code, printed) = receiver.end();
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(printed.matches("receiving from").count(), 2, "{printed}");
    assert!(!printed.contains("nothing is heard"), "it waits for no idle timeout: {printed}");
}

#[test]
fn a_receiver_that_is_interrupted_reports_all_that_it_has() {
    let place = Place::new("resume-last-report", SCENARIO);
    let ((player, to), source) = (player(), free_port());
    let receiver = Receiver::start(&place, &["--to", &to]);
    let more = ["--insecure", "--json", "--reliability", "full"];
    let from = format!("udp://127.0.0.1:{source}");
    let mut sender = send(&place, receiver.address, &from, &more);
    let mut out = std::io::BufReader::new(sender.stdout.take().expect("its output"));
    let mut documents = Vec::new();
    let mut next = |wanted: &dyn Fn(&Value) -> bool| loop {
        let mut line = String::new();
        assert!(out.read_line(&mut line).expect("a line") > 0, "it ended");
        documents.extend(json_lines(&line));
        if documents.last().is_some_and(wanted) {
            return documents.last().expect("one").clone();
        }
    };
    let encoder = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let say = |number: u64| {
        let mut datagram = vec![7; 1_000];
        datagram[..8].copy_from_slice(&number.to_be_bytes());
        encoder.send_to(&datagram, ("127.0.0.1", source)).expect("sent");
    };
    // One that is reported; then some more, between two reports.
    next(&|document| document["event"] == "figures");
    say(0);
    take(&player);
    next(&|document| document["receiver"]["whole_datagrams"] == 1);
    for number in 1..=20 {
        say(number);
        take(&player);
    }
    interrupt(&receiver.child);
    let (code, printed) = receiver.end();
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("21 datagrams undamaged, 0 damaged, 0 missing"), "{printed}");
    // It tries to connect again: what it had heard is known.
    interrupt(&sender);
    let totals = next(&|document| document["event"] == "totals");
    assert_eq!(totals["receiver"]["whole_datagrams"], 21, "{totals}");
    ran(sender).succeeds();
}
