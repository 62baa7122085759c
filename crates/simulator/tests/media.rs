//! Films over simulated networks: what a viewer sees of them, by transport.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use ontempo_simulator::{Control, Results, Simulation};

/// Twenty seconds of 25 pictures a second: a key frame every second, between them references, each of
/// which needs the picture before; and sound.
fn film() -> String {
    let mut text = String::from("# codec h264\n# period_s 2\ntime_s,type,size_bytes,depends_on\n");
    for picture in 0..50u32 {
        let time = f64::from(picture) * 0.04;
        let number = 2 * picture;
        if picture % 25 == 0 {
            text += &format!("{time},key,40000,\n");
        } else {
            text += &format!("{time},reference,9000,{}\n", number - 2);
        }
        text += &format!("{time},sound,400,\n");
    }
    text
}

fn scenario(transport: &str, link: &str) -> String {
    let film = film();
    format!(
        r#"
        duration = "24 s"
        [topology]
        kind = "dumbbell"
        access = {{ rate = "100 Mbit/s", delay = "1 ms" }}
        bottleneck = {{ {link} }}
        [measure]
        from = "2 s"
        [flows.film]
        application = {{ kind = "media", latency = ["400 ms", "600 ms"], frames-text = """
{film}""" }}
        transport = {{ {transport} }}
        stop = "20 s"
        "#
    )
}

fn run(transport: &str, link: &str, seed: u64) -> Results {
    let text = scenario(transport, link);
    let scenario = ontempo_scenario::parse(&text, "film.toml").expect("it is valid");
    let simulation = Simulation::new(&scenario, seed).expect("it can be set up");
    simulation.run(&Control::default()).expect("nobody cancels it")
}

/// A column of the table of films, of its row of 400 or 600 ms.
fn media(results: &Results, column: &str, row: usize) -> f64 {
    let batch = &results.table("media").expect("it is written").batch;
    let column = batch.column_by_name(column).expect("it is a column");
    match column.as_primitive_opt::<UInt64Type>() {
        Some(counts) => counts.value(row) as f64,
        None => column.as_primitive::<Float64Type>().value(row),
    }
}

const CLEAN: &str =
    r#"rate = "10 Mbit/s", delay = "48 ms", queue = { kind = "drop-tail", limit = "200 packets" }"#;
const LOSSY: &str = r#"rate = "10 Mbit/s", delay = "48 ms", loss = { kind = "bernoulli", rate = 0.05 }, queue = { kind = "drop-tail", limit = "200 packets" }"#;

#[test]
fn a_clean_path_shows_all_pictures_over_every_transport() {
    for transport in [
        r#"kind = "udp""#,
        r#"kind = "tcp", congestion = "cubic", packet = "1500 B""#,
        r#"kind = "srt", latency = "300 ms""#,
        r#"kind = "rist", buffer = "300 ms""#,
        r#"kind = "ontempo", latency = "300 ms""#,
        r#"kind = "adu", interval = "0 s", window = "200 packets""#,
    ] {
        let results = run(transport, CLEAN, 1);
        let pictures = media(&results, "pictures", 1);
        assert!(pictures >= 445.0, "{transport}: {pictures}");
        assert_eq!(media(&results, "decodable_pictures", 1), pictures, "{transport}");
        assert_eq!(media(&results, "freezes", 1), 0.0, "{transport}");
    }
}

#[test]
fn losses_are_repaired_within_the_latency_where_a_transport_repairs() {
    let whole = |transport| {
        let results = run(transport, LOSSY, 3);
        media(&results, "decodable_pictures", 1) / media(&results, "pictures", 1)
    };
    // Four round trips, as the makers of SRT advise.
    // A second's pictures depend on one another: most are lost with one of some seven datagrams each.
    assert!(whole(r#"kind = "udp""#) < 0.2);
    assert!(whole(r#"kind = "srt", latency = "400 ms""#) > 0.9);
    assert!(whole(r#"kind = "rist", buffer = "400 ms""#) > 0.9);
    assert!(whole(r#"kind = "ontempo", latency = "400 ms", order = "partial-order""#) > 0.5);
}

#[test]
fn equal_seeds_give_equal_tables_and_other_seeds_others() {
    for transport in [
        r#"kind = "srt", latency = "400 ms""#,
        r#"kind = "rist", buffer = "400 ms""#,
        r#"kind = "ontempo", latency = "400 ms""#,
    ] {
        let [one, again, other] = [1, 1, 2].map(|seed| run(transport, LOSSY, seed).tables);
        assert!(one == again, "{transport}");
        assert!(one != other, "{transport}");
    }
}

#[test]
fn adus_bring_every_picture_and_those_in_order_bring_them_later() {
    let carried = |delivery: &str| {
        let transport = format!(
            r#"kind = "adu", interval = "0 s", window = "200 packets", delivery = "{delivery}""#
        );
        let results = run(&transport, LOSSY, 1);
        let pictures = media(&results, "pictures", 1);
        let p50 = media(&results, "latency_p50_s", 1);
        (pictures, media(&results, "decodable_pictures", 1), p50)
    };
    let in_order = carried("in-order");
    let out_of_order = carried("out-of-order");
    let partial = carried("partial-order");
    assert!(out_of_order.1 >= in_order.1 && out_of_order.1 > 0.95 * out_of_order.0);
    assert!(in_order.2 > out_of_order.2, "{} {}", in_order.2, out_of_order.2);
    // A picture that waits for those it needs could not be decoded before them.
    assert_eq!(partial.1, out_of_order.1);
    assert!(partial.2 >= out_of_order.2);
}
