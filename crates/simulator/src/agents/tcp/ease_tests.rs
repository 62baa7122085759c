use core::cell::Cell;

use proptest::prelude::*;

use crate::{Control, Results, Simulation};

thread_local! {
    /// All packets take the long way.
    pub(super) static LONG_WAY: Cell<bool> = const { Cell::new(false) };
    /// How many packets have taken the short one.
    pub(super) static TAKEN: Cell<u64> = const { Cell::new(0) };
}

fn run(text: &str, is_long: bool) -> Results {
    LONG_WAY.set(is_long);
    let scenario = ontempo_scenario::parse(text, "ease.toml").expect("the scenario is valid");
    let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
    let results = simulation.run(&Control::default()).expect("nobody cancels it");
    LONG_WAY.set(false);
    results
}

/// Flows of two groups over a bottleneck that they fill, with what changes how packets are handled.
fn scenarios() -> impl Strategy<Value = String> {
    let congestion = || {
        prop::sample::select(vec!["reno", "newreno", "cubic", "vegas", "pert", "bbr"])
            .prop_map(|name| format!(r#""{name}""#))
    };
    let application = || {
        prop::sample::select(vec![
            r#"{ kind = "ftp" }"#,
            r#"{ kind = "cbr", rate = "700 kbit/s" }"#,
            r#"{ kind = "messages", interval = { low = "1 ms", high = "90 ms" } }"#,
            r#"{ kind = "http" }"#,
        ])
    };
    let more = || {
        prop::sample::select(vec![
            "",
            "",
            r#", receive-window = "9 packets""#,
            ", timestamps = false",
            ", ecn = true",
            r#", ack = { kind = "delayed" }"#,
        ])
    };
    let flow = || (1..4_u32, congestion(), application(), more());
    let queue = prop::sample::select(vec![
        r#"{ kind = "drop-tail", limit = "8 packets" }"#,
        r#"{ kind = "drop-tail", limit = "60 packets" }"#,
        r#"{ kind = "red", limit = "60 packets" }"#,
        r#"{ kind = "fq-codel" }"#,
    ]);
    let link = prop::sample::select(vec![
        "",
        "",
        r#"loss = { kind = "bernoulli", rate = 0.01 }"#,
        "duplicate = 0.01",
        "corrupt = 0.01",
    ]);
    let hosts = prop::sample::select(vec!["", "[hosts]\njitter = \"100 us\""]);
    let profile = prop::sample::select(vec!["ns-2", "linux"]);
    (flow(), flow(), queue, link, hosts, profile).prop_map(
        |(one, other, queue, link, hosts, profile)| {
            let group = |name: &str, (count, congestion, application, more): (u32, String, &str, &str)| {
                format!(
                    r#"
                    [flows.{name}]
                    count = {count}
                    application = {application}
                    transport = {{ kind = "tcp", congestion = {congestion}, packet = "1000 B"{more} }}
                    start = {{ low = "0 s", high = "1 s" }}
                    "#
                )
            };
            let (one, other) = (group("one", one), group("other", other));
            format!(
                r#"
                duration = "12 s"
                tcp-profile = "{profile}"
                {hosts}
                [topology]
                kind = "dumbbell"
                access = {{ rate = "100 Mbit/s", delay = "1 ms" }}
                [topology.bottleneck]
                rate = "4 Mbit/s"
                delay = "8 ms"
                queue = {queue}
                {link}
                {one}
                {other}
                [measure]
                from = "2 s"
                sample-every = "500 ms"
                "#
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_short_way_and_the_long_one_give_the_same_tables(text in scenarios()) {
        let short = run(&text, false);
        TAKEN.set(0);
        let long = run(&text, true);
        prop_assert_eq!(TAKEN.get(), 0);
        for (one, other) in short.tables.iter().zip(&long.tables) {
            prop_assert_eq!(&one.batch, &other.batch);
        }
        prop_assert_eq!(short.tables.len(), long.tables.len());
    }
}

#[test]
fn a_transfer_takes_the_short_way_for_almost_all_packets() {
    let text = r#"
        duration = "5 s"
        tcp-profile = "ns-2"
        [topology]
        kind = "dumbbell"
        access = { rate = "100 Mbit/s", delay = "1 ms" }
        bottleneck = { rate = "4 Mbit/s", delay = "8 ms" }
        [flows.one]
        application = { kind = "ftp" }
        transport = { kind = "tcp", receive-window = "20 packets" }
    "#;
    TAKEN.set(0);
    run(text, false);
    // 500 packets a second, and as many ACKs.
    assert!(TAKEN.get() > 4_500, "{}", TAKEN.get());
}
