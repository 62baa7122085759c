//! Connections.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration as Wall, Instant};

use ontempo_qos::AnySocket;
use ontempo_transport::Closed;
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use super::errors::{DisagreementError, UnitError};
use super::event::QosEvents;
use super::specification::{QosOptionsFields, SpecificationFields};
use super::statistics::{DeliveryFields, direction};
use super::transport::{ClientTransport, set_timeouts, unknown_transport};
use super::{closed as closed_by, failure};
use crate::live::{
    Notifier, PendingResult, Trust, Waker, address, closed, lock, over, parts, token,
};

/// Maximum messages and bytes queued for the program; beyond them the socket is not read, which
/// causes backpressure over TCP and QUIC.
const MAX_READY: usize = 256;
const MAX_READY_BYTES: usize = 256 << 10;

/// A received message: its data, its sequence number and its delay in seconds.
struct ReceivedMessage(Vec<u8>, u64, f64);

/// State shared by the program and the threads of a connection.
#[derive(Default)]
struct State {
    ready: VecDeque<ReceivedMessage>,
    ready_bytes: usize,
    /// `Ok` after the peer has finished sending; `Err` if receiving failed.
    receive_end: Option<Result<(), Closed>>,
    is_writing: bool,
    /// The message queued for the writing thread.
    outgoing: Option<PyBackedBytes>,
    /// Why sending failed.
    send_error: Option<Closed>,
    /// The connection is closing: received messages are discarded.
    is_ending: bool,
    is_closed: bool,
}

impl State {
    fn has_sent(&self) -> bool {
        !self.is_writing || self.send_error.is_some()
    }

    fn is_over(&self) -> bool {
        self.receive_end.is_some() || self.send_error.is_some()
    }
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    notifier: Notifier,
}

impl Shared {
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let result = change(&mut lock(&self.state));
        self.changed.notify_all();
        self.notifier.notify();
        result
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `condition` is true; false if it is not by `until`.
    fn wait_until(&self, until: Instant, condition: fn(&State) -> bool) -> bool {
        let mut state = lock(&self.state);
        while !condition(&state) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// True if the call can be repeated: a timeout or an interruption.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Receives messages until either side ends the connection.
fn read(socket: &AnySocket, shared: &Shared) {
    let mut buffer = vec![0; socket.max_receive_size()];
    loop {
        {
            let mut state = lock(&shared.state);
            let is_full = |state: &State| {
                state.ready.len() >= MAX_READY || state.ready_bytes >= MAX_READY_BYTES
            };
            while !state.is_closed && is_full(&state) {
                state = shared.wait(state);
            }
            if state.is_closed {
                return;
            }
        }
        match socket.receive_message(&mut buffer) {
            Ok(Some(message)) => {
                let data = buffer[..message.length].to_vec();
                shared.change(|state| {
                    if state.is_ending {
                        return;
                    }
                    state.ready_bytes += data.len();
                    let delay_s = message.delay.as_secs_f64();
                    state.ready.push_back(ReceivedMessage(data, message.sequence, delay_s));
                });
            }
            Ok(None) => return shared.change(|state| state.receive_end = Some(Ok(()))),
            Err(error) if is_transient(&error) => {}
            Err(error) => {
                return shared.change(|state| state.receive_end = Some(Err(closed_by(&error))));
            }
        }
    }
}

/// Sends the program's messages, one after another.
fn write(socket: &AnySocket, shared: &Shared) {
    loop {
        let data = {
            let mut state = lock(&shared.state);
            loop {
                if state.is_closed {
                    return;
                }
                match state.outgoing.take() {
                    Some(data) => break data,
                    None => state = shared.wait(state),
                }
            }
        };
        // `is_writing` stays set until the message has been sent.
        let sent = loop {
            match socket.send_message(&data) {
                Err(error) if is_transient(&error) => {
                    if lock(&shared.state).is_closed {
                        return;
                    }
                }
                done => break done,
            }
        };
        shared.change(|state| {
            state.is_writing = false;
            if let Err(error) = sent {
                state.send_error = Some(closed_by(&error));
            }
        });
    }
}

/// Connects to an address; the result is a `QosChannel`. `known` is the server's name, how to
/// verify it, and the token of QUIC.
#[pyfunction]
pub(crate) fn qos_connect(
    carrier: &str,
    remote: (String, u16),
    options: QosOptionsFields,
    known: Option<(String, Py<Trust>, PyBackedBytes)>,
    waker: Py<Waker>,
) -> PyResult<PendingResult> {
    let (remote, options) = (address(&remote.0, remote.1)?, options.options()?);
    let transport = match (carrier, known) {
        ("tcp", None) => ClientTransport::Tcp,
        ("udp", None) => ClientTransport::Udp,
        ("quic", Some((name, trust, secret))) => {
            ClientTransport::Quic(name, trust.get().0.clone(), token(&secret)?)
        }
        _ => return Err(unknown_transport(carrier)),
    };
    let notifier = waker.get().notifier();
    let work = move || transport.connect(remote, &options);
    waker.get().spawn(work, move |py, connected| {
        let channel = QosChannel::new(connected.map_err(|error| failure(&error))?, notifier)?;
        Ok(Py::new(py, channel)?.into_any())
    })
}

/// A connection.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct QosChannel {
    /// `None` once it is closed.
    socket: Mutex<Option<AnySocket>>,
    shared: Arc<Shared>,
    threads: Mutex<Threads>,
    #[pyo3(get)]
    key: u64,
    #[pyo3(get)]
    local: (String, u16),
    #[pyo3(get)]
    remote: (String, u16),
    #[pyo3(get)]
    dscp: u8,
    #[pyo3(get)]
    max_send_size: usize,
    #[pyo3(get)]
    max_receive_size: usize,
}

/// The threads that have been started.
#[derive(Default)]
struct Threads {
    reads: bool,
    writes: bool,
}

impl QosChannel {
    pub(super) fn new(socket: AnySocket, notifier: Notifier) -> PyResult<Self> {
        set_timeouts(&socket)?;
        Ok(Self {
            key: notifier.key,
            local: parts(socket.local_address()),
            remote: parts(socket.peer_address()),
            dscp: socket.dscp().get(),
            max_send_size: socket.max_send_size(),
            max_receive_size: socket.max_receive_size(),
            socket: Mutex::new(Some(socket)),
            shared: Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), notifier }),
            threads: Mutex::default(),
        })
    }

    fn get(&self) -> PyResult<AnySocket> {
        lock(&self.socket).clone().ok_or_else(closed)
    }

    fn start_reading(&self) -> PyResult<()> {
        let mut threads = lock(&self.threads);
        if !threads.reads {
            // Where it fails, the next call tries again.
            self.start("read", read)?;
            threads.reads = true;
        }
        Ok(())
    }

    fn start(&self, name: &str, work: fn(&AnySocket, &Shared)) -> PyResult<()> {
        let (socket, shared) = (self.get()?, Arc::clone(&self.shared));
        let thread = thread::Builder::new().name(format!("ontempo-{name}"));
        thread.spawn(move || work(&socket, &shared))?;
        Ok(())
    }
}

#[pymethods]
impl QosChannel {
    /// Begins to send a message; `false` while another one is being sent.
    fn try_send(&self, data: PyBackedBytes) -> PyResult<bool> {
        self.get()?;
        if data.len() > self.max_send_size {
            let (length, max) = (data.len(), self.max_send_size);
            return Err(UnitError::new_err(format!(
                "a message of {length} bytes is longer than what was agreed: {max}"
            )));
        }
        let mut threads = lock(&self.threads);
        if !threads.writes {
            self.start("write", write)?;
            threads.writes = true;
        }
        self.shared.change(|state| {
            if let Some(closed) = &state.send_error {
                return Err(over(closed));
            }
            if state.is_writing {
                return Ok(false);
            }
            (state.is_writing, state.outgoing) = (true, Some(data));
            Ok(true)
        })
    }

    /// True once the last message is in the system's send buffer.
    fn has_sent(&self) -> PyResult<bool> {
        let state = lock(&self.shared.state);
        match &state.send_error {
            Some(closed) => Err(over(closed)),
            None if state.is_closed => {
                drop(state);
                self.get().map(|_| true)
            }
            None => Ok(!state.is_writing),
        }
    }

    /// The next message; `None` while there is none. Raises `StopAsyncIteration` at the end.
    fn try_receive<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, u64, f64)>> {
        self.start_reading()?;
        let mut state = lock(&self.shared.state);
        if let Some(ReceivedMessage(data, sequence, delay_s)) = state.ready.pop_front() {
            state.ready_bytes -= data.len();
            drop(state);
            self.shared.changed.notify_all();
            return Ok(Some((PyBytes::new(py, &data), sequence, delay_s)));
        }
        match &state.receive_end {
            Some(Ok(())) => Err(PyStopAsyncIteration::new_err(())),
            Some(Err(closed)) => Err(over(closed)),
            None => {
                drop(state);
                self.get().map(|_| None)
            }
        }
    }

    /// The agreed specification of a direction, as the fields of `Specification`.
    fn agreed(&self, py: Python<'_>, direction: &str) -> PyResult<SpecificationFields> {
        let (socket, direction) = (self.get()?, self::direction(direction)?);
        Ok(SpecificationFields::of(&py.detach(|| socket.agreed(direction))))
    }

    /// Renegotiates the specification of this end's sending direction.
    fn change(&self, py: Python<'_>, asked: SpecificationFields) -> PyResult<SpecificationFields> {
        let (socket, asked) = (self.get()?, asked.specification()?);
        let agreed = py.detach(|| socket.change(asked));
        agreed
            .map(|agreed| SpecificationFields::of(&agreed))
            .map_err(|refusal| DisagreementError::new_err(refusal.to_string()))
    }

    /// Delivery statistics of a direction, as the fields of `Delivery`.
    fn delivery(&self, py: Python<'_>, direction: &str) -> PyResult<DeliveryFields> {
        let (socket, direction) = (self.get()?, self::direction(direction)?);
        Ok(DeliveryFields::of(&py.detach(|| socket.delivery(direction))))
    }

    /// The reports to the monitor, as JSON.
    fn reports(&self, py: Python<'_>) -> PyResult<String> {
        let socket = self.get()?;
        let reports = py.detach(|| serde_json::to_string(&socket.reports()));
        reports.map_err(|error| pyo3::exceptions::PyRuntimeError::new_err(error.to_string()))
    }

    /// The state of a direction's reservation, and the reason if it was refused or lost.
    fn reservation(&self, direction: &str) -> PyResult<(&'static str, String)> {
        let (state, reason) = self.get()?.reservation(self::direction(direction)?);
        Ok((state.name(), reason))
    }

    /// The events from now on.
    fn events(&self, waker: &Waker) -> PyResult<QosEvents> {
        QosEvents::new(self.get()?.events(), waker.notifier())
    }

    /// Closes it. For at most `timeout_s` seconds it waits until queued messages have been sent
    /// and the peer has closed, too, or over QUIC has received all.
    fn close(&self, timeout_s: f64, waker: &Waker) -> PyResult<Option<PendingResult>> {
        let timeout = Wall::from_secs_f64(timeout_s);
        if timeout_s > 0.0 && self.get().is_ok_and(|socket| !matches!(socket, AnySocket::Udp(_))) {
            self.start_reading()?;
        }
        let Some(socket) = lock(&self.socket).take() else { return Ok(None) };
        let shared = Arc::clone(&self.shared);
        let work = move || {
            if !timeout.is_zero() {
                wait_for_end(&socket, &shared, Instant::now() + timeout);
            }
            shared.change(|state| state.is_closed = true);
            // Dropping the last clone closes the connection.
            drop(socket);
        };
        waker.spawn(work, |py, ()| Ok(py.None())).map(Some)
    }
}

impl Drop for QosChannel {
    fn drop(&mut self) {
        self.shared.change(|state| state.is_closed = true);
    }
}

/// Waits until the queued message has been sent and, over TCP, the peer has closed, too, or over
/// QUIC has received all. Received messages are discarded.
fn wait_for_end(socket: &AnySocket, shared: &Shared, until: Instant) {
    shared.change(|state| {
        (state.ready, state.ready_bytes, state.is_ending) = (VecDeque::new(), 0, true);
    });
    if !shared.wait_until(until, State::has_sent) {
        return;
    }
    socket.finish();
    // After the time limit the connection ends in any case.
    match socket {
        AnySocket::Tcp(_) => drop(shared.wait_until(until, State::is_over)),
        AnySocket::Udp(_) => {}
        AnySocket::Quic(connection) => {
            let left = until.saturating_duration_since(Instant::now());
            drop(connection.clone().close(left));
        }
    }
}
