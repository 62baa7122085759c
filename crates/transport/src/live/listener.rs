//! Accepting connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration as Wall;

use super::connection::{Connection, seed};
use super::driver::EndpointDriver;
use super::error::{Error, Options};
use super::mailbox::Mailbox;
use super::shared::{Command, Incoming};
use super::thread::EndpointThread;
use crate::{Closed, Endpoint, Identity, Token};
use ontempo_udp::Socket;

/// An incoming connection or a refused client.
pub enum Accepted {
    /// A connection whose handshake is complete.
    Connection(Connection),
    /// The handshake failed: a wrong token, no answer, or the client distrusts our certificate.
    Refused {
        /// The client's address, if known.
        remote: Option<SocketAddr>,
        /// The close reason.
        closed: Closed,
    },
}

/// Accepts connections at a UDP port. After it is dropped no connection is accepted, and those that wait
/// to be accepted are closed with [`CloseReason::Refused`](crate::CloseReason::Refused); those that
/// were accepted go on.
pub struct Listener {
    thread: Arc<EndpointThread>,
    incoming: Arc<Mailbox<Incoming>>,
}

impl Listener {
    /// Listens at a socket for clients that present `token`.
    ///
    /// # Errors
    /// The certificate cannot be used, or the system has no more threads.
    pub fn new(
        socket: Socket,
        identity: &Identity,
        token: Token,
        options: &Options,
    ) -> Result<Self, Error> {
        let mut endpoint = Endpoint::new(options.configuration.clone(), seed()?);
        endpoint.listen(identity, token)?;
        let incoming = Arc::new(Mailbox::new(Incoming::default()));
        let driver = EndpointDriver::new(endpoint, Some(Arc::clone(&incoming)));
        let thread = EndpointThread::start(socket, driver, options.driver)?;
        Ok(Self { thread, incoming })
    }

    /// Listens at an address; port 0 stands for any free port.
    ///
    /// # Errors
    /// The socket cannot be bound, or those of [`new`](Self::new).
    pub fn bind(
        address: SocketAddr,
        identity: &Identity,
        token: Token,
        options: &Options,
    ) -> Result<Self, Error> {
        Self::new(Socket::bind(address, options.socket)?, identity, token, options)
    }

    /// The address at which it listens.
    pub fn local(&self) -> SocketAddr {
        self.thread.local
    }

    /// Waits for the next connection, or the next refusal if there is none; `None` after `limit`.
    pub fn accept_within(&self, limit: Wall) -> Option<Accepted> {
        self.next(Some(limit))
    }

    /// Waits for the next connection; refused clients are skipped.
    pub fn accept(&self) -> Connection {
        loop {
            if let Some(Accepted::Connection(connection)) = self.next(None) {
                return connection;
            }
        }
    }

    fn next(&self, limit: Option<Wall>) -> Option<Accepted> {
        self.incoming.wait(limit, |incoming| {
            // First: refusals that come without end, for which no token is needed, must not hold them up.
            let Some(connection) = incoming.connections.pop_front() else {
                let (remote, closed) = incoming.refused.pop_front()?;
                return Some(Accepted::Refused { remote, closed });
            };
            let thread = Arc::clone(&self.thread);
            let local = thread.local;
            Some(Accepted::Connection(Connection::accepted(thread, connection, local)))
        })
    }

    /// Calls `hook` whenever [`accept_within`](Self::accept_within) may return `Some`. It runs on
    /// the endpoint's thread and must not block.
    pub fn on_change(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.incoming.set_hook(Arc::new(hook));
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.thread.command(Command::StopListening);
    }
}
