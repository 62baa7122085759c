//! State shared by a program and the thread of its connections: queues in both directions, and
//! commands.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use super::error::Error;
use super::mailbox::Mailbox;
use crate::wire::MAX_DEPENDENCIES;
use crate::{
    CloseReason, Closed, ConnectionId, ConnectionStatistics, Delivery, FlowConfig, FlowId,
    Outgoing, ReceiveStatistics, Reliability, SendError, SendStatistics, Token, Trust,
};
use ontempo_udp::Dscp;

/// Maximum queued deliveries of a flow, and bytes after which no more are queued.
pub(super) const MAX_READY: usize = 256;
pub(super) const MAX_READY_BYTES: usize = 256 << 10;

/// Maximum units and bytes queued between a program and the thread: the endpoint has its own queues,
/// whose size is configured.
const MAX_UNITS: usize = 64;
const MAX_BYTES: usize = 256 << 10;

/// State of a connection.
#[derive(Default)]
pub(super) struct State {
    pub(super) is_open: bool,
    pub(super) closed: Option<Closed>,
    pub(super) flows: VecDeque<(FlowId, FlowConfig, Arc<Mailbox<Inbox>>)>,
}

/// State shared by a connection's program and thread.
pub(super) type Shared = Arc<Mailbox<State>>;

/// An incoming connection.
pub(super) struct Begun {
    pub(super) id: ConnectionId,
    pub(super) remote: Option<SocketAddr>,
    pub(super) shared: Shared,
}

/// An opened flow: its id and its outbox.
pub(super) type Opened = (FlowId, Arc<Mailbox<Outbox>>);

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
    OpenFlow(ConnectionId, FlowConfig, SyncSender<Result<Opened, Error>>),
    /// There are tasks.
    Work,
    Statistics(ConnectionId, SyncSender<ConnectionStatistics>),
    SendStatistics(ConnectionId, FlowId, SyncSender<SendStatistics>),
    ReceiveStatistics(ConnectionId, FlowId, SyncSender<ReceiveStatistics>),
    Mark(ConnectionId, Dscp),
    Close(ConnectionId, CloseReason, String),
    End,
}

/// Work for a flow. Programs append tasks to a list and send one command: a thousand flows with a
/// unit each then send one, and no task is refused. Each flow has at most one of a kind.
pub(super) enum Task {
    /// The outbox has units, or was finished.
    Flush(ConnectionId, FlowId),
    /// The inbox has space.
    Resume(ConnectionId, FlowId),
}

/// Units queued for the thread.
pub(super) struct Outbox {
    pub(super) queue: VecDeque<Outgoing>,
    pub(super) bytes: usize,
    /// The thread has been woken for this outbox.
    pub(super) flushing: bool,
    pub(super) is_finished: bool,
    next: u64,
    longest: u64,
    reliability: Reliability,
    pub(super) dropped: VecDeque<u64>,
    pub(super) settled: Option<SendStatistics>,
    pub(super) failed: Option<SendError>,
    pub(super) closed: Option<Closed>,
}

impl Outbox {
    pub(super) fn new(longest: u64, reliability: Reliability) -> Self {
        Self {
            queue: VecDeque::new(),
            bytes: 0,
            flushing: false,
            is_finished: false,
            next: 0,
            longest,
            reliability,
            dropped: VecDeque::new(),
            settled: None,
            failed: None,
            closed: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        if let Some(closed) = &self.closed {
            return Err(Error::Closed(closed.clone()));
        }
        self.failed.map_or(Ok(()), |error| Err(Error::Unit(error)))
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
        if size as u64 > self.longest {
            return Some(Err(Error::Unit(SendError::TooLong { most: self.longest })));
        }
        let names = &unit.depends_on;
        if names.len() > MAX_DEPENDENCIES || names.iter().any(|&on| on >= self.next) {
            return Some(Err(Error::Unit(SendError::Dependencies)));
        }
        if unit.deadline.is_some() && !self.reliability.allows_deadlines() {
            return Some(Err(Error::Unit(SendError::Deadline)));
        }
        let is_full = self.queue.len() >= MAX_UNITS || self.bytes + size > MAX_BYTES;
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
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) ready: VecDeque<Delivery>,
    pub(super) bytes: usize,
    /// The endpoint has more, and waits for `Resume`.
    pub(super) has_more: bool,
    pub(super) ended: Option<ReceiveStatistics>,
    pub(super) closed: Option<Closed>,
}

/// Size of a delivery in bytes.
pub(super) fn size(delivery: &Delivery) -> usize {
    match delivery {
        Delivery::Unit(unit) => unit.data.len(),
        Delivery::Dropped(_) => 0,
    }
}

/// Refusals that wait to be told; the oldest of more are forgotten.
const MAX_REFUSALS: usize = 64;

/// What waits to be accepted. As many connections as the configuration allows.
#[derive(Default)]
pub(super) struct Incoming {
    pub(super) begun: VecDeque<Begun>,
    pub(super) refused: VecDeque<(Option<SocketAddr>, Closed)>,
}

impl Incoming {
    pub(super) fn push(&mut self, begun: Begun) {
        self.begun.push_back(begun);
    }

    pub(super) fn refuse(&mut self, remote: Option<SocketAddr>, closed: Closed) {
        if self.refused.len() >= MAX_REFUSALS {
            self.refused.pop_front();
        }
        self.refused.push_back((remote, closed));
    }
}
