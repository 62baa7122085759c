//! What connections of all transports have in common.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration as Wall, Instant};

use super::core::{Core, deadline, lock};
use super::maintenance::Maintained;
use super::setup::{Established, SetupError};
use super::{QosOptions, maintenance};
use ontempo_monitor::Carrier;
use ontempo_udp::{Dscp, Ecn};

/// State of a connection after its handshake, with its reservations.
pub(super) fn core(
    carrier: Carrier,
    addresses: (SocketAddr, SocketAddr),
    options: &QosOptions,
    established: &Established,
) -> Core {
    let core = Core::new(carrier, addresses, options, established, maintenance::clock());
    core.ask();
    core
}

/// Connects to the first address that answers.
pub(super) fn first<C>(
    addresses: impl ToSocketAddrs,
    mut begin: impl FnMut(SocketAddr) -> Result<C, SetupError>,
) -> Result<C, SetupError> {
    let mut last = SetupError::Io(ErrorKind::AddrNotAvailable.into());
    for address in addresses.to_socket_addrs()? {
        match begin(address) {
            Err(error @ (SetupError::Io(_) | SetupError::Silent)) => last = error,
            done => return done,
        }
    }
    Err(last)
}

/// Sets the DSCP of a socket.
pub(super) fn mark(socket: socket2::SockRef<'_>, is_ipv4: bool, dscp: Dscp) -> io::Result<()> {
    let class = u32::from(dscp.with(Ecn::NotCapable));
    if is_ipv4 {
        return socket.set_tos_v4(class);
    }
    // An IPv6 socket has a class for its IPv4 packets, too, if the system allows it.
    let _ = socket.set_tos_v4(class);
    socket.set_tclass_v6(class)
}

/// Waits for the reservation if `must_reserve` is set.
pub(super) fn must_reserve(
    connection: &dyn Maintained,
    options: &QosOptions,
) -> Result<(), SetupError> {
    if options.must_reserve {
        wait_reserved(connection, options.setup_timeout).map_err(SetupError::NotReserved)?;
    }
    Ok(())
}

/// Waits until both directions are reserved; returns the reason if they are not.
pub(super) fn wait_reserved(connection: &dyn Maintained, timeout: Wall) -> Result<(), String> {
    let (core, until) = (connection.core(), deadline(timeout));
    loop {
        core.failure().map_or(Ok(()), Err)?;
        maintenance::hear_daemon(connection);
        let granted = lock(&core.reserved).granted();
        if granted?.is_some() {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err("neither granted nor refused in time".to_owned());
        }
        std::thread::sleep(Wall::from_millis(5));
    }
}

/// Methods common to connections of all transports.
macro_rules! methods {
    ($connection:ident) => {
        impl $connection {
            /// The specification agreed for a direction; renegotiations show here.
            pub fn agreed(&self, direction: Direction) -> Specification {
                match direction {
                    Direction::Sending => *lock(&self.core().outgoing).agreed(),
                    Direction::Receiving => *lock(&self.core().incoming).agreed(),
                }
            }

            /// Asks for another specification of this end's sending direction. Both ends agree on
            /// it as in the handshake; the message size stays.
            ///
            /// # Errors
            /// The contradiction, in itself or with the peer's specification: nothing changes.
            pub fn change(
                &self,
                asked: Specification,
            ) -> Result<Specification, ontempo_mechanisms::qos::Refusal> {
                let (agreed, change) = self.core().change(asked)?;
                self.inner().send_control(&change);
                Ok(agreed)
            }

            /// Events from now on, such as begins and ends of violations.
            pub fn events(&self) -> Events {
                self.core().events()
            }

            /// Statistics of a direction at the end of the last interval.
            pub fn delivery(&self, direction: Direction) -> Delivery {
                match direction {
                    Direction::Sending => {
                        let (sent, _) = self.core().counter.get();
                        Delivery::of(sent, lock(&self.core().outgoing).figures())
                    }
                    Direction::Receiving => {
                        let incoming = lock(&self.core().incoming);
                        Delivery::of(incoming.sent().0, incoming.figures())
                    }
                }
            }

            /// Reports as `ontempo monitor` and `ontempo export` show them: one for each
            /// direction with a specification or with messages.
            pub fn reports(&self) -> Vec<ontempo_monitor::SocketReport> {
                crate::report::sockets(self.core())
            }

            /// State of a direction's reservation, and the reason if there is none.
            pub fn reservation(
                &self,
                direction: Direction,
            ) -> (ontempo_monitor::Reservation, String) {
                let reserved = lock(&self.core().reserved);
                let standing = reserved.of(direction);
                standing.map_or((ontempo_monitor::Reservation::None, String::new()), |standing| {
                    (standing.state, standing.reason.clone())
                })
            }

            /// Waits until the requested reservations are established in both directions.
            ///
            /// # Errors
            /// The reason why not.
            pub fn wait_reserved(&self, timeout: Wall) -> Result<(), String> {
                facade::wait_reserved(&**self.inner(), timeout)
            }

            /// Maximum size of a message to send, in bytes.
            pub fn max_send_size(&self) -> usize {
                self.core().max_send_size
            }

            /// Maximum size of a message to receive, in bytes.
            pub fn max_receive_size(&self) -> usize {
                self.core().max_receive_size
            }

            /// The DSCP of the packets: the one of the options, else what the network asks for with the
            /// reservation (RFC 2996), else what fits the agreed specification (RFC 4594).
            pub fn dscp(&self) -> Dscp {
                self.core().dscp()
            }

            /// The local address.
            pub fn local_address(&self) -> SocketAddr {
                self.core().local()
            }

            /// The remote address.
            pub fn peer_address(&self) -> SocketAddr {
                self.core().remote()
            }
        }
    };
}

/// `Read` and `Write` of connections whose messages are bytes of a stream; `read_bytes` reads.
macro_rules! byte_stream {
    ($connection:ident) => {
        impl Read for &$connection {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.read_bytes(buffer)
            }
        }

        impl Write for &$connection {
            fn write(&mut self, data: &[u8]) -> io::Result<usize> {
                let most = self.core().max_send_size.min(data.len());
                if most == 0 && !data.is_empty() {
                    return Err(too_long(data.len(), 0, "what was agreed"));
                }
                self.send_message(&data[..most]).map(|()| most)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        impl Read for $connection {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                (&*self).read(buffer)
            }
        }

        impl Write for $connection {
            fn write(&mut self, data: &[u8]) -> io::Result<usize> {
                (&*self).write(data)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
    };
}

pub(super) use {byte_stream, methods};
