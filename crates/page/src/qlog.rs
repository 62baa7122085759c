//! Reads a trace of a connection, as `ontempo send --qlog` and `ontempo receive --qlog` write it:
//! a JSON text sequence (RFC 7464) of qlog events (draft-ietf-quic-qlog-main-schema-14).

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use ontempo_foundation::printable;
use ontempo_place::open_regular;
use serde::Deserialize;

use crate::error::PageError;
use crate::film::apart;
use crate::folder::{summed, width_of};
use crate::model::{Chart, Delays, Form, Headline, ReadPart, Run, Shape};
use crate::numbers;
use crate::reduce::{Point, tail, within};

/// Maximum size of a record.
const MAX_RECORD_BYTES: u64 = 1 << 20;

/// Maximum size of a trace: one that ontempo writes has at most half of it.
const MAX_TRACE_BYTES: u64 = 256 << 20;

/// What the first record of a trace must say.
const FILE_SCHEMA: &str = "urn:ietf:params:qlog:file:sequential";

/// How the time of a unit is labelled: a trace has only the sender's clock.
const UNITS: &str = "from queueing until acknowledged, by time of that";

/// Hexadecimal digits of an ID that distinguish connections.
const SHORT_ID: usize = 6;

#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    file_schema: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    trace: TraceHeader,
}

#[derive(Default, Deserialize)]
struct TraceHeader {
    #[serde(default)]
    common_fields: CommonFields,
    #[serde(default)]
    vantage_point: VantagePoint,
}

#[derive(Default, Deserialize)]
struct CommonFields {
    #[serde(default)]
    group_id: String,
    #[serde(default)]
    time_format: String,
}

#[derive(Default, Deserialize)]
struct VantagePoint {
    #[serde(rename = "type", default)]
    kind: String,
}

/// An event: milliseconds since the trace began, its name, and the fields that are drawn.
#[derive(Deserialize)]
struct Event {
    time: f64,
    name: String,
    #[serde(default)]
    data: Data,
}

#[derive(Default, Deserialize)]
struct Data {
    raw: Option<Raw>,
    congestion_window: Option<f64>,
    bytes_in_flight: Option<f64>,
    smoothed_rtt: Option<f64>,
    pacing_rate: Option<f64>,
    flow: Option<u64>,
    unit: Option<u64>,
    length: Option<f64>,
}

#[derive(Deserialize)]
struct Raw {
    length: Option<f64>,
}

/// What a trace's events add up to.
#[derive(Default)]
struct Trace {
    sent: Vec<Point>,
    received: u64,
    lost: Vec<Point>,
    window: Vec<Point>,
    in_flight: Vec<Point>,
    round_trip: Vec<Point>,
    pacing: Vec<Point>,
    /// When units whose arrival is not known yet were queued.
    queued: BTreeMap<(u64, u64), f64>,
    queued_units: u64,
    dropped: u64,
    /// When units were queued that were dropped later.
    dropped_at: Vec<Point>,
    /// When its arrival was known, and how long after it was queued.
    delays: Vec<Point>,
    /// Of each flow, the lowest and the highest number of a unit delivered, and how many were.
    numbers: BTreeMap<u64, (u64, u64, u64)>,
    delivered: Vec<Point>,
    end_s: f64,
    records: usize,
}

impl Trace {
    /// Whether more units were delivered here than sent from here.
    fn is_receivers(&self) -> bool {
        self.delivered.len() as u64 > self.queued_units
    }

    /// Units between those delivered that were not.
    fn missing(&self) -> u64 {
        let missing = |(low, high, seen): &(u64, u64, u64)| {
            (high - low).saturating_add(1).saturating_sub(*seen)
        };
        self.numbers.values().map(missing).fold(0, u64::saturating_add)
    }

    fn add(&mut self, event: &Event) {
        let at = event.time / 1e3;
        if !at.is_finite() || at < 0.0 {
            return;
        }
        self.end_s = self.end_s.max(at);
        let data = &event.data;
        let length = data.raw.as_ref().and_then(|raw| raw.length).unwrap_or_default();
        let unit = data.flow.unwrap_or_default();
        let unit = (unit, data.unit.unwrap_or_default());
        match event.name.as_str() {
            "quic:packet_sent" => self.sent.push((at, length)),
            "quic:packet_received" => self.received += 1,
            "quic:packet_lost" => self.lost.push((at, 1.0)),
            "quic:recovery_metrics_updated" => {
                let millis = data.smoothed_rtt.map(|rtt| rtt / 1e3);
                self.window.extend(data.congestion_window.map(|value| (at, value)));
                self.in_flight.extend(data.bytes_in_flight.map(|value| (at, value)));
                self.round_trip.extend(millis.map(|value| (at, value)));
                self.pacing.extend(data.pacing_rate.map(|value| (at, value)));
            }
            "ontempo:unit_queued" => {
                self.queued_units += 1;
                self.queued.insert(unit, at);
            }
            "ontempo:unit_arrived" => {
                let queued = self.queued.remove(&unit);
                self.delays.extend(queued.map(|queued| (at, at - queued)));
            }
            "ontempo:unit_dropped" => {
                self.dropped_at.extend(self.queued.remove(&unit).map(|queued| (queued, 0.0)));
                self.dropped += 1;
            }
            "ontempo:unit_delivered" => {
                self.delivered.push((at, data.length.unwrap_or_default()));
                let (flow, number) = unit;
                let seen = self.numbers.entry(flow).or_insert((number, number, 0));
                *seen = (seen.0.min(number), seen.1.max(number), seen.2.saturating_add(1));
            }
            _ => {}
        }
    }
}

/// Whether `path` is called as a trace.
pub(crate) fn is_trace(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sqlog")
}

/// Reads the trace in `path`.
pub(crate) fn read(path: &Path) -> Result<Run, PageError> {
    let file = open_regular(path).map_err(|error| PageError::reading(path, &error))?;
    let size = file.metadata().map_err(|error| PageError::reading(path, &error))?.len();
    if size > MAX_TRACE_BYTES {
        let sentence = format!("it has {size} bytes, of at most {MAX_TRACE_BYTES}");
        return Err(PageError::reading(path, &io::Error::other(sentence)));
    }
    let mut records = BufReader::new(file.take(MAX_TRACE_BYTES));
    let failed = |what: String| PageError::Environment(format!("{}: {what}", path.display()));
    let first = next(&mut records, path)?.unwrap_or_default();
    let header: Header = serde_json::from_slice(&first)
        .map_err(|error| failed(format!("record 1: no header of a qlog trace: {error}")))?;
    if header.file_schema != FILE_SCHEMA {
        let found = printable(&header.file_schema).into_owned();
        return Err(failed(format!(
            "record 1: file_schema is `{found}`; this program reads `{FILE_SCHEMA}`"
        )));
    }
    let format = &header.trace.common_fields.time_format;
    if format != "relative_to_epoch" {
        let found = printable(format).into_owned();
        return Err(failed(format!(
            "record 1: time_format is `{found}`; this program reads `relative_to_epoch`, in milliseconds"
        )));
    }
    let mut trace = Trace { records: 1, ..Trace::default() };
    let mut notes = Vec::new();
    while let Some(record) = next(&mut records, path)? {
        trace.records += 1;
        match serde_json::from_slice::<Event>(&record) {
            Ok(event) => trace.add(&event),
            // What wrote it may have been killed.
            Err(_) if next(&mut records, path)?.is_none() => {
                notes.push("its last record is cut off".to_owned());
                break;
            }
            Err(error) => {
                return Err(failed(format!("record {}: {error}", trace.records)));
            }
        }
    }
    let mut run = drawn(path, &header, trace);
    run.notes = notes;
    Ok(run)
}

/// The next record without its separators; `None` at the end.
fn next(records: &mut impl BufRead, path: &Path) -> Result<Option<Vec<u8>>, PageError> {
    let mut record = Vec::new();
    let read = records.by_ref().take(MAX_RECORD_BYTES).read_until(b'\n', &mut record);
    read.map_err(|error| PageError::reading(path, &error))?;
    if record.len() as u64 == MAX_RECORD_BYTES {
        return Err(PageError::Environment(format!(
            "{}: a record has more than {MAX_RECORD_BYTES} bytes",
            path.display()
        )));
    }
    let begin = usize::from(record.first() == Some(&0x1e));
    record.drain(..begin);
    Ok((!record.is_empty()).then_some(record))
}

fn drawn(path: &Path, header: &Header, trace: Trace) -> Run {
    let side = match header.trace.vantage_point.kind.as_str() {
        "client" => "client",
        "server" => "server",
        _ => "trace",
    };
    let id = printable(&header.trace.common_fields.group_id).into_owned();
    let mut run = Run {
        name: printable(&path.display().to_string()).into_owned(),
        short: format!("{side} {}", id.chars().take(SHORT_ID).collect::<String>()),
        title: format!("Connection {id}, {side}"),
        facts: vec![("", "delivery over QUIC".to_owned())],
        end_s: trace.end_s,
        parts: vec![ReadPart { name: "qlog".to_owned(), rows: trace.records }],
        ..Run::default()
    };
    if !header.title.is_empty() {
        run.facts.push(("written by", printable(&header.title).into_owned()));
    }
    let is_receivers = trace.is_receivers();
    run.headlines.push(headline(side, &trace));
    draw_rates(&mut run, &trace);
    if !is_receivers {
        draw_units(&mut run, &trace, side);
    }
    run.draw(Chart::RoundTrip, "round trip", "smoothed", Shape::Line(trace.round_trip));
    // What a receiver sends are acknowledgements: its window limits nothing.
    if !is_receivers {
        run.draw(Chart::Rates, "pacing rate", "limit of the sender", Shape::Limit(trace.pacing));
        run.draw(Chart::WindowBytes, "window", "", Shape::Steps(trace.window));
        run.draw(Chart::WindowBytes, "in flight", "", Shape::Points(trace.in_flight));
        let mut sorted: Vec<f64> = trace.delays.iter().map(|delay| delay.1).collect();
        sorted.sort_by(f64::total_cmp);
        run.draw(
            Chart::Delays,
            "units",
            "from queueing until acknowledged",
            Shape::Line(tail(&sorted)),
        );
        run.draw(Chart::UnitDelay, "units", UNITS, Shape::Line(trace.delays));
    }
    let why = if is_receivers {
        "a receiver's trace has neither windows nor delays nor which units were late: take the \
         sender's, too"
    } else {
        "a trace has no queue of a link, no capacity, no deadlines, and packets lost but not of \
         which unit: which units were late or repaired it does not tell"
    };
    run.absent.push(crate::model::Absent {
        what: "the network".to_owned(),
        why: Some(why.to_owned()),
        lines: Vec::new(),
    });
    run
}

/// Each unit by the time at which it was queued, and how many were acknowledged in time.
fn draw_units(run: &mut Run, trace: &Trace, side: &str) {
    let counted = |points: &[Point]| {
        let share = points.len() as f64 / trace.queued_units.max(1) as f64;
        format!("{}, {} of all", numbers::count(points.len() as u64), numbers::percent(share))
    };
    let in_order = |mut points: Vec<Point>| {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        apart(points)
    };
    let arrived = trace.delays.iter().map(|(at, delay)| (at - delay, *delay)).collect();
    let open = trace.queued.values().map(|queued| (*queued, 0.0)).collect();
    for (label, form, points) in [
        ("acknowledged", Form::Unit, arrived),
        ("neither acknowledged nor dropped", Form::LostSound, open),
        ("dropped", Form::Lost, trace.dropped_at.clone()),
    ] {
        let name = (label.to_owned(), counted(&points));
        run.draw_of((Chart::Units, side), name, Shape::Symbols(form, in_order(points)));
    }
    let mut sorted: Vec<f64> = trace.delays.iter().map(|delay| delay.1).collect();
    sorted.sort_by(f64::total_cmp);
    let points = within(&sorted, trace.queued_units);
    run.draw(Chart::Acknowledged, "units", "of those queued", Shape::Steps(points));
}

/// Rates of what was sent and delivered, and losses, in intervals.
fn draw_rates(run: &mut Run, trace: &Trace) {
    let width = width_of(trace.end_s);
    let per_second = |points: &[Point], factor: f64| {
        let rate = |(at, sum): Point| (at, sum * factor / width);
        Shape::Steps(summed(points, width, trace.end_s).into_iter().map(rate).collect())
    };
    let span = numbers::seconds(width);
    if !trace.delivered.is_empty() && trace.is_receivers() {
        let detail = format!("in units, means over {span}");
        run.draw(Chart::Rates, "delivered", detail, per_second(&trace.delivered, 8.0));
    } else if !trace.sent.is_empty() {
        let detail = format!("in packets, means over {span}");
        run.draw(Chart::Rates, "sent", detail, per_second(&trace.sent, 8.0));
    }
    if !trace.lost.is_empty() && !trace.is_receivers() {
        let lost = numbers::count(trace.lost.len() as u64);
        let detail = format!("{lost}, counted over {span}");
        run.draw(Chart::Losses, "declared lost", detail, per_second(&trace.lost, 1.0));
    }
}

fn headline(side: &str, trace: &Trace) -> Headline {
    let is_receivers = trace.is_receivers();
    let bytes = if is_receivers { &trace.delivered } else { &trace.sent };
    let bytes: f64 = bytes.iter().map(|point| point.1).sum();
    let (packets, units) = if is_receivers {
        (
            format!("{} packets received", numbers::count(trace.received)),
            trace.delivered.len() as u64,
        )
    } else {
        (format!("{} packets sent", numbers::count(trace.sent.len() as u64)), trace.queued_units)
    };
    let mut detail = format!("{packets}, {} units", numbers::count(units));
    if trace.dropped > 0 {
        detail += &format!(", {} dropped", numbers::count(trace.dropped));
    }
    if is_receivers && trace.missing() > 0 {
        detail += &format!(", {} between them missing", numbers::count(trace.missing()));
    }
    let mut sorted: Vec<f64> = trace.delays.iter().map(|delay| delay.1).collect();
    sorted.sort_by(f64::total_cmp);
    let sent = trace.sent.len() as f64;
    Headline {
        group: side.to_owned(),
        detail,
        rate_bps: (trace.end_s > 0.0 && bytes > 0.0).then(|| bytes * 8.0 / trace.end_s),
        rate_of: (!is_receivers).then_some("sent, not goodput"),
        loss: (sent > 0.0 && !is_receivers).then(|| trace.lost.len() as f64 / sent),
        delays: Delays::of("units, until acknowledged", &sorted).filter(|_| !is_receivers),
        rtt_s: trace.round_trip.last().map(|point| point.1),
        ..Headline::default()
    }
}
