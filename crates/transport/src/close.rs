//! Reasons of the end of a connection.

use std::fmt;

use ontempo_foundation::printable;

/// Why a connection ended, so that no program has to parse the sentence.
///
/// The first ten are sent as the application error code of QUIC's CONNECTION_CLOSE (RFC 9000,
/// section 19.19), with a sentence for people as its reason phrase. The others are detected by this
/// side, and have no code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseReason {
    /// Code 0: closed by either application.
    Done,
    /// Code 1: the other side violated the protocol.
    ProtocolViolation,
    /// Code 2: wrong token.
    WrongToken,
    /// Code 3: the handshake, or later an answer, timed out.
    NoAnswer,
    /// Code 4: the receiver serves another sender.
    Busy,
    /// Code 5: the program does not support what it received.
    Unsupported,
    /// Code 6: the program failed, for example because its disk is full.
    Failed,
    /// Code 7: the receiver has processed everything.
    Complete,
    /// Code 8: the receiver has no memory left for what was sent and its program did not take.
    Overloaded,
    /// Code 9, or QUIC's CONNECTION_REFUSED: the peer accepts no more connections now.
    Refused,
    /// A code that this version does not know.
    Other(u64),
    /// No common version of QUIC, or of this protocol.
    IncompatibleVersion,
    /// One side does not trust the other's certificate, or TLS failed.
    Untrusted,
    /// Idle timeout.
    TimedOut,
    /// The peer has no state of the connection (a stateless reset, RFC 9000, section 10.3).
    Reset,
    /// Another transport error.
    Transport,
    /// The thread of the connection has ended.
    Ended,
}

impl CloseReason {
    /// All with a code, in the order of their codes; then all without.
    pub const ALL: [Self; 16] = [
        Self::Done,
        Self::ProtocolViolation,
        Self::WrongToken,
        Self::NoAnswer,
        Self::Busy,
        Self::Unsupported,
        Self::Failed,
        Self::Complete,
        Self::Overloaded,
        Self::Refused,
        Self::IncompatibleVersion,
        Self::Untrusted,
        Self::TimedOut,
        Self::Reset,
        Self::Transport,
        Self::Ended,
    ];

    /// The application error code; `None` for a reason detected by this side.
    pub const fn code(self) -> Option<u64> {
        Some(match self {
            Self::Done => 0,
            Self::ProtocolViolation => 1,
            Self::WrongToken => 2,
            Self::NoAnswer => 3,
            Self::Busy => 4,
            Self::Unsupported => 5,
            Self::Failed => 6,
            Self::Complete => 7,
            Self::Overloaded => 8,
            Self::Refused => 9,
            Self::Other(code) => code,
            _ => return None,
        })
    }

    /// The reason for an application error code.
    pub fn of_code(code: u64) -> Self {
        let known = Self::ALL.into_iter().find(|reason| reason.code() == Some(code));
        known.unwrap_or(Self::Other(code))
    }

    /// Its name: lower case, words joined by `_`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::ProtocolViolation => "protocol_violation",
            Self::WrongToken => "wrong_token",
            Self::NoAnswer => "no_answer",
            Self::Busy => "busy",
            Self::Unsupported => "unsupported",
            Self::Failed => "failed",
            Self::Complete => "complete",
            Self::Overloaded => "overloaded",
            Self::Other(_) => "other",
            Self::Refused => "refused",
            Self::IncompatibleVersion => "incompatible_version",
            Self::Untrusted => "untrusted",
            Self::TimedOut => "timed_out",
            Self::Reset => "reset",
            Self::Transport => "transport",
            Self::Ended => "ended",
        }
    }

    /// True if either application closed the connection, and it was not lost.
    pub const fn is_orderly(self) -> bool {
        matches!(self, Self::Done | Self::Busy | Self::Unsupported | Self::Failed | Self::Complete)
    }

    /// True if a repeated attempt cannot succeed: the token, the certificate or the
    /// version is wrong, or the peer's application has ended it for good.
    pub const fn is_final(self) -> bool {
        self.is_misconfigured()
            || matches!(self, Self::Busy | Self::Unsupported | Self::Failed | Self::Complete)
    }

    /// True if the user has to change something: the token, the certificate or the version.
    pub const fn is_misconfigured(self) -> bool {
        matches!(self, Self::WrongToken | Self::Untrusted | Self::IncompatibleVersion)
    }
}

/// Maximum size of the sentence sent to the peer, bytes.
pub(crate) const MAX_SENTENCE: usize = 200;

/// The sentence of [`CloseReason::Refused`].
pub(crate) const REFUSED: &str = "the peer takes no more connections now";

/// The sentence of a peer that has closed the connection without one.
pub(crate) const CLOSED: &str = "the peer closed the connection";

/// What the peer of a connection is told that nobody will accept.
pub(crate) const NOT_LISTENING: &str = "it accepts no more connections";

/// The end of a connection: its reason, for programs and for people. Its texts have no character that a
/// terminal would obey, since parts are of the peer: control characters are escaped, as in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The reason.
    pub reason: CloseReason,
    /// The peer's sentence; empty if it sent none. At most 200 bytes, before they are escaped.
    pub said: String,
    /// A sentence for people, in lower case.
    pub sentence: String,
}

impl Closed {
    /// Detected by this side.
    pub fn found(reason: CloseReason, sentence: impl Into<String>) -> Self {
        // Errors of the stack have the words of its peer in them.
        let sentence = printable(&sentence.into()).into_owned();
        Self { reason, said: String::new(), sentence }
    }

    /// Closed by this side's application.
    pub fn by_this_side() -> Self {
        Self::found(CloseReason::Done, "it was closed by this side")
    }

    /// Closed by the peer with an application error code and a sentence.
    pub(crate) fn by_peer(code: u64, said: &[u8]) -> Self {
        let reason = CloseReason::of_code(code);
        let said = String::from_utf8_lossy(&said[..said.len().min(MAX_SENTENCE)]);
        let said = printable(&said).into_owned();
        let sentence = match reason {
            CloseReason::WrongToken => "the peer refused our token".to_owned(),
            CloseReason::Refused => REFUSED.to_owned(),
            reason if reason.is_orderly() && said.is_empty() => CLOSED.to_owned(),
            _ if said.is_empty() => "the peer gave up".to_owned(),
            reason if reason.is_orderly() => format!("the peer closed: {said}"),
            _ => format!("the peer gave up: {said}"),
        };
        Self { reason, said, sentence }
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_read_as_the_reason_that_it_was_written_for() {
        for reason in CloseReason::ALL {
            if let Some(code) = reason.code() {
                assert_eq!(CloseReason::of_code(code), reason);
            }
        }
        assert_eq!(CloseReason::of_code(10), CloseReason::Other(10));
        assert_eq!(CloseReason::Other(10).code(), Some(10));
    }

    #[test]
    fn names_differ() {
        let names = CloseReason::ALL.map(CloseReason::name);
        let different: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len());
    }

    #[test]
    fn the_peers_words_stand_apart_from_the_sentence() {
        let closed = Closed::by_peer(4, b"another sender is connected");
        assert_eq!(closed.reason, CloseReason::Busy);
        assert_eq!(closed.said, "another sender is connected");
        assert_eq!(closed.to_string(), "the peer closed: another sender is connected");
    }

    #[test]
    fn a_terminal_obeys_nothing_that_a_peer_says() {
        let said = b"\x1b]0;title\x07 and\na line\xe2\x80\xae";
        for code in [4, 4_711] {
            let closed = Closed::by_peer(code, said);
            assert_eq!(closed.said, r"\u001b]0;title\u0007 and\u000aa line\u202e");
            assert!(closed.sentence.ends_with(&format!(": {}", closed.said)), "{closed}");
        }
        // Errors of the stack carry the words of its peer: the reason of its CONNECTION_CLOSE, the
        // names in its certificate.
        let closed = Closed::found(CloseReason::Transport, "closed by peer: \u{9b}2J");
        assert_eq!(closed.sentence, r"closed by peer: \u009b2J");
    }

    #[test]
    fn a_peers_words_have_a_bound() {
        let closed = Closed::by_peer(0, &[b'x'; 1_000]);
        assert_eq!(closed.said.len(), MAX_SENTENCE);
    }
}
