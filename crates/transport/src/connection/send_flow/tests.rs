//! Room in the queue, and its order.

use super::*;
use ontempo_foundation::Bytes as Amount;

/// Whether there is room again at once after a unit of `refused` bytes was refused.
fn has_room(held: &[usize], refused: usize, (units, bytes): (u64, u64)) -> bool {
    let send_bytes = Amount::new(bytes);
    let config = Configuration { send_units: units, send_bytes, ..Configuration::default() };
    let peer = config.limits;
    let mut flow = SendFlow::new(0, FlowConfig::default(), peer.units, peer.bytes);
    let unit = |size| Outgoing { data: vec![7; size].into(), ..Outgoing::default() };
    for size in held {
        flow.push(Time::ZERO, unit(*size), &peer, &config).expect("room");
    }
    let full = flow.push(Time::ZERO, unit(refused), &peer, &config);
    assert_eq!(full, Err(SendError::Full));
    flow.has_room_again(&peer, &config)
}

#[test]
fn there_is_no_room_again_where_the_refused_unit_does_not_fit() {
    assert!(!has_room(&[1], 1, (1, 100_000)), "one unit at a time");
    assert!(!has_room(&[1; 4], 1, (4, 100_000)));
    assert!(!has_room(&[50_000], 80_000, (100, 100_000)), "more than a quarter");
}

#[test]
fn a_picture_that_goes_among_others_is_sent_in_its_turn_and_keeps_its_own_priority_on_the_wire() {
    let config = Configuration::default();
    let peer = config.limits;
    let with_deadlines = FlowConfig { reliability: Reliability::Deadline, ..FlowConfig::default() };
    let mut flow = SendFlow::new(0, with_deadlines, peer.units, peer.bytes);
    let round_trip = Duration::from_millis(20);
    let bears = Rate::from_bits_per_sec(1_200_000);
    let path = Path { bears, measured: bears, round_trip, least: round_trip };
    let mut order = Vec::new();
    // Pictures of 5 kB of which each second one is needed: 1.0 Mbit/s of 2.0.
    for number in 0..250_u64 {
        let now = Time::from_nanos(number * 20_000_000);
        let is_needed = number % 2 == 0;
        let unit = Outgoing {
            data: vec![7; if is_needed || number % 10 > 3 { 5_000 } else { 500 }].into(),
            deadline: Some(now + Duration::from_secs(1)),
            priority: if is_needed { 4 } else { 3 },
            depends_on: (number >= 2).then(|| (number - 2) / 2 * 2).into_iter().collect(),
            ..Outgoing::default()
        };
        flow.push(now, unit, &peer, &config).expect("room");
        flow.plan(now, &path, 0);
        // What has waited for half a second is sent: enough is queued to choose from.
        while number > 25 && flow.queue.len() > 10 {
            let stream = StreamId::new(noq_proto::Side::Client, noq_proto::Dir::Uni, number);
            let rank = flow.head().expect("queued").1;
            let (header, _) = flow.pop(Some(stream)).expect("queued");
            flow.on_arrived(header.id);
            order.push((header.id, header.priority, rank));
        }
    }
    let late = order.iter().filter(|(id, ..)| *id > 150);
    let small: Vec<_> = late.filter(|(id, ..)| id % 10 == 1 || id % 10 == 3).collect();
    assert!(small.len() > 10, "{order:?}");
    assert!(small.iter().all(|(_, own, rank)| (*own, *rank) == (3, 4)), "{small:?}");
}
