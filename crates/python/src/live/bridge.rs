//! From the threads of connections to Python's event loop.
//!
//! A thread that carries packets never waits for the interpreter's lock, which another thread may
//! hold for milliseconds, or for ever once the interpreter ends. It notes what has changed and
//! writes a byte to a socket that the event loop watches; the loop then asks.

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
    told: Mutex<Told>,
    writer: UnixStream,
}

#[derive(Default)]
struct Told {
    changed: BTreeSet<u64>,
    places: u64,
}

/// Where the changes of one object are told.
#[derive(Clone)]
pub(crate) struct Place {
    changes: Arc<Changes>,
    pub(crate) key: u64,
}

impl Place {
    pub(crate) fn tell(&self) {
        let mut told = lock(&self.changes.told);
        let is_first = told.changed.is_empty();
        if told.changed.insert(self.key) && is_first {
            // One byte at most lies there, so that there is room; who reads is gone with its loop.
            let _ = (&self.changes.writer).write(&[0]);
        }
    }

    /// What the endpoint calls at each change.
    pub(super) fn hook(&self) -> impl Fn() + Send + Sync + 'static {
        let place = self.clone();
        move || place.tell()
    }
}

/// Tells one event loop which objects have changed.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct Waker {
    changes: Arc<Changes>,
    reader: UnixStream,
}

impl Waker {
    /// A place for an object that is new.
    pub(crate) fn place(&self) -> Place {
        let mut told = lock(&self.changes.told);
        told.places += 1;
        Place { changes: Arc::clone(&self.changes), key: told.places }
    }

    /// Has a thread work something out that takes a moment; `finish` then makes it Python's.
    pub(crate) fn later<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
        finish: impl FnOnce(Python<'_>, R) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Answer> {
        let place = self.place();
        let answer = Answer { key: place.key, finish: Arc::default() };
        let slot = Arc::clone(&answer.finish);
        thread::Builder::new().name("ontempo-answer".to_owned()).spawn(move || {
            let result = work();
            *lock(&slot) = Some(Box::new(move |py| finish(py, result)));
            place.tell();
        })?;
        Ok(answer)
    }
}

#[pymethods]
impl Waker {
    #[new]
    fn new() -> PyResult<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        let changes = Arc::new(Changes { told: Mutex::default(), writer });
        Ok(Self { changes, reader })
    }

    /// What the loop watches for reading.
    fn fileno(&self) -> i32 {
        self.reader.as_raw_fd()
    }

    /// The keys of what has changed since this was last asked.
    fn take(&self) -> Vec<u64> {
        // The byte goes first: what changes from here on brings another one, or is seen below.
        let _ = (&self.reader).read(&mut [0; 16]);
        std::mem::take(&mut lock(&self.changes.told).changed).into_iter().collect()
    }
}

type Finish = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// What a thread works out.
#[pyclass(frozen, module = "ontempo._native")]
pub(crate) struct Answer {
    #[pyo3(get)]
    key: u64,
    finish: Arc<Mutex<Option<Finish>>>,
}

#[pymethods]
impl Answer {
    /// The answer, alone in a tuple; `None` while it is not there.
    fn take(&self, py: Python<'_>) -> PyResult<Option<(Py<PyAny>,)>> {
        let finish = lock(&self.finish).take();
        finish.map(|finish| Ok((finish(py)?,))).transpose()
    }
}

/// Something that may wait for its thread when it is dropped; that is left to another one.
pub(super) struct Kept<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> Kept<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Some(value))
    }

    pub(super) fn take(mut self) -> Option<T> {
        self.0.take()
    }
}

impl<T: Send + 'static> Drop for Kept<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            // Where there is no thread left, it is dropped here.
            let _ = thread::Builder::new().spawn(move || drop(value));
        }
    }
}

impl<T: Send + 'static> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // Only `take` and dropping leave nothing, and both have the value for themselves.
        self.0.as_ref().expect("there until it is dropped")
    }
}
