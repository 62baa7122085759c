//! Where connections over TCP come to.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::time::{Duration as Wall, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::core::lock;
use super::setup::{self, SetupError};
use super::wire::{PREFACE, Reason, Setup, WireError, setup_length};
use super::{QosOptions, QosStream, tender};

/// Set-ups under way at once: beyond, the oldest gives way.
pub(super) const MAX_PENDING: usize = 128;

/// What has come of one that connects.
#[derive(Debug)]
pub enum Accepted<C> {
    /// A connection, and who is at its other end.
    Connection(C, SocketAddr),
    /// Somebody with whom there is no agreement, and why; both ends know it.
    Refused(SocketAddr, SetupError),
}

/// Waits for connections over TCP.
#[derive(Debug)]
pub struct QosListener {
    listener: TcpListener,
    options: QosOptions,
    pending: Mutex<Vec<Pending>>,
}

/// Somebody who has connected and not yet said all.
#[derive(Debug)]
struct Pending {
    stream: TcpStream,
    remote: SocketAddr,
    bytes: Vec<u8>,
    until: Instant,
}

enum Progress {
    Waits,
    /// It is none of ours, or gone.
    Drops,
    Done(Box<Accepted<QosStream>>),
}

impl QosListener {
    /// Listens at an address, with what is asked of every connection there.
    ///
    /// # Errors
    /// What is asked for contradicts itself, or what the system says.
    pub fn bind(at: impl ToSocketAddrs, options: QosOptions) -> Result<Self, SetupError> {
        setup::check(&options.offer())?;
        let listener = TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, options, pending: Mutex::new(Vec::new()) })
    }

    /// The address that it listens at.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Waits for the next connection on which there is an agreement. Those who speak something
    /// else, or nothing, do not hold it up.
    ///
    /// # Errors
    /// What the system says.
    pub fn accept(&self) -> io::Result<(QosStream, SocketAddr)> {
        loop {
            if let Accepted::Connection(stream, remote) = self.accept_or_refuse()? {
                return Ok((stream, remote));
            }
        }
    }

    /// Waits for the next connection, or for somebody with whom there is no agreement.
    ///
    /// # Errors
    /// What the system says.
    pub fn accept_or_refuse(&self) -> io::Result<Accepted<QosStream>> {
        let mut pending = lock(&self.pending);
        loop {
            self.wait(&pending)?;
            self.take(&mut pending)?;
            let mut place = 0;
            while let Some(one) = pending.get_mut(place) {
                match one.progress(&self.options) {
                    Progress::Waits if Instant::now() < one.until => place += 1,
                    Progress::Waits | Progress::Drops => drop(pending.remove(place)),
                    Progress::Done(accepted) => {
                        pending.remove(place);
                        return Ok(*accepted);
                    }
                }
            }
        }
    }

    /// Waits until somebody connects, or one of those who have says more or has taken too long.
    fn wait(&self, pending: &[Pending]) -> io::Result<()> {
        let all = [self.listener.as_fd()].into_iter();
        let all = all.chain(pending.iter().map(|one| one.stream.as_fd()));
        let mut files: Vec<_> =
            all.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
        let first = pending.iter().map(|one| one.until).min();
        let left = first.map(|until| {
            let left = until.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() }
        });
        match poll(&mut files, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take(&self, pending: &mut Vec<Pending>) -> io::Result<()> {
        // As many as wait for the set-up: those who come meanwhile are not preferred.
        for _ in 0..MAX_PENDING {
            match self.listener.accept() {
                Ok((stream, remote)) => {
                    stream.set_nonblocking(true)?;
                    if pending.len() == MAX_PENDING {
                        pending.remove(0);
                    }
                    let until = Instant::now() + self.options.patience;
                    pending.push(Pending { stream, remote, bytes: Vec::new(), until });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }
}

impl AsFd for QosListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Pending {
    fn progress(&mut self, options: &QosOptions) -> Progress {
        loop {
            let needed = match self.bytes.first_chunk::<PREFACE>().map(setup_length) {
                None => PREFACE,
                Some(Ok(body)) => PREFACE + body,
                Some(Err(error)) => return self.refuse(options, error),
            };
            let missing = needed - self.bytes.len();
            if missing == 0 {
                return self.conclude(options);
            }
            let mut room = vec![0; missing];
            match self.stream.read(&mut room) {
                Ok(0) => return Progress::Drops,
                Ok(got) => self.bytes.extend(&room[..got]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Waits,
                Err(_) => return Progress::Drops,
            }
        }
    }

    /// Says why, where it speaks our language.
    fn refuse(&mut self, options: &QosOptions, error: WireError) -> Progress {
        if !matches!(error, WireError::Version(_)) {
            return Progress::Drops;
        }
        let (reason, offer) = (Reason::Version, options.offer());
        // It need not listen.
        let _ = self.stream.write(&Setup::Refuse { session: 0, reason, offer }.to_bytes());
        Progress::Done(Box::new(Accepted::Refused(self.remote, error.into())))
    }

    fn conclude(&mut self, options: &QosOptions) -> Progress {
        let Ok(Setup::Hello { session, sent, offer, .. }) = Setup::read(&self.bytes) else {
            return Progress::Drops;
        };
        let now = tender::clock().now();
        let (answer, settled) = setup::answer(&options.offer(), session, sent, offer, now);
        let done = (|| {
            self.stream.set_nonblocking(false)?;
            // The first bytes of a connection always find room.
            self.stream.set_write_timeout(Some(Wall::from_secs(1)))?;
            self.stream.write_all(&answer.to_bytes())?;
            match settled {
                Ok(established) => {
                    let stream = self.stream.try_clone()?;
                    QosStream::establish(stream, options, &established)
                }
                Err(both) => Err(SetupError::Disagreement(Box::new(both))),
            }
        })();
        match done {
            Ok(stream) => Progress::Done(Box::new(Accepted::Connection(stream, self.remote))),
            Err(error @ SetupError::Disagreement(_)) => {
                Progress::Done(Box::new(Accepted::Refused(self.remote, error)))
            }
            Err(_) => Progress::Drops,
        }
    }
}
