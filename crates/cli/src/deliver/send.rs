//! `ontempo send`.

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Duration;
use ontempo_mechanisms::congestion::CongestionName;
use ontempo_media::{Chunker, PcrClock};
use ontempo_monitor::{FlowReport, FlowRole};
use ontempo_session::latency::ShortLatency;
use ontempo_session::paths::{PathAddress, PathEvent, PathFigures, PathOptions};
use ontempo_session::{
    Backlog, SenderEvent, SenderHandler, SenderOptions, SenderTotals, Source, SourceFile, Viewers,
};
use ontempo_transport::live::Options;
use ontempo_transport::{Configuration, ConnectionStatistics, DeliveryOrder, Reliability, Trust};
use ontempo_udp::SocketOptions;
use serde_json::{Value, json};

use super::documents::{Counters, Documents, Meter, with};
use super::paths::{self, AnySender};
use super::published::{self, Published, with_rates, with_report};
use super::sdp;
use super::status_line::{StatusLine, millis};
use super::watch::SourceWatch;
use super::{EXAMPLE_PORT, configuration, failure, read};
use crate::access::Destination;
use crate::address::{Greeting, answering, socket_at};
use crate::arguments::{Place, Repair, Send as Arguments};
use crate::failure::{Failure, environment};
use crate::output::counted;
use crate::signals::{stop_flag, unless_stopped};

const NO_CLOCK: &str = "--realtime: the file has no clock (PCR) at its beginning, or is no transport stream of \
    packets of 188 or 204 bytes; it is sent as fast as the path takes it";

/// Bytes of a file in which its clock is looked for: there is a reference every 100 ms (ISO/IEC 13818-1, 2.7.2).
const LOOKED_AT: u64 = 4 << 20;

/// What arrives in any case has no deadline.
const LATENCY_OF_FULL: &str = "--latency does nothing with --reliability full, the default for files \
    and pipes: all arrives, however late; for a deadline add --reliability deadline";

pub(crate) fn send(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let documents = Documents::new(arguments.json);
    let done = run(arguments, documents);
    documents.fail(&done);
    done
}

fn run(arguments: &Arguments, documents: Documents) -> Result<ExitCode, Failure> {
    let stop = stop_flag()?;
    let is_live = arguments.from.is_live();
    let destination = Destination::read(&arguments.to[0], "--to: ")?;
    let paths = paths::options(arguments, &destination)?;
    let trust = destination.trust(arguments.fingerprint, || other_trust(arguments))?;
    let token = destination.token(&arguments.credentials)?;
    let remote = match &paths {
        Some(paths) => paths.paths[0].remote,
        None => answering(&destination.address, "--to ", &Greeting::quic())?,
    };
    let default_reliability = if is_live { Repair::Deadline } else { Repair::Full };
    let configuration = Configuration {
        congestion: arguments.congestion.or(CongestionName::FOR_MEDIA).map_err(Failure::Input)?,
        ..configuration(arguments.qlog.as_deref(), documents)?
    };
    let socket = SocketOptions { dscp: arguments.dscp.unwrap_or_default(), ..Default::default() };
    let max_bytes = usize::try_from(arguments.buffer.get()).unwrap_or(usize::MAX);
    let backlog = Arc::new(Backlog::new(max_bytes, is_live));
    let reliability = arguments.reliability.unwrap_or(default_reliability).of_flow();
    let order = arguments.delivery.of_flow();
    let is_file =
        reliability == Reliability::Full && order == DeliveryOrder::InOrder && !arguments.realtime;
    let source = source(arguments, &backlog, is_file, &stop)?;
    let options = SenderOptions {
        remote,
        name: destination.name,
        trust,
        token,
        transport: Options { configuration, socket, ..Options::default() },
        latency: arguments.latency,
        grace: arguments.grace,
        order,
        reliability,
        stream: arguments.stream.clone(),
        elementary: None,
        give_up: Wall::from_nanos(arguments.give_up.as_nanos()),
        stop,
    };
    let mut handler = OutputHandler::new(arguments, documents, remote, paths.as_ref());
    if arguments.latency.is_some() && reliability == Reliability::Full {
        handler.status.warn(LATENCY_OF_FULL);
    }
    if arguments.realtime && !may_have_clock(&arguments.from) {
        handler.status.warn(NO_CLOCK);
    }
    let connected = AnySender::connect(options, paths.as_ref(), (backlog, source), handler);
    let mut sender = connected.map_err(failure)?;
    let done = sender.run();
    let totals = sender.totals();
    let is_stopped = sender.is_stopped();
    let handler = sender.handler();
    handler.status.end();
    handler.totals(&totals)?;
    if let Some(failed) = handler.failed.take() {
        return Err(failed);
    }
    done.map_err(failure)?;
    if is_stopped && !is_live {
        let sentence =
            "interrupted before the end of the source: the receiver has only its beginning";
        return Err(Failure::Interrupted(sentence.to_owned()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a regular file begins with a clock to pace it by; what cannot be looked at may have one.
fn may_have_clock(from: &Place) -> bool {
    let Place::File(path) = from else { return true };
    // Another reader of a pipe would take from it what is to be sent.
    let Ok(file) = ontempo_place::open_regular(path) else { return true };
    let (mut chunker, mut clock) = (Chunker::new(u16::MAX), PcrClock::default());
    let mut head = file.take(LOOKED_AT);
    // Most have it in the first piece.
    let mut piece = vec![0; 64 << 10];
    loop {
        let Ok(count) = head.read(&mut piece) else { return true };
        chunker.push(&piece[..count]);
        let is_over = count == 0;
        if is_over {
            chunker.finish();
        }
        while let Some(datagram) = chunker.poll() {
            if clock.due(datagram) > Duration::ZERO {
                return true;
            }
        }
        if is_over {
            return false;
        }
    }
}

/// The verification that `--trust` or `--insecure` ask for.
fn other_trust(arguments: &Arguments) -> Result<Option<Trust>, Failure> {
    match &arguments.trust {
        Some(path) => Trust::from_pem(&read(path, "--trust")?)
            .map(Some)
            .map_err(|error| Failure::Input(format!("--trust {}: {error}", path.display()))),
        None => Ok(arguments.insecure.then_some(Trust::Insecure)),
    }
}

/// The source; if `is_file`, a regular file is one that arrives whole.
fn source(
    arguments: &Arguments,
    backlog: &Arc<Backlog>,
    is_file: bool,
    stop: &AtomicBool,
) -> Result<Source, Failure> {
    if arguments.sdp.is_some() && !matches!(arguments.from, Place::Rtp(_)) {
        return Err(Failure::Input("--sdp: it describes RTP: --from rtp://:PORT".to_owned()));
    }
    let realtime = arguments.realtime;
    if realtime && matches!(arguments.from, Place::Udp(_) | Place::Rtp(_)) {
        return Err(Failure::Input(
            "--realtime: it is for a file or a pipe: --from FILE or --from -; what comes from a \
             network is sent as it comes"
                .to_owned(),
        ));
    }
    let started = match &arguments.from {
        Place::Udp(address) => {
            let socket =
                socket_at(address, "--from udp://", EXAMPLE_PORT, SocketOptions::default())?;
            Source::datagrams(socket, backlog)
        }
        Place::Rtp(address) => {
            let bind = |address: &str| {
                socket_at(address, "--from rtp://", EXAMPLE_PORT, SocketOptions::default())
            };
            let started = Source::rtp((bind(address)?, bind(&next_port(address))?), backlog);
            if let (Some(path), Ok(source)) = (&arguments.sdp, &started) {
                let port = address.rsplit(':').next().and_then(|port| port.parse().ok());
                source.describe(sdp::look(path, port.unwrap_or_default())).map_err(environment)?;
            }
            started
        }
        Place::Pipe => Source::bytes(io::stdin(), "standard input", backlog, realtime),
        Place::File(path) => {
            let name = path.display().to_string();
            let file = open(path, stop)?.map_err(|error| {
                Failure::Environment(format!("--from {name}: cannot be opened: {error}"))
            })?;
            if file.metadata().is_ok_and(|about| about.is_dir()) {
                return Err(Failure::Input(format!(
                    "--from {name}: it is a folder: tar c {name} | ontempo send --from -"
                )));
            }
            match SourceFile::new(&file, path).map_err(environment)? {
                Some(file) if is_file => Ok(Source::File(Box::new(file))),
                _ => Source::bytes(file, &name, backlog, realtime),
            }
        }
    };
    started.map_err(environment)
}

/// A file; a named pipe as soon as a program writes to it.
fn open(path: &Path, stop: &AtomicBool) -> Result<io::Result<File>, Failure> {
    let whole = path.to_owned();
    unless_stopped(stop, move || File::open(whole)).ok_or_else(|| {
        let name = path.display();
        Failure::Interrupted(format!("--from {name}: interrupted; no program writes to it"))
    })
}

/// The address with the next port: that of RTCP (RFC 3550, section 11).
fn next_port(address: &str) -> String {
    let (host, port) = address.rsplit_once(':').unwrap_or(("", address));
    let next = port.parse::<u16>().unwrap_or_default().saturating_add(1);
    format!("{host}:{next}")
}

/// What is published before the receiver answers.
fn flow(arguments: &Arguments, to: SocketAddr, paths: Option<&PathOptions>) -> FlowReport {
    let name = arguments.stream.as_ref().map_or_else(String::new, ToString::to_string);
    let all = paths.map(|paths| paths.paths.iter().map(|path| path.remote).collect());
    let peers = all.unwrap_or_else(|| vec![to]).iter().map(ToString::to_string).collect();
    let place = published::shown(&arguments.from);
    FlowReport { id: 1, role: FlowRole::Sender, name, place, peers, ..FlowReport::default() }
}

/// Writes events to the terminal.
struct OutputHandler {
    status: StatusLine,
    /// The receiver.
    to: String,
    /// Several paths to it, and what they have done.
    paths: Vec<PathAddress>,
    figures: Vec<PathFigures>,
    /// Since when there is no connection.
    lost_at: Option<Instant>,
    /// How long it is tried to connect again.
    give_up: Duration,
    meter: Meter,
    source: SourceWatch,
    /// What is published, and by what.
    flow: FlowReport,
    published: Published,
    /// Set if the output is closed.
    failed: Option<Failure>,
}

impl SenderHandler for OutputHandler {
    fn on_event(&mut self, event: SenderEvent<'_>) -> ControlFlow<()> {
        let to = &self.to;
        match event {
            SenderEvent::Connected { again: false } => {
                self.status.message(&format!("connected to {to}"));
            }
            SenderEvent::Connected { again: true } => {
                let away = self.lost_at.take().map_or(0.0, |at| at.elapsed().as_secs_f64());
                self.status.connection(&format!("connected to {to} again, after {away:.1} s"));
            }
            SenderEvent::Latency(latency) => {
                let fields = json!({
                    "latency_s": latency.latency.as_secs_f64(),
                    "round_trip_s": latency.round_trip.map(Duration::as_secs_f64),
                });
                self.status.message(&latency.to_string());
                let written = self.status.documents.emit("latency", fields);
                return self.done(written);
            }
            SenderEvent::LatencyTooShort(short) => self.status.warn(&too_short(&short)),
            SenderEvent::Occupied(reason, limit) => self.status.message(&format!(
                "{to}: {reason}; waiting for up to {} s, as one that is gone may still have the place",
                limit.as_secs()
            )),
            SenderEvent::Lost(reason) => {
                self.lost_at = Some(Instant::now());
                let give_up = self.give_up;
                self.status.connection(&format!(
                    "lost {to}: {reason}; reconnecting, for up to {give_up} (--give-up)"
                ));
            }
            SenderEvent::Returned(away) => self
                .status
                .connection(&format!("nothing was heard of {to} for {:.1} s", away.as_secs_f64())),
            SenderEvent::File { from, discarded, length } => {
                let sentence = going_on(from, discarded, length);
                sentence.into_iter().for_each(|sentence| self.status.connection(&sentence));
            }
            SenderEvent::Overflow(dropped) => self.status.warn(&format!(
                "the source is faster than the network: {} of {} dropped before they were sent; \
                 lower the encoder's bit rate, or, if it sends in bursts, raise --buffer",
                counted(dropped.units, "unit"),
                counted(dropped.bytes, "byte")
            )),
            SenderEvent::Missed(sentence) => self.status.warn(&sentence),
            SenderEvent::Waiting => self
                .status
                .message("all units acknowledged; waiting until the receiver has written them"),
            SenderEvent::Unreported => {
                self.status
                    .message(
                        "all units acknowledged, but the receiver sent no final report: look there \
                         for what it has written",
                    );
            }
            SenderEvent::Target(rate) => {
                let fields = json!({ "target_bps": rate.as_bits_per_sec() });
                let written = self.status.documents.emit("target", fields);
                return self.done(written);
            }
            SenderEvent::Path(event) => return self.path_event(event),
            SenderEvent::Paths(figures) => self.figures = figures.to_vec(),
            SenderEvent::Progress(totals, connection) => return self.progress(totals, connection),
            // The enum is non-exhaustive.
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl OutputHandler {
    fn new(
        arguments: &Arguments,
        documents: Documents,
        to: SocketAddr,
        paths: Option<&PathOptions>,
    ) -> Self {
        let flow = flow(arguments, to, paths);
        let published = Published::start(vec![flow.clone()]);
        Self {
            status: StatusLine::new(documents),
            to: to.to_string(),
            paths: paths.map_or_else(Vec::new, |paths| paths.paths.clone()),
            figures: Vec::new(),
            lost_at: None,
            give_up: arguments.give_up,
            meter: Meter::new(),
            source: SourceWatch::new(&arguments.from),
            flow,
            published,
            failed: None,
        }
    }

    fn progress(&mut self, all: &SenderTotals, over: &ConnectionStatistics) -> ControlFlow<()> {
        self.source.check(Instant::now(), all.input_bytes).into_iter().for_each(|sentence| {
            self.status.warn(&sentence);
        });
        let viewers = all.viewers.as_ref().map_or_else(String::new, of_viewers);
        let bears = over.target.map_or_else(String::new, |rate| {
            format!(", the path bears {:.1} Mbit/s", rate.as_bits_per_sec() as f64 / 1e6)
        });
        let line = format!(
            "{}, {:.1} MB sent, {} dropped, {} waiting, RTT {}, {} of {} lost{bears}{viewers}{}",
            counted(all.flow.units, "unit"),
            all.flow.bytes as f64 / 1e6,
            all.flow.dropped + all.overflow.units,
            all.flow.held_units,
            over.round_trip.map_or_else(|| "-".to_owned(), millis),
            over.packets_lost,
            counted(over.packets_sent, "packet"),
            paths::line(&self.figures),
        );
        let counters = Counters {
            input: all.input_bytes,
            output: over.bytes_sent,
            lost: over.packets_lost,
            all: over.packets_sent,
        };
        let rates = self.meter.rates(Instant::now(), counters);
        self.publish(all, over, &rates);
        let written =
            self.status.show(&line, with(self.documents_of(figures(all, Some(over))), rates));
        self.done(written)
    }

    fn publish(&mut self, all: &SenderTotals, over: &ConnectionStatistics, rates: &Value) {
        let target = over.target.map(|rate| rate.as_bits_per_sec() as f64);
        let flow = FlowReport {
            flowing: true,
            target_bps: target,
            round_trip_s: published::seconds(over.round_trip),
            latency_s: published::seconds(all.latency),
            input_bytes: all.input_bytes,
            output_bytes: Some(over.bytes_sent),
            units: all.flow.units,
            dropped_units: all.flow.dropped + all.overflow.units,
            packets: Some(over.packets_sent),
            lost_packets: Some(over.packets_lost),
            lost_bytes: Some(over.bytes_lost),
            reconnections: all.reconnected,
            paths: paths::reports(&self.figures, &self.paths),
            viewers: all.viewers.as_ref().map(published::viewers),
            ..self.flow.clone()
        };
        let flow = with_rates(with_report(flow, &all.report), rates);
        self.published.publish(vec![flow]);
    }

    fn path_event(&mut self, event: PathEvent) -> ControlFlow<()> {
        let (sentence, document) = paths::event(event, &self.paths);
        self.status.connection(&sentence);
        let written = self.status.documents.emit("path", document);
        self.done(written)
    }

    /// With the figures of several paths.
    fn documents_of(&self, figures: serde_json::Value) -> serde_json::Value {
        if self.paths.is_empty() {
            return figures;
        }
        with(figures, json!({ "paths": paths::documents(&self.figures, &self.paths) }))
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

    fn totals(&self, all: &SenderTotals) -> Result<(), Failure> {
        if self.status.documents.is_on() {
            return self.status.documents.emit("totals", self.documents_of(figures(all, None)));
        }
        let interrupted = if all.reconnected == 0 {
            String::new()
        } else {
            format!(
                " with {:.1} s without the receiver, at most {:.1} s at a time",
                all.interrupted.as_secs_f64(),
                all.longest_interruption.as_secs_f64()
            )
        };
        self.status.message(&format!(
            "sent {}, {} in {:.1} s: {} arrived, {} dropped at their deadline, {} by buffer overflow; \
             {}; {}{interrupted}",
            counted(all.flow.units, "unit"),
            counted(all.flow.bytes, "byte"),
            self.status.documents.started.elapsed().as_secs_f64(),
            all.flow.arrived,
            all.flow.dropped,
            all.overflow.units,
            delivered(all),
            counted(all.reconnected, "reconnection"),
        ));
        Ok(())
    }
}

/// What the sentence of the totals says of the other side.
fn delivered(all: &SenderTotals) -> String {
    let (datagrams, wrong) = all.datagrams();
    let who = match &all.viewers {
        None => "the receiver delivered".to_owned(),
        Some(Viewers { reporting: 0, .. }) => return "no viewer has reported".to_owned(),
        Some(viewers) => format!("the median of {} got", counted(viewers.reporting, "viewer")),
    };
    format!(
        "{who} {} of {} undamaged, {wrong} missing or damaged, {} late",
        datagrams - wrong,
        counted(datagrams, "datagram"),
        counted(all.report.late_units, "unit"),
    )
}

/// The figures of both documents; those of the connection are missing in the totals.
fn figures(all: &SenderTotals, over: Option<&ConnectionStatistics>) -> serde_json::Value {
    json!({
        "units": all.flow.units,
        "bytes": all.flow.bytes,
        "input_bytes": all.input_bytes,
        "arrived_units": all.flow.arrived,
        "dropped_units": all.flow.dropped,
        "overflow_units": all.overflow.units,
        "overflow_bytes": all.overflow.bytes,
        "waiting_bytes": all.waiting_bytes,
        "reconnected": all.reconnected,
        "interrupted_s": all.interrupted.as_secs_f64(),
        "longest_interruption_s": all.longest_interruption.as_secs_f64(),
        "datagrams": all.datagrams,
        "bad_datagrams": all.datagrams().1,
        "latency_s": all.latency.map(Duration::as_secs_f64),
        "round_trip_s": over.and_then(|over| over.round_trip).map(|rtt| rtt.as_secs_f64()),
        "packets_lost": over.map(|over| over.packets_lost),
        "packets_sent": over.map(|over| over.packets_sent),
        "target_bps": over.and_then(|over| over.target).map(|rate| rate.as_bits_per_sec()),
        "window_bytes": over.map(|over| over.window.get()),
        "receiver": all.report,
        "viewers": all.viewers,
    })
}

/// What the line says about the viewers of a relay.
fn of_viewers(viewers: &Viewers) -> String {
    format!(
        ", {}, {:.1} % of datagrams bad at the median one, {:.1} % at the worst",
        counted(viewers.count, "viewer"),
        viewers.median_bad_share * 100.0,
        viewers.worst_bad_share * 100.0
    )
}

/// The sentence for a file of which the receiver has, or had, a part.
fn going_on(from: u64, discarded: u64, length: u64) -> Option<String> {
    if discarded > 0 {
        return Some(format!(
            "the {discarded} bytes that the receiver had are not of this file: it begins anew"
        ));
    }
    (from > 0).then(|| format!("the receiver has {from} of {length} bytes: going on"))
}

/// The sentence for a latency that holds no repair.
fn too_short(short: &ShortLatency) -> String {
    let ShortLatency { latency, round_trip } = short;
    let (needed, advised) = (short.needed(), short.advised());
    format!(
        "a latency of {latency} holds no repair on this path, whose round trip is {:.0} ms: a lost \
         packet is sent again after {needed} at the earliest, so what is lost stays missing; start \
         with --latency \"{advised}\"",
        round_trip.as_secs_f64() * 1e3,
    )
}
