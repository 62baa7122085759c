//! What is shown while media flows.

use std::io::IsTerminal;
use std::time::{Duration as Wall, Instant};

use indicatif::ProgressBar;
use serde_json::Value;

use crate::failure::Failure;
use crate::output::{complain, emit};

/// How often a missed target is told.
const TOLD_EVERY: Wall = Wall::from_secs(5);

/// Lines for programs, or one that is drawn anew for people.
pub(super) struct Figures {
    json: bool,
    bar: Option<ProgressBar>,
    told: Option<Instant>,
    pub(super) begun: Instant,
}

impl Figures {
    pub(super) fn new(json: bool) -> Self {
        let drawn = !json && std::io::stderr().is_terminal();
        let begun = Instant::now();
        Self { json, bar: drawn.then(ProgressBar::new_spinner), told: None, begun }
    }

    pub(super) fn show(&self, line: &str, document: &Value) -> Result<(), Failure> {
        if let Some(bar) = &self.bar {
            bar.set_message(line.to_owned());
            bar.tick();
        }
        if self.json { emit(&document.to_string()) } else { Ok(()) }
    }

    /// Says a sentence.
    pub(super) fn say(&self, sentence: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| complain(sentence)),
            None => complain(sentence),
        }
    }

    /// Says what is wrong, at most every few seconds.
    pub(super) fn warn(&mut self, sentence: &str) {
        if self.told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
            self.told = Some(Instant::now());
            self.say(sentence);
        }
    }

    /// Removes what was drawn, before the totals.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
