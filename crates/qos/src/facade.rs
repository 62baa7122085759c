//! What connections have alike, whatever carries them.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration as Wall, Instant};

use super::core::{Core, lock};
use super::network::Reserved;
use super::setup::{Established, SetupError};
use super::{QosOptions, tender};
use ontempo_monitor::{Carrier, Reservation};
use ontempo_udp::{Dscp, Ecn};

/// The state of a connection whose set-up is done, with what is asked of the network.
pub(super) fn core(
    carrier: Carrier,
    addresses: (SocketAddr, SocketAddr),
    options: &QosOptions,
    established: &Established,
) -> Core {
    let core = Core::new(carrier, addresses, options, established, tender::clock());
    let directions = (&established.sending, &established.receiving);
    *lock(&core.reserved) = Reserved::ask(options.reserve, carrier, addresses, directions);
    core
}

/// What the first address answers at which neither the system nor silence says no.
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

/// Marks a socket's packets.
pub(super) fn mark(socket: socket2::SockRef<'_>, is_ipv4: bool, dscp: Dscp) -> io::Result<()> {
    let class = u32::from(dscp.with(Ecn::NotCapable));
    if is_ipv4 {
        return socket.set_tos_v4(class);
    }
    // A socket of IPv6 that carries IPv4 has a class for that, too, where the system lets it.
    let _ = socket.set_tos_v4(class);
    socket.set_tclass_v6(class)
}

/// Waits for the reservation of an end that goes on only with one.
pub(super) fn must_reserve(core: &Core, options: &QosOptions) -> Result<(), SetupError> {
    if options.must_reserve {
        wait_reserved(core, options.patience).map_err(SetupError::NotReserved)?;
    }
    Ok(())
}

/// Waits until both directions are reserved; a sentence says why not.
pub(super) fn wait_reserved(core: &Core, patience: Wall) -> Result<(), String> {
    let until = Instant::now() + patience;
    loop {
        let mut reserved = lock(&core.reserved);
        core.publish_reservations(&reserved.poll());
        let granted =
            |state| matches!(state, Reservation::ControlledLoad | Reservation::Guaranteed);
        let mut missing = reserved.standing.iter().filter(|one| !granted(one.state)).peekable();
        if reserved.standing.is_empty() {
            return Err("neither end asks for a rate, or for a reservation".to_owned());
        }
        let Some(first) = missing.peek() else { return Ok(()) };
        if first.state != Reservation::Requested {
            return Err(first.reason.clone());
        }
        if Instant::now() >= until {
            return Err("neither granted nor refused in time".to_owned());
        }
        drop(reserved);
        std::thread::sleep(Wall::from_millis(5));
    }
}

/// The methods of a connection that do not depend on what carries it.
macro_rules! methods {
    ($connection:ident) => {
        impl $connection {
            /// What was agreed for a direction; a change shows here.
            pub fn agreed(&self, direction: Direction) -> Specification {
                match direction {
                    Direction::Sending => *lock(&self.core().outgoing).agreed(),
                    Direction::Receiving => *lock(&self.core().incoming).agreed(),
                }
            }

            /// Asks for something else of what this end sends. Both ends agree on it as in the
            /// set-up; the size of messages stays.
            ///
            /// # Errors
            /// What it contradicts, in itself or of what the other end asked for: nothing changes.
            pub fn change(
                &self,
                asked: Specification,
            ) -> Result<Specification, ontempo_mechanisms::qos::Refusal> {
                let (agreed, told) = self.core().change(asked)?;
                self.inner().tell(&told);
                Ok(agreed)
            }

            /// What has changed, from now on: violations that begin and end, above all.
            pub fn events(&self) -> Events {
                self.core().events()
            }

            /// What was delivered in a direction, by the last interval's end.
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

            /// All figures, as `ontempo monitor` and `ontempo export` have them: a socket for each
            /// direction of which something is asked or that has carried messages.
            pub fn reports(&self) -> Vec<ontempo_monitor::SocketReport> {
                crate::report::sockets(self.core())
            }

            /// How the reservation of a direction stands, and why not, where it does not.
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

            /// Waits until what was asked for is reserved in both directions.
            ///
            /// # Errors
            /// A sentence that says why it is not.
            pub fn wait_reserved(&self, patience: Wall) -> Result<(), String> {
                facade::wait_reserved(self.core(), patience)
            }

            /// Bytes of the longest message that may be sent.
            pub fn most_sent(&self) -> usize {
                self.core().most_sent
            }

            /// Bytes of the longest message that may come.
            pub fn most_received(&self) -> usize {
                self.core().most_received
            }

            /// The code point of the packets.
            pub fn dscp(&self) -> Dscp {
                self.core().dscp
            }

            /// The address here.
            pub fn local_address(&self) -> SocketAddr {
                self.core().local
            }

            /// The address there.
            pub fn peer_address(&self) -> SocketAddr {
                self.core().remote
            }
        }
    };
}

pub(super) use methods;
