//! The tables of a finished run.

use ontempo_foundation::{Duration, Time};
use ontempo_runtime::{
    Cell, Flow, FlowRow, MediaBytes, ReactionRow, ResultTable, Rows, Showing, ShownFrame,
    Standstill, by_group, capacity_rows, change_rows, drop_name, frame_rows, interval_rows,
    media_rows, message_rows, playout_rows, stands_still_since,
};
use ontempo_scenario::model::{Application, Scenario};
use ontempo_scenario::tables::{
    ADUS, CAPACITY, EVENTS, FLOWS, FRAMES, INTERVALS, LINKS, MEDIA, MESSAGES, PACKETS, PLAYOUT,
    QUEUES, SAMPLES,
};
use ontempo_scenario::{LaidFlow, LaidLink, Layout};

use crate::commands::{Log, Supervised};
use crate::forwarder::Forwarded;
use crate::report::ForwardingReport;
use crate::traffic::{Agent, Served, Tcp, Traffic};
use crate::watch::Watch;

/// Results of a run.
#[derive(Debug)]
pub struct Results {
    /// The tables, in the order of `ontempo_scenario::tables::TABLES`.
    pub tables: Vec<ResultTable>,
    /// Accuracy of the forwarding times.
    pub report: ForwardingReport,
    /// Output of the scenario's programs.
    pub logs: Vec<Log>,
    /// If links could be changed while it ran: the scenario with the changes as events, and with the
    /// seed of the run, so that another run repeats it.
    pub changed: Option<Scenario>,
    /// Links over which nothing passes from some time to the end of the run.
    pub standstills: Vec<Standstill>,
}

/// What the threads of a run leave.
pub(crate) struct Ran {
    pub(crate) forwarded: Forwarded,
    pub(crate) served: Served,
    pub(crate) traffic: Traffic,
    pub(crate) programs: Supervised,
}

/// A run that has reached its end.
struct Run<'a> {
    scenario: &'a Scenario,
    layout: &'a Layout,
    /// With the changes that were made while it ran.
    changed: Option<Scenario>,
    forwarded: Forwarded,
    traffic: Traffic,
    end: Time,
    /// Length of the measured span.
    span: Duration,
}

/// The tables of a run.
pub(crate) fn collect(
    scenario: &Scenario,
    layout: &Layout,
    changed: Option<Scenario>,
    ran: Ran,
) -> Results {
    let Ran { forwarded, served, traffic, programs: Supervised { logs, failures } } = ran;
    let end = Time::ZERO + scenario.duration;
    let span = end.since(Time::ZERO + scenario.measure.from);
    let mut forwarded = forwarded;
    forwarded.network.watches.iter_mut().flatten().for_each(Watch::end);
    let mut run = Run { scenario, layout, changed, forwarded, traffic, end, span };
    let tables = [
        run.flows(),
        run.links(),
        run.queues(),
        run.samples(),
        run.playout(),
        run.adus(),
        run.packets(),
        run.events(),
        run.messages(),
        run.intervals(),
        run.capacity(),
        run.frames(),
        run.media(),
    ];
    let overflowed = run.overflowed();
    let broken = run.broken();
    let standstills = run.standstills();
    let (forwarded, changed) = (run.forwarded, run.changed);
    let report = ForwardingReport {
        packets: forwarded.network.forwarded,
        refused: forwarded.refused,
        unroutable: forwarded.network.unroutable,
        lateness: forwarded.lateness,
        realtime: forwarded.realtime && served.realtime,
        sending: served.lateness,
        broken,
        failures: failures.into_iter().chain(overflowed).collect(),
    };
    Results { tables: tables.map(Rows::finish).into(), report, logs, changed, standstills }
}

impl Run<'_> {
    /// The flow of this number as the tables identify it.
    fn flow(&self, number: usize) -> Flow<'_> {
        let laid = &self.layout.flows[number];
        let group = &self.layout.groups[laid.group];
        Flow { number: number as u64, group, index: u64::from(laid.index) }
    }

    fn agents(&self) -> impl Iterator<Item = (Flow<'_>, &Agent)> {
        let agents = self.traffic.agents.iter().enumerate();
        agents.filter_map(|(number, agent)| Some((self.flow(number), agent.as_ref()?)))
    }

    fn tcp(&self) -> impl Iterator<Item = (Flow<'_>, &Tcp)> {
        self.agents().filter_map(|(flow, agent)| Some((flow, agent.tcp()?)))
    }

    /// Connections that failed, with the reason.
    fn broken(&self) -> Vec<String> {
        let why = |(flow, tcp): (Flow<'_>, &Tcp)| {
            let error = tcp.failed.as_ref()?;
            Some(format!("{}.{}: {error}", flow.group, flow.index))
        };
        self.tcp().filter_map(why).collect()
    }

    /// Films of which datagrams were lost on this side of their transport.
    fn overflowed(&self) -> Vec<String> {
        let told = |(flow, agent): (Flow<'_>, &Agent)| {
            let lost = agent.overflowed();
            let what = "datagrams came out of the transport and were lost before they were read";
            (lost > 0).then(|| format!("{}.{}: {lost} {what}", flow.group, flow.index))
        };
        self.agents().filter_map(told).collect()
    }

    /// The films, with what has arrived of each and the end of what is shown.
    fn films(&self) -> impl Iterator<Item = (Flow<'_>, &Showing, Vec<ShownFrame>, Time)> {
        let from = Time::ZERO + self.scenario.measure.from;
        self.agents().filter_map(move |(flow, agent)| {
            let showing = agent.showing()?;
            let stop = self.layout.flows[flow.number as usize].stop.unwrap_or(Time::NEVER);
            let until = stop.min(self.end);
            Some((flow, showing, showing.shown(from, until), until))
        })
    }

    fn frames(&self) -> Rows {
        let mut rows = Rows::of(&FRAMES);
        self.films().for_each(|(flow, _, shown, _)| frame_rows(&mut rows, flow, &shown));
        rows
    }

    fn media(&self) -> Rows {
        let mut rows = Rows::of(&MEDIA);
        let network = &self.forwarded.network;
        for (flow, showing, shown, until) in self.films() {
            let group = self.scenario.flows.get(flow.group);
            let Some(Application::Media { latency, .. }) = group.map(|group| &group.application)
            else {
                continue;
            };
            let number = flow.number as usize;
            let (now, before) = (network.counts[number].wire, network.counts_before[number].wire);
            let bytes = MediaBytes {
                media: showing.bytes(Time::ZERO + self.scenario.measure.from, until),
                wire: now[0] - before[0],
                back: now[1] - before[1],
            };
            media_rows(&mut rows, flow, &shown, (latency, self.end), bytes);
        }
        rows
    }

    fn standstills(&mut self) -> Vec<Standstill> {
        let flows = self.layout.flows.iter().enumerate();
        let unfinished: Vec<_> = flows
            .filter(|(number, laid)| {
                let agent = self.traffic.agents[*number].as_ref();
                let is_finished = agent.and_then(Agent::tcp).is_some_and(Tcp::is_acknowledged);
                !is_finished && laid.start < self.end
            })
            .map(|(_, laid)| laid)
            .collect();
        let network = &mut self.forwarded.network;
        let (end, groups) = (self.end, &self.layout.groups);
        let of = |(place, link): (usize, &LaidLink)| {
            let since = stands_still_since(link.schedule.as_deref()?, end)?;
            let crosses =
                |flow: &&&LaidFlow| flow.forward.contains(&place) || flow.reverse.contains(&place);
            let crossing = unfinished.iter().filter(crosses);
            let crossing = crossing.map(|flow| groups[flow.group].as_str());
            Some(Standstill {
                link: link.name.clone(),
                since,
                waiting: network.waiting(place, end),
                unfinished: by_group(crossing),
            })
        };
        self.layout.links.iter().enumerate().filter_map(of).collect()
    }

    fn flows(&self) -> Rows {
        let mut rows = Rows::of(&FLOWS);
        let network = &self.forwarded.network;
        let totals = self.traffic.totals();
        for (number, laid) in self.layout.flows.iter().enumerate() {
            let (now, before) = (network.counts[number], network.counts_before[number]);
            let flow = self.flow(number);
            let agent = self.traffic.agents[number].as_ref();
            let mut totals = totals[number].since(&self.traffic.before[number]);
            let mut bytes = totals.delivered * agent.map_or(0, Agent::packet_size);
            // The network counts what is sent and what is lost: the same packets. The sender's socket
            // counts other ones where a span begins.
            totals.sent = now.sent - before.sent;
            if agent.is_none_or(Agent::is_counted_outside) {
                // Only the network sees a command's packets.
                totals.delivered = now.delivered - before.delivered;
                bytes = now.delivered_bytes - before.delivered_bytes;
            }
            totals.dropped = now.dropped - before.dropped;
            let tcp = agent.and_then(Agent::tcp);
            // A flow without traffic here is a command's.
            let (transport, congestion) = agent.map_or(("own", None), Agent::transport);
            FlowRow {
                flow,
                transport,
                congestion,
                start: laid.start,
                totals,
                delivered_bytes: bytes,
                srtt: tcp.and_then(Tcp::smoothed_rtt),
                minimum_rtt: tcp.and_then(Tcp::minimum_rtt),
                span: self.span,
            }
            .push(&mut rows);
        }
        rows
    }

    fn links(&self) -> Rows {
        let mut rows = Rows::of(&LINKS);
        let network = &self.forwarded.network;
        let totals = network.link_totals(self.end);
        let nodes = &self.layout.nodes;
        for ((link, now), before) in self.layout.links.iter().zip(totals).zip(&network.links_before)
        {
            let ends = (nodes[link.from].as_str(), nodes[link.to].as_str());
            now.push(&mut rows, &link.name, ends, before, self.span);
        }
        rows
    }

    fn queues(&self) -> Rows {
        let mut rows = Rows::of(&QUEUES);
        for (link, watch) in self.layout.links.iter().zip(&self.forwarded.network.watches) {
            let lengths = watch.iter().flat_map(|watch| watch.lengths());
            for (group, lengths) in self.layout.groups.iter().zip(lengths) {
                for (length, seen) in
                    lengths.iter().enumerate().filter(|(_, seen)| seen.arrivals > 0)
                {
                    rows.push([
                        link.name.as_str().into(),
                        group.as_str().into(),
                        (length as u64).into(),
                        seen.arrivals.into(),
                        seen.drops.into(),
                    ]);
                }
            }
        }
        rows
    }

    fn samples(&self) -> Rows {
        let mut rows = Rows::of(&SAMPLES);
        let of_flows = self.traffic.samples.iter().map(|sample| {
            let Flow { group, index, .. } = self.flow(sample.flow as usize);
            (sample.at, format!("{group}.{index}"), sample.quantity, sample.value)
        });
        let of_links = self.forwarded.network.samples.iter().map(|(at, link, waiting)| {
            (*at, self.layout.links[*link].name.clone(), "queue_packets", *waiting as f64)
        });
        let mut samples: Vec<_> = of_flows.chain(of_links).collect();
        samples.sort_by_key(|(at, ..)| *at);
        for (at, subject, quantity, value) in &samples {
            let row: [Cell<'_>; 4] = [
                at.as_secs_f64().into(),
                subject.as_str().into(),
                (*quantity).into(),
                (*value).into(),
            ];
            rows.push(row);
        }
        rows
    }

    fn playout(&self) -> Rows {
        let mut rows = Rows::of(&PLAYOUT);
        for (flow, agent) in self.agents() {
            if let Some(playout) = agent.playout() {
                playout_rows(&mut rows, flow, playout);
            }
        }
        rows
    }

    fn adus(&self) -> Rows {
        let mut rows = Rows::of(&ADUS);
        for (flow, agent) in self.agents() {
            for record in agent.receiver().records() {
                rows.push([
                    flow.number.into(),
                    flow.group.into(),
                    flow.index.into(),
                    record.unit.into(),
                    record.due.as_secs_f64().into(),
                    record.delivered.map(Time::as_secs_f64).into(),
                    Cell::None,
                    Cell::None,
                    Cell::None,
                    Cell::None,
                    Cell::None,
                ]);
            }
        }
        rows
    }

    fn packets(&self) -> Rows {
        let mut rows = Rows::of(&PACKETS);
        for (link, watch) in self.layout.links.iter().zip(&self.forwarded.network.watches) {
            for record in watch.iter().flat_map(|watch| watch.records()) {
                rows.push([
                    record.offered.as_secs_f64().into(),
                    link.name.as_str().into(),
                    u64::from(record.flow).into(),
                    if record.is_data { "data" } else { "ack" }.into(),
                    record.number.into(),
                    record.size.into(),
                    u64::from(record.retransmission).into(),
                    record.started.filter(|at| *at <= self.end).map(Time::as_secs_f64).into(),
                    record.dropped.map(drop_name).into(),
                ]);
            }
        }
        rows
    }

    fn events(&self) -> Rows {
        let mut rows = Rows::of(&EVENTS);
        let of_scenario = self.scenario.events.len();
        let events = self.changed.as_ref().map_or(&self.scenario.events, |changed| &changed.events);
        change_rows(&mut rows, events, of_scenario);
        if !self.scenario.measure.events {
            return rows;
        }
        let of_flow = |(flow, tcp)| {
            let (flow, tcp): (Flow<'_>, &Tcp) = (flow, tcp);
            tcp.reactions.iter().map(move |reaction| (reaction.at, flow, *reaction))
        };
        let mut reactions: Vec<_> = self.tcp().flat_map(of_flow).collect();
        reactions.sort_by_key(|(at, ..)| *at);
        for (at, flow, reaction) in reactions {
            let window = f64::from(reaction.window);
            ReactionRow { at, flow, event: reaction.event, window }.push(&mut rows);
        }
        rows
    }

    fn capacity(&self) -> Rows {
        let mut rows = Rows::of(&CAPACITY);
        let links = self.layout.links.iter();
        let links = links.filter_map(|link| Some((&*link.name, link.schedule.as_deref()?)));
        capacity_rows(&mut rows, &links.collect::<Vec<_>>(), self.end);
        rows
    }

    fn messages(&self) -> Rows {
        let mut rows = Rows::of(&MESSAGES);
        for (flow, agent) in self.agents() {
            if let Some(messages) = agent.messages() {
                message_rows(&mut rows, flow, messages);
            }
        }
        rows
    }

    fn intervals(&self) -> Rows {
        let mut rows = Rows::of(&INTERVALS);
        for (flow, agent) in self.agents() {
            if let Some(messages) = agent.messages() {
                interval_rows(&mut rows, flow, messages);
            }
        }
        rows
    }
}
