//! The TCP listener.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::time::{Duration as Wall, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::core::lock;
use super::setup::{self, SetupError};
use super::wire::{PREFACE, Reason, Setup, WireError, setup_length};
use super::{QosOptions, QosStream, maintenance};
use ontempo_monitor::Carrier;

/// Handshakes at a time; beyond, the oldest is dropped.
pub(super) const MAX_PENDING: usize = 128;

/// How long a listener accepts nothing after descriptors or memory have run out: the connections
/// that wait keep its socket readable.
pub const ACCEPT_BACK_OFF: Wall = Wall::from_millis(100);

/// Whether an error, of `accept` for example, means that descriptors or memory have run out for now
/// (EMFILE, ENFILE, ENOBUFS, ENOMEM): calls succeed again once other sockets are closed.
pub fn is_exhausted(error: &io::Error) -> bool {
    let all = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    all.iter().any(|one| error.raw_os_error() == Some(one.raw_os_error()))
}

/// Whether an error of `accept` is that of the connection that would have been accepted, or passes
/// (accept(2), "Error handling"): the next call may succeed.
pub fn is_of_one_connection(error: &io::Error) -> bool {
    let all = [
        Errno::INTR,
        Errno::CONNABORTED,
        Errno::PERM,
        Errno::PROTO,
        Errno::NOPROTOOPT,
        Errno::OPNOTSUPP,
        Errno::NETDOWN,
        Errno::NETUNREACH,
        Errno::HOSTDOWN,
        Errno::HOSTUNREACH,
    ];
    all.iter().any(|one| error.raw_os_error() == Some(one.raw_os_error()))
}

/// Result of a connection attempt.
#[derive(Debug)]
pub enum Accepted<C> {
    /// A connection, and its peer's address.
    Connection(C, SocketAddr),
    /// A refused peer and the reason; both ends have it.
    Refused(SocketAddr, SetupError),
    /// Descriptors or memory have run out; connections are accepted again after a pause.
    Exhausted(io::Error),
}

/// Accepts connections over TCP.
#[derive(Debug)]
pub struct QosListener {
    listener: TcpListener,
    options: QosOptions,
    handshakes: Mutex<Handshakes>,
}

#[derive(Debug, Default)]
struct Handshakes {
    /// Oldest first.
    pending: Vec<Pending>,
    /// No connection is accepted before.
    paused_until: Option<Instant>,
}

/// A connection in its handshake.
#[derive(Debug)]
struct Pending {
    stream: TcpStream,
    remote: SocketAddr,
    bytes: Vec<u8>,
    until: Instant,
}

enum Progress {
    Waits,
    /// The peer speaks another protocol, or is gone.
    Drops,
    Done(Box<Accepted<QosStream>>),
}

impl QosListener {
    /// Listens at an address, with the specifications for every connection.
    ///
    /// # Errors
    /// If the specifications contradict themselves, or the system's error.
    pub fn bind(at: impl ToSocketAddrs, options: QosOptions) -> Result<Self, SetupError> {
        options.check(Carrier::Tcp)?;
        let listener = TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, options, handshakes: Mutex::default() })
    }

    /// The local address.
    ///
    /// # Errors
    /// The system's error.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Waits for the next connection with an agreement. Peers that speak another protocol, or
    /// nothing, do not delay it.
    ///
    /// # Errors
    /// The system's error.
    pub fn accept(&self) -> io::Result<(QosStream, SocketAddr)> {
        loop {
            if let Accepted::Connection(stream, remote) = self.accept_or_refuse()? {
                return Ok((stream, remote));
            }
        }
    }

    /// Waits for the next connection, or the next refused peer. Where descriptors or memory run out,
    /// it gives up the oldest handshake, or accepts nothing for a tenth of a second and says so.
    ///
    /// # Errors
    /// The system's error.
    pub fn accept_or_refuse(&self) -> io::Result<Accepted<QosStream>> {
        let mut handshakes = lock(&self.handshakes);
        loop {
            self.wait(&handshakes)?;
            let exhausted = self.take(&mut handshakes)?;
            let mut place = 0;
            let pending = &mut handshakes.pending;
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
            if let Some(error) = exhausted {
                return Ok(Accepted::Exhausted(error));
            }
        }
    }

    /// Waits until a peer connects, sends more of its handshake, or times out, or until the pause of
    /// accepting ends.
    fn wait(&self, Handshakes { pending, paused_until }: &Handshakes) -> io::Result<()> {
        let paused_until = paused_until.filter(|until| Instant::now() < *until);
        let own = paused_until.is_none().then(|| self.listener.as_fd());
        let all = own.into_iter().chain(pending.iter().map(|one| one.stream.as_fd()));
        let mut files: Vec<_> =
            all.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
        let first = pending.iter().map(|one| one.until).chain(paused_until).min();
        let left = first.map(|until| {
            let left = until.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() }
        });
        match poll(&mut files, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Accepts the connections that wait; returns the error if descriptors or memory have run out
    /// and no handshake can be given up.
    fn take(&self, handshakes: &mut Handshakes) -> io::Result<Option<io::Error>> {
        let Handshakes { pending, paused_until } = handshakes;
        if paused_until.is_some_and(|until| Instant::now() < until) {
            return Ok(None);
        }
        // At most as many as may be in the handshake, so that new ones are not preferred.
        for _ in 0..MAX_PENDING {
            match self.listener.accept() {
                Ok((stream, remote)) => {
                    if stream.set_nonblocking(true).is_err() {
                        continue;
                    }
                    if pending.len() == MAX_PENDING {
                        pending.remove(0);
                    }
                    let until = Instant::now() + self.options.setup_timeout;
                    pending.push(Pending { stream, remote, bytes: Vec::new(), until });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if is_of_one_connection(&error) => {}
                // A peer that says nothing holds no descriptor that another needs.
                Err(error) if is_exhausted(&error) && !pending.is_empty() => {
                    pending.remove(0);
                }
                Err(error) if is_exhausted(&error) => {
                    *paused_until = Some(Instant::now() + ACCEPT_BACK_OFF);
                    return Ok(Some(error));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
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

    /// Sends the reason, if the peer speaks this protocol.
    fn refuse(&mut self, options: &QosOptions, error: WireError) -> Progress {
        if !matches!(error, WireError::Version(_)) {
            return Progress::Drops;
        }
        let (reason, offer) = (Reason::Version, options.offer());
        // The peer may be gone.
        let _ = self.stream.write(&Setup::Refuse { session: 0, reason, offer }.to_bytes());
        Progress::Done(Box::new(Accepted::Refused(self.remote, error.into())))
    }

    fn conclude(&mut self, options: &QosOptions) -> Progress {
        let Ok(Setup::Hello { session, sent, offer, .. }) = Setup::read(&self.bytes) else {
            return Progress::Drops;
        };
        let now = maintenance::clock().now();
        let (answer, settled) = setup::answer(&options.offer(), session, sent, offer, now);
        let done = (|| {
            self.stream.set_nonblocking(false)?;
            // The first bytes always fit into the send buffer.
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
