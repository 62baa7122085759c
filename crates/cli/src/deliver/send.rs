//! `ontempo send`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration as Wall, Instant};

use ontempo_transport::live::{Error, Options, connect};
use ontempo_transport::{
    Closed, Configuration, ConnectionStatistics, FlowConfig, Reliability, SendStatistics, Token,
    Trust,
};
use ontempo_udp::SocketOptions;
use serde_json::json;

use super::backlog::{Backlog, Next, Overflow};
use super::figures::Figures;
use super::message::{Label, Report};
use super::session::{Ready, Session};
use super::source::Source;
use super::{Stop, configuration, failure, read, token};
use crate::address::resolve;
use crate::arguments::{Place, Repair, Send as Arguments};
use crate::failure::{Failure, environment};
use crate::output::emit;
use crate::signals::stop_flag;

/// How long one step waits, so that figures and Ctrl-C get their turn.
const STEP: Wall = Wall::from_millis(50);

/// Waits between two attempts to reach the receiver again: the first and the longest.
const FIRST_PAUSE: Wall = Wall::from_millis(250);
const MAX_PAUSE: Wall = Wall::from_secs(4);

/// How long the receiver's last words are waited for, beyond its playout delay, where something may be
/// lost.
const LAST_WORDS: Wall = Wall::from_secs(5);

/// How long what is under way is given after Ctrl-C.
const HURRY: Wall = Wall::from_secs(2);

/// How a connection ended.
enum Ended {
    /// All has been said and done.
    Done,
    /// The path or the receiver was lost.
    Lost(Closed),
}

/// Sends to one receiver, over as many connections as it takes.
struct Sender<'a> {
    arguments: &'a Arguments,
    remote: SocketAddr,
    name: String,
    trust: Trust,
    token: Token,
    options: Options,
    label: Label,
    reliability: Reliability,
    backlog: Arc<Backlog>,
    source: Source,
    stop: Stop,
    figures: Figures,
    /// To be sent before anything else: what a lost connection has left.
    again: VecDeque<Ready>,
    ended: bool,
    /// When the user pressed Ctrl-C.
    stopped: Option<Instant>,
    reconnected: u64,
    /// Sums over connections that are over, and the last report.
    before: SendStatistics,
    now: SendStatistics,
    report: Report,
    overflow: Overflow,
}

pub(crate) fn send(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let stop = stop_flag()?;
    let mut sender = Sender::new(arguments, stop)?;
    let first = sender.connect(0).map_err(failure)?;
    let done = sender.run(first);
    sender.figures.end();
    sender.totals()?;
    done?;
    let interrupted = sender.stopped.is_some() && !matches!(arguments.from, Place::Udp(_));
    if interrupted {
        return Err(Failure::Interrupted("interrupted before the end of the source".to_owned()));
    }
    Ok(ExitCode::SUCCESS)
}

fn trust(arguments: &Arguments) -> Result<Trust, Failure> {
    match (&arguments.fingerprint, &arguments.trust) {
        (Some(fingerprint), _) => Ok(Trust::Fingerprint(*fingerprint)),
        (None, Some(path)) => Trust::from_pem(&read(path, "--trust")?)
            .map_err(|error| Failure::Input(format!("--trust {}: {error}", path.display()))),
        (None, None) if arguments.insecure => Ok(Trust::Anybody),
        (None, None) => Err(Failure::Input(
            "whom to trust is missing: give --fingerprint, which the receiver prints, --trust FILE, \
             or --insecure"
                .to_owned(),
        )),
    }
}

impl<'a> Sender<'a> {
    fn new(arguments: &'a Arguments, stop: Stop) -> Result<Self, Failure> {
        let is_live = matches!(arguments.from, Place::Udp(_));
        let trust = trust(arguments)?;
        let remote = resolve(&arguments.to, "--to ")?;
        let host = arguments.to.rsplit_once(':').map_or("", |(host, _)| host);
        let usual = if is_live { Repair::Deadline } else { Repair::Full };
        let reliability = arguments.reliability.unwrap_or(usual).of_flow();
        let session = ontempo_udp::random();
        let label = Label { session, latency: arguments.latency, before: 0 };
        let configuration = Configuration {
            congestion: arguments.congestion,
            ..configuration(arguments.qlog.as_deref())?
        };
        let socket =
            SocketOptions { dscp: arguments.dscp.unwrap_or_default(), ..Default::default() };
        let most = usize::try_from(arguments.buffer.get()).unwrap_or(usize::MAX);
        let backlog = Arc::new(Backlog::new(most, is_live));
        let source = Source::start(&arguments.from, &backlog, arguments.realtime)?;
        Ok(Self {
            arguments,
            remote,
            name: host.trim_matches(['[', ']']).to_owned(),
            trust,
            token: token(arguments.token.as_deref())?,
            options: Options { configuration, socket, ..Options::default() },
            label,
            reliability,
            backlog,
            source,
            stop,
            figures: Figures::new(arguments.json),
            again: VecDeque::new(),
            ended: false,
            stopped: None,
            reconnected: 0,
            before: SendStatistics::default(),
            now: SendStatistics::default(),
            report: Report::default(),
            overflow: Overflow::default(),
        })
    }

    /// Sends until the source is at its end, over a new connection whenever one is lost.
    fn run(&mut self, first: Session) -> Result<(), Failure> {
        let mut session = Some(first);
        self.figures.say(&format!("connected to {}", self.remote));
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
                        let said = &closed.said;
                        return Err(environment(format!("the receiver ended it: {said}")));
                    }
                    self.figures.say(&format!("lost {}: {closed}; looking for it", self.remote));
                    session = self.reconnect()?;
                }
            }
        }
        Ok(())
    }

    fn connect(&self, before: u64) -> Result<Session, Error> {
        let token = self.token.clone();
        let connection = connect(self.remote, &self.name, &self.trust, token, &self.options)?;
        let label = Label { before, ..self.label }.to_string();
        let order = self.arguments.delivery.of_flow();
        let config = FlowConfig { order, reliability: self.reliability, label };
        Session::open(connection, config, self.arguments.latency)
    }

    /// Tries until the receiver is found; `None` after Ctrl-C.
    fn reconnect(&mut self) -> Result<Option<Session>, Failure> {
        let give_up = Wall::from_nanos(self.arguments.give_up.as_nanos());
        let (begun, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let until = Instant::now() + pause;
            while Instant::now() < until {
                self.tell_overflow();
                if self.is_stopped() {
                    return Ok(None);
                }
                std::thread::sleep(STEP);
            }
            match self.connect(self.reconnected + 1) {
                Ok(session) => {
                    self.reconnected += 1;
                    self.figures.say(&format!("connected to {} again", self.remote));
                    return Ok(Some(session));
                }
                Err(error) if begun.elapsed() >= give_up => return Err(failure(error)),
                Err(error) => match failure(error) {
                    Failure::Environment(_) => pause = (pause * 2).min(MAX_PAUSE),
                    refused => return Err(refused),
                },
            }
        }
    }

    /// Sends over a connection until it is lost or all is done.
    fn carry(&mut self, session: &mut Session) -> Result<Ended, Failure> {
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
                        return Err(environment(why));
                    }
                },
            };
            match session.send(ready, STEP) {
                Ok(None) => {}
                Ok(Some(ready)) => self.again.push_front(ready),
                Err(failed) => {
                    let (error, ready) = *failed;
                    self.again.push_front(ready);
                    let Error::Closed(closed) = error else { return Err(failure(error)) };
                    return Ok(Ended::Lost(closed));
                }
            }
            if self.stopped.is_some_and(|at| at.elapsed() > HURRY) {
                return self.finish(session);
            }
        }
    }

    /// Waits until the receiver has all and has said so.
    fn finish(&mut self, session: &mut Session) -> Result<Ended, Failure> {
        session.finish();
        let late = |sender: &Self| sender.stopped.is_some_and(|at| at.elapsed() > HURRY);
        loop {
            match session.settled(STEP) {
                Some(Ok(_)) => break,
                Some(Err(Error::Closed(closed))) => return Ok(Ended::Lost(closed)),
                Some(Err(error)) => return Err(failure(error)),
                None if late(self) => return Ok(Ended::Done),
                None => self.look(session)?,
            }
        }
        self.hear_the_end(session)
    }

    /// Waits for the receiver's last words. What must not be lost may wait there for a player, and
    /// would be gone with the connection: as long as that stands, the receiver is waited for.
    fn hear_the_end(&mut self, session: &mut Session) -> Result<Ended, Failure> {
        let latency = Wall::from_nanos(self.arguments.latency.as_nanos());
        let (since, mut told) = (Instant::now(), false);
        while !session.report().is_some_and(|report| report.is_final) {
            if let Some(closed) = session.connection.is_closed() {
                return Ok(Ended::Lost(closed));
            }
            let is_overdue = since.elapsed() > latency + LAST_WORDS;
            let gives_up = is_overdue && self.reliability != Reliability::Full;
            if gives_up || self.stopped.is_some_and(|at| at.elapsed() > HURRY) {
                self.figures.say("the receiver has all, but said nothing at the end");
                break;
            }
            if is_overdue && !told {
                told = true;
                self.figures
                    .say("the receiver has all; it is waited for until it has handed it on");
            }
            self.look(session)?;
            std::thread::sleep(Wall::from_millis(5));
        }
        Ok(Ended::Done)
    }

    fn is_stopped(&mut self) -> bool {
        if self.stop.load(Ordering::Relaxed) && self.stopped.is_none() {
            self.stopped = Some(Instant::now());
            self.source.end(&self.backlog);
        }
        self.stopped.is_some()
    }

    /// Looks after what goes on beside sending: Ctrl-C, figures, warnings.
    fn look(&mut self, session: &mut Session) -> Result<(), Failure> {
        self.is_stopped();
        if !self.figures.is_due() {
            return Ok(());
        }
        self.tell_overflow();
        if let Some(statistics) = session.statistics() {
            self.now = statistics;
        }
        if let Some(report) = session.report() {
            if let Some(missed) = report.missed(&self.report, self.arguments.latency) {
                self.figures.warn(&missed);
            }
            self.report = report;
        }
        let Some(connection) = session.connection.statistics() else { return Ok(()) };
        let all = self.sum();
        let line = format!(
            "{} units, {:.1} MB sent, {} dropped, {} waiting, RTT {}, {} of {} packets lost",
            all.units,
            all.bytes as f64 / 1e6,
            all.dropped + self.overflow.units,
            all.held_units,
            connection.round_trip.map_or_else(|| "-".to_owned(), |rtt| rtt.to_string()),
            connection.packets_lost,
            connection.packets_sent + connection.packets_lost,
        );
        self.figures.show(&line, &self.document("figures", Some(&connection)))
    }

    fn tell_overflow(&mut self) {
        let overflow = self.backlog.overflow();
        if overflow != self.overflow {
            let (units, bytes) =
                (overflow.units - self.overflow.units, overflow.bytes - self.overflow.bytes);
            self.figures.warn(&format!(
                "the source is faster than the network: {units} units of {bytes} bytes dropped"
            ));
            self.overflow = overflow;
        }
    }

    /// Adds a connection that is over to the sums.
    fn add(&mut self, session: &mut Session) {
        self.now = session.statistics().unwrap_or(self.now);
        self.report = session.report().unwrap_or(self.report);
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

    fn document(&self, event: &str, over: Option<&ConnectionStatistics>) -> serde_json::Value {
        let all = self.sum();
        json!({
            "event": event,
            "seconds": self.figures.begun.elapsed().as_secs_f64(),
            "units": all.units,
            "bytes": all.bytes,
            "arrived_units": all.arrived,
            "dropped_units": all.dropped,
            "overflow_units": self.overflow.units,
            "overflow_bytes": self.overflow.bytes,
            "waiting_bytes": self.backlog.waiting() as u64 + all.held_bytes,
            "reconnected": self.reconnected,
            "round_trip_s": over.and_then(|over| over.round_trip).map(|rtt| rtt.as_secs_f64()),
            "packets_lost": over.map(|over| over.packets_lost),
            "packets_sent": over.map(|over| over.packets_sent + over.packets_lost),
            "window_bytes": over.map(|over| over.window.get()),
            "receiver": self.report,
        })
    }

    fn totals(&mut self) -> Result<(), Failure> {
        self.tell_overflow();
        if self.arguments.json {
            return emit(&self.document("totals", None).to_string());
        }
        let (all, report) = (self.sum(), &self.report);
        let (datagrams, wrong) = report.datagrams();
        self.figures.say(&format!(
            "sent {} units, {} bytes in {:.1} s: {} arrived, {} dropped at their deadline, {} for \
             want of room; the receiver handed on {} of {datagrams} datagrams whole, {wrong} were \
             missing or damaged, {} units came late; {} reconnections",
            all.units,
            all.bytes,
            self.figures.begun.elapsed().as_secs_f64(),
            all.arrived,
            all.dropped,
            self.overflow.units,
            report.whole_datagrams,
            report.late_units,
            self.reconnected,
        ));
        Ok(())
    }
}
