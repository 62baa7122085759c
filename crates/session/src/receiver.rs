//! Receives streams, one at a time; a sender may connect again when a connection is lost.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Duration;
use ontempo_media::Codings;
use ontempo_transport::live::{Connection, Listener, ReceiveFlow, SendFlow};
use ontempo_transport::{CloseReason, Delivery, FlowConfig, ReceiveStatistics, Reliability};

use crate::calling::{Call, Calling};
use crate::error::Error;
use crate::file::{Digest, Offer, PartFile, Reply, Transfer};
use crate::flowing::{Delays, Flowing};
use crate::message::{Content, Label, LabelError, Report, read};
use crate::paths::{Joined, ReceivedPath};
use crate::reporting::{send, with_counts, with_flow};
use crate::sink::{Sink, Target};
use crate::takeover::{Contender, Entrance, labels};

/// Interval of polling `stop`, and of polling the listener while a stream is received.
pub(crate) const STEP: Wall = Wall::from_millis(50);

/// Time limit for a sender to open its flow, and to close after the end of the stream.
pub(crate) const SENDER_TIMEOUT: Wall = Wall::from_secs(5);

/// Maximum units received over a connection that the sender has replaced: more than a flow holds.
const MAX_REST: usize = 8_192;

const ANOTHER_SOURCE: &str =
    "another source sends the stream now: the end of what the first has sent is missing";

/// Interval of receiver reports and of [`ReceiverEvent::Progress`].
pub(crate) const PROGRESS: Wall = Wall::from_secs(1);

/// Options of a [`Receiver`].
#[derive(Clone, Debug, Default)]
pub struct ReceiverOptions {
    /// Target time from a datagram's arrival at the sender to its departure from the receiver; if
    /// `None`, the sender's.
    pub latency: Option<Duration>,
    /// Receive one stream, and return after it. Only its sender may connect again, as it alone knows
    /// the number in its [`Label`]; others are refused. With full reliability, a stream that is
    /// not delivered whole is an error.
    pub once: bool,
    /// With `once`: how long to wait for the stream's sender after its connection is lost; `None`:
    /// for ever. Without `once` any sender may follow.
    pub give_up: Option<Wall>,
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
    /// The relay has not answered, with the reason; it is called again, until [`Call::give_up`] is over.
    Unanswered(String),
    /// The relay at this address has answered, and has no such stream yet: it is waited for.
    Waiting(SocketAddr),
    /// A stream is received on a connection from this address.
    Receiving(SocketAddr),
    /// A stream begins that is written in time: its latency, and that of its sender. Not with full
    /// reliability, where each datagram is written as soon as it can be.
    Latency {
        /// From a datagram's arrival at the sender to its departure, without the fastest transit.
        latency: Duration,
        /// The sender's, and so the deadline of units.
        of_sender: Duration,
        /// How much later what was missing when it was due may be.
        grace: Duration,
    },
    /// A stream over several paths is received on this one, too.
    ReceivingPath {
        /// Its number at the sender.
        path: usize,
        /// From this address.
        remote: SocketAddr,
    },
    /// A path of a stream was lost, that from this address, with the reason; it may come again.
    LostPath(SocketAddr, String),
    /// Figures of the paths of a stream over several, before [`Flowing`](Self::Flowing).
    Paths(&'a [ReceivedPath]),
    /// What flows, once a second, before [`Progress`](Self::Progress).
    Flowing(&'a Flowing),
    /// The connection from this address was lost, with the reason; the sender may connect again.
    Lost(SocketAddr, String),
    /// A file is received.
    File {
        /// Bytes that are there of an earlier transfer.
        from: u64,
        /// Bytes that were there of another file, or of another state of this one.
        discarded: u64,
        /// All bytes.
        length: u64,
    },
    /// A file has arrived whole, was verified and has its name.
    FileReceived {
        /// Its length.
        bytes: u64,
        /// Its SHA-256.
        digest: Digest,
    },
    /// A unit is not a valid message; the error sentence.
    Unreadable(String),
    /// The target latency was missed, data lost or datagrams not sent to their target; a sentence with
    /// figures.
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

    /// Opens the file for a sender's file; `None` if the target is no regular file: the sender then
    /// sends a stream.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    fn open_file(&mut self, _offer: Offer) -> Result<Option<PartFile>, String> {
        Ok(None)
    }

    /// Whether the target takes frames of elementary streams: asked before they are opened. The datagrams of one
    /// are [`ElementaryDatagram`](ontempo_media::ElementaryDatagram)s, those of several have the
    /// [number](ontempo_media::split_number) of their stream in front, and are for a [`Target::Taker`] alone.
    ///
    /// # Errors
    /// A sentence: why not. Its sender is refused; without another, of a relay, [`Receiver::run`] fails.
    fn take_elementary(&mut self, codings: Codings) -> Result<(), String> {
        Err(format!("only MPEG-TS and RTP are taken here, not {codings}"))
    }

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
pub(crate) struct Stream {
    pub(crate) label: Label,
    pub(crate) latency: Duration,
    pub(crate) sink: Sink,
    /// Sums over earlier connections.
    pub(crate) before: Report,
    pub(crate) last_report: Report,
    /// It is to be delivered whole.
    pub(crate) is_reliable: bool,
    /// The sender has ended it before the end of its source.
    pub(crate) is_cut_short: bool,
    /// Since when no connection carries it.
    pub(crate) lost_at: Option<Instant>,
}

impl Stream {
    /// Its latency, if it is written in time.
    pub(crate) fn latency(&self) -> Option<Duration> {
        (!self.is_reliable).then_some(self.latency)
    }

    /// Keeps the report as the last one; sentences on what was missed since the one before.
    pub(crate) fn missed(&mut self, report: Report) -> impl Iterator<Item = String> + use<> {
        let missed = report.missed(&self.last_report, self.latency);
        self.last_report = report;
        missed.into_iter().chain(self.sink.unsent())
    }
}

/// How a connection ended.
pub(crate) enum Ended {
    /// The flow has been received to its end.
    Complete,
    /// The connection was lost, with the reason; the sender may connect again.
    Lost(String),
    /// The sender has connected again before the old connection was known to be lost.
    Replaced(Connection, ReceiveFlow),
    /// The sender is not the one of the stream that is being received.
    Refused,
    /// `stop` was set, and the sender was notified.
    Stopped,
}

/// Receives streams of [`Sender`](crate::Sender)s.
pub struct Receiver<H> {
    pub(crate) entrance: Entrance,
    /// The flow of reports of a connection that was called, until its stream is received.
    pub(crate) reports: Option<SendFlow>,
    pub(crate) options: ReceiverOptions,
    pub(crate) handler: H,
    pub(crate) stream: Option<Stream>,
    pub(crate) file: Option<Transfer>,
    pub(crate) contender: Option<Contender>,
    /// When a sender has taken the place of another last; before, since when this receives.
    pub(crate) held_at: Instant,
    /// What has come of a stream over several paths.
    pub(crate) joined: Joined,
    /// The last stream over several paths that has ended.
    pub(crate) ended_session: Option<u128>,
    pub(crate) delays: Delays,
    /// Connections whose sender has not opened its flow yet.
    pub(crate) waiting: Vec<(Connection, Instant)>,
    /// Connections whose sender has, which are the next.
    pub(crate) found: VecDeque<(Connection, ReceiveFlow)>,
    pub(crate) polled_at: Instant,
    pub(crate) progress_due: Instant,
}

impl<H: ReceiverHandler> Receiver<H> {
    /// A receiver at `listener`, which should have been bound with
    /// [`configuration`](crate::configuration).
    pub fn new(listener: Listener, options: ReceiverOptions, handler: H) -> Self {
        Self::at(Entrance::Listener(listener), options, handler)
    }

    /// A receiver that calls a relay.
    pub fn calling(call: Call, options: ReceiverOptions, handler: H) -> Self {
        Self::at(Entrance::Calling(Box::new(Calling::new(call))), options, handler)
    }

    fn at(entrance: Entrance, options: ReceiverOptions, handler: H) -> Self {
        let (waiting, now) = (Vec::new(), Instant::now());
        let progress_due = now + PROGRESS;
        let (stream, file, contender, reports) = (None, None, None, None);
        Self {
            entrance,
            reports,
            options,
            handler,
            stream,
            file,
            contender,
            held_at: now,
            joined: Joined::new(),
            ended_session: None,
            delays: Delays::default(),
            waiting,
            found: VecDeque::new(),
            polled_at: now,
            progress_due,
        }
    }

    /// Receives until `stop` is set or, with [`ReceiverOptions::once`], until the first stream has
    /// ended.
    ///
    /// # Errors
    /// The target cannot be opened or written to, the handler returned `Break`, or, with
    /// [`ReceiverOptions::once`], the stream is not delivered whole.
    pub fn run(&mut self) -> Result<Outcome, Error> {
        let mut next = None;
        loop {
            let (connection, flow) = match next.take() {
                Some(next) => next,
                None if self.is_stopped() => return self.stopped(&[]),
                None => match self.next_sender()? {
                    Some(found) => found,
                    None => {
                        self.write_due()?;
                        self.check_give_up()?;
                        continue;
                    }
                },
            };
            if let Ok(label) = flow.config().label.parse() {
                match self.receive_paths(connection, flow, label)? {
                    Ended::Complete if self.options.once => return Ok(Outcome::StreamEnded),
                    Ended::Replaced(connection, flow) => next = Some((connection, flow)),
                    Ended::Stopped => return Ok(Outcome::Stopped { midstream: true }),
                    _ => {}
                }
                continue;
            }
            let flow = Arc::new(flow);
            let ended = self.receive_over(&connection, &flow);
            if let Entrance::Calling(calling) = &mut self.entrance {
                calling.call_later();
            }
            match ended {
                Ok(Ended::Complete) if self.options.once => return Ok(Outcome::StreamEnded),
                Ok(Ended::Complete | Ended::Refused) => {}
                Ok(Ended::Stopped) => return Ok(Outcome::Stopped { midstream: true }),
                Ok(Ended::Lost(reason)) => {
                    if let Some(stream) = &mut self.stream {
                        stream.lost_at = Some(Instant::now());
                    }
                    if let Some(file) = &mut self.file {
                        file.lost_at = Some(Instant::now());
                    }
                    self.emit(ReceiverEvent::Lost(connection.remote(), reason))?;
                }
                Ok(Ended::Replaced(connection, flow)) => next = Some((connection, flow)),
                Err(error) => {
                    let sentence = match &error {
                        Error::Incomplete(sentence) => sentence.as_str(),
                        _ => "it cannot write what it receives",
                    };
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

    pub(crate) fn is_stopped(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn emit(&mut self, event: ReceiverEvent<'_>) -> Result<(), Error> {
        match self.handler.on_event(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Handler),
        }
    }

    /// Receives a connection's flow to its end.
    fn receive_over(
        &mut self,
        connection: &Connection,
        flow: &Arc<ReceiveFlow>,
    ) -> Result<Ended, Error> {
        let (label, offer) = match labels(&flow.config().label) {
            Ok(labels) => labels,
            Err(error) => {
                connection.close_with(CloseReason::Unsupported, &error.to_string());
                let reason = match error {
                    LabelError::NotMedia => "it is not ontempo send".to_owned(),
                    LabelError::Version(_) | LabelError::Coding => error.to_string(),
                };
                return Ok(Ended::Lost(reason));
            }
        };
        let is_known =
            self.stream.as_ref().is_some_and(|stream| stream.label.session == label.session);
        if self.is_of_another(label, offer, is_known) {
            if matches!(self.entrance, Entrance::Calling(_)) {
                // A relay has one source of a stream: that of what was received will not come back.
                self.stopped(&[])?;
                return Err(Error::Incomplete(ANOTHER_SOURCE.to_owned()));
            }
            self.refuse(connection, "the stream of another sender has not ended")?;
            return Ok(Ended::Refused);
        }
        if !is_known && !self.takes(connection, label)? {
            return Ok(Ended::Refused);
        }
        if let Some(offer) = offer
            && !is_known
            && self.begin_file(label.session, offer)?
        {
            return self.receive_file(connection, flow);
        }
        if !is_known {
            self.begin_stream(label, flow.config())?;
        }
        if let Some(stream) = &mut self.stream {
            stream.lost_at = None;
        }
        self.emit(ReceiverEvent::Receiving(connection.remote()))?;
        if !is_known {
            self.emit_latency(label.latency)?;
        }
        let reports = match self.flow_of_reports(connection) {
            Ok(reports) => reports,
            Err(error) => return Ok(Ended::Lost(error.to_string())),
        };
        if offer.is_some() {
            send(&reports, &Reply::Stream);
        }
        let ended = self.receive_all(connection, flow, &reports)?;
        if let Some(stream) = &mut self.stream {
            let last = flow.statistics();
            stream.before = last.map_or(stream.last_report, |last| with_flow(stream.before, &last));
        }
        match ended {
            Ended::Complete => self.end(connection, &[&reports])?,
            Ended::Stopped => drop(self.stopped(&[(connection, &reports)])?),
            _ => {}
        }
        Ok(ended)
    }

    /// Opens the target of a stream that is not known.
    pub(crate) fn begin_stream(&mut self, label: Label, config: &FlowConfig) -> Result<(), Error> {
        self.end_replaced()?;
        let is_reliable = config.reliability == Reliability::Full;
        let is_midway = label.before > 0;
        if self.options.once && is_reliable && is_midway {
            return Err(Error::Incomplete(
                "the stream began before this receiver was started, which lacks its beginning: \
                 send it again"
                    .to_owned(),
            ));
        }
        let latency = self.options.latency.unwrap_or(label.latency);
        let target = self.handler.open().map_err(Error::Target)?;
        let stop = &self.options.stop;
        let sink = Sink::open(target, config, &label, latency, stop)?;
        let (before, last_report) = (Report::default(), Report::default());
        let (is_cut_short, lost_at) = (false, None);
        self.stream = Some(Stream {
            label,
            latency,
            sink,
            before,
            last_report,
            is_reliable,
            is_cut_short,
            lost_at,
        });
        Ok(())
    }

    pub(crate) fn emit_latency(&mut self, of_sender: Duration) -> Result<(), Error> {
        let Some(stream) = &self.stream else { return Ok(()) };
        let grace = stream.label.grace;
        match stream.latency() {
            Some(latency) => self.emit(ReceiverEvent::Latency { latency, of_sender, grace }),
            None => Ok(()),
        }
    }

    /// Ends a stream whose sender another has followed.
    fn end_replaced(&mut self) -> Result<(), Error> {
        let Some(stream) = self.stream.take() else { return Ok(()) };
        let report = with_counts(stream.before, stream.sink.give_way()?);
        self.emit(ReceiverEvent::StreamEnded(&report))
    }

    fn receive_all(
        &mut self,
        over: &Connection,
        flow: &Arc<ReceiveFlow>,
        reports: &SendFlow,
    ) -> Result<Ended, Error> {
        let is_attached = self.attach(over, flow);
        let ended = self.receive_until_end(over, flow, reports, is_attached);
        self.detach()?;
        ended
    }

    /// Until `is_attached` is over, the units are taken elsewhere.
    fn receive_until_end(
        &mut self,
        over: &Connection,
        flow: &ReceiveFlow,
        reports: &SendFlow,
        mut is_attached: bool,
    ) -> Result<Ended, Error> {
        let mut limit = Wall::ZERO;
        loop {
            if self.is_stopped() {
                return Ok(Ended::Stopped);
            }
            if let Some((connection, next)) = self.poll_listener(over, reports)? {
                self.detach()?;
                self.receive_rest(flow)?;
                return Ok(Ended::Replaced(connection, next));
            }
            if is_attached {
                if self.is_given_back(flow, STEP) {
                    self.detach()?;
                    is_attached = false;
                }
                self.take_notes()?;
            } else {
                let received = flow.receive_within(limit);
                let idle = received.is_none();
                match received {
                    None => {}
                    Some(Ok(Some(delivery))) => self.take(delivery)?,
                    Some(Ok(None)) => return Ok(Ended::Complete),
                    Some(Err(error)) => return Ok(Ended::Lost(error.to_string())),
                }
                // All ready units are received before a wait, and flushed before a longer one.
                let Some(stream) = &mut self.stream else { return Ok(Ended::Complete) };
                let wait = stream.sink.work(idle)?;
                limit = if idle { wait } else { Wall::ZERO };
            }
            if Instant::now() >= self.progress_due {
                self.progress_due = Instant::now() + PROGRESS;
                self.report(over, flow, reports)?;
            }
        }
    }

    /// Handles a unit.
    fn take(&mut self, delivery: Delivery) -> Result<(), Error> {
        let Delivery::Unit(unit) = delivery else { return Ok(()) };
        self.delays.count(&unit);
        self.take_message(read(unit.id, &unit.data))
    }

    /// Handles what a unit says.
    pub(crate) fn take_message(&mut self, content: Result<Content, String>) -> Result<(), Error> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        match content {
            Ok(Content::Unit(unit)) => stream.sink.push(unit),
            Ok(Content::Gap(datagrams)) => stream.sink.abandon(datagrams),
            Ok(Content::End { datagrams, is_whole }) => {
                stream.sink.end_at(datagrams);
                stream.is_cut_short = !is_whole;
                Ok(())
            }
            Err(error) => self.emit(ReceiverEvent::Unreadable(error)),
        }
    }

    /// Receives what has arrived over a connection that another replaces: it has been acknowledged,
    /// so that the sender does not send it again.
    fn receive_rest(&mut self, flow: &ReceiveFlow) -> Result<(), Error> {
        for _ in 0..MAX_REST {
            match flow.receive_within(STEP) {
                Some(Ok(Some(delivery))) if !self.is_stopped() => self.take(delivery)?,
                _ => break,
            }
            self.write_due()?;
        }
        Ok(())
    }

    /// Reports the statistics to the sender and the handler.
    fn report(
        &mut self,
        over: &Connection,
        flow: &ReceiveFlow,
        reports: &SendFlow,
    ) -> Result<(), Error> {
        let connection = over.statistics();
        if let Some(connection) = &connection {
            self.allow_patience(connection);
        }
        let (Some(stream), Some(now)) = (&mut self.stream, flow.statistics()) else {
            return Ok(());
        };
        let counts = stream.sink.counts();
        let flowing = Flowing {
            latency: stream.latency(),
            written_bytes: counts.bytes,
            connection,
            delays: self.delays,
        };
        let report = with_counts(with_flow(stream.before, &now), counts);
        for sentence in stream.missed(report) {
            self.emit(ReceiverEvent::Missed(sentence))?;
        }
        send(reports, &report);
        self.emit(ReceiverEvent::Flowing(&flowing))?;
        self.emit(ReceiverEvent::Progress(&report, &now))
    }
}
