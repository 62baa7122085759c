//! A value shared by threads that wait for its changes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Callback that wakes an event loop.
type Hook = Arc<dyn Fn() + Send + Sync>;

/// A value that threads change and wait for.
#[derive(Default)]
pub struct Mailbox<T> {
    value: Mutex<T>,
    changed: Condvar,
    /// Number of waiting threads, changed only under the lock of `value`. Without waiting threads
    /// the system call of a notification is saved.
    waiting: AtomicUsize,
    hook: Mutex<Option<Hook>>,
    has_hook: AtomicBool,
}

/// Ignores poisoning: no change of the value can panic half-way.
fn guard<'a, T>(
    locked: Result<MutexGuard<'a, T>, PoisonError<MutexGuard<'a, T>>>,
) -> MutexGuard<'a, T> {
    locked.unwrap_or_else(PoisonError::into_inner)
}

impl<T> Mailbox<T> {
    /// A mailbox with `value`.
    pub fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            hook: Mutex::new(None),
            has_hook: AtomicBool::new(false),
        }
    }

    /// Locks the value, to read it or to change it without a notification.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        guard(self.value.lock())
    }

    /// Changes the value, wakes the waiting threads and calls the hook. Returns the result of
    /// `change`.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        self.change_for(|_| true, change)
    }

    /// As [`change`](Self::change); the waiting threads are woken if `wakes` says so of the value.
    pub fn change_for<R>(
        &self,
        wakes: impl FnOnce(&T) -> bool,
        change: impl FnOnce(&mut T) -> R,
    ) -> R {
        let (result, is_waited_for) = {
            let mut value = self.lock();
            let result = change(&mut value);
            (result, self.waiting.load(Ordering::Relaxed) > 0 && wakes(&value))
        };
        if is_waited_for {
            self.changed.notify_all();
        }
        if self.has_hook.load(Ordering::Acquire) {
            let hook = guard(self.hook.lock()).clone();
            if let Some(hook) = hook {
                hook();
            }
        }
        result
    }

    /// Waits until `ready` returns `Some`, and returns its value; `None` after `limit`. Without a
    /// limit it waits for ever.
    pub fn wait<R>(
        &self,
        limit: Option<Duration>,
        mut ready: impl FnMut(&mut T) -> Option<R>,
    ) -> Option<R> {
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut value = self.lock();
        loop {
            if let Some(found) = ready(&mut value) {
                return Some(found);
            }
            let left = match end {
                None => None,
                Some(end) => Some(end.checked_duration_since(Instant::now())?),
            };
            self.waiting.fetch_add(1, Ordering::Relaxed);
            value = match left {
                None => guard(self.changed.wait(value)),
                Some(left) => {
                    let waited = self.changed.wait_timeout(value, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Sets the hook called at each [`change`](Self::change), on the thread that makes the change.
    pub fn set_hook(&self, hook: Hook) {
        *guard(self.hook.lock()) = Some(hook);
        self.has_hook.store(true, Ordering::Release);
    }
}
