use std::convert::Infallible;
use std::sync::Arc;

use ontempo_elements::link;
use ontempo_foundation::{Duration, Time};
use ontempo_network::DropReason;
use ontempo_scenario::Layout;

use super::{Delivery, Network, Spans};
use crate::ip::is_ecn_capable;
use crate::routes::{ByAddress, Routes};
use crate::watch::{PacketRecord, Watch};
use ontempo_runtime::End;

/// 8 Mbit/s: a byte takes a microsecond. Two flows share the link from a to b.
const SCENARIO: &str = r#"
    duration = "10 s"
    [topology]
    kind = "graph"
    [[topology.links]]
    from = "a"
    to = "b"
    rate = "8 Mbit/s"
    delay = "5 ms"
    queue = QUEUE
    MORE
    [[topology.links]]
    from = "b"
    to = "c"
    rate = "8 Mbit/s"
    delay = "1 ms"
    [flows.far]
    from = "a"
    to = "c"
    application = { kind = "cbr", interval = "1 s" }
    transport = { kind = "udp" }
    [flows.near]
    from = "a"
    to = "b"
    application = { kind = "cbr", interval = "1 s" }
    transport = { kind = "udp" }
"#;

const FIFO: &str = r#"{ kind = "drop-tail", limit = "2 packets" }"#;

fn network(queue: &str) -> (Network, Layout) {
    network_with(queue, "")
}

/// With `more` at the link from a to b.
fn network_with(queue: &str, more: &str) -> (Network, Layout) {
    network_measured_from(Time::ZERO, queue, more)
}

fn network_measured_from(measured_from: Time, queue: &str, more: &str) -> (Network, Layout) {
    network_of(measured_from, &SCENARIO.replace("QUEUE", queue).replace("MORE", more))
}

fn network_of(measured_from: Time, text: &str) -> (Network, Layout) {
    let scenario = ontempo_scenario::parse(text, "network.toml").expect("it is valid");
    let layout = scenario.layout(1).expect("it can be laid out");
    let elements = (0..layout.links.len()).map(|place| link(&layout, place, 1).expect("it is"));
    let groups: Arc<[u32]> = [0, 1].into();
    let watches = layout.links.iter().map(|_| Some(Watch::new(groups.clone(), 2, true, true)));
    let sample_every = Some(Duration::from_secs(1));
    let spans = Spans { measured_from, sample_every, end: at(2_000_000) };
    let elements = elements.collect();
    let routes = Routes::ByAddress(ByAddress::new(&layout));
    (Network::new(elements, &layout, routes, watches.collect(), Vec::new(), spans), layout)
}

fn at(micros: u64) -> Time {
    Time::ZERO + Duration::from_micros(micros)
}

/// A packet of 1000 bytes of IPv4.
fn packet(from: End, to: End, service: u8) -> Vec<u8> {
    let mut packet = vec![0x45, service, 3, 232, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend(from.v4().octets());
    packet.extend(to.v4().octets());
    packet.resize(1000, 7);
    packet
}

fn send(network: &mut Network, micros: u64, packet: &[u8]) {
    let taken = network.inject(at(micros), 0, |bytes| {
        bytes.clear();
        bytes.extend_from_slice(packet);
        Ok::<bool, Infallible>(true)
    });
    assert_eq!(taken, Ok(true));
}

/// Which host gets what and when, in microseconds, looking every `step`.
fn delivered(network: &mut Network, step: u64) -> Vec<(usize, u64, Vec<u8>)> {
    let mut seen = Vec::new();
    for now in (0..2_000_000).step_by(step as usize) {
        network.advance(at(now), &mut |Delivery { interface, bytes, due }| {
            seen.push((interface, due.as_nanos() / 1000, bytes.to_vec()));
        });
    }
    seen
}

#[test]
fn a_packet_takes_what_its_links_say_however_late_somebody_looks() {
    for step in [1, 900, 40_000] {
        let (mut network, layout) = network(FIFO);
        let far = packet(End::source(0), End::sink(0), 0);
        send(&mut network, 100, &far);
        send(&mut network, 100, &far);
        let seen = delivered(&mut network, step);
        // 1 ms and 5 ms, then 1 ms and 1 ms; the second waits for the first at both links.
        let times: Vec<u64> = seen.iter().map(|(_, due, _)| *due).collect();
        assert_eq!(times, [8_100, 9_100], "looking every {step} us");
        assert_eq!(seen[0].2, far);
        let host = crate::routes::hosts(&layout)[seen[0].0].name.clone();
        assert_eq!(host, "c");
    }
}

#[test]
fn packets_that_wait_at_the_end_have_a_record() {
    for queue in ["codel", "fq-codel", "dualpi2", "wfq", "cbq"] {
        let (mut network, _) = network(&format!(r#"{{ kind = "{queue}", limit = "3 packets" }}"#));
        for _ in 0..5 {
            send(&mut network, 0, &packet(End::source(1), End::sink(1), 0));
        }
        network.advance(at(500), &mut |_| {});
        let watch = network.watches[0].as_mut().expect("it is watched");
        watch.end();
        let records = watch.records();
        let started = records.iter().filter(|record| record.started.is_some()).count();
        let dropped = records.iter().filter(|record| record.dropped.is_some()).count();
        assert_eq!((records.len(), started), (5, 1), "{queue}: {records:?}");
        // FQ-CoDel drops half of the longest flow.
        assert!((1..=2).contains(&dropped), "{queue}: {records:?}");
    }
}

#[test]
fn a_full_queue_drops_and_every_packet_is_accounted_for() {
    let (mut network, _) = network(FIFO);
    for _ in 0..5 {
        send(&mut network, 0, &packet(End::source(1), End::sink(1), 0));
    }
    send(&mut network, 0, &packet(End::sink(1), End::source(1), 0));
    let seen = delivered(&mut network, 100);
    assert_eq!(seen.len(), 4, "one is sent, two wait, one goes back");
    let counts = network.counts[1];
    assert_eq!((counts.sent, counts.delivered, counts.dropped), (5, 3, 2));
    assert_eq!(counts.delivered_bytes, 3000);
    let lengths = network.watches[0].as_ref().expect("it is watched").lengths();
    let seen: Vec<(u64, u64)> = lengths[1].iter().map(|seen| (seen.arrivals, seen.drops)).collect();
    assert_eq!(seen, [(2, 0), (1, 0), (2, 2)]);
    assert_eq!(network.samples.len(), 2 * network.watches.len(), "at 0 s and at 1 s");
}

/// A packet of TCP with so many bytes of data.
fn segment(from: End, to: End, data: usize) -> Vec<u8> {
    let mut segment = packet(from, to, 0);
    segment.truncate(40 + data);
    segment[9] = 6;
    // A header without options, with ACK alone.
    (segment[32], segment[33]) = (0x50, 0x10);
    segment
}

#[test]
fn of_a_connection_the_packets_with_data_are_counted_as_sent_and_as_lost() {
    let (mut network, _) = network(FIFO);
    let (source, sink) = (End::source(1), End::sink(1));
    // Two with data wait, and behind them what is lost: without data, with data, and on the way back.
    for data in [960, 960, 960, 0, 0, 960] {
        send(&mut network, 0, &segment(source, sink, data));
    }
    for _ in 0..5 {
        send(&mut network, 0, &segment(sink, source, 0));
    }
    delivered(&mut network, 100);
    let counts = network.counts[1];
    assert_eq!((counts.sent, counts.delivered, counts.dropped), (4, 3, 1));
}

#[test]
fn what_was_sent_before_the_measured_span_is_not_lost_in_it() {
    let (mut network, _) = network_measured_from(at(500), FIFO, "");
    let send = |network: &mut Network, micros, packets| {
        network.advance(at(micros), &mut |_| {});
        for _ in 0..packets {
            send(network, micros, &packet(End::source(1), End::sink(1), 0));
        }
    };
    send(&mut network, 0, 5);
    send(&mut network, 600, 1);
    delivered(&mut network, 100);
    let (now, before) = (network.counts[1], network.counts_before[1]);
    assert_eq!((before.sent, before.dropped), (5, 2));
    assert_eq!((now.sent - before.sent, now.dropped - before.dropped), (1, 1));
    // Of the last link of all, where those from before the span have bit errors.
    let (mut network, _) = network_measured_from(at(500), FIFO, "corrupt = 1");
    send(&mut network, 0, 2);
    send(&mut network, 600, 1);
    delivered(&mut network, 100);
    let (now, before) = (network.counts[1], network.counts_before[1]);
    assert_eq!((before.sent, before.dropped), (2, 0));
    assert_eq!((now.sent - before.sent, now.dropped - before.dropped), (1, 1));
}

#[test]
fn packets_of_hosts_that_share_no_flow_find_a_way_and_strangers_none() {
    let (mut network, layout) = network(FIFO);
    // From b, where the second flow ends, to c, where the first one does.
    send(&mut network, 0, &packet(End::sink(1), End::sink(0), 0));
    send(&mut network, 0, &packet(End::source(0), End::source(7), 0));
    send(&mut network, 0, &[0x45; 12]);
    let seen = delivered(&mut network, 100);
    let [(host, 2_000, _)] = seen[..] else { panic!("{seen:?}") };
    assert_eq!(crate::routes::hosts(&layout)[host].name, "c");
    assert_eq!(network.unroutable, 2);
}

#[test]
fn a_queue_that_marks_marks_what_may_be_marked_and_drops_the_rest() {
    let codel = r#"{ kind = "codel", target = "1 us", interval = "1 ms", ecn = true }"#;
    let (mut network, _) = network(codel);
    for number in 0..100 {
        let service = if number % 2 == 0 { 0b10 } else { 0 };
        send(&mut network, 0, &packet(End::source(1), End::sink(1), service));
    }
    let seen = delivered(&mut network, 100);
    let marked = seen.iter().filter(|(_, _, bytes)| bytes[1] == 0b11).count();
    let capable = seen.iter().filter(|(_, _, bytes)| is_ecn_capable(bytes)).count();
    assert!(marked > 0 && capable == 50 && seen.len() < 100, "{marked} of {}", seen.len());
    assert_eq!(network.counts[1].dropped as usize, 100 - seen.len());
    assert!(seen.is_sorted_by_key(|(_, due, _)| *due));
}

#[test]
fn a_policer_drops_before_queues_of_both_kinds_and_is_counted() {
    for queue in [FIFO, r#"{ kind = "codel" }"#] {
        let policer = "policer = { rate = \"800 kbit/s\", burst = \"2 kB\" }";
        let (mut network, _) = network_with(queue, policer);
        // A bucket of two packets, and one more each 10 ms.
        for micros in [0, 0, 0, 9_000, 10_000, 10_000] {
            network.advance(at(micros), &mut |_| {});
            send(&mut network, micros, &packet(End::source(1), End::sink(1), 0));
        }
        let seen = delivered(&mut network, 100);
        let times: Vec<u64> = seen.iter().map(|(_, due, _)| *due).collect();
        assert_eq!(times[times.len() - 1], 16_000, "{queue}");
        let counts = network.counts[1];
        assert_eq!((counts.sent, counts.delivered, counts.dropped), (6, 3, 3), "{queue}");
        let records = network.watches[0].as_ref().expect("it is watched").records();
        let policed = |record: &&PacketRecord| record.dropped == Some(DropReason::Policer);
        assert_eq!(records.iter().filter(policed).count(), 3, "{queue}");
    }
}

#[test]
fn copies_arrive_behind_their_originals_and_are_counted_once() {
    for queue in [FIFO, r#"{ kind = "codel" }"#] {
        let (mut network, _) = network_with(queue, "duplicate = 1");
        let far = packet(End::source(0), End::sink(0), 0);
        send(&mut network, 0, &far);
        send(&mut network, 0, &packet(End::sink(0), End::source(0), 0));
        let seen = delivered(&mut network, 100);
        // The copies of the first wait 1 ms for it at the second link; those of the second are
        // made at the last.
        let times: Vec<u64> = seen.iter().map(|(_, due, _)| *due).collect();
        assert_eq!(times, [8_000, 8_000, 8_000, 9_000], "{queue}");
        let counts = network.counts[0];
        assert_eq!((counts.sent, counts.delivered, counts.dropped), (1, 1, 0), "{queue}");
        assert!(seen.iter().filter(|(_, _, bytes)| *bytes == far).count() == 2, "{queue}");
    }
}

#[test]
fn a_corrupted_packet_reaches_its_host_with_an_error_and_counts_as_lost() {
    for queue in [FIFO, r#"{ kind = "codel" }"#] {
        let (mut network, _) = network_with(queue, "corrupt = 1");
        let near = packet(End::source(1), End::sink(1), 0);
        send(&mut network, 0, &near);
        let seen = delivered(&mut network, 100);
        assert_eq!(seen.len(), 1, "{queue}");
        assert_eq!(seen[0].2[..999], near[..999], "{queue}");
        assert_ne!(seen[0].2, near, "{queue}");
        let counts = network.counts[1];
        assert_eq!((counts.sent, counts.delivered, counts.dropped), (1, 0, 1), "{queue}");
    }
}

#[test]
fn packets_of_an_opportunity_leave_as_a_burst_from_queues_of_both_kinds() {
    for queue in [r#"{ kind = "drop-tail" }"#, r#"{ kind = "codel" }"#] {
        let (mut network, _) = network_with(queue, "aggregation = { every = \"10 ms\" }");
        for micros in [0, 4_000, 9_000, 10_000] {
            network.advance(at(micros), &mut |_| {});
            send(&mut network, micros, &packet(End::source(1), End::sink(1), 0));
        }
        let seen = delivered(&mut network, 100);
        let times: Vec<u64> = seen.iter().map(|(_, due, _)| *due).collect();
        assert_eq!(times, [16_000, 17_000, 18_000, 26_000], "{queue}");
    }
}

#[test]
fn a_source_keeps_its_address_while_others_see_it_change_and_the_old_one_is_lost() {
    let text = SCENARIO.replace("QUEUE", FIFO).replace("MORE", "");
    let changes = r#"to = "c"
    address-changes = ["100 ms", "200 ms"]
    application"#;
    let text = text.replacen("to = \"c\"\n    application", changes, 1);
    let (mut network, layout) = network_of(Time::ZERO, &text);
    assert_eq!(layout.flows[0].address_changes, [at(100_000), at(200_000)]);
    let (source, sink) = (End::source(0), End::sink(0));
    let ends_seen = |network: &mut Network| -> Vec<(End, End)> {
        let seen = delivered(network, 1000);
        let ends = seen.iter().filter_map(|(_, _, bytes)| crate::ip::ends(bytes));
        ends.map(|ends| (ends.from, ends.to)).collect()
    };
    // What left before a change arrives after it, with the address that it left with.
    for (micros, address) in [(99_000, 0), (100_000, 1), (199_000, 1), (200_000, 2)] {
        send(&mut network, micros, &packet(source, sink, 0));
        assert_eq!(ends_seen(&mut network), [(source.changed(address), sink)], "at {micros} us");
    }
    // 9 ms of way back: what was sent to an address is lost once that is no longer the source's.
    for (micros, address, arrives) in [
        (80_000, 0, true),
        (95_000, 0, false),
        (110_000, 0, false),
        (110_000, 1, true),
        (195_000, 1, false),
        (210_000, 2, true),
        (210_000, 3, false),
    ] {
        let before = network.counts[0];
        send(&mut network, micros, &packet(sink, source.changed(address), 0));
        let expected = if arrives { vec![(sink, source)] } else { vec![] };
        assert_eq!(ends_seen(&mut network), expected, "to {address} at {micros} us");
        assert_eq!(network.counts[0].dropped, before.dropped, "the source's packets are counted");
    }
    // The other flow keeps its address.
    send(&mut network, 300_000, &packet(End::source(1), End::sink(1), 0));
    assert_eq!(ends_seen(&mut network), [(End::source(1), End::sink(1))]);
}
