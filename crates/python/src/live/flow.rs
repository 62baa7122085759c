//! Flows.

use std::sync::Arc;
use std::time::Duration as Wall;

use bytes::Bytes;
use ontempo_foundation::{Duration, Time};
use ontempo_transport::live::{Message, NotTaken, ReceiveFlow, SendFlow};
use ontempo_transport::{Delivery, DeliveryOrder, FlowConfig, Reliability, Unit};
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use super::bridge::{Answer, Kept, Place, Waker};
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

/// How a flow is delivered, from Python's names.
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
    flow: Arc<Kept<SendFlow>>,
    #[pyo3(get)]
    key: u64,
}

impl LiveSendFlow {
    pub(super) fn new(flow: Kept<SendFlow>, place: &Place) -> Self {
        flow.on_change(place.hook());
        Self { flow: Arc::new(flow), key: place.key }
    }
}

#[pymethods]
impl LiveSendFlow {
    /// Sends a unit and answers its number; `None` where as much waits as may.
    ///
    /// The data is the Python object's own, which is let go when it has arrived.
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
        let message = Message { data, lifetime, priority, depends_on };
        match py.detach(|| self.flow.send_within(message, Wall::ZERO)) {
            Ok(number) => Ok(Some(number)),
            Err(NotTaken::Full) => Ok(None),
            Err(NotTaken::Failed(error)) => Err(failure(error)),
        }
    }

    /// Numbers of units that were dropped since this was last asked.
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

    fn statistics(&self, waker: &Waker) -> PyResult<Answer> {
        let flow = Arc::clone(&self.flow);
        let finish = |py: Python<'_>, all: Option<_>| {
            Ok(all.as_ref().map(SendStatistics::of).into_pyobject(py)?.unbind())
        };
        waker.later(move || flow.statistics(), finish)
    }
}

/// A flow that the peer sends.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct LiveReceiveFlow {
    flow: Arc<Kept<ReceiveFlow>>,
    #[pyo3(get)]
    key: u64,
}

impl LiveReceiveFlow {
    pub(super) fn new(flow: ReceiveFlow, place: &Place) -> Self {
        flow.on_change(place.hook());
        Self { flow: Arc::new(Kept::new(flow)), key: place.key }
    }
}

/// A unit, as Python's data class takes it.
#[derive(IntoPyObject)]
pub(crate) struct Arrived<'py>(
    u64,
    Bound<'py, PyBytes>,
    Option<f64>,
    f64,
    Option<f64>,
    u8,
    Vec<u64>,
);

impl<'py> Arrived<'py> {
    fn new(py: Python<'py>, unit: Unit) -> Self {
        let Unit { id, data, sent, arrived, lifetime, priority, missing } = unit;
        let lifetime = lifetime.map(Duration::as_secs_f64);
        let data = PyBytes::new(py, &data);
        Self(id, data, sent.map(seconds), seconds(arrived), lifetime, priority, missing)
    }
}

/// What a receiver is given: a unit, or the number of one that will not come.
#[derive(IntoPyObject)]
pub(crate) enum Delivered<'py> {
    Unit(Arrived<'py>),
    Dropped(u64),
}

#[pymethods]
impl LiveReceiveFlow {
    /// Its order, its reliability and its label.
    fn config(&self) -> (&'static str, &'static str, String) {
        let config = self.flow.config();
        let order = name(&ORDERS, &config.order);
        (order, name(&RELIABILITIES, &config.reliability), config.label.clone())
    }

    /// The next unit, or the number of one that will not come; `None` while there is neither.
    /// Raises `StopAsyncIteration` where the flow is over.
    fn try_receive<'py>(&self, py: Python<'py>) -> PyResult<Option<Delivered<'py>>> {
        match py.detach(|| self.flow.receive_within(Wall::ZERO)) {
            None => Ok(None),
            Some(Ok(Some(Delivery::Unit(unit)))) => {
                Ok(Some(Delivered::Unit(Arrived::new(py, unit))))
            }
            Some(Ok(Some(Delivery::Dropped(number)))) => Ok(Some(Delivered::Dropped(number))),
            Some(Ok(None)) => Err(PyStopAsyncIteration::new_err(())),
            Some(Err(error)) => Err(failure(error)),
        }
    }

    fn statistics(&self, waker: &Waker) -> PyResult<Answer> {
        let flow = Arc::clone(&self.flow);
        let finish = |py: Python<'_>, all: Option<_>| {
            Ok(all.as_ref().map(ReceiveStatistics::of).into_pyobject(py)?.unbind())
        };
        waker.later(move || flow.statistics(), finish)
    }
}
