//! Where connections come in at a TCP listener: new ones, and those that return after they broke.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration as Wall, Instant};

use ontempo_udp::secret::equal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::core::{deadline, lock, try_lock};
use super::handshakes::{Complete, Handshakes, MAX_PENDING};
use super::listener::{ACCEPT_BACK_OFF, is_exhausted, is_of_one_connection};
use super::maintenance;
use super::returning::Inner;
use super::setup::{Returning, Verdict};
use super::wire::{Cookie, Offer, Reason, Setup};

/// Handshakes that were complete while nobody accepted.
const MAX_READY: usize = MAX_PENDING;

#[derive(Debug)]
pub(super) struct Gate {
    at: SocketAddr,
    pub(super) offer: Offer,
    setup_timeout: Wall,
    pub(super) state: Mutex<State>,
}

/// A connection that may return.
#[derive(Debug)]
struct Known {
    /// Where it was accepted.
    port: u16,
    session: u64,
    token: Cookie,
    connection: Weak<Inner>,
}

/// Connections that may return, of all gates: another listener may be at the port by then.
static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

#[derive(Debug, Default)]
pub(super) struct State {
    /// The application's listener, while it has one; afterwards one at the same address, while a
    /// connection is waited for.
    listener: Option<TcpListener>,
    /// It is not the application's.
    is_rebound: bool,
    pub(super) handshakes: Handshakes<TcpStream>,
    /// New connections that came while none was accepted, until then.
    pub(super) ready: VecDeque<(Instant, Complete<TcpStream>)>,
    /// No connection is accepted before.
    paused_until: Option<Instant>,
}

impl Gate {
    pub(super) fn new(
        listener: TcpListener,
        offer: Offer,
        setup_timeout: Wall,
    ) -> io::Result<Self> {
        let at = listener.local_addr()?;
        let state = State { listener: Some(listener), ..State::default() };
        let (offer, state) = (Offer { recovers: true, ..offer }, Mutex::new(state));
        Ok(Self { at, offer, setup_timeout, state })
    }

    /// The application has dropped its listener: nobody new comes in.
    pub(super) fn close(&self) {
        *lock(&self.state) = State::default();
    }

    /// A connection may return.
    pub(super) fn know(&self, session: u64, token: Cookie, connection: &Arc<Inner>) {
        let mut known = lock(&KNOWN);
        known.retain(|one| one.connection.strong_count() > 0);
        let (port, connection) = (self.at.port(), Arc::downgrade(connection));
        known.push(Known { port, session, token, connection });
    }

    fn find(&self, returning: &Returning) -> Option<Arc<Inner>> {
        let known = lock(&KNOWN);
        let own = |one: &&Known| {
            let is_here = one.port == self.at.port();
            // All are compared whatever one says.
            equal(&one.token, &returning.token) & (one.session == returning.session) & is_here
        };
        known.iter().filter(own).find_map(|one| one.connection.upgrade())
    }

    /// A peer says that it returns: true if it is the one, and goes on.
    pub(super) fn take_back(&self, stream: TcpStream, returning: &Returning) -> bool {
        let refused = match self.find(returning) {
            Some(connection) => connection.take_back(stream, returning).err(),
            None => Some(stream),
        };
        let Some(mut stream) = refused else { return true };
        let (session, reason) = (returning.session, Reason::Unknown);
        let refuse = Setup::Refuse { session, reason, offer: Offer::default() };
        // It may be gone.
        let _ = stream.write(&refuse.to_bytes());
        false
    }

    /// Lets connections return while the application accepts none, for at most `most`.
    pub(super) fn serve(self: &Arc<Self>, most: Wall) {
        let until = deadline(most);
        if let Some(mut state) = try_lock(&self.state) {
            // Where it fails, another one listens there, or descriptors have run out.
            let _ = self.serve_once(&mut state, until);
        }
        // Others take the lock meanwhile.
        let left = until.saturating_duration_since(Instant::now());
        thread::sleep(left.max(Wall::from_millis(1)).min(Wall::from_millis(10)));
    }

    fn serve_once(&self, state: &mut State, until: Instant) -> io::Result<()> {
        if state.listener.is_none() {
            let listener = TcpListener::bind(self.at)?;
            listener.set_nonblocking(true)?;
            (state.listener, state.is_rebound) = (Some(listener), true);
        }
        self.wait(state, Some(until))?;
        self.take(state)?;
        let time = || maintenance::clock().now();
        while let Some(complete) = state.handshakes.next(Instant::now(), time, &self.offer) {
            let Complete { stream, verdict, .. } = &complete;
            match verdict {
                Verdict::Return(returning) => {
                    let (stream, returning) = (stream.try_clone()?, *returning);
                    drop(complete);
                    self.take_back(stream, &returning);
                }
                _ if state.is_rebound => {
                    let (session, reason) = (0, Reason::Busy);
                    let refuse = Setup::Refuse { session, reason, offer: Offer::default() };
                    let _ = (&mut &*stream).write(&refuse.to_bytes());
                }
                _ if state.ready.len() < MAX_READY => {
                    state.ready.push_back((deadline(self.setup_timeout), complete));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A connection is waited for no more.
    pub(super) fn leave(&self) {
        // A thread that accepts may hold it for long: then the listener is the application's. Another one that serves
        // leaves after this one.
        let Some(mut state) = try_lock(&self.state) else { return };
        if state.is_rebound {
            *state = State::default();
        }
    }

    /// Waits until a peer connects, sends more of its handshake, or times out, until the pause of
    /// accepting ends, or until `until`.
    pub(super) fn wait(&self, state: &State, until: Option<Instant>) -> io::Result<()> {
        let State { listener, handshakes, paused_until, .. } = state;
        let paused_until = paused_until.filter(|until| Instant::now() < *until);
        let own = listener.as_ref().filter(|_| paused_until.is_none()).map(AsFd::as_fd);
        let all = own.into_iter().chain(handshakes.streams().map(AsFd::as_fd));
        let mut files: Vec<_> =
            all.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
        let first = handshakes.next_timeout().into_iter().chain(paused_until).chain(until).min();
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
    pub(super) fn take(&self, state: &mut State) -> io::Result<Option<io::Error>> {
        let State { listener, handshakes, paused_until, .. } = state;
        let Some(listener) = listener else { return Ok(None) };
        if paused_until.is_some_and(|until| Instant::now() < until) {
            return Ok(None);
        }
        // At most as many as may be in the handshake, so that new ones are not preferred.
        for _ in 0..MAX_PENDING {
            match listener.accept() {
                Ok((stream, remote)) => {
                    if stream.set_nonblocking(true).is_err() {
                        continue;
                    }
                    handshakes.begin(stream, remote, deadline(self.setup_timeout));
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
