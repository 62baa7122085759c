//! The packetizer: turns media into units, and units back into the original datagrams.
//!
//! It knows no sockets, clocks or transports, and does not fail on damaged media: anything that it
//! cannot parse is carried unchanged. The parsers are ours, because only headers of MPEG-TS and RTP
//! are read, some twenty fields; existing crates decode whole streams (mpeg2ts) or build packets
//! (rtp-types).
//!
//! [`Packetizer`] takes datagrams from an encoder, recognises MPEG-TS and RTP, and returns
//! [`Unit`]s: a video frame, an audio frame, tables, each with its dependencies and priority.
//! [`Depacketizer`] takes units in any order and returns the original datagrams with their original
//! spacing. A [`Chunker`] turns streams of bytes (files, pipes) into datagrams. A
//! [`TransportStreamIndex`] lists the units of a whole stream with the places of their packets, to
//! measure what of it arrived. A program that has frames and no multiplexer [cuts](cut_frame) them
//! itself, and puts them together with a [`FrameAssembler`].
//!
//! Frames of a transport stream interleave packet by packet, often within one datagram. A unit
//! therefore records the datagram and offset of each of its pieces, so that a lost video frame
//! leaves the audio in the same datagram intact.

mod chunker;
mod depacketizer;
mod elementary;
mod encoding;
mod film;
mod frames;
mod generate;
mod index;
mod mux;
mod numbers;
mod packetizer;
mod packets;
mod packing;
pub mod rtp;
mod scan;
mod sections;
mod streams;
mod stuffing;
pub mod ts;
mod unit;

pub use chunker::{Chunker, PcrClock};
pub use depacketizer::{
    Depacketizer, DepacketizerOptions, DepacketizerStatistics, Release, RestoredDatagram,
};
pub use elementary::{
    Elementary, ElementaryDatagram, ElementaryError, ElementaryFrame, FrameAssembler, FrameHead,
    FramePart, FrameTimes, FrameTooLong, MAX_DESCRIPTION, MAX_ELEMENTARY_FRAME, cut_frame,
};
pub use film::{Film, Sent};
pub use frames::{
    Codec, Frame, FrameKind, FrameProblem, FrameTable, FrameTableError, MAX_FRAME_DEPENDENCIES,
    MAX_FRAME_SIZE, MAX_FRAMES, MAX_PERIOD,
};
pub use generate::{GeneratedSound, GeneratorError, GeneratorParameters, SizeRatios, generate};
pub use index::{IndexError, IndexedUnit, TransportStreamIndex};
pub use mux::{Muxed, NO_FRAME, Sending};
pub use numbers::Numbers;
pub use packetizer::{Format, Gathering, Packetizer, PacketizerOptions};
pub use packets::{begins_transport_stream, stuffing_share};
pub use scan::{AccessUnit, FilmError, LiveDemultiplexer, StreamCoding};
pub use streams::{Codings, MAX_STREAMS, split_number};
pub use stuffing::{Fill, NULL_PAYLOAD, Stuffing};
pub use unit::{Kind, MAX_PIECES, Part, Span, Unit, UnitError};

#[cfg(test)]
mod tests;
