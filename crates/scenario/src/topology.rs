//! Lays a scenario out: hosts, links and flows, every draw made that is made once a run.

use ontempo_foundation::{Duration, RandomStream, Time};

use crate::backbone::Backbone;
use crate::error::{Problem, ScenarioError};
use crate::model::{Delay, DelayLaw, Drawn, FlowGroup, LinkSpec, Scenario, Start};
use crate::network::{LaidFlow, LaidLink, Layout};

impl Scenario {
    /// Every node, link and flow of the run with `seed`.
    ///
    /// In a dumbbell and a parking lot each flow has the hosts `GROUP.I.source` and
    /// `GROUP.I.sink`. A delay drawn per link comes from the stream `link NAME delay`, NAME
    /// being that of the direction that data takes, and holds for both directions; a flow's
    /// start comes from the stream `flow GROUP.I start`.
    pub fn layout(&self, seed: u64) -> Result<Layout, ScenarioError> {
        self.validate()?;
        let backbone = Backbone::new(&self.topology);
        let mut builder = Builder::new(seed, &backbone);
        for (name, group) in &self.flows {
            builder.group(name, group)?;
        }
        Ok(builder.layout)
    }
}

struct Builder<'a> {
    seed: u64,
    backbone: &'a Backbone<'a>,
    layout: Layout,
}

impl<'a> Builder<'a> {
    fn new(seed: u64, backbone: &'a Backbone<'a>) -> Self {
        let layout = Layout {
            nodes: backbone.nodes.clone(),
            links: Vec::with_capacity(backbone.links.len()),
            groups: Vec::new(),
            flows: Vec::new(),
        };
        let mut builder = Self { seed, backbone, layout };
        for link in &backbone.links {
            let delay = builder.draw(&link.spec.delay, &link.drawn_as);
            builder.link(link.name.clone(), (link.from, link.to), delay, link.spec);
        }
        builder
    }

    fn group(&mut self, name: &str, group: &FlowGroup) -> Result<(), ScenarioError> {
        let unreachable = || Problem {
            origin: None,
            field: format!("flows.{name}"),
            what: "no way leads there and back".to_owned(),
        };
        let (from, to) = self.backbone.ends(group).map_err(|_| unreachable())?;
        let forward = self.backbone.route(from, to).ok_or_else(unreachable)?;
        let reverse = self.backbone.route(to, from).ok_or_else(unreachable)?;
        let place = self.layout.groups.len();
        self.layout.groups.push(name.to_owned());
        self.layout.flows.reserve(group.count as usize);
        for index in 0..group.count {
            let flow_name = format!("{name}.{index}");
            let mut flow = LaidFlow {
                group: place,
                index,
                forward: Vec::with_capacity(forward.len() + 2),
                reverse: Vec::with_capacity(reverse.len() + 2),
                start: self.start(&flow_name, &group.start),
                stop: None,
            };
            flow.stop = group.stop.map(|stop| (Time::ZERO + stop).since(flow.start));
            let access = self.hosts(&flow_name, from, to);
            flow.forward.extend(access.map(|hosts| hosts.leave_source));
            flow.forward.extend_from_slice(&forward);
            flow.forward.extend(access.map(|hosts| hosts.reach_sink));
            flow.reverse.extend(access.map(|hosts| hosts.leave_sink));
            flow.reverse.extend_from_slice(&reverse);
            flow.reverse.extend(access.map(|hosts| hosts.reach_source));
            self.layout.flows.push(flow);
        }
        Ok(())
    }

    fn start(&self, flow_name: &str, start: &Start) -> Time {
        let offset = match start {
            Start::At(offset) => *offset,
            Start::Between { low, high } => {
                let mut stream = RandomStream::new(self.seed, &format!("flow {flow_name} start"));
                stream.duration_between(*low, *high)
            }
        };
        Time::ZERO + offset
    }

    /// The flow's own hosts, where the topology gives it some.
    fn hosts(&mut self, flow_name: &str, from: usize, to: usize) -> Option<AccessLinks> {
        let (source_access, sink_access) =
            (self.backbone.source_access?, self.backbone.sink_access?);
        let (source, sink) = (format!("{flow_name}.source"), format!("{flow_name}.sink"));
        let (from_name, to_name) = (&self.backbone.nodes[from], &self.backbone.nodes[to]);
        let source_place = self.layout.nodes.len();
        let sink_place = source_place + 1;

        let outward = format!("{source} -> {from_name}");
        let delay = self.draw(&source_access.delay, &outward);
        let back = format!("{from_name} -> {source}");
        let leave_source = self.link(outward, (source_place, from), delay.clone(), source_access);
        let reach_source = self.link(back, (from, source_place), delay, source_access);

        let inward = format!("{to_name} -> {sink}");
        let delay = self.draw(&sink_access.delay, &inward);
        let back = format!("{sink} -> {to_name}");
        let reach_sink = self.link(inward, (to, sink_place), delay.clone(), sink_access);
        let leave_sink = self.link(back, (sink_place, to), delay, sink_access);

        self.layout.nodes.extend([source, sink]);
        Some(AccessLinks { leave_source, reach_source, leave_sink, reach_sink })
    }

    fn link(
        &mut self,
        name: String,
        (from, to): (usize, usize),
        delay: Delay,
        spec: &LinkSpec,
    ) -> usize {
        self.layout.links.push(LaidLink {
            name,
            from,
            to,
            rate: spec.rate,
            delay,
            mtu: spec.mtu,
            queue: spec.queue.clone(),
            loss: spec.loss.clone(),
            reordering: spec.reordering,
        });
        self.layout.links.len() - 1
    }

    /// `delay` with all that is drawn per link drawn, from the stream of the link `name`.
    fn draw(&self, delay: &Delay, name: &str) -> Delay {
        match delay {
            Delay::Law(law) if law.has_draw_per_link() => {
                let mut stream = RandomStream::new(self.seed, &format!("link {name} delay"));
                match law.drawn(&mut stream) {
                    DelayLaw::Constant { value } => Delay::Fixed(value),
                    law => Delay::Law(law),
                }
            }
            delay => delay.clone(),
        }
    }
}

/// The links between a flow's hosts and their routers, by place.
#[derive(Clone, Copy)]
struct AccessLinks {
    leave_source: usize,
    reach_source: usize,
    leave_sink: usize,
    reach_sink: usize,
}

impl DelayLaw {
    fn has_draw_per_link(&self) -> bool {
        match self {
            Self::Uniform { drawn, .. } => *drawn == Drawn::PerLink,
            Self::Sum { terms } => terms.iter().any(Self::has_draw_per_link),
            _ => false,
        }
    }

    /// The law with each draw per link made, in the order of the terms.
    fn drawn(&self, stream: &mut RandomStream) -> Self {
        match self {
            Self::Uniform { low, high, drawn: Drawn::PerLink } => {
                let value = if low < high { stream.duration_between(*low, *high) } else { *low };
                Self::Constant { value }
            }
            Self::Sum { terms } => {
                let drawn: Vec<Self> = terms.iter().map(|term| term.drawn(stream)).collect();
                let constant = |term: &Self| match term {
                    Self::Constant { value } => Some(*value),
                    _ => None,
                };
                match drawn.iter().map(constant).sum::<Option<Duration>>() {
                    Some(value) => Self::Constant { value },
                    None => Self::Sum { terms: drawn },
                }
            }
            law => law.clone(),
        }
    }
}
