//! Programs whose reader or peer takes nothing end on Ctrl-C, and say what was not delivered.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{Killed, ListeningProgram, Place, interrupt};
use ontempo_qos::{QosListener, QosOptions};

/// Presses Ctrl-C: how long the program goes on, its exit code and standard error.
fn interrupted(mut child: Killed, max: Duration) -> (Option<i32>, String) {
    interrupt(&child.0);
    let begun = Instant::now();
    while child.0.try_wait().expect("a status").is_none() {
        assert!(begun.elapsed() < max, "it goes on {max:?} after Ctrl-C");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut printed = String::new();
    let mut err = child.0.stderr.take().expect("its errors");
    err.read_to_string(&mut printed).expect("text");
    (child.0.wait().expect("it has ended").code(), printed)
}

fn spawn(place: &Place, arguments: &[&str]) -> Child {
    let mut command = place.command(arguments);
    command.env("ONTEMPO_RSVP_SOCKET", place.path("no.sock"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program starts")
}

/// What follows `after` in a line of the program, up to a space or comma.
fn word(from: &mut impl BufRead, after: &str) -> String {
    let mut line = String::new();
    while from.read_line(&mut line).expect("a line") > 0 {
        if let Some((_, rest)) = line.split_once(after) {
            return rest.split([' ', ',', '\n']).next().expect("a word").to_owned();
        }
        line.clear();
    }
    panic!("no {after}");
}

#[test]
fn a_receiver_whose_player_is_stuck_ends_on_ctrl_c_and_says_what_is_not_written() {
    let place = Place::new("stuck-player", "");
    fs::write(place.path("in"), vec![7; 4 << 20]).expect("written");
    let words = ["receive", "--listen", "127.0.0.1:0", "--to", "-", "--token", "open"];
    let mut receiver = Killed(spawn(&place, &words));
    let mut err = BufReader::new(receiver.0.stderr.take().expect("its errors"));
    let at = word(&mut err, "listening at ");
    let more = ["--from", "in", "--to", &at, "--insecure", "--token", "open"];
    let _sender = Killed(spawn(&place, &[&["send"], &more[..]].concat()));
    word(&mut err, "receiving from ");
    std::thread::sleep(Duration::from_millis(700));
    receiver.0.stderr = Some(err.into_inner());
    // Its standard output is never read.
    let (code, printed) = interrupted(receiver, Duration::from_millis(2_500));
    assert_eq!(code, Some(3), "{printed}");
    let sentence = "interrupted while standard output takes nothing: at least ";
    let (_, rest) = printed.split_once(sentence).expect("a sentence");
    let count: u64 = rest.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
    assert!((1..4 << 20).contains(&count), "{printed}");
}

#[test]
fn a_sender_whose_receiver_reads_nothing_ends_on_ctrl_c_with_its_summary() {
    let place = Place::new("stuck-receiver", "");
    for program in ["tg", "netvideo"] {
        let listener = QosListener::bind("127.0.0.1:0", QosOptions::default()).expect("bound");
        let at = listener.local_address().expect("an address").to_string();
        let more = ["--over", "tcp", "--rate", "100000 messages/s", "--size", "1280"];
        let mut sender = Killed(spawn(
            &place,
            &[&[program, "send", &at, "--seconds", "60"], &more[..]].concat(),
        ));
        let held = listener.accept().expect("a connection");
        std::thread::sleep(Duration::from_millis(700));
        let mut out = sender.0.stdout.take().expect("its output");
        let (code, printed) = interrupted(sender, Duration::from_millis(1_900));
        assert_eq!(code, Some(130), "{program}: {printed}");
        assert!(printed.contains("the receiver has not taken all"), "{program}: {printed}");
        let mut all = String::new();
        out.read_to_string(&mut all).expect("text");
        assert!(all.contains(" messages sent, "), "{program}: {all}");
        drop(held);
    }
}

#[test]
fn a_sender_at_a_low_rate_or_without_input_ends_on_ctrl_c() {
    let place = Place::new("stuck-source", "");
    for more in [&["--rate", "1 messages/s", "--vary", "0 %"][..], &["--stdin"]] {
        let listener = QosListener::bind("127.0.0.1:0", QosOptions::default()).expect("bound");
        let at = listener.local_address().expect("an address").to_string();
        let words = [&["netvideo", "send", &at, "--over", "tcp", "--seconds", "60"], more].concat();
        let mut sender = Killed(spawn(&place, &words));
        // Its standard input is never written.
        let _input = sender.0.stdin.take();
        let held = listener.accept().expect("a connection");
        std::thread::sleep(Duration::from_millis(300));
        interrupted(sender, Duration::from_millis(1_900));
        drop(held);
    }
}

#[test]
fn a_receiver_of_messages_whose_player_is_stuck_ends_on_ctrl_c() {
    let place = Place::new("stuck-messages", "");
    // Frames, and lines about messages.
    for more in [&["--stdout"][..], &["--json", "--messages"]] {
        let words = ["netvideo", "receive", "--listen", "127.0.0.1:0", "--over", "tcp"];
        let mut receiver = Killed(spawn(&place, &[&words, more].concat()));
        let at = if more == ["--stdout"] {
            let mut err = BufReader::new(receiver.0.stderr.take().expect("its errors"));
            let at = word(&mut err, "listening at ");
            receiver.0.stderr = Some(err.into_inner());
            at
        } else {
            let mut out = BufReader::new(receiver.0.stdout.take().expect("its output"));
            let at = word(&mut out, "\"local\":\"");
            receiver.0.stdout = Some(out.into_inner());
            at.trim_end_matches(['"', '}']).to_owned()
        };
        let fast = ["--rate", "20000 messages/s", "--size", "1000", "--seconds", "60"];
        let to = ["netvideo", "send", &at, "--over", "tcp"];
        let _sender = Killed(spawn(&place, &[&to, &fast[..]].concat()));
        std::thread::sleep(Duration::from_millis(1_500));
        let (code, printed) = interrupted(receiver, Duration::from_millis(3_500));
        assert!(code.is_some_and(|code| code != 0), "{code:?}: {printed}");
        assert!(printed.contains("takes nothing"), "{printed}");
    }
}

#[test]
fn gateways_whose_output_nobody_reads_relay_on() {
    let place = Place::new("stuck-gateways", "");
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = server.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for client in server.incoming() {
            // Each has five bytes back.
            let mut client = client.expect("a connection");
            let mut bytes = [0; 5];
            let back = client.read_exact(&mut bytes).and_then(|()| client.write_all(&bytes));
            back.expect("answered");
        }
    });
    let start = |more: &[&str]| {
        let words = ["gateway", "--listen", "127.0.0.1:0", "--over", "tcp"];
        ListeningProgram::start(&place, &[&words[..], more].concat())
    };
    let far = start(&["--server", &to]);
    let near = start(&["--to", &far.local]);
    // Their lines about so many are more than a pipe holds.
    for number in 0..250 {
        let mut client = TcpStream::connect(&near.local).expect("connected");
        client.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        client.write_all(b"hallo").expect("sent");
        let mut back = [0; 5];
        client.read_exact(&mut back).unwrap_or_else(|error| panic!("{number}: {error}"));
    }
}

#[test]
fn a_receiver_into_a_named_pipe_that_nobody_reads_ends_on_ctrl_c() {
    let place = Place::new("stuck-fifo", "");
    fs::write(place.path("in"), "a few bytes").expect("written");
    let made = std::process::Command::new("mkfifo").arg(place.path("fifo")).status();
    assert!(made.is_ok_and(|made| made.success()), "mkfifo");
    let words = ["receive", "--listen", "127.0.0.1:0", "--to", "fifo", "--token", "open"];
    let mut receiver = Killed(spawn(&place, &words));
    let mut err = BufReader::new(receiver.0.stderr.take().expect("its errors"));
    let at = word(&mut err, "listening at ");
    let more = ["--from", "in", "--to", &at, "--insecure", "--token", "open"];
    let _sender = Killed(spawn(&place, &[&["send"], &more[..]].concat()));
    std::thread::sleep(Duration::from_millis(700));
    receiver.0.stderr = Some(err.into_inner());
    let (code, printed) = interrupted(receiver, Duration::from_millis(2_500));
    assert_eq!(code, Some(130), "{printed}");
    assert!(printed.contains("--to fifo: interrupted; no program has opened it"), "{printed}");
}

#[test]
fn a_sender_from_a_named_pipe_to_which_nobody_writes_ends_on_ctrl_c() {
    let place = Place::new("stuck-source-fifo", "");
    let made = std::process::Command::new("mkfifo").arg(place.path("fifo")).status();
    assert!(made.is_ok_and(|made| made.success()), "mkfifo");
    let words = ["send", "--from", "fifo", "--to", "127.0.0.1:9", "--insecure"];
    let sender = Killed(spawn(&place, &words));
    std::thread::sleep(Duration::from_millis(700));
    let (code, printed) = interrupted(sender, Duration::from_secs(10));
    assert_eq!(code, Some(130), "{printed}");
    assert!(printed.contains("--from fifo: interrupted; no program writes to it"), "{printed}");
}

#[test]
fn a_recording_into_a_named_pipe_that_nobody_reads_ends_on_ctrl_c() {
    let place = Place::new("stuck-recording", "");
    let path = place.path("up.csv");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.is_ok_and(|made| made.success()), "mkfifo");
    // Full already.
    let mut reader = fs::File::options();
    let mut reader =
        reader.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path).expect("open");
    while reader.write(&[b'x'; 4096]).is_ok() {}
    let words = ["probe", "--listen", "127.0.0.1:0"];
    let listener = ListeningProgram::start(&place, &words);
    let words = ["probe", &listener.local, "--trace", "up.csv", "--max-rate", "2 Mbit/s"];
    let recorder = Killed(spawn(&place, &words));
    std::thread::sleep(Duration::from_millis(2_500));
    let (code, printed) = interrupted(recorder, Duration::from_millis(4_000));
    assert_eq!(code, Some(130), "{printed}");
    let sentence = "interrupted while --trace up.csv takes nothing: at least ";
    assert!(printed.contains(sentence), "{printed}");
    assert!(printed.contains(" bytes of the recording are not written"), "{printed}");
}
