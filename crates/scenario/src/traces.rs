//! Readers of traces: how a network's capacity, delay and losses were over time.

use std::collections::BTreeMap;

use ontempo_foundation::{Duration, Rate, Time};
use ontempo_network::{LightLine, LightTrace};

use crate::model::{LinkSpec, ScheduleSpec};

/// The largest trace, in bytes.
pub const MAX_TRACE_BYTES: u64 = 32 << 20;

/// The most memory of all traces of a scenario once they are read, in bytes. Four files of 32 MiB as a
/// cellular link has them, light and heavy of both directions, take 170 MB.
pub(crate) const MAX_MEMORY: u64 = 256 << 20;

/// What a row of a CSV trace takes as steps of a rate with the work before each, of a delay and of a
/// loss, in bytes.
const ROW_MEMORY: u64 = 80;
/// What an opportunity of a mahimahi trace takes, in bytes.
const OPPORTUNITY_MEMORY: u64 = size_of::<Time>() as u64;
/// What a frame takes, in bytes.
const FRAME_MEMORY: u64 = size_of::<ontempo_media::Frame>() as u64;
/// What a line of a light trace takes, and each of its opportunities, in bytes.
const LIGHT_LINE_MEMORY: u64 = size_of::<LightLine>() as u64;
const LIGHT_OPPORTUNITY_MEMORY: u64 = size_of::<u32>() as u64;

/// The latest time of a trace.
const MAX_SECONDS: f64 = 1e9;
/// The highest rate of a trace, in bits per second.
const MAX_RATE: f64 = 1e15;
/// The longest delay of a trace.
const MAX_DELAY_SECONDS: f64 = 3600.0;
/// The fewest lines of a light trace: those of CellReplay's program.
const MIN_LIGHT_LINES: usize = 3;

/// What a CSV trace may hold: column, unit of the column (as a factor), quantity.
const COLUMNS: [(&str, f64, Quantity); 8] = [
    ("time_s", 1.0, Quantity::Time),
    ("time_ms", 1e-3, Quantity::Time),
    ("rate_bps", 1.0, Quantity::Rate),
    ("rate_kbps", 1e3, Quantity::Rate),
    ("rate_mbps", 1e6, Quantity::Rate),
    ("delay_s", 1.0, Quantity::Delay),
    ("delay_ms", 1e-3, Quantity::Delay),
    ("loss", 1.0, Quantity::Loss),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Time,
    Rate,
    Delay,
    Loss,
}

/// The format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Format {
    /// Read by [`read_csv`].
    Csv,
    /// Read by [`read_mahimahi`].
    Mahimahi,
    /// Read by [`read_light`].
    Light,
    /// The frames of a film.
    Frames,
    /// The same, of a transport stream.
    Film,
}

impl Format {
    /// Whether `text` can be read.
    pub(crate) fn check(self, text: &str) -> Result<(), TraceError> {
        match self {
            Self::Csv => read_csv(text).map(|_| ()),
            Self::Mahimahi => read_mahimahi(text).map(|_| ()),
            Self::Light => read_light(text).map(|_| ()),
            Self::Frames | Self::Film => {
                ontempo_media::FrameTable::read_csv(text).map(|_| ()).map_err(|error| {
                    let (line, text) = (error.line, error.to_string());
                    let what = text.strip_prefix(&format!("line {line}: ")).unwrap_or(&text);
                    TraceError { line, what: what.to_owned() }
                })
            }
        }
    }

    /// What a file of it is called.
    pub(crate) const fn noun(self) -> &'static str {
        if matches!(self, Self::Frames | Self::Film) { "table" } else { "trace" }
    }

    /// What `text` takes once it is read, in bytes, at most: known before it is read.
    pub(crate) fn memory(self, text: &str) -> u64 {
        let lines = || text.lines().count() as u64;
        match self {
            Self::Csv => ROW_MEMORY * lines(),
            Self::Mahimahi => OPPORTUNITY_MEMORY * lines(),
            Self::Frames | Self::Film => FRAME_MEMORY * lines(),
            Self::Light => {
                let words = text.split_ascii_whitespace().count() as u64;
                LIGHT_LINE_MEMORY * lines() + LIGHT_OPPORTUNITY_MEMORY * words
            }
        }
    }
}

/// What the traces of these links take once they are read, in bytes, at most. Links of one specification
/// share them.
pub(crate) fn memory<'a>(links: impl Iterator<Item = &'a LinkSpec>) -> u64 {
    let specs: BTreeMap<usize, &LinkSpec> =
        links.map(|spec| (std::ptr::from_ref(spec).addr(), spec)).collect();
    let texts = specs.into_values().flat_map(|spec| match &spec.schedule {
        Some(ScheduleSpec::Csv { text, .. }) => [Some((Format::Csv, text)), None],
        Some(ScheduleSpec::Mahimahi { text, .. }) => [Some((Format::Mahimahi, text)), None],
        Some(ScheduleSpec::Cellreplay { light_text, heavy_text, .. }) => {
            [Some((Format::Light, light_text)), Some((Format::Mahimahi, heavy_text))]
        }
        _ => [None, None],
    });
    let memory = |(format, text): (Format, &Option<String>)| {
        text.as_deref().map_or(0, |text| format.memory(text))
    };
    texts.flatten().map(memory).sum()
}

/// What is wrong with a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there, and what would be right.
    pub what: String,
}

/// A row of a CSV trace; `None` where it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceRow {
    /// From when on it holds.
    pub time: Time,
    /// The rate.
    pub rate: Option<Rate>,
    /// The propagation delay.
    pub delay: Option<Duration>,
    /// The probability of loss, 0 to 1.
    pub loss: Option<f64>,
}

/// The rows of a CSV trace: at least one, each later than the one before it.
///
/// The first line names the columns: `time_s` or `time_ms`, and at least one of `rate_bps`,
/// `rate_kbps` and `rate_mbps`, of `delay_s` and `delay_ms`, and `loss`. Empty lines and lines that
/// begin with `#` are skipped.
///
/// # Errors
/// The first line that is not so.
pub fn read_csv(text: &str) -> Result<Vec<TraceRow>, TraceError> {
    // Spreadsheets write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = (1..).zip(text.lines()).map(|(line, text)| (line, text.trim()));
    let mut lines = lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#'));
    let Some((line, header)) = lines.next() else { return Err(empty("a header and a row")) };
    let columns = columns(header).map_err(|what| TraceError { line, what })?;
    let mut rows: Vec<TraceRow> = Vec::new();
    for (line, text) in lines {
        let row = row(text, &columns).map_err(|what| TraceError { line, what })?;
        if let Some(before) = rows.last().filter(|before| before.time >= row.time) {
            let what = format!(
                "the time {} is not after {}, that of the row before; rows must be in the order \
                 of time",
                row.time, before.time
            );
            return Err(TraceError { line, what });
        }
        rows.push(row);
    }
    if rows.is_empty() {
        return Err(empty("a row below its header"));
    }
    Ok(rows)
}

/// The times of a mahimahi trace: at least one, none earlier than the one before it, the last
/// after 0.
///
/// # Errors
/// The first line that is no time in whole milliseconds, or that goes back.
pub fn read_mahimahi(text: &str) -> Result<Vec<Time>, TraceError> {
    let mut times: Vec<Time> = Vec::new();
    let mut last_line = 1;
    for (line, text) in (1..).zip(text.lines()).map(|(line, text)| (line, text.trim())) {
        if text.is_empty() {
            continue;
        }
        last_line = line;
        let Some(millis) = whole(text, MAX_SECONDS) else {
            let what = format!(
                "{} is no time of a mahimahi trace; each line is a whole number of milliseconds",
                shown(text)
            );
            return Err(TraceError { line, what });
        };
        let time = Time::ZERO + Duration::from_millis(millis);
        if let Some(before) = times.last().filter(|before| **before > time) {
            let before = self::millis(before.since(Time::ZERO));
            let what = format!(
                "{millis} ms is before {before} ms, the time of the line before; times must not \
                 go back"
            );
            return Err(TraceError { line, what });
        }
        times.push(time);
    }
    match times.last() {
        None => Err(empty("a line")),
        Some(last) if *last == Time::ZERO => Err(at_once(last_line)),
        Some(_) => Ok(times),
    }
}

/// The light trace of a CellReplay pair: at least three lines, none earlier than the one before it, the
/// last after 0; each is a time, a base delay, and one opportunity or more, none earlier than the
/// one before it, in whole milliseconds with spaces between them.
///
/// # Errors
/// The first line that is not so.
pub fn read_light(text: &str) -> Result<LightTrace, TraceError> {
    let (mut lines, mut opportunities) = (Vec::new(), Vec::new());
    let mut last_line = 1;
    for (line, text) in (1..).zip(text.lines()).map(|(line, text)| (line, text.trim())) {
        if text.is_empty() {
            continue;
        }
        last_line = line;
        let read =
            light_line(text, &mut opportunities).map_err(|what| TraceError { line, what })?;
        if let Some(LightLine { time: before, .. }) = lines.last()
            && *before > read.time
        {
            let what = format!(
                "the time {} ms is before {} ms, that of the line before; times must not go back",
                millis(read.time.since(Time::ZERO)),
                millis(before.since(Time::ZERO))
            );
            return Err(TraceError { line, what });
        }
        lines.push(read);
    }
    match lines.last() {
        None => return Err(empty("three lines")),
        Some(_) if lines.len() < MIN_LIGHT_LINES => {
            let count = if lines.len() == 1 { "1 line" } else { "2 lines" };
            let what = format!("{count} only; a light trace has three or more");
            return Err(TraceError { line: last_line, what });
        }
        Some(last) if last.time == Time::ZERO => return Err(at_once(last_line)),
        Some(_) => {}
    }
    LightTrace::new(lines, opportunities)
        .map_err(|error| TraceError { line: last_line, what: error.to_string() })
}

/// A line of a light trace; its opportunities are added to those of all.
fn light_line(text: &str, opportunities: &mut Vec<u32>) -> Result<LightLine, String> {
    const FORM: &str = "each line is a time, a base delay and opportunities in whole milliseconds, \
                        such as 0 20 0 1 2";
    let first = opportunities.len();
    let mut words = text.split_ascii_whitespace();
    let mut next = |what: &str, most: f64| match words.next() {
        None => Ok(None),
        Some(word) => match whole(word, most) {
            Some(number) => Ok(Some(number)),
            None => Err(format!(
                "{} is no {what} from 0 to {} ms; {FORM}",
                shown(word),
                (most * 1e3) as u64
            )),
        },
    };
    let time = next("time", MAX_SECONDS)?.map(Duration::from_millis);
    let base_delay = next("base delay", MAX_DELAY_SECONDS)?.map(Duration::from_millis);
    while let Some(opportunity) = next("opportunity", MAX_DELAY_SECONDS)? {
        // An hour of milliseconds fits.
        let opportunity = u32::try_from(opportunity).unwrap_or(u32::MAX);
        if let Some(before) = opportunities.get(first..).and_then(<[u32]>::last)
            && *before > opportunity
        {
            return Err(format!(
                "the opportunity at {opportunity} ms comes after that at {before} ms; those of a train \
                 must not go back"
            ));
        }
        opportunities.push(opportunity);
    }
    match (time, base_delay) {
        (Some(time), Some(base_delay)) if opportunities.len() > first => {
            Ok(LightLine { time: Time::ZERO + time, base_delay, first })
        }
        _ => Err(format!("there is no opportunity; {FORM}")),
    }
}

/// The whole number that `text` is, of milliseconds, if it is no more than `most` in seconds.
fn whole(text: &str, most: f64) -> Option<u64> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = text.parse::<u64>().ok().filter(|_| is_digits);
    parsed.filter(|number| *number as f64 <= most * 1e3)
}

fn millis(span: Duration) -> u64 {
    span.as_nanos() / 1_000_000
}

fn at_once(line: usize) -> TraceError {
    let what = "the last time is 0 ms, but the trace begins anew after it; a later one is needed";
    TraceError { line, what: what.to_owned() }
}

fn empty(what: &str) -> TraceError {
    TraceError { line: 1, what: format!("the trace is empty; at least {what} is needed") }
}

/// The columns of a header, as places in [`COLUMNS`].
fn columns(header: &str) -> Result<Vec<usize>, String> {
    let known = || COLUMNS.map(|(name, ..)| format!("`{name}`")).join(", ");
    let mut places: Vec<usize> = Vec::new();
    for name in header.split(',').map(str::trim) {
        let place = COLUMNS.iter().position(|(known, ..)| *known == name);
        let Some(place) = place else {
            let name = shown(name);
            return Err(format!("{name} is no column; the first line names them: {}", known()));
        };
        let quantity = COLUMNS[place].2;
        if places.iter().any(|other| COLUMNS[*other].2 == quantity) {
            return Err(format!("a second column of the same quantity, `{name}`; leave one out"));
        }
        places.push(place);
    }
    let has = |quantity| places.iter().any(|place| COLUMNS[*place].2 == quantity);
    if !has(Quantity::Time) {
        return Err("there is no column of times; begin the first line with time_s".to_owned());
    }
    if places.len() < 2 {
        return Err(
            "there is no column besides the times; add rate_bps, delay_s or loss".to_owned()
        );
    }
    Ok(places)
}

fn row(text: &str, columns: &[usize]) -> Result<TraceRow, String> {
    let cells: Vec<&str> = text.split(',').map(str::trim).collect();
    if cells.len() != columns.len() {
        return Err(format!("{} cells, but the header has {}", cells.len(), columns.len()));
    }
    let mut row = TraceRow { time: Time::ZERO, rate: None, delay: None, loss: None };
    for (cell, column) in cells.into_iter().zip(columns) {
        let (name, unit, quantity) = COLUMNS[*column];
        if cell.is_empty() && quantity != Quantity::Time {
            continue;
        }
        let most = match quantity {
            Quantity::Time => MAX_SECONDS,
            Quantity::Rate => MAX_RATE,
            Quantity::Delay => MAX_DELAY_SECONDS,
            Quantity::Loss => 1.0,
        };
        let number = cell.parse::<f64>().ok().map(|number| number * unit);
        let Some(number) = number.filter(|number| (0.0..=most).contains(number)) else {
            let (cell, most) = (shown(cell), most / unit);
            return Err(format!("{cell} is no {name}; a number from 0 to {most} is needed"));
        };
        match quantity {
            Quantity::Time => row.time = Time::from_secs_f64(number),
            Quantity::Rate => row.rate = Some(Rate::from_bits_per_sec(number.round() as u64)),
            Quantity::Delay => row.delay = Some(Duration::from_secs_f64(number)),
            Quantity::Loss => row.loss = Some(number),
        }
    }
    Ok(row)
}

/// What stands in a file, in quotes and not too long.
fn shown(text: &str) -> String {
    const MAX_LEN: usize = 40;
    let short: String = text.chars().take(MAX_LEN).collect();
    if short.len() < text.len() { format!("{short:?}…") } else { format!("{short:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T>(read: Result<T, TraceError>) -> String {
        let error = read.err().expect("it is refused");
        format!("{}: {}", error.line, error.what)
    }

    #[test]
    fn a_table_has_a_value_for_each_quantity_that_its_header_names() {
        let text = "# driving\ntime_s,rate_mbps,delay_ms,loss\n0, 8, 20, 0\n\n1.5,0.25,,0.02\r\n";
        let rows = read_csv(text).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].delay, Some(Duration::from_millis(20)));
        let second = TraceRow {
            time: Time::ZERO + Duration::from_millis(1500),
            rate: Some(Rate::from_bits_per_sec(250_000)),
            delay: None,
            loss: Some(0.02),
        };
        assert_eq!(rows[1], second);
    }

    #[test]
    fn a_table_that_is_wrong_is_refused_with_its_line() {
        let with = |rows: &str| refused(read_csv(&format!("time_s,rate_bps\n{rows}")));
        assert_eq!(
            with("0,1\n5,1\n5,2"),
            "4: the time 5 s is not after 5 s, that of the row before; rows must be in the order \
             of time"
        );
        assert_eq!(
            with("0,-1"),
            "2: \"-1\" is no rate_bps; a number from 0 to 1000000000000000 is needed"
        );
        assert_eq!(
            with("0,NaN"),
            "2: \"NaN\" is no rate_bps; a number from 0 to 1000000000000000 is needed"
        );
        assert_eq!(with("0"), "2: 1 cells, but the header has 2");
        assert_eq!(
            with("# nothing"),
            "1: the trace is empty; at least a row below its header is needed"
        );
        assert_eq!(
            refused(read_csv("")),
            "1: the trace is empty; at least a header and a row is needed"
        );
        let wrong = refused(read_csv("0,8000000\n"));
        assert!(
            wrong.starts_with("1: \"0\" is no column; the first line names them: `time_s`"),
            "{wrong}"
        );
        assert!(refused(read_csv("time_s,time_ms\n")).contains("a second column"));
        assert!(refused(read_csv("time_s\n0\n")).contains("add rate_bps"));
        assert!(refused(read_csv("loss\n0\n")).contains("no column of times"));
    }

    #[test]
    fn a_trace_of_opportunities_is_milliseconds_that_do_not_go_back() {
        let millis = |millis| Time::ZERO + Duration::from_millis(millis);
        assert_eq!(read_mahimahi("0\n3\n3\n7\n").unwrap(), [0, 3, 3, 7].map(millis));
        assert_eq!(
            refused(read_mahimahi("4\n3\n")),
            "2: 3 ms is before 4 ms, the time of the line before; times must not go back"
        );
        for wrong in ["1.5", "+1", "-1", "x", "99999999999999999999", "1 2"] {
            let text = refused(read_mahimahi(&format!("1\n{wrong}\n")));
            assert!(text.contains("a whole number of milliseconds"), "{text}");
        }
        assert!(refused(read_mahimahi("\n")).contains("the trace is empty"));
        assert!(refused(read_mahimahi("0\n0\n\n")).starts_with("2: the last time is 0 ms"));
    }

    #[test]
    fn a_light_trace_is_lines_of_a_time_a_base_delay_and_opportunities() {
        let trace = read_light("0 20 0 1 1\n\n100 30 0\r\n100\t40 0 2\n250 10 0\n").unwrap();
        let lines = trace.lines().iter().map(|line| {
            let [time, base] = [line.time.since(Time::ZERO), line.base_delay].map(millis);
            (time, base, line.first)
        });
        let lines: Vec<_> = lines.collect();
        assert_eq!(lines, [(0, 20, 0), (100, 30, 3), (100, 40, 4), (250, 10, 6)]);
        assert_eq!((trace.opportunity_count(), millis(trace.period())), (7, 250));
    }

    #[test]
    fn a_light_trace_that_is_wrong_is_refused_with_its_line() {
        let with = |line: &str| refused(read_light(&format!("0 20 0\n5 20 0\n\n{line}\n9 20 0\n")));
        assert_eq!(
            with("4 20 0"),
            "4: the time 4 ms is before 5 ms, that of the line before; times must not go back"
        );
        assert_eq!(
            with("6 20 0 3 2"),
            "4: the opportunity at 2 ms comes after that at 3 ms; those of a train must not go back"
        );
        let form = "each line is a time, a base delay and opportunities in whole milliseconds, such as \
                    0 20 0 1 2";
        assert_eq!(
            with("6 20 0 -1"),
            format!("4: \"-1\" is no opportunity from 0 to 3600000 ms; {form}")
        );
        assert_eq!(
            with("6 3600001 0"),
            format!("4: \"3600001\" is no base delay from 0 to 3600000 ms; {form}")
        );
        assert!(with("1.5 20 0").starts_with("4: \"1.5\" is no time from 0 to 1000000000000 ms"));
        for short in ["6", "6 20"] {
            assert_eq!(with(short), format!("4: there is no opportunity; {form}"));
        }
        assert_eq!(
            refused(read_light("\n\n")),
            "1: the trace is empty; at least three lines is needed"
        );
        assert_eq!(
            refused(read_light("0 20 0\n9 20 0\n")),
            "2: 2 lines only; a light trace has three or more"
        );
        let zero = refused(read_light("0 20 0\n0 20 0\n0 20 0\n"));
        assert!(zero.starts_with("3: the last time is 0 ms"), "{zero}");
    }
}
