use ontempo_foundation::{Duration, Time};

use super::SYN_INTERVAL;
use super::rtt::SrtRtt;

/// The peer's silence is counted in steps of this length at least (m_tdMinExpInterval).
const MIN_EXPIRATION: Duration = Duration::from_millis(300);
/// More steps than this break a connection (COMM_RESPONSE_MAX_EXP).
const MAX_EXPIRATIONS: u64 = 16;
/// A side that sent nothing for longer sends a keep-alive (COMM_KEEPALIVE_PERIOD_US).
const KEEP_ALIVE: Duration = Duration::from_secs(1);

/// When a side last heard of its peer, sent to it, and looked at its timers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Liveness {
    heard: Time,
    sent: Time,
    checked: Time,
    expirations: u64,
}

impl Liveness {
    pub(super) fn new(now: Time) -> Self {
        Self { heard: now, sent: now, checked: now, expirations: 1 }
    }

    /// A packet came from the peer.
    pub(super) fn on_packet(&mut self, now: Time) {
        self.heard = now;
        self.expirations = 1;
    }

    /// A packet is sent to the peer.
    pub(super) fn on_sent(&mut self, now: Time) {
        self.sent = now;
    }

    /// Timers are looked at now, with a packet or at [`next_check`](Self::next_check).
    pub(super) fn on_check(&mut self, now: Time) {
        self.checked = now;
    }

    /// When timers are looked at if no packet comes (`CRcvQueue::worker` in `queue.cpp`).
    pub(super) fn next_check(&self) -> Time {
        self.checked + SYN_INTERVAL
    }

    /// Whether the peer is given up (`checkExpTimer`): 17 steps and `idle_timeout` have passed. With
    /// a round trip that is short that is 5.1 s.
    pub(super) fn is_broken(&mut self, now: Time, rtt: &SrtRtt, idle_timeout: Duration) -> bool {
        let step = rtt.upper() * self.expirations + SYN_INTERVAL;
        if now <= self.heard + step.max(MIN_EXPIRATION * self.expirations) {
            return false;
        }
        if self.expirations > MAX_EXPIRATIONS && now.since(self.heard) > idle_timeout {
            return true;
        }
        self.expirations += 1;
        false
    }

    /// Whether a keep-alive is due (`checkTimers`).
    pub(super) fn needs_keep_alive(&self, now: Time) -> bool {
        now > self.sent + KEEP_ALIVE
    }
}
