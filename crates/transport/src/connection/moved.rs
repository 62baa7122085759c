//! Whether a peer whose address has changed can be sent to again.

use std::net::SocketAddr;

use noq_proto::PathId;
use ontempo_foundation::{Duration, Time};

use super::{Connection, Stage};
use crate::quic::span;

/// A change of the peer's address that may not have been proved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    at: Time,
    /// How long the stack tries at least.
    wait: Duration,
    proofs: u64,
    /// ACK frames sent before. To an address that is not proved the stack sends none, and the
    /// proof itself asks for one.
    acks: u64,
}

/// The stack gives up after three probe timeouts; nine round trips are no less, unless delays
/// vary by more than half of themselves.
const ROUND_TRIPS: u64 = 9;
const BESIDE: Duration = Duration::from_millis(200);

/// What silence is beside the times that are expected.
const SILENCE: Duration = Duration::from_millis(500);

impl Connection {
    /// After a datagram: the address that the peer sends from and could not prove, as the stack
    /// was told it, where it is time to try again.
    pub(crate) fn unproved(&mut self, now: Time) -> Option<SocketAddr> {
        if self.stack.side().is_client() || self.stack.is_handshaking() {
            return None;
        }
        let remote = self.stack.network_path(PathId::ZERO).ok()?.remote();
        let moves = *self.told_remote.get_or_insert(remote) != remote;
        if !moves && self.moved.is_none() {
            return None;
        }
        let stats = self.stack.stats();
        let (acks, proofs) = (stats.frame_tx.acks, stats.frame_rx.path_response);
        let now_moved =
            Moved { at: now, wait: self.round_trips(ROUND_TRIPS) + BESIDE, proofs, acks };
        if moves {
            self.told_remote = Some(remote);
            self.moved = Some(now_moved);
        }
        self.moved = self.moved.filter(|moved| acks == moved.acks);
        let moved = self.moved?;
        if proofs > moved.proofs {
            // It may be the proof of another address: an acknowledgement decides.
            self.moved = Some(now_moved);
            return None;
        }
        if now.since(moved.at) < moved.wait {
            return None;
        }
        self.moved = Some(now_moved);
        Some(remote)
    }

    /// True where the peer is known to receive what is sent to its address.
    pub(super) fn is_proved(&mut self) -> bool {
        let acks = self.stack.stats().frame_tx.acks;
        !self.stack.is_handshaking() && self.moved.is_none_or(|moved| acks > moved.acks)
    }

    /// True where the peer asks for proof of this side's address, for the first time that this
    /// is asked: the answer must not wait (RFC 9000, section 8.2.2), the less so as the stack
    /// answers the last question only.
    pub(super) fn is_to_prove(&mut self) -> bool {
        let asked = self.stack.stats().frame_rx.path_challenge;
        std::mem::replace(&mut self.proofs_asked, asked) < asked
    }

    fn round_trips(&self, count: u64) -> Duration {
        let round_trip = self.stack.rtt(PathId::ZERO).unwrap_or_default();
        span(round_trip) * count
    }

    /// When a client that hears nothing tries harder. Whatever is sent is answered within a round
    /// trip, and something is sent at each comparison of the clocks or sign of life. A server
    /// that must prove the client's new address can try only when it hears of the client.
    pub(super) fn silent_at(&self) -> Time {
        if self.stack.side().is_server() || self.stage != Stage::Open {
            return Time::NEVER;
        }
        let interval = self.config.clock_interval;
        let interval = self.config.keep_alive.map_or(interval, |alive| interval.min(alive));
        self.heard.max(self.tried) + interval + self.round_trips(3) + SILENCE
    }

    /// Begins the stack's probing anew, which otherwise is the rarer the longer it lasts.
    pub(super) fn try_harder(&mut self, now: Time) {
        if now >= self.silent_at() {
            self.tried = now;
            self.urgent = true;
            self.stack.handle_network_change(None, self.epoch.instant(now));
        }
    }

    /// When a peer is given up that sends packets and answers nothing: its clock was asked for.
    pub(super) fn answerless_at(&self) -> Time {
        let interval = self.config.clock_interval;
        self.answered + self.config.idle_timeout.max(interval * 2) + interval
    }
}
