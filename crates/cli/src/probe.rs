//! `ontempo probe`: what a live path bears; throughput and loss against the spacing of packets; its
//! network trace.

mod answer;
mod trace;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver as EventReceiver, RecvTimeoutError, channel, sync_channel};
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::{Bytes, Duration};
use ontempo_mechanisms::spacing::SpacingParameters;
use ontempo_probe::{
    Event, Failure as Refusal, Pace, Probe, ProbeOptions, Receiver, ReceiverOptions, SenderOptions,
    Step, StepResult, Token,
    wire::{self, Message, WireError},
};
use ontempo_udp::{Clock, Driver, DriverOptions, Protocol, Socket, SocketOptions, random};
use serde_json::{Value, json};

use crate::access::{admitted_text, presented_text, tell_of_anyone};
use crate::address::{Greeting, answering, socket_at, socket_for};
use crate::arguments::{Probe as Arguments, ProbeSpacing};
use crate::failure::{Failure, environment};
use crate::limited::{LineLimit, SENTENCES, Share, not_shown};
use crate::output::{columns, emit, emit_json, table, write_stderr};
use crate::plot::{Curve, two_curves};
use crate::signals::stop_flag;

/// The port that error messages suggest.
const EXAMPLE_PORT: u16 = 4434;

/// Default of --seconds, without --trace.
const SECONDS: u64 = 3;

/// Maximum width of the plot, in characters.
const MAX_WIDTH: usize = 200;

/// Maximum events of strangers that wait to be written; more are only counted.
const MAX_EVENTS: usize = 1_024;

/// Lines about sessions.
const SESSION_LINES: Share = Share { burst: 64, interval: Wall::from_millis(250) };

/// How often the stop flag and the number of lines not shown are read.
const POLL_INTERVAL: Wall = Wall::from_millis(100);

/// Runs a measurement to its end; Ctrl-C asks it to end. Returns whether that was so, and how its
/// thread ended: what was measured before its socket failed is known.
///
/// # Errors
/// Its thread cannot be started.
fn run_to_end<P>(
    socket: Socket,
    protocol: P,
    stopped: &AtomicBool,
) -> Result<(bool, Result<(), Failure>), Failure>
where
    P: Protocol<Command = ()> + Send + 'static,
{
    let precise = DriverOptions { precise: true, ..DriverOptions::default() };
    let driver = Driver::spawn(socket, protocol, Clock::new(), precise).map_err(environment)?;
    let mut is_interrupted = false;
    while !driver.has_ended() {
        if !is_interrupted && stopped.load(Relaxed) {
            is_interrupted = true;
            // Fails only if the driver has already ended.
            let _ = driver.command(());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok((is_interrupted, driver.wait().map(drop).map_err(environment)))
}

/// Events of a sending probe.
enum ProbeEvent {
    Outcome(Box<Result<StepResult, Refusal>>),
    Interrupted,
}

pub(crate) fn probe(arguments: &Arguments) -> Result<(), Failure> {
    match (&arguments.listen, &arguments.receiver, &arguments.trace) {
        (Some(at), ..) => listen(arguments, at),
        (None, Some(receiver), Some(file)) => trace::record(arguments, receiver, file),
        (None, Some(receiver), None) if arguments.spacing.is_empty() => {
            answer::answer(arguments, receiver)
        }
        (None, Some(receiver), None) => measure(arguments, receiver),
        // The parser requires one of them.
        (None, None, _) => Err(Failure::Input("HOST:PORT or --listen is needed".to_owned())),
    }
}

fn listen(arguments: &Arguments, at: &str) -> Result<(), Failure> {
    let stopped = stop_flag()?;
    let options = SocketOptions { dscp: arguments.dscp.unwrap_or_default(), ..Default::default() };
    let socket = socket_at(at, "--listen", EXAMPLE_PORT, options)?;
    let local = socket.local_address().map_err(environment)?;
    let token = admitted_text(&arguments.credentials)?.as_deref().map(Token::new);
    let secret = u128::from(random()) << 64 | u128::from(random());
    let (event_sender, events) = sync_channel(MAX_EVENTS);
    let dropped = Arc::new(AtomicU64::new(0));
    let drops = Arc::clone(&dropped);
    let options = ReceiverOptions { token, ..ReceiverOptions::default() };
    let receiver = Receiver::new(options, secret, move |event| {
        // The thread that receives must not wait for the output.
        if event_sender.try_send(event).is_err() {
            drops.fetch_add(1, Relaxed);
        }
    });
    let driver = Driver::spawn(socket, receiver, Clock::new(), DriverOptions::default())
        .map_err(environment)?;
    if arguments.json {
        emit(&json!({ "event": "listening", "local": local.to_string() }).to_string())?;
    } else {
        emit(&format!("listening at {local}; Ctrl-C ends it"))?;
    }
    if options.token.is_none() {
        let (most, of_host) = (options.most_sessions, options.most_sessions_per_host);
        let what = format!(
            "measure: {most} sessions, {of_host} of a host; --token admits only who has it"
        );
        tell_of_anyone(local, &what);
    }
    let mut lines = SessionLines::new(Instant::now(), arguments.json);
    while !stopped.load(Relaxed) {
        match events.recv_timeout(POLL_INTERVAL) {
            Ok(event) => lines.write(Instant::now(), &event)?,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if driver.has_ended() => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        lines.count(Instant::now(), dropped.swap(0, Relaxed))?;
    }
    driver.end().map_err(environment)?;
    for event in events.try_iter() {
        lines.write(Instant::now(), &event)?;
    }
    lines.end(dropped.swap(0, Relaxed))
}

/// Writes what strangers cause, so much of it at a time.
struct SessionLines {
    as_json: bool,
    sessions: LineLimit,
    refusals: LineLimit,
}

impl SessionLines {
    fn new(now: Instant, as_json: bool) -> Self {
        Self {
            as_json,
            sessions: LineLimit::new(now, SESSION_LINES),
            refusals: LineLimit::new(now, SENTENCES),
        }
    }

    fn write(&mut self, now: Instant, event: &Event) -> Result<(), Failure> {
        let limit = match event {
            Event::Refused { .. } => &mut self.refusals,
            _ => &mut self.sessions,
        };
        if limit.allows(now) { emit(&event_line(event, self.as_json)) } else { Ok(()) }
    }

    /// Writes how many events were not written, where a line may be.
    fn count(&mut self, now: Instant, dropped: u64) -> Result<(), Failure> {
        // Nearly all that is so much is refusals.
        self.refusals.count(dropped);
        let refusals = self.refusals.not_shown(now);
        let sessions = self.sessions.not_shown(now);
        self.write_counts(refusals, sessions)
    }

    fn end(&mut self, dropped: u64) -> Result<(), Failure> {
        self.refusals.count(dropped);
        let (refusals, sessions) = (self.refusals.rest(), self.sessions.rest());
        self.write_counts(refusals, sessions)
    }

    fn write_counts(&self, refusals: Option<u64>, sessions: Option<u64>) -> Result<(), Failure> {
        for (what, count) in [("refusals", refusals), ("sessions", sessions)] {
            let Some(count) = count else { continue };
            emit(&if self.as_json {
                json!({ "event": "not-shown", "of": what, "count": count }).to_string()
            } else {
                not_shown(count, what)
            })?;
        }
        Ok(())
    }
}

/// The output line of a receiver's event.
fn event_line(event: &Event, as_json: bool) -> String {
    let (what, peer, more) = match event {
        Event::Began { peer, .. } => ("began", peer, String::new()),
        Event::Ended { peer, totals, .. } => {
            ("ended", peer, format!("; {} packets of its last spacing received", totals.received))
        }
        Event::Refused { peer, reason } => {
            ("refused", peer, format!(": {}", Refusal::Refused(*reason)))
        }
        Event::Payload { session, .. } => return format!("payload of session {session}"),
    };
    if as_json {
        return json!({ "event": what, "peer": peer.to_string() }).to_string();
    }
    format!("{peer} {what}{more}")
}

fn measure(arguments: &Arguments, receiver: &str) -> Result<(), Failure> {
    // Before Ctrl-C is caught: it may be in a named pipe that waits for its writer.
    let token = presented_text(&arguments.credentials)?;
    // Unbounded, but it holds one event a step.
    let (event_sender, events) = channel();
    let interrupt = event_sender.clone();
    ctrlc::set_handler(move || drop(interrupt.send(ProbeEvent::Interrupted)))
        .map_err(|error| Failure::Environment(format!("cannot catch Ctrl-C: {error}")))?;
    let (destination, socket) = reach(arguments, receiver)?;
    let duration = Duration::from_secs(seconds(arguments));
    let steps = arguments.spacing.iter().map(|&spacing| Step { pace: pace(spacing), duration });
    let options = ProbeOptions {
        steps: steps.collect(),
        packet: Bytes::new(arguments.packet),
        sender: SenderOptions {
            token: token.as_deref().map(Token::new),
            dscp: arguments.dscp,
            beyond_path: arguments.beyond_path,
            secret: Some(random()),
            ..SenderOptions::to(destination)
        },
    };
    let probe = Probe::new(options, random(), move |outcome| {
        drop(event_sender.send(ProbeEvent::Outcome(Box::new(outcome))));
    });
    let precise = DriverOptions { precise: true, ..DriverOptions::default() };
    let driver = Driver::spawn(socket, probe, Clock::new(), precise).map_err(environment)?;
    let mut all = Vec::new();
    let ended = collect(&driver, &events, &mut all, |measured| {
        if !arguments.json {
            write_stderr(&format!("{}: done", name(arguments.spacing[measured.place])));
        }
    });
    driver.wait().map_err(environment)?;
    // Without any it ends with an error, which is the document then.
    if !all.is_empty() {
        if arguments.json {
            emit_json(&document(destination, arguments, &all))?;
        } else {
            emit(&text(arguments, &all))?;
        }
    }
    ended.map_err(|failure| match failure {
        Some(refusal) => refused(destination, refusal),
        None => Failure::Interrupted("interrupted; finished measurements are above".to_owned()),
    })
}

fn refused(destination: SocketAddr, refusal: Refusal) -> Failure {
    let what = format!("{destination}: {refusal}");
    match refusal {
        Refusal::Refused(_) => Failure::Input(what),
        Refusal::NobodyAnswers | Refusal::Silent | Refusal::False => Failure::Environment(what),
    }
}

/// Seconds to send at each spacing.
fn seconds(arguments: &Arguments) -> u64 {
    arguments.seconds.unwrap_or(SECONDS)
}

/// A first packet, which the receiver answers and forgets.
fn greeting() -> Greeting {
    let session = random();
    let mut bytes = Vec::new();
    wire::write(session, &Message::Hello { stamp: 0 }, &mut bytes);
    let fits = move |answer: &[u8]| match wire::read(answer) {
        Ok((of, _)) | Err(WireError::Version { session: of, .. }) => of == session,
        Err(_) => false,
    };
    Greeting { bytes, fits: Box::new(fits) }
}

/// The receiver's address, and a socket whose path bears the packets.
fn reach(arguments: &Arguments, receiver: &str) -> Result<(SocketAddr, Socket), Failure> {
    let destination = answering(receiver, "", &greeting())?;
    let socket = socket_for(destination)?;
    if let Ok(mtu) = socket.path_mtu(destination)
        && arguments.packet > mtu.get()
    {
        return Err(Failure::Input(format!(
            "--packet {}: the path MTU to {destination} is {} bytes",
            arguments.packet,
            mtu.get()
        )));
    }
    Ok((destination, socket))
}

/// Collects results until the last step; the error is `None` on Ctrl-C.
fn collect(
    driver: &Driver<Probe>,
    events: &EventReceiver<ProbeEvent>,
    all: &mut Vec<StepResult>,
    mut done: impl FnMut(&StepResult),
) -> Result<(), Option<Refusal>> {
    let mut ended = Ok(());
    loop {
        // Poll for the driver's end: the Ctrl-C handler keeps the channel open.
        let over = driver.has_ended();
        match events.recv_timeout(Wall::from_millis(if over { 0 } else { 50 })) {
            Ok(ProbeEvent::Outcome(outcome)) => match *outcome {
                Ok(measured) => {
                    done(&measured);
                    all.push(measured);
                }
                Err(refusal) => ended = Err(Some(refusal)),
            },
            Ok(ProbeEvent::Interrupted) => {
                ended = Err(None);
                // Fails only if the driver has already ended.
                let _ = driver.command(());
            }
            Err(_) if over => return ended,
            Err(_) => {}
        }
    }
}

fn pace(spacing: ProbeSpacing) -> Pace {
    match spacing {
        ProbeSpacing::Constant(spacing) => Pace::Constant(spacing),
        ProbeSpacing::Psp => Pace::Adaptive(SpacingParameters::psp()),
        ProbeSpacing::PspDamped => Pace::Adaptive(SpacingParameters::damped()),
    }
}

fn name(spacing: ProbeSpacing) -> String {
    match spacing {
        ProbeSpacing::Constant(Duration::ZERO) => "none".to_owned(),
        ProbeSpacing::Constant(spacing) => spacing.to_string(),
        ProbeSpacing::Psp => "psp".to_owned(),
        ProbeSpacing::PspDamped => "psp-damped".to_owned(),
    }
}

/// The table, and a plot of throughput and loss.
fn text(arguments: &Arguments, all: &[StepResult]) -> String {
    let heads = [
        "spacing",
        "as sent",
        "sent",
        "received",
        "loss",
        "arrivals",
        "deviation",
        "queueing",
        "RTT",
    ];
    let mut table = table(&heads, &[1, 2, 3, 4, 5, 6, 7, 8]);
    for one in all {
        let rate = one.received_rate().as_mbit_per_sec();
        let gap = |gap: Option<Duration>| gap.map_or_else(|| "-".to_owned(), micros);
        let partial = if one.is_partial { " (part)" } else { "" };
        table.add_row([
            format!("{}{partial}", name(arguments.spacing[one.place])),
            gap(one.sent_gap()),
            format!("{:.2} Mbit/s", one.sent_rate().as_mbit_per_sec()),
            format!("{rate:.2} Mbit/s"),
            format!("{:.2} %", one.loss() * 100.0),
            gap(one.totals.mean_gap()),
            micros(Duration::from_nanos(one.totals.gap_deviation_ns)),
            micros(Duration::from_nanos(one.totals.queueing_ns)),
            micros(one.rtt.1.unwrap_or(one.rtt.0)),
        ]);
    }
    format!("{}\n\n{}", table.trim_fmt(), plot(arguments, all, columns().min(MAX_WIDTH)))
}

/// Plots throughput and loss. Spacings are at equal distances on the axis: they differ by orders of
/// magnitude, and adaptive ones have no fixed value.
fn plot(arguments: &Arguments, all: &[StepResult], width: usize) -> String {
    let places: Vec<_> = all.iter().map(|one| name(arguments.spacing[one.place])).collect();
    let rates: Vec<_> = all.iter().map(|one| one.received_rate().as_mbit_per_sec()).collect();
    let rate = Curve {
        name: "received",
        unit: "Mbit/s",
        letters: ('o', '.'),
        max: rates.iter().copied().fold(f64::MIN_POSITIVE, f64::max),
        values: rates,
    };
    let loss = Curve {
        name: "loss",
        unit: "%",
        letters: ('x', ','),
        max: 100.0,
        values: all.iter().map(|one| one.loss() * 100.0).collect(),
    };
    two_curves("spacing", &places, &rate, &loss, width)
}

fn micros(span: Duration) -> String {
    format!("{:.1} us", span.as_secs_f64() * 1e6)
}

fn document(destination: SocketAddr, arguments: &Arguments, all: &[StepResult]) -> Value {
    let rows: Vec<_> = all
        .iter()
        .map(|one| {
            let totals = &one.totals;
            let seconds = |nanos: u64| nanos as f64 / 1e9;
            let gap = |gap: Option<Duration>| gap.map(Duration::as_secs_f64);
            let spacing = arguments.spacing[one.place];
            let constant = match spacing {
                ProbeSpacing::Constant(spacing) => Some(spacing.as_secs_f64()),
                _ => None,
            };
            let over_time: Vec<_> = one
                .spacings
                .iter()
                .map(|(at, spacing)| [at.as_secs_f64(), spacing.as_secs_f64()])
                .collect();
            json!({
                "spacing": name(spacing),
                "spacing_s": constant,
                "sent_packets": one.sent,
                "received_packets": totals.received,
                "loss": one.loss(),
                "sent_bps": one.sent_rate().as_bits_per_sec(),
                "received_bps": one.received_rate().as_bits_per_sec(),
                "sent_gap_mean_s": gap(one.sent_gap()),
                "arrival_gap_mean_s": gap(totals.mean_gap()),
                "arrival_gap_deviation_s": seconds(totals.gap_deviation_ns),
                "queueing_mean_s": seconds(totals.queueing_ns),
                "base_rtt_s": one.rtt.0.as_secs_f64(),
                "last_rtt_s": gap(one.rtt.1),
                "late_packets": totals.late,
                "duplicate_packets": totals.duplicates,
                "marked_packets": totals.marked,
                "bounded": one.is_bounded,
                "loss_reports": one.losses,
                "spacing_over_time_s": over_time,
                "partial": one.is_partial,
            })
        })
        .collect();
    json!({
        "receiver": destination.to_string(),
        "packet_bytes": arguments.packet,
        "seconds": seconds(arguments),
        "spacings": rows,
    })
}
