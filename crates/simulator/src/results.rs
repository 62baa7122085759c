//! The tables of a finished run.

use std::io;
use std::path::Path;

use ontempo_foundation::Time;
use ontempo_runtime::{
    Cell, Flow, FlowRow, FlowTotals, LinkTotals, Manifest, MediaBytes, ResultTable, Rows,
    RunFolder, Standstill, TraceEntry, by_group, capacity_rows, drop_name, frame_rows,
    interval_rows, media_rows, message_rows, playout_rows, stands_still_since,
};
use ontempo_scenario::model::Scenario;
use ontempo_scenario::tables::{
    ADUS, CAPACITY, FLOWS, FRAMES, INTERVALS, LINKS, MEDIA, MESSAGES, PACKETS, PLAYOUT, QUEUES,
};

use crate::VERSION;
use crate::agents::Agent;
use crate::fabric::Work;
use crate::names::Names;
use crate::run::Run;

/// The results of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// The tables, in the order of `ontempo_scenario::tables::TABLES`.
    pub tables: Vec<ResultTable>,
    /// The work of the run.
    pub work: Work,
    /// Links over which nothing passes from some time to the end of the run.
    pub standstills: Vec<Standstill>,
}

/// The places in `names.schedules` of links over which nothing passes until `end`, and since when.
pub(crate) fn standing_still(names: &Names, end: Time) -> impl Iterator<Item = (usize, Time)> + '_ {
    let schedules = names.schedules.iter().enumerate();
    schedules.filter_map(move |(at, (_, schedule))| Some((at, stands_still_since(schedule, end)?)))
}

fn standstills(run: &mut Run) -> Vec<Standstill> {
    let mut found = Vec::new();
    for (at, since) in standing_still(&run.names, run.end) {
        let place = run.names.schedules[at].0;
        let crossing = run.names.crossing[at].iter().map(|flow| *flow as usize);
        let unfinished = crossing.filter(|flow| {
            !run.agents[*flow].is_finished() && run.names.flows[*flow].start < run.end
        });
        let unfinished = by_group(unfinished.map(|flow| run.names.group_of(flow)));
        let link = run.names.links[place].name.to_string();
        let waiting = run.fabric.waiting(place, run.end);
        found.push(Standstill { link, since, waiting, unfinished });
    }
    found
}

impl Results {
    /// The table of this name.
    pub fn table(&self, name: &str) -> Option<&ResultTable> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// The text of the manifest of this run, of `scenario` with `seed`; `traces`: those that were written.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn manifest(
        &self,
        scenario: &Scenario,
        seed: u64,
        traces: &[TraceEntry],
    ) -> io::Result<String> {
        let standstills: Vec<_> = self.standstills.iter().cloned().map(Into::into).collect();
        Manifest::new((scenario, seed), ("simulator", VERSION), &self.tables, self.work)
            .with(&standstills, traces)
            .to_text()
    }

    /// Writes this run, of `scenario` with `seed`, into `folder`, all or nothing: every table as Parquet, and
    /// the manifest, as the program does.
    ///
    /// # Errors
    /// If the folder cannot be created or written, or the disk is full.
    pub fn write(&self, folder: &Path, scenario: &Scenario, seed: u64) -> io::Result<()> {
        let mut run = RunFolder::begin(folder)?;
        run.write_tables(&self.tables)?;
        run.keep(Some(&self.manifest(scenario, seed, &[])?))
    }
}

/// The measured span begins: earlier counts are subtracted.
pub(crate) fn begin_measuring(run: &mut Run, now: Time) {
    run.measured.from = now;
    run.measured.flows = flow_totals(run);
    run.measured.wires = run.agents.iter().map(Agent::wire_bytes).collect();
    run.measured.links = link_totals(run, now);
    run.fabric.begin_measuring();
}

fn flow_totals(run: &Run) -> Vec<FlowTotals> {
    let dropped = |flow: usize| run.fabric.dropped(flow as u32);
    run.agents
        .iter()
        .enumerate()
        .map(|(flow, agent)| FlowTotals { dropped: dropped(flow), ..agent.totals() })
        .collect()
}

fn link_totals(run: &Run, now: Time) -> Vec<LinkTotals> {
    run.fabric.link_statistics(now).map(|statistics| LinkTotals::at(now, &statistics)).collect()
}

/// The tables of a run that has reached its end.
pub(crate) fn collect(run: &mut Run) -> Results {
    let (samples, events) = run.probes.finish();
    let flows = flows(run).finish();
    let (playout, adus) = (playout(run).finish(), adus(run).finish());
    let (messages, intervals) = (messages(run).finish(), intervals(run).finish());
    let (frames, media) = films(run);
    let standstills = standstills(run);
    // Free the agents of a large run before the rows of its many links are built.
    run.agents = Vec::new();
    let links = links_table(run, &link_totals(run, run.end)).finish();
    let (queues, packets) = (queues(run).finish(), packets(run).finish());
    let (samples, events) = (samples.finish(), events.finish());
    let capacity = capacity(run).finish();
    let tables = vec![
        flows, links, queues, samples, playout, adus, packets, events, messages, intervals,
        capacity, frames, media,
    ];
    Results { tables, work: run.fabric.work(), standstills }
}

/// The flow of this number as the tables identify it.
fn named(run: &Run, number: usize) -> Flow<'_> {
    let index = u64::from(run.names.flows[number].index);
    Flow { number: number as u64, group: run.names.group_of(number), index }
}

fn flows(run: &Run) -> Rows {
    let mut rows = Rows::of(&FLOWS);
    let span = run.end.since(run.measured.from);
    for (number, now) in flow_totals(run).iter().enumerate() {
        let flow = &run.names.flows[number];
        let agent = &run.agents[number];
        let before = run.measured.flows.get(number).copied().unwrap_or_default();
        let totals = now.since(&before);
        let (transport, congestion) = agent.transport();
        FlowRow {
            flow: named(run, number),
            transport,
            congestion,
            start: flow.start,
            totals,
            delivered_bytes: totals.delivered * agent.packet_size(),
            srtt: agent.srtt(),
            minimum_rtt: agent.minimum_rtt(),
            span,
        }
        .push(&mut rows);
    }
    rows
}

fn links_table(run: &Run, now: &[LinkTotals]) -> Rows {
    let mut rows = Rows::of(&LINKS);
    let span = run.end.since(run.measured.from);
    for (place, (link, now)) in run.names.links.iter().zip(now).enumerate() {
        let before = run.measured.links.get(place).copied().unwrap_or_default();
        let nodes = &run.names.nodes;
        let ends = (&*nodes[link.from as usize], &*nodes[link.to as usize]);
        now.push(&mut rows, &link.name, ends, &before, span);
    }
    rows
}

fn queues(run: &Run) -> Rows {
    let mut rows = Rows::of(&QUEUES);
    for (link, watch) in run.names.links.iter().zip(run.fabric.watches()) {
        let Some(groups) = watch.as_ref().and_then(|watch| watch.lengths()) else { continue };
        for (name, lengths) in run.names.groups.iter().zip(groups) {
            for (length, seen) in lengths.iter().enumerate().filter(|(_, seen)| seen.arrivals > 0) {
                rows.push([
                    (*link.name).into(),
                    name.as_str().into(),
                    (length as u64).into(),
                    seen.arrivals.into(),
                    seen.drops.into(),
                ]);
            }
        }
    }
    rows
}

fn playout(run: &Run) -> Rows {
    let mut rows = Rows::of(&PLAYOUT);
    for (number, agent) in run.agents.iter().enumerate() {
        if let Some(playout) = agent.playout() {
            playout_rows(&mut rows, named(run, number), playout);
        }
    }
    rows
}

fn adus(run: &Run) -> Rows {
    let mut rows = Rows::of(&ADUS);
    let by_end = |time: Time| (time <= run.end).then(|| time.as_secs_f64());
    for (number, agent) in run.agents.iter().enumerate() {
        let flow = &run.names.flows[number];
        for record in agent.receiver().records() {
            rows.push([
                (number as u64).into(),
                run.names.group_of(number).into(),
                u64::from(flow.index).into(),
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
        let Some(consumer) = agent.receiver().consumer() else { continue };
        for (adu, due, record, processed) in consumer.rows() {
            rows.push([
                (number as u64).into(),
                run.names.group_of(number).into(),
                u64::from(flow.index).into(),
                adu.into(),
                due.as_secs_f64().into(),
                by_end(record.delivered).into(),
                by_end(record.emitted).into(),
                by_end(record.last_emitted).into(),
                by_end(record.arrived).into(),
                by_end(processed).into(),
                record.retransmissions.into(),
            ]);
        }
    }
    rows
}

/// The tables of frames and of films.
fn films(run: &Run) -> (ResultTable, ResultTable) {
    let (mut frames, mut media) = (Rows::of(&FRAMES), Rows::of(&MEDIA));
    for (number, agent) in run.agents.iter().enumerate() {
        let Some(showing) = agent.receiver().showing() else { continue };
        let until = run.names.flows[number].stop.min(run.end);
        let shown = showing.shown(run.measured.from, until);
        frame_rows(&mut frames, named(run, number), &shown);
        let [wire, back] = agent.wire_bytes();
        let [wire_before, back_before] =
            run.measured.wires.get(number).copied().unwrap_or_default();
        let bytes = MediaBytes {
            media: showing.bytes(run.measured.from, until),
            wire: wire - wire_before,
            back: back - back_before,
        };
        let latencies = &run.names.latencies[run.names.flows[number].group as usize];
        media_rows(&mut media, named(run, number), &shown, (latencies, run.end), bytes);
    }
    (frames.finish(), media.finish())
}

fn capacity(run: &Run) -> Rows {
    let mut rows = Rows::of(&CAPACITY);
    let schedules = run.names.schedules.iter();
    let links = schedules.map(|(place, schedule)| (&*run.names.links[*place].name, &**schedule));
    capacity_rows(&mut rows, &links.collect::<Vec<_>>(), run.end);
    rows
}

fn messages(run: &Run) -> Rows {
    let mut rows = Rows::of(&MESSAGES);
    for (number, agent) in run.agents.iter().enumerate() {
        if let Some(messages) = agent.receiver().messages() {
            message_rows(&mut rows, named(run, number), messages);
        }
    }
    rows
}

fn intervals(run: &Run) -> Rows {
    let mut rows = Rows::of(&INTERVALS);
    for (number, agent) in run.agents.iter().enumerate() {
        if let Some(messages) = agent.receiver().messages() {
            interval_rows(&mut rows, named(run, number), messages);
        }
    }
    rows
}

fn packets(run: &Run) -> Rows {
    let mut rows = Rows::of(&PACKETS);
    // A link without a scheduled queue knows beforehand when a packet will leave it.
    let by_end = |time: Time| (time <= run.end).then(|| time.as_secs_f64());
    for (link, watch) in run.names.links.iter().zip(run.fabric.watches()) {
        let Some(records) = watch.as_ref().and_then(|watch| watch.records()) else { continue };
        for record in records {
            let packet = &record.packet;
            rows.push([
                record.offered.as_secs_f64().into(),
                (*link.name).into(),
                u64::from(packet.flow).into(),
                if packet.marks.ack { "ack" } else { "data" }.into(),
                packet.number.into(),
                u64::from(packet.size).into(),
                u64::from(packet.marks.retransmission).into(),
                record.started.and_then(by_end).into(),
                record.dropped.map(drop_name).into(),
            ]);
        }
    }
    rows
}
