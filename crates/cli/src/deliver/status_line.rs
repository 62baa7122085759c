//! Status output while media flows.

use std::io::IsTerminal;
use std::time::{Duration as Wall, Instant};

use indicatif::ProgressBar;
use ontempo_foundation::{Duration, printable};
use serde_json::Value;

use super::documents::Documents;
use crate::failure::Failure;
use crate::limited::{LineLimit, SENTENCES, Share};
use crate::output::write_stderr;

/// Lines about connections: a peer with the token can make as many as it likes.
const CONNECTIONS: Share = Share { burst: 64, interval: Wall::from_secs(1) };

/// JSON lines on standard output, or a status line that is refreshed on the terminal.
pub(super) struct StatusLine {
    pub(super) documents: Documents,
    bar: Option<ProgressBar>,
    warnings: LineLimit,
    refusals: LineLimit,
    connections: LineLimit,
}

impl StatusLine {
    pub(super) fn new(documents: Documents) -> Self {
        let is_terminal = !documents.is_on() && std::io::stderr().is_terminal();
        let started = documents.started;
        let bar = is_terminal.then(ProgressBar::new_spinner);
        let [warnings, refusals] = [(); 2].map(|()| LineLimit::new(started, SENTENCES));
        let connections = LineLimit::new(started, CONNECTIONS);
        Self { documents, bar, warnings, refusals, connections }
    }

    /// Shows a line, or writes the figures.
    pub(super) fn show(&self, line: &str, figures: Value) -> Result<(), Failure> {
        if let Some(bar) = &self.bar {
            bar.set_message(line.to_owned());
            bar.tick();
        }
        self.documents.emit("figures", figures)
    }

    /// Writes a message to standard error, on one line: parts of it may be the peer's.
    pub(super) fn message(&self, sentence: &str) {
        self.write("note", sentence);
    }

    fn write(&self, event: &str, sentence: &str) {
        self.documents.say(event, sentence);
        let sentence = &printable(sentence);
        match &self.bar {
            Some(bar) => bar.suspend(|| write_stderr(sentence)),
            None => write_stderr(sentence),
        }
    }

    /// Writes a warning, unless there are too many.
    pub(super) fn warn(&mut self, sentence: &str) {
        let lines = self.warnings.lines(Instant::now(), "failures", sentence);
        lines.iter().for_each(|line| self.write("warning", line));
    }

    /// Writes that a client was refused, unless that happens too often.
    pub(super) fn refused(&mut self, sentence: &str) {
        let lines = self.refusals.lines(Instant::now(), "refusals", sentence);
        lines.iter().for_each(|line| self.write("refused", line));
    }

    /// Writes what became of a sender's connection, unless that happens too often.
    pub(super) fn connection(&mut self, sentence: &str) {
        let lines = self.connections.lines(Instant::now(), "connections", sentence);
        lines.iter().for_each(|line| self.message(line));
    }

    /// Removes the status line, before the totals.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A time for the status line, which does not jump with its digits.
pub(super) fn millis(span: Duration) -> String {
    format!("{:.1} ms", span.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_status_line_have_one_digit() {
        let spans = [896_956, 3_894_613, 107_000_000].map(Duration::from_nanos);
        assert_eq!(spans.map(millis), ["0.9 ms", "3.9 ms", "107.0 ms"]);
    }
}
