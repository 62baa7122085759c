//! How PERT's round trips are sampled, as whole scenarios: what its largest queueing delay becomes.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, UInt64Type};
use arrow_array::{ArrayAccessor, StringArray};
use ontempo_simulator::{Control, Results, Simulation};

/// The longest wait in the queue: 50 packets of 1,000 bytes over 10 Mbit/s.
const QUEUE_S: f64 = 0.04;

/// Three transfers over PERT and three over Reno, which fill the queue.
fn scenario(congestion: &str, more: &str) -> String {
    let pert = format!(r#"{{ kind = "pert", {congestion} }}"#);
    format!(
        r#"
        duration = "60 s"
        tcp-profile = "ns-2"
        [topology]
        kind = "dumbbell"
        access = {{ rate = "1 Gbit/s", delay = "1 ms" }}
        [topology.bottleneck]
        rate = "10 Mbit/s"
        delay = "18 ms"
        queue = {{ kind = "drop-tail", limit = "50 packets" }}
        [flows.pert]
        count = 3
        application = {{ kind = "ftp" }}
        transport = {{ kind = "tcp", congestion = {pert}, packet = "1000 B" {more} }}
        start = {{ low = "0 s", high = "1 s" }}
        [flows.reno]
        count = 3
        application = {{ kind = "ftp" }}
        transport = {{ kind = "tcp", congestion = "reno", packet = "1000 B" }}
        start = {{ low = "0 s", high = "1 s" }}
        [measure]
        sample-every = "1 s"
        "#
    )
}

fn run(text: &str) -> Results {
    let scenario = ontempo_scenario::parse(text, "test.toml").expect("the scenario is valid");
    let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
    simulation.run(&Control::default()).expect("nobody cancels it")
}

/// The last value of a quantity, of each PERT flow.
fn last(results: &Results, quantity: &str) -> Vec<f64> {
    let samples = &results.table("samples").expect("there is such a table").batch;
    let column = |name: &str| samples.column_by_name(name).expect("there is such a column");
    let dictionary = |name: &str| column(name).as_dictionary::<Int32Type>();
    let (subjects, quantities) = (dictionary("subject"), dictionary("quantity"));
    let subjects = subjects.downcast_dict::<StringArray>().expect("it holds texts");
    let quantities = quantities.downcast_dict::<StringArray>().expect("it holds texts");
    let values = column("value").as_primitive::<Float64Type>();
    let mut found = vec![f64::NAN; 3];
    for row in 0..samples.num_rows() {
        if quantities.value(row) == quantity
            && let Some(index) = subjects.value(row).strip_prefix("pert.")
        {
            found[index.parse::<usize>().expect("a number")] = values.value(row);
        }
    }
    found
}

fn retransmitted(results: &Results) -> u64 {
    let flows = &results.table("flows").expect("there is such a table").batch;
    let column = flows.column_by_name("retransmitted").expect("there is such a column");
    column.as_primitive::<UInt64Type>().values().iter().sum()
}

fn largest(congestion: &str, more: &str) -> Vec<f64> {
    let results = run(&scenario(congestion, more));
    assert!(retransmitted(&results) > 100, "losses are what this is about");
    last(&results, "largest_queueing_delay_s")
}

#[test]
fn the_largest_queueing_delay_is_the_queue_where_each_packet_is_measured_by_itself() {
    for delay in largest("samples = \"all\"", "") {
        assert!((0.75 * QUEUE_S..=1.05 * QUEUE_S).contains(&delay), "{delay}");
    }
}

#[test]
fn from_every_ack_it_contains_the_repair_of_a_loss() {
    // An episode's duplicates echo the packet before the gap: at least a round trip, of 40 ms and the
    // queue, longer than that.
    for delay in largest("samples = \"every-ack\"", "") {
        assert!(delay > 0.04 + QUEUE_S, "{delay}");
    }
}

#[test]
fn against_the_packet_acknowledged_cumulatively_it_contains_the_wait_of_a_retransmission() {
    for delay in largest("samples = \"cumulative\"", "") {
        assert!(delay > 0.04 + QUEUE_S, "{delay}");
    }
    // Without time stamps, too: the sender's own clock decides.
    for delay in largest("samples = \"cumulative\"", ", timestamps = false") {
        assert!(delay > 0.04 + QUEUE_S, "{delay}");
    }
}

#[test]
fn only_a_loss_makes_the_rules_differ() {
    // Windows that never overflow the queue: each ACK advances by one packet, whose stamp it echoes.
    let lossless = |samples: &str| {
        let text = scenario(&format!("samples = \"{samples}\""), "")
            .replace("limit = \"50 packets\"", "limit = \"150 packets\"")
            .replace("packet = \"1000 B\"", "packet = \"1000 B\", receive-window = \"20 packets\"");
        let results = run(&text);
        assert_eq!(retransmitted(&results), 0);
        last(&results, "largest_queueing_delay_s")
    };
    let all = lossless("all");
    assert!(all.iter().all(|delay| *delay > 0.02), "{all:?}");
    assert_eq!(all, lossless("every-ack"));
    assert_eq!(all, lossless("cumulative"));
}
