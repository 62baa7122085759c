//! A stream over two paths of loopback, one of which is cut.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Place, SCENARIO, free_port, interrupt, json_lines};
use crate::relay::Relay;
use crate::{Receiver, noise, ran, send};

/// Datagrams of a live source, and the gap between them: 2.6 Mbit/s.
const COUNT: u32 = 1_500;
const GAP: Duration = Duration::from_millis(4);

/// Sends the source and cuts the first path for 2 s in mid-stream; the numbers that arrive, and the
/// documents of the sender.
fn live_with_a_cut(mode: &str) -> (BTreeSet<u32>, Vec<Value>) {
    let place = Place::new(&format!("paths-{mode}"), SCENARIO);
    let player = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    player.set_read_timeout(Some(Duration::from_secs(2))).expect("set");
    let to = format!("udp://{}", player.local_addr().expect("an address"));
    let receiver = Receiver::start(&place, &["--to", &to, "--once"]);
    let [first, second] =
        [10, 20].map(|millis| Relay::start(receiver.address, 0.01, Duration::from_millis(millis)));
    let source = free_port();
    let (from, other) = (format!("udp://127.0.0.1:{source}"), second.address.to_string());
    let more = ["--to", &other, "--paths", mode, "--fingerprint", &receiver.fingerprint, "--json"];
    // A busy machine pauses for longer than the paths take.
    let sender =
        send(&place, first.address, &from, &[&more[..], &["--latency", "800 ms"]].concat());
    let reader = std::thread::spawn(move || {
        let (mut arrived, mut room) = (BTreeSet::new(), [0; 2_000]);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(30) {
            match player.recv(&mut room) {
                Ok(4..) => {
                    arrived.insert(u32::from_be_bytes(room[..4].try_into().expect("four")));
                }
                _ if arrived.is_empty() => {}
                _ => break,
            }
        }
        arrived
    });
    sleep(Duration::from_millis(1_500));
    let encoder = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let begun = Instant::now();
    for number in 0..COUNT {
        sleep((begun + GAP * number).saturating_duration_since(Instant::now()));
        let mut datagram = noise(1_316);
        datagram[..4].copy_from_slice(&number.to_be_bytes());
        encoder.send_to(&datagram, ("127.0.0.1", source)).expect("sent");
        if number == COUNT / 3 {
            first.cut(true);
        } else if number == COUNT / 3 + 500 {
            first.cut(false);
        }
    }
    let arrived = reader.join().expect("it reads");
    interrupt(&sender);
    let sender = ran(sender);
    sender.succeeds();
    receiver.end();
    (arrived, json_lines(&sender.out))
}

fn events<'a>(documents: &'a [Value], state: &str) -> Vec<&'a Value> {
    documents.iter().filter(|one| one["event"] == "path" && one["state"] == state).collect()
}

#[test]
fn a_live_stream_over_both_paths_loses_nothing_when_one_is_cut() {
    let (arrived, documents) = live_with_a_cut("duplicate");
    assert_eq!(arrived.len() as u32, COUNT);
    assert!(!events(&documents, "down").is_empty(), "{documents:?}");
    let figures = documents.iter().rfind(|one| one["event"] == "figures").expect("figures");
    let paths = figures["paths"].as_array().expect("its paths");
    assert!(paths.iter().all(|path| path["units"].as_u64() > Some(500)), "{figures}");
    assert!(figures["receiver"]["copies"].as_u64() > Some(500), "{figures}");
}

#[test]
fn the_other_path_takes_a_live_stream_over_without_a_loss() {
    let (arrived, documents) = live_with_a_cut("failover");
    assert_eq!(arrived.len() as u32, COUNT);
    let carries = events(&documents, "carries");
    assert!(carries.iter().any(|one| one["path"] == 2 && one["silent_s"].is_f64()), "{carries:?}");
}

#[test]
fn a_pipe_arrives_whole_over_two_paths_in_each_mode_though_one_ends() {
    for mode in ["duplicate", "failover", "balance"] {
        let place = Place::new(&format!("paths-pipe-{mode}"), SCENARIO);
        let file = place.path("out");
        let receiver = Receiver::start(&place, &["--to", file.to_str().expect("text")]);
        let [first, second] = [5, 10]
            .map(|millis| Relay::start(receiver.address, 0.02, Duration::from_millis(millis)));
        let other = second.address.to_string();
        let more = ["--to", &other, "--paths", mode, "--fingerprint", &receiver.fingerprint];
        let mut sender = send(&place, first.address, "-", &more);
        let (mut pipe, sent) = (sender.stdin.take().expect("a pipe"), noise(2_000_000));
        pipe.write_all(&sent[..1_000_000]).expect("written");
        first.cut(true);
        pipe.write_all(&sent[1_000_000..]).expect("written");
        drop(pipe);
        ran(sender).succeeds();
        let (code, said) = receiver.end();
        assert_eq!(code, Some(0), "{mode}: {said}");
        assert!(fs::read(file).expect("its file") == sent, "{mode}: bytes differ");
    }
}

#[test]
fn addresses_of_this_machine_are_paths_to_one_address() {
    let place = Place::new("paths-bind", SCENARIO);
    let file = place.path("out");
    let receiver = Receiver::start(&place, &["--to", file.to_str().expect("text")]);
    let more = ["--bind", "127.0.0.2", "--bind", "127.0.0.3", "--paths", "balance", "--json"];
    let more = [&more[..], &["--fingerprint", &receiver.fingerprint]].concat();
    let mut sender = send(&place, receiver.address, "-", &more);
    // All of it arrives before the receiver has looked for a second path.
    let (mut pipe, sent) = (sender.stdin.take().expect("a pipe"), noise(500_000));
    pipe.write_all(&sent).expect("written");
    drop(pipe);
    let sender = ran(sender);
    sender.succeeds();
    let (code, said) = receiver.end();
    assert_eq!(code, Some(0), "{said}");
    for (path, from) in [(1, "127.0.0.2"), (2, "127.0.0.3")] {
        assert!(said.contains(&format!("receiving path {path} from {from}:")), "{said}");
    }
    assert!(fs::read(file).expect("its file") == sent, "bytes differ");
    let documents = json_lines(&sender.out);
    let totals = documents.iter().rfind(|one| one["event"] == "totals").expect("totals");
    assert_eq!(totals["paths"].as_array().map(Vec::len), Some(2), "{totals}");
}

#[test]
fn one_path_is_enough_to_begin_and_none_is_an_error_that_says_what_to_check() {
    let place = Place::new("paths-dead", SCENARIO);
    let file = place.path("out");
    let receiver = Receiver::start(&place, &["--to", file.to_str().expect("text")]);
    let dead = Relay::start(receiver.address, 0.0, Duration::ZERO);
    dead.cut(true);
    let there = receiver.address.to_string();
    let more = ["--fingerprint", &receiver.fingerprint, "--paths", "failover", "--to", &there];
    let mut sender = send(&place, dead.address, "-", &more);
    sender.stdin.take().expect("a pipe").write_all(&noise(200_000)).expect("written");
    ran(sender).succeeds();
    let (code, said) = receiver.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(fs::read(file).expect("its file") == noise(200_000), "bytes differ");
    let other = Relay::start(dead.address, 0.0, Duration::ZERO);
    let other = other.address.to_string();
    let fingerprint = "0".repeat(64);
    let more = ["--fingerprint", &fingerprint, "--to", &other];
    let mut sender = send(&place, dead.address, "-", &more);
    drop(sender.stdin.take());
    ran(sender).fails(3, &["start ontempo receive there"]);
}

#[test]
fn a_stream_whose_latency_is_given_waits_for_no_path_that_does_not_answer() {
    let place = Place::new("paths-given", SCENARIO);
    let player = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    player.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let to = format!("udp://{}", player.local_addr().expect("an address"));
    let receiver = Receiver::start(&place, &["--to", &to, "--once"]);
    let dead = Relay::start(receiver.address, 0.0, Duration::ZERO);
    dead.cut(true);
    let there = receiver.address.to_string();
    let more = ["--fingerprint", &receiver.fingerprint, "--to", &there];
    // What waited for the second path, for a second, would be too late.
    let live = ["--reliability", "deadline", "--latency", "800 ms"];
    let mut sender = send(&place, dead.address, "-", &[&more[..], &live].concat());
    let mut pipe = sender.stdin.take().expect("a pipe");
    pipe.write_all(&noise(1_316)).expect("written");
    let mut room = [0; 2_000];
    let length = player.recv(&mut room).expect("the first datagram");
    assert!(room[..length] == noise(1_316), "bytes differ");
    drop(pipe);
    ran(sender).succeeds();
    receiver.end();
}

#[test]
fn another_sender_with_the_token_is_refused_while_paths_carry_a_stream() {
    let place = Place::new("paths-stranger", SCENARIO);
    let file = place.path("out");
    let receiver = Receiver::start(&place, &["--to", file.to_str().expect("text")]);
    let [first, second] =
        [5, 10].map(|millis| Relay::start(receiver.address, 0.0, Duration::from_millis(millis)));
    let other = second.address.to_string();
    let more = ["--to", &other, "--fingerprint", &receiver.fingerprint];
    let mut sender = send(&place, first.address, "-", &more);
    let mut pipe = sender.stdin.take().expect("a pipe");
    pipe.write_all(&noise(100_000)).expect("written");
    sleep(Duration::from_millis(1_500));
    for strange in [&more[..], &more[2..]] {
        let mut stranger = send(&place, first.address, "-", strange);
        stranger.stdin.take().expect("a pipe").write_all(b"something else").expect("written");
        ran(stranger).fails(3, &["another sender"]);
    }
    drop(pipe);
    ran(sender).succeeds();
    let (code, said) = receiver.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(fs::read(file).expect("its file") == noise(100_000), "bytes differ");
}

#[test]
fn a_sender_over_two_paths_that_is_started_again_takes_over_with_both() {
    let place = Place::new("paths-restarted", SCENARIO);
    let player = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    player.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    let to = format!("udp://{}", player.local_addr().expect("an address"));
    let receiver = Receiver::start(&place, &["--to", &to]);
    let source = free_port();
    let from = format!("udp://127.0.0.1:{source}");
    let more = ["--bind", "127.0.0.2", "--bind", "127.0.0.3", "--json"];
    let more = [&more[..], &["--fingerprint", &receiver.fingerprint]].concat();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let encoder = std::thread::spawn(move || {
        let encoder = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        while !stopped.load(Ordering::Relaxed) {
            let _ = encoder.send_to(&[7; 500], ("127.0.0.1", source));
            sleep(Duration::from_millis(5));
        }
    });
    let mut first = send(&place, receiver.address, &from, &more);
    player.recv(&mut [0; 600]).expect("a datagram of the first");
    // Until its second path is there, too.
    sleep(Duration::from_millis(500));
    // Another beside it says once that it waits.
    let other = format!("udp://127.0.0.1:{}", free_port());
    let beside = ran(send(&place, receiver.address, &other, &more));
    beside.fails(3, &["another sender is connected"]);
    for (words, most) in [("waiting for up to 10 s", 1), (" is up", 2)] {
        let count = beside.err.matches(words).count();
        assert!((1..=most).contains(&count), "{count} times `{words}`: {}", beside.err);
    }
    first.kill().expect("killed");
    first.wait().expect("it ends");
    let mut second = send(&place, receiver.address, &from, &more);
    sleep(Duration::from_secs(3));
    assert_eq!(second.try_wait().expect("a child"), None, "it goes on");
    player.set_nonblocking(true).expect("set");
    while player.recv(&mut [0; 600]).is_ok() {}
    player.set_nonblocking(false).expect("set");
    player.recv(&mut [0; 600]).expect("a datagram of the second");
    interrupt(&second);
    let second = ran(second);
    second.succeeds();
    stop.store(true, Ordering::Relaxed);
    encoder.join().expect("no panic");
    let documents = json_lines(&second.out);
    let figures = documents.iter().rfind(|one| one["event"] == "figures").expect("figures");
    let paths = figures["paths"].as_array().expect("its paths");
    assert!(paths.iter().all(|path| path["units"].as_u64() > Some(10)), "{figures}");
    interrupt(&receiver.child);
    assert_eq!(receiver.end().0, Some(0));
}

#[test]
fn paths_that_make_no_sense_are_errors_that_say_what_is_right() {
    let place = Place::new("paths-wrong", SCENARIO);
    let base = ["send", "--from", "-", "--insecure", "--to", "127.0.0.1:9"];
    let run = |more: &[&str]| place.run(&[&base, more].concat());
    run(&["--paths", "failover"]).fails(2, &["--paths: there is one path"]);
    run(&["--to", "127.0.0.1:9"]).fails(2, &["two paths have the same addresses"]);
    run(&["--bind", "nowhere", "--bind", "127.0.0.1"]).fails(2, &["--bind nowhere", "192.0.2.7"]);
    run(&["--bind", "::1"]).fails(2, &["another version of IP"]);
    let many = ["--to", "a:1", "--to", "b:1", "--to", "c:1", "--to", "d:1"];
    run(&many).fails(2, &["5 paths: there may be 4"]);
    run(&["--to", "127.0.0.1:8", "--stream", "hall"]).fails(2, &["--stream: a relay"]);
}
