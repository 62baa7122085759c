//! Path validation after a change of the peer's address.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use noq_proto::{PathId, Transmit};
use ontempo_foundation::{Duration, Time};

use super::{Connection, Stage};
use crate::quic::span;

/// A change of the peer's address that may not be validated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    at: Time,
    /// How long an answer is awaited before the peer is challenged again; doubles with each try.
    wait: Duration,
    /// Whether the next change of the stack's address is the alias of another try.
    is_again: bool,
    proofs: u64,
    /// ACK frames sent before. The stack sends none to an unvalidated address, and the
    /// validation itself elicits one.
    acks: u64,
}

/// PATH_CHALLENGE frames received that are answered, and PATH_RESPONSE frames sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Proofs {
    asked: u64,
    given: u64,
}

/// A challenge is answered within a round trip. It is repeated after two, as the first Initial packet
/// of a connection whose round trip is known (RFC 9000, section 8.2.1; RFC 9002, section 6.2.2), and
/// [`BESIDE`]. The stack would repeat it after a second, since it supposes 333 ms for a new address, and
/// acknowledges nothing until then: the peer's window is soon in flight.
const ROUND_TRIPS: u64 = 2;
const BESIDE: Duration = Duration::from_millis(10);

/// Before the first sample (RFC 9002, section 6.2.2).
pub(super) const UNKNOWN_ROUND_TRIP: Duration = Duration::from_millis(333);

/// The longest wait: the stack itself gives up after three seconds.
const LONGEST: Duration = Duration::from_secs(4);

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
            self.round_trip = self.round_trips(1);
            return None;
        }
        let stats = self.stack.stats();
        let (acks, proofs) = (stats.frame_tx.acks, stats.frame_rx.path_response);
        if moves {
            self.stack_remote = Some(remote);
            // An alias of an address that is tried again is no other address.
            let again = self.moved.filter(|moved| moved.is_again).map(|moved| moved.wait);
            let wait = again.unwrap_or(self.round_trip * ROUND_TRIPS + BESIDE);
            self.moved = Some(Moved { at: now, wait, is_again: false, proofs, acks });
        }
        self.moved = self.moved.filter(|moved| acks == moved.acks);
        let moved = self.moved.as_mut()?;
        if proofs > moved.proofs {
            // It may validate another address: an acknowledgement decides.
            (moved.at, moved.proofs) = (now, proofs);
            return None;
        }
        if now.since(moved.at) < moved.wait {
            return None;
        }
        let wait = (moved.wait * 2).min(LONGEST);
        *moved = Moved { at: now, wait, is_again: true, proofs, acks };
        Some(remote)
    }

    /// True if the peer is known to receive at its address.
    pub(super) fn is_proved(&mut self) -> bool {
        let acks = self.stack.stats().frame_tx.acks;
        !self.stack.is_handshaking() && self.moved.is_none_or(|moved| acks > moved.acks)
    }

    /// True if the peer validates this side's address, and this challenge is not answered: the answer
    /// must not wait (RFC 9000, section 8.2.2), because the stack answers only the last challenge.
    pub(super) fn is_to_prove(&mut self) -> bool {
        let stats = self.stack.stats();
        let (asked, given) = (stats.frame_rx.path_challenge, stats.frame_tx.path_response);
        if given > self.proofs.given {
            self.proofs = Proofs { asked, given };
        }
        asked > self.proofs.asked
    }

    /// A packet with an answer to a challenge that the window has no room for. The peer acknowledges
    /// nothing until it has this answer, so that the window stays full. One packet for each that the
    /// peer sends, of the same size, is no congestion.
    pub(super) fn prove(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        let is_asked = self.stack.side().is_client() && self.heard == now;
        if !is_asked || self.stage != Stage::Open || !self.is_to_prove() {
            return None;
        }
        let transmit = self.beyond_window(now, out);
        // Where nothing was sent, the next challenge may find an answer.
        self.proofs.asked = self.stack.stats().frame_rx.path_challenge;
        transmit
    }

    /// One packet for which the window need have no room.
    pub(super) fn beyond_window(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        self.account.exempt(true);
        let transmit = self.stack.poll_transmit(self.epoch.instant(now), NonZeroUsize::MIN, out);
        self.account.exempt(false);
        transmit
    }

    pub(super) fn round_trips(&self, count: u64) -> Duration {
        let round_trip = self.stack.rtt(PathId::ZERO).unwrap_or_default();
        span(round_trip) * count
    }
}
