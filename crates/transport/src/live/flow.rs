//! Flows, as programs use them.

use std::sync::Arc;
use std::time::Duration as Wall;

use bytes::Bytes;
use ontempo_foundation::Duration;

use super::carried::Running;
use super::error::Error;
use super::mailbox::Mailbox;
use super::shared::{Command, Inbox, MAX_READY, Outbox, Task, size};
use crate::{
    ConnectionId, Delivery, FlowConfig, FlowId, Outgoing, ReceiveStatistics, SendError,
    SendStatistics,
};

/// Bytes that lie ready below which more is asked for.
const LOW_BYTES: usize = 128 << 10;

/// A unit to be sent.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// Its data.
    pub data: Bytes,
    /// How long from now on it is of use; it is dropped then if it has not arrived. Only for flows
    /// whose reliability [allows deadlines](Reliability::allows_deadlines).
    pub lifetime: Option<Duration>,
    /// More important units have a larger one.
    pub priority: u8,
    /// Units of the same flow that it is of no use without: numbers that sending returned; at
    /// most 32.
    pub depends_on: Vec<u64>,
}

impl From<Bytes> for Message {
    fn from(data: Bytes) -> Self {
        Self { data, ..Self::default() }
    }
}

/// Why a unit was not taken now.
#[derive(Debug)]
pub enum NotTaken {
    /// As much waits as may.
    Full,
    /// It never will be.
    Failed(Error),
}

/// A flow that this side sends. Dropping it finishes it.
pub struct SendFlow {
    running: Arc<Running>,
    connection: ConnectionId,
    id: FlowId,
    outbox: Arc<Mailbox<Outbox>>,
}

impl SendFlow {
    pub(super) fn new(
        running: Arc<Running>,
        connection: ConnectionId,
        (id, outbox): (FlowId, Arc<Mailbox<Outbox>>),
    ) -> Self {
        Self { running, connection, id, outbox }
    }

    fn outgoing(&self, message: Message) -> Outgoing {
        let Message { data, lifetime, priority, depends_on } = message;
        let deadline = lifetime.map(|lifetime| self.running.clock.now() + lifetime);
        Outgoing { data, deadline, priority, depends_on }
    }

    fn taken(&self, (number, tell): (u64, bool)) -> u64 {
        if tell {
            self.running.leave(Task::Flush(self.connection, self.id));
        }
        number
    }

    /// Sends a unit and answers its number, counted from 0; waits while as much waits as may.
    ///
    /// # Errors
    /// The connection is over, the flow finished, or the unit is not one.
    pub fn send(&self, message: impl Into<Message>) -> Result<u64, Error> {
        let unit = self.outgoing(message.into());
        // Without a limit a wait always answers.
        let over = || Err(Error::Unit(SendError::NoFlow));
        let taken = self.outbox.wait(None, |outbox| outbox.push(&unit)).unwrap_or_else(over)?;
        Ok(self.taken(taken))
    }

    /// The same, without waiting longer than `limit`.
    ///
    /// # Errors
    /// As much waits as may, or as of [`send`](Self::send).
    pub fn send_within(&self, message: impl Into<Message>, limit: Wall) -> Result<u64, NotTaken> {
        let unit = self.outgoing(message.into());
        match self.outbox.wait(Some(limit), |outbox| outbox.push(&unit)) {
            Some(taken) => Ok(self.taken(taken.map_err(NotTaken::Failed)?)),
            None => Err(NotTaken::Full),
        }
    }

    /// Numbers of units that were dropped at their deadline since this was last asked: the peer
    /// does not have them and will not. The oldest of more than 4,096 are forgotten.
    pub fn dropped(&self) -> Vec<u64> {
        self.outbox.lock().dropped.drain(..).collect()
    }

    /// Says that nothing more will be sent.
    pub fn finish(&self) {
        let tell = self.outbox.change(|outbox| {
            let first = !std::mem::replace(&mut outbox.is_finished, true);
            first && !std::mem::replace(&mut outbox.flushing, true)
        });
        if tell {
            self.running.leave(Task::Flush(self.connection, self.id));
        }
    }

    /// Waits until all of a finished flow has arrived at the peer's transport or been dropped;
    /// `None` where that takes longer than `limit`.
    ///
    /// # Errors
    /// The connection ended before.
    pub fn settled(&self, limit: Wall) -> Option<Result<SendStatistics, Error>> {
        self.outbox.wait(Some(limit), |outbox| match outbox.settled {
            Some(statistics) => Some(Ok(statistics)),
            None => outbox.check().err().map(Err),
        })
    }

    /// The flow as it stands; `None` once its connection is over.
    pub fn statistics(&self) -> Option<SendStatistics> {
        let settled = self.outbox.lock().settled;
        let ask = |reply| Command::SendStatistics(self.connection, self.id, reply);
        settled.or_else(|| self.running.answer(ask)).or_else(|| self.outbox.lock().settled)
    }

    /// Calls `hook` whenever there may be room, or the flow is over; on another thread, which it
    /// must not keep.
    pub fn on_change(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.outbox.set_hook(Arc::new(hook));
    }
}

impl Drop for SendFlow {
    fn drop(&mut self) {
        self.finish();
    }
}

/// A flow that the peer sends.
pub struct ReceiveFlow {
    running: Arc<Running>,
    connection: ConnectionId,
    id: FlowId,
    config: FlowConfig,
    inbox: Arc<Mailbox<Inbox>>,
}

impl ReceiveFlow {
    pub(super) fn new(
        running: Arc<Running>,
        connection: ConnectionId,
        (id, config, inbox): (FlowId, FlowConfig, Arc<Mailbox<Inbox>>),
    ) -> Self {
        Self { running, connection, id, config, inbox }
    }

    /// How it is delivered, and what the peer calls it.
    pub fn config(&self) -> &FlowConfig {
        &self.config
    }

    /// Waits for the next unit, or word of one that will not come; `None` where the flow is over.
    ///
    /// # Errors
    /// The connection ended before the flow.
    pub fn receive(&self) -> Result<Option<Delivery>, Error> {
        self.next(None).unwrap_or(Ok(None))
    }

    /// The same; `None` where that takes longer than `limit`.
    pub fn receive_within(&self, limit: Wall) -> Option<Result<Option<Delivery>, Error>> {
        self.next(Some(limit))
    }

    fn next(&self, limit: Option<Wall>) -> Option<Result<Option<Delivery>, Error>> {
        let mut resume = false;
        let next = self.inbox.wait(limit, |inbox| {
            if let Some(delivery) = inbox.ready.pop_front() {
                inbox.bytes -= size(&delivery);
                let is_low = inbox.ready.len() <= MAX_READY / 2 && inbox.bytes <= LOW_BYTES;
                if inbox.has_more && is_low {
                    inbox.has_more = false;
                    resume = true;
                }
                return Some(Ok(Some(delivery)));
            }
            if inbox.ended.is_some() {
                return Some(Ok(None));
            }
            let closed = inbox.closed.clone()?;
            Some(Err(Error::Closed(closed)))
        });
        if resume {
            self.running.leave(Task::Resume(self.connection, self.id));
        }
        next
    }

    /// The flow as it stands; `None` once its connection is over.
    pub fn statistics(&self) -> Option<ReceiveStatistics> {
        let ended = self.inbox.lock().ended;
        let ask = |reply| Command::ReceiveStatistics(self.connection, self.id, reply);
        ended.or_else(|| self.running.answer(ask)).or_else(|| self.inbox.lock().ended)
    }

    /// Calls `hook` whenever there may be a unit, or the flow is over; on another thread, which it
    /// must not keep.
    pub fn on_change(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.inbox.set_hook(Arc::new(hook));
    }
}
