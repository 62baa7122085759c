//! Endpoints in virtual time, over a network that does what networks do.
//!
//! A [`Network`] has endpoints with addresses and links between them, which are those of the
//! simulator's, and beside what links do it damages, repeats and marks datagrams and stalls. All
//! that happens follows from its seed, but for TLS's own randomness, on which neither sizes nor
//! times depend.

mod network;
mod path;

pub use network::{Network, Passage};
pub use path::{Mishaps, Path};
