//! How fast films are simulated: `cargo bench -p ontempo-simulator --bench carriers`.
//!
//! A film of 20 Mbit/s for 60 s over 40 Mbit/s and 50 ms with 1 % of losses, by each transport on
//! one core: packets on their way in both directions for each second of wall time, the best of three
//! runs. `ontempo` is the endpoints' own code, with its encryption.

use std::time::Instant;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt64Type};
use arrow_array::{ArrayAccessor, StringArray};
use ontempo_simulator::{Control, Results, Simulation};

const CARRIERS: [(&str, &str); 6] = [
    ("udp", r#"kind = "udp""#),
    ("tcp, bbr", r#"kind = "tcp", congestion = "bbr", packet = "1500 B""#),
    ("srt", r#"kind = "srt", latency = "200 ms""#),
    ("rist", r#"kind = "rist", buffer = "200 ms""#),
    ("adu", r#"kind = "adu", interval = "0 s", window = "2000 packets""#),
    ("ontempo", r#"kind = "ontempo", latency = "200 ms""#),
];

const SECONDS: f64 = 60.0;

fn scenario(transport: &str) -> String {
    format!(
        r#"
        duration = "{SECONDS} s"
        [topology]
        kind = "dumbbell"
        access = {{ rate = "1 Gbit/s", delay = "1 ms" }}
        [topology.bottleneck]
        rate = "40 Mbit/s"
        delay = "23 ms"
        loss = {{ kind = "bernoulli", rate = 0.01 }}
        queue = {{ kind = "drop-tail", limit = "400 packets" }}
        [flows.film]
        application = {{ kind = "media", generate = {{ rate = "20 Mbit/s" }}, latency = ["300 ms"] }}
        transport = {{ {transport} }}
        [measure]
        queues = ["bottleneck"]
        "#
    )
}

fn main() {
    println!("carrier     packets   wall time  packets a second   s of film a s");
    for (name, transport) in CARRIERS {
        let scenario = ontempo_scenario::parse(&scenario(transport), "film.toml").expect("valid");
        let times = (0..3).map(|_| {
            let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
            let begin = Instant::now();
            let results = simulation.run(&Control::default()).expect("nobody cancels it");
            (begin.elapsed().as_secs_f64(), packets(&results))
        });
        let (took, packets) =
            times.min_by(|one, next| one.0.total_cmp(&next.0)).unwrap_or_default();
        let (rate, faster) = (packets as f64 / took, SECONDS / took);
        println!("{name:10} {packets:>8} {took:>9.2} s {rate:>17.0} {faster:>15.0}");
    }
}

/// Packets that reached the bottleneck or the link back.
fn packets(results: &Results) -> u64 {
    let batch = &results.table("links").expect("it is written").batch;
    let column = |name| batch.column_by_name(name).expect("it is a column");
    let names = column("link").as_dictionary::<Int32Type>();
    let names = names.downcast_dict::<StringArray>().expect("of names");
    let arrived = column("arrivals").as_primitive::<UInt64Type>();
    let is_middle = |row: &usize| ["bottleneck", "reverse"].contains(&names.value(*row));
    (0..batch.num_rows()).filter(is_middle).map(|row| arrived.value(row)).sum()
}
