//! Links that change, in whole runs.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
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
    [flows.bulk]
    count = 3
    application = { kind = "ftp" }
    transport = { kind = "tcp", ecn = true }
    start = { low = "0 s", high = "1 s" }
    [flows.media]
    application = { kind = "cbr", rate = "500 kbit/s" }
    transport = { kind = "udp" }
    [measure]
    from = "2 s"
    sample-every = "100 ms"
    events = true
    messages = true
"#;

const QUEUES: [&str; 6] = [
    r#"{ kind = "drop-tail", limit = "40 packets" }"#,
    r#"{ kind = "red", limit = "60 packets" }"#,
    r#"{ kind = "pie" }"#,
    r#"{ kind = "codel" }"#,
    r#"{ kind = "fq-codel" }"#,
    r#"{ kind = "wfq", limit = "40 packets" }"#,
];

fn run(queue: &str, more: &str) -> Results {
    let text = RUN.replace("QUEUE", queue).replace("MORE", more);
    let scenario = ontempo_scenario::parse(&text, "varying.toml").expect("it is valid");
    let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
    simulation.run(&Control::default()).expect("nobody cancels it")
}

fn numbers(results: &Results, table: &str, column: &str) -> Vec<f64> {
    let batch = &results.table(table).expect("the table").batch;
    batch[column].as_primitive::<Float64Type>().values().to_vec()
}

/// A count of the bottleneck, the first link.
fn count(results: &Results, column: &str) -> u64 {
    let batch = &results.table("links").expect("links").batch;
    batch[column].as_primitive::<UInt64Type>().value(0)
}

/// Megabits that left the bottleneck in the measured 18 s.
fn megabits(results: &Results) -> f64 {
    count(results, "departed_bytes") as f64 * 8e-6
}

#[test]
fn a_schedule_of_equal_steps_gives_the_tables_of_a_constant_link() {
    let equal = "schedule = { kind = \"periodic\", steps = [{ for = \"3 ms\" }, { for = \"11 ms\", \
                 rate = \"8 Mbit/s\" }, { for = \"1 ns\" }] }";
    for queue in [QUEUES[0], QUEUES[3], QUEUES[4]] {
        let (constant, stepped) = (run(queue, ""), run(queue, equal));
        for (one, other) in constant.tables.iter().zip(&stepped.tables) {
            if one.name != "capacity" {
                assert_eq!(one, other, "{queue}");
            }
        }
        assert!(!stepped.table("capacity").expect("it is there").batch.column(0).is_empty());
        assert_eq!(constant.table("capacity").expect("it is there").batch.num_rows(), 0);
    }
}

#[test]
fn a_step_of_the_rate_is_what_the_link_carries() {
    // 8 Mbit/s for 10 s, then 2: 8 s and 10 s of it are measured.
    let step = "schedule = { kind = \"csv\", text = '''time_s,rate_mbps\n0,8\n10,2\n''' }";
    for queue in QUEUES {
        let carried = megabits(&run(queue, step));
        assert!((76.0..84.1).contains(&carried), "{queue}: {carried} Mbit");
    }
}

#[test]
fn opportunities_carry_what_they_allow_and_no_more() {
    // Two in 3 ms: 8 Mbit/s.
    let trace = "schedule = { kind = \"mahimahi\", text = '''1\n3\n''' }";
    for queue in QUEUES {
        let carried = megabits(&run(queue, trace));
        assert!((130.0..144.1).contains(&carried), "{queue}: {carried} Mbit");
    }
}

/// Ten flows that send a packet of 1,400 bytes each at once, each 50 ms.
const BURSTS: &str = r#"
    duration = "10 s"
    [topology]
    kind = "dumbbell"
    access = { rate = "1 Gbit/s", delay = "1 ms" }
    [topology.bottleneck]
    rate = "4 Mbit/s"
    delay = "20 ms"
    queue = { kind = "drop-tail", limit = "LIMIT packets" }
    [topology.bottleneck.schedule]
    kind = "cellreplay"
    light-text = "0 20 0 5 10 15\n400 20 0 5 10 15\n5000 40 0 5 10 15\n"
    heavy-text = "3\n"
    timer = "10 ms"
    [topology.reverse]
    rate = "8 Mbit/s"
    delay = "20 ms"
    [flows.bursts]
    count = 10
    application = { kind = "cbr", interval = "50 ms" }
    transport = { kind = "udp", packet = "1400 B" }
    [measure]
    messages = true
    packets = ["bottleneck"]
"#;

/// How long after each burst its packets arrived, in milliseconds.
fn after_bursts(results: &Results) -> Vec<(f64, Vec<f64>)> {
    let sent = numbers(results, "messages", "sent_s");
    let received = numbers(results, "messages", "received_s");
    let bursts = (0..190).map(|burst| {
        let begins = f64::from(burst) * 0.05;
        let of_burst = sent.iter().zip(&received);
        let of_burst =
            of_burst.filter(|(sent, _)| ((*sent + 0.001) / 0.05).floor() == f64::from(burst));
        let mut after: Vec<f64> = of_burst.map(|(_, received)| (received - begins) * 1e3).collect();
        after.sort_by(f64::total_cmp);
        (begins * 1e3, after)
    });
    bursts.collect()
}

#[test]
fn bursts_leave_as_trains_and_what_is_more_by_the_heavy_trace() {
    let run = |limit: &str| {
        let scenario = ontempo_scenario::parse(&BURSTS.replace("LIMIT", limit), "bursts.toml");
        let simulation = Simulation::new(&scenario.expect("it is valid"), 1).expect("it is set up");
        simulation.run(&Control::default()).expect("nobody cancels it")
    };
    let results = run("50");
    for (begins, after) in after_bursts(&results) {
        assert_eq!(after.len(), 10, "at {begins} ms");
        // The base delay falls by 20 ms: packets of the burst before are still in the queue.
        if begins == 5000.0 {
            assert!(after.iter().all(|millis| *millis > 22.0), "{after:?}");
            continue;
        }
        // Two access links of 1 ms, and up to 0.3 ms in which hosts send.
        let arrives = |millis: f64, expected: f64, what: &str| {
            let late = millis - expected;
            assert!((0.0..0.4).contains(&late), "{what} at {begins} ms: {millis}, {expected}");
        };
        // The base delay rises from 20 to 40 ms.
        let base = if begins < 400.0 { 20.0 } else { 20.0 + (begins - 400.0) / 230.0 };
        let base =
            if begins < 5000.0 { base } else { 20.0f64.max(20.0 + (begins - 5400.0) / 230.0) };
        for (place, opportunity) in [0.0, 5.0, 10.0, 15.0].into_iter().enumerate() {
            arrives(after[place], base + opportunity + 2.0, "light");
        }
        // Released with the fourth: the next opportunities of the heavy trace, each 3 ms. The last access
        // link takes 1 ms and 11.2 us.
        let released = begins + after[3] - 1.0112;
        let first = (released / 3.0).floor() * 3.0 + 3.0 - begins + 1.0112;
        for (place, millis) in after[4..].iter().enumerate() {
            let expected = first + 3.0 * place as f64;
            assert!(
                (millis - expected).abs() < 1e-3,
                "heavy at {begins} ms: {after:?}, {expected}"
            );
        }
    }
    let capacity = &results.table("capacity").expect("it is there").batch;
    assert_eq!(capacity.num_rows(), 100);
    // 1,400 bytes each 3 ms, but for the opportunities at the ends of rows.
    let rates = numbers(&results, "capacity", "rate_bps");
    assert!(rates.iter().all(|rate| (rate / 3.733e6 - 1.0).abs() < 0.04), "{rates:?}");
    let delays = numbers(&results, "capacity", "delay_s");
    assert!((delays[0] - 0.02).abs() < 1e-9 && (delays[49] - 0.0395652).abs() < 1e-6, "{delays:?}");
    // What does not find a place in the queue is dropped: one is next to leave and two wait.
    let dropped = count(&run("2"), "dropped_full");
    assert!((3 * 195..=3 * 200).contains(&dropped), "{dropped}");
}

#[test]
fn a_pair_of_traces_gives_the_same_tables_again() {
    let text = RUN.replace("QUEUE", QUEUES[0]).replace(
        "MORE",
        "schedule = { kind = \"cellreplay\", timer = \"8 ms\", light-text = '''0 20 0 1 1 1\n300 40 0 \
         2 2\n700 15 0 1\n''', heavy-text = '''1\n3\n4\n''' }",
    );
    let run = || {
        let scenario = ontempo_scenario::parse(&text, "pair.toml").expect("it is valid");
        let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
        simulation.run(&Control::default()).expect("nobody cancels it")
    };
    let (one, other) = (run(), run());
    for (one, other) in one.tables.iter().zip(&other.tables) {
        assert_eq!(one, other);
    }
    // TCP fills the heavy trace, 8.4 Mbit/s, but for its sawtooth; trains add to it.
    let carried = megabits(&one) / 18.0;
    assert!((6.0..12.0).contains(&carried), "{carried} Mbit/s");
}

#[test]
fn during_an_outage_nothing_arrives_and_afterwards_it_goes_on() {
    let outage = "outages = [{ at = \"10 s\", for = \"1 s\" }]";
    for queue in QUEUES {
        let results = run(queue, outage);
        let received = numbers(&results, "messages", "received_s");
        let quiet = |time: &&f64| (10.023..11.0).contains(*time);
        assert_eq!(received.iter().filter(quiet).count(), 0, "{queue}");
        let after = received.iter().filter(|time| **time > 11.0).count();
        assert!(after > 300, "{queue}: {after} messages after the outage");
        let gone = ["departures", "dropped_full", "dropped_early"];
        let gone: u64 = gone.iter().map(|column| count(&results, column)).sum();
        let (arrivals, limit) = (count(&results, "arrivals"), 1000);
        // What waited as the measured span began departs in it, and what waits at its end does not.
        assert!(arrivals.abs_diff(gone) <= limit, "{queue}: {arrivals} arrived, {gone} are gone");
        let times = numbers(&results, "capacity", "time_s");
        assert_eq!(times, [0.0, 10.0, 11.0]);
        assert_eq!(numbers(&results, "capacity", "rate_bps"), [8e6, 0.0, 8e6]);
    }
}

#[test]
fn a_link_that_stops_for_ever_ends_the_run_with_what_is_stuck() {
    for queue in QUEUES {
        let results =
            run(queue, "schedule = { kind = \"csv\", text = '''time_s,rate_bps\n5,0\n''' }");
        let received = numbers(&results, "messages", "received_s");
        assert!(received.iter().all(|time| *time < 5.1), "{queue}");
        let gone = ["departures", "dropped_full", "dropped_early"];
        let gone: u64 = gone.iter().map(|column| count(&results, column)).sum();
        assert!(count(&results, "arrivals") > gone, "{queue}: nothing is stuck");
        let [stuck] = &results.standstills[..] else { panic!("{:?}", results.standstills) };
        assert_eq!(
            (stuck.link.as_str(), stuck.since.as_secs_f64()),
            ("bottleneck", 5.0),
            "{queue}"
        );
        assert!(stuck.waiting > 0, "{queue}: {stuck:?}");
        let unfinished = [("bulk".to_owned(), 3), ("media".to_owned(), 1)];
        assert_eq!(stuck.unfinished, unfinished, "{queue}");
    }
}

#[test]
fn a_link_that_stands_still_is_known_before_the_run_and_one_that_recovers_is_not_named() {
    let standing = |more: &str| {
        let text = RUN.replace("QUEUE", QUEUES[0]).replace("MORE", more);
        let scenario = ontempo_scenario::parse(&text, "still.toml").expect("it is valid");
        Simulation::new(&scenario, 1).expect("it can be set up").standing_still()
    };
    let at = |seconds: f64, more: &str| {
        let found = standing(more);
        let [(link, since)] = &found[..] else { panic!("{more}: {found:?}") };
        assert_eq!((link.as_str(), since.as_secs_f64()), ("bottleneck", seconds), "{more}");
    };
    at(5.0, "schedule = { kind = \"csv\", text = '''time_s,rate_bps\n5,0\n''' }");
    at(12.0, "outages = [{ at = \"12 s\", for = \"1000 s\" }]");
    assert_eq!(standing("outages = [{ at = \"12 s\", for = \"7 s\" }]"), []);
    // Half a second at the end is no standstill.
    assert_eq!(standing("outages = [{ at = \"19500 ms\", for = \"7 s\" }]"), []);
}

#[test]
fn a_connection_that_is_never_made_is_among_the_unfinished() {
    let zero = "schedule = { kind = \"csv\", text = '''time_s,rate_bps\n0,0\n''' }";
    let text = RUN.replace("QUEUE", QUEUES[0]).replace("MORE", zero);
    let text = format!("tcp-profile = \"linux\"\n{text}");
    let scenario = ontempo_scenario::parse(&text, "zero.toml").expect("it is valid");
    let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
    let results = simulation.run(&Control::default()).expect("nobody cancels it");
    let [stuck] = &results.standstills[..] else { panic!("{:?}", results.standstills) };
    assert_eq!(stuck.unfinished, [("bulk".to_owned(), 3), ("media".to_owned(), 1)]);
}

#[test]
fn a_flow_that_has_finished_before_is_not_among_the_unfinished() {
    let text = RUN
        .replace("QUEUE", QUEUES[0])
        .replace("MORE", "outages = [{ at = \"10 s\", for = \"1000 s\" }]");
    let text = text.replace("kind = \"ftp\"", "kind = \"file\", size = \"50 kB\"");
    let scenario = ontempo_scenario::parse(&text, "still.toml").expect("it is valid");
    let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
    let results = simulation.run(&Control::default()).expect("nobody cancels it");
    let [stuck] = &results.standstills[..] else { panic!("{:?}", results.standstills) };
    assert_eq!(stuck.unfinished, [("media".to_owned(), 1)]);
}

#[test]
fn an_event_changes_one_direction_of_one_link_from_its_time_on() {
    let text = RUN.replace("QUEUE", QUEUES[0]).replace("MORE", "")
        + "[[events]]\nat = \"8 s\"\nlink = \"bottleneck\"\nset = { delay = \"120 ms\", loss = 0 }\n";
    let scenario = ontempo_scenario::parse(&text, "event.toml").expect("it is valid");
    let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
    let results = simulation.run(&Control::default()).expect("nobody cancels it");
    let sent = numbers(&results, "messages", "sent_s");
    let delays = numbers(&results, "messages", "delay_s");
    let least = |from: f64, until: f64| {
        let within = sent.iter().zip(&delays).filter(|(sent, _)| (from..until).contains(*sent));
        within.map(|(_, delay)| *delay).fold(f64::INFINITY, f64::min)
    };
    assert!((0.024..0.1).contains(&least(2.0, 7.5)), "{}", least(2.0, 7.5));
    assert!((0.124..0.2).contains(&least(8.0, 20.0)), "{}", least(8.0, 20.0));
}
