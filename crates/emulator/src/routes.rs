//! Which links a packet crosses, by its two addresses.

use std::collections::HashMap;

use ontempo_foundation::Duration;
use ontempo_scenario::Layout;
use ontempo_scenario::model::Delay;

use crate::address::End;
use crate::ip::Ends;

/// Links one after the other, and the host behind the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) links: Vec<usize>,
    pub(crate) host: usize,
}

/// A host: a node at which flows begin or end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// Its node's place in the layout.
    pub(crate) node: usize,
    pub(crate) name: String,
    /// The ends of flows that are there.
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

/// The routes of the flows, and those between other hosts once a packet has asked for one.
pub(crate) struct Routes {
    routes: Vec<Route>,
    /// The host of each end, two a flow.
    host_of: Vec<usize>,
    /// Routes between ends of different flows; none where no way leads there.
    others: HashMap<(usize, usize), Option<u32>>,
    graph: Graph,
}

impl Routes {
    pub(crate) fn new(layout: &Layout) -> Self {
        let hosts = hosts(layout);
        let mut host_of = vec![0; layout.flows.len() * 2];
        for (place, host) in hosts.iter().enumerate() {
            for end in &host.ends {
                host_of[index(*end)] = place;
            }
        }
        let routes = layout
            .flows
            .iter()
            .enumerate()
            .flat_map(|(flow, laid)| {
                let forward = (&laid.forward, End::sink(flow));
                [forward, (&laid.reverse, End::source(flow))]
            })
            .map(|(links, to)| Route { links: links.clone(), host: host_of[index(to)] })
            .collect();
        Self { routes, host_of, others: HashMap::new(), graph: Graph::new(layout, &hosts) }
    }

    pub(crate) fn get(&self, route: u32) -> &Route {
        &self.routes[route as usize]
    }

    /// The route of a packet between two ends; `None` where one of them is not there, or no way
    /// leads from the one to the other.
    pub(crate) fn between(&mut self, ends: Ends) -> Option<u32> {
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
        let found = self.graph.shortest(from, to).map(|links| {
            self.routes.push(Route { links, host: to });
            (self.routes.len() - 1) as u32
        });
        self.others.insert((from, to), found);
        found
    }
}

fn index(end: End) -> usize {
    end.flow() * 2 + usize::from(end.is_sink())
}

/// The layout's links as a graph, for ways that no flow takes.
struct Graph {
    /// Node of each host.
    nodes: Vec<usize>,
    /// From, to, and mean delay of each link.
    links: Vec<(usize, usize, Duration)>,
    node_count: usize,
}

impl Graph {
    fn new(layout: &Layout, hosts: &[Host]) -> Self {
        let delay = |delay: &Delay| match delay {
            Delay::Fixed(delay) => *delay,
            Delay::Law(law) => law.mean(),
        };
        let links = layout.links.iter().map(|link| (link.from, link.to, delay(&link.delay)));
        Self {
            nodes: hosts.iter().map(|host| host.node).collect(),
            links: links.collect(),
            node_count: layout.nodes.len(),
        }
    }

    /// The way of least delay, then of the fewest links, by relaxation (Bellman and Ford).
    fn shortest(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        let (from, to) = (self.nodes[from], self.nodes[to]);
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
