//! Runs an endpoint on the thread of a UDP driver and executes the commands of programs.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::BytesMut;
use ontempo_foundation::{Duration, Time};

use super::error::Error;
use super::mailbox::Mailbox;
use super::shared::{
    Command, Inbox, Incoming, IncomingConnection, MAX_BYTES, MAX_READY, MAX_READY_BYTES,
    OpenedFlow, Outbox, Shared, Task, size,
};
use crate::close::NOT_LISTENING;
use crate::{
    CloseReason, Closed, Connection, ConnectionId, Delivery, Endpoint, Event, FlowConfig,
    FlowError, FlowId, Poll, SendError, Source, Token, Trust,
};
use ontempo_udp::{Datagram, Next, Protocol, Transmit as UdpTransmit};

/// Time limit for the CONNECTION_CLOSE of all connections when the thread ends.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum numbers of dropped units stored for a program that does not read them.
const MAX_DROPPED: usize = 4096;

/// Bytes of a receive buffer, which several datagrams share. Small, because a reference to one
/// datagram keeps the whole buffer allocated.
const RECEIVE_BUFFER: usize = 16 << 10;

/// Datagrams that arrive within this time are processed together, as if they had arrived when they are read. A batch of
/// one call arrives at once, and a wake-up takes as long.
const TOGETHER: Duration = Duration::from_micros(100);

/// A datagram that seems to have lain unread for longer is taken to have arrived when it is read, as all on systems that do
/// not note arrivals: the wall clock, by which Linux does, may have been set. On purpose none lies for so long.
const MAX_UNREAD: Duration = Duration::from_millis(100);

/// Polls in a row at whose events programs' queues were filled or emptied. Mostly there are two; programs
/// as fast as this thread must not keep it from what it receives.
const MAX_ROUNDS: usize = 64;

/// As the size of something in memory.
fn bound(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

pub(super) type Tasks = Arc<Mutex<Vec<Task>>>;

/// A connection's state and queues that a program shares.
struct ConnectionQueues {
    shared: Shared,
    outgoing: BTreeMap<FlowId, Arc<Mailbox<Outbox>>>,
    incoming: BTreeMap<FlowId, Arc<Mailbox<Inbox>>>,
    /// Those of flows that have ended, as long as programs have them.
    ended: Vec<Weak<Mailbox<Inbox>>>,
    /// Memory of the inboxes, in bytes.
    unprocessed: Arc<AtomicU64>,
    /// Flows that the peer does not allow yet, and who waits for them.
    openings: VecDeque<(FlowConfig, OpenReply)>,
}

impl ConnectionQueues {
    fn new(shared: Shared, unprocessed: Arc<AtomicU64>) -> Self {
        let (outgoing, incoming) = (BTreeMap::new(), BTreeMap::new());
        let (ended, openings) = (Vec::new(), VecDeque::new());
        Self { shared, outgoing, incoming, ended, unprocessed, openings }
    }

    /// Gives the program what a flow of a closed connection has left.
    fn hand_over(&self, flow: FlowId, mut left: VecDeque<Delivery>) {
        if let Some(inbox) = self.incoming.get(&flow) {
            inbox.change(|inbox| inbox.append(&mut left));
        }
    }
}

type OpenReply = SyncSender<Result<OpenedFlow, Error>>;

/// Of the memory for what is received, the part for what closed connections had received and
/// programs have not taken: a quarter more.
const CLOSED_SHARE: u64 = 4;

/// An endpoint as the [`Protocol`] of a UDP driver.
pub(super) struct EndpointDriver {
    endpoint: Endpoint,
    connections: BTreeMap<ConnectionId, ConnectionQueues>,
    /// Memory of closed connections' inboxes, in bytes, and its limit.
    closed: Vec<Arc<AtomicU64>>,
    max_closed: u64,
    incoming: Option<Arc<Mailbox<Incoming>>>,
    wake: Time,
    /// The latest time that the endpoint was given.
    latest: Time,
    /// When the first datagram arrived that the endpoint has been given and has not processed.
    unprocessed: Option<Time>,
    /// When the thread ends even if connections are left.
    ends_at: Time,
    /// Receives the next datagrams.
    receive_buffer: BytesMut,
    pub(super) tasks: Tasks,
    /// Tasks being executed; a field so that its memory is reused.
    current_tasks: Vec<Task>,
}

impl EndpointDriver {
    pub(super) fn new(endpoint: Endpoint, incoming: Option<Arc<Mailbox<Incoming>>>) -> Self {
        let max_closed = endpoint.configuration().receive_memory.get() / CLOSED_SHARE;
        Self {
            endpoint,
            connections: BTreeMap::new(),
            closed: Vec::new(),
            max_closed,
            incoming,
            wake: Time::NEVER,
            latest: Time::ZERO,
            unprocessed: None,
            ends_at: Time::NEVER,
            receive_buffer: BytesMut::new(),
            tasks: Tasks::default(),
            current_tasks: Vec::new(),
        }
    }

    fn connection(&mut self, id: ConnectionId) -> Option<(&mut Connection, &mut ConnectionQueues)> {
        let queues = self.connections.get_mut(&id)?;
        Some((self.endpoint.connection(id)?, queues))
    }

    /// The endpoint goes on at `time`, which is not after `now`. What it was given long before has arrived then.
    fn reach(&mut self, time: Time, now: Time) {
        if let Some(first) = self.unprocessed
            && time.since(first) > TOGETHER
        {
            self.endpoint.process(self.latest, now);
            self.handle_events(self.latest);
            self.unprocessed = None;
        }
        self.latest = time;
    }

    /// True if there was one.
    fn handle_events(&mut self, now: Time) -> bool {
        let mut has_any = false;
        while let Some(event) = self.endpoint.poll_event() {
            self.on_event(now, event);
            has_any = true;
        }
        has_any
    }

    fn on_event(&mut self, now: Time, event: Event) {
        match event {
            Event::Early { connection } => {
                if let Some(queues) = self.connections.get(&connection) {
                    queues.shared.change(|state| state.is_early = true);
                }
            }
            Event::Connected { connection, accepted } => self.on_connected(connection, accepted),
            Event::FlowOpened { connection, flow, config } => {
                if let Some(queues) = self.connections.get_mut(&connection) {
                    let inbox = Inbox::new(Arc::clone(&queues.unprocessed));
                    let inbox = Arc::new(Mailbox::new(inbox));
                    queues.incoming.insert(flow, Arc::clone(&inbox));
                    queues.shared.change(|state| state.flows.push_back((flow, config, inbox)));
                }
            }
            Event::Readable { connection, flow } => self.fill(connection, flow),
            Event::Writable { connection, flow } => self.flush(now, connection, flow),
            Event::Dropped { connection, flow, units } => {
                if let Some(outbox) =
                    self.connections.get(&connection).and_then(|h| h.outgoing.get(&flow))
                {
                    outbox.change(|outbox| {
                        outbox.dropped.extend(units);
                        let excess = outbox.dropped.len().saturating_sub(MAX_DROPPED);
                        outbox.dropped.drain(..excess);
                    });
                }
            }
            Event::Left { connection, flow, deliveries } => {
                if let Some(queues) = self.connections.get(&connection) {
                    queues.hand_over(flow, deliveries);
                }
            }
            Event::FlowEnded { connection, flow, statistics } => {
                if let Some(queues) = self.connections.get_mut(&connection)
                    && let Some(inbox) = queues.incoming.remove(&flow)
                {
                    queues.ended.retain(|inbox| inbox.strong_count() > 0);
                    queues.ended.push(Arc::downgrade(&inbox));
                    inbox.change(|inbox| inbox.ended = Some(statistics));
                }
            }
            Event::FlowSettled { connection, flow, statistics } => {
                let queues = self.connections.get_mut(&connection);
                if let Some(outbox) = queues.and_then(|queues| queues.outgoing.remove(&flow)) {
                    outbox.change(|outbox| outbox.settled = Some(statistics));
                }
            }
            Event::FlowAllowed { connection } => self.open_waiting(connection),
            Event::Closed { connection, closed } => self.on_closed(now, connection, &closed),
        }
    }

    fn on_connected(&mut self, connection: ConnectionId, accepted: bool) {
        if !accepted {
            if let Some(queues) = self.connections.get(&connection) {
                queues.shared.change(|state| state.is_open = true);
            }
            return;
        }
        let shared = Shared::default();
        shared.lock().is_open = true;
        let remote = self.endpoint.remote(connection);
        let incoming_connection =
            IncomingConnection { id: connection, remote, shared: Arc::clone(&shared) };
        self.keep(connection, shared);
        if let Some(incoming) = &self.incoming {
            incoming.change(|incoming| incoming.push(incoming_connection));
        }
    }

    fn on_closed(&mut self, now: Time, connection: ConnectionId, closed: &Closed) {
        // The peer knows that it arrived, and nothing else fills the inboxes from now on.
        if let Some((found, queues)) = self.connection(connection) {
            for (flow, left) in found.take_rest() {
                queues.hand_over(flow, left);
            }
            for (flow, outbox) in &queues.outgoing {
                let last = found.send_statistics(now, *flow);
                outbox.change(|outbox| outbox.last = last);
            }
        }
        if let Some(queues) = self.connections.remove(&connection) {
            self.closed.retain(|memory| memory.load(Ordering::Relaxed) > 0);
            self.closed.push(Arc::clone(&queues.unprocessed));
            let left: u64 = self.closed.iter().map(|memory| memory.load(Ordering::Relaxed)).sum();
            let is_too_much = left > self.max_closed || closed.reason == CloseReason::Overloaded;
            close_queues(queues, closed, is_too_much);
            if let Some(incoming) = &self.incoming {
                incoming.change(Incoming::forget_closed);
            }
        } else if let Some(incoming) = &self.incoming {
            let remote = self.endpoint.remote(connection);
            incoming.change(|incoming| incoming.refuse(remote, closed.clone()));
        }
    }

    /// Moves deliveries to the program's inbox until it is full.
    fn fill(&mut self, connection: ConnectionId, flow: FlowId) {
        let Some((found, queues)) = self.connection(connection) else { return };
        let Some(inbox) = queues.incoming.get(&flow) else { return };
        let (waiting, mut bytes) = inbox.lock().size();
        let mut received: VecDeque<Delivery> = VecDeque::new();
        let mut is_empty = false;
        let most = MAX_READY_BYTES.min(bound(found.configuration().limits.bytes));
        while waiting + received.len() < MAX_READY && bytes < most {
            let Some(delivery) = found.receive(flow) else {
                is_empty = true;
                break;
            };
            bytes += size(&delivery);
            received.push_back(delivery);
        }
        let wakes = |inbox: &Inbox| !inbox.wakes_nobody;
        inbox.change_for(wakes, |inbox| {
            inbox.append(&mut received);
            // If the endpoint has more, the program sends `Task::Resume` when its inbox is low.
            inbox.has_more = !is_empty;
        });
    }

    /// Moves the program's units to the endpoint until its send queue is full.
    fn flush(&mut self, now: Time, connection: ConnectionId, flow: FlowId) {
        let Some((found, queues)) = self.connection(connection) else { return };
        let Some(outbox) = queues.outgoing.get(&flow) else { return };
        outbox.change(|outbox| {
            outbox.flushing = false;
            while let Some(unit) = outbox.queue.pop_front() {
                // A unit is a reference to its data and a few numbers.
                match found.send(now, flow, unit.clone()) {
                    Ok(_) => outbox.bytes -= unit.data.len(),
                    Err(SendError::Full) => {
                        outbox.queue.push_front(unit);
                        // `Event::Writable` follows when the endpoint has buffer space.
                        outbox.flushing = true;
                        return;
                    }
                    Err(error) => {
                        outbox.bytes -= unit.data.len();
                        outbox.failed = Some(error);
                    }
                }
            }
            if outbox.is_finished {
                found.finish_flow(flow);
                outbox.is_finish_passed = true;
            }
        });
        if !queues.openings.is_empty() {
            self.open_waiting(connection);
        }
    }

    fn connect(
        &mut self,
        now: Time,
        (remote, name): (SocketAddr, &str),
        (trust, token): (&Trust, Token),
        shared: Shared,
    ) -> Result<ConnectionId, Error> {
        let id = self.endpoint.connect(now, remote, name, trust, token).map_err(Error::Connect)?;
        self.keep(id, shared);
        Ok(id)
    }

    fn keep(&mut self, id: ConnectionId, shared: Shared) {
        let unprocessed = self.endpoint.connection(id).map(|found| found.unprocessed());
        let queues = ConnectionQueues::new(shared, unprocessed.unwrap_or_default());
        self.connections.insert(id, queues);
    }

    /// True if a flow that could not be opened will be: the peer's program has to take flows that
    /// this side has finished, or units of such flows are still queued.
    fn will_open(&self, id: ConnectionId, result: &Result<OpenedFlow, Error>) -> bool {
        match result {
            Err(Error::Flow(FlowError::NotTaken { .. })) => true,
            Err(Error::Flow(FlowError::TooMany { .. })) => {
                let queues = self.connections.get(&id);
                let finished = |outbox: &Arc<Mailbox<Outbox>>| outbox.lock().finishes();
                queues.is_some_and(|queues| queues.outgoing.values().any(finished))
            }
            _ => false,
        }
    }

    /// Opens a flow, now or when the peer allows it.
    fn open_or_wait(&mut self, id: ConnectionId, config: FlowConfig, reply: OpenReply) {
        let must_wait = self.connections.get(&id).is_some_and(|queues| !queues.openings.is_empty());
        if !must_wait {
            let result = self.open_flow(id, config.clone());
            if !self.will_open(id, &result) {
                let _ = reply.send(result);
                return;
            }
        }
        if let Some(queues) = self.connections.get_mut(&id) {
            queues.openings.push_back((config, reply));
        }
    }

    /// Opens the flows that wait, as many as the peer allows.
    fn open_waiting(&mut self, id: ConnectionId) {
        let next = |all: &mut Self| all.connections.get_mut(&id)?.openings.pop_front();
        while let Some((config, reply)) = next(self) {
            let result = self.open_flow(id, config.clone());
            if self.will_open(id, &result) {
                if let Some(queues) = self.connections.get_mut(&id) {
                    queues.openings.push_front((config, reply));
                }
                return;
            }
            let _ = reply.send(result);
        }
    }

    fn open_flow(&mut self, id: ConnectionId, config: FlowConfig) -> Result<OpenedFlow, Error> {
        let closed = || Error::Closed(Closed::by_this_side());
        let (found, queues) = self.connection(id).ok_or_else(closed)?;
        let reliability = config.reliability;
        let flow = found.open_flow(config).map_err(Error::Flow)?;
        let max_unit_bytes = found.longest_unit();
        let most = MAX_BYTES.min(bound(found.configuration().send_bytes.get()));
        let outbox = Arc::new(Mailbox::new(Outbox::new(max_unit_bytes, most, reliability)));
        queues.outgoing.insert(flow, Arc::clone(&outbox));
        Ok((flow, outbox))
    }

    fn run_tasks(&mut self, now: Time) {
        let mut tasks = std::mem::take(&mut self.current_tasks);
        std::mem::swap(&mut tasks, &mut self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks.drain(..) {
            match task {
                Task::Flush(id, flow) => self.flush(now, id, flow),
                Task::Resume(id, flow) => self.fill(id, flow),
                Task::Release(id, flow) => {
                    if let Some((found, queues)) = self.connection(id) {
                        found.release_flow(flow);
                        queues.incoming.remove(&flow);
                    }
                }
            }
        }
        self.current_tasks = tasks;
    }

    fn close(&mut self, now: Time, id: ConnectionId, (reason, sentence): (CloseReason, &str)) {
        if let Some(found) = self.endpoint.connection(id) {
            found.close_with(now, reason, sentence);
        }
        if let Some(queues) = self.connections.remove(&id) {
            close_queues(queues, &Closed { reason, ..Closed::by_this_side() }, false);
        }
    }

    /// Nobody will accept the connections that wait, nor any later one.
    fn stop_listening(&mut self, now: Time) {
        self.endpoint.stop_listening();
        let Some(incoming) = self.incoming.take() else { return };
        let waiting = std::mem::take(&mut incoming.lock().connections);
        for connection in waiting {
            self.close(now, connection.id, (CloseReason::Refused, NOT_LISTENING));
        }
    }
}

/// Sets the close reason in all queues of a connection, which wakes the threads that wait for it.
/// If `discards`, what they hold is lost.
fn close_queues(queues: ConnectionQueues, closed: &Closed, discards: bool) {
    queues.outgoing.values().for_each(|outbox| {
        outbox.change(|outbox| outbox.closed = Some(closed.clone()));
    });
    let close = |inbox: &mut Inbox| {
        inbox.closed = Some(closed.clone());
        if discards && inbox.size().0 > 0 {
            inbox.clear();
            // It did not arrive whole.
            inbox.ended = None;
        }
    };
    let ended: Vec<_> = queues.ended.iter().filter_map(Weak::upgrade).collect();
    queues.incoming.values().chain(&ended).for_each(|inbox| inbox.change(close));
    queues.shared.change(|state| state.closed = Some(closed.clone()));
    for (_, reply) in queues.openings {
        let _ = reply.send(Err(Error::Closed(closed.clone())));
    }
}

impl Protocol for EndpointDriver {
    type Command = Command;

    fn handle(&mut self, now: Time, datagram: Datagram<'_>) {
        if self.receive_buffer.capacity() < datagram.data.len() {
            self.receive_buffer.reserve(RECEIVE_BUFFER.max(datagram.data.len()));
        }
        self.receive_buffer.extend_from_slice(datagram.data);
        let data = self.receive_buffer.split();
        let is_known = now.since(datagram.received) <= MAX_UNREAD;
        let came = if is_known { datagram.received.max(self.latest).min(now) } else { now };
        self.reach(came, now);
        self.endpoint.handle(came, Source::from(&datagram), data);
        self.unprocessed.get_or_insert(came);
        self.handle_events(came);
    }

    fn handle_command(&mut self, now: Time, command: Command) {
        self.reach(now, now);
        match command {
            Command::Connect { remote, name, trust, token, shared, reply } => {
                let result = self.connect(now, (remote, &name), (&trust, token), shared);
                // Sending a reply fails if the caller no longer waits for it.
                let _ = reply.send(result);
            }
            Command::OpenFlow(id, config, reply) => {
                self.open_or_wait(id, config, reply);
            }
            Command::RunTasks => self.run_tasks(now),
            Command::Remote(id, reply) => {
                if let Some(remote) = self.endpoint.remote(id) {
                    let _ = reply.send(remote);
                }
            }
            Command::Statistics(id, reply) => {
                if let Some((found, _)) = self.connection(id) {
                    let _ = reply.send(found.statistics());
                }
            }
            Command::SendStatistics(id, flow, reply) => {
                let found = self.connection(id);
                if let Some(all) = found.and_then(|(found, _)| found.send_statistics(now, flow)) {
                    let _ = reply.send(all);
                }
            }
            Command::ReceiveStatistics(id, flow, reply) => {
                let found = self.connection(id);
                if let Some(all) = found.and_then(|(found, _)| found.receive_statistics(now, flow))
                {
                    let _ = reply.send(all);
                }
            }
            Command::Mark(id, dscp) => {
                if let Some(found) = self.endpoint.connection(id) {
                    found.mark(dscp);
                }
            }
            Command::Close(id, reason, sentence) => self.close(now, id, (reason, &sentence)),
            Command::StopListening => self.stop_listening(now),
            Command::End => {
                let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
                let close = (CloseReason::Done, "the program ended");
                ids.into_iter().for_each(|id| self.close(now, id, close));
                self.ends_at = now + CLOSE_TIMEOUT;
            }
        }
        self.handle_events(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.reach(now, now);
        self.wake = Time::NEVER;
        self.endpoint.handle_timeout(now);
        self.handle_events(now);
        if now >= self.ends_at {
            self.ends_at = Time::ZERO;
        }
    }

    fn next_timeout(&self) -> Time {
        self.wake.min(self.ends_at)
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next {
        self.reach(now, now);
        self.unprocessed = None;
        let mut rounds = 0;
        let poll = loop {
            let poll = self.endpoint.poll_transmit(now, buffer);
            // What was done at an event may be to send, too, or wait for another time.
            if !self.handle_events(now) || matches!(poll, Poll::Transmit(_)) {
                break poll;
            }
            rounds += 1;
            if rounds == MAX_ROUNDS {
                break Poll::WaitUntil(now);
            }
        };
        self.wake = Time::NEVER;
        let next = match poll {
            Poll::Transmit(transmit) => {
                buffer.truncate(transmit.size);
                return Next::Transmit(UdpTransmit::from(&transmit));
            }
            Poll::WaitUntil(until) => {
                self.wake = until;
                Next::WaitUntil(until)
            }
            Poll::Idle => Next::Idle,
        };
        if self.ends_at < Time::NEVER && self.endpoint.is_closed_by_both() {
            self.ends_at = Time::ZERO;
        }
        next
    }

    fn hurries_until(&self) -> Time {
        if self.ends_at < Time::NEVER { Time::NEVER } else { self.endpoint.hurries_until() }
    }

    fn is_finished(&self) -> bool {
        self.ends_at == Time::ZERO
    }
}
