//! Sends a stream to one receiver, connecting again when a connection is lost.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::{Bytes, Duration, Rate};
use ontempo_media::Codings;
use ontempo_transport::live::{self, Options};
use ontempo_transport::{
    CloseReason, Closed, ConnectionStatistics, DeliveryOrder, FlowConfig, Reliability,
    SendStatistics, Token, Trust,
};

use crate::backlog::{Backlog, Next, Overflow};
use crate::connection::{OutgoingMessage, Session};
use crate::error::Error;
use crate::file::{FileLabel, SourceFile};
use crate::following::Following;
use crate::latency::{self, Latency, ShortLatency, StreamLatency};
use crate::message::Label;
use crate::paths::{PathEvent, PathFigures};
use crate::sink::order_of_units;
use crate::source::Source;
use crate::stream_name::{StreamName, with_name};
use crate::totals::SenderTotals;

/// Maximum time of one blocking call, after which events and `stop` are polled.
pub(crate) const STEP: Wall = Wall::from_millis(50);

/// Time limit for the receiver's final report, beyond the target latency, unless reliability is
/// full.
pub(crate) const FINAL_REPORT_TIMEOUT: Wall = Wall::from_secs(5);

/// Time limit for queued units after `stop`.
pub(crate) const STOP_TIMEOUT: Wall = Wall::from_secs(2);

/// Interval of [`SenderEvent::Progress`].
pub(crate) const PROGRESS: Wall = Wall::from_secs(1);

/// Options of a [`Sender`].
#[derive(Clone, Debug)]
pub struct SenderOptions {
    /// The receiver's address.
    pub remote: SocketAddr,
    /// The name in its certificate, if `trust` checks names.
    pub name: String,
    /// How the receiver's certificate is verified.
    pub trust: Trust,
    /// The secret that the receiver requires.
    pub token: Token,
    /// Options of the connection; see [`configuration`](crate::configuration).
    pub transport: Options,
    /// Target time from a datagram's arrival at the sender to its departure from the receiver,
    /// without the fastest transit between them; `None`: [by the round trip](crate::latency) that
    /// the first connection measures.
    pub latency: Option<Duration>,
    /// How much longer than the latency units live, and the receiver waits for what is missing; not with
    /// reliability `None`.
    pub grace: Duration,
    /// The delivery order of units.
    pub order: DeliveryOrder,
    /// Whether, and for how long, lost packets are sent again.
    pub reliability: Reliability,
    /// The stream's name at a relay; `None`: the one without a name.
    pub stream: Option<StreamName>,
    /// The units are those of a [`Feed::elementary`](crate::Feed::elementary), coded in this way.
    pub elementary: Option<Codings>,
    /// After a connection is lost, how long to try to connect again.
    pub give_up: Wall,
    /// Set by another thread or a signal handler: ends the source, sends queued units for at most
    /// 2 s, and returns.
    pub stop: Arc<AtomicBool>,
}

/// Events of a [`Sender`].
#[derive(Debug)]
#[non_exhaustive]
pub enum SenderEvent<'a> {
    /// A connection is established.
    Connected {
        /// False for the first one.
        again: bool,
    },
    /// The latency is fixed; not with full reliability, where nothing is timed.
    Latency(StreamLatency),
    /// The latency holds no repair on this connection's path; once for each connection.
    LatencyTooShort(ShortLatency),
    /// The receiver has another sender, or no place left, as it says. One that is gone may still have it: this is
    /// tried again for so long at most. Once.
    Occupied(&'a Closed, Wall),
    /// The connection was lost; the sender tries to connect again.
    Lost(&'a Closed),
    /// A stream goes on over a new connection: how long nothing came of the receiver.
    Returned(Duration),
    /// A file is sent.
    File {
        /// Bytes that the receiver has.
        from: u64,
        /// Bytes that it had of another file, or of another state of this one.
        discarded: u64,
        /// All bytes.
        length: u64,
    },
    /// The source is faster than the network: units dropped since the last such event.
    Overflow(Overflow),
    /// The receiver missed the target latency or lost data; a sentence with figures.
    Missed(String),
    /// All units have arrived; the sender waits until the receiver has written them.
    Waiting,
    /// All units have arrived, but no final report.
    Unreported,
    /// The bit rate that an encoder may have on this path: known, or changed by 5 % or more since the
    /// last such event. It falls at once and rises slowly.
    Target(Rate),
    /// Of a stream over several paths: what happens to one.
    Path(PathEvent),
    /// Of a stream over several paths: figures of each, once a second before [`Progress`](Self::Progress),
    /// and at its end.
    Paths(&'a [PathFigures]),
    /// Statistics, once a second.
    Progress(&'a SenderTotals, &'a ConnectionStatistics),
}

/// Receives the events of a sender.
pub trait SenderHandler {
    /// Called for each event; `Break` ends the sender with [`Error::Handler`].
    fn on_event(&mut self, event: SenderEvent<'_>) -> ControlFlow<()>;
}

impl<F: FnMut(SenderEvent<'_>) -> ControlFlow<()>> SenderHandler for F {
    fn on_event(&mut self, event: SenderEvent<'_>) -> ControlFlow<()> {
        self(event)
    }
}

/// How a connection ended.
pub(crate) enum Ended {
    /// All units have arrived, and the receiver has sent its final report.
    Done,
    /// The connection was closed or lost.
    Lost(Closed),
}

/// What came of [`Sender::send_next`].
pub(crate) enum Turn {
    GoesOn,
    /// Nothing is left to send.
    Ended,
    Lost(Closed),
}

/// Whether two rates differ by 5 % or more.
fn differs(last: Rate, now: Rate) -> bool {
    let (last, now) = (last.as_bits_per_sec(), now.as_bits_per_sec());
    last.abs_diff(now) >= last / 20
}

/// What to do about a path that bears less than the stream needs; empty if it bears that.
fn advice(target: Option<Rate>, need: Rate) -> String {
    let megabits = |rate: Rate| rate.as_bits_per_sec() as f64 / 1e6;
    match target.filter(|target| *target < need) {
        Some(target) => format!(
            "; the path bears {:.1} Mbit/s, the stream needs {:.1}: lower the encoder's bit rate",
            megabits(target),
            megabits(need)
        ),
        None => String::new(),
    }
}

/// Sends a stream to one receiver.
pub struct Sender<H> {
    pub(crate) options: SenderOptions,
    label: Label,
    pub(crate) latency: Latency,
    pub(crate) backlog: Arc<Backlog>,
    source: Source,
    handler: H,
    /// Messages to be sent before those of the backlog: left over from a lost connection.
    unsent: VecDeque<OutgoingMessage>,
    source_ended: bool,
    /// Why the source failed; a sentence.
    failed: Option<String>,
    /// The highest number of a datagram so far plus 1.
    pub(crate) datagrams: u64,
    /// The end of the stream has been queued for the current connection.
    is_end_queued: bool,
    /// When `stop` was noticed.
    stopped_at: Option<Instant>,
    progress_due: Instant,
    target_due: Instant,
    following: Following,
    /// The last [`SenderEvent::Target`].
    target: Option<Rate>,
    /// Sums over earlier connections.
    pub(crate) before: SendStatistics,
    pub(crate) now: SendStatistics,
    pub(crate) totals: SenderTotals,
    first: Option<Session>,
    /// A receiver has taken the stream.
    was_taken: bool,
    /// When a receiver refused it first because it has another.
    pub(crate) occupied_at: Option<Instant>,
    /// The file that is sent, unless the receiver wants a stream.
    pub(crate) file: Option<Box<SourceFile>>,
    /// When the last packet of the receiver came, and the last round trip known.
    pub(crate) heard: Instant,
    pub(crate) round_trip: Option<Duration>,
}

impl<H: SenderHandler> Sender<H> {
    /// Connects to the receiver, to send the units that `source` queues in `backlog`.
    ///
    /// # Errors
    /// The connection failed.
    pub fn connect(
        options: SenderOptions,
        backlog: Arc<Backlog>,
        source: Source,
        handler: H,
    ) -> Result<Self, Error> {
        let session = u128::from(ontempo_udp::random()) << 64 | u128::from(ontempo_udp::random());
        let latency = Latency::new(options.latency, options.reliability);
        let elementary = options.elementary;
        let label = Label { elementary, ..Label::of(session, latency.get(), options.grace) };
        let (source, file) = match source {
            Source::File(file) => (Source::Stream, Some(file)),
            source => (source, None),
        };
        let mut sender = Self {
            file,
            heard: Instant::now(),
            round_trip: None,
            options,
            label,
            latency,
            backlog,
            source,
            handler,
            unsent: VecDeque::new(),
            source_ended: false,
            failed: None,
            datagrams: 0,
            is_end_queued: false,
            stopped_at: None,
            progress_due: Instant::now() + PROGRESS,
            target_due: Instant::now(),
            following: Following::default(),
            target: None,
            before: SendStatistics::default(),
            now: SendStatistics::default(),
            totals: SenderTotals::default(),
            first: None,
            was_taken: false,
            occupied_at: None,
        };
        sender.first = Some(sender.connect_first(0)?);
        Ok(sender)
    }

    /// Sends until the source ends or `stop` is set. When the connection is lost, it connects
    /// again.
    ///
    /// # Errors
    /// The source failed, the receiver ended the stream or cannot be reached again, the handler
    /// returned `Break`, or, with full reliability and a source that can wait, the receiver did not
    /// deliver the stream whole.
    pub fn run(&mut self) -> Result<(), Error> {
        let mut session = self.first.take();
        if session.is_some() {
            self.emit(SenderEvent::Connected { again: false })?;
            if let Some(latency) = self.latency.stream() {
                self.emit(SenderEvent::Latency(latency))?;
            }
        }
        while let Some(mut current) = session.take() {
            let ended = self.send_all(&mut current);
            self.was_taken |= current.is_taken();
            if self.was_taken || self.options.reliability != Reliability::Full {
                self.add_to_totals(&mut current);
            } else {
                // All of it is sent again, unless that was the end.
                self.now = SendStatistics::default();
            }
            match ended? {
                Ended::Done => {
                    current.close("done");
                    return self.check_whole();
                }
                Ended::Lost(closed) => {
                    let mut unsent = current.take_unsettled();
                    unsent.append(&mut self.unsent);
                    self.unsent = unsent;
                    self.is_end_queued = false;
                    current.close("lost");
                    // What came with the end has been read by now.
                    self.note_report(&current);
                    if closed.reason == CloseReason::Busy && !self.was_taken {
                        session = Some(self.await_place(closed)?);
                        continue;
                    }
                    if closed.reason.is_final() {
                        return Err(Error::EndedByReceiver(closed));
                    }
                    self.emit(SenderEvent::Lost(&closed))?;
                    session = self.reconnect(closed.reason)?;
                }
            }
        }
        Ok(())
    }

    /// # Errors
    /// The source failed, or the receiver did not deliver whole what had to be.
    fn check_whole(&mut self) -> Result<(), Error> {
        if let Some(error) = self.failed.take() {
            return Err(Error::Source(error));
        }
        if let Some(file) = self.file.take() {
            let (length, has) = (file.offer.length, self.totals.report.bytes);
            if !self.is_stopped() && (!self.totals.report.is_final || has != length) {
                let missing = length.saturating_sub(has);
                let sentence = format!("the receiver lacks {missing} of {length} bytes");
                return Err(Error::Incomplete(sentence));
            }
            return Ok(());
        }
        let is_to_be_whole = self.options.reliability == Reliability::Full
            && !self.backlog.is_live()
            && !self.is_stopped();
        let (all, missing) = self.totals.lacking(self.datagrams);
        if !is_to_be_whole || missing == 0 {
            return Ok(());
        }
        Err(Error::Incomplete(match self.totals.viewers {
            Some(_) => format!("the median viewer lacks {missing} of {all} datagrams"),
            None => format!(
                "the receiver did not deliver {missing} of {all} datagrams: it lost them, or was \
                 started anew after it had acknowledged them"
            ),
        }))
    }

    /// The end of the stream, for a receiver that is to deliver it whole.
    fn queue_end(&mut self) {
        self.is_end_queued = true;
        if self.options.reliability == Reliability::Full {
            let is_cut_short =
                self.failed.is_some() || self.is_stopped() && !self.backlog.is_live();
            self.unsent.push_back(OutgoingMessage::end(self.datagrams, !is_cut_short));
        }
    }

    /// True once `stop` has been noticed.
    pub fn is_stopped(&self) -> bool {
        self.stopped_at.is_some()
    }

    /// The event handler.
    pub fn handler(&mut self) -> &mut H {
        &mut self.handler
    }

    pub(crate) fn emit(&mut self, event: SenderEvent<'_>) -> Result<(), Error> {
        match self.handler.on_event(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Handler),
        }
    }

    pub(crate) fn open_over(
        &mut self,
        connection: live::Connection,
        before: u64,
    ) -> Result<Session, live::Error> {
        self.following.restart();
        let latency = self.latency.fix(&connection);
        let opened = self.backlog.clock().now();
        let label = Label { before, latency, opened, ..self.label };
        let label = match &self.file {
            Some(file) => FileLabel { label, offer: file.offer }.to_string(),
            None => label.to_string(),
        };
        let label = with_name(label, self.options.stream.as_ref());
        let reliability = self.options.reliability;
        let order = order_of_units(reliability, self.options.order);
        let lifetime = latency::lifetime(reliability, latency, self.options.grace);
        Session::open(connection, FlowConfig { order, reliability, label }, lifetime)
    }

    /// Sends the file or the stream over a connection.
    fn send_all(&mut self, session: &mut Session) -> Result<Ended, Error> {
        if let Some(file) = self.file.take() {
            let sent = self.send_file_over(&file, session);
            if let Some(ended) = sent? {
                self.file = Some(file);
                return Ok(ended);
            }
            let SourceFile { file, name, .. } = *file;
            let started = Source::bytes(file, &name, &self.backlog, false);
            self.source = started.map_err(|error| Error::Source(error.to_string()))?;
        }
        self.send_over(session)
    }

    /// Sends over a connection until it is lost or the stream has ended.
    fn send_over(&mut self, session: &mut Session) -> Result<Ended, Error> {
        loop {
            self.poll(session)?;
            if let Some(closed) = session.connection.is_closed() {
                return Ok(Ended::Lost(closed));
            }
            match self.send_next(session, STEP)? {
                Turn::Lost(closed) => return Ok(Ended::Lost(closed)),
                Turn::Ended => return self.finish(session),
                Turn::GoesOn if self.stop_timed_out() => return self.finish(session),
                Turn::GoesOn => {}
            }
        }
    }

    /// Sends what is next, for which it waits at most `limit`.
    pub(crate) fn send_next(&mut self, session: &mut Session, limit: Wall) -> Result<Turn, Error> {
        self.datagrams = self.datagrams.max(self.backlog.taken());
        let message = match self.unsent.pop_front() {
            Some(message) => message,
            None if self.source_ended && !self.is_end_queued => {
                self.queue_end();
                return Ok(Turn::GoesOn);
            }
            None if self.source_ended => return Ok(Turn::Ended),
            None => match self.backlog.next_beside(limit, || session.taker()) {
                Next::Unit(queued) => {
                    self.datagrams = self.datagrams.max(queued.next_datagram());
                    OutgoingMessage::media(&queued)
                }
                Next::Gap(datagrams) => OutgoingMessage::gap(&datagrams),
                Next::TimedOut => return Ok(Turn::GoesOn),
                Next::End => {
                    self.source_ended = true;
                    return Ok(Turn::GoesOn);
                }
                Next::Failed(error) => {
                    (self.source_ended, self.failed) = (true, Some(error));
                    return Ok(Turn::GoesOn);
                }
            },
        };
        match session.send(message, limit) {
            Ok(None) => {}
            Ok(Some(message)) => self.unsent.push_front(message),
            Err(failed) => {
                let (error, message) = *failed;
                self.unsent.push_front(message);
                let live::Error::Closed(closed) = error else { return Err(error.into()) };
                return Ok(Turn::Lost(closed));
            }
        }
        Ok(Turn::GoesOn)
    }

    /// Finishes the flow, then waits until all units have arrived and for the final report.
    pub(crate) fn finish(&mut self, session: &mut Session) -> Result<Ended, Error> {
        session.finish();
        loop {
            match session.settled(STEP) {
                Some(Ok(_)) => break,
                Some(Err(live::Error::Closed(closed))) => return Ok(Ended::Lost(closed)),
                Some(Err(error)) => return Err(error.into()),
                None if self.stop_timed_out() => return Ok(Ended::Done),
                None => self.poll(session)?,
            }
        }
        self.await_final_report(session)
    }

    /// Waits for the receiver's final report. With full reliability there is no time limit while
    /// the connection is open: units may wait at the receiver for a slow player, and closing would
    /// lose them.
    fn await_final_report(&mut self, session: &mut Session) -> Result<Ended, Error> {
        let latency = Wall::from_nanos(self.latency.get().as_nanos());
        let (since, mut is_reported) = (Instant::now(), false);
        while !session.report().is_some_and(|report| report.is_final) {
            if let Some(closed) = session.connection.is_closed() {
                return Ok(Ended::Lost(closed));
            }
            let is_overdue = since.elapsed() > latency + FINAL_REPORT_TIMEOUT;
            let gives_up = is_overdue && self.options.reliability != Reliability::Full;
            if gives_up || self.stop_timed_out() {
                self.emit(SenderEvent::Unreported)?;
                break;
            }
            if is_overdue && !is_reported {
                is_reported = true;
                self.emit(SenderEvent::Waiting)?;
            }
            self.poll(session)?;
            std::thread::sleep(Wall::from_millis(5));
        }
        Ok(Ended::Done)
    }

    pub(crate) fn stop_timed_out(&self) -> bool {
        self.stopped_at.is_some_and(|at| at.elapsed() > STOP_TIMEOUT)
    }

    pub(crate) fn check_stop(&mut self) -> bool {
        if self.options.stop.load(Ordering::Relaxed) && self.stopped_at.is_none() {
            self.stopped_at = Some(Instant::now());
            self.source.end(&self.backlog);
        }
        self.stopped_at.is_some()
    }

    /// Polls `stop`, the statistics and the receiver's report; emits events.
    pub(crate) fn poll(&mut self, session: &mut Session) -> Result<(), Error> {
        self.check_stop();
        let now = Instant::now();
        if now >= self.target_due {
            self.target_due = now + STEP;
            self.poll_target(session)?;
        }
        if now < self.progress_due {
            return Ok(());
        }
        self.progress_due = Instant::now() + PROGRESS;
        self.emit_overflow()?;
        let before = self.now.bytes;
        if let Some(statistics) = session.statistics() {
            self.now = statistics;
        }
        let sent = Bytes::new(self.now.bytes.saturating_sub(before));
        let need = Rate::of(sent, Duration::from_nanos(PROGRESS.as_nanos() as u64));
        if let Some(report) = session.report() {
            self.note_restart(session, &report);
            if let Some(missed) = report.missed(&self.totals.report, self.latency.get()) {
                let advice = advice(self.target, need);
                self.emit(SenderEvent::Missed(missed + &advice))?;
            }
            self.totals.report = report;
            self.totals.viewers = session.viewers();
        }
        let Some(connection) = session.connection.statistics() else { return Ok(()) };
        if let Some(short) = self.latency.check(&connection) {
            self.emit(SenderEvent::LatencyTooShort(short))?;
        }
        let connection =
            ConnectionStatistics { target: self.target.or(connection.target), ..connection };
        let totals = self.totals();
        self.emit(SenderEvent::Progress(&totals, &connection))
    }

    /// An encoder has to know of a path that bears less before a queue has grown, and of a lost one it is to
    /// be known since when.
    fn poll_target(&mut self, session: &Session) -> Result<(), Error> {
        let Some(over) = session.connection.statistics() else { return Ok(()) };
        self.note_heard(session, &over);
        if let Some(round_trip) = over.round_trip {
            session.allow(latency::patience(self.latency.get(), round_trip));
        }
        let target = self.following.update(Instant::now(), &over);
        match target.filter(|now| self.target.is_none_or(|last| differs(last, *now))) {
            Some(target) => {
                self.target = Some(target);
                self.emit(SenderEvent::Target(target))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn emit_overflow(&mut self) -> Result<(), Error> {
        match self.backlog.overflow_since(&mut self.totals.overflow) {
            Some(overflow) => self.emit(SenderEvent::Overflow(overflow)),
            None => Ok(()),
        }
    }
}
