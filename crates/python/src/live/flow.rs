//! Flows.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration as Wall;

use bytes::Bytes;
use ontempo_foundation::{Duration, Time};
use ontempo_transport::live::{Message, NotTaken, ReceiveFlow, SendFlow};
use ontempo_transport::{Delivery, DeliveryOrder, FlowConfig, Reliability, Unit};
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use super::bridge::{BackgroundDrop, Notifier, PendingResult, Waker, lock};
use super::failure;
use super::options::{choice, name};
use super::statistics::{ReceiveStatistics, SendStatistics};

const ORDERS: [(&str, DeliveryOrder); 3] = [
    (DeliveryOrder::InOrder.name(), DeliveryOrder::InOrder),
    (DeliveryOrder::OutOfOrder.name(), DeliveryOrder::OutOfOrder),
    (DeliveryOrder::PartialOrder.name(), DeliveryOrder::PartialOrder),
];

const RELIABILITIES: [(&str, Reliability); 3] = [
    (Reliability::Full.name(), Reliability::Full),
    (Reliability::Deadline.name(), Reliability::Deadline),
    (Reliability::None.name(), Reliability::None),
];

/// Maximum stored numbers of dropped units; beyond it the oldest are discarded.
const MAX_DROPPED: usize = 4096;

/// The configuration of a flow, from Python's names.
pub(super) fn config(order: &str, reliability: &str, label: String) -> PyResult<FlowConfig> {
    let order = choice("order", order, &ORDERS)?;
    let reliability = choice("reliability", reliability, &RELIABILITIES)?;
    Ok(FlowConfig { order, reliability, label })
}

pub(super) fn seconds(time: Time) -> f64 {
    time.since(Time::ZERO).as_secs_f64()
}

/// A flow that this side sends.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct LiveSendFlow {
    flow: Arc<BackgroundDrop<SendFlow>>,
    #[pyo3(get)]
    key: u64,
}

impl LiveSendFlow {
    pub(super) fn new(flow: BackgroundDrop<SendFlow>, notifier: &Notifier) -> Self {
        flow.on_change(notifier.hook());
        Self { flow: Arc::new(flow), key: notifier.key }
    }
}

#[pymethods]
impl LiveSendFlow {
    /// Sends a unit and returns its number; `None` while the send queue is full.
    ///
    /// The data is not copied: the Python object is released when the unit has arrived.
    fn try_send(
        &self,
        py: Python<'_>,
        data: PyBackedBytes,
        lifetime_s: Option<f64>,
        priority: u8,
        depends_on: Vec<u64>,
    ) -> PyResult<Option<u64>> {
        let lifetime = lifetime_s.map(Duration::from_secs_f64);
        let data = Bytes::from_owner(data);
        let message = Message { data, lifetime, priority, depends_on, ..Message::default() };
        match py.detach(|| self.flow.send_within(message, Wall::ZERO)) {
            Ok(number) => Ok(Some(number)),
            Err(NotTaken::Full) => Ok(None),
            Err(NotTaken::Failed(error)) => Err(failure(error)),
        }
    }

    /// Numbers of units that were dropped since the last call.
    fn dropped(&self, py: Python<'_>) -> Vec<u64> {
        py.detach(|| self.flow.dropped())
    }

    fn finish(&self, py: Python<'_>) {
        py.detach(|| self.flow.finish());
    }

    /// The statistics of a flow that is settled; `None` while it is not.
    fn settled(&self, py: Python<'_>) -> PyResult<Option<SendStatistics>> {
        let settled = py.detach(|| self.flow.settled(Wall::ZERO)).transpose().map_err(failure)?;
        Ok(settled.as_ref().map(SendStatistics::of))
    }

    fn statistics(&self, waker: &Waker) -> PyResult<PendingResult> {
        let flow = Arc::clone(&self.flow);
        let finish = |py: Python<'_>, all: Option<_>| {
            Ok(all.as_ref().map(SendStatistics::of).into_pyobject(py)?.unbind())
        };
        waker.spawn(move || flow.statistics(), finish)
    }
}

/// A flow that the peer sends.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct LiveReceiveFlow {
    flow: Arc<BackgroundDrop<ReceiveFlow>>,
    dropped: Mutex<VecDeque<u64>>,
    #[pyo3(get)]
    key: u64,
}

impl LiveReceiveFlow {
    pub(super) fn new(flow: ReceiveFlow, notifier: &Notifier) -> Self {
        flow.on_change(notifier.hook());
        let flow = Arc::new(BackgroundDrop::new(flow));
        Self { flow, dropped: Mutex::default(), key: notifier.key }
    }
}

/// The fields of a received unit, in the order of Python's data class.
#[derive(IntoPyObject)]
pub(crate) struct ReceivedUnit<'py>(
    u64,
    Bound<'py, PyBytes>,
    Option<f64>,
    f64,
    Option<f64>,
    u8,
    Vec<u64>,
);

impl<'py> ReceivedUnit<'py> {
    fn new(py: Python<'py>, unit: Unit) -> Self {
        let Unit { id, data, sent, arrived, lifetime, priority, missing, .. } = unit;
        let lifetime = lifetime.map(Duration::as_secs_f64);
        let data = PyBytes::new(py, &data);
        Self(id, data, sent.map(seconds), seconds(arrived), lifetime, priority, missing)
    }
}

#[pymethods]
impl LiveReceiveFlow {
    /// Its order, its reliability and its label.
    fn config(&self) -> (&'static str, &'static str, String) {
        let config = self.flow.config();
        let order = name(&ORDERS, &config.order);
        (order, name(&RELIABILITIES, &config.reliability), config.label.clone())
    }

    /// The next unit; `None` while there is none. Raises `StopAsyncIteration` at the end.
    fn try_receive<'py>(&self, py: Python<'py>) -> PyResult<Option<ReceivedUnit<'py>>> {
        loop {
            match py.detach(|| self.flow.receive_within(Wall::ZERO)) {
                None => return Ok(None),
                Some(Ok(Some(Delivery::Unit(unit)))) => {
                    return Ok(Some(ReceivedUnit::new(py, unit)));
                }
                Some(Ok(Some(Delivery::Dropped(number)))) => {
                    let mut dropped = lock(&self.dropped);
                    if dropped.len() >= MAX_DROPPED {
                        dropped.pop_front();
                    }
                    dropped.push_back(number);
                }
                Some(Ok(None)) => return Err(PyStopAsyncIteration::new_err(())),
                Some(Err(error)) => return Err(failure(error)),
            }
        }
    }

    /// Numbers of units that the sender dropped, seen by `try_receive` since the last call.
    fn dropped(&self) -> Vec<u64> {
        std::mem::take(&mut *lock(&self.dropped)).into()
    }

    fn statistics(&self, waker: &Waker) -> PyResult<PendingResult> {
        let flow = Arc::clone(&self.flow);
        let finish = |py: Python<'_>, all: Option<_>| {
            Ok(all.as_ref().map(ReceiveStatistics::of).into_pyobject(py)?.unbind())
        };
        waker.spawn(move || flow.statistics(), finish)
    }
}
