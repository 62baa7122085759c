//! Streams received, one at a time, over as many connections as they take.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Duration;
use ontempo_transport::live::{Accepted, Connection, Listener, Message, ReceiveFlow, SendFlow};
use ontempo_transport::{CloseReason, Delivery, FlowConfig, ReceiveStatistics};

use crate::error::Error;
use crate::message::{Content, Label, REPORTS, Report, read};
use crate::sink::{Counts, Sink, Target};

/// How often a waiting listener looks at `stop`, and a busy one for others who come.
const STEP: Wall = Wall::from_millis(50);

/// How long a sender may take to open its flow, and to close after the end.
const PATIENCE: Wall = Wall::from_secs(5);

/// How often a report is sent, and [`ReceiverEvent::Progress`] comes.
const PROGRESS: Wall = Wall::from_secs(1);

/// How streams are received.
#[derive(Clone, Debug, Default)]
pub struct ReceiverOptions {
    /// From the arrival of a datagram at the sender to its leaving here; the sender's choice where
    /// `None`.
    pub latency: Option<Duration>,
    /// Return after the first stream.
    pub once: bool,
    /// Set by another thread or a signal handler: hands on what has come, and returns.
    pub stop: Arc<AtomicBool>,
}

/// What happens while streams are received.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReceiverEvent<'a> {
    /// Somebody was refused.
    Refused {
        /// Who, where that is known.
        remote: Option<SocketAddr>,
        /// Why, in words.
        reason: String,
    },
    /// A sender's stream comes on a connection from this address.
    Receiving(SocketAddr),
    /// The connection from this address was lost, and the stream may come back; why, in words.
    Lost(SocketAddr, String),
    /// A unit that is no message; why, in words.
    Unreadable(String),
    /// By how much the target is missed; a sentence.
    Missed(String),
    /// How it stands, once a second.
    Progress(&'a Report, &'a ReceiveStatistics),
    /// The stream is over, or `stop` was set: all that has come has been handed on.
    StreamEnded(&'a Report),
}

/// Where streams go to, and what takes the events.
pub trait ReceiverHandler {
    /// Where a stream that begins goes to.
    ///
    /// # Errors
    /// A sentence, with which [`Receiver::run`] ends.
    fn open(&mut self) -> Result<Target, String>;

    /// Something happened; `Break` ends [`Receiver::run`] with [`Error::Handler`].
    fn on_event(&mut self, event: ReceiverEvent<'_>) -> ControlFlow<()>;
}

/// How [`Receiver::run`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The stream is over, and there was to be but one.
    StreamEnded,
    /// `stop` was set.
    Stopped {
        /// True where a stream was cut short.
        midstream: bool,
    },
}

/// A stream that is being received, over as many connections as it takes.
struct Stream {
    label: Label,
    latency: Duration,
    sink: Sink,
    /// Sums over connections that are over.
    before: Report,
    told: Report,
}

/// How a connection ended.
enum Ended {
    /// The stream is over and all of it has been handed on.
    Over,
    /// The sender was lost, and may come back; why, in words.
    Lost(String),
    /// It has come back on this connection, before the old one was known to be lost.
    Replaced(Connection, ReceiveFlow),
    /// `stop` was set.
    Stopped,
}

/// Receives streams of [`Sender`](crate::Sender)s.
pub struct Receiver<H> {
    listener: Listener,
    options: ReceiverOptions,
    handler: H,
    stream: Option<Stream>,
    /// Connections whose flow has not come yet.
    waiting: Vec<(Connection, Instant)>,
    looked: Instant,
    progress_due: Instant,
}

impl<H: ReceiverHandler> Receiver<H> {
    /// Receives what comes to `listener`, whose configuration should be
    /// [`configuration`](crate::configuration).
    pub fn new(listener: Listener, options: ReceiverOptions, handler: H) -> Self {
        let (stream, waiting, now) = (None, Vec::new(), Instant::now());
        let progress_due = now + PROGRESS;
        Self { listener, options, handler, stream, waiting, looked: now, progress_due }
    }

    /// Receives until `stop` is set, or the first stream is over where that was asked for.
    ///
    /// # Errors
    /// The target cannot be opened or written to, or the handler asked to end.
    pub fn run(&mut self) -> Result<Outcome, Error> {
        let mut next = None;
        loop {
            let (connection, flow) = match next.take() {
                Some(next) => next,
                None if self.is_stopped() => return self.stopped(),
                None => match self.find(STEP)? {
                    Some(found) => found,
                    None => {
                        self.work()?;
                        continue;
                    }
                },
            };
            match self.carry(&connection, &flow) {
                Ok(Ended::Over) if self.options.once => return Ok(Outcome::StreamEnded),
                Ok(Ended::Over | Ended::Stopped) => {}
                Ok(Ended::Lost(reason)) => {
                    self.tell(ReceiverEvent::Lost(connection.remote(), reason))?;
                }
                Ok(Ended::Replaced(connection, flow)) => next = Some((connection, flow)),
                Err(error) => {
                    let sentence = "it cannot write what it receives";
                    connection.close_with(CloseReason::Failed, sentence);
                    return Err(error);
                }
            }
        }
    }

    /// What takes the events.
    pub fn handler(&mut self) -> &mut H {
        &mut self.handler
    }

    fn is_stopped(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }

    fn tell(&mut self, event: ReceiverEvent<'_>) -> Result<(), Error> {
        match self.handler.on_event(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Handler),
        }
    }

    /// Lets the sink work while no sender is there.
    fn work(&mut self) -> Result<(), Error> {
        if let Some(stream) = &mut self.stream {
            stream.sink.work(true)?;
        }
        Ok(())
    }

    fn stopped(&mut self) -> Result<Outcome, Error> {
        let Some(stream) = self.stream.take() else {
            return Ok(Outcome::Stopped { midstream: false });
        };
        let before = stream.before;
        let report = counted(before, stream.sink.finish()?);
        self.tell(ReceiverEvent::StreamEnded(&report))?;
        Ok(Outcome::Stopped { midstream: true })
    }

    /// Looks for a sender and its flow.
    fn find(&mut self, limit: Wall) -> Result<Option<(Connection, ReceiveFlow)>, Error> {
        let limit = if self.waiting.is_empty() { limit } else { Wall::from_millis(1) };
        match self.listener.accept_within(limit) {
            Some(Accepted::Connection(connection)) => {
                self.waiting.push((connection, Instant::now()));
            }
            Some(Accepted::Refused { remote, closed }) => {
                self.tell(ReceiverEvent::Refused { remote, reason: closed.sentence })?;
            }
            None => {}
        }
        for place in 0..self.waiting.len() {
            let (connection, since) = &self.waiting[place];
            match connection.accept_flow_within(Wall::ZERO) {
                Some(Ok(flow)) => return Ok(Some((self.waiting.swap_remove(place).0, flow))),
                None if since.elapsed() < PATIENCE => {}
                Some(Err(_)) | None => {
                    self.waiting.swap_remove(place);
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Somebody else may have come: answers the same sender on a new connection.
    fn look(&mut self) -> Result<Option<(Connection, ReceiveFlow)>, Error> {
        if self.looked.elapsed() < STEP {
            return Ok(None);
        }
        self.looked = Instant::now();
        let Some((connection, flow)) = self.find(Wall::ZERO)? else { return Ok(None) };
        let Ok(label) = flow.config().label.parse::<Label>() else { return Ok(None) };
        let current = self.stream.as_ref().map(|stream| stream.label.session);
        if current == Some(label.session) {
            return Ok(Some((connection, flow)));
        }
        let (remote, reason) = (Some(connection.remote()), "another is sending".to_owned());
        self.tell(ReceiverEvent::Refused { remote, reason })?;
        connection.close_with(CloseReason::Busy, "another sender is connected");
        Ok(None)
    }

    /// Takes a flow to its end.
    fn carry(&mut self, connection: &Connection, flow: &ReceiveFlow) -> Result<Ended, Error> {
        let Ok(label) = flow.config().label.parse::<Label>() else {
            let sentence = "what it was sent is not from ontempo send";
            connection.close_with(CloseReason::Unsupported, sentence);
            return Ok(Ended::Lost("it is not ontempo send".to_owned()));
        };
        if self.stream.as_ref().is_none_or(|stream| stream.label.session != label.session) {
            let latency = self.options.latency.unwrap_or(label.latency);
            let target = self.handler.open().map_err(Error::Target)?;
            let sink = Sink::open(target, flow.config(), latency, label.before > 0)?;
            let (before, told) = (Report::default(), Report::default());
            self.stream = Some(Stream { label, latency, sink, before, told });
        }
        self.tell(ReceiverEvent::Receiving(connection.remote()))?;
        let reports = FlowConfig { label: REPORTS.to_owned(), ..FlowConfig::default() };
        let reports = match connection.open_flow(reports) {
            Ok(reports) => reports,
            Err(error) => return Ok(Ended::Lost(error.to_string())),
        };
        let ended = self.take_all(flow, &reports)?;
        if let Some(stream) = &mut self.stream {
            let last = flow.statistics();
            stream.before = last.map_or(stream.told, |last| received(stream.before, &last));
        }
        if let Ended::Over = ended {
            self.end(connection, &reports)?;
        }
        Ok(ended)
    }

    fn take_all(&mut self, flow: &ReceiveFlow, reports: &SendFlow) -> Result<Ended, Error> {
        let mut limit = Wall::ZERO;
        loop {
            if self.is_stopped() {
                return Ok(Ended::Stopped);
            }
            if let Some((connection, flow)) = self.look()? {
                return Ok(Ended::Replaced(connection, flow));
            }
            let Some(stream) = &mut self.stream else { return Ok(Ended::Over) };
            let taken = flow.receive_within(limit);
            let idle = taken.is_none();
            match taken {
                None => {}
                Some(Ok(Some(Delivery::Unit(unit)))) => match read(&unit.data) {
                    Ok(Content::Unit(unit)) => stream.sink.push(unit)?,
                    Ok(Content::Gap(gone)) => stream.sink.abandon(gone)?,
                    Err(what) => self.tell(ReceiverEvent::Unreadable(what))?,
                },
                Some(Ok(Some(Delivery::Dropped(_)))) => {}
                Some(Ok(None)) => return Ok(Ended::Over),
                Some(Err(error)) => return Ok(Ended::Lost(error.to_string())),
            }
            // What is ready is taken before a wait, and written before a longer one.
            let Some(stream) = &mut self.stream else { return Ok(Ended::Over) };
            let wait = stream.sink.work(idle)?;
            limit = if idle { wait } else { Wall::ZERO };
            if Instant::now() >= self.progress_due {
                self.progress_due = Instant::now() + PROGRESS;
                self.report(flow, reports)?;
            }
        }
    }

    /// Says to sender and handler how it stands.
    fn report(&mut self, flow: &ReceiveFlow, reports: &SendFlow) -> Result<(), Error> {
        let (Some(stream), Some(now)) = (&mut self.stream, flow.statistics()) else {
            return Ok(());
        };
        let report = counted(received(stream.before, &now), stream.sink.counts());
        let missed = report.missed(&stream.told, stream.latency);
        stream.told = report;
        if let Some(missed) = missed {
            self.tell(ReceiverEvent::Missed(missed))?;
        }
        send(reports, &report);
        self.tell(ReceiverEvent::Progress(&report, &now))
    }

    /// The stream is over: hands on the rest, says so to the sender, and waits for it to close.
    fn end(&mut self, connection: &Connection, reports: &SendFlow) -> Result<(), Error> {
        let Some(stream) = self.stream.take() else { return Ok(()) };
        let before = stream.before;
        let counts = stream.sink.finish()?;
        let report = Report { is_final: true, ..counted(before, counts) };
        send(reports, &report);
        reports.finish();
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && connection.closed(STEP).is_none() && !self.is_stopped() {}
        self.tell(ReceiverEvent::StreamEnded(&report))
    }
}

/// Sends a report; where it is not taken now, the next will say more.
fn send(reports: &SendFlow, report: &Report) {
    if let Ok(text) = serde_json::to_vec(report) {
        let _ = reports.send_within(Message::from(bytes::Bytes::from(text)), Wall::ZERO);
    }
}

/// `before` and what a connection's flow has received.
fn received(before: Report, now: &ReceiveStatistics) -> Report {
    Report {
        units: before.units + now.units,
        bytes: before.bytes + now.bytes,
        late_units: before.late_units + now.late,
        dropped_units: before.dropped_units + now.dropped,
        mean_delay_s: now.delay.mean().as_secs_f64(),
        greatest_delay_s: before.greatest_delay_s.max(now.delay.greatest.as_secs_f64()),
        ..before
    }
}

fn counted(report: Report, counts: Counts) -> Report {
    Report {
        whole_datagrams: counts.whole,
        damaged_datagrams: counts.damaged,
        missing_datagrams: counts.missing(),
        ..report
    }
}
