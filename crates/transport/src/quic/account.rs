use std::sync::{Arc, Mutex, PoisonError};

use ontempo_foundation::{Bytes, Duration, Packets, Rate};
use ontempo_mechanisms::congestion::Snapshot;

use super::fates::SharedFates;

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
            snapshot: None,
        }
    }
}

/// An account shared by controller and connection.
#[derive(Clone, Debug, Default)]
pub struct SharedAccount {
    account: Arc<Mutex<Account>>,
    /// What becomes of packets.
    pub fates: SharedFates,
}

impl SharedAccount {
    /// The account.
    pub fn read(&self) -> Account {
        *self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes it.
    pub fn write(&self, change: impl FnOnce(&mut Account)) {
        change(&mut self.account.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
