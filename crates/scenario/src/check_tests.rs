//! What the check of a file says, word for word.

use crate::testing::{GRAPH, VIDEO, refused, scenario};

fn video(old: &str, new: &str) -> String {
    refused(VIDEO, old, new)
}

const LIMIT: &str = "limit = \"150 packets\"";

#[test]
fn a_bare_number_misses_its_unit() {
    assert_eq!(
        video("delay = \"30 ms\"", "delay = 30"),
        "s.toml:9: topology.bottleneck.delay: missing unit: write \"30 ms\", not 30"
    );
    assert_eq!(
        video("\"20 s\"", "20.5"),
        "s.toml:2: duration: missing unit: write \"20.5 ms\", not 20.5"
    );
    assert_eq!(
        video("\"150 packets\"", "150"),
        "s.toml:10: topology.bottleneck.queue.limit: missing unit: write \"150 packets\", not 150"
    );
}

#[test]
fn a_unit_of_the_wrong_kind_is_named() {
    assert_eq!(
        video("delay = \"30 ms\"", "delay = \"3 Mbit/s\""),
        "s.toml:9: topology.bottleneck.delay: `3 Mbit/s` is a rate; a duration is needed, such as \
         \"30 ms\""
    );
    assert_eq!(
        video(LIMIT, "limit = \"3 ms\""),
        "s.toml:10: topology.bottleneck.queue.limit: `3 ms` is a number neither of packets nor of \
         bytes; write \"150 packets\" or \"500 kB\""
    );
}

#[test]
fn a_unit_inside_a_tagged_table_of_a_list_is_found() {
    assert_eq!(
        video(
            "delay = \"30 ms\"",
            "delay = { kind = \"sum\", terms = [\n{ kind = \"constant\", value = \"1 ms\" },\n\
             { kind = \"exponential\", mean = \"-2 ms\" }] }"
        ),
        "s.toml:11: topology.bottleneck.delay.terms[1].mean: `-2 ms` is negative; a duration is \
         zero or more"
    );
}

#[test]
fn an_unknown_field_is_refused_with_the_nearest_known_one() {
    assert_eq!(
        video("queue = {", "qeue = {"),
        "s.toml:10: topology.bottleneck.qeue: unknown field; did you mean `queue`?"
    );
    assert_eq!(
        video("[topology.access]", "[topology.access]\ncolour = 1"),
        "s.toml:13: topology.access.colour: unknown field; known fields: `profile`, `direction`, \
         `rate`, `delay`, `mtu`, `queue`, `loss`, `reordering`, `schedule`, `outages`, `policer`, \
         `duplicate`, `corrupt`, `aggregation`, `back`"
    );
    assert_eq!(
        video("\"pert\" }", "\"pert\", pacign = \"off\" }"),
        "s.toml:19: flows.video.transport.pacign: unknown field of kind `tcp`; did you mean \
         `pacing`?"
    );
}

#[test]
fn a_field_of_another_kind_is_told_apart_from_an_unknown_one() {
    assert_eq!(
        video(LIMIT, "limit = \"150 packets\", min-th = \"5 packets\""),
        "s.toml:10: topology.bottleneck.queue.min-th: unknown field of kind `drop-tail`, but of \
         kind `red`; known fields: `limit`"
    );
}

#[test]
fn an_unknown_field_of_a_graph_link_is_refused() {
    assert_eq!(
        refused(GRAPH, "duplex = false", "duplx = false"),
        "s.toml:9: topology.links[4].duplx: unknown field; did you mean `duplex`?"
    );
}

#[test]
fn the_tag_of_a_tcp_table_is_no_unknown_field() {
    let json = serde_json::json!({ "kind": "tcp", "packet": "500 bytes" });
    assert!(serde_json::from_value::<crate::model::Transport>(json).is_ok());
    let json = serde_json::json!({ "kind": "tcp", "pakcet": "500 bytes" });
    assert!(serde_json::from_value::<crate::model::Transport>(json).is_err());
    let json =
        serde_json::json!({ "from": "a", "to": "b", "rate": "1 bit/s", "delay": "1 s", "x": 1 });
    assert!(serde_json::from_value::<crate::model::GraphLink>(json).is_err());
}

#[test]
fn a_missing_field_is_named_with_an_example() {
    assert_eq!(
        video("rate = \"25 Mbit/s\"\n", "\n"),
        "s.toml:7: topology.bottleneck: missing field `rate`; write rate = \"25 Mbit/s\""
    );
    assert_eq!(
        video("duration = \"20 s\"", ""),
        "s.toml:1: missing field `duration`; write duration = \"30 ms\""
    );
    assert_eq!(
        video("kind = \"drop-tail\", ", ""),
        "s.toml:10: topology.bottleneck.queue: missing field `kind`; known kinds: `drop-tail`, \
         `red`, `wfq`, `cbq`, `codel`, `fq-codel`, `dualpi2`, `pie`"
    );
}

#[test]
fn an_unknown_kind_is_answered_with_the_known_ones() {
    assert_eq!(
        video("\"drop-tail\"", "\"droptail\""),
        "s.toml:10: topology.bottleneck.queue.kind: unknown name \"droptail\"; did you mean \
         `drop-tail`? Known: `drop-tail`, `red`, `wfq`, `cbq`, `codel`, `fq-codel`, `dualpi2`, \
         `pie`"
    );
    assert_eq!(
        video("\"pert\"", "\"tahoe\""),
        "s.toml:19: flows.video.transport.congestion: unknown name \"tahoe\"; known: `reno`, \
         `newreno`, `cubic`, `vegas`, `pert`, `bbr`, `media`"
    );
}

#[test]
fn a_value_of_the_wrong_type_is_answered_with_the_right_one() {
    assert_eq!(
        video("count = 25", "count = \"many\""),
        "s.toml:17: flows.video.count: \"many\" is a text; a whole number is needed"
    );
    assert_eq!(
        video("count = 25", "count = -1"),
        "s.toml:17: flows.video.count: -1 is negative; a whole number from 0 is needed"
    );
    assert_eq!(
        video("count = 25", "count = 5_000_000_000"),
        "s.toml:17: flows.video.count: 5000000000 is too large; at most 4294967295 will do"
    );
    let many = "99999999999999999999";
    let line = "queue = { kind = \"drop-tail\", limit = \"150 packets\" }";
    let loss = format!("loss = {{ kind = \"bernoulli\", rate = {many} }}");
    assert_eq!(
        video(line, &loss),
        "s.toml:10: topology.bottleneck.loss.rate: 100000000000000000000 is not a probability; a \
         number from 0 to 1 is needed"
    );
    let red = format!("queue = {{ kind = \"red\", limit = \"9 packets\", weight = {many} }}");
    assert_eq!(
        video(line, &red),
        "s.toml:10: topology.bottleneck.queue.weight: 100000000000000000000 is not a probability; a \
         number from 0 to 1 is needed"
    );
    assert_eq!(
        video("start = {", "start = true #"),
        "s.toml:20: flows.video.start: true is true or false; a text such as \"30 ms\" or a table \
         is needed"
    );
    assert_eq!(
        video("rate = \"25 Mbit/s\"", "rate = 2020-01-01"),
        "s.toml:8: topology.bottleneck.rate: 2020-01-01 is a date or a time; a text such as \
         \"25 Mbit/s\" is needed"
    );
}

#[test]
fn a_number_that_is_none_is_refused() {
    let lossy = "delay = \"30 ms\"\nloss = { kind = \"bernoulli\", rate = nan }";
    assert_eq!(
        video("delay = \"30 ms\"", lossy),
        "s.toml:10: topology.bottleneck.loss.rate: NaN will not do; a finite number is needed"
    );
    assert_eq!(
        video("delay = \"30 ms\"", &lossy.replace("nan", "-inf")),
        "s.toml:10: topology.bottleneck.loss.rate: -inf will not do; a finite number is needed"
    );
    assert_eq!(
        video("delay = \"30 ms\"", "delay = \"inf ms\""),
        "s.toml:9: topology.bottleneck.delay: `inf ms` does not begin with a number; a duration \
         is needed, such as \"30 ms\""
    );
}

#[test]
fn an_absurd_duration_is_refused() {
    assert_eq!(
        video("\"20 s\"", "\"1e12 h\""),
        "s.toml:2: duration: `1e12 h` is too large; a duration is at most 584 years"
    );
}

#[test]
fn every_problem_is_told_at_once_in_the_order_of_the_file() {
    let text = VIDEO.replace("count = 25", "cuont = 25").replace("\"20 s\"", "20");
    let error = crate::parse(&text, "s.toml").unwrap_err();
    assert_eq!(error.problems().len(), 2);
    assert_eq!(
        error.to_string(),
        "s.toml:2: duration: missing unit: write \"20 ms\", not 20\n\
         s.toml:17: flows.video.cuont: unknown field; did you mean `count`?"
    );
}

#[test]
fn what_is_not_toml_is_told_with_its_line() {
    let error = video("rate = \"25 Mbit/s\"", "rate = 25 Mbit/s");
    assert!(error.starts_with("s.toml:8: this is not TOML: "), "{error}");
    let hint = "; a value with a unit stands in quotes: rate = \"25 Mbit/s\"";
    assert!(error.ends_with(hint), "{error}");
}

#[test]
fn names_that_need_quotes_are_shown_in_them() {
    assert_eq!(
        video("[flows.video]\n", "[flows.\"my flows\"]\nx = 1\n"),
        "s.toml:17: flows.\"my flows\".x: unknown field; known fields: `count`, `from`, `to`, \
         `application`, `transport`, `start`, `stop`, `address-changes`, `playout`"
    );
}

#[test]
fn text_and_table_forms_are_both_read() {
    let table = "congestion = { kind = \"pert\", t-min = \"5 ms\" }";
    let one = scenario(&VIDEO.replace("congestion = \"pert\"", table));
    let other =
        scenario(&VIDEO.replace("start = { low = \"0 s\", high = \"1 s\" }", "start = \"1 s\""));
    assert_ne!(one.flows, other.flows);
}
