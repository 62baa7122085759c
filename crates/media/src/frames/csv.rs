//! A table of frames as text.

use std::fmt::{self, Write};

use ontempo_foundation::Duration;

use super::{
    Codec, Frame, FrameKind, FrameProblem, FrameTable, MAX_FRAME_DEPENDENCIES, MAX_FRAMES,
    MAX_PERIOD, seconds_text, usual_period,
};

/// The columns, in the order in which they are written.
const COLUMNS: [&str; 4] = ["time_s", "type", "size_bytes", "depends_on"];

const KINDS: [(&str, FrameKind); 4] = [
    ("key", FrameKind::Key),
    ("reference", FrameKind::Reference),
    ("disposable", FrameKind::Disposable),
    ("sound", FrameKind::Sound),
];

const CODECS: [(&str, Codec); 4] = [
    ("h264", Codec::H264),
    ("hevc", Codec::Hevc),
    ("av1", Codec::Av1),
    ("unknown", Codec::Unknown),
];

/// Characters of the file that an error repeats at most.
const SHOWN: usize = 40;

/// Why a text is no table of frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameTableError {
    /// Of the text, counted from 1.
    pub line: usize,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Problem(FrameProblem),
    /// The line of column names, as it is.
    Header(String),
    /// How many fields there are, and how many there should be.
    Fields(usize, usize),
    Kind(String),
    Codec(String),
    /// A column, and what stands there.
    Time(&'static str, String),
    Size(String),
    Dependency(String),
    Twice(&'static str),
}

impl fmt::Display for FrameTableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.what {
            What::Problem(problem) => write!(f, "{problem}"),
            What::Header(line) => write!(
                f,
                "the first line must name the columns {}, in any order, with commas between them; it \
                 is `{line}`",
                COLUMNS.join(", ")
            ),
            What::Fields(found, wanted) => {
                write!(f, "the columns are {wanted}, here are {found}")
            }
            What::Kind(text) => write!(f, "the type `{text}` is none of {}", names(&KINDS)),
            What::Codec(text) => write!(f, "the codec `{text}` is none of {}", names(&CODECS)),
            What::Time(column, text) => write!(
                f,
                "{column} `{text}` is no number of seconds from 0 to {}, such as 1.04",
                MAX_PERIOD.as_nanos() / 1_000_000_000
            ),
            What::Size(text) => write!(f, "size_bytes `{text}` is no whole number of bytes"),
            What::Dependency(text) => write!(
                f,
                "depends_on `{text}`: it has the numbers of earlier frames, counted from 0, with \
                 spaces between them"
            ),
            What::Twice(what) => write!(f, "# {what} stands here for a second time"),
        }
    }
}

impl std::error::Error for FrameTableError {}

fn names<T>(all: &[(&str, T)]) -> String {
    all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn named<T: Copy>(all: &[(&str, T)], name: &str) -> Option<T> {
    all.iter().find(|(one, _)| *one == name).map(|(_, value)| *value)
}

fn name_of<T: PartialEq>(all: &[(&'static str, T)], value: T) -> &'static str {
    all.iter().find(|(_, one)| *one == value).map_or("", |(name, _)| name)
}

/// The text for an error.
fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// What a text has said so far.
#[derive(Default)]
struct Reader {
    codec: Option<Codec>,
    period: Option<(Duration, usize)>,
    /// The field of each of [`COLUMNS`].
    columns: Option<[usize; 4]>,
    frames: Vec<Frame>,
}

impl FrameTable {
    /// Reads a table: a line of column names (`time_s,type,size_bytes,depends_on`, in any order), then
    /// a line for each frame. Types are `key`, `reference`, `disposable` and `sound`; dependencies are
    /// numbers of frames, counted from 0, with spaces between them, or nothing. Lines that begin with
    /// `#` are comments; `# codec h264` (`hevc`, `av1`, `unknown`) and `# period_s 20` are read. Without
    /// them the codec is unknown, and the film ends as long after its last frame as its pictures are
    /// apart in the mean (40 ms if it has a single one).
    ///
    /// # Errors
    /// The first line that is wrong, and what would be right.
    pub fn read_csv(text: &str) -> Result<Self, FrameTableError> {
        let mut reader = Reader::default();
        let mut end = 1;
        for (place, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            end = place + 1;
            reader.line(line.trim(), end).map_err(|what| FrameTableError { line: end, what })?;
        }
        if reader.columns.is_none() {
            return Err(FrameTableError { line: end, what: What::Header(String::new()) });
        }
        let period = reader.period.map_or_else(|| usual_period(&reader.frames), |(time, _)| time);
        let codec = reader.codec.unwrap_or(Codec::Unknown);
        let table = Self { codec, frames: reader.frames, period };
        table.check().map_err(|(_, problem)| {
            let is_of_period = matches!(problem, FrameProblem::Period(..) | FrameProblem::TooLong);
            let line = reader.period.filter(|_| is_of_period).map_or(end, |(_, line)| line);
            FrameTableError { line, what: What::Problem(problem) }
        })?;
        Ok(table)
    }

    /// The table as [`FrameTable::read_csv`] reads it; times have nine decimals.
    pub fn write_csv(&self) -> String {
        let mut text = format!(
            "# codec {}\n# period_s {}\n{}\n",
            name_of(&CODECS, self.codec),
            seconds_text(self.period),
            COLUMNS.join(",")
        );
        for frame in &self.frames {
            let kind = name_of(&KINDS, frame.kind);
            // Writing to a string does not fail.
            let _ = write!(text, "{},{kind},{},", seconds_text(frame.made), frame.size);
            for (place, dependency) in frame.depends_on.iter().enumerate() {
                let _ = write!(text, "{}{dependency}", if place > 0 { " " } else { "" });
            }
            text.push('\n');
        }
        text
    }
}

impl Codec {
    /// As tables of frames name it: `h264`, `hevc`, `av1`, `unknown`.
    pub fn name(self) -> &'static str {
        name_of(&CODECS, self)
    }
}

impl FrameKind {
    /// As tables of frames name it: `key`, `reference`, `disposable`, `sound`.
    pub fn name(self) -> &'static str {
        name_of(&KINDS, self)
    }
}

impl Reader {
    fn line(&mut self, line: &str, place: usize) -> Result<(), What> {
        if let Some(comment) = line.strip_prefix('#') {
            return self.comment(comment, place);
        }
        if line.is_empty() {
            return Ok(());
        }
        let fields: Vec<&str> = line.split(',').map(str::trim).take(COLUMNS.len() + 1).collect();
        let Some(columns) = self.columns else {
            self.columns = Some(columns_of(&fields).ok_or_else(|| What::Header(shown(line)))?);
            return Ok(());
        };
        if fields.len() != COLUMNS.len() {
            return Err(What::Fields(line.split(',').count(), COLUMNS.len()));
        }
        if self.frames.len() >= MAX_FRAMES {
            return Err(What::Problem(FrameProblem::TooManyFrames));
        }
        let [time, kind, size, depends_on] = columns.map(|column| fields[column]);
        let number = size.parse::<u64>().map_err(|_| What::Size(shown(size)))?;
        let frame = Frame {
            made: seconds(time).ok_or_else(|| What::Time(COLUMNS[0], shown(time)))?,
            kind: named(&KINDS, kind).ok_or_else(|| What::Kind(shown(kind)))?,
            size: u32::try_from(number).map_err(|_| What::Problem(FrameProblem::Size))?,
            depends_on: dependencies(depends_on)?,
        };
        let before = self.frames.last().map_or(Duration::ZERO, |before| before.made);
        frame.check(self.frames.len(), before).map_err(What::Problem)?;
        self.frames.push(frame);
        Ok(())
    }

    /// A comment of two words may be one that is read.
    fn comment(&mut self, comment: &str, place: usize) -> Result<(), What> {
        let mut words = comment.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("codec"), Some(name), None) => {
                let codec = named(&CODECS, name).ok_or_else(|| What::Codec(shown(name)))?;
                self.codec.replace(codec).map_or(Ok(()), |_| Err(What::Twice("codec")))
            }
            (Some("period_s"), Some(time), None) => {
                let period = seconds(time).ok_or_else(|| What::Time("period_s", shown(time)))?;
                let before = self.period.replace((period, place));
                before.map_or(Ok(()), |_| Err(What::Twice("period_s")))
            }
            _ => Ok(()),
        }
    }
}

/// The field of each column; `None` unless each is there once, and nothing else.
fn columns_of(fields: &[&str]) -> Option<[usize; 4]> {
    let place = |name: &str| fields.iter().position(|field| *field == name);
    let [Some(time), Some(kind), Some(size), Some(depends_on)] = COLUMNS.map(place) else {
        return None;
    };
    (fields.len() == COLUMNS.len()).then_some([time, kind, size, depends_on])
}

/// Numbers in rising order, each once.
fn dependencies(text: &str) -> Result<Vec<u32>, What> {
    let mut numbers = Vec::new();
    for word in text.split_whitespace() {
        if numbers.len() >= MAX_FRAME_DEPENDENCIES {
            return Err(What::Problem(FrameProblem::TooManyDependencies));
        }
        numbers.push(word.parse().map_err(|_| What::Dependency(shown(text)))?);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

/// A number of seconds up to [`MAX_PERIOD`], to the nanosecond; also with an exponent.
fn seconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let time = if !whole.is_empty() && is_digits(whole) && is_digits(fraction) {
        let nanos: u64 = format!("{:0<9}", fraction.get(..9).unwrap_or(fraction)).parse().ok()?;
        let whole: u64 = whole.parse().ok()?;
        Duration::from_nanos(whole.checked_mul(1_000_000_000)?.checked_add(nanos)?)
    } else {
        let seconds: f64 = text.parse().ok()?;
        // Also false for what is no number.
        let is_valid = (0.0..=MAX_PERIOD.as_secs_f64()).contains(&seconds);
        is_valid.then(|| Duration::from_secs_f64(seconds))?
    };
    (time <= MAX_PERIOD).then_some(time)
}
