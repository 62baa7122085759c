//! The spacing scenario beside ns-2, and what a queue discipline costs beside drop-tail.

use super::{Run, beside, fastest, ns2_script, rate, simulate};

const PSA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/psp/psa.toml");

/// 16 senders of evenly spaced packets, as `spacing.tcl 16 1000 0 20 50` runs them.
pub(super) fn spacing() {
    let overrides = [
        "duration=\"50 s\"".to_owned(),
        "measure.from=\"0 s\"".to_owned(),
        // As the reference's timer.
        "flows.psa.transport.spacing-from=\"start\"".to_owned(),
    ];
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        ours.push(simulate(PSA, &overrides));
        theirs.extend(ns2_script("spacing.tcl 16 1000 0 20 50"));
    }
    beside("16 senders spaced by 1000 us, 155 Mbit/s, 50 s", ours, theirs);
}

/// 25 Reno flows as in the first line, under RED and FQ-CoDel beside drop-tail.
pub(super) fn disciplines() {
    let of = |queue: &str| -> Run {
        let mut overrides = vec![
            format!("topology.bottleneck.queue={queue}"),
            "flows.long.count=25".to_owned(),
            "topology.bottleneck.rate=\"25 Mbit/s\"".to_owned(),
            "duration=\"200 s\"".to_owned(),
        ];
        overrides.extend(super::AS_NS2.map(str::to_owned));
        fastest((0..2).map(|_| simulate(super::LONG_FLOWS, &overrides))).expect("it ran")
    };
    let drop_tail = of("{ kind = \"drop-tail\", limit = \"149 packets\" }");
    let others = [
        ("RED", of("{ kind = \"red\", limit = \"149 packets\" }")),
        ("FQ-CoDel", of("{ kind = \"fq-codel\", limit = \"149 packets\" }")),
    ];
    println!("25 flows, 25 Mbit/s, 200 s under drop-tail: {}", rate(drop_tail));
    for (name, run) in others {
        let cost = drop_tail.per_second() / run.per_second();
        println!("  under {name}: {}; a packet costs {cost:.2} times as much", rate(run));
    }
}
