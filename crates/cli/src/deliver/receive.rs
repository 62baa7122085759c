//! `ontempo receive`.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Duration;
use ontempo_media::{Codings, Elementary};
use ontempo_monitor::{FlowReport, FlowRole, PathReport};
use ontempo_session::file::Offer;
use ontempo_session::message::Report;
use ontempo_session::paths::ReceivedPath;
use ontempo_session::{
    Call, Error, Flowing, Outcome, PartFile, Receiver, ReceiverEvent, ReceiverHandler,
    ReceiverOptions, Target,
};
use ontempo_transport::live::{Listener, Options};
use ontempo_transport::{Fingerprint, Identity, IdentityError, ReceiveStatistics};
use ontempo_udp::SocketOptions;
use serde_json::json;

use super::documents::{Counters, Documents, Meter, with};
use super::published::{self, Published, with_rates, with_report};
use super::sdp;
use super::serve::Pages;
use super::status_line::{StatusLine, millis};
use super::target::{check_file, part_file, target, unknown_player};
use super::{EXAMPLE_PORT, configuration, failure};
use crate::access::{Admitted, Destination, admitted, qr};
use crate::address::{Greeting, answering, socket_at};
use crate::arguments::{Place, Receive as Arguments};
use crate::failure::{Failure, environment};
use crate::output::{counted, write_stderr};
use crate::signals::{is_stopped, stop_flag};

pub(crate) fn receive(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.json && arguments.to == Some(Place::Pipe) {
        return Err(Failure::Input(
            "--json and --to - both use standard output: write to a file".to_owned(),
        ));
    }
    let documents = Documents::new(arguments.json);
    let done = run(arguments, documents);
    documents.fail(&done);
    done
}

fn run(arguments: &Arguments, documents: Documents) -> Result<ExitCode, Failure> {
    check_target(arguments)?;
    let stop = stop_flag()?;
    let socket = SocketOptions { dscp: arguments.dscp.unwrap_or_default(), ..Default::default() };
    let configuration = configuration(arguments.qlog.as_deref(), documents)?;
    let options = Options { socket, configuration, ..Options::default() };
    let mut status = StatusLine::new(documents);
    let pages = Pages::of_receiver(&arguments.serve)?;
    let entrance = entrance(arguments, &status, options)?;
    if let Some(sentence) = unknown_player(arguments) {
        status.warn(&sentence);
    }
    if let Some(pages) = &pages {
        pages.announce(&status)?;
    }
    let is_file = arguments.to.as_ref().is_some_and(|to| !to.is_live());
    let once = arguments.once || is_file;
    let give_up = Some(Wall::from_nanos(arguments.give_up.as_nanos()));
    let options = ReceiverOptions { latency: arguments.latency, once, give_up, stop };
    let flow = flow(arguments);
    let published = Published::start(vec![flow.clone()]);
    let handler = OutputHandler {
        arguments,
        status,
        is_once: once,
        figures: Figures::new(),
        pages,
        flow,
        published,
        failed: None,
    };
    let mut receiver = match entrance {
        Entrance::Listener(listener) => Receiver::new(listener, options, handler),
        Entrance::Call(call) => Receiver::calling(*call, options, handler),
    };
    let ended = receiver.run();
    let handler = receiver.handler();
    handler.status.end();
    if let Some(failed) = handler.failed.take() {
        return Err(failed);
    }
    match ended.map_err(failure)? {
        Outcome::Stopped { midstream: true } if is_file => {
            Err(Failure::Interrupted("interrupted before the end of the stream".to_owned()))
        }
        Outcome::Stopped { .. } | Outcome::StreamEnded => Ok(ExitCode::SUCCESS),
    }
}

/// What is published before a sender comes.
fn flow(arguments: &Arguments) -> FlowReport {
    let name = arguments.stream.as_ref().map_or_else(String::new, ToString::to_string);
    let page = arguments.serve.page.serve.as_ref().map(|_| "page".to_owned());
    let place = arguments.to.as_ref().map(published::shown).or(page).unwrap_or_default();
    FlowReport { id: 1, role: FlowRole::Receiver, name, place, ..FlowReport::default() }
}

/// Where the stream comes from.
enum Entrance {
    Listener(Listener),
    Call(Box<Call>),
}

/// Listens, and says where, or reads which relay to call.
fn entrance(
    arguments: &Arguments,
    status: &StatusLine,
    options: Options,
) -> Result<Entrance, Failure> {
    if let Some(from) = &arguments.from {
        let relay = Destination::read(from, "--from: ")?;
        let call = Call {
            remote: answering(&relay.address, "--from ", &Greeting::quic())?,
            trust: relay.trust(arguments.fingerprint, || Ok(None))?,
            token: relay.token(&arguments.admission.credentials)?,
            name: relay.name,
            transport: options,
            stream: arguments.stream.clone(),
            give_up: Wall::from_nanos(arguments.give_up.as_nanos()),
        };
        return Ok(Entrance::Call(Box::new(call)));
    }
    let identity = identity(arguments.identity.as_deref())?;
    let at = arguments.listen.as_deref().unwrap_or_default();
    let socket = socket_at(at, "--listen", EXAMPLE_PORT, options.socket)?;
    let admitted = admitted(&arguments.admission)?;
    let listener = Listener::new(socket, &identity, admitted.token.clone(), &options)
        .map_err(|error| failure(Error::Transport(error)))?;
    announce(arguments, status, &admitted, (listener.local(), identity.fingerprint()))?;
    Ok(Entrance::Listener(listener))
}

/// An existing file is refused before a sender comes, and what another user could have put there.
fn check_target(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(option) = arguments.serve.without_page() {
        return Err(Failure::Input(format!("{option}: it is for the page of --serve")));
    }
    // clap lets them pass beside --listen, which --from cannot be beside.
    if let Some(option) = arguments.without_relay() {
        return Err(Failure::Input(format!("{option}: it is of a relay: --from")));
    }
    match (&arguments.sdp, &arguments.to) {
        (None, _) => {}
        (Some(path), Some(Place::Rtp(_))) => sdp::check(path, arguments.overwrite)?,
        (Some(_), _) => {
            return Err(Failure::Input("--sdp: it describes RTP: --to rtp://HOST:PORT".to_owned()));
        }
    }
    match &arguments.to {
        Some(Place::File(path)) => check_file(path, arguments.overwrite),
        Some(Place::Udp(_) | Place::Rtp(_) | Place::Pipe) | None
            if arguments.overwrite && arguments.sdp.is_none() =>
        {
            Err(Failure::Input("--overwrite: --to names no file".to_owned()))
        }
        _ => Ok(()),
    }
}

/// Prints where it listens, and the sender's command line.
fn announce(
    arguments: &Arguments,
    status: &StatusLine,
    admitted: &Admitted,
    (local, fingerprint): (SocketAddr, Fingerprint),
) -> Result<(), Failure> {
    let url = admitted.url(local, fingerprint, false);
    if arguments.json {
        let document = json!({
            "local": local.to_string(),
            "fingerprint": fingerprint.to_string(),
            "url": url.to_string(),
            "anyone": admitted.is_anyone(),
        });
        status.documents.emit("listening", document)?;
    } else {
        status.message(&format!("listening at {local}, fingerprint {fingerprint}"));
        let invitation = admitted.invitation("ontempo send --from ... --to", &url);
        invitation.lines().for_each(|line| status.message(line));
    }
    if arguments.admission.qr {
        write_stderr(&qr(&admitted.url(local, fingerprint, true))?);
    }
    Ok(())
}

/// Loads certificate and key from a file, or creates them there; without a file, they are not
/// saved.
pub(crate) fn identity(path: Option<&Path>) -> Result<Identity, Failure> {
    let names = ["localhost"];
    let Some(path) = path else { return Identity::self_signed(&names).map_err(environment) };
    Identity::load_or_create_unless(path, &names, is_stopped).map_err(|error| match error {
        IdentityError::Read(_, read) if read.kind() == ErrorKind::Interrupted => {
            Failure::Interrupted(format!("--identity {}: {read}", path.display()))
        }
        IdentityError::In(..) => Failure::Input(format!("--identity {error}")),
        IdentityError::Read(..) | IdentityError::Write(..) => {
            Failure::Environment(format!("--identity {error}"))
        }
        error => environment(error),
    })
}

/// Writes events to the terminal and opens the target of streams.
struct OutputHandler<'a> {
    arguments: &'a Arguments,
    status: StatusLine,
    /// One stream is received: its sender alone may come back.
    is_once: bool,
    figures: Figures,
    /// With --serve.
    pages: Option<Pages>,
    /// What is published, and by what.
    flow: FlowReport,
    published: Published,
    /// Set if the target cannot be opened, or the output is closed.
    failed: Option<Failure>,
}

impl ReceiverHandler for OutputHandler<'_> {
    fn open(&mut self) -> Result<Target, String> {
        let Some(to) = &self.arguments.to else {
            let pages = self.pages.as_ref().map(Pages::target);
            return pages.ok_or_else(|| "there is no target".to_owned());
        };
        target(to, self.arguments, self.status.documents).map_err(|failure| {
            self.failed = Some(failure);
            "the target cannot be opened".to_owned()
        })
    }

    fn take_elementary(&mut self, codings: Codings) -> Result<(), String> {
        let (place, why) = match &self.arguments.to {
            Some(Place::File(_) | Place::Pipe) => match codings.only().map(Elementary::is_file) {
                Some(true) => return Ok(()),
                Some(false) => ("--to", "its packets alone are no file"),
                None => ("--to", "a file has one of them"),
            },
            Some(Place::Udp(_) | Place::Rtp(_)) => {
                ("--to", "udp:// and rtp:// take MPEG-TS or RTP, a file or - takes them")
            }
            None => ("--serve", "the page shows MPEG-TS"),
        };
        // The sentence of a CONNECTION_CLOSE has at most 200 bytes.
        Err(format!(
            "{place}: frames of {codings} without MPEG-TS: {why}; put mpegtsmux before ontemposink, or \
             receive with ontemposrc"
        ))
    }

    fn open_file(&mut self, offer: Offer) -> Result<Option<PartFile>, String> {
        let Some(Place::File(path)) = &self.arguments.to else { return Ok(None) };
        part_file(path, offer, self.arguments.overwrite).map_err(|failure| {
            self.failed = Some(failure);
            "the target cannot be opened".to_owned()
        })
    }

    fn on_event(&mut self, event: ReceiverEvent<'_>) -> ControlFlow<()> {
        if let Some(pages) = &self.pages {
            pages.follow(&event);
        }
        self.figures.follow(&event);
        match event {
            ReceiverEvent::File { from, discarded, length } => {
                if discarded > 0 {
                    self.status.connection(&format!(
                        "the {discarded} bytes that were there are not of the sender's file: it \
                         begins anew"
                    ));
                } else if from > 0 {
                    self.status
                        .connection(&format!("{from} of {length} bytes are there: going on"));
                }
            }
            ReceiverEvent::FileReceived { bytes, digest } => {
                self.status
                    .connection(&format!("the file is whole: {bytes} bytes, SHA-256 {digest}"));
            }
            ReceiverEvent::Refused { remote, reason } => {
                let sender = remote.map_or_else(|| "a sender".to_owned(), |at| at.to_string());
                self.status.refused(&format!("{sender} was refused: {reason}"));
            }
            ReceiverEvent::Unanswered(reason) => {
                let give_up = self.arguments.give_up;
                self.status.connection(&format!(
                    "{reason}; calling again for up to {give_up} (--give-up)"
                ));
            }
            ReceiverEvent::Waiting(remote) => {
                let stream = self.arguments.stream.as_ref().map_or_else(
                    || "the stream without a name".to_owned(),
                    |name| format!("the stream {name}"),
                );
                self.status
                    .connection(&format!("connected to the relay {remote}; waiting for {stream}"));
            }
            ReceiverEvent::Receiving(remote) => {
                self.received_from(remote);
                self.status.connection(&format!("receiving from {remote}"));
            }
            event @ (ReceiverEvent::ReceivingPath { .. } | ReceiverEvent::LostPath(..)) => {
                self.of_path(event);
            }
            ReceiverEvent::Lost(remote, reason) => {
                let waits = if self.is_once {
                    format!("waiting for it for up to {} (--give-up)", self.arguments.give_up)
                } else {
                    "waiting for a sender".to_owned()
                };
                self.status.connection(&format!("lost {remote}: {reason}; {waits}"));
            }
            ReceiverEvent::Latency { latency, of_sender, .. } => {
                let written = self.latency(latency, of_sender);
                return self.done(written);
            }
            ReceiverEvent::Unreadable(what) => {
                self.status.warn(&format!("a unit cannot be read: {what}"));
            }
            ReceiverEvent::Missed(sentence) => self.status.warn(&sentence),
            ReceiverEvent::Progress(report, flow) => {
                let written = self.progress(report, flow);
                return self.done(written);
            }
            ReceiverEvent::StreamEnded(report) => {
                self.status.end();
                let written = self.totals(report);
                return self.done(written);
            }
            // The enum is non-exhaustive.
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// The figures of a stream that is received, as `--json` has them.
pub(super) struct Figures {
    meter: Meter,
    flowing: Option<Flowing>,
    /// Of a stream over several.
    paths: Vec<ReceivedPath>,
}

impl Figures {
    pub(super) fn new() -> Self {
        Self { meter: Meter::new(), flowing: None, paths: Vec::new() }
    }

    /// Keeps what the figures are made of.
    pub(super) fn follow(&mut self, event: &ReceiverEvent<'_>) {
        match event {
            ReceiverEvent::Flowing(flowing) => self.flowing = Some(**flowing),
            ReceiverEvent::Paths(paths) => self.paths = paths.to_vec(),
            _ => {}
        }
    }

    pub(super) fn of(&mut self, report: &Report, now: &ReceiveStatistics) -> serde_json::Value {
        let figures = json!({
            "throughput_bps": now.throughput.as_bits_per_sec(),
            "min_delay_s": now.delay.min.as_secs_f64(),
            "mean_jitter_s": now.delay.mean_jitter().as_secs_f64(),
            "clock_uncertainty_s": now.delay.uncertainty.map(Duration::as_secs_f64),
            "blocking_time_s": now.blocked.as_secs_f64(),
            "held_bytes": now.held_bytes,
            "stream": report,
        });
        let flow = self.flow(report);
        let one = |path: &ReceivedPath| {
            json!({
                "path": path.path + 1,
                "from": path.remote.to_string(),
                "bytes_received": path.bytes_received,
                "round_trip_s": path.round_trip.map(Duration::as_secs_f64),
            })
        };
        let figures = match self.paths.as_slice() {
            [] => figures,
            paths => with(figures, json!({ "paths": paths.iter().map(one).collect::<Vec<_>>() })),
        };
        with(figures, flow)
    }

    /// Figures of the connection and the target, with rates of the time since the last ones.
    fn flow(&mut self, report: &Report) -> serde_json::Value {
        let flowing = self.flowing.as_ref();
        let over = flowing.and_then(|flowing| flowing.connection);
        let (all, lost) = report.datagrams();
        let counters = Counters {
            input: over.map_or(0, |over| over.bytes_received),
            output: flowing.map_or(0, |flowing| flowing.written_bytes),
            lost,
            all,
        };
        let latency = flowing.and_then(|flowing| flowing.latency);
        let fields = json!({
            "latency_s": latency.map(Duration::as_secs_f64),
            "round_trip_s": over.and_then(|over| over.clock_round_trip).map(Duration::as_secs_f64),
            "written_bytes": counters.output,
        });
        with(fields, self.meter.rates(Instant::now(), counters))
    }
}

impl OutputHandler<'_> {
    fn of_path(&mut self, event: ReceiverEvent<'_>) {
        match event {
            ReceiverEvent::ReceivingPath { path, remote } => {
                self.status.connection(&format!("receiving path {} from {remote}", path + 1));
            }
            ReceiverEvent::LostPath(remote, reason) => {
                self.status.connection(&format!("lost the path from {remote}: {reason}"));
            }
            _ => {}
        }
    }

    fn done(&mut self, written: Result<(), Failure>) -> ControlFlow<()> {
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                self.failed = Some(failure);
                ControlFlow::Break(())
            }
        }
    }

    fn latency(&mut self, latency: Duration, of_sender: Duration) -> Result<(), Failure> {
        self.status.connection(&format!("latency {latency}"));
        if latency < of_sender {
            self.status.warn(&format!(
                "--latency {latency} is less than the sender's {of_sender}: what arrives later than \
                 {latency} is left out; without --latency the sender's counts"
            ));
        }
        let fields = json!({
            "latency_s": latency.as_secs_f64(),
            "latency_of_sender_s": of_sender.as_secs_f64(),
        });
        self.status.documents.emit("latency", fields)
    }

    fn progress(&mut self, report: &Report, now: &ReceiveStatistics) -> Result<(), Failure> {
        let line = format!(
            "{:.2} Mbit/s, {}, {} late, {} dropped, delay {} to {}, jitter {}",
            now.throughput.as_mbit_per_sec(),
            counted(report.units, "unit"),
            report.late_units,
            report.dropped_units,
            millis(now.delay.min),
            millis(now.delay.max),
            millis(now.delay.mean_jitter()),
        );
        let figures = self.figures.of(report, now);
        if let Some(pages) = &self.pages {
            pages.figures(&figures);
        }
        self.publish(report, &figures);
        self.status.show(&line, figures)
    }

    /// A connection from this address, after the first a new one.
    fn received_from(&mut self, remote: SocketAddr) {
        if !self.flow.peers.is_empty() {
            self.flow.reconnections += 1;
        }
        self.flow.peers = vec![remote.to_string()];
    }

    fn publish(&mut self, report: &Report, rates: &serde_json::Value) {
        let flowing = self.figures.flowing;
        let over = flowing.and_then(|flowing| flowing.connection);
        let path = |path: &ReceivedPath| PathReport {
            path: u32::try_from(path.path + 1).unwrap_or(u32::MAX),
            peer: path.remote.to_string(),
            round_trip_s: published::seconds(path.round_trip),
            bytes: path.bytes_received,
            ..PathReport::default()
        };
        if !self.figures.paths.is_empty() {
            self.flow.peers =
                self.figures.paths.iter().map(|path| path.remote.to_string()).collect();
        }
        let flow = FlowReport {
            flowing: true,
            round_trip_s: published::seconds(over.and_then(|over| over.clock_round_trip)),
            latency_s: published::seconds(flowing.and_then(|flowing| flowing.latency)),
            input_bytes: over.map_or(0, |over| over.bytes_received),
            output_bytes: Some(flowing.map_or(0, |flowing| flowing.written_bytes)),
            units: report.units,
            dropped_units: report.dropped_units,
            paths: self.figures.paths.iter().map(path).collect(),
            delays: flowing.map(|flowing| published::delays(&flowing.delays)),
            ..self.flow.clone()
        };
        self.flow = with_report(with_rates(flow, rates), report);
        self.published.publish(vec![self.flow.clone()]);
    }

    fn totals(&mut self, report: &Report) -> Result<(), Failure> {
        if self.status.documents.is_on() {
            return self.status.documents.emit("totals", json!({ "stream": report }));
        }
        self.status.connection(&format!(
            "received {}, {}: {} late, {} dropped; {} undamaged, {} damaged, {} missing",
            counted(report.units, "unit"),
            counted(report.bytes, "byte"),
            report.late_units,
            report.dropped_units,
            counted(report.whole_datagrams, "datagram"),
            report.damaged_datagrams,
            report.missing_datagrams,
        ));
        Ok(())
    }
}
