//! The packetizer: media cut into units at its natural places, and put back together datagram by
//! datagram.
//!
//! Nothing here knows sockets, clocks or a transport, and nothing fails on damaged media: what
//! cannot be understood is carried as it is. The parsers are ours: of MPEG-TS and RTP only headers
//! are read, some twenty fields. The crates looked at decode streams (mpeg2ts) or build packets
//! (rtp-types).
//!
//! [`Cutter`] takes datagrams as an encoder sends them, recognises MPEG-TS and RTP, and answers
//! [`Unit`]s: a frame, a piece of sound, tables, each with what it depends on and how much it
//! matters. [`Joiner`] takes units in any order and gives back the datagrams as they were, at their
//! distances. Streams of bytes (files, pipes) become datagrams by a [`Chopper`].
//! A [`TransportStreamIndex`] lists the units of a whole stream with the places of their packets, to
//! measure what of it arrived.
//!
//! Frames of a transport stream interleave packet by packet, often within one datagram. So a unit
//! remembers, for each of its pieces, in which datagram and where it lay: a lost frame leaves the
//! sound beside it whole.

mod cut;
mod index;
mod join;
pub mod rtp;
mod stream;
pub mod ts;
mod unit;

pub use cut::{Cutter, CutterOptions, Format};
pub use index::{IndexError, IndexedUnit, TransportStreamIndex};
pub use join::{Joined, Joiner, JoinerOptions, JoinerStatistics, Release};
pub use stream::{Chopper, PcrClock};
pub use unit::{Kind, Part, Span, Unit, UnitError};

#[cfg(test)]
mod tests;
