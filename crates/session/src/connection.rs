//! A sender's connection: what it sends, what is not known to have arrived, what the receiver says.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration as Wall, Instant};

use bytes::Bytes;
use ontempo_foundation::Duration;
use ontempo_transport::live::{Connection, Error, Message, NotTaken, SendFlow};
use ontempo_transport::{Delivery, FlowConfig, Reliability, SendStatistics};

use crate::backlog::Waiting;
use crate::message::{self, REPORTS, Report};

/// Units whose numbers in the flow are remembered, for those that depend on them.
const MAX_NUMBERS: usize = 4096;

/// A unit as it is sent.
pub(crate) struct Ready {
    /// Its number in the stream; `None`: no media.
    id: Option<u64>,
    priority: u8,
    depends_on: Vec<u64>,
    data: Bytes,
    since: Instant,
}

impl Ready {
    pub(crate) fn media(waiting: &Waiting) -> Self {
        let unit = &waiting.unit;
        Self {
            id: Some(unit.id),
            priority: unit.kind.priority(),
            depends_on: unit.dependencies.clone(),
            data: message::media(unit),
            since: waiting.since,
        }
    }

    pub(crate) fn gap(datagrams: &[u64]) -> Self {
        let (depends_on, data) = (Vec::new(), message::gap(datagrams));
        Self { id: None, priority: 0, depends_on, data, since: Instant::now() }
    }
}

/// A connection with its flow.
pub(crate) struct Session {
    pub(crate) connection: Arc<Connection>,
    flow: SendFlow,
    latency: Option<Duration>,
    numbers: BTreeMap<u64, u64>,
    /// Of a flow that loses nothing: what is not known to have arrived, with its number.
    unsettled: VecDeque<(u64, Ready)>,
    keeps: bool,
    report: Arc<Mutex<Option<Report>>>,
    listener: Option<JoinHandle<()>>,
}

impl Session {
    pub(crate) fn open(
        connection: Connection,
        config: FlowConfig,
        latency: Duration,
    ) -> Result<Self, Error> {
        let keeps = config.reliability == Reliability::Full;
        let flow = connection.open_flow(config)?;
        let connection = Arc::new(connection);
        let report = Arc::new(Mutex::new(None));
        let (heard, from) = (Arc::clone(&report), Arc::clone(&connection));
        let listener = std::thread::Builder::new()
            .name("reports".to_owned())
            .spawn(move || listen(&from, &heard))?;
        Ok(Self {
            connection,
            flow,
            latency: (!keeps).then_some(latency),
            numbers: BTreeMap::new(),
            unsettled: VecDeque::new(),
            keeps,
            report,
            listener: Some(listener),
        })
    }

    /// Sends a unit where there is room within `limit`; hands it back where not.
    pub(crate) fn send(
        &mut self,
        ready: Ready,
        limit: Wall,
    ) -> Result<Option<Ready>, Box<(Error, Ready)>> {
        let age = Duration::from_nanos(ready.since.elapsed().as_nanos() as u64);
        let lifetime = self.latency.map(|latency| latency.saturating_sub(age));
        let depends_on =
            ready.depends_on.iter().filter_map(|on| self.numbers.get(on).copied()).collect();
        let data = ready.data.clone();
        let message = Message { data, lifetime, priority: ready.priority, depends_on };
        match self.flow.send_within(message, limit) {
            Ok(number) => {
                if let Some(id) = ready.id {
                    self.numbers.insert(id, number);
                    if self.numbers.len() > MAX_NUMBERS {
                        self.numbers.pop_first();
                    }
                }
                if self.keeps {
                    self.unsettled.push_back((number, ready));
                }
                Ok(None)
            }
            Err(NotTaken::Full) => Ok(Some(ready)),
            Err(NotTaken::Failed(error)) => Err(Box::new((error, ready))),
        }
    }

    /// The flow as it stands; forgets what has arrived.
    pub(crate) fn statistics(&mut self) -> Option<SendStatistics> {
        let statistics = self.flow.statistics()?;
        while self.unsettled.front().is_some_and(|(number, _)| *number < statistics.settled) {
            self.unsettled.pop_front();
        }
        Some(statistics)
    }

    pub(crate) fn finish(&self) {
        self.flow.finish();
    }

    /// Waits until all has arrived or been dropped.
    pub(crate) fn settled(&self, limit: Wall) -> Option<Result<SendStatistics, Error>> {
        self.flow.settled(limit)
    }

    /// What the receiver said last.
    pub(crate) fn report(&self) -> Option<Report> {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is not known to have arrived, to be sent again.
    pub(crate) fn take_unsettled(&mut self) -> VecDeque<Ready> {
        self.unsettled.drain(..).map(|(_, ready)| ready).collect()
    }

    /// Closes the connection and waits for what hangs on it.
    pub(crate) fn close(&mut self, reason: &str) {
        self.connection.close(reason);
        if let Some(listener) = self.listener.take() {
            // A panic has been told by the thread itself.
            let _ = listener.join();
        }
    }
}

/// Takes the receiver's reports until the connection is over.
fn listen(connection: &Connection, heard: &Mutex<Option<Report>>) {
    let Ok(flow) = connection.accept_flow() else { return };
    if flow.config().label != REPORTS {
        return;
    }
    while let Ok(Some(delivery)) = flow.receive() {
        if let Delivery::Unit(unit) = delivery
            && let Ok(report) = serde_json::from_slice(&unit.data)
        {
            *heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
        }
    }
}
