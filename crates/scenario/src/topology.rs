//! Lays a scenario out: hosts, links and flows, every draw made that is made once a run.

use std::sync::Arc;

use ontempo_foundation::{Duration, RandomStream, Time};
use ontempo_network::Schedule;

use crate::backbone::Backbone;
use crate::error::{Problem, ScenarioError};
use crate::model::{
    Delay, DelayLaw, Drawn, Event, FlowGroup, LinkSpec, Reservation, Scenario, Start,
};
use crate::network::{LaidFlow, LaidLink, LaidReservation, Layout};
use crate::varying::Schedules;

impl Scenario {
    /// Every node, link and flow of the run with `seed`.
    ///
    /// In a dumbbell and a parking lot each flow has the hosts `GROUP.I.source` and
    /// `GROUP.I.sink`. A delay drawn per link comes from the stream `link NAME delay`, NAME
    /// being that of the direction that data takes, and holds for both directions; a flow's
    /// start comes from the stream `flow GROUP.I start`, and a random schedule of a link, for both
    /// directions, from `link NAME schedule`.
    pub fn layout(&self, seed: u64) -> Result<Layout, ScenarioError> {
        self.validate()?;
        let backbone = Backbone::new(&self.topology);
        let mut builder = Builder::new(seed, &backbone, Schedules::new(self, seed));
        for (name, group) in &self.flows {
            builder.group(name, group)?;
        }
        self.reservations.iter().for_each(|reservation| builder.reservation(reservation));
        Ok(builder.layout)
    }

    /// The schedule of the link that `event` changes, as [`layout`](Self::layout) has it where the
    /// event is one more of this scenario; `None` if there is no such link, or its values cannot be
    /// laid out. Nothing else is laid out, so that it takes no longer for many links and events of
    /// others.
    pub fn schedule_with(&self, event: &Event, seed: u64) -> Option<Arc<Schedule>> {
        let backbone = Backbone::new(&self.topology);
        let spec = self.link_spec(&event.link, &backbone)?;
        let drawn_as = backbone
            .links
            .iter()
            .find(|link| link.name == event.link)
            .map_or_else(|| access_drawn_as(&event.link), |link| link.drawn_as.clone());
        let events = self.events.iter().chain([event]).filter(|one| one.link == event.link);
        Schedules::of_events(events, self.duration, seed).of(spec, &event.link, &drawn_as)
    }
}

/// The link whose name the delay and schedule of the link `name` of a flow's host are drawn by: data
/// leave a source, and reach a sink.
fn access_drawn_as(name: &str) -> String {
    match name.split_once(" -> ") {
        Some((from, to)) if to.ends_with(".source") || from.ends_with(".sink") => {
            format!("{to} -> {from}")
        }
        _ => name.to_owned(),
    }
}

struct Builder<'a> {
    seed: u64,
    backbone: &'a Backbone<'a>,
    schedules: Schedules<'a>,
    layout: Layout,
}

impl<'a> Builder<'a> {
    fn new(seed: u64, backbone: &'a Backbone<'a>, schedules: Schedules<'a>) -> Self {
        let layout = Layout {
            nodes: backbone.nodes.clone(),
            links: Vec::with_capacity(backbone.links.len()),
            groups: Vec::new(),
            flows: Vec::new(),
            reservations: Vec::new(),
        };
        let mut builder = Self { seed, backbone, schedules, layout };
        for link in &backbone.links {
            let ends = (link.from, link.to);
            builder.link((link.name.clone(), &link.drawn_as), ends, link.spec);
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
        let at = |times: &[Duration]| times.iter().map(|time| Time::ZERO + *time).collect();
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
                stop: group.stop.map(|stop| Time::ZERO + stop),
                address_changes: at(&group.address_changes),
            };
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

    fn reservation(&mut self, reservation: &Reservation) {
        let layout = &mut self.layout;
        let is_meant = |flow: &LaidFlow| {
            layout.groups[flow.group] == reservation.flows
                && reservation.index.is_none_or(|index| index == flow.index)
        };
        for (place, _) in layout.flows.iter().enumerate().filter(|(_, flow)| is_meant(flow)) {
            for name in &reservation.links {
                let links = self.backbone.links.iter();
                // Links between routers come first, in the order of the backbone.
                let Some(link) = links.map(|link| &link.name).position(|one| one == name) else {
                    continue;
                };
                let reservation = reservation.clone();
                layout.reservations.push(LaidReservation { link, flow: place, reservation });
            }
        }
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
        let back = format!("{from_name} -> {source}");
        let ends = (source_place, from);
        let leave_source = self.link((outward.clone(), &outward), ends, source_access);
        let reach_source =
            self.link((back, &outward), (from, source_place), source_access.way_back());

        let inward = format!("{to_name} -> {sink}");
        let back = format!("{sink} -> {to_name}");
        let ends = (to, sink_place);
        let reach_sink = self.link((inward.clone(), &inward), ends, sink_access.way_back());
        let leave_sink = self.link((back, &inward), (sink_place, to), sink_access);

        self.layout.nodes.extend([source, sink]);
        Some(AccessLinks { leave_source, reach_source, leave_sink, reach_sink })
    }

    fn link(
        &mut self,
        (name, drawn_as): (String, &str),
        (from, to): (usize, usize),
        spec: &LinkSpec,
    ) -> usize {
        // Drawn anew for each direction, from the same stream: both get the same value.
        let delay = self.draw(&spec.delay, drawn_as);
        let schedule = self.schedules.of(spec, &name, drawn_as);
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
            schedule,
            policer: spec.policer,
            duplicate: spec.duplicate,
            corrupt: spec.corrupt,
            aggregation: spec.aggregation,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{GRAPH, VIDEO, scenario};

    fn names(layout: &Layout, links: &[usize]) -> Vec<String> {
        links.iter().map(|place| layout.links[*place].name.clone()).collect()
    }

    fn many() -> Scenario {
        crate::load("tests/scenarios/many.toml").unwrap()
    }

    #[test]
    fn each_flow_of_a_dumbbell_has_its_own_hosts() {
        let layout = scenario(VIDEO).layout(1).unwrap();
        assert_eq!(layout.nodes.len(), 2 + 2 * 25);
        assert_eq!(layout.links.len(), 2 + 4 * 25);
        assert_eq!(layout.nodes[..4], ["left", "right", "video.0.source", "video.0.sink"]);
        let flow = &layout.flows[24];
        assert_eq!(
            names(&layout, &flow.forward),
            ["video.24.source -> left", "bottleneck", "right -> video.24.sink"]
        );
        assert_eq!(
            names(&layout, &flow.reverse),
            ["video.24.sink -> right", "reverse", "left -> video.24.source"]
        );
        assert_eq!(layout.groups, ["video"]);
    }

    #[test]
    fn routes_are_unbroken_from_sender_to_receiver_and_back() {
        for text in [VIDEO, GRAPH] {
            let layout = scenario(text).layout(1).unwrap();
            for flow in &layout.flows {
                for route in [&flow.forward, &flow.reverse] {
                    for pair in route.windows(2) {
                        assert_eq!(layout.links[pair[0]].to, layout.links[pair[1]].from);
                    }
                }
                let ends = |route: &[usize]| {
                    (layout.links[route[0]].from, layout.links[route[route.len() - 1]].to)
                };
                let (source, sink) = ends(&flow.forward);
                assert_eq!(ends(&flow.reverse), (sink, source));
            }
        }
    }

    #[test]
    fn a_flow_may_run_from_right_to_left() {
        let layout = scenario(&VIDEO.replace("count = 25", "from = \"right\"")).layout(1).unwrap();
        assert_eq!(
            names(&layout, &layout.flows[0].forward),
            ["video.0.source -> right", "reverse", "left -> video.0.sink"]
        );
    }

    #[test]
    fn both_directions_of_an_access_link_share_one_draw_and_links_differ() {
        let layout = many().layout(7).unwrap();
        let delay =
            |name: &str| match &layout.links.iter().find(|link| link.name == name).unwrap().delay {
                Delay::Fixed(delay) => *delay,
                law => panic!("{law:?} was not drawn"),
            };
        for index in 0..25 {
            let there = delay(&format!("long.{index}.source -> left"));
            assert_eq!(there, delay(&format!("left -> long.{index}.source")));
            assert!(there >= Duration::from_millis(5) && there <= Duration::from_millis(15));
        }
        assert_ne!(delay("long.0.source -> left"), delay("long.1.source -> left"));
        let mut stream = RandomStream::new(7, "link long.3.source -> left delay");
        let expected = stream.duration_between(Duration::from_millis(5), Duration::from_millis(15));
        assert_eq!(delay("long.3.source -> left"), expected);
    }

    #[test]
    fn starts_are_drawn_from_a_stream_of_each_flow() {
        let layout = many().layout(7).unwrap();
        let mut stream = RandomStream::new(7, "flow long.3 start");
        let expected = stream.duration_between(Duration::ZERO, Duration::from_secs(1));
        assert_eq!(layout.flows[3].start, Time::ZERO + expected);
    }

    #[test]
    fn the_seed_alone_decides_the_layout() {
        assert_eq!(many().layout(1).unwrap(), many().layout(1).unwrap());
        assert_ne!(many().layout(1).unwrap(), many().layout(2).unwrap());
    }

    #[test]
    fn a_flow_stops_at_a_moment_of_the_run_whenever_it_started() {
        let text = VIDEO.replace("count = 25", "stop = \"9 s\"");
        let layout = scenario(&text).layout(1).unwrap();
        assert_eq!(layout.flows[0].stop, Some(Time::ZERO + Duration::from_secs(9)));
    }

    #[test]
    fn a_parking_lot_is_crossed_in_part_and_backwards() {
        let text = VIDEO
            .replace("kind = \"dumbbell\"", "kind = \"parking-lot\"\nhops = 3")
            .replace("count = 25", "from = \"r3\"\nto = \"r1\"");
        let layout = scenario(&text).layout(1).unwrap();
        assert_eq!(layout.nodes[..4], ["r0", "r1", "r2", "r3"]);
        let (first, last) = ("video.0.source -> r3", "r1 -> video.0.sink");
        let forward = names(&layout, &layout.flows[0].forward);
        assert_eq!(forward, [first, "hop 2 reverse", "hop 1 reverse", last]);
        assert_eq!(names(&layout, &layout.flows[0].reverse)[1..3], ["hop 1", "hop 2"]);
    }

    #[test]
    fn of_two_equal_ways_through_a_graph_the_first_by_name_is_taken() {
        let layout = scenario(GRAPH).layout(1).unwrap();
        assert_eq!(layout.nodes, ["a", "b", "c", "d", "e"]);
        assert_eq!(names(&layout, &layout.flows[0].forward), ["a -> b", "b -> d"]);
        assert_eq!(names(&layout, &layout.flows[0].reverse), ["d -> b", "b -> a"]);
    }

    #[test]
    fn a_graph_is_crossed_by_delay_first_and_then_by_number_of_links() {
        let slow = GRAPH.replacen("delay = \"5 ms\"", "delay = \"6 ms\"", 1);
        let layout = scenario(&slow).layout(1).unwrap();
        assert_eq!(names(&layout, &layout.flows[0].forward), ["a -> c", "c -> d"]);
        let direct =
            "{ from = \"a\", to = \"d\", rate = \"1 Mbit/s\", delay = \"10 ms\" },\n]\n[flows";
        let layout = scenario(&GRAPH.replace("]\n[flows", direct)).layout(1).unwrap();
        assert_eq!(names(&layout, &layout.flows[0].forward), ["a -> d"]);
    }

    #[test]
    fn a_sum_keeps_what_is_drawn_for_each_packet() {
        let law = "{ kind = \"sum\", terms = [{ kind = \"exponential\", mean = \"1 ms\" }, \
                   { kind = \"uniform\", low = \"5 ms\", high = \"9 ms\", drawn = \"per-link\" }] }";
        let text = VIDEO.replace("delay = \"5 ms\"", &format!("delay = {law}"));
        let layout = scenario(&text).layout(1).unwrap();
        let Delay::Law(DelayLaw::Sum { terms }) = &layout.links[2].delay else { panic!() };
        assert!(matches!(terms[..], [DelayLaw::Exponential { .. }, DelayLaw::Constant { .. }]));
        assert_eq!(layout.links[2].delay, layout.links[3].delay);
    }

    #[test]
    fn a_hundred_thousand_flows_are_laid_out_in_a_moment() {
        let text = VIDEO.replace("count = 25", "count = 100_000");
        let began = std::time::Instant::now();
        let layout = scenario(&text).layout(1).unwrap();
        assert_eq!(layout.flows.len(), 100_000);
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    }
}
