//! Links with managed or scheduled queues, in whole runs.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use ontempo_simulator::{Control, Results, Simulation};

/// Runs eight TCPs and two spaced flows with adaptive spacing over a bottleneck with this queue.
fn run(queue: &str) -> Results {
    let text = format!(
        r#"
        duration = "20 s"
        # Linux delays an ACK for exactly 100 packet times of this link: ties, whose order differs by queue.
        tcp-profile = "ns-2"
        [topology]
        kind = "dumbbell"
        access = {{ rate = "100 Mbit/s", delay = "2 ms" }}
        bottleneck = {{ rate = "20 Mbit/s", delay = "20 ms", queue = {queue} }}
        [flows.tcp]
        count = 8
        application = {{ kind = "ftp" }}
        transport = {{ kind = "tcp", ecn = true }}
        start = {{ low = "0 s", high = "1 s" }}
        [flows.media]
        count = 2
        application = {{ kind = "ftp" }}
        transport = {{ kind = "spaced", controller = "psp-damped" }}
        start = {{ low = "0 s", high = "1 s" }}
        [measure]
        sample-every = "100 ms"
        queues = ["bottleneck"]
        "#
    );
    let scenario = ontempo_scenario::parse(&text, "queue.toml").expect("it is valid");
    let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
    simulation.run(&Control::default()).expect("nobody cancels it")
}

fn counts(results: &Results, table: &str, column: &str) -> Vec<u64> {
    let batch = &results.table(table).expect("the table").batch;
    batch[column].as_primitive::<UInt64Type>().values().to_vec()
}

/// The bottleneck's mean queue, in packets.
fn mean_queue(results: &Results) -> f64 {
    let batch = &results.table("links").expect("links").batch;
    batch["mean_packets"].as_primitive::<Float64Type>().value(0)
}

#[test]
fn codel_that_never_drops_is_a_drop_tail_queue() {
    let drop_tail = run(r#"{ kind = "drop-tail", limit = "60 packets" }"#);
    let codel = run(r#"{ kind = "codel", limit = "60 packets", target = "100 s" }"#);
    for column in [
        "sent_packets",
        "delivered_packets",
        "dropped_packets",
        "retransmitted",
        "timeouts",
        "acks",
    ] {
        let (fifo, served) = (counts(&drop_tail, "flows", column), counts(&codel, "flows", column));
        assert_eq!(fifo, served, "{column}");
    }
    for column in ["arrivals", "departures", "dropped_full", "departed_bytes"] {
        let (fifo, served) = (counts(&drop_tail, "links", column), counts(&codel, "links", column));
        assert_eq!(fifo, served, "{column}");
    }
    assert!((mean_queue(&drop_tail) - mean_queue(&codel)).abs() < 1e-6);
}

#[test]
fn every_packet_that_reached_a_scheduled_link_left_it_was_dropped_or_waits() {
    for kind in ["codel", "fq-codel"] {
        let results = run(&format!(r#"{{ kind = "{kind}", limit = "60 packets" }}"#));
        let of = |column| counts(&results, "links", column)[0];
        let gone = of("departures") + of("dropped_full") + of("dropped_early");
        let waiting = of("arrivals") - gone;
        assert!(waiting <= 60, "{kind}: {waiting} wait");
        let seen: u64 = counts(&results, "queues", "arrivals").iter().sum();
        assert_eq!(seen, of("arrivals"), "{kind}");
        let dropped: u64 = counts(&results, "queues", "drops").iter().sum();
        assert_eq!(dropped, of("dropped_full") + of("dropped_early"), "{kind}");
    }
}

#[test]
fn codel_fq_codel_and_pie_keep_the_queue_shorter_than_drop_tail() {
    let mean = |queue: &str| mean_queue(&run(queue));
    let drop_tail = mean(r#"{ kind = "drop-tail", limit = "500 packets" }"#);
    for kind in ["codel", "fq-codel", "pie"] {
        let managed = mean(&format!(r#"{{ kind = "{kind}", limit = "500 packets", ecn = true }}"#));
        assert!(managed < drop_tail / 3.0, "{kind}: {managed}, drop-tail {drop_tail}");
    }
}

#[test]
fn the_same_seed_gives_the_same_tables() {
    let queue = r#"{ kind = "fq-codel", limit = "60 packets" }"#;
    assert_eq!(run(queue), run(queue));
}

/// Whatever a link is offered ahead of its time, its means are such as can be.
#[test]
fn means_of_access_links_are_possible_where_measuring_begins() {
    let text = r#"
        duration = "2 s"
        [topology]
        kind = "dumbbell"
        access = { rate = "10 Mbit/s", delay = "5 ms" }
        bottleneck = { rate = "100 Mbit/s", delay = "20 ms", queue = { kind = "drop-tail", limit = "300 packets" } }
        [flows.video]
        count = 300
        application = { kind = "cbr", rate = "300 kbit/s" }
        transport = { kind = "tcp" }
        start = { low = "0 s", high = "1 s" }
        [flows.bulk]
        count = 20
        application = { kind = "cbr", rate = "12 Mbit/s" }
        transport = { kind = "udp" }
        [measure]
        from = "1 s"
    "#;
    let scenario = ontempo_scenario::parse(text, "ahead.toml").expect("it is valid");
    for seed in 1..=4 {
        let simulation = Simulation::new(&scenario, seed).expect("it can be set up");
        let results = simulation.run(&Control::default()).expect("nobody cancels it");
        let links = &results.table("links").expect("links").batch;
        let values = |column: &str| links[column].as_primitive::<Float64Type>().values().to_vec();
        for (waiting, busy) in values("mean_packets").into_iter().zip(values("busy")) {
            assert!(
                (0.0..1e6).contains(&waiting) && (0.0..=1.0).contains(&busy),
                "{waiting} {busy}"
            );
        }
    }
}
