//! `ontempo netvideo` and `ontempo tg`: messages at a rate, with and without a QoS specification.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::{Bytes, Duration, MessageRate, Percent, RandomStream};
use ontempo_mechanisms::qos::{Specification, Term};
use ontempo_qos::{AnySocket, Direction, QosOptions};
use ontempo_session::StoppableWriter;
use ontempo_udp::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::json;

use crate::arguments::{At, NetvideoCommand, OutputOptions, Receiver, TgCommand};
use crate::event_log::EventLog;
use crate::failure::{Failure, environment};
use crate::quality::options;
use crate::signals::{pause, stop_flag, unless_stopped};
use crate::transports::{MessageListener, connect};

/// Interval at which the stop flag is read where a call could block.
const STEP: Wall = Wall::from_millis(100);

/// How long the receiver's last report is waited for; and once stopped.
const AFTER_LAST: Wall = Wall::from_millis(1_200);
const AFTER_STOP: Wall = Wall::from_millis(600);

/// How long the receiver may take to close; and once stopped.
const CLOSE_TIMEOUT: Wall = Wall::from_secs(5);
const CLOSE_AFTER_STOP: Wall = Wall::from_millis(400);

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
    let (to, of_socket) = (receiver.clone(), options.clone());
    let Some(socket) = unless_stopped(&stopped, move || connect(&to, &of_socket)) else {
        return Err(Failure::Interrupted("interrupted before the connection was made".to_owned()));
    };
    let socket = socket?;
    socket.set_write_timeout(Some(STEP)).map_err(environment)?;
    let event_thread = log.follow(socket.events()).map_err(environment)?;
    log.agreed(Direction::Sending, &socket.agreed(Direction::Sending))?;
    let asked = options.send.max_rate.value;
    let sent = send_all(&socket, source, asked, &stopped, output.messages.then_some(log));
    // The receiver reports the last interval after its end.
    pause(AFTER_LAST, &stopped);
    if stopped.load(Relaxed) {
        thread::sleep(AFTER_STOP);
    }
    let delivery = socket.delivery(Direction::Sending);
    let closed = close(socket, &stopped);
    if !matches!(closed, Ok(false)) {
        // The thread ends with the connection.
        let _ = event_thread.join();
    }
    log.summary(&delivery, json!({}))?;
    let failed = |error| Failure::Environment(format!("{}: {error}", receiver.to));
    match sent.map_err(failed)? && closed.map_err(failed)? {
        true => Ok(()),
        false => Err(Failure::Interrupted(format!(
            "{}: interrupted; the receiver has not taken all that was sent",
            receiver.to
        ))),
    }
}

/// Closes the connection, waiting less for the receiver once stopped; false if it has not taken all.
///
/// # Errors
/// The connection was lost, or the receiver has not closed it in time though nobody has stopped.
fn close(socket: AnySocket, stopped: &Arc<AtomicBool>) -> io::Result<bool> {
    if stopped.load(Relaxed) {
        return match socket.close(CLOSE_AFTER_STOP) {
            Err(error) if is_not_yet(&error) => Ok(false),
            closed => closed.map(|()| true),
        };
    }
    unless_stopped(stopped, move || socket.close(CLOSE_TIMEOUT))
        .map_or(Ok(false), |closed| closed.map(|()| true))
}

/// A call's time was over.
fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Sends the messages; false if the receiver did not take one before this was stopped.
fn send_all(
    socket: &AnySocket,
    source: &Source,
    asked: Option<MessageRate>,
    stopped: &AtomicBool,
    each: Option<EventLog>,
) -> io::Result<bool> {
    // What was agreed may be less than what was to be sent.
    let mut frame = vec![0; source.size.min(socket.max_send_size()).max(1)];
    let start = Instant::now();
    let max_variation = source.vary.as_f64() / 100.0;
    // Seeded with the clock, so that two generators vary differently.
    let mut random = RandomStream::new(Clock::wall(), "intervals");
    let mut due = Wall::ZERO;
    for number in 0u64.. {
        if stopped.load(Relaxed) || (!source.is_stdin && due.as_secs() >= source.seconds) {
            break;
        }
        let agreed = socket.agreed(Direction::Sending);
        let mut filled = frame.len();
        if source.is_stdin {
            filled = fill(&mut frame, stopped)?;
            if filled == 0 {
                break;
            }
        } else {
            // A test pattern: a bar that moves by one byte a frame.
            let place = usize::try_from(number).unwrap_or(0) % frame.len();
            frame.fill(0x10);
            frame[place] = 0xeb;
        }
        pause(due.saturating_sub(start.elapsed()), stopped);
        let time = Clock::wall();
        while let Err(error) = socket.send_message(&frame[..filled]) {
            match is_not_yet(&error) {
                true if stopped.load(Relaxed) => return Ok(false),
                true => {}
                false => return Err(error),
            }
        }
        if let Some(log) = each {
            let fields = json!({ "number": number, "bytes": filled, "time_ns": time });
            // A closed output is reported by the summary.
            let _ = log.write("sent", fields, "");
        }
        let variation = random.uniform_between(1.0 - max_variation, 1.0 + max_variation);
        due += Wall::from_nanos(gap(source.rate, asked, agreed.max_rate.value)).mul_f64(variation);
    }
    Ok(true)
}

/// Nanoseconds between two frames. Where less is agreed than this end asked, no more than that; a rate
/// above what this end itself asked is the user's wish.
fn gap(rate: MessageRate, asked: Option<MessageRate>, agreed: Option<MessageRate>) -> u64 {
    let is_less = agreed.is_some_and(|agreed| asked.is_none_or(|asked| agreed < asked));
    let rate = agreed.filter(|_| is_less).map_or(rate, |agreed| rate.min(agreed));
    1_000_000_000_000 / rate.as_thousandths().max(1)
}

/// Fills a frame from standard input and returns its length; only the last may be shorter. Once
/// stopped, nothing is waited for.
fn fill(frame: &mut [u8], stopped: &AtomicBool) -> io::Result<usize> {
    // Without the buffer of the standard library, which would hide from `poll` what it holds.
    let stdin = io::stdin();
    let mut filled = 0;
    while filled < frame.len() && !stopped.load(Relaxed) {
        let step = Timespec::try_from(STEP).ok();
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], step.as_ref()) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match rustix::io::read(&stdin, &mut frame[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
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
    let mut out = output_to(to_stdout, &stopped).map_err(environment)?;
    let received = receive_all(&socket, &mut out, &stopped, each);
    let delivery = socket.delivery(Direction::Receiving);
    // The sender learns that this end has all. Where it is gone, there is nobody to tell.
    let closed = match &received {
        Ok(()) => close(socket, &stopped),
        Err(_) => {
            drop(socket);
            Ok(true)
        }
    };
    if !matches!(closed, Ok(false)) {
        // The thread ends with the connection.
        let _ = event_thread.join();
    }
    log.summary(&delivery, json!({}))?;
    match out {
        Some(out) if out.is_given_up() => Err(Failure::Interrupted(format!(
            "interrupted while standard output takes nothing: {} bytes are not written",
            out.unwritten()
        ))),
        _ => received.map_err(environment),
    }
}

/// Standard output, if the frames go there.
fn output_to(to_stdout: bool, stopped: &Arc<AtomicBool>) -> io::Result<Option<StoppableWriter>> {
    if !to_stdout {
        return Ok(None);
    }
    let to = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    StoppableWriter::new(Box::new(to), Arc::clone(stopped)).map(Some)
}

fn receive_all(
    socket: &AnySocket,
    out: &mut Option<StoppableWriter>,
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
                if let Some(out) = out {
                    out.write_all(&buffer[..message.length])?;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    out.as_mut().map_or(Ok(()), Write::flush)
}
