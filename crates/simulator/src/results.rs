//! The tables of a finished run.

use std::io;
use std::path::Path;

use ontempo_foundation::Time;
use ontempo_mechanisms::qos::loss_percent;
use ontempo_network::LinkStatistics;
use ontempo_scenario::tables::{ADUS, FLOWS, INTERVALS, LINKS, MESSAGES, PACKETS, PLAYOUT, QUEUES};

use crate::agents::Totals;
use crate::fabric::reason_name;
use crate::folder::RunFolder;
use crate::simulation::Simulation;
use crate::tables::{Cell, ResultTable, Rows};

/// What a run yields.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// The tables, in the order of `ontempo_scenario::tables::TABLES`.
    pub tables: Vec<ResultTable>,
    /// What it took.
    pub work: Work,
}

/// What a run took, the same on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Events handled.
    pub events: u64,
    /// The most packets, ACKs included, that were under way at a time.
    pub most_packets_under_way: u64,
}

impl Results {
    /// The table of this name.
    pub fn table(&self, name: &str) -> Option<&ResultTable> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// Writes every table into `folder` as Parquet, all or none.
    ///
    /// # Errors
    /// Where the folder cannot be made or written, or the disk is full.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let mut run = RunFolder::begin(folder)?;
        run.write_tables(&self.tables)?;
        run.keep(None)
    }
}

/// Totals of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinkTotals {
    arrivals: u64,
    departures: u64,
    dropped_full: u64,
    dropped_early: u64,
    dropped_loss: u64,
    departed_bytes: u64,
    /// Packets times seconds spent waiting.
    waiting: f64,
    /// Seconds spent transmitting.
    busy: f64,
}

impl LinkTotals {
    fn at(now: Time, statistics: &LinkStatistics) -> Self {
        let elapsed = now.as_secs_f64();
        let drops = &statistics.drops;
        Self {
            arrivals: statistics.arrivals.get(),
            departures: statistics.departures.get(),
            dropped_full: (drops.queue_full + drops.too_large).get(),
            dropped_early: drops.early.get(),
            dropped_loss: drops.loss.get(),
            departed_bytes: statistics.bytes_departed.get(),
            waiting: statistics.mean_packets * elapsed,
            busy: statistics.busy * elapsed,
        }
    }
}

/// The measured span begins: what was counted before does not count.
pub(crate) fn begin_measuring(run: &mut Simulation, now: Time) {
    run.measured.from = now;
    run.measured.flows = flow_totals(run);
    run.measured.links = link_totals(run, now);
    run.fabric.restart_watches();
}

fn flow_totals(run: &Simulation) -> Vec<Totals> {
    let dropped = |flow: usize| run.fabric.dropped(flow as u32);
    run.agents
        .iter()
        .enumerate()
        .map(|(flow, agent)| Totals { dropped: dropped(flow), ..agent.totals() })
        .collect()
}

fn link_totals(run: &Simulation, now: Time) -> Vec<LinkTotals> {
    run.fabric.link_statistics(now).map(|statistics| LinkTotals::at(now, &statistics)).collect()
}

/// The tables of a run that has reached its end.
pub(crate) fn collect(run: &mut Simulation) -> Results {
    let (samples, events) = run.probes.finish();
    let flows = flows(run).finish();
    let (playout, adus) = (playout(run).finish(), adus(run).finish());
    let (messages, intervals) = (messages(run).finish(), intervals(run).finish());
    // A large run's agents need not be there while its many links are told of.
    run.agents = Vec::new();
    let links = links_table(run, &link_totals(run, run.end)).finish();
    let (queues, packets) = (queues(run).finish(), packets(run).finish());
    let (samples, events) = (samples.finish(), events.finish());
    let tables =
        vec![flows, links, queues, samples, playout, adus, packets, events, messages, intervals];
    Results { tables, work: run.fabric.work() }
}

fn flows(run: &Simulation) -> Rows {
    let mut rows = Rows::of(&FLOWS);
    let span = run.end.since(run.measured.from).as_secs_f64();
    for (number, now) in flow_totals(run).iter().enumerate() {
        let flow = &run.names.flows[number];
        let agent = &run.agents[number];
        let before = run.measured.flows.get(number).copied().unwrap_or_default();
        let totals = now.since(&before);
        let bytes = totals.delivered * agent.packet_size();
        let (transport, controller) = agent.transport();
        let loss_rate =
            if totals.sent == 0 { 0.0 } else { totals.dropped as f64 / totals.sent as f64 };
        rows.push([
            (number as u64).into(),
            run.names.group_of(number).into(),
            u64::from(flow.index).into(),
            transport.into(),
            controller.into(),
            flow.start.as_secs_f64().into(),
            totals.sent.into(),
            totals.delivered.into(),
            bytes.into(),
            (bytes as f64 * 8.0 / span).into(),
            totals.retransmitted.into(),
            totals.timeouts.into(),
            totals.reductions.into(),
            totals.early_responses.into(),
            totals.dropped.into(),
            loss_rate.into(),
            agent.srtt().map(|srtt| srtt.as_secs_f64()).into(),
            agent.minimum_rtt().map(|rtt| rtt.as_secs_f64()).into(),
            totals.acks.into(),
            totals.transfers.into(),
        ]);
    }
    rows
}

fn links_table(run: &Simulation, now: &[LinkTotals]) -> Rows {
    let mut rows = Rows::of(&LINKS);
    let span = run.end.since(run.measured.from).as_secs_f64();
    for (place, (link, now)) in run.names.links.iter().zip(now).enumerate() {
        let before = run.measured.links.get(place).copied().unwrap_or_default();
        rows.push([
            (*link.name).into(),
            (*run.names.nodes[link.from as usize]).into(),
            (*run.names.nodes[link.to as usize]).into(),
            (now.arrivals - before.arrivals).into(),
            (now.departures - before.departures).into(),
            (now.dropped_full - before.dropped_full).into(),
            (now.dropped_early - before.dropped_early).into(),
            (now.dropped_loss - before.dropped_loss).into(),
            (now.departed_bytes - before.departed_bytes).into(),
            ((now.waiting - before.waiting) / span).into(),
            ((now.busy - before.busy) / span).into(),
            span.into(),
        ]);
    }
    rows
}

fn queues(run: &Simulation) -> Rows {
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

fn playout(run: &Simulation) -> Rows {
    let mut rows = Rows::of(&PLAYOUT);
    for (number, agent) in run.agents.iter().enumerate() {
        let Some(playout) = agent.playout() else { continue };
        let flow = &run.names.flows[number];
        for (index, delay) in playout.delays().iter().enumerate() {
            rows.push([
                (number as u64).into(),
                run.names.group_of(number).into(),
                u64::from(flow.index).into(),
                delay.as_secs_f64().into(),
                playout.judged(index).into(),
                playout.late(index).into(),
            ]);
        }
    }
    rows
}

fn adus(run: &Simulation) -> Rows {
    let mut rows = Rows::of(&ADUS);
    for (number, agent) in run.agents.iter().enumerate() {
        let flow = &run.names.flows[number];
        for record in agent.receiver().records() {
            rows.push([
                (number as u64).into(),
                run.names.group_of(number).into(),
                u64::from(flow.index).into(),
                record.unit.into(),
                record.due.as_secs_f64().into(),
                record.delivered.as_secs_f64().into(),
                Cell::None,
                Cell::None,
                Cell::None,
                Cell::None,
            ]);
        }
        let Some(consumer) = agent.receiver().consumer() else { continue };
        for (adu, due, record, processed) in consumer.rows(run.end) {
            rows.push([
                (number as u64).into(),
                run.names.group_of(number).into(),
                u64::from(flow.index).into(),
                adu.into(),
                due.as_secs_f64().into(),
                record.delivered.as_secs_f64().into(),
                record.emitted.as_secs_f64().into(),
                record.arrived.as_secs_f64().into(),
                processed.map(Time::as_secs_f64).into(),
                record.retransmissions.into(),
            ]);
        }
    }
    rows
}

fn messages(run: &Simulation) -> Rows {
    let mut rows = Rows::of(&MESSAGES);
    for (number, agent) in run.agents.iter().enumerate() {
        let Some(messages) = agent.receiver().messages() else { continue };
        let index = u64::from(run.names.flows[number].index);
        for record in messages.records() {
            rows.push([
                (number as u64).into(),
                run.names.group_of(number).into(),
                index.into(),
                record.number.into(),
                record.message.payload.get().into(),
                record.message.made.as_secs_f64().into(),
                record.received.as_secs_f64().into(),
                record.timing.delay.as_secs_f64().into(),
                record.timing.jitter.map(|jitter| jitter.as_secs_f64()).into(),
            ]);
        }
    }
    rows
}

fn intervals(run: &Simulation) -> Rows {
    let mut rows = Rows::of(&INTERVALS);
    for (number, agent) in run.agents.iter().enumerate() {
        let Some(messages) = agent.receiver().messages() else { continue };
        let index = u64::from(run.names.flows[number].index);
        for (sent, received) in messages.intervals() {
            rows.push([
                (number as u64).into(),
                run.names.group_of(number).into(),
                index.into(),
                sent.begins.as_secs_f64().into(),
                sent.span.as_secs_f64().into(),
                sent.messages.into(),
                received.messages.into(),
                (sent.throughput().as_bits_per_sec() as f64).into(),
                (received.throughput().as_bits_per_sec() as f64).into(),
                loss_percent(sent.messages, received.messages).into(),
            ]);
        }
    }
    rows
}

fn packets(run: &Simulation) -> Rows {
    let mut rows = Rows::of(&PACKETS);
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
                record.started.map(|started| started.as_secs_f64()).into(),
                record.dropped.map(reason_name).into(),
            ]);
        }
    }
    rows
}
