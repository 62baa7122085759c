//! Notifications from the threads of connections to Python's event loop.
//!
//! A thread that sends and receives packets never waits for the interpreter's lock, which another
//! thread may hold for milliseconds, or for ever once the interpreter ends. It records which object
//! has changed and writes a byte to a socket that the event loop watches; the loop then polls that
//! object.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use pyo3::prelude::*;

/// Locks a value, ignoring poisoning: no change can panic half-way.
pub(crate) fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The objects changed since the last [`Waker::take`].
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
            // The socket buffers at most one byte, so it is never full; a write fails only when the
            // loop has ended.
            let _ = (&self.changes.writer).write(&[0]);
        }
    }

    /// The hook that the endpoint calls at each change.
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
    /// A notifier with a new key for a new object.
    pub(crate) fn notifier(&self) -> Notifier {
        let mut pending = lock(&self.changes.pending);
        pending.last_key += 1;
        Notifier { changes: Arc::clone(&self.changes), key: pending.last_key }
    }

    /// Runs `work` on a new thread; `finish` converts its result for Python.
    pub(crate) fn spawn<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
        finish: impl FnOnce(Python<'_>, R) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<PendingResult> {
        let notifier = self.notifier();
        let result = PendingResult { key: notifier.key, finish: Arc::default() };
        let slot = Arc::clone(&result.finish);
        thread::Builder::new().name("ontempo-work".to_owned()).spawn(move || {
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
        // The byte is read first: a later change writes another one or is returned below.
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
    /// The result in a tuple of one; `None` while the work is running.
    fn take(&self, py: Python<'_>) -> PyResult<Option<(Py<PyAny>,)>> {
        let finish = lock(&self.finish).take();
        finish.map(|finish| Ok((finish(py)?,))).transpose()
    }
}

/// A value whose drop may block: it is dropped on a new thread.
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
            // If no thread can be started, the value is dropped here.
            let _ = thread::Builder::new().spawn(move || drop(value));
        }
    }
}

impl<T: Send + 'static> Deref for BackgroundDrop<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // Only `take` and `drop` remove the value, and nothing can borrow it afterwards.
        self.0.as_ref().expect("present until it is dropped")
    }
}
