//! A stream that should be whole is, or both sides say that it is not; a file belongs to one sender.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::process::{Child, Command};
use std::time::Duration;

use super::common::{ListeningProgram, Place, Ran, SCENARIO, interrupt, wait_until};
use super::{Receiver, ran, send, send_with};

/// Bytes of neither RTP nor MPEG-TS, which are sent as soon as they are read.
fn plain(count: usize) -> Vec<u8> {
    (0..count).map(|place| (place * place % 47) as u8).collect()
}

fn size(place: &Place, name: &str) -> u64 {
    fs::metadata(place.path(name)).map_or(0, |file| file.len())
}

fn signal(child: &Child, name: &str) {
    let killed = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()), "kill {name}");
}

#[test]
fn a_second_sender_does_not_overwrite_what_a_silent_first_one_has_sent() {
    let place = Place::new("whole-second", SCENARIO);
    fs::write(place.path("in"), "a few bytes").expect("written");
    let receiver = Receiver::start(&place, &["--to", "out"]);
    let to = receiver.address;
    let mut first = send(&place, to, "-", &["--insecure"]);
    let (sent, mut pipe) = (plain(400_000), first.stdin.take().expect("a pipe"));
    pipe.write_all(&sent[..200_000]).expect("written");
    wait_until("a part of the file", || size(&place, "out") > 150_000);
    signal(&first, "-STOP");
    // Longer than the idle timeout.
    std::thread::sleep(Duration::from_secs(6));
    let second = ran(send(&place, to, "in", &["--insecure"]));
    second.fails(3, &["the receiver ended it: another sender is connected"]);
    signal(&first, "-CONT");
    pipe.write_all(&sent[200_000..]).expect("written");
    drop(pipe);
    let first = ran(first);
    first.succeeds();
    assert!(first.err.contains("again"), "{}", first.err);
    let (code, printed) = receiver.end();
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("the stream of another sender has not ended"), "{printed}");
    assert!(fs::read(place.path("out")).expect("the file") == sent, "the bytes differ");
}

#[test]
fn a_file_whose_receiver_was_started_anew_is_an_error_on_both_sides() {
    let place = Place::new("whole-anew", SCENARIO);
    let mut first = Receiver::start(&place, &["--to", "out", "--identity", "who.pem"]);
    let at = first.address;
    let more = ["--fingerprint", &first.fingerprint.clone()];
    let mut sender = send(&place, at, "-", &more);
    let (sent, mut pipe) = (plain(2_000_000), sender.stdin.take().expect("a pipe"));
    pipe.write_all(&sent[..1_000_000]).expect("written");
    wait_until("a part of the file", || size(&place, "out") > 900_000);
    first.child.kill().expect("killed");
    first.child.wait().expect("it ends");
    let more = ["--to", "out2", "--identity", "who.pem"];
    let second = Receiver::start_at(&place, &at.to_string(), &more);
    // The sender may have ended by then.
    let _ = pipe.write_all(&sent[1_000_000..]);
    drop(pipe);
    ran(sender).fails(3, &["the receiver ended it", "lacks its beginning"]);
    let (code, printed) = second.end();
    assert_eq!(code, Some(3), "{printed}");
    assert!(printed.contains("before this receiver was started"), "{printed}");
}

#[test]
fn a_restarted_receiver_of_datagrams_goes_on_but_the_sender_of_a_file_says_what_is_missing() {
    let place = Place::new("whole-datagrams", SCENARIO);
    let sink = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = format!("udp://{}", sink.local_addr().expect("an address"));
    let more = ["--to", &to, "--identity", "who.pem"];
    let mut first = Receiver::start(&place, &more);
    let at = first.address;
    let mut sender = send(&place, at, "-", &["--insecure"]);
    let (sent, mut pipe) = (plain(100_000), sender.stdin.take().expect("a pipe"));
    pipe.write_all(&sent[..70_000]).expect("written");
    sink.set_read_timeout(Some(Duration::from_secs(15))).expect("set");
    let mut datagram = [0; 2_000];
    for _ in 0..20 {
        sink.recv(&mut datagram).expect("a datagram in time");
    }
    // The sender looks once a second which units it need not send again.
    std::thread::sleep(Duration::from_millis(2_500));
    first.child.kill().expect("killed");
    first.child.wait().expect("it ends");
    let second = Receiver::start_at(&place, &at.to_string(), &more);
    pipe.write_all(&sent[70_000..]).expect("written");
    drop(pipe);
    ran(sender).fails(3, &["the receiver did not deliver", "of 76 datagrams"]);
    interrupt(&second.child);
    assert_eq!(second.end().0, Some(0));
}

#[test]
fn a_sender_that_is_interrupted_leaves_no_file_that_counts_as_whole() {
    let place = Place::new("whole-interrupted", SCENARIO);
    let receiver = Receiver::start(&place, &["--to", "out"]);
    let mut sender = send(&place, receiver.address, "-", &["--insecure"]);
    let mut pipe = sender.stdin.take().expect("a pipe");
    pipe.write_all(&plain(200_000)).expect("written");
    wait_until("a part of the file", || size(&place, "out") > 150_000);
    interrupt(&sender);
    ran(sender).fails(130, &["interrupted before the end of the source"]);
    let (code, printed) = receiver.end();
    assert_eq!(code, Some(3), "{printed}");
    assert!(printed.contains("stopped before the end of its source"), "{printed}");
}

#[test]
fn a_lost_sender_is_awaited_for_a_time_and_then_reported() {
    let place = Place::new("whole-lost", SCENARIO);
    let receiver = Receiver::start(&place, &["--to", "out", "--give-up", "1 s"]);
    let mut sender = send(&place, receiver.address, "-", &["--insecure"]);
    let mut pipe = sender.stdin.take().expect("a pipe");
    pipe.write_all(&plain(200_000)).expect("written");
    wait_until("a part of the file", || size(&place, "out") > 150_000);
    sender.kill().expect("killed");
    sender.wait().expect("it ends");
    let (code, printed) = receiver.end();
    assert_eq!(code, Some(3), "{printed}");
    assert!(printed.contains("did not connect again within 1 s"), "{printed}");
}

#[test]
fn an_existing_file_is_replaced_only_if_the_user_says_so() {
    let place = Place::new("whole-existing", SCENARIO);
    fs::write(place.path("in"), "new").expect("written");
    fs::write(place.path("out"), "precious").expect("written");
    let words = ["receive", "--listen", "127.0.0.1:0", "--to", "out"];
    place.run(&words).fails(2, &["--to out: it exists", "--overwrite"]);
    // It appears after the start.
    let receiver = Receiver::start(&place, &["--to", "late"]);
    fs::write(place.path("late"), "precious").expect("written");
    let to = receiver.address;
    ran(send(&place, to, "in", &["--insecure"])).fails(3, &["the receiver ended it"]);
    let (code, printed) = receiver.end();
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("--to late: it exists"), "{printed}");
    for name in ["out", "late"] {
        assert_eq!(fs::read_to_string(place.path(name)).expect("the file"), "precious");
    }
    let receiver = Receiver::start(&place, &["--to", "out", "--overwrite"]);
    let address = receiver.address.to_string();
    ran(send_with(&place, &address, "in", &["--insecure", "--token", "open"])).succeeds();
    assert_eq!(receiver.end().0, Some(0));
    assert_eq!(fs::read_to_string(place.path("out")).expect("the file"), "new");
    std::os::unix::fs::symlink("out", place.path("link")).expect("a link");
    let receiver = Receiver::start(&place, &["--to", "link", "--overwrite"]);
    let to = receiver.address;
    ran(send(&place, to, "in", &["--insecure"])).fails(3, &["the receiver ended it"]);
    let (code, printed) = receiver.end();
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("--to link: it is a link, which --overwrite"), "{printed}");
    assert_eq!(fs::read_to_string(place.path("out")).expect("the file"), "new");
    place
        .run(&["receive", "--listen", ":0", "--to", "-", "--overwrite"])
        .fails(2, &["--overwrite: --to names no file"]);
}

#[test]
fn a_file_whose_name_is_no_text_is_sent_and_received() {
    let place = Place::new("whole-no-text", SCENARIO);
    let named = |before: &str, last: u8| {
        OsString::from_vec([before.as_bytes(), &[b'f', 0xff, last]].concat())
    };
    fs::write(place.path("").join(named("", 1)), plain(100_000)).expect("written");
    for (scheme, to) in [("", 2), ("file://", 3)] {
        let mut receive = place.command(&["receive", "--listen", "127.0.0.1:0", "--json", "--to"]);
        receive.arg(named(scheme, to));
        let (receiver, printed) = ListeningProgram::of(receive);
        let mut send = place.command(&["send", "--to", printed["url"].as_str().expect("a URL")]);
        let sent = send.arg("--from").arg(named(scheme, 1)).output().expect("it starts");
        Ran::of(sent).succeeds();
        assert_eq!(receiver.end().1, Some(0));
        let received = fs::read(place.path("").join(named("", to))).expect("the file");
        assert!(received == plain(100_000), "the bytes differ");
    }
}
