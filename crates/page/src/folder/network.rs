//! The capacity that rates are drawn beside: from the table `capacity` if the run has it, else the
//! constant rates of its scenario.

use std::collections::BTreeMap;

use ontempo_foundation::printable;
use ontempo_scenario::Layout;
use ontempo_scenario::model::Scenario;
use serde_json::Value;

use super::Reading;
use crate::columns::Columns;
use crate::error::PageError;
use crate::model::{Chart, Shape};

/// Links whose capacity is drawn.
const MAX_CAPACITIES: usize = 3;

/// What is read from the scenario of the run.
#[derive(Default)]
pub(crate) struct Network {
    /// The slowest link of the most flows comes first.
    pub(crate) bottlenecks: Vec<String>,
    /// When totals begin.
    pub(crate) measured_from_s: f64,
    /// The run had to record reactions of congestion controllers.
    pub(crate) records_events: bool,
}

impl Network {
    /// The link that a suggestion names.
    pub(crate) fn suggested(&self) -> &str {
        self.bottlenecks.first().map_or("bottleneck", String::as_str)
    }
}

/// The slowest link on a flow's way: its place and rate.
fn slowest(layout: &Layout, forward: &[usize]) -> Option<usize> {
    forward.iter().copied().min_by_key(|link| layout.links[*link].rate.as_bits_per_sec())
}

pub(super) fn read(
    reading: &mut Reading<'_>,
    scenario: &Value,
    seed: u64,
) -> Result<(), PageError> {
    let capacity = reading.known_table("capacity")?;
    let layout = match laid_out(reading, scenario, seed) {
        Ok(layout) => layout,
        Err(why) => {
            let why = printable(&why).into_owned();
            reading.run.notes.push(format!(
                "the capacity of links is not drawn, since run.json has no scenario of this version: {why}"
            ));
            return Ok(());
        }
    };
    let mut flows_of: BTreeMap<usize, u64> = BTreeMap::new();
    let mut group_rate = vec![None; layout.groups.len()];
    for flow in &layout.flows {
        let Some(link) = slowest(&layout, &flow.forward) else { continue };
        *flows_of.entry(link).or_default() += 1;
        let rate = layout.links[link].rate.as_bits_per_sec() as f64;
        group_rate[flow.group] = Some(f64::max(rate, group_rate[flow.group].unwrap_or_default()));
    }
    let mut links: Vec<(usize, u64)> = flows_of.into_iter().collect();
    links.sort_by_key(|(link, flows)| (std::cmp::Reverse(*flows), *link));
    let named = |(link, _): &(usize, u64)| layout.links[*link].name.clone();
    reading.network.bottlenecks = links.iter().take(MAX_CAPACITIES).map(named).collect();
    let varying = capacity.map(|table| varying(&table)).transpose()?.unwrap_or_default();
    for (link, _) in links.iter().take(MAX_CAPACITIES) {
        let laid = &layout.links[*link];
        let label = printable(&laid.name).into_owned();
        let (detail, points) = match varying.get(&laid.name) {
            Some(points) => ("capacity, as it varied", points.clone()),
            None => ("capacity", vec![(0.0, laid.rate.as_bits_per_sec() as f64)]),
        };
        reading.run.draw(Chart::Rates, label, detail, Shape::Limit(points));
    }
    // Where a link's rate varies, no single capacity can be compared with.
    let bottlenecks = &reading.network.bottlenecks;
    if !bottlenecks.iter().any(|name| varying.contains_key(name)) {
        for headline in &mut reading.run.headlines {
            let group = layout.groups.iter().position(|name| *name == headline.group);
            let capacity = group.and_then(|group| group_rate[group]).filter(|rate| *rate > 0.0);
            headline.share_of_capacity =
                capacity.and_then(|capacity| headline.rate_bps.map(|rate| rate / capacity));
        }
    }
    Ok(())
}

/// The scenario laid out, or why it cannot be. It is only laid out if the tables have as many flows
/// and links, so that a made-up scenario cannot take memory that no run took.
fn laid_out(reading: &mut Reading<'_>, scenario: &Value, seed: u64) -> Result<Layout, String> {
    let scenario: Scenario =
        serde_json::from_value(scenario.clone()).map_err(|error| format!("scenario: {error}"))?;
    reading.run.end_s = scenario.duration.as_secs_f64();
    reading.network.measured_from_s = scenario.measure.from.as_secs_f64();
    reading.network.records_events = scenario.measure.events;
    if scenario.measure.from > ontempo_foundation::Duration::ZERO {
        let from = crate::numbers::seconds(reading.network.measured_from_s);
        reading.run.facts.push(("totals from", from));
    }
    let flows: u64 = scenario.flows.values().map(|group| u64::from(group.count)).sum();
    if flows != reading.flows.len() as u64 {
        let rows = reading.flows.len();
        return Err(format!("scenario: it has {flows} flows, the table `flows` {rows} rows"));
    }
    scenario.layout(seed).map_err(|error| format!("scenario: {error}"))
}

/// The rate of each link over time.
fn varying(table: &Columns) -> Result<BTreeMap<String, Vec<(f64, f64)>>, PageError> {
    let (time, link) = (table.number("time_s")?, table.text("link")?);
    let rate = table.number("rate_bps")?;
    let mut rates: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for row in 0..table.len() {
        let name = link.get(row).unwrap_or_default();
        let point = (time.value(row), rate.value(row));
        match rates.get_mut(name) {
            Some(points) => points.push(point),
            None => drop(rates.insert(name.to_owned(), vec![point])),
        }
    }
    rates.values_mut().for_each(|points| points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    Ok(rates)
}
