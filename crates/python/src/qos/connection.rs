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

use super::carried::{ClientCarrier, no_carrier, set_timeouts};
use super::errors::{DisagreementError, UnitError};
use super::event::QosEvents;
use super::figures::{Delivered, direction, reservation_name};
use super::specification::{QosOptionsFields, SpecificationFields};
use super::{closed as closed_by, failure};
use crate::live::{
    Notifier, PendingResult, Trust, Waker, address, closed, lock, over, parts, token,
};

/// Limits of what was received and not yet taken by the program; beyond them the network is not
/// read, so that TCP and QUIC hold the sender back.
const MAX_READY: usize = 256;
const MAX_READY_BYTES: usize = 256 << 10;

/// A received message: its data, its sequence number and its delay in seconds.
struct ReceivedMessage(Vec<u8>, u64, f64);

/// What the program and the threads of a connection share.
#[derive(Default)]
struct State {
    ready: VecDeque<ReceivedMessage>,
    ready_bytes: usize,
    /// The other end has finished sending, or why receiving failed.
    ended: Option<Result<(), Closed>>,
    is_writing: bool,
    /// The message that waits for the writing thread.
    slot: Option<PyBackedBytes>,
    failed: Option<Closed>,
    /// Messages that still arrive are dropped.
    is_ending: bool,
    is_closed: bool,
}

impl State {
    fn has_sent(&self) -> bool {
        !self.is_writing || self.failed.is_some()
    }

    fn is_over(&self) -> bool {
        self.ended.is_some() || self.failed.is_some()
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

    /// Waits for something, but not for ever: `false` where it does not come.
    fn wait_until(&self, until: Instant, is_so: fn(&State) -> bool) -> bool {
        let mut state = lock(&self.state);
        while !is_so(&state) {
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

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Receives messages until either side ends the connection.
fn read(carried: &AnySocket, shared: &Shared) {
    let mut buffer = vec![0; carried.most_received()];
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
        match carried.receive_message(&mut buffer) {
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
            Ok(None) => return shared.change(|state| state.ended = Some(Ok(()))),
            Err(error) if is_passing(&error) => {}
            Err(error) => {
                return shared.change(|state| state.ended = Some(Err(closed_by(&error))));
            }
        }
    }
}

/// Sends the program's messages, one after another.
fn write(carried: &AnySocket, shared: &Shared) {
    loop {
        let data = {
            let mut state = lock(&shared.state);
            loop {
                if state.is_closed {
                    return;
                }
                match state.slot.take() {
                    Some(data) => break data,
                    None => state = shared.wait(state),
                }
            }
        };
        // `is_writing` stays set until the message has been sent.
        let sent = loop {
            match carried.send_message(&data) {
                Err(error) if is_passing(&error) => {
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
                state.failed = Some(closed_by(&error));
            }
        });
    }
}

/// Connects to an address; answers a `QosChannel`. Over QUIC whom to connect to, whom to trust and a
/// token are `known`.
#[pyfunction]
pub(crate) fn qos_connect(
    carrier: &str,
    remote: (String, u16),
    options: QosOptionsFields,
    known: Option<(String, Py<Trust>, PyBackedBytes)>,
    waker: Py<Waker>,
) -> PyResult<PendingResult> {
    let (remote, options) = (address(&remote.0, remote.1)?, options.options()?);
    let calling = match (carrier, known) {
        ("tcp", None) => ClientCarrier::Tcp,
        ("udp", None) => ClientCarrier::Udp,
        ("quic", Some((name, trust, secret))) => {
            ClientCarrier::Quic(name, trust.get().0.clone(), token(&secret)?)
        }
        _ => return Err(no_carrier(carrier)),
    };
    let notifier = waker.get().notifier();
    let work = move || calling.connect(remote, &options);
    waker.get().spawn(work, move |py, connected| {
        let link = QosChannel::new(connected.map_err(|error| failure(&error))?, notifier)?;
        Ok(Py::new(py, link)?.into_any())
    })
}

/// A connection.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct QosChannel {
    /// `None` once it is closed.
    carried: Mutex<Option<AnySocket>>,
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

/// Which have been started.
#[derive(Default)]
struct Threads {
    reads: bool,
    writes: bool,
}

impl QosChannel {
    pub(super) fn new(carried: AnySocket, notifier: Notifier) -> PyResult<Self> {
        set_timeouts(&carried)?;
        Ok(Self {
            key: notifier.key,
            local: parts(carried.local_address()),
            remote: parts(carried.peer_address()),
            dscp: carried.dscp().get(),
            max_send_size: carried.most_sent(),
            max_receive_size: carried.most_received(),
            carried: Mutex::new(Some(carried)),
            shared: Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), notifier }),
            threads: Mutex::default(),
        })
    }

    fn get(&self) -> PyResult<AnySocket> {
        lock(&self.carried).clone().ok_or_else(closed)
    }

    fn start_reading(&self) -> PyResult<()> {
        if std::mem::replace(&mut lock(&self.threads).reads, true) {
            return Ok(());
        }
        self.start("read", read)
    }

    fn start(&self, name: &str, work: fn(&AnySocket, &Shared)) -> PyResult<()> {
        let (carried, shared) = (self.get()?, Arc::clone(&self.shared));
        let thread = thread::Builder::new().name(format!("ontempo-{name}"));
        thread.spawn(move || work(&carried, &shared))?;
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
        if !std::mem::replace(&mut threads.writes, true) {
            self.start("write", write)?;
        }
        self.shared.change(|state| {
            if let Some(closed) = &state.failed {
                return Err(over(closed));
            }
            if state.is_writing {
                return Ok(false);
            }
            (state.is_writing, state.slot) = (true, Some(data));
            Ok(true)
        })
    }

    /// True once the last message is in the system's send buffer.
    fn has_sent(&self) -> PyResult<bool> {
        let state = lock(&self.shared.state);
        match &state.failed {
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
        match &state.ended {
            Some(Ok(())) => Err(PyStopAsyncIteration::new_err(())),
            Some(Err(closed)) => Err(over(closed)),
            None => {
                drop(state);
                self.get().map(|_| None)
            }
        }
    }

    /// What was agreed for a direction, as the fields of `Specification`.
    fn agreed(&self, py: Python<'_>, direction: &str) -> PyResult<SpecificationFields> {
        let (carried, direction) = (self.get()?, self::direction(direction)?);
        Ok(SpecificationFields::of(&py.detach(|| carried.agreed(direction))))
    }

    /// Renegotiates the specification of what this end sends.
    fn change(&self, py: Python<'_>, asked: SpecificationFields) -> PyResult<SpecificationFields> {
        let (carried, asked) = (self.get()?, asked.specification()?);
        let agreed = py.detach(|| carried.change(asked));
        agreed
            .map(|agreed| SpecificationFields::of(&agreed))
            .map_err(|refusal| DisagreementError::new_err(refusal.to_string()))
    }

    /// What was delivered in a direction, as the fields of `Delivery`.
    fn delivery(&self, py: Python<'_>, direction: &str) -> PyResult<Delivered> {
        let (carried, direction) = (self.get()?, self::direction(direction)?);
        Ok(Delivered::of(&py.detach(|| carried.delivery(direction))))
    }

    /// All figures, as JSON.
    fn reports(&self, py: Python<'_>) -> PyResult<String> {
        let carried = self.get()?;
        let reports = py.detach(|| serde_json::to_string(&carried.reports()));
        reports.map_err(|error| pyo3::exceptions::PyRuntimeError::new_err(error.to_string()))
    }

    /// The state of a direction's reservation, and the reason where it was refused or lost.
    fn reservation(&self, direction: &str) -> PyResult<(&'static str, String)> {
        let (state, reason) = self.get()?.reservation(self::direction(direction)?);
        Ok((reservation_name(state), reason))
    }

    /// The events from now on.
    fn events(&self, waker: &Waker) -> PyResult<QosEvents> {
        QosEvents::new(self.get()?.events(), waker.notifier())
    }

    /// Closes it; answers when what was sent has been handed over and, within `patience_s`, the
    /// other end has closed, too, or over QUIC has taken it all.
    fn close(&self, patience_s: f64, waker: &Waker) -> PyResult<Option<PendingResult>> {
        let patience = Wall::from_secs_f64(patience_s);
        if patience_s > 0.0 && self.get().is_ok_and(|carried| !matches!(carried, AnySocket::Udp(_)))
        {
            self.start_reading()?;
        }
        let Some(carried) = lock(&self.carried).take() else { return Ok(None) };
        let shared = Arc::clone(&self.shared);
        let work = move || {
            if !patience.is_zero() {
                await_end(&carried, &shared, Instant::now() + patience);
            }
            shared.change(|state| state.is_closed = true);
            // The last clone's end is the connection's.
            drop(carried);
        };
        waker.spawn(work, |py, ()| Ok(py.None())).map(Some)
    }
}

impl Drop for QosChannel {
    fn drop(&mut self) {
        self.shared.change(|state| state.is_closed = true);
    }
}

/// Waits until what was handed over has been sent and, over TCP, the other end has closed, too, or
/// over QUIC has taken it all. What still comes is dropped.
fn await_end(carried: &AnySocket, shared: &Shared, until: Instant) {
    shared.change(|state| {
        (state.ready, state.ready_bytes, state.is_ending) = (VecDeque::new(), 0, true);
    });
    if !shared.wait_until(until, State::has_sent) {
        return;
    }
    carried.finish();
    // What is not so in time ends all the same.
    match carried {
        AnySocket::Tcp(_) => drop(shared.wait_until(until, State::is_over)),
        AnySocket::Udp(_) => {}
        AnySocket::Quic(connection) => {
            let left = until.saturating_duration_since(Instant::now());
            drop(connection.clone().close(left));
        }
    }
}
