//! `ontempo netvideo`, `tg` and `gateway` over loopback without an RSVP daemon: delivery, events
//! and
//! error messages.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use common::{ListeningProgram, Place, Ran, interrupt, json_lines};
use serde_json::Value;

fn of<'a>(events: &'a [Value], event: &str) -> Vec<&'a Value> {
    events.iter().filter(|one| one["event"] == event).collect()
}

/// Runs a program without an RSVP daemon.
fn run(place: &Place, arguments: &[&str]) -> Ran {
    let mut command = place.command(arguments);
    command.env("ONTEMPO_RSVP_SOCKET", place.path("no.sock"));
    Ran::of(command.output().expect("the program starts"))
}

#[test]
fn both_ends_of_a_video_log_each_message_and_the_agreed_specification() {
    let place = Place::new("qos-video", "");
    let receiver = ListeningProgram::start(
        &place,
        &["netvideo", "receive", "--listen", "127.0.0.1:0", "--messages"],
    );
    let rate = ["--rate", "60 messages/s", "--vary", "25 %", "--seconds", "1"];
    let to = ["netvideo", "send", receiver.local.as_str()];
    let ran = run(&place, &[&to[..], &rate, &["--json", "--messages"]].concat());
    let sent = json_lines(&ran.succeeds().out);
    let (received, code) = receiver.end();
    assert_eq!(code, Some(0));
    let numbers = |events: &[Value], event| -> Vec<u64> {
        of(events, event).iter().filter_map(|one| one["number"].as_u64()).collect()
    };
    let numbered = numbers(&sent, "sent");
    assert!((45..=80).contains(&numbered.len()), "{numbered:?}");
    assert_eq!(numbered, numbers(&received, "received"));
    assert!(of(&received, "received").iter().all(|one| one["bytes"] == 1_280
        && one["delay_ns"].as_u64().is_some_and(|delay| delay < 1_000_000_000)));
    for events in [&sent, &received] {
        let [agreed] = of(events, "agreed")[..] else { panic!("{events:?}") };
        assert_eq!(agreed["specification"]["max_rate"], "80 messages/s");
        let [summary] = of(events, "summary")[..] else { panic!("{events:?}") };
        assert_eq!(
            (&summary["lost_messages"], &summary["messages"]),
            (&0.into(), &numbered.len().into())
        );
    }
}

#[test]
fn generators_load_a_path_over_tcp_and_over_udp() {
    let place = Place::new("qos-tg", "");
    for over in ["tcp", "udp"] {
        let listen = ["tg", "receive", "--listen", "127.0.0.1:0", "--over", over];
        let receiver = ListeningProgram::start(&place, &listen);
        let to = ["tg", "send", &receiver.local, "--over", over, "--seconds", "1"];
        let ran = run(&place, &[&to[..], &["--rate", "200 messages/s"]].concat());
        let text = &ran.succeeds().out;
        assert!(text.contains("200 messages sent, 200 delivered"), "{over}: {text}");
        let (received, code) = receiver.end();
        assert_eq!(code, Some(0), "{over}");
        let [summary] = of(&received, "summary")[..] else { panic!("{received:?}") };
        assert_eq!(summary["bytes"], 200 * 1_024, "{over}");
        assert!(of(&received, "received").is_empty(), "only with --messages");
    }
}

#[test]
fn without_an_rsvp_daemon_a_flow_continues_with_a_message_unless_it_must_reserve() {
    let place = Place::new("qos-unreserved", "");
    let reserve = ["--reserve", "controlled-load"];
    let listen = [&["netvideo", "receive", "--listen", "127.0.0.1:0"][..], &reserve].concat();
    let receiver = ListeningProgram::start(&place, &listen);
    let send = ["netvideo", "send", receiver.local.as_str(), "--seconds", "1"];
    let ran = run(&place, &[&send[..], &reserve, &["--must-reserve"]].concat());
    ran.fails(3, &["no RSVP daemon at", "no.sock"]);
    drop(receiver);
    let receiver = ListeningProgram::start(&place, &listen);
    let send = ["netvideo", "send", receiver.local.as_str(), "--seconds", "1"];
    let ran = run(&place, &[&send[..], &reserve, &["--json"]].concat());
    let events = json_lines(&ran.succeeds().out);
    assert_eq!(of(&events, "summary")[0]["lost_messages"], 0);
}

#[test]
fn a_receiver_that_must_reserve_refuses_a_sender_that_does_not_and_both_say_so() {
    let place = Place::new("qos-must", "");
    let listen = ["netvideo", "receive", "--listen", "127.0.0.1:0", "--must-reserve"];
    run(&place, &listen).fails(2, &["--must-reserve: say what to reserve"]);
    let listen = [&listen[..], &["--reserve", "controlled-load"]].concat();
    let receiver = ListeningProgram::start(&place, &listen);
    let send = ["netvideo", "send", receiver.local.as_str(), "--seconds", "1"];
    let reason = "nothing is reserved: the other end must reserve, and this end does not";
    run(&place, &send).fails(3, &[reason]);
    interrupt(&receiver.child.0);
    let (events, _) = receiver.end();
    assert!(of(&events, "agreed").is_empty(), "{events:?}");
}

#[test]
fn what_was_coerced_binds_the_sender() {
    let place = Place::new("qos-coerced", "");
    for (name, rate, size) in [("much.toml", 80, 1_280), ("little.toml", 20, 500)] {
        let text =
            format!("max_rate = \"{rate} messages/s\"\nsize = \"{size} bytes\"\ncoerced = true\n");
        fs::write(place.path(name), text).expect("a specification");
    }
    let listen = ["netvideo", "receive", "--listen", "127.0.0.1:0", "--spec", "little.toml"];
    let receiver = ListeningProgram::start(&place, &listen);
    let send = ["netvideo", "send", receiver.local.as_str(), "--spec", "much.toml"];
    let ran = run(&place, &[&send[..], &["--seconds", "2", "--json"]].concat());
    let events = json_lines(&ran.succeeds().out);
    let [summary] = of(&events, "summary")[..] else { panic!("{events:?}") };
    let sent = summary["sent_messages"].as_u64().expect("a number");
    assert!((20..=41).contains(&sent), "{summary}");
    assert_eq!(summary["bytes"], 500 * summary["messages"].as_u64().expect("a number"));
    assert!(of(&events, "violation").is_empty(), "{events:?}");
}

/// What asks for 50 messages a second that take 200 ms at least, which none takes here, and below for 20 that may take
/// any time.
const LADDER: &str = r#"max_rate = "50 messages/s"
size = "1000 bytes"
min_delay = "200 ms"
coerced = true
step_down_after = "500 ms"
step_up_after = "1 h"

[[below]]
max_rate = "20 messages/s"
size = "1000 bytes"
"#;

#[test]
fn a_sender_steps_down_to_what_stands_below_in_its_file_and_says_so() {
    let place = Place::new("qos-ladder", "");
    fs::write(place.path("ladder.toml"), LADDER).expect("a specification");
    fs::write(place.path("any.toml"), "max_rate = \"80 messages/s\"\ncoerced = true\n")
        .expect("a specification");
    let listen = ["netvideo", "receive", "--listen", "127.0.0.1:0", "--spec", "any.toml"];
    let receiver = ListeningProgram::start(&place, &listen);
    let send = ["netvideo", "send", receiver.local.as_str(), "--spec", "ladder.toml"];
    let ran = run(&place, &[&send[..], &["--seconds", "8", "--json"]].concat());
    let events = json_lines(&ran.succeeds().out);
    let [step] = of(&events, "step")[..] else { panic!("{events:?}") };
    assert_eq!((&step["way"], &step["step"]), (&"down".into(), &1.into()), "{step}");
    assert_eq!(step["specification"]["max_rate"], "20 messages/s");
    let (received, code) = receiver.end();
    assert_eq!(code, Some(0));
    let [changed] = of(&received, "changed")[..] else { panic!("{received:?}") };
    assert_eq!(changed["specification"]["max_rate"], "20 messages/s");
    // A sender that had not stepped would have sent 400.
    let [summary] = of(&events, "summary")[..] else { panic!("{events:?}") };
    assert!(summary["sent_messages"].as_u64().expect("a number") < 320, "{summary}");
}

#[test]
fn a_gateway_paces_at_the_step_that_it_is_at() {
    let place = Place::new("qos-gateway-ladder", "");
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let web = server.local_addr().expect("an address").to_string();
    let serving = std::thread::spawn(move || {
        let (mut one, _) = server.accept().expect("a client");
        let mut all = Vec::new();
        one.read_to_end(&mut all).expect("the whole stream");
        all.len()
    });
    fs::write(place.path("q.toml"), LADDER).expect("a specification");
    let [near_client, near_server] = gateways_with(&place, &web, "send");
    let mut client = TcpStream::connect(&near_client.local).expect("a connection");
    client.write_all(&[7; 150_000]).expect("written");
    client.shutdown(std::net::Shutdown::Write).expect("it is there");
    assert_eq!(serving.join().expect("it ends"), 150_000);
    drop(client);
    interrupt(&near_client.child.0);
    let (events, _) = near_client.end();
    let [step] = of(&events, "step")[..] else { panic!("{events:?}") };
    assert_eq!(step["specification"]["max_rate"], "20 messages/s");
    drop(near_server);
}

/// A pair of gateways before the server `web`, which say in q.toml what they receive: the one near the
/// client, and the one near the server.
fn gateways(place: &Place, web: &str) -> [ListeningProgram; 2] {
    gateways_with(place, web, "receive")
}

fn gateways_with(place: &Place, web: &str, direction: &str) -> [ListeningProgram; 2] {
    let start = |end: [&str; 2]| {
        let words = ["gateway", "--listen", "127.0.0.1:0", "--over", "tcp"];
        let options = ["--spec", "q.toml", "--direction", direction];
        ListeningProgram::start(place, &[&words[..], &end, &options].concat())
    };
    let near_server = start(["--server", web]);
    [start(["--to", &near_server.local]), near_server]
}

#[test]
fn a_gateway_keeps_the_agreed_rate_and_its_summary_has_what_was_delivered() {
    let place = Place::new("qos-paced", "");
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let web = server.local_addr().expect("an address").to_string();
    let serving = std::thread::spawn(move || {
        let (mut one, _) = server.accept().expect("a client");
        one.write_all(&[7; 300_000]).expect("written");
    });
    fs::write(place.path("q.toml"), "max_rate = \"100 messages/s\"\nsize = \"1000 bytes\"\n")
        .expect("a specification");
    let [near_client, near_server] = gateways(&place, &web);
    let mut client = TcpStream::connect(&near_client.local).expect("a connection");
    let mut all = Vec::new();
    client.read_to_end(&mut all).expect("the whole stream");
    assert_eq!(all.len(), 300_000);
    drop(client);
    serving.join().expect("it ends");
    // The summary is written when the connection ends.
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    for (gateway, direction) in [(near_client, "receiving"), (near_server, "sending")] {
        interrupt(&gateway.child.0);
        let (events, code) = gateway.end();
        assert_eq!(code, Some(0), "{events:?}");
        let violations = of(&events, "violation");
        assert!(violations.iter().all(|one| one["parameter"] != "max_rate"), "{violations:?}");
        let summaries = of(&events, "summary");
        let of_data = summaries.iter().find(|one| one["direction"] == direction);
        let summary = of_data.expect("a summary");
        assert_eq!((&summary["bytes"], &summary["lost_messages"]), (&300_000.into(), &0.into()));
        assert_eq!(summary["messages"], summary["sent_messages"], "{direction}: {summary}");
    }
}

#[test]
fn two_gateways_relay_any_client_and_server_and_print_summaries_at_ctrl_c() {
    let place = Place::new("qos-gateway", "");
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let web = server.local_addr().expect("an address").to_string();
    let echo = std::thread::spawn(move || {
        let (mut one, _) = server.accept().expect("a client");
        let mut room = vec![0; 4_096];
        while let Ok(got @ 1..) = one.read(&mut room) {
            one.write_all(&room[..got]).expect("written");
        }
    });
    fs::write(place.path("q.toml"), "max_rate = \"80 messages/s\"\nsize = \"1000 bytes\"\n")
        .expect("a specification");
    let [near_client, near_server] = gateways(&place, &web);
    let mut client = TcpStream::connect(&near_client.local).expect("a connection");
    let sent: Vec<u8> = (0..50_000u32).map(|byte| (byte % 251) as u8).collect();
    client.write_all(&sent).expect("written");
    let mut back = vec![0; sent.len()];
    client.read_exact(&mut back).expect("it comes back");
    assert!(back == sent, "the echo is unchanged");
    // The connection is still there.
    for (gateway, sending) in [(near_client, false), (near_server, true)] {
        interrupt(&gateway.child.0);
        let (events, code) = gateway.end();
        assert_eq!(code, Some(0), "{events:?}");
        // Only the direction back has a specification.
        let [agreed] = of(&events, "agreed")[..] else { panic!("{events:?}") };
        assert_eq!(agreed["direction"], if sending { "sending" } else { "receiving" });
        let summaries = of(&events, "summary");
        assert_eq!(summaries.len(), 2, "{events:?}");
        assert!(summaries.iter().all(|one| one["connection"] == 1), "{events:?}");
        let back = &summaries[usize::from(!sending)];
        if !sending {
            assert_eq!((&back["direction"], &back["bytes"]), (&"receiving".into(), &50_000.into()));
        }
        assert!(back["messages"].as_u64() >= Some(if sending { 0 } else { 50 }), "{back}");
    }
    let _ = client.shutdown(Shutdown::Both);
    drop(client);
    echo.join().expect("it ends");
}

#[test]
fn ctrl_c_ends_a_waiting_receiver_and_still_prints_the_summary() {
    let place = Place::new("qos-interrupt", "");
    let waiting = ListeningProgram::start(&place, &["tg", "receive", "--listen", "127.0.0.1:0"]);
    interrupt(&waiting.child.0);
    let (events, code) = waiting.end();
    let [error] = &events[..] else { panic!("{events:?}") };
    assert_eq!((code, &error["exit_code"]), (Some(130), &130.into()), "{error}");
    assert_eq!(error["text"], "interrupted; no sender connected");
    let receiver =
        ListeningProgram::start(&place, &["netvideo", "receive", "--listen", "127.0.0.1:0"]);
    let send = ["netvideo", "send", &receiver.local, "--seconds", "3600", "--json", "--messages"];
    let mut sending = place.spawn(&send);
    let mut out = BufReader::new(sending.stdout.take().expect("its output"));
    let mut line = String::new();
    while !line.contains("\"sent\"") {
        line.clear();
        assert!(out.read_line(&mut line).expect("a line") > 0);
    }
    interrupt(&sending);
    let mut text = String::new();
    out.read_to_string(&mut text).expect("text");
    assert_eq!(sending.wait().expect("it ends").code(), Some(0));
    assert_eq!(of(&json_lines(&text), "summary").len(), 1, "{text}");
    let (received, code) = receiver.end();
    assert_eq!((of(&received, "summary").len(), code), (1, Some(0)));
}

#[test]
fn errors_are_reported_in_a_sentence() {
    let place = Place::new("qos-refusals", "");
    fs::write(place.path("other.toml"), "rate = 3\n").expect("a file");
    fs::write(place.path("steps.toml"), "[[below]]\nloss = \"5 %\"\n").expect("a file");
    fs::write(
        place.path("never.toml"),
        "min_rate = \"9 messages/s\"\nmax_rate = \"8 messages/s\"\n",
    )
    .expect("a file");
    fs::write(
        place.path("firm.toml"),
        "max_rate = \"80 messages/s\"\npeak_rate = \"90 messages/s\"\n",
    )
    .expect("a file");
    fs::write(
        place.path("more.toml"),
        "max_rate = \"80 messages/s\"\npeak_rate = \"95 messages/s\"\n",
    )
    .expect("a file");
    let receiver = ListeningProgram::start(
        &place,
        &["netvideo", "receive", "--listen", "127.0.0.1:0", "--spec", "firm.toml"],
    );
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    let to = receiver.local.as_str();
    let gateway = ["gateway", "--listen", "127.0.0.1:0"];
    for (arguments, code, words) in [
        (vec!["netvideo", "send", "host.example"], 2, "the port is missing"),
        (vec!["netvideo", "send", to, "--rate", "60"], 2, "messages/s"),
        (vec!["netvideo", "send", to, "--rate", "0 messages/s"], 2, "a rate above 0 is needed"),
        (vec!["netvideo", "send", to, "--vary", "much"], 2, "--vary"),
        (vec!["netvideo", "send", to, "--size", "0"], 2, "1..=65000"),
        (vec!["netvideo", "send", to, "--messages"], 2, "--json"),
        (vec!["netvideo", "send", to, "--spec", "none.toml"], 2, "none.toml: "),
        (vec!["netvideo", "send", to, "--spec", "other.toml"], 2, "unknown field `rate`"),
        (
            vec!["qos", "run", "--spec", "steps.toml", "--", "true"],
            2,
            "one specification is taken here",
        ),
        (
            vec!["netvideo", "send", to, "--spec", "never.toml"],
            2,
            "min_rate (9 messages/s) is above",
        ),
        (
            vec!["netvideo", "send", to, "--spec", "more.toml"],
            2,
            "the sender asks for 95 messages/s, the receiver for 90 messages/s",
        ),
        (vec!["tg", "receive", "--listen", &taken, "--over", "tcp"], 3, "--listen"),
        (vec!["tg", "send", to, "--over", "sctp"], 2, "tcp, udp"),
        ([&gateway[..], &["--to", to, "--server", to]].concat(), 2, "cannot be used with"),
        (gateway.to_vec(), 2, "--to <URL|HOST:PORT>"),
        ([&gateway[..], &["--to", to, "--direction", "up"]].concat(), 2, "send, receive, both"),
    ] {
        run(&place, &arguments).fails(code, &[words]);
    }
}
