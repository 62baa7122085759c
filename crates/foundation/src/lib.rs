//! Units and random streams, shared by `mechanisms` and `network`.
//!
//! Nothing here reads a clock or holds global state. [`Time`] and [`Duration`] count
//! nanoseconds, [`Rate`] bits per second, [`Bytes`] and [`Packets`] bytes and packets;
//! no public interface of the project takes a bare number of unknown unit. A
//! [`RandomStream`] is derived from a seed and a name, so that adding a stream for one
//! purpose never changes the numbers of another.
//!
//! Transcendental functions come from [`math`], never from the platform's libm: the same
//! scenario and seed give the same bytes on every machine.

mod address;
mod host;
pub mod math;
pub mod octets;
mod printable;
mod random;
#[cfg(feature = "text")]
mod text;
mod units;

pub use address::{AddressError, resolve};
pub use host::{first_of_largest_host, host_prefix};
pub use printable::{printable, printable_lines};
pub use random::RandomStream;
#[cfg(feature = "text")]
pub use text::{Quantity, UnitError, UnitProblem};
pub use units::{Bytes, Duration, MessageRate, Packets, Percent, Rate, Time};
