//! A stream sent to one receiver, over as many connections as it takes.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Duration;
use ontempo_transport::live::{self, Options, connect};
use ontempo_transport::{
    Closed, ConnectionStatistics, DeliveryOrder, FlowConfig, Reliability, SendStatistics, Token,
    Trust,
};

use crate::backlog::{Backlog, Next, Overflow};
use crate::connection::{Ready, Session};
use crate::error::Error;
use crate::message::{Label, Report};
use crate::source::Source;

/// How long one step waits, so that events and `stop` get their turn.
const STEP: Wall = Wall::from_millis(50);

/// Waits between two attempts to reach the receiver again: the first and the longest.
const FIRST_PAUSE: Wall = Wall::from_millis(250);
const MAX_PAUSE: Wall = Wall::from_secs(4);

/// How long the receiver's final report is waited for, beyond its playout delay, where something may
/// be lost.
const LAST_WORDS: Wall = Wall::from_secs(5);

/// How long what is under way is given after `stop`.
const HURRY: Wall = Wall::from_secs(2);

/// How often [`SenderEvent::Progress`] comes.
const PROGRESS: Wall = Wall::from_secs(1);

/// Where a stream goes to, and how.
#[derive(Clone, Debug)]
pub struct SenderOptions {
    /// The receiver's address.
    pub remote: SocketAddr,
    /// The name in its certificate, which counts where `trust` looks at it.
    pub name: String,
    /// By what the receiver is known.
    pub trust: Trust,
    /// What the receiver wants to be known.
    pub token: Token,
    /// Of the connection; see [`configuration`](crate::configuration).
    pub transport: Options,
    /// From the arrival of a datagram at the sender to its leaving the receiver.
    pub latency: Duration,
    /// In which order units are handed on.
    pub order: DeliveryOrder,
    /// What becomes of lost units.
    pub reliability: Reliability,
    /// For how long a lost receiver is looked for.
    pub give_up: Wall,
    /// Set by another thread or a signal handler: ends the source, gives what is under way 2 s, and
    /// returns.
    pub stop: Arc<AtomicBool>,
}

/// What happens while a stream is sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum SenderEvent<'a> {
    /// There is a connection.
    Connected {
        /// False for the first one.
        again: bool,
    },
    /// The connection was lost, and the receiver is looked for.
    Lost(&'a Closed),
    /// The source is faster than the network: dropped since the last such event.
    Overflow(Overflow),
    /// By how much the receiver misses the target; a sentence.
    Missed(String),
    /// The receiver has all, and is waited for until it has handed all on.
    Waiting,
    /// The receiver has all, but sent no final report.
    Unreported,
    /// How it stands, once a second.
    Progress(&'a SenderTotals, &'a ConnectionStatistics),
}

/// Takes the events of a sender; `Break` ends it with [`Error::Handler`].
pub trait SenderHandler {
    /// Something happened.
    fn on_event(&mut self, event: SenderEvent<'_>) -> ControlFlow<()>;
}

impl<F: FnMut(SenderEvent<'_>) -> ControlFlow<()>> SenderHandler for F {
    fn on_event(&mut self, event: SenderEvent<'_>) -> ControlFlow<()> {
        self(event)
    }
}

/// What was sent, over all connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct SenderTotals {
    /// Units, bytes, arrived and dropped are sums; the rest is of the connection that stands.
    pub flow: SendStatistics,
    /// Dropped before they were sent, for want of room.
    pub overflow: Overflow,
    /// Bytes that wait in the backlog or for the network.
    pub waiting_bytes: u64,
    /// Connections after the first.
    pub reconnected: u64,
    /// The receiver's last report.
    pub report: Report,
}

/// How a connection ended.
enum Ended {
    /// All has been sent and reported.
    Done,
    /// The path or the receiver was lost.
    Lost(Closed),
}

/// Sends a stream to one receiver.
pub struct Sender<H> {
    options: SenderOptions,
    label: Label,
    backlog: Arc<Backlog>,
    source: Source,
    handler: H,
    /// To be sent before anything else: what a lost connection has left.
    again: VecDeque<Ready>,
    ended: bool,
    /// When `stop` was seen.
    stopped: Option<Instant>,
    progress_due: Instant,
    /// Sums over connections that are over.
    before: SendStatistics,
    now: SendStatistics,
    totals: SenderTotals,
    first: Option<Session>,
}

impl<H: SenderHandler> Sender<H> {
    /// Connects to the receiver. What is sent comes out of `backlog`, which `source` fills.
    ///
    /// # Errors
    /// There is no connection.
    pub fn connect(
        options: SenderOptions,
        backlog: Arc<Backlog>,
        source: Source,
        handler: H,
    ) -> Result<Self, Error> {
        let label = Label { session: ontempo_udp::random(), latency: options.latency, before: 0 };
        let mut sender = Self {
            options,
            label,
            backlog,
            source,
            handler,
            again: VecDeque::new(),
            ended: false,
            stopped: None,
            progress_due: Instant::now() + PROGRESS,
            before: SendStatistics::default(),
            now: SendStatistics::default(),
            totals: SenderTotals::default(),
            first: None,
        };
        sender.first = Some(sender.open(0)?);
        Ok(sender)
    }

    /// Sends until the source is at its end or `stop` is set, over a new connection whenever one is
    /// lost.
    ///
    /// # Errors
    /// The source broke, the receiver ended it or is not found again, or the handler asked to end.
    pub fn run(&mut self) -> Result<(), Error> {
        let mut session = self.first.take();
        if session.is_some() {
            self.tell(SenderEvent::Connected { again: false })?;
        }
        while let Some(mut current) = session.take() {
            let ended = self.carry(&mut current);
            self.add(&mut current);
            match ended? {
                Ended::Done => {
                    current.close("done");
                    return Ok(());
                }
                Ended::Lost(closed) => {
                    let mut again = current.take_unsettled();
                    again.append(&mut self.again);
                    self.again = again;
                    current.close("lost");
                    if closed.reason.is_final() {
                        return Err(Error::EndedByReceiver(closed));
                    }
                    self.tell(SenderEvent::Lost(&closed))?;
                    session = self.reconnect()?;
                }
            }
        }
        Ok(())
    }

    /// True once `stop` has been seen.
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// What was sent so far.
    pub fn totals(&self) -> SenderTotals {
        let flow = self.sum();
        let waiting_bytes = self.backlog.waiting() as u64 + flow.held_bytes;
        SenderTotals { flow, overflow: self.backlog.overflow(), waiting_bytes, ..self.totals }
    }

    /// What takes the events.
    pub fn handler(&mut self) -> &mut H {
        &mut self.handler
    }

    fn tell(&mut self, event: SenderEvent<'_>) -> Result<(), Error> {
        match self.handler.on_event(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Handler),
        }
    }

    fn open(&self, before: u64) -> Result<Session, live::Error> {
        let SenderOptions { remote, name, trust, token, transport, .. } = &self.options;
        let connection = connect(*remote, name, trust, token.clone(), transport)?;
        let label = Label { before, ..self.label }.to_string();
        let (order, reliability) = (self.options.order, self.options.reliability);
        Session::open(connection, FlowConfig { order, reliability, label }, self.options.latency)
    }

    /// Tries until the receiver is found; `None` after `stop`.
    fn reconnect(&mut self) -> Result<Option<Session>, Error> {
        let (begun, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let until = Instant::now() + pause;
            while Instant::now() < until {
                self.tell_overflow()?;
                if self.looks_stopped() {
                    return Ok(None);
                }
                std::thread::sleep(STEP);
            }
            match self.open(self.totals.reconnected + 1) {
                Ok(session) => {
                    self.totals.reconnected += 1;
                    self.tell(SenderEvent::Connected { again: true })?;
                    return Ok(Some(session));
                }
                Err(error) if error.is_misconfigured() => return Err(error.into()),
                Err(error) if begun.elapsed() >= self.options.give_up => return Err(error.into()),
                Err(_) => pause = (pause * 2).min(MAX_PAUSE),
            }
        }
    }

    /// Sends over a connection until it is lost or all is done.
    fn carry(&mut self, session: &mut Session) -> Result<Ended, Error> {
        loop {
            self.look(session)?;
            if let Some(closed) = session.connection.is_closed() {
                return Ok(Ended::Lost(closed));
            }
            let ready = match self.again.pop_front() {
                Some(ready) => ready,
                None if self.ended => return self.finish(session),
                None => match self.backlog.next(STEP) {
                    Next::Unit(waiting) => Ready::media(&waiting),
                    Next::Gap(datagrams) => Ready::gap(&datagrams),
                    Next::Nothing => continue,
                    Next::End => {
                        self.ended = true;
                        continue;
                    }
                    Next::Broken(why) => {
                        self.ended = true;
                        return Err(Error::Source(why));
                    }
                },
            };
            match session.send(ready, STEP) {
                Ok(None) => {}
                Ok(Some(ready)) => self.again.push_front(ready),
                Err(failed) => {
                    let (error, ready) = *failed;
                    self.again.push_front(ready);
                    let live::Error::Closed(closed) = error else { return Err(error.into()) };
                    return Ok(Ended::Lost(closed));
                }
            }
            if self.is_late() {
                return self.finish(session);
            }
        }
    }

    /// Waits until the receiver has all and has reported so.
    fn finish(&mut self, session: &mut Session) -> Result<Ended, Error> {
        session.finish();
        loop {
            match session.settled(STEP) {
                Some(Ok(_)) => break,
                Some(Err(live::Error::Closed(closed))) => return Ok(Ended::Lost(closed)),
                Some(Err(error)) => return Err(error.into()),
                None if self.is_late() => return Ok(Ended::Done),
                None => self.look(session)?,
            }
        }
        self.hear_the_end(session)
    }

    /// Waits for the receiver's final report. What must not be lost may wait there for a player, and
    /// would be gone with the connection: as long as that stands, the receiver is waited for.
    fn hear_the_end(&mut self, session: &mut Session) -> Result<Ended, Error> {
        let latency = Wall::from_nanos(self.options.latency.as_nanos());
        let (since, mut told) = (Instant::now(), false);
        while !session.report().is_some_and(|report| report.is_final) {
            if let Some(closed) = session.connection.is_closed() {
                return Ok(Ended::Lost(closed));
            }
            let is_overdue = since.elapsed() > latency + LAST_WORDS;
            let gives_up = is_overdue && self.options.reliability != Reliability::Full;
            if gives_up || self.is_late() {
                self.tell(SenderEvent::Unreported)?;
                break;
            }
            if is_overdue && !told {
                told = true;
                self.tell(SenderEvent::Waiting)?;
            }
            self.look(session)?;
            std::thread::sleep(Wall::from_millis(5));
        }
        Ok(Ended::Done)
    }

    fn is_late(&self) -> bool {
        self.stopped.is_some_and(|at| at.elapsed() > HURRY)
    }

    fn looks_stopped(&mut self) -> bool {
        if self.options.stop.load(Ordering::Relaxed) && self.stopped.is_none() {
            self.stopped = Some(Instant::now());
            self.source.end(&self.backlog);
        }
        self.stopped.is_some()
    }

    /// Looks after what goes on beside sending: `stop` and events.
    fn look(&mut self, session: &mut Session) -> Result<(), Error> {
        self.looks_stopped();
        if Instant::now() < self.progress_due {
            return Ok(());
        }
        self.progress_due = Instant::now() + PROGRESS;
        self.tell_overflow()?;
        if let Some(statistics) = session.statistics() {
            self.now = statistics;
        }
        if let Some(report) = session.report() {
            if let Some(missed) = report.missed(&self.totals.report, self.options.latency) {
                self.tell(SenderEvent::Missed(missed))?;
            }
            self.totals.report = report;
        }
        let Some(connection) = session.connection.statistics() else { return Ok(()) };
        let totals = self.totals();
        self.tell(SenderEvent::Progress(&totals, &connection))
    }

    fn tell_overflow(&mut self) -> Result<(), Error> {
        let (now, before) = (self.backlog.overflow(), self.totals.overflow);
        if now == before {
            return Ok(());
        }
        self.totals.overflow = now;
        let (units, bytes) = (now.units - before.units, now.bytes - before.bytes);
        self.tell(SenderEvent::Overflow(Overflow { units, bytes }))
    }

    /// Adds a connection that is over to the sums.
    fn add(&mut self, session: &mut Session) {
        self.now = session.statistics().unwrap_or(self.now);
        self.totals.report = session.report().unwrap_or(self.totals.report);
        self.before = self.sum();
        self.now = SendStatistics::default();
    }

    fn sum(&self) -> SendStatistics {
        let (a, b) = (&self.before, &self.now);
        let mut all = self.now;
        all.units = a.units + b.units;
        all.bytes = a.bytes + b.bytes;
        all.arrived = a.arrived + b.arrived;
        all.dropped = a.dropped + b.dropped;
        all
    }
}
