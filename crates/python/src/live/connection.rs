//! Connections.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration as Wall;

use ontempo_transport::live::{Connection, Pending};
use ontempo_transport::{CloseReason, Closed, Token};
use ontempo_udp::Clock;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::bridge::{BackgroundDrop, Notifier, PendingResult, Waker, lock};
use super::flow::{LiveReceiveFlow, LiveSendFlow, config, seconds};
use super::identity::Trust;
use super::options::OptionsFields;
use super::statistics::ConnectionStatistics;
use super::{failure, over};

/// A socket address from a numeric IP address and a port.
pub(crate) fn address(host: &str, port: u16) -> PyResult<SocketAddr> {
    let ip: IpAddr = host
        .parse()
        .map_err(|_| PyValueError::new_err(format!("`{host}` is no address of IPv4 or IPv6")))?;
    Ok(SocketAddr::new(ip, port))
}

pub(crate) fn parts(address: SocketAddr) -> (String, u16) {
    (address.ip().to_string(), address.port())
}

/// Empty: none. That a listener takes anybody is said in Python.
pub(crate) fn token(bytes: &[u8]) -> PyResult<Token> {
    if bytes.is_empty() {
        return Ok(Token::anyone());
    }
    Token::new(bytes).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Starts a connection; the result is a `LiveConnecting`.
#[pyfunction]
pub(crate) fn begin(
    remote: (String, u16),
    name: String,
    trust: &Trust,
    token: &[u8],
    options: OptionsFields,
    waker: Py<Waker>,
) -> PyResult<PendingResult> {
    let remote = address(&remote.0, remote.1)?;
    let (trust, token) = (trust.0.clone(), self::token(token)?);
    let options = options.options()?;
    let notifier = waker.get().notifier();
    let work =
        move || Pending::begin(remote, &name, &trust, token, &options).map(BackgroundDrop::new);
    waker.get().spawn(work, move |py, started| {
        let pending = LiveConnecting::new(started.map_err(failure)?, &notifier);
        Ok(Py::new(py, pending)?.into_any())
    })
}

/// A connection whose handshake is under way.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct LiveConnecting {
    pending: Mutex<Option<BackgroundDrop<Pending>>>,
    #[pyo3(get)]
    key: u64,
}

impl LiveConnecting {
    fn new(pending: BackgroundDrop<Pending>, notifier: &Notifier) -> Self {
        pending.on_change(notifier.hook());
        Self { pending: Mutex::new(Some(pending)), key: notifier.key }
    }
}

#[pymethods]
impl LiveConnecting {
    /// The connection, once; `None` until the handshake is complete.
    fn take(&self, py: Python<'_>, waker: &Waker) -> PyResult<Option<LiveConnection>> {
        let mut slot = lock(&self.pending);
        let Some(pending) = &*slot else { return Ok(None) };
        let Some(result) = py.detach(|| pending.wait(Some(Wall::ZERO))) else { return Ok(None) };
        let pending = slot.take().and_then(BackgroundDrop::take);
        result.map_err(failure)?;
        Ok(pending.map(|pending| LiveConnection::new(pending.connection(), waker)))
    }
}

enum State {
    /// Until this side closes it.
    Held(Arc<BackgroundDrop<Connection>>),
    /// How it had ended, or was closed by this side.
    Over(Closed),
}

/// A connection.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct LiveConnection {
    state: Mutex<State>,
    #[pyo3(get)]
    key: u64,
    #[pyo3(get)]
    remote: (String, u16),
    #[pyo3(get)]
    local: (String, u16),
    clock: Clock,
}

impl LiveConnection {
    fn is_closed(&self) -> Option<Closed> {
        match &*lock(&self.state) {
            State::Held(connection) => connection.is_closed(),
            State::Over(closed) => Some(closed.clone()),
        }
    }

    pub(super) fn new(connection: Connection, waker: &Waker) -> Self {
        let notifier = waker.notifier();
        connection.on_change(notifier.hook());
        Self {
            key: notifier.key,
            remote: parts(connection.remote()),
            local: parts(connection.local()),
            clock: connection.clock(),
            state: Mutex::new(State::Held(Arc::new(BackgroundDrop::new(connection)))),
        }
    }

    fn get(&self) -> PyResult<Arc<BackgroundDrop<Connection>>> {
        match &*lock(&self.state) {
            State::Held(connection) => Ok(Arc::clone(connection)),
            State::Over(closed) => Err(over(closed)),
        }
    }
}

#[pymethods]
impl LiveConnection {
    /// The time of the connection's clock, in seconds.
    fn now_s(&self) -> f64 {
        seconds(self.clock.now())
    }

    /// Opens a flow; the result is a `LiveSendFlow`.
    fn open_flow(
        &self,
        order: &str,
        reliability: &str,
        label: String,
        waker: &Waker,
    ) -> PyResult<PendingResult> {
        let (connection, config) = (self.get()?, config(order, reliability, label)?);
        let notifier = waker.notifier();
        let work = move || connection.open_flow(config).map(BackgroundDrop::new);
        waker.spawn(work, move |py, opened| {
            let flow = LiveSendFlow::new(opened.map_err(failure)?, &notifier);
            Ok(Py::new(py, flow)?.into_any())
        })
    }

    /// The next flow that the peer has opened; `None` if there is none.
    fn try_accept(&self, py: Python<'_>, waker: &Waker) -> PyResult<Option<LiveReceiveFlow>> {
        let connection = self.get()?;
        let flow = py.detach(|| connection.accept_flow_within(Wall::ZERO));
        let flow = flow.transpose().map_err(failure)?;
        Ok(flow.map(|flow| LiveReceiveFlow::new(flow, &waker.notifier())))
    }

    /// A sentence that explains why it was closed or lost; `None` while it is open.
    fn closed_because(&self) -> Option<String> {
        self.is_closed().map(|closed| closed.sentence)
    }

    /// The name of its `CloseReason`; `None` while it is open.
    fn close_reason(&self) -> Option<&'static str> {
        self.is_closed().map(|closed| closed.reason.name())
    }

    /// Its application error code; `None` while it is open, or if none was sent.
    fn close_code(&self) -> Option<u64> {
        self.is_closed().and_then(|closed| closed.reason.code())
    }

    /// The peer's own words.
    fn said(&self) -> String {
        self.is_closed().map(|closed| closed.said).unwrap_or_default()
    }

    /// The peer's address now; the result is `None` once the connection is closed.
    fn remote_now(&self, waker: &Waker) -> PyResult<PendingResult> {
        let connection = self.get()?;
        let finish = |py: Python<'_>, remote: Option<SocketAddr>| {
            Ok(remote.map(parts).into_pyobject(py)?.unbind())
        };
        waker.spawn(move || connection.remote_now(), finish)
    }

    fn statistics(&self, waker: &Waker) -> PyResult<PendingResult> {
        let connection = self.get()?;
        let finish = |py: Python<'_>, all: Option<_>| {
            Ok(all.as_ref().map(ConnectionStatistics::of).into_pyobject(py)?.unbind())
        };
        waker.spawn(move || connection.statistics(), finish)
    }

    /// Closes it and sends sentence and application error code to the peer; the result follows
    /// once that is done.
    fn close(&self, reason: String, code: u64, waker: &Waker) -> PyResult<Option<PendingResult>> {
        let code = CloseReason::of_code(code);
        let mut state = lock(&self.state);
        let State::Held(connection) = &*state else { return Ok(None) };
        // The peer may have closed it before.
        let closed = connection.is_closed();
        let closed = closed.unwrap_or_else(|| Closed::found(code, Closed::by_this_side().sentence));
        let State::Held(connection) = std::mem::replace(&mut *state, State::Over(closed)) else {
            return Ok(None);
        };
        drop(state);
        let work = move || {
            connection.close_with(code, &reason);
            // Returns after the thread has processed the closing.
            connection.statistics();
            // If nothing else uses the socket, this ends its thread.
            drop(Arc::try_unwrap(connection).map(BackgroundDrop::take));
        };
        waker.spawn(work, |py, ()| Ok(py.None())).map(Some)
    }
}
