//! Taking connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration as Wall;

use super::carried::{Carried, Running};
use super::connection::{Connection, seed};
use super::error::{Error, Options};
use super::mailbox::Mailbox;
use super::shared::Incoming;
use crate::{Closed, Endpoint, Identity, Token};
use ontempo_udp::Socket;

/// Who came.
pub enum Accepted {
    /// One whose connection can be used.
    Connection(Connection),
    /// One with whom there is no connection: a wrong token, no answer, or it did not trust us.
    Refused {
        /// Its address, where that is still known.
        remote: Option<SocketAddr>,
        /// Why.
        closed: Closed,
    },
}

/// Takes connections at a UDP port. Connections outlive it, but no new ones come.
pub struct Listener {
    running: Arc<Running>,
    incoming: Arc<Mailbox<Incoming>>,
}

impl Listener {
    /// Listens at a socket, for clients that know `token`.
    ///
    /// # Errors
    /// The certificate cannot be used, or the system has no thread left.
    pub fn new(
        socket: Socket,
        identity: &Identity,
        token: Token,
        options: &Options,
    ) -> Result<Self, Error> {
        let mut endpoint = Endpoint::new(options.configuration.clone(), seed()?);
        endpoint.listen(identity, token)?;
        let incoming = Arc::new(Mailbox::new(Incoming::default()));
        let carried = Carried::new(endpoint, Some(Arc::clone(&incoming)));
        let running = Running::start(socket, carried, options.driver)?;
        Ok(Self { running, incoming })
    }

    /// Listens at an address; port 0 is any free one.
    ///
    /// # Errors
    /// There is no such socket, or as of [`new`](Self::new).
    pub fn bind(
        address: SocketAddr,
        identity: &Identity,
        token: Token,
        options: &Options,
    ) -> Result<Self, Error> {
        Self::new(Socket::bind(address, options.socket)?, identity, token, options)
    }

    /// Where it listens.
    pub fn local(&self) -> SocketAddr {
        self.running.local
    }

    /// Waits for the next connection; `None` where that takes longer than `limit`.
    pub fn accept_within(&self, limit: Wall) -> Option<Accepted> {
        self.next(Some(limit))
    }

    /// Waits for the next connection that can be used.
    pub fn accept(&self) -> Connection {
        loop {
            if let Some(Accepted::Connection(connection)) = self.next(None) {
                return connection;
            }
        }
    }

    fn next(&self, limit: Option<Wall>) -> Option<Accepted> {
        self.incoming.wait(limit, |incoming| {
            if let Some((remote, closed)) = incoming.refused.pop_front() {
                return Some(Accepted::Refused { remote, closed });
            }
            let begun = incoming.begun.pop_front()?;
            let running = Arc::clone(&self.running);
            Some(Accepted::Connection(Connection::accepted(running, begun, self.running.local)))
        })
    }

    /// Calls `hook` whenever somebody may have come; on another thread, which it must not keep.
    pub fn on_change(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.incoming.set_hook(Arc::new(hook));
    }
}
