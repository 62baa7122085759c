//! The tables of totals: `flows`, `links`, `playout`.

use std::collections::HashMap;

use ontempo_foundation::printable;
use ontempo_scenario::tables::{FLOWS, LINKS, PLAYOUT};

use super::{FlowPlace, Reading};
use crate::columns::optional;
use crate::error::PageError;
use crate::model::{Chart, Headline, Late, LinkLosses, Shape};

/// Sums over the flows of a group.
#[derive(Default)]
struct Sums {
    flows: u64,
    goodput_bps: f64,
    sent: u64,
    dropped: u64,
    srtt_s: f64,
    timed: f64,
    transport: String,
}

/// Names the groups and flows, and begins the headline of each group.
pub(super) fn flows(reading: &mut Reading<'_>) -> Result<(), PageError> {
    let table = reading.table(&FLOWS)?;
    let (group, transport) = (table.text("group")?, table.text("transport")?);
    let (congestion, index) = (table.text("congestion")?, table.count("index")?);
    let (goodput, srtt) = (table.number("goodput_bps")?, table.number("srtt_s")?);
    let (sent, dropped) = (table.count("sent_packets")?, table.count("dropped_packets")?);
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut sums: Vec<Sums> = Vec::new();
    for row in 0..table.len() {
        let name = group.get(row).unwrap_or_default();
        let place = *places.entry(name).or_insert_with(|| {
            reading.groups.push(name.to_owned());
            let words = [transport.get(row), congestion.get(row)];
            let words: Vec<_> = words.into_iter().flatten().collect();
            sums.push(Sums { transport: words.join(" "), ..Sums::default() });
            sums.len() - 1
        });
        reading.flows.push(FlowPlace { group: place, index: index.value(row) });
        let sum = &mut sums[place];
        sum.flows += 1;
        sum.goodput_bps += goodput.value(row);
        sum.sent = sum.sent.saturating_add(sent.value(row));
        sum.dropped = sum.dropped.saturating_add(dropped.value(row));
        if let Some(srtt) = optional(srtt, row) {
            sum.srtt_s += srtt;
            sum.timed += 1.0;
        }
    }
    for (name, sum) in reading.groups.iter().zip(sums) {
        let flows = if sum.flows == 1 { "flow" } else { "flows" };
        reading.run.headlines.push(Headline {
            group: printable(name).into_owned(),
            detail: printable(&format!("{} {flows}, {}", sum.flows, sum.transport)).into_owned(),
            rate_bps: Some(sum.goodput_bps),
            loss: (sum.sent > 0).then(|| sum.dropped as f64 / sum.sent as f64),
            rtt_s: (sum.timed > 0.0).then(|| sum.srtt_s / sum.timed),
            ..Headline::default()
        });
    }
    Ok(())
}

/// The losses of each link that lost packets or was busiest.
pub(super) fn links(reading: &mut Reading<'_>) -> Result<(), PageError> {
    /// Links without losses that are shown.
    const MAX_BUSY: usize = 4;
    let table = reading.table(&LINKS)?;
    let (name, arrivals) = (table.text("link")?, table.count("arrivals")?);
    let (from, to) = (table.text("from")?, table.text("to")?);
    let (full, early) = (table.count("dropped_full")?, table.count("dropped_early")?);
    let (wire, policer) = (table.count("dropped_loss")?, table.count("dropped_policer")?);
    let corrupted = table.count("corrupted")?;
    let (busy, waiting) = (table.number("busy")?, table.number("mean_packets")?);
    let span = table.number("span_s")?;
    let mut busiest = Vec::new();
    for row in 0..table.len() {
        // A file of a stranger may say anything.
        if span.value(row).is_finite() {
            reading.run.end_s = reading.run.end_s.max(span.value(row));
        }
        let link = LinkLosses {
            link: printable(name.get(row).unwrap_or_default()).into_owned(),
            arrivals: arrivals.value(row),
            full: full.value(row),
            early: early.value(row),
            wire: wire.value(row),
            policer: policer.value(row),
            corrupted: corrupted.value(row),
            busy: busy.value(row),
            mean_packets: waiting.value(row),
        };
        // Hosts of a flow are named `GROUP.INDEX.source` and `GROUP.INDEX.sink`.
        let is_host = |node: Option<&str>| {
            node.is_some_and(|node| node.ends_with(".source") || node.ends_with(".sink"))
        };
        let is_inner = !is_host(from.get(row)) && !is_host(to.get(row));
        if link.lost() > 0 {
            reading.run.losses.push(link);
        } else if is_inner && link.arrivals > 0 {
            busiest.push(link);
        }
    }
    busiest.sort_by(|a, b| b.busy.total_cmp(&a.busy));
    reading.run.losses.sort_by_key(|link| std::cmp::Reverse(link.lost()));
    let more = reading.run.losses.len().saturating_sub(MAX_LOSING);
    if more > 0 {
        reading.run.losses.truncate(MAX_LOSING);
        let sentence = format!("losses of {more} more links are in the table `links`");
        reading.run.notes.push(sentence);
    }
    reading.run.losses.extend(busiest.into_iter().take(MAX_BUSY));
    Ok(())
}

/// Links with losses that are shown.
const MAX_LOSING: usize = 12;

/// Late units by start-up delay.
pub(super) fn playout(reading: &mut Reading<'_>) -> Result<(), PageError> {
    let table = reading.table(&PLAYOUT)?;
    let (flow, startup) = (table.count("flow")?, table.number("startup_delay_s")?);
    let (units, late) = (table.count("units")?, table.count("late")?);
    let mut groups: Vec<Vec<Late>> = vec![Vec::new(); reading.groups.len()];
    for row in 0..table.len() {
        let number = usize::try_from(flow.value(row)).ok();
        let Some(place) = number.and_then(|flow| reading.flows.get(flow)) else { continue };
        let (group, startup_s) = (&mut groups[place.group], startup.value(row));
        let known = group.iter().position(|late| late.startup_s == startup_s);
        let at = known.unwrap_or(group.len());
        if known.is_none() {
            group.push(Late { startup_s, units: 0, late: 0 });
        }
        group[at].units = group[at].units.saturating_add(units.value(row));
        group[at].late = group[at].late.saturating_add(late.value(row));
    }
    for (place, mut group) in groups.into_iter().enumerate() {
        group.sort_by(|a, b| a.startup_s.total_cmp(&b.startup_s));
        let points: Vec<_> = group.iter().map(|late| (late.startup_s, late.share())).collect();
        // A single start-up delay stands in the headline.
        if points.len() > 1 && place < reading.drawn_groups() {
            let label = printable(&reading.groups[place]).into_owned();
            reading.run.draw(Chart::Late, label, "units of all its flows", Shape::Line(points));
        }
        reading.run.headlines[place].late = group;
    }
    Ok(())
}
