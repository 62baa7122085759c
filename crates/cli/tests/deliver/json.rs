//! What both programs write with `--json`: documents alone, with the time, also where things go wrong.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::Child;
use std::time::Duration;

use serde_json::Value;

use crate::common::{Place, SCENARIO, free_port, interrupt};
use crate::relay::Relay;
use crate::{noise, ran, send_with};

/// The documents of an output, each checked, and the names of their events.
fn documents(out: &str) -> (Vec<Value>, BTreeSet<String>) {
    let mut before = 0.0;
    let all: Vec<Value> = out
        .lines()
        .map(|line| {
            let document: Value = serde_json::from_str(line).expect(line);
            let time = document["time"].as_str().expect("a time");
            assert_eq!((time.len(), &time[10..11], &time[23..]), (24, "T", "Z"), "{line}");
            let seconds = document["seconds"].as_f64().expect("seconds");
            assert!(seconds >= before, "{line}");
            before = seconds;
            document
        })
        .collect();
    let events = all.iter().map(|one| one["event"].as_str().expect("an event").to_owned());
    let events = events.collect();
    (all, events)
}

/// Those of an event.
fn of<'a>(documents: &'a [Value], event: &str) -> Vec<&'a Value> {
    documents.iter().filter(|one| one["event"] == event).collect()
}

fn texts(documents: &[Value], event: &str) -> String {
    of(documents, event)
        .iter()
        .filter_map(|one| one["text"].as_str())
        .collect::<Vec<_>>()
        .join("\n")
}

/// A receiver, its address and what it wrote first.
fn receiver(place: &Place, to: &str) -> (Child, BufReader<std::process::ChildStdout>, Value) {
    let words = ["receive", "--json", "--listen", "127.0.0.1:0", "--token", "open", "--to", to];
    let mut child = place.spawn(&words);
    let mut out = BufReader::new(child.stdout.take().expect("its output"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    let listening = serde_json::from_str(&line).expect("JSON");
    (child, out, listening)
}

#[test]
fn each_line_of_json_output_is_a_document_with_the_time_also_of_warnings_and_errors() {
    let place = Place::new("deliver-json", SCENARIO);
    let sink = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = format!("udp://{}", sink.local_addr().expect("an address"));
    let (mut child, mut out, listening) = receiver(&place, &to);
    assert_eq!(listening["event"], "listening");
    let address = listening["local"].as_str().expect("an address").parse().expect("one");

    // A sender that is not admitted.
    let options = ["--json", "--insecure", "--token", "wrong"];
    std::fs::write(place.path("in"), noise(1_000)).expect("written");
    let refused =
        ran(send_with(&place, listening["local"].as_str().expect("text"), "in", &options));
    refused.fails(2, &["the peer refused our token", "paste the URL"]);
    let (all, events) = documents(&refused.out);
    assert!(events.contains("error"), "{}", refused.out);
    assert_eq!(of(&all, "error")[0]["exit_code"], 2);

    // One whose latency is too short for its path, and whose source pauses.
    let relay = Relay::start(address, 0.1, Duration::from_millis(30));
    let source = free_port();
    let from = format!("udp://127.0.0.1:{source}");
    let options = ["--json", "--insecure", "--token", "open", "--latency", "30 ms"];
    let sender = send_with(&place, &relay.address.to_string(), &from, &options);
    std::thread::sleep(Duration::from_millis(1_000));
    let encoder = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for number in 0..600u64 {
        let mut datagram = vec![7; 1_000];
        datagram[..8].copy_from_slice(&number.to_be_bytes());
        encoder.send_to(&datagram, ("127.0.0.1", source)).expect("sent");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(7_000));
    interrupt(&sender);
    let sent = ran(sender);
    sent.succeeds();
    interrupt(&child);
    let mut received = String::new();
    out.read_to_string(&mut received).expect("text");
    assert!(child.wait().expect("it ends").success());
    check_sender(&sent.out);
    check_receiver(&received);

    // An error before anything begins.
    let words = ["receive", "--json", "--listen", "127.0.0.1:0", "--to", "in"];
    let exists = place.run(&words);
    exists.fails(2, &["it exists"]);
    let (all, _) = documents(&exists.out);
    assert_eq!((all.len(), &all[0]["event"]), (1, &"error".into()), "{}", exists.out);
}

fn check_sender(out: &str) {
    let (all, events) = documents(out);
    for event in ["note", "latency", "warning", "target", "figures", "totals"] {
        assert!(events.contains(event), "{event} is missing: {out}");
    }
    let warnings = texts(&all, "warning");
    for words in
        ["holds no repair on this path", "start with --latency", "nothing has come from udp://"]
    {
        assert!(warnings.contains(words), "`{words}` is missing: {warnings}");
    }
    assert_eq!(of(&all, "latency")[0]["latency_s"], 0.03);
    let targets = of(&all, "target");
    let rates: Vec<u64> =
        targets.iter().map(|one| one["target_bps"].as_u64().expect("a rate")).collect();
    assert!(
        rates.windows(2).all(|two| two[0].abs_diff(two[1]) >= two[0] / 20),
        "a change of 5 % or more: {rates:?}"
    );
    let figures = of(&all, "figures");
    let most =
        |field: &str| figures.iter().filter_map(|one| one[field].as_f64()).fold(0.0, f64::max);
    // 200 datagrams of 1,000 bytes a second, to which headers and repairs are added.
    let (input, output) = (most("input_bps"), most("output_bps"));
    assert!((100_000.0..4_000_000.0).contains(&input), "{input}");
    assert!(output > input * 0.9, "{output} of {input}");
    assert!(most("loss") > 0.0 && most("loss") <= 1.0, "{out}");
    assert!(most("round_trip_s") >= 0.06, "{out}");
    let totals = of(&all, "totals")[0];
    let whole = totals["receiver"]["whole_datagrams"].as_u64().expect("reported");
    assert_eq!(totals["bad_datagrams"].as_u64(), Some(600 - whole), "{totals}");
}

fn check_receiver(out: &str) {
    let (all, events) = documents(out);
    for event in ["refused", "latency", "warning", "figures", "totals"] {
        assert!(events.contains(event), "{event} is missing: {out}");
    }
    assert!(texts(&all, "refused").contains("wrong token"), "{out}");
    let last = of(&all, "figures").pop().expect("figures");
    assert_eq!(last["latency_s"], 0.03);
    let (written, whole) =
        (last["written_bytes"].as_u64(), last["stream"]["whole_datagrams"].as_u64());
    assert_eq!(written, whole.map(|whole| whole * 1_000), "{last}");
    assert!(last["round_trip_s"].as_f64().is_some_and(|rtt| rtt >= 0.06), "{last}");
    let lost = of(&all, "figures").iter().any(|one| one["loss"].as_f64() > Some(0.0));
    assert!(lost, "{out}");
}
