//! Every packet that reaches a link has one row in the table `packets`, whatever its queue: it left, was
//! dropped, or waits at the end.

use std::collections::BTreeSet;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use ontempo_simulator::{Control, Results, Simulation};
use proptest::prelude::*;

/// A queue of each kind.
const QUEUES: [&str; 11] = [
    r#"{ kind = "drop-tail" }"#,
    r#"{ kind = "drop-tail", limit = "7 packets" }"#,
    r#"{ kind = "red", limit = "20 packets", ecn = true }"#,
    r#"{ kind = "pie", limit = "20 packets", target = "5 ms" }"#,
    r#"{ kind = "codel", limit = "20 packets" }"#,
    r#"{ kind = "fq-codel", limit = "20 packets", target = "1 ms", interval = "10 ms" }"#,
    r#"{ kind = "fq-codel", queues = 2 }"#,
    r#"{ kind = "dualpi2", limit = "30 packets" }"#,
    r#"{ kind = "wfq", limit = "5 packets" }"#,
    r#"{ kind = "wfq", unreserved = "by-flow" }"#,
    r#"{ kind = "cbq", limit = "9 packets" }"#,
];

/// Flows of all kinds share the bottleneck; `tail`: what follows in the scenario.
fn run(queue: &str, rate: u32, duration: u32, seed: u64, tail: &str) -> Results {
    let text = format!(
        r#"
        duration = "{duration} ms"
        [topology]
        kind = "dumbbell"
        access = {{ rate = "20 Mbit/s", delay = "2 ms" }}
        bottleneck = {{ rate = "{rate} kbit/s", delay = "10 ms", queue = {queue} }}
        [flows.tcp]
        count = 3
        application = {{ kind = "ftp" }}
        transport = {{ kind = "tcp", ecn = true }}
        [flows.stream]
        count = 2
        application = {{ kind = "cbr", rate = "900 kbit/s" }}
        transport = {{ kind = "udp", ecn = "ect1" }}
        start = {{ low = "0 s", high = "20 ms" }}
        [flows.spaced]
        application = {{ kind = "ftp" }}
        transport = {{ kind = "spaced", packet = "400 bytes", spacing = "2 ms" }}
        [measure]
        packets = ["bottleneck"]
        {tail}
        "#
    );
    let scenario = ontempo_scenario::parse(&text, "queue.toml").expect("it is valid");
    let simulation = Simulation::new(&scenario, seed).expect("it can be set up");
    simulation.run(&Control::default()).expect("nobody cancels it")
}

fn table<'a>(results: &'a Results, name: &str) -> &'a RecordBatch {
    &results.table(name).expect("there is such a table").batch
}

/// What the bottleneck counts.
fn counted(results: &Results, column: &str) -> usize {
    let links = table(results, "links");
    let names = links["link"].as_dictionary::<Int32Type>();
    let words = names.values().as_string::<i32>();
    let place = (0..links.num_rows())
        .find(|row| words.value(names.keys().value(*row) as usize) == "bottleneck")
        .expect("it has a row");
    links[column].as_primitive::<UInt64Type>().value(place) as usize
}

/// Rows of packets that left the link, that were dropped, and that wait.
fn rows(results: &Results) -> [usize; 3] {
    let packets = table(results, "packets");
    let started = packets["started_s"].as_primitive::<Float64Type>();
    let dropped = &packets["dropped"];
    let mut counts = [0; 3];
    for row in 0..packets.num_rows() {
        counts[match (started.is_valid(row), dropped.is_valid(row)) {
            (true, false) => 0,
            (false, true) => 1,
            (false, false) => 2,
            (true, true) => panic!("row {row} was both sent and dropped"),
        }] += 1;
    }
    counts
}

fn check(results: &Results) {
    let [left, dropped, waiting] = rows(results);
    let of_link = |column| counted(results, column);
    assert_eq!(left, of_link("departures"));
    assert_eq!(dropped, of_link("dropped_full") + of_link("dropped_early"));
    assert_eq!(left + dropped + waiting, of_link("arrivals"));
    let packets = table(results, "packets");
    let flows = packets["flow"].as_primitive::<UInt64Type>();
    let numbers = packets["number"].as_primitive::<UInt64Type>();
    // Those of UDP are sent once: each has one row, without a gap.
    for flow in 0..table(results, "flows").num_rows() as u64 {
        let of_flow = (0..packets.num_rows()).filter(|row| flows.value(*row) == flow);
        let of_flow: Vec<_> = of_flow.map(|row| numbers.value(row)).collect();
        let distinct: BTreeSet<_> = of_flow.iter().copied().collect();
        let flows = table(results, "flows");
        let transports = flows["transport"].as_dictionary::<Int32Type>();
        let words = transports.values().as_string::<i32>();
        if words.value(transports.keys().value(flow as usize) as usize) != "tcp" {
            assert_eq!(distinct.len(), of_flow.len());
            assert!(distinct.into_iter().eq(0..of_flow.len() as u64), "flow {flow} has a gap");
        }
    }
}

#[test]
fn packets_that_wait_at_the_end_have_a_row_in_the_order_of_arrival() {
    for queue in QUEUES {
        let results = run(queue, 2_000, 1_500, 1, "");
        check(&results);
        let [_, _, waiting] = rows(&results);
        assert!(waiting > 0, "nothing waits in {queue}");
        let packets = table(&results, "packets");
        let times = packets["time_s"].as_primitive::<Float64Type>();
        let (started, dropped) = (&packets["started_s"], &packets["dropped"]);
        let waits = |row: &usize| started.is_null(*row) && dropped.is_null(*row);
        let times: Vec<_> =
            (0..packets.num_rows()).filter(waits).map(|row| times.value(row)).collect();
        assert!(times.is_sorted(), "{queue}: {times:?}");
    }
}

#[test]
fn packets_of_a_reservation_that_wait_at_the_end_have_a_row() {
    let tail = r#"
        [[reservations]]
        flows = "stream"
        rate = "400 kbit/s"
        bucket = "3 kB"
        links = ["bottleneck"]
    "#;
    for queue in QUEUES.iter().filter(|queue| queue.contains("wfq") || queue.contains("cbq")) {
        let results = run(queue, 2_000, 1_500, 1, tail);
        check(&results);
        assert!(rows(&results)[2] > 0, "nothing waits in {queue}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn what_reached_a_link_left_it_was_dropped_or_waits(
        queue in prop::sample::select(QUEUES.to_vec()),
        rate in 200u32..20_000,
        duration in 50u32..2_000,
        seed in 0u64..1_000,
    ) {
        check(&run(queue, rate, duration, seed, ""));
    }
}
