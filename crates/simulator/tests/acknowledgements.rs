//! Coalesced acknowledgements, run as scenarios.

use arrow_array::StringArray;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, UInt64Type};
use ontempo_simulator::{Control, Results, Simulation};

/// A transfer with a window of two packets; its RTT is 44 ms without the packets' transmission
/// times.
const TWO_PACKETS: &str = r#"
    duration = "20 s"
    [topology]
    kind = "dumbbell"
    access = { rate = "10 Mbit/s", delay = "2 ms" }
    bottleneck = { rate = "10 Mbit/s", delay = "18 ms" }
    [flows.ftp]
    application = { kind = "ftp" }
    [flows.ftp.transport]
    kind = "tcp"
    packet = "1000 B"
    receive-window = "2 packets"
    ack = { kind = "adaptive", most = "4 packets" }
    [measure]
    from = "5 s"
"#;

fn run(text: &str) -> Results {
    let scenario = ontempo_scenario::parse(text, "test.toml").expect("the scenario is valid");
    let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
    simulation.run(&Control::default()).expect("nobody cancels it")
}

#[test]
fn no_ack_waits_for_more_packets_than_the_senders_window() {
    let results = run(TWO_PACKETS);
    let flows = &results.table("flows").expect("there is such a table").batch;
    let column = |name: &str| flows.column_by_name(name).expect("there is such a column");
    let goodput = column("goodput_bps").as_primitive::<Float64Type>().value(0);
    let count = |name: &str| column(name).as_primitive::<UInt64Type>().value(0) as f64;
    // One ACK covers both packets of the window, and none waits for the timer: 2 packets in 44
    // ms and the transmission times on four links.
    assert!((count("delivered_packets") / count("acks") - 2.0).abs() < 0.05);
    assert!((330e3..345e3).contains(&goodput), "{goodput}");
}

#[test]
fn a_loss_halves_the_receive_window_where_it_is_what_limits_the_sender() {
    let results = run(r#"
        duration = "20 s"
        [topology]
        kind = "dumbbell"
        access = { rate = "100 Mbit/s", delay = "2 ms" }
        [topology.bottleneck]
        rate = "100 Mbit/s"
        delay = "18 ms"
        loss = { kind = "trace", lost = [5000] }
        [flows.ftp]
        application = { kind = "ftp" }
        transport = { kind = "tcp", profile = "ns-2", receive-window = "20 packets" }
        [measure]
        sample-every = "10 ms"
    "#);
    let samples = &results.table("samples").expect("there is such a table").batch;
    let names = samples["quantity"].as_dictionary::<Int32Type>();
    let names = names.downcast_dict::<StringArray>().expect("text");
    let values = samples["value"].as_primitive::<Float64Type>().values();
    let of_cwnd = names.into_iter().zip(values).filter(|(name, _)| *name == Some("cwnd_packets"));
    let cwnd: Vec<f64> = of_cwnd.map(|(_, value)| *value).collect();
    assert!(cwnd.iter().all(|cwnd| *cwnd < 21.0), "{cwnd:?}");
    let open = cwnd.iter().position(|cwnd| *cwnd >= 20.0).expect("the window opens");
    let lowest = cwnd[open..].iter().fold(f64::MAX, |least, cwnd| least.min(*cwnd));
    assert!((10.0..11.0).contains(&lowest), "{lowest}");
}
