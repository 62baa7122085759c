//! Waiting for peers (RFC 9622, section 7.2).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration as Wall;

use ontempo_transport::Fingerprint;
use ontempo_transport::live::mailbox::Mailbox;
use ontempo_transport::live::{self, Accepted};

use crate::connection::Connection;
use crate::group::{Group, Side};
use crate::selection::TransportProperties;

/// Accepts connections. The connections that a peer clones come from
/// [`Connection::cloned`]. Dropping it stops it; its connections stay.
pub struct Listener {
    /// `None` once it is stopped.
    listener: Mutex<Option<live::Listener>>,
    /// Rings when a peer may have come. It has nothing of the listener, which would keep itself.
    bell: Arc<Mailbox<()>>,
    local: SocketAddr,
    fingerprint: Fingerprint,
    token: Vec<u8>,
    transport: TransportProperties,
}

impl Listener {
    pub(crate) fn new(
        listener: live::Listener,
        fingerprint: Fingerprint,
        token: Vec<u8>,
        transport: TransportProperties,
    ) -> Self {
        let bell = Arc::new(Mailbox::new(()));
        let ringing = Arc::clone(&bell);
        listener.on_change(move || ringing.change(|()| ()));
        let local = listener.local();
        Self { listener: Mutex::new(Some(listener)), bell, local, fingerprint, token, transport }
    }

    /// Where it listens.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// By which peers verify it.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The secret that peers must send; empty where anyone may connect.
    pub fn token(&self) -> &[u8] {
        &self.token
    }

    /// Waits for the next connection (the event ConnectionReceived); `None` once it is stopped (the
    /// event Stopped). Peers that are not admitted are skipped.
    pub fn accept(&self) -> Option<Connection> {
        self.next(None).flatten()
    }

    /// As [`accept`](Self::accept); `None` after `limit`.
    pub fn accept_within(&self, limit: Wall) -> Option<Option<Connection>> {
        self.next(Some(limit))
    }

    fn next(&self, limit: Option<Wall>) -> Option<Option<Connection>> {
        let carrier = self.bell.wait(limit, |()| {
            let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(listener) = &*listener else { return Some(None) };
            while let Some(accepted) = listener.accept_within(Wall::ZERO) {
                if let Accepted::Connection(carrier) = accepted {
                    return Some(Some(carrier));
                }
            }
            None
        })?;
        let group = |carrier| Group::new(carrier, self.transport.clone(), Side::Listens);
        Some(carrier.map(|carrier| Connection::first(group(carrier))))
    }

    /// The connections that come, until it is stopped.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }

    /// Accepts no more: all that wait for connections get the event Stopped.
    pub fn stop(&self) {
        let stopped = self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(stopped);
        self.bell.change(|()| ());
    }
}

/// The connections of a [`Listener`], as they come.
pub struct Incoming<'a>(&'a Listener);

impl Iterator for Incoming<'_> {
    type Item = Connection;

    fn next(&mut self) -> Option<Connection> {
        self.0.accept()
    }
}
