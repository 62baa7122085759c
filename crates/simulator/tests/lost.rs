//! The share of lost packets counts in its numerator what it counts in its denominator.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use ontempo_simulator::{Control, Results, Simulation};
use proptest::prelude::*;

fn run(text: &str) -> Results {
    let scenario = ontempo_scenario::parse(text, "lost.toml").expect("it is valid");
    let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
    simulation.run(&Control::default()).expect("nobody cancels it")
}

fn counts(results: &Results, column: &str) -> Vec<u64> {
    let batch = &results.table("flows").expect("flows").batch;
    batch[column].as_primitive::<UInt64Type>().values().to_vec()
}

/// The first row that loses more than it sends, or whose rate is not the quotient.
fn wrong(results: &Results) -> Option<String> {
    let batch = &results.table("flows").expect("flows").batch;
    let rates = batch["loss_rate"].as_primitive::<Float64Type>().values().to_vec();
    let (sent, dropped) = (counts(results, "sent_packets"), counts(results, "dropped_packets"));
    let rows = sent.iter().zip(&dropped).zip(&rates).enumerate();
    rows.map(|(row, ((sent, dropped), rate))| {
        let is_right = dropped <= sent && *rate == *dropped as f64 / (*sent).max(1) as f64;
        (!is_right).then(|| format!("row {row}: {dropped} of {sent}, {rate}"))
    })
    .find_map(|found| found)
}

#[test]
fn two_thousand_connections_on_a_slow_link_lose_no_more_than_they_send() {
    let results = run(r#"
        duration = "20 s"
        [topology]
        kind = "dumbbell"
        access = { rate = "100 Mbit/s", delay = "2 ms" }
        bottleneck = { rate = "2 Mbit/s", delay = "20 ms", queue = { kind = "drop-tail", limit = "40 packets" } }
        [flows.crowd]
        count = 2000
        application = { kind = "ftp" }
        transport = { kind = "tcp" }
        start = { low = "0 s", high = "5 s" }
        "#);
    assert_eq!(wrong(&results), None);
    let all = |column| counts(&results, column).iter().sum::<u64>();
    let share = all("dropped_packets") as f64 / all("sent_packets") as f64;
    assert!((0.1..1.0).contains(&share), "{share}");
    // The links drop more than that: most of it SYNs.
    let links = &results.table("links").expect("links").batch;
    let full = links["dropped_full"].as_primitive::<UInt64Type>().values().iter().sum::<u64>();
    assert!(full > all("sent_packets"), "{full} of {}", all("sent_packets"));
}

#[test]
fn every_packet_of_a_closed_link_is_lost_and_none_more() {
    let text = r#"
        duration = "10 s"
        [topology]
        kind = "dumbbell"
        access = { rate = "100 Mbit/s", delay = "2 ms" }
        bottleneck = { rate = "2 Mbit/s", delay = "20 ms", loss = { kind = "bernoulli", rate = 1.0 } }
        [flows.calls]
        count = 3
        application = { kind = "cbr", rate = "100 kbit/s" }
        transport = { kind = "udp" }
        [flows.web]
        application = { kind = "ftp" }
        transport = { kind = "tcp" }
        [measure]
        from = "FROM s"
        "#;
    for from in ["0", "4"] {
        let results = run(&text.replace("FROM", from));
        assert_eq!(wrong(&results), None);
        let (sent, dropped) =
            (counts(&results, "sent_packets"), counts(&results, "dropped_packets"));
        // The last packet may still be on its way to the link.
        let fits = |flow: usize| dropped[flow] <= sent[flow] && sent[flow] <= dropped[flow] + 1;
        assert!((0..3).all(fits), "{dropped:?} of {sent:?}");
        assert!(sent[0] > 70, "{sent:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn no_flow_loses_more_than_it_sends(
        queue in prop::sample::select(vec![
            r#"{ kind = "drop-tail", limit = "4 packets" }"#,
            r#"{ kind = "red", limit = "20 packets" }"#,
            r#"{ kind = "codel", limit = "20 packets" }"#,
            r#"{ kind = "wfq", limit = "3 packets" }"#,
        ]),
        loss in 0.0f64..1.0,
        corrupt in 0.0f64..0.5,
        duplicate in 0.0f64..0.9,
        count in 1u32..60,
        from in 0u32..6,
        kbits in 50u32..4_000,
        outage in prop::bool::ANY,
    ) {
        let outage = if outage { "outages = [{ at = \"2500 ms\", for = \"1 s\" }]" } else { "" };
        let harm = format!("loss = {{ kind = \"bernoulli\", rate = {loss} }}
            corrupt = {corrupt}
            duplicate = {duplicate}
            {outage}");
        let text = format!(r#"
            duration = "6 s"
            [topology]
            kind = "dumbbell"
            access = {{ rate = "20 Mbit/s", delay = "5 ms" }}
            [topology.bottleneck]
            rate = "{kbits} kbit/s"
            delay = "300 ms"
            queue = {queue}
            {harm}
            [topology.reverse]
            rate = "100 kbit/s"
            delay = "30 ms"
            queue = {{ kind = "drop-tail", limit = "5 packets" }}
            {harm}
            [flows.bulk]
            count = {count}
            application = {{ kind = "ftp" }}
            transport = {{ kind = "tcp" }}
            [flows.short]
            count = 5
            application = {{ kind = "file", size = "30 kB" }}
            transport = {{ kind = "tcp" }}
            start = {{ low = "0 s", high = "5 s" }}
            [flows.call]
            application = {{ kind = "cbr", rate = "64 kbit/s" }}
            transport = {{ kind = "udp" }}
            [flows.spaced]
            application = {{ kind = "ftp" }}
            transport = {{ kind = "spaced", controller = "psp" }}
            [flows.adus]
            application = {{ kind = "adus", count = 200 }}
            transport = {{ kind = "adu" }}
            [measure]
            from = "{from} s"
            "#);
        if from < 6 {
            let results = run(&text);
            prop_assert_eq!(wrong(&results), None);
        }
    }
}
