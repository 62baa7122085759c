//! Waiting for peers that agree.

use std::io;
use std::net::SocketAddr;

use ontempo_qos::{AnySocket, QosConnectionListener, QosListener, QosSocketListener};
use ontempo_transport::Fingerprint;

use super::connection::Connection;
use super::preconnection::Selected;
use super::protocol::Protocol;
use crate::selection::TransportProperties;

/// A listener of one protocol; of QUIC with its fingerprint and token.
pub(super) enum Bound {
    Tcp(QosListener),
    Udp(QosSocketListener),
    Quic(QosConnectionListener, Fingerprint, Vec<u8>),
}

/// Accepts connections over the protocol that the properties have selected. Dropping it stops it;
/// there is no event Stopped, since nobody can wait then.
pub struct Listener {
    bound: Bound,
    transport: TransportProperties,
    selected: Selected,
}

impl Listener {
    pub(super) fn new(bound: Bound, transport: TransportProperties, selected: Selected) -> Self {
        Self { bound, transport, selected }
    }

    /// The protocol that was selected.
    pub fn protocol(&self) -> Protocol {
        self.selected.protocol
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's error, over TCP.
    pub fn local(&self) -> io::Result<SocketAddr> {
        match &self.bound {
            Bound::Tcp(listener) => listener.local_address(),
            Bound::Udp(listener) => Ok(listener.local_address()),
            Bound::Quic(listener, ..) => Ok(listener.local_address()),
        }
    }

    /// By which peers verify it, over QUIC.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        match &self.bound {
            Bound::Quic(_, fingerprint, _) => Some(*fingerprint),
            _ => None,
        }
    }

    /// The secret that peers must send; empty where anyone may connect.
    pub fn token(&self) -> &[u8] {
        match &self.bound {
            Bound::Quic(_, _, token) => token,
            _ => &[],
        }
    }

    /// Waits for the next connection (the event ConnectionReceived); peers that are not admitted or
    /// do not agree are skipped.
    ///
    /// # Errors
    /// The system's error.
    pub fn accept(&self) -> io::Result<Connection> {
        let socket = match &self.bound {
            Bound::Tcp(listener) => AnySocket::Tcp(listener.accept()?.0),
            Bound::Udp(listener) => AnySocket::Udp(listener.accept()?.0),
            Bound::Quic(listener, ..) => AnySocket::Quic(listener.accept()?.0),
        };
        Ok(Connection::new(socket, &self.transport, &self.selected.options))
    }
}
