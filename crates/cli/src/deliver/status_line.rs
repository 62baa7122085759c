//! Status output while media flows.

use std::io::IsTerminal;
use std::time::{Duration as Wall, Instant};

use indicatif::ProgressBar;
use ontempo_foundation::printable;
use serde_json::Value;

use crate::failure::Failure;
use crate::output::{emit, write_stderr};

/// Minimum time between two warnings.
const WARNING_INTERVAL: Wall = Wall::from_secs(5);

/// Maximum messages about refused clients in [`REFUSAL_INTERVAL`]: strangers cause them.
const MAX_REFUSALS: u32 = 30;
const REFUSAL_INTERVAL: Wall = Wall::from_secs(60);

/// JSON lines on standard output, or a status line that is refreshed on the terminal.
pub(super) struct StatusLine {
    json: bool,
    bar: Option<ProgressBar>,
    last_warning: Option<Instant>,
    /// The first refusal of the current interval, and how many there were.
    refusals: Option<(Instant, u32)>,
    pub(super) started: Instant,
}

impl StatusLine {
    pub(super) fn new(json: bool) -> Self {
        let is_terminal = !json && std::io::stderr().is_terminal();
        let started = Instant::now();
        let bar = is_terminal.then(ProgressBar::new_spinner);
        Self { json, bar, last_warning: None, refusals: None, started }
    }

    pub(super) fn show(&self, line: &str, document: &Value) -> Result<(), Failure> {
        if let Some(bar) = &self.bar {
            bar.set_message(line.to_owned());
            bar.tick();
        }
        if self.json { emit(&document.to_string()) } else { Ok(()) }
    }

    /// Writes a message to standard error, on one line: parts of it may be the peer's.
    pub(super) fn message(&self, sentence: &str) {
        let sentence = &printable(sentence);
        match &self.bar {
            Some(bar) => bar.suspend(|| write_stderr(sentence)),
            None => write_stderr(sentence),
        }
    }

    /// Writes a warning, at most one every few seconds.
    pub(super) fn warn(&mut self, sentence: &str) {
        if self.last_warning.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
            self.last_warning = Some(Instant::now());
            self.message(sentence);
        }
    }

    /// Writes that a client was refused, unless that happens too often.
    pub(super) fn refused(&mut self, sentence: &str) {
        let current = self.refusals.filter(|(since, _)| since.elapsed() < REFUSAL_INTERVAL);
        let (since, count) = current.unwrap_or_else(|| (Instant::now(), 0));
        self.refusals = Some((since, count.saturating_add(1)));
        if count < MAX_REFUSALS {
            self.message(sentence);
        } else if count == MAX_REFUSALS {
            self.message("further refusals within a minute are not shown");
        }
    }

    /// Removes the status line, before the totals.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
