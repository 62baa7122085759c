//! A connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration as Wall;

use super::driver::EndpointDriver;
use super::error::{Error, Options};
use super::flow::{ReceiveFlow, SendFlow};
use super::shared::{Command, IncomingConnection, Shared, State};
use super::thread::EndpointThread;
use crate::{
    CloseReason, Closed, ConnectionId, ConnectionStatistics, Endpoint, FlowConfig, Token, Trust,
};
use ontempo_udp::{Clock, Dscp, Socket, any_for};

/// A connection to a peer. Dropping it closes it.
pub struct Connection {
    thread: Arc<EndpointThread>,
    id: ConnectionId,
    remote: SocketAddr,
    shared: Shared,
}

/// A connection whose handshake is under way.
pub struct Pending(Connection);

impl Pending {
    /// Waits until the handshake is complete; `None` after `limit`. It waits no longer than the
    /// configuration's `handshake_timeout`.
    ///
    /// # Errors
    /// The peer did not answer, refused, or could not be verified.
    pub fn wait(&self, limit: Option<Wall>) -> Option<Result<(), Error>> {
        self.0.is_or_fails(limit, |state| state.is_open)
    }

    /// As [`wait`](Self::wait), but returns as soon as units may be sent: a round trip sooner, if the server's
    /// limits come with its handshake. Whether it takes the connection is then said by
    /// [`Connection::opened`]; if it does not, what was sent is lost.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_early(&self, limit: Option<Wall>) -> Option<Result<(), Error>> {
        self.0.is_or_fails(limit, |state| state.is_early || state.is_open)
    }

    fn start_on(
        thread: &Arc<EndpointThread>,
        remote: SocketAddr,
        name: &str,
        trust: &Trust,
        token: Token,
    ) -> Result<Self, Error> {
        let shared = Shared::default();
        let command = |reply| Command::Connect {
            remote,
            name: name.to_owned(),
            trust: trust.clone(),
            token,
            shared: Arc::clone(&shared),
            reply,
        };
        let ended = || Error::System(std::io::Error::other("the endpoint's thread has ended"));
        let id = thread.request(command).ok_or_else(ended)??;
        Ok(Self(Connection { thread: Arc::clone(thread), id, remote, shared }))
    }

    /// Starts a connection to `remote` from a new socket; `name` is expected in its certificate.
    ///
    /// # Errors
    /// The socket cannot be opened, or `trust` cannot be used.
    pub fn begin(
        remote: SocketAddr,
        name: &str,
        trust: &Trust,
        token: Token,
        options: &Options,
    ) -> Result<Self, Error> {
        let caller = Caller::bind(any_for(remote), options)?;
        Self::start_on(&caller.thread, remote, name, trust, token)
    }

    /// Calls `hook` whenever [`wait`](Self::wait) may have a result. It runs on the endpoint's
    /// thread and must not block.
    pub fn on_change(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.0.on_change(hook);
    }

    /// The connection, to be used after [`wait`](Self::wait) or [`wait_early`](Self::wait_early) has
    /// returned `Ok`.
    pub fn connection(self) -> Connection {
        self.0
    }
}

/// A client endpoint: one socket and thread for many connections.
pub struct Caller {
    thread: Arc<EndpointThread>,
}

impl Caller {
    /// Binds `address`; port 0 stands for any free port.
    ///
    /// # Errors
    /// The socket cannot be bound, or the system has no more threads.
    pub fn bind(address: SocketAddr, options: &Options) -> Result<Self, Error> {
        let socket = Socket::bind(address, options.socket)?;
        let endpoint = Endpoint::new(options.configuration.clone(), seed()?);
        let thread =
            EndpointThread::start(socket, EndpointDriver::new(endpoint, None), options.driver)?;
        Ok(Self { thread })
    }

    /// Connects to `remote`, as [`connect`] does.
    ///
    /// # Errors
    /// Those of [`connect`], without those of the socket.
    pub fn connect(
        &self,
        remote: SocketAddr,
        name: &str,
        trust: &Trust,
        token: Token,
    ) -> Result<Connection, Error> {
        let pending = self.begin(remote, name, trust, token)?;
        pending.wait(None).unwrap_or(Ok(()))?;
        Ok(pending.connection())
    }

    /// Starts a connection to `remote`, as [`Pending::begin`] does.
    ///
    /// # Errors
    /// `trust` cannot be used, or there are too many connections.
    pub fn begin(
        &self,
        remote: SocketAddr,
        name: &str,
        trust: &Trust,
        token: Token,
    ) -> Result<Pending, Error> {
        Pending::start_on(&self.thread, remote, name, trust, token)
    }
}

/// A seed from the system's random number generator.
pub(super) fn seed() -> Result<[u8; 32], Error> {
    let mut seed = [0; 32];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut seed)
        .map_err(|_| Error::System(std::io::Error::other("the system has no random numbers")))?;
    Ok(seed)
}

/// Connects to `remote` and waits for the handshake. `name` must be in the peer's certificate if
/// `trust` checks names.
///
/// # Errors
/// The socket cannot be opened, `trust` cannot be used, or the peer did not answer, refused, or
/// could not be verified.
pub fn connect(
    remote: SocketAddr,
    name: &str,
    trust: &Trust,
    token: Token,
    options: &Options,
) -> Result<Connection, Error> {
    let pending = Pending::begin(remote, name, trust, token, options)?;
    pending.wait(None).unwrap_or(Ok(()))?;
    Ok(pending.connection())
}

impl Connection {
    /// A connection that the peer opened; `fallback` is its address if none is known.
    pub(super) fn accepted(
        thread: Arc<EndpointThread>,
        connection: IncomingConnection,
        fallback: SocketAddr,
    ) -> Self {
        let IncomingConnection { id, remote, shared } = connection;
        Self { thread, id, remote: remote.unwrap_or(fallback), shared }
    }

    /// Waits until the handshake is complete, which it is not yet after [`Pending::wait_early`]; `None` after
    /// `limit`. A connection that was opened and has ended since was opened.
    ///
    /// # Errors
    /// The peer did not answer or refused.
    pub fn opened(&self, limit: Option<Wall>) -> Option<Result<(), Error>> {
        self.shared.wait(limit, |state| match &state.closed {
            _ if state.is_open => Some(Ok(())),
            Some(closed) => Some(Err(self.not_connected(closed))),
            None => None,
        })
    }

    /// Whether units could be sent before the handshake was complete.
    pub fn began_early(&self) -> bool {
        self.shared.lock().is_early
    }

    fn is_or_fails(
        &self,
        limit: Option<Wall>,
        is_there: impl Fn(&State) -> bool,
    ) -> Option<Result<(), Error>> {
        self.shared.wait(limit, |state| match &state.closed {
            Some(closed) => Some(Err(self.not_connected(closed))),
            None => is_there(state).then_some(Ok(())),
        })
    }

    fn not_connected(&self, closed: &Closed) -> Error {
        Error::NotConnected { remote: self.remote, closed: closed.clone() }
    }

    /// The peer's address at the handshake.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// The peer's address now: it may have moved. `None` once the connection is closed.
    pub fn remote_now(&self) -> Option<SocketAddr> {
        self.thread.request(|reply| Command::Remote(self.id, reply))
    }

    /// This side's address.
    pub fn local(&self) -> SocketAddr {
        self.thread.local
    }

    /// The clock of all times in this connection's API.
    pub fn clock(&self) -> Clock {
        self.thread.clock
    }

    /// Opens a flow to the peer. Waits while the peer's program has not taken flows that this side
    /// has finished: it takes at most [`Limits::flows`](crate::Limits) at a time.
    ///
    /// # Errors
    /// The connection is closed, or as many flows as the peer takes at a time are open and not
    /// finished, so that waiting would not help.
    pub fn open_flow(&self, config: FlowConfig) -> Result<SendFlow, Error> {
        if let Some(closed) = self.is_closed() {
            return Err(Error::Closed(closed));
        }
        let command = |reply| Command::OpenFlow(self.id, config, reply);
        let over =
            || Error::Closed(Closed::found(CloseReason::Ended, "the endpoint's thread has ended"));
        let opened = self.thread.request(command).ok_or_else(over)??;
        Ok(SendFlow::new(Arc::clone(&self.thread), self.id, opened))
    }

    /// Waits for a flow that the peer opens.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn accept_flow(&self) -> Result<ReceiveFlow, Error> {
        let over = || Err(Error::Closed(Closed::by_this_side()));
        self.next_flow(None).unwrap_or_else(over)
    }

    /// As [`accept_flow`](Self::accept_flow); `None` after `limit`.
    pub fn accept_flow_within(&self, limit: Wall) -> Option<Result<ReceiveFlow, Error>> {
        self.next_flow(Some(limit))
    }

    fn next_flow(&self, limit: Option<Wall>) -> Option<Result<ReceiveFlow, Error>> {
        self.shared.wait(limit, |state| {
            if let Some(opened) = state.flows.pop_front() {
                return Some(Ok(ReceiveFlow::new(Arc::clone(&self.thread), self.id, opened)));
            }
            let closed = state.closed.clone()?;
            Some(Err(Error::Closed(closed)))
        })
    }

    /// Sets the DSCP of the packets to this peer, also after a migration.
    pub fn mark(&self, dscp: Dscp) {
        self.thread.command(Command::Mark(self.id, dscp));
    }

    /// The current statistics; `None` once the connection is closed.
    pub fn statistics(&self) -> Option<ConnectionStatistics> {
        self.thread.request(|reply| Command::Statistics(self.id, reply))
    }

    /// Why the connection is closed; `None` while it is open.
    pub fn is_closed(&self) -> Option<Closed> {
        self.shared.lock().closed.clone()
    }

    /// Waits until the connection is closed and returns the reason; `None` after `limit`.
    pub fn closed(&self, limit: Wall) -> Option<Closed> {
        self.shared.wait(Some(limit), |state| state.closed.clone())
    }

    /// Closes the connection with [`CloseReason::Done`] and sends `sentence` to the peer. Units
    /// that have not arrived, or that the peer's program has not read, may be lost. To avoid that,
    /// wait for a reply of the peer's program, or for the peer to close.
    pub fn close(&self, sentence: &str) {
        self.close_with(CloseReason::Done, sentence);
    }

    /// As [`close`](Self::close) with another reason; one without an error code is sent as
    /// [`CloseReason::Done`].
    pub fn close_with(&self, reason: CloseReason, sentence: &str) {
        if self.is_closed().is_none() {
            self.thread.command(Command::Close(self.id, reason, sentence.to_owned()));
        }
    }

    /// Calls `hook` whenever a flow may have been opened or the connection closed. It runs on the
    /// endpoint's thread and must not block.
    pub fn on_change(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.shared.set_hook(Arc::new(hook));
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close("");
    }
}
