//! How many packets does one core simulate in a second?
//!
//! `make bench`, or `cargo bench -p ontempo-simulator`. Each scenario runs three times; the
//! fastest run counts, since whatever else the machine does can only slow one down. A packet is
//! one data packet whose transmission over the bottleneck began.

use std::time::Instant;

use ontempo_simulator::{Control, Simulation};

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
            results.bottleneck_departures as f64 / start.elapsed().as_secs_f64()
        })
        .fold(0.0, f64::max);
    println!("{name}: {:.2} million packets a second", best / 1e6);
}
