//! `ontempo profiles`, and links with a profile in each world. The emulation needs the rights of
//! root; if it is skipped, that is reported.

mod common;
mod emulated;

use std::fs;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use common::{ListeningProgram, Place, interrupt};
use emulated::{can_emulate, counts, table};

/// UDP at 2 Mbit/s over a link with a profile.
fn scenario(link: &str) -> String {
    format!(
        r#"duration = "4 s"
[topology]
kind = "dumbbell"
access = {{ rate = "1 Gbit/s", delay = "1 ms" }}
[topology.bottleneck]
{link}
[flows.media]
application = {{ kind = "cbr", rate = "2 Mbit/s" }}
transport = {{ kind = "udp" }}
"#
    )
}

fn numbers(batch: &RecordBatch, name: &str) -> Vec<f64> {
    let column = batch.column_by_name(name).expect("a column");
    column.as_primitive::<Float64Type>().values().to_vec()
}

/// The rates of both directions at their times.
fn capacity(place: &Place, run: &str) -> [Vec<f64>; 3] {
    let capacity = table(place, run, "capacity");
    ["time_s", "rate_bps", "delay_s"].map(|column| numbers(&capacity, column))
}

#[test]
fn profiles_are_listed_and_shown_and_an_unknown_one_has_a_hint() {
    let place = Place::new("profiles", "");
    let list = place.run(&["profiles"]);
    assert!(list.succeeds().out.contains("lte-driving"), "{}", list.out);
    let shown = place.run(&["profiles", "lte-driving"]).succeeds().out.clone();
    let unbroken = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["downlink: 13 Mbit/s", "uplink: 6 Mbit/s", "NSDI 2013", "is assumed"] {
        assert!(unbroken.contains(words), "{words}: {shown}");
    }
    place.run(&["profiles", "lte-drivin"]).fails(2, &["lte-drivin", "did you mean `lte-driving`?"]);
    place
        .run(&["profiles", "5g", "--csv", "no/t.csv"])
        .fails(3, &["--csv no/t.csv: cannot be created"]);
}

#[test]
fn a_written_table_gives_the_same_run_as_its_profile() {
    let place = Place::new("profile-csv", &scenario("profile = \"lte-driving\""));
    place
        .run(&["profiles", "lte-driving", "--seconds", "4", "--seed", "7", "--csv", "t.csv"])
        .succeeds();
    place.run(&["simulate", "s.toml", "--seed", "7", "--out", "profile"]).succeeds();
    let table = "rate = \"13 Mbit/s\"\ndelay = \"30 ms\"\n\
                 schedule = { kind = \"csv\", file = \"t.csv\" }\nqueue = { kind = \"drop-tail\", limit = \"3250 kB\" }\n\
                 back = { profile = \"lte-driving\" }";
    fs::write(place.path("t.toml"), scenario(table)).expect("a scenario for the test");
    place.run(&["simulate", "t.toml", "--seed", "7", "--out", "table"]).succeeds();
    assert_eq!(capacity(&place, "profile"), capacity(&place, "table"));
    let departed = |run: &str| counts(&self::table(&place, run, "links"), "departed_bytes");
    assert_eq!(departed("profile"), departed("table"));
}

#[test]
fn the_folder_of_a_run_has_the_values_of_the_profile_and_not_its_name() {
    let place = Place::new("profile-run", &scenario("profile = \"lte-driving\""));
    place.run(&["simulate", "s.toml", "--out", "out"]).succeeds();
    let manifest = fs::read_to_string(place.path("out/run.json")).expect("a manifest");
    let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("JSON");
    let link = &manifest["scenario"]["topology"]["bottleneck"];
    assert_eq!(link["rate"], "13 Mbit/s");
    assert_eq!(link["back"]["rate"], "6 Mbit/s");
    assert_eq!(link["schedule"]["kind"], "random");
    assert!(link.get("profile").is_none(), "{link}");
}

#[test]
fn real_packets_cross_the_same_links() {
    if !can_emulate() {
        return;
    }
    let place = Place::new("profile-real", &scenario("profile = \"lte-driving\""));
    for command in ["simulate", "emulate"] {
        place.run(&[command, "s.toml", "--seed", "2", "--out", command]).succeeds();
    }
    assert_eq!(capacity(&place, "simulate"), capacity(&place, "emulate"));
    let departed = |run: &str| counts(&table(&place, run, "links"), "departed_bytes")[0] as f64;
    let ratio = departed("emulate") / departed("simulate");
    assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
}

#[test]
fn datagrams_of_other_programs_cross_a_link_with_a_profile() {
    let place = Place::new("profile-impair", &scenario("profile = \"transcontinental\""));
    let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    server.set_read_timeout(Some(Duration::from_secs(2))).expect("set");
    let to = server.local_addr().expect("an address").to_string();
    let words = ["impair", "--listen", ":0", "--to", &to, "--scenario", "s.toml"];
    let program = ListeningProgram::start(&place, &words);
    let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let begun = Instant::now();
    client.send_to(b"media", program.local.as_str()).expect("sent");
    let mut bytes = [0; 100];
    let size = server.recv(&mut bytes).expect("it arrives");
    // 35.5 ms, what varies, and two access links of 1 ms.
    assert!(begun.elapsed() >= Duration::from_micros(37_500), "{:?}", begun.elapsed());
    assert_eq!(&bytes[..size], b"media");
    interrupt(&program.child.0);
    program.end();
}
