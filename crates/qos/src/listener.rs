//! The TCP listener.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration as Wall, Instant};

use rustix::io::Errno;

use super::core::lock;
use super::gate::Gate;
use super::handshakes::Complete;
use super::returning::Way;
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
    gate: Arc<Gate>,
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
        let gate = Gate::new(listener.try_clone()?, options.offer(), options.setup_timeout)?;
        Ok(Self { listener, options, gate: Arc::new(gate) })
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
        let mut state = lock(&self.gate.state);
        let (offer, time) = (self.gate.offer, || maintenance::clock().now());
        loop {
            // Those that came while a broken connection was waited for, and nobody accepted.
            while let Some((until, complete)) = state.ready.pop_front() {
                let is_waiting = Instant::now() < until;
                if let Some(accepted) = is_waiting.then(|| self.answer(complete)).flatten() {
                    return Ok(accepted);
                }
            }
            self.gate.wait(&state, None)?;
            let exhausted = self.gate.take(&mut state)?;
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
            Verdict::Return(returning) => {
                let is_taken = self.gate.take_back(stream, &returning);
                (!is_taken).then_some(Accepted::Refused(remote, SetupError::Unknown))
            }
            Verdict::Accept(answer, established) => {
                self.write(&mut stream, &answer.to_bytes()).ok()?;
                let way = Way::Await(Arc::clone(&self.gate));
                let begun = QosStream::establish(stream, &self.options, &established, way);
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
}

impl Drop for QosListener {
    fn drop(&mut self) {
        self.gate.close();
    }
}

impl AsFd for QosListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}
