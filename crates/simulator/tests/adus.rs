//! Whole runs of application data units: emitted, lost, retransmitted, delivered, processed.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{Array, Float64Array, StringArray, UInt64Array};
use ontempo_scenario::{Overrides, parse_with};
use ontempo_simulator::{Control, Results, Simulation};

/// 20 ADUs over a path of 100 ms each way.
const SCENARIO: &str = r#"
    duration = "600 s"
    hosts = { jitter = "0 s" }
    [topology]
    kind = "graph"
    [[topology.links]]
    from = "a"
    to = "b"
    duplex = false
    rate = "100 Gbit/s"
    delay = "100 ms"
    loss = { kind = "trace", lost = [] }
    [[topology.links]]
    from = "b"
    to = "a"
    duplex = false
    rate = "100 Gbit/s"
    delay = "100 ms"
    loss = { kind = "trace", lost = [] }
    [flows.adus]
    from = "a"
    to = "b"
    application = { kind = "adus", count = 20, processing = "4 ms" }
    transport = { kind = "adu" }
    [measure]
    adus = true
"#;

fn run(overrides: &[&str]) -> Results {
    run_with_seed(overrides, 1)
}

fn run_with_seed(overrides: &[&str], seed: u64) -> Results {
    let overrides = Overrides::parse(overrides).expect("they can be read");
    let scenario = parse_with(SCENARIO, "adus.toml", &overrides).expect("it is valid");
    let simulation = Simulation::new(&scenario, seed).expect("it can be set up");
    simulation.run(&Control::default()).expect("nobody cancels")
}

/// A column in milliseconds, rounded to the microsecond.
fn millis(results: &Results, name: &str) -> Vec<f64> {
    let batch = &results.table("adus").expect("it is there").batch;
    let column = batch.column_by_name(name).expect("it is there");
    let column: &Float64Array = column.as_any().downcast_ref().expect("numbers");
    column.values().iter().map(|seconds| (seconds * 1e6).round() / 1e3).collect()
}

fn counts(results: &Results, table: &str, name: &str) -> Vec<u64> {
    let batch = &results.table(table).expect("it is there").batch;
    let column = batch.column_by_name(name).expect("it is there");
    let column: &UInt64Array = column.as_any().downcast_ref().expect("counts");
    column.values().to_vec()
}

/// The ADUs in order of delivery.
fn order(results: &Results) -> Vec<u64> {
    let delivered = millis(results, "delivered_s");
    let mut order: Vec<u64> = (0..delivered.len() as u64).collect();
    order.sort_by(|a, b| delivered[*a as usize].total_cmp(&delivered[*b as usize]));
    order
}

const FOURTH_LOST: &str = "topology.links.0.loss.lost=[4]";

#[test]
fn without_losses_an_adu_is_emitted_each_interval_and_processed_as_it_comes() {
    let results = run(&[]);
    let emitted: Vec<f64> = (0..20).map(|adu| 10.0 * f64::from(adu)).collect();
    assert_eq!(millis(&results, "emitted_s"), emitted);
    assert_eq!(millis(&results, "due_s"), emitted);
    let after = |delay: f64| emitted.iter().map(|at| at + delay).collect::<Vec<f64>>();
    assert_eq!(millis(&results, "arrived_s"), after(100.0));
    assert_eq!(millis(&results, "delivered_s"), after(100.0));
    assert_eq!(millis(&results, "processed_s"), after(104.0));
    assert_eq!(counts(&results, "flows", "acks"), [10]);
}

#[test]
fn a_lost_adu_holds_up_those_behind_it_in_order_and_itself_alone_out_of_sequence() {
    let ordered = run(&[FOURTH_LOST]);
    // The acknowledgement of ADUs 5 and 6 reveals the loss at 260 ms.
    assert_eq!(millis(&ordered, "arrived_s")[4], 360.0);
    assert_eq!(counts(&ordered, "adus", "retransmissions")[4], 1);
    let delivered = millis(&ordered, "delivered_s");
    let expected: Vec<f64> = (0..16).map(|behind| 360.0 + 4.0 * f64::from(behind)).collect();
    assert_eq!(delivered[4..], expected);

    let loose = run(&[FOURTH_LOST, "flows.adus.transport.delivery=out-of-order"]);
    assert_eq!(millis(&loose, "delivered_s"), millis(&loose, "arrived_s"));
    let mut late = order(&loose);
    assert_eq!(late.pop(), Some(4));
    assert!(late.is_sorted());
}

#[test]
fn in_partial_order_a_lost_table_holds_up_its_image_alone() {
    let images = "flows.adus.application.depends={ kind = \"images\", adus = 10, tables = 2 }";
    let partial = "flows.adus.transport.delivery=partial-order";
    let table = run(&[images, partial, "topology.links.0.loss.lost=[1]"]);
    let (arrived, delivered) = (millis(&table, "arrived_s"), millis(&table, "delivered_s"));
    let held: Vec<usize> = (0..20).filter(|adu| delivered[*adu] > arrived[*adu]).collect();
    assert!(held.iter().all(|adu| *adu < 15), "{held:?}");
    assert!((2..10).all(|adu| held.contains(&adu)), "the image waits: {held:?}");
    assert!(delivered[19] < 320.0, "the second image does not wait for the first");
    assert_eq!(order(&table).iter().position(|adu| *adu == 1), Some(11));

    let data = run(&[images, partial, FOURTH_LOST]);
    assert_eq!(order(&data).last(), Some(&4));
}

#[test]
fn a_lost_end_and_lost_acknowledgements_are_repaired_by_the_timer() {
    for overrides in [
        ["topology.links.0.loss.lost=[17, 18, 19]", "topology.links.1.loss.lost=[]"],
        ["topology.links.0.loss.lost=[3]", "topology.links.1.loss.lost=[0,1,2,3,4,5,6,7,8,9]"],
    ] {
        let results = run(&overrides);
        assert_eq!(millis(&results, "processed_s").len(), 20);
        assert!(counts(&results, "flows", "timeouts")[0] > 0);
    }
}

#[test]
fn an_application_slower_than_the_sender_shuts_the_window_and_is_never_idle() {
    let results = run(&[
        "flows.adus.application.processing=50 ms",
        "flows.adus.application.count=200",
        "flows.adus.transport.window=32 packets",
    ]);
    let (arrived, delivered) = (millis(&results, "arrived_s"), millis(&results, "delivered_s"));
    for (place, taken) in delivered.iter().enumerate() {
        assert_eq!(*taken, 100.0 + 50.0 * place as f64, "ADU {place}");
    }
    let most = arrived.iter().map(|at| {
        let held = arrived.iter().zip(&delivered).filter(|(a, d)| *a <= at && *d > at);
        held.count()
    });
    assert!(most.max().expect("some") <= 32, "no more than there are buffers");
    assert_eq!(counts(&results, "flows", "timeouts"), [0]);
}

#[test]
fn the_sequence_rule_lets_the_buffer_grow() {
    let results = run(&[
        "flows.adus.application.processing=50 ms",
        "flows.adus.application.count=200",
        "flows.adus.transport.window-counts=numbers",
    ]);
    assert_eq!(millis(&results, "emitted_s")[199], 1990.0);
}

#[test]
fn over_one_tcp_stream_adus_are_taken_in_order_by_the_same_application() {
    let tcp = "flows.adus.transport={ kind = \"tcp\", profile = \"ns-2\" }";
    let results = run(&[tcp, FOURTH_LOST]);
    let delivered = millis(&results, "delivered_s");
    assert_eq!(delivered.len(), 20);
    assert!(delivered.windows(2).all(|pair| pair[1] - pair[0] >= 4.0));
    let arrived = millis(&results, "arrived_s");
    assert!(arrived[5] < arrived[4], "it was sent again");
    assert_eq!(counts(&results, "adus", "retransmissions")[4], 1);
}

#[test]
fn random_losses_on_both_ways_lose_nothing_and_the_same_seed_gives_the_same_tables() {
    for delivery in ["in-order", "out-of-order", "partial-order"] {
        for interval in ["0 ms", "10 ms"] {
            let delivery = format!("flows.adus.transport.delivery={delivery}");
            let interval = format!("flows.adus.transport.interval={interval}");
            let overrides = [
                "flows.adus.application.count=300",
                "topology.links.0.loss={ kind = \"gilbert\", p = 0.2, q = 0.3 }",
                "topology.links.1.loss={ kind = \"bernoulli\", rate = 0.3 }",
                &delivery,
                &interval,
            ];
            let results = run_with_seed(&overrides, 7);
            assert_eq!(millis(&results, "processed_s").len(), 300);
            assert_eq!(run_with_seed(&overrides, 7).tables, results.tables);
        }
    }
}

/// The samples of a quantity: time in milliseconds, and value.
fn sampled(results: &Results, quantity: &str) -> Vec<(u64, f64)> {
    let batch = &results.table("samples").expect("it is there").batch;
    let names = batch["quantity"].as_dictionary::<Int32Type>();
    let names = names.downcast_dict::<StringArray>().expect("text");
    let times = batch["time_s"].as_primitive::<Float64Type>().values();
    let values = batch["value"].as_primitive::<Float64Type>().values();
    let samples = names.into_iter().zip(times.iter().zip(values));
    let of_quantity = samples.filter(|(name, _)| *name == Some(quantity));
    of_quantity.map(|(_, (time, value))| ((time * 1e3).round() as u64, *value)).collect()
}

#[test]
fn the_buffer_and_what_is_in_flight_are_sampled() {
    let results = run(&[FOURTH_LOST, "measure.sample-every=25 ms", "duration=475 ms"]);
    let at = |quantity: &str, millis: &[u64]| -> Vec<f64> {
        let samples = sampled(&results, quantity);
        assert_eq!(samples.len(), 20, "one each 25 ms, the first at 0 and the last at 475");
        let of_time = |time: &u64| samples.iter().find(|(at, _)| at == time);
        millis.iter().map(|time| of_time(time).expect("a sample").1).collect()
    };
    // ADU n arrives 100 + 10 n ms after the start. Number 4 arrives at 360 ms; those behind it wait
    // until then, and are taken one every 4 ms.
    let waiting = at("buffered_adus", &[125, 175, 225, 275, 325, 375, 425]);
    assert_eq!(waiting, [0.0, 3.0, 8.0, 13.0, 15.0, 12.0, 0.0]);
    // One is sent every 10 ms; the first two are acknowledged after 210 ms, two more every 20 ms.
    // The last and the retransmitted one are acknowledged together, at 460 ms.
    let in_flight = at("in_flight_packets", &[125, 175, 225, 450, 475]);
    assert_eq!(in_flight, [13.0, 18.0, 18.0, 2.0, 0.0]);
}

#[test]
fn units_that_never_arrive_have_rows_without_a_time_of_delivery() {
    let lost = "topology.links.0.loss.lost=[3, 7]";
    let stream = "flows.adus.application={ kind = \"cbr\", interval = \"10 ms\" }";
    let stop = ["flows.adus.stop=100 ms", "flows.adus.playout=[\"1 s\"]", "duration=1 s"];
    let udp = "flows.adus.transport={ kind = \"udp\" }";
    let results = run(&[[lost, stream, udp].as_slice(), &stop].concat());
    let batch = &results.table("adus").expect("it is there").batch;
    let delivered = batch.column_by_name("delivered_s").expect("it is there");
    let mut missing: Vec<u64> = counts(&results, "adus", "unit")
        .into_iter()
        .enumerate()
        .filter_map(|(row, unit)| delivered.is_null(row).then_some(unit))
        .collect();
    missing.sort_unstable();
    assert_eq!((batch.num_rows(), missing), (10, vec![3, 7]));

    // Of ADUs over a transport that repairs, what had not arrived when the run ended.
    let early = run(&[FOURTH_LOST, "duration=150 ms"]);
    let batch = &early.table("adus").expect("it is there").batch;
    assert_eq!(batch.num_rows(), 20);
    assert!(batch.column_by_name("delivered_s").expect("it is there").null_count() > 1);
}

const TOLD: &str = r#"flows.adus.transport.loss-known-after="100 ms""#;

#[test]
fn a_told_loss_is_repaired_after_its_own_way_whatever_the_acknowledgements() {
    for every in ["1", "2", "16"] {
        let acks = format!(r#"flows.adus.transport.ack-every="{every} packets""#);
        let results = run(&[FOURTH_LOST, TOLD, &acks]);
        // Sent at 40 ms, it would have arrived at 140 ms.
        assert_eq!(millis(&results, "emitted_s")[4], 40.0);
        assert_eq!(millis(&results, "last_emitted_s")[4], 240.0);
        assert_eq!(millis(&results, "arrived_s")[4], 340.0);
        assert_eq!(counts(&results, "flows", "timeouts"), [0]);
        assert_eq!(counts(&results, "flows", "retransmitted"), [1]);
        assert_eq!(counts(&results, "flows", "dropped_packets"), [1]);
    }
}

#[test]
fn a_told_loss_is_told_again_and_a_lost_end_needs_no_timer() {
    let lost = "topology.links.0.loss.lost=[19, 20, 21]";
    let results = run(&[lost, TOLD]);
    // Sent at 190 ms, and each 200 ms after that.
    assert_eq!(millis(&results, "emitted_s")[19], 190.0);
    assert_eq!(millis(&results, "last_emitted_s")[19], 790.0);
    assert_eq!(millis(&results, "arrived_s")[19], 890.0);
    assert_eq!(counts(&results, "flows", "timeouts"), [0]);
}

#[test]
fn random_told_losses_lose_nothing_and_keep_the_order_of_the_link() {
    let lossy = r#"topology.links.0.loss={ kind = "bernoulli", rate = 0.3 }"#;
    let delay = r#"topology.links.0.delay={ kind = "exponential", mean = "100 ms" }"#;
    let many = "flows.adus.application.count=500";
    for delivery in ["in-order", "out-of-order"] {
        let delivery = format!(r#"flows.adus.transport.delivery="{delivery}""#);
        let results = run(&[lossy, delay, many, TOLD, &delivery]);
        assert_eq!(order(&results).len(), 500);
        assert!(millis(&results, "arrived_s").iter().all(|at| at.is_finite()));
        // Those that were sent once arrive in the order in which they were sent.
        let again = counts(&results, "adus", "retransmissions");
        let arrived = millis(&results, "arrived_s");
        let once: Vec<f64> =
            (0..500).filter(|adu| again[*adu] == 0).map(|adu| arrived[adu]).collect();
        assert!(once.is_sorted());
        assert!(once.len() < 450);
    }
}

#[test]
fn the_first_timeout_can_be_set() {
    let alone = ["topology.links.0.loss.lost=[0]", "flows.adus.application.count=1"];
    assert_eq!(millis(&run(&alone), "arrived_s"), [1100.0]);
    let sooner = r#"flows.adus.transport.initial-rto="300 ms""#;
    let sooner = run(&[alone[0], alone[1], sooner]);
    assert_eq!(millis(&sooner, "arrived_s"), [400.0]);
}

#[test]
fn a_receiver_that_does_not_tell_space_acknowledges_arrivals_alone() {
    let slow = r#"flows.adus.application.processing="50 ms""#;
    let silent = "flows.adus.transport.tells-space=false";
    assert_eq!(counts(&run(&[slow, silent]), "flows", "acks"), [10]);
    assert!(counts(&run(&[slow]), "flows", "acks") > vec![10]);
}
