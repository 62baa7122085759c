//! Routers that are namespaces: the testbed of qosockets, two subnets and two routers with
//! 1.5 Mbit/s between them. Needs root; skipped tests are reported.

mod common;
mod emulated;

use common::{Place, Ran};
use emulated::{can_emulate, counts, milliseconds, run_name, table};
use ontempo_testing::require_programs;

const TESTBED: &str = r#"
duration = "6 s"
[topology]
kind = "graph"
links = [
    { from = "ws1", to = "r11", rate = "10 Mbit/s", delay = "50 us" },
    { from = "r11", to = "r10", rate = "1.5 Mbit/s", delay = "500 us", queue = { kind = "drop-tail", limit = "64 packets" } },
    { from = "r10", to = "ws0", rate = "10 Mbit/s", delay = "50 us" },
]
[emulation]
routers = "kernel"
[flows.video]
from = "ws1"
to = "ws0"
application = { kind = "cbr", rate = "300 kbit/s" }
transport = { kind = "udp", packet = "1000 B" }
"#;

/// Runs a script in `ws1`; commands with the prefix `in_r11` or `in_ws0` run there.
fn in_testbed(place: &Place, script: &str) -> Ran {
    let run = run_name(place);
    let words = format!(
        "in_r11='ip netns exec ontempo-{run}-r11'; in_ws0='ip netns exec ontempo-{run}-ws0'; {script}"
    );
    place.run(&["shell", "s.toml", "ws1", "--name", &run, "--", "sh", "-c", &words])
}

#[test]
fn kernel_routers_decrement_ttl_and_answer_pings_over_ipv4_and_ipv6() {
    if !can_emulate() || !require_programs(&["ping", "tc"]) {
        return;
    }
    let place = Place::new("hops", TESTBED);
    for (sink, prefix) in [("10.0.0.3", "10.1.0."), ("fd6f:6e74:656d:706f::3", "::1:")] {
        let ran = in_testbed(&place, &format!("ping -q -c 20 -i 0.02 -s 16 {sink}"));
        // Twice 0.05 + 0.5 + 0.05 ms, and the transmission time of a small packet at 1.5 Mbit/s.
        let min = milliseconds(&ran.succeeds().out, "rtt min/avg/max/mdev = ", 0);
        assert!((1.4..3.0).contains(&min), "{}", ran.out);
        // The TTL expires at the first router, then at the second.
        for (hops, router) in [(1, 1), (2, 3)] {
            let ran = in_testbed(&place, &format!("ping -c 1 -t {hops} {sink}; true"));
            let answer = format!("{prefix}{router} icmp_seq=1 Time");
            assert!(ran.out.contains(&answer), "{answer}: {}", ran.out);
        }
        // The router answers at its far interface.
        let far = sink.replace("10.0.0.3", "10.1.0.4").replace("f::3", "f::1:4");
        in_testbed(&place, &format!("ping -q -c 1 {far}")).succeeds();
    }
    // `ontempo shell` can enter a router.
    let run = run_name(&place);
    let words = ["shell", "s.toml", "r11", "--name", &run, "--", "ip", "-brief", "link"];
    let links = place.run(&words);
    assert!(links.succeeds().out.contains("to-ws1") && links.out.contains("to-r10"), "{links:?}");
}

#[test]
fn iperf3_fills_the_bottleneck_of_kernel_routers() {
    if !can_emulate() || !require_programs(&["iperf3", "tc"]) {
        return;
    }
    let place = Place::new("fills", TESTBED);
    let script = "$in_ws0 iperf3 -s -1 -D >/dev/null && sleep 0.5 && \
                  iperf3 -c 10.0.0.3 -t 8 -O 2 -C reno -J";
    // Of a packet of 1500 bytes, 52 are headers.
    let allowed = 1.5e6 * 1448.0 / 1500.0;
    let mut rates = Vec::new();
    // On a busy machine iperf3 counts what came before the seconds that it measures.
    while rates.len() < 3 {
        let report = in_testbed(&place, script).succeeds().json();
        let rate = report["end"]["sum_received"]["bits_per_second"].as_f64().expect("a rate");
        if (rate / allowed - 1.0).abs() < 0.02 {
            return;
        }
        rates.push(rate);
    }
    panic!("{rates:?} of {allowed} bit/s");
}

/// The share of group `a` that is lost beside 1.87 Mbit/s of group `b`, and what group `c`, the
/// script, wrote.
fn overloaded(name: &str, script: &str) -> (f64, String) {
    let flow = |name: &str, rate: &str| {
        format!(
            "[flows.{name}]\nfrom = \"ws1\"\nto = \"ws0\"\napplication = {{ kind = \"cbr\", rate = \
             \"{rate}\" }}\ntransport = {{ kind = \"udp\", packet = \"1000 B\" }}\nstart = \"1 s\"\n\
             stop = \"4 s\"\n"
        )
    };
    let (network, _) = TESTBED.split_once("[flows").expect("flows");
    let command = format!(
        "[flows.c]\nfrom = \"ws1\"\nto = \"ws0\"\ntransport = {{ kind = \"own\" }}\n\
         application = {{ kind = \"command\", command = [\"sh\", \"-c\", \"\"\"{script}\"\"\"] }}\n"
    );
    let place = Place::new(
        name,
        &[network, &flow("a", "500 kbit/s"), &flow("b", "1.87 Mbit/s"), &command].concat(),
    );
    let run = run_name(&place);
    let mut emulate =
        place.command(&["emulate", "s.toml", "--name", &run, "--out", "out", "--json"]);
    emulate.env("ROUTER", format!("ip netns exec ontempo-{run}-r11"));
    let ran = Ran::of(emulate.output().expect("the program starts"));
    ran.succeeds();
    let flows = table(&place, "out", "flows");
    let (sent, got) = (counts(&flows, "sent_packets")[0], counts(&flows, "delivered_packets")[0]);
    let log = std::fs::read_to_string(place.path("out/c.0.source.log")).expect("a log");
    (1.0 - got as f64 / sent as f64, log)
}

#[test]
fn a_class_added_by_hand_protects_a_flow_from_an_overload() {
    if !can_emulate() || !require_programs(&["tc"]) {
        return;
    }
    // As RSVP would: a class below the link's, and a filter that knows the flow.
    let reserve = "set -e; $ROUTER tc class add dev to-r10 parent 1:1 classid 1:10 htb \
                   rate 600kbit ceil 1500kbit burst 1600 cburst 1600 quantum 1500 prio 0; \
                   $ROUTER tc qdisc add dev to-r10 parent 1:10 handle 10: pfifo limit 64; \
                   $ROUTER tc filter add dev to-r10 parent 1: protocol ip prio 1 u32 \
                   match ip dst 10.0.0.3/32 flowid 1:10; sleep 5; \
                   $ROUTER tc -s class show dev to-r10";
    let [(open, _), (protected, classes)] = std::thread::scope(|scope| {
        let run = |name: &'static str, script: &'static str| {
            scope.spawn(move || overloaded(name, script))
        };
        [run("open", "true"), run("reserved", reserve)].map(|run| run.join().expect("it runs"))
    });
    eprintln!("lost: {open:.3} without a class, {protected:.3} with one\n{classes}");
    // 2.37 Mbit/s into 1.5: more than a third, less what waits at first.
    assert!(open > 0.15, "{open} lost in best effort");
    assert!(protected == 0.0, "{protected} lost of what was reserved");
    let class = classes.split("class htb 1:10").nth(1).expect("counters of the class");
    let sent = class.split_once("Sent ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    assert!(sent > Some(180_000_u64), "{class}");
}

#[test]
fn one_scenario_runs_in_both_worlds_and_parts_unsupported_by_kernel_routers_are_refused() {
    if !can_emulate() || !require_programs(&["tc"]) {
        return;
    }
    let place = Place::new("both", &TESTBED.replace("6 s", "2 s"));
    for world in ["simulate", "emulate"] {
        let ran = place.run(&[world, "s.toml", "--out", world, "--json"]).succeeds().json();
        let flow = &ran["runs"][0]["summary"]["flows"][0];
        assert!(flow["sent_packets"].as_u64() >= Some(74), "{ran}");
        let delivered = counts(&table(&place, world, "flows"), "delivered_packets")[0];
        assert!((74..=75).contains(&delivered), "{delivered} in {world}");
    }
    let codel = "topology.links=[{ from = \"ws1\", to = \"r11\", rate = \"10 Mbit/s\", \
                 delay = \"0 ms\" }, { from = \"r11\", to = \"r10\", rate = \"1 Mbit/s\", \
                 delay = \"0 ms\", queue = { kind = \"codel\" } }, { from = \"r10\", to = \"ws0\", \
                 rate = \"10 Mbit/s\", delay = \"0 ms\" }]";
    let ran = place.run(&["emulate", "s.toml", "--set", codel, "--out", "no"]);
    ran.fails(2, &["emulation.routers", "`r11 -> r10`", "no CoDel", "drop-tail"]);
}
