//! Listeners.

use std::sync::{Arc, Mutex};
use std::time::Duration as Wall;

use ontempo_transport::live::{Accepted, Listener, Options};
use ontempo_udp::Socket;
use pyo3::prelude::*;

use super::bridge::{BackgroundDrop, Notifier, PendingResult, Waker, lock};
use super::connection::{LiveConnection, address, parts, token};
use super::identity::Identity;
use super::options::OptionsFields;
use super::{closed, failure};

/// Listens at an address, or at all addresses of this host if none is given. The result is a
/// `LiveListener`.
#[pyfunction]
pub(crate) fn bind(
    at: (Option<String>, u16),
    identity: Py<Identity>,
    token: &[u8],
    options: OptionsFields,
    waker: Py<Waker>,
) -> PyResult<PendingResult> {
    let host = at.0.map(|host| address(&host, at.1)).transpose()?;
    let (token, options) = (self::token(token)?, options.options()?);
    let notifier = waker.get().notifier();
    let work = move || {
        let Options { socket, .. } = options;
        let socket = host.map_or_else(
            || Socket::bind_any(at.1, socket),
            |address| Socket::bind(address, socket),
        )?;
        Listener::new(socket, &identity.get().0, token, &options).map(BackgroundDrop::new)
    };
    waker.get().spawn(work, move |py, bound| {
        let listener = LiveListener::new(bound.map_err(failure)?, &notifier);
        Ok(Py::new(py, listener)?.into_any())
    })
}

/// Accepts connections at a UDP port.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct LiveListener {
    /// `None` once it is closed.
    listener: Mutex<Option<Arc<BackgroundDrop<Listener>>>>,
    #[pyo3(get)]
    key: u64,
    #[pyo3(get)]
    local: (String, u16),
}

impl LiveListener {
    fn new(listener: BackgroundDrop<Listener>, notifier: &Notifier) -> Self {
        listener.on_change(notifier.hook());
        let local = parts(listener.local());
        Self { listener: Mutex::new(Some(Arc::new(listener))), key: notifier.key, local }
    }
}

/// An accepted connection, or the address of a refused client with the reason and the name of the
/// `CloseReason`.
#[derive(IntoPyObject)]
pub(crate) enum Arrival {
    Connection(Py<LiveConnection>),
    Refused((Option<(String, u16)>, String, &'static str)),
}

#[pymethods]
impl LiveListener {
    /// The next arrival; `None` while there is none.
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

    /// Stops accepting; the result follows once that is done.
    fn close(&self, waker: &Waker) -> PyResult<Option<PendingResult>> {
        let Some(listener) = lock(&self.listener).take() else { return Ok(None) };
        let work = move || drop(Arc::try_unwrap(listener).map(BackgroundDrop::take));
        waker.spawn(work, |py, ()| Ok(py.None())).map(Some)
    }
}
