//! `ontempo netvideo` and `ontempo tg`: messages at a rate, with and without a quality of service.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::{Bytes, Duration, MessageRate, Percent, RandomStream};
use ontempo_mechanisms::qos::{Specification, Term};
use ontempo_qos::{AnySocket, Direction, QosOptions};
use ontempo_udp::Clock;
use serde_json::json;

use crate::arguments::{At, NetvideoCommand, Printed, Receiver, TgCommand};
use crate::carried::{Listening, connect};
use crate::failure::Failure;
use crate::quality::options;
use crate::signals::{stop_flag, unless_stopped};
use crate::telling::Teller;

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

pub(crate) fn netvideo(command: &NetvideoCommand) -> Result<(), Failure> {
    match command {
        NetvideoCommand::Send { receiver, rate, vary, size, seconds, stdin, quality, printed } => {
            let options = options("netvideo", quality, video(), &[Direction::Sending])?;
            let (rate, vary, size) = (*rate, *vary, *size as usize);
            let source = Source { rate, vary, size, seconds: *seconds, is_stdin: *stdin };
            send(receiver, &options, &source, *printed)
        }
        NetvideoCommand::Receive { at, stdout, quality, printed } => {
            let options = options("netvideo", quality, video(), &[Direction::Receiving])?;
            receive(at, options, *stdout, *printed)
        }
    }
}

pub(crate) fn tg(command: &TgCommand) -> Result<(), Failure> {
    let options = QosOptions { name: "tg".to_owned(), ..QosOptions::default() };
    match command {
        TgCommand::Send { receiver, rate, vary, size, seconds, printed } => {
            let (rate, vary, size) = (*rate, *vary, *size as usize);
            let source = Source { rate, vary, size, seconds: *seconds, is_stdin: false };
            send(receiver, &options, &source, *printed)
        }
        TgCommand::Receive { at, printed } => receive(at, options, false, *printed),
    }
}

/// What is sent.
struct Source {
    rate: MessageRate,
    /// By how much each interval may be off.
    vary: Percent,
    size: usize,
    seconds: u64,
    is_stdin: bool,
}

fn send(
    receiver: &Receiver,
    options: &QosOptions,
    source: &Source,
    printed: Printed,
) -> Result<(), Failure> {
    if source.rate.as_thousandths() == 0 {
        return Err(Failure::Input("--rate: a rate above 0 is needed".to_owned()));
    }
    let teller = Teller { as_json: printed.json, to_stderr: false, connection: None };
    let stopped = stop_flag()?;
    let carried = connect(receiver, options)?;
    let telling = teller.follow(carried.events());
    teller.agreed(Direction::Sending, &carried.agreed(Direction::Sending))?;
    let sent = send_all(&carried, source, &stopped, printed.messages.then_some(teller));
    // The receiver tells of the last interval once that is over.
    thread::sleep(Wall::from_millis(1_200));
    let delivery = carried.delivery(Direction::Sending);
    let closed = carried.close(Wall::from_secs(5));
    // It ends with the connection.
    let _ = telling.join();
    teller.summary(&delivery, json!({}))?;
    sent.and(closed).map_err(|error| Failure::Environment(format!("{}: {error}", receiver.to)))
}

fn send_all(
    carried: &AnySocket,
    source: &Source,
    stopped: &AtomicBool,
    each: Option<Teller>,
) -> io::Result<()> {
    let mut frame = vec![0; source.size];
    let began = Instant::now();
    let gap = 1_000_000_000_000 / source.rate.as_thousandths();
    let most_off = source.vary.as_f64() / 100.0;
    // Two generators must not vary alike.
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
        thread::sleep(due.saturating_sub(began.elapsed()));
        let time = Clock::wall();
        carried.send_message(&frame[..filled])?;
        if let Some(teller) = each {
            let what = json!({ "number": number, "bytes": filled, "time_ns": time });
            // Where the output is gone, the summary says so.
            let _ = teller.say("sent", what, "");
        }
        let share = random.uniform_between(1.0 - most_off, 1.0 + most_off);
        due += Wall::from_nanos(gap).mul_f64(share);
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

fn receive(at: &At, options: QosOptions, to_stdout: bool, printed: Printed) -> Result<(), Failure> {
    let stopped = stop_flag()?;
    let teller = Teller { as_json: printed.json, to_stderr: to_stdout, connection: None };
    let listening = Listening::bind(at, options)?;
    listening.tell(teller)?;
    let environment =
        |error: io::Error| Failure::Environment(format!("--listen {}: {error}", at.listen));
    let carried = unless_stopped(&stopped, move || listening.accept(teller));
    let carried = carried.transpose().map_err(environment)?;
    let Some(carried) = carried else {
        return Err(Failure::Interrupted("interrupted; nobody has sent anything".to_owned()));
    };
    let telling = teller.follow(carried.events());
    teller.agreed(Direction::Receiving, &carried.agreed(Direction::Receiving))?;
    carried.set_read_timeout(Some(Wall::from_millis(500))).map_err(environment)?;
    let each = printed.messages.then_some(teller);
    let received = receive_all(&carried, to_stdout, &stopped, each);
    let delivery = carried.delivery(Direction::Receiving);
    drop(carried);
    // It ends with the connection.
    let _ = telling.join();
    teller.summary(&delivery, json!({}))?;
    received.map_err(environment)
}

fn receive_all(
    carried: &AnySocket,
    to_stdout: bool,
    stopped: &AtomicBool,
    each: Option<Teller>,
) -> io::Result<()> {
    let mut room = vec![0; 65_536];
    while !stopped.load(Relaxed) {
        match carried.receive_message(&mut room) {
            Ok(None) => break,
            Ok(Some(message)) => {
                if let Some(teller) = each {
                    let what = json!({
                        "number": message.sequence,
                        "bytes": message.length,
                        "time_ns": Clock::wall(),
                        "delay_ns": message.delay.as_nanos(),
                    });
                    // Where the output is gone, the summary says so.
                    let _ = teller.say("received", what, "");
                }
                if to_stdout {
                    io::stdout().write_all(&room[..message.length])?;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    io::stdout().flush()
}
