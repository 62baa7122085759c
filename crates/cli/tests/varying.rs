//! Links that change, with the program: traces from files, simulated and emulated. Emulations need
//! the rights of root; skipped tests are reported.

mod common;
mod emulated;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use arrow_array::RecordBatch;
use common::Place;
use emulated::{assert_carried, can_emulate, counts, numbers, table, texts};

/// UDP at 6 Mbit/s and nothing else.
const CONSTANT_LOAD: &str = r#"
duration = "7 s"
[topology]
kind = "dumbbell"
access = { rate = "1 Gbit/s", delay = "1 ms" }
[topology.bottleneck]
rate = "8 Mbit/s"
delay = "20 ms"
queue = { kind = "drop-tail", limit = "50 packets" }
schedule = { kind = "csv", file = "step.csv" }
outages = [{ at = "1.5 s", for = "1 s" }]
[topology.reverse]
rate = "8 Mbit/s"
delay = "20 ms"
[flows.media]
application = { kind = "cbr", rate = "6 Mbit/s" }
transport = { kind = "udp" }
[measure]
messages = true
"#;

const STEP: &str = "time_s,rate_mbps\n0,8\n4,2\n";

/// TCP beside nothing, over a trace of opportunities.
const BULK: &str = r#"
duration = "14 s"
[topology]
kind = "dumbbell"
access = { rate = "1 Gbit/s", delay = "1 ms" }
[topology.bottleneck]
rate = "6 Mbit/s"
delay = "20 ms"
queue = { kind = "drop-tail", limit = "100 packets" }
schedule = { kind = "mahimahi", file = "up.trace" }
[topology.reverse]
rate = "50 Mbit/s"
delay = "20 ms"
[flows.bulk]
application = { kind = "ftp" }
transport = { kind = "tcp", congestion = "cubic", packet = "1500 B" }
[measure]
from = "4 s"
"#;

/// Opportunities of one second in which the rate swings between 3 and 9 Mbit/s.
fn swinging() -> String {
    let mut trace = String::new();
    let mut owed = 0.0;
    for millis in 1..=1000 {
        let rate = if (millis / 125) % 2 == 0 { 3e6 } else { 9e6 };
        owed += rate * 1e-3 / 12_000.0;
        while owed >= 1.0 {
            writeln!(trace, "{millis}").expect("a text can be written");
            owed -= 1.0;
        }
    }
    trace
}

/// Mbit/s that arrived from `from` until `until`, in packets of 1000 bytes.
fn received(messages: &RecordBatch, from: f64, until: f64) -> f64 {
    let times = numbers(messages, "received_s");
    let count = times.iter().filter(|time| (from..until).contains(*time)).count();
    count as f64 * 8e-3 / (until - from)
}

/// What 6 Mbit/s meet: 8 Mbit/s with an outage from 1.5 to 2.5 s, and 2 Mbit/s from 4 s on; the way
/// to the receiver takes 22 ms.
fn assert_step_and_outage(messages: &RecordBatch, world: &str) {
    let within = |from, until, low: f64, high: f64| {
        let rate = received(messages, from, until);
        assert!((low..=high).contains(&rate), "{world}, {from} to {until} s: {rate} Mbit/s");
    };
    within(0.1, 1.5, 5.9, 6.1);
    within(1.525, 2.515, 0.0, 0.0);
    // The 50 packets that waited leave at the link's rate: 50 ms of 8 Mbit/s.
    within(2.525, 2.57, 7.5, 8.2);
    within(2.75, 4.0, 5.9, 6.1);
    within(4.3, 6.9, 1.97, 2.03);
}

#[test]
fn a_run_with_a_trace_has_the_trace_in_its_folder() {
    let place = Place::new("varying", CONSTANT_LOAD);
    fs::write(place.path("step.csv"), STEP).expect("a trace for the test");
    place.run(&["simulate", "s.toml", "--out", "out"]).succeeds();
    assert_step_and_outage(&table(&place, "out", "messages"), "simulated");
    let capacity = table(&place, "out", "capacity");
    assert_eq!(numbers(&capacity, "time_s"), [0.0, 1.5, 2.5, 4.0]);
    assert_eq!(numbers(&capacity, "rate_bps"), [8e6, 0.0, 8e6, 2e6]);
    let manifest = fs::read_to_string(place.path("out/run.json")).expect("a manifest");
    let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("JSON");
    let schedule = &manifest["scenario"]["topology"]["bottleneck"]["schedule"];
    assert_eq!(*schedule, serde_json::json!({ "kind": "csv", "text": STEP }));
}

#[test]
fn a_bad_trace_is_an_error_with_file_and_line() {
    let place = Place::new("bad-trace", CONSTANT_LOAD);
    fs::write(place.path("step.csv"), "time_s,rate_mbps\n4,8\n0,2\n").expect("a trace");
    let words = ["step.csv:3: ", "topology.bottleneck.schedule.file", "is not after 4 s"];
    for command in ["check", "simulate"] {
        let mut arguments = vec![command, "s.toml"];
        arguments.extend(if command == "check" { vec![] } else { vec!["--out", "out"] });
        place.run(&arguments).fails(2, &words);
    }
    assert!(!place.path("out").exists());
}

#[test]
fn real_packets_meet_a_step_of_the_rate_and_an_outage() {
    if !can_emulate() {
        return;
    }
    let place = Place::new("real-step", CONSTANT_LOAD);
    fs::write(place.path("step.csv"), STEP).expect("a trace for the test");
    place.run(&["emulate", "s.toml", "--out", "out"]).succeeds();
    assert_step_and_outage(&table(&place, "out", "messages"), "emulated");
    let capacity = table(&place, "out", "capacity");
    assert_eq!(numbers(&capacity, "rate_bps"), [8e6, 0.0, 8e6, 2e6]);
}

#[test]
fn tcp_gets_the_same_from_a_trace_of_opportunities_in_both_worlds() {
    if !can_emulate() {
        return;
    }
    let place = Place::new("both-worlds", BULK);
    fs::write(place.path("up.trace"), swinging()).expect("a trace for the test");
    let goodput = |command: &str| {
        place.run(&[command, "s.toml", "--out", command]).succeeds();
        // 500 opportunities a second for 10 s, and the packet in transmission as they begin.
        let departed = counts(&table(&place, command, "links"), "departed_bytes")[0];
        assert!((4000 * 1500..=5001 * 1500).contains(&departed), "{command}: {departed} bytes");
        numbers(&table(&place, command, "flows"), "goodput_bps")[0] / 1e6
    };
    let (simulated, emulated) = (goodput("simulate"), goodput("emulate"));
    assert!((emulated / simulated - 1.0).abs() < 0.05, "{emulated} and {simulated} Mbit/s");
}

/// Ten flows that send a packet of 1,400 bytes each at once, each 60 ms, over a pair of traces.
const BURSTS: &str = r#"
duration = "6 s"
[topology]
kind = "dumbbell"
access = { rate = "1 Gbit/s", delay = "1 ms" }
[topology.bottleneck]
rate = "4 Mbit/s"
delay = "20 ms"
queue = { kind = "drop-tail", limit = "50 packets" }
schedule = { kind = "cellreplay", light = "light.txt", heavy = "heavy.txt", timer = "10 ms" }
[topology.reverse]
rate = "8 Mbit/s"
delay = "20 ms"
[flows.bursts]
count = 10
application = { kind = "cbr", interval = "60 ms" }
transport = { kind = "udp", packet = "1400 B" }
[measure]
messages = true
"#;

/// Base delays from 20 to 30 ms and back; of each burst four packets leave in 15 ms.
const LIGHT: &str = "0 20 0 5 10 15\n3000 30 0 5 10 15\n6000 20 0 5 10 15\n";

/// How long after the start of each burst its packets arrived, in milliseconds, from the first to the
/// last.
fn after_bursts(messages: &RecordBatch) -> Vec<Vec<f64>> {
    const EVERY: f64 = 0.06;
    let (sent, received) = (numbers(messages, "sent_s"), numbers(messages, "received_s"));
    let bursts = (1..95).map(|burst| {
        let of_burst = |sent: f64| ((sent + 0.02) / EVERY).floor() == f64::from(burst);
        let of_burst = sent.iter().zip(&received).filter(|(sent, _)| of_burst(**sent));
        let begins = f64::from(burst) * EVERY;
        let mut after: Vec<f64> = of_burst.map(|(_, at)| (at - begins) * 1e3).collect();
        after.sort_by(f64::total_cmp);
        after
    });
    bursts.collect()
}

#[test]
fn real_packets_leave_at_the_opportunities_of_a_pair_of_traces_as_simulated_ones() {
    if !can_emulate() {
        return;
    }
    let place = Place::new("real-pair", BURSTS);
    fs::write(place.path("light.txt"), LIGHT).expect("a trace for the test");
    fs::write(place.path("heavy.txt"), "3\n").expect("a trace for the test");
    let run = |command: &str| {
        place.run(&[command, "s.toml", "--out", command]).succeeds();
        let departed = counts(&table(&place, command, "links"), "departed_bytes")[0];
        // 100 bursts; the last may not have left.
        assert!((99 * 14_000..=100 * 14_000).contains(&departed), "{command}: {departed} bytes");
        let messages = table(&place, command, "messages");
        let delays = numbers(&messages, "delay_s");
        assert!(
            delays.iter().all(|delay| *delay >= 0.022),
            "{command}: earlier than the base delay"
        );
        after_bursts(&messages)
    };
    let (simulated, emulated) = (run("simulate"), run("emulate"));
    let mut differences = Vec::new();
    for (one, other) in simulated.iter().zip(&emulated) {
        assert_eq!((one.len(), other.len()), (10, 10));
        differences.extend(one.iter().zip(other).map(|(one, other)| (one - other).abs()));
    }
    differences.sort_by(f64::total_cmp);
    // A host that is late by a moment misses an opportunity, of which there is one each 3 ms.
    let within = |millis: f64| {
        differences.partition_point(|one| *one <= millis) as f64 / differences.len() as f64
    };
    assert!(within(1.0) > 0.5 && within(3.5) > 0.9, "{} and {}", within(1.0), within(3.5));
}

/// The light and the heavy trace of `examples/cellular`.
fn example_traces() -> [(&'static str, String); 2] {
    let (mut light, mut heavy) = (String::new(), String::new());
    for line in 0..=40u64 {
        let base = 20 + (line % 16).abs_diff(8);
        write!(light, "{} {base}", line * 250).expect("a text can be written");
        // Pairs of packets, 2 to 4 ms apart.
        let mut at = 0;
        for pair in 0..10 {
            write!(light, " {at} {}", at + (line + pair) % 2).expect("a text can be written");
            at += 2 + (line + pair) % 3;
        }
        light.push('\n');
    }
    // Bits that are owed, and the rate in bits per millisecond.
    let mut owed = 0;
    for millis in 1..=1000u64 {
        owed += if (millis / 250) % 2 == 0 { 12_000 } else { 20_000 };
        while owed >= 11_200 {
            writeln!(heavy, "{millis}").expect("a text can be written");
            owed -= 11_200;
        }
    }
    [("light.txt", light), ("heavy.txt", heavy)]
}

/// With `ONTEMPO_WRITE_EXAMPLE=1` the traces are written.
#[test]
fn the_example_of_a_cellular_link_runs_on_its_generated_traces() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cellular");
    for (name, text) in example_traces() {
        if std::env::var_os("ONTEMPO_WRITE_EXAMPLE").is_some() {
            fs::write(folder.join(name), &text).expect("it can be written");
        }
        assert_eq!(fs::read_to_string(folder.join(name)).expect("a trace"), text, "{name}");
    }
    let place = Place::new("cellular", "");
    let scenario = folder.join("cellular.toml");
    let scenario = scenario.to_str().expect("a path");
    let checked = place.run(&["check", scenario]);
    let words = "a CellReplay pair of traces (light: 41 trains in 10 s, base delays of 20 ms to 28 ms, \
                 20 opportunities on average; heavy:";
    let printed = checked.succeeds().out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(printed.contains(words), "{printed}");
    place.run(&["simulate", scenario, "--out", "out"]).succeeds();
    // The call waits behind the download, and never takes less than the base delay.
    let delays = numbers(&table(&place, "out", "messages"), "delay_s");
    assert!(delays.len() > 850 && delays.iter().all(|delay| *delay >= 0.022), "{}", delays.len());
    place.run(&["show", "out", "--output", "page.html"]).succeeds();
}

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/networks").join(name);
    path.to_str().expect("a path").to_owned()
}

#[test]
fn the_examples_of_networks_give_downloads_what_they_gave_with_real_packets() {
    // Mbit/s, as `examples/networks/compare` measured with Linux's TCP.
    for (name, emulated) in [("5g", 99.3), ("mahimahi", 9.26), ("outage", 8.05)] {
        let place = Place::new(&format!("networks-{name}"), "");
        place.run(&["simulate", &example(&format!("{name}.toml")), "--out", "out"]).succeeds();
        let goodput = numbers(&table(&place, "out", "flows"), "goodput_bps");
        let simulated = goodput.iter().copied().fold(0.0, f64::max) / 1e6;
        assert!((simulated / emulated - 1.0).abs() < 0.03, "{name}: {simulated} and {emulated}");
    }
}

/// The longest time for which nothing of a flow was delivered from its first byte on, in seconds.
fn longest_gap(samples: &RecordBatch, flow: &str) -> f64 {
    let (times, values) = (numbers(samples, "time_s"), numbers(samples, "value"));
    let (subjects, quantities) = (texts(samples, "subject"), texts(samples, "quantity"));
    let (mut last, mut since, mut gap) = (0.0, None, 0.0_f64);
    for (place, value) in values.iter().enumerate() {
        if subjects[place] == flow && quantities[place] == "delivered_bytes" && *value > last {
            gap = gap.max(since.map_or(0.0, |since| times[place] - since));
            (last, since) = (*value, Some(times[place]));
        }
    }
    let end = times.last().copied().unwrap_or_default();
    since.map_or(f64::INFINITY, |since| gap.max(end - since))
}

#[test]
fn after_an_outage_tcp_goes_on_at_once_in_both_worlds() {
    for world in ["simulate", "emulate"] {
        if world == "emulate" && !can_emulate() {
            return;
        }
        let place = Place::new(&format!("outage-{world}"), "");
        let shortened = [
            "duration=\"12 s\"",
            "flows.download.start=\"1 s\"",
            "topology.bottleneck.outages=[{ at = \"5 s\", for = \"2 s\" }]",
        ];
        let path = example("outage.toml");
        let mut arguments = vec![world, &path, "--out", "out"];
        shortened.iter().for_each(|change| arguments.extend(["--set", change]));
        place.run(&arguments).succeeds();
        let samples = table(&place, "out", "samples");
        for flow in ["live.0", "download.0"] {
            // Packets wait in the queue until the outage ends, and then come all at once.
            let gap = longest_gap(&samples, flow);
            assert!((1.9..3.5).contains(&gap), "{world}, {flow}: {gap} s");
        }
    }
}

#[test]
fn real_packets_get_what_a_step_offers_from_queues_that_decide_at_dequeue() {
    if !can_emulate() {
        return;
    }
    // The voice sends a little less than it has reserved; the media wants more than there is.
    let voice = "[flows.voice]\napplication = { kind = \"cbr\", rate = \"640 kbit/s\" }\n\
                 transport = { kind = \"udp\", packet = \"1000 B\" }\n[measure]\n\
                 packets = [\"bottleneck\"]\n";
    let reservation = "\n[[reservations]]\nflows = \"voice\"\nrate = \"680 kbit/s\"\n\
                       bucket = \"8 kB\"\nlinks = [\"bottleneck\"]\n";
    let load = CONSTANT_LOAD
        .replace("\"6 Mbit/s\"", "\"12 Mbit/s\"")
        .replace("outages = [{ at = \"1.5 s\", for = \"1 s\" }]\n", "")
        .replace("[measure]\n", voice);
    let drop_tail = "{ kind = \"drop-tail\", limit = \"50 packets\" }";
    let wfq = "{ kind = \"wfq\", limit = \"50 packets\" }";
    for (name, queue, more) in [("codel", "{ kind = \"codel\" }", ""), ("wfq", wfq, reservation)] {
        let place = Place::new(&format!("step-{name}"), &(load.replace(drop_tail, queue) + more));
        fs::write(place.path("step.csv"), STEP).expect("a trace for the test");
        place.run(&["emulate", "s.toml", "--out", "out"]).succeeds();
        assert_carried(&table(&place, "out", "packets"), &[0.0, 4.0], &[8e6, 2e6], 7.0);
        if !more.is_empty() {
            // All of the voice at 8 Mbit/s; then, as shares are those of the nominal rate, 680/8000 of 2
            // Mbit/s: 320 packets and 64.
            let delivered = counts(&table(&place, "out", "flows"), "delivered_packets");
            assert!((375..=392).contains(&delivered[1]), "{name}: {delivered:?}");
        }
    }
}
