//! Files over each transport that carries them: as many packets as their bytes fill beside the headers.

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use ontempo_simulator::{Control, Simulation};
use proptest::prelude::*;

/// Packets sent of a file of so many bytes.
fn sent(size: u64, packet: u64, transport: &str) -> u64 {
    let text = format!(
        r#"
        duration = "60 s"
        [topology]
        kind = "dumbbell"
        access = {{ rate = "1 Gbit/s", delay = "1 ms" }}
        bottleneck = {{ rate = "1 Gbit/s", delay = "1 ms" }}
        [flows.file]
        application = {{ kind = "file", size = "{size} bytes" }}
        transport = {{ packet = "{packet} bytes", {transport} }}
        "#
    );
    let scenario = ontempo_scenario::parse(&text, "file.toml").expect("it is valid");
    let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
    let results = simulation.run(&Control::default()).expect("nobody cancels it");
    let flows = &results.table("flows").expect("it is there").batch;
    flows["sent_packets"].as_primitive::<UInt64Type>().value(0)
}

const SPACED: &str = r#"kind = "spaced", spacing = "10 us""#;
const TCP: &str = r#"kind = "tcp""#;

#[test]
fn headers_are_no_part_of_a_file() {
    assert_eq!(sent(972_000, 1_000, SPACED), 1_000, "972 bytes of each packet are the file's");
    assert_eq!(sent(972_001, 1_000, SPACED), 1_001);
    assert_eq!(sent(960_000, 1_000, TCP), 1_000, "960 bytes of each packet are the file's");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn a_file_takes_the_packets_that_its_bytes_fill(size in 1u64..200_000, packet in 60u64..1_500) {
        prop_assert_eq!(sent(size, packet, SPACED), size.div_ceil(packet - 28));
        prop_assert_eq!(sent(size, packet, TCP), size.div_ceil(packet - 40));
    }
}
