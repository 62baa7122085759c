//! Where media goes to: datagrams, a pipe, a file.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration as Wall;

use ontempo_foundation::{Duration, Time};
use ontempo_media::{Depacketizer, DepacketizerOptions, Release, RestoredDatagram, Unit};
use ontempo_transport::{DeliveryOrder, FlowConfig, Reliability};
use ontempo_udp::{
    Clock, CommandError, Datagram, Driver, DriverOptions, Next, Protocol, Socket, Transmit,
};

use crate::error::{Error, target};

/// How long a full queue of the thread's is let drain.
const RETRY: Wall = Wall::from_micros(100);

/// What has left.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) whole: u64,
    pub(crate) damaged: u64,
    /// The lowest number, and the one after the highest.
    first: Option<u64>,
    next: u64,
    /// True where the order of leaving says nothing about what is missing.
    is_unordered: bool,
    is_midway: bool,
    is_over: bool,
}

impl Counts {
    fn note(&mut self, joined: &RestoredDatagram) {
        let first = self.first.unwrap_or(if self.is_midway { joined.datagram } else { 0 });
        self.first = Some(first.min(joined.datagram));
        self.next = self.next.max(joined.datagram + 1);
        let count = if joined.is_whole { &mut self.whole } else { &mut self.damaged };
        // Of a datagram nothing of which came, nothing left.
        *count += u64::from(joined.is_whole || !joined.data.is_empty());
    }

    pub(crate) fn missing(&self) -> u64 {
        if self.is_unordered && !self.is_over {
            return 0;
        }
        self.next.saturating_sub(self.first.unwrap_or(0) + self.whole + self.damaged)
    }
}

/// Where media goes to.
pub enum Target {
    /// Datagrams as the sender's encoder made them, each at its time.
    Datagrams {
        /// Where they leave from.
        socket: Socket,
        /// Where they go to.
        to: SocketAddr,
    },
    /// Bytes: a file, a pipe, or the program itself.
    Bytes {
        /// What takes them; it may wait.
        to: Box<dyn Write>,
        /// Its name, for error messages.
        name: String,
    },
}

/// What puts datagrams together and hands them on.
pub(crate) enum Sink {
    Udp {
        driver: Driver<Datagrams>,
        counts: Arc<Mutex<Counts>>,
    },
    Stream {
        depacketizer: Box<Midway>,
        counts: Counts,
        out: BufWriter<Output>,
        written: u64,
        clock: Clock,
    },
}

/// Puts datagrams together, of a stream that may have been joined midway.
pub(crate) struct Midway {
    depacketizer: Depacketizer,
    /// True where the first datagram to come is the first there is.
    is_midway: bool,
}

impl Midway {
    fn push(&mut self, now: Time, unit: &Unit) {
        if std::mem::take(&mut self.is_midway)
            && let Some(first) = unit.parts.first()
        {
            self.depacketizer.begin_at(first.datagram);
        }
        self.depacketizer.push(now, unit);
    }
}

/// A file or a pipe, and what it is called.
pub(crate) struct Output {
    to: Box<dyn Write>,
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

/// What the thread of datagrams is told.
pub(crate) enum Told {
    Unit(Box<Unit>),
    Gone(Vec<u64>),
    Finish,
}

/// Sends datagrams when it is their time.
pub(crate) struct Datagrams {
    depacketizer: Midway,
    to: SocketAddr,
    counts: Arc<Mutex<Counts>>,
    waits: bool,
    finished: bool,
}

/// Some of a transport stream's packets are worth having; of most else a part is not.
fn is_usable(joined: &RestoredDatagram) -> bool {
    joined.is_whole || joined.data.first() == Some(&0x47)
}

impl Protocol for Datagrams {
    type Command = Told;

    fn handle(&mut self, _: Time, _: Datagram<'_>) {}

    fn handle_command(&mut self, now: Time, told: Told) {
        match told {
            Told::Unit(unit) => self.depacketizer.push(now, &unit),
            Told::Gone(all) => {
                all.into_iter().for_each(|one| self.depacketizer.depacketizer.abandon(one))
            }
            Told::Finish => {
                self.finished = true;
                // What has its time leaves then.
                if !self.waits {
                    self.depacketizer.depacketizer.finish();
                }
            }
        }
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn next_timeout(&self) -> Time {
        self.depacketizer.depacketizer.next_timeout()
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next {
        while let Some(joined) = self.depacketizer.depacketizer.poll(now) {
            self.counts.lock().unwrap_or_else(PoisonError::into_inner).note(&joined);
            if is_usable(&joined) {
                buffer.extend_from_slice(&joined.data);
                return Next::Transmit(Transmit::to(self.to));
            }
        }
        Next::Idle
    }

    fn is_finished(&self) -> bool {
        self.finished && self.depacketizer.depacketizer.next_timeout() == Time::NEVER
    }
}

/// When datagrams of a flow leave.
fn release(config: &FlowConfig, latency: Duration, to_network: bool) -> Release {
    match (config.reliability, config.order) {
        (Reliability::Full, DeliveryOrder::OutOfOrder) if to_network => Release::WhenWhole,
        (Reliability::Full, _) => Release::InOrder,
        _ => Release::AsArrived { delay: latency },
    }
}

impl Sink {
    pub(crate) fn open(
        to: Target,
        config: &FlowConfig,
        latency: Duration,
        is_midway: bool,
    ) -> Result<Self, Error> {
        let is_network = matches!(to, Target::Datagrams { .. });
        let release = release(config, latency, is_network);
        let depacketizer =
            Depacketizer::new(DepacketizerOptions { release, ..DepacketizerOptions::default() });
        let depacketizer = Midway { depacketizer, is_midway };
        let is_unordered = release == Release::WhenWhole;
        let counts = Counts { is_unordered, is_midway, ..Counts::default() };
        let out = match to {
            Target::Datagrams { socket, to } => {
                let counts = Arc::new(Mutex::new(counts));
                let datagrams = Datagrams {
                    depacketizer,
                    to,
                    counts: Arc::clone(&counts),
                    waits: matches!(release, Release::AsArrived { .. }),
                    finished: false,
                };
                let options = DriverOptions::default();
                let driver = Driver::spawn(socket, datagrams, Clock::new(), options);
                return Ok(Self::Udp { driver: driver.map_err(target)?, counts });
            }
            Target::Bytes { to, name } => Output { to, name },
        };
        let out = BufWriter::with_capacity(64 << 10, out);
        let depacketizer = Box::new(depacketizer);
        Ok(Self::Stream { depacketizer, counts, out, written: 0, clock: Clock::new() })
    }

    /// A unit has come.
    pub(crate) fn push(&mut self, unit: Unit) -> Result<(), Error> {
        match self {
            Self::Udp { driver, .. } => tell(driver, Told::Unit(Box::new(unit))),
            Self::Stream { depacketizer, clock, .. } => {
                depacketizer.push(clock.now(), &unit);
                Ok(())
            }
        }
    }

    /// Of these datagrams something will not come.
    pub(crate) fn abandon(&mut self, gone: Vec<u64>) -> Result<(), Error> {
        match self {
            Self::Udp { driver, .. } => tell(driver, Told::Gone(gone)),
            Self::Stream { depacketizer, .. } => {
                gone.into_iter().for_each(|one| depacketizer.depacketizer.abandon(one));
                Ok(())
            }
        }
    }

    /// Writes what is due, and answers when to be called again at the latest.
    pub(crate) fn work(&mut self, idle: bool) -> Result<Wall, Error> {
        const MAX_WAIT: Wall = Wall::from_millis(50);
        let Self::Stream { depacketizer, counts, out, written, clock } = self else {
            return Ok(MAX_WAIT);
        };
        let now = clock.now();
        while let Some(joined) = depacketizer.depacketizer.poll(now) {
            counts.note(&joined);
            if is_usable(&joined) {
                *written += joined.data.len() as u64;
                out.write_all(&joined.data).map_err(|error| full(out, &error, *written))?;
            }
        }
        if idle {
            out.flush().map_err(|error| full(out, &error, *written))?;
        }
        Ok(MAX_WAIT
            .min(Wall::from_nanos(depacketizer.depacketizer.next_timeout().since(now).as_nanos())))
    }

    /// The stream is over: hands on what is left and answers what has left in all.
    pub(crate) fn finish(mut self) -> Result<Counts, Error> {
        if let Self::Stream { depacketizer, .. } = &mut self {
            depacketizer.depacketizer.finish();
        }
        self.work(true)?;
        let mut counts = match self {
            Self::Stream { counts, .. } => counts,
            Self::Udp { driver, counts } => {
                tell(&driver, Told::Finish)?;
                driver.wait().map_err(target)?;
                *counts.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        counts.is_over = true;
        Ok(counts)
    }

    pub(crate) fn counts(&self) -> Counts {
        match self {
            Self::Stream { counts, .. } => *counts,
            Self::Udp { counts, .. } => *counts.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

fn tell(driver: &Driver<Datagrams>, mut told: Told) -> Result<(), Error> {
    loop {
        match driver.command(told) {
            Ok(()) => return Ok(()),
            Err(CommandError::Full(again)) => {
                told = again;
                sleep(RETRY);
            }
            Err(error @ CommandError::Ended(_)) => return Err(target(error)),
        }
    }
}

/// The failure that a full disk or a closed pipe is.
fn full(out: &BufWriter<Output>, error: &io::Error, written: u64) -> Error {
    let Output { name, .. } = out.get_ref();
    if error.kind() == ErrorKind::BrokenPipe {
        return Error::Target("the program behind standard output has ended".to_owned());
    }
    let sure = written.saturating_sub(out.buffer().len() as u64);
    Error::Target(format!(
        "cannot write {name}: {error}; it ends early, after at most {sure} bytes of the stream"
    ))
}
