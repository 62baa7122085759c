//! The UDP listener.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, Weak};

use ontempo_foundation::Time;
use socket2::{Domain, Protocol, Socket as RawSocket, Type};

use super::core::lock;
use super::listener::{Accepted, is_exhausted};
use super::maintenance;
use super::setup::{self, SetupError};
use super::socket::{Inner, QosSocket, is_passing};
use super::wire::{MAX_SETUP, Offer, Reason, Setup, WireError};
use super::{QosOptions, facade};
use ontempo_monitor::Carrier;
use ontempo_udp::{CookieJar, random};

/// Maximum connections of a listener.
const MAX_CONNECTIONS: usize = 1_024;

/// Accepts flows over UDP.
#[derive(Debug)]
pub struct QosSocketListener {
    socket: UdpSocket,
    local: SocketAddr,
    options: QosOptions,
    jar: CookieJar,
    accepted: Mutex<Vec<(SocketAddr, u64, Weak<Inner>)>>,
}

/// A socket at an address shared with others of this user: a flow's own, beside the listener's.
fn shared(at: SocketAddr) -> io::Result<RawSocket> {
    let socket = RawSocket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    socket.bind(&at.into())?;
    Ok(socket)
}

impl QosSocketListener {
    pub(super) fn bind(at: impl ToSocketAddrs, options: QosOptions) -> Result<Self, SetupError> {
        options.check(Carrier::Udp)?;
        let socket: UdpSocket = facade::first(at, |address| Ok(shared(address)?.into()))?;
        let local = socket.local_addr()?;
        let jar = CookieJar::new(u128::from(random()) << 64 | u128::from(random()));
        Ok(Self { socket, local, options, jar, accepted: Mutex::default() })
    }

    /// The local address.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Waits for the next flow with an agreement.
    ///
    /// # Errors
    /// The system's error.
    pub fn accept(&self) -> io::Result<(QosSocket, SocketAddr)> {
        loop {
            if let Accepted::Connection(socket, remote) = self.accept_or_refuse()? {
                return Ok((socket, remote));
            }
        }
    }

    /// Waits for the next flow, or the next refused peer. No state is kept
    /// for a peer that has not proved that it receives at its address. Where descriptors or memory
    /// run out, a peer asks again, and each time this says so.
    ///
    /// # Errors
    /// The system's error.
    pub fn accept_or_refuse(&self) -> io::Result<Accepted<QosSocket>> {
        let mut room = [0; MAX_SETUP + 1];
        loop {
            let (got, remote) = match self.socket.recv_from(&mut room) {
                Ok(got) => got,
                Err(error) if is_passing(&error) => continue,
                Err(error) => return Err(error),
            };
            let now = maintenance::clock().now();
            match Setup::read(&room[..got]) {
                Ok(Setup::Hello { session, cookie, sent, offer }) => {
                    if !self.jar.knows(now, remote, session, &cookie) {
                        let cookie = self.jar.bake(now, remote, session);
                        self.answer(remote, &Setup::Challenge { session, cookie });
                    } else {
                        match self.begin(remote, session, sent, offer, now) {
                            Ok(None) => {}
                            Ok(Some(accepted)) => return Ok(accepted),
                            // The peer asks again.
                            Err(error) if is_exhausted(&error) => {
                                return Ok(Accepted::Exhausted(error));
                            }
                            // No route to this peer, for example.
                            Err(_) => {}
                        }
                    }
                }
                // No answer is longer than its request.
                Err(WireError::Version(_)) if got >= MAX_SETUP => {
                    let (reason, offer) = (Reason::Version, self.options.offer());
                    self.answer(remote, &Setup::Refuse { session: 0, reason, offer });
                }
                _ => {}
            }
        }
    }

    fn answer(&self, remote: SocketAddr, answer: &Setup) {
        // A peer that does not receive it asks again.
        let _ = self.socket.send_to(&answer.to_bytes(), remote);
    }

    /// Handles a peer with a valid cookie: `None` if it is a repetition.
    fn begin(
        &self,
        remote: SocketAddr,
        session: u64,
        sent: u64,
        peer: Offer,
        now: Time,
    ) -> io::Result<Option<Accepted<QosSocket>>> {
        let mut all = lock(&self.accepted);
        all.retain(|(_, _, connection)| connection.strong_count() > 0);
        if all.iter().any(|(address, of, _)| (*address, *of) == (remote, session)) {
            return Ok(None);
        }
        let offer = self.options.offer();
        if all.len() >= MAX_CONNECTIONS {
            self.answer(remote, &Setup::Refuse { session, reason: Reason::Busy, offer });
            return Ok(None);
        }
        let (answer, settled) = setup::answer(&offer, session, sent, peer, now);
        let established = match settled {
            Ok(established) => established,
            Err(both) => {
                self.answer(remote, &answer);
                let both = SetupError::Disagreement(Box::new(both));
                return Ok(Some(Accepted::Refused(remote, both)));
            }
        };
        let socket = shared(self.local)?;
        socket.connect(&remote.into())?;
        let connected = QosSocket::establish(socket.into(), &self.options, &established);
        let connected = connected.map_err(io::Error::from)?;
        self.answer(remote, &answer);
        all.push((remote, session, Arc::downgrade(connected.inner())));
        Ok(Some(Accepted::Connection(connected, remote)))
    }
}

impl AsFd for QosSocketListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
