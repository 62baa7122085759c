//! Media sources: datagrams, a pipe, a file.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{Builder, sleep};
use std::time::Duration as Wall;

use ontempo_foundation::Time;
use ontempo_media::{Chunker, Codings, Format, Gathering, Packetizer, PacketizerOptions, PcrClock};
use ontempo_udp::{Clock, Datagram, Driver, DriverOptions, Next, Protocol, Socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::backlog::Backlog;
use crate::description::{Description, is_description};
use crate::file::SourceFile;
use crate::rtcp::RtpSource;

/// Bytes of a datagram made from a byte stream that is no transport stream: as long as seven
/// packets of a transport stream.
const CHUNK: u16 = 1_316;

/// Bytes of the read buffer.
const READ_BUFFER: usize = 64 << 10;

/// A running source.
pub enum Source {
    /// Datagrams, received by a thread until this is dropped.
    Udp(Driver<Datagrams>),
    /// RTP and RTCP, received by two threads until this is dropped.
    Rtp(RtpSource),
    /// A pipe or a file, read by a thread until its end.
    Stream,
    /// A regular file, which a receiver that writes a file gets whole; it goes on after a restart.
    File(Box<SourceFile>),
    /// The program itself, which calls [`Backlog::push`] and [`Backlog::end`].
    Program,
}

/// Commands to the thread that packetizes.
pub enum SourceCommand {
    /// A datagram that arrived elsewhere, at this time.
    Datagram(Time, Box<[u8]>),
    /// Ends the source.
    End,
}

/// Packetizes received datagrams.
pub struct Datagrams {
    packetizer: Packetizer,
    backlog: Arc<Backlog>,
    /// All datagrams come from one socket, and may be read later: the order in which it is read is that of arrival.
    is_alone: bool,
}

impl Datagrams {
    pub(crate) fn new(backlog: &Arc<Backlog>, is_alone: bool) -> Self {
        let packetizer = Packetizer::new(PacketizerOptions::default());
        Self { packetizer, backlog: Arc::clone(backlog), is_alone }
    }

    /// Of elementary streams, whose frames leave at once.
    pub(crate) fn elementary(codings: Codings, backlog: &Arc<Backlog>) -> Self {
        let of_one = codings.only().map(|_| Format::Elementary);
        let format = Some(of_one.unwrap_or(Format::Elementaries));
        let gathering = Gathering::NONE;
        let options = PacketizerOptions { format, gathering, ..PacketizerOptions::default() };
        Self { packetizer: Packetizer::new(options), ..Self::new(backlog, true) }
    }

    /// A datagram that arrived at this time.
    pub(crate) fn push(&mut self, arrived: Time, data: &[u8]) {
        self.packetizer.push(arrived, data);
        self.push_units();
    }

    /// The packetizer's last units are queued, and the backlog ends.
    pub(crate) fn finish(&mut self) {
        self.packetizer.finish();
        self.push_units();
        self.backlog.end(None);
    }

    fn push_units(&mut self) {
        if let Some(first) = self.packetizer.poll() {
            let rest = std::iter::from_fn(|| self.packetizer.poll());
            self.backlog.push_all(std::iter::once(first).chain(rest));
        }
    }
}

impl Protocol for Datagrams {
    type Command = SourceCommand;

    fn handle(&mut self, _: Time, datagram: Datagram<'_>) {
        // Only `send --sdp` makes them: another's would tell the player what to play.
        if !is_description(datagram.data) {
            // What was read together leaves together: see `poll_transmit`.
            self.packetizer.push(datagram.received, datagram.data);
        }
    }

    fn handle_command(&mut self, _: Time, command: SourceCommand) {
        match command {
            SourceCommand::Datagram(arrived, data) => self.push(arrived, &data),
            SourceCommand::End => self.finish(),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.packetizer.handle_timeout(now);
        self.push_units();
    }

    fn next_timeout(&self) -> Time {
        let look = if self.is_alone { self.packetizer.next_look() } else { Time::NEVER };
        self.packetizer.next_timeout().min(look)
    }

    fn poll_transmit(&mut self, _: Time, _: &mut Vec<u8>) -> Next {
        self.push_units();
        Next::Idle
    }

    fn reads_at_timeout(&self) -> bool {
        self.is_alone && self.packetizer.next_look() < Time::NEVER
    }
}

impl Source {
    /// Packetizes the datagrams received at `socket` into `backlog`.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn datagrams(socket: Socket, backlog: &Arc<Backlog>) -> io::Result<Self> {
        let datagrams = Datagrams::new(backlog, true);
        Ok(Self::Udp(Driver::spawn(socket, datagrams, backlog.clock(), DriverOptions::default())?))
    }

    /// Packetizes the RTP received at the first socket and the RTCP at the second into `backlog`.
    /// What is no RTCP there, or longer than 1,500 bytes, is ignored.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn rtp(sockets: (Socket, Socket), backlog: &Arc<Backlog>) -> io::Result<Self> {
        let datagrams = Datagrams::new(backlog, false);
        Ok(Self::Rtp(RtpSource::spawn(sockets, datagrams, backlog.clock())?))
    }

    /// Sends the session description that `look` returns beside the packets of [`rtp`](Self::rtp), every
    /// two seconds and when it is another one, until the source ends; without effect on other sources.
    /// `look` is called twice a second, in a thread.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn describe(
        &self,
        look: impl FnMut() -> Option<Description> + Send + 'static,
    ) -> io::Result<()> {
        match self {
            Self::Rtp(source) => source.describe(look),
            _ => Ok(()),
        }
    }

    /// Reads a file or a pipe to its end and packetizes it into `backlog`; with `realtime` at the
    /// rate of the stream's program clock reference (PCR). `name` is for error messages.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn bytes(
        input: impl Read + AsFd + Send + 'static,
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
            Self::Udp(driver) if driver.command(SourceCommand::End).is_ok() => {}
            Self::Rtp(source) if source.media.command(SourceCommand::End).is_ok() => {}
            _ => backlog.end(None),
        }
    }
}

/// Reads and packetizes the input to its end.
fn read_all(mut input: impl Read + AsFd, backlog: &Backlog, realtime: bool) -> io::Result<()> {
    let clock = backlog.clock();
    let (mut chunker, mut pace, started) = (Chunker::new(CHUNK), PcrClock::default(), clock.now());
    let options = PacketizerOptions { format: Some(Format::Bytes), ..Default::default() };
    let mut packetizer = Packetizer::new(options);
    let mut bytes = vec![0; READ_BUFFER];
    loop {
        // What has begun does not wait for a pipe that pauses.
        if packetizer.next_timeout() < Time::NEVER
            && !comes_before(&input, packetizer.next_timeout(), &clock)?
        {
            packetizer.handle_timeout(clock.now());
            while let Some(unit) = packetizer.poll() {
                backlog.push(unit);
            }
            continue;
        }
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
                let due = started + pace.due(datagram);
                // What has begun does not wait for the next datagram.
                while packetizer.next_timeout() < due {
                    sleep_until(packetizer.next_timeout(), &clock);
                    packetizer.handle_timeout(clock.now());
                    while let Some(unit) = packetizer.poll() {
                        backlog.push(unit);
                    }
                }
                sleep_until(due, &clock);
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

fn sleep_until(time: Time, clock: &Clock) {
    sleep(Wall::from_nanos(time.since(clock.now()).as_nanos()));
}

/// Waits until more can be read, or until `time`; false if it is over.
fn comes_before(input: &impl AsFd, time: Time, clock: &Clock) -> io::Result<bool> {
    loop {
        let left = time.since(clock.now()).as_nanos();
        let left =
            Timespec { tv_sec: (left / 1_000_000_000) as _, tv_nsec: (left % 1_000_000_000) as _ };
        let mut files = [PollFd::new(input, PollFlags::IN)];
        match poll(&mut files, Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::backlog::Next as Item;

    /// How many bytes a pipe gave in units that stays open after these, within a second.
    fn given(bytes: &[u8], realtime: bool) -> usize {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let backlog = Arc::new(Backlog::new(16 << 20, false));
        Source::bytes(reader, "a pipe", &backlog, realtime).expect("a thread");
        writer.write_all(bytes).expect("written");
        let mut given = 0;
        while let Item::Unit(queued) = backlog.next(Wall::from_secs(1)) {
            given += queued.unit.data.len();
            if given == bytes.len() {
                break;
            }
        }
        given
    }

    #[test]
    fn a_pipe_that_pauses_keeps_back_no_bytes_that_look_like_rtp() {
        let mut bytes = vec![7; 40 * usize::from(CHUNK)];
        for (number, chunk) in bytes.chunks_exact_mut(usize::from(CHUNK)).enumerate() {
            // A header of a picture's packet, each of another sender.
            chunk[..2].copy_from_slice(&[0x80, 96]);
            chunk[11] = number as u8;
        }
        assert_eq!(given(&bytes, false), bytes.len());
    }

    #[test]
    fn a_pipe_that_pauses_keeps_back_no_frame_of_a_transport_stream() {
        let mut packet = vec![0xff; 188];
        // The beginning of a PES packet of video without a length (ISO 13818-1, 2.4.3.6).
        packet[..10].copy_from_slice(&[0x47, 0x41, 0, 0x10, 0, 0, 1, 0xe0, 0, 0]);
        let mut bytes = packet.clone();
        for counter in 1..14 {
            packet[1..4].copy_from_slice(&[0x01, 0, 0x10 | counter]);
            bytes.extend(&packet);
        }
        // The seventh packet is known to be one by the eighth, and so on.
        bytes.push(0x47);
        let given = given(&bytes, false);
        assert_eq!(given, bytes.len() - 1, "all but the last byte, which is no packet yet");
    }

    #[test]
    fn what_is_sent_at_the_rate_of_its_clock_does_not_wait_for_the_next_datagram() {
        // Clock references of 0 s and of 1.9 s (ISO 13818-1, 2.4.3.5), one in each of the first two datagrams:
        // the third is sent 1.9 s after these.
        let reference = |base: u32| {
            let mut packet = vec![0xff; 188];
            packet[..6].copy_from_slice(&[0x47, 0x01, 0, 0x30, 7, 0x10]);
            packet[6..10].copy_from_slice(&(base >> 1).to_be_bytes());
            packet[10..12].copy_from_slice(&[0x7e, 0]);
            packet
        };
        let mut other = vec![0xff; 188];
        other[..4].copy_from_slice(&[0x47, 0x01, 0, 0x10]);
        let datagram = |first: Vec<u8>| [first, other.repeat(6)].concat();
        let mut sent = [reference(0), reference(171_000), other.clone()].map(datagram).concat();
        sent.push(0x47);
        assert_eq!(given(&sent, true), 2 * usize::from(CHUNK));
    }
}
