//! What validation says, word for word.

mod links;
mod reservations;

use ontempo_mechanisms::congestion::{CongestionName, World};

use crate::testing::{GRAPH, VIDEO, refused, scenario};

fn video(old: &str, new: &str) -> String {
    refused(VIDEO, old, new)
}

fn bottleneck_delay(law: &str) -> String {
    video("delay = \"30 ms\"", &format!("delay = {law}"))
}

fn transport(table: &str) -> String {
    video("{ kind = \"tcp\", congestion = \"pert\" }", table)
}

fn application(table: &str) -> String {
    video("{ kind = \"cbr\", rate = \"300 kbit/s\" }", table)
}

#[test]
fn a_run_takes_time() {
    assert_eq!(
        video("\"20 s\"", "\"0 s\""),
        "s.toml:2: duration: the run takes no time; write duration = \"200 s\""
    );
}

#[test]
fn a_count_is_neither_nothing_nor_absurd() {
    assert_eq!(
        video("count = 25", "count = 0"),
        "s.toml:17: flows.video.count: 0 flows will not do; 1 to 1000000 are possible"
    );
    assert_eq!(
        video("count = 25", "count = 1_000_001"),
        "s.toml:16: flows: 1000001 flows are too many; at most 1000000 will do\n\
         s.toml:17: flows.video.count: 1000001 flows will not do; 1 to 1000000 are possible"
    );
}

#[test]
fn there_are_flows() {
    let (head, _) = VIDEO.split_once("[flows.video]").unwrap();
    assert_eq!(
        crate::parse(&format!("{head}[flows]\n"), "s.toml").unwrap_err().to_string(),
        "s.toml:16: flows: there is no flow; write a table [flows.NAME]"
    );
}

#[test]
fn probabilities_lie_between_nothing_and_certainty() {
    let lossy =
        |loss: &str| video("delay = \"30 ms\"", &format!("delay = \"30 ms\"\nloss = {loss}"));
    assert_eq!(
        lossy("{ kind = \"bernoulli\", rate = 1.5 }"),
        "s.toml:10: topology.bottleneck.loss.rate: 1.5 is not a probability; a number from 0 to 1 \
         is needed"
    );
    assert_eq!(
        lossy("{ kind = \"gilbert\", p = 0.1, q = -0.1 }"),
        "s.toml:10: topology.bottleneck.loss.q: -0.1 is not a probability; a number from 0 to 1 is \
         needed"
    );
    let red = "queue = { kind = \"red\", limit = \"50 packets\", max-p = 2 }";
    assert_eq!(
        video("queue = { kind = \"drop-tail\", limit = \"150 packets\" }", red),
        "s.toml:10: topology.bottleneck.queue.max-p: 2 is not a probability; a number from 0 to 1 \
         is needed"
    );
}

#[test]
fn a_packet_holds_more_than_headers_and_passes_every_link_on_its_way() {
    assert_eq!(
        transport("{ kind = \"tcp\", packet = \"40 bytes\" }"),
        "s.toml:19: flows.video.transport.packet: 40 bytes are too few: headers take 40 of them; \
         at least 41 bytes are needed"
    );
    assert_eq!(
        transport("{ kind = \"udp\", packet = \"70 kB\" }"),
        "s.toml:19: flows.video.transport.packet: 70000 bytes are too many; at most 65535 bytes \
         will do"
    );
    assert_eq!(
        video("delay = \"30 ms\"", "delay = \"30 ms\"\nmtu = \"576 bytes\""),
        "s.toml:20: flows.video.transport.packet: packets of 1000 bytes do not pass `bottleneck`, \
         whose mtu is 576 bytes"
    );
    assert_eq!(
        refused(GRAPH, "{ kind = \"tcp\" }", "{ kind = \"tcp\", packet = \"2 kB\" }"),
        "s.toml:15: flows.long.transport.packet: packets of 2000 bytes do not pass `b -> d`, whose \
         mtu is 1500 bytes"
    );
}

#[test]
fn acknowledgements_neither_wait_too_long_nor_cover_nothing() {
    assert_eq!(
        transport("{ kind = \"tcp\", ack = { kind = \"delayed\", timeout = \"501 ms\" } }"),
        "s.toml:19: flows.video.transport.ack.timeout: 501 ms is too long; at most 500 ms will do \
         (RFC 5681, 4.2)"
    );
    assert_eq!(
        transport("{ kind = \"tcp\", ack = { kind = \"adaptive\", most = \"0 packets\" } }"),
        "s.toml:19: flows.video.transport.ack.most: an ACK covers at least one packet; write most \
         = \"4 packets\""
    );
}

#[test]
fn windows_open_and_timers_run() {
    assert_eq!(
        transport("{ kind = \"tcp\", receive-window = \"0 packets\", min-rto = \"0 s\" }"),
        "s.toml:19: flows.video.transport.receive-window: the window is zero, so that nothing is \
         sent\n\
         s.toml:19: flows.video.transport.min-rto: the timeout is zero; write min-rto = \"200 ms\""
    );
}

#[test]
fn pert_is_given_thresholds_in_order() {
    assert_eq!(
        transport(
            "{ kind = \"tcp\", congestion = { kind = \"pert\", t-min = \"9 ms\", t-max = \"5 ms\" } }"
        ),
        "s.toml:19: flows.video.transport.congestion.t-max: 5 ms is not more than `t-min`, 9 ms"
    );
}

#[test]
fn cbr_has_a_rate_or_an_interval_but_not_both() {
    assert_eq!(
        application("{ kind = \"cbr\" }"),
        "s.toml:18: flows.video.application: neither `rate` nor `interval` is given; write rate = \
         \"300 kbit/s\""
    );
    assert_eq!(
        application("{ kind = \"cbr\", rate = \"1 Mbit/s\", interval = \"1 ms\" }"),
        "s.toml:18: flows.video.application: both `rate` and `interval` are given; give one of them"
    );
    assert_eq!(
        application("{ kind = \"cbr\", rate = \"0 bit/s\" }"),
        "s.toml:18: flows.video.application.rate: 0 bit/s is no rate to send at; write rate = \
         \"300 kbit/s\""
    );
}

#[test]
fn a_law_of_pareto_has_a_mean() {
    assert_eq!(
        application("{ kind = \"http\", size-shape = 1.0 }"),
        "s.toml:18: flows.video.application.size-shape: a tail exponent of 1 has no mean; more \
         than 1 is needed"
    );
}

#[test]
fn udp_carries_what_paces_itself() {
    let text = VIDEO.replace("{ kind = \"cbr\", rate = \"300 kbit/s\" }", "{ kind = \"ftp\" }");
    assert_eq!(
        refused(&text, "{ kind = \"tcp\", congestion = \"pert\" }", "{ kind = \"udp\" }"),
        "s.toml:19: flows.video.transport.kind: UDP takes packets without end, which only \
         `cbr`, `on-off` and `messages` can feed; write transport = { kind = \"tcp\" }"
    );
}

#[test]
fn playout_is_for_cbr() {
    let ftp = "{ kind = \"ftp\" }\nplayout = [\"1 s\"]";
    assert_eq!(
        application(ftp),
        "s.toml:19: flows.video.playout: only a `cbr` application has units that are played out"
    );
}

#[test]
fn a_flow_starts_before_the_end_of_the_run() {
    let start = "{ low = \"0 s\", high = \"1 s\" }";
    for late in ["20 s", "30 s"] {
        assert_eq!(
            video(start, &format!("\"{late}\"")),
            format!("s.toml:20: flows.video.start: {late} is not before the end of the run, 20 s")
        );
    }
    assert_eq!(
        video(start, "{ low = \"20 s\", high = \"30 s\" }"),
        "s.toml:20: flows.video.start.low: 20 s is not before the end of the run, 20 s"
    );
    // Some of its flows may start before the end.
    scenario(&VIDEO.replace(start, "{ low = \"19 s\", high = \"30 s\" }"));
}

#[test]
fn a_flow_stops_after_it_starts() {
    assert_eq!(
        video("count = 25", "stop = \"1 s\""),
        "s.toml:17: flows.video.stop: 1 s is not after the start, 1 s"
    );
    assert_eq!(
        video("low = \"0 s\"", "low = \"2 s\""),
        "s.toml:20: flows.video.start.high: 1 s is less than `low`, 2 s"
    );
}

#[test]
fn nodes_are_those_of_the_topology() {
    assert_eq!(
        video("count = 25", "from = \"letf\""),
        "s.toml:17: flows.video.from: there is no node `letf`; did you mean `left`? Known: `left`, \
         `right`"
    );
    assert_eq!(
        refused(GRAPH, "to = \"d\"\n", "to = \"z\"\n"),
        "s.toml:13: flows.long.to: there is no node `z`; known: `a`, `b`, `c`, `d`, `e`"
    );
    assert_eq!(
        video("count = 25", "from = \"left\"\nto = \"left\""),
        "s.toml:18: flows.video.to: the flow begins and ends at `left`; name two nodes"
    );
    assert_eq!(
        refused(GRAPH, "from = \"a\"\nto", "to"),
        "s.toml:11: flows.long: missing field `from`; a flow of a graph needs `from` and `to`"
    );
}

#[test]
fn a_way_leads_there_and_back() {
    assert_eq!(
        refused(GRAPH, "to = \"d\"\n", "to = \"e\"\n"),
        "s.toml:13: flows.long.to: no way leads back from `e` to `a`"
    );
    let island = "{ from = \"e\", to = \"f\", rate = \"1 Mbit/s\", delay = \"1 ms\" },\n]\n[flows";
    let text = GRAPH.replace("to = \"e\"", "to = \"d2\"").replace("]\n[flows", island);
    assert_eq!(
        refused(&text, "to = \"d\"\na", "to = \"f\"\na"),
        "s.toml:14: flows.long.to: no way leads from `a` to `f`"
    );
}

#[test]
fn links_of_a_graph_join_two_nodes_and_are_there_once() {
    assert_eq!(
        refused(GRAPH, "from = \"a\", to = \"c\"", "from = \"b\", to = \"a\""),
        "s.toml:6: topology.links[1]: there is a link `b -> a` already; a duplex link carries \
         packets both ways unless duplex = false\n\
         s.toml:6: topology.links[1]: there is a link `a -> b` already; a duplex link carries \
         packets both ways unless duplex = false"
    );
    assert_eq!(
        refused(GRAPH, "from = \"a\", to = \"c\"", "from = \"a\", to = \"a\""),
        "s.toml:6: topology.links[1].to: the link leads from `a` to `a`; name another node"
    );
}

#[test]
fn a_parking_lot_has_hops() {
    let text = VIDEO.replace("kind = \"dumbbell\"", "kind = \"parking-lot\"\nhops = 2");
    scenario(&text);
    assert_eq!(
        refused(&text, "hops = 2", "hops = 0"),
        "s.toml:6: topology.hops: 0 hops will not do; 1 to 1000 are possible"
    );
}

#[test]
fn what_is_measured_exists() {
    let measured = |field: &str| video("title", &format!("measure.{field}\ntitle"));
    assert_eq!(
        measured("queues = [\"botleneck\"]"),
        "s.toml:1: measure.queues[0]: there is no link `botleneck`; did you mean `bottleneck`? \
         Known: `bottleneck`, `reverse`"
    );
    assert_eq!(
        video("title", "measure = { sample-flows = [\"audio\"], sample-every = \"1 s\" }\ntitle"),
        "s.toml:1: measure.sample-flows[0]: there is no flow group `audio`; known: `video`"
    );
    assert_eq!(
        measured("sample-flows = [\"video\"]"),
        "s.toml:1: measure.sample-flows: nothing is sampled; write sample-every = \"100 ms\", or remove it"
    );
    assert_eq!(
        measured("sample-every = \"0 s\""),
        "s.toml:1: measure.sample-every: the interval is zero; write sample-every = \"100 ms\""
    );
    assert_eq!(
        measured("from = \"20 s\""),
        "s.toml:1: measure.from: 20 s is not before the end of the run, 20 s"
    );
}

#[test]
fn access_links_can_be_measured_by_the_names_of_the_layout() {
    let text = format!("{VIDEO}[measure]\npackets = [\"video.24.source -> left\"]\n");
    let layout = scenario(&text).layout(1).unwrap();
    assert!(layout.links.iter().any(|link| link.name == "video.24.source -> left"));
    let error = refused(&text, "video.24.", "video.25.");
    assert!(error.starts_with("s.toml:22: measure.packets[0]: there is no link"), "{error}");
}

#[test]
fn a_scenario_that_no_file_gave_is_refused_without_a_line() {
    let mut scenario = scenario(VIDEO);
    scenario.duration = ontempo_foundation::Duration::ZERO;
    let what = "duration: the run takes no time; write duration = \"200 s\"";
    assert_eq!(scenario.validate().unwrap_err().to_string(), what);
    assert_eq!(scenario.layout(1).unwrap_err().to_string(), what);
}

#[test]
fn parameters_of_a_congestion_controller_are_held_to_their_ranges() {
    for (written, what) in [
        ("kind = \"pert\", alpha-max = 0.5", "alpha-max: 0.5 is less than `alpha-min`, 1"),
        (
            "kind = \"pert\", p-max = 1.5",
            "p-max: 1.5 is out of range; write a number (share) from 0 to 1, such as 0.05",
        ),
        (
            "kind = \"pert\", t-max = \"200 s\"",
            "t-max: 200 s is out of range; write a duration from 0 ns to 134 s, such as 10 ms",
        ),
        ("kind = \"vegas\", alpha = 4", "beta: 3 is less than `alpha`, 4"),
    ] {
        let congestion = format!("congestion = {{ {written} }}");
        let field = "s.toml:19: flows.video.transport.congestion";
        assert_eq!(video("congestion = \"pert\"", &congestion), format!("{field}.{what}"));
    }
    let unknown = "congestion = { kind = \"pert\", q-max = 0.5 }";
    let error = video("congestion = \"pert\"", unknown);
    assert!(error.contains("congestion.q-max: unknown field of kind `pert`"), "{error}");
}

#[test]
fn samples_that_a_flow_cannot_have_are_refused() {
    let refused = |samples: &str, more: &str| {
        let written =
            format!("congestion = {{ kind = \"pert\", samples = \"{samples}\" }}, {more}");
        let text = VIDEO.replace("congestion = \"pert\"", &written);
        crate::parse(&text, "s.toml").err().map(|error| error.to_string())
    };
    let without = "timestamps = false, undo-timeouts = false";
    let error = refused("every-ack", without).expect("nothing is echoed");
    let field = "flows.video.transport.congestion.samples: ";
    let what = format!("{field}`every-ack` measures against the time stamps that ACKs echo; leave");
    assert!(error.contains(&what), "{error}");
    assert_eq!(refused("cumulative", without), None);
    for samples in ["every-ack", "cumulative"] {
        let error = refused(samples, "correct-self-induced-delay = true").expect("two rules");
        let what = format!("{field}`correct-self-induced-delay` has samples of its own");
        assert!(error.contains(&what), "{error}");
        assert_eq!(refused(samples, "recovery = \"rack\""), None);
    }
}

#[test]
fn every_congestion_controller_of_tcp_is_a_name_and_a_table() {
    for name in CongestionName::ALL {
        let is_tcp = name.runs_in(World::Simulation) || name.runs_in(World::Kernel);
        for written in [format!("{:?}", name.name()), format!("{{ kind = {:?} }}", name.name())] {
            let text = VIDEO.replace("\"pert\"", &written);
            let read = crate::parse(&text, "s.toml");
            assert_eq!(read.is_ok(), is_tcp, "{written}: {:?}", read.err());
        }
    }
}

#[test]
fn a_controller_is_written_back_with_what_differs_from_its_defaults() {
    let with = |written: &str| scenario(&VIDEO.replace("\"pert\"", written)).canonical();
    assert_eq!(with("\"pert\""), with("{ kind = \"pert\", variant = \"reference\" }"));
    assert!(with("\"vegas\"").contains("\"congestion\":\"vegas\""));
    let thesis = with("{ kind = \"pert\", p-max = 0.1, variant = \"thesis\" }");
    let written = concat!(
        r#""congestion":{"kind":"pert","variant":"thesis","p-max":0.1,"compete":"as-reno","#,
        r#""counting":"packets","samples":"confirmed"}"#
    );
    assert!(thesis.contains(written), "{thesis}");
}

#[test]
fn a_spaced_flow_has_a_spacing_or_a_controller() {
    let what = "s.toml:19: flows.video.transport: give one of `spacing` and `controller`; write \
                spacing = \"1 ms\"";
    assert_eq!(transport("{ kind = \"spaced\" }"), what);
    let both = "{ kind = \"spaced\", spacing = \"1 ms\", controller = \"psp\" }";
    assert_eq!(transport(both), what);
    let constant = "{ kind = \"spaced\", spacing = \"1 ms\", feedback = \"fresh\" }";
    let what = "s.toml:19: flows.video.transport.feedback: a constant spacing takes no feedback; \
                remove it, or give `controller`";
    assert_eq!(transport(constant), what);
    let constant = constant.replace("feedback = \"fresh\"", "increase = \"fixed-step\"");
    let what = "s.toml:19: flows.video.transport.increase: a constant spacing never grows faster; \
                remove it, or give `controller`";
    assert_eq!(transport(&constant), what);
}

#[test]
fn an_address_changes_while_its_sender_sends_and_in_order() {
    let changes = |times: &str| video("count = 25", &format!("address-changes = [{times}]"));
    let of = "s.toml:17: flows.video.address-changes";
    assert_eq!(
        changes("\"1 s\""),
        format!("{of}[0]: 1 s is not after the start of the flow, 1 s: there is no address yet")
    );
    assert_eq!(
        changes("\"9 s\", \"8 s\", \"8 s\", \"20 s\""),
        format!(
            "{of}[1]: 8 s is not after the change before it, 9 s; write them in ascending order\n\
             {of}[2]: 8 s is not after the change before it, 8 s; write them in ascending order\n\
             {of}[3]: 20 s is not before the end of the run, 20 s"
        )
    );
    assert_eq!(
        video("count = 25", "stop = \"9 s\"\naddress-changes = [\"9 s\"]"),
        "s.toml:18: flows.video.address-changes[0]: 9 s is not before the flow's stop, 9 s: it sends \
         nothing more"
    );
    assert!(changes("\"-1 s\"").starts_with(&format!("{of}[0]: ")), "{}", changes("\"-1 s\""));
    let many: Vec<String> = (1..=101).map(|number| format!("\"{} ms\"", 1000 + number)).collect();
    assert_eq!(
        changes(&many.join(", ")),
        format!("{of}: 101 changes of an address are too many; at most 100 will do")
    );
    let spaced = "{ kind = \"spaced\", spacing = \"1 ms\" }\naddress-changes = [\"8 s\"]";
    assert_eq!(
        transport(spaced),
        "s.toml:20: flows.video.address-changes: no document says what this transport does when its \
         sender's address changes; leave it out, or write another transport, such as { kind = \"udp\" }"
    );
    let fine = VIDEO.replace("count = 25", "address-changes = [\"8 s\", \"9 s\"]");
    assert_eq!(scenario(&fine).layout(1).unwrap().flows[0].address_changes.len(), 2);
}
