//! State shared by a program and the thread of its connections: queues in both directions, and
//! commands.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

use super::error::Error;
use super::mailbox::Mailbox;
use crate::connection::cost;
use crate::wire::MAX_DEPENDENCIES;
use crate::{
    CloseReason, Closed, ConnectionId, ConnectionStatistics, Delivery, FlowConfig, FlowId,
    Outgoing, ReceiveStatistics, Reliability, SendError, SendStatistics, Token, Trust,
};
use ontempo_udp::Dscp;

/// Maximum queued deliveries of a flow, and bytes after which no more are queued.
pub(super) const MAX_READY: usize = 256;
pub(super) const MAX_READY_BYTES: usize = 256 << 10;

/// Maximum units and bytes queued between a program and the thread: the endpoint has its own
/// queues, whose size is configured.
const MAX_UNITS: usize = 64;
pub(super) const MAX_BYTES: usize = 256 << 10;

/// State of a connection.
#[derive(Default)]
pub(super) struct State {
    /// Units may be sent, though the server has not answered the token.
    pub(super) is_early: bool,
    pub(super) is_open: bool,
    pub(super) closed: Option<Closed>,
    pub(super) flows: VecDeque<(FlowId, FlowConfig, Arc<Mailbox<Inbox>>)>,
}

/// State shared by a connection's program and thread.
pub(super) type Shared = Arc<Mailbox<State>>;

/// An incoming connection.
pub(super) struct IncomingConnection {
    pub(super) id: ConnectionId,
    pub(super) remote: Option<SocketAddr>,
    pub(super) shared: Shared,
}

/// An opened flow: its id and its outbox.
pub(super) type OpenedFlow = (FlowId, Arc<Mailbox<Outbox>>);

/// Commands of a program.
pub(super) enum Command {
    Connect {
        remote: SocketAddr,
        name: String,
        trust: Trust,
        token: Token,
        shared: Shared,
        reply: SyncSender<Result<ConnectionId, Error>>,
    },
    OpenFlow(ConnectionId, FlowConfig, SyncSender<Result<OpenedFlow, Error>>),
    /// Execute the queued tasks.
    RunTasks,
    /// The peer's address now.
    Remote(ConnectionId, SyncSender<SocketAddr>),
    Statistics(ConnectionId, SyncSender<ConnectionStatistics>),
    SendStatistics(ConnectionId, FlowId, SyncSender<SendStatistics>),
    ReceiveStatistics(ConnectionId, FlowId, SyncSender<ReceiveStatistics>),
    Mark(ConnectionId, Dscp),
    Close(ConnectionId, CloseReason, String),
    /// Accept no more connections.
    StopListening,
    End,
}

/// A task for a flow. Programs append tasks to a list and send one command for the whole list: a
/// thousand flows with one unit each send one command, and no task is refused. Each flow has at
/// most one task of each kind.
pub(super) enum Task {
    /// The outbox has units, or was finished.
    Flush(ConnectionId, FlowId),
    /// The inbox has space.
    Resume(ConnectionId, FlowId),
    /// The program is done with a flow of the peer.
    Release(ConnectionId, FlowId),
}

/// Units queued for the thread.
pub(super) struct Outbox {
    pub(super) queue: VecDeque<Outgoing>,
    pub(super) bytes: usize,
    /// `Task::Flush` is queued for this outbox.
    pub(super) flushing: bool,
    pub(super) is_finished: bool,
    /// The endpoint knows that it is finished.
    pub(super) is_finish_passed: bool,
    next: u64,
    max_unit_bytes: u64,
    /// Bytes after which it is full.
    max_bytes: usize,
    reliability: Reliability,
    pub(super) dropped: VecDeque<u64>,
    pub(super) settled: Option<SendStatistics>,
    /// When the connection was closed before it was settled.
    pub(super) last: Option<SendStatistics>,
    pub(super) failed: Option<SendError>,
    pub(super) closed: Option<Closed>,
}

impl Outbox {
    pub(super) fn new(max_unit_bytes: u64, max_bytes: usize, reliability: Reliability) -> Self {
        Self {
            queue: VecDeque::new(),
            bytes: 0,
            flushing: false,
            is_finished: false,
            is_finish_passed: false,
            next: 0,
            max_unit_bytes,
            max_bytes,
            reliability,
            dropped: VecDeque::new(),
            settled: None,
            last: None,
            failed: None,
            closed: None,
        }
    }

    /// The error of a flow that failed or whose connection is closed.
    pub(super) fn check(&self) -> Result<(), Error> {
        if let Some(closed) = &self.closed {
            return Err(Error::Closed(closed.clone()));
        }
        self.failed.map_or(Ok(()), |error| Err(Error::Unit(error)))
    }

    /// True if it is finished, and the endpoint will know once the queued units are sent.
    pub(super) fn finishes(&self) -> bool {
        self.is_finished && !self.is_finish_passed
    }

    /// Queues a unit if there is space; returns its number and whether to wake the thread.
    pub(super) fn push(&mut self, unit: &Outgoing) -> Option<Result<(u64, bool), Error>> {
        if let Err(error) = self.check() {
            return Some(Err(error));
        }
        if self.is_finished {
            return Some(Err(Error::Unit(SendError::NoFlow)));
        }
        let size = unit.data.len();
        if size as u64 > self.max_unit_bytes {
            return Some(Err(Error::Unit(SendError::TooLong { most: self.max_unit_bytes })));
        }
        let names = &unit.depends_on;
        if names.len() > MAX_DEPENDENCIES
            || names.iter().chain(&unit.continues).any(|&on| on >= self.next)
        {
            return Some(Err(Error::Unit(SendError::Dependencies)));
        }
        if unit.deadline.is_some() && !self.reliability.allows_deadlines() {
            return Some(Err(Error::Unit(SendError::Deadline)));
        }
        let is_full = self.queue.len() >= MAX_UNITS || self.bytes + size > self.max_bytes;
        if is_full && !self.queue.is_empty() {
            return None;
        }
        self.bytes += size;
        self.queue.push_back(unit.clone());
        self.next += 1;
        Some(Ok((self.next - 1, !std::mem::replace(&mut self.flushing, true))))
    }
}

/// Deliveries for a program.
pub(super) struct Inbox {
    ready: VecDeque<Delivery>,
    bytes: usize,
    /// Memory of `ready`, part of the connection's, in bytes.
    unprocessed: Arc<AtomicU64>,
    /// The endpoint has more, and waits for `Resume`.
    pub(super) has_more: bool,
    /// Threads that wait are not woken for deliveries.
    pub(super) wakes_nobody: bool,
    pub(super) ended: Option<ReceiveStatistics>,
    pub(super) closed: Option<Closed>,
}

impl Inbox {
    /// An inbox whose memory is counted in `unprocessed`.
    pub(super) fn new(unprocessed: Arc<AtomicU64>) -> Self {
        let (ready, bytes, has_more, wakes_nobody) = (VecDeque::new(), 0, false, false);
        let (ended, closed) = (None, None);
        Self { ready, bytes, unprocessed, has_more, wakes_nobody, ended, closed }
    }

    /// Number of deliveries, and their bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.ready.len(), self.bytes)
    }

    pub(super) fn append(&mut self, deliveries: &mut VecDeque<Delivery>) {
        self.unprocessed.fetch_add(deliveries.iter().map(cost).sum(), Ordering::Relaxed);
        self.bytes += deliveries.iter().map(size).sum::<usize>();
        self.ready.append(deliveries);
    }

    pub(super) fn pop(&mut self) -> Option<Delivery> {
        let delivery = self.ready.pop_front()?;
        self.unprocessed.fetch_sub(cost(&delivery), Ordering::Relaxed);
        self.bytes -= size(&delivery);
        Some(delivery)
    }

    /// Discards all deliveries.
    pub(super) fn clear(&mut self) {
        while self.pop().is_some() {}
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Size of a delivery's data in bytes.
pub(super) fn size(delivery: &Delivery) -> usize {
    match delivery {
        Delivery::Unit(unit) => unit.data.len(),
        Delivery::Dropped(_) => 0,
    }
}

/// Maximum refused connections queued for the program; beyond it the oldest are discarded.
const MAX_REFUSALS: usize = 64;

/// Maximum connections that were closed before the program accepted them; beyond it the oldest are
/// discarded.
const MAX_CLOSED: usize = 64;

/// Connections to be accepted, as many as the configuration allows, and refused ones.
#[derive(Default)]
pub(super) struct Incoming {
    pub(super) connections: VecDeque<IncomingConnection>,
    pub(super) refused: VecDeque<(Option<SocketAddr>, Closed)>,
}

impl Incoming {
    pub(super) fn push(&mut self, connection: IncomingConnection) {
        self.connections.push_back(connection);
    }

    /// A connection was closed; the program may not have accepted it.
    pub(super) fn forget_closed(&mut self) {
        let is_closed = |incoming: &IncomingConnection| incoming.shared.lock().closed.is_some();
        let closed = self.connections.iter().filter(|incoming| is_closed(incoming)).count();
        if closed > MAX_CLOSED
            && let Some(oldest) = self.connections.iter().position(is_closed)
        {
            self.connections.remove(oldest);
        }
    }

    pub(super) fn refuse(&mut self, remote: Option<SocketAddr>, closed: Closed) {
        if self.refused.len() >= MAX_REFUSALS {
            self.refused.pop_front();
        }
        self.refused.push_back((remote, closed));
    }
}
