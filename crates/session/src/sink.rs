//! Media targets: datagrams, a pipe, a file.

mod datagrams;

use std::io::{self, BufWriter, ErrorKind, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration as Wall, Instant};

use datagrams::{Datagrams, Load, SinkCommand};
use ontempo_foundation::{Duration, Time};
use ontempo_media::{
    Depacketizer, DepacketizerOptions, ElementaryDatagram, FrameAssembler, Release,
    RestoredDatagram, Unit,
};
use ontempo_transport::{DeliveryOrder, FlowConfig, Reliability};
use ontempo_udp::{Clock, CommandError, Driver, DriverOptions, DriverStatistics, Socket};

use crate::description::{Description, DescriptionError};
use crate::error::{Error, target};
use crate::intake::Intake;
use crate::latency::grace_with;
use crate::message::Label;
use crate::output::StoppableWriter;

/// Pause before a command is sent again when the thread's command queue was full.
const RETRY: Wall = Wall::from_micros(100);

/// How long the thread that sends timed datagrams may leave a unit in the queue, rather than be woken
/// for it: it looks there before it releases anything, and a paced stream has datagrams to release as often.
const PATIENCE: Duration = Duration::from_millis(3);

/// Interval at which it is looked whether the thread that sends datagrams has sent its last.
const STEP: Wall = Wall::from_millis(10);

/// How long, once stopped, the datagrams that have come are still sent at their times.
const STOPPED_REST: Wall = Wall::from_secs(1);

/// Of a stream that is joined midway, parts of the datagrams that came to the sender within this time after the first may have
/// been sent before: units of a transport stream overlap for some milliseconds (`Gathering::within`).
const JOINING: Duration = Duration::from_millis(100);

/// The same where units are delivered before others that were sent earlier, and are sent again.
const JOINING_UNORDERED: Duration = Duration::from_secs(10);

/// Counters of restored datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) whole: u64,
    pub(crate) damaged: u64,
    /// Bytes written.
    pub(crate) bytes: u64,
    /// The lowest datagram number, and the highest plus 1.
    first: Option<u64>,
    next: u64,
    /// The same at the sender, once it has said it.
    end: Option<u64>,
    /// The sender left out datagrams, and said so.
    has_gaps: bool,
    /// Datagrams are released out of order: gaps are known to be missing only at the end.
    is_unordered: bool,
    is_midway: bool,
    /// When the first datagram came to the sender.
    began: Option<Time>,
    has_ended: bool,
}

impl Counts {
    fn count(&mut self, restored: &RestoredDatagram) {
        let began = *self.began.get_or_insert(restored.arrived);
        let is_joining = self.is_midway && restored.arrived.since(began) < JOINING;
        self.next = self.next.max(restored.datagram.saturating_add(1));
        if is_usable(restored) {
            self.bytes += restored.data.len() as u64;
        }
        // A datagram without any data was not sent on and counts as missing.
        let is_damaged = !restored.is_whole && !restored.data.is_empty();
        self.whole += u64::from(restored.is_whole);
        self.damaged += u64::from(is_damaged && !is_joining);
        let first = self.first.unwrap_or(if self.is_midway { restored.datagram } else { 0 });
        self.first = Some(if is_joining && !self.is_unordered {
            // What lacks so far was sent before.
            self.next.saturating_sub(self.whole)
        } else {
            first.min(restored.datagram)
        });
    }

    pub(crate) fn missing(&self) -> u64 {
        if self.is_unordered && !self.has_ended {
            return 0;
        }
        let end = self.end.filter(|_| self.has_ended).unwrap_or(0);
        let next = self.next.max(end);
        next.saturating_sub(self.first.unwrap_or(0).saturating_add(self.whole + self.damaged))
    }

    /// Whether the sender has said where its stream ends.
    pub(crate) fn has_end(&self) -> bool {
        self.end.is_some()
    }

    /// Datagrams that are missing or damaged, though the sender has not left them out.
    pub(crate) fn lost(&self) -> u64 {
        if self.has_gaps { 0 } else { self.damaged.saturating_add(self.missing()) }
    }
}

/// The output of a receiver.
pub enum Target {
    /// Datagrams as the sender's encoder sent them, with its timing.
    Datagrams {
        /// The sending socket.
        socket: Socket,
        /// The destination.
        to: SocketAddr,
        /// The destination of RTCP, if it is another.
        control: Option<SocketAddr>,
        /// Takes the session description of RTP, if the sender has one.
        described: Option<DescriptionTaker>,
    },
    /// A byte stream: a file, a pipe, or the program itself. Of an elementary stream it is the frames.
    Bytes {
        /// The writer; its calls may block. It is used by a thread of its own.
        to: Box<dyn Write + Send>,
        /// Its name, for error messages.
        name: String,
    },
    /// A part of this program that takes each datagram when it is due.
    Taker(Box<dyn DatagramTaker>),
}

/// Takes a session description, and what is wrong with one, from the thread that hands on the datagrams:
/// each that differs from the one before.
pub type DescriptionTaker = Box<dyn FnMut(Result<Description, DescriptionError>) + Send>;

/// Takes the datagrams of a stream from the thread that receives, which waits for it.
pub trait DatagramTaker: Send {
    /// Takes a datagram.
    fn take(&mut self, datagram: TakenDatagram<'_>);
}

/// A datagram of a stream, as the sender's encoder sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenDatagram<'a> {
    /// Its bytes; of one with missing parts, those that are there.
    pub data: &'a [u8],
    /// False if parts are missing.
    pub is_whole: bool,
    /// How long after its time it is given: the latency after its arrival at the sender and the fastest transit. Zero
    /// with full reliability, which knows no such time.
    pub late: Duration,
    /// How long before its time it is given: at the end of the stream nothing waits.
    pub early: Duration,
}

/// Restores datagrams and writes them to a target.
pub(crate) enum Sink {
    Udp {
        driver: Driver<Datagrams>,
        /// The driver's.
        clock: Clock,
        /// How long the driver may leave a unit where it is.
        patience: Duration,
        counts: Arc<Mutex<Counts>>,
        load: Arc<Load>,
        /// From where the driver takes units of a timed stream itself.
        intake: Option<Arc<Intake>>,
        /// The receiver's.
        stop: Arc<AtomicBool>,
        /// Datagrams longer than the path takes, and refused ones, that [`Sink::unsent`] has reported.
        reported: (u64, u64),
    },
    Stream {
        depacketizer: Box<StreamDepacketizer>,
        counts: Counts,
        out: StreamOutput,
        written: u64,
        clock: Clock,
        /// Of an elementary stream whole frames are written, without what frames them.
        frames: Option<Box<FrameAssembler>>,
    },
}

/// Where the datagrams of a [`Sink::Stream`] go.
pub(crate) enum StreamOutput {
    Bytes(BufWriter<Output>),
    Taker(Box<dyn DatagramTaker>),
}

impl StreamOutput {
    /// Writes a datagram that is due; `written` counts the bytes with it.
    fn write(&mut self, now: Time, one: &RestoredDatagram, written: u64) -> Result<(), Error> {
        match self {
            Self::Bytes(out) => {
                out.write_all(&one.data).map_err(|error| write_error(out, &error, written))
            }
            Self::Taker(to) => {
                let due = one.due.unwrap_or(now);
                let (late, early) = (now.since(due), due.since(now));
                let RestoredDatagram { data, is_whole, .. } = one;
                to.take(TakenDatagram { data, is_whole: *is_whole, late, early });
                Ok(())
            }
        }
    }

    fn flush(&mut self, written: u64) -> Result<(), Error> {
        match self {
            Self::Bytes(out) => out.flush().map_err(|error| write_error(out, &error, written)),
            Self::Taker(_) => Ok(()),
        }
    }
}

/// The depacketizer of a stream that may be received from its middle.
pub(crate) struct StreamDepacketizer {
    depacketizer: Depacketizer,
    /// The sender started earlier, and nothing is released before what is in front of it: output begins at the first
    /// datagram received. Where each has its time, what comes first need not be the first: sound overtakes pictures.
    begins_with_first: bool,
    /// How long what may have been sent earlier is waited for then.
    patience: Duration,
}

impl StreamDepacketizer {
    fn push(&mut self, now: Time, unit: &Unit) {
        if std::mem::take(&mut self.begins_with_first)
            && let Some(first) = unit.parts.first()
        {
            self.depacketizer.begin_at(first.datagram, self.patience);
        }
        self.depacketizer.push(now, unit);
    }
}

/// A file or a pipe, and its name.
pub(crate) struct Output {
    to: StoppableWriter,
    name: String,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// True if a datagram is whole, or of a transport stream, where single packets are useful.
pub(crate) fn is_usable(restored: &RestoredDatagram) -> bool {
    restored.is_whole || restored.data.first() == Some(&0x47)
}

/// When the datagrams of a flow are released.
pub(crate) fn release(
    config: &FlowConfig,
    (latency, grace): (Duration, Duration),
    to_network: bool,
) -> Release {
    match (config.reliability, config.order) {
        (Reliability::Full, DeliveryOrder::OutOfOrder) if to_network => Release::WhenWhole,
        (Reliability::Full, _) => Release::InOrder,
        (reliability, _) => {
            Release::AsArrived { delay: latency, grace: grace_with(reliability, grace) }
        }
    }
}

/// The order in which the transport hands over the units of a flow whose stream is delivered in this order.
///
/// Datagrams that are released by their times are in order by these: held back by the transport until
/// its sender has given up a late one, those behind it would be late, too.
pub(crate) fn order_of_units(reliability: Reliability, order: DeliveryOrder) -> DeliveryOrder {
    match (reliability, order) {
        (Reliability::Deadline | Reliability::None, DeliveryOrder::InOrder) => {
            DeliveryOrder::OutOfOrder
        }
        (_, order) => order,
    }
}

impl Sink {
    pub(crate) fn open(
        to: Target,
        config: &FlowConfig,
        label: &Label,
        latency: Duration,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let (grace, is_midway) = (label.grace, label.before > 0);
        let is_network = matches!(to, Target::Datagrams { .. });
        let release = release(config, (latency, grace), is_network);
        let mut depacketizer =
            Depacketizer::new(DepacketizerOptions { release, ..DepacketizerOptions::default() });
        let clock = Clock::new();
        depacketizer.note_transit(clock.now(), label.opened);
        let begins_with_first = is_midway && release == Release::InOrder;
        let is_ordered = config.order == DeliveryOrder::InOrder;
        let patience = if is_ordered { JOINING } else { JOINING_UNORDERED };
        let depacketizer = StreamDepacketizer { depacketizer, begins_with_first, patience };
        let is_unordered = release == Release::WhenWhole;
        let counts = Counts { is_unordered, is_midway, ..Counts::default() };
        let out = match to {
            Target::Datagrams { socket, to, control, described } => {
                let is_timed = matches!(release, Release::AsArrived { .. });
                let datagrams =
                    Datagrams::new(depacketizer, to, (control, described), counts, is_timed);
                let counts = Arc::clone(&datagrams.counts);
                let load = Arc::clone(&datagrams.load);
                let intake = is_timed.then(|| Arc::clone(&datagrams.intake));
                let patience = if is_timed { PATIENCE } else { Duration::ZERO };
                let options = DriverOptions::default();
                let driver = Driver::spawn(socket, datagrams, clock, options).map_err(target)?;
                let (stop, reported) = (Arc::clone(stop), (0, 0));
                return Ok(Self::Udp {
                    driver,
                    clock,
                    patience,
                    counts,
                    load,
                    intake,
                    stop,
                    reported,
                });
            }
            Target::Bytes { to, name } => {
                let to = StoppableWriter::new(to, Arc::clone(stop)).map_err(target)?;
                StreamOutput::Bytes(BufWriter::with_capacity(64 << 10, Output { to, name }))
            }
            Target::Taker(to) => StreamOutput::Taker(to),
        };
        let depacketizer = Box::new(depacketizer);
        let frames = match (&out, label.elementary.map(|codings| codings.only())) {
            (StreamOutput::Bytes(_), Some(None)) => {
                return Err(Error::Target("several elementary streams are no bytes of one".into()));
            }
            (StreamOutput::Bytes(_), Some(Some(_))) => Some(Box::default()),
            _ => None,
        };
        Ok(Self::Stream { depacketizer, counts, out, written: 0, clock, frames })
    }

    /// Adds a received unit.
    pub(crate) fn push(&mut self, unit: Unit) -> Result<(), Error> {
        match self {
            Self::Udp { driver, clock, patience, load, stop, .. } => {
                let now = clock.now();
                let command = SinkCommand::Unit(now, Box::new(unit));
                send_command(driver, (load, stop), command, now + *patience)
            }
            Self::Stream { depacketizer, clock, .. } => {
                depacketizer.push(clock.now(), &unit);
                self.make_room()
            }
        }
    }

    /// Writes what there is no room for: of several units that come together, each may be thousands of datagrams.
    fn make_room(&mut self) -> Result<(), Error> {
        let Self::Stream { depacketizer, .. } = self else { return Ok(()) };
        let most = DepacketizerOptions::default().max_bytes;
        let is_full = depacketizer.depacketizer.waiting() > most;
        if is_full { self.work(false).map(drop) } else { Ok(()) }
    }

    /// Gives up datagrams of which a part will not arrive.
    pub(crate) fn abandon(&mut self, abandoned: Vec<u64>) -> Result<(), Error> {
        self.change_counts(|counts| counts.has_gaps = true);
        match self {
            Self::Udp { driver, load, stop, .. } => {
                send_command(driver, (load, stop), SinkCommand::Abandon(abandoned), Time::ZERO)
            }
            Self::Stream { depacketizer, .. } => {
                abandoned.into_iter().for_each(|one| depacketizer.depacketizer.abandon(one));
                self.make_room()
            }
        }
    }

    /// The sender's stream has this many datagrams.
    pub(crate) fn end_at(&mut self, datagrams: u64) {
        self.change_counts(|counts| counts.end = Some(datagrams));
    }

    fn change_counts(&mut self, change: impl FnOnce(&mut Counts)) {
        match self {
            Self::Stream { counts, .. } => change(counts),
            Self::Udp { counts, .. } => {
                change(&mut counts.lock().unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    /// Writes the datagrams that are due; returns the time after which to call again. If `idle`,
    /// the output is flushed.
    pub(crate) fn work(&mut self, idle: bool) -> Result<Wall, Error> {
        const MAX_WAIT: Wall = Wall::from_millis(50);
        let Self::Stream { depacketizer, counts, out, written, clock, frames } = self else {
            return Ok(MAX_WAIT);
        };
        let now = clock.now();
        while let Some(mut restored) = depacketizer.depacketizer.poll(now) {
            if let Some(frames) = frames.as_mut().filter(|_| restored.is_whole) {
                let ended = match ElementaryDatagram::read(&restored.data) {
                    Ok(ElementaryDatagram::Part(part)) => frames.push(&part),
                    _ => None,
                };
                restored.data = ended.map_or_else(Vec::new, |frame| frame.data);
            }
            counts.count(&restored);
            if is_usable(&restored) {
                *written += restored.data.len() as u64;
                out.write(now, &restored, *written)?;
            }
        }
        if idle {
            out.flush(*written)?;
        }
        Ok(MAX_WAIT
            .min(Wall::from_nanos(depacketizer.depacketizer.next_timeout().since(now).as_nanos())))
    }

    /// A sentence about the datagrams that the system has not sent since the last call; `None` without any.
    pub(crate) fn unsent(&mut self) -> Option<String> {
        let Self::Udp { driver, reported, .. } = self else { return None };
        let DriverStatistics { too_large, refused, .. } = driver.statistics();
        let before = std::mem::replace(reported, (too_large, refused));
        let parts = [
            (too_large.saturating_sub(before.0), "longer than UDP can carry there"),
            (refused.saturating_sub(before.1), "refused by the system"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<_> = parts.map(|(count, why)| format!("{count} {why}")).collect();
        (!parts.is_empty())
            .then(|| format!("datagrams not sent to the player: {}", parts.join(", ")))
    }

    /// Ends the stream: writes the remaining datagrams and returns the final counters.
    pub(crate) fn finish(self) -> Result<Counts, Error> {
        self.finish_within(STOPPED_REST)
    }

    /// The same; once stopped, nothing waits for its time longer than `rest`.
    fn finish_within(mut self, rest: Wall) -> Result<Counts, Error> {
        if let Self::Stream { depacketizer, .. } = &mut self {
            depacketizer.depacketizer.finish();
        }
        self.work(true)?;
        let mut counts = match self {
            Self::Stream { counts, .. } => counts,
            Self::Udp { driver, counts, load, stop, .. } => {
                send_command(&driver, (&load, &stop), SinkCommand::Finish, Time::ZERO)?;
                await_end(driver, &stop, rest)?;
                *counts.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        counts.has_ended = true;
        Ok(counts)
    }

    /// Another stream takes its place: writes the remaining datagrams of one that need not wait for their times, and
    /// returns the final counters.
    pub(crate) fn give_way(self) -> Result<Counts, Error> {
        match &self {
            Self::Stream { .. } => self.finish(),
            Self::Udp { .. } => Ok(self.counts()),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        match self {
            Self::Stream { counts, .. } => *counts,
            Self::Udp { counts, .. } => *counts.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// Waits until all datagrams are sent; once `stop` is set, for at most `rest`.
fn await_end(driver: Driver<Datagrams>, stop: &AtomicBool, rest: Wall) -> Result<(), Error> {
    let mut stopped_at = None;
    while !driver.has_ended() {
        if stop.load(Ordering::Relaxed)
            && stopped_at.get_or_insert_with(Instant::now).elapsed() >= rest
        {
            return driver.end().map(drop).map_err(target);
        }
        sleep(STEP);
    }
    driver.wait().map(drop).map_err(target)
}

/// Queues a command as soon as there is room, to be handled by `latest`.
fn send_command(
    driver: &Driver<Datagrams>,
    (load, stop): (&Load, &AtomicBool),
    mut command: SinkCommand,
    latest: Time,
) -> Result<(), Error> {
    // Who stops the program waits for no room.
    while load.is_full() && !driver.has_ended() && !stop.load(Ordering::Relaxed) {
        sleep(RETRY);
    }
    load.queued.fetch_add(command.cost(), Ordering::Relaxed);
    loop {
        match driver.command_by(latest, command) {
            Ok(()) => return Ok(()),
            Err(CommandError::Full(returned)) => {
                command = returned;
                sleep(RETRY);
            }
            Err(error @ CommandError::Ended(_)) => return Err(target(error)),
        }
    }
}

/// The error of a write: a full disk or a closed pipe.
fn write_error(out: &BufWriter<Output>, error: &io::Error, written: u64) -> Error {
    let Output { to, name } = out.get_ref();
    let unwritten = out.buffer().len() as u64 + to.unwritten();
    if to.is_given_up() {
        return Error::Target(format!(
            "interrupted while {name} takes nothing: at least {unwritten} bytes of the stream that \
             arrived are not written"
        ));
    }
    if error.kind() == ErrorKind::BrokenPipe {
        return Error::Target("the program behind standard output has ended".to_owned());
    }
    let max_written = written.saturating_sub(unwritten);
    Error::Target(format!(
        "cannot write {name}: {error}; it ends early, after at most {max_written} bytes of \
         the stream"
    ))
}

#[cfg(test)]
#[path = "sink_tests.rs"]
mod tests;
