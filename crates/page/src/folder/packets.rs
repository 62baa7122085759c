//! The table `packets`: waiting times, losses by cause, the queue, and throughput of links.

use std::collections::BTreeMap;

use ontempo_foundation::printable;
use ontempo_scenario::tables::PACKETS;

use super::samples::toml_text;
use super::{MAX_LINKS, Reading};
use crate::columns::optional;
use crate::error::PageError;
use crate::model::{Chart, Shape};
use crate::numbers;
use crate::reduce::{Point, tail};

/// Losses are counted in this many intervals of the run.
const INTERVALS: f64 = 200.0;

/// One link's packets.
#[derive(Default)]
struct LinkPackets {
    name: String,
    /// Arrival and waiting time of packets that were transmitted.
    waits: Vec<Point>,
    /// Arrival of packets that wait at the end of the run.
    waiting: Vec<f64>,
    /// When packets were lost, by cause.
    lost: BTreeMap<String, Vec<f64>>,
    /// When transmissions began, and bytes.
    sent: Vec<Point>,
}

pub(super) fn read(reading: &mut Reading<'_>) -> Result<(), PageError> {
    let links = collect(reading)?;
    if links.is_empty() {
        let link = toml_text(reading.network.suggested());
        let packets = format!("measure.packets = [{link}]");
        reading.run.lacks("waiting times of packets, and losses over time", &[&packets]);
        return Ok(());
    }
    if links.len() > MAX_LINKS {
        let more = links.len() - MAX_LINKS;
        let sentence =
            format!("the charts show packets of the first {MAX_LINKS} links; {more} are left out");
        reading.run.notes.push(sentence);
    }
    let needs_rates = !reading
        .run
        .lines
        .iter()
        .any(|line| line.chart == Chart::Rates && matches!(line.shape, Shape::Line(_)));
    for link in links.into_iter().take(MAX_LINKS) {
        draw(reading, link, needs_rates);
    }
    Ok(())
}

/// The packets of each link. The table may be large: one column is in memory at a time besides what
/// is drawn.
fn collect(reading: &mut Reading<'_>) -> Result<Vec<LinkPackets>, PageError> {
    let of_links = reading.column(&PACKETS, "link")?;
    let link = of_links.text("link")?;
    reading.note_part(PACKETS.name, of_links.len());
    let mut links: Vec<LinkPackets> = Vec::new();
    let places: Vec<usize> = link
        .distinct()
        .map(|name| {
            links.iter().position(|link| link.name == name).unwrap_or_else(|| {
                links.push(LinkPackets { name: name.to_owned(), ..LinkPackets::default() });
                links.len() - 1
            })
        })
        .collect();
    let of_times = reading.column(&PACKETS, "time_s")?;
    let time = of_times.number("time_s")?;
    let mut unsent = Vec::new();
    {
        let of_starts = reading.column(&PACKETS, "started_s")?;
        let started = of_starts.number("started_s")?;
        let of_sizes = reading.column(&PACKETS, "size_bytes")?;
        let size = of_sizes.count("size_bytes")?;
        for row in 0..of_links.len() {
            let Some(key) = link.key(row) else { continue };
            let Some(start) = optional(started, row) else {
                unsent.push(row);
                continue;
            };
            let link = &mut links[places[key]];
            link.waits.push((time.value(row), start - time.value(row)));
            link.sent.push((start, size.value(row) as f64));
        }
    }
    let of_causes = reading.column(&PACKETS, "dropped")?;
    let dropped = of_causes.text("dropped")?;
    for row in unsent {
        let Some(key) = link.key(row) else { continue };
        let link = &mut links[places[key]];
        let Some(cause) = dropped.get(row) else {
            link.waiting.push(time.value(row));
            continue;
        };
        match link.lost.get_mut(cause) {
            Some(times) => times.push(time.value(row)),
            None => drop(link.lost.insert(cause.to_owned(), vec![time.value(row)])),
        }
    }
    Ok(links)
}

fn draw(reading: &mut Reading<'_>, mut link: LinkPackets, needs_rates: bool) {
    let label = printable(&link.name).into_owned();
    let end = reading.run.end_s;
    if needs_rates {
        link.sent.sort_by(|a, b| a.0.total_cmp(&b.0));
        let width = width_of(end);
        let rate = |(at, bytes): Point| (at, bytes * 8.0 / width);
        let points = summed(&link.sent, width, end).into_iter().map(rate).collect();
        let detail = format!("throughput, means over {}", numbers::seconds(width));
        reading.run.draw(Chart::Rates, &label, detail, Shape::Steps(points));
    }
    let has_queue = |line: &crate::model::Line| line.chart == Chart::Queue && line.label == label;
    if !reading.run.lines.iter().any(has_queue) {
        let points = queue(&link.waits, &link.waiting);
        reading.run.draw(
            Chart::Queue,
            &label,
            "packets waiting, each packet",
            Shape::Steps(points),
        );
        // It is drawn after all.
        reading.run.absent.retain(|absent| absent.what != "the queue over time");
    }
    for (cause, times) in &link.lost {
        let width = width_of(end);
        let ones: Vec<Point> = times.iter().map(|at| (*at, 1.0)).collect();
        let rate = |(at, count): Point| (at, count / width);
        let points = summed(&ones, width, end).into_iter().map(rate).collect();
        let detail = format!(
            "{}: {}, counted over {}",
            cause_in_words(cause),
            numbers::count(times.len() as u64),
            numbers::seconds(width)
        );
        reading.run.draw(Chart::Losses, &label, detail, Shape::Steps(points));
    }
    let mut sorted: Vec<f64> = link.waits.iter().map(|wait| wait.1).collect();
    sorted.sort_by(f64::total_cmp);
    reading.run.draw(Chart::Delays, &label, "waiting time of packets", Shape::Line(tail(&sorted)));
    reading.run.draw(Chart::Waiting, &label, "each packet", Shape::Line(link.waits));
}

/// What the table calls the cause, for a reader.
fn cause_in_words(cause: &str) -> String {
    match cause {
        "full" => "queue full".to_owned(),
        "early" => "dropped early by the queue".to_owned(),
        "loss" => "lost on the wire".to_owned(),
        "too large" => "larger than the MTU".to_owned(),
        other => printable(other).into_owned(),
    }
}

/// A length of 1, 2 or 5 times a power of ten, of which about [`INTERVALS`] make `span_s`.
pub(crate) fn width_of(span_s: f64) -> f64 {
    let least = (span_s / INTERVALS).max(1e-6);
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|w| *w >= least * 0.999)
        .unwrap_or(least)
}

/// The sum of the values in each interval of `width` from 0 to `end`, at its begin.
pub(crate) fn summed(points: &[Point], width: f64, end: f64) -> Vec<Point> {
    let count = (end / width).ceil().clamp(1.0, 100_000.0) as usize;
    let mut sums = vec![0.0; count];
    for (at, value) in points {
        if *at >= 0.0 {
            sums[((at / width) as usize).min(count - 1)] += value;
        }
    }
    let mut points: Vec<Point> =
        sums.into_iter().enumerate().map(|(place, sum)| (place as f64 * width, sum)).collect();
    // The last value holds to the end.
    points.extend(points.last().map(|last| (end, last.1)));
    points
}

/// How many packets wait, after each arrival and each begin of a transmission.
fn queue(waits: &[Point], waiting: &[f64]) -> Vec<Point> {
    let changes = waits.iter().filter(|(_, wait)| *wait > 0.0);
    let mut changes: Vec<Point> =
        changes.flat_map(|(at, wait)| [(*at, 1.0), (at + wait, -1.0)]).collect();
    changes.extend(waiting.iter().map(|at| (*at, 1.0)));
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut waiting = 0.0;
    for change in &mut changes {
        waiting += change.1;
        change.1 = waiting;
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_grows_with_arrivals_and_shrinks_with_transmissions() {
        let waits = [(0.0, 0.0), (1.0, 2.0), (2.0, 3.0), (4.0, 0.0)];
        assert_eq!(queue(&waits, &[]), [(1.0, 1.0), (2.0, 2.0), (3.0, 1.0), (5.0, 0.0)]);
        let stays = queue(&waits, &[4.0]);
        assert_eq!(stays, [(1.0, 1.0), (2.0, 2.0), (3.0, 1.0), (4.0, 2.0), (5.0, 1.0)]);
    }

    #[test]
    fn intervals_are_round_and_cover_the_run() {
        assert_eq!(width_of(60.0), 0.5);
        assert_eq!(width_of(200.0), 1.0);
        let sums = summed(&[(0.1, 1.0), (0.9, 1.0), (2.5, 4.0), (3.0, 1.0)], 1.0, 3.0);
        assert_eq!(sums, [(0.0, 2.0), (1.0, 0.0), (2.0, 5.0), (3.0, 5.0)]);
    }
}
