//! A scenario's path between any two UDP programs, without rights of root.
//!
//! A [`Path`] is the links of one flow of a scenario, without I/O: what enters leaves at the other
//! end at the time that the links compute, or is dropped. A [`Relay`] carries datagrams over it in
//! real time: those of clients over the flow's forward links to a server, its answers over the
//! reverse links. As a NAT for UDP does, it gives each client's address a socket of its own towards
//! the server. What strangers can make it hold is bounded ([`Limits`]).

mod error;
mod histogram;
mod listening;
mod path;
pub mod program;
mod relay;
mod report;

pub use error::ImpairError;
pub use histogram::Histogram;
pub use path::{DATAGRAM_COST, Delivery, Path, Undelivered, Way};
pub use relay::{Limits, Relay};
pub use report::{ClientCounts, Dropped, Report, WayReport};
