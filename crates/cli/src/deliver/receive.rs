//! `ontempo receive`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Duration;
use ontempo_transport::live::{
    Accepted, Connection, Listener, Message, Options, ReceiveFlow, SendFlow,
};
use ontempo_transport::{
    CloseReason, Delivery, FlowConfig, Identity, IdentityError, ReceiveStatistics,
};
use ontempo_udp::SocketOptions;
use serde_json::json;

use super::figures::Figures;
use super::message::{Content, Label, REPORTS, Report, read};
use super::sink::{Counts, Sink};
use super::{Stop, USUAL, configuration, failure, token};
use crate::address::socket_at;
use crate::arguments::{Place, Receive as Arguments};
use crate::failure::{Failure, environment};
use crate::output::emit;
use crate::signals::stop_flag;

/// How often a waiting listener looks for Ctrl-C, and a busy one for others who come.
const STEP: Wall = Wall::from_millis(50);

/// How long a sender may take to open its flow, and to close after the end.
const PATIENCE: Wall = Wall::from_secs(5);

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
    /// The sender was lost, and may come back.
    Lost(String),
    /// It has come back on this connection, before the old one was known to be lost.
    Replaced(Connection, ReceiveFlow),
    /// The user wants no more.
    Stopped,
}

struct Receiver<'a> {
    arguments: &'a Arguments,
    listener: Listener,
    stop: Stop,
    figures: Figures,
    stream: Option<Stream>,
    last: Option<Report>,
    /// Connections whose flow has not come yet.
    waiting: Vec<(Connection, Instant)>,
    looked: Instant,
}

pub(crate) fn receive(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.json && arguments.to == Place::Pipe {
        return Err(Failure::Input(
            "--json and --to - both want standard output: write to a file".to_owned(),
        ));
    }
    let stop = stop_flag()?;
    let identity = identity(arguments.identity.as_deref())?;
    let socket = SocketOptions { dscp: arguments.dscp.unwrap_or_default(), ..Default::default() };
    let configuration = configuration(arguments.qlog.as_deref())?;
    let options = Options { socket, configuration, ..Options::default() };
    let socket = socket_at(&arguments.listen, "--listen", USUAL, socket)?;
    let token = token(arguments.token.as_deref())?;
    let listener = Listener::new(socket, &identity, token, &options).map_err(failure)?;
    let fingerprint = identity.fingerprint().to_string();
    let figures = Figures::new(arguments.json);
    let local = listener.local().to_string();
    if arguments.json {
        let document = json!({ "event": "listening", "local": local, "fingerprint": fingerprint });
        emit(&document.to_string())?;
    } else {
        figures.say(&format!("listening at {local}, fingerprint {fingerprint}"));
    }
    let (waiting, looked) = (Vec::new(), Instant::now());
    let (stream, last) = (None, None);
    let mut receiver =
        Receiver { arguments, listener, stop, figures, stream, last, waiting, looked };
    receiver.run()
}

/// The certificate and key of a file, or made now, and then kept there.
pub(crate) fn identity(path: Option<&Path>) -> Result<Identity, Failure> {
    let names = ["localhost"];
    let Some(path) = path else { return Identity::self_made(&names).map_err(environment) };
    Identity::kept(path, &names).map_err(|error| match error {
        IdentityError::In(..) => Failure::Input(format!("--identity {error}")),
        IdentityError::Read(..) | IdentityError::Write(..) => {
            Failure::Environment(format!("--identity {error}"))
        }
        error => environment(error),
    })
}

impl Receiver<'_> {
    fn ends_with_the_stream(&self) -> bool {
        self.arguments.once || !matches!(self.arguments.to, Place::Udp(_))
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn run(&mut self) -> Result<ExitCode, Failure> {
        let mut next = None;
        loop {
            let (connection, flow) = match next.take() {
                Some(next) => next,
                None if self.is_stopped() => return self.stopped(),
                None => match self.find(STEP) {
                    Some(found) => found,
                    None => {
                        self.work()?;
                        continue;
                    }
                },
            };
            match self.carry(&connection, &flow) {
                Ok(Ended::Over) if self.ends_with_the_stream() => return Ok(ExitCode::SUCCESS),
                Ok(Ended::Over | Ended::Stopped) => {}
                Ok(Ended::Lost(reason)) => {
                    self.figures.say(&format!("lost {}: {reason}", connection.remote()));
                }
                Ok(Ended::Replaced(connection, flow)) => next = Some((connection, flow)),
                Err(failure) => {
                    connection.close_with(CloseReason::Failed, "it cannot write what it receives");
                    self.figures.end();
                    return Err(failure);
                }
            }
        }
    }

    /// Lets the sink work while no sender is there.
    fn work(&mut self) -> Result<(), Failure> {
        if let Some(stream) = &mut self.stream {
            stream.sink.work(true)?;
        }
        Ok(())
    }

    fn stopped(&mut self) -> Result<ExitCode, Failure> {
        self.figures.end();
        let was_cut = self.stream.is_some() && !matches!(self.arguments.to, Place::Udp(_));
        if let Some(stream) = self.stream.take() {
            let before = stream.before;
            let counts = stream.sink.finish()?;
            self.last = Some(counted(before, counts));
        }
        self.totals()?;
        if was_cut {
            return Err(Failure::Interrupted(
                "interrupted before the end of the stream".to_owned(),
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Looks for a sender and its flow.
    fn find(&mut self, limit: Wall) -> Option<(Connection, ReceiveFlow)> {
        let limit = if self.waiting.is_empty() { limit } else { Wall::from_millis(1) };
        match self.listener.accept_within(limit) {
            Some(Accepted::Connection(connection)) => {
                self.waiting.push((connection, Instant::now()));
            }
            Some(Accepted::Refused { remote, closed }) => {
                let who = remote.map_or_else(|| "somebody".to_owned(), |at| at.to_string());
                self.figures.say(&format!("{who} was refused: {closed}"));
            }
            None => {}
        }
        for place in 0..self.waiting.len() {
            let (connection, since) = &self.waiting[place];
            match connection.accept_flow_within(Wall::ZERO) {
                Some(Ok(flow)) => return Some((self.waiting.swap_remove(place).0, flow)),
                None if since.elapsed() < PATIENCE => {}
                Some(Err(_)) | None => {
                    self.waiting.swap_remove(place);
                    break;
                }
            }
        }
        None
    }

    /// Somebody else may have come: answers the same sender on a new connection.
    fn look(&mut self) -> Option<(Connection, ReceiveFlow)> {
        if self.looked.elapsed() < STEP {
            return None;
        }
        self.looked = Instant::now();
        let (connection, flow) = self.find(Wall::ZERO)?;
        let label = flow.config().label.parse::<Label>().ok()?;
        let current = self.stream.as_ref().map(|stream| stream.label.session);
        if current == Some(label.session) {
            return Some((connection, flow));
        }
        self.figures.say(&format!("{} was refused: another is sending", connection.remote()));
        connection.close_with(CloseReason::Busy, "another sender is connected");
        None
    }

    /// Takes a flow to its end.
    fn carry(&mut self, connection: &Connection, flow: &ReceiveFlow) -> Result<Ended, Failure> {
        let Ok(label) = flow.config().label.parse::<Label>() else {
            let sentence = "what it was sent is not from ontempo send";
            connection.close_with(CloseReason::Unsupported, sentence);
            return Ok(Ended::Lost("it is not ontempo send".to_owned()));
        };
        if self.stream.as_ref().is_none_or(|stream| stream.label.session != label.session) {
            let latency = self.arguments.latency.unwrap_or(label.latency);
            let sink = Sink::open(&self.arguments.to, flow.config(), latency, label.before > 0)?;
            let (before, told) = (Report::default(), Report::default());
            self.stream = Some(Stream { label, latency, sink, before, told });
        }
        self.figures.say(&format!("receiving from {}", connection.remote()));
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

    fn take_all(&mut self, flow: &ReceiveFlow, reports: &SendFlow) -> Result<Ended, Failure> {
        let mut limit = Wall::ZERO;
        loop {
            if self.is_stopped() {
                return Ok(Ended::Stopped);
            }
            if let Some((connection, flow)) = self.look() {
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
                    Err(what) => self.figures.warn(&format!("a unit cannot be read: {what}")),
                },
                Some(Ok(Some(Delivery::Dropped(_)))) => {}
                Some(Ok(None)) => return Ok(Ended::Over),
                Some(Err(error)) => return Ok(Ended::Lost(error.to_string())),
            }
            // What is ready is taken before a wait, and written before a longer one.
            let wait = stream.sink.work(idle)?;
            limit = if idle { wait } else { Wall::ZERO };
            if self.figures.is_due() {
                self.tell(flow, reports)?;
            }
        }
    }

    /// Tells sender and user how it stands.
    fn tell(&mut self, flow: &ReceiveFlow, reports: &SendFlow) -> Result<(), Failure> {
        let (Some(stream), Some(now)) = (&mut self.stream, flow.statistics()) else {
            return Ok(());
        };
        let report = counted(received(stream.before, &now), stream.sink.counts());
        if let Some(missed) = report.missed(&stream.told, stream.latency) {
            self.figures.warn(&missed);
        }
        stream.told = report;
        self.last = Some(report);
        send(reports, &report);
        let line = format!(
            "{:.2} Mbit/s, {} units, {} late, {} dropped, delay {} to {}, jitter {}",
            now.throughput.as_mbit_per_sec(),
            report.units,
            report.late_units,
            report.dropped_units,
            now.delay.least,
            now.delay.greatest,
            now.delay.mean_jitter(),
        );
        let document = json!({
            "event": "figures",
            "seconds": self.figures.begun.elapsed().as_secs_f64(),
            "throughput_bps": now.throughput.as_bits_per_sec(),
            "least_delay_s": now.delay.least.as_secs_f64(),
            "mean_jitter_s": now.delay.mean_jitter().as_secs_f64(),
            "clock_uncertainty_s": now.delay.uncertainty.map(Duration::as_secs_f64),
            "blocking_time_s": now.blocked.as_secs_f64(),
            "held_bytes": now.held_bytes,
            "stream": report,
        });
        self.figures.show(&line, &document)
    }

    /// The stream is over: hands on the rest, tells the sender, and waits for it to close.
    fn end(&mut self, connection: &Connection, reports: &SendFlow) -> Result<(), Failure> {
        let Some(stream) = self.stream.take() else { return Ok(()) };
        let before = stream.before;
        let counts = stream.sink.finish()?;
        let report = Report { is_final: true, ..counted(before, counts) };
        send(reports, &report);
        reports.finish();
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && connection.closed(STEP).is_none() && !self.is_stopped() {}
        self.last = Some(report);
        self.figures.end();
        self.totals()
    }

    fn totals(&mut self) -> Result<(), Failure> {
        let Some(report) = self.last.take() else { return Ok(()) };
        if self.arguments.json {
            return emit(&json!({ "event": "totals", "stream": report }).to_string());
        }
        self.figures.say(&format!(
            "received {} units, {} bytes: {} late, {} dropped; {} datagrams handed on whole, {} \
             damaged, {} missing",
            report.units,
            report.bytes,
            report.late_units,
            report.dropped_units,
            report.whole_datagrams,
            report.damaged_datagrams,
            report.missing_datagrams,
        ));
        Ok(())
    }
}

/// Tells the sender; where it does not take it, the next will say more.
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
