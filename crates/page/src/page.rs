//! From runs to the charts of a page: lines of a bounded number of points.

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use crate::model::{Absent, Chart, Form, Line, Mark, ReadPart, Run, Shape};
use crate::reduce::{Point, bands, extremes, joined};

/// Runs of one page.
pub const MAX_RUNS: usize = 16;

/// All points of a page together, roughly: some 14 bytes each.
const MAX_POINTS: usize = 200_000;

/// Points of a line, or rows of a band, at most; each interval has two points.
const MAX_INTERVALS: usize = 2_000;

/// At least.
const MIN_INTERVALS: usize = 100;

/// Latencies of players that are marked, at most.
const MAX_PLAYERS: usize = 8;

/// Charts of the frames of one film, at most.
const MAX_FRAME_CHARTS: usize = MAX_RUNS;

/// One page.
#[derive(Clone, Debug, Serialize)]
pub struct Page {
    #[serde(skip)]
    pub(crate) runs: Vec<Run>,
    /// What the script draws.
    pub(crate) charts: Vec<DrawnChart>,
    pub(crate) names: Vec<String>,
    pub(crate) marks: Vec<RunMark>,
    /// End of the longest run.
    end: Short,
    /// Groups, then links and the like.
    #[serde(skip)]
    pub(crate) labels: Vec<String>,
    #[serde(skip)]
    pub(crate) notes: Vec<String>,
}

/// A chart with at least one line.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DrawnChart {
    #[serde(skip)]
    pub(crate) chart: Chart,
    /// The element's: the chart's name, with a number if there are several.
    pub(crate) id: String,
    pub(crate) title: &'static str,
    /// The one run that it is of.
    pub(crate) run: Option<usize>,
    /// The film that it is of.
    #[serde(skip)]
    pub(crate) film: String,
    unit: &'static str,
    pub(crate) about: &'static str,
    time: bool,
    /// Values that are marked on the horizontal axis.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    marked: Vec<f64>,
    pub(crate) lines: Vec<DrawnLine>,
}

/// A line of one run, or of several with the same limit.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DrawnLine {
    run: usize,
    /// Its colour: that of the run, or of the label if there is one run.
    color: usize,
    /// With several runs: how the lines of its label in this chart are dashed.
    dash: usize,
    pub(crate) label: String,
    detail: String,
    shape: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    form: Option<Form>,
    x: Shorts,
    y: Shorts,
    #[serde(skip_serializing_if = "Shorts::is_empty")]
    low: Shorts,
    #[serde(skip_serializing_if = "Shorts::is_empty")]
    high: Shorts,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RunMark {
    run: usize,
    #[serde(flatten)]
    mark: Mark,
}

/// What was read and what is drawn, for `--json`.
#[derive(Clone, Debug, Serialize)]
pub struct Contents {
    /// The runs, in the order in which they were named.
    pub runs: Vec<RunContents>,
    /// The charts, in their order on the page.
    pub charts: Vec<ChartContents>,
    /// What is not drawn whole.
    pub notes: Vec<String>,
}

/// What was read of one run.
#[derive(Clone, Debug, Serialize)]
pub struct RunContents {
    /// Its path.
    pub run: String,
    /// The scenario's title.
    pub title: String,
    /// Tables, or the trace.
    pub tables: Vec<ReadPart>,
    /// What was not recorded.
    pub missing: Vec<Missing>,
}

/// What a run did not record.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    /// In words.
    pub what: String,
    /// Lines of the scenario that record it.
    pub scenario: Vec<String>,
}

/// One chart.
#[derive(Clone, Debug, Serialize)]
pub struct ChartContents {
    /// Its name.
    pub chart: Chart,
    /// Its title.
    pub title: &'static str,
    /// The film whose frames it shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub film: Option<String>,
    /// How many lines it has.
    pub lines: usize,
    /// How many points they have.
    pub points: usize,
}

/// Six digits of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Short(f64);

impl Serialize for Short {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = self.0;
        if !value.is_finite() {
            return serializer.serialize_none();
        }
        if value.fract() == 0.0 && value.abs() < 1e15 {
            return serializer.serialize_i64(value as i64);
        }
        serializer.serialize_f64(value)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Shorts(Vec<f64>);

impl Shorts {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Shorts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(Some(self.0.len()))?;
        for value in &self.0 {
            seq.serialize_element(&Short(*value))?;
        }
        seq.end()
    }
}

/// A time, to the microsecond.
fn time(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

/// Five significant digits.
fn value(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(4 - value.abs().log10().floor() as i32);
    if scale.is_finite() && scale > 0.0 { (value * scale).round() / scale } else { value }
}

impl Page {
    /// The page of these runs, at most [`MAX_RUNS`].
    #[must_use]
    pub fn of(mut runs: Vec<Run>) -> Self {
        runs.truncate(MAX_RUNS);
        let end = runs.iter().map(|run| run.end_s).fold(0.0, f64::max);
        let mut lines: Vec<(usize, Line)> = Vec::new();
        for (place, run) in runs.iter_mut().enumerate() {
            lines.extend(std::mem::take(&mut run.lines).into_iter().map(|line| (place, line)));
        }
        // A limit that several runs share is one line.
        let mut limits: Vec<(Chart, String, Shape)> = Vec::new();
        lines.retain(|(_, line)| {
            let is_limit = matches!(line.shape, Shape::Limit(_)) && !line.chart.is_of_one();
            let limit = (line.chart, line.label.clone(), line.shape.clone());
            let is_known = is_limit && limits.contains(&limit);
            if is_limit && !is_known {
                limits.push(limit);
            }
            !is_known
        });
        let contenders = lines.iter().filter(|(_, line)| line.chart == Chart::OnTime).count();
        lines.retain(|(_, line)| contenders > 1 || !line.chart.compares());
        // Of a single trace, each unit is drawn already.
        let draws_units = lines.iter().any(|(_, line)| line.chart == Chart::Units);
        lines.retain(|(_, line)| runs.len() > 1 || !draws_units || line.chart != Chart::UnitDelay);
        lines.sort_by_key(|(_, line)| line.chart);
        let intervals = MAX_POINTS / (2 * lines.len().max(1));
        let intervals = intervals.clamp(MIN_INTERVALS, MAX_INTERVALS);
        let mut is_reduced = false;
        let mut charts = charts(&lines, intervals, end, &mut is_reduced);
        let mut notes = notes(&runs);
        number(&mut charts, &mut notes);
        charts.iter_mut().filter(|chart| chart.chart.is_distribution()).for_each(extend);
        // A limit of nothing says nothing.
        charts.retain(|chart| chart.lines.iter().any(|line| line.shape != "limit"));
        if let Some(chart) = charts.iter_mut().find(|chart| chart.chart == Chart::OnTime) {
            chart.marked = players(&runs);
        }
        let labels = labels(&runs, &charts);
        color(&mut charts, &labels, runs.len());
        let marks = marks(&mut runs);
        if is_reduced {
            notes.push(format!(
                "lines of more than {} points are reduced to the smallest and the largest value of each of {intervals} intervals, bands to {intervals} rows",
                2 * intervals
            ));
        }
        let names = names(&runs);
        Self { runs, charts, names, marks, end: Short(time(end)), labels, notes }
    }

    /// What was read and what is drawn.
    #[must_use]
    pub fn contents(&self) -> Contents {
        let missing =
            |absent: &Absent| Missing { what: absent.what.clone(), scenario: absent.lines.clone() };
        let run = |run: &Run| RunContents {
            run: run.name.clone(),
            title: run.title.clone(),
            tables: run.parts.clone(),
            missing: run.absent.iter().map(missing).collect(),
        };
        let chart = |chart: &DrawnChart| ChartContents {
            chart: chart.chart,
            title: chart.title,
            film: Some(&chart.film).filter(|film| !film.is_empty()).cloned(),
            lines: chart.lines.len(),
            points: chart.lines.iter().map(|line| line.x.0.len()).sum(),
        };
        Contents {
            runs: self.runs.iter().map(run).collect(),
            charts: self.charts.iter().map(chart).collect(),
            notes: self.notes.clone(),
        }
    }
}

fn charts(
    lines: &[(usize, Line)],
    intervals: usize,
    end: f64,
    is_reduced: &mut bool,
) -> Vec<DrawnChart> {
    let same = |a: &(usize, Line), b: &(usize, Line)| {
        let of_one = a.1.chart.is_of_one();
        a.1.chart == b.1.chart && (!of_one || (a.0 == b.0 && a.1.film == b.1.film))
    };
    let chart = |lines: &[(usize, Line)]| {
        let (run, first) = &lines[0];
        let chart = first.chart;
        let (title, unit, about) = chart.about();
        let id = serde_json::to_value(chart).ok();
        DrawnChart {
            chart,
            id: id.and_then(|id| id.as_str().map(str::to_owned)).unwrap_or_default(),
            title,
            run: chart.is_of_one().then_some(*run),
            film: first.film.clone(),
            unit,
            about,
            time: chart.is_over_time(),
            marked: Vec::new(),
            lines: lines
                .iter()
                .map(|(run, line)| drawn(*run, line, intervals, end, is_reduced))
                .collect(),
        }
    };
    lines.chunk_by(same).map(chart).collect()
}

/// Numbers the charts of one film each, and leaves out those that are too many.
fn number(charts: &mut Vec<DrawnChart>, notes: &mut Vec<String>) {
    let found = charts.iter().filter(|chart| chart.chart.is_of_one()).count();
    let mut place = 0;
    charts.retain_mut(|chart| {
        if !chart.chart.is_of_one() {
            return true;
        }
        place += 1;
        if found > 1 {
            chart.id = format!("{}-{place}", chart.id);
        }
        place <= MAX_FRAME_CHARTS
    });
    if let Some(more) = found.checked_sub(MAX_FRAME_CHARTS).filter(|more| *more > 0) {
        notes.push(format!(
            "frames are drawn one by one of the first {MAX_FRAME_CHARTS} films; {more} are left out"
        ));
    }
}

/// Curves of shares hold from the least value of all lines to the largest.
fn extend(chart: &mut DrawnChart) {
    let values = || chart.lines.iter().flat_map(|line| line.x.0.iter().copied());
    let (least, largest) =
        (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    for line in &mut chart.lines {
        let (x, y) = (&mut line.x.0, &mut line.y.0);
        if x.first().is_some_and(|first| *first > least) {
            x.insert(0, least);
            y.insert(0, 0.0);
        }
        if let (Some(x_last), Some(y_last)) = (x.last().copied(), y.last().copied())
            && x_last < largest
        {
            x.push(largest);
            y.push(y_last);
        }
    }
}

/// Latencies of players that any run asks for.
fn players(runs: &[Run]) -> Vec<f64> {
    let mut players: Vec<f64> = runs.iter().flat_map(|run| run.players.iter().copied()).collect();
    players.sort_by(f64::total_cmp);
    players.dedup();
    players.truncate(MAX_PLAYERS);
    players
}

fn drawn(run: usize, line: &Line, intervals: usize, end: f64, is_reduced: &mut bool) -> DrawnLine {
    let mut drawn = DrawnLine {
        run,
        color: 0,
        dash: 0,
        label: line.label.clone(),
        detail: line.detail.clone(),
        shape: "",
        form: None,
        x: Shorts::default(),
        y: Shorts::default(),
        low: Shorts::default(),
        high: Shorts::default(),
    };
    let mut reduce = |points: &[Point]| {
        let reduced = extremes(points, intervals);
        *is_reduced |= reduced.len() < points.len();
        reduced
    };
    let (shape, points) = match &line.shape {
        Shape::Line(points) => ("line", reduce(points)),
        Shape::Steps(points) => ("steps", reduce(points)),
        Shape::Points(points) => ("points", reduce(points)),
        Shape::Symbols(form, points) => {
            drawn.form = Some(*form);
            ("symbols", reduce(points))
        }
        Shape::Spans(spans) => {
            let joined = joined(spans, intervals);
            *is_reduced |= joined.len() < spans.len();
            ("spans", joined)
        }
        Shape::Limit(points) => {
            let mut points = reduce(points);
            // It holds to the end.
            points.extend(points.last().filter(|last| last.0 < end).map(|last| (end, last.1)));
            ("limit", points)
        }
        Shape::Band(rows) => {
            let reduced = bands(rows, intervals);
            *is_reduced |= reduced.len() < rows.len();
            drawn.low = Shorts(reduced.iter().map(|row| value(row[1])).collect());
            drawn.high = Shorts(reduced.iter().map(|row| value(row[3])).collect());
            ("band", reduced.iter().map(|row| (row[0], row[2])).collect())
        }
    };
    let across = |at: f64| if line.chart.is_over_time() { time(at) } else { value(at) };
    drawn.shape = shape;
    drawn.x = Shorts(points.iter().map(|point| across(point.0)).collect());
    let has_value = drawn.form.is_none_or(Form::has_value);
    let upward = |point: &Point| match (has_value, &line.shape) {
        (false, _) => f64::NAN,
        (true, Shape::Spans(_)) => time(point.1),
        (true, _) => value(point.1),
    };
    drawn.y = Shorts(points.iter().map(upward).collect());
    drawn
}

/// The groups in the order of the headlines, then what else lines are labelled with.
fn labels(runs: &[Run], charts: &[DrawnChart]) -> Vec<String> {
    let groups = runs.iter().flat_map(|run| run.headlines.iter().map(|row| &row.group));
    let of_all = charts.iter().filter(|chart| !chart.chart.is_of_one());
    let lines = of_all.flat_map(|chart| &chart.lines);
    let others = lines.filter(|line| line.shape != "limit").map(|line| &line.label);
    let mut labels: Vec<String> = Vec::new();
    for label in groups.chain(others) {
        if !labels.contains(label) {
            labels.push(label.clone());
        }
    }
    labels
}

fn color(charts: &mut [DrawnChart], labels: &[String], runs: usize) {
    for chart in charts.iter_mut().filter(|chart| !chart.chart.is_of_one()) {
        let mut here: Vec<String> = Vec::new();
        for line in chart.lines.iter_mut().filter(|line| line.shape != "limit") {
            let place = labels.iter().position(|label| *label == line.label).unwrap_or_default();
            if !here.contains(&line.label) {
                here.push(line.label.clone());
            }
            let dash = here.iter().position(|label| *label == line.label).unwrap_or_default();
            (line.color, line.dash) = if runs > 1 { (line.run, dash) } else { (place, 0) };
        }
    }
}

fn marks(runs: &mut [Run]) -> Vec<RunMark> {
    let mut marks = Vec::new();
    for (place, run) in runs.iter_mut().enumerate() {
        let of_run = std::mem::take(&mut run.marks);
        marks.extend(
            of_run
                .into_iter()
                .map(|mark| RunMark { run: place, mark: Mark { at_s: time(mark.at_s), ..mark } }),
        );
    }
    marks
}

/// The short name of each run, or its path if another has the same short one.
fn names(runs: &[Run]) -> Vec<String> {
    let name = |run: &Run| {
        let alike = runs.iter().filter(|other| other.short == run.short).count();
        if alike > 1 || run.short.is_empty() { run.name.clone() } else { run.short.clone() }
    };
    runs.iter().map(name).collect()
}

/// The notes of the runs; with several, each names its run.
fn notes(runs: &[Run]) -> Vec<String> {
    let one = |run: &Run| {
        let name = if runs.len() > 1 { format!("{}: ", run.name) } else { String::new() };
        run.notes.iter().map(move |note| format!("{name}{note}")).collect::<Vec<_>>()
    };
    runs.iter().flat_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run with a line of this many points in each of these charts, and a capacity.
    fn run(points: u32, charts: &[Chart]) -> Run {
        let mut run = Run { name: "a".to_owned(), end_s: 60.0, ..Run::default() };
        for chart in charts {
            let point = |n: u32| (f64::from(n) * 60.0 / f64::from(points), f64::from(n % 997));
            let line = Shape::Line((0..points).map(point).collect());
            run.draw(*chart, "group", "", line);
        }
        run.draw(Chart::Rates, "bottleneck", "capacity", Shape::Limit(vec![(0.0, 1e6)]));
        run
    }

    #[test]
    fn a_page_has_a_bounded_number_of_points_and_says_that_lines_are_reduced() {
        let charts = [Chart::Rates, Chart::Queue, Chart::Window, Chart::RoundTrip];
        let page = Page::of((0..MAX_RUNS).map(|_| run(100_000, &charts)).collect());
        let points: usize = page.contents().charts.iter().map(|chart| chart.points).sum();
        assert!(points <= MAX_POINTS + 2 * 4 * MAX_RUNS && points > MAX_POINTS / 2, "{points}");
        let size = page.html().len();
        assert!(size < 5_000_000, "{size} bytes");
        assert!(page.notes.iter().any(|note| note.contains("reduced")), "{:?}", page.notes);
        // The largest value is still there.
        let largest = page.charts[1].lines[0].y.0.iter().copied().fold(0.0, f64::max);
        assert_eq!(largest, 996.0);
        assert!(Page::of(vec![run(100, &charts)]).notes.is_empty());
    }

    #[test]
    fn runs_share_a_capacity_that_is_the_same() {
        let page = Page::of(vec![run(10, &[Chart::Rates]), run(10, &[Chart::Rates])]);
        let lines = &page.charts[0].lines;
        let limits: Vec<_> = lines.iter().filter(|line| line.shape == "limit").collect();
        assert_eq!((lines.len(), limits.len()), (3, 1));
        assert_eq!(limits[0].x.0, [0.0, 60.0], "it holds to the end");
    }

    #[test]
    fn numbers_are_short_and_what_is_no_number_is_null() {
        let text = serde_json::to_string(&Shorts(vec![3.0, 0.1, f64::NAN, f64::INFINITY]));
        assert_eq!(text.unwrap(), "[3,0.1,null,null]");
        assert_eq!(
            (value(1.234_567_8e-7), value(123_456.0), value(0.0)),
            (1.2346e-7, 123_460.0, 0.0)
        );
        assert_eq!(time(1.234_567_89), 1.234_568);
    }
}
