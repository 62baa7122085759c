//! Late units by start-up delay, in whole runs.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use ontempo_simulator::{Control, Results, Simulation};

fn results_of(text: &str) -> Results {
    let scenario = ontempo_scenario::parse(text, "s.toml").expect("it is valid");
    let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
    simulation.run(&Control::default()).expect("nobody cancels it")
}

/// Of a constant bit rate of 100 units a second: units and late ones by start-up delay.
fn run(transport: &str, bottleneck: &str, more: &str) -> Vec<(u64, u64)> {
    let text = format!(
        "duration = \"10 s\"\n[topology]\nkind = \"dumbbell\"\n\
         access = {{ rate = \"100 Mbit/s\", delay = \"5 ms\" }}\n\
         bottleneck = {{ rate = \"100 Mbit/s\", delay = \"20 ms\"{bottleneck} }}\n\
         [flows.media]\napplication = {{ kind = \"cbr\", interval = \"10 ms\" }}\n\
         transport = {{ kind = \"{transport}\" }}\n\
         playout = [\"100 ms\", \"1 s\", \"5 s\", \"9 s\"]\n{more}"
    );
    let results = results_of(&text);
    let batch = &results.table("playout").expect("playout").batch;
    let counts = |column: &str| batch[column].as_primitive::<UInt64Type>().values().to_vec();
    counts("units").into_iter().zip(counts("late")).collect()
}

/// Where the start-up delay does not matter, neither does the end of the run.
#[test]
fn units_are_judged_that_could_be_played_before_the_end_of_the_run() {
    let none = ["udp", "tcp"].map(|transport| run(transport, "", ""));
    for rows in none {
        assert_eq!(rows, [(991, 0), (901, 0), (501, 0), (101, 0)]);
    }
    // Nothing arrives.
    let all = run("udp", ", outages = [{ at = \"0 s\", for = \"10 s\" }]", "");
    assert_eq!(all, [(991, 991), (901, 901), (501, 501), (101, 101)]);
    // Whatever is not lost is in time.
    for (units, late) in run("udp", ", loss = { kind = \"bernoulli\", rate = 0.1 }", "") {
        let deviation = (0.09 * units as f64).sqrt();
        assert!((late as f64 - 0.1 * units as f64).abs() < 4.0 * deviation, "{late} of {units}");
    }
}

#[test]
fn of_a_stream_that_stops_earlier_all_units_are_judged_and_none_that_it_has_not_offered() {
    for transport in ["udp", "tcp"] {
        let rows = run(transport, "", "stop = \"1 s\"\n");
        assert_eq!(rows, [(100, 0); 4], "{transport}");
    }
}

/// A transport that lets messages wait is given all of them, and the wait is part of the delay.
#[test]
fn messages_of_a_spaced_flow_count_from_when_they_are_given_to_it() {
    let text = r#"
        duration = "10 s"
        [topology]
        kind = "dumbbell"
        access = { rate = "100 Mbit/s", delay = "5 ms" }
        bottleneck = { rate = "100 Mbit/s", delay = "20 ms" }
        [flows.media]
        application = { kind = "cbr", interval = "10 ms" }
        transport = { kind = "spaced", spacing = "20 ms" }
        [measure]
        messages = true
        intervals = "1 s"
    "#;
    let results = results_of(text);
    let intervals = &results.table("intervals").expect("intervals").batch;
    let counts = |column: &str| intervals[column].as_primitive::<UInt64Type>().values().to_vec();
    assert_eq!(counts("sent_messages"), [100; 10]);
    assert!(counts("received_messages").iter().all(|count| (48..=50).contains(count)));
    let messages = &results.table("messages").expect("messages").batch;
    let delays = messages["delay_s"].as_primitive::<Float64Type>().values();
    let last = delays.last().expect("messages arrive");
    assert!((4.9..5.1).contains(last), "{last}");
}

/// What still waits at the end is not taken for what has left.
#[test]
fn a_packet_that_waits_at_the_end_has_not_started() {
    let text = r#"
        duration = "3 s"
        [topology]
        kind = "dumbbell"
        access = { rate = "100 Mbit/s", delay = "5 ms" }
        bottleneck = { rate = "1 Mbit/s", delay = "20 ms" }
        [flows.media]
        application = { kind = "cbr", interval = "4 ms" }
        transport = { kind = "udp" }
        [measure]
        packets = ["bottleneck"]
    "#;
    let results = results_of(text);
    let packets = &results.table("packets").expect("packets").batch;
    let started = packets["started_s"].as_primitive::<Float64Type>();
    assert!(started.iter().flatten().all(|started| started <= 3.0));
    let links = &results.table("links").expect("links").batch;
    let departures = links["departures"].as_primitive::<UInt64Type>().value(0);
    assert_eq!((packets.num_rows() - started.null_count()) as u64, departures);
    assert!(started.null_count() > 300, "half of the packets wait");
}
