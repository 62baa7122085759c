//! Flows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as Wall;

use bytes::Bytes;
use ontempo_foundation::Duration;
use ontempo_udp::Takes;

use super::error::Error;
use super::mailbox::Mailbox;
use super::shared::{Command, Inbox, MAX_READY, Outbox, Task};
use super::thread::EndpointThread;
use crate::{
    ConnectionId, Delivery, FlowConfig, FlowId, Outgoing, ReceiveStatistics, SendError,
    SendStatistics,
};

/// When no more than this many bytes are ready, the endpoint is asked for more.
const LOW_BYTES: usize = 128 << 10;

/// A unit to be sent.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// The data.
    pub data: Bytes,
    /// Time from now to the deadline, at which it is dropped if it has not arrived. Only for flows
    /// whose reliability [allows deadlines](crate::Reliability::allows_deadlines).
    pub lifetime: Option<Duration>,
    /// Larger is more important; see [`Outgoing::priority`](crate::Outgoing::priority).
    pub priority: u8,
    /// Numbers, as returned by [`SendFlow::send`], of the units of the same flow without which this
    /// one is of no use; at most 32.
    pub depends_on: Vec<u64>,
    /// The unit of the same flow that it continues: both are parts of one frame, which is kept or
    /// dropped whole.
    pub continues: Option<u64>,
}

impl From<Bytes> for Message {
    fn from(data: Bytes) -> Self {
        Self { data, ..Self::default() }
    }
}

/// Why a unit was not queued.
#[derive(Debug)]
pub enum NotTaken {
    /// The send queue is full.
    Full,
    /// The flow or the unit failed; trying again is of no use.
    Failed(Error),
}

/// A flow that this side sends. Dropping it finishes it.
pub struct SendFlow {
    thread: Arc<EndpointThread>,
    connection: ConnectionId,
    id: FlowId,
    outbox: Arc<Mailbox<Outbox>>,
}

impl SendFlow {
    pub(super) fn new(
        thread: Arc<EndpointThread>,
        connection: ConnectionId,
        (id, outbox): (FlowId, Arc<Mailbox<Outbox>>),
    ) -> Self {
        Self { thread, connection, id, outbox }
    }

    fn outgoing(&self, message: Message) -> Outgoing {
        let Message { data, lifetime, priority, depends_on, continues } = message;
        let deadline = lifetime.map(|lifetime| self.thread.clock.now() + lifetime);
        Outgoing { data, deadline, priority, depends_on, continues }
    }

    /// Wakes the thread if needed; returns the unit's number.
    fn queued(&self, (number, wake): (u64, bool)) -> u64 {
        if wake {
            self.thread.submit(Task::Flush(self.connection, self.id));
        }
        number
    }

    /// Queues a unit and returns its number, counted from 0; waits while the send queue is full.
    ///
    /// # Errors
    /// The connection is closed, the flow finished, or the unit invalid.
    pub fn send(&self, message: impl Into<Message>) -> Result<u64, Error> {
        let unit = self.outgoing(message.into());
        // A wait without a limit always returns `Some`.
        let over = || Err(Error::Unit(SendError::NoFlow));
        let queued = self.outbox.wait(None, |outbox| outbox.push(&unit)).unwrap_or_else(over)?;
        Ok(self.queued(queued))
    }

    /// As [`send`](Self::send), but waits no longer than `limit`.
    ///
    /// # Errors
    /// The send queue is full, or those of [`send`](Self::send).
    pub fn send_within(&self, message: impl Into<Message>, limit: Wall) -> Result<u64, NotTaken> {
        let unit = self.outgoing(message.into());
        match self.outbox.wait(Some(limit), |outbox| outbox.push(&unit)) {
            Some(queued) => Ok(self.queued(queued.map_err(NotTaken::Failed)?)),
            None => Err(NotTaken::Full),
        }
    }

    /// Queues a unit as [`send_within`](Self::send_within) does without waiting, and returns its number; it leaves with
    /// [`run_here`](Self::run_here), which is to be called at once after the last of several.
    ///
    /// # Errors
    /// As [`send_within`](Self::send_within).
    pub fn queue(&self, message: impl Into<Message>) -> Result<u64, NotTaken> {
        let unit = self.outgoing(message.into());
        let Some(queued) = self.outbox.lock().push(&unit) else { return Err(NotTaken::Full) };
        let (number, is_first) = queued.map_err(NotTaken::Failed)?;
        if is_first {
            self.thread.submit_to_run(Task::Flush(self.connection, self.id));
        }
        Ok(number)
    }

    /// Sends what can be sent of all that was queued at the endpoint, on the calling thread if that of the endpoint sleeps, which
    /// saves a change of threads. Hooks ([`on_change`](Self::on_change)) of all connections of the endpoint may be
    /// called, on this thread: hold nothing that one of them waits for.
    pub fn run_here(&self) {
        self.thread.run_here();
    }

    /// As [`run_here`](Self::run_here), by a thread that does so again and again: if it does at least each `patience`, it also
    /// reads what has arrived, for which the thread of the endpoint is not woken then. What arrives after the last visit may be
    /// read twice `patience` later.
    pub fn visit(&self, patience: Duration) {
        self.thread.visit(patience, Takes::Datagrams);
    }

    /// Numbers of the units dropped at their deadline since the last call: the peer's program does
    /// not receive them. At most 4,096; the oldest beyond are discarded.
    pub fn dropped(&self) -> Vec<u64> {
        self.outbox.lock().dropped.drain(..).collect()
    }

    /// Ends the flow: nothing more can be sent, and the peer's program sees its end.
    pub fn finish(&self) {
        let wake = self.outbox.change(|outbox| {
            let is_first = !std::mem::replace(&mut outbox.is_finished, true);
            is_first && !std::mem::replace(&mut outbox.flushing, true)
        });
        if wake {
            self.thread.submit(Task::Flush(self.connection, self.id));
        }
    }

    /// Waits until every unit of a finished flow has arrived at the peer's transport or been
    /// dropped; `None` after `limit`.
    ///
    /// # Errors
    /// The connection closed before, or the flow failed.
    pub fn settled(&self, limit: Wall) -> Option<Result<SendStatistics, Error>> {
        self.outbox.wait(Some(limit), |outbox| match outbox.settled {
            Some(statistics) => Some(Ok(statistics)),
            None => outbox.check().err().map(Err),
        })
    }

    /// The current statistics, the last ones if the connection has closed; `None` if the endpoint ended
    /// before the flow.
    pub fn statistics(&self) -> Option<SendStatistics> {
        let final_ones = || {
            let outbox = self.outbox.lock();
            outbox.settled.or(outbox.last)
        };
        let command = |reply| Command::SendStatistics(self.connection, self.id, reply);
        final_ones().or_else(|| self.thread.request(command)).or_else(final_ones)
    }

    /// Calls `hook` whenever the send queue may have space or the flow may have ended. It runs on
    /// the endpoint's thread and must not block.
    pub fn on_change(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.outbox.set_hook(Arc::new(hook));
    }
}

impl Drop for SendFlow {
    fn drop(&mut self) {
        self.finish();
    }
}

/// A flow that the peer sends. Dropping it discards what is left of it.
///
/// It is one of the flows that the peer may have at a time until its end is received or it is
/// dropped.
pub struct ReceiveFlow {
    thread: Arc<EndpointThread>,
    connection: ConnectionId,
    id: FlowId,
    config: FlowConfig,
    inbox: Arc<Mailbox<Inbox>>,
    is_released: AtomicBool,
}

impl ReceiveFlow {
    pub(super) fn new(
        thread: Arc<EndpointThread>,
        connection: ConnectionId,
        (id, config, inbox): (FlowId, FlowConfig, Arc<Mailbox<Inbox>>),
    ) -> Self {
        Self { thread, connection, id, config, inbox, is_released: AtomicBool::new(false) }
    }

    /// Its delivery order, its reliability, and the peer's label.
    pub fn config(&self) -> &FlowConfig {
        &self.config
    }

    /// Waits for the next unit, or the number of a dropped one; `None` at the end of the flow.
    ///
    /// # Errors
    /// The connection closed before the flow ended.
    pub fn receive(&self) -> Result<Option<Delivery>, Error> {
        self.next(None).unwrap_or(Ok(None))
    }

    /// As [`receive`](Self::receive); `None` after `limit`.
    pub fn receive_within(&self, limit: Wall) -> Option<Result<Option<Delivery>, Error>> {
        self.next(Some(limit))
    }

    fn next(&self, limit: Option<Wall>) -> Option<Result<Option<Delivery>, Error>> {
        let (mut resume, mut has_ended) = (false, false);
        let next = self.inbox.wait(limit, |inbox| {
            if let Some(delivery) = inbox.pop() {
                let (units, bytes) = inbox.size();
                if inbox.has_more && units <= MAX_READY / 2 && bytes <= LOW_BYTES {
                    inbox.has_more = false;
                    resume = true;
                }
                return Some(Ok(Some(delivery)));
            }
            if inbox.ended.is_some() {
                has_ended = true;
                return Some(Ok(None));
            }
            let closed = inbox.closed.clone()?;
            Some(Err(Error::Closed(closed)))
        });
        if resume {
            self.thread.submit(Task::Resume(self.connection, self.id));
        }
        if has_ended {
            self.release();
        }
        next
    }

    /// Has the endpoint read what has arrived on the calling thread: as [`SendFlow::visit`].
    pub fn visit(&self, patience: Duration) {
        self.thread.visit(patience, Takes::All);
    }

    /// The program is done with the flow: the peer may open another.
    fn release(&self) {
        if !self.is_released.swap(true, Ordering::Relaxed) {
            self.thread.submit(Task::Release(self.connection, self.id));
        }
    }

    /// What has arrived is left for [`receive_within`](Self::receive_within) without a limit: no thread that waits is woken
    /// for it, only the [hook](Self::on_change) is called, and [`over`](Self::over) reports the end.
    pub fn wake_no_reader(&self, is_so: bool) {
        self.inbox.change(|inbox| inbox.wakes_nobody = is_so);
    }

    /// Waits until all of the flow has been received, or the connection is closed and what it left has been received;
    /// false after `limit`.
    pub fn over(&self, limit: Wall) -> bool {
        let is_over = |inbox: &mut Inbox| {
            let is_last = inbox.ended.is_some() || inbox.closed.is_some();
            (is_last && inbox.size().0 == 0).then_some(())
        };
        self.inbox.wait(Some(limit), is_over).is_some()
    }

    /// The current statistics; `None` if the connection closed before the flow ended.
    pub fn statistics(&self) -> Option<ReceiveStatistics> {
        let ended = self.inbox.lock().ended;
        let command = |reply| Command::ReceiveStatistics(self.connection, self.id, reply);
        ended.or_else(|| self.thread.request(command)).or_else(|| self.inbox.lock().ended)
    }

    /// Calls `hook` whenever there may be a unit or the flow may have ended. It runs on
    /// the endpoint's thread and must not block.
    pub fn on_change(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.inbox.set_hook(Arc::new(hook));
    }
}

impl Drop for ReceiveFlow {
    fn drop(&mut self) {
        self.release();
    }
}
