//! PERT as the kernel has it, beside flows that respond to losses only, and without them.

use arrow_array::ArrayAccessor;
use arrow_array::StringArray;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type};
use ontempo_simulator::{Control, Results, Simulation};

/// 20 Mbit/s and 40 ms, which hold 66 packets; a queue of `limit` packets, and the flows.
fn scenario(limit: u64, seconds: u64, from: u64, flows: &str) -> String {
    format!(
        r#"
        duration = "{seconds} s"
        [topology]
        kind = "dumbbell"
        access = {{ rate = "1 Gbit/s", delay = "1 ms" }}
        [topology.bottleneck]
        rate = "20 Mbit/s"
        delay = "18 ms"
        queue = {{ kind = "drop-tail", limit = "{limit} packets" }}
        [measure]
        from = "{from} s"
        {flows}
        "#
    )
}

fn flow(name: &str, count: u64, application: &str, congestion: &str) -> String {
    format!(
        r#"
        [flows.{name}]
        count = {count}
        application = {application}
        transport = {{ kind = "tcp", congestion = {congestion}, packet = "1500 bytes" }}
        start = {{ low = "0 s", high = "1 s" }}
        "#
    )
}

const ENDLESS: &str = r#"{ kind = "ftp" }"#;
const AS_RENO: &str = r#"{ kind = "pert", compete = "as-reno" }"#;
const THESIS: &str = r#"{ kind = "pert", compete = "alpha" }"#;

fn run(text: &str, seed: u64) -> Results {
    let scenario = ontempo_scenario::parse(text, "test.toml").expect("the scenario is valid");
    let simulation = Simulation::new(&scenario, seed).expect("it can be set up");
    simulation.run(&Control::default()).expect("nobody cancels it")
}

/// Mbit/s of all flows of a group.
fn goodput(results: &Results, group: &str) -> f64 {
    let flows = &results.table("flows").expect("there is such a table").batch;
    let column = |name: &str| flows.column_by_name(name).expect("there is such a column");
    let groups = column("group").as_dictionary::<Int32Type>();
    let groups = groups.downcast_dict::<StringArray>().expect("it holds texts");
    let rates = column("goodput_bps").as_primitive::<Float64Type>();
    (0..flows.num_rows())
        .filter(|&row| groups.value(row) == group)
        .map(|row| rates.value(row) / 1e6)
        .sum()
}

/// Mean packets in the bottleneck's queue.
fn queue(results: &Results) -> f64 {
    let links = &results.table("links").expect("there is such a table").batch;
    let column = |name: &str| links.column_by_name(name).expect("there is such a column");
    let names = column("link").as_dictionary::<Int32Type>();
    let names = names.downcast_dict::<StringArray>().expect("it holds texts");
    let row = (0..links.num_rows()).find(|&row| names.value(row) == "bottleneck");
    column("mean_packets").as_primitive::<Float64Type>().value(row.expect("there is such a link"))
}

/// PERT's mean goodput beside one flow of `other`, over four seeds.
fn beside(other: &str, limit: u64, pert: &str) -> f64 {
    let flows = flow("pert", 1, ENDLESS, pert) + &flow("other", 1, ENDLESS, other);
    let text = scenario(limit, 120, 20, &flows);
    (1..=4).map(|seed| goodput(&run(&text, seed), "pert")).sum::<f64>() / 4.0
}

#[test]
fn beside_one_loss_based_flow_it_has_at_least_half_of_its_fair_share() {
    // Half a bandwidth-delay product to four of them. A fair share is 10 Mbit/s.
    for limit in [33, 66, 133, 266] {
        for other in ["\"cubic\"", "\"reno\""] {
            let pert = beside(other, limit, AS_RENO);
            println!("{limit} packets beside {other}: {pert:.2} Mbit/s");
            assert!(pert >= 5.0, "{pert} Mbit/s beside {other}, {limit} packets");
        }
    }
    let (as_reno, thesis) = (beside("\"cubic\"", 66, AS_RENO), beside("\"cubic\"", 66, THESIS));
    assert!(thesis < as_reno / 1.5, "{thesis} Mbit/s by the thesis' letter, {as_reno} as Reno");
}

#[test]
fn without_loss_based_flows_the_queue_is_as_short_as_in_the_thesis() {
    for (count, limit) in [(1, 66), (4, 66), (4, 266)] {
        let of = |congestion| {
            let text = scenario(limit, 40, 10, &flow("pert", count, ENDLESS, congestion));
            queue(&run(&text, 1))
        };
        let (as_reno, thesis) = (of(AS_RENO), of(THESIS));
        assert!(as_reno < 1.1 * thesis, "{count} flows: {as_reno}, by the thesis {thesis} packets");
    }
}

#[test]
fn when_the_download_beside_it_has_ended_the_queue_is_short_again() {
    // 60 MB take a minute or less.
    let download = flow("other", 1, r#"{ kind = "file", size = "60 MB" }"#, "\"cubic\"");
    for (limit, count) in [(66, 1), (66, 4), (266, 3)] {
        let text = scenario(limit, 220, 180, &(flow("pert", count, ENDLESS, AS_RENO) + &download));
        for seed in 1..=3 {
            let packets = queue(&run(&text, seed));
            assert!(packets < 20.0, "{packets} of {limit} packets, {count} flows, seed {seed}");
        }
    }
}
