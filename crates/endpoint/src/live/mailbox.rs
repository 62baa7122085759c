//! What two threads share and wait for.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A foreign event loop's hook.
type Hook = Arc<dyn Fn() + Send + Sync>;

/// A value that threads change and wait for.
#[derive(Default)]
pub(super) struct Mailbox<T> {
    value: Mutex<T>,
    changed: Condvar,
    hook: Mutex<Option<Hook>>,
}

/// A panic elsewhere leaves the value whole: no change of ours stops half-way.
fn guard<'a, T>(
    locked: Result<MutexGuard<'a, T>, PoisonError<MutexGuard<'a, T>>>,
) -> MutexGuard<'a, T> {
    locked.unwrap_or_else(PoisonError::into_inner)
}

impl<T> Mailbox<T> {
    pub(super) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Condvar::new(), hook: Mutex::new(None) }
    }

    /// The value, to be looked at, or changed without anybody being told.
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        guard(self.value.lock())
    }

    /// Changes the value and tells those who wait.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let changed = change(&mut self.lock());
        self.changed.notify_all();
        let hook = guard(self.hook.lock()).clone();
        if let Some(hook) = hook {
            hook();
        }
        changed
    }

    /// Waits until `ready` answers something, which it then returns; `None` when `limit`, where
    /// there is one, is over.
    pub(super) fn wait<R>(
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
            value = match end {
                None => guard(self.changed.wait(value)),
                Some(end) => {
                    let left = end.checked_duration_since(Instant::now())?;
                    let waited = self.changed.wait_timeout(value, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Calls `hook` at each change from now on, on the thread that changes.
    pub(super) fn set_hook(&self, hook: Hook) {
        *guard(self.hook.lock()) = Some(hook);
    }
}
