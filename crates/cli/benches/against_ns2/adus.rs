//! What an application data unit costs. ns-2 has no such agent.

use super::{Run, fastest};

const ADUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/rr3216/adus.toml");
/// Enough for the start of a process not to count.
const COUNT: u32 = 1_000_000;

/// A million units over the path of rr3216, section 3.2, that loses one in ten.
pub(super) fn cost() {
    let of = |delivery: &str| -> Run {
        let overrides = [
            format!("flows.adus.application.count={COUNT}"),
            "flows.adus.application.processing=\"1 ms\"".to_owned(),
            format!("flows.adus.transport.delivery=\"{delivery}\""),
            "duration=\"40000 s\"".to_owned(),
            "measure.adus=false".to_owned(),
        ];
        let run = || super::simulate_over("sender -> receiver", ADUS, &overrides);
        fastest((0..2).map(|_| run())).expect("it ran")
    };
    println!("{COUNT} ADUs over a path that loses one in ten:");
    for delivery in ["in-order", "out-of-order"] {
        let run = of(delivery);
        println!(
            "  {delivery}: {:.2} us an ADU ({:.2} s), {:.2} packets each",
            run.wall.as_secs_f64() * 1e6 / f64::from(COUNT),
            run.wall.as_secs_f64(),
            run.packets as f64 / f64::from(COUNT)
        );
    }
}
