//! Taking connections.

use std::sync::{Arc, Mutex};
use std::time::Duration as Wall;

use ontempo_transport::live::{Accepted, Listener, Options};
use ontempo_udp::Socket;
use pyo3::prelude::*;

use super::bridge::{Answer, Kept, Place, Waker, lock};
use super::connection::{LiveConnection, address, parts, token};
use super::identity::Identity;
use super::options::Given;
use super::{closed, failure};

/// Listens; without a host at every address of this machine. Answers a `LiveListener`.
#[pyfunction]
pub(crate) fn bind(
    at: (Option<String>, u16),
    identity: Py<Identity>,
    token: &[u8],
    options: Given,
    waker: Py<Waker>,
) -> PyResult<Answer> {
    let host = at.0.map(|host| address(&host, at.1)).transpose()?;
    let (token, options) = (self::token(token)?, options.options()?);
    let place = waker.get().place();
    let work = move || {
        let Options { socket, .. } = options;
        let socket = host.map_or_else(
            || Socket::bind_any(at.1, socket),
            |address| Socket::bind(address, socket),
        )?;
        Listener::new(socket, &identity.get().0, token, &options).map(Kept::new)
    };
    waker.get().later(work, move |py, bound| {
        let listener = LiveListener::new(bound.map_err(failure)?, &place);
        Ok(Py::new(py, listener)?.into_any())
    })
}

/// Takes connections at a UDP port.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct LiveListener {
    /// `None` once it is closed.
    listener: Mutex<Option<Arc<Kept<Listener>>>>,
    #[pyo3(get)]
    key: u64,
    #[pyo3(get)]
    local: (String, u16),
}

impl LiveListener {
    fn new(listener: Kept<Listener>, place: &Place) -> Self {
        listener.on_change(place.hook());
        let local = parts(listener.local());
        Self { listener: Mutex::new(Some(Arc::new(listener))), key: place.key, local }
    }
}

/// Who came: one to talk to, or one who was refused, with the sentence and the name of the
/// `CloseReason`.
#[derive(IntoPyObject)]
pub(crate) enum Arrival {
    Connection(Py<LiveConnection>),
    Refused((Option<(String, u16)>, String, &'static str)),
}

#[pymethods]
impl LiveListener {
    /// Who came next; `None` where nobody did.
    fn try_accept(&self, py: Python<'_>, waker: &Waker) -> PyResult<Option<Arrival>> {
        let listener = lock(&self.listener).clone().ok_or_else(closed)?;
        let arrival = py.detach(|| listener.accept_within(Wall::ZERO));
        let Some(arrival) = arrival else { return Ok(None) };
        Ok(Some(match arrival {
            Accepted::Connection(connection) => {
                Arrival::Connection(Py::new(py, LiveConnection::new(connection, waker))?)
            }
            Accepted::Refused { remote, closed } => {
                let reason = closed.reason.name();
                Arrival::Refused((remote.map(parts), closed.sentence, reason))
            }
        }))
    }

    /// Takes no more; answers once that is so.
    fn close(&self, waker: &Waker) -> PyResult<Option<Answer>> {
        let Some(listener) = lock(&self.listener).take() else { return Ok(None) };
        let work = move || drop(Arc::try_unwrap(listener).map(Kept::take));
        waker.later(work, |py, ()| Ok(py.None())).map(Some)
    }
}
