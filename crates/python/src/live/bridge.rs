//! From the threads of connections to Python's event loop.
//!
//! A thread that carries packets never waits for the interpreter's lock, which another thread may
//! hold for milliseconds, or for ever once the interpreter ends. It records which object has changed
//! and writes a byte to a socket that the event loop watches; the loop then polls that object.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use pyo3::prelude::*;

/// A panic elsewhere leaves the value whole: no change of ours stops half-way.
pub(crate) fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What has changed since the loop last asked.
struct Changes {
    pending: Mutex<Pending>,
    writer: UnixStream,
}

#[derive(Default)]
struct Pending {
    /// Keys of the objects that have changed.
    changed: BTreeSet<u64>,
    last_key: u64,
}

/// Notifies the event loop of the changes of one object.
#[derive(Clone)]
pub(crate) struct Notifier {
    changes: Arc<Changes>,
    pub(crate) key: u64,
}

impl Notifier {
    pub(crate) fn notify(&self) {
        let mut pending = lock(&self.changes.pending);
        let is_first = pending.changed.is_empty();
        if pending.changed.insert(self.key) && is_first {
            // The socket holds at most one byte, so there is room; a write fails only when the loop
            // is gone.
            let _ = (&self.changes.writer).write(&[0]);
        }
    }

    /// What the endpoint calls at each change.
    pub(super) fn hook(&self) -> impl Fn() + Send + Sync + 'static {
        let notifier = self.clone();
        move || notifier.notify()
    }
}

/// Wakes one event loop and lists the objects that have changed.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct Waker {
    changes: Arc<Changes>,
    reader: UnixStream,
}

impl Waker {
    /// A notifier for a new object, with a key of its own.
    pub(crate) fn notifier(&self) -> Notifier {
        let mut pending = lock(&self.changes.pending);
        pending.last_key += 1;
        Notifier { changes: Arc::clone(&self.changes), key: pending.last_key }
    }

    /// Runs `work` on a thread of its own; `finish` converts its result for Python.
    pub(crate) fn spawn<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
        finish: impl FnOnce(Python<'_>, R) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<PendingResult> {
        let notifier = self.notifier();
        let result = PendingResult { key: notifier.key, finish: Arc::default() };
        let slot = Arc::clone(&result.finish);
        thread::Builder::new().name("ontempo-answer".to_owned()).spawn(move || {
            let done = work();
            *lock(&slot) = Some(Box::new(move |py| finish(py, done)));
            notifier.notify();
        })?;
        Ok(result)
    }
}

#[pymethods]
impl Waker {
    #[new]
    fn new() -> PyResult<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        let changes = Arc::new(Changes { pending: Mutex::default(), writer });
        Ok(Self { changes, reader })
    }

    /// The file descriptor that the loop watches for reading.
    fn fileno(&self) -> i32 {
        self.reader.as_raw_fd()
    }

    /// The keys of the objects that have changed since the last call.
    fn take(&self) -> Vec<u64> {
        // The byte goes first: what changes from here on brings another one, or is seen below.
        let _ = (&self.reader).read(&mut [0; 16]);
        std::mem::take(&mut lock(&self.changes.pending).changed).into_iter().collect()
    }
}

type Finish = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// The result of work on another thread.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct PendingResult {
    #[pyo3(get)]
    key: u64,
    finish: Arc<Mutex<Option<Finish>>>,
}

#[pymethods]
impl PendingResult {
    /// The result, alone in a tuple; `None` until it is there.
    fn take(&self, py: Python<'_>) -> PyResult<Option<(Py<PyAny>,)>> {
        let finish = lock(&self.finish).take();
        finish.map(|finish| Ok((finish(py)?,))).transpose()
    }
}

/// A value whose drop may wait for a thread: it is dropped on a thread of its own.
pub(super) struct BackgroundDrop<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> BackgroundDrop<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Some(value))
    }

    pub(super) fn take(mut self) -> Option<T> {
        self.0.take()
    }
}

impl<T: Send + 'static> Drop for BackgroundDrop<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            // Where there is no thread left, it is dropped here.
            let _ = thread::Builder::new().spawn(move || drop(value));
        }
    }
}

impl<T: Send + 'static> Deref for BackgroundDrop<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // Only `take` and dropping leave nothing, and both have the value for themselves.
        self.0.as_ref().expect("there until it is dropped")
    }
}
