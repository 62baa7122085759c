//! Runs scenarios on a thread while Python handles signals.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use ontempo_scenario::model;
use ontempo_simulator::{Control, Results, SetupError, Simulation};
use pyo3::exceptions::{PyException, PyOverflowError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyMapping;

use crate::controllers::Controllers;
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

/// Characters of a wrong seed in an error.
const MAX_SHOWN: usize = 40;

/// How long an interrupted run with controllers in Python may take to end.
const END_WITHIN: Duration = Duration::from_secs(2);

enum Outcome {
    Done(Results),
    Refused(SetupError),
    Cancelled,
}

fn simulate(
    scenario: &model::Scenario,
    seed: u64,
    control: &Control,
    controllers: Option<&Controllers>,
) -> Outcome {
    let simulation = match controllers {
        None => Simulation::new(scenario, seed),
        Some(laws) => Simulation::with_controllers(scenario, seed, laws),
    };
    let simulation = match simulation {
        Ok(simulation) => simulation,
        Err(error) => return Outcome::Refused(error),
    };
    simulation.run(control).map_or(Outcome::Cancelled, Outcome::Done)
}

/// A seed that a program gave.
fn seed_of(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    given.extract::<u64>().map_err(|error: PyErr| {
        if !error.is_instance_of::<PyOverflowError>(given.py()) {
            return PyTypeError::new_err(format!("seed: {}", error.value(given.py())));
        }
        let shown = given.repr().map_or_else(|_| "it".to_owned(), |shown| shown.to_string());
        let shown: String = shown.chars().take(MAX_SHOWN).collect();
        PyValueError::new_err(format!(
            "seed: {shown} is none: it is a whole number from 0 to {}",
            u64::MAX
        ))
    })
}

/// Simulate a scenario.
///
/// `seed` is a whole number from 0 to 2^64 - 1, that of the scenario where not given; any other raises
/// `ValueError`.
///
/// Other Python threads run meanwhile. Ctrl-C in the main thread raises `KeyboardInterrupt`; `cancel`
/// stops the run from any other. Raises `ScenarioError` where the run is estimated to take more memory
/// than is free, or more than a day; `any_size=True` runs it nevertheless. `controllers` are classes of
/// congestion controllers by the names that the scenario has; where one fails, `ControllerError`.
// The run is on a new thread. The calling thread waits without the interpreter's lock and takes it
// at intervals, because only Python's main thread can handle signals.
#[pyfunction]
#[pyo3(signature = (scenario, seed=None, cancel=None, *, any_size=false, controllers=None))]
pub(crate) fn run(
    py: Python<'_>,
    scenario: &Bound<'_, Scenario>,
    seed: Option<&Bound<'_, PyAny>>,
    cancel: Option<&Bound<'_, CancelToken>>,
    any_size: bool,
    controllers: Option<&Bound<'_, PyMapping>>,
) -> PyResult<RunResult> {
    let model = Arc::clone(&scenario.get().model);
    if !any_size && let Some(why) = model.too_large(1) {
        return Err(ScenarioError::new_err(format!("{why}, and any_size=True runs it as it is")));
    }
    let seed = seed.map_or(Ok(model.seed), seed_of)?;
    let is_cancelled = || cancel.is_some_and(|token| token.get().cancelled.load(Ordering::Relaxed));
    let control = Arc::new(Control::default());
    let controllers = Controllers::new(py, controllers, &model, &control)?.map(Arc::new);
    let (report, mut outcomes) = mpsc::channel();
    let worker = thread::Builder::new().name(format!("ontempo seed {seed}")).spawn({
        let (control, controllers) = (Arc::clone(&control), controllers.clone());
        let model = Arc::clone(&model);
        move || {
            let simulate = || simulate(&model, seed, &control, controllers.as_deref());
            let outcome = match &controllers {
                None => simulate(),
                Some(laws) => laws.attached(simulate),
            };
            // Sending fails only if the caller was interrupted.
            let _ = report.send(outcome);
        }
    })?;
    let mut interrupted: Option<(PyErr, Instant)> = None;
    loop {
        if is_cancelled() {
            control.cancel();
        }
        let waiting = &mut outcomes;
        let received = py.detach(move || waiting.recv_timeout(POLL_INTERVAL));
        if received.is_ok() {
            if let Some((error, _)) = interrupted {
                return Err(error);
            }
            if let Some(failure) = controllers.as_ref().and_then(|laws| laws.failure()) {
                return Err(failure);
            }
        }
        match received {
            Ok(Outcome::Done(results)) => return Ok(RunResult::new(model, seed, results)),
            Ok(Outcome::Refused(error)) => return Err(ScenarioError::new_err(error.to_string())),
            Ok(Outcome::Cancelled) => return Err(Cancelled::new_err("the run was cancelled")),
            Err(RecvTimeoutError::Timeout) => {
                let signal = py.check_signals().inspect_err(|_| control.cancel());
                let Some(laws) = &controllers else {
                    signal?;
                    continue;
                };
                // What Python runs on the other thread is ended, rather than left behind.
                match (signal, &interrupted) {
                    (Err(error), None) => interrupted = Some((error, Instant::now())),
                    (Err(error), Some(_)) => return Err(error),
                    (Ok(()), Some((error, at))) if at.elapsed() > END_WITHIN => {
                        return Err(error.clone_ref(py));
                    }
                    _ => {}
                }
                if control.is_cancelled() {
                    laws.interrupt(py);
                }
            }
            Err(RecvTimeoutError::Disconnected) => match worker.join() {
                Err(panic) => resume_unwind(panic),
                Ok(()) => return Err(PyRuntimeError::new_err("the run gave no result")),
            },
        }
    }
}
