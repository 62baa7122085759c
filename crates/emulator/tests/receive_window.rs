//! A TCP flow whose receive window the scenario limits; needs the rights of root.

use std::path::Path;

use arrow_array::StringArray;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type};
use ontempo_emulator::{Control, Emulation, Options};
use ontempo_testing::{require_programs, require_root, skip};

const WINDOWS: [u64; 3] = [4, 20, 150];

/// The samples of a flow with this window: those of what is in flight, in packets.
fn in_flight(window: u64, packet: u64) -> Vec<f64> {
    let text = format!(
        r#"
duration = "3 s"
[topology]
kind = "dumbbell"
bottleneck = {{ rate = "100 Mbit/s", delay = "50 ms", queue = {{ kind = "drop-tail", limit = "5000 packets" }} }}
access = {{ rate = "1 Gbit/s", delay = "0 s" }}
[flows.one]
application = {{ kind = "ftp" }}
transport = {{ kind = "tcp", packet = "{packet} B", receive-window = "{window} packets" }}
[measure]
sample-every = "10 ms"
"#
    );
    let scenario = ontempo_scenario::parse(&text, "s.toml").expect("a scenario");
    let name = Some(format!("window{}-{window}-{packet}", std::process::id()));
    let emulation = Emulation::new(&scenario, Options { name, ..Options::default() });
    let results = emulation.expect("the hosts").run(&Control::default()).expect("it runs");
    let samples = results.tables.iter().find(|table| table.name == "samples").expect("samples");
    let column = |name: &str| samples.batch.column_by_name(name).expect("a column");
    let quantities = column("quantity").as_dictionary::<Int32Type>();
    let quantities = quantities.downcast_dict::<StringArray>().expect("texts");
    let values = column("value").as_primitive::<Float64Type>();
    let both = quantities.into_iter().zip(values.iter());
    both.filter(|(quantity, _)| *quantity == Some("in_flight_packets"))
        .filter_map(|(_, v)| v)
        .collect()
}

#[test]
fn what_is_in_flight_fills_the_receive_window_of_the_scenario_and_no_more() {
    if !require_root() || !require_programs(&["ip"]) {
        return;
    }
    if !Path::new("/dev/net/tun").exists() {
        skip!("this kernel has no /dev/net/tun");
    }
    for packet in [1500, 300] {
        for window in WINDOWS {
            // The kernel is told again once it has seen a full packet; until then slow start may pass a small window.
            let samples = in_flight(window, packet).split_off(100);
            let most = samples.iter().copied().fold(0.0, f64::max);
            println!(
                "{window} packets of {packet} B: at most {most} in flight, last {:?}",
                samples.last()
            );
            assert_eq!(most, window as f64, "packets of {packet} B: {samples:?}");
        }
    }
}
