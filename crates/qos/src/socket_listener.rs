//! The UDP listener.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, Weak};

use socket2::{Domain, Protocol, Socket as RawSocket, Type};

use super::core::lock;
use super::door::{Asked, Door};
use super::listener::{Accepted, is_exhausted};
use super::maintenance;
use super::setup::{Established, SetupError};
use super::socket::{Inner, QosSocket, is_passing};
use super::wire::{MAX_SETUP, Setup};
use super::{QosOptions, facade};
use ontempo_monitor::Carrier;
use ontempo_udp::random;

/// Accepts flows over UDP.
#[derive(Debug)]
pub struct QosSocketListener {
    socket: UdpSocket,
    local: SocketAddr,
    options: QosOptions,
    door: Mutex<Door<Weak<Inner>>>,
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
        let secret = u128::from(random()) << 64 | u128::from(random());
        let door = Mutex::new(Door::new(secret));
        Ok(Self { socket, local, options, door })
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
        let offer = self.options.offer();
        let mut room = [0; MAX_SETUP + 1];
        loop {
            let (got, remote) = match self.socket.recv_from(&mut room) {
                Ok(got) => got,
                Err(error) if is_passing(&error) => continue,
                Err(error) => return Err(error),
            };
            let now = maintenance::clock().now();
            let is_open = |flow: &Weak<Inner>| flow.strong_count() > 0;
            // Of two threads with the same message, one makes the flow.
            let mut door = lock(&self.door);
            match door.on_datagram(now, &offer, (remote, &room[..got]), is_open) {
                Asked::Nothing => {}
                Asked::Answer(answer) => self.answer(remote, &answer),
                Asked::Refuse(answer, error) => {
                    self.answer(remote, &answer);
                    return Ok(Accepted::Refused(remote, error));
                }
                Asked::Accept(answer, session, established) => {
                    match self.begin(remote, &answer, &established) {
                        Ok(connected) => {
                            door.begun(remote, session, Arc::downgrade(connected.inner()));
                            return Ok(Accepted::Connection(connected, remote));
                        }
                        // The peer asks again.
                        Err(error) if is_exhausted(&error) => {
                            return Ok(Accepted::Exhausted(error));
                        }
                        // No route to this peer, for example.
                        Err(_) => {}
                    }
                }
            }
        }
    }

    fn answer(&self, remote: SocketAddr, answer: &Setup) {
        // A peer that does not receive it asks again.
        let _ = self.socket.send_to(&answer.to_bytes(), remote);
    }

    /// Makes the flow of a peer with a valid cookie.
    fn begin(
        &self,
        remote: SocketAddr,
        answer: &Setup,
        established: &Established,
    ) -> io::Result<QosSocket> {
        let socket = shared(self.local)?;
        socket.connect(&remote.into())?;
        let connected = QosSocket::establish(socket.into(), &self.options, established);
        let connected = connected.map_err(io::Error::from)?;
        self.answer(remote, answer);
        Ok(connected)
    }
}

impl AsFd for QosSocketListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
