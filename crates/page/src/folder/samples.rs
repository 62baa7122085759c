//! The table `samples`: rates, windows, round trips, queues.

use std::collections::{BTreeMap, HashMap};

use ontempo_foundation::printable;
use ontempo_scenario::tables::{INTERVALS, SAMPLES};

use super::{MAX_LINKS, Reading};
use crate::error::PageError;
use crate::model::{Chart, Shape};
use crate::numbers;
use crate::reduce::{BandRow, Point, quantile};

/// A group of more flows is drawn as a band.
const MAX_SINGLE_FLOWS: usize = 3;

/// A rate over time has at most this many points, each the mean since the one before.
const MAX_RATES: f64 = 150.0;

/// Shortest time over which a rate is a mean, unless the run is shorter than 100 times this.
const MIN_WINDOW_S: f64 = 0.1;

/// Each flow's rate is a mean over this many times as long.
const FLOW_WINDOWS: f64 = 2.0;

/// Quantities that are drawn as they are.
const QUANTITIES: [(&str, Chart); 4] = [
    ("cwnd_packets", Chart::Window),
    ("srtt_s", Chart::RoundTrip),
    ("spacing_s", Chart::Spacing),
    ("buffered_adus", Chart::Buffered),
];

const SAMPLE: &str = "measure.sample-every = \"100 ms\"";

/// Who a sample is of.
#[derive(Clone, Copy)]
enum Subject {
    /// A flow's number.
    Flow(usize),
    /// A link's place among those sampled.
    Link(usize),
    None,
}

/// Rates from counters of bytes: of each group, as sums or as quantiles over its flows.
struct Meter {
    window_s: f64,
    begun_s: f64,
    bytes: Vec<f64>,
    before: Vec<f64>,
}

impl Meter {
    fn new(window_s: f64, flows: usize) -> Self {
        Self { window_s, begun_s: 0.0, bytes: vec![0.0; flows], before: vec![0.0; flows] }
    }

    /// At the end of a sample: each flow's rate since the window began, if it is over.
    fn rates(&mut self, now_s: f64) -> Option<Vec<f64>> {
        let span = now_s - self.begun_s;
        // Sums of intervals differ from the window in their last digits.
        if span <= 0.0 || span < self.window_s * (1.0 - 1e-9) {
            return None;
        }
        let rate = |(now, before): (&f64, &f64)| (now - before).max(0.0) * 8.0 / span;
        let rates = self.bytes.iter().zip(&self.before).map(rate).collect();
        self.before.clone_from(&self.bytes);
        self.begun_s = now_s;
        Some(rates)
    }
}

/// What the samples give.
struct Collected {
    sums: Vec<Vec<Point>>,
    flow_rates: Vec<Vec<BandRow>>,
    /// By quantity and flow.
    single: BTreeMap<(usize, usize), Vec<Point>>,
    /// By quantity and group.
    bands: BTreeMap<(usize, usize), Vec<BandRow>>,
    queues: Vec<Vec<Point>>,
    links: Vec<String>,
}

pub(super) fn read(reading: &mut Reading<'_>) -> Result<(), PageError> {
    let window_s = (reading.run.end_s / MAX_RATES).max(MIN_WINDOW_S.min(reading.run.end_s / 100.0));
    let collected = collect(reading, window_s)?;
    draw_rates(reading, &collected, window_s);
    draw_quantities(reading, &collected);
    for (link, points) in collected.links.iter().zip(collected.queues).take(MAX_LINKS) {
        let label = printable(link).into_owned();
        reading.run.draw(Chart::Queue, label, "packets waiting, sampled", Shape::Line(points));
    }
    if !reading.run.draws(Chart::Queue) {
        let link = toml_text(reading.network.suggested());
        let queues = format!("measure.queues = [{link}]");
        reading.run.lacks("the queue over time", &[SAMPLE, &queues]);
    }
    if collected.single.is_empty() && collected.bands.is_empty() {
        reading.run.lacks("windows and round-trip times", &[SAMPLE]);
    }
    if collected.sums.iter().all(Vec::is_empty) && !intervals(reading)? {
        reading.run.lacks("rates of groups and flows over time", &[SAMPLE]);
    }
    Ok(())
}

/// `text` as a basic string of TOML.
pub(super) fn toml_text(text: &str) -> String {
    // JSON's escapes are TOML's, too.
    serde_json::Value::from(text).to_string()
}

fn collect(reading: &mut Reading<'_>, window_s: f64) -> Result<Collected, PageError> {
    let table = reading.table(&SAMPLES)?;
    let (time, subject) = (table.number("time_s")?, table.text("subject")?);
    let (quantity, value) = (table.text("quantity")?, table.number("value")?);
    let mut links: Vec<String> = Vec::new();
    let subjects = subjects(reading, subject.distinct(), &mut links);
    let quantities: Vec<Option<usize>> = quantity.distinct().map(drawn_as).collect();
    let is_bytes: Vec<bool> = quantity.distinct().map(|name| name == "delivered_bytes").collect();
    let sizes = reading.group_sizes();
    let groups = reading.drawn_groups();
    let flows = reading.flows.len();
    let mut meters = (Meter::new(window_s, flows), Meter::new(FLOW_WINDOWS * window_s, flows));
    let mut collected = Collected {
        sums: vec![Vec::new(); groups],
        flow_rates: vec![Vec::new(); groups],
        single: BTreeMap::new(),
        bands: BTreeMap::new(),
        queues: vec![Vec::new(); links.len()],
        links,
    };
    let mut at_once: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    let mut seen_bytes = false;
    for row in 0..table.len() {
        let (now, value) = (time.value(row), value.value(row));
        let who = subject.key(row).map_or(Subject::None, |key| subjects[key]);
        let what = quantity.key(row);
        match who {
            Subject::Flow(flow) if what.is_some_and(|key| is_bytes[key]) => {
                seen_bytes = true;
                meters.0.bytes[flow] = value;
                meters.1.bytes[flow] = value;
            }
            Subject::Flow(flow) => {
                let group = reading.flows[flow].group;
                if let Some(quantity) = what.and_then(|key| quantities[key])
                    && group < groups
                {
                    if sizes[group] <= MAX_SINGLE_FLOWS {
                        collected.single.entry((quantity, flow)).or_default().push((now, value));
                    } else {
                        at_once.entry((quantity, group)).or_default().push(value);
                    }
                }
            }
            Subject::Link(link) => collected.queues[link].push((now, value)),
            Subject::None => {}
        }
        let is_last = row + 1 == table.len() || time.value(row + 1) != now;
        if is_last {
            end_sample(&mut collected, &mut at_once, now);
            if seen_bytes {
                add_rates(&mut collected, reading, &mut meters, now);
            }
        }
    }
    Ok(collected)
}

fn drawn_as(name: &str) -> Option<usize> {
    QUANTITIES.iter().position(|(quantity, _)| *quantity == name)
}

fn subjects<'a>(
    reading: &Reading<'_>,
    names: impl Iterator<Item = &'a str>,
    links: &mut Vec<String>,
) -> Vec<Subject> {
    let flows: HashMap<String, usize> = reading.subjects();
    let place = |name: &str| match flows.get(name) {
        Some(flow) => Subject::Flow(*flow),
        None if name.is_empty() => Subject::None,
        None => Subject::Link(links.iter().position(|link| link == name).unwrap_or_else(|| {
            links.push(name.to_owned());
            links.len() - 1
        })),
    };
    names.map(place).collect()
}

/// The values of one time become a row of each band.
fn end_sample(
    collected: &mut Collected,
    at_once: &mut BTreeMap<(usize, usize), Vec<f64>>,
    now_s: f64,
) {
    for (key, values) in at_once.iter_mut().filter(|(_, values)| !values.is_empty()) {
        if let Some(row) = band_row(now_s, values) {
            collected.bands.entry(*key).or_default().push(row);
        }
        values.clear();
    }
}

/// 10, 50 and 90 % of the values.
fn band_row(at_s: f64, values: &mut [f64]) -> Option<BandRow> {
    values.sort_by(f64::total_cmp);
    let at = |share| quantile(values, share);
    Some([at_s, at(0.1)?, at(0.5)?, at(0.9)?])
}

fn add_rates(
    collected: &mut Collected,
    reading: &Reading<'_>,
    meters: &mut (Meter, Meter),
    now: f64,
) {
    if let Some(rates) = meters.0.rates(now) {
        let mut sums = vec![0.0; reading.groups.len()];
        rates.iter().zip(&reading.flows).for_each(|(rate, flow)| sums[flow.group] += rate);
        for (points, sum) in collected.sums.iter_mut().zip(sums) {
            points.push((now, sum));
        }
    }
    if let Some(rates) = meters.1.rates(now) {
        let mut groups = vec![Vec::new(); reading.groups.len()];
        rates.iter().zip(&reading.flows).for_each(|(rate, flow)| groups[flow.group].push(*rate));
        for (rows, mut group) in collected.flow_rates.iter_mut().zip(groups) {
            rows.extend(band_row(now, &mut group));
        }
    }
}

fn draw_rates(reading: &mut Reading<'_>, collected: &Collected, window_s: f64) {
    let sizes = reading.group_sizes();
    let mean = |window: f64| format!("means over {}", numbers::seconds(window));
    for (group, points) in collected.sums.iter().enumerate() {
        let label = printable(&reading.groups[group]).into_owned();
        let window = actual_window(points).unwrap_or(window_s);
        let detail = match sizes[group] {
            1 => format!("goodput, {}", mean(window)),
            flows => format!("goodput, sum of {flows} flows, {}", mean(window)),
        };
        reading.run.draw(Chart::Rates, &label, detail, Shape::Line(points.clone()));
        let rows = &collected.flow_rates[group];
        if sizes[group] > 1 {
            let window = rows.windows(2).map(|pair| pair[1][0] - pair[0][0]).next();
            let window = window.unwrap_or(FLOW_WINDOWS * window_s);
            let detail =
                format!("median and 10 to 90 % of {} flows, {}", sizes[group], mean(window));
            reading.run.draw(Chart::FlowRates, &label, detail, Shape::Band(rows.clone()));
        }
    }
}

fn actual_window(points: &[Point]) -> Option<f64> {
    points.windows(2).map(|pair| pair[1].0 - pair[0].0).next()
}

fn draw_quantities(reading: &mut Reading<'_>, collected: &Collected) {
    let sizes = reading.group_sizes();
    for ((quantity, flow), points) in &collected.single {
        let place = &reading.flows[*flow];
        let group = printable(&reading.groups[place.group]).into_owned();
        let detail = match sizes[place.group] {
            1 => String::new(),
            _ => format!("flow {}", place.index),
        };
        let chart = QUANTITIES[*quantity].1;
        reading.run.draw(chart, group, detail, Shape::Line(points.clone()));
    }
    for ((quantity, group), rows) in &collected.bands {
        let label = printable(&reading.groups[*group]).into_owned();
        let detail = format!("median and 10 to 90 % of {} flows", sizes[*group]);
        reading.run.draw(QUANTITIES[*quantity].1, label, detail, Shape::Band(rows.clone()));
    }
}

/// Rates from the table `intervals`; whether it has any.
fn intervals(reading: &mut Reading<'_>) -> Result<bool, PageError> {
    let table = reading.table(&INTERVALS)?;
    let (flow, begins) = (table.count("flow")?, table.number("begins_s")?);
    let (span, received) = (table.number("span_s")?, table.number("received_bps")?);
    let mut groups: Vec<Vec<Point>> = vec![Vec::new(); reading.groups.len()];
    for row in 0..table.len() {
        let number = usize::try_from(flow.value(row)).ok();
        let Some(place) = number.and_then(|flow| reading.flows.get(flow)) else { continue };
        let end = begins.value(row) + span.value(row);
        groups[place.group].push((end, received.value(row)));
    }
    for (group, mut rates) in groups.into_iter().enumerate().take(reading.drawn_groups()) {
        rates.sort_by(|a, b| a.0.total_cmp(&b.0));
        let sums = rates.chunk_by(|a, b| a.0 == b.0);
        let sum = |rates: &[Point]| (rates[0].0, rates.iter().map(|rate| rate.1).sum());
        let points: Vec<Point> = sums.map(sum).collect();
        let label = printable(&reading.groups[group]).into_owned();
        let detail = "payload received, from the table `intervals`";
        reading.run.draw(Chart::Rates, label, detail, Shape::Line(points));
    }
    Ok(table.len() > 0)
}
