//! UDP for media: ECN and DSCP for each packet, sent in batches or on time to the
//! microsecond, with the kernel's time of arrival.
//!
//! It does not know what a datagram carries: no QUIC, no media, no sessions. There is no
//! asynchronous runtime, and a socket never blocks any thread but its driver's.
//!
//! [`Socket`] is the socket and [`Driver`] the thread that runs a [`Protocol`], which itself
//! knows neither socket nor clock. Both take [`Time`](ontempo_foundation::Time) from a [`Clock`].
//! [`Addressed`] is a socket of the standard library that answers from the address that was asked.
//! [`CookieJar`] makes a peer prove its address before any state is kept for it.
//!
//! Linux is supported in full. On other Unix systems, and with [`SocketOptions::plain`],
//! the socket has what the standard library has: no batches, no ECN or DSCP on receipt, arrival
//! times taken by the program. Elsewhere this crate is empty.

#![cfg(unix)]

#[cfg(target_os = "linux")]
mod addressed;
mod class;
mod clock;
#[cfg(target_os = "linux")]
mod control;
mod driver;
mod group;
#[cfg(target_os = "linux")]
mod linux;
mod plain;
mod protocol;
pub mod secret;
mod socket;
mod visits;
mod wait;

#[cfg(target_os = "linux")]
pub use addressed::Addressed;
pub use class::{Dscp, Ecn, UnknownDscp};
pub use clock::{Clock, Deadline};
pub use driver::{CommandError, Driver, DriverOptions, DriverStatistics, Wake};
pub use group::Steering;
pub use protocol::{Datagram, Next, Protocol, Transmit};
pub use secret::{Cookie, CookieJar, random};
pub use socket::{BindError, Fragmentation, Socket, SocketOptions, any_for};
pub use visits::Takes;

#[cfg(test)]
mod here_tests;
#[cfg(test)]
mod tests;
