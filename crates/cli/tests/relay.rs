//! `ontempo relay` between `ontempo send` and `ontempo receive`.

mod common;

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::process::Child;
use std::sync::{Arc, Mutex};

use common::{Killed, Place, SCENARIO, interrupt, noise, ran, send_with, wait_until};
use serde_json::Value;

/// `ontempo relay`, ended with the test.
struct Relay {
    child: Killed,
    url: String,
    viewers_url: String,
    figures: Arc<Mutex<Value>>,
}

impl Relay {
    fn start(place: &Place, more: &[&str]) -> Self {
        let words = ["relay", "--listen", "127.0.0.1:0", "--json"];
        let mut child = place.spawn(&[&words, more].concat());
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        let figures = Arc::new(Mutex::new(Value::Null));
        let last = Arc::clone(&figures);
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                *last.lock().expect("no panic") = serde_json::from_str(&line).expect("JSON");
            }
        });
        let said: Value = serde_json::from_str(&line).expect("JSON");
        let url = |name: &str| said[name].as_str().expect("a URL").to_owned();
        let (url, viewers_url) = (url("url"), url("viewers_url"));
        Self { child: Killed(child), url, viewers_url, figures }
    }

    fn await_viewers(&self, count: u64) {
        let viewers = || self.figures.lock().expect("no panic")["viewers"].as_u64();
        wait_until("viewers", || viewers() == Some(count));
    }
}

fn view(place: &Place, url: &str, to: &str, more: &[&str]) -> Child {
    place.spawn(&[&["receive", "--from", url, "--to", to], more].concat())
}

fn send(place: &Place, url: &str, more: &[&str]) -> Child {
    send_with(place, url, "-", more)
}

#[test]
fn two_receivers_get_a_file_byte_by_byte_and_the_source_learns_of_both() {
    let place = Place::new("relay-two", SCENARIO);
    let relay = Relay::start(&place, &[]);
    let files = ["one.out", "two.out"].map(|name| place.path(name));
    let viewers = files
        .each_ref()
        .map(|file| view(&place, &relay.viewers_url, file.to_str().expect("text"), &[]));
    relay.await_viewers(2);
    let sent = noise(500_000);
    let mut source = send(&place, &relay.url, &["--json"]);
    let mut pipe = source.stdin.take().expect("a pipe");
    pipe.write_all(&sent).expect("written");
    drop(pipe);
    let sender = ran(source);
    sender.succeeds();
    for (viewer, file) in viewers.into_iter().zip(files) {
        ran(viewer).succeeds();
        assert!(fs::read(file).expect("its file") == sent, "bytes differ");
    }
    let totals: Value =
        sender.out.lines().last().and_then(|line| serde_json::from_str(line).ok()).expect("JSON");
    assert_eq!(totals["viewers"]["count"], 2, "{totals}");
    assert_eq!(totals["viewers"]["worst_bad_share"], 0.0, "{totals}");
    interrupt(&relay.child.0);
}

#[test]
fn a_regular_file_goes_through_a_relay_as_a_stream() {
    let place = Place::new("relay-file", SCENARIO);
    let relay = Relay::start(&place, &[]);
    let (from, to) = (place.path("in"), place.path("file.out"));
    fs::write(&from, noise(300_000)).expect("written");
    let viewer = view(&place, &relay.viewers_url, to.to_str().expect("text"), &[]);
    relay.await_viewers(1);
    place.run(&["send", "--from", "in", "--to", &relay.url]).succeeds();
    ran(viewer).succeeds();
    assert!(fs::read(to).expect("its file") == noise(300_000), "bytes differ");
    interrupt(&relay.child.0);
}

#[test]
fn a_named_stream_goes_to_those_who_ask_for_it() {
    let place = Place::new("relay-named", SCENARIO);
    let relay = Relay::start(&place, &[]);
    let (file, other) = (place.path("named.out"), place.path("other.out"));
    let viewer =
        view(&place, &relay.viewers_url, file.to_str().expect("text"), &["--stream", "hall"]);
    let waiting =
        view(&place, &relay.viewers_url, other.to_str().expect("text"), &["--stream", "yard"]);
    relay.await_viewers(2);
    let mut source = send(&place, &relay.url, &["--stream", "hall"]);
    source.stdin.take().expect("a pipe").write_all(&noise(100_000)).expect("written");
    ran(source).succeeds();
    ran(viewer).succeeds();
    assert!(fs::read(file).expect("its file") == noise(100_000), "bytes differ");
    interrupt(&waiting);
    ran(waiting).succeeds();
    assert!(!other.exists());
}

#[test]
fn the_token_of_receivers_does_not_send_and_that_of_nobody_does_not_receive() {
    let place = Place::new("relay-tokens", SCENARIO);
    let relay = Relay::start(&place, &[]);
    let mut pirate = send(&place, &relay.viewers_url, &[]);
    drop(pirate.stdin.take());
    let words = [
        "this token is for viewing, not for sending",
        "the URL that the relay prints for ontempo send",
    ];
    ran(pirate).fails(2, &words);
    let (url, _) = relay.viewers_url.split_once('#').expect("a token");
    let stranger =
        view(&place, &format!("{url}#wrong"), place.path("no.out").to_str().expect("text"), &[]);
    ran(stranger).fails(2, &["token"]);
}

#[test]
fn a_receiver_of_a_file_ends_when_another_source_has_taken_the_stream_over() {
    let place = Place::new("relay-another", SCENARIO);
    let relay = Relay::start(&place, &[]);
    let viewer = view(&place, &relay.viewers_url, "file.out", &[]);
    relay.await_viewers(1);
    let mut first = Killed(send(&place, &relay.url, &[]));
    let mut pipe = first.0.stdin.take().expect("a pipe");
    pipe.write_all(&noise(100_000)).expect("written");
    let of_stream =
        |field: &str| relay.figures.lock().expect("no panic")["streams"][0][field].clone();
    wait_until("the stream", || of_stream("bytes").as_u64() > Some(50_000));
    drop(first);
    wait_until("the source to be away", || of_stream("is_live") == Value::Bool(false));
    let mut second = send(&place, &relay.url, &[]);
    let mut other = second.stdin.take().expect("a pipe");
    other.write_all(&noise(10_000)).expect("written");
    ran(viewer).fails(3, &["another source sends the stream now", "is missing"]);
    drop(other);
    let _ = ran(second);
    drop(pipe);
    interrupt(&relay.child.0);
}

#[test]
fn a_source_that_is_killed_and_started_again_goes_on_and_one_beside_it_is_refused() {
    let place = Place::new("relay-again", SCENARIO);
    let relay = Relay::start(&place, &[]);
    let player = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    player.set_read_timeout(Some(std::time::Duration::from_millis(50))).expect("set");
    let to = format!("udp://{}", player.local_addr().expect("an address"));
    let viewer = view(&place, &relay.viewers_url, &to, &[]);
    relay.await_viewers(1);
    // What each source sends is its own.
    let say = |pipe: &mut dyn Write, what: u8| pipe.write_all(&[what; 188 * 7]).expect("written");
    let hear = |wanted: u8, pipe: &mut dyn Write| {
        let pipe = RefCell::new(pipe);
        wait_until("media", || {
            let mut datagram = [0; 2_000];
            say(*pipe.borrow_mut(), wanted);
            player.recv(&mut datagram).is_ok_and(|length| datagram[..length].contains(&wanted))
        });
    };
    let live = ["--reliability", "deadline"];
    let mut first = send(&place, &relay.url, &live);
    let pipe = RefCell::new(first.stdin.take().expect("a pipe"));
    hear(1, &mut *pipe.borrow_mut());
    let mut beside = send(&place, &relay.url, &live);
    drop(beside.stdin.take());
    let beside = RefCell::new(beside);
    wait_until("the end of the one beside", || {
        say(&mut *pipe.borrow_mut(), 1);
        beside.borrow_mut().try_wait().expect("a process").is_some()
    });
    let beside = ran(beside.into_inner());
    beside.fails(3, &["another source sends this stream", "waiting for up to 10 s"]);
    assert_eq!(beside.err.matches("connected to").count(), 1, "{}", beside.err);
    hear(1, &mut *pipe.borrow_mut());
    first.kill().expect("killed");
    first.wait().expect("it ends");
    let mut second = send(&place, &relay.url, &live);
    let mut pipe = second.stdin.take().expect("a pipe");
    hear(2, &mut pipe);
    drop(pipe);
    ran(second).succeeds();
    interrupt(&viewer);
    ran(viewer).succeeds();
    interrupt(&relay.child.0);
}
