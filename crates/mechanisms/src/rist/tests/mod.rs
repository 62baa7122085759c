//! Both ends over paths that delay, reorder, lose and break.

mod hostile;
mod world;

use ontempo_foundation::{Bytes, Duration, RandomStream, Rate, Time};

use super::*;
use world::{World, at, ms};

fn with_buffer(millis: u64) -> RistParameters {
    RistParameters { buffer: ms(millis), ..RistParameters::default() }
}

fn is_copy_of(packet: &RistPacket, wanted: u64) -> bool {
    matches!(packet, RistPacket::Data { datagram, .. } if *datagram == wanted)
}

#[test]
fn without_loss_every_datagram_is_given_a_buffer_after_its_arrival() {
    for (buffer, one_way) in [(0, 1), (40, 20), (300, 50), (1000, 150), (1000, 400)] {
        let mut world = World::new(with_buffer(buffer), ms(one_way), 1);
        world.run(at(6000), at(8000));
        assert_eq!(world.lost(), 0);
        let (least, most) = world.latency();
        assert!(least >= ms(buffer + one_way), "{least} of {buffer} + {one_way}");
        // The loop that gives out waits at most 5 ms.
        assert!(most <= ms(buffer + one_way) + LOOP, "{most} of {buffer} + {one_way}");
        assert_eq!(world.sender.statistics().retransmitted, 0);
    }
}

#[test]
fn the_application_is_refused_until_the_receiver_was_heard_of() {
    let mut sender = RistSender::new(RistParameters::default(), Time::ZERO);
    assert!(!sender.push(at(1), world::DATAGRAM, 0));
    let mut first = Vec::new();
    while let Some(packet) = sender.poll_transmit(at(1)) {
        first.push(packet);
    }
    assert!(!first.iter().any(|packet| matches!(packet, RistPacket::Data { .. })));
    assert_eq!(first.len(), 4, "a report and three requests for echoes");
    sender.on_packet(at(2), &RistPacket::ReceiverReport { echo_request: at(1), is_extended: true });
    assert!(!sender.push(at(3), world::DATAGRAM, 0), "the loop has not read it");
    sender.handle_timeout(at(7));
    assert!(sender.push(at(8), world::DATAGRAM, 0));
    assert!(!sender.push(at(8), Bytes::new(MAX_PAYLOAD + 1), 0));
    let data =
        std::iter::from_fn(|| sender.poll_transmit(at(8))).find(|packet| is_copy_of(packet, 2));
    assert!(data.is_some(), "refused datagrams have numbers");
}

#[test]
fn media_before_the_handshake_is_thrown_away() {
    let mut receiver = RistReceiver::new(with_buffer(100), Time::ZERO);
    let data = |datagram: u64| RistPacket::Data {
        sequence: datagram as u16,
        datagram,
        timestamp: at(datagram),
        is_retransmission: false,
        payload: world::DATAGRAM,
    };
    receiver.on_packet(at(10), &data(0));
    assert_eq!(receiver.next_timeout(), Time::NEVER, "only RTCP makes a peer");
    receiver.on_packet(at(11), &RistPacket::EchoRequest { sent: at(1) });
    receiver.on_packet(at(12), &data(1));
    receiver.on_packet(at(13), &RistPacket::EchoRequest { sent: at(1) });
    receiver.on_packet(at(14), &data(2));
    assert_eq!(receiver.statistics().refused, 2);
    assert_eq!(receiver.statistics().received, 1);
    receiver.handle_timeout(at(120));
    assert_eq!(receiver.poll_delivery(at(120)), Some(2));
}

#[test]
fn order_is_kept_and_nothing_is_given_twice_on_any_path() {
    for seed in 0..60 {
        let mut draw = RandomStream::new(seed, "path");
        let buffer = draw.duration_between(Duration::ZERO, ms(600));
        let parameters = RistParameters { buffer, ..RistParameters::default() };
        let one_way = draw.duration_between(Duration::ZERO, ms(300));
        let mut world = World::new(parameters, one_way, seed);
        for way in [&mut world.forward, &mut world.reverse] {
            way.jitter = draw.duration_between(Duration::ZERO, ms(150));
            way.loss = draw.uniform_between(0.0, 0.4);
            way.burst = draw.uniform_between(0.5, 30.0);
            let from = draw.duration_between(ms(1000), ms(9000));
            let length = draw.duration_between(Duration::ZERO, ms(6000));
            way.outages.push((Time::ZERO + from, Time::ZERO + from + length));
        }
        world.interval = draw.duration_between(Duration::from_micros(500), ms(20));
        world.run(at(12_000), at(14_000));
        assert!(world.is_in_order(), "seed {seed}");
        assert!(!world.delivered.is_empty(), "seed {seed}");
    }
}

/// With a round trip of 100 ms and a buffer of 400 ms, a request leaves after half a round trip and is met
/// a round trip later; the next follows 1.1 round trips after it. Loops add at most 5 ms at each end, so
/// the first three retransmissions arrive by 160, 275 and 390 ms. Each arrives with the chance 0.9 x 0.9.
/// Two always fit: at most 0.1 x 0.19 x 0.19 = 0.36 % is lost. Where the third fits, it is 0.07 %.
#[test]
fn of_ten_percent_loss_almost_all_is_repaired_within_four_round_trips() {
    let mut world = World::new(with_buffer(400), ms(50), 2);
    world.forward.loss = 0.1;
    world.reverse.loss = 0.1;
    world.run(at(61_000), at(63_000));
    let share = world.lost() as f64 / world.fates.len() as f64;
    assert!(share < 0.0036, "{share}");
    assert!(share > 0.0001, "{share}: three tries cannot repair everything");
    let (_, most) = world.latency();
    assert!(most <= ms(450) + LOOP, "a retransmission delays nothing: {most}");
    // Each datagram is sent 1 + 0.1 / 0.9 times, and once more for each try that came too late or twice.
    let again = world.sender.statistics().retransmitted as f64 / world.fates.len() as f64;
    assert!((0.105..0.13).contains(&again), "{again}");
}

/// Counts begin anew every second. Where the first packet after that comes too late, more were late than
/// five times those in time, and the flow begins anew.
#[test]
fn a_late_packet_at_the_wrong_moment_empties_the_buffer() {
    for (millis, is_emptied) in [(2050, true), (2500, false)] {
        let mut world = World::new(with_buffer(400), ms(50), 3);
        world.run(at(millis), at(millis));
        let late = RistPacket::Data {
            sequence: 1,
            datagram: 1,
            timestamp: world.fates[1].given,
            is_retransmission: true,
            payload: world::DATAGRAM,
        };
        world.receiver.on_packet(world.now, &late);
        world.run(at(4000), at(5000));
        assert_eq!(world.receiver.statistics().late, 1);
        assert_eq!(world.receiver.statistics().resets > 0, is_emptied);
        assert_eq!(world.lost() > 150, is_emptied, "{}", world.lost());
    }
}

#[test]
fn what_is_missing_is_asked_for_again_after_a_lost_request() {
    let mut world = World::new(with_buffer(1000), ms(50), 4);
    let (mut is_first, mut requests) = (true, 0);
    world.drops = Box::new(move |_, packet| match packet {
        RistPacket::Nack { .. } => {
            requests += 1;
            requests == 1
        }
        _ => is_copy_of(packet, 500) && std::mem::take(&mut is_first),
    });
    world.run(at(3000), at(5000));
    assert_eq!(world.lost(), 0);
    let requests = world.requests(500);
    assert_eq!(requests.len(), 2);
    // The gap shows when the next datagram arrives, 2 ms and the path's delay after the lost one.
    let noticed = world.fates[501].given + ms(50);
    let rtt = world.receiver.statistics().rtt;
    assert!((ms(100)..ms(112)).contains(&rtt), "{rtt}: a path of 100 ms and up to two loops");
    let wait = requests[0].since(noticed);
    assert!((rtt / 2..=rtt / 2 + LOOP + ms(3)).contains(&wait), "{wait}");
    let again = requests[1].since(requests[0]);
    assert!((rtt * 11 / 10..=rtt * 11 / 10 + LOOP + ms(3)).contains(&again), "{again}");
}

#[test]
fn a_datagram_that_never_comes_is_asked_for_no_more_than_twenty_times() {
    let mut world = World::new(with_buffer(5000), ms(5), 5);
    world.drops = Box::new(|_, packet| is_copy_of(packet, 100));
    world.run(at(4000), at(11_000));
    assert_eq!(world.lost(), 1);
    assert_eq!(world.requests(100).len(), 20);
    assert_eq!(world.sender.statistics().retransmitted, 20);
    assert_eq!(world.receiver.statistics().lost, 1);
}

#[test]
fn a_request_repeated_within_a_round_trip_is_met_once() {
    for (congestion_control, met) in [
        (RistCongestionControl::Off, 8),
        (RistCongestionControl::Normal, 3),
        (RistCongestionControl::Aggressive, 2),
    ] {
        let parameters = RistParameters { congestion_control, ..RistParameters::default() };
        let mut sender = RistSender::new(parameters, Time::ZERO);
        let report = RistPacket::ReceiverReport { echo_request: at(1), is_extended: true };
        sender.on_packet(at(1), &report);
        sender.handle_timeout(at(5));
        assert!(sender.push(at(10), world::DATAGRAM, 0));
        // Every 21 ms, while the round-trip time counts as 50 ms, its least.
        for number in 0..8 {
            let ranges = vec![NackRange { first: 0, additional: 0 }];
            let now = at(20 + 21 * number);
            sender.on_packet(now, &RistPacket::Nack { ranges });
            sender.handle_timeout(now);
        }
        assert_eq!(sender.statistics().retransmitted, met, "{congestion_control:?}");
        assert!(met == 8 || sender.statistics().repeated == 8 - met);
    }
}

#[test]
fn reordering_within_the_reorder_buffer_causes_no_request() {
    for (jitter, is_asked) in [(20, false), (80, true)] {
        let mut world = World::new(with_buffer(200), ms(20), 6);
        // What comes before the first datagram that arrives is another matter.
        world.run(at(1050), at(1050));
        world.forward.jitter = ms(jitter);
        world.run(at(9000), at(10_000));
        assert_eq!(world.lost(), 0);
        assert_eq!(world.sender.statistics().retransmitted > 0, is_asked);
    }
}

/// The first datagram fixes when all are due; 2048 datagrams in order replace its delay by their median.
#[test]
fn the_delay_of_the_first_datagram_is_corrected_by_the_median() {
    let mut world = World::new(with_buffer(200), ms(20), 7);
    // The first takes 60 ms longer, and those that would overtake it are lost.
    world.drops = Box::new(|_, packet| {
        matches!(packet, RistPacket::Data { datagram: 1..35, is_retransmission: false, .. })
    });
    world.run(at(999), at(999));
    world.forward.delay = ms(80);
    world.run(at(1001), at(1001));
    world.forward.delay = ms(20);
    world.run(at(12_000), at(13_000));
    let latency = |datagram: usize| {
        let fate = world.fates[datagram];
        fate.delivered.expect("it is delivered").since(fate.given)
    };
    // Due after 280 ms; but none stays for longer than 1.1 times the buffer.
    assert!((ms(240)..ms(248)).contains(&latency(1000)), "{}", latency(1000));
    assert!(latency(5000) < ms(228), "{}", latency(5000));
}

#[test]
fn retransmissions_stop_above_the_highest_rate() {
    // 500 datagrams of 1316 octets a second are 5.3 Mbit/s.
    for (megabits, is_over) in [(4, true), (9, false)] {
        let max_bitrate = Rate::from_bits_per_sec(megabits * 1_000_000);
        let parameters = RistParameters { max_bitrate, ..with_buffer(500) };
        let mut world = World::new(parameters, ms(30), 8);
        world.forward.loss = 0.05;
        // Eight seconds fill the average.
        world.run(at(31_000), at(33_000));
        let statistics = world.sender.statistics();
        assert_eq!(statistics.over_rate > 0, is_over, "{statistics:?}");
        let late_loss = world.lost_between(at(20_000), at(31_000)) as f64 / 5500.0;
        assert_eq!(late_loss > 0.04, is_over, "{late_loss}");
    }
}

#[test]
fn an_overloaded_path_loses_media_and_recovers_when_there_is_room() {
    let mut world = World::new(with_buffer(500), ms(30), 9);
    world.forward.rate = Some((Rate::from_bits_per_sec(4_000_000), ms(100)));
    world.run(at(11_000), at(11_000));
    world.forward.rate = Some((Rate::from_bits_per_sec(20_000_000), ms(100)));
    world.run(at(21_000), at(23_000));
    assert!(world.lost_between(at(1000), at(11_000)) > 500);
    assert_eq!(world.lost_between(at(13_000), at(21_000)), 0);
    assert!(world.is_in_order());
    let statistics = world.sender.statistics();
    assert!(statistics.retransmitted < 20 * statistics.sent);
    assert_eq!(statistics.overflowed, 0);
}

/// An outage shorter than the buffer is repaired, unless the sender held the receiver for dead: then what
/// it held is asked for when media flow again.
#[test]
fn a_short_outage_is_repaired() {
    for length in [100, 200, 400, 600] {
        let mut world = World::new(with_buffer(1000), ms(20), 10);
        for way in [&mut world.forward, &mut world.reverse] {
            way.outages.push((at(3010), at(3010 + length)));
        }
        world.run(at(8000), at(10_000));
        assert_eq!(world.lost(), 0, "{length} ms");
    }
}

/// After 2 s the flow is deleted: what the outage took is lost, and media flow again from the next report
/// of the sender on, every 100 ms, and two round trips; then the buffer's time begins anew.
#[test]
fn after_a_long_outage_media_flow_again_at_once_and_nothing_is_repaired() {
    for length in [3500, 5000, 9000] {
        let mut world = World::new(with_buffer(1000), ms(20), 11);
        let (from, to) = (at(4010), at(4010 + length));
        for way in [&mut world.forward, &mut world.reverse] {
            way.outages.push((from, to));
        }
        world.run(to + ms(5000), to + ms(7000));
        let is_back = to + REPORT_INTERVAL + ms(80) + LOOP * 3;
        assert_eq!(world.lost_between(Time::ZERO, from - ms(20)), 0, "{length} ms");
        let out = world.lost_between(from, to);
        assert!(out + 10 > (length / 2) as usize, "{length} ms: {out}");
        assert_eq!(world.lost_between(is_back, Time::NEVER), 0, "{length} ms");
        assert!(world.sender.statistics().held > 0);
        let (_, most) = world.latency();
        assert!(most <= ms(1020) + LOOP, "{length} ms: {most}");
    }
}

#[test]
fn the_sender_stops_if_only_the_way_back_is_broken() {
    let mut world = World::new(with_buffer(200), ms(20), 12);
    world.reverse.outages.push((at(4010), at(8000)));
    world.run(at(10_000), at(11_000));
    let held = world.sender.statistics().held;
    // It looks once a second for peers that were silent for 250 ms.
    assert!((1200..1900).contains(&held), "{held}");
    assert!(world.lost_between(at(4010), at(8000)) >= 1200);
    assert_eq!(world.lost_between(at(8400), at(10_000)), 0);
}

#[test]
fn a_dead_peer_is_forgotten_and_nothing_is_left_to_do() {
    let mut world = World::new(with_buffer(200), ms(20), 13);
    world.forward.outages.push((at(3000), Time::NEVER));
    world.run(at(3000), at(12_000));
    assert_eq!(world.receiver.next_timeout(), Time::NEVER);
    assert_eq!(world.receiver.held(), 0);
}

#[test]
fn null_packets_are_not_sent_where_they_are_deleted() {
    let bytes = |null_packet_deletion| {
        let parameters = RistParameters { null_packet_deletion, ..with_buffer(100) };
        let mut world = World::new(parameters, ms(20), 14);
        world.null_packets = 3;
        world.run(at(3000), at(4000));
        assert_eq!(world.lost(), 0);
        world.forward.bytes
    };
    // A thousand datagrams without three packets of 188, with a header of 8.
    assert_eq!(bytes(false) - bytes(true), 1000 * (3 * 188 - 8));
}

/// Captured from both programs: 1336 octets of UDP payload for 1316 of media, 76 for a sender's report, 96
/// for a receiver's, 116 for its first, 56 and 72 for echoes; their names were 4 octets shorter.
#[test]
fn sizes_are_those_on_the_wire() {
    let size = |packet: RistPacket| packet.wire_size().get() - NETWORK_HEADERS;
    let payload = world::DATAGRAM;
    let data = RistPacket::Data {
        sequence: 0,
        datagram: 0,
        timestamp: Time::ZERO,
        is_retransmission: false,
        payload,
    };
    let echo_request = Time::ZERO;
    let request_sent = Time::ZERO;
    assert_eq!(size(data), 1336);
    assert_eq!(size(RistPacket::SenderReport { echo_request: None }), 52 + 4);
    assert_eq!(size(RistPacket::SenderReport { echo_request: Some(echo_request) }), 76 + 4);
    assert_eq!(size(RistPacket::ReceiverReport { echo_request, is_extended: true }), 116 + 4);
    assert_eq!(size(RistPacket::ReceiverReport { echo_request, is_extended: false }), 96 + 4);
    assert_eq!(size(RistPacket::EchoRequest { sent: echo_request }), 56 + 4);
    assert_eq!(size(RistPacket::EchoResponse { from: RistEnd::Sender, request_sent }), 56 + 4);
    assert_eq!(size(RistPacket::EchoResponse { from: RistEnd::Receiver, request_sent }), 72 + 4);
    let range = NackRange { first: 0, additional: 9 };
    assert_eq!(size(RistPacket::Nack { ranges: vec![range; 3] }), 60 + 3 * 4 + 4);
}
