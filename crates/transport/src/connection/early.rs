//! What a client sends before the server's Welcome: one round trip less until the first unit.
//!
//! The server's limits come with its handshake, in a datagram that QUIC lets it send before the client has
//! finished (0.5-RTT data, RFC 9001, section 5.7). They are no secret, and say nothing of the token. Where that
//! datagram is lost the client waits for the Welcome. This is not TLS's early data (0-RTT), which could be
//! replayed and is off.

use bytes::Bytes;
use ontempo_foundation::{Bytes as Size, Time};

use super::{Connection, ConnectionEvent, Stage, Violation};
use crate::wire::{DatagramHeader, Limits};

/// Maximum memory for what a client sends before it has presented the token, bytes. What a server
/// sends right after its Welcome may overtake it.
pub(super) const MAX_EARLY: u64 = 64 << 10;

/// Bytes of units after which a client writes no more before the Welcome, and most that it writes at once:
/// together three quarters of what a server takes, which counts its own overhead, too. What is acknowledged
/// meanwhile counts: a server holds it until the token has come, of which each packet may be lost.
const MAX_SENT_EARLY: u64 = MAX_EARLY * 3 / 8;

impl Connection {
    /// True for a client that may send while its token is not answered yet.
    pub fn is_early(&self) -> bool {
        self.stage == Stage::Early
    }

    /// True before the Welcome.
    pub(super) fn is_greeting(&self) -> bool {
        matches!(self.stage, Stage::Handshake | Stage::Early)
    }

    /// True while flows can be opened and units be sent.
    pub(super) fn may_send(&self) -> bool {
        matches!(self.stage, Stage::Early | Stage::Open)
    }

    /// Most bytes of units in the stack.
    pub(super) fn max_written(&self) -> Size {
        let most = self.config.send_bytes;
        if self.is_early() { most.min(Size::new(MAX_SENT_EARLY)) } else { most }
    }

    /// True while the server has not answered and has enough to hold.
    pub(super) fn must_wait_for_welcome(&self) -> bool {
        self.is_early() && self.sending.written >= MAX_SENT_EARLY
    }

    /// A server sends its limits with its handshake.
    pub(super) fn send_limits(&mut self) {
        if !self.stack.side().is_server() {
            return;
        }
        let mut datagram = Vec::new();
        DatagramHeader::Limits(self.config.limits).write(&mut datagram);
        // A client that takes no datagrams learns them from the Welcome.
        let _ = self.stack.datagrams().send(Bytes::from(datagram), false);
    }

    /// Takes what arrives before the Welcome, or before the token: the stack counts nothing of it.
    pub(super) fn read_early(&mut self, now: Time) -> Result<(), Violation> {
        while let Some(datagram) = self.stack.datagrams().recv() {
            if let Ok((DatagramHeader::Limits(limits), _)) = DatagramHeader::read(&datagram) {
                self.on_early_limits(limits);
            }
        }
        self.receiving.datagrams = false;
        // No flow is open: data is stored, and not looked at beyond a header.
        self.read_units(now)?;
        let is_server = self.stack.side().is_server();
        let is_too_much = is_server && self.receiving.memory() > MAX_EARLY;
        if is_too_much { Err(Violation::OutOfPlace) } else { Ok(()) }
    }

    fn on_early_limits(&mut self, limits: Limits) {
        if self.stack.side().is_client() && self.stage == Stage::Handshake {
            self.stage = Stage::Early;
            self.sending.set_limits(limits);
            self.events.push_back(ConnectionEvent::Early);
        }
    }
}
