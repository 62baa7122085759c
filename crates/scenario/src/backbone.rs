//! The routers of a topology and the links between them, before any flow or random draw.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use ontempo_foundation::Duration;

use crate::model::{Delay, DelayLaw, FlowGroup, GraphLink, LinkSpec, Topology};

/// The most bottlenecks of a parking lot.
pub(crate) const MAX_HOPS: u32 = 1_000;

/// Routers, and links between them.
pub(crate) struct Backbone<'a> {
    /// Names of the nodes.
    pub(crate) nodes: Vec<String>,
    /// One direction each.
    pub(crate) links: Vec<BackboneLink<'a>>,
    /// The links between senders' hosts and their routers, as they leave the host; `None` where
    /// flows begin at nodes.
    pub(crate) source_access: Option<&'a LinkSpec>,
    /// The links between receivers' hosts and their routers, as they leave the host.
    pub(crate) sink_access: Option<&'a LinkSpec>,
    places: BTreeMap<String, usize>,
    default_ends: Option<(usize, usize)>,
}

/// One direction of a link between routers.
pub(crate) struct BackboneLink<'a> {
    pub(crate) name: String,
    /// The link whose name the delay is drawn by: that of the first direction of a pair.
    pub(crate) drawn_as: String,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) spec: &'a LinkSpec,
}

/// A node that a flow group names and that the topology lacks.
pub(crate) enum EndError<'a> {
    /// The field `from` or `to` names an unknown node.
    Unknown { field: &'static str, name: &'a str },
    /// The field must be given in a graph.
    Missing { field: &'static str },
}

impl<'a> Backbone<'a> {
    pub(crate) fn new(topology: &'a Topology) -> Self {
        let mut backbone = Self {
            nodes: Vec::new(),
            links: Vec::new(),
            source_access: None,
            sink_access: None,
            places: BTreeMap::new(),
            default_ends: None,
        };
        match topology {
            Topology::Dumbbell { bottleneck, reverse, access, receiver_access } => {
                let (left, right) = (backbone.node("left"), backbone.node("right"));
                backbone.link("bottleneck", "bottleneck", (left, right), bottleneck);
                match reverse {
                    Some(reverse) => backbone.link("reverse", "reverse", (right, left), reverse),
                    None => {
                        let back = bottleneck.way_back();
                        backbone.link("reverse", "bottleneck", (right, left), back);
                    }
                }
                backbone.source_access = Some(access);
                backbone.sink_access = Some(receiver_access.as_ref().unwrap_or(access));
                backbone.default_ends = Some((left, right));
            }
            Topology::ParkingLot { hops, bottleneck, access } => {
                backbone.row((*hops).min(MAX_HOPS), bottleneck);
                backbone.source_access = Some(access);
                backbone.sink_access = Some(access);
                backbone.default_ends = Some((0, backbone.nodes.len() - 1));
            }
            Topology::Graph { links } => links.iter().for_each(|link| backbone.graph_link(link)),
        }
        backbone
    }

    /// How the links are written, also those of hosts; of several links one may be meant.
    pub(crate) fn specs(&self) -> impl Iterator<Item = &'a LinkSpec> + '_ {
        let hosts = [self.source_access, self.sink_access].into_iter().flatten();
        let hosts = hosts.flat_map(|access| [access, access.way_back()]);
        self.links.iter().map(|link| link.spec).chain(hosts)
    }

    fn row(&mut self, hops: u32, bottleneck: &'a LinkSpec) {
        let mut here = self.node("r0");
        for hop in 0..hops {
            let next = self.node(&format!("r{}", hop + 1));
            let name = format!("hop {hop}");
            self.link(&name, &name, (here, next), bottleneck);
            self.link(&format!("{name} reverse"), &name, (next, here), bottleneck.way_back());
            here = next;
        }
    }

    fn graph_link(&mut self, link: &'a GraphLink) {
        let (from, to) = (self.node(&link.from), self.node(&link.to));
        let name = format!("{} -> {}", link.from, link.to);
        self.link(&name, &name, (from, to), &link.link);
        if link.duplex {
            let back = format!("{} -> {}", link.to, link.from);
            self.link(&back, &name, (to, from), link.link.way_back());
        }
    }

    fn node(&mut self, name: &str) -> usize {
        if let Some(&place) = self.places.get(name) {
            return place;
        }
        let place = self.nodes.len();
        self.nodes.push(name.to_owned());
        self.places.insert(name.to_owned(), place);
        place
    }

    fn link(&mut self, name: &str, drawn_as: &str, ends: (usize, usize), spec: &'a LinkSpec) {
        self.links.push(BackboneLink {
            name: name.to_owned(),
            drawn_as: drawn_as.to_owned(),
            from: ends.0,
            to: ends.1,
            spec,
        });
    }

    /// The nodes at which the flows of `group` enter and leave.
    pub(crate) fn ends<'g>(&self, group: &'g FlowGroup) -> Result<(usize, usize), EndError<'g>> {
        let find = |field, name: &'g Option<String>| match name {
            Some(name) => match self.places.get(name) {
                Some(&place) => Ok(Some(place)),
                None => Err(EndError::Unknown { field, name }),
            },
            None => Ok(None),
        };
        let (from, to) = (find("from", &group.from)?, find("to", &group.to)?);
        match (from, to, self.default_ends) {
            (Some(from), Some(to), _) => Ok((from, to)),
            (None, _, None) => Err(EndError::Missing { field: "from" }),
            (_, None, None) => Err(EndError::Missing { field: "to" }),
            (None, None, Some(ends)) => Ok(ends),
            // The other end is the far one, seen from the end that is given.
            (Some(from), None, Some((first, last))) if from == last => Ok((from, first)),
            (Some(from), None, Some((_, last))) => Ok((from, last)),
            (None, Some(to), Some((first, last))) if to == first => Ok((last, to)),
            (None, Some(to), Some((first, _))) => Ok((first, to)),
        }
    }

    /// The links of the shortest way by mean delay, then by number of links, then by the names
    /// of the nodes; `None` where there is no way.
    pub(crate) fn route(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        let costs = self.costs_to(to);
        let mut outgoing = vec![Vec::new(); self.nodes.len()];
        for (place, link) in self.links.iter().enumerate() {
            outgoing[link.from].push(place);
        }
        let mut route = Vec::new();
        let mut here = from;
        costs[from]?;
        while here != to {
            let on_way = |place: &&usize| {
                let link = &self.links[**place];
                costs[link.to].map(|rest| rest.plus(link)) == costs[here]
            };
            let by_name = |place: &&usize| (&self.nodes[self.links[**place].to], **place);
            let place = *outgoing[here].iter().filter(on_way).min_by_key(by_name)?;
            route.push(place);
            here = self.links[place].to;
        }
        Some(route)
    }

    /// Dijkstra's algorithm, backwards from `to`.
    fn costs_to(&self, to: usize) -> Vec<Option<Cost>> {
        let mut incoming = vec![Vec::new(); self.nodes.len()];
        for (place, link) in self.links.iter().enumerate() {
            incoming[link.to].push(place);
        }
        let mut costs: Vec<Option<Cost>> = vec![None; self.nodes.len()];
        let mut open = BinaryHeap::from([Reverse((Cost::default(), to))]);
        costs[to] = Some(Cost::default());
        while let Some(Reverse((cost, node))) = open.pop() {
            if costs[node] != Some(cost) {
                continue;
            }
            for &place in &incoming[node] {
                let link = &self.links[place];
                let via = cost.plus(link);
                if costs[link.from].is_none_or(|known| via < known) {
                    costs[link.from] = Some(via);
                    open.push(Reverse((via, link.from)));
                }
            }
        }
        costs
    }
}

/// What a way costs: delay first, then the number of links.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    delay: Duration,
    hops: usize,
}

impl Cost {
    fn plus(self, link: &BackboneLink<'_>) -> Self {
        Self { delay: self.delay + link.spec.delay.mean(), hops: self.hops + 1 }
    }
}

impl Delay {
    /// The mean of the delay, whenever it is drawn.
    pub fn mean(&self) -> Duration {
        match self {
            Self::Fixed(delay) => *delay,
            Self::Law(law) => law.mean(),
        }
    }

    /// The smallest and the largest delay, where there are such; the mean where there are not.
    pub(crate) fn range(&self) -> (Duration, Duration) {
        match self {
            Self::Fixed(delay) => (*delay, *delay),
            Self::Law(law) => law.range(),
        }
    }
}

impl DelayLaw {
    /// The law's mean.
    pub fn mean(&self) -> Duration {
        match self {
            Self::Constant { value } => *value,
            Self::Uniform { low, high, .. } => *low / 2 + *high / 2,
            Self::Exponential { mean } | Self::Erlang { mean, .. } => *mean,
            Self::HyperExponential { probabilities, means } => {
                probabilities.iter().zip(means).map(|(p, mean)| mean.mul_f64(*p)).sum()
            }
            Self::Sum { terms } => terms.iter().map(Self::mean).sum(),
        }
    }

    fn range(&self) -> (Duration, Duration) {
        match self {
            Self::Uniform { low, high, .. } => (*low, *high),
            Self::Sum { terms } => {
                terms.iter().map(Self::range).fold((Duration::ZERO, Duration::ZERO), |sum, term| {
                    (sum.0 + term.0, sum.1 + term.1)
                })
            }
            law => (law.mean(), law.mean()),
        }
    }
}
