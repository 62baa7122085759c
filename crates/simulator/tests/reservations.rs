//! Reservations, conversations and the QoS tables, run as scenarios.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, UInt64Type};
use ontempo_simulator::{Control, Results, Simulation};

/// Three flows of 500 kbit/s overload a link of 1 Mbit/s; a fourth sends 400 kbit/s.
const CROWDED: &str = r#"
    duration = "30 s"
    [topology]
    kind = "dumbbell"
    bottleneck = { rate = "1 Mbit/s", delay = "5 ms", queue = { kind = "wfq", limit = "20 packets" } }
    access = { rate = "10 Mbit/s", delay = "1 ms" }
    [flows.crowd]
    count = 3
    application = { kind = "cbr", rate = "500 kbit/s" }
    transport = { kind = "udp" }
    start = { low = "0 s", high = "1 s" }
    [flows.video]
    application = { kind = "messages", interval = { low = "20 ms", high = "20 ms" } }
    transport = { kind = "udp" }
    [measure]
    from = "5 s"
    messages = true
    intervals = "500 ms"
"#;

const RESERVATION: &str = r#"
    [[reservations]]
    flows = "video"
    rate = "400 kbit/s"
    bucket = "3 kB"
    links = ["bottleneck"]
"#;

fn run(text: &str) -> Results {
    let scenario = ontempo_scenario::parse(text, "test.toml").expect("the scenario is valid");
    let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
    simulation.run(&Control::default()).expect("nobody cancels it")
}

/// The values of a column in the rows of a group, without null values.
fn column(results: &Results, table: &str, name: &str, group: &str) -> Vec<f64> {
    let batch = &results.table(table).expect("there is such a table").batch;
    let column = |name: &str| batch.column_by_name(name).expect("there is such a column");
    let groups = column("group").as_dictionary::<Int32Type>();
    let names = groups.values().as_string::<i32>();
    let values = column(name);
    let value = |row: usize| match values.as_primitive_opt::<Float64Type>() {
        Some(numbers) => numbers.value(row),
        None => values.as_primitive::<UInt64Type>().value(row) as f64,
    };
    let is_of_group = |row: &usize| names.value(groups.keys().value(*row) as usize) == group;
    (0..batch.num_rows())
        .filter(is_of_group)
        .filter(|row| !values.is_null(*row))
        .map(value)
        .collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn loss(results: &Results, group: &str) -> f64 {
    mean(&column(results, "intervals", "loss_percent", group))
}

fn longest(results: &Results, group: &str) -> f64 {
    column(results, "messages", "delay_s", group).into_iter().fold(0.0, f64::max)
}

#[test]
fn a_reserved_flow_loses_nothing_and_keeps_to_its_delay_bound_in_a_crowd() {
    for kind in ["wfq", "cbq"] {
        let text = CROWDED.replace("\"wfq\"", &format!("\"{kind}\""));
        let without = run(&text);
        assert!(loss(&without, "video") > 20.0, "{kind}: {} % lost", loss(&without, "video"));
        let with = run(&format!("{text}{RESERVATION}"));
        assert_eq!(loss(&with, "video"), 0.0, "{kind}");
        assert!(loss(&with, "crowd") > loss(&without, "crowd"), "{kind}");
        // Propagation, two access links, the packet's own transmission, and b / r + M / C.
        let bound = 0.007 + 0.0016 + 0.060 + 0.008;
        assert!(longest(&with, "video") <= bound, "{kind}: {} s", longest(&with, "video"));
    }
}

/// 80 packets of 1,346 bytes a second beside twice what a link of 1.5 Mbit/s carries.
const AN_HOUR: &str = r#"
    duration = "3600 s"
    [topology]
    kind = "dumbbell"
    bottleneck = { rate = "1.5 Mbit/s", delay = "5 ms", queue = { kind = "wfq", limit = "20 packets" } }
    access = { rate = "10 Mbit/s", delay = "1 ms" }
    [flows.crowd]
    application = { kind = "cbr", rate = "3 Mbit/s" }
    transport = { kind = "udp", packet = "1000 B" }
    [flows.video]
    application = { kind = "messages", interval = { low = "12.5 ms", high = "12.5 ms" } }
    transport = { kind = "udp", packet = "1346 B" }
    [measure]
    from = "5 s"
    messages = true
    intervals = "1 s"
    [[reservations]]
    flows = "video"
    rate = "861.44 kbit/s"
    bucket = "10768 B"
    links = ["bottleneck"]
"#;

/// Not of CBQ: its estimator withholds a thousandth of an exact rate, and the queue of a burst loses 0.1 %.
#[test]
fn a_flow_at_exactly_its_reserved_rate_keeps_its_delay_for_an_hour() {
    let results = run(AN_HOUR);
    assert!(loss(&results, "crowd") > 50.0, "no overload");
    assert_eq!(loss(&results, "video"), 0.0);
    let delays = column(&results, "messages", "delay_s", "video");
    assert!(delays.len() > 287_590, "{} messages", delays.len());
    let minute = 60 * 80;
    let most = |delays: &[f64]| delays.iter().copied().fold(0.0, f64::max);
    let (first, last) = (most(&delays[..minute]), most(&delays[delays.len() - minute..]));
    // It waits for one packet of the crowd at most, of another remainder each time.
    assert!((last - first).abs() < 0.0054, "{first} s at first, {last} s at last");
    // A class of the bytes of IP alone, without 14 of Ethernet each.
    let meagre = run(&AN_HOUR.replace("861.44", "852.48"));
    assert!(loss(&meagre, "video") > 0.5, "{} % lost", loss(&meagre, "video"));
}

#[test]
fn traffic_beyond_a_reservation_is_best_effort() {
    let meagre = RESERVATION.replace("400 kbit/s", "200 kbit/s");
    let lost = loss(&run(&format!("{CROWDED}{meagre}")), "video");
    assert!(lost > 10.0 && lost < 50.0, "of twice what is reserved {lost} % is lost");
}

#[test]
fn each_flow_in_a_class_of_its_own_gets_an_equal_share() {
    let by_flow = "kind = \"wfq\", unreserved = \"by-flow\"";
    let results = run(&CROWDED.replace("kind = \"wfq\"", by_flow));
    let delivered = |group: &str| column(&results, "flows", "goodput_bps", group);
    for rate in delivered("crowd").into_iter().chain(delivered("video")) {
        assert!((rate - 250_000.0).abs() < 5_000.0, "{rate} bit/s of a quarter of 1 Mbit/s");
    }
}

const CONVERSATION: &str = r#"
    duration = "60 s"
    [topology]
    kind = "dumbbell"
    bottleneck = { rate = "1 Mbit/s", delay = "5 ms" }
    access = { rate = "10 Mbit/s", delay = "1 ms" }
    [flows.images]
    application = { kind = "respond", smallest = "18 kB", largest = "58 kB" }
    transport = { kind = "tcp", packet = "1500 B" }
    [flows.requests]
    from = "right"
    application = { kind = "request", of = "images", size = "300 bytes", think = "200 ms" }
    transport = { kind = "tcp", packet = "340 B" }
    [measure]
    messages = true
    intervals = "500 ms"
"#;

#[test]
fn a_request_follows_each_answer_after_the_pause_and_an_answer_each_request() {
    let results = run(CONVERSATION);
    let times = |group: &str, name: &str| column(&results, "messages", name, group);
    let (asked, heard) = (times("requests", "sent_s"), times("requests", "received_s"));
    let (answered, seen) = (times("images", "sent_s"), times("images", "received_s"));
    assert!(seen.len() > 60, "{} images in a minute", seen.len());
    for (heard, answered) in heard.iter().zip(&answered) {
        assert!((heard - answered).abs() < 1e-9, "an answer is sent when its request has come");
    }
    for (seen, asked) in seen.iter().zip(&asked[1..]) {
        assert!((asked - seen - 0.2).abs() < 1e-9, "the next request follows after the pause");
    }
    let sizes = times("images", "payload_bytes");
    assert!(sizes.iter().all(|size| (18_000.0..=58_000.0).contains(size)));
    assert!((mean(&sizes) - 38_000.0).abs() < 3_500.0, "{} bytes on average", mean(&sizes));
}

#[test]
fn intervals_add_up_to_the_messages() {
    let results = run(CONVERSATION);
    let received = column(&results, "intervals", "received_messages", "images");
    let messages = column(&results, "messages", "delay_s", "images");
    assert_eq!(received.iter().sum::<f64>(), messages.len() as f64);
    let jitter = column(&results, "messages", "jitter_s", "images");
    let steps = messages.windows(2).map(|pair| (pair[1] - pair[0]).abs());
    for (jitter, step) in jitter.iter().zip(steps) {
        assert!((jitter - step).abs() < 1e-9);
    }
}

#[test]
fn a_program_that_blocks_sends_no_faster_than_its_socket_takes() {
    let text = r#"
        duration = "60 s"
        [topology]
        kind = "dumbbell"
        bottleneck = { rate = "200 kbit/s", delay = "5 ms", queue = { kind = "drop-tail", limit = "64 packets" } }
        access = { rate = "10 Mbit/s", delay = "1 ms" }
        [flows.program]
        application = { kind = "messages", interval = { low = "10 ms", high = "10 ms" }, buffer = "8 packets" }
        transport = { kind = "tcp" }
        [measure]
        from = "10 s"
        messages = true
        intervals = "500 ms"
    "#;
    let results = run(text);
    let rate = |name: &str| mean(&column(&results, "intervals", name, "program"));
    assert!((rate("sent_bps") - rate("received_bps")).abs() < 2_000.0);
    // Eight packets ahead at 40 ms each, and the one that waits for buffer space.
    assert!(longest(&results, "program") < 9.5 * 0.040 + 0.010);
}
