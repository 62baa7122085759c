//! Files that arrive whole: a transfer goes on where it stood after a restart of either side.
//!
//! A sender whose source is a regular file opens its flow with a [`FileLabel`]. The receiver answers with
//! a [`Reply`]: how many bytes it has of that file, and their digest. If the digest is that of the
//! sender's file, it sends the rest, else all. Last it sends the digest of the whole, and the receiver gives
//! the file its name only if what it has written has the same.

pub mod message;
mod part;
mod receiving;
mod sending;

pub use message::{Digest, FileContent, FileLabel, Offer, Reply, labels};
pub use part::{Beginning, PartFile};
pub(crate) use receiving::Transfer;
pub use sending::SourceFile;
