//! Progress bars on standard error, if it is a terminal.

use std::fmt;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use ontempo_scenario::model::Scenario;
use ontempo_simulator::Control;

/// Steps of the progress bar of a single run.
const STEPS: f64 = 1000.0;

/// Progress bar: of virtual time for one run, of finished runs for several.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Virtual duration in seconds, if there is only one run.
    duration: Option<f64>,
}

impl Progress {
    pub(crate) fn new(scenario: &Scenario, runs: usize) -> Self {
        let duration = (runs == 1).then_some(scenario.duration.as_secs_f64());
        let (length, template) = match duration {
            Some(_) => (STEPS as u64, "{wide_bar} {msg}, {eta} left"),
            None => (runs as u64, "{wide_bar} {pos} of {len} runs, {eta} left"),
        };
        let bar = ProgressBar::new(length);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar, duration }
    }

    /// Updates the bar; `finished` counts finished runs.
    pub(crate) fn show(&self, controls: &[Control], finished: usize) {
        let Some(duration) = self.duration else { return self.bar.set_position(finished as u64) };
        let reached = controls.iter().map(|control| control.reached().as_secs_f64()).sum::<f64>();
        self.bar.set_position((reached / duration * STEPS) as u64);
        self.bar.set_message(format!("{reached:.1} of {duration:.1} s"));
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// Progress bar of real time, updated by a timer.
pub(crate) struct RealTimeProgress {
    bar: ProgressBar,
}

impl RealTimeProgress {
    pub(crate) fn start(scenario: &Scenario) -> Self {
        let seconds = scenario.duration.as_secs_f64();
        let bar = ProgressBar::new(seconds.ceil() as u64);
        let passed = |state: &ProgressState, out: &mut dyn fmt::Write| {
            // An error only leaves the bar incomplete.
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
