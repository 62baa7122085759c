//! The clock of connections: the system's, or in tests one that is set.

#[cfg(test)]
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use ontempo_foundation::Time;

/// A monotonic clock; copies show the same time.
#[derive(Clone, Debug)]
pub(super) enum Clock {
    System(ontempo_udp::Clock),
    /// Its nanoseconds.
    #[cfg(test)]
    Virtual(Arc<AtomicU64>),
}

impl Clock {
    #[inline]
    pub(super) fn now(&self) -> Time {
        match self {
            Self::System(clock) => clock.now(),
            #[cfg(test)]
            Self::Virtual(nanos) => Time::from_nanos(nanos.load(Relaxed)),
        }
    }
}
