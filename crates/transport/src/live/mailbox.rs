//! What two threads share and wait for.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A foreign event loop's hook.
type Hook = Arc<dyn Fn() + Send + Sync>;

/// A value that threads change and wait for.
#[derive(Default)]
pub struct Mailbox<T> {
    value: Mutex<T>,
    changed: Condvar,
    /// Threads that wait; changed only by who has the value. To wake nobody costs a system call.
    waiting: AtomicUsize,
    hook: Mutex<Option<Hook>>,
    has_hook: AtomicBool,
}

/// A panic elsewhere leaves the value whole: no change of ours stops half-way.
fn guard<'a, T>(
    locked: Result<MutexGuard<'a, T>, PoisonError<MutexGuard<'a, T>>>,
) -> MutexGuard<'a, T> {
    locked.unwrap_or_else(PoisonError::into_inner)
}

impl<T> Mailbox<T> {
    /// One that holds `value`.
    pub fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            hook: Mutex::new(None),
            has_hook: AtomicBool::new(false),
        }
    }

    /// The value, to be looked at, or changed without anybody being told.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        guard(self.value.lock())
    }

    /// Changes the value and tells those who wait.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let (changed, waiting) = {
            let mut value = self.lock();
            (change(&mut value), self.waiting.load(Ordering::Relaxed))
        };
        if waiting > 0 {
            self.changed.notify_all();
        }
        if self.has_hook.load(Ordering::Acquire) {
            let hook = guard(self.hook.lock()).clone();
            if let Some(hook) = hook {
                hook();
            }
        }
        changed
    }

    /// Waits until `ready` answers something, which it then returns; `None` when `limit`, where
    /// there is one, is over.
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

    /// Calls `hook` at each change from now on, on the thread that changes.
    pub fn set_hook(&self, hook: Hook) {
        *guard(self.hook.lock()) = Some(hook);
        self.has_hook.store(true, Ordering::Release);
    }
}
