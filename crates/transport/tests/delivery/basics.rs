use bytes::Bytes;
use ontempo_foundation::{Duration, Rate, Time};
use ontempo_transport::simulated::Path;
use ontempo_transport::{Configuration, Delivery, FlowConfig, Outgoing, Reliability, SendError};

use crate::world::{CLIENT, World};

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
