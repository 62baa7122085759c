//! A handshake whose first packets are lost.

use ontempo_foundation::{Duration, Rate, Time};
use ontempo_transport::Configuration;
use ontempo_transport::simulated::Path;

use crate::world::World;

const ROUND_TRIP: Duration = Duration::from_millis(100);

const fn ms(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

/// The first packet is lost, its repetition 250 ms later is not: two round trips for the handshakes of QUIC and
/// of this protocol come after it, and half of one is left for what the link takes.
#[test]
fn a_handshake_whose_first_packet_is_lost_is_repeated_after_a_quarter_of_a_second() {
    let back = Path::clean(Rate::from_bits_per_sec(20_000_000), ROUND_TRIP / 2);
    let mut path = back.clone();
    path.mishaps.stalls.push((Time::ZERO, ms(200)));
    let mut world = World::new(1, &path, &back, &Configuration::default());
    world.connect();
    assert!(world.now() <= ms(250) + ROUND_TRIP * 5 / 2, "connected at {}", world.now());
}
