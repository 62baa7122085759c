//! Routers as namespaces: each node has an interface for each link that begins there, the kernel
//! forwards by static routes, and HTB at the start of a link between routers limits it.
//!
//! This process holds the other end of each interface, as for hosts: a packet that HTB releases
//! gets the link's wire time, delay and losses from the model. HTB has the rate and the
//! queue, and accepts classes for reservations.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use ontempo_foundation::{Bytes, Packets, Rate};
use ontempo_scenario::model::{QueueLimit, QueueSpec, Unreserved};
use ontempo_scenario::{LaidLink, Layout};

use crate::routes::{Graph, Host, hosts};
use ontempo_runtime::End;

/// Longest name of an interface (`IFNAMSIZ` of Linux, without the terminating zero).
const MAX_NAME_LEN: usize = 15;

/// Queue limit in packets if the scenario sets none.
const NO_LIMIT: Packets = Packets::new(1_000_000);

/// HTB's burst beyond one packet, as a fraction of a second: the resolution of its timer.
const BURSTS_PER_SECOND: u64 = 1_000;

/// Best effort's guaranteed rate is this fraction (1/N) of the link's; it borrows the rest.
const BEST_EFFORT_SHARE: u64 = 100;

/// Class id of the first flow if each flow has its own queue; reservations use lower ids.
const FIRST_OF_FLOWS: usize = 0x9000;

/// Filters of flows, IPv4 and IPv6: after those of reservations, which have lower numbers.
const FLOW_PREFERENCES: [u32; 2] = [8_192, 8_193];

/// A layout in which every node is a namespace.
pub(crate) struct Routed {
    layout: Layout,
    /// The namespaces: hosts as in any run, followed by the routers.
    pub(crate) namespaces: Vec<Host>,
    /// The reverse link of each link.
    pub(crate) opposite: Vec<usize>,
    is_host: Vec<bool>,
    graph: Graph,
}

/// What routers of the kernel cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Impossible {
    pub(crate) link: String,
    /// The link's field at fault; `None` for that which makes it change.
    pub(crate) field: Option<&'static str>,
    pub(crate) why: String,
}

impl Routed {
    /// A layout whose routers are the kernel's.
    ///
    /// # Errors
    /// Each part of `layout` that they cannot do.
    pub(crate) fn new(layout: &Layout) -> Result<Self, Vec<Impossible>> {
        let mut namespaces = hosts(layout);
        let mut is_host = vec![false; layout.nodes.len()];
        namespaces.iter().for_each(|host| is_host[host.node] = true);
        for (node, name) in layout.nodes.iter().enumerate().filter(|(node, _)| !is_host[*node]) {
            namespaces.push(Host { node, name: name.clone(), ends: Vec::new() });
        }
        let ways: BTreeMap<_, _> = layout
            .links
            .iter()
            .enumerate()
            .map(|(place, link)| ((link.from, link.to), place))
            .collect();
        let mut problems = Vec::new();
        let mut refuse = |link: &LaidLink, field: Option<&'static str>, why: String| {
            problems.push(Impossible { link: link.name.clone(), field, why });
        };
        let mut opposite = Vec::with_capacity(layout.links.len());
        for link in &layout.links {
            match ways.get(&(link.to, link.from)) {
                Some(back) => opposite.push(*back),
                None => refuse(
                    link,
                    Some("duplex"),
                    format!(
                        "the link `{}` has none back, which an interface needs; leave out duplex = \
                         false",
                        link.name
                    ),
                ),
            }
        }
        let graph = Graph::new(layout);
        let routed = Self { layout: layout.clone(), namespaces, opposite, is_host, graph };
        for link in layout.links.iter().filter(|link| routed.is_shaped(link)) {
            if let Err(kind) = leaf(&link.queue) {
                let why = format!(
                    "the queue of the link `{}` would be HTB's, which has no {kind}; write \
                     queue = {{ kind = \"drop-tail\", limit = \"50 packets\" }}",
                    link.name
                );
                refuse(link, Some("queue"), why);
            }
        }
        let reserved: BTreeSet<usize> = layout.reservations.iter().map(|one| one.link).collect();
        for link in reserved.into_iter().map(|link| &layout.links[link]) {
            if routed.is_shaped(link) {
                refuse(
                    link,
                    Some("reservations"),
                    format!(
                        "reservations on the link `{}` are RSVP's to make, or those of `tc class add`; \
                     leave out [[reservations]]",
                        link.name
                    ),
                );
            }
        }
        let varying = layout.links.iter().filter(|link| link.schedule.is_some());
        for link in varying.filter(|link| routed.is_shaped(link)) {
            refuse(
                link,
                None,
                format!(
                    "the rate of the link `{}` would be HTB's, which does not change during a run: HTB has \
                 no rate of zero for an outage, and reservations below it keep the rates they were given; \
                 leave out its schedule, outages and events, or routers = \"kernel\"",
                    link.name
                ),
            );
        }
        let policed = layout.links.iter().filter(|link| link.policer.is_some());
        for link in policed.filter(|link| routed.is_shaped(link)) {
            refuse(
                link,
                Some("policer"),
                format!(
                    "the policer of the link `{}` would stand behind HTB's queue; leave it out, or \
                 routers = \"kernel\"",
                    link.name
                ),
            );
        }
        for link in layout.links.iter().filter(|link| link.duplicate > 0.0 || link.corrupt > 0.0) {
            refuse(
                link,
                Some(if link.duplicate > 0.0 { "duplicate" } else { "corrupt" }),
                format!(
                    "behind a router of the kernel it is not known which packets the link `{}` copied or \
                 corrupted; leave out duplicate and corrupt, or routers = \"kernel\"",
                    link.name
                ),
            );
        }
        let aggregated = layout.links.iter().filter(|link| link.aggregation.is_some());
        for link in aggregated.filter(|link| routed.is_shaped(link)) {
            refuse(
                link,
                Some("aggregation"),
                format!(
                    "the transmitter of the link `{}` would be HTB, which sends no aggregates; leave out \
                 aggregation, or routers = \"kernel\"",
                    link.name
                ),
            );
        }
        if problems.is_empty() { Ok(routed) } else { Err(problems) }
    }

    /// Whether HTB limits the link: a link between routers with a limited rate.
    pub(crate) fn is_shaped(&self, link: &LaidLink) -> bool {
        !self.is_host[link.from] && !self.is_host[link.to] && link.rate < Rate::UNLIMITED
    }

    /// The layout, without the queues that HTB implements.
    pub(crate) fn behind_queues(&self) -> Layout {
        let mut layout = self.layout.clone();
        for link in layout.links.iter_mut().filter(|link| self.is_shaped(link)) {
            link.queue = QueueSpec::default();
        }
        layout
    }

    /// The links that begin at `node`, each an interface there.
    pub(crate) fn interfaces(&self, node: usize) -> impl Iterator<Item = usize> {
        let links = self.layout.links.iter().enumerate();
        links.filter(move |(_, link)| link.from == node).map(|(place, _)| place)
    }

    /// The name of the interface at which `link` begins: `to-` and the neighbour's name,
    /// or the link's number if that is not a valid interface name.
    pub(crate) fn interface_name(&self, link: usize) -> String {
        let neighbour = &self.layout.nodes[self.layout.links[link].to];
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let name = format!("to-{neighbour}");
        let will_do = name.len() <= MAX_NAME_LEN && name.chars().all(is_plain);
        if will_do { name } else { format!("link{link}") }
    }

    /// Whether the node is a router.
    pub(crate) fn forwards(&self, node: usize) -> bool {
        self.interfaces(node).nth(1).is_some()
    }

    /// The first link of a flow from its host at `end`.
    pub(crate) fn first_link(&self, end: End) -> usize {
        let flow = &self.layout.flows[end.flow()];
        let way = if end.is_sink() { &flow.reverse } else { &flow.forward };
        way.first().copied().unwrap_or_default()
    }

    /// A router's addresses, one per interface, in both IP versions.
    pub(crate) fn addresses(&self, space: &Host) -> Vec<(usize, End)> {
        let is_router = !self.is_host[space.node];
        let links = self.interfaces(space.node).filter(|_| is_router);
        links.map(|link| (link, End::router(link))).collect()
    }

    /// The routes of a router: to the ends of flows along the flows' own routes,
    /// and to all other nodes along the shortest path.
    pub(crate) fn routes(&self, node: usize) -> Vec<(End, usize)> {
        let links = &self.layout.links;
        let mut shortest: BTreeMap<usize, Option<usize>> = BTreeMap::new();
        let mut first = |to: usize| {
            let way = || self.graph.shortest(node, to).and_then(|way| way.first().copied());
            *shortest.entry(to).or_insert_with(way)
        };
        let mut routes = Vec::new();
        for (number, flow) in self.layout.flows.iter().enumerate() {
            let ways = [(&flow.forward, End::sink(number)), (&flow.reverse, End::source(number))];
            for (way, end) in ways {
                let Some(last) = way.last().map(|link| links[*link].to) else { continue };
                let own = way.iter().copied().find(|link| links[*link].from == node);
                let link = if last == node { None } else { own.or_else(|| first(last)) };
                routes.extend(link.map(|link| (end, link)));
            }
        }
        let routers = self.namespaces.iter().filter(|space| space.node != node);
        for (link, end) in routers.flat_map(|space| self.addresses(space)) {
            routes.extend(first(links[link].from).map(|way| (end, way)));
        }
        routes
    }

    /// The `tc` commands for the interface of `link`; empty if HTB does not limit it.
    ///
    /// Reservations build on these ids: `1:1` is the link, `1:2` best effort; others are
    /// free for classes below `1:1`. Best effort has almost no guaranteed rate and borrows the
    /// rest at the lowest priority, so that reservations go first. With a queue per flow, each
    /// flow has such a class, selected by destination; they borrow in turn, one packet at a time.
    pub(crate) fn shaping(&self, link: usize, largest: usize) -> String {
        let laid = &self.layout.links[link];
        let Ok(queue) = leaf(&laid.queue) else { return String::new() };
        if !self.is_shaped(laid) {
            return String::new();
        }
        let (device, rate) = (self.interface_name(link), laid.rate.as_bits_per_sec());
        let burst = (rate / 8 / BURSTS_PER_SECOND).max(largest as u64);
        let least = |waiting: usize| (rate / BEST_EFFORT_SHARE / waiting.max(1) as u64).max(8);
        let common = format!("ceil {rate}bit burst {burst} cburst {burst} quantum {largest}");
        let mut lines = format!("qdisc add dev {device} root handle 1: htb default 2\n");
        // Writing to a string cannot fail.
        let _ = write!(
            lines,
            "class add dev {device} parent 1: classid 1:1 htb rate {rate}bit {common}\n\
             class add dev {device} parent 1:1 classid 1:2 htb rate {}bit {common} prio 7\n\
             qdisc add dev {device} parent 1:2 handle 2: {queue}\n",
            least(1),
        );
        let flows = if is_by_flow(&laid.queue) { self.crossing(link) } else { Vec::new() };
        for (flow, to) in &flows {
            let id = FIRST_OF_FLOWS + flow;
            let least = least(flows.len());
            let [v4, v6] = FLOW_PREFERENCES;
            let filter = format!("filter add dev {device} parent 1: protocol");
            let _ = write!(
                lines,
                "class add dev {device} parent 1:1 classid 1:{id:x} htb rate {least}bit {common} \
                 prio 7\n\
                 qdisc add dev {device} parent 1:{id:x} handle {id:x}: {queue}\n\
                 {filter} ip prio {v4} u32 match ip dst {}/32 flowid 1:{id:x}\n\
                 {filter} ipv6 prio {v6} u32 match ip6 dst {}/128 flowid 1:{id:x}\n",
                to.v4(),
                to.v6(),
            );
        }
        lines
    }

    /// The flows whose packets of one direction use `link`, and their destinations.
    fn crossing(&self, link: usize) -> Vec<(usize, End)> {
        let flows = self.layout.flows.iter().enumerate();
        let ends = flows.filter_map(|(number, flow)| {
            let to = |way: &[usize], end| way.contains(&link).then_some((number, end));
            to(&flow.forward, End::sink(number)).or_else(|| to(&flow.reverse, End::source(number)))
        });
        ends.collect()
    }
}

/// Whether each flow without a reservation has its own queue.
fn is_by_flow(queue: &QueueSpec) -> bool {
    matches!(queue, QueueSpec::Wfq { unreserved: Unreserved::ByFlow, .. })
}

/// The best-effort queue in `tc` syntax.
///
/// # Errors
/// The name of the configured queue, if `tc` has no such queue.
fn leaf(queue: &QueueSpec) -> Result<String, &'static str> {
    let limit = match queue {
        QueueSpec::DropTail { limit } => limit,
        // HTB replaces their scheduling.
        QueueSpec::Wfq { limit, .. } | QueueSpec::Cbq { limit, .. } => limit,
        QueueSpec::Red { .. } => return Err("RED"),
        QueueSpec::Codel { .. } => return Err("CoDel"),
        QueueSpec::FqCodel { .. } => return Err("FQ-CoDel"),
        QueueSpec::Dualpi2 { .. } => return Err("DualPI2"),
        QueueSpec::Pie { .. } => return Err("PIE"),
    };
    Ok(match limit.unwrap_or(QueueLimit::Packets(NO_LIMIT)) {
        QueueLimit::Packets(packets) => format!("pfifo limit {}", packets.get()),
        QueueLimit::Bytes(bytes) => format!("bfifo limit {}", bytes.max(Bytes::new(1)).get()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TESTBED: &str = r#"
        duration = "1 s"
        [topology]
        kind = "graph"
        links = [
            { from = "a", to = "r1", rate = "10 Mbit/s", delay = "50 us" },
            { from = "r1", to = "a-router-of-long-name", rate = "1.5 Mbit/s", delay = "500 us", queue = QUEUE },
            { from = "a-router-of-long-name", to = "b", rate = "10 Mbit/s", delay = "50 us" },
            MORE
        ]
        [flows.f]
        from = "a"
        to = "b"
        application = { kind = "cbr", interval = "1 s" }
        transport = { kind = "udp" }
    "#;

    fn layout(queue: &str, more: &str) -> Layout {
        let text = TESTBED.replace("QUEUE", queue).replace("MORE", more);
        ontempo_scenario::parse(&text, "t.toml").and_then(|it| it.layout(1)).expect("it is valid")
    }

    #[test]
    fn every_node_is_a_namespace_with_an_interface_for_each_link() {
        let layout = layout(r#"{ kind = "drop-tail", limit = "64 packets" }"#, "");
        let routed = Routed::new(&layout).expect("it can be routed");
        let names: Vec<&str> = routed.namespaces.iter().map(|space| space.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "r1", "a-router-of-long-name"]);
        let router = routed.namespaces[2].node;
        let devices = routed.interfaces(router).map(|link| routed.interface_name(link));
        assert_eq!(devices.collect::<Vec<_>>(), ["to-a", "link2"]);
        assert!(routed.forwards(router) && !routed.forwards(routed.namespaces[0].node));
        // Both ends of the flow, and both interfaces of the other router.
        assert_eq!(routed.routes(router).len(), 4);
    }

    #[test]
    fn only_links_between_routers_are_htbs() {
        let layout = layout(r#"{ kind = "wfq", limit = "64 packets" }"#, "");
        let routed = Routed::new(&layout).expect("it can be routed");
        let shaping: Vec<String> = (0..6).map(|link| routed.shaping(link, 1500)).collect();
        assert!(shaping[0].is_empty() && shaping[5].is_empty(), "{shaping:?}");
        assert!(shaping[2].contains("classid 1:1 htb rate 1500000bit"), "{shaping:?}");
        assert!(
            shaping[3].contains("dev to-r1 parent 1:2 handle 2: pfifo limit 64"),
            "{shaping:?}"
        );
        assert_eq!(routed.behind_queues().links[2].queue, QueueSpec::default());
    }

    #[test]
    fn flows_with_separate_queues_have_a_class_each_in_either_direction() {
        let queue = r#"{ kind = "wfq", limit = "64 packets", unreserved = "by-flow" }"#;
        let layout = layout(queue, "");
        let routed = Routed::new(&layout).expect("it can be routed");
        let [there, back] = [2, 3].map(|link| routed.shaping(link, 1500));
        for (shaping, to) in [(&there, "10.0.0.3/32"), (&back, "10.0.0.2/32")] {
            let class = "parent 1:1 classid 1:9000 htb rate 15000bit ceil 1500000bit";
            assert!(shaping.contains(class), "{shaping}");
            assert!(shaping.contains("parent 1:9000 handle 9000: pfifo limit 64"), "{shaping}");
            let filter = format!("prio 8192 u32 match ip dst {to} flowid 1:9000");
            assert!(shaping.contains(&filter), "{shaping}");
        }
        assert!(there.contains("classid 1:2 htb rate 15000bit"), "others still wait there");
    }

    #[test]
    fn what_kernel_routers_do_not_support_is_reported() {
        let queue = r#"{ kind = "codel" }"#;
        let one_way =
            r#"{ from = "r1", to = "x", rate = "1 Mbit/s", delay = "1 ms", duplex = false },"#;
        let layout = layout(queue, one_way);
        let problems = Routed::new(&layout).err().expect("problems");
        assert!(problems[0].why.contains("`r1 -> x` has none back"), "{problems:?}");
        assert!(problems.iter().any(|one| one.why.contains("no CoDel")), "{problems:?}");
    }

    #[test]
    fn htb_does_not_change_its_rate_and_hosts_links_may() {
        let event = |link: &str| {
            format!(
                "[[events]]\nat = \"100 ms\"\nlink = \"{link}\"\nset = {{ rate = \"1 Mbit/s\" }}\n"
            )
        };
        let routed = |link: &str| {
            let text = TESTBED.replace("QUEUE", r#"{ kind = "drop-tail" }"#).replace("MORE", "");
            let scenario = ontempo_scenario::parse(&(text + &event(link)), "t.toml");
            let layout = scenario.and_then(|it| it.layout(1)).expect("it is valid");
            Routed::new(&layout).map(|_| ())
        };
        let problems = routed("r1 -> a-router-of-long-name").expect_err("HTB cannot change");
        assert!(problems[0].why.contains("does not change during a run"), "{problems:?}");
        assert_eq!(routed("a -> r1"), Ok(()));
    }

    #[test]
    fn a_policer_stands_before_a_queue_of_the_model_alone() {
        let policer = ", policer = { rate = \"1 Mbit/s\", burst = \"9 kB\" }";
        let shaped = r#"{ kind = "drop-tail" }"#.to_owned() + policer;
        let routed = |text: &str| {
            let scenario = ontempo_scenario::parse(&text.replace("MORE", ""), "t.toml");
            let layout = scenario.and_then(|it| it.layout(1)).expect("it is valid");
            Routed::new(&layout).map(|_| ())
        };
        let problems = routed(&TESTBED.replace("QUEUE", &shaped)).expect_err("behind HTB");
        assert!(problems[0].why.contains("behind HTB's queue"), "{problems:?}");
        let access = format!("delay = \"50 us\"{policer}");
        let text = TESTBED.replace("QUEUE", r#"{ kind = "drop-tail" }"#);
        assert_eq!(routed(&text.replace("delay = \"50 us\"", &access)), Ok(()));
    }
}
