//! Whether a peer learns that the connection is over.

use ontempo_foundation::{Duration, Rate, Time};
use ontempo_network::LossModel;
use ontempo_transport::simulated::Path;
use ontempo_transport::{Configuration, Event, FlowConfig, Outgoing};

use crate::basics::content;
use crate::world::{CLIENT, SERVER, World, address};

const SEEDS: u64 = 500;

/// What a program that waits for the other to close takes for an answer in time.
const SOON: Duration = Duration::from_secs(2);

fn path(loss: f64) -> Path {
    let loss = LossModel::bernoulli(loss).expect("a probability");
    Path { loss, ..Path::clean(Rate::from_bits_per_sec(10_000_000), Duration::from_millis(20)) }
}

/// A client sends, and waits; the server has had all and closes at the end.
fn closed(seed: u64, loss: f64) -> Option<(World, Time)> {
    let mut world = World::new(seed, &path(loss), &path(loss), &Configuration::default());
    if !world.connects() {
        return None;
    }
    let flow = world.open_flow(FlowConfig::default());
    for id in 0..20 {
        let now = world.now();
        let unit = Outgoing { data: content(id, 1000), ..Outgoing::default() };
        world.client().send(now, flow, unit).expect("there is room");
    }
    world.client().finish_flow(flow);
    world.network.flush(CLIENT);
    assert!(world.run(Time::from_secs_f64(60.0), |world| world.has_ended(flow)));
    // All is acknowledged before.
    let closes = world.now() + Duration::from_millis(500);
    world.run(closes, |_| false);
    world.connection(SERVER).expect("open").close(closes, "had all");
    world.network.flush(SERVER);
    Some((world, closes))
}

/// How long after the closing the client was told. The server's program ends with the closing
/// period: nobody answers any more.
fn told_after(world: &mut World, closes: Time) -> Duration {
    let told = world.run(closes + Duration::from_secs(60), |world| {
        if world.network.endpoint(SERVER).connections() == 0 {
            world.network.rebind(SERVER, address(3));
        }
        world.events[CLIENT].iter().any(|event| matches!(event, Event::Closed { .. }))
    });
    assert!(told, "never told");
    world.now().since(closes)
}

#[test]
fn a_peer_is_told_though_the_word_of_closing_is_lost() {
    for (loss, least) in [(0.1, 0.99), (0.3, 0.95)] {
        let runs = (0..SEEDS).filter_map(|seed| closed(seed, loss));
        let mut times: Vec<Duration> =
            runs.map(|(mut world, closes)| told_after(&mut world, closes)).collect();
        times.sort_unstable();
        let soon = times.iter().filter(|time| **time <= SOON).count() as f64 / times.len() as f64;
        println!("loss {loss}: {soon:.4} of {} in {SOON}, last {:?}", times.len(), times.last());
        assert!(soon > least, "told in time: {soon}");
    }
}

#[test]
fn the_word_of_closing_is_said_once_where_the_peer_answers_it() {
    let (mut world, closes) = closed(1, 0.0).expect("connected");
    let before = world.network.passages().iter().filter(|p| p.left < closes).count();
    world.run(closes + Duration::from_secs(5), |_| false);
    let said = &world.network.passages()[before..];
    assert_eq!(said.iter().filter(|passage| passage.from == SERVER).count(), 1, "{said:?}");
    assert_eq!(world.network.endpoint(SERVER).connections(), 0);
}
