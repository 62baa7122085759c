//! How many packets does one core simulate in a second?
//!
//! `make bench`, or `cargo bench -p ontempo-simulator`. Each scenario runs three times; the
//! fastest run counts, since whatever else the machine does can only slow one down. A packet is
//! one data packet that reached its receiver; its ACK is not counted.

use std::time::Instant;

use arrow::array::AsArray;
use arrow::compute::sum;
use arrow::datatypes::UInt64Type;
use ontempo_simulator::{Control, Results, Simulation};

const RUNS: u32 = 3;

const LONG_FLOWS: &str = include_str!("../../scenario/tests/scenarios/many.toml");
const VIDEOS: &str = include_str!("../../../experiments/pert/video.toml");

fn main() {
    measure("25 long Reno flows, 200 s", LONG_FLOWS, &[]);
    measure("25 videos, 25 files, 300 web users, 700 s", VIDEOS, &["duration=700 s"]);
}

fn measure(name: &str, text: &str, overrides: &[&str]) {
    let overrides = ontempo_scenario::Overrides::parse(overrides).expect("overrides are valid");
    let scenario = ontempo_scenario::parse_with(text, "bench.toml", &overrides)
        .expect("the scenario is valid");
    let best = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            let results = Simulation::new(&scenario, 1)
                .expect("the scenario can be set up")
                .run(&Control::default())
                .expect("nobody cancels");
            delivered(&results) as f64 / start.elapsed().as_secs_f64()
        })
        .fold(0.0, f64::max);
    println!("{name}: {:.2} million packets a second", best / 1e6);
}

fn delivered(results: &Results) -> u64 {
    let flows = &results.table("flows").expect("every run has it").batch;
    let packets = flows.column_by_name("delivered_packets").expect("the schema has it");
    sum(packets.as_primitive::<UInt64Type>()).unwrap_or_default()
}
