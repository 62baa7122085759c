use std::collections::BTreeSet;

use ontempo_foundation::{Bytes, Duration, Packets, RandomStream, Rate, Time};

use super::ranges::Ranges;
use super::*;

mod network;

use network::{World, at, ms};

/// A program that hands its datagrams over at once.
fn direct() -> SrtParameters {
    SrtParameters { input_interval: None, ..SrtParameters::default() }
}

fn with_latency(latency: Duration) -> SrtParameters {
    SrtParameters { latency, ..direct() }
}

fn data(packet: &SrtPacket) -> Option<(u64, bool)> {
    match packet {
        SrtPacket::Data { sequence, is_retransmission, .. } => {
            Some((*sequence, *is_retransmission))
        }
        _ => None,
    }
}

#[test]
fn without_loss_every_datagram_is_delivered_at_its_time_and_the_latency() {
    for rtt in [ms(2), ms(40), ms(600)] {
        let mut world = World::new(with_latency(ms(120)), rtt, 1);
        world.next_push = at(ms(2_000));
        world.run(at(ms(40_000)));
        world.finish();
        assert_eq!(world.loss(), 0.0);
        assert!(world.delays().all(|delay| delay == rtt / 2 + ms(120)), "{rtt}");
        let statistics = world.sender.statistics();
        assert_eq!(statistics.sent, Packets::new(world.pushed.len() as u64));
        assert_eq!(statistics.retransmitted, Packets::default());
        assert_eq!(world.receiver.statistics().naks, Packets::default());
    }
}

#[test]
fn the_handshake_takes_two_round_trips_and_lost_requests_are_repeated_each_250_ms() {
    let mut world = World::new(with_latency(ms(120)), ms(40), 1);
    world.run(at(ms(80)) - Duration::from_nanos(1));
    assert!(!world.sender.is_connected());
    world.run(at(ms(80)));
    assert!(world.sender.is_connected());

    // The first two inductions and the first conclusion's answer are lost.
    let mut world = World::new(with_latency(ms(120)), ms(40), 1);
    world.forward.filter = first(2, |_| true);
    world.back.filter = first(1, |packet| packet.wire_size() == Bytes::new(108));
    world.run(at(ms(540 + 250 + 40)) - Duration::from_nanos(1));
    assert!(!world.sender.is_connected());
    world.run(at(ms(540 + 250 + 40)));
    assert!(world.sender.is_connected());
    assert_eq!(world.receiver.statistics().connections, 1);
}

#[test]
fn whatever_the_path_does_delivery_never_goes_back_never_repeats_and_is_never_early() {
    let mut draw = RandomStream::new(7, "paths");
    for seed in 0..60 {
        let latency = draw.duration_between(ms(20), ms(800));
        let rtt = draw.duration_between(ms(1), ms(300));
        let mut world = World::new(with_latency(latency), rtt, seed);
        for way in [&mut world.forward, &mut world.back] {
            way.jitter = draw.duration_between(Duration::ZERO, ms(40));
            way.loss = draw.uniform_between(0.0, 0.3);
            way.burst = (draw.uniform_between(0.0, 0.02), draw.uniform_between(0.05, 1.0));
        }
        world.interval = draw.duration_between(Duration::from_micros(200), ms(20));
        world.run(at(ms(12_000)));
        world.finish();
        assert!(world.delivered.windows(2).all(|pair| pair[0].1 < pair[1].1), "seed {seed}");
        assert!(world.delivered.iter().all(|&(_, message)| world.pushed[message as usize].1));
        // The base has the time on the path of one packet, and drift follows the mean.
        assert!(world.delays().all(|delay| delay + ms(1) >= latency), "seed {seed}");
        assert!(!world.delivered.is_empty(), "seed {seed}");
        let (sent, got) = (world.sender.statistics(), world.receiver.statistics());
        assert!(got.received <= sent.sent + sent.retransmitted);
        assert_eq!(got.delivered, Packets::new(world.delivered.len() as u64));
        assert_eq!(world.receiver.buffered(), Packets::default(), "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_packets() {
    let run = || {
        let mut world = World::new(with_latency(ms(120)), ms(40), 3);
        (world.forward.loss, world.back.loss, world.keeps_log) = (0.1, 0.1, true);
        world.run(at(ms(5_000)));
        (world.log, world.delivered)
    };
    assert_eq!(run(), run());
}

/// A repair fails if the packet is lost again (0.1); reports come twice in a round trip and are lost
/// with 0.1 each. A round takes a round trip and at most as much until the next report that the
/// sender heeds, so two fit into four round trips: at most 0.1 (0.1 + 0.1)^2 = 0.4 % is lost.
#[test]
fn with_a_tenth_lost_both_ways_a_latency_of_four_round_trips_saves_nearly_all() {
    let mut lost = 0.0;
    for seed in 0..10 {
        let mut world = World::new(with_latency(ms(200)), ms(50), seed);
        (world.forward.loss, world.back.loss) = (0.1, 0.1);
        world.run(at(ms(31_000)));
        world.finish();
        lost += world.loss() / 10.0;
    }
    assert!(lost < 0.004, "{lost}");
    // And without repair it would be a tenth.
    assert!(lost > 0.0);
}

/// Drops the packets that `matches`, the first `count` of them.
fn first(
    mut count: u64,
    matches: impl Fn(&SrtPacket) -> bool + 'static,
) -> Box<dyn FnMut(&SrtPacket) -> bool> {
    Box::new(move |packet| {
        let is_dropped = count > 0 && matches(packet);
        count -= u64::from(is_dropped);
        is_dropped
    })
}

#[test]
fn a_lost_report_is_repaired_by_the_periodic_one() {
    let repaired_at = |lost_reports| {
        let mut world = World::new(with_latency(ms(200)), ms(40), 1);
        world.keeps_log = true;
        // A loss before, so that the period is that of LiveCC and not the first one of 300 ms.
        world.forward.filter = first(2, |packet| matches!(data(packet), Some((50 | 200, false))));
        world.back.filter = first(
            lost_reports,
            |packet| matches!(packet, SrtPacket::Nak { ranges } if ranges[0].0 == 200),
        );
        world.run(at(ms(5_000)));
        world.finish();
        assert_eq!(world.loss(), 0.0);
        let repair = world.log.iter().find(|entry| data(&entry.2) == Some((200, true)));
        repair.unwrap().0
    };
    let delay = repaired_at(1).since(repaired_at(0));
    // Half of a round trip and some variance, at the next packet, which come each 5 ms.
    assert!(delay >= ms(20) && delay <= ms(35), "{delay}");
    assert!(repaired_at(2) >= repaired_at(1) + ms(20));
}

#[test]
fn the_last_packet_is_not_repaired_because_nothing_shows_its_loss() {
    let mut world = World::new(with_latency(ms(200)), ms(40), 1);
    world.next_push = at(ms(1_000));
    world.forward.filter = first(1, |packet| matches!(data(packet), Some((100, _))));
    world.run(at(ms(1_500)));
    assert_eq!(world.pushed.len(), 101);
    world.finish();
    assert_eq!(world.delivered.len(), 100);
    assert_eq!(world.sender.buffered(), Packets::new(1));

    // Without periodic reports the sender repeats what is not acknowledged.
    let parameters = SrtParameters { periodic_nak: false, ..with_latency(ms(200)) };
    let mut world = World::new(parameters, ms(40), 1);
    world.forward.filter = first(1, |packet| matches!(data(packet), Some((100, _))));
    world.run(at(ms(1_500)));
    world.finish();
    assert_eq!((world.loss(), world.sender.buffered()), (0.0, Packets::default()));
}

#[test]
fn a_full_ack_is_sent_each_10_ms_and_light_ones_between_at_a_high_rate() {
    let mut world = World::new(with_latency(ms(120)), ms(40), 1);
    world.keeps_log = true;
    world.interval = Duration::from_micros(100);
    world.run(at(ms(2_000)));
    let acks = |world: &World| {
        let full = |entry: &&(Time, bool, SrtPacket)| matches!(entry.2, SrtPacket::Ack(_));
        let light =
            |entry: &&(Time, bool, SrtPacket)| matches!(entry.2, SrtPacket::LightAck { .. });
        (world.log.iter().filter(full).count(), world.log.iter().filter(light).count())
    };
    // At the next packet after 10 ms, for 980 ms; 101 packets between two have one light ACK.
    let (full, light) = acks(&world);
    assert!((95..=98).contains(&full), "{full}");
    assert!(light.abs_diff(full) <= 1, "{light}");
    let mut world = World::new(with_latency(ms(120)), ms(40), 1);
    world.keeps_log = true;
    world.run(at(ms(2_000)));
    assert_eq!(acks(&world).1, 0);
}

/// A connected pair over a path of 40 ms, and the time; its media have not begun.
fn connected(parameters: SrtParameters) -> World {
    let mut world = World::new(parameters, ms(40), 1);
    world.next_push = Time::NEVER;
    world.run(at(ms(200)));
    assert!(world.sender.is_connected() && world.receiver.is_connected());
    world
}

/// What the sender sends within 2 ms; packets are 10 us apart.
fn all(sender: &mut SrtSender, now: Time) -> Vec<(u64, bool)> {
    let times = (0..200).map(|step| now + Duration::from_micros(10 * step));
    times.flat_map(|now| sender.poll_transmit(now)).filter_map(|packet| data(&packet)).collect()
}

#[test]
fn new_packets_go_before_repeated_ones() {
    for (drop_too_late, order) in
        [(true, [(3, false), (1, true)]), (false, [(1, true), (3, false)])]
    {
        let parameters = SrtParameters { drop_too_late, ..direct() };
        let mut sender = connected(parameters).sender;
        for _ in 0..3 {
            assert!(sender.push(at(ms(201)), Bytes::new(1_316)));
        }
        assert_eq!(all(&mut sender, at(ms(205))).len(), 3);
        sender.on_packet(at(ms(250)), &SrtPacket::Nak { ranges: vec![(1, 1)] });
        assert!(sender.push(at(ms(250)), Bytes::new(1_316)));
        assert_eq!(all(&mut sender, at(ms(251))), order);
    }
}

#[test]
fn a_packet_is_not_repeated_again_within_srtt_less_four_variances() {
    let mut world = World::new(direct(), ms(200), 1);
    world.run(at(ms(8_000)));
    let mut sender = world.sender;
    let _ = all(&mut sender, at(ms(8_000)));
    let report = SrtPacket::Nak { ranges: vec![(1_395, 1_395)] };
    let mut repeated_at = Vec::new();
    for step in 0..50u64 {
        let now = at(ms(8_001 + 10 * step));
        sender.on_packet(now, &report);
        repeated_at.extend(all(&mut sender, now).iter().map(|_| step));
    }
    // The round trip is constant: SRTT is 200 ms, the variance is nothing.
    assert_eq!(repeated_at, [0, 21, 42]);
}

#[test]
fn repairs_and_new_packets_keep_the_distance_of_the_maximum_bandwidth() {
    let bandwidth = Rate::from_bits_per_sec(10_880_000);
    let parameters = SrtParameters { max_bandwidth: MaxBandwidth::Fixed(bandwidth), ..direct() };
    let mut world = connected(parameters);
    world.keeps_log = true;
    // 200 datagrams at once; one of 1,360 bytes on the wire takes 1 ms.
    for _ in 0..200 {
        assert!(world.sender.push(world.now, Bytes::new(1_316)));
    }
    world.run(at(ms(300)));
    let times: Vec<Time> =
        world.log.iter().filter(|entry| data(&entry.2).is_some()).map(|entry| entry.0).collect();
    assert!((100..=102).contains(&times.len()), "{}", times.len());
    // Number 0 is a probe: number 1 follows at once, and then nothing for two intervals.
    assert_eq!(times[0], times[1]);
    assert_eq!(times[2].since(times[1]), ms(2));
    assert_eq!(times[3].since(times[2]), ms(1));

    // 25 % above the input of 400 kbit/s: measured, after half a second.
    let parameters = SrtParameters { max_bandwidth: MaxBandwidth::Measured, ..direct() };
    let mut world = World::new(parameters, ms(40), 1);
    world.interval = ms(27);
    world.run(at(ms(4_000)));
    world.keeps_log = true;
    for _ in 0..100 {
        world.sender.push(world.now, Bytes::new(1_316));
    }
    world.next_push = Time::NEVER;
    world.run(at(ms(4_500)));
    let sent = world.log.iter().filter(|entry| data(&entry.2).is_some()).count();
    assert!((22..=26).contains(&sent), "{sent}");
}

#[test]
fn the_flow_window_stops_the_sender_until_a_full_ack() {
    let parameters = SrtParameters { receive_buffer: Packets::new(64), ..direct() };
    let mut sender = connected(parameters).sender;
    for _ in 0..100 {
        assert!(sender.push(at(ms(201)), Bytes::new(1_316)));
    }
    assert_eq!(all(&mut sender, at(ms(210))).len(), 64);
    // A light ACK takes from the window what it gives.
    sender.on_packet(at(ms(220)), &SrtPacket::LightAck { next: 10 });
    assert_eq!(all(&mut sender, at(ms(230))).len(), 0);
    let ack = FullAck {
        number: 1,
        next: 20,
        rtt: ms(40),
        rtt_variance: ms(2),
        available_buffer: Packets::new(50),
        receiving_rate: None,
    };
    sender.on_packet(at(ms(240)), &SrtPacket::Ack(ack));
    assert_eq!(all(&mut sender, at(ms(250))).len(), 6);
    // While a new packet waits for the window, nothing is repeated.
    sender.on_packet(at(ms(255)), &SrtPacket::Nak { ranges: vec![(20, 20)] });
    assert_eq!(all(&mut sender, at(ms(260))).len(), 0);
}

#[test]
fn the_sender_refuses_what_exceeds_its_buffer_and_drops_after_1020_ms_when_it_sends() {
    let mut sender = connected(direct()).sender;
    for _ in 0..8_192 {
        assert!(sender.push(at(ms(200)), Bytes::new(1)));
    }
    assert!(!sender.push(at(ms(1_220)), Bytes::new(1)));
    assert!(sender.push(at(ms(1_221)), Bytes::new(1)));
    assert_eq!(sender.statistics().dropped, Packets::new(8_192));
    assert!(!sender.push(at(ms(1_221)), Bytes::new(1_317)));
    assert!(!sender.push(at(ms(1_221)), Bytes::ZERO));
    assert_eq!(sender.statistics().refused, Packets::new(3));
}

#[test]
fn a_link_at_half_the_rate_delivers_in_order_with_bounded_buffers() {
    let mut world = World::new(with_latency(ms(120)), ms(40), 1);
    world.forward.rate = Rate::from_bits_per_sec(1_050_000);
    for second in 2..30 {
        world.run(at(ms(second * 1_000)));
        // At most the 1.02 s of the sender's drop and the latency at the receiver.
        assert!(world.sender.buffered() <= Packets::new(1_025 / 5));
        assert!(world.receiver.buffered() <= Packets::new(1_025 / 5));
    }
    world.finish();
    assert!(world.delivered.windows(2).all(|pair| pair[0].1 < pair[1].1));
    // Half would be lost without repairs, which come too late and take from the rest.
    assert!((0.45..0.85).contains(&world.loss()), "{}", world.loss());
    assert_eq!(world.sender.statistics().connections, 1);
}

#[test]
fn after_5100_ms_of_silence_both_sides_give_up_and_connect_again_when_the_path_is_back() {
    // In 5 s of outage the connection lasts, in 8 s it does not.
    for (length, connections) in [(4_900, 1), (8_000, 2)] {
        let mut world = World::new(with_latency(ms(120)), ms(40), 1);
        let outage = (at(ms(3_000)), at(ms(3_000 + length)));
        (world.forward.outage, world.back.outage) = (outage, outage);
        world.run(at(ms(20_000)));
        world.finish();
        assert_eq!(world.sender.statistics().connections, connections, "{length}");
        assert_eq!(world.receiver.statistics().connections, connections, "{length}");
        let before = world.delivered.iter().filter(|entry| entry.0 < outage.1).count();
        let expected = 400 + before - before.min(400);
        assert_eq!(before, expected);
        // Afterwards all arrives, from one second (a request is repeated, an attempt ends) on.
        let late = outage.1 + ms(1_000);
        let offered = world.pushed.iter().filter(|entry| entry.0 > late).count();
        let arrived = world.delivered.iter();
        let arrived = arrived.filter(|entry| world.pushed[entry.1 as usize].0 > late).count();
        assert_eq!(arrived, offered, "{length}");
    }
}

#[test]
fn silence_is_5_1_s_and_a_quiet_connection_lasts_by_its_keep_alives() {
    let mut world = connected(direct());
    world.run(at(ms(60_000)));
    assert!(world.sender.is_connected() && world.receiver.is_connected());
    assert_eq!(world.sender.statistics().connections, 1);
    let last = world.now;
    world.back.outage = (world.now, Time::NEVER);
    let mut broken = Time::NEVER;
    while world.now < last + ms(10_000) && broken == Time::NEVER {
        let next = world.now + ms(1);
        world.run(next);
        broken = if world.sender.is_connected() { broken } else { next };
    }
    // The last keep-alive came at most a second before.
    assert!(broken >= last + ms(4_000) && broken <= last + ms(5_130), "{broken}");
}

#[test]
fn drift_moves_the_time_of_delivery_after_a_thousand_samples() {
    let mut world = World::new(with_latency(ms(120)), ms(40), 1);
    world.run(at(ms(2_000)));
    // The path gets 30 ms longer forward alone: 15 ms of it seem to be the clock's.
    world.forward.delay = ms(50);
    world.run(at(ms(60_000)));
    world.finish();
    let delays: Vec<Duration> = world.delays().collect();
    assert_eq!(delays[100], ms(140));
    let last = *delays.last().unwrap();
    assert!(last > ms(150) && last <= ms(156), "{last}");
    assert!(world.delivered.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn ranges_are_the_set_that_they_stand_for() {
    let mut draw = RandomStream::new(3, "ranges");
    for _ in 0..200 {
        let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
        for _ in 0..60 {
            let first = draw.next_u64() % 50;
            let last = (first + draw.next_u64() % 8).saturating_sub(1);
            match draw.next_u64() % 5 {
                0 => {
                    ranges.remove(first, last);
                    set.retain(|number| !(first..=last).contains(number));
                }
                1 => {
                    ranges.remove_before(first);
                    set.retain(|number| *number >= first);
                }
                2 => assert_eq!(ranges.pop(), set.pop_first()),
                _ => {
                    let before = set.len() as u64;
                    set.extend(first..=last);
                    assert_eq!(ranges.insert(first, last), set.len() as u64 - before);
                }
            }
            let numbers: Vec<u64> =
                ranges.as_slice().iter().flat_map(|range| range.0..=range.1).collect();
            assert!(numbers.iter().eq(set.iter()));
            assert!(ranges.as_slice().windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
            assert_eq!(ranges.first(), set.first().copied());
        }
    }
}

/// Draws a packet that no honest peer would send.
fn forged(draw: &mut RandomStream) -> SrtPacket {
    let mut number = || match draw.next_u64() % 4 {
        0 => draw.next_u64() % 4,
        1 => draw.next_u64() % 3_000,
        2 => draw.next_u64(),
        _ => u64::MAX,
    };
    let (a, b, c) = (number(), number(), number());
    let span = Duration::from_nanos(b);
    match draw.next_u64() % 12 {
        0 => SrtPacket::Handshake(Handshake {
            step: [
                HandshakeStep::Induction,
                HandshakeStep::InductionAnswer,
                HandshakeStep::Conclusion,
                HandshakeStep::ConclusionAnswer,
            ][(c % 4) as usize],
            attempt: a % 3,
            timestamp: span,
            initial_sequence: c,
            flow_window: Packets::new(b),
        }),
        1 => SrtPacket::Ack(FullAck {
            number: a,
            next: b,
            rtt: Duration::from_nanos(c),
            rtt_variance: span,
            available_buffer: Packets::new(a),
            receiving_rate: None,
        }),
        2 => SrtPacket::LightAck { next: a },
        3 => SrtPacket::AckAck { number: a, timestamp: span },
        4 => SrtPacket::Nak { ranges: vec![(a, b), (b, c), (c, c)] },
        5 => SrtPacket::DropRequest { first: a, last: b },
        6 => SrtPacket::KeepAlive { timestamp: span },
        7 => SrtPacket::Shutdown { attempt: a },
        _ => SrtPacket::Data {
            sequence: a,
            message: c,
            timestamp: span,
            is_retransmission: c % 2 == 0,
            payload: Bytes::new(b),
        },
    }
}

#[test]
fn forged_packets_cause_no_panic_and_nothing_grows_without_a_bound() {
    for seed in 0..300 {
        let mut draw = RandomStream::new(seed, "forged");
        let parameters = SrtParameters {
            receive_buffer: Packets::new(2 + draw.next_u64() % 600),
            send_buffer: Packets::new(2 + draw.next_u64() % 600),
            drop_too_late: draw.chance(0.7),
            periodic_nak: draw.chance(0.7),
            ..SrtParameters::default()
        };
        let mut world = World::new(parameters, ms(40), seed);
        world.forward.loss = 0.05;
        for _ in 0..300 {
            let next = world.now + draw.duration_between(Duration::ZERO, ms(40));
            world.run(next);
            for _ in 0..draw.next_u64() % 20 {
                let packet = forged(&mut draw);
                let _ = packet.wire_size();
                if draw.chance(0.5) {
                    world.sender.on_packet(world.now, &packet);
                } else {
                    world.receiver.on_packet(world.now, &packet);
                }
            }
            assert!(world.sender.buffered() <= parameters.send_buffer);
            assert!(world.receiver.buffered() <= parameters.receive_buffer);
        }
        // The state of each side is bounded, however often it is not polled.
        for _ in 0..5_000 {
            let packet = forged(&mut draw);
            world.sender.on_packet(world.now, &packet);
            world.receiver.on_packet(world.now, &packet);
        }
        let waiting = core::iter::from_fn(|| world.receiver.poll_transmit(world.now)).count();
        assert!(waiting <= 2 * MAX_QUEUED_CONTROL);
        let waiting = core::iter::from_fn(|| world.sender.poll_transmit(world.now)).take(10_000);
        assert!(waiting.count() <= 2 * MAX_QUEUED_CONTROL);
    }
}

#[test]
fn sizes_on_the_wire_are_those_of_libsrt() {
    let handshake = |step| {
        SrtPacket::Handshake(Handshake {
            step,
            attempt: 0,
            timestamp: Duration::ZERO,
            initial_sequence: 0,
            flow_window: Packets::new(8_192),
        })
    };
    let ack = |receiving_rate| {
        SrtPacket::Ack(FullAck {
            number: 1,
            next: 1,
            rtt: ms(1),
            rtt_variance: ms(1),
            available_buffer: Packets::new(1),
            receiving_rate,
        })
    };
    // Captured between two srt-live-transmit 1.5.1, with 28 bytes of IPv4 and UDP; light ACK and
    // drop request as `CPacket::pack` has them.
    for (packet, size) in [
        (handshake(HandshakeStep::Induction), 92),
        (handshake(HandshakeStep::InductionAnswer), 92),
        (handshake(HandshakeStep::Conclusion), 108),
        (handshake(HandshakeStep::ConclusionAnswer), 108),
        (ack(Some(Rate::from_bits_per_sec(1))), 72),
        (ack(None), 60),
        (SrtPacket::LightAck { next: 1 }, 48),
        (SrtPacket::AckAck { number: 1, timestamp: Duration::ZERO }, 48),
        (SrtPacket::KeepAlive { timestamp: Duration::ZERO }, 48),
        (SrtPacket::Nak { ranges: vec![(3, 3), (5, 9)] }, 56),
        (SrtPacket::DropRequest { first: 1, last: 2 }, 52),
    ] {
        assert_eq!(packet.wire_size(), Bytes::new(size), "{packet:?}");
    }
}

#[test]
fn srt_live_transmit_reads_its_input_each_10_ms_and_when_an_ack_comes() {
    let mut world = World::new(SrtParameters::default(), ms(40), 1);
    world.interval = ms(2);
    world.run(at(ms(5_000)));
    world.finish();
    assert_eq!(world.loss(), 0.0);
    let waits: Vec<Duration> = world.delays().map(|delay| delay - ms(140)).collect();
    assert!(waits.iter().all(|wait| *wait <= ms(10)));
    assert!(waits.iter().any(|wait| *wait >= ms(8)));
    // Between the readings of the clock there are those with the ACKs.
    let mean = waits.iter().copied().sum::<Duration>() / waits.len() as u64;
    assert!(mean >= ms(1) && mean <= ms(6), "{mean}");

    // Nothing is read before the connection is there, and then it is counted.
    let mut sender = SrtSender::new(SrtParameters::default(), Time::ZERO);
    assert!(sender.push(at(ms(1)), Bytes::new(1_316)));
    assert_eq!(sender.next_timeout(), Time::ZERO);
    sender.handle_timeout(at(ms(10)));
    assert_eq!(sender.statistics().refused, Packets::new(1));
    let taken = (0..2_000).filter(|_| sender.push(at(ms(11)), Bytes::new(1_316))).count();
    assert_eq!(taken, 1_024);
}
