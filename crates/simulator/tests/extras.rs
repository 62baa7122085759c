//! What few links have, in whole runs: policers, duplicates, bit errors.

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

#[test]
fn copies_and_bit_errors_are_counted_once_and_tcp_goes_on() {
    let harms = "duplicate = 0.05\ncorrupt = 0.01";
    for queue in QUEUES {
        // Of data, and of ACKs as well.
        for back in ["", harms] {
            let results = run(queue, harms, back);
            let departures = count(&results, "departures") as f64;
            let lost = total(&results, "dropped_full") + total(&results, "dropped_early");
            for (column, share) in [("corrupted", 0.01), ("duplicated", 0.05)] {
                let seen = count(&results, column) as f64 / departures;
                let deviation = f64::sqrt(share * (1.0 - share) / departures);
                assert!((seen - share).abs() < 4.0 * deviation, "{queue}: {column} {seen}");
            }
            // A corrupted packet's copy is lost, too.
            let (corrupted, all) = (total(&results, "corrupted"), lost);
            let dropped: u64 = counts(&results, "flows", "dropped_packets").iter().sum();
            let harmed = dropped - all;
            let expected = corrupted as f64 * 1.05;
            assert!((harmed as f64 - expected).abs() < 40.0, "{queue}: {harmed} for {corrupted}");
            let sent = counts(&results, "flows", "sent_packets");
            let delivered = counts(&results, "flows", "delivered_packets");
            assert!(sent.iter().zip(&delivered).all(|(sent, delivered)| delivered <= sent));
            // The media flow is the last: of 1,250 packets one in a hundred is corrupted.
            assert!((1_180..1_250).contains(&delivered[3]), "{queue}: {delivered:?}");
            let late = &results.table("playout").expect("playout").batch;
            let units = late["units"].as_primitive::<UInt64Type>().value(0);
            assert!(units <= 1_250, "{queue}: {units} units of 1,250");
            let bulk: u64 = delivered[..3].iter().sum();
            assert!(bulk > 3_000, "{queue}: {bulk}");
        }
    }
}

#[test]
fn a_link_that_harms_nothing_gives_the_tables_of_one_without_the_fields() {
    for queue in QUEUES {
        let (without, with) = (run(queue, "", ""), run(queue, "duplicate = 0\ncorrupt = 0.0", ""));
        assert!(without.tables.iter().zip(&with.tables).all(|(one, other)| one == other));
    }
}

#[test]
fn adus_and_spaced_packets_are_not_counted_twice() {
    for (application, transport) in [
        ("adus\", count = 500", "adu\""),
        ("cbr\", interval = \"10 ms\"", "spaced\", controller = \"psp\""),
    ] {
        let text = format!(
            "duration = \"20 s\"\n[topology]\nkind = \"dumbbell\"\n\
             bottleneck = {{ rate = \"8 Mbit/s\", delay = \"20 ms\", duplicate = 0.5 }}\n\
             access = {{ rate = \"100 Mbit/s\", delay = \"1 ms\" }}\n\
             [flows.one]\napplication = {{ kind = \"{application} }}\n\
             transport = {{ kind = \"{transport} }}\n"
        );
        let scenario = ontempo_scenario::parse(&text, "copies.toml").expect("it is valid");
        let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
        let results = simulation.run(&Control::default()).expect("nobody cancels it");
        let sent = counts(&results, "flows", "sent_packets")[0];
        let delivered = counts(&results, "flows", "delivered_packets")[0];
        assert!(delivered <= sent && delivered + 20 > sent, "{transport}: {delivered} of {sent}");
        assert!(count(&results, "duplicated") > 100, "{transport}");
        assert_eq!(counts(&results, "flows", "dropped_packets")[0], 0, "{transport}");
        assert_eq!(counts(&results, "flows", "reductions")[0], 0, "no loss is seen: {transport}");
    }
}
