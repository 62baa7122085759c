//! Path validation after a change of the peer's address.

use std::net::SocketAddr;

use noq_proto::PathId;
use ontempo_foundation::{Duration, Time};

use super::{Connection, Stage};
use crate::quic::span;

/// A change of the peer's address that may not be validated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    at: Time,
    /// Minimum time that the stack tries.
    wait: Duration,
    proofs: u64,
    /// ACK frames sent before. The stack sends none to an unvalidated address, and the
    /// validation itself elicits one.
    acks: u64,
}

/// The stack gives up after three probe timeouts; nine round trips are at least that, unless delays
/// vary by more than half of themselves.
const ROUND_TRIPS: u64 = 9;
const BESIDE: Duration = Duration::from_millis(200);

/// Silence begins so long after the expected times.
const SILENCE: Duration = Duration::from_millis(500);

/// Interval of probes in silence, but no less than a round trip: media goes on so soon after the path
/// has come back, at eight packets a second. The stack's own interval doubles with each (RFC 9002, section
/// 6.2.1).
const PROBE: Duration = Duration::from_millis(250);

impl Connection {
    /// After a datagram: the stack address of a peer whose address failed validation, if it is time
    /// to try again.
    pub(crate) fn unproved(&mut self, now: Time) -> Option<SocketAddr> {
        if self.stack.side().is_client() || self.stack.is_handshaking() {
            return None;
        }
        let remote = self.stack.network_path(PathId::ZERO).ok()?.remote();
        let moves = *self.stack_remote.get_or_insert(remote) != remote;
        if !moves && self.moved.is_none() {
            return None;
        }
        let stats = self.stack.stats();
        let (acks, proofs) = (stats.frame_tx.acks, stats.frame_rx.path_response);
        let now_moved =
            Moved { at: now, wait: self.round_trips(ROUND_TRIPS) + BESIDE, proofs, acks };
        if moves {
            self.stack_remote = Some(remote);
            self.moved = Some(now_moved);
        }
        self.moved = self.moved.filter(|moved| acks == moved.acks);
        let moved = self.moved?;
        if proofs > moved.proofs {
            // It may validate another address: an acknowledgement decides.
            self.moved = Some(now_moved);
            return None;
        }
        if now.since(moved.at) < moved.wait {
            return None;
        }
        self.moved = Some(now_moved);
        Some(remote)
    }

    /// True if the peer is known to receive at its address.
    pub(super) fn is_proved(&mut self) -> bool {
        let acks = self.stack.stats().frame_tx.acks;
        !self.stack.is_handshaking() && self.moved.is_none_or(|moved| acks > moved.acks)
    }

    /// True if the peer validates this side's address, for the first time with this
    /// challenge: the answer must not wait (RFC 9000, section 8.2.2), because the stack
    /// answers only the last challenge.
    pub(super) fn is_to_prove(&mut self) -> bool {
        let asked = self.stack.stats().frame_rx.path_challenge;
        std::mem::replace(&mut self.proofs_asked, asked) < asked
    }

    fn round_trips(&self, count: u64) -> Duration {
        let round_trip = self.stack.rtt(PathId::ZERO).unwrap_or_default();
        span(round_trip) * count
    }

    /// When a client that receives nothing sends more often. Everything sent is answered within a
    /// round trip: units soon, and something is sent at each clock comparison or keep-alive. A server
    /// that must validate the client's new address can only do so when it receives a packet.
    pub(super) fn silent_at(&self) -> Time {
        if self.stack.side().is_server() || self.stage != Stage::Open {
            return Time::NEVER;
        }
        if self.tried > self.heard {
            return self.tried + PROBE.max(self.round_trips(1));
        }
        let interval = self.config.clock_interval;
        let interval = self.config.keep_alive.map_or(interval, |alive| interval.min(alive));
        let expected = match self.asked {
            Some(asked) if asked > self.heard => asked,
            _ => self.heard + interval,
        };
        expected + self.round_trips(3) + SILENCE
    }

    /// Units were sent: the first after what was heard last begins a wait for an answer.
    pub(super) fn note_asked(&mut self, now: Time) {
        if self.asked.is_none_or(|asked| asked <= self.heard) {
            self.asked = Some(now);
        }
    }

    /// Restarts the stack's probing, whose interval grows with time.
    pub(super) fn try_harder(&mut self, now: Time) {
        if now >= self.silent_at() {
            self.tried = now;
            self.urgent = true;
            self.stack.handle_network_change(None, self.epoch.instant(now));
        }
    }

    /// When a peer is given up that sends packets but answers nothing: a clock comparison is
    /// pending.
    pub(super) fn answerless_at(&self) -> Time {
        let interval = self.config.clock_interval;
        self.answered + self.config.idle_timeout.max(interval * 2) + interval
    }
}
