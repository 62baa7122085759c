//! What it says of links and their queues.

use super::*;

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
