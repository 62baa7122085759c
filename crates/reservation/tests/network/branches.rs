//! A group whose receivers come, change and go on several branches, in bad weather: what is reserved on
//! each link, and what senders are to mark with, is what the receivers that are left ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ontempo_foundation::{Duration, RandomStream, Rate};
use ontempo_reservation::htb::{Aggregate, Serves};
use ontempo_reservation::machine::{Config, Event};
use ontempo_reservation::message::{Dclass, Descriptor, Sender, Session, Style};

use super::world::{Settings, Weather, World};
use super::{RTT, announce, load, sender, session, traffic};

const SEEDS: u64 = 600;
/// Two hosts that send, a router, two routers, of which the first has two hosts that receive and the second one.
const TREE: [(usize, usize); 7] = [(0, 2), (1, 2), (2, 3), (2, 4), (3, 5), (3, 6), (4, 7)];
const SENDERS: [usize; 2] = [0, 1];
const RECEIVERS: [usize; 3] = [5, 6, 7];
/// Of each router's next nodes.
const BELOW: [(usize, &[usize]); 3] = [(2, &[3, 4]), (3, &[5, 6]), (4, &[7])];
/// Bytes a second that each sends: together they fit a link.
const SENT: [f32; 2] = [50_000.0, 60_000.0];
/// Aggregates on the links to two of the receivers.
const AGGREGATES: [((usize, usize), u8); 2] = [((3, 4), 26), ((4, 6), 34)];
const REFRESH: Duration = Duration::from_secs(5);

/// What one receiver, or all behind a link, ask for: of each sender its own rate (FF), or one for all.
type Asked = BTreeMap<usize, f32>;

struct Group {
    world: World,
    to: Session,
    style: Style,
    sends: BTreeSet<usize>,
    asks: BTreeMap<usize, Asked>,
}

impl Group {
    fn new(seed: u64) -> Self {
        let settings = Settings {
            config: Config { refresh: REFRESH, ..Config::default() },
            refresh_reduction: !seed.is_multiple_of(2),
            sealed: seed.is_multiple_of(5),
            own_keys: seed.is_multiple_of(10),
        };
        let mut world = World::new(seed, 8, &TREE, settings);
        for (place, dscp) in AGGREGATES {
            let aggregate = Aggregate { dscp, serves: Serves::Both, up_to: None };
            world.aggregates.insert(place, vec![aggregate]);
        }
        [3, 4].into_iter().for_each(|node| world.start(node));
        let group = IpAddr::from([224, 1, 2, 3]);
        RECEIVERS.into_iter().for_each(|node| world.join(group, node));
        let styles = [Style::FixedFilter, Style::SharedExplicit, Style::Wildcard];
        let style = styles[seed as usize / 2 % 3];
        let (sends, asks) = (BTreeSet::new(), BTreeMap::new());
        Self { world, to: session(group), style, sends, asks }
    }

    /// A sender begins or ends.
    fn toggle(&mut self, node: usize) {
        let (from, to) = (sender(self.world.host(node)), self.to);
        if self.sends.remove(&node) {
            self.world.call(node, |machine, now| machine.withdraw(now, to, from));
        } else {
            let traffic = traffic(SENT[node]);
            let announced =
                self.world.call(node, |machine, now| machine.announce(now, to, from, traffic));
            announced.expect("the request is right");
            self.sends.insert(node);
        }
    }

    /// A receiver asks for what it draws, in place of what it has asked for.
    fn ask(&mut self, node: usize, random: &mut RandomStream) {
        let rate = |random: &mut RandomStream| 10_000.0 + (random.next_u64() % 60) as f32 * 1_000.0;
        let which = random.next_u64() % 3;
        let senders = SENDERS.into_iter().filter(|one| which == 2 || *one as u64 == which);
        let one = rate(random);
        let asked: Asked = match self.style {
            Style::FixedFilter => senders.map(|sender| (sender, rate(random))).collect(),
            Style::SharedExplicit => senders.map(|sender| (sender, one)).collect(),
            Style::Wildcard => SENDERS.into_iter().map(|sender| (sender, one)).collect(),
        };
        let from = |node: &usize| sender(self.world.host(*node));
        let flow = |rate: f32, filters| Descriptor { flowspec: load(rate), filters };
        let flows = match self.style {
            Style::FixedFilter => {
                asked.iter().map(|(node, rate)| flow(*rate, vec![from(node)])).collect()
            }
            Style::SharedExplicit => vec![flow(one, asked.keys().map(from).collect())],
            Style::Wildcard => vec![flow(one, Vec::new())],
        };
        let (to, style) = (self.to, self.style);
        let done =
            self.world.call(node, |machine, now| machine.reserve(now, to, style, &flows, false));
        done.expect("the request is right");
        self.asks.insert(node, asked);
    }

    fn release(&mut self, node: usize) {
        let to = self.to;
        if self.asks.remove(&node).is_some() {
            self.world.call(node, |machine, now| machine.release(now, to));
        }
    }

    fn trouble(&mut self, seed: u64) {
        let mut random = RandomStream::new(seed, "branches");
        self.world.weather = Weather {
            loss: random.uniform_between(0.0, 0.3),
            repeat: random.uniform_between(0.0, 0.3),
            jitter: Duration::from_millis(100),
        };
        for _ in 0..10 {
            let receiver = RECEIVERS[random.next_u64() as usize % RECEIVERS.len()];
            match random.next_u64() % 8 {
                0 => self.toggle(random.next_u64() as usize % 2),
                1 => self.release(receiver),
                // Away from the group without a word, which the routes tell; and back.
                2 => {
                    self.asks.remove(&receiver);
                    self.world.leave(self.to.destination, receiver);
                }
                3 => {
                    self.world.start(2 + random.next_u64() as usize % 3);
                }
                _ => {
                    if !self.world.is_member(self.to.destination, receiver) {
                        self.world.join(self.to.destination, receiver);
                    }
                    self.ask(receiver, &mut random);
                }
            }
            self.world.run_for(random.duration_between(Duration::ZERO, REFRESH * 2));
        }
        self.world.weather = Weather::default();
    }

    /// What comes from behind a node: of the senders that there are, what each is asked for.
    fn behind(&self, node: usize) -> Asked {
        let Some((_, below)) = BELOW.iter().find(|(of, _)| *of == node) else {
            let asked = self.asks.get(&node).cloned().unwrap_or_default();
            return asked.into_iter().filter(|(sender, _)| self.sends.contains(sender)).collect();
        };
        let mut merged = Asked::new();
        for below in below.iter() {
            for (sender, rate) in self.behind(*below) {
                let known = merged.entry(sender).or_default();
                *known = known.max(rate);
            }
        }
        // Where the next node has one previous hop for all senders, those that share a reservation get the
        // largest of it.
        if node != 2 && self.style != Style::FixedFilter {
            let largest = merged.values().copied().fold(0.0, f32::max);
            merged.values_mut().for_each(|rate| *rate = largest);
        }
        merged
    }

    /// The rates that are to be enforced of this, with the senders of each.
    fn enforced(&self, asked: &Asked) -> BTreeSet<(u64, Vec<usize>)> {
        let bits = |rate: f32| Rate::from_bits_per_sec((rate * 8.0) as u64).as_bits_per_sec();
        if self.style == Style::FixedFilter {
            let each = asked.iter();
            return each.map(|(node, rate)| (bits(rate.min(SENT[*node])), vec![*node])).collect();
        }
        let Some(rate) = asked.values().copied().reduce(f32::max) else { return BTreeSet::new() };
        let sent = asked.keys().map(|node| SENT[*node]).sum();
        BTreeSet::from([(bits(rate.min(sent)), asked.keys().copied().collect())])
    }

    fn check(&self) {
        let is_of = |node: &usize, kept: &ontempo_reservation::machine::Reservation| {
            let from = sender(self.world.host(*node));
            self.sends.contains(node) && (kept.filters.is_empty() || kept.filters.contains(&from))
        };
        let there = |node, peer| -> BTreeSet<(u64, Vec<usize>)> {
            let kept = self.world.towards(node, peer).into_iter();
            kept.map(|kept| {
                let of = SENDERS.into_iter().filter(|one| is_of(one, kept)).collect();
                (kept.rate.as_bits_per_sec(), of)
            })
            .collect()
        };
        for (node, peer) in TREE.into_iter().skip(2) {
            assert_eq!(there(node, peer), self.enforced(&self.behind(peer)), "{node} to {peer}");
        }
        for node in SENDERS {
            let mut asked = self.behind(2);
            asked.retain(|sender, _| *sender == node);
            let found: BTreeSet<u64> = there(node, 2).into_iter().map(|(rate, _)| rate).collect();
            let expected: BTreeSet<u64> =
                self.enforced(&asked).into_iter().map(|(rate, _)| rate).collect();
            assert_eq!(found, expected, "{node} to 2");
            if !asked.is_empty() {
                assert_eq!(self.marked(node), self.wish(node), "what {node} is to mark with");
            }
        }
    }

    fn marked(&self, node: usize) -> Dclass {
        let from = sender(self.world.host(node));
        let last = self.world.events.iter().rev().find_map(|(_, at, event)| match event {
            Event::Reserved { marks, .. } if *at == node => Some(marks),
            _ => None,
        });
        let mark = last.expect("it was notified").iter().find(|mark| mark.is_for(&from));
        mark.map(|mark| mark.dscps).unwrap_or_default()
    }

    /// What the next hops of the first router that ask for this sender have in common.
    fn wish(&self, node: usize) -> Dclass {
        let asks = |receiver: usize, of: Option<usize>| {
            let asked = self.behind(receiver);
            of.map_or(!asked.is_empty(), |of| asked.contains_key(&of))
        };
        // A shared reservation has one wish, whoever's receiver it is.
        let of = (self.style == Style::FixedFilter).then_some(node);
        let wishes = [(3, 5, 26), (4, 7, 34)].into_iter().filter(|(next, receiver, _)| {
            self.behind(*next).contains_key(&node) && asks(*receiver, of)
        });
        let wishes: Vec<Dclass> = wishes.map(|(.., dscp)| Dclass::of(dscp)).collect();
        wishes.into_iter().reduce(Dclass::and).unwrap_or_default()
    }
}

fn one(seed: u64) {
    let mut group = Group::new(seed);
    SENDERS.into_iter().for_each(|node| group.toggle(node));
    group.trouble(seed);
    // Old state lives for (K + 0.5) * 1.5 * R; then a refresh or two bring the rest.
    let lifetime = Config { refresh: REFRESH, ..Config::default() }.lifetime(REFRESH);
    group.world.run_for(lifetime + REFRESH * 4);
    group.check();
    let changes = group.world.changes;
    group.world.run_for(REFRESH * 10);
    assert_eq!(group.world.changes, changes, "something flaps");
    RECEIVERS.into_iter().for_each(|node| group.release(node));
    let sends: Vec<usize> = group.sends.iter().copied().collect();
    sends.into_iter().for_each(|node| group.toggle(node));
    group.world.run_for(lifetime + REFRESH * 4);
    assert!(group.world.is_empty(), "something is left");
}

#[test]
fn whoever_comes_and_goes_on_whatever_branch_what_is_reserved_is_what_is_left_asked_for() {
    for seed in 0..SEEDS {
        let run = std::panic::catch_unwind(|| one(seed));
        assert!(run.is_ok(), "seed {seed} fails");
    }
}

/// Two hosts that send, two routers, a host that reserves for both, each for itself (FF) or together (SE).
fn line_for_two(style: Style) -> (World, Session, [Sender; 2]) {
    let links = [(0, 2), (1, 2), (2, 3), (3, 4)];
    let mut world = World::new(1, 5, &links, Settings::default());
    let to = session(world.host(4));
    let senders = [0, 1].map(|node| announce(&mut world, node, to, 50_000.0));
    ask_for(&mut world, to, style, &senders);
    world.run_for(RTT * 3);
    assert_eq!((world.towards(0, 2).len(), world.towards(1, 2).len()), (1, 1));
    (world, to, senders)
}

fn ask_for(world: &mut World, to: Session, style: Style, senders: &[Sender]) {
    let flow =
        |filters: &[Sender]| Descriptor { flowspec: load(20_000.0), filters: filters.to_vec() };
    let flows: Vec<Descriptor> = match style {
        Style::FixedFilter => senders.chunks(1).map(flow).collect(),
        _ => vec![flow(senders)],
    };
    world.call(4, |machine, now| machine.reserve(now, to, style, &flows, false)).expect("right");
}

/// Longer than the lifetime of state.
const LONG: Duration = Duration::from_secs(400);

#[test]
fn a_sender_whose_path_is_back_after_the_resv_has_its_reservation_again() {
    for style in [Style::FixedFilter, Style::SharedExplicit] {
        let (mut world, ..) = line_for_two(style);
        // The RESV comes while the router does not know one of its senders.
        world.links[1].up = false;
        world.start(2);
        world.run_for(Duration::from_secs(100));
        assert_eq!(world.towards(0, 2).len(), 1, "{style:?}");
        world.links[1].up = true;
        world.route();
        world.run_for(LONG);
        assert_eq!(world.towards(1, 2).len(), 1, "{style:?}");
    }
}

#[test]
fn a_sender_that_was_away_unnoticed_by_the_next_hop_has_its_reservation_again() {
    for style in [Style::FixedFilter, Style::SharedExplicit] {
        let (mut world, to, [from, _]) = line_for_two(style);
        // Nothing comes to the receiver's host, which so keeps the path that ends.
        world.links[3].up = false;
        world.call(0, |machine, now| machine.withdraw(now, to, from));
        world.run_for(Duration::from_secs(10));
        world.links[3].up = true;
        announce(&mut world, 0, to, 50_000.0);
        world.run_for(LONG);
        assert_eq!(world.towards(0, 2).len(), 1, "{style:?}");
    }
}

#[test]
fn what_a_next_hop_asks_for_no_more_ends_though_its_tear_was_lost_and_others_go_on() {
    let (mut world, to, [_, other]) = line_for_two(Style::FixedFilter);
    world.links[2].up = false;
    ask_for(&mut world, to, Style::FixedFilter, &[other]);
    world.run_for(Duration::from_secs(10));
    world.links[2].up = true;
    world.run_for(LONG);
    assert_eq!((world.towards(0, 2).len(), world.towards(1, 2).len()), (0, 1));
}
