//! `ontempo probe`: throughput and loss of a live path against the spacing of packets.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver as Results, RecvTimeoutError, Sender as Tell, channel};
use std::time::Duration as Wall;

use ontempo_foundation::{Bytes, Duration};
use ontempo_mechanisms::spacing::SpacingParameters;
use ontempo_probe::{
    Event, Failure as Refusal, Pace, Probe, ProbeOptions, Receiver, ReceiverOptions, SenderOptions,
    Step, StepResult, Token,
};
use ontempo_udp::{Clock, Driver, DriverOptions, SocketOptions, random};
use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};

use crate::address::{resolve, socket_at, socket_for};
use crate::arguments::{Probe as Arguments, ProbeSpacing};
use crate::failure::{Failure, environment};
use crate::output::{complain, emit, emit_json, table};
use crate::plot::{Curve, two_curves};

/// The port that is written where none was.
const USUAL: u16 = 4434;

/// Width of the plot where the terminal's is not known, and the most of it, in letters.
const WIDTH: usize = 80;
const WIDEST: usize = 120;

/// What ends the waiting for results.
enum News {
    Outcome(Box<Result<StepResult, Refusal>>),
    Heard(Event),
    Interrupted,
}

pub(crate) fn probe(arguments: &Arguments) -> Result<(), Failure> {
    let (tell, news) = channel();
    let interrupt = tell.clone();
    ctrlc::set_handler(move || drop(interrupt.send(News::Interrupted)))
        .map_err(|error| Failure::Environment(format!("cannot listen to Ctrl-C: {error}")))?;
    match (&arguments.listen, &arguments.receiver) {
        (Some(at), _) => listen(arguments, at, tell, &news),
        (None, Some(receiver)) => measure(arguments, receiver, tell, &news),
        // The parser sees to it that one of them is there.
        (None, None) => Err(Failure::Input("HOST:PORT or --listen is needed".to_owned())),
    }
}

fn listen(
    arguments: &Arguments,
    at: &str,
    tell: Tell<News>,
    news: &Results<News>,
) -> Result<(), Failure> {
    let options = SocketOptions { dscp: arguments.dscp.unwrap_or_default(), ..Default::default() };
    let socket = socket_at(at, "--listen", USUAL, options)?;
    let local = socket.local_address().map_err(environment)?;
    let token = arguments.token.as_deref().map(Token::new);
    let secret = u128::from(random()) << 64 | u128::from(random());
    let receiver = Receiver::new(
        ReceiverOptions { token, ..ReceiverOptions::default() },
        secret,
        move |event| drop(tell.send(News::Heard(event))),
    );
    let driver = Driver::spawn(socket, receiver, Clock::new(), DriverOptions::default())
        .map_err(environment)?;
    if arguments.json {
        emit(&json!({ "event": "listening", "local": local.to_string() }).to_string())?;
    } else {
        emit(&format!("listening at {local}; Ctrl-C ends it"))?;
    }
    loop {
        match news.recv_timeout(Wall::from_secs(1)) {
            Ok(News::Heard(event)) => emit(&heard(&event, arguments.json))?,
            Ok(News::Interrupted) | Err(RecvTimeoutError::Disconnected) => break,
            Ok(News::Outcome(_)) => {}
            Err(RecvTimeoutError::Timeout) if driver.has_ended() => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    driver.end().map(drop).map_err(environment)
}

/// One line of a listener's output.
fn heard(event: &Event, as_json: bool) -> String {
    let (what, peer, more) = match event {
        Event::Began { peer, .. } => ("began", peer, String::new()),
        Event::Ended { peer, totals, .. } => {
            ("ended", peer, format!("; {} packets of its last spacing came", totals.received))
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

fn measure(
    arguments: &Arguments,
    receiver: &str,
    tell: Tell<News>,
    news: &Results<News>,
) -> Result<(), Failure> {
    let destination = resolve(receiver, "")?;
    let socket = socket_for(destination)?;
    if let Ok(mtu) = socket.path_mtu(destination)
        && arguments.packet > mtu.get()
    {
        return Err(Failure::Input(format!(
            "--packet {}: this machine's way to {destination} takes at most {} bytes",
            arguments.packet,
            mtu.get()
        )));
    }
    let duration = Duration::from_secs(arguments.seconds);
    let steps = arguments.spacing.iter().map(|&spacing| Step { pace: pace(spacing), duration });
    let options = ProbeOptions {
        steps: steps.collect(),
        packet: Bytes::new(arguments.packet),
        sender: SenderOptions {
            token: arguments.token.as_deref().map(Token::new),
            dscp: arguments.dscp,
            ..SenderOptions::to(destination)
        },
    };
    let probe = Probe::new(options, random(), move |outcome| {
        drop(tell.send(News::Outcome(Box::new(outcome))));
    });
    let precise = DriverOptions { precise: true, ..DriverOptions::default() };
    let driver = Driver::spawn(socket, probe, Clock::new(), precise).map_err(environment)?;
    let mut all = Vec::new();
    let ended = collect(&driver, news, &mut all, |measured| {
        if !arguments.json {
            complain(&format!("{}: done", name(arguments.spacing[measured.place])));
        }
    });
    driver.wait().map_err(environment)?;
    if arguments.json {
        emit_json(&document(destination, arguments, &all))?;
    } else if !all.is_empty() {
        emit(&shown(arguments, &all))?;
    }
    ended.map_err(|failure| match failure {
        Some(refusal @ Refusal::Refused(_)) => Failure::Input(format!("{destination}: {refusal}")),
        Some(refusal) => Failure::Environment(format!("{destination}: {refusal}")),
        None => Failure::Interrupted("interrupted; what was measured is above".to_owned()),
    })
}

/// Gathers what is measured until all is; the error is `None` where the user wants no more.
fn collect(
    driver: &Driver<Probe>,
    news: &Results<News>,
    all: &mut Vec<StepResult>,
    mut done: impl FnMut(&StepResult),
) -> Result<(), Option<Refusal>> {
    let mut ended = Ok(());
    loop {
        // The channel stays open for Ctrl-C: the driver's end is looked for.
        let over = driver.has_ended();
        match news.recv_timeout(Wall::from_millis(if over { 0 } else { 50 })) {
            Ok(News::Outcome(outcome)) => match *outcome {
                Ok(measured) => {
                    done(&measured);
                    all.push(measured);
                }
                Err(refusal) => ended = Err(Some(refusal)),
            },
            Ok(News::Interrupted) => {
                ended = Err(None);
                // Where the driver has ended by itself, there is nothing to end.
                let _ = driver.command(());
            }
            Ok(News::Heard(_)) => {}
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
fn shown(arguments: &Arguments, all: &[StepResult]) -> String {
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
    let terminal = tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    let width = if terminal == 0 { WIDTH } else { terminal.min(WIDEST) };
    format!("{}\n\n{}", table.trim_fmt(), plot(arguments, all, width))
}

/// Throughput and loss over the spacings, which stand at even distances: their steps are of very
/// different sizes, and those that adapt are none.
fn plot(arguments: &Arguments, all: &[StepResult], width: usize) -> String {
    let places: Vec<_> = all.iter().map(|one| name(arguments.spacing[one.place])).collect();
    let rates: Vec<_> = all.iter().map(|one| one.received_rate().as_mbit_per_sec()).collect();
    let rate = Curve {
        name: "received",
        unit: "Mbit/s",
        letters: ('o', '.'),
        most: rates.iter().copied().fold(f64::MIN_POSITIVE, f64::max),
        values: rates,
    };
    let loss = Curve {
        name: "loss",
        unit: "%",
        letters: ('x', ','),
        most: 100.0,
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
                "loss_reports": one.losses,
                "spacing_over_time_s": over_time,
                "partial": one.is_partial,
            })
        })
        .collect();
    json!({
        "receiver": destination.to_string(),
        "packet_bytes": arguments.packet,
        "seconds": arguments.seconds,
        "spacings": rows,
    })
}
