use std::sync::{Arc, Mutex, PoisonError};

use ontempo_foundation::{Bytes, Duration, Packets, Rate};
use ontempo_mechanisms::congestion::Snapshot;

/// What a controller wants, as of its last event.
///
/// The stack owns the controller and hands on its window alone; what spaces packets is ours and
/// needs the rest.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// How much may be in flight.
    pub window: Bytes,
    /// The rate that it names; where `None`, its window over a round trip.
    pub rate: Option<Rate>,
    /// The distance that it names from one packet to the next, before any rate.
    pub spacing: Option<Duration>,
    /// How many packets it lets leave back to back.
    pub burst: Packets,
    /// Its smoothed round trip; `None` before the first sample.
    pub srtt: Option<Duration>,
    /// The mechanism's own account.
    pub snapshot: Option<Snapshot>,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            window: Bytes::ZERO,
            rate: None,
            spacing: None,
            burst: Packets::new(1),
            srtt: None,
            snapshot: None,
        }
    }
}

/// An account that the controller writes and the connection reads.
#[derive(Clone, Debug, Default)]
pub struct SharedAccount(Arc<Mutex<Account>>);

impl SharedAccount {
    /// The account.
    pub fn read(&self) -> Account {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes it.
    pub fn write(&self, change: impl FnOnce(&mut Account)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
