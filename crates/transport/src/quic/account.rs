use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ontempo_foundation::{Bytes, Duration, Packets, Rate, Time};
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

#[derive(Debug)]
struct Shared {
    account: Mutex<Account>,
    /// Set while the stack may send a packet beyond the window.
    is_exempt: AtomicBool,
    /// When the wait for the next acknowledgement began, ns; [`NOTHING`]: nothing is in flight.
    waits_since: AtomicU64,
    /// When a packet was last found lost, ns; [`NOTHING`]: none was.
    lost_at: AtomicU64,
}

const NOTHING: u64 = u64::MAX;

impl Default for Shared {
    fn default() -> Self {
        Self {
            account: Mutex::default(),
            is_exempt: AtomicBool::new(false),
            waits_since: AtomicU64::new(NOTHING),
            lost_at: AtomicU64::new(NOTHING),
        }
    }
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

    /// The window that the stack is given, in bytes: with room for a packet while one may go [beyond](Self::exempt)
    /// it.
    pub(super) fn window_for_stack(&self, window: u64, in_flight: u64, packet: u64) -> u64 {
        if self.0.is_exempt.load(Ordering::Relaxed) {
            return window.max(in_flight + packet * 2);
        }
        window
    }

    /// When the wait for the next acknowledgement began: at the last one, or when the first packet in flight was
    /// sent. `None` if nothing is in flight.
    pub(crate) fn waits_since(&self) -> Option<Time> {
        read(&self.0.waits_since)
    }

    pub(super) fn wait_since(&self, since: Option<Time>) {
        let nanos = since.map_or(NOTHING, Time::as_nanos);
        self.0.waits_since.store(nanos, Ordering::Relaxed);
    }

    /// When the stack last found a packet lost.
    pub(crate) fn lost_at(&self) -> Option<Time> {
        read(&self.0.lost_at)
    }

    pub(super) fn note_loss(&self, now: Time) {
        self.0.lost_at.store(now.as_nanos(), Ordering::Relaxed);
    }
}

fn read(nanos: &AtomicU64) -> Option<Time> {
    let nanos = nanos.load(Ordering::Relaxed);
    (nanos != NOTHING).then(|| Time::from_nanos(nanos))
}
