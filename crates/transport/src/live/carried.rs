//! The endpoint under the UDP driver, and what programs ask of it.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration as Wall;

use bytes::BytesMut;
use noq_proto::EcnCodepoint;
use ontempo_foundation::{Duration, Time};

use super::error::Error;
use super::mailbox::Mailbox;
use super::shared::{
    Begun, Command, Inbox, Incoming, MAX_READY, MAX_READY_BYTES, Opened, Outbox, Shared, Task, size,
};
use crate::{
    CloseReason, Closed, Connection, ConnectionId, Delivery, Endpoint, Event, FlowConfig, FlowId,
    Poll, SendError, Source, Token, Transmit, Trust,
};
use ontempo_udp::{
    Clock, CommandError, Datagram, Driver, DriverOptions, Ecn, Next, Protocol, Socket,
    Transmit as UdpTransmit,
};

/// How long the last words of connections are given when the thread is to end.
const ENDING: Duration = Duration::from_millis(500);

/// Numbers of dropped units that are kept for a program that does not ask.
const MAX_DROPPED: usize = 4096;

/// Room for datagrams that is asked for at once. What keeps a piece of one of them keeps all of
/// the room, which is short for that reason.
const ROOM: usize = 16 << 10;

type Tasks = Arc<Mutex<Vec<Task>>>;

/// A connection's shared parts.
struct Held {
    shared: Shared,
    outgoing: BTreeMap<FlowId, Arc<Mailbox<Outbox>>>,
    incoming: BTreeMap<FlowId, Arc<Mailbox<Inbox>>>,
}

/// The endpoint under the driver.
pub(super) struct Carried {
    endpoint: Endpoint,
    held: BTreeMap<ConnectionId, Held>,
    incoming: Option<Arc<Mailbox<Incoming>>>,
    wake: Time,
    /// When the thread ends, whatever is left.
    ends: Time,
    /// Where the next datagrams are put.
    room: BytesMut,
    tasks: Tasks,
    /// Tasks being done; here to be used again.
    doing: Vec<Task>,
}

impl Carried {
    pub(super) fn new(endpoint: Endpoint, incoming: Option<Arc<Mailbox<Incoming>>>) -> Self {
        Self {
            endpoint,
            held: BTreeMap::new(),
            incoming,
            wake: Time::NEVER,
            ends: Time::NEVER,
            room: BytesMut::new(),
            tasks: Tasks::default(),
            doing: Vec::new(),
        }
    }

    fn connection(&mut self, id: ConnectionId) -> Option<(&mut Connection, &mut Held)> {
        let held = self.held.get_mut(&id)?;
        Some((self.endpoint.connection(id)?, held))
    }

    fn tell(&mut self, now: Time) {
        while let Some(event) = self.endpoint.poll_event() {
            self.on_event(now, event);
        }
    }

    fn on_event(&mut self, now: Time, event: Event) {
        match event {
            Event::Connected { connection, accepted } => self.on_connected(connection, accepted),
            Event::FlowOpened { connection, flow, config } => {
                if let Some(held) = self.held.get_mut(&connection) {
                    let inbox = Arc::new(Mailbox::new(Inbox::default()));
                    held.incoming.insert(flow, Arc::clone(&inbox));
                    held.shared.change(|state| state.flows.push_back((flow, config, inbox)));
                }
            }
            Event::Readable { connection, flow } => self.fill(connection, flow),
            Event::Writable { connection, flow } => self.flush(now, connection, flow),
            Event::Dropped { connection, flow, units } => {
                if let Some(outbox) = self.held.get(&connection).and_then(|h| h.outgoing.get(&flow))
                {
                    outbox.change(|outbox| {
                        outbox.dropped.extend(units);
                        let excess = outbox.dropped.len().saturating_sub(MAX_DROPPED);
                        outbox.dropped.drain(..excess);
                    });
                }
            }
            Event::FlowEnded { connection, flow, statistics } => {
                let held = self.held.get_mut(&connection);
                if let Some(inbox) = held.and_then(|held| held.incoming.remove(&flow)) {
                    inbox.change(|inbox| inbox.ended = Some(statistics));
                }
            }
            Event::FlowSettled { connection, flow, statistics } => {
                let held = self.held.get_mut(&connection);
                if let Some(outbox) = held.and_then(|held| held.outgoing.remove(&flow)) {
                    outbox.change(|outbox| outbox.settled = Some(statistics));
                }
            }
            Event::Closed { connection, closed } => self.on_closed(connection, &closed),
        }
    }

    fn on_connected(&mut self, connection: ConnectionId, accepted: bool) {
        if !accepted {
            if let Some(held) = self.held.get(&connection) {
                held.shared.change(|state| state.is_open = true);
            }
            return;
        }
        let shared = Shared::default();
        shared.lock().is_open = true;
        let remote = self.endpoint.remote(connection);
        let begun = Begun { id: connection, remote, shared: Arc::clone(&shared) };
        let held = Held { shared, outgoing: BTreeMap::new(), incoming: BTreeMap::new() };
        self.held.insert(connection, held);
        if let Some(incoming) = &self.incoming {
            incoming.change(|incoming| incoming.push(begun));
        }
    }

    fn on_closed(&mut self, connection: ConnectionId, closed: &Closed) {
        if let Some(held) = self.held.remove(&connection) {
            end(&held, closed);
        } else if let Some(incoming) = &self.incoming {
            let remote = self.endpoint.remote(connection);
            incoming.change(|incoming| incoming.refuse(remote, closed.clone()));
        }
    }

    /// Moves what is ready to the program.
    fn fill(&mut self, connection: ConnectionId, flow: FlowId) {
        let Some((found, held)) = self.connection(connection) else { return };
        let Some(inbox) = held.incoming.get(&flow) else { return };
        let (waiting, mut bytes) = {
            let inbox = inbox.lock();
            (inbox.ready.len(), inbox.bytes)
        };
        let mut taken: VecDeque<Delivery> = VecDeque::new();
        let mut is_empty = false;
        while waiting + taken.len() < MAX_READY && bytes < MAX_READY_BYTES {
            let Some(delivery) = found.receive(flow) else {
                is_empty = true;
                break;
            };
            bytes += size(&delivery);
            taken.push_back(delivery);
        }
        inbox.change(|inbox| {
            inbox.bytes += taken.iter().map(size).sum::<usize>();
            inbox.ready.append(&mut taken);
            // Where the endpoint has more, the program asks for it.
            inbox.has_more = !is_empty;
        });
    }

    /// Hands the program's units to the endpoint, as many as it takes.
    fn flush(&mut self, now: Time, connection: ConnectionId, flow: FlowId) {
        let Some((found, held)) = self.connection(connection) else { return };
        let Some(outbox) = held.outgoing.get(&flow) else { return };
        outbox.change(|outbox| {
            outbox.flushing = false;
            while let Some(unit) = outbox.queue.pop_front() {
                // A unit is a reference to its data and a few numbers.
                match found.send(now, flow, unit.clone()) {
                    Ok(_) => outbox.bytes -= unit.data.len(),
                    Err(SendError::Full) => {
                        outbox.queue.push_front(unit);
                        // The endpoint tells when it has room.
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
            }
        });
    }

    fn connect(
        &mut self,
        now: Time,
        (remote, name): (SocketAddr, &str),
        (trust, token): (&Trust, Token),
        shared: Shared,
    ) -> Result<ConnectionId, Error> {
        let id = self.endpoint.connect(now, remote, name, trust, token).map_err(Error::Connect)?;
        let (outgoing, incoming) = (BTreeMap::new(), BTreeMap::new());
        self.held.insert(id, Held { shared, outgoing, incoming });
        Ok(id)
    }

    fn open_flow(&mut self, id: ConnectionId, config: FlowConfig) -> Result<Opened, Error> {
        let closed = || Error::Closed(Closed::by_this_side());
        let (found, held) = self.connection(id).ok_or_else(closed)?;
        let reliability = config.reliability;
        let flow = found.open_flow(config).map_err(Error::Flow)?;
        let longest = found.longest_unit();
        let outbox = Arc::new(Mailbox::new(Outbox::new(longest, reliability)));
        held.outgoing.insert(flow, Arc::clone(&outbox));
        Ok((flow, outbox))
    }

    fn work(&mut self, now: Time) {
        let mut doing = std::mem::take(&mut self.doing);
        std::mem::swap(&mut doing, &mut self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in doing.drain(..) {
            match task {
                Task::Flush(id, flow) => self.flush(now, id, flow),
                Task::Resume(id, flow) => self.fill(id, flow),
            }
        }
        self.doing = doing;
    }

    fn close(&mut self, now: Time, id: ConnectionId, (reason, sentence): (CloseReason, &str)) {
        if let Some(found) = self.endpoint.connection(id) {
            found.close_with(now, reason, sentence);
        }
        if let Some(held) = self.held.remove(&id) {
            end(&held, &Closed { reason, ..Closed::by_this_side() });
        }
    }
}

/// Tells all who wait for something of a connection that it is over.
fn end(held: &Held, closed: &Closed) {
    held.outgoing.values().for_each(|outbox| {
        outbox.change(|outbox| outbox.closed = Some(closed.clone()));
    });
    held.incoming.values().for_each(|inbox| {
        inbox.change(|inbox| inbox.closed = Some(closed.clone()));
    });
    held.shared.change(|state| state.closed = Some(closed.clone()));
}

impl Protocol for Carried {
    type Command = Command;

    fn handle(&mut self, now: Time, datagram: Datagram<'_>) {
        if self.room.capacity() < datagram.data.len() {
            self.room.reserve(ROOM.max(datagram.data.len()));
        }
        self.room.extend_from_slice(datagram.data);
        self.endpoint.handle(now, Source::from(&datagram), self.room.split());
        self.tell(now);
    }

    fn handle_command(&mut self, now: Time, command: Command) {
        match command {
            Command::Connect { remote, name, trust, token, shared, reply } => {
                let begun = self.connect(now, (remote, &name), (&trust, token), shared);
                // Who asked may no longer wait for any of these answers.
                let _ = reply.send(begun);
            }
            Command::OpenFlow(id, config, reply) => {
                let _ = reply.send(self.open_flow(id, config));
            }
            Command::Work => self.work(now),
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
            Command::End => {
                let ids: Vec<ConnectionId> = self.held.keys().copied().collect();
                let said = (CloseReason::Done, "the program ended");
                ids.into_iter().for_each(|id| self.close(now, id, said));
                self.ends = now + ENDING;
            }
        }
        self.tell(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.wake = Time::NEVER;
        self.endpoint.handle_timeout(now);
        self.tell(now);
        if now >= self.ends {
            self.ends = Time::ZERO;
        }
    }

    fn next_timeout(&self) -> Time {
        self.wake.min(self.ends)
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next {
        let poll = self.endpoint.poll_transmit(now, buffer);
        self.tell(now);
        self.wake = Time::NEVER;
        match poll {
            Poll::Transmit(transmit) => {
                buffer.truncate(transmit.size);
                Next::Transmit(UdpTransmit::from(&transmit))
            }
            Poll::WaitUntil(until) => {
                self.wake = until;
                Next::WaitUntil(until)
            }
            Poll::Idle => Next::Idle,
        }
    }

    fn is_finished(&self) -> bool {
        self.ends == Time::ZERO || (self.ends < Time::NEVER && self.endpoint.connections() == 0)
    }
}

impl From<&Datagram<'_>> for Source {
    fn from(datagram: &Datagram<'_>) -> Self {
        let ecn = match datagram.ecn {
            Ecn::NotCapable => None,
            Ecn::Capable0 => Some(EcnCodepoint::Ect0),
            Ecn::Capable1 => Some(EcnCodepoint::Ect1),
            Ecn::Congestion => Some(EcnCodepoint::Ce),
        };
        Self { remote: datagram.source, local: datagram.local, ecn }
    }
}

impl From<&Transmit> for UdpTransmit {
    fn from(transmit: &Transmit) -> Self {
        Self {
            destination: transmit.destination,
            source: transmit.local,
            ecn: match transmit.ecn {
                None => Ecn::NotCapable,
                Some(EcnCodepoint::Ect0) => Ecn::Capable0,
                Some(EcnCodepoint::Ect1) => Ecn::Capable1,
                Some(EcnCodepoint::Ce) => Ecn::Congestion,
            },
            dscp: transmit.dscp,
            segment: transmit.segment.and_then(|size| u16::try_from(size).ok()),
        }
    }
}

/// The thread. When nobody has it any more, connections are told that they are over, and it ends.
pub(super) struct Running {
    driver: Option<Driver<Carried>>,
    tasks: Tasks,
    pub(super) local: SocketAddr,
    pub(super) clock: Clock,
}

/// How long a command that finds the queue full waits before it is tried again.
const RETRY: Wall = Wall::from_micros(100);

impl Running {
    pub(super) fn start(
        socket: Socket,
        carried: Carried,
        options: DriverOptions,
    ) -> Result<Arc<Self>, Error> {
        let clock = Clock::new();
        let local = socket.local_address()?;
        let tasks = Arc::clone(&carried.tasks);
        let driver = Driver::spawn(socket, carried, clock, options)?;
        Ok(Arc::new(Self { driver: Some(driver), tasks, local, clock }))
    }

    /// Leaves the thread something to do.
    pub(super) fn leave(&self, task: Task) {
        let first = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.push(task);
            tasks.len() == 1
        };
        // Where others wait, it has been asked and not come to them yet.
        if first {
            self.ask(Command::Work);
        }
    }

    /// Asks the thread for something; false where it has ended.
    pub(super) fn ask(&self, mut command: Command) -> bool {
        let Some(driver) = &self.driver else { return false };
        loop {
            match driver.command(command) {
                Ok(()) => return true,
                Err(CommandError::Ended(_)) => return false,
                Err(CommandError::Full(again)) => {
                    command = again;
                    std::thread::sleep(RETRY);
                }
            }
        }
    }

    /// Asks for something that is answered; `None` where the thread or the connection has ended.
    pub(super) fn answer<R>(&self, ask: impl FnOnce(SyncSender<R>) -> Command) -> Option<R> {
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        if !self.ask(ask(reply)) {
            return None;
        }
        answer.recv().ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ask(Command::End)
            && let Some(driver) = self.driver.take()
        {
            // That the socket broke has been seen by all who used it.
            let _ = driver.wait();
        }
    }
}
