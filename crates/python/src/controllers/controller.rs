//! One controller: an object of a Python class behind the trait of the mechanisms.

use std::fmt;
use std::sync::Arc;

use ontempo_foundation::{Duration, Packets, RandomStream, Rate};
use ontempo_mechanisms::congestion::{
    Ack, CongestionControl, CustomControl, Loss, Snapshot, Start, Timeout, Window,
};
use ontempo_scenario::CustomParameters;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::reading::{Reading, Unfit, shown};
use super::{Class, ControllerError, Events, Guard};

/// What a controller shares with those of other flows.
type Shared = (Arc<Class>, Arc<Events>, Arc<Guard>);

/// A function in the user's file.
pub(super) struct Place {
    file: String,
    line: u32,
}

impl Place {
    /// Where the method of the class is; nowhere if Python does not know.
    pub(super) fn of(class: &Bound<'_, PyType>, method: &str) -> Self {
        let find = || -> PyResult<Self> {
            let code = class.getattr(method)?.getattr("__code__")?;
            let file = code.getattr("co_filename")?.extract()?;
            Ok(Self { file, line: code.getattr("co_firstlineno")?.extract()? })
        };
        find().unwrap_or(Self { file: String::new(), line: 0 })
    }

    /// The last line of the traceback that is in this file; if none is, the last.
    fn of_error(&self, py: Python<'_>, error: &PyErr) -> Option<Self> {
        let mut last = None;
        let mut within = None;
        let mut next = error.traceback(py).map(Bound::into_any);
        while let Some(traceback) = next {
            let frame = traceback.getattr("tb_frame").ok()?;
            let file: String =
                frame.getattr("f_code").ok()?.getattr("co_filename").ok()?.extract().ok()?;
            let line: u32 = traceback.getattr("tb_lineno").ok()?.extract().ok()?;
            let found = if file == self.file { &mut within } else { &mut last };
            *found = Some(Self { file, line });
            next = traceback.getattr("tb_next").ok().filter(|next| !next.is_none());
        }
        within.or(last)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.file.is_empty() {
            return f.write_str("of unknown place");
        }
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A controller of a Python class.
pub(super) struct PythonController {
    flow: String,
    name: String,
    shared: Shared,
    /// `None` where it could not be made; the run then ends.
    object: Option<Py<PyAny>>,
    reading: Reading,
}

impl PythonController {
    /// A controller at the start of its connection.
    pub(super) fn new(
        shared: Shared,
        (flow, name): (&str, &str),
        parameters: &CustomParameters,
        start: Start,
        mut random: RandomStream,
    ) -> Self {
        let reading =
            Reading::new(start.initial_window.packets(), start.initial_ssthresh.packets());
        let mut controller =
            Self { flow: flow.to_owned(), name: name.to_owned(), shared, object: None, reading };
        controller.make(parameters);
        controller.tell("on_start", false, |py, object, events| {
            let (window, ssthresh) =
                (start.initial_window.packets(), start.initial_ssthresh.packets());
            let values = (flow, start.packet_size.get(), window, ssthresh, random.next_u64());
            object.setattr(intern!(py, "start"), events.start.bind(py).call1(values)?)?;
            object.call_method0(intern!(py, "on_start"))
        });
        controller
    }

    fn make(&mut self, parameters: &CustomParameters) {
        let (class, _, guard) = &self.shared;
        if guard.has_stopped() {
            return;
        }
        let made = Python::try_attach(|py| {
            let make = || -> PyResult<Py<PyAny>> {
                let arguments = PyDict::new(py);
                let json = py.import("json")?;
                for (name, value) in parameters {
                    let name = name.replace('-', "_");
                    if arguments.contains(&name)? {
                        let what = format!("the parameter {name} is given twice");
                        return Err(PyTypeError::new_err(what));
                    }
                    let value = json.call_method1("loads", (value.to_string(),))?;
                    arguments.set_item(name, value)?;
                }
                Ok(class.class.bind(py).call((), Some(&arguments))?.unbind())
            };
            make().map_err(|error| self.raised(py, "__init__", error))
        });
        match made {
            Some(Ok(object)) => self.object = Some(object),
            Some(Err(error)) => guard.fail(error),
            None => {}
        }
    }

    /// Calls a method with `call`, and reads the attributes. A smaller window `may_count` as a reduction.
    fn tell(
        &mut self,
        method: &str,
        may_count: bool,
        call: impl for<'py> FnOnce(
            Python<'py>,
            &Bound<'py, PyAny>,
            &Events,
        ) -> PyResult<Bound<'py, PyAny>>,
    ) {
        let (_, events, guard) = &self.shared;
        let Some(object) = self.object.as_ref().filter(|_| !guard.has_stopped()) else { return };
        let mut reading = self.reading;
        // Without an interpreter, the program is at its end.
        let told = Python::try_attach(|py| {
            let object = object.bind(py);
            let answer =
                call(py, object, events).map_err(|error| self.raised(py, method, error))?;
            if !answer.is_none() {
                let what = format!("returned {}; it returns nothing", shown(&answer));
                return Err(self.wrong(py, method, &what));
            }
            reading.read(object, may_count).map_err(|unfit| match unfit {
                Unfit::Value(what) => self.wrong(py, method, &format!("was called, then {what}")),
                Unfit::Raised(error) => self.raised(py, method, error),
            })
        });
        match told {
            Some(Ok(())) => self.reading = reading,
            Some(Err(error)) => guard.fail(error),
            None => {}
        }
    }

    /// An exception in a method.
    fn raised(&self, py: Python<'_>, method: &str, error: PyErr) -> PyErr {
        let place = self.shared.0.place.of_error(py, &error);
        let kind = error
            .get_type(py)
            .name()
            .map_or_else(|_| "an exception".into(), |name| name.to_string());
        let message = error.value(py).str();
        let message = message.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
        let colon = if message.is_empty() { "" } else { ": " };
        let failure = self.failure(py, method, place, &format!("raised {kind}{colon}{message}"));
        failure.set_cause(py, Some(error));
        failure
    }

    /// What else is wrong with a method.
    fn wrong(&self, py: Python<'_>, method: &str, what: &str) -> PyErr {
        self.failure(py, method, None, what)
    }

    fn failure(&self, py: Python<'_>, method: &str, place: Option<Place>, what: &str) -> PyErr {
        let class = self.shared.0.class.bind(py);
        let place = place.unwrap_or_else(|| Place::of(class, method));
        let title = class.qualname().map(|name| name.to_string()).unwrap_or_default();
        let Self { flow, name, .. } = self;
        ControllerError::new_err(format!(
            "{place}: flow {flow}, congestion controller `{name}`: {title}.{method} {what}"
        ))
    }
}

/// Seconds; `None` for the zero of a value that is not known yet.
fn seconds(span: Duration) -> Option<f64> {
    (span > Duration::ZERO).then(|| span.as_secs_f64())
}

fn loss_event<'py>(py: Python<'py>, events: &Events, loss: &Loss) -> PyResult<Bound<'py, PyAny>> {
    let values = (loss.now.as_secs_f64(), loss.packet, loss.next, loss.in_flight);
    events.loss.bind(py).call1(values)
}

impl CongestionControl for PythonController {
    fn on_ack(&mut self, ack: &Ack) {
        self.tell("on_ack", false, |py, object, events| {
            let values = (
                ack.now.as_secs_f64(),
                ack.packets,
                ack.rtt.map(Duration::as_secs_f64),
                seconds(ack.srtt),
                ack.acked,
                ack.next,
                ack.in_flight,
                ack.in_recovery,
                ack.repairs,
                ack.window_limited,
            );
            let event = events.ack.bind(py).call1(values)?;
            object.call_method1(intern!(py, "on_ack"), (event,))
        });
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.tell("on_loss", true, |py, object, events| {
            object.call_method1(intern!(py, "on_loss"), (loss_event(py, events, loss)?,))
        });
    }

    fn on_ecn(&mut self, mark: &Loss) {
        if !self.shared.0.takes_ecn {
            return self.on_loss(mark);
        }
        self.tell("on_ecn", true, |py, object, events| {
            object.call_method1(intern!(py, "on_ecn"), (loss_event(py, events, mark)?,))
        });
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        self.tell("on_timeout", true, |py, object, events| {
            let values =
                (timeout.now.as_secs_f64(), timeout.next, timeout.in_flight, timeout.repeated);
            let event = events.timeout.bind(py).call1(values)?;
            object.call_method1(intern!(py, "on_timeout"), (event,))
        });
    }

    fn on_spurious_timeout(&mut self, before: &Snapshot) {
        self.tell("on_spurious_timeout", false, |py, object, events| {
            let values = (before.cwnd.packets(), before.ssthresh.packets());
            let event = events.snapshot.bind(py).call1(values)?;
            object.call_method1(intern!(py, "on_spurious_timeout"), (event,))
        });
    }

    fn on_idle_restart(&mut self) {
        self.tell("on_idle_restart", false, |py, object, _| {
            object.call_method0(intern!(py, "on_idle_restart"))
        });
    }

    fn on_idle_decay(&mut self, timeouts: u64) {
        self.tell("on_idle_decay", false, |py, object, _| {
            object.call_method1(intern!(py, "on_idle_decay"), (timeouts,))
        });
    }

    fn window(&self) -> Window {
        Window::of_packets(self.reading.cwnd)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.reading.pacing_rate
    }

    fn burst(&self) -> Packets {
        self.reading.burst
    }

    fn snapshot(&self) -> Snapshot {
        self.reading.snapshot()
    }
}

impl CustomControl for PythonController {
    fn name(&self) -> &str {
        &self.name
    }

    fn boxed(&self) -> Box<dyn CustomControl> {
        let (class, events, guard) = &self.shared;
        let copied = self.object.as_ref().filter(|_| !guard.has_stopped()).and_then(|object| {
            Python::try_attach(|py| {
                let copy =
                    py.import("copy").and_then(|copy| copy.call_method1("deepcopy", (object,)));
                copy.map(Bound::unbind).map_err(|error| self.raised(py, "__deepcopy__", error))
            })
        });
        let object = match copied {
            Some(Ok(object)) => Some(object),
            Some(Err(error)) => {
                guard.fail(error);
                None
            }
            None => None,
        };
        Box::new(Self {
            flow: self.flow.clone(),
            name: self.name.clone(),
            shared: (Arc::clone(class), Arc::clone(events), Arc::clone(guard)),
            object,
            reading: self.reading,
        })
    }
}

impl fmt::Debug for PythonController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flow, name, reading, .. } = self;
        f.debug_struct("PythonController")
            .field("flow", flow)
            .field("name", name)
            .field("reading", reading)
            .finish_non_exhaustive()
    }
}
