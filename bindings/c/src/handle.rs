//! Handles: numbers in the shape of pointers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::status::{Failure, ONTEMPO_ERROR_HANDLE};

/// The next handle, of all kinds: none is used twice, so that a stale one is known as such.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// The objects of one kind.
pub(crate) struct Table<T> {
    kind: &'static str,
    objects: Mutex<BTreeMap<usize, Arc<T>>>,
}

impl<T> Table<T> {
    pub(crate) const fn new(kind: &'static str) -> Self {
        Self { kind, objects: Mutex::new(BTreeMap::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<T>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the object under a new handle.
    pub(crate) fn keep<H>(&self, object: T) -> *mut H {
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(handle, Arc::new(object));
        std::ptr::without_provenance_mut(handle)
    }

    fn unknown<H>(&self, handle: *const H) -> Failure {
        let what = if handle.is_null() { "NULL" } else { "not open, or of another kind" };
        Failure::new(ONTEMPO_ERROR_HANDLE, format!("the {} is {what}", self.kind))
    }

    pub(crate) fn get<H>(&self, handle: *const H) -> Result<Arc<T>, Failure> {
        self.lock().get(&handle.addr()).cloned().ok_or_else(|| self.unknown(handle))
    }

    /// Takes the object out; its destructor runs without the lock.
    pub(crate) fn take<H>(&self, handle: *const H) -> Result<Arc<T>, Failure> {
        let taken = self.lock().remove(&handle.addr());
        taken.ok_or_else(|| self.unknown(handle))
    }
}

/// Options of a connection or listener; `ontempo_options_new`.
#[allow(non_camel_case_types)]
pub struct ontempo_options {
    _opaque: (),
}

/// Accepts connections at a UDP port; `ontempo_listen`.
#[allow(non_camel_case_types)]
pub struct ontempo_listener {
    _opaque: (),
}

/// A connection to a peer; `ontempo_connect`, `ontempo_accept`.
#[allow(non_camel_case_types)]
pub struct ontempo_connection {
    _opaque: (),
}

/// A flow that this side sends; `ontempo_open_flow`.
#[allow(non_camel_case_types)]
pub struct ontempo_send_flow {
    _opaque: (),
}

/// A flow that the peer sends; `ontempo_accept_flow`.
#[allow(non_camel_case_types)]
pub struct ontempo_receive_flow {
    _opaque: (),
}

/// A received unit, or the number of one that was dropped; `ontempo_receive`.
#[allow(non_camel_case_types)]
pub struct ontempo_unit {
    _opaque: (),
}
