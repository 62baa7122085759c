//! Whether CONNECTION_CLOSE reaches the peer.

use ontempo_foundation::{Duration, Rate, Time};
use ontempo_network::LossModel;
use ontempo_transport::simulated::Path;
use ontempo_transport::{Configuration, Event, FlowConfig, Outgoing};

use crate::basics::content;
use crate::world::{CLIENT, SERVER, World, address};

const SEEDS: u64 = 500;

/// Acceptable delay until the peer sees the connection closed.
const IN_TIME: Duration = Duration::from_secs(2);

fn path(loss: f64) -> Path {
    let loss = LossModel::bernoulli(loss).expect("a probability");
    Path { loss, ..Path::clean(Rate::from_bits_per_sec(10_000_000), Duration::from_millis(20)) }
}

/// A client sends 20 units; the server closes once it has received all. `None` if the handshake
/// failed.
fn closed(seed: u64, loss: f64) -> Option<(World, Time)> {
    let mut world = World::new(seed, &path(loss), &path(loss), &Configuration::default());
    if !world.connects(false) {
        return None;
    }
    let flow = world.open_flow(FlowConfig::default());
    for id in 0..20 {
        let now = world.now();
        let unit = Outgoing { data: content(id, 1000), ..Outgoing::default() };
        world.client().send(now, flow, unit).expect("the send queue has space");
    }
    world.client().finish_flow(flow);
    world.network.flush(CLIENT);
    assert!(world.run(Time::from_secs_f64(60.0), |world| world.has_ended(flow)));
    // Everything is acknowledged before.
    let closes = world.now() + Duration::from_millis(500);
    world.run(closes, |_| false);
    world.connection(SERVER).expect("open").close(closes, "had all");
    world.network.flush(SERVER);
    Some((world, closes))
}

/// Time from the closing until the client has seen it. The server's program ends with the closing
/// period, after which nothing is answered.
fn close_delay(world: &mut World, closes: Time) -> Duration {
    let is_closed = world.run(closes + Duration::from_secs(60), |world| {
        if world.network.endpoint(SERVER).connections() == 0 {
            world.network.rebind(SERVER, address(3));
        }
        world.events[CLIENT].iter().any(|event| matches!(event, Event::Closed { .. }))
    });
    assert!(is_closed, "the client never closed");
    world.now().since(closes)
}

#[test]
fn a_peer_sees_the_close_although_packets_are_lost() {
    for (loss, min_share) in [(0.1, 0.99), (0.3, 0.95)] {
        let runs = (0..SEEDS).filter_map(|seed| closed(seed, loss));
        let mut times: Vec<Duration> =
            runs.map(|(mut world, closes)| close_delay(&mut world, closes)).collect();
        times.sort_unstable();
        let share =
            times.iter().filter(|time| **time <= IN_TIME).count() as f64 / times.len() as f64;
        println!(
            "loss {loss}: {share:.4} of {} in {IN_TIME}, last {:?}",
            times.len(),
            times.last()
        );
        assert!(share > min_share, "closed in time: {share}");
    }
}

#[test]
fn connection_close_is_sent_once_if_the_peer_answers_it() {
    let (mut world, closes) = closed(1, 0.0).expect("connected");
    let before = world.network.passages().iter().filter(|p| p.left < closes).count();
    // Both sides know it a round trip later, and their programs can end.
    assert!(!world.network.endpoint(SERVER).is_closed_by_both());
    world.run(closes + Duration::from_millis(45), |_| false);
    assert!(world.network.endpoint(CLIENT).is_closed_by_both());
    assert!(world.network.endpoint(SERVER).is_closed_by_both());
    assert_eq!(world.network.endpoint(SERVER).connections(), 1);
    world.run(closes + Duration::from_secs(5), |_| false);
    let closing = &world.network.passages()[before..];
    assert_eq!(closing.iter().filter(|passage| passage.from == SERVER).count(), 1, "{closing:?}");
    assert_eq!(world.network.endpoint(SERVER).connections(), 0);
}
