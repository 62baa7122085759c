//! Congestion controllers written in Python: their classes, and the guard of a run that has some.

mod controller;
mod reading;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ontempo_mechanisms::congestion::CustomLaw;
use ontempo_scenario::{CustomNames, CustomParameters, known_names, model};
use ontempo_simulator::{Control, CustomLaws};
use pyo3::exceptions::{PyException, PyKeyboardInterrupt, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyMapping, PyString, PyType};

use self::controller::{Place, PythonController};
use crate::scenario::ScenarioError;

pyo3::create_exception!(
    ontempo._native,
    ControllerError,
    PyException,
    "A congestion controller of one's own failed; the run has no result.\n\nThe message names flow, \
     controller, method, file and line; an exception of the controller's is the `__cause__`."
);

/// The module of the base class and of the events.
const MODULE: &str = "ontempo.congestion";

/// Names of congestion controllers that a scenario may use: any iterable of texts, so that the
/// dictionary that `run` takes will do.
#[derive(Default)]
pub(crate) struct ControllerNames(pub(crate) CustomNames);

impl FromPyObject<'_, '_> for ControllerNames {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.cast::<PyString>() {
            let text = text.to_string_lossy();
            let what = format!("controllers are names: write [{text:?}], not {text:?}");
            return Err(PyTypeError::new_err(what));
        }
        let names = value.try_iter()?.map(|name| name?.extract::<String>());
        let names = names.collect::<PyResult<Vec<_>>>()?;
        let names = CustomNames::new(names);
        names.map(Self).map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

/// What ends a run when a controller fails, and keeps why.
pub(crate) struct Guard {
    control: Arc<Control>,
    failure: Mutex<Option<PyErr>>,
    /// What Python calls the thread of the run; 0 before it has begun.
    thread: AtomicU64,
}

impl Guard {
    /// Whether the run ends, so that no method is called any more.
    fn has_stopped(&self) -> bool {
        self.control.is_cancelled()
    }

    /// Ends the run, unless it ends already.
    fn fail(&self, error: PyErr) {
        if !self.has_stopped() {
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            self.control.cancel();
        }
    }
}

/// The class of a controller.
struct Class {
    class: Py<PyType>,
    /// Where its `on_ack` is.
    place: Place,
    takes_ecn: bool,
}

impl Class {
    /// # Errors
    /// `value` is no class of a controller, or lacks a method.
    fn new(name: &str, value: &Bound<'_, PyAny>, base: &Bound<'_, PyType>) -> PyResult<Self> {
        let refuse = |what: String| {
            Err(PyTypeError::new_err(format!("the congestion controller {name:?}: {what}")))
        };
        let Ok(class) = value.cast::<PyType>() else {
            let kind = value.get_type().name()?;
            return refuse(format!("a class is needed, not a value of type {kind}"));
        };
        let title = class.qualname()?;
        if !class.is_subclass(base)? {
            return refuse(format!(
                "{title} is no subclass of ontempo.CongestionController; write class \
                 {title}(ontempo.CongestionController)"
            ));
        }
        let lacks: Vec<String> = class
            .getattr("__abstractmethods__")
            .and_then(|names| names.try_iter()?.map(|name| name?.extract()).collect())
            .unwrap_or_default();
        if !lacks.is_empty() {
            let mut lacks: Vec<_> = lacks.iter().map(String::as_str).collect();
            lacks.sort_unstable();
            return refuse(format!("{title} lacks the methods {}; write them", known_names(lacks)));
        }
        Ok(Self {
            place: Place::of(class, "on_ack"),
            takes_ecn: !class.getattr("on_ecn")?.is(&base.getattr("on_ecn")?),
            class: class.clone().unbind(),
        })
    }
}

/// The events that controllers are told.
struct Events {
    start: Py<PyAny>,
    ack: Py<PyAny>,
    loss: Py<PyAny>,
    timeout: Py<PyAny>,
    snapshot: Py<PyAny>,
}

/// The congestion controllers of a run.
pub(crate) struct Controllers {
    classes: BTreeMap<String, Arc<Class>>,
    events: Arc<Events>,
    guard: Arc<Guard>,
}

impl Controllers {
    /// Those of `classes`; `control` ends the run. `None` where neither the run nor the scenario has
    /// any.
    ///
    /// # Errors
    /// A name or a class is none, a flow's controller is missing, or no flow has one.
    pub(crate) fn new(
        py: Python<'_>,
        classes: Option<&Bound<'_, PyMapping>>,
        scenario: &model::Scenario,
        control: &Arc<Control>,
    ) -> PyResult<Option<Self>> {
        let used = scenario.custom_controllers();
        let module = py.import(MODULE)?;
        let base = module.getattr("CongestionController")?.cast_into::<PyType>()?;
        let mut found = BTreeMap::new();
        for item in classes.map(|classes| classes.items()).transpose()?.iter().flatten() {
            let (name, value): (String, Bound<'_, PyAny>) = item.extract()?;
            CustomNames::new([name.clone()])
                .map_err(|error| PyValueError::new_err(error.to_string()))?;
            let class = Class::new(&name, &value, &base)?;
            if !used.iter().any(|(_, used)| *used == name) {
                return Err(PyValueError::new_err(format!(
                    "no flow has the congestion controller `{name}`; write transport = {{ kind = \
                     \"tcp\", congestion = \"{name}\" }}, or leave it out of controllers"
                )));
            }
            found.insert(name, Arc::new(class));
        }
        if let Some((group, name)) = used.iter().find(|(_, name)| !found.contains_key(*name)) {
            return Err(ScenarioError::new_err(format!(
                "flows.{group}.transport.congestion: this run was given no class of `{name}`; write \
                 run(…, controllers={{\"{name}\": …}})"
            )));
        }
        if found.is_empty() {
            return Ok(None);
        }
        let event = |name| PyResult::Ok(module.getattr(name)?.unbind());
        let events = Events {
            start: event("Start")?,
            ack: event("Ack")?,
            loss: event("Loss")?,
            timeout: event("Timeout")?,
            snapshot: event("Snapshot")?,
        };
        let guard = Guard {
            control: Arc::clone(control),
            failure: Mutex::default(),
            thread: AtomicU64::new(0),
        };
        Ok(Some(Self { classes: found, events: Arc::new(events), guard: Arc::new(guard) }))
    }

    /// Runs `work` on this thread, which Python then knows: taking the interpreter's lock for each event is
    /// cheap.
    pub(crate) fn attached<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        Python::attach(|py| {
            let thread = py
                .import("threading")
                .and_then(|threading| threading.call_method0("get_ident")?.extract::<u64>());
            self.guard.thread.store(thread.unwrap_or(0), Ordering::Relaxed);
            py.detach(work)
        })
    }

    /// Why a controller has ended the run.
    pub(crate) fn failure(&self) -> Option<PyErr> {
        self.guard.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Raises an exception in the thread of the run, which has been cancelled: the only way out of a
    /// method that never returns.
    pub(crate) fn interrupt(&self, py: Python<'_>) {
        let thread = self.guard.thread.load(Ordering::Relaxed);
        let raise = || -> PyResult<()> {
            let ctypes = py.import("ctypes")?;
            let thread = ctypes.call_method1("c_ulong", (thread,))?;
            let error = py.get_type::<PyKeyboardInterrupt>();
            let error = ctypes.call_method1("py_object", (error,))?;
            let api = ctypes.getattr("pythonapi")?;
            api.call_method1("PyThreadState_SetAsyncExc", (thread, error))?;
            Ok(())
        };
        if thread != 0 {
            // An interpreter that cannot do it leaves the thread as it is.
            let _ = raise();
        }
    }
}

impl CustomLaws for Controllers {
    fn law(&self, flow: &str, name: &str, parameters: &CustomParameters) -> Option<CustomLaw> {
        let class = Arc::clone(self.classes.get(name)?);
        let (events, guard) = (Arc::clone(&self.events), Arc::clone(&self.guard));
        let (flow, name, parameters) = (flow.to_owned(), name.to_owned(), parameters.clone());
        Some(CustomLaw::new(move |start, random| {
            let shared = (Arc::clone(&class), Arc::clone(&events), Arc::clone(&guard));
            PythonController::new(shared, (&flow, &name), &parameters, start, random)
        }))
    }
}

impl fmt::Debug for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.classes.keys()).finish()
    }
}
