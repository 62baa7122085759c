//! Unauthorised and misbehaving peers.

use ontempo_foundation::{Duration, RandomStream, Rate, Time};
use ontempo_transport::simulated::{Network, Path};
use ontempo_transport::{
    CloseReason, Configuration, Delivery, Endpoint, Event, FlowConfig, Identity, Limits, Outgoing,
    Poll, SendError, Source, Token, Trust,
};

use crate::basics::content;
use crate::world::{CLIENT, SERVER, World, address, datagrams, identity, seed_bytes};

fn path() -> Path {
    Path::clean(Rate::from_bits_per_sec(20_000_000), Duration::from_millis(20))
}

fn closed(events: &[Event]) -> Option<(CloseReason, &str)> {
    events.iter().find_map(|event| match event {
        Event::Closed { closed, .. } => Some((closed.reason, closed.sentence.as_str())),
        _ => None,
    })
}

#[test]
fn a_client_with_a_wrong_token_is_refused_and_both_sides_see_the_reason() {
    let config = Configuration::default();
    let token = Token::new(b"guessed").expect("short");
    let configs = [config.clone(), config];
    let mut world = World::with(1, &path(), &path(), configs, token);
    let until = Time::from_secs_f64(5.0);
    world.run(until, |world| closed(&world.events[CLIENT]).is_some());
    let wrong = CloseReason::WrongToken;
    assert_eq!(closed(&world.events[CLIENT]), Some((wrong, "the peer refused our token")));
    assert_eq!(closed(&world.events[SERVER]), Some((wrong, "a client had the wrong token")));
    assert!(!world.is_open(CLIENT) && !world.is_open(SERVER));
}

#[test]
fn a_server_with_another_fingerprint_never_receives_the_token() {
    let other = Identity::self_signed(&["server"]).expect("a certificate can be made");
    let mut client = Endpoint::new(Configuration::default(), seed_bytes(1, CLIENT));
    let mut server = Endpoint::new(Configuration::default(), seed_bytes(1, SERVER));
    server.listen(identity(), Token::anyone()).expect("the identity can be used");
    let trust = Trust::Fingerprint(other.fingerprint());
    client
        .connect(Time::ZERO, address(2), "server", &trust, Token::anyone())
        .expect("the handshake can be started");
    let mut network = Network::new(1);
    network.add(client, address(1));
    network.add(server, address(2));
    network.join(CLIENT, SERVER, &path(), &path());
    network.flush(CLIENT);
    while network.step(Time::from_secs_f64(20.0)).is_some() {}
    let events: Vec<Event> = std::iter::from_fn(|| network.endpoint(CLIENT).poll_event()).collect();
    let (reason, sentence) = closed(&events).expect("the connection is closed");
    assert_eq!(reason, CloseReason::Untrusted);
    assert!(sentence.contains(&other.fingerprint().to_string()), "{events:?}");
    let connected = |event: &Event| matches!(event, Event::Connected { .. });
    assert!(!std::iter::from_fn(|| network.endpoint(SERVER).poll_event()).any(|e| connected(&e)));
    assert_eq!(network.endpoint(SERVER).connections(), 0);
}

#[test]
fn an_application_that_reads_nothing_stops_its_sender_within_the_limits() {
    let limits = Limits { flows: 1, units: 20, bytes: 50_000, unit_bytes: 10_000 };
    let config = Configuration { limits, ..Configuration::default() };
    let mut world = World::new(1, &path(), &path(), &config);
    world.reads = false;
    world.connect();
    let flow = world.open_flow(FlowConfig::default());
    let mut sent = 0;
    let until = world.now() + Duration::from_secs(5);
    while world.step(until) {
        let now = world.now();
        let unit = Outgoing { data: content(sent, 5_000), ..Outgoing::default() };
        match world.client().send(now, flow, unit) {
            Ok(_) => sent += 1,
            Err(error) => assert_eq!(error, SendError::Full),
        }
        world.network.flush(CLIENT);
    }
    let incoming = ontempo_transport::FlowId { outgoing: false, ..flow };
    let now = world.now();
    let connection = world.connection(SERVER).expect("the connection is open");
    let held = connection.receive_statistics(now, incoming).expect("the flow is open");
    assert!(held.most_held_bytes <= limits.bytes, "{held:?}");
    assert!(sent <= 2 * limits.units + 10, "{sent} units were accepted");
    // Nothing is lost: once the application reads, all units are delivered.
    world.reads = true;
    world.client().finish_flow(flow);
    world.network.flush(CLIENT);
    let until = world.now() + Duration::from_secs(30);
    assert!(world.run(until, |world| world.has_ended(flow)));
    assert_eq!(world.delivered(flow).len() as u64, sent);
}

#[test]
fn random_and_duplicated_datagrams_change_nothing() {
    let mut there = path();
    there.mishaps.repeated = 0.5;
    let mut world = World::new(1, &there, &path(), &Configuration::default());
    world.connect();
    let flow = world.open_flow(FlowConfig::default());
    let mut random = RandomStream::new(1, "noise");
    for id in 0..200 {
        let now = world.now();
        let unit = Outgoing { data: content(id, 300), ..Outgoing::default() };
        assert_eq!(world.client().send(now, flow, unit), Ok(id));
        world.network.flush(CLIENT);
        let size = 1 + random.next_u64() % 1400;
        let noise: Vec<u8> = (0..size).map(|_| random.next_u64() as u8).collect();
        world.network.inject(SERVER, address(9), &noise);
        world.network.inject(SERVER, address(1), &noise);
        world.step(now + Duration::from_millis(1));
    }
    world.client().finish_flow(flow);
    world.network.flush(CLIENT);
    assert!(world.run(Time::from_secs_f64(30.0), |world| world.has_ended(flow)));
    let ids: Vec<u64> = world
        .delivered(flow)
        .iter()
        .map(|delivery| match delivery {
            Delivery::Unit(unit) => unit.id,
            Delivery::Dropped(id) => panic!("{id} was dropped"),
        })
        .collect();
    assert_eq!(ids, (0..200).collect::<Vec<_>>());
    assert_eq!(world.network.endpoint(SERVER).connections(), 1);
}

/// Exchanges datagrams between two endpoints without a network; returns those of the client.
fn exchange(now: Time, [client, server]: [&mut Endpoint; 2]) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    loop {
        let there = datagrams(now, client);
        for datagram in &there {
            server.handle(now, Source::of(address(1)), datagram[..].into());
        }
        let back = datagrams(now, server);
        for datagram in &back {
            client.handle(now, Source::of(address(2)), datagram[..].into());
        }
        if there.is_empty() && back.is_empty() {
            return sent;
        }
        sent.extend(there);
    }
}

#[test]
fn a_replayed_connection_changes_nothing() {
    let mut client = Endpoint::new(Configuration::default(), seed_bytes(1, CLIENT));
    let mut server = Endpoint::new(Configuration::default(), seed_bytes(1, SERVER));
    server.listen(identity(), Token::anyone()).expect("the identity can be used");
    let trust = Trust::Fingerprint(identity().fingerprint());
    let id = client
        .connect(Time::ZERO, address(2), "server", &trust, Token::anyone())
        .expect("the handshake can be started");
    let mut recorded = Vec::new();
    let (mut flow, mut units) = (None, 0);
    for millis in 0..200 {
        let now = Time::ZERO + Duration::from_millis(millis);
        client.handle_timeout(now);
        server.handle_timeout(now);
        let connection = client.connection(id).expect("the connection is open");
        if connection.is_open() && flow.is_none() {
            flow = connection.open_flow(FlowConfig::default()).ok();
        }
        if let Some(flow) = flow {
            let unit = Outgoing { data: content(units, 300), ..Outgoing::default() };
            units += u64::from(connection.send(now, flow, unit).is_ok());
        }
        recorded.extend(exchange(now, [&mut client, &mut server]));
    }
    assert!(units > 100 && recorded.len() > 100, "{units} units in {} datagrams", recorded.len());
    let connected = |event: &Event| matches!(event, Event::Connected { .. });
    let events: Vec<Event> = std::iter::from_fn(|| server.poll_event()).collect();
    let Some(Event::Connected { connection, .. }) = events.iter().find(|event| connected(event))
    else {
        panic!("no connection: {events:?}")
    };
    let count_received = |server: &mut Endpoint| {
        let connection = server.connection(*connection).expect("the connection is open");
        let flow = ontempo_transport::FlowId { outgoing: false, ..flow.expect("it was opened") };
        std::iter::from_fn(|| connection.receive(flow)).count() as u64
    };
    assert_eq!(count_received(&mut server), units);

    // From the same address, from another address, and after the connection has ended.
    for (host, millis) in [(1, 250), (9, 300), (9, 600_000)] {
        let now = Time::ZERO + Duration::from_millis(millis);
        server.handle_timeout(now);
        for datagram in &recorded {
            server.handle(now, Source::of(address(host)), datagram.as_slice().into());
            let mut out = Vec::new();
            while let Poll::Transmit(_) = server.poll_transmit(now, &mut out) {}
        }
        if millis < 1000 {
            assert_eq!(count_received(&mut server), 0, "units were delivered twice");
        }
        let events: Vec<Event> = std::iter::from_fn(|| server.poll_event()).collect();
        assert!(!events.iter().any(connected), "{events:?}");
    }
    // A replayed Initial packet can start one half-open handshake.
    assert!(server.connections() <= 1, "{} connections", server.connections());
}

#[test]
fn a_peer_that_never_acknowledges_takes_bounded_memory_and_times_out() {
    let mut back = path();
    back.mishaps.stalls.push((Time::from_secs_f64(1.0), Time::from_secs_f64(1000.0)));
    let config = Configuration { idle_timeout: Duration::from_secs(10), ..Default::default() };
    let mut world = World::new(1, &path(), &back, &config);
    world.connect();
    let flow = world.open_flow(FlowConfig::default());
    let (mut sent, mut bytes) = (0, 0);
    let timed_out = world.run(Time::from_secs_f64(60.0), |world| {
        let now = world.now();
        while let Some(connection) = world.connection(CLIENT) {
            let unit = Outgoing { data: content(sent, 5_000), ..Outgoing::default() };
            match connection.send(now, flow, unit) {
                Ok(_) => sent += 1,
                Err(_) => break,
            }
            let statistics = connection.send_statistics(now, flow).expect("the flow is open");
            bytes = bytes.max(statistics.held_bytes);
        }
        world.network.flush(CLIENT);
        closed(&world.events[CLIENT]).is_some()
    });
    assert!(timed_out, "not timed out by {}", world.now());
    assert!(bytes <= config.send_bytes.get(), "{bytes} bytes were queued");
    assert_eq!(world.network.endpoint(CLIENT).connections(), 0);
}

#[test]
fn a_sender_waits_for_a_program_that_takes_its_flows_slowly_and_is_not_cut_off() {
    let config = Configuration::default();
    let mut world = World::new(1, &path(), &path(), &config);
    world.connect();
    let (mut flows, mut refusals) = (Vec::new(), 0);
    // For ten seconds the program takes nothing; for two seconds it does.
    for second in 0..12 {
        world.reads = second >= 10;
        let until = world.now() + Duration::from_secs(1);
        world.run(until, |world| {
            let now = world.now();
            match world.client().open_flow(FlowConfig::default()) {
                Ok(flow) => {
                    let unit = Outgoing { data: content(flow.number, 300), ..Outgoing::default() };
                    assert_eq!(world.client().send(now, flow, unit), Ok(0));
                    world.client().finish_flow(flow);
                    flows.push(flow);
                }
                Err(_) => refusals += 1,
            }
            world.network.flush(CLIENT);
            assert_eq!(closed(&world.events[SERVER]), None, "after {} flows", flows.len());
            false
        });
        assert!(world.reads || flows.len() <= config.limits.flows as usize, "{}", flows.len());
    }
    assert!(flows.len() > 100 && refusals > 0, "{} flows, {refusals} refusals", flows.len());
    let arrived = flows.iter().filter(|flow| world.has_ended(**flow)).count();
    assert!(arrived + config.limits.flows as usize >= flows.len(), "{arrived} ended");
}

/// With `--nocapture` it prints the rate in virtual time and the units simulated per second.
#[test]
fn units_of_all_sizes_fill_a_fast_path() {
    let mut fast = Path::clean(Rate::from_bits_per_sec(200_000_000), Duration::from_millis(5));
    fast.buffer = ontempo_foundation::Packets::new(1000);
    for (size, count) in [(200, 20_000u64), (1_200, 10_000), (100_000, 200)] {
        let mut world = World::new(1, &fast, &fast, &Configuration::default());
        world.connect();
        let flow = world.open_flow(FlowConfig::default());
        let (started, wall) = (world.now(), std::time::Instant::now());
        let data = content(0, size);
        let mut sent = 0;
        let done = world.run(Time::from_secs_f64(60.0), |world| {
            let now = world.now();
            while sent < count {
                let unit = Outgoing { data: data.clone(), ..Outgoing::default() };
                if world.client().send(now, flow, unit).is_err() {
                    break;
                }
                sent += 1;
            }
            if sent == count {
                world.client().finish_flow(flow);
            }
            world.network.flush(CLIENT);
            world.has_ended(flow)
        });
        assert!(done, "{} of {count} units of {size}", world.delivered(flow).len());
        let (virtual_time, wall_time) = (world.now().since(started), wall.elapsed());
        let rate = count as f64 * size as f64 * 8.0 / virtual_time.as_secs_f64() / 1e6;
        let per_second = count as f64 / wall_time.as_secs_f64();
        println!(
            "{size} bytes: {rate:.0} Mbit/s in virtual time, {per_second:.0} units/s simulated"
        );
    }
}
