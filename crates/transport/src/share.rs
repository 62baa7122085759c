//! Several endpoints at one address, one for each of several threads.

use std::num::NonZeroU8;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ontempo_udp::Steering;

use crate::admission::{HalfOpen, Places};

/// The first byte of the connection id for which a datagram is: behind flags, version and length of a
/// long header, or behind the flags of a short one (RFC 9000, section 17). Modulo the number of
/// endpoints it is the place of the one whose connection it is, or will be.
pub const STEERING: Steering = Steering { flags: 0x80, set: 6, clear: 1 };

/// One of several endpoints at one address: its place, and what it shares with the others. Their limits
/// of connections hold for all together; of the memory for what is received each has an equal part.
#[derive(Clone, Debug)]
pub struct Share {
    place: u8,
    count: NonZeroU8,
    common: Arc<Common>,
}

/// What all endpoints share.
#[derive(Debug, Default)]
struct Common {
    places: Mutex<Places>,
    half_open: Mutex<HalfOpen>,
    connections: AtomicUsize,
}

/// What was counted is whole at each unlocking, also where a thread ended by a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Share {
    /// The share of an endpoint that is alone at its address.
    pub fn alone() -> Self {
        Self { place: 0, count: NonZeroU8::MIN, common: Arc::default() }
    }

    /// The shares of `count` endpoints, by place.
    pub fn among(count: NonZeroU8) -> Vec<Self> {
        let common = Arc::default();
        (0..count.get()).map(|place| Self { place, count, common: Arc::clone(&common) }).collect()
    }

    /// Its place.
    pub fn place(&self) -> usize {
        usize::from(self.place)
    }

    /// The place of the endpoint that a datagram is for. Who receives it at another hands it over, so that
    /// a client is served also after its address has changed, and where the kernel spreads by addresses.
    pub fn owner(&self, datagram: &[u8]) -> usize {
        STEERING.place(datagram, self.count)
    }

    /// A random first byte of a connection id, as near as one that belongs to this endpoint.
    pub(crate) fn own(&self, byte: u8) -> u8 {
        let count = self.count.get();
        let own = u16::from(byte - byte % count) + u16::from(self.place);
        u8::try_from(own).unwrap_or_else(|_| (own - u16::from(count)) as u8)
    }

    /// Number of endpoints.
    pub(crate) fn count(&self) -> NonZeroU8 {
        self.count
    }

    pub(crate) fn places(&self) -> MutexGuard<'_, Places> {
        lock(&self.common.places)
    }

    pub(crate) fn half_open(&self) -> MutexGuard<'_, HalfOpen> {
        lock(&self.common.half_open)
    }

    /// Connections of all endpoints.
    pub(crate) fn connections(&self) -> usize {
        self.common.connections.load(Relaxed)
    }

    /// A connection begins.
    pub(crate) fn begin(&self) {
        self.common.connections.fetch_add(1, Relaxed);
    }

    /// A connection has ended.
    pub(crate) fn end(&self) {
        self.common.connections.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_an_endpoint_lead_to_it_in_short_and_in_long_headers() {
        for count in (1..=64).filter_map(NonZeroU8::new) {
            for share in Share::among(count) {
                for byte in 0..=255 {
                    let own = share.own(byte);
                    assert_eq!(share.owner(&[0x40, own, 1, 2]), share.place());
                    assert_eq!(share.owner(&[0xc0, 0, 0, 0, 1, 8, own, 1]), share.place());
                    // One alone may have any.
                    assert!(count.get() > 1 || own == byte);
                }
            }
        }
    }
}
