//! Packets that no librist sends: nothing panics, nothing grows without a bound.

use ontempo_foundation::{Bytes, Duration, RandomStream, Time};

use super::world::{DATAGRAM, at, ms};
use crate::rist::{
    MAX_OUTBOX, NackRange, RistEnd, RistPacket, RistParameters, RistReceiver, RistSender, SEQUENCES,
};

fn time(draw: &mut RandomStream, now: Time) -> Time {
    match draw.next_u64() % 4 {
        0 => Time::from_nanos(draw.next_u64()),
        1 => Time::ZERO,
        2 => Time::NEVER,
        _ => now - draw.duration_between(Duration::ZERO, ms(300)),
    }
}

fn packet(draw: &mut RandomStream, now: Time) -> RistPacket {
    let from = if draw.chance(0.5) { RistEnd::Sender } else { RistEnd::Receiver };
    match draw.next_u64() % 9 {
        0 => RistPacket::SenderReport { echo_request: Some(time(draw, now)) },
        1 => RistPacket::ReceiverReport { echo_request: time(draw, now), is_extended: true },
        2 => RistPacket::EchoRequest { sent: time(draw, now) },
        3 => RistPacket::EchoResponse { from, request_sent: time(draw, now) },
        4 => RistPacket::Notice,
        5 => {
            let number = draw.next_u64() % 200;
            let range = |draw: &mut RandomStream| NackRange {
                first: draw.next_u64() as u16,
                additional: if draw.chance(0.002) {
                    u16::MAX
                } else {
                    (draw.next_u64() % 9) as u16
                },
            };
            RistPacket::Nack { ranges: (0..number).map(|_| range(draw)).collect() }
        }
        _ => RistPacket::Data {
            sequence: draw.next_u64() as u16,
            datagram: if draw.chance(0.9) { draw.next_u64() % 1000 } else { draw.next_u64() },
            timestamp: time(draw, now),
            is_retransmission: draw.chance(0.3),
            payload: Bytes::new(draw.next_u64() >> (draw.next_u64() % 64)),
        },
    }
}

fn parameters(draw: &mut RandomStream) -> RistParameters {
    let mut parameters = RistParameters::default();
    match draw.next_u64() % 4 {
        0 => parameters.buffer = Duration::ZERO,
        1 => parameters.buffer = Duration::MAX,
        _ => parameters.buffer = draw.duration_between(Duration::ZERO, ms(2000)),
    }
    if draw.chance(0.2) {
        parameters.rtt_min = Duration::MAX;
        parameters.rtt_max = Duration::ZERO;
        parameters.reorder_buffer = Duration::MAX;
        parameters.max_bitrate = ontempo_foundation::Rate::UNLIMITED;
        parameters.max_retries = u32::MAX;
        parameters.session_timeout = Duration::ZERO;
        parameters.null_packet_deletion = true;
    }
    parameters
}

#[test]
fn forged_packets_make_nothing_panic_or_grow() {
    for seed in 0..100 {
        let mut draw = RandomStream::new(seed, "forged");
        let mut now = Time::ZERO;
        let parameters = parameters(&mut draw);
        let mut sender = RistSender::new(parameters, now);
        let mut receiver = RistReceiver::new(parameters, now);
        let is_polled = draw.chance(0.8);
        let mut last = None;
        for _ in 0..250 {
            now += draw.duration_between(Duration::ZERO, ms(20));
            let forged = packet(&mut draw, now);
            let _ = forged.wire_size();
            sender.on_packet(now, &forged);
            receiver.on_packet(now, &forged);
            let nulls = draw.next_u64() as u8;
            sender.push(now, Bytes::new(draw.next_u64() % 12_000), nulls);
            sender.handle_timeout(now);
            receiver.handle_timeout(now);
            assert!(sender.next_timeout() > now && receiver.next_timeout() > now, "seed {seed}");
            while is_polled && sender.poll_transmit(now).is_some() {}
            while is_polled && receiver.poll_transmit(now).is_some() {}
            while is_polled && let Some(datagram) = receiver.poll_delivery(now) {
                assert!(last.is_none_or(|last| datagram > last), "seed {seed}");
                last = Some(datagram);
            }
            let (sent, received) = (sender.held(), receiver.held());
            assert!(sent <= 5 * SEQUENCES + 2 * MAX_OUTBOX, "seed {seed}: {sent}");
            assert!(received <= 3 * SEQUENCES + 2 * MAX_OUTBOX, "seed {seed}: {received}");
        }
    }
}

#[test]
fn an_application_that_never_polls_fills_no_memory() {
    let mut sender = RistSender::new(RistParameters::default(), Time::ZERO);
    sender
        .on_packet(at(1), &RistPacket::ReceiverReport { echo_request: at(1), is_extended: false });
    for number in 0..200_000 {
        let now = at(5) + Duration::from_micros(number);
        sender.handle_timeout(now);
        sender.push(now, DATAGRAM, 0);
    }
    assert!(sender.statistics().overflowed > 100_000);
    assert!(sender.held() <= SEQUENCES + MAX_OUTBOX);
}

#[test]
fn extreme_times_make_nothing_panic() {
    for now in [Time::ZERO, Time::from_nanos(u64::MAX / 2), Time::NEVER] {
        let mut sender = RistSender::new(RistParameters::default(), now);
        let mut receiver = RistReceiver::new(RistParameters::default(), now);
        for timestamp in [Time::ZERO, now, Time::NEVER] {
            for sequence in [0, 1, 0x7fff, 0x8000, 0xffff] {
                for is_retransmission in [false, true] {
                    receiver.on_packet(now, &RistPacket::EchoRequest { sent: timestamp });
                    let payload = DATAGRAM;
                    let datagram = u64::MAX - u64::from(sequence);
                    receiver.on_packet(
                        now,
                        &RistPacket::Data {
                            sequence,
                            datagram,
                            timestamp,
                            is_retransmission,
                            payload,
                        },
                    );
                }
            }
            sender.on_packet(
                now,
                &RistPacket::ReceiverReport { echo_request: timestamp, is_extended: true },
            );
            sender.handle_timeout(now);
            sender.push(now, DATAGRAM, 8);
            receiver.handle_timeout(now);
        }
    }
}
