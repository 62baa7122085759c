//! Where media comes from: datagrams, a pipe, a file.

use std::io::{self, Read};
use std::sync::Arc;
use std::thread::{Builder, sleep};
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Time;
use ontempo_media::{Chunker, Packetizer, PacketizerOptions, PcrClock};
use ontempo_udp::{Clock, Datagram, Driver, DriverOptions, Next, Protocol, Socket};

use crate::backlog::Backlog;

/// Bytes of a datagram that a stream without packets of its own is cut into: seven packets of a
/// transport stream would be as long.
const PIECE: u16 = 1_316;

/// Bytes read at once.
const READ: usize = 64 << 10;

/// A source under way; it ends with the program.
pub enum Source {
    /// Datagrams, carried by a thread until this is dropped.
    Udp(Driver<Datagrams>),
    /// A pipe or a file, read by a thread until its end.
    Stream,
    /// The program itself, which calls [`Backlog::push`] and [`Backlog::end`].
    Program,
}

/// Cuts the datagrams that come.
pub struct Datagrams {
    packetizer: Packetizer,
    backlog: Arc<Backlog>,
}

impl Datagrams {
    fn hand_on(&mut self) {
        while let Some(unit) = self.packetizer.poll() {
            self.backlog.push(unit);
        }
    }
}

impl Protocol for Datagrams {
    type Command = ();

    fn handle(&mut self, _: Time, datagram: Datagram<'_>) {
        self.packetizer.push(datagram.received, datagram.data);
        self.hand_on();
    }

    /// The source is to end: what is held is handed on.
    fn handle_command(&mut self, _: Time, (): ()) {
        self.packetizer.finish();
        self.hand_on();
        self.backlog.end(None);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.packetizer.handle_timeout(now);
        self.hand_on();
    }

    fn next_timeout(&self) -> Time {
        self.packetizer.next_timeout()
    }

    fn poll_transmit(&mut self, _: Time, _: &mut Vec<u8>) -> Next {
        Next::Idle
    }
}

impl Source {
    /// Datagrams that come to `socket`, cut into units.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn datagrams(socket: Socket, backlog: &Arc<Backlog>) -> io::Result<Self> {
        let packetizer = Packetizer::new(PacketizerOptions::default());
        let datagrams = Datagrams { packetizer, backlog: Arc::clone(backlog) };
        Ok(Self::Udp(Driver::spawn(socket, datagrams, Clock::new(), DriverOptions::default())?))
    }

    /// A file or a pipe, read to its end and cut into units; in `realtime` each at the time that
    /// the stream's own clock gives it. `name` is for error messages.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn bytes(
        input: impl Read + Send + 'static,
        name: &str,
        backlog: &Arc<Backlog>,
        realtime: bool,
    ) -> io::Result<Self> {
        let (name, backlog) = (name.to_owned(), Arc::clone(backlog));
        let work = move || {
            let ended = pump(input, &backlog, realtime);
            backlog.end(ended.err().map(|error| format!("cannot read {name}: {error}")));
        };
        // Nobody waits for it: it may be waiting for input that never comes.
        Builder::new().name("source".to_owned()).spawn(work)?;
        Ok(Self::Stream)
    }

    /// Ends a source that has no end of its own.
    pub(crate) fn end(&self, backlog: &Backlog) {
        match self {
            Self::Udp(driver) if driver.command(()).is_ok() => {}
            _ => backlog.end(None),
        }
    }
}

/// Reads to the end.
fn pump(mut input: impl Read, backlog: &Backlog, realtime: bool) -> io::Result<()> {
    let clock = Clock::new();
    let (mut chunker, mut pace, begun) = (Chunker::new(PIECE), PcrClock::default(), Instant::now());
    let mut packetizer = Packetizer::new(PacketizerOptions::default());
    let mut bytes = vec![0; READ];
    loop {
        let count = match input.read(&mut bytes) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if count == 0 {
            chunker.finish();
        }
        chunker.push(&bytes[..count]);
        while let Some(datagram) = chunker.poll() {
            if realtime {
                let due = begun + Wall::from_nanos(pace.due(datagram).as_nanos());
                sleep(due.saturating_duration_since(Instant::now()));
            }
            packetizer.push(clock.now(), datagram);
            while let Some(unit) = packetizer.poll() {
                backlog.push(unit);
            }
        }
        if count == 0 {
            packetizer.finish();
            while let Some(unit) = packetizer.poll() {
                backlog.push(unit);
            }
            return Ok(());
        }
    }
}
