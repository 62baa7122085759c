//! The TCP listener.

use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::time::{Duration as Wall, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::core::lock;
use super::handshakes::{Complete, Handshakes, MAX_PENDING};
use super::setup::{SetupError, Verdict};
use super::{QosOptions, QosStream, maintenance};
use ontempo_monitor::Carrier;

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
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    handshakes: Handshakes<TcpStream>,
    /// No connection is accepted before.
    paused_until: Option<Instant>,
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
        Ok(Self { listener, options, state: Mutex::default() })
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
        let mut state = lock(&self.state);
        let (offer, time) = (self.options.offer(), || maintenance::clock().now());
        loop {
            self.wait(&state)?;
            let exhausted = self.take(&mut state)?;
            while let Some(complete) = state.handshakes.next(Instant::now(), time, &offer) {
                if let Some(accepted) = self.answer(complete) {
                    return Ok(accepted);
                }
            }
            if let Some(error) = exhausted {
                return Ok(Accepted::Exhausted(error));
            }
        }
    }

    /// Answers a complete handshake; `None` if the peer is gone.
    fn answer(&self, complete: Complete<TcpStream>) -> Option<Accepted<QosStream>> {
        let Complete { mut stream, remote, verdict } = complete;
        match verdict {
            Verdict::Ignore => None,
            Verdict::Refuse(answer, error @ SetupError::Wire(_)) => {
                // The peer may be gone.
                let _ = stream.write(&answer.to_bytes());
                Some(Accepted::Refused(remote, error))
            }
            Verdict::Refuse(answer, error) => {
                self.write(&mut stream, &answer.to_bytes()).ok()?;
                Some(Accepted::Refused(remote, error))
            }
            Verdict::Accept(answer, established) => {
                self.write(&mut stream, &answer.to_bytes()).ok()?;
                let begun = QosStream::establish(stream, &self.options, &established);
                Some(Accepted::Connection(begun.ok()?, remote))
            }
        }
    }

    fn write(&self, stream: &mut TcpStream, answer: &[u8]) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        // The first bytes always fit into the send buffer.
        stream.set_write_timeout(Some(Wall::from_secs(1)))?;
        stream.write_all(answer)
    }

    /// Waits until a peer connects, sends more of its handshake, or times out, or until the pause of
    /// accepting ends.
    fn wait(&self, State { handshakes, paused_until }: &State) -> io::Result<()> {
        let paused_until = paused_until.filter(|until| Instant::now() < *until);
        let own = paused_until.is_none().then(|| self.listener.as_fd());
        let all = own.into_iter().chain(handshakes.streams().map(AsFd::as_fd));
        let mut files: Vec<_> =
            all.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
        let first = handshakes.next_timeout().into_iter().chain(paused_until).min();
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
    fn take(&self, state: &mut State) -> io::Result<Option<io::Error>> {
        let State { handshakes, paused_until } = state;
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
                    let until = Instant::now() + self.options.setup_timeout;
                    handshakes.begin(stream, remote, until);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if is_of_one_connection(&error) => {}
                // A peer that says nothing holds no descriptor that another needs.
                Err(error) if is_exhausted(&error) && handshakes.give_up_one() => {}
                // Nor does one that has closed, and only waits for what it sent to arrive.
                Err(error) if is_exhausted(&error) && maintenance::end_lingering() => {}
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
