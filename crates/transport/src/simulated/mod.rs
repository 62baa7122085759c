//! Endpoints in virtual time, over a simulated network.
//!
//! A [`Network`] has endpoints with addresses and links between them, which are those of the
//! simulator; in addition it damages, duplicates and marks datagrams and has outages. Everything
//! derives from its seed, except TLS's own randomness, on which neither sizes nor
//! times depend.

mod network;
mod path;

pub use network::{Network, Passage};
pub use path::{Mishaps, Path};
