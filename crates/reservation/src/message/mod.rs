//! RSVP messages: bytes to structs and back.
//!
//! RFC 2205 with the objects of RFC 2210 (integrated services), RFC 2961 (refresh reduction) and
//! RFC 2996 (DCLASS), and the messages of RFC 2747; IPv4 and IPv6. [`Message::decode`] takes any bytes: it reads at most
//! the 65,535 that a message can have, copies no object that it does not know unless it must be
//! forwarded, and ends in a message or in a [`ParseError`]. What [`Message::encode`] writes is
//! read back equal.
//!
//! Authentication (RFC 2747) works on the encoded bytes and is not part of this module: INTEGRITY
//! objects are skipped here.

mod body;
mod dclass;
mod decode;
mod encode;
mod error;
mod parts;
mod service;
mod wire;

pub use body::{
    Ack, Body, Message, MessageId, Path, PathErr, PathTear, RawObject, Resv, ResvConf, ResvErr,
    ResvTear, Srefresh, Unknown,
};
pub use dclass::{Dclass, Mark, Marked};
pub use error::{ParseError, TooLong};
pub use parts::{Cause, Descriptor, ErrorSpec, Hop, Sender, Session, Style};
pub use service::{AdSpec, FlowSpec, GuaranteedAd, LATENCY_UNKNOWN, TrafficSpec};
pub use wire::{HEADER_LENGTH, PROTOCOL, checksum, class};
