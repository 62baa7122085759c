//! The scripts of the reference, as ontempo scenarios.

use std::fmt::Write;

use crate::reference::spacing_starts;

/// ns-2's TCP; it has no `overhead_` here: hosts send without delay.
const HOSTS: &str = "tcp-profile = \"ns-2\"\nhosts = { jitter = \"0 s\" }\n";

/// ns-2's TCP where it differs from a scenario's defaults: a clock of 10 ms (`tcpTick_`) and one
/// RTT sample a round trip (`timestamps_` is off).
const NS2_CLOCK: &str = r#"clock = "10 ms", timestamps = false"#;
/// `Agent/TCP/Linux` ticks in milliseconds.
const LINUX_CLOCK: &str = r#"clock = "1 ms", timestamps = false"#;

/// The scenario, as text, equivalent to `script` with `arguments`, without the last argument of
/// `many.tcl`, its seed.
pub(crate) fn scenario(script: &str, arguments: &[&str]) -> String {
    match (script, arguments) {
        ("single.tcl", arguments) => one_flow(arguments, ""),
        ("switched.tcl", ["ssthresh_", packets, rest @ ..]) => {
            one_flow(rest, &slow_start_until(packets))
        }
        // ontempo has no such switch: it behaves as ns-2 with the switch on.
        ("switched.tcl", ["LimTransmitFix_", "1", rest @ ..]) => one_flow(rest, ""),
        ("steady.tcl", [variant, sink, rate, delay, buffer, from, seconds]) => {
            let whole = [*variant, *sink, *rate, *delay, *buffer, *seconds];
            scenario("single.tcl", &whole) + &format!("[measure]\nfrom = \"{from} s\"\n")
        }
        ("two.tcl", arguments) => two_flows(arguments, ""),
        ("two_switched.tcl", [packets, rest @ ..]) => two_flows(rest, &slow_start_until(packets)),
        ("many.tcl", arguments) => many(arguments, ""),
        ("many_switched.tcl", [packets, rest @ ..]) => many(rest, &slow_start_until(packets)),
        (
            "spacing.tcl" | "spacing_apart.tcl",
            [senders, spacing, tcps, window, seconds, rest @ ..],
        ) => {
            let count = |word: &str| word.parse().expect("a count");
            let starts = spacing_starts(rest.first().unwrap_or(&"7"));
            let times = (*seconds, *rest.get(1).unwrap_or(&"40"));
            let apart = if script == "spacing_apart.tcl" { 0.0045 } else { 0.0 };
            evenly_spaced((count(senders), spacing), (count(tcps), window, apart), times, &starts)
        }
        _ => panic!("no scenario for {script} {arguments:?}"),
    }
}

/// One flow whose sender has the fields `more` besides its variant's.
fn one_flow(arguments: &[&str], more: &str) -> String {
    let [variant, sink, rate, delay, buffer, seconds] = arguments else {
        panic!("no flow of {arguments:?}");
    };
    let links = [
        link("a", "left", "1000", "1", ""),
        link("left", "right", rate, delay, &drop_tail(buffer)),
        link("right", "b", "1000", "1", ""),
    ];
    graph(seconds, &links) + &ftp("flow", ("a", "b"), &tcp(variant, sink, more), r#""0 s""#)
}

fn slow_start_until(packets: &str) -> String {
    format!(r#", initial-ssthresh = "{packets} packets""#)
}

/// Two flows whose senders have the fields `more` besides their variants'.
fn two_flows(arguments: &[&str], more: &str) -> String {
    let [first, second, rate, delay1, delay2, buffer, seconds, rest @ ..] = arguments else {
        panic!("no two flows of {arguments:?}");
    };
    let start2 = rest.first().unwrap_or(&"0.2");
    let links = [
        link("left", "right", rate, "1", &drop_tail(buffer)),
        link("a1", "left", "1000", delay1, ""),
        link("right", "b1", "1000", "1", ""),
        link("a2", "left", "1000", delay2, ""),
        link("right", "b2", "1000", "1", ""),
    ];
    let start2 = format!(r#""{start2} s""#);
    graph(seconds, &links)
        + &ftp("flow1", ("a1", "b1"), &tcp(first, "Sack1", more), r#""100 ms""#)
        + &ftp("flow2", ("a2", "b2"), &tcp(second, "Sack1", more), &start2)
}

/// Many flows whose senders have the fields `more` besides their variants'; access delays and
/// start times are drawn by the run's seed.
fn many(arguments: &[&str], more: &str) -> String {
    let [variant, sink, count, rate, buffer, queue, seconds, _seed] = arguments else {
        panic!("no flows of {arguments:?}");
    };
    let (transport, queue) = (tcp(variant, sink, more), queue_of(queue, buffer));
    format!(
        r#"duration = "{seconds} s"
{HOSTS}[topology]
kind = "dumbbell"
[topology.bottleneck]
rate = "{rate} Mbit/s"
delay = "30 ms"
{queue}
[topology.access]
rate = "100 Mbit/s"
delay = {{ kind = "uniform", low = "5 ms", high = "15 ms", drawn = "per-link" }}
[topology.receiver-access]
rate = "100 Mbit/s"
delay = "5 ms"
[flows.flow]
count = {count}
application = {{ kind = "ftp" }}
transport = {transport}
start = {{ low = "0 s", high = "1 s" }}
"#
    )
}

/// Senders of evenly spaced packets and TCP flows, each with its own access link; the delays of the
/// TCPs' links lie `apart` milliseconds from each other. They start at ns-2's start times.
fn evenly_spaced(
    (senders, spacing): (usize, &str),
    (tcps, window, apart): (usize, &str, f64),
    (seconds, delay): (&str, &str),
    starts: &[f64],
) -> String {
    let at = |place: usize| format!(r#""{} ns""#, (starts[place] * 1e9).round());
    let mut links = vec![link("mid", "sink", "155", delay, &drop_tail("10"))];
    let mut flows = String::new();
    for (place, name) in (0..senders).map(|i| format!("udp{i}")).enumerate() {
        links.push(link(&name, "mid", "100", "2", ""));
        let _ = write!(
            flows,
            r#"[flows.{name}]
from = "{name}"
to = "sink"
application = {{ kind = "cbr", interval = "{spacing} us" }}
transport = {{ kind = "udp", packet = "1400 bytes" }}
start = {}
"#,
            at(place)
        );
    }
    for (place, name) in (0..tcps).map(|i| format!("tcp{i}")).enumerate() {
        let delay = 2.0 + apart * (place as f64 + 0.5);
        links.push(link(&name, "mid", "100", &format!("{delay:.5}"), ""));
        let more = format!(r#", packet = "1400 bytes", receive-window = "{window} packets""#);
        let transport = tcp("Sack1", "Sack1", &more);
        flows += &ftp(&name, (&name, "sink"), &transport, &at(senders + place));
    }
    graph(seconds, &links) + &flows
}

fn graph(seconds: &str, links: &[String]) -> String {
    let links = links.join(",\n    ");
    format!(
        "duration = \"{seconds} s\"\n{HOSTS}[topology]\nkind = \"graph\"\nlinks = [\n    {links},\n]\n"
    )
}

fn link(from: &str, to: &str, megabits: &str, millis: &str, queue: &str) -> String {
    format!(
        r#"{{ from = "{from}", to = "{to}", rate = "{megabits} Mbit/s", delay = "{millis} ms"{}{queue} }}"#,
        if queue.is_empty() { "" } else { ", " }
    )
}

fn queue_of(kind: &str, buffer: &str) -> String {
    match kind {
        "RED" => format!(r#"queue = {{ kind = "red", limit = "{buffer} packets" }}"#),
        _ => drop_tail(buffer),
    }
}

/// A `limit_` of L lets L - 1 packets wait in ns-2 (see `DropTail::like_ns2`).
fn drop_tail(buffer: &str) -> String {
    let waiting = buffer.parse::<u64>().expect("a buffer in packets") - 1;
    format!(r#"queue = {{ kind = "drop-tail", limit = "{waiting} packets" }}"#)
}

fn tcp(variant: &str, sink: &str, more: &str) -> String {
    let sender = match variant {
        "Sack1" => {
            let sack = r#"recovery = "sack", sack-after-timeout = false"#;
            format!(r#"congestion = "reno", {sack}, {NS2_CLOCK}"#)
        }
        "Newreno" => format!(r#"congestion = "newreno", recovery = "newreno", {NS2_CLOCK}"#),
        "cubic" => {
            let cubic = r#"{ kind = "cubic", variant = "linux-2.6" }"#;
            format!(r#"congestion = {cubic}, recovery = "sack", {LINUX_CLOCK}"#)
        }
        _ => panic!("no sender {variant}"),
    };
    let ack = match sink {
        "Sack1" => "",
        "Sack1/DelAck" => r#", ack = { kind = "delayed", timeout = "100 ms" }"#,
        _ => panic!("no receiver {sink}"),
    };
    format!(r#"{{ kind = "tcp", {sender}{ack}{more} }}"#)
}

fn ftp(name: &str, (from, to): (&str, &str), transport: &str, start: &str) -> String {
    format!(
        r#"[flows.{name}]
from = "{from}"
to = "{to}"
application = {{ kind = "ftp" }}
transport = {transport}
start = {start}
"#
    )
}
