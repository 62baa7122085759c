//! Media sources: datagrams, a pipe, a file.

use std::io::{self, Read};
use std::sync::Arc;
use std::thread::{Builder, sleep};
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Time;
use ontempo_media::{Chunker, Packetizer, PacketizerOptions, PcrClock};
use ontempo_udp::{Clock, Datagram, Driver, DriverOptions, Next, Protocol, Socket};

use crate::backlog::Backlog;

/// Bytes of a datagram made from a byte stream that is no transport stream: as long as seven
/// packets of a transport stream.
const CHUNK: u16 = 1_316;

/// Bytes of the read buffer.
const READ_BUFFER: usize = 64 << 10;

/// A running source.
pub enum Source {
    /// Datagrams, received by a thread until this is dropped.
    Udp(Driver<Datagrams>),
    /// A pipe or a file, read by a thread until its end.
    Stream,
    /// The program itself, which calls [`Backlog::push`] and [`Backlog::end`].
    Program,
}

/// Packetizes received datagrams.
pub struct Datagrams {
    packetizer: Packetizer,
    backlog: Arc<Backlog>,
}

impl Datagrams {
    fn push_units(&mut self) {
        while let Some(unit) = self.packetizer.poll() {
            self.backlog.push(unit);
        }
    }
}

impl Protocol for Datagrams {
    type Command = ();

    fn handle(&mut self, _: Time, datagram: Datagram<'_>) {
        self.packetizer.push(datagram.received, datagram.data);
        self.push_units();
    }

    /// Ends the source; the packetizer's last units are queued first.
    fn handle_command(&mut self, _: Time, (): ()) {
        self.packetizer.finish();
        self.push_units();
        self.backlog.end(None);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.packetizer.handle_timeout(now);
        self.push_units();
    }

    fn next_timeout(&self) -> Time {
        self.packetizer.next_timeout()
    }

    fn poll_transmit(&mut self, _: Time, _: &mut Vec<u8>) -> Next {
        Next::Idle
    }
}

impl Source {
    /// Packetizes the datagrams received at `socket` into `backlog`.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn datagrams(socket: Socket, backlog: &Arc<Backlog>) -> io::Result<Self> {
        let packetizer = Packetizer::new(PacketizerOptions::default());
        let datagrams = Datagrams { packetizer, backlog: Arc::clone(backlog) };
        Ok(Self::Udp(Driver::spawn(socket, datagrams, Clock::new(), DriverOptions::default())?))
    }

    /// Reads a file or a pipe to its end and packetizes it into `backlog`; with `realtime` at the
    /// rate of the stream's program clock reference (PCR). `name` is for error messages.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn bytes(
        input: impl Read + Send + 'static,
        name: &str,
        backlog: &Arc<Backlog>,
        realtime: bool,
    ) -> io::Result<Self> {
        let (name, backlog) = (name.to_owned(), Arc::clone(backlog));
        let work = move || {
            let result = read_all(input, &backlog, realtime);
            backlog.end(result.err().map(|error| format!("cannot read {name}: {error}")));
        };
        // Never joined: it may wait for input for ever.
        Builder::new().name("source".to_owned()).spawn(work)?;
        Ok(Self::Stream)
    }

    /// Ends the source now; queued units are still sent.
    pub(crate) fn end(&self, backlog: &Backlog) {
        match self {
            Self::Udp(driver) if driver.command(()).is_ok() => {}
            _ => backlog.end(None),
        }
    }
}

/// Reads and packetizes the input to its end.
fn read_all(mut input: impl Read, backlog: &Backlog, realtime: bool) -> io::Result<()> {
    let clock = Clock::new();
    let (mut chunker, mut pace, started) =
        (Chunker::new(CHUNK), PcrClock::default(), Instant::now());
    let mut packetizer = Packetizer::new(PacketizerOptions::default());
    let mut bytes = vec![0; READ_BUFFER];
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
                let due = started + Wall::from_nanos(pace.due(datagram).as_nanos());
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
