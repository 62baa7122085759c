//! What validation says, word for word.

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
fn a_link_carries_something_in_bounded_time() {
    assert_eq!(
        video("\"25 Mbit/s\"", "\"0 bit/s\""),
        "s.toml:8: topology.bottleneck.rate: the rate is zero, so that nothing passes"
    );
    assert_eq!(
        bottleneck_delay("\"2 h\""),
        "s.toml:9: topology.bottleneck.delay: a delay of 7200 s is absurd; at most 1 h will do"
    );
    let error = video("[topology.access]", "[topology.access]\nmtu = \"20 bytes\"");
    let what = "s.toml:13: topology.access.mtu: 20 bytes are too few; headers alone are 40 bytes";
    assert_eq!(error, what);
}

#[test]
fn a_policer_has_a_rate_and_one_burst_that_packets_pass() {
    let policer = |fields: &str| {
        let table = format!("[topology.access]\npolicer = {{ {fields} }}");
        video("[topology.access]", &table)
    };
    assert_eq!(
        policer("rate = \"unlimited\", burst = \"1 kB\""),
        "s.toml:13: topology.access.policer.rate: a policer has a rate above zero that is limited; \
         write rate = \"10 Mbit/s\""
    );
    assert_eq!(
        policer("rate = \"1 Mbit/s\""),
        "s.toml:13: topology.access.policer: nothing says what passes at once; write burst = \
         \"100 kB\", or burst-time = \"50 ms\""
    );
    assert_eq!(
        policer("rate = \"1 Mbit/s\", burst = \"9 kB\", burst-time = \"9 ms\""),
        "s.toml:13: topology.access.policer.burst-time: give it or `burst`, not both"
    );
    assert_eq!(
        policer("rate = \"1 Mbit/s\", burst-time = \"320 us\""),
        "s.toml:13: topology.access.policer.burst-time: a bucket of 40 bytes is smaller than any \
         packet; write burst-time = \"50 ms\""
    );
    assert_eq!(
        policer("rate = \"1 Mbit/s\", burst = \"999 bytes\""),
        "s.toml:20: flows.video.transport.packet: packets of 1000 bytes never pass the sender's \
         access, whose policer has a bucket of 999 bytes"
    );
}

#[test]
fn duplicates_and_bit_errors_have_probabilities() {
    let more = |line: &str| video("[topology.access]", &format!("[topology.access]\n{line}"));
    assert_eq!(
        more("duplicate = 2"),
        "s.toml:13: topology.access.duplicate: 2 is not a probability; a number from 0 to 1 is needed"
    );
    assert_eq!(
        more("corrupt = -0.5"),
        "s.toml:13: topology.access.corrupt: -0.5 is not a probability; a number from 0 to 1 is needed"
    );
}

#[test]
fn aggregates_wait_for_something_and_hold_something() {
    let aggregation = |fields: &str| {
        let table = format!("[topology.access]\naggregation = {{ {fields} }}");
        video("[topology.access]", &table)
    };
    assert_eq!(
        aggregation("packets = \"64 packets\""),
        "s.toml:13: topology.access.aggregation: without a wait each packet leaves on its own; write \
         access = \"118 us\", contention = \"135 us\" or every = \"5 ms\""
    );
    assert_eq!(
        aggregation("every = \"0 s\", access = \"1 us\""),
        "s.toml:13: topology.access.aggregation.every: opportunities at a distance of zero are no \
         distance; write every = \"5 ms\""
    );
    assert_eq!(
        aggregation("access = \"2 h\", packets = \"0 packets\", bytes = \"0 bytes\""),
        "s.toml:13: topology.access.aggregation.access: 7200 s is absurd; at most 1 h will do\n\
         s.toml:13: topology.access.aggregation.packets: an aggregate holds a packet at least; write \
         packets = \"64 packets\"\n\
         s.toml:13: topology.access.aggregation.bytes: an aggregate holds a packet at least; write \
         bytes = \"65535 bytes\""
    );
    assert_eq!(
        video(
            "delay = \"30 ms\"",
            "delay = \"30 ms\"\naggregation = { every = \"5 ms\" }\n\
             schedule = { kind = \"mahimahi\", text = \"1\" }"
        ),
        "s.toml:10: topology.bottleneck.aggregation: a trace of opportunities says itself when \
         packets leave; leave out one of both"
    );
}

#[test]
fn dualpi2_updates_couples_and_shares() {
    let queue = |fields: &str| {
        let queue = format!("{{ kind = \"dualpi2\", {fields} }}");
        video("{ kind = \"drop-tail\", limit = \"150 packets\" }", &queue)
    };
    assert_eq!(
        queue("update = \"0 s\", coupling = 0, classic-share = 1"),
        "s.toml:10: topology.bottleneck.queue.update: the time between updates is zero; write \
         update = \"16 ms\"\n\
         s.toml:10: topology.bottleneck.queue.coupling: the coupling is a number above 0; write \
         coupling = 2\n\
         s.toml:10: topology.bottleneck.queue.classic-share: the share of the classic queue is a \
         number above 0 and below 1; write classic-share = 0.1"
    );
}

#[test]
fn a_law_of_delay_is_one() {
    assert_eq!(
        bottleneck_delay("{ kind = \"uniform\", low = \"2 ms\", high = \"1 ms\" }"),
        "s.toml:9: topology.bottleneck.delay.high: 1 ms is less than `low`, 2 ms"
    );
    assert_eq!(
        bottleneck_delay("{ kind = \"erlang\", k = 0, mean = \"1 ms\" }"),
        "s.toml:9: topology.bottleneck.delay.k: 0 stages will not do; 1 to 1000 are possible"
    );
    assert_eq!(
        bottleneck_delay("{ kind = \"sum\", terms = [] }"),
        "s.toml:9: topology.bottleneck.delay.terms: the sum has no terms"
    );
}

#[test]
fn a_hyper_exponential_law_has_as_many_means_as_probabilities_which_sum_to_one() {
    let law = |probabilities, means| {
        format!(
            "{{ kind = \"hyper-exponential\", probabilities = {probabilities}, means = {means} }}"
        )
    };
    assert_eq!(
        bottleneck_delay(&law("[0.5, 0.5]", "[\"1 ms\"]")),
        "s.toml:9: topology.bottleneck.delay.means: 1 means for 2 probabilities; each branch needs \
         one of both"
    );
    assert_eq!(
        bottleneck_delay(&law("[0.5, 0.25]", "[\"1 ms\", \"2 ms\"]")),
        "s.toml:9: topology.bottleneck.delay.probabilities: the probabilities sum to 0.75; \
         together they must be 1"
    );
    let thirds = law("[0.3333333, 0.3333333, 0.3333333]", "[\"1 ms\", \"2 ms\", \"3 ms\"]");
    scenario(&VIDEO.replace("delay = \"30 ms\"", &format!("delay = {thirds}")));
    assert_eq!(
        bottleneck_delay(&law("[1.5, -0.5]", "[\"1 ms\", \"2 ms\"]")),
        "s.toml:9: topology.bottleneck.delay.probabilities[0]: 1.5 is not a probability; a number \
         from 0 to 1 is needed\n\
         s.toml:9: topology.bottleneck.delay.probabilities[1]: -0.5 is not a probability; a number \
         from 0 to 1 is needed"
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
fn thresholds_of_red_are_in_order() {
    let red = "queue = { kind = \"red\", limit = \"50 packets\", min-th = \"9 packets\", \
               max-th = \"3 packets\" }";
    assert_eq!(
        video("queue = { kind = \"drop-tail\", limit = \"150 packets\" }", red),
        "s.toml:10: topology.bottleneck.queue.max-th: 3 packets are not more than `min-th`, 9 \
         packets"
    );
    let drop_tail = "queue = { kind = \"drop-tail\", limit = \"150 packets\" }";
    let most = |packets: u64| {
        format!(
            "queue = {{ kind = \"red\", limit = \"60 packets\", max-th = \"{packets} packets\" }}"
        )
    };
    assert_eq!(
        video(drop_tail, &most(3)),
        "s.toml:10: topology.bottleneck.queue.max-th: 3 packets are not more than `min-th`, which at \
         25 Mbit/s is 15.6 packets where it is not given; write `min-th`, too"
    );
    assert_eq!(video(drop_tail, &most(15)).lines().count(), 1);
    scenario(&VIDEO.replace(drop_tail, &most(16)));
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
fn a_queue_discipline_has_what_it_divides_by() {
    let queue = |table: &str| video("{ kind = \"drop-tail\", limit = \"150 packets\" }", table);
    assert_eq!(
        queue("{ kind = \"codel\", interval = \"0 s\" }"),
        "s.toml:10: topology.bottleneck.queue.interval: the interval is zero; write interval = \
         \"100 ms\""
    );
    assert_eq!(
        queue("{ kind = \"fq-codel\", quantum = \"0 bytes\" }"),
        "s.toml:10: topology.bottleneck.queue.quantum: the quantum is zero; write quantum = \
         \"1514 bytes\""
    );
    assert_eq!(
        queue("{ kind = \"fq-codel\", queues = 0 }"),
        "s.toml:10: topology.bottleneck.queue.queues: 0 queues will not do; 1 to 65536 will"
    );
    assert_eq!(
        queue("{ kind = \"pie\", update = \"0 s\" }"),
        "s.toml:10: topology.bottleneck.queue.update: the time between updates is zero; write \
         update = \"15 ms\""
    );
}

#[test]
fn a_queue_that_resumes_after_a_drop_has_a_limit_beyond_that() {
    let refused = |queue: &str| {
        let text = VIDEO.replace("{ kind = \"drop-tail\", limit = \"150 packets\" }", queue);
        crate::parse(&text, "s.toml").unwrap_err().to_string()
    };
    let beyond = "topology.bottleneck.queue.resume: a queue resumes after it was full; write \
                  limit = \"64 packets\", or another limit that is no smaller than `resume`";
    for limit in ["", "limit = \"8 packets\", "] {
        let text = refused(&format!("{{ kind = \"wfq\", {limit}resume = \"16 packets\" }}"));
        assert!(text.ends_with(beyond), "{text}");
    }
    let text = refused("{ kind = \"wfq\", limit = \"64 packets\", resume = \"0 packets\" }");
    assert!(text.ends_with("no packet would ever be taken again; write resume = \"16 packets\""));
}

/// A dumbbell whose bottleneck keeps the reservation that is given.
fn reserving(reservation: &str) -> String {
    VIDEO
        .replace("{ kind = \"drop-tail\", limit = \"150 packets\" }", "{ kind = \"wfq\" }")
        .replace("[flows.video]", &format!("[[reservations]]\n{reservation}\n[flows.video]"))
}

fn reservation_refused(reservation: &str) -> String {
    crate::parse(&reserving(reservation), "s.toml").unwrap_err().to_string()
}

const RESERVED: &str = "flows = \"video\"\nrate = \"300 kbit/s\"\nbucket = \"3 kB\"\n\
                        links = [\"bottleneck\"]";

#[test]
fn a_reservation_is_for_flows_that_exist_and_cross_the_link_that_way() {
    scenario(&reserving(RESERVED));
    scenario(&reserving(
        &RESERVED.replace("bottleneck", "reverse").replace("rate", "direction = \"acks\"\nrate"),
    ));
    assert_eq!(
        reservation_refused(&RESERVED.replace("video", "vidio")),
        "s.toml:17: reservations[0].flows: there is no flow group `vidio`; \
         did you mean `video`? Known: `video`"
    );
    assert_eq!(
        reservation_refused(&RESERVED.replace("rate", "index = 25\nrate")),
        "s.toml:18: reservations[0].index: `video` has no flow 25; it has 25, counted from 0"
    );
    assert_eq!(
        reservation_refused(&RESERVED.replace("bottleneck", "reverse")),
        "s.toml:20: reservations[0].links[0]: `video` does not cross `reverse` in this direction; \
         it crosses bottleneck"
    );
}

#[test]
fn a_link_that_keeps_no_reservation_is_told_how_it_would() {
    let text =
        VIDEO.replace("[flows.video]", &format!("[[reservations]]\n{RESERVED}\n[flows.video]"));
    assert_eq!(
        crate::parse(&text, "s.toml").unwrap_err().to_string(),
        "s.toml:20: reservations[0].links[0]: `bottleneck` keeps no reservation; give it \
         queue = { kind = \"wfq\" } or { kind = \"cbq\" }"
    );
}

#[test]
fn no_more_is_reserved_than_may_be() {
    assert_eq!(
        reservation_refused(&RESERVED.replace("300 kbit/s", "800 kbit/s")),
        "s.toml:20: reservations[0].links[0]: 20 Mbit/s are reserved on `bottleneck`; \
         of its 25 Mbit/s at most 18.75 Mbit/s can be (`reservable` is 0.75)"
    );
    let twice = format!("{RESERVED}\n[[reservations]]\nindex = 3\n{RESERVED}");
    assert_eq!(
        reservation_refused(&twice),
        "s.toml:26: reservations[1].links[0]: a flow of `video` has a reservation on `bottleneck` \
         already"
    );
}

#[test]
fn a_token_bucket_holds_a_packet_and_its_rates_are_in_order() {
    assert_eq!(
        reservation_refused(&RESERVED.replace("3 kB", "1 kB")),
        "s.toml:19: reservations[0].bucket: 1000 bytes do not hold the largest packet, 1500 bytes"
    );
    assert_eq!(
        reservation_refused(&RESERVED.replace("bucket", "peak = \"200 kbit/s\"\nbucket")),
        "s.toml:19: reservations[0].peak: 200 kbit/s is less than `rate`, 300 kbit/s"
    );
    assert_eq!(
        reservation_refused(&RESERVED.replace("bucket", "reserved = \"400 kbit/s\"\nbucket")),
        "s.toml:19: reservations[0].reserved: only service = \"guaranteed\" has a reserved rate \
         beside its token rate"
    );
}

#[test]
fn requests_have_a_group_of_their_own_that_answers() {
    let asking = "{ kind = \"request\", of = \"video\", size = \"300 bytes\", think = \"1 s\" }";
    assert_eq!(
        application(asking),
        "s.toml:18: flows.video.application.of: `video` does not answer; \
         its application must be `respond`"
    );
    assert_eq!(
        application("{ kind = \"respond\", smallest = \"1 kB\", largest = \"2 kB\" }"),
        "s.toml:18: flows.video.application: nobody asks `video`; another group needs \
         application = { kind = \"request\", of = \"video\" }"
    );
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
