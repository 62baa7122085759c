//! What few links have, in whole runs: policers.

use arrow_array::StringArray;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt64Type};
use ontempo_simulator::{Control, Results, Simulation};

const RUN: &str = r#"
    duration = "20 s"
    [topology]
    kind = "dumbbell"
    access = { rate = "100 Mbit/s", delay = "2 ms" }
    [topology.bottleneck]
    rate = "8 Mbit/s"
    delay = "20 ms"
    queue = QUEUE
    MORE
    [topology.reverse]
    rate = "8 Mbit/s"
    delay = "20 ms"
    BACK
    [flows.bulk]
    count = 3
    application = { kind = "ftp" }
    transport = { kind = "tcp", ecn = true }
    start = { low = "0 s", high = "1 s" }
    [flows.media]
    application = { kind = "cbr", rate = "500 kbit/s" }
    transport = { kind = "udp" }
    playout = ["100 ms"]
    [measure]
    queues = ["bottleneck"]
    packets = ["bottleneck"]
    messages = true
"#;

const QUEUES: [&str; 4] = [
    r#"{ kind = "drop-tail", limit = "40 packets" }"#,
    r#"{ kind = "pie" }"#,
    r#"{ kind = "codel" }"#,
    r#"{ kind = "fq-codel" }"#,
];

fn run(queue: &str, more: &str, back: &str) -> Results {
    let text = RUN.replace("QUEUE", queue).replace("MORE", more).replace("BACK", back);
    let scenario = ontempo_scenario::parse(&text, "extras.toml").expect("it is valid");
    let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
    simulation.run(&Control::default()).expect("nobody cancels it")
}

fn counts(results: &Results, table: &str, column: &str) -> Vec<u64> {
    let batch = &results.table(table).expect("the table").batch;
    batch[column].as_primitive::<UInt64Type>().values().to_vec()
}

/// A count of the bottleneck, the first link.
fn count(results: &Results, column: &str) -> u64 {
    counts(results, "links", column)[0]
}

/// Of all links together.
fn total(results: &Results, column: &str) -> u64 {
    counts(results, "links", column).iter().sum()
}

/// Records of packets that the bottleneck dropped for `reason`.
fn recorded(results: &Results, reason: &str) -> u64 {
    let batch = &results.table("packets").expect("packets").batch;
    let dropped = batch["dropped"].as_dictionary::<Int32Type>();
    let dropped = dropped.downcast_dict::<StringArray>().expect("it holds texts");
    dropped.into_iter().flatten().filter(|text| *text == reason).count() as u64
}

#[test]
fn a_policer_lets_its_rate_pass_and_every_drop_is_in_the_tables() {
    let policer = "policer = { rate = \"4 Mbit/s\", burst = \"10 kB\" }";
    for queue in QUEUES {
        let results = run(queue, policer, "");
        let megabits = count(&results, "departed_bytes") as f64 * 8e-6;
        assert!((60.0..80.1).contains(&megabits), "{queue}: {megabits} Mbit of 80");
        let dropped = count(&results, "dropped_policer");
        assert!(dropped > 100, "{queue}: {dropped}");
        assert_eq!(recorded(&results, "policer"), dropped, "{queue}");
        // The queue behind it never fills.
        assert_eq!(count(&results, "dropped_full") + count(&results, "dropped_early"), 0);
        assert_eq!(counts(&results, "flows", "dropped_packets").iter().sum::<u64>(), dropped);
        let gone = count(&results, "departures") + dropped;
        assert!(count(&results, "arrivals") - gone < 40, "{queue}");
        assert_eq!(total(&results, "dropped_policer"), dropped, "only here");
    }
}
