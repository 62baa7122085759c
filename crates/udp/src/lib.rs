//! UDP as media needs it: each packet with its own ECN and DSCP, sent in batches or to the
//! microsecond, with the kernel's time of arrival.
//!
//! Nothing here knows what a datagram carries: no QUIC, no media, no sessions. There is no
//! asynchronous runtime.
//!
//! [`Socket`] is the socket and [`Driver`] the thread that carries a [`Protocol`], which itself
//! knows neither socket nor clock. Both take [`Time`](ontempo_foundation::Time) from a [`Clock`].
//! [`CookieJar`] makes a peer prove its address before anything is kept for it.
//!
//! Linux is served in full. On other kinds of Unix, and where [`SocketOptions::plain`] asks for it,
//! the socket has what the standard library has: no batches, no ECN or DSCP on receipt, arrival
//! as the program sees it. Elsewhere this crate is empty.

#![cfg(unix)]

mod class;
mod clock;
#[cfg(target_os = "linux")]
mod control;
mod driver;
#[cfg(target_os = "linux")]
mod linux;
mod plain;
mod protocol;
pub mod secret;
mod socket;
mod wait;

pub use class::{Dscp, Ecn, UnknownDscp};
pub use clock::Clock;
pub use driver::{CommandError, Driver, DriverOptions, DriverStatistics};
pub use protocol::{Datagram, Next, Protocol, Transmit};
pub use secret::{Cookie, CookieJar, random};
pub use socket::{BindError, Fragmentation, Socket, SocketOptions, any_for};

#[cfg(test)]
mod tests;
