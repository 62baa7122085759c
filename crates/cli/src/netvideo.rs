//! `ontempo netvideo` and `ontempo tg`: messages at a rate, with and without a quality of service.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration as Wall, Instant};

use ontempo_endpoint::qos::{Delivery, Direction, Event, Events, QosOptions, Reserve, SetupError};
use ontempo_foundation::{Bytes, Duration, MessageRate, Percent};
use ontempo_mechanisms::qos::{Specification, Term, Turn};
use serde_json::json;

use crate::arguments::{Known, NetvideoCommand, Quality, Service, TgCommand, Transport, Trusted};
use crate::carried::Carried;
use crate::failure::Failure;
use crate::monitor::stop_flag;
use crate::output::{complain, emit};

/// What the paper's NetVideo asks for (qosockets, III.B.1), all of it coerced.
fn video() -> Specification {
    Specification {
        min_rate: Term::coerced(MessageRate::per_second(60)),
        max_rate: Term::coerced(MessageRate::per_second(80)),
        peak_rate: Term::coerced(MessageRate::per_second(100)),
        size: Term::coerced(Bytes::new(1_280)),
        min_delay: Term::coerced(Duration::ZERO),
        max_delay: Term::coerced(Duration::from_millis(100)),
        int_delay: Term::coerced(Duration::from_millis(50)),
        jitter: Term::default(),
        loss: Term::coerced(Percent::new(5)),
        rec_time: Term::coerced(Duration::from_millis(5_000)),
        permutable: Term::coerced(false),
    }
}

/// What is asked for in a direction; `otherwise` where no file is named.
pub(crate) fn options(
    name: &str,
    quality: &Quality,
    otherwise: Specification,
    directions: &[Direction],
) -> Result<QosOptions, Failure> {
    let asked = match &quality.spec {
        Some(path) => {
            ontempo_endpoint::qos::read(path).map_err(|error| Failure::Input(error.to_string()))?
        }
        None => otherwise,
    };
    let of =
        |direction| if directions.contains(&direction) { asked } else { Specification::default() };
    Ok(QosOptions {
        name: name.to_owned(),
        send: of(Direction::Sending),
        receive: of(Direction::Receiving),
        reserve: match quality.reserve {
            Service::None => Reserve::None,
            Service::ControlledLoad => Reserve::ControlledLoad,
            Service::Guaranteed => Reserve::Guaranteed,
        },
        must_reserve: quality.must_reserve,
        ..QosOptions::default()
    })
}

pub(crate) fn failed(what: &str) -> impl Fn(SetupError) -> Failure + '_ {
    move |error| match error {
        SetupError::Contradiction(_) | SetupError::Disagreement(_) => {
            Failure::Input(format!("{what}: {error}"))
        }
        _ => Failure::Environment(format!("{what}: {error}")),
    }
}

pub(crate) fn netvideo(command: &NetvideoCommand) -> Result<(), Failure> {
    match command {
        NetvideoCommand::Send { to, over, trusted, rate, size, seconds, stdin, quality, json } => {
            let options = options("netvideo", quality, video(), &[Direction::Sending])?;
            let source =
                Source { rate: *rate, size: *size as usize, seconds: *seconds, is_stdin: *stdin };
            send((*over, trusted), to, &options, &source, *json)
        }
        NetvideoCommand::Receive { listen, over, known, stdout, quality, json } => {
            let options = options("netvideo", quality, video(), &[Direction::Receiving])?;
            receive((*over, known), listen, options, *stdout, *json)
        }
    }
}

pub(crate) fn tg(command: &TgCommand) -> Result<(), Failure> {
    let options = QosOptions { name: "tg".to_owned(), ..QosOptions::default() };
    match command {
        TgCommand::Send { to, over, trusted, rate, size, seconds, json } => {
            let source =
                Source { rate: *rate, size: *size as usize, seconds: *seconds, is_stdin: false };
            send((*over, trusted), to, &options, &source, *json)
        }
        TgCommand::Receive { listen, over, known, json } => {
            receive((*over, known), listen, options, false, *json)
        }
    }
}

/// What is sent.
struct Source {
    rate: MessageRate,
    size: usize,
    seconds: u64,
    is_stdin: bool,
}

fn send(
    (over, trusted): (Transport, &Trusted),
    to: &str,
    options: &QosOptions,
    source: &Source,
    as_json: bool,
) -> Result<(), Failure> {
    if source.rate.as_thousandths() == 0 {
        return Err(Failure::Input("--rate: a rate above 0 is needed".to_owned()));
    }
    let stopped = stop_flag()?;
    let carried = Carried::connect(over, to, trusted, options)?;
    let telling = tell(carried.events(), as_json, true);
    let sent = send_all(&carried, source, &stopped);
    // The receiver tells of the last interval once that is over.
    thread::sleep(Wall::from_millis(1_200));
    let delivery = carried.delivery(Direction::Sending);
    let closed = carried.close(Wall::from_secs(5));
    // It ends with the connection.
    let _ = telling.join();
    emit(&summary(&delivery, as_json))?;
    sent.and(closed).map_err(|error| Failure::Environment(format!("{to}: {error}")))
}

fn send_all(carried: &Carried, source: &Source, stopped: &AtomicBool) -> io::Result<()> {
    let mut frame = vec![0; source.size];
    let began = Instant::now();
    let gap = 1_000_000_000_000 / u128::from(source.rate.as_thousandths());
    for number in 0u64.. {
        let due = Wall::from_nanos((gap * u128::from(number)).try_into().unwrap_or(u64::MAX));
        if stopped.load(Relaxed) || (!source.is_stdin && due.as_secs() >= source.seconds) {
            break;
        }
        let mut filled = frame.len();
        if source.is_stdin {
            filled = fill(&mut frame)?;
            if filled == 0 {
                break;
            }
        } else {
            // A test pattern: a bar that moves by one byte a frame.
            let place = usize::try_from(number).unwrap_or(0) % frame.len();
            frame.fill(0x10);
            frame[place] = 0xeb;
        }
        thread::sleep(due.saturating_sub(began.elapsed()));
        carried.send(&frame[..filled])?;
    }
    Ok(())
}

/// Fills a frame from standard input, but for the last.
fn fill(frame: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < frame.len() {
        match io::stdin().read(&mut frame[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn receive(
    (over, known): (Transport, &Known),
    listen: &str,
    options: QosOptions,
    to_stdout: bool,
    as_json: bool,
) -> Result<(), Failure> {
    let stopped = stop_flag()?;
    let environment =
        |error: io::Error| Failure::Environment(format!("--listen {listen}: {error}"));
    let listening = |local: SocketAddr, fingerprint: Option<String>| {
        let mut line = json!({ "event": "listening", "local": local.to_string() });
        let mut text = format!("listening at {local}");
        if let Some(fingerprint) = fingerprint {
            text += &format!(", fingerprint {fingerprint}");
            line["fingerprint"] = fingerprint.into();
        }
        text += "; Ctrl-C ends it";
        say(&if as_json { line.to_string() } else { text }, to_stdout)
    };
    let carried = Carried::accept(over, listen, known, options, listening)?;
    let telling = tell(carried.events(), as_json, !to_stdout);
    carried.set_read_timeout(Wall::from_millis(500)).map_err(environment)?;
    let received = receive_all(&carried, to_stdout, &stopped);
    let delivery = carried.delivery(Direction::Receiving);
    drop(carried);
    // It ends with the connection.
    let _ = telling.join();
    say(&summary(&delivery, as_json), to_stdout)?;
    received.map_err(environment)
}

fn say(line: &str, to_stderr: bool) -> Result<(), Failure> {
    if to_stderr {
        complain(line);
        return Ok(());
    }
    emit(line)
}

fn receive_all(carried: &Carried, to_stdout: bool, stopped: &Arc<AtomicBool>) -> io::Result<()> {
    let mut room = vec![0; 65_536];
    while !stopped.load(Relaxed) {
        match carried.receive(&mut room) {
            Ok(None) => break,
            Ok(Some(message)) if to_stdout => {
                io::stdout().write_all(&room[..message.length])?;
            }
            Ok(Some(_)) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    io::stdout().flush()
}

/// Tells of what changes, until the connection ends.
fn tell(events: Events, as_json: bool, to_stdout: bool) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for event in events {
            let Some((kind, text)) = described(&event) else { continue };
            let line = json!({ "event": kind, "what": text }).to_string();
            // Where the output is gone, the summary says so.
            let _ = say(&if as_json { line } else { text }, !to_stdout);
        }
    })
}

/// An event's kind and sentence.
fn described(event: &Event) -> Option<(&'static str, String)> {
    match event {
        Event::Violation { violation, .. } => {
            let turn = match violation.turn {
                Turn::Begins => "violated",
                Turn::Ends => "kept again",
            };
            let (parameter, asked, delivered) =
                (violation.parameter, violation.asked, violation.delivered);
            Some(("violation", format!("{parameter} {turn}: asked {asked}, delivered {delivered}")))
        }
        Event::Reservation { state, reason, .. } => {
            let colon = if reason.is_empty() { "" } else { ": " };
            Some(("reservation", format!("reservation {state:?}{colon}{reason}")))
        }
        Event::Step { .. } | Event::Changed { .. } => None,
    }
}

fn summary(delivery: &Delivery, as_json: bool) -> String {
    let seconds = |span: Option<Duration>| span.map(Duration::as_secs_f64);
    if as_json {
        return json!({
            "event": "summary",
            "sent_messages": delivery.sent_messages,
            "messages": delivery.messages,
            "bytes": delivery.bytes,
            "lost_messages": delivery.lost_messages,
            "delay_s": seconds(delivery.delay),
            "delay_error_s": seconds(delivery.delay_error),
            "jitter_s": seconds(delivery.jitter),
        })
        .to_string();
    }
    let last =
        delivery.delay.zip(delivery.delay_error).map_or_else(String::new, |(delay, error)| {
            format!("; delay at last {delay}, off by {error} at most")
        });
    format!(
        "{} messages sent, {} delivered ({}), {} lost{last}",
        delivery.sent_messages,
        delivery.messages,
        Bytes::new(delivery.bytes),
        delivery.lost_messages,
    )
}
