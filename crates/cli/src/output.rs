//! Writing to standard output and standard error.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use ontempo_foundation::printable_lines;
use ontempo_scenario::{Origin, Problem, ScenarioError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::tcgetwinsize;
use serde::Serialize;
use serde_json::json;

use crate::failure::Failure;
use crate::json_errors::is_done;
use crate::signals::is_stopped;

/// How long after the stop flag a reader of standard output that takes nothing is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Columns of text where neither a terminal nor `COLUMNS` says otherwise.
const COLUMNS: usize = 80;

/// Clears the terminal and moves the cursor to the top left.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

/// Writes `text` to standard output, without a character that a terminal would obey: parts of it
/// may come from another user or host. A closed pipe is not an error.
pub(crate) fn emit(text: &str) -> Result<(), Failure> {
    write_stdout("", text)
}

/// The same after clearing the terminal, with `foot` at the end. Of text that is higher than the terminal the
/// end is left out: it would push the beginning off the screen.
pub(crate) fn emit_on_clear_terminal(text: &str, foot: Option<&str>) -> Result<(), Failure> {
    let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_row > 0 && size.ws_col > 0);
    let (rows, columns) = size
        .map_or((usize::MAX, COLUMNS), |size| (usize::from(size.ws_row), usize::from(size.ws_col)));
    write_stdout(CLEAR, &cut_to(rows, columns, text, foot))
}

/// `text` and `foot` with an empty line between them, in so many rows of a terminal that wraps lines, the
/// last of which is the cursor's.
fn cut_to(rows: usize, columns: usize, text: &str, foot: Option<&str>) -> String {
    let taken = |line: &str| line.chars().count().div_ceil(columns).max(1);
    let of_foot = foot.map_or(0, |foot| 1 + foot.lines().map(taken).sum::<usize>());
    let room = rows.saturating_sub(1 + of_foot);
    let lines: Vec<&str> = text.lines().collect();
    let mut shown = lines.clone();
    let mut note = None;
    if lines.iter().copied().map(taken).sum::<usize>() > room {
        let mut left = room.saturating_sub(1);
        let fit = lines.iter().take_while(|line| {
            let rest = left.checked_sub(taken(line));
            left = rest.unwrap_or(0);
            rest.is_some()
        });
        shown.truncate(fit.count());
        let left_out = u64::try_from(lines.len() - shown.len()).unwrap_or(u64::MAX);
        note = Some(counted(left_out, "more line"));
    }
    shown.extend(note.as_deref());
    if let Some(foot) = foot {
        shown.extend(["", foot]);
    }
    shown.join("\n")
}

/// Whether somebody may read standard output still: no more once the other end of its pipe is closed. Who
/// writes again and again ends then.
pub(crate) fn has_reader() -> bool {
    let out = io::stdout();
    let mut polled = [PollFd::new(&out, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&at_once)).is_err() || !polled[0].revents().contains(PollFlags::ERR)
}

/// The same for who has more to do than to wait for a reader: false, and nothing is written, where that takes nothing
/// now, and of more than a pipe takes at once.
pub(crate) fn try_emit(text: &str) -> Result<bool, Failure> {
    // Nobody else writes meanwhile.
    let out = io::stdout().lock();
    let is_ready = text.len() < READY && is_ready(&out);
    if is_ready { emit(text).map(|()| true) } else { Ok(false) }
}

/// Whether a write does not wait, or fails.
fn is_ready(out: impl AsFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&out, PollFlags::OUT)], Some(&at_once)).is_ok_and(|ready| ready > 0)
}

fn write_stdout(before: &str, text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let ending = if text.ends_with('\n') { "" } else { "\n" };
    let text = printable_lines(text);
    let written = wait_for_reader(&out)
        .and_then(|()| write!(out, "{before}{text}{ending}"))
        .and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Environment(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Bytes that a pipe takes at once where it is ready (PIPE_BUF, pipe(7)).
const READY: usize = 4_096;

/// Waits until standard output takes bytes: a pipe that is ready takes at least 4 KiB.
///
/// # Errors
/// [`TimedOut`](io::ErrorKind::TimedOut) 1 s after the stop flag, and at once from then on.
fn wait_for_reader(out: impl AsFd) -> io::Result<()> {
    static IS_GIVEN_UP: AtomicBool = AtomicBool::new(false);
    let mut stopped_at = None;
    while !IS_GIVEN_UP.load(Relaxed) {
        let step = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        match poll(&mut [PollFd::new(&out, PollFlags::OUT)], Some(&step)) {
            Ok(0) | Err(Errno::INTR) => {}
            // An error is that of the write.
            _ => return Ok(()),
        }
        if is_stopped() {
            let at: &Instant = stopped_at.get_or_insert_with(Instant::now);
            IS_GIVEN_UP.store(at.elapsed() >= PATIENCE, Relaxed);
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "its reader takes nothing"))
}

/// Writes `document` to standard output as JSON.
pub(crate) fn emit_json(document: &impl Serialize) -> Result<(), Failure> {
    is_done();
    emit_written(serde_json::to_string_pretty(document))
}

/// A number and what is counted, in the plural by `s`: "1 run", "2 runs".
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Writes `document` to standard output as a line of JSON.
pub(crate) fn emit_json_line(document: &impl Serialize) -> Result<(), Failure> {
    emit_written(serde_json::to_string(document))
}

fn emit_written(json: serde_json::Result<String>) -> Result<(), Failure> {
    let text = json.map_err(|error| Failure::Environment(format!("cannot write JSON: {error}")))?;
    emit(&text)
}

/// Writes `text` to standard error, as [`emit`] does; errors are ignored.
pub(crate) fn write_stderr(text: &str) {
    let _ = writeln!(io::stderr(), "{}", printable_lines(text));
}

/// The same for who has more to do than to wait for a reader: false where that does not take all of it.
pub(crate) fn try_stderr(text: &str) -> bool {
    let text = format!("{}\n", printable_lines(text));
    let mut err = io::stderr().lock();
    text.as_bytes().chunks(READY).all(|piece| is_ready(&err) && err.write_all(piece).is_ok())
}

/// Converts `error` to a failure; with `json`, also prints its problems as JSON.
pub(crate) fn scenario_failure(error: ScenarioError, json: bool) -> Failure {
    if json {
        let problems: Vec<_> = error.problems().iter().map(describe).collect();
        if let Err(failure) = emit_json(&json!({ "problems": problems })) {
            return failure;
        }
    }
    error.into()
}

fn describe(problem: &Problem) -> serde_json::Value {
    let (file, line, set) = match &problem.origin {
        Some(Origin::File { name, line }) => (Some(name.as_ref()), Some(line), None),
        Some(Origin::Override(text)) => (None, None, Some(text.as_ref())),
        None => (None, None, None),
    };
    json!({ "file": file, "line": line, "set": set, "field": problem.field, "what": problem.what })
}

/// The columns that text on standard output may take: `$COLUMNS`, else those of the terminal, else 80.
pub(crate) fn columns() -> usize {
    let asked = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal = || tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
    let known = |columns: &usize| *columns > 0;
    asked.filter(known).or_else(|| terminal().filter(known)).unwrap_or(COLUMNS)
}

/// `text` with lines of at most [`columns`], broken between words; further lines stand `indent` in.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    wrapped_in(columns(), text, indent)
}

fn wrapped_in(width: usize, text: &str, indent: usize) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut rest = line.trim_end().to_owned();
        while let Some(end) = breaking_place(&rest, width, indent) {
            let further = format!("{:indent$}{}", "", rest[end..].trim_start());
            rest.truncate(end);
            lines.push(std::mem::replace(&mut rest, further));
        }
        lines.push(rest);
    }
    lines.join("\n")
}

/// Where `line` is broken: at the last space within `width` columns, else at the first one behind them, but
/// not within the first `indent`. `None` if the line fits, or cannot be broken.
fn breaking_place(line: &str, width: usize, indent: usize) -> Option<usize> {
    let (end, _) = line.char_indices().nth(width)?;
    let begin = line.len() - line.trim_start().len();
    let spaces = || line.match_indices(' ').map(|(at, _)| at).filter(|at| *at > begin.max(indent));
    spaces().take_while(|at| *at <= end).last().or_else(|| spaces().next())
}

/// A table without borders; the columns `right` are aligned to the right.
pub(crate) fn table(heads: &[&str], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(heads.iter().copied());
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if right.contains(&place) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::{cut_to, wrapped_in};

    #[test]
    fn what_is_higher_than_the_terminal_loses_its_end_and_keeps_its_beginning() {
        let text = "one\na line of 20 columns\n\nfour";
        assert_eq!(cut_to(5, 20, text, None), text);
        assert_eq!(cut_to(7, 20, text, Some("q ends")), format!("{text}\n\nq ends"));
        // The second line takes two rows.
        assert_eq!(cut_to(5, 19, text, None), "one\na line of 20 columns\n2 more lines");
        assert_eq!(cut_to(4, 19, text, None), "one\n3 more lines");
        assert_eq!(cut_to(6, 20, text, Some("q")), "one\na line of 20 columns\n2 more lines\n\nq");
        assert_eq!(cut_to(1, 1, text, Some("q")), "4 more lines\n\nq");
        assert_eq!(cut_to(usize::MAX, 80, text, None), text);
    }

    #[test]
    fn lines_are_broken_between_words_and_no_word_is_lost() {
        let text =
            "name   a few words that follow\n\n  ± 3 % of all, and_a_word_longer_than_a_line x";
        let lines = ["name   a few words", "       that follow", ""];
        let more = ["  ± 3 % of all,", "       and_a_word_longer_than_a_line", "       x"];
        let expected = [&lines[..], &more].concat().join("\n");
        assert_eq!(wrapped_in(18, text, 7), expected);
        assert_eq!(wrapped_in(80, text, 7), text);
        for width in 0..60 {
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&wrapped_in(width, text, 7)), words(text), "{width} columns");
        }
    }
}
