use bytes::Bytes;
use ontempo_foundation::{Duration, Rate, Time};
use ontempo_transport::simulated::Path;
use ontempo_transport::{
    Configuration, Delivery, FlowConfig, Outgoing, Reliability, SendError, Source,
};

use crate::world::{CLIENT, SERVER, World, address, datagrams};

pub(crate) fn content(id: u64, size: usize) -> Bytes {
    (0..size).map(|at| (id as usize * 31 + at * 7) as u8).collect::<Vec<_>>().into()
}

fn path() -> Path {
    Path::clean(Rate::from_bits_per_sec(20_000_000), Duration::from_millis(20))
}

#[test]
fn a_deadline_is_refused_if_the_reliability_ignores_it() {
    for reliability in [Reliability::Full, Reliability::Deadline, Reliability::None] {
        let mut world = World::new(1, &path(), &path(), &Configuration::default());
        world.connect();
        let flow = world.open_flow(FlowConfig { reliability, ..FlowConfig::default() });
        let now = world.now();
        let deadline = Some(now + Duration::from_millis(200));
        let unit = Outgoing { data: content(0, 100), deadline, ..Outgoing::default() };
        let sent = world.client().send(now, flow, unit);
        let expected =
            if reliability.allows_deadlines() { Ok(0) } else { Err(SendError::Deadline) };
        assert_eq!(sent, expected, "{reliability:?}");
    }
}

#[test]
fn an_unrepaired_unit_that_comes_behind_a_later_one_in_one_batch_is_not_lost() {
    let mut world = World::new(1, &path(), &path(), &Configuration::default());
    world.connect();
    let reliability = Reliability::None;
    let flow = world.open_flow(FlowConfig { reliability, ..FlowConfig::default() });
    let send = |world: &mut World, id: u64| {
        let now = world.now();
        let unit = Outgoing { data: content(id, 1_000), ..Outgoing::default() };
        assert_eq!(world.client().send(now, flow, unit), Ok(id));
    };
    send(&mut world, 0);
    world.network.flush(CLIENT);
    let until = world.now() + Duration::from_secs(1);
    world.run(until, |_| false);
    (1..=3).for_each(|id| send(&mut world, id));
    let now = world.now();
    let sent = datagrams(now, world.network.endpoint(CLIENT));
    assert_eq!(sent.len(), 3);
    for datagram in sent.iter().rev() {
        world.network.endpoint(SERVER).handle(now, Source::of(address(1)), datagram[..].into());
    }
    world.network.flush(SERVER);
    world.run(now + Duration::from_secs(1), |_| false);
    let delivered = world.delivered(flow).iter();
    let ids: Vec<u64> = delivered
        .filter_map(|delivery| match delivery {
            Delivery::Unit(unit) => Some(unit.id),
            Delivery::Dropped(_) => None,
        })
        .collect();
    assert_eq!(ids, [0, 1, 2, 3]);
}

#[test]
fn units_arrive_in_order_and_whole() {
    let mut world = World::new(1, &path(), &path(), &Configuration::default());
    world.connect();
    let flow = world.open_flow(FlowConfig::default());
    let sizes: Vec<usize> = (0..400).map(|id| [0, 1, 200, 1200, 30_000][id % 5]).collect();
    let mut sent = 0;
    let until = Time::from_secs_f64(60.0);
    let done = world.run(until, |world| {
        while let Some(size) = sizes.get(sent) {
            let now = world.now();
            let unit = Outgoing { data: content(sent as u64, *size), ..Outgoing::default() };
            match world.client().send(now, flow, unit) {
                Ok(id) => assert_eq!(id, sent as u64),
                Err(SendError::Full) => break,
                Err(error) => panic!("{error}"),
            }
            sent += 1;
            if sent == sizes.len() {
                world.client().finish_flow(flow);
            }
        }
        world.network.flush(CLIENT);
        world.has_ended(flow)
    });
    assert!(done, "not done by {}: {}", world.now(), world.delivered(flow).len());
    assert_eq!(world.delivered(flow).len(), sizes.len());
    for ((id, delivery), size) in (0..).zip(world.delivered(flow)).zip(sizes) {
        let Delivery::Unit(unit) = delivery else { panic!("{id} was dropped") };
        assert_eq!((unit.id, &unit.data), (id, &content(id, size)));
    }
}
