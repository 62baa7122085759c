//! `ontempo probe --trace`: a path that is known, recorded with real packets and used in a scenario.
//! Emulations need the rights of root; skipped tests are reported.

mod common;
mod emulated;

use std::fmt::Write as _;
use std::fs;
use std::net::UdpSocket;
use std::time::Duration;

use common::{ListeningProgram, Place, Ran, SCENARIO, files, interrupt};
use emulated::can_emulate;
use serde_json::Value;

/// A probe over a bottleneck with a schedule; the recording is `up.csv`.
fn scenario(place: &Place, schedule: &str, seconds: u64) -> String {
    let (program, file) = (env!("CARGO_BIN_EXE_ontempo"), place.path("up.csv"));
    let (file, run) = (file.display(), seconds + 3);
    format!(
        r#"duration = "{run} s"
[topology]
kind = "dumbbell"
access = {{ rate = "1 Gbit/s", delay = "0 s" }}
[topology.bottleneck]
rate = "2 Mbit/s"
delay = "20 ms"
queue = {{ kind = "drop-tail", limit = "100 packets" }}
schedule = {schedule}
[topology.reverse]
rate = "50 Mbit/s"
delay = "20 ms"
[flows.probe]
application = {{ kind = "command", command = ["{program}", "probe", "{{sink}}:4434", "--trace", "{file}", "--seconds", "{seconds}", "--json"], peer = ["{program}", "probe", "--listen", "{{sink}}:4434"] }}
transport = {{ kind = "own" }}
"#
    )
}

/// A stream over a link with the recorded schedule.
const USED: &str = r#"
duration = "10 s"
[topology]
kind = "dumbbell"
access = { rate = "1 Gbit/s", delay = "0 s" }
[topology.bottleneck]
rate = "2 Mbit/s"
delay = "20 ms"
queue = { kind = "drop-tail", limit = "100 packets" }
schedule = { kind = "csv", file = "up.csv" }
[topology.reverse]
rate = "50 Mbit/s"
delay = "20 ms"
[flows.video]
application = { kind = "cbr", rate = "1 Mbit/s" }
transport = { kind = "udp" }
"#;

/// Rows of a recording: time in s, rate in bit/s, delay in ms, loss.
fn rows(place: &Place, name: &str) -> Vec<[f64; 4]> {
    let text = fs::read_to_string(place.path(name)).expect("a recording");
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(lines.next(), Some("time_s,rate_bps,delay_ms,loss"));
    let row = |line: &str| {
        let cells: Vec<f64> = line.split(',').map(|cell| cell.parse().expect(line)).collect();
        <[f64; 4]>::try_from(cells).expect(line)
    };
    lines.map(row).collect()
}

/// Mean rate, bit/s, and the median delay, ms, of each whole second of a recording.
fn seconds(rows: &[[f64; 4]]) -> Vec<(f64, f64)> {
    let whole = rows.chunks_exact(10).map(|rows| {
        let mut delays: Vec<f64> = rows.iter().map(|row| row[2]).collect();
        delays.sort_by(f64::total_cmp);
        (rows.iter().map(|row| row[1]).sum::<f64>() / 10.0, delays[5])
    });
    whole.collect()
}

/// Emulates and records; each second of the recording.
fn record(place: &Place, schedule: &str, length: u64) -> Vec<(f64, f64)> {
    fs::write(place.path("s.toml"), scenario(place, schedule, length)).expect("a scenario");
    place.run(&["emulate", "s.toml", "--out", "out"]).succeeds();
    let log = fs::read_to_string(place.path("out/probe.0.source.log")).expect("its output");
    let printed: Value = serde_json::from_str(&log).expect(&log);
    assert_eq!(printed["partial"], false, "{printed}");
    let rows = rows(place, "up.csv");
    assert_eq!(printed["rows"].as_u64(), Some(rows.len() as u64));
    let left_out = printed["left_out_s"].as_f64().expect("a time");
    assert!((0.0..1.0).contains(&left_out), "{printed}");
    let loss = rows.iter().map(|row| row[3]).sum::<f64>() / rows.len() as f64;
    assert!(loss < 0.01, "{loss} lost by others than the recorder's queue");
    seconds(&rows)
}

/// The recording began at an unknown time of the run: at the one where the rates fit best. `rate`
/// answers the mean rate from a time until another, s.
fn begun(recorded: &[(f64, f64)], rate: impl Fn(f64, f64) -> f64) -> f64 {
    let misfit = |begun: f64| -> f64 {
        let parts = recorded.iter().zip(0_u32..);
        parts
            .map(|(one, second)| {
                let from = begun + f64::from(second);
                (one.0 / rate(from, from + 1.0) - 1.0).abs()
            })
            .sum()
    };
    let times = (0..300).map(|place| f64::from(place) * 0.01);
    times.min_by(|a, b| misfit(*a).total_cmp(&misfit(*b))).expect("some")
}

#[track_caller]
fn assert_rates(recorded: &[(f64, f64)], begun: f64, rate: impl Fn(f64, f64) -> f64) {
    for (second, one) in recorded.iter().enumerate() {
        let from = begun + second as f64;
        let truth = rate(from, from + 1.0);
        let text = format!("second {second}, {from:.2} s of the run: {} of {truth} bit/s", one.0);
        assert!((one.0 / truth - 1.0).abs() < 0.1, "{text}\n{recorded:?}");
    }
}

/// Checks and simulates a scenario with the recording as it is.
#[track_caller]
fn assert_usable(place: &Place) {
    fs::write(place.path("used.toml"), USED).expect("a scenario");
    place.run(&["check", "used.toml"]).succeeds();
    place.run(&["simulate", "used.toml", "--out", "used"]).succeeds();
}

#[test]
fn steps_of_rate_and_delay_are_recorded_and_simulated() {
    if !can_emulate() {
        return;
    }
    // From when on, Mbit/s, ms.
    let steps = [
        (0.0, 2.0, 20.0),
        (4.0, 8.0, 20.0),
        (7.0, 8.0, 60.0),
        (10.0, 2.0, 60.0),
        (13.0, 4.0, 20.0),
    ];
    let mut known = "time_s,rate_mbps,delay_ms\n".to_owned();
    for (from, rate, delay) in steps {
        writeln!(known, "{from},{rate},{delay}").expect("a text");
    }
    let place = Place::new("recording-steps", "");
    fs::write(place.path("known.csv"), known).expect("a trace");
    let at = |time: f64| steps.iter().rev().find(|step| step.0 <= time).expect("a step");
    let rate = |from: f64, until: f64| {
        let parts =
            (0..100).map(|part| at(from + (until - from) * (f64::from(part) + 0.5) / 100.0).1);
        parts.sum::<f64>() * 1e4
    };
    let recorded = record(&place, r#"{ kind = "csv", file = "known.csv" }"#, 14);
    let begun = begun(&recorded, rate);
    assert_rates(&recorded, begun, rate);
    for (second, (_, delay)) in recorded.iter().enumerate() {
        let from = begun + second as f64;
        // Where it changed within the second, either is right.
        let fits = |step: f64| (delay - step).abs() < 2.0;
        let (first, last) = (at(from).2, at(from + 1.0).2);
        assert!(fits(first) || fits(last), "{from:.2} s: {delay} ms, not {first} to {last}");
    }
    assert_usable(&place);
}

#[test]
fn an_irregular_trace_of_opportunities_is_recorded_and_simulated() {
    if !can_emulate() {
        return;
    }
    // The rate goes to another multiple of 1 Mbit/s each 20 to 400 ms.
    let (mut state, mut owed, mut rate, mut until) = (7_u64, 0.0, 5.0, 0);
    let (mut trace, mut times) = (String::new(), Vec::new());
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for millis in 1..=14_000_u64 {
        if millis > until {
            (rate, until) = (1.0 + draw(9) as f64, millis + 20 + draw(380));
        }
        owed += rate * 1e3 / 12_000.0;
        while owed >= 1.0 {
            writeln!(trace, "{millis}").expect("a text");
            times.push(millis as f64 * 1e-3);
            owed -= 1.0;
        }
    }
    let place = Place::new("recording-irregular", "");
    fs::write(place.path("known.trace"), trace).expect("a trace");
    let rate = |from: f64, until: f64| {
        let within = |time: &&f64| {
            (from..until).contains(&(**time % 14.0)) || (from..until).contains(&(**time + 14.0))
        };
        times.iter().filter(within).count() as f64 * 12_000.0 / (until - from)
    };
    let recorded = record(&place, r#"{ kind = "mahimahi", file = "known.trace" }"#, 11);
    assert_rates(&recorded, begun(&recorded, rate), rate);
    // A packet waits for an opportunity, up to 12 ms.
    for (_, delay) in &recorded {
        assert!((delay - 20.0).abs() < 6.0, "{recorded:?}");
    }
    assert_usable(&place);
}

fn listener(place: &Place, more: &[&str]) -> ListeningProgram {
    ListeningProgram::start(place, &[&["probe", "--listen", "127.0.0.1:0"], more].concat())
}

#[test]
fn what_cannot_be_recorded_or_stored_is_an_error_before_anything_is_sent() {
    let place = Place::new("recording-refusals", SCENARIO);
    let listener = listener(&place, &["--token", "secret"]);
    let to = listener.local.as_str();
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let nobody = silent.local_addr().expect("an address").to_string();
    fs::write(place.path("there.csv"), "precious").expect("a file");
    let before = files(&place.0);
    for (arguments, code, words) in [
        (vec![to, "--trace", "no/such/up.csv"], 3, vec!["no/such/up.csv: cannot be created"]),
        (vec![to, "--trace", "there.csv"], 2, vec!["there.csv: it exists"]),
        (vec![to, "--trace", "up.csv"], 2, vec!["wrong token", "nothing was recorded"]),
        (vec![&nobody, "--trace", "up.csv"], 3, vec!["no answer", "nothing was recorded"]),
        (vec![to, "--trace", "up.csv", "--seconds", "3600"], 2, vec!["--seconds 3600", "at most"]),
        (vec![to, "--trace", "up.csv", "--packet", "100"], 2, vec!["--packet 100", "500"]),
        (vec![to, "--trace", "up.csv", "--max-rate", "5"], 2, vec!["--max-rate"]),
        (vec![to, "--trace", "up.csv", "--window", "1 ms"], 2, vec!["20 ms to 10 s"]),
        (vec![to, "--trace", "up.csv", "--spacing", "1 ms"], 2, vec!["cannot be used with"]),
        (vec![to, "--max-rate", "5 Mbit/s"], 2, vec!["--trace"]),
    ] {
        place.run(&[&["probe"], &arguments[..]].concat()).fails(code, &words);
    }
    assert_eq!(files(&place.0), before);
    assert_eq!(fs::read_to_string(place.path("there.csv")).expect("the file"), "precious");
}

#[test]
fn ctrl_c_keeps_what_was_recorded() {
    let place = Place::new("recording-interrupt", SCENARIO);
    let listener = listener(&place, &[]);
    let options = ["--trace", "up.csv", "--max-rate", "2 Mbit/s"];
    let child = place.spawn(&[&["probe", listener.local.as_str()], &options[..]].concat());
    std::thread::sleep(Duration::from_millis(2_500));
    interrupt(&child);
    let ended = Ran::of(child.wait_with_output().expect("it ends"));
    ended.fails(130, &["interrupted", "s were recorded: up.csv"]);
    assert!((10..40).contains(&rows(&place, "up.csv").len()), "{ended:?}");
    assert!(ended.out.lines().all(|line| line.len() <= 80), "{ended:?}");
}

#[test]
fn a_receiver_that_dies_leaves_what_was_recorded() {
    let place = Place::new("recording-dies", SCENARIO);
    let mut listener = listener(&place, &[]);
    let options = ["--trace", "up.csv", "--max-rate", "2 Mbit/s"];
    let child = place.spawn(&[&["probe", listener.local.as_str()], &options[..]].concat());
    std::thread::sleep(Duration::from_millis(2_000));
    listener.child.0.kill().expect("it ran");
    let ended = Ran::of(child.wait_with_output().expect("it ends"));
    ended.fails(3, &["stopped answering", "s were recorded: up.csv"]);
    assert!((5..40).contains(&rows(&place, "up.csv").len()), "{ended:?}");
}
