use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ontempo_foundation::{Bytes, Duration, Packets, Rate};
use ontempo_mechanisms::congestion::Snapshot;

/// State of a controller after its last event.
///
/// The stack owns the controller and exposes only its cwnd; our pacing needs the
/// rest.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// cwnd, bytes.
    pub window: Bytes,
    /// The rate that it sets; `None`: cwnd per round trip.
    pub rate: Option<Rate>,
    /// The spacing between packets that it sets; it takes precedence over a rate.
    pub spacing: Option<Duration>,
    /// Packets that may be sent back to back.
    pub burst: Packets,
    /// Smoothed round trip; `None` before the first sample.
    pub srtt: Option<Duration>,
    /// Bytes of packets acknowledged since the beginning.
    pub delivered: Bytes,
    /// State of the mechanism.
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
            delivered: Bytes::ZERO,
            snapshot: None,
        }
    }
}

/// An account shared by controller and connection.
#[derive(Clone, Debug, Default)]
pub struct SharedAccount(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    account: Mutex<Account>,
    /// Set while the stack may send a packet beyond the window.
    is_exempt: AtomicBool,
}

impl SharedAccount {
    /// The account.
    pub fn read(&self) -> Account {
        *self.0.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes it.
    pub fn write(&self, change: impl FnOnce(&mut Account)) {
        change(&mut self.0.account.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether the stack may send one packet more than the window allows.
    pub(crate) fn exempt(&self, is_exempt: bool) {
        self.0.is_exempt.store(is_exempt, Ordering::Relaxed);
    }

    pub(super) fn is_exempt(&self) -> bool {
        self.0.is_exempt.load(Ordering::Relaxed)
    }
}
