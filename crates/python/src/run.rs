//! Runs scenarios on a thread while Python handles signals.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use ontempo_scenario::model;
use ontempo_simulator::{Control, Results, SetupError, Simulation};
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;

use crate::result::RunResult;
use crate::scenario::{Scenario, ScenarioError};

pyo3::create_exception!(
    ontempo._native,
    Cancelled,
    PyException,
    "A run was stopped by its `CancelToken`; it has no result."
);

/// Interval at which signals and the cancel token are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Stops a run from another thread.
#[pyclass(frozen, module = "ontempo._native")]
#[derive(Default)]
pub(crate) struct CancelToken {
    cancelled: AtomicBool,
}

#[pymethods]
impl CancelToken {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Cancel the run that was started with this token; it raises `Cancelled`.
    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

enum Outcome {
    Done(Results),
    Refused(SetupError),
    Cancelled,
}

fn simulate(scenario: &model::Scenario, seed: u64, control: &Control) -> Outcome {
    let simulation = match Simulation::new(scenario, seed) {
        Ok(simulation) => simulation,
        Err(error) => return Outcome::Refused(error),
    };
    simulation.run(control).map_or(Outcome::Cancelled, Outcome::Done)
}

/// Simulate a scenario.
///
/// Other Python threads run meanwhile. Ctrl-C in the main thread raises `KeyboardInterrupt`; `cancel`
/// stops the run from any other. Raises `ScenarioError` where the run is estimated to take more memory
/// than is free, or more than a day; `any_size=True` runs it nevertheless.
// The run is on a new thread. The calling thread waits without the interpreter's lock and takes it
// at intervals, because only Python's main thread can handle signals.
#[pyfunction]
#[pyo3(signature = (scenario, seed=None, cancel=None, *, any_size=false))]
pub(crate) fn run(
    py: Python<'_>,
    scenario: &Bound<'_, Scenario>,
    seed: Option<u64>,
    cancel: Option<&Bound<'_, CancelToken>>,
    any_size: bool,
) -> PyResult<RunResult> {
    let model = Arc::clone(&scenario.get().model);
    if !any_size && let Some(why) = model.too_large(1) {
        return Err(ScenarioError::new_err(format!("{why}, and any_size=True runs it as it is")));
    }
    let seed = seed.unwrap_or(model.seed);
    let is_cancelled = || cancel.is_some_and(|token| token.get().cancelled.load(Ordering::Relaxed));
    let control = Arc::new(Control::default());
    let (report, mut outcomes) = mpsc::channel();
    let worker = thread::Builder::new().name(format!("ontempo seed {seed}")).spawn({
        let control = Arc::clone(&control);
        move || {
            // Sending fails only if the caller was interrupted.
            let _ = report.send(simulate(&model, seed, &control));
        }
    })?;
    loop {
        if is_cancelled() {
            control.cancel();
        }
        let waiting = &mut outcomes;
        match py.detach(move || waiting.recv_timeout(POLL_INTERVAL)) {
            Ok(Outcome::Done(results)) => return Ok(RunResult::new(seed, results)),
            Ok(Outcome::Refused(error)) => return Err(ScenarioError::new_err(error.to_string())),
            Ok(Outcome::Cancelled) => return Err(Cancelled::new_err("the run was cancelled")),
            Err(RecvTimeoutError::Timeout) => {
                py.check_signals().inspect_err(|_| control.cancel())?
            }
            Err(RecvTimeoutError::Disconnected) => match worker.join() {
                Err(panic) => resume_unwind(panic),
                Ok(()) => return Err(PyRuntimeError::new_err("the run gave no result")),
            },
        }
    }
}
