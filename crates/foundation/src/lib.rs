//! What `mechanisms` and `network` both speak: units and random streams.
//!
//! Nothing here reads a clock or holds global state. [`Time`] and [`Duration`] count
//! nanoseconds, [`Rate`] bits per second, [`Bytes`] and [`Packets`] what their names say;
//! a bare number of unknown unit crosses no public boundary of the project. A
//! [`RandomStream`] is drawn from one seed and one name, so that adding a stream for one
//! purpose never shifts the numbers that another sees.
//!
//! Transcendental functions come from [`math`], never from the platform's libm: the same
//! scenario and seed give the same bytes on every machine.

pub mod math;
pub mod octets;
mod random;
#[cfg(feature = "text")]
mod text;
mod units;

pub use random::RandomStream;
#[cfg(feature = "text")]
pub use text::{Quantity, UnitError, UnitProblem};
pub use units::{Bytes, Duration, MessageRate, Packets, Percent, Rate, Time};
