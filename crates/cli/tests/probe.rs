//! `ontempo probe` over loopback: measurements and error messages.

mod common;

use std::net::UdpSocket;
use std::time::Duration;

use common::{ListeningProgram, Place, Ran, SCENARIO, interrupt};
use ontempo_probe::wire::{self, Message, Reason};

fn listener(place: &Place, more: &[&str]) -> ListeningProgram {
    ListeningProgram::start(place, &[&["probe", "--listen", "127.0.0.1:0"], more].concat())
}

#[test]
fn throughput_and_loss_are_measured_for_each_spacing() {
    let place = Place::new("probe-measures", SCENARIO);
    let listener = listener(&place, &["--token", "secret"]);
    let to = listener.local.as_str();
    let more =
        ["--spacing", "1 ms,2 ms,psp-damped", "--seconds", "1", "--token", "secret", "--json"];
    let ran = place.run(&[&["probe", to], &more[..]].concat());
    let printed = ran.succeeds().json();
    let rows = printed["spacings"].as_array().expect("rows");
    assert_eq!(rows.len(), 3);
    for (row, spacing) in rows.iter().zip([1e-3, 2e-3]) {
        let number = |name: &str| row[name].as_f64().expect("a number");
        let (sent, received) = (number("sent_packets"), number("received_packets"));
        assert_eq!((number("loss"), received), (0.0, sent), "loopback loses nothing");
        let gap = number("sent_gap_mean_s");
        assert!(gap >= spacing, "never sooner: {gap} s");
        // A busy machine sends later, and so fewer; the last may leave as the second ends.
        assert!((2.0..=1.0 / spacing + 2.0).contains(&sent), "{sent} packets in a second");
        // 1,400 bytes each, over the longer of both ends' spans.
        let span = gap.max(number("arrival_gap_mean_s"));
        let expected = 1_400.0 * 8.0 / span;
        let measured = number("received_bps");
        assert!((measured / expected - 1.0).abs() < 1e-3, "{measured}, not {expected} bit/s");
        assert_eq!(row["spacing_s"].as_f64(), Some(spacing));
    }
    let adapted = &rows[2];
    assert_eq!(adapted["spacing"], "psp-damped");
    assert!(adapted["spacing_s"].is_null(), "{adapted}");
    assert!(adapted["received_packets"].as_u64().is_some_and(|count| count > 1), "{adapted}");
    let over_time = adapted["spacing_over_time_s"].as_array().expect("a list");
    assert!(!over_time.is_empty(), "{adapted}");
}

#[test]
fn errors_are_reported_in_a_sentence() {
    let place = Place::new("probe-refusals", SCENARIO);
    let listener = listener(&place, &["--token", "secret"]);
    let to = listener.local.as_str();
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let nobody = silent.local_addr().expect("an address").to_string();
    for (arguments, code, words) in [
        (vec!["probe", to, "--token", "other"], 2, "wrong token"),
        (vec!["probe", &nobody], 3, "no answer"),
        (vec!["probe", "host.example"], 2, "the port is missing"),
        (vec!["probe", "127.0.0.1:99999"], 2, "no port from 1 to 65535"),
        (vec!["probe", "does-not-exist.invalid:4434"], 3, "no such name"),
        (vec!["probe", "--listen", to], 3, "is taken by another program"),
        (vec!["probe", to, "--spacing", "fast"], 2, "a spacing is a time, psp, or psp-damped"),
    ] {
        place.run(&arguments).fails(code, &[words]);
    }
    for kind in [&["--json"][..], &["--json", "--spacing", "1 ms"]] {
        let refused = place.run(&[&["probe", to, "--token", "other"], kind].concat());
        refused.fails(2, &["wrong token"]);
        let document: serde_json::Value = serde_json::from_str(&refused.out).expect("one document");
        let what = document["problems"][0]["what"].as_str().expect("what is wrong");
        assert!(what.contains("wrong token"), "{document}");
    }
}

#[test]
fn ctrl_c_still_prints_finished_measurements() {
    let place = Place::new("probe-interrupt", SCENARIO);
    let listener = listener(&place, &[]);
    let to = listener.local.as_str();
    let more = ["--spacing", "1 ms,5 ms", "--seconds", "2"];
    let child = place.spawn(&[&["probe", to], &more[..]].concat());
    std::thread::sleep(Duration::from_millis(3_500));
    interrupt(&child);
    let ended = Ran::of(child.wait_with_output().expect("it ends"));
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(ended.out.lines().any(|line| line.starts_with("1 ms ")), "{ended:?}");
    assert!(ended.out.contains("5 ms (part)"), "{ended:?}");
}

/// A session that the listener refuses over and over, because its proof is wrong.
fn be_refused(to: &str, times: usize) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(to).expect("an address");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let mut answer = [0; 1500];
    let mut say = |message: &Message<'_>| {
        let mut bytes = Vec::new();
        wire::write(7, message, &mut bytes);
        socket.send(&bytes).expect("sent");
        let length = socket.recv(&mut answer).expect("an answer");
        answer[..length].to_vec()
    };
    let challenge = say(&Message::Hello { stamp: 1 });
    let Ok((7, Message::Challenge { cookie, .. })) = wire::read(&challenge) else {
        panic!("{challenge:?}")
    };
    let start = Message::Start { stamp: 1, cookie, proof: [9; 16] };
    for _ in 0..times {
        assert_eq!(wire::read(&say(&start)), Ok((7, Message::Refuse(Reason::Token))));
    }
}

#[test]
fn refusals_beyond_a_few_are_only_counted() {
    let place = Place::new("probe-flood", SCENARIO);
    let listener = listener(&place, &["--token", "secret"]);
    be_refused(&listener.local, 20_000);
    interrupt(&listener.child.0);
    let (events, code) = listener.end();
    assert_eq!(code, Some(0));
    assert!(events.len() < 100, "{} lines", events.len());
    let shown = events.iter().filter(|event| event["event"] == "refused").count() as u64;
    let counted: u64 = events.iter().filter_map(|event| event["count"].as_u64()).sum();
    assert_eq!(shown + counted, 20_000, "{events:?}");
}

#[test]
fn the_token_is_given_by_a_file_or_the_environment() {
    let place = Place::new("probe-token", SCENARIO);
    let listener = listener(&place, &["--token-file", "token"]);
    let to = listener.local.as_str();
    let token = std::fs::read_to_string(place.path("token")).expect("the listener has made it");
    assert_eq!(token.trim_end().len(), 32);
    let more = ["--spacing", "5 ms", "--seconds", "1"];
    let probe = |more_still: &[&str], variable: &str| {
        let mut command = place.command(&[&["probe", to], &more[..], more_still].concat());
        Ran::of(command.env("ONTEMPO_TOKEN", variable).output().expect("the program starts"))
    };
    probe(&[], "").fails(2, &["wrong token"]);
    probe(&["--token-file", "none"], "").fails(3, &["--token-file none: no such file"]);
    probe(&["--token-file", "token"], "").succeeds();
    probe(&[], token.trim_end()).succeeds();
}

#[test]
fn who_admits_everybody_is_told() {
    let place = Place::new("probe-anyone", SCENARIO);
    let said = |at: &str, more: &[&str]| {
        let words = [&["probe", "--listen", at], more].concat();
        ListeningProgram::start(&place, &words).said_until_interrupted()
    };
    let open = said("0.0.0.0:0", &[]);
    assert_eq!(open.lines().count(), 1, "{open}");
    for words in ["anyone who reaches 0.0.0.0:", "16 sessions, 4 of a host", "--token"] {
        assert!(open.contains(words), "`{words}` is missing: {open}");
    }
    assert_eq!(said("0.0.0.0:0", &["--token", "secret"]), "");
    assert_eq!(said("127.0.0.1:0", &[]), "", "no other host reaches it");
}
