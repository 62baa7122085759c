//! What is read from one run, of any world, before it is drawn.

use serde::Serialize;

use crate::film::Film;
use crate::reduce::{BandRow, Point};

/// A chart of the page; they appear in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Chart {
    /// Share of pictures that a player of each latency shows on time.
    OnTime,
    /// Latencies of the frames of films, compared.
    FrameLatency,
    /// Share of pictures that are not shown, over time.
    NotShown,
    /// Each frame of one film.
    Frames,
    /// Each unit of one trace.
    Units,
    /// Bits per second of groups beside the capacity of links.
    Rates,
    /// The same of single flows.
    FlowRates,
    /// Packets that wait before a link.
    Queue,
    /// How long each packet waits before a link.
    Waiting,
    /// Packets lost, by cause.
    Losses,
    /// Congestion windows in packets.
    Window,
    /// Congestion windows in bytes.
    WindowBytes,
    /// Smoothed round-trip times.
    RoundTrip,
    /// Spacing of packets.
    Spacing,
    /// Units that wait for their application.
    Buffered,
    /// Delay of units of a stream.
    UnitDelay,
    /// Delay of messages.
    MessageDelay,
    /// Share of delays above each value.
    Delays,
    /// Share of the units of a trace that were acknowledged within each time.
    Acknowledged,
    /// Share of late units for each start-up delay.
    Late,
}

impl Chart {
    /// Title, unit of values, and what is drawn.
    pub(crate) fn about(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::OnTime | Self::FrameLatency | Self::NotShown | Self::Frames | Self::Units => {
                self.about_film()
            }
            Self::Rates => ("Rates", "bit/s", "Sum of each group; dashed: capacity"),
            Self::FlowRates => ("Rate of each flow", "bit/s", "Median, and 10 to 90 % of flows"),
            Self::Queue => ("Queue", "packets", "Packets that wait before a link"),
            Self::Waiting => {
                ("Waiting time in the queue", "s", "From arrival to transmission, each packet")
            }
            Self::Losses => ("Losses", "packets/s", "Packets dropped or lost, by cause"),
            Self::Window => {
                ("Congestion window", "packets", "Each flow, or median and 10 to 90 % of flows")
            }
            Self::WindowBytes => ("Congestion window", "B", "Line: window; points: in flight"),
            Self::RoundTrip => {
                ("Round-trip time", "s", "Smoothed; each flow, or median and 10 to 90 % of flows")
            }
            Self::Spacing => {
                ("Packet spacing", "s", "Each flow, or median and 10 to 90 % of flows")
            }
            Self::Buffered => ("Units that wait for the application", "units", "Each flow"),
            Self::UnitDelay => (
                "Delay of units",
                "s",
                "From due to delivered, by time due; in a trace, until acknowledged",
            ),
            Self::MessageDelay => ("Delay of messages", "s", "By time of arrival"),
            Self::Delays => ("How many take longer", "share", "Share of delays above each value"),
            Self::Acknowledged => {
                ("Units acknowledged", "share", "Of all queued, within each time")
            }
            Self::Late => ("Late units", "share", "For each start-up delay"),
        }
    }

    /// The same of films and traces.
    fn about_film(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::OnTime => (
                "Pictures on time",
                "share",
                "Decodable in time for a player of each latency; dashed: the players of the scenario",
            ),
            Self::FrameLatency => (
                "Latency of frames, compared",
                "s",
                "Median and 5 to 99 % of the frames that arrived whole, by time of sending",
            ),
            Self::NotShown => (
                "Pictures not shown",
                "share",
                "Late, lost, or in need of one that is; for the largest latency of a player",
            ),
            Self::Frames => (
                "Frames",
                "s",
                "Latency until whole, by time of sending; at the top: what was not whole by the end. \
                 Shaded: the picture stands still",
            ),
            Self::Units => (
                "Units",
                "s",
                "From queueing until acknowledged, by time of queueing; at the top: dropped, and those \
                 of which the trace tells neither",
            ),
            _ => ("", "", ""),
        }
    }

    /// Whether its horizontal axis is the time of the run.
    pub(crate) fn is_over_time(self) -> bool {
        !matches!(self, Self::OnTime | Self::Delays | Self::Acknowledged | Self::Late)
    }

    /// Whether it is of one film or trace, whose lines are told apart by form.
    pub(crate) fn is_of_one(self) -> bool {
        matches!(self, Self::Frames | Self::Units)
    }

    /// Whether it is of films.
    pub(crate) fn is_of_films(self) -> bool {
        matches!(self, Self::OnTime | Self::FrameLatency | Self::NotShown) || self.is_of_one()
    }

    /// Whether it is only worth drawing with several contenders.
    pub(crate) fn compares(self) -> bool {
        matches!(self, Self::FrameLatency | Self::NotShown)
    }

    /// Whether its lines are curves of shares, which hold from the least value of all to the
    /// largest.
    pub(crate) fn is_distribution(self) -> bool {
        matches!(self, Self::OnTime | Self::Acknowledged)
    }
}

/// The form of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Form {
    Key,
    Reference,
    Disposable,
    Sound,
    /// A unit of a trace.
    Unit,
    /// A frame that is there, but cannot be decoded on time.
    Undecodable,
    /// A picture or a unit that is not there: at the chart's top, whatever its value.
    Lost,
    /// Sound that is not there: the same.
    LostSound,
}

impl Form {
    pub(crate) fn has_value(self) -> bool {
        !matches!(self, Self::Lost | Self::LostSound)
    }
}

/// How a line is drawn.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    /// Straight from point to point.
    Line(Vec<Point>),
    /// A value holds until the next.
    Steps(Vec<Point>),
    /// A value that data are compared with, such as a capacity; it holds until the next.
    Limit(Vec<Point>),
    /// Single points.
    Points(Vec<Point>),
    /// A middle value in a band.
    Band(Vec<BandRow>),
    /// Single points of a form that tells what they are.
    Symbols(Form, Vec<Point>),
    /// From and to: shaded from bottom to top.
    Spans(Vec<Point>),
}

impl Shape {
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Line(points)
            | Self::Steps(points)
            | Self::Limit(points)
            | Self::Points(points)
            | Self::Symbols(_, points)
            | Self::Spans(points) => points.is_empty(),
            Self::Band(rows) => rows.is_empty(),
        }
    }
}

/// A line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) chart: Chart,
    /// The film or trace that the chart is of, if it is of one.
    pub(crate) film: String,
    /// The group, flow or link: its colour if there is one run.
    pub(crate) label: String,
    /// What exactly is drawn.
    pub(crate) detail: String,
    pub(crate) shape: Shape,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Mark {
    #[serde(rename = "at")]
    pub(crate) at_s: f64,
    /// Events of one lane are drawn on one height.
    pub(crate) lane: String,
    pub(crate) text: String,
    /// It concerns all: a line through every chart.
    #[serde(rename = "all")]
    pub(crate) concerns_all: bool,
}

/// Charts that a run has no data for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Absent {
    /// What is not drawn, in words.
    pub(crate) what: String,
    /// Why, if no line of a scenario would record it.
    pub(crate) why: Option<String>,
    /// The lines of a scenario that record it.
    pub(crate) lines: Vec<String>,
}

/// Percentiles of delays.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Delays {
    /// What was delayed: units, messages.
    pub(crate) of: &'static str,
    pub(crate) p50_s: f64,
    pub(crate) p95_s: f64,
    pub(crate) p99_s: f64,
}

impl Delays {
    /// `None` if `sorted` is empty.
    pub(crate) fn of(of: &'static str, sorted: &[f64]) -> Option<Self> {
        let at = |share| crate::reduce::quantile(sorted, share);
        Some(Self { of, p50_s: at(0.5)?, p95_s: at(0.95)?, p99_s: at(0.99)? })
    }
}

/// Units that came too late with one start-up delay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Late {
    pub(crate) startup_s: f64,
    pub(crate) units: u64,
    pub(crate) late: u64,
}

impl Late {
    pub(crate) fn share(&self) -> f64 {
        if self.units == 0 { 0.0 } else { self.late as f64 / self.units as f64 }
    }
}

/// What happened to one group of flows, in a row.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Headline {
    pub(crate) group: String,
    /// Number of flows, transport, congestion controller.
    pub(crate) detail: String,
    /// Sum over the flows of the group; for a trace, the rate of sending.
    pub(crate) rate_bps: Option<f64>,
    /// What the rate is of, where it is no goodput.
    pub(crate) rate_of: Option<&'static str>,
    /// The same as a share of the capacity of the slowest link on its way, 0 to 1.
    pub(crate) share_of_capacity: Option<f64>,
    /// Share of sent packets that were lost, 0 to 1.
    pub(crate) loss: Option<f64>,
    pub(crate) late: Vec<Late>,
    pub(crate) delays: Option<Delays>,
    /// Mean smoothed round-trip time at the end.
    pub(crate) rtt_s: Option<f64>,
}

/// Packets that one link lost, by cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct LinkLosses {
    pub(crate) link: String,
    pub(crate) arrivals: u64,
    pub(crate) full: u64,
    pub(crate) early: u64,
    pub(crate) wire: u64,
    pub(crate) policer: u64,
    pub(crate) corrupted: u64,
    /// Share of the time spent transmitting, 0 to 1.
    pub(crate) busy: f64,
    /// Time average of the packets waiting.
    pub(crate) mean_packets: f64,
}

impl LinkLosses {
    pub(crate) fn lost(&self) -> u64 {
        let causes = [self.full, self.early, self.wire, self.policer, self.corrupted];
        causes.into_iter().fold(0, u64::saturating_add)
    }
}

/// A table or file that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReadPart {
    /// Table, or `qlog`.
    pub name: String,
    /// Rows, or records.
    pub rows: usize,
}

/// One run, read.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The path by which it was named.
    pub(crate) name: String,
    /// A short name, where it is no other run's.
    pub(crate) short: String,
    pub(crate) title: String,
    /// World, seed and the like: name and value.
    pub(crate) facts: Vec<(&'static str, String)>,
    pub(crate) end_s: f64,
    pub(crate) headlines: Vec<Headline>,
    pub(crate) losses: Vec<LinkLosses>,
    pub(crate) films: Vec<Film>,
    /// Latencies of players that were asked for.
    pub(crate) players: Vec<f64>,
    pub(crate) lines: Vec<Line>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) absent: Vec<Absent>,
    /// Sentences on what is not drawn whole.
    pub(crate) notes: Vec<String>,
    pub(crate) parts: Vec<ReadPart>,
}

impl Run {
    pub(crate) fn draw(
        &mut self,
        chart: Chart,
        label: impl Into<String>,
        detail: impl Into<String>,
        shape: Shape,
    ) {
        if !shape.is_empty() {
            let (label, detail) = (label.into(), detail.into());
            self.lines.push(Line { chart, film: String::new(), label, detail, shape });
        }
    }

    /// Draws into a chart of one film; `name`: label and detail.
    pub(crate) fn draw_of(
        &mut self,
        (chart, film): (Chart, &str),
        name: (String, String),
        shape: Shape,
    ) {
        if !shape.is_empty() {
            let (film, (label, detail)) = (film.to_owned(), name);
            self.lines.push(Line { chart, film, label, detail, shape });
        }
    }

    pub(crate) fn draws(&self, chart: Chart) -> bool {
        self.lines.iter().any(|line| line.chart == chart)
    }

    pub(crate) fn lacks(&mut self, what: &str, lines: &[&str]) {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        self.absent.push(Absent { what: what.to_owned(), why: None, lines });
    }
}
