//! A connection, as programs use it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration as Wall;

use super::carried::{Carried, Running};
use super::error::{Error, Options};
use super::flow::{ReceiveFlow, SendFlow};
use super::shared::{Begun, Command, Shared};
use crate::{
    CloseReason, Closed, ConnectionId, ConnectionStatistics, Endpoint, FlowConfig, Token, Trust,
};
use ontempo_udp::{Clock, Dscp, Socket, any_for};

/// A connection to a peer. Dropping it closes it.
pub struct Connection {
    running: Arc<Running>,
    id: ConnectionId,
    remote: SocketAddr,
    shared: Shared,
}

/// A connection that has been begun.
pub struct Pending(Connection);

impl Pending {
    /// Waits until it can be used; `None` where that takes longer than `limit`. The configuration's
    /// `handshake_timeout` ends it in any case.
    ///
    /// # Errors
    /// The peer did not answer, refused, or is not who it should be.
    pub fn wait(&self, limit: Option<Wall>) -> Option<Result<(), Error>> {
        let Connection { remote, shared, .. } = &self.0;
        shared.wait(limit, |state| match &state.closed {
            Some(closed) => {
                Some(Err(Error::NotConnected { remote: *remote, closed: closed.clone() }))
            }
            None => state.is_open.then_some(Ok(())),
        })
    }

    fn begin_on(
        running: &Arc<Running>,
        remote: SocketAddr,
        name: &str,
        trust: &Trust,
        token: Token,
    ) -> Result<Self, Error> {
        let shared = Shared::default();
        let ask = |reply| Command::Connect {
            remote,
            name: name.to_owned(),
            trust: trust.clone(),
            token,
            shared: Arc::clone(&shared),
            reply,
        };
        let ended = || Error::System(std::io::Error::other("the thread of the socket has ended"));
        let id = running.answer(ask).ok_or_else(ended)??;
        Ok(Self(Connection { running: Arc::clone(running), id, remote, shared }))
    }

    /// Begins a connection to `remote` from a socket of its own.
    ///
    /// # Errors
    /// There is no socket, or trust cannot be used.
    pub fn begin(
        remote: SocketAddr,
        name: &str,
        trust: &Trust,
        token: Token,
        options: &Options,
    ) -> Result<Self, Error> {
        let caller = Caller::bind(any_for(remote), options)?;
        Self::begin_on(&caller.running, remote, name, trust, token)
    }

    /// Calls `hook` whenever it may be known whether it can be used; on another thread, which it
    /// must not keep.
    pub fn on_change(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.0.on_change(hook);
    }

    /// The connection, once [`wait`](Self::wait) has said that it can be used.
    pub fn connection(self) -> Connection {
        self.0
    }
}

/// A socket and a thread from which many connections begin.
pub struct Caller {
    running: Arc<Running>,
}

impl Caller {
    /// One at `address`; port 0 is any free one.
    ///
    /// # Errors
    /// There is no such socket, or the system has no thread left.
    pub fn bind(address: SocketAddr, options: &Options) -> Result<Self, Error> {
        let socket = Socket::bind(address, options.socket)?;
        let endpoint = Endpoint::new(options.configuration.clone(), seed()?);
        let running = Running::start(socket, Carried::new(endpoint, None), options.driver)?;
        Ok(Self { running })
    }

    /// Connects to `remote`, as [`connect`] does.
    ///
    /// # Errors
    /// As of [`connect`].
    pub fn connect(
        &self,
        remote: SocketAddr,
        name: &str,
        trust: &Trust,
        token: Token,
    ) -> Result<Connection, Error> {
        let pending = Pending::begin_on(&self.running, remote, name, trust, token)?;
        pending.wait(None).unwrap_or(Ok(()))?;
        Ok(pending.connection())
    }
}

/// A seed out of the system's entropy.
pub(super) fn seed() -> Result<[u8; 32], Error> {
    let mut seed = [0; 32];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut seed)
        .map_err(|_| Error::System(std::io::Error::other("the system has no random numbers")))?;
    Ok(seed)
}

/// Connects to `remote`, whose certificate is for `name` where `trust` looks at that.
///
/// # Errors
/// There is no socket, trust cannot be used, or the peer did not answer, refused, or is not who it
/// should be.
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
    /// A connection that the peer began; `fallback` is said where its address is not known.
    pub(super) fn accepted(running: Arc<Running>, begun: Begun, fallback: SocketAddr) -> Self {
        let Begun { id, remote, shared } = begun;
        Self { running, id, remote: remote.unwrap_or(fallback), shared }
    }

    /// The peer's address when the connection began.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// This side's address.
    pub fn local(&self) -> SocketAddr {
        self.running.local
    }

    /// The clock of all times that the connection tells.
    pub fn clock(&self) -> Clock {
        self.running.clock
    }

    /// Opens a flow to the peer.
    ///
    /// # Errors
    /// The connection is over, or the peer takes no more flows.
    pub fn open_flow(&self, config: FlowConfig) -> Result<SendFlow, Error> {
        if let Some(closed) = self.is_closed() {
            return Err(Error::Closed(closed));
        }
        let ask = |reply| Command::OpenFlow(self.id, config, reply);
        let over = || Error::Closed(Closed::found(CloseReason::Ended, "its thread has ended"));
        let opened = self.running.answer(ask).ok_or_else(over)??;
        Ok(SendFlow::new(Arc::clone(&self.running), self.id, opened))
    }

    /// Waits for a flow that the peer opens.
    ///
    /// # Errors
    /// The connection is over.
    pub fn accept_flow(&self) -> Result<ReceiveFlow, Error> {
        let over = || Err(Error::Closed(Closed::by_this_side()));
        self.next_flow(None).unwrap_or_else(over)
    }

    /// The same; `None` where that takes longer than `limit`.
    pub fn accept_flow_within(&self, limit: Wall) -> Option<Result<ReceiveFlow, Error>> {
        self.next_flow(Some(limit))
    }

    fn next_flow(&self, limit: Option<Wall>) -> Option<Result<ReceiveFlow, Error>> {
        self.shared.wait(limit, |state| {
            if let Some(opened) = state.flows.pop_front() {
                return Some(Ok(ReceiveFlow::new(Arc::clone(&self.running), self.id, opened)));
            }
            let closed = state.closed.clone()?;
            Some(Err(Error::Closed(closed)))
        })
    }

    /// Gives the packets to the peer a class of their own, whatever address it moves to.
    pub fn mark(&self, dscp: Dscp) {
        self.running.ask(Command::Mark(self.id, dscp));
    }

    /// The connection as it stands; `None` once it is over.
    pub fn statistics(&self) -> Option<ConnectionStatistics> {
        self.running.answer(|reply| Command::Statistics(self.id, reply))
    }

    /// Why it is over; `None` while it is not.
    pub fn is_closed(&self) -> Option<Closed> {
        self.shared.lock().closed.clone()
    }

    /// Waits until it is over and answers why; `None` where that takes longer than `limit`.
    pub fn closed(&self, limit: Wall) -> Option<Closed> {
        self.shared.wait(Some(limit), |state| state.closed.clone())
    }

    /// Closes it and tells the peer why. What has not arrived yet may never, nor what the peer's
    /// program has not taken: who wants that waits for the peer's answer, or for the peer to close.
    pub fn close(&self, sentence: &str) {
        self.close_with(CloseReason::Done, sentence);
    }

    /// The same for a reason of the program's; one without a code goes as [`CloseReason::Done`].
    pub fn close_with(&self, reason: CloseReason, sentence: &str) {
        if self.is_closed().is_none() {
            self.running.ask(Command::Close(self.id, reason, sentence.to_owned()));
        }
    }

    /// Calls `hook` whenever a flow may have been opened, or the connection is over; on another
    /// thread, which it must not keep.
    pub fn on_change(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.shared.set_hook(Arc::new(hook));
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close("");
    }
}
