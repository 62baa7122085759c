//! Events of a connection.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::thread;

use ontempo_mechanisms::qos::{Step, Turn, Value};
use ontempo_qos::{Event, Events};
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;

use super::specification::SpecificationFields;
use super::statistics::direction_name;
use crate::live::{Notifier, lock};

/// Maximum events queued for the event loop; beyond it the oldest are dropped.
const MAX_QUEUED: usize = 1024;

#[derive(Default)]
struct EventQueue {
    events: VecDeque<Event>,
    has_ended: bool,
}

/// The events of a connection since this object was created.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct QosEvents {
    queue: Arc<Mutex<EventQueue>>,
    #[pyo3(get)]
    key: u64,
}

impl QosEvents {
    /// Starts a thread that queues the events; it ends with the connection.
    pub(super) fn new(events: Events, notifier: Notifier) -> PyResult<Self> {
        let queue = Arc::<Mutex<EventQueue>>::default();
        let (weak, key) = (Arc::downgrade(&queue), notifier.key);
        thread::Builder::new().name("ontempo-events".to_owned()).spawn(move || {
            for event in events {
                // Python has dropped the object: no further event is read.
                let Some(queue) = weak.upgrade() else { return };
                let mut queue = lock(&queue);
                if queue.events.len() >= MAX_QUEUED {
                    queue.events.pop_front();
                }
                queue.events.push_back(event);
                drop(queue);
                notifier.notify();
            }
            if let Some(queue) = weak.upgrade() {
                lock(&queue).has_ended = true;
            }
            notifier.notify();
        })?;
        Ok(Self { queue, key })
    }
}

/// A parameter's value: messages per second, bytes, seconds, percent, or a boolean.
#[derive(IntoPyObject)]
enum Number {
    Number(f64),
    Allowed(bool),
}

impl Number {
    fn of(value: Value) -> Self {
        match value {
            Value::Rate(rate) => Self::Number(rate.as_f64()),
            Value::Size(size) => Self::Number(size.get() as f64),
            Value::Span(span) => Self::Number(span.as_secs_f64()),
            Value::Share(share) => Self::Number(share.as_f64()),
            Value::Allowed(allowed) => Self::Allowed(allowed),
        }
    }
}

/// The parts of an event; the first is its kind.
#[derive(IntoPyObject)]
pub(crate) enum Parts {
    Violation(ViolationParts),
    Lasting(LastingParts),
    Step((&'static str, bool, usize, SpecificationFields)),
    Changed((&'static str, &'static str, SpecificationFields)),
    Reservation((&'static str, &'static str, &'static str, String)),
    Lost((&'static str, String)),
    Recovered((&'static str, f64)),
    Unrecoverable((&'static str, String)),
}

#[derive(IntoPyObject)]
pub(crate) struct ViolationParts(
    &'static str,
    &'static str,
    &'static str,
    bool,
    Number,
    Number,
    String,
);

#[derive(IntoPyObject)]
pub(crate) struct LastingParts(
    &'static str,
    &'static str,
    &'static str,
    Number,
    Option<Number>,
    f64,
    String,
);

impl Parts {
    fn of(event: Event) -> Self {
        match event {
            Event::Lasting { direction, parameter, asked, delivered, lasted } => {
                let measured =
                    delivered.map_or_else(|| "nothing".to_owned(), |one| one.to_string());
                let text = format!(
                    "{parameter} has been violated for {:.0} s: {asked} agreed, {measured} delivered",
                    lasted.as_secs_f64()
                );
                Self::Lasting(LastingParts(
                    "lasting",
                    direction_name(direction),
                    parameter.name(),
                    Number::of(asked),
                    delivered.map(Number::of),
                    lasted.as_secs_f64(),
                    text,
                ))
            }
            Event::Violation { direction, violation } => {
                let begins = violation.turn == Turn::Begins;
                let turn = if begins { "is violated" } else { "is met again" };
                let text = format!(
                    "{} {turn}: {} agreed, {} delivered",
                    violation.parameter, violation.asked, violation.delivered
                );
                Self::Violation(ViolationParts(
                    "violation",
                    direction_name(direction),
                    violation.parameter.name(),
                    begins,
                    Number::of(violation.asked),
                    Number::of(violation.delivered),
                    text,
                ))
            }
            Event::Step { step, agreed } => {
                let (is_down, rung) = match step {
                    Step::Down(rung) => (true, rung),
                    Step::Up(rung) => (false, rung),
                };
                Self::Step(("step", is_down, rung, SpecificationFields::of(&agreed)))
            }
            Event::Changed { direction, agreed } => Self::Changed((
                "changed",
                direction_name(direction),
                SpecificationFields::of(&agreed),
            )),
            Event::Reservation { direction, state, reason } => {
                let (direction, state) = (direction_name(direction), state.name());
                Self::Reservation(("reservation", direction, state, reason))
            }
            Event::Lost { reason } => Self::Lost(("lost", reason)),
            Event::Recovered { after } => Self::Recovered(("recovered", after.as_secs_f64())),
            Event::Unrecoverable { reason } => Self::Unrecoverable(("unrecoverable", reason)),
        }
    }
}

#[pymethods]
impl QosEvents {
    /// The next event; `None` while there is none. Raises `StopAsyncIteration` at the end.
    fn try_next(&self) -> PyResult<Option<Parts>> {
        let mut queue = lock(&self.queue);
        match queue.events.pop_front() {
            Some(event) => Ok(Some(Parts::of(event))),
            None if queue.has_ended => Err(PyStopAsyncIteration::new_err(())),
            None => Ok(None),
        }
    }
}
