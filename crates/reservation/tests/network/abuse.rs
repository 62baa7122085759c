//! A router among strangers: any messages in any order, too many of everything.

use std::net::{IpAddr, Ipv4Addr};

use ontempo_foundation::{Duration, RandomStream, Time};
use ontempo_reservation::machine::{
    Arrival, Config, Event, InterfaceId, Limits, Machine, RequestError, Transmit,
};
use ontempo_reservation::message::{
    Ack, Body, Cause, Dclass, Descriptor, ErrorSpec, FlowSpec, Hop, Marked, Message, MessageId,
    Path, PathErr, PathTear, Resv, ResvConf, ResvErr, ResvTear, Sender, Session, Srefresh, Style,
};

use super::world::{Settings, Table, World};
use super::{LINE, announce, fixed, load, reserve, sender, session, traffic};

/// Few of everything, so that messages meet each other's state.
struct Stranger(RandomStream);

impl Stranger {
    fn pick(&mut self, count: u64) -> u64 {
        self.0.next_u64() % count
    }

    fn address(&mut self) -> IpAddr {
        let (link, end) = (self.pick(3) as u8, 1 + self.pick(3) as u8);
        Ipv4Addr::new(10, link, 0, end).into()
    }

    fn session(&mut self) -> Session {
        let port = if self.pick(20) == 0 { 0 } else { 5004 };
        Session { port, ..session(self.address()) }
    }

    fn sender(&mut self) -> Sender {
        sender(self.address())
    }

    fn hop(&mut self) -> Hop {
        Hop { address: self.address(), interface: self.pick(4) as u32 }
    }

    fn refresh(&mut self) -> Duration {
        Duration::from_millis(self.pick(60_000))
    }

    fn flowspec(&mut self) -> FlowSpec {
        let rate = (1 + self.pick(150)) as f32 * 1_000.0;
        match self.pick(4) {
            0 => FlowSpec::Guaranteed { traffic: traffic(rate), rate: rate * 1.5, slack: 0 },
            1 => FlowSpec::Guaranteed { traffic: traffic(rate), rate: rate * 0.5, slack: 0 },
            _ => load(rate),
        }
    }

    fn flows(&mut self) -> (Style, Vec<Descriptor>) {
        let single = |stranger: &mut Self| Descriptor {
            flowspec: stranger.flowspec(),
            filters: vec![stranger.sender()],
        };
        match self.pick(4) {
            0 => {
                let filters = vec![self.sender(), self.sender()];
                (Style::SharedExplicit, vec![Descriptor { flowspec: self.flowspec(), filters }])
            }
            1 => {
                let filters = Vec::new();
                (Style::Wildcard, vec![Descriptor { flowspec: self.flowspec(), filters }])
            }
            _ => (Style::FixedFilter, vec![single(self), single(self)]),
        }
    }

    fn dclass(&mut self) -> Dclass {
        let one = |stranger: &mut Self| Dclass::of(stranger.pick(80) as u8);
        one(self).or(one(self))
    }

    fn error(&mut self) -> ErrorSpec {
        let causes =
            [Cause::Bandwidth, Cause::NoPath, Cause::UnknownClass(23, 1), Cause::System(9)];
        let cause = causes[self.pick(4) as usize];
        ErrorSpec { node: self.address(), in_place: false, not_guilty: false, cause }
    }

    fn body(&mut self) -> Body {
        let (session, hop, sender) = (self.session(), self.hop(), self.sender());
        let (refresh, error) = (self.refresh(), self.error());
        let (style, mut flows) = self.flows();
        let scope = Vec::new();
        let traffic = traffic(1_000.0 * (1 + self.pick(200)) as f32);
        match self.pick(16) {
            0..=4 => Body::Path(Path { session, hop, refresh, sender, traffic, adspec: None }),
            5..=8 => {
                let confirm = (self.pick(2) == 0).then(|| self.address());
                let marked = |descriptor| Marked { descriptor, dclass: self.dclass() };
                let flows = flows.into_iter().map(marked).collect();
                Body::Resv(Resv { session, hop, refresh, confirm, scope, style, flows })
            }
            9 => Body::PathErr(PathErr { session, error, sender, traffic }),
            10 => {
                let flow = flows.swap_remove(0);
                Body::ResvErr(ResvErr { session, hop, error, scope, style, flow })
            }
            11 => Body::PathTear(PathTear { session, hop, sender }),
            12 => {
                let filters = flows.into_iter().flat_map(|flow| flow.filters).collect();
                Body::ResvTear(ResvTear { session, hop, scope, style, filters })
            }
            13 => {
                let confirm = self.address();
                Body::ResvConf(ResvConf { session, error, confirm, style, flows })
            }
            14 => Body::Srefresh(Srefresh { epoch: 1, ids: vec![self.pick(50) as u32] }),
            _ => Body::Ack,
        }
    }

    fn message(&mut self) -> Message {
        let mut message = Message::new(self.body());
        message.send_ttl = 64;
        if self.pick(2) == 0 {
            let id = self.pick(50) as u32;
            message.id = Some(MessageId { ack_desired: true, epoch: 1, id });
        }
        if self.pick(4) == 0 {
            let id = self.pick(200) as u32;
            message.acks = vec![Ack { negative: self.pick(2) == 0, epoch: 1, id }];
        }
        message
    }
}

#[test]
fn a_router_among_strangers_keeps_its_promises_and_forgets_them_all() {
    for seed in 0..300 {
        let limits = Limits {
            sessions: 6,
            all_senders: 18,
            all_flows: 40,
            senders: 3,
            next_hops: 2,
            neighbours: 3,
            states: 20,
        };
        let config = Config { limits, ..Config::default() };
        let settings = Settings { config, ..Settings::default() };
        // Only the middle one is there: what it says goes nowhere.
        let mut world = World::new(seed, 3, &[(0, 1), (1, 2)], settings);
        let mut stranger = Stranger(RandomStream::new(seed, "stranger"));
        for host in [0, 2] {
            world.stop(host);
        }
        world.hear_all_routes(1);
        for _ in 0..400 {
            let payload = stranger.message().encode().unwrap();
            let arrival = Arrival {
                interface: InterfaceId(stranger.pick(2) as u32),
                source: stranger.address(),
                ttl: 64,
                payload: &payload,
            };
            world.call(1, |machine, now| machine.on_packet(now, arrival));
            world.run_for(Duration::from_millis(stranger.pick(2_000)));
            let census = world.machines[1].as_ref().unwrap().census();
            assert!(census.sessions <= 6 && census.paths <= 18, "{census:?}");
            assert!(census.numbers <= 60 + 20 + 18 * 2, "{census:?}");
        }
        world.run_for(Duration::from_secs(400));
        assert!(world.is_empty(), "seed {seed}");
    }
}

fn sent(machine: &mut Machine<Table>) -> Vec<Transmit> {
    core::iter::from_fn(|| machine.poll_transmit()).collect()
}

#[test]
fn a_path_of_ones_own_that_comes_back_is_dropped() {
    let mut world = World::new(1, 3, &[(0, 1), (1, 2)], Settings::default());
    let (to, from) = (session(world.host(2)), sender(world.host(0)));
    let packets = world.call(0, |machine, now| {
        machine.announce(now, to, from, traffic(1_000.0)).unwrap();
        sent(machine)
    });
    let back = &packets[0];
    world.call(0, |machine, now| {
        let Transmit { interface, source, ttl, .. } = *back;
        machine.on_packet(now, Arrival { interface, source, ttl, payload: &back.payload });
    });
    let looped = |(_, _, event): &(Time, usize, Event)| matches!(event, Event::Dropped { reason, .. } if reason.contains("loop"));
    assert!(world.events.iter().any(looped));
}

#[test]
fn routes_that_point_at_each_other_end_with_the_ttl() {
    let mut world = World::new(1, 4, &[(0, 1), (1, 2), (2, 3), (1, 3)], Settings::default());
    let (to, from) = (session([10, 99, 0, 1].into()), sender(world.host(0)));
    // 0 -> 1 -> 2 -> 3 -> 1 and so on.
    for (node, next) in [(0, 1), (1, 2), (2, 3), (3, 1)] {
        world.point(node, to.destination, next);
    }
    world.call(0, |machine, now| machine.announce(now, to, from, traffic(1_000.0))).unwrap();
    world.run_for(Duration::from_secs(20));
    assert!(world.sent < 3_000, "{} messages", world.sent);
    world.call(0, |machine, now| machine.withdraw(now, to, from));
    world.run_for(Duration::from_secs(400));
    assert!(world.is_empty());
}

#[test]
fn a_sender_too_many_is_told() {
    let limits = Limits { senders: 1, ..Limits::default() };
    let config = Config { limits, ..Config::default() };
    let settings = Settings { config, ..Settings::default() };
    let mut world = World::new(1, 4, &[(0, 2), (1, 2), (2, 3)], settings);
    let to = session(world.host(3));
    for host in [0, 1] {
        let from = sender(world.host(host));
        world.call(host, |machine, now| machine.announce(now, to, from, traffic(1_000.0))).unwrap();
    }
    world.run_for(Duration::from_secs(1));
    let cause = world.events.iter().find_map(|(_, node, event)| match event {
        Event::PathError { error, .. } => Some((*node, error.cause)),
        _ => None,
    });
    assert_eq!(cause, Some((1, Cause::System(2))));
    assert_eq!(world.towards(2, 3).len(), 0);
}

#[test]
fn applications_take_no_more_flows_than_the_node_may_have() {
    let limits = Limits { all_flows: 8, ..Limits::default() };
    let settings =
        Settings { config: Config { limits, ..Config::default() }, ..Settings::default() };
    let mut world = World::new(1, 4, &LINE, settings);
    let to = session(world.host(3));
    let mut asked = |port: u16, senders: u8| {
        let invented = |last: u8| fixed(load(1_000.0), sender([10, 9, 9, last].into()));
        let flows: Vec<Descriptor> = (0..senders).flat_map(invented).collect();
        let to = Session { port, ..to };
        world.call(3, |machine, now| machine.reserve(now, to, Style::FixedFilter, &flows, false))
    };
    assert_eq!((asked(1, 5), asked(2, 4)), (Ok(()), Err(RequestError::TooMany)));
    assert_eq!((asked(2, 3), asked(1, 6)), (Ok(()), Err(RequestError::TooMany)));
    // No more than before, and what that has freed.
    assert_eq!((asked(1, 5), asked(1, 2), asked(3, 3)), (Ok(()), Ok(()), Ok(())));
    assert_eq!(asked(4, 1), Err(RequestError::TooMany));
}

#[test]
fn an_application_without_a_port_keeps_nobody_from_the_hosts_ports() {
    let mut world = World::new(1, 4, &LINE, Settings::default());
    let (to, own) = (session(world.host(3)), sender(world.host(3)));
    let away = session(world.host(0));
    let flows = [Descriptor { flowspec: load(1_000.0), filters: Vec::new() }];
    let mut asked = |protocol: u8, port: u16| {
        let ([to, away], style) =
            ([to, away].map(|to| Session { protocol, port, ..to }), Style::Wildcard);
        world.call(3, |machine, now| {
            let reserved = machine.reserve(now, to, style, &flows, false);
            [reserved, machine.announce(now, away, own, traffic(1_000.0))]
        })
    };
    for protocol in [6, 17] {
        assert_eq!(asked(protocol, 0), [Err(RequestError::Ports); 2], "{protocol}");
    }
    // What has no ports has sessions without, and then none with.
    assert_eq!((asked(47, 0), asked(47, 5)), ([Ok(()); 2], [Err(RequestError::Ports); 2]));
    let from = announce(&mut world, 0, to, 50_000.0);
    reserve(&mut world, 3, to, from, 50_000.0);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.towards(2, 3).len(), 1);
}
