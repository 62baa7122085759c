//! Sends a stream over several paths to one receiver.

mod closed;
mod reports;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Duration;
use ontempo_transport::live::{self, Caller, Connection, Options, Pending};
use ontempo_transport::{
    CloseReason, Configuration, ConnectionStatistics, DeliveryOrder, FlowConfig, Reliability,
};
use ontempo_udp::{Clock, any_for};

use super::{Group, MAX_PATHS, PathLabel, PathMode, STEP, Sample};
use crate::attempts::{Attempts, PLACES};
use crate::backlog::{Backlog, Next};
use crate::connection::{OutgoingMessage, Session};
use crate::error::Error;
use crate::latency::{self, StreamLatency};
use crate::message::Label;
use crate::sender::{
    FINAL_REPORT_TIMEOUT, PROGRESS, STOP_TIMEOUT, SenderEvent, SenderHandler, SenderOptions,
};
use crate::source::Source;
use crate::totals::SenderTotals;

/// How long the loop sleeps where queues are full.
const PAUSE: Wall = Wall::from_millis(2);

/// How long a unit of the source is waited for at a time.
const WAIT: Wall = Wall::from_millis(5);

/// Pause before a path is dialled again whose receiver has refused.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);

/// Beyond the time limit of a handshake, so that its error is known.
const MARGIN: Wall = Wall::from_millis(500);

/// How long the flows of paths that are there may take to settle at the end.
const SETTLE: Wall = Wall::from_secs(1);

/// A path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathAddress {
    /// The receiver's address on it.
    pub remote: SocketAddr,
    /// The address to send from; `None`: the system's choice.
    pub local: Option<SocketAddr>,
}

/// The paths of a [`PathSender`].
#[derive(Clone, Debug)]
pub struct PathOptions {
    /// How they are used.
    pub mode: PathMode,
    /// 1 to [`MAX_PATHS`]; with [`PathMode::Failover`] the preferred one first.
    pub paths: Vec<PathAddress>,
}

/// A path's connection.
struct Dial {
    address: PathAddress,
    caller: Caller,
    attempts: Option<Attempts<Pending>>,
    /// A connection without a flow yet.
    connection: Option<Connection>,
    session: Option<Session>,
    opened: u64,
    /// When it was opened last.
    opened_at: Option<Instant>,
    statistics: Option<ConnectionStatistics>,
}

impl Dial {
    fn new(address: PathAddress, clock: &Clock, options: &Options) -> Result<Self, live::Error> {
        let from = address.local.unwrap_or_else(|| any_for(address.remote));
        Ok(Self {
            address,
            caller: Caller::bind(from, options)?,
            attempts: Some(Attempts::new(clock.now(), None)),
            connection: None,
            session: None,
            opened: 0,
            opened_at: None,
            statistics: None,
        })
    }
}

/// Sends a stream over several paths, as [`Sender`](crate::Sender) does over one. A file is sent as a
/// stream.
pub struct PathSender<H> {
    options: SenderOptions,
    label: Label,
    latency: Option<Duration>,
    chosen: StreamLatency,
    backlog: Arc<Backlog>,
    source: Source,
    handler: H,
    clock: Clock,
    mode: PathMode,
    dials: Vec<Dial>,
    group: Group<OutgoingMessage>,
    unsent: VecDeque<OutgoingMessage>,
    source_ended: bool,
    failed: Option<String>,
    datagrams: u64,
    bytes: u64,
    is_end_queued: bool,
    stopped_at: Option<Instant>,
    look_due: Instant,
    progress_due: Instant,
    /// When a path was there last.
    there: Instant,
    /// When it began to send.
    began: Instant,
    /// A receiver has taken the stream.
    was_taken: bool,
    /// When a receiver said first that it has another sender.
    occupied_at: Option<Instant>,
    totals: SenderTotals,
    /// When the last report of the totals came.
    reported_at: Instant,
}

impl<H: SenderHandler> PathSender<H> {
    /// Connects over as many paths as answer, at least one, to send the units that `source` queues.
    /// `options.remote` and the order of delivery are of no meaning.
    ///
    /// # Errors
    /// No path has a connection, a local address cannot be used, or the receiver cannot be verified.
    pub fn connect(
        options: SenderOptions,
        paths: &PathOptions,
        backlog: Arc<Backlog>,
        source: Source,
        handler: H,
    ) -> Result<Self, Error> {
        let session = u128::from(ontempo_udp::random()) << 64 | u128::from(ontempo_udp::random());
        let mut transport = options.transport.clone();
        transport.configuration = Configuration {
            connections: PLACES,
            ..super::configuration(paths.mode, transport.configuration)
        };
        let clock = Clock::new();
        let all = paths.paths.iter().take(MAX_PATHS);
        let dials =
            all.map(|path| Dial::new(*path, &clock, &transport)).collect::<Result<Vec<_>, _>>()?;
        let source = match source {
            Source::File(file) => Source::bytes(file.file, &file.name, &backlog, false)
                .map_err(|error| Error::Source(error.to_string()))?,
            source => source,
        };
        let least =
            StreamLatency { latency: latency::LEAST, round_trip: None, takeover: Duration::ZERO };
        let mut sender = Self {
            label: Label {
                elementary: options.elementary,
                ..Label::of(session, least.latency, options.grace)
            },
            latency: options.latency,
            chosen: StreamLatency { latency: options.latency.unwrap_or_default(), ..least },
            options,
            backlog,
            source,
            handler,
            clock,
            mode: paths.mode,
            group: Group::new(paths.mode, dials.len()),
            dials,
            unsent: VecDeque::new(),
            source_ended: false,
            failed: None,
            datagrams: 0,
            bytes: 0,
            is_end_queued: false,
            stopped_at: None,
            look_due: Instant::now(),
            progress_due: Instant::now() + PROGRESS,
            there: Instant::now(),
            began: Instant::now(),
            was_taken: false,
            occupied_at: None,
            reported_at: Instant::now(),
            totals: SenderTotals::default(),
        };
        sender.begin()?;
        Ok(sender)
    }

    /// Waits for the first connection, and fixes the latency: where it is to be chosen, and with full reliability, the
    /// others are waited for, too.
    fn begin(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        let handshake = self.options.transport.configuration.handshake_timeout;
        let patience = Wall::from_nanos(handshake.as_nanos()) + MARGIN;
        let (mut first, mut error) = (None::<Instant>, None);
        let is_timed = self.options.reliability != Reliability::Full;
        loop {
            for path in 0..self.dials.len() {
                match self.dial(path) {
                    Err(refused) if refused.is_misconfigured() => return Err(refused.into()),
                    Err(refused) => error = Some(refused),
                    Ok(()) => {}
                }
            }
            let open = self.dials.iter().filter(|dial| dial.connection.is_some()).count();
            if open == 0 && (begun.elapsed() > patience || self.check_stop()) {
                let silent = || Error::Lost("no path answers".to_owned());
                return Err(error.map_or_else(silent, Error::from));
            }
            if open > 0 {
                let waited = since(*first.get_or_insert_with(Instant::now));
                if is_timed && self.latency.is_some() || self.is_measured(waited) {
                    break;
                }
            }
            std::thread::sleep(WAIT);
        }
        if is_timed && self.latency.is_none() {
            let of = |dial: &Dial| dial.connection.as_ref()?.statistics();
            let round_trips = self.dials.iter().filter_map(of);
            let longest = round_trips.filter_map(|of| latency::round_trip(&of)).max();
            let takeover = self.mode.allowance();
            let latency = longest.map_or(latency::LEAST, latency::chosen) + takeover;
            self.chosen = StreamLatency { latency, round_trip: longest, takeover };
            self.latency = Some(latency);
        }
        self.group.set_latency(self.latency.filter(|_| is_timed));
        self.began = Instant::now();
        for path in 0..self.dials.len() {
            self.open_flow(path)?;
        }
        Ok(())
    }

    /// Whether all paths are measured, or were waited for.
    fn is_measured(&self, waited: Duration) -> bool {
        let is_measured = |connection: &Connection| {
            let early = connection.began_early();
            let over = connection.statistics();
            over.is_some_and(|over| latency::is_measured(early, &over, waited))
        };
        self.dials.iter().all(|dial| dial.connection.as_ref().is_some_and(is_measured))
            || waited >= latency::MEASURED_FOR
    }

    /// Goes on with the attempts of a path.
    fn dial(&mut self, path: usize) -> Result<(), live::Error> {
        let now = self.clock.now();
        let dial = &mut self.dials[path];
        let Some(attempts) = &mut dial.attempts else { return Ok(()) };
        // Where one cannot be begun, another is due later.
        let _ = attempts.go_on(now, &dial.caller, (dial.address.remote, &self.options));
        match attempts.answered(false) {
            Some(Ok(connection)) => {
                (dial.connection, dial.attempts) = (Some(connection), None);
                Ok(())
            }
            Some(Err(refused)) => {
                let is_final = refused.close_reason().is_some_and(CloseReason::is_final);
                if is_final || refused.is_misconfigured() {
                    dial.attempts = Some(Attempts::new(now + REFUSED_PAUSE, None));
                }
                Err(refused)
            }
            None => Ok(()),
        }
    }

    fn lifetime(&self, latency: Duration) -> Duration {
        latency::lifetime(self.options.reliability, latency, self.options.grace)
    }

    fn open_flow(&mut self, path: usize) -> Result<(), Error> {
        let now = self.clock.now();
        let latency = self.latency.unwrap_or(latency::LEAST);
        let lifetime = self.lifetime(latency);
        // Where a path was lost, whichever, a receiver that knows nothing of the stream was started since.
        let opened: u64 = self.dials.iter().map(|dial| dial.opened).sum();
        let open = self.dials.iter().filter(|dial| dial.session.is_some()).count() as u64;
        let before = opened.saturating_sub(open);
        let dial = &mut self.dials[path];
        let Some(connection) = dial.connection.take() else { return Ok(()) };
        let opened = self.backlog.clock().now();
        let label = Label { before, latency, opened, ..self.label };
        let label = PathLabel { label, path }.to_string();
        let (order, reliability) = (DeliveryOrder::OutOfOrder, self.options.reliability);
        let config = FlowConfig { order, reliability, label };
        match Session::open(connection, config, lifetime) {
            Ok(session) => dial.session = Some(session),
            Err(live::Error::Closed(_)) => {
                dial.attempts = Some(Attempts::new(now, None));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        self.totals.reconnected += u64::from(dial.opened > 0);
        dial.opened += 1;
        dial.opened_at = Some(Instant::now());
        self.group.opened(now, path);
        Ok(())
    }

    /// Sends until the source ends or `stop` is set. A path that is lost is dialled again.
    ///
    /// # Errors
    /// As of [`Sender::run`](crate::Sender::run); the receiver is lost when no path is there.
    pub fn run(&mut self) -> Result<(), Error> {
        self.emit(SenderEvent::Connected { again: false })?;
        if self.options.reliability != Reliability::Full {
            self.emit(SenderEvent::Latency(self.chosen))?;
        }
        let mut settled_at = None;
        while settled_at.is_none() && !self.stop_timed_out() {
            self.look()?;
            let has_room = self.send_again() && self.group.has_room();
            if !has_room || !self.send_next()? {
                std::thread::sleep(PAUSE);
            }
            let has_ended = self.source_ended && self.is_end_queued && self.unsent.is_empty();
            if has_ended && self.group.is_settled(self.clock.now()) {
                settled_at = Some(Instant::now());
            }
        }
        self.finish()
    }

    /// Sends what a silent path had; false if it could not take all.
    fn send_again(&mut self) -> bool {
        let now = self.clock.now();
        while let Some((number, message, targets)) = self.group.next_again(now) {
            let mut sent = None;
            for path in targets.iter() {
                let session = self.dials[path].session.as_mut();
                let given = session.and_then(|session| session.give(number, message).ok()?);
                if let Some(in_flow) = given {
                    sent = Some((path, in_flow));
                    break;
                }
            }
            let Some((path, in_flow)) = sent else { return false };
            self.group.sent_again(number, path, in_flow);
        }
        true
    }

    /// Sends the next message; false if no path takes it.
    fn send_next(&mut self) -> Result<bool, Error> {
        let message = match self.unsent.pop_front() {
            Some(message) => message,
            None if self.source_ended && self.is_end_queued => return Ok(false),
            None if self.source_ended => {
                self.is_end_queued = true;
                let is_cut_short =
                    self.failed.is_some() || self.stopped_at.is_some() && !self.backlog.is_live();
                OutgoingMessage::end(self.datagrams, !is_cut_short)
            }
            None => match self.next_of_source() {
                Some(message) => message,
                None => return Ok(true),
            },
        };
        let now = self.clock.now();
        let (bytes, number) = (message.size(), self.group.next_number());
        let targets = self.group.targets(bytes);
        let mut on = [None; MAX_PATHS];
        for path in targets.iter() {
            let session = self.dials[path].session.as_mut();
            on[path] = session.and_then(|session| session.give(number, &message).ok()?);
            if on[path].is_some() && !targets.all {
                break;
            }
        }
        let lifetime = self.latency.map(|latency| self.lifetime(latency));
        let left = lifetime.map(|lifetime| lifetime.saturating_sub(message.age()));
        let left = left.filter(|_| self.options.reliability != Reliability::Full);
        if on == [None; MAX_PATHS] {
            if left != Some(Duration::ZERO) {
                self.unsent.push_front(message);
            }
            return Ok(false);
        }
        self.bytes += bytes as u64;
        self.group.keep(message, bytes, left.map(|left| now + left), on);
        Ok(true)
    }

    fn next_of_source(&mut self) -> Option<OutgoingMessage> {
        match self.backlog.next(WAIT) {
            Next::Unit(queued) => {
                self.datagrams = self.datagrams.max(queued.next_datagram());
                return Some(OutgoingMessage::media(&queued));
            }
            Next::Gap(datagrams) => return Some(OutgoingMessage::gap(&datagrams)),
            Next::TimedOut => {}
            Next::End => self.source_ended = true,
            Next::Failed(error) => (self.source_ended, self.failed) = (true, Some(error)),
        }
        None
    }

    /// Ends the flows of the paths that are there, and waits for the receiver's final report.
    fn finish(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        for path in 0..self.dials.len() {
            let is_up = self.group.is_up(path);
            let dial = &mut self.dials[path];
            (dial.attempts, dial.connection) = (None, None);
            match dial.session.as_mut() {
                Some(session) if is_up => session.finish(),
                Some(session) => {
                    session.close("another path has carried it to its end");
                    dial.session = None;
                }
                None => {}
            }
        }
        for session in self.dials.iter().filter_map(|dial| dial.session.as_ref()) {
            session.settled(SETTLE.saturating_sub(begun.elapsed()));
        }
        let latency = Wall::from_nanos(self.latency.unwrap_or_default().as_nanos());
        let mut is_reported = false;
        loop {
            let report = self.newer_report();
            self.totals.report = report.unwrap_or(self.totals.report);
            if report.is_some_and(|report| report.is_final) {
                break;
            }
            let is_overdue = begun.elapsed() > latency + FINAL_REPORT_TIMEOUT;
            let is_full = self.options.reliability == Reliability::Full;
            let sessions = self.dials.iter().filter_map(|dial| dial.session.as_ref());
            let mut closed = sessions.clone().filter_map(|session| session.connection.is_closed());
            if let Some(closed) = closed.find(|closed| closed.reason.is_final()) {
                return Err(Error::EndedByReceiver(closed));
            }
            let is_gone = sessions.clone().all(|session| session.connection.is_closed().is_some());
            if is_gone || is_overdue && !is_full || self.stop_timed_out() {
                self.emit(SenderEvent::Unreported)?;
                break;
            }
            if is_overdue && !std::mem::replace(&mut is_reported, true) {
                self.emit(SenderEvent::Waiting)?;
            }
            self.check_stop();
            self.sample();
            self.progress()?;
            std::thread::sleep(WAIT);
        }
        self.sample();
        self.emit_paths()?;
        for session in self.dials.iter_mut().filter_map(|dial| dial.session.as_mut()) {
            session.close("done");
        }
        self.check_whole()
    }

    fn check_whole(&mut self) -> Result<(), Error> {
        if let Some(error) = self.failed.take() {
            return Err(Error::Source(error));
        }
        let is_to_be_whole = self.options.reliability == Reliability::Full
            && !self.backlog.is_live()
            && self.stopped_at.is_none();
        let (all, whole) = (self.datagrams, self.totals.report.whole_datagrams);
        if !is_to_be_whole || whole >= all {
            return Ok(());
        }
        Err(Error::Incomplete(format!(
            "the receiver did not deliver {} of {all} datagrams",
            all - whole
        )))
    }

    /// Looks at all paths, if that is due: dials those that are lost, and emits events.
    fn look(&mut self) -> Result<(), Error> {
        self.check_stop();
        if Instant::now() < self.look_due {
            return Ok(());
        }
        self.look_due = Instant::now() + Wall::from_nanos(STEP.as_nanos());
        self.note_taken()?;
        for path in 0..self.dials.len() {
            // A path that refuses later may be another host now: the others go on.
            let is_first =
                self.dials[path].opened == 0 && since(self.began) < latency::MEASURED_FOR;
            match self.dial(path) {
                Err(refused) if refused.is_misconfigured() && is_first => {
                    return Err(refused.into());
                }
                _ => {}
            }
            self.open_flow(path)?;
            self.check_closed(path)?;
        }
        self.sample();
        self.group.look(self.clock.now());
        while let Some(event) = self.group.poll_event() {
            if !self.waits() {
                self.emit(SenderEvent::Path(event))?;
            }
        }
        if self.dials.iter().any(|dial| dial.session.is_some()) {
            self.there = Instant::now();
        } else if self.there.elapsed() >= self.options.give_up {
            return Err(Error::Lost("no path answers".to_owned()));
        }
        self.progress()
    }

    fn sample(&mut self) {
        for (path, dial) in self.dials.iter_mut().enumerate() {
            let Some(session) = &mut dial.session else { continue };
            let Some(over) = session.connection.statistics() else { continue };
            let Some(flow) = session.statistics() else { continue };
            dial.statistics = Some(over);
            self.group.sample(self.clock.now(), path, Sample::of(&over, &flow));
        }
    }

    fn progress(&mut self) -> Result<(), Error> {
        if Instant::now() < self.progress_due {
            return Ok(());
        }
        self.progress_due = Instant::now() + PROGRESS;
        if let Some(overflow) = self.backlog.overflow_since(&mut self.totals.overflow) {
            self.emit(SenderEvent::Overflow(overflow))?;
        }
        if let Some(report) = self.newer_report() {
            let latency = self.latency.unwrap_or_default();
            if let Some(missed) = report.missed(&self.totals.report, latency) {
                self.emit(SenderEvent::Missed(missed))?;
            }
            self.totals.report = report;
        }
        self.emit_paths()?;
        let Some(over) = self.over() else { return Ok(()) };
        let totals = self.totals();
        self.emit(SenderEvent::Progress(&totals, &over))
    }

    fn emit_paths(&mut self) -> Result<(), Error> {
        let figures = self.figures();
        self.emit(SenderEvent::Paths(&figures))
    }

    /// True once `stop` has been noticed.
    pub fn is_stopped(&self) -> bool {
        self.stopped_at.is_some()
    }

    /// The event handler.
    pub fn handler(&mut self) -> &mut H {
        &mut self.handler
    }

    fn emit(&mut self, event: SenderEvent<'_>) -> Result<(), Error> {
        match self.handler.on_event(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Handler),
        }
    }

    fn check_stop(&mut self) -> bool {
        if self.options.stop.load(Ordering::Relaxed) && self.stopped_at.is_none() {
            self.stopped_at = Some(Instant::now());
            self.source.end(&self.backlog);
        }
        self.stopped_at.is_some()
    }

    fn stop_timed_out(&self) -> bool {
        self.stopped_at.is_some_and(|at| at.elapsed() > STOP_TIMEOUT)
    }
}

fn since(begun: Instant) -> Duration {
    Duration::from_nanos(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
