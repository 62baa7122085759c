fn main() {
    let path = std::env::args().nth(1).unwrap();
    let seed = std::env::args().nth(2).map_or(1, |s| s.parse().unwrap());
    let s = ontempo_scenario::load(std::path::Path::new(&path)).unwrap_or_else(|e| panic!("{e}"));
    let t = std::time::Instant::now();
    let hw = || {
        std::fs::read_to_string("/proc/self/status")
            .unwrap()
            .lines()
            .find(|l| l.starts_with("VmHWM"))
            .unwrap()
            .to_owned()
    };
    println!("{}", hw());
    let sim = ontempo_simulator::Simulation::new(&s, seed).unwrap();
    println!("{}", hw());
    let r = sim.run(&Default::default()).unwrap();
    let dt = t.elapsed().as_secs_f64();
    println!(
        "{} events in {:.3}s; {}",
        r.events,
        dt,
        std::fs::read_to_string("/proc/self/status")
            .unwrap()
            .lines()
            .find(|l| l.starts_with("VmHWM"))
            .unwrap()
    );
    let f = &r.table("flows").unwrap().batch;
    let g = f
        .column_by_name("goodput_bps")
        .unwrap()
        .as_any()
        .downcast_ref::<arrow::array::Float64Array>()
        .unwrap();
    let sum: f64 = g.iter().flatten().sum();
    let sq: f64 = g.iter().flatten().map(|x| x * x).sum();
    let tot = |n: &str| {
        f.column_by_name(n)
            .unwrap()
            .as_any()
            .downcast_ref::<arrow::array::UInt64Array>()
            .unwrap()
            .iter()
            .flatten()
            .sum::<u64>()
    };
    println!(
        "goodput {:.4} jain {:.4} retransmitted {} timeouts {} cuts {} early {}",
        sum / 1e6,
        sum * sum / sq / g.len() as f64,
        tot("retransmitted"),
        tot("timeouts"),
        tot("reductions"),
        tot("early_responses")
    );
    let l = &r.table("links").unwrap().batch;
    use arrow::array::*;
    let names = l
        .column_by_name("link")
        .unwrap()
        .as_any()
        .downcast_ref::<DictionaryArray<arrow::datatypes::Int32Type>>()
        .unwrap();
    let names = names.downcast_dict::<StringArray>().unwrap();
    for i in 0..l.num_rows() {
        let n = names.value(i);
        if n == "bottleneck" || n == "reverse" {
            let c = |n: &str| {
                l.column_by_name(n)
                    .unwrap()
                    .as_any()
                    .downcast_ref::<UInt64Array>()
                    .unwrap()
                    .value(i)
            };
            let m = l
                .column_by_name("mean_packets")
                .unwrap()
                .as_any()
                .downcast_ref::<Float64Array>()
                .unwrap()
                .value(i);
            println!(
                "{n}: arrivals {} departures {} drops {} mean {:.3}",
                c("arrivals"),
                c("departures"),
                c("dropped_full") + c("dropped_early"),
                m
            );
        }
    }
}
