//! How far the runs are, on standard error, where that is a terminal.

use std::fmt;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use ontempo_scenario::model::Scenario;
use ontempo_simulator::Control;

/// Parts that the bar of a single run has.
const PARTS: f64 = 1000.0;

/// A bar of virtual time for one run, of finished runs for many.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Virtual seconds of the only run.
    alone: Option<f64>,
}

impl Progress {
    pub(crate) fn new(scenario: &Scenario, runs: usize) -> Self {
        let alone = (runs == 1).then_some(scenario.duration.as_secs_f64());
        let (length, template) = match alone {
            Some(_) => (PARTS as u64, "{wide_bar} {msg}, {eta} left"),
            None => (runs as u64, "{wide_bar} {pos} of {len} runs, {eta} left"),
        };
        let bar = ProgressBar::new(length);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar, alone }
    }

    /// Shows how far things are, `finished` runs being done.
    pub(crate) fn show(&self, controls: &[Control], finished: usize) {
        let Some(duration) = self.alone else { return self.bar.set_position(finished as u64) };
        let reached = controls.iter().map(|control| control.reached().as_secs_f64()).sum::<f64>();
        self.bar.set_position((reached / duration * PARTS) as u64);
        self.bar.set_message(format!("{reached:.1} of {duration:.1} s"));
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// A bar of real time, which moves by itself.
pub(crate) struct Clockwork {
    bar: ProgressBar,
}

impl Clockwork {
    pub(crate) fn start(scenario: &Scenario) -> Self {
        let seconds = scenario.duration.as_secs_f64();
        let bar = ProgressBar::new(seconds.ceil() as u64);
        let passed = |state: &ProgressState, out: &mut dyn fmt::Write| {
            // A bar that cannot be written has nobody who reads it.
            let _ = write!(out, "{:.0}", state.elapsed().as_secs_f64());
        };
        if let Ok(style) = ProgressStyle::with_template("emulating: {passed} of {len} s") {
            bar.set_style(style.with_key("passed", passed));
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar }
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
