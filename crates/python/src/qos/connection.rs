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

use super::carried::{Calling, look_around, no_carrier};
use super::errors::{DisagreementError, UnitError};
use super::event::QosEvents;
use super::figures::{Delivered, direction, reservation_name};
use super::specification::{Given, GivenOptions};
use super::{closed as closed_by, failure};
use crate::live::{Answer, Place, Trust, Waker, address, closed, lock, over, parts, token};

/// What lies ready for the program at most; beyond, the network is not read.
const MAX_READY: usize = 256;
const MAX_READY_BYTES: usize = 256 << 10;

/// A message that has come: its data, its number and its delay in seconds.
struct Came(Vec<u8>, u64, f64);

/// What the program and the threads of a connection share.
#[derive(Default)]
struct State {
    ready: VecDeque<Came>,
    ready_bytes: usize,
    /// The other end sends no more, or what went wrong.
    ended: Option<Result<(), Closed>>,
    is_writing: bool,
    /// What is being sent, or waits to be.
    slot: Option<PyBackedBytes>,
    failed: Option<Closed>,
    /// What still comes is dropped.
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
    place: Place,
}

impl Shared {
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let result = change(&mut lock(&self.state));
        self.changed.notify_all();
        self.place.tell();
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

/// Takes what comes until the connection ends at either side.
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
                    state.ready.push_back(Came(data, message.sequence, delay_s));
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

/// Sends what the program hands over, one message after another.
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
        // The slot stays taken for who looks: it is given back below.
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

/// Connects to an address; answers a `QosLink`. Over QUIC whom to connect to, whom to trust and a
/// token are `known`.
#[pyfunction]
pub(crate) fn qos_connect(
    carrier: &str,
    remote: (String, u16),
    options: GivenOptions,
    known: Option<(String, Py<Trust>, PyBackedBytes)>,
    waker: Py<Waker>,
) -> PyResult<Answer> {
    let (remote, options) = (address(&remote.0, remote.1)?, options.options()?);
    let calling = match (carrier, known) {
        ("tcp", None) => Calling::Tcp,
        ("udp", None) => Calling::Udp,
        ("quic", Some((name, trust, secret))) => {
            Calling::Quic(name, trust.get().0.clone(), token(&secret)?)
        }
        _ => return Err(no_carrier(carrier)),
    };
    let place = waker.get().place();
    let work = move || calling.connect(remote, &options);
    waker.get().later(work, move |py, connected| {
        let link = QosLink::new(connected.map_err(|error| failure(&error))?, place)?;
        Ok(Py::new(py, link)?.into_any())
    })
}

/// A connection.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct QosLink {
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
    most_sent: usize,
    #[pyo3(get)]
    most_received: usize,
}

/// Which have been started.
#[derive(Default)]
struct Threads {
    reads: bool,
    writes: bool,
}

impl QosLink {
    pub(super) fn new(carried: AnySocket, place: Place) -> PyResult<Self> {
        look_around(&carried)?;
        Ok(Self {
            key: place.key,
            local: parts(carried.local_address()),
            remote: parts(carried.peer_address()),
            dscp: carried.dscp().get(),
            most_sent: carried.most_sent(),
            most_received: carried.most_received(),
            carried: Mutex::new(Some(carried)),
            shared: Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), place }),
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
impl QosLink {
    /// Begins to send a message; `false` while another one is being sent.
    fn try_send(&self, data: PyBackedBytes) -> PyResult<bool> {
        self.get()?;
        if data.len() > self.most_sent {
            let (length, most) = (data.len(), self.most_sent);
            return Err(UnitError::new_err(format!(
                "a message of {length} bytes is longer than what was agreed: {most}"
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

    /// True once the system has taken all that was sent.
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
        if let Some(Came(data, sequence, delay_s)) = state.ready.pop_front() {
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
    fn agreed(&self, py: Python<'_>, direction: &str) -> PyResult<Given> {
        let (carried, direction) = (self.get()?, self::direction(direction)?);
        Ok(Given::of(&py.detach(|| carried.agreed(direction))))
    }

    /// Asks for something else of what this end sends.
    fn change(&self, py: Python<'_>, asked: Given) -> PyResult<Given> {
        let (carried, asked) = (self.get()?, asked.specification()?);
        let agreed = py.detach(|| carried.change(asked));
        agreed
            .map(|agreed| Given::of(&agreed))
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

    /// How the reservation of a direction stands, and why not, where it does not.
    fn reservation(&self, direction: &str) -> PyResult<(&'static str, String)> {
        let (state, reason) = self.get()?.reservation(self::direction(direction)?);
        Ok((reservation_name(state), reason))
    }

    /// What changes from now on.
    fn events(&self, waker: &Waker) -> PyResult<QosEvents> {
        QosEvents::new(self.get()?.events(), waker.place())
    }

    /// Closes it; answers when what was sent has been handed over and, within `patience_s`, the
    /// other end has closed, too, or over QUIC has taken it all.
    fn close(&self, patience_s: f64, waker: &Waker) -> PyResult<Option<Answer>> {
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
        waker.later(work, |py, ()| Ok(py.None())).map(Some)
    }
}

impl Drop for QosLink {
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
