//! What few links have, in whole runs: policers, duplicates, bit errors, aggregation; and DualPI2.

use arrow_array::StringArray;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, UInt64Type};
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
            for (column, share) in [("corrupted", 0.01), ("duplicated", 0.05)] {
                let seen = count(&results, column) as f64 / departures;
                let deviation = f64::sqrt(share * (1.0 - share) / departures);
                assert!((seen - share).abs() < 4.0 * deviation, "{queue}: {column} {seen}");
            }
            // Of data alone, each packet once: no copies, and no ACKs.
            let causes = ["dropped_full", "dropped_early", "corrupted"];
            let expected: u64 = causes.iter().map(|cause| count(&results, cause)).sum();
            let dropped: u64 = counts(&results, "flows", "dropped_packets").iter().sum();
            assert!(dropped.abs_diff(expected) < 10, "{queue}: {dropped} of {expected}");
            let sent = counts(&results, "flows", "sent_packets");
            let delivered = counts(&results, "flows", "delivered_packets");
            assert!(sent.iter().zip(&delivered).all(|(sent, delivered)| delivered <= sent));
            // The media flow is the last: of 1,250 packets one in a hundred is corrupted.
            assert!((1_180..1_250).contains(&delivered[3]), "{queue}: {delivered:?}");
            let late = &results.table("playout").expect("playout").batch;
            let units = late["units"].as_primitive::<UInt64Type>().value(0);
            assert!(units <= sent[3], "{queue}: {units} units of {}", sent[3]);
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

/// Times between packets of `kind` that reach the link `name`, in seconds.
fn gaps(results: &Results, name: &str, kind: &str) -> Vec<f64> {
    let batch = &results.table("packets").expect("packets").batch;
    let text = |column: &str| {
        let column = batch[column].as_dictionary::<Int32Type>();
        let column = column.downcast_dict::<StringArray>().expect("it holds texts");
        column.into_iter().map(|text| text.unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let times = batch["time_s"].as_primitive::<Float64Type>().values();
    let rows = times.iter().zip(text("link")).zip(text("kind"));
    let times: Vec<f64> = rows
        .filter(|((_, link), of)| link == name && of == kind)
        .map(|((time, _), _)| *time)
        .collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn aggregation_makes_bursts_of_data_and_compresses_acks() {
    // 20 Mbit/s between the routers; a Wi-Fi of 100 Mbit/s at the receiver, an opportunity each 5 ms.
    let run = |aggregation: &str| {
        let text = format!(
            "duration = \"10 s\"\n[topology]\nkind = \"dumbbell\"\n\
             bottleneck = {{ rate = \"20 Mbit/s\", delay = \"10 ms\", queue = {{ kind = \"drop-tail\", \
             limit = \"60 packets\" }} }}\n\
             access = {{ rate = \"100 Mbit/s\", delay = \"1 ms\" }}\n\
             receiver-access = {{ rate = \"100 Mbit/s\", delay = \"1 ms\" {aggregation} }}\n\
             [flows.bulk]\napplication = {{ kind = \"ftp\" }}\ntransport = {{ kind = \"tcp\" }}\n\
             [measure]\nfrom = \"2 s\"\npackets = [\"reverse\"]\n"
        );
        let scenario = ontempo_scenario::parse(&text, "wifi.toml").expect("it is valid");
        let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
        simulation.run(&Control::default()).expect("nobody cancels it")
    };
    let goodput = |results: &Results| {
        let batch = &results.table("flows").expect("flows").batch;
        batch["goodput_bps"].as_primitive::<Float64Type>().value(0)
    };
    let plain = run("");
    // A packet of 1,000 bytes takes 0.4 ms at the bottleneck, and its ACK comes back at that pace.
    let close =
        |gaps: &[f64]| gaps.iter().filter(|gap| **gap < 1e-4).count() as f64 / gaps.len() as f64;
    assert!(close(&gaps(&plain, "reverse", "ack")) < 0.05);
    let wifi = run(", aggregation = { every = \"5 ms\" }");
    let acks = gaps(&wifi, "reverse", "ack");
    assert!(close(&acks) > 0.8, "{} of the ACKs follow at once", close(&acks));
    let bursts = acks.iter().filter(|gap| **gap > 4e-3).count();
    // About 2,000 opportunities in 10 s.
    assert!((1_000..2_001).contains(&bursts), "{bursts}");
    assert!(goodput(&wifi) > 0.8 * goodput(&plain), "{} bit/s", goodput(&wifi));
    assert_eq!(plain.tables.len(), wifi.tables.len());
}

#[test]
fn aggregation_takes_capacity_where_it_takes_time() {
    // Aggregates of one packet: 1 ms of access for each 1 ms of transmission.
    for queue in QUEUES {
        let results =
            run(queue, "aggregation = { access = \"1 ms\", packets = \"1 packets\" }", "");
        let megabits = count(&results, "departed_bytes") as f64 * 8e-6;
        assert!((70.0..80.1).contains(&megabits), "{queue}: {megabits} Mbit of 160 / 2");
        let batch = &results.table("links").expect("links").batch;
        let busy = batch["busy"].as_primitive::<Float64Type>().value(0);
        assert!((busy - megabits / 160.0).abs() < 1e-3, "{queue}: {busy}");
        // With 64 packets it takes nearly none.
        let results =
            run(queue, "aggregation = { access = \"1 ms\", packets = \"64 packets\" }", "");
        let megabits = count(&results, "departed_bytes") as f64 * 8e-6;
        assert!((125.0..159.0).contains(&megabits), "{queue}: {megabits} Mbit of 160");
    }
}

#[test]
fn dualpi2_holds_classic_flows_at_the_target_and_keeps_l4s_packets_out_of_their_queue() {
    let text = |code: &str| {
        format!(
            "duration = \"30 s\"\n[topology]\nkind = \"dumbbell\"\n\
             bottleneck = {{ rate = \"20 Mbit/s\", delay = \"10 ms\", queue = {{ kind = \"dualpi2\" }} }}\n\
             reverse = {{ rate = \"20 Mbit/s\", delay = \"10 ms\" }}\n\
             access = {{ rate = \"1 Gbit/s\", delay = \"1 ms\" }}\n\
             [flows.bulk]\ncount = 4\napplication = {{ kind = \"ftp\" }}\n\
             transport = {{ kind = \"tcp\", recovery = \"sack\" }}\n\
             [flows.call]\napplication = {{ kind = \"cbr\", rate = \"500 kbit/s\" }}\n\
             transport = {{ kind = \"udp\", ecn = \"{code}\" }}\n\
             [measure]\nfrom = \"10 s\"\nmessages = true\n"
        )
    };
    let run = |code: &str| {
        let scenario = ontempo_scenario::parse(&text(code), "l4s.toml").expect("it is valid");
        let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
        simulation.run(&Control::default()).expect("nobody cancels it")
    };
    let delay = |results: &Results| {
        let batch = &results.table("messages").expect("messages").batch;
        let delays = batch["delay_s"].as_primitive::<Float64Type>().values();
        delays.iter().sum::<f64>() / delays.len() as f64
    };
    // 12 ms on the way, 0.4 ms at the bottleneck; then what waits.
    for code in ["none", "ect0"] {
        let results = run(code);
        let wait = delay(&results) - 0.0125;
        assert!((0.010..0.020).contains(&wait), "{code}: {wait} s of a target of 15 ms");
        assert!(count(&results, "dropped_early") > 0);
    }
    let results = run("ect1");
    let wait = delay(&results) - 0.0125;
    assert!(wait < 0.002, "{wait} s of a step of 1 ms");
    // Marks follow the classic drops; the call does not react, and loses nothing.
    assert!(count(&results, "marked") > 0);
    assert_eq!(counts(&results, "flows", "dropped_packets")[4], 0);
    assert!(count(&results, "departed_bytes") as f64 * 8.0 / 20.0 > 0.9 * 20e6);
}

#[test]
fn of_a_film_data_is_counted_and_not_copies_reports_or_what_is_sent_again() {
    let run = |transport: &str, harms: &str| {
        let text = format!(
            "duration = \"20 s\"\n[topology]\nkind = \"dumbbell\"\n\
             access = {{ rate = \"100 Mbit/s\", delay = \"2 ms\" }}\n\
             [topology.bottleneck]\nrate = \"20 Mbit/s\"\ndelay = \"20 ms\"\n{harms}\n\
             [flows.film]\n\
             application = {{ kind = \"media\", generate = {{ rate = \"4 Mbit/s\" }}, latency = [\"500 ms\"] }}\n\
             transport = {{ kind = \"{transport} }}\nstop = \"18 s\"\n"
        );
        let scenario = ontempo_scenario::parse(&text, "film.toml").expect("it is valid");
        let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
        let results = simulation.run(&Control::default()).expect("nobody cancels it");
        let flows = &results.table("flows").expect("flows").batch;
        let again = flows["retransmitted"].as_primitive::<UInt64Type>().iter().next().flatten();
        let counted = |column| counts(&results, "flows", column)[0];
        (counted("sent_packets"), again, counted("delivered_packets"), counted("dropped_packets"))
    };
    let harms = "duplicate = 0.5\nloss = { kind = \"bernoulli\", rate = 0.05 }";
    let (datagrams, again, delivered, dropped) = run("udp\"", "");
    assert_eq!((again, delivered, dropped), (Some(0), datagrams, 0));
    let (sent, again, delivered, dropped) = run("udp\"", harms);
    assert_eq!((sent, again), (datagrams, Some(0)));
    assert_eq!(delivered + dropped, sent);
    for transport in
        ["srt\", latency = \"500 ms\"", "rist\", buffer = \"500 ms\"", "adu\", interval = \"0 s\""]
    {
        // What is given to SRT before it has a connection is lost.
        let nearly = |count: u64, all: u64| count <= all && count * 100 >= all * 95;
        let (sent, again, delivered, dropped) = run(transport, "");
        assert!(nearly(sent, datagrams), "{transport}: {sent}");
        assert_eq!((again, delivered, dropped), (Some(0), sent, 0), "{transport}");
        let (sent, again, delivered, dropped) = run(transport, harms);
        let again = again.expect("it is told");
        // The window of ADUs holds some back.
        assert!(sent - again <= datagrams, "{transport}: {sent} less {again}");
        let share = again as f64 / sent as f64;
        assert!((0.04..0.1).contains(&share), "{transport}: {share} sent again");
        assert!(nearly(delivered, sent - again), "{transport}: {delivered}");
        assert!((0.04..0.06).contains(&(dropped as f64 / sent as f64)), "{transport}: {dropped}");
    }
    let (sent, again, delivered, dropped) = run("ontempo\", latency = \"500 ms\"", harms);
    assert_eq!(again, None);
    assert!(delivered + dropped <= sent, "{delivered} and {dropped} of {sent}");
}
