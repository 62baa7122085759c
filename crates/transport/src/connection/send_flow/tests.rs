//! Room in the queue.

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
