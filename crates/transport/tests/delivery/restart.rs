//! A server that is started again, with its key and token but nothing else.

use ontempo_foundation::{Duration, Rate, Time};
use ontempo_transport::simulated::Path;
use ontempo_transport::{
    CloseReason, Configuration, Delivery, Endpoint, Event, FlowConfig, FlowId, Outgoing,
    Reliability, Token,
};

use crate::basics::content;
use crate::world::{CLIENT, SERVER, World, address, identity, seed_bytes};

/// Nobody's address.
const AWAY: u8 = 9;

const ROUND_TRIP: Duration = Duration::from_millis(40);

/// From one probe of a silent peer to the next (`connection/migration.rs`).
const PROBE: Duration = Duration::from_millis(250);

/// A client that sends media to a server.
struct Stream {
    world: World,
    flow: FlowId,
    sent: u64,
}

impl Stream {
    fn start(seed: u64) -> Self {
        let path = Path::clean(Rate::from_bits_per_sec(20_000_000), ROUND_TRIP / 2);
        let idle_timeout = Duration::from_secs(4);
        let config = Configuration { idle_timeout, ..Configuration::default() };
        let mut world = World::new(seed, &path, &path, &config);
        world.connect();
        let reliability = Reliability::Deadline;
        let flow = world.open_flow(FlowConfig { reliability, ..FlowConfig::default() });
        Self { world, flow, sent: 0 }
    }

    /// Sends a unit every 20 ms for this long, or until the client's connection is closed.
    fn send(&mut self, duration: Duration) {
        let ends = self.world.now() + duration;
        while self.world.now() < ends && self.closed().is_none() {
            let now = self.world.now();
            let (data, deadline) =
                (content(self.sent, 3_000), Some(now + Duration::from_millis(200)));
            let unit = Outgoing { data, deadline, ..Outgoing::default() };
            self.sent += 1;
            let flow = self.flow;
            // A full queue is no error here: nobody acknowledges.
            let _ = self.world.client().send(now, flow, unit);
            self.world.network.flush(CLIENT);
            let next = (now + Duration::from_millis(20)).min(ends);
            self.world.run(next, |world| is_closed(world).is_some());
        }
    }

    fn closed(&mut self) -> Option<CloseReason> {
        is_closed(&mut self.world)
    }

    /// Another process at the server's address.
    fn restart(&mut self, seed: u64) {
        let config = Configuration::default();
        let mut server = Endpoint::new(config, seed_bytes(seed, SERVER));
        let token = Token::new(b"shared").expect("short");
        server.listen(identity(), token).expect("the identity can be used");
        *self.world.network.endpoint(SERVER) = server;
        self.world.network.rebind(SERVER, address(2));
        self.world.ids[SERVER] = None;
    }
}

fn is_closed(world: &mut World) -> Option<CloseReason> {
    world.events[CLIENT].iter().find_map(|event| match event {
        Event::Closed { closed, .. } => Some(closed.reason),
        _ => None,
    })
}

#[test]
fn a_client_knows_within_a_probe_and_a_round_trip_that_its_server_was_restarted() {
    for away in [0, 100, 400, 700, 1_000, 1_500, 2_000, 3_000, 3_500].map(Duration::from_millis) {
        let mut stream = Stream::start(1);
        stream.send(Duration::from_secs(1));
        stream.world.network.rebind(SERVER, address(AWAY));
        stream.send(away);
        assert_eq!(stream.closed(), None, "after {away}");
        stream.restart(77);
        let back = stream.world.now();
        stream.send(Duration::from_secs(10));
        assert_eq!(stream.closed(), Some(CloseReason::Reset), "away for {away}");
        // The units' queues, a few ms, lie in between.
        let took = stream.world.now().since(back);
        assert!(took < PROBE + ROUND_TRIP * 2, "away for {away}, known after {took}");
    }
}

#[test]
fn a_client_whose_server_has_no_state_sends_nothing_more() {
    let mut stream = Stream::start(1);
    stream.send(Duration::from_secs(1));
    stream.world.network.rebind(SERVER, address(AWAY));
    stream.send(Duration::from_secs(1));
    stream.restart(77);
    stream.send(Duration::from_secs(10));
    assert_eq!(stream.closed(), Some(CloseReason::Reset));
    let now = stream.world.now();
    stream.world.run(now + Duration::from_secs(10), |_| false);
    let passages = stream.world.network.passages();
    let later = passages.iter().filter(|passage| passage.from == CLIENT && passage.left > now);
    assert_eq!(later.count(), 0);
    assert_eq!(stream.world.network.endpoint(CLIENT).connections(), 0, "it is forgotten");
}

#[test]
fn nobody_without_the_key_can_reset_a_connection() {
    let mut stream = Stream::start(1);
    stream.send(Duration::from_secs(1));
    // Silence, so that another connection id is in use.
    stream.world.network.rebind(SERVER, address(AWAY));
    stream.send(Duration::from_secs(1));
    for number in 0..2_000u64 {
        let mut forged = content(number, 21 + number as usize % 60).to_vec();
        forged[0] = 0b0100_0000 | forged[0] >> 2;
        stream.world.network.inject(CLIENT, address(2), &forged);
    }
    stream.world.network.rebind(SERVER, address(2));
    stream.send(Duration::from_secs(2));
    assert_eq!(stream.closed(), None);
    let now = stream.world.now();
    assert!(stream.world.connection(CLIENT).expect("open").statistics().heard > Time::ZERO);
    assert!(now.since(stream.world.client().statistics().heard) < Duration::from_millis(200));
}

#[test]
fn what_a_restarted_server_was_told_had_arrived_can_still_be_received() {
    let mut stream = Stream::start(1);
    let from = stream.world.connection(SERVER).expect("open");
    let flow = from.open_flow(FlowConfig::default()).expect("opened");
    for id in 0..20 {
        let unit = Outgoing { data: content(id, 100_000), ..Outgoing::default() };
        let from = stream.world.connection(SERVER).expect("open");
        from.send(Time::ZERO, flow, unit).expect("room");
    }
    stream.world.network.flush(SERVER);
    // The client takes nothing of it.
    stream.send(Duration::from_secs(3));
    let from = stream.world.connection(SERVER).expect("open");
    assert_eq!(from.send_statistics(Time::ZERO, flow).expect("open").arrived, 20);
    stream.world.network.rebind(SERVER, address(AWAY));
    stream.send(Duration::from_secs(1));
    stream.restart(77);
    stream.send(Duration::from_secs(10));
    assert_eq!(stream.closed(), Some(CloseReason::Reset));
    let incoming = FlowId { outgoing: false, ..flow };
    let mut received = Vec::new();
    for event in &stream.world.events[CLIENT] {
        if let Event::Left { deliveries, .. } = event {
            received.extend(deliveries.iter().cloned());
        }
    }
    if let Some(client) = stream.world.connection(CLIENT) {
        received.extend(std::iter::from_fn(|| client.receive(incoming)));
    }
    assert_eq!(received.len(), 20);
    for (id, delivery) in (0..).zip(&received) {
        let Delivery::Unit(unit) = delivery else { panic!("{delivery:?}") };
        assert_eq!((unit.id, &unit.data), (id, &content(id, 100_000)));
    }
}
