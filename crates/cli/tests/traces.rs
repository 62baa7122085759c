//! Traces, as tshark reads them.

mod common;

use common::{Place, SCENARIO};
use ontempo_testing::require_programs;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt64Type};
use ontempo_scenario::tables::{FLOWS, LINKS};
use ontempo_simulator::read_table;

/// The `fields` of the packets that `filter` lets through, one line a packet.
fn tshark(trace: &Path, filter: &str, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    for check in ["ip.check_checksum", "tcp.check_checksum", "udp.check_checksum"] {
        command.args(["-o", &format!("{check}:TRUE")]);
    }
    command.arg("-n").arg("-r").arg(trace).args(["-Y", filter, "-T", "fields"]);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.output().expect("tshark starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(str::to_owned).collect()
}

fn packets(trace: &Path, filter: &str) -> usize {
    tshark(trace, filter, &["frame.number"]).len()
}

/// How many packets left each link, as the tables have it.
fn departures(folder: &Path) -> BTreeMap<String, usize> {
    let links = read_table(folder, &LINKS).expect("the table of links").batch;
    let names = links["link"].as_dictionary::<Int32Type>();
    let names = names.downcast_dict::<arrow_array::StringArray>().expect("names");
    let counts = links["departures"].as_primitive::<UInt64Type>();
    let counts = counts.iter().map(|count| count.unwrap_or_default() as usize);
    names.into_iter().map(|name| name.unwrap_or_default().to_owned()).zip(counts).collect()
}

#[test]
fn tshark_finds_every_packet_of_each_link_well_formed() {
    if !require_programs(&["tshark"]) {
        return;
    }
    // Losses on the wire befall packets that have left already.
    let scenario = SCENARIO.replace(
        "delay = \"20 ms\"",
        "delay = \"20 ms\"\nloss = { kind = \"bernoulli\", rate = 0.01 }",
    );
    let place = Place::new("tshark", &scenario);
    let links = [
        "bottleneck",
        "reverse",
        "right -> bulk.0.sink",
        "bulk.0.sink -> right",
        "voice.0.source -> left",
    ];
    let mut arguments = vec!["simulate", "s.toml", "--out", "out"];
    links.iter().for_each(|link| arguments.extend(["--trace", link]));
    place.run(&arguments).succeeds();
    let departures = departures(&place.path("out"));
    for link in links {
        let trace = place.path("out").join(format!("{link}.pcapng"));
        assert_eq!(packets(&trace, "frame"), departures[link], "{link}");
        assert!(departures[link] > 100, "{link}");
        assert_eq!(packets(&trace, "_ws.malformed"), 0, "{link}");
        let wrong =
            "ip.checksum.status == 0 || tcp.checksum.status == 0 || udp.checksum.status == 0";
        assert_eq!(packets(&trace, wrong), 0, "{link}");
        assert_eq!(packets(&trace, "ip.checksum.status == 1"), departures[link], "{link}");
        let interfaces = tshark(&trace, "frame.number == 1", &["frame.interface_name"]);
        assert_eq!(interfaces, [link]);
        let times = tshark(&trace, "frame", &["frame.time_epoch"]);
        let times: Vec<f64> = times.iter().map(|time| time.parse().unwrap()).collect();
        assert!(times.is_sorted() && times.last().is_some_and(|last| *last <= 3.0), "{link}");
    }
}

#[test]
fn packets_have_the_modelled_length_and_acks_that_plus_their_sack_blocks() {
    if !require_programs(&["tshark"]) {
        return;
    }
    let place = Place::new("lengths", SCENARIO);
    let arguments = ["simulate", "s.toml", "--out", "out", "--trace", "bottleneck"];
    place.run(&[arguments.as_slice(), &["--trace", "reverse"]].concat()).succeeds();
    let (data, acks) = (place.path("out/bottleneck.pcapng"), place.path("out/reverse.pcapng"));
    let lengths = |trace: &Path, filter: &str| {
        let mut lengths = tshark(trace, filter, &["frame.len", "ip.len"]);
        lengths.sort();
        lengths.dedup();
        lengths
    };
    assert_eq!(lengths(&data, "tcp.flags.syn == 0"), ["1000\t1000"]);
    assert_eq!(lengths(&data, "udp"), ["201\t201"]);
    assert_eq!(lengths(&acks, "!tcp.options.sack_le && tcp.flags.syn == 0"), ["40\t40"]);
    for length in lengths(&acks, "tcp.options.sack_le") {
        assert!(["52\t52", "60\t60", "68\t68"].contains(&length.as_str()), "{length}");
    }
    // ACKs are captured whole, so that tshark can and does check them.
    assert_eq!(packets(&acks, "tcp.checksum.status != 1"), 0);
}

#[test]
fn tshark_sees_the_sack_blocks_and_retransmissions_that_the_simulator_counted() {
    if !require_programs(&["tshark"]) {
        return;
    }
    let place = Place::new("again", SCENARIO);
    let arguments = ["simulate", "s.toml", "--out", "out", "--trace", "bulk.0.source -> left"];
    place.run(&[arguments.as_slice(), &["--trace", "bulk.0.sink -> right"]].concat()).succeeds();
    let flows = read_table(&place.path("out"), &FLOWS).unwrap().batch;
    let counted = flows["retransmitted"].as_primitive::<UInt64Type>().value(0) as usize;
    assert!(counted > 0, "the scenario is to lose packets");
    // Without a handshake tshark knows no round-trip time, and takes what follows within three
    // milliseconds of a later segment for one that was overtaken.
    let again = "tcp.analysis.retransmission || tcp.analysis.out_of_order";
    assert_eq!(packets(&place.path("out/bulk.0.source -> left.pcapng"), again), counted);
    let acks = place.path("out/bulk.0.sink -> right.pcapng");
    assert!(packets(&acks, "tcp.options.sack_le") >= counted);
    let edges = tshark(&acks, "tcp.options.sack_le", &["tcp.ack", "tcp.options.sack_le"]);
    for edge in edges {
        let (ack, lefts) = edge.split_once('\t').unwrap();
        let ack: u64 = ack.parse().unwrap();
        for left in lefts.split(',').map(|left| left.parse::<u64>().unwrap()) {
            assert!(
                left > ack && (left - ack).is_multiple_of(960),
                "a block at {left}, {ack} acknowledged"
            );
        }
    }
    let without = ["--set", "flows.bulk.transport.recovery=newreno"];
    place
        .run(&[
            "simulate", "s.toml", "--out", "plain", "--trace", "reverse", without[0], without[1],
        ])
        .succeeds();
    let trace = place.path("plain/reverse.pcapng");
    // The first flow's source, as in an emulation.
    assert!(packets(&trace, "ip.dst == 10.0.0.2") > 0);
    assert_eq!(packets(&trace, "tcp.options.sack_le && ip.dst == 10.0.0.2"), 0);
}

#[test]
fn a_trace_names_the_hosts() {
    if !require_programs(&["tshark"]) {
        return;
    }
    let place = Place::new("names", SCENARIO);
    place.run(&["simulate", "s.toml", "--out", "out", "--trace", "bottleneck"]).succeeds();
    let trace = place.path("out/bottleneck.pcapng");
    let ends = ["-N", "n", "-T", "fields", "-e", "ip.src_host", "-e", "ip.dst_host"];
    let shown = Command::new("tshark").arg("-r").arg(&trace).args(ends).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("video.1.source\tvideo.1.sink"), "{}", &shown[..200]);
}
