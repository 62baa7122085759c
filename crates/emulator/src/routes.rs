//! Which links a packet crosses, by its source and destination address.

use std::collections::HashMap;

use ontempo_foundation::Duration;
use ontempo_scenario::Layout;
use ontempo_scenario::model::Delay;

use crate::ip::Ends;
use ontempo_runtime::End;

/// A sequence of links, and the interface after the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) links: Vec<usize>,
    pub(crate) interface: usize,
}

/// A namespace: a host, at which flows begin or end, or a router whose kernel forwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// Its node's index in the layout.
    pub(crate) node: usize,
    pub(crate) name: String,
    /// The flow ends at this host; empty for a router.
    pub(crate) ends: Vec<End>,
}

/// The hosts of a layout, in the order of its flows.
pub(crate) fn hosts(layout: &Layout) -> Vec<Host> {
    let mut hosts: Vec<Host> = Vec::new();
    let mut places: HashMap<usize, usize> = HashMap::new();
    for (number, flow) in layout.flows.iter().enumerate() {
        let source = flow.forward.first().map(|link| layout.links[*link].from);
        let sink = flow.forward.last().map(|link| layout.links[*link].to);
        for (node, end) in [(source, End::source(number)), (sink, End::sink(number))] {
            let Some(node) = node else { continue };
            let place = *places.entry(node).or_insert_with(|| {
                hosts.push(Host { node, name: layout.nodes[node].clone(), ends: Vec::new() });
                hosts.len() - 1
            });
            hosts[place].ends.push(end);
        }
    }
    hosts
}

/// The index in `hosts` of each flow's ends, two per flow.
fn host_of(layout: &Layout, hosts: &[Host]) -> Vec<usize> {
    let mut host_of = vec![0; layout.flows.len() * 2];
    for (place, host) in hosts.iter().enumerate() {
        for end in &host.ends {
            host_of[index(*end)] = place;
        }
    }
    host_of
}

/// How a packet read from an interface is routed.
pub(crate) enum Routes {
    /// By its addresses, to another host: each host has one interface, in the same order.
    ByAddress(ByAddress),
    /// Over the link of its interface; the kernels route.
    ByLink(ByLink),
}

impl Routes {
    pub(crate) fn get(&self, route: u32) -> &Route {
        match self {
            Self::ByAddress(by) => &by.routes[route as usize],
            Self::ByLink(by) => &by.routes[route as usize],
        }
    }

    /// The route of a packet from `interface`; `None` if its ends are not connected.
    pub(crate) fn of(&mut self, interface: usize, ends: Option<Ends>) -> Option<u32> {
        match self {
            Self::ByAddress(by) => by.between(ends?),
            Self::ByLink(_) => Some(interface as u32),
        }
    }

    /// Whether a flow's packet comes from its source host as it enters `route`, and whether it
    /// reaches its destination host at the end.
    pub(crate) fn joins(&self, route: u32, ends: Ends) -> (bool, bool) {
        match self {
            Self::ByAddress(_) => (true, true),
            Self::ByLink(by) => {
                let (from, to) = by.nodes[route as usize];
                let is_at = |node, end| by.node_of.get(index(end)) == Some(&node);
                (is_at(from, ends.from), is_at(to, ends.to))
            }
        }
    }
}

/// The links, each a route, and the nodes where they begin and end.
pub(crate) struct ByLink {
    routes: Vec<Route>,
    nodes: Vec<(usize, usize)>,
    /// The node of each end, two per flow.
    node_of: Vec<usize>,
}

impl ByLink {
    /// Interfaces are in the order of the links that begin at them; link `i` ends at interface
    /// `opposite[i]`.
    pub(crate) fn new(layout: &Layout, opposite: &[usize]) -> Self {
        let hosts = hosts(layout);
        let node_of = host_of(layout, &hosts).into_iter().map(|place| hosts[place].node);
        let route =
            |(link, interface): (usize, &usize)| Route { links: vec![link], interface: *interface };
        Self {
            routes: opposite.iter().enumerate().map(route).collect(),
            nodes: layout.links.iter().map(|link| (link.from, link.to)).collect(),
            node_of: node_of.collect(),
        }
    }
}

/// The routes of the flows, and those between other hosts, added when a packet needs one.
pub(crate) struct ByAddress {
    routes: Vec<Route>,
    /// The host of each end, two per flow.
    host_of: Vec<usize>,
    /// The node of each host.
    nodes: Vec<usize>,
    /// Routes between ends of different flows; `None` if not connected.
    others: HashMap<(usize, usize), Option<u32>>,
    graph: Graph,
}

impl ByAddress {
    pub(crate) fn new(layout: &Layout) -> Self {
        let hosts = hosts(layout);
        let host_of = host_of(layout, &hosts);
        let routes = layout
            .flows
            .iter()
            .enumerate()
            .flat_map(|(flow, laid)| {
                let forward = (&laid.forward, End::sink(flow));
                [forward, (&laid.reverse, End::source(flow))]
            })
            .map(|(links, to)| Route { links: links.clone(), interface: host_of[index(to)] })
            .collect();
        let nodes = hosts.iter().map(|host| host.node).collect();
        Self { routes, host_of, nodes, others: HashMap::new(), graph: Graph::new(layout) }
    }

    fn between(&mut self, ends: Ends) -> Option<u32> {
        let flow = ends.from.flow();
        if flow == ends.to.flow() && ends.from != ends.to {
            let route = flow * 2 + usize::from(ends.from.is_sink());
            return (route < self.host_of.len()).then_some(route as u32);
        }
        let from = *self.host_of.get(index(ends.from))?;
        let to = *self.host_of.get(index(ends.to))?;
        if let Some(known) = self.others.get(&(from, to)) {
            return *known;
        }
        let found = self.graph.shortest(self.nodes[from], self.nodes[to]).map(|links| {
            self.routes.push(Route { links, interface: to });
            (self.routes.len() - 1) as u32
        });
        self.others.insert((from, to), found);
        found
    }
}

fn index(end: End) -> usize {
    end.flow() * 2 + usize::from(end.is_sink())
}

/// The layout's links as a graph, for routes that no flow uses.
pub(crate) struct Graph {
    /// From, to, and mean delay of each link.
    links: Vec<(usize, usize, Duration)>,
    node_count: usize,
}

impl Graph {
    pub(crate) fn new(layout: &Layout) -> Self {
        let delay = |delay: &Delay| match delay {
            Delay::Fixed(delay) => *delay,
            Delay::Law(law) => law.mean(),
        };
        let links = layout.links.iter().map(|link| (link.from, link.to, delay(&link.delay)));
        Self { links: links.collect(), node_count: layout.nodes.len() }
    }

    /// The path of least delay between two nodes, then of the fewest links, by relaxation
    /// (Bellman and Ford).
    pub(crate) fn shortest(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        let mut best: Vec<Option<(Duration, u32)>> = vec![None; self.node_count];
        let mut last: Vec<Option<usize>> = vec![None; self.node_count];
        best[from] = Some((Duration::ZERO, 0));
        let mut changes = true;
        while changes {
            changes = false;
            for (place, (start, end, delay)) in self.links.iter().enumerate() {
                let Some((cost, hops)) = best[*start] else { continue };
                let reached = (cost.saturating_add(*delay), hops + 1);
                if best[*end].is_none_or(|known| reached < known) {
                    best[*end] = Some(reached);
                    last[*end] = Some(place);
                    changes = true;
                }
            }
        }
        let mut links = Vec::new();
        let mut node = to;
        while node != from {
            let link = last[node]?;
            links.push(link);
            node = self.links[link].0;
        }
        links.reverse();
        Some(links)
    }
}
