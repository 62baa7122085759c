//! A sender's connection: its flow, the units not yet acknowledged, and the receiver's reports.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration as Wall, Instant};

use bytes::Bytes;
use ontempo_foundation::Duration;
use ontempo_transport::live::{Connection, Error, Message, NotTaken, SendFlow};
use ontempo_transport::{Delivery, FlowConfig, Reliability, SendStatistics};

use crate::backlog::{QueuedUnit, Taker};
use crate::file::Reply;
use crate::message::{self, REPORTS, Report};
use crate::paths::numbered;
use crate::viewers::{self, Viewers};

/// Maximum units whose numbers in the flow are stored, to translate dependencies.
const MAX_NUMBERS: usize = 4096;

/// Bytes of unacknowledged messages after which those that have been acknowledged meanwhile are
/// removed: twice what a flow has in flight. Without it they are removed once a second.
const MAX_UNSETTLED: usize = 16 << 20;

/// Bytes of memory counted for each unacknowledged message beside its data.
const MESSAGE_BYTES: usize = 256;

/// The receiver's last report, and the viewers if it is a relay.
type LastReport = Option<(Report, Option<Viewers>)>;

/// A message ready to be sent.
pub(crate) struct OutgoingMessage {
    /// The unit's number in the stream; `None` for a gap message.
    id: Option<u64>,
    priority: u8,
    depends_on: Vec<u64>,
    /// The unit that it continues, as it is numbered in the stream.
    continues: Option<u64>,
    data: Bytes,
    queued_at: Instant,
}

impl OutgoingMessage {
    pub(crate) fn media(queued: &QueuedUnit) -> Self {
        let unit = &queued.unit;
        Self {
            id: Some(unit.id),
            priority: unit.kind.priority(),
            depends_on: unit.dependencies.clone(),
            continues: unit.continues,
            data: message::media(unit),
            queued_at: queued.queued_at,
        }
    }

    pub(crate) fn gap(datagrams: &[u64]) -> Self {
        let (depends_on, data) = (Vec::new(), message::gap(datagrams));
        Self::control(depends_on, data)
    }

    /// The end of the stream: see [`message::Content::End`].
    pub(crate) fn end(datagrams: u64, is_whole: bool) -> Self {
        let (depends_on, data) = (Vec::new(), message::end(datagrams, is_whole));
        Self::control(depends_on, data)
    }

    fn control(depends_on: Vec<u64>, data: Bytes) -> Self {
        let queued_at = Instant::now();
        Self { id: None, priority: 0, depends_on, continues: None, data, queued_at }
    }

    /// Bytes of its data.
    pub(crate) fn size(&self) -> usize {
        self.data.len()
    }

    /// Since it was queued.
    pub(crate) fn age(&self) -> Duration {
        Duration::from_nanos(self.queued_at.elapsed().as_nanos() as u64)
    }

    fn memory(&self) -> usize {
        MESSAGE_BYTES + self.data.len()
    }
}

/// What makes messages units of a flow.
struct Lane {
    flow: SendFlow,
    /// How long units live; `None`: until they have arrived.
    lifetime: Option<Duration>,
    /// Numbers of units in the flow, by their numbers in the stream.
    numbers: Mutex<BTreeMap<u64, u64>>,
    /// How long what has arrived may lie unread, ns.
    patience: AtomicU64,
}

impl Lane {
    fn numbers(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The message as a unit of this flow, with this data.
    fn unit(&self, message: &OutgoingMessage, data: Bytes) -> Message {
        let numbers = self.numbers();
        Message {
            data,
            lifetime: self.lifetime.map(|lifetime| lifetime.saturating_sub(message.age())),
            priority: message.priority,
            depends_on: message
                .depends_on
                .iter()
                .filter_map(|on| numbers.get(on).copied())
                .collect(),
            continues: message.continues.and_then(|on| numbers.get(&on).copied()),
        }
    }

    fn note_number(&self, message: &OutgoingMessage, number: u64) {
        let Some(id) = message.id else { return };
        let mut numbers = self.numbers();
        numbers.insert(id, number);
        if numbers.len() > MAX_NUMBERS {
            numbers.pop_first();
        }
    }
}

impl Taker for Lane {
    fn take(&self, queued: &QueuedUnit) -> bool {
        let message = OutgoingMessage::media(queued);
        let queued = self.flow.queue(self.unit(&message, message.data.clone()));
        if let Ok(number) = queued {
            self.note_number(&message, number);
        }
        queued.is_ok()
    }

    fn done(&self) {
        self.flow.visit(Duration::from_nanos(self.patience.load(Ordering::Relaxed)));
    }
}

/// A connection with its flow.
pub(crate) struct Session {
    pub(crate) connection: Arc<Connection>,
    lane: Arc<Lane>,
    /// With full reliability: unacknowledged messages and their numbers in the flow.
    unsettled: VecDeque<(u64, OutgoingMessage)>,
    /// Their memory, bytes, and the sum at which acknowledged ones are removed next.
    unsettled_bytes: usize,
    prune_at: usize,
    /// Reliability is full: after a lost connection, unacknowledged messages are sent again.
    is_reliable: bool,
    /// The receiver takes the stream: it has opened its flow of reports.
    is_taken: Arc<AtomicBool>,
    report: Arc<Mutex<LastReport>>,
    replies: std::sync::mpsc::Receiver<Reply>,
    report_thread: Option<JoinHandle<()>>,
}

impl Session {
    pub(crate) fn open(
        connection: Connection,
        config: FlowConfig,
        lifetime: Duration,
    ) -> Result<Self, Error> {
        let is_reliable = config.reliability == Reliability::Full;
        let flow = connection.open_flow(config)?;
        let connection = Arc::new(connection);
        let report = Arc::new(Mutex::new(None));
        let is_taken = Arc::new(AtomicBool::new(false));
        let (last_report, from) = (Arc::clone(&report), Arc::clone(&connection));
        let taken = Arc::clone(&is_taken);
        let (replied, replies) = std::sync::mpsc::sync_channel(1);
        let report_thread = std::thread::Builder::new()
            .name("reports".to_owned())
            .spawn(move || receive_reports(&from, &taken, &last_report, &replied))?;
        Ok(Self {
            connection,
            lane: Arc::new(Lane {
                flow,
                lifetime: (!is_reliable).then_some(lifetime),
                numbers: Mutex::default(),
                patience: AtomicU64::new(0),
            }),
            unsettled: VecDeque::new(),
            unsettled_bytes: 0,
            prune_at: MAX_UNSETTLED,
            is_reliable,
            is_taken,
            report,
            replies,
            report_thread: Some(report_thread),
        })
    }

    /// Sends a message; returns it if the send queue stays full for `limit`.
    pub(crate) fn send(
        &mut self,
        message: OutgoingMessage,
        limit: Wall,
    ) -> Result<Option<OutgoingMessage>, Box<(Error, OutgoingMessage)>> {
        let unit = self.lane.unit(&message, message.data.clone());
        match self.lane.flow.send_within(unit, limit) {
            Ok(number) => {
                self.lane.note_number(&message, number);
                if self.is_reliable {
                    self.unsettled_bytes += message.memory();
                    self.unsettled.push_back((number, message));
                }
                if self.unsettled_bytes > self.prune_at {
                    self.statistics();
                    // What cannot be removed yet is in flight, which the flow bounds.
                    self.prune_at = MAX_UNSETTLED.max(self.unsettled_bytes + MAX_UNSETTLED / 2);
                }
                Ok(None)
            }
            Err(NotTaken::Full) => Ok(Some(message)),
            Err(NotTaken::Failed(error)) => Err(Box::new((error, message))),
        }
    }

    /// What has arrived may lie unread for so long.
    pub(crate) fn allow(&self, patience: Duration) {
        self.lane.patience.store(patience.as_nanos(), Ordering::Relaxed);
    }

    /// What sends units on the thread of their source. Not with full reliability: messages are kept here then.
    pub(crate) fn taker(&self) -> Option<Arc<dyn Taker>> {
        (!self.is_reliable).then(|| Arc::clone(&self.lane) as Arc<dyn Taker>)
    }

    /// Gives the flow of a path a message, with its number in the stream, that is kept elsewhere; its
    /// number in the flow, or `None` if the send queue is full.
    pub(crate) fn give(
        &mut self,
        number: u64,
        message: &OutgoingMessage,
    ) -> Result<Option<u64>, Error> {
        let unit = self.lane.unit(message, numbered(number, &message.data));
        match self.lane.flow.send_within(unit, Wall::ZERO) {
            Ok(in_flow) => {
                self.lane.note_number(message, in_flow);
                Ok(Some(in_flow))
            }
            Err(NotTaken::Full) => Ok(None),
            Err(NotTaken::Failed(error)) => Err(error),
        }
    }

    /// Sends a message that is not stored, to be sent again; false if the send queue stays full for
    /// `limit`.
    pub(crate) fn send_data(&self, data: Bytes, limit: Wall) -> Result<bool, Error> {
        match self.lane.flow.send_within(Message::from(data), limit) {
            Ok(_) => Ok(true),
            Err(NotTaken::Full) => Ok(false),
            Err(NotTaken::Failed(error)) => Err(error),
        }
    }

    /// The receiver's answer to the offer of a file.
    pub(crate) fn reply(&self, limit: Wall) -> Option<Reply> {
        self.replies.recv_timeout(limit).ok()
    }

    /// True if the receiver takes the stream: before, it may wait for the place of another.
    pub(crate) fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Relaxed)
    }

    /// The flow's statistics; also removes acknowledged messages from `unsettled`, unless the receiver may still
    /// refuse the stream without having read them.
    pub(crate) fn statistics(&mut self) -> Option<SendStatistics> {
        let statistics = self.lane.flow.statistics()?;
        while self.is_taken()
            && self.unsettled.front().is_some_and(|(number, _)| *number < statistics.settled)
        {
            if let Some((_, message)) = self.unsettled.pop_front() {
                self.unsettled_bytes -= message.memory();
            }
        }
        Some(statistics)
    }

    pub(crate) fn finish(&self) {
        self.lane.flow.finish();
    }

    /// Waits until every message has arrived or been dropped; `None` after `limit`.
    pub(crate) fn settled(&self, limit: Wall) -> Option<Result<SendStatistics, Error>> {
        self.lane.flow.settled(limit)
    }

    /// The receiver's last report.
    pub(crate) fn report(&self) -> Option<Report> {
        self.last_report().map(|(report, _)| report)
    }

    /// The viewers of its last report, if it is a relay.
    pub(crate) fn viewers(&self) -> Option<Viewers> {
        self.last_report().and_then(|(_, viewers)| viewers)
    }

    fn last_report(&self) -> LastReport {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes and returns the unacknowledged messages, to be sent again.
    pub(crate) fn take_unsettled(&mut self) -> VecDeque<OutgoingMessage> {
        self.unsettled_bytes = 0;
        self.unsettled.drain(..).map(|(_, message)| message).collect()
    }

    /// Closes the connection and waits for the end of its thread.
    pub(crate) fn close(&mut self, reason: &str) {
        self.connection.close(reason);
        if let Some(report_thread) = self.report_thread.take() {
            // A panic has been printed by the thread itself.
            let _ = report_thread.join();
        }
    }
}

/// Stores the receiver's latest report until the connection is closed.
fn receive_reports(
    connection: &Connection,
    is_taken: &AtomicBool,
    last_report: &Mutex<LastReport>,
    replied: &SyncSender<Reply>,
) {
    let Ok(flow) = connection.accept_flow() else { return };
    if flow.config().label != REPORTS {
        return;
    }
    is_taken.store(true, Ordering::Relaxed);
    while let Ok(Some(delivery)) = flow.receive() {
        let Delivery::Unit(unit) = delivery else { continue };
        if let Ok(reply) = serde_json::from_slice(&unit.data) {
            // There is one to an offer.
            let _ = replied.try_send(reply);
        } else if let Ok(report) = serde_json::from_slice(&unit.data) {
            *last_report.lock().unwrap_or_else(PoisonError::into_inner) =
                Some((report, viewers::read(&unit.data)));
        }
    }
}
