//! Films over simulated networks: what a viewer sees of them, by transport.

use arrow_array::Array;
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
    run_text(&scenario(transport, link), seed)
}

fn run_text(text: &str, seed: u64) -> Results {
    let scenario = ontempo_scenario::parse(text, "film.toml").expect("it is valid");
    let simulation = Simulation::new(&scenario, seed).expect("it can be set up");
    simulation.run(&Control::default()).expect("nobody cancels it")
}

/// When the frames were sent that arrived, and those that did not, in seconds, as the sender's address
/// changes at `changes`.
fn sent_with_changes(transport: &str, changes: &str) -> [Vec<f64>; 2] {
    let text = scenario(transport, CLEAN);
    let text = text.replace("stop =", &format!("address-changes = [{changes}]\nstop ="));
    let results = run_text(&text, 1);
    let frames = &results.table("frames").expect("it is written").batch;
    let column =
        |name| frames.column_by_name(name).expect("a column").as_primitive::<Float64Type>();
    let (sent, latency) = (column("sent_s"), column("latency_s"));
    let of = |arrived: bool| {
        let rows = (0..frames.num_rows()).filter(|row| latency.is_valid(*row) == arrived);
        rows.map(|row| sent.value(row)).collect()
    };
    [of(true), of(false)]
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

#[test]
fn udp_and_ontempo_go_on_from_another_address() {
    for transport in [
        r#"kind = "udp""#,
        r#"kind = "ontempo", latency = "300 ms""#,
        r#"kind = "ontempo", latency = "300 ms", congestion = "cubic""#,
    ] {
        for changes in [r#""8 s""#, r#""4 s", "4.1 s", "8 s", "15 s""#] {
            let [arrived, lost] = sent_with_changes(transport, changes);
            assert!(arrived.len() > 850, "{transport}: {}", arrived.len());
            assert!(lost.is_empty(), "{transport}, {changes}: {lost:?}");
        }
    }
}

#[test]
fn a_tcp_connection_ends_when_its_senders_address_changes() {
    for more in ["", r#", profile = "ns-2""#] {
        let transport = format!(r#"kind = "tcp", congestion = "cubic", packet = "1500 B"{more}"#);
        let [arrived, lost] = sent_with_changes(&transport, r#""8 s""#);
        assert!(arrived.iter().all(|sent| *sent < 8.0), "{arrived:?}");
        assert!(lost.iter().all(|sent| *sent > 7.9), "{lost:?}");
        assert!(!arrived.is_empty() && lost.len() > 550);
    }
    // The reset comes back a round trip after the first segment: what is sent until then is in flight.
    let text = scenario(r#"kind = "tcp", congestion = "cubic", packet = "1500 B""#, CLEAN);
    let text = text.replace("stop =", "address-changes = [\"8 s\"]\nstop =");
    let results = run_text(&text, 1);
    let flows = &results.table("flows").expect("it is written").batch;
    let count = |name| {
        flows.column_by_name(name).expect("a column").as_primitive::<UInt64Type>().value(0) as f64
    };
    let beyond = count("sent_packets") - media(&results, "media_bytes", 0) / 1460.0;
    assert!(beyond < 200.0, "{beyond} packets more than arrived");
    assert_eq!(count("timeouts"), 0.0, "it is over before a timer expires");
}

#[test]
fn srt_connects_again_from_another_address_after_five_seconds() {
    let [arrived, lost] = sent_with_changes(r#"kind = "srt", latency = "300 ms""#, r#""8 s""#);
    assert!(lost.iter().all(|sent| (7.9..13.8).contains(sent)), "{lost:?}");
    assert!(arrived.iter().all(|sent| !(8.1..13.0).contains(sent)), "{arrived:?}");
    assert!(arrived.iter().any(|sent| *sent > 19.0));
}

#[test]
fn rist_repairs_what_comes_before_the_new_address_has_named_itself() {
    let [arrived, lost] = sent_with_changes(r#"kind = "rist", buffer = "1000 ms""#, r#""8 s""#);
    assert!(arrived.len() > 850 && lost.is_empty(), "{lost:?}");
    // The buffer is too short for that.
    let [_, lost] = sent_with_changes(r#"kind = "rist", buffer = "110 ms""#, r#""8 s""#);
    assert!(!lost.is_empty() && lost.iter().all(|sent| (7.8..8.6).contains(sent)), "{lost:?}");
}
