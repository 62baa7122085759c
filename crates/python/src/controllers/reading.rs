//! What a controller's attributes say after an event.

use ontempo_foundation::{Packets, Rate};
use ontempo_mechanisms::congestion::{Snapshot, Window};
use pyo3::intern;
use pyo3::prelude::*;

/// The largest window in packets: more than any path holds.
const MAX_WINDOW: f64 = 1e9;

/// The highest pacing rate, bit/s.
const MAX_RATE: f64 = 1e12;

/// The most packets of a burst.
const MAX_BURST: u64 = 1_000_000;

/// Longest representation of a value in an error.
const MAX_SHOWN: usize = 80;

/// The state of a controller as its attributes had it last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) cwnd: f64,
    pub(super) ssthresh: f64,
    pub(super) pacing_rate: Option<Rate>,
    pub(super) burst: Packets,
    reductions: u64,
    early_responses: u64,
}

impl Reading {
    /// Before anything was read.
    pub(super) fn new(cwnd: f64, ssthresh: f64) -> Self {
        let burst = Packets::new(1);
        Self { cwnd, ssthresh, pacing_rate: None, burst, reductions: 0, early_responses: 0 }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            cwnd: Window::of_packets(self.cwnd),
            ssthresh: Window::of_packets(self.ssthresh),
            alpha: None,
            queueing_delay: None,
            largest_queueing_delay: None,
            smoothed_rtt: None,
            early_responses: self.early_responses,
            reductions: self.reductions,
            bears: None,
        }
    }

    /// Reads the attributes of `controller`. A smaller window `may_count` as a reduction.
    ///
    /// # Errors
    /// Names the attribute that is missing or will not do, and what would.
    pub(super) fn read(
        &mut self,
        controller: &Bound<'_, PyAny>,
        may_count: bool,
    ) -> Result<(), Unfit> {
        let py = controller.py();
        let cwnd =
            number(controller, intern!(py, "cwnd"), "packets above 0, at most 1e9", |cwnd| {
                cwnd > 0.0 && cwnd <= MAX_WINDOW
            })?;
        let ssthresh =
            number(controller, intern!(py, "ssthresh"), "packets, at least 0", |ssthresh| {
                ssthresh >= 0.0
            })?;
        let pacing = attribute(controller, intern!(py, "pacing_rate_bps"))?;
        let pacing_rate = if pacing.is_none() {
            None
        } else {
            let what = "bit/s from 1 to 1e12, or None";
            let rate = fitting(&pacing, "pacing_rate_bps", what, |rate: &f64| {
                (1.0..=MAX_RATE).contains(rate)
            })?;
            Some(Rate::from_bits_per_sec(rate as u64))
        };
        let burst = attribute(controller, intern!(py, "burst"))?;
        let what = "a whole number of packets from 1 to 1e6";
        let burst = fitting(&burst, "burst", what, |burst: &u64| (1..=MAX_BURST).contains(burst))?;
        let reductions = attribute(controller, intern!(py, "reductions"))?;
        let reductions = if reductions.is_none() {
            self.reductions + u64::from(may_count && cwnd < self.cwnd)
        } else {
            let what = "a whole number that only grows, or None";
            fitting(&reductions, "reductions", what, |now: &u64| *now >= self.reductions)?
        };
        let early = attribute(controller, intern!(py, "early_responses"))?;
        let what = "a whole number that only grows";
        let early_responses =
            fitting(&early, "early_responses", what, |now: &u64| *now >= self.early_responses)?;
        let burst = Packets::new(burst);
        *self = Self { cwnd, ssthresh, pacing_rate, burst, reductions, early_responses };
        Ok(())
    }
}

/// What is wrong with an attribute.
pub(super) enum Unfit {
    /// Its value, in a sentence.
    Value(String),
    /// Reading it raised an exception.
    Raised(PyErr),
}

fn attribute<'py>(
    controller: &Bound<'py, PyAny>,
    name: &Bound<'py, pyo3::types::PyString>,
) -> Result<Bound<'py, PyAny>, Unfit> {
    controller.getattr(name).map_err(|error| {
        let is_missing =
            error.is_instance_of::<pyo3::exceptions::PyAttributeError>(controller.py());
        match error.traceback(controller.py()) {
            None if is_missing => Unfit::Value(format!("there is no self.{name}; set it")),
            _ => Unfit::Raised(error),
        }
    })
}

fn number(
    controller: &Bound<'_, PyAny>,
    name: &Bound<'_, pyo3::types::PyString>,
    what: &str,
    is_fit: impl Fn(f64) -> bool,
) -> Result<f64, Unfit> {
    let value = attribute(controller, name)?;
    fitting(&value, &name.to_string_lossy(), what, |number| is_fit(*number))
}

fn fitting<'py, T: for<'a> FromPyObject<'a, 'py>>(
    value: &Bound<'py, PyAny>,
    name: &str,
    what: &str,
    is_fit: impl Fn(&T) -> bool,
) -> Result<T, Unfit> {
    let found = value.extract::<T>().ok().filter(|found| is_fit(found));
    found.ok_or_else(|| Unfit::Value(format!("self.{name} is {}; needed: {what}", shown(value))))
}

/// A value in an error.
pub(super) fn shown(value: &Bound<'_, PyAny>) -> String {
    match value.repr() {
        Ok(text) => text.to_string_lossy().chars().take(MAX_SHOWN).collect(),
        Err(_) => "a value that cannot be shown".to_owned(),
    }
}
