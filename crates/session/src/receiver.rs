//! Receives streams, one at a time; a sender may connect again when a connection is lost.

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

/// Interval of polling `stop`, and of polling the listener while a stream is received.
const STEP: Wall = Wall::from_millis(50);

/// Time limit for a sender to open its flow, and to close after the end of the stream.
const SENDER_TIMEOUT: Wall = Wall::from_secs(5);

/// Interval of receiver reports and of [`ReceiverEvent::Progress`].
const PROGRESS: Wall = Wall::from_secs(1);

/// Options of a [`Receiver`].
#[derive(Clone, Debug, Default)]
pub struct ReceiverOptions {
    /// Target time from a datagram's arrival at the sender to its departure from the receiver; if
    /// `None`, the sender's.
    pub latency: Option<Duration>,
    /// Return after the first stream.
    pub once: bool,
    /// Set by another thread or a signal handler: writes what has been received, and returns.
    pub stop: Arc<AtomicBool>,
}

/// Events of a [`Receiver`].
#[derive(Debug)]
#[non_exhaustive]
pub enum ReceiverEvent<'a> {
    /// A client was refused.
    Refused {
        /// Its address, if known.
        remote: Option<SocketAddr>,
        /// A sentence.
        reason: String,
    },
    /// A stream is received on a connection from this address.
    Receiving(SocketAddr),
    /// The connection from this address was lost, with the reason; the sender may connect again.
    Lost(SocketAddr, String),
    /// A unit is not a valid message; the error sentence.
    Unreadable(String),
    /// The target latency was missed or data lost; a sentence with figures.
    Missed(String),
    /// The report to the sender and the flow's statistics, once a second.
    Progress(&'a Report, &'a ReceiveStatistics),
    /// The stream has ended or `stop` was set, and everything received has been written.
    StreamEnded(&'a Report),
}

/// Opens targets and receives the events of a [`Receiver`].
pub trait ReceiverHandler {
    /// Opens the target of a new stream.
    ///
    /// # Errors
    /// A sentence; [`Receiver::run`] returns it as [`Error::Target`].
    fn open(&mut self) -> Result<Target, String>;

    /// Called for each event; `Break` ends [`Receiver::run`] with [`Error::Handler`].
    fn on_event(&mut self, event: ReceiverEvent<'_>) -> ControlFlow<()>;
}

/// How [`Receiver::run`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The first stream has ended, and [`ReceiverOptions::once`] is set.
    StreamEnded,
    /// `stop` was set.
    Stopped {
        /// True if a stream was being received.
        midstream: bool,
    },
}

/// The stream that is being received, over one or several connections.
struct Stream {
    label: Label,
    latency: Duration,
    sink: Sink,
    /// Sums over earlier connections.
    before: Report,
    last_report: Report,
}

/// How a connection ended.
enum Ended {
    /// The flow has been received to its end.
    Complete,
    /// The connection was lost, with the reason; the sender may connect again.
    Lost(String),
    /// The sender has connected again before the old connection was known to be lost.
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
    /// Connections whose sender has not opened its flow yet.
    waiting: Vec<(Connection, Instant)>,
    polled_at: Instant,
    progress_due: Instant,
}

impl<H: ReceiverHandler> Receiver<H> {
    /// A receiver at `listener`, which should have been bound with
    /// [`configuration`](crate::configuration).
    pub fn new(listener: Listener, options: ReceiverOptions, handler: H) -> Self {
        let (stream, waiting, now) = (None, Vec::new(), Instant::now());
        let progress_due = now + PROGRESS;
        Self { listener, options, handler, stream, waiting, polled_at: now, progress_due }
    }

    /// Receives until `stop` is set or, with [`ReceiverOptions::once`], until the first stream has
    /// ended.
    ///
    /// # Errors
    /// The target cannot be opened or written to, or the handler returned `Break`.
    pub fn run(&mut self) -> Result<Outcome, Error> {
        let mut next = None;
        loop {
            let (connection, flow) = match next.take() {
                Some(next) => next,
                None if self.is_stopped() => return self.stopped(),
                None => match self.next_flow(STEP)? {
                    Some(found) => found,
                    None => {
                        self.write_due()?;
                        continue;
                    }
                },
            };
            match self.receive_over(&connection, &flow) {
                Ok(Ended::Complete) if self.options.once => return Ok(Outcome::StreamEnded),
                Ok(Ended::Complete | Ended::Stopped) => {}
                Ok(Ended::Lost(reason)) => {
                    self.emit(ReceiverEvent::Lost(connection.remote(), reason))?;
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

    /// The event handler.
    pub fn handler(&mut self) -> &mut H {
        &mut self.handler
    }

    fn is_stopped(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }

    fn emit(&mut self, event: ReceiverEvent<'_>) -> Result<(), Error> {
        match self.handler.on_event(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Handler),
        }
    }

    /// Writes due datagrams while no sender is connected.
    fn write_due(&mut self) -> Result<(), Error> {
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
        let report = with_counts(before, stream.sink.finish()?);
        self.emit(ReceiverEvent::StreamEnded(&report))?;
        Ok(Outcome::Stopped { midstream: true })
    }

    /// Accepts a connection; returns one whose sender has opened its flow.
    fn next_flow(&mut self, limit: Wall) -> Result<Option<(Connection, ReceiveFlow)>, Error> {
        let limit = if self.waiting.is_empty() { limit } else { Wall::from_millis(1) };
        match self.listener.accept_within(limit) {
            Some(Accepted::Connection(connection)) => {
                self.waiting.push((connection, Instant::now()));
            }
            Some(Accepted::Refused { remote, closed }) => {
                self.emit(ReceiverEvent::Refused { remote, reason: closed.sentence })?;
            }
            None => {}
        }
        for place in 0..self.waiting.len() {
            let (connection, since) = &self.waiting[place];
            match connection.accept_flow_within(Wall::ZERO) {
                Some(Ok(flow)) => return Ok(Some((self.waiting.swap_remove(place).0, flow))),
                None if since.elapsed() < SENDER_TIMEOUT => {}
                Some(Err(_)) | None => {
                    self.waiting.swap_remove(place);
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Polls the listener: returns a new connection of the same sender, refuses other senders.
    fn poll_listener(&mut self) -> Result<Option<(Connection, ReceiveFlow)>, Error> {
        if self.polled_at.elapsed() < STEP {
            return Ok(None);
        }
        self.polled_at = Instant::now();
        let Some((connection, flow)) = self.next_flow(Wall::ZERO)? else { return Ok(None) };
        let Ok(label) = flow.config().label.parse::<Label>() else { return Ok(None) };
        let current = self.stream.as_ref().map(|stream| stream.label.session);
        if current == Some(label.session) {
            return Ok(Some((connection, flow)));
        }
        let (remote, reason) = (Some(connection.remote()), "another is sending".to_owned());
        self.emit(ReceiverEvent::Refused { remote, reason })?;
        connection.close_with(CloseReason::Busy, "another sender is connected");
        Ok(None)
    }

    /// Receives a connection's flow to its end.
    fn receive_over(
        &mut self,
        connection: &Connection,
        flow: &ReceiveFlow,
    ) -> Result<Ended, Error> {
        let Ok(label) = flow.config().label.parse::<Label>() else {
            let sentence = "what it was sent is not from ontempo send";
            connection.close_with(CloseReason::Unsupported, sentence);
            return Ok(Ended::Lost("it is not ontempo send".to_owned()));
        };
        if self.stream.as_ref().is_none_or(|stream| stream.label.session != label.session) {
            let latency = self.options.latency.unwrap_or(label.latency);
            let target = self.handler.open().map_err(Error::Target)?;
            let sink = Sink::open(target, flow.config(), latency, label.before > 0)?;
            let (before, last_report) = (Report::default(), Report::default());
            self.stream = Some(Stream { label, latency, sink, before, last_report });
        }
        self.emit(ReceiverEvent::Receiving(connection.remote()))?;
        let reports = FlowConfig { label: REPORTS.to_owned(), ..FlowConfig::default() };
        let reports = match connection.open_flow(reports) {
            Ok(reports) => reports,
            Err(error) => return Ok(Ended::Lost(error.to_string())),
        };
        let ended = self.receive_all(flow, &reports)?;
        if let Some(stream) = &mut self.stream {
            let last = flow.statistics();
            stream.before = last.map_or(stream.last_report, |last| with_flow(stream.before, &last));
        }
        if let Ended::Complete = ended {
            self.end(connection, &reports)?;
        }
        Ok(ended)
    }

    fn receive_all(&mut self, flow: &ReceiveFlow, reports: &SendFlow) -> Result<Ended, Error> {
        let mut limit = Wall::ZERO;
        loop {
            if self.is_stopped() {
                return Ok(Ended::Stopped);
            }
            if let Some((connection, flow)) = self.poll_listener()? {
                return Ok(Ended::Replaced(connection, flow));
            }
            let Some(stream) = &mut self.stream else { return Ok(Ended::Complete) };
            let received = flow.receive_within(limit);
            let idle = received.is_none();
            match received {
                None => {}
                Some(Ok(Some(Delivery::Unit(unit)))) => match read(&unit.data) {
                    Ok(Content::Unit(unit)) => stream.sink.push(unit)?,
                    Ok(Content::Gap(datagrams)) => stream.sink.abandon(datagrams)?,
                    Err(error) => self.emit(ReceiverEvent::Unreadable(error))?,
                },
                Some(Ok(Some(Delivery::Dropped(_)))) => {}
                Some(Ok(None)) => return Ok(Ended::Complete),
                Some(Err(error)) => return Ok(Ended::Lost(error.to_string())),
            }
            // All ready units are received before a wait, and flushed before a longer one.
            let Some(stream) = &mut self.stream else { return Ok(Ended::Complete) };
            let wait = stream.sink.work(idle)?;
            limit = if idle { wait } else { Wall::ZERO };
            if Instant::now() >= self.progress_due {
                self.progress_due = Instant::now() + PROGRESS;
                self.report(flow, reports)?;
            }
        }
    }

    /// Reports the statistics to the sender and the handler.
    fn report(&mut self, flow: &ReceiveFlow, reports: &SendFlow) -> Result<(), Error> {
        let (Some(stream), Some(now)) = (&mut self.stream, flow.statistics()) else {
            return Ok(());
        };
        let report = with_counts(with_flow(stream.before, &now), stream.sink.counts());
        let missed = report.missed(&stream.last_report, stream.latency);
        stream.last_report = report;
        if let Some(missed) = missed {
            self.emit(ReceiverEvent::Missed(missed))?;
        }
        send(reports, &report);
        self.emit(ReceiverEvent::Progress(&report, &now))
    }

    /// Ends the stream: writes the rest, sends the final report, and waits for the sender to close.
    fn end(&mut self, connection: &Connection, reports: &SendFlow) -> Result<(), Error> {
        let Some(stream) = self.stream.take() else { return Ok(()) };
        let before = stream.before;
        let counts = stream.sink.finish()?;
        let report = Report { is_final: true, ..with_counts(before, counts) };
        send(reports, &report);
        reports.finish();
        let end = Instant::now() + SENDER_TIMEOUT;
        while Instant::now() < end && connection.closed(STEP).is_none() && !self.is_stopped() {}
        self.emit(ReceiverEvent::StreamEnded(&report))
    }
}

/// Sends a report, or skips it if the send queue is full: the next one has the sums, too.
fn send(reports: &SendFlow, report: &Report) {
    if let Ok(text) = serde_json::to_vec(report) {
        let _ = reports.send_within(Message::from(bytes::Bytes::from(text)), Wall::ZERO);
    }
}

/// A report of `before` plus the statistics of the current flow.
fn with_flow(before: Report, now: &ReceiveStatistics) -> Report {
    Report {
        units: before.units + now.units,
        bytes: before.bytes + now.bytes,
        late_units: before.late_units + now.late,
        dropped_units: before.dropped_units + now.dropped,
        mean_delay_s: now.delay.mean().as_secs_f64(),
        max_delay_s: before.max_delay_s.max(now.delay.max.as_secs_f64()),
        ..before
    }
}

/// Sets the datagram counters of a report.
fn with_counts(report: Report, counts: Counts) -> Report {
    Report {
        whole_datagrams: counts.whole,
        damaged_datagrams: counts.damaged,
        missing_datagrams: counts.missing(),
        ..report
    }
}
