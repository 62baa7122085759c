//! The tables `adus` and `messages`: delays of units.

use ontempo_foundation::printable;
use ontempo_scenario::tables::{ADUS, MESSAGES, Table};

use super::Reading;
use crate::error::PageError;
use crate::film::apart;
use crate::model::{Chart, Delays, Shape};
use crate::reduce::{BandRow, Point, intervals, quantile, tail};

/// A group of more units is drawn as a band over time.
const MAX_POINTS: usize = 3_000;

/// Rows of such a band.
const BAND_ROWS: usize = 300;

/// Start-up delays above this many times the largest delay are not drawn.
const STARTUP_IN_SIGHT: f64 = 2.0;

/// Start-up delays that are drawn.
const MAX_STARTUPS: usize = 3;

pub(super) fn read(reading: &mut Reading<'_>) -> Result<(), PageError> {
    let units = collect(reading, &ADUS, |due, delivered, _| (due, delivered - due))?;
    let messages = collect(reading, &MESSAGES, |_, received, delay| (received, delay))?;
    let (has_units, has_messages) = (has_any(&units), has_any(&messages));
    draw(reading, units, "units", Chart::UnitDelay);
    draw(reading, messages, "messages", Chart::MessageDelay);
    let has_films = !reading.run.films.is_empty();
    match (has_units, has_messages) {
        // Frames are a film's units.
        (false, _) if has_films => {}
        (false, false) => reading.run.lacks(
            "delays of units (of groups with a playout, and of ADUs) and of messages",
            &["measure.adus = true", "measure.messages = true"],
        ),
        (false, true) => reading.run.lacks(
            "delays of units (of groups with a playout, and of ADUs)",
            &["measure.adus = true"],
        ),
        (true, _) => {}
    }
    Ok(())
}

fn has_any(groups: &[Vec<Point>]) -> bool {
    groups.iter().any(|group| !group.is_empty())
}

/// Time and delay of each unit, by group.
fn collect(
    reading: &mut Reading<'_>,
    table: &'static Table,
    point: fn(f64, f64, f64) -> Point,
) -> Result<Vec<Vec<Point>>, PageError> {
    let [begin, end, delay] = if table.name == ADUS.name {
        ["due_s", "delivered_s", "delivered_s"]
    } else {
        ["sent_s", "received_s", "delay_s"]
    };
    let of_flows = reading.column(table, "flow")?;
    reading.note_part(table.name, of_flows.len());
    let flow = of_flows.count("flow")?;
    let [of_begins, of_ends, of_delays] =
        [begin, end, delay].map(|name| reading.column(table, name));
    let (of_begins, of_ends, of_delays) = (of_begins?, of_ends?, of_delays?);
    let (begins, ends) = (of_begins.number(begin)?, of_ends.number(end)?);
    let delays = of_delays.number(delay)?;
    let mut groups = vec![Vec::new(); reading.groups.len()];
    for row in 0..of_flows.len() {
        let number = usize::try_from(flow.value(row)).ok();
        let Some(place) = number.and_then(|flow| reading.flows.get(flow)) else { continue };
        groups[place.group].push(point(begins.value(row), ends.value(row), delays.value(row)));
    }
    groups.iter_mut().for_each(|group| group.sort_by(|a, b| a.0.total_cmp(&b.0)));
    Ok(groups)
}

fn draw(reading: &mut Reading<'_>, groups: Vec<Vec<Point>>, of: &'static str, chart: Chart) {
    for (place, points) in groups.into_iter().enumerate().filter(|(_, points)| !points.is_empty()) {
        let mut sorted: Vec<f64> = points.iter().map(|point| point.1).collect();
        sorted.sort_by(f64::total_cmp);
        let headline = &mut reading.run.headlines[place];
        headline.delays = Delays::of(of, &sorted).or(headline.delays.take());
        if place >= reading.drawn_groups() {
            continue;
        }
        let label = printable(&reading.groups[place]).into_owned();
        reading.run.draw(
            Chart::Delays,
            &label,
            format!("delay of {of}"),
            Shape::Line(tail(&sorted)),
        );
        let count = points.len();
        let (detail, shape) = if count <= MAX_POINTS {
            (format!("each of {count} {of}"), Shape::Points(apart(points)))
        } else {
            (format!("5, 50 and 99 % of {count} {of}"), Shape::Band(quantiles(&points)))
        };
        reading.run.draw(chart, label, detail, shape);
    }
}

/// 5, 50 and 99 % of the delays in each of [`BAND_ROWS`] intervals.
fn quantiles(points: &[Point]) -> Vec<BandRow> {
    let row = |bucket: &[Point]| {
        let mut sorted: Vec<f64> = bucket.iter().map(|point| point.1).collect();
        sorted.sort_by(f64::total_cmp);
        let at = |share| quantile(&sorted, share);
        let middle = bucket.iter().map(|point| point.0).sum::<f64>() / bucket.len() as f64;
        Some([middle, at(0.05)?, at(0.5)?, at(0.99)?])
    };
    intervals(points, BAND_ROWS, |point| point.0).filter_map(row).collect()
}

/// The start-up delays of the headlines as lines across the chart of delays.
pub(super) fn draw_startups(reading: &mut Reading<'_>) {
    let highest = |shape: &Shape| match shape {
        Shape::Points(points) => points.iter().map(|point| point.1).fold(0.0, f64::max),
        Shape::Band(rows) => rows.iter().map(|row| row[3]).fold(0.0, f64::max),
        _ => 0.0,
    };
    let of_units = reading.run.lines.iter().filter(|line| line.chart == Chart::UnitDelay);
    let highest = of_units.map(|line| highest(&line.shape)).fold(0.0, f64::max);
    let mut startups: Vec<f64> = reading
        .run
        .headlines
        .iter()
        .flat_map(|headline| headline.late.iter().map(|late| late.startup_s))
        .filter(|startup| *startup <= STARTUP_IN_SIGHT * highest)
        .collect();
    startups.sort_by(f64::total_cmp);
    startups.dedup();
    if startups.len() <= MAX_STARTUPS {
        for startup in startups {
            let label = format!("start-up delay {}", crate::numbers::seconds(startup));
            let shape = Shape::Limit(vec![(0.0, startup)]);
            reading.run.draw(Chart::UnitDelay, label, "units above are late", shape);
        }
    }
}
