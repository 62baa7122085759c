//! The protocol on top of QUIC: a control stream, unit headers, datagrams.
//!
//! A client opens one bidirectional stream, the control stream, on which both sides write
//! [`Message`]s. A unit of a flow with retransmission is sent on a unidirectional stream, a
//! [`UnitHeader`] before its bytes; several small units may share a stream. A unit of a flow
//! without retransmission is sent in datagrams, each with a [`DatagramHeader`], and so is what a receiver asks for shortly
//! before a deadline. Numbers are QUIC's
//! variable-length integers (RFC 9000, section 16); times are microseconds. How a unit's header and a
//! frame of media become few bytes: `docs/deliver.md`.
//!
//! Every parser is total: it returns a value or an error for any bytes, within the limits named
//! here.

mod control;
mod datagram;
mod number;
mod unit;

pub use control::{
    AckRequest, DroppedUnit, FlowOpened, Limits, MAX_DROPPED, MAX_LABEL, MAX_MESSAGE, MAX_TOKEN,
    Message, ReceiverReport,
};
pub use datagram::{DatagramHeader, MAX_RANGES, Missing, Range};
pub use unit::{MAX_DEPENDENCIES, MAX_UNIT_HEADER, Sent, UnitHeader};

/// Version of this protocol, which must be equal at both sides.
pub const VERSION: u64 = 3;

/// ALPN of the protocol (RFC 7301): a prefix, and the version.
pub const ALPN: &[u8] = b"ontempo/3";

/// ALPN of earlier versions, which both sides offer beside [`ALPN`] only to refuse them with a
/// sentence that names both.
pub const EARLIER_ALPN: &[&[u8]] = &[b"ontempo/2", b"ontempo/1"];

/// The sentence of a side that does not speak the version of this ALPN.
pub fn other_version(alpn: &[u8]) -> String {
    let theirs = alpn.strip_prefix(b"ontempo/").unwrap_or(alpn);
    let theirs = String::from_utf8_lossy(theirs);
    format!("this side speaks version {VERSION} of the protocol, the other version {theirs}")
}

/// Why bytes could not be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Truncated.
    Short,
    /// Trailing bytes.
    Trailing,
    /// A number is outside the range of its field; names the field.
    OutOfRange(&'static str),
    /// An unknown kind of message.
    UnknownMessage(u64),
    /// Another version than [`VERSION`].
    Version(u64),
}

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Short => f.write_str("the bytes end too early"),
            Self::Trailing => f.write_str("bytes are left after the end"),
            Self::OutOfRange(field) => write!(f, "{field} is out of range"),
            Self::UnknownMessage(kind) => write!(f, "message {kind} is unknown"),
            Self::Version(version) => f.write_str(&other_version(version.to_string().as_bytes())),
        }
    }
}

impl std::error::Error for WireError {}

#[cfg(test)]
mod tests;
