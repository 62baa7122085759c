//! `ontempo netvideo` and `ontempo tg`: messages at a rate, with and without a QoS specification.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::{Bytes, Duration, MessageRate, Percent, RandomStream};
use ontempo_mechanisms::qos::{Specification, Term};
use ontempo_qos::{AnySocket, Direction, QosOptions};
use ontempo_udp::Clock;
use serde_json::json;

use crate::arguments::{At, NetvideoCommand, OutputOptions, Receiver, TgCommand};
use crate::event_log::EventLog;
use crate::failure::{Failure, environment};
use crate::quality::options;
use crate::signals::{stop_flag, unless_stopped};
use crate::transports::{MessageListener, connect};

/// The specification of the paper's NetVideo (qosockets, III.B.1); all values may be coerced.
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

pub(crate) fn netvideo(command: &NetvideoCommand) -> Result<(), Failure> {
    match command {
        NetvideoCommand::Send { receiver, rate, vary, size, seconds, stdin, quality, output } => {
            let options = options("netvideo", quality, video(), &[Direction::Sending])?;
            let (rate, vary, size) = (*rate, *vary, *size as usize);
            let source = Source { rate, vary, size, seconds: *seconds, is_stdin: *stdin };
            send(receiver, &options, &source, *output)
        }
        NetvideoCommand::Receive { at, stdout, quality, output } => {
            let options = options("netvideo", quality, video(), &[Direction::Receiving])?;
            receive(at, options, "ontempo netvideo send", *stdout, *output)
        }
    }
}

pub(crate) fn tg(command: &TgCommand) -> Result<(), Failure> {
    let options = QosOptions { name: "tg".to_owned(), ..QosOptions::default() };
    match command {
        TgCommand::Send { receiver, rate, vary, size, seconds, output } => {
            let (rate, vary, size) = (*rate, *vary, *size as usize);
            let source = Source { rate, vary, size, seconds: *seconds, is_stdin: false };
            send(receiver, &options, &source, *output)
        }
        TgCommand::Receive { at, output } => {
            receive(at, options, "ontempo tg send", false, *output)
        }
    }
}

/// The messages to send.
struct Source {
    rate: MessageRate,
    /// Largest random variation of an interval.
    vary: Percent,
    size: usize,
    seconds: u64,
    is_stdin: bool,
}

fn send(
    receiver: &Receiver,
    options: &QosOptions,
    source: &Source,
    output: OutputOptions,
) -> Result<(), Failure> {
    if source.rate.as_thousandths() == 0 {
        return Err(Failure::Input("--rate: a rate above 0 is needed".to_owned()));
    }
    let log =
        EventLog { as_json: output.json, to_stderr: false, connection: None, is_limited: false };
    let stopped = stop_flag()?;
    let socket = connect(receiver, options)?;
    let event_thread = log.follow(socket.events()).map_err(environment)?;
    log.agreed(Direction::Sending, &socket.agreed(Direction::Sending))?;
    let sent = send_all(&socket, source, &stopped, output.messages.then_some(log));
    // The receiver reports the last interval after its end.
    thread::sleep(Wall::from_millis(1_200));
    let delivery = socket.delivery(Direction::Sending);
    let closed = socket.close(Wall::from_secs(5));
    // The thread ends with the connection.
    let _ = event_thread.join();
    log.summary(&delivery, json!({}))?;
    sent.and(closed).map_err(|error| Failure::Environment(format!("{}: {error}", receiver.to)))
}

fn send_all(
    socket: &AnySocket,
    source: &Source,
    stopped: &AtomicBool,
    each: Option<EventLog>,
) -> io::Result<()> {
    let mut frame = vec![0; source.size];
    let start = Instant::now();
    let gap = 1_000_000_000_000 / source.rate.as_thousandths();
    let max_variation = source.vary.as_f64() / 100.0;
    // Seeded with the clock, so that two generators vary differently.
    let mut random = RandomStream::new(Clock::wall(), "intervals");
    let mut due = Wall::ZERO;
    for number in 0u64.. {
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
        thread::sleep(due.saturating_sub(start.elapsed()));
        let time = Clock::wall();
        socket.send_message(&frame[..filled])?;
        if let Some(log) = each {
            let fields = json!({ "number": number, "bytes": filled, "time_ns": time });
            // A closed output is reported by the summary.
            let _ = log.write("sent", fields, "");
        }
        let variation = random.uniform_between(1.0 - max_variation, 1.0 + max_variation);
        due += Wall::from_nanos(gap).mul_f64(variation);
    }
    Ok(())
}

/// Fills a frame from standard input and returns its length; only the last may be shorter.
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
    at: &At,
    options: QosOptions,
    sender_command: &str,
    to_stdout: bool,
    output: OutputOptions,
) -> Result<(), Failure> {
    let stopped = stop_flag()?;
    let log = EventLog {
        as_json: output.json,
        to_stderr: to_stdout,
        connection: None,
        is_limited: false,
    };
    let listener = MessageListener::bind(at, options)?;
    listener.log_address(log, sender_command, at.admission.qr)?;
    let environment =
        |error: io::Error| Failure::Environment(format!("--listen {}: {error}", at.listen));
    let socket = unless_stopped(&stopped, move || listener.accept(log));
    let socket = socket.transpose().map_err(environment)?;
    let Some(socket) = socket else {
        return Err(Failure::Interrupted("interrupted; no sender connected".to_owned()));
    };
    let event_thread = log.follow(socket.events()).map_err(environment)?;
    log.agreed(Direction::Receiving, &socket.agreed(Direction::Receiving))?;
    socket.set_read_timeout(Some(Wall::from_millis(500))).map_err(environment)?;
    let each = output.messages.then_some(log);
    let received = receive_all(&socket, to_stdout, &stopped, each);
    let delivery = socket.delivery(Direction::Receiving);
    drop(socket);
    // The thread ends with the connection.
    let _ = event_thread.join();
    log.summary(&delivery, json!({}))?;
    received.map_err(environment)
}

fn receive_all(
    socket: &AnySocket,
    to_stdout: bool,
    stopped: &AtomicBool,
    each: Option<EventLog>,
) -> io::Result<()> {
    let mut buffer = vec![0; 65_536];
    while !stopped.load(Relaxed) {
        match socket.receive_message(&mut buffer) {
            Ok(None) => break,
            Ok(Some(message)) => {
                if let Some(log) = each {
                    let fields = json!({
                        "number": message.sequence,
                        "bytes": message.length,
                        "time_ns": Clock::wall(),
                        "delay_ns": message.delay.as_nanos(),
                    });
                    // A closed output is reported by the summary.
                    let _ = log.write("received", fields, "");
                }
                if to_stdout {
                    io::stdout().write_all(&buffer[..message.length])?;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    io::stdout().flush()
}
