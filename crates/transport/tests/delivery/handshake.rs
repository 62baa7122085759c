//! When a client is connected and when it may send, also where packets of the handshake are lost.

use ontempo_foundation::{Duration, Rate, Time};
use ontempo_network::LossModel;
use ontempo_transport::simulated::Path;
use ontempo_transport::{CloseReason, Configuration, Delivery, Event, FlowConfig, Outgoing, Token};

use crate::basics::content;
use crate::world::{CLIENT, SERVER, World};

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

fn path() -> Path {
    Path::clean(Rate::from_bits_per_sec(20_000_000), ROUND_TRIP / 2)
}

/// A client that sends so many units of 50,000 bytes as soon as it may, and when that was.
fn send_early(world: &mut World, units: u64) -> (ontempo_transport::FlowId, Time) {
    assert!(world.connects(true) && world.connection(CLIENT).is_some_and(|it| it.is_early()));
    let now = world.now();
    let flow = world.open_flow(FlowConfig::default());
    for id in 0..units {
        let unit = Outgoing { data: content(id, 50_000), ..Outgoing::default() };
        assert_eq!(world.client().send(now, flow, unit), Ok(id));
    }
    world.network.flush(CLIENT);
    (flow, now)
}

fn arrive_all(world: &mut World, flow: ontempo_transport::FlowId, units: usize) -> bool {
    let until = world.now() + Duration::from_secs(60);
    world.run(until, |world| world.delivered(flow).len() == units)
}

#[test]
fn a_client_sends_one_round_trip_after_its_first_packet_and_before_it_is_welcome() {
    let mut world = World::new(1, &path(), &path(), &Configuration::default());
    let (flow, early) = send_early(&mut world, 1);
    assert!(early <= ms(105), "it may send at {early}");
    assert!(!world.is_open(CLIENT));
    assert!(arrive_all(&mut world, flow, 1));
    assert!(world.is_open(CLIENT) && world.is_open(SERVER));
    let Delivery::Unit(unit) = &world.delivered(flow)[0] else { panic!("nothing was dropped") };
    assert_eq!(unit.data, content(0, 50_000));
}

#[test]
fn without_the_limits_that_come_with_the_handshake_a_client_waits_for_the_welcome() {
    let mut back = path();
    // The first answer is lost, and repeated without them.
    back.mishaps.stalls.push((Time::ZERO, ms(60)));
    let mut world = World::new(1, &path(), &back, &Configuration::default());
    assert!(world.connects(true));
    let is_early = |event: &Event| matches!(event, Event::Early { .. });
    assert!(world.is_open(CLIENT) && !world.events[CLIENT].iter().any(is_early));
}

#[test]
fn what_a_client_with_a_wrong_token_sends_early_opens_no_flow() {
    let config = Configuration::default();
    let token = Token::new(b"guessed").expect("short");
    let mut world = World::with(1, &path(), &path(), [config.clone(), config], token);
    send_early(&mut world, 2);
    let until = Time::from_secs_f64(5.0);
    let is_closed = |event: &Event| matches!(event, Event::Closed { closed, .. } if closed.reason == CloseReason::WrongToken);
    assert!(world.run(until, |world| world.events[CLIENT].iter().any(is_closed)));
    let is_opened = |event: &Event| matches!(event, Event::FlowOpened { .. });
    assert!(!world.events[SERVER].iter().any(is_opened));
    assert!(!world.is_open(CLIENT) && !world.is_open(SERVER));
}

/// What the server holds before it knows the token has a bound, which what is sent early keeps, whatever of it arrives.
#[test]
fn units_sent_early_arrive_though_packets_before_them_are_lost() {
    let mut early = 0;
    for seed in 0..60 {
        let mut there = path();
        there.loss = LossModel::bernoulli(0.3).expect("a probability");
        let mut world = World::new(seed, &there, &path(), &Configuration::default());
        if world.connects(true) && world.connection(CLIENT).is_some_and(|it| it.is_early()) {
            early += 1;
            let (flow, _) = send_early(&mut world, 6);
            assert!(arrive_all(&mut world, flow, 6), "seed {seed}: {:?}", world.events);
        }
    }
    assert!(early >= 30, "{early} of 60 sent early");
}

#[test]
fn units_sent_early_arrive_after_an_outage_that_begins_with_them() {
    let mut there = path();
    there.mishaps.stalls.push((ms(90), ms(2_000)));
    let mut world = World::new(1, &there, &path(), &Configuration::default());
    let (flow, _) = send_early(&mut world, 6);
    assert!(arrive_all(&mut world, flow, 6), "{:?}", world.events);
}
