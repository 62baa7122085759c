//! What ontempo says on top of QUIC: a control stream, headers of units, datagrams.
//!
//! A client opens one bidirectional stream, the control stream, on which both sides write
//! [`Message`]s. A unit of a flow that is repaired travels on a unidirectional stream, a
//! [`UnitHeader`] before its bytes, several small units behind one another; a unit of a flow that
//! is not repaired travels in datagrams, each begun by a [`FragmentHeader`]. Numbers are QUIC's
//! variable-length integers (RFC 9000, section 16); times are microseconds.
//!
//! Every parser is total: whatever the bytes, it answers, within the limits named here.

mod control;
mod number;
mod unit;

pub use control::{
    AckRequest, DroppedUnit, FlowOpened, Limits, MAX_DROPPED, MAX_LABEL, MAX_MESSAGE, MAX_TOKEN,
    Message, Told,
};
pub use unit::{FragmentHeader, MAX_DEPENDENCIES, MAX_UNIT_HEADER, UnitHeader};

/// The version of this protocol, which both sides must name.
pub const VERSION: u64 = 1;

/// The protocol's name in TLS (ALPN, RFC 7301).
pub const ALPN: &[u8] = b"ontempo/1";

/// Why bytes could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// They end too early.
    Short,
    /// They go on after the end.
    Trailing,
    /// A number is outside the range that its field may have; names the field.
    OutOfRange(&'static str),
    /// A kind of message that version 1 does not have.
    UnknownMessage(u64),
}

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Short => f.write_str("the bytes end too early"),
            Self::Trailing => f.write_str("bytes are left after the end"),
            Self::OutOfRange(field) => write!(f, "{field} is out of range"),
            Self::UnknownMessage(kind) => write!(f, "message {kind} is unknown"),
        }
    }
}

impl std::error::Error for WireError {}

#[cfg(test)]
mod tests;
