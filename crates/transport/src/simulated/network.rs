use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;

use bytes::BytesMut;
use noq_proto::EcnCodepoint;
use ontempo_foundation::{Bytes, Duration, RandomStream, Time};
use ontempo_network::{Fate, Link};

use super::path::{Mishaps, Path};
use crate::endpoint::Endpoint;
use crate::events::{Poll, Source, Transmit};
use ontempo_udp::Dscp;

/// IPv4 and UDP headers, which links carry as well, bytes.
const HEADERS: Bytes = Bytes::new(28);

/// Maximum delay of a duplicate.
const REPEATED_LATER: Duration = Duration::from_millis(50);

/// An endpoint, its address, and its next timeout.
struct Node {
    endpoint: Endpoint,
    address: SocketAddr,
    wake: Time,
}

/// One direction between two nodes.
struct Way {
    link: Link,
    mishaps: Mishaps,
    random: RandomStream,
}

/// A datagram in transit, ordered by arrival, then by sending.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arrival {
    at: Time,
    order: u64,
    to: usize,
    from: SocketAddr,
    ecn: Option<u8>,
    payload: Vec<u8>,
}

/// A datagram that was sent, and its fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The node that sent it.
    pub from: usize,
    /// The destination node.
    pub to: usize,
    /// When it was sent.
    pub left: Time,
    /// When it arrives; `None`: it is lost.
    pub arrives: Option<Time>,
    /// Bytes of UDP payload.
    pub size: usize,
    /// True if one of its bits is flipped.
    pub damaged: bool,
    /// DSCP of its connection, if it has one.
    pub dscp: Option<Dscp>,
}

/// Endpoints, links between them, and a clock.
pub struct Network {
    seed: u64,
    now: Time,
    nodes: Vec<Node>,
    ways: Vec<Way>,
    /// The nodes of an address that several have, by the places of their endpoints.
    groups: BTreeMap<SocketAddr, Vec<usize>>,
    /// The path between each pair of nodes.
    routes: BTreeMap<(usize, usize), usize>,
    arrivals: BinaryHeap<Reverse<Arrival>>,
    order: u64,
    scratch: Vec<u8>,
    largest_burst: usize,
    passages: Option<Vec<Passage>>,
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Network {
    /// An empty network.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            now: Time::ZERO,
            nodes: Vec::new(),
            ways: Vec::new(),
            groups: BTreeMap::new(),
            routes: BTreeMap::new(),
            arrivals: BinaryHeap::new(),
            order: 0,
            scratch: Vec::new(),
            largest_burst: 0,
            passages: None,
        }
    }

    /// Adds an endpoint at an address; returns its number.
    pub fn add(&mut self, endpoint: Endpoint, address: SocketAddr) -> usize {
        self.nodes.push(Node { endpoint, address, wake: Time::NEVER });
        self.nodes.len() - 1
    }

    /// Adds an endpoint for each [`Share`](crate::Share) of an address, by place; returns their numbers. A
    /// datagram to that address goes to the endpoint that it is for.
    pub fn add_group(&mut self, endpoints: Vec<Endpoint>, address: SocketAddr) -> Vec<usize> {
        let group: Vec<usize> =
            endpoints.into_iter().map(|endpoint| self.add(endpoint, address)).collect();
        self.groups.insert(address, group.clone());
        group
    }

    /// Connects two endpoints: `path` leads from the first to the second, `back` back.
    pub fn join(&mut self, first: usize, second: usize, path: &Path, back: &Path) {
        for (from, to, path) in [(first, second, path), (second, first, back)] {
            let name = format!("{from} to {to}");
            let way = Way {
                link: path.link(self.seed, &name),
                mishaps: path.mishaps.clone(),
                random: RandomStream::new(self.seed, &format!("mishaps {name}")),
            };
            self.routes.insert((from, to), self.ways.len());
            self.ways.push(way);
        }
    }

    /// Connects `third` to `second` by the links that connect `first` to it, so that both share
    /// their queues.
    pub fn join_beside(&mut self, third: usize, first: usize, second: usize) {
        for (ways, like) in [((third, second), (first, second)), ((second, third), (second, first))]
        {
            if let Some(way) = self.routes.get(&like) {
                self.routes.insert(ways, *way);
            }
        }
    }

    /// Records every datagram from now on, for [`passages`](Self::passages).
    pub fn keep_passages(&mut self) {
        self.passages.get_or_insert_default();
    }

    /// The recorded datagrams, in the order of sending.
    pub fn passages(&self) -> &[Passage] {
        self.passages.as_deref().unwrap_or_default()
    }

    /// The current time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// An endpoint. Call [`flush`](Self::flush) afterwards to send its datagrams.
    pub fn endpoint(&mut self, node: usize) -> &mut Endpoint {
        &mut self.nodes[node].endpoint
    }

    /// The address of an endpoint.
    pub fn address(&self, node: usize) -> SocketAddr {
        self.nodes[node].address
    }

    /// Gives an endpoint another address, as a NAT does: datagrams in transit to the old one are
    /// lost.
    pub fn rebind(&mut self, node: usize, address: SocketAddr) {
        self.nodes[node].address = address;
        let arrivals = std::mem::take(&mut self.arrivals);
        self.arrivals =
            arrivals.into_iter().filter(|Reverse(arrival)| arrival.to != node).collect();
    }

    /// Delivers a datagram to a node, as an attacker would.
    pub fn inject(&mut self, to: usize, from: SocketAddr, payload: &[u8]) {
        let source = Source::of(from);
        self.nodes[to].endpoint.handle(self.now, source, BytesMut::from(payload));
        self.flush(to);
    }

    /// Maximum number of datagrams in one transmission.
    pub fn largest_burst(&self) -> usize {
        self.largest_burst
    }

    /// Sends the datagrams of an endpoint.
    pub fn flush(&mut self, node: usize) {
        let mut out = std::mem::take(&mut self.scratch);
        loop {
            match self.nodes[node].endpoint.poll_transmit(self.now, &mut out) {
                Poll::Transmit(transmit) => self.transmit(node, &transmit, &out),
                Poll::WaitUntil(at) => {
                    self.nodes[node].wake = at;
                    break;
                }
                Poll::Idle => {
                    self.nodes[node].wake = Time::NEVER;
                    break;
                }
            }
        }
        self.scratch = out;
    }

    /// Processes the next event, unless it is after `until`: then time is `until`. Returns
    /// the node of the event.
    pub fn step(&mut self, until: Time) -> Option<usize> {
        let waking = (0..self.nodes.len()).min_by_key(|node| self.nodes[*node].wake)?;
        let wake = self.nodes[waking].wake;
        let arrives = self.arrivals.peek().map_or(Time::NEVER, |Reverse(next)| next.at);
        if arrives.min(wake) > until || arrives.min(wake) == Time::NEVER {
            self.now = self.now.max(until);
            return None;
        }
        self.now = self.now.max(arrives.min(wake));
        let node = if arrives <= wake
            && let Some(Reverse(arrival)) = self.arrivals.pop()
        {
            let ecn = arrival.ecn.and_then(EcnCodepoint::from_bits);
            let source = Source { remote: arrival.from, local: None, ecn };
            let payload = BytesMut::from(arrival.payload.as_slice());
            self.nodes[arrival.to].endpoint.handle(self.now, source, payload);
            arrival.to
        } else {
            self.nodes[waking].endpoint.handle_timeout(self.now);
            waking
        };
        self.flush(node);
        Some(node)
    }

    fn transmit(&mut self, from: usize, transmit: &Transmit, bytes: &[u8]) {
        let to = self.nodes.iter().position(|node| node.address == transmit.destination);
        let segment = transmit.segment.unwrap_or(transmit.size).max(1);
        self.largest_burst = self.largest_burst.max(transmit.size.div_ceil(segment));
        for payload in bytes[..transmit.size].chunks(segment) {
            // Nobody has the address: it is lost.
            if let Some(to) = to.map(|to| self.member(to, payload)) {
                self.offer(from, to, transmit, payload);
            }
        }
    }

    /// The node that a datagram to the address of `to` is for.
    fn member(&self, to: usize, datagram: &[u8]) -> usize {
        let node = &self.nodes[to];
        let owner = node.endpoint.share().owner(datagram);
        self.groups.get(&node.address).and_then(|group| group.get(owner)).copied().unwrap_or(to)
    }

    fn offer(&mut self, from: usize, to: usize, transmit: &Transmit, payload: &[u8]) {
        let Some(route) = self.routes.get(&(from, to)) else { return };
        let way = &mut self.ways[*route];
        let (left, size) = (self.now, payload.len());
        let passed = way.pass(left, transmit.ecn, payload);
        if let Some(passages) = &mut self.passages {
            let arrives = passed.as_ref().map(|passed| passed.at);
            let damaged = passed.as_ref().is_some_and(|passed| passed.damaged);
            let dscp = transmit.dscp;
            passages.push(Passage { from, to, left, arrives, size, damaged, dscp });
        }
        let Some(Passed { at, again, ecn, payload, .. }) = passed else { return };
        let address = self.nodes[from].address;
        let mut arrive = |at, payload| {
            self.order += 1;
            let (order, ecn) = (self.order, ecn.map(|ecn| ecn as u8));
            self.arrivals.push(Reverse(Arrival { at, order, to, from: address, ecn, payload }));
        };
        if let Some(again) = again {
            arrive(again, payload.clone());
        }
        arrive(at, payload);
    }
}

/// A datagram on arrival.
struct Passed {
    at: Time,
    /// Arrival of its duplicate.
    again: Option<Time>,
    ecn: Option<EcnCodepoint>,
    damaged: bool,
    payload: Vec<u8>,
}

impl Way {
    /// The fate of a datagram; `None`: it is lost.
    fn pass(&mut self, now: Time, ecn: Option<EcnCodepoint>, payload: &[u8]) -> Option<Passed> {
        let mishaps = &self.mishaps;
        if mishaps.stalls.iter().any(|(begins, ends)| (*begins..*ends).contains(&now)) {
            return None;
        }
        if mishaps.shrinks.is_some_and(|(from, most)| now >= from && payload.len() > most) {
            return None;
        }
        let size = Bytes::new(payload.len() as u64) + HEADERS;
        let Fate::Arrives { at, marked, .. } = self.link.offer(now, size, ecn.is_some()) else {
            return None;
        };
        let random = &mut self.random;
        let mark = marked || (ecn.is_some() && random.chance(mishaps.marked));
        let ecn = if mark { Some(EcnCodepoint::Ce) } else { ecn };
        let mut payload = payload.to_vec();
        let place = random.next_u64();
        let damaged = random.chance(mishaps.damaged) && !payload.is_empty();
        if damaged {
            let place = (place % (payload.len() as u64 * 8)) as usize;
            payload[place / 8] ^= 1 << (place % 8);
        }
        let later = random.duration_between(Duration::ZERO, REPEATED_LATER);
        let again = random.chance(mishaps.repeated).then(|| at + later);
        Some(Passed { at, again, ecn, damaged, payload })
    }
}
