//! A network of machines in virtual time: links that delay, lose, repeat and reorder messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use ontempo_foundation::{Bytes, Duration, RandomStream, Rate, Time};
use ontempo_reservation::htb::Aggregate;
use ontempo_reservation::integrity::{Algorithm, Guard, Key, NeighbourKeys};
use ontempo_reservation::machine::{
    Arrival, Change, Config, ControlRequest, ErrorTerms, Event, Handle, InterfaceConfig,
    InterfaceId, Machine, NextHop, Reservation, Routes, Transmit,
};

/// One hop for each destination; several for a group.
#[derive(Clone, Debug, Default)]
pub(super) struct Table(pub(super) BTreeMap<IpAddr, Vec<NextHop>>);

impl Routes for Table {
    fn towards(&self, destination: IpAddr, _source: IpAddr) -> Vec<NextHop> {
        self.0.get(&destination).cloned().unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) ends: [usize; 2],
    pub(super) delay: Duration,
    pub(super) reservable: Rate,
    pub(super) up: bool,
}

/// What happens to messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weather {
    pub(super) loss: f64,
    pub(super) repeat: f64,
    /// Up to so much is added to a link's delay, which reorders.
    pub(super) jitter: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) config: Config,
    pub(super) refresh_reduction: bool,
    pub(super) sealed: bool,
    /// Neighbours have keys of their own, [`own_key`] of their link and end, beside the interface's;
    /// on each link there is a third one.
    pub(super) own_keys: bool,
}

/// The key of all nodes of a link.
pub(super) fn shared_key() -> Key {
    Key::new(1, Algorithm::HmacMd5, b"of the testbed".to_vec())
}

/// The key that a node shares with a neighbour: 2, the third end of the link, or the other end.
pub(super) fn own_key(link: usize, neighbour: usize) -> Key {
    let (id, name) = if neighbour == 2 { (3, "third") } else { (2, "pair") };
    Key::new(id, Algorithm::HmacSha256, format!("of the {name} of link {link}").into_bytes())
}

impl Default for Settings {
    fn default() -> Self {
        Self { config: Config::default(), refresh_reduction: true, sealed: false, own_keys: false }
    }
}

pub(super) type Enforced = BTreeMap<(InterfaceId, Handle), Reservation>;

pub(super) struct World {
    pub(super) now: Time,
    pub(super) weather: Weather,
    pub(super) machines: Vec<Option<Machine<Table>>>,
    pub(super) links: Vec<Link>,
    /// The state of each node's traffic control.
    pub(super) enforced: Vec<Enforced>,
    pub(super) events: Vec<(Time, usize, Event)>,
    /// Changes of what is enforced.
    pub(super) changes: u64,
    pub(super) sent: u64,
    /// All packets sent, with their node.
    pub(super) recorded: Vec<(usize, Transmit)>,
    /// Links without a key, where the others have one.
    pub(super) open_links: BTreeSet<usize>,
    /// Of a node's end of a link, from its next start on.
    pub(super) aggregates: BTreeMap<(usize, usize), Vec<Aggregate>>,
    /// What the operator of each node is told.
    pub(super) told: Vec<(usize, Change)>,
    /// Nodes start with low sequence numbers: their clocks are behind.
    pub(super) clocks_behind: bool,
    settings: Settings,
    groups: BTreeMap<IpAddr, BTreeSet<usize>>,
    flying: BTreeMap<(Time, u64), (usize, InterfaceId, Transmit)>,
    order: u64,
    restarts: u64,
    random: RandomStream,
    seed: u64,
}

impl World {
    pub(super) fn new(
        seed: u64,
        nodes: usize,
        links: &[(usize, usize)],
        settings: Settings,
    ) -> Self {
        let link = |&(a, b): &(usize, usize)| Link {
            ends: [a, b],
            delay: Duration::from_millis(10),
            reservable: Rate::from_bits_per_sec(1_000_000),
            up: true,
        };
        let mut world = Self {
            now: Time::ZERO,
            weather: Weather::default(),
            machines: (0..nodes).map(|_| None).collect(),
            links: links.iter().map(link).collect(),
            enforced: vec![Enforced::new(); nodes],
            events: Vec::new(),
            changes: 0,
            sent: 0,
            recorded: Vec::new(),
            open_links: BTreeSet::new(),
            aggregates: BTreeMap::new(),
            told: Vec::new(),
            clocks_behind: false,
            settings,
            groups: BTreeMap::new(),
            flying: BTreeMap::new(),
            order: 0,
            restarts: 0,
            random: RandomStream::new(seed, "weather"),
            seed,
        };
        (0..nodes).for_each(|node| world.start(node));
        world
    }

    /// Address of a link's end.
    pub(super) fn address(&self, link: usize, end: usize) -> IpAddr {
        Ipv4Addr::new(10, link as u8, 0, 1 + end as u8).into()
    }

    /// The address of a host with one link.
    pub(super) fn host(&self, node: usize) -> IpAddr {
        let (link, end) = self.ends_of(node).next().expect("the host has a link");
        self.address(link, end)
    }

    pub(super) fn interface(&self, node: usize, peer: usize) -> InterfaceId {
        let of = |(link, end): &(usize, usize)| self.links[*link].ends[1 - end] == peer;
        InterfaceId(self.ends_of(node).find(of).expect("they share a link").0 as u32)
    }

    fn ends_of(&self, node: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.links.iter().enumerate().flat_map(move |(number, link)| {
            (0..2).filter(move |&end| link.ends[end] == node).map(move |end| (number, end))
        })
    }

    /// The host takes part in a group.
    pub(super) fn join(&mut self, group: IpAddr, node: usize) {
        self.groups.entry(group).or_default().insert(node);
        self.start(node);
    }

    /// It takes part no more, and says nothing of it; the routes change.
    pub(super) fn leave(&mut self, group: IpAddr, node: usize) {
        self.groups.entry(group).or_default().remove(&node);
        self.start(node);
    }

    pub(super) fn is_member(&self, group: IpAddr, node: usize) -> bool {
        self.groups.get(&group).is_some_and(|members| members.contains(&node))
    }

    /// A node with no state, as after a restart; what it enforced is gone.
    pub(super) fn start(&mut self, node: usize) {
        self.restarts += 1;
        let name = format!("machine {node} start {}", self.restarts);
        let random = RandomStream::new(self.seed, &name);
        let mut machine = Machine::new(self.settings.config, Table::default(), random);
        let ends: Vec<_> = self.ends_of(node).collect();
        for (link, end) in ends {
            let config = self.interface_config(node, (link, end));
            machine.add_interface(InterfaceId(link as u32), config);
        }
        self.enforced[node].clear();
        self.machines[node] = Some(machine);
        self.route();
    }

    /// The configuration of a node's end of a link.
    pub(super) fn interface_config(
        &self,
        node: usize,
        (link, end): (usize, usize),
    ) -> InterfaceConfig {
        let mut addresses = vec![self.address(link, end)];
        let joined = self.groups.iter().filter(|(_, members)| members.contains(&node));
        addresses.extend(joined.map(|(group, _)| *group));
        let sealed = self.settings.sealed && !self.open_links.contains(&link);
        let first = if self.clocks_behind { 1 } else { self.restarts << 32 };
        InterfaceConfig {
            addresses,
            reservable: self.links[link].reservable,
            reservable_burst: Bytes::new(1_000_000),
            rate: Rate::from_bits_per_sec(1_500_000),
            latency: Some(self.links[link].delay),
            mtu: 1500,
            overhead: Bytes::ZERO,
            aggregates: self.aggregates.get(&(node, link)).cloned().unwrap_or_default(),
            guaranteed: Some(ErrorTerms { c: Bytes::new(1500), d: Duration::from_millis(8) }),
            refresh_reduction: self.settings.refresh_reduction,
            guard: sealed.then(|| {
                let guard = Guard::new(shared_key(), first, true, 8);
                let others = [1 - end, 2].into_iter().filter(|_| self.settings.own_keys);
                others.fold(guard, |guard, other| {
                    let key = own_key(link, other);
                    let keys = NeighbourKeys { send: key.clone(), receive: key };
                    guard.with_neighbour(self.address(link, other), keys)
                })
            }),
        }
    }

    pub(super) fn stop(&mut self, node: usize) {
        self.machines[node] = None;
        self.enforced[node].clear();
        self.route();
    }

    /// Shortest ways over links that are up, for every address and group.
    pub(super) fn route(&mut self) {
        for node in 0..self.machines.len() {
            let mut table = Table::default();
            for target in (0..self.machines.len()).filter(|target| *target != node) {
                let Some(hop) = self.first_hop(node, target) else { continue };
                for (link, end) in self.ends_of(target).collect::<Vec<_>>() {
                    table.0.insert(self.address(link, end), vec![hop]);
                }
                for (group, members) in &self.groups {
                    if members.contains(&target) {
                        let hops = table.0.entry(*group).or_default();
                        if !hops.contains(&hop) {
                            hops.push(hop);
                        }
                    }
                }
            }
            let now = self.now;
            if let Some(machine) = &mut self.machines[node]
                && machine.routes_mut().0 != table.0
            {
                *machine.routes_mut() = table;
                machine.routes_changed(now);
            }
        }
        self.collect();
    }

    /// Sends packets for a destination to a neighbour, whatever the shortest way is.
    pub(super) fn point(&mut self, node: usize, destination: IpAddr, next: usize) {
        let interface = self.interface(node, next);
        self.call(node, |machine, now| {
            let hops = vec![NextHop { interface, gateway: destination }];
            machine.routes_mut().0.insert(destination, hops);
            machine.routes_changed(now);
        });
    }

    /// A node between nodes that are not there knows ways to all their addresses, and to more.
    pub(super) fn hear_all_routes(&mut self, node: usize) {
        for link in 0..3u8 {
            for end in 1..4u8 {
                let destination = IpAddr::from([10, link, 0, end]);
                let next = if link == 0 { 0 } else { 2 };
                self.point(node, destination, next);
            }
        }
    }

    fn first_hop(&self, node: usize, target: usize) -> Option<NextHop> {
        let mut queue = VecDeque::from([target]);
        let mut seen = BTreeSet::from([target]);
        while let Some(at) = queue.pop_front() {
            for (number, link) in self.links.iter().enumerate().filter(|(_, link)| link.up) {
                let Some(end) = (0..2).find(|&end| link.ends[end] == at) else { continue };
                let other = link.ends[1 - end];
                if other == node {
                    let interface = InterfaceId(number as u32);
                    return Some(NextHop { interface, gateway: self.address(number, end) });
                }
                if self.machines[other].is_some() && seen.insert(other) {
                    queue.push_back(other);
                }
            }
        }
        None
    }

    /// Calls a node's machine.
    pub(super) fn call<T>(
        &mut self,
        node: usize,
        work: impl FnOnce(&mut Machine<Table>, Time) -> T,
    ) -> T {
        let now = self.now;
        let result = work(self.machines[node].as_mut().expect("the node runs"), now);
        self.collect();
        result
    }

    /// Takes what the machines have to do, and checks what must always hold.
    fn collect(&mut self) {
        for node in 0..self.machines.len() {
            let Some(machine) = &mut self.machines[node] else { continue };
            let mut packets = Vec::new();
            while let Some(packet) = machine.poll_transmit() {
                packets.push(packet);
            }
            let there = &mut self.enforced[node];
            let mut changed = false;
            while let Some(request) = machine.poll_control() {
                carry_out(there, request);
                self.changes += 1;
                changed = true;
            }
            if changed {
                check(machine, there, &self.links);
            }
            while let Some(event) = machine.poll_event() {
                match event {
                    // No message of the protocol.
                    Event::Changed(change) => self.told.push((node, change)),
                    event => self.events.push((self.now, node, event)),
                }
            }
            packets.into_iter().for_each(|packet| self.send(node, packet));
        }
    }

    fn send(&mut self, node: usize, packet: Transmit) {
        let link = self.links[packet.interface.0 as usize];
        self.sent += 1;
        self.recorded.push((node, packet.clone()));
        if !link.up || self.random.chance(self.weather.loss) {
            return;
        }
        let other = if link.ends[0] == node { link.ends[1] } else { link.ends[0] };
        let copies = if self.random.chance(self.weather.repeat) { 2 } else { 1 };
        for _ in 0..copies {
            let late = self.random.duration_between(Duration::ZERO, self.weather.jitter);
            self.order += 1;
            let due = (self.now + link.delay + late, self.order);
            self.flying.insert(due, (other, packet.interface, packet.clone()));
        }
    }

    /// Runs until `until`.
    pub(super) fn run(&mut self, until: Time) {
        loop {
            let arrival = self.flying.keys().next().map(|key| key.0);
            let timers = self.machines.iter().flatten().filter_map(Machine::poll_timeout);
            let Some(next) = timers.chain(arrival).min().filter(|next| *next <= until) else {
                break;
            };
            self.now = self.now.max(next);
            let now = self.now;
            if arrival == Some(next) {
                let Some((_, (node, interface, packet))) = self.flying.pop_first() else { break };
                if let Some(machine) = &mut self.machines[node] {
                    let (source, ttl) = (packet.source, packet.ttl);
                    machine.on_packet(
                        now,
                        Arrival { interface, source, ttl, payload: &packet.payload },
                    );
                }
            } else {
                self.machines.iter_mut().flatten().for_each(|machine| machine.on_timeout(now));
            }
            self.collect();
        }
        self.now = until;
    }

    pub(super) fn run_for(&mut self, span: Duration) {
        self.run(self.now + span);
    }

    /// What is enforced where the first node's packets leave towards the second.
    pub(super) fn towards(&self, node: usize, peer: usize) -> Vec<&Reservation> {
        let by = self.interface(node, peer);
        let there = self.enforced[node].iter().filter(|((at, _), _)| *at == by);
        there.map(|(_, reservation)| reservation).collect()
    }

    /// Nothing is kept or enforced anywhere.
    pub(super) fn is_empty(&self) -> bool {
        let mut kept = self.machines.iter().flatten().map(Machine::census);
        kept.all(|census| census == Default::default())
            && self.enforced.iter().all(BTreeMap::is_empty)
    }
}

fn carry_out(there: &mut Enforced, request: ControlRequest) {
    match request {
        ControlRequest::Add(by, handle, reservation) => {
            assert!(there.insert((by, handle), reservation).is_none(), "the handle is in use");
        }
        ControlRequest::Modify(by, handle, reservation) => {
            assert!(there.insert((by, handle), reservation).is_some(), "nothing to modify");
        }
        ControlRequest::Remove(by, handle) => {
            assert!(there.remove(&(by, handle)).is_some(), "nothing to remove");
        }
    }
}

/// Traffic control has what the machine believes, and never more than may be reserved.
fn check(machine: &Machine<Table>, there: &Enforced, links: &[Link]) {
    for (number, link) in links.iter().enumerate() {
        let by = InterfaceId(number as u32);
        let mine: BTreeMap<Handle, &Reservation> = machine.enforced(by).collect();
        let theirs: BTreeMap<Handle, &Reservation> = there
            .iter()
            .filter(|((at, _), _)| *at == by)
            .map(|((_, handle), reservation)| (*handle, reservation))
            .collect();
        assert_eq!(mine, theirs);
        let sum: u64 = theirs.values().map(|kept| kept.rate.as_bits_per_sec()).sum();
        assert_eq!(machine.reserved(by), Rate::from_bits_per_sec(sum));
        assert!(sum <= link.reservable.as_bits_per_sec(), "more is promised than may be");
    }
}
