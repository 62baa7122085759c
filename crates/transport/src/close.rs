//! Why a connection is over.

use std::fmt;

/// Why a connection is over, for programs: none has to read the sentence.
///
/// The first nine travel as the application error code of QUIC's CONNECTION_CLOSE (RFC 9000,
/// section 19.19), with a sentence for people as its reason phrase. The others are what this side
/// finds by itself, and have no code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseReason {
    /// Code 0: one of both programs closed it.
    Done,
    /// Code 1: the other side broke the protocol.
    ProtocolViolation,
    /// Code 2: the client's token is not the server's.
    WrongToken,
    /// Code 3: the greeting, or later an answer, did not come in time.
    NoAnswer,
    /// Code 4: the receiver serves another sender.
    Busy,
    /// Code 5: the program does not understand what it was sent.
    Unsupported,
    /// Code 6: the program failed, for example because its disk is full.
    Failed,
    /// Code 7: the receiver has processed all that was sent.
    Complete,
    /// A code that this version does not know.
    Other(u64),
    /// The peer takes no more connections now (QUIC's CONNECTION_REFUSED).
    Refused,
    /// Both sides have no version of QUIC, or of this protocol, in common.
    IncompatibleVersion,
    /// One side does not trust the other's certificate, or TLS failed.
    Untrusted,
    /// Nothing was heard of the peer for as long as the configuration allows.
    TimedOut,
    /// The peer has forgotten the connection (a stateless reset, RFC 9000, section 10.3).
    Reset,
    /// QUIC failed in another way.
    Transport,
    /// The thread that carried the connection has ended.
    Ended,
}

impl CloseReason {
    /// All that have a code and a name, in the order of their codes; then all without a code.
    pub const ALL: [Self; 15] = [
        Self::Done,
        Self::ProtocolViolation,
        Self::WrongToken,
        Self::NoAnswer,
        Self::Busy,
        Self::Unsupported,
        Self::Failed,
        Self::Complete,
        Self::Refused,
        Self::IncompatibleVersion,
        Self::Untrusted,
        Self::TimedOut,
        Self::Reset,
        Self::Transport,
        Self::Ended,
    ];

    /// The application error code; `None` where this side found the reason by itself.
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
            Self::Other(code) => code,
            _ => return None,
        })
    }

    /// The reason that an application error code stands for.
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

    /// True where one of both programs closed the connection, and it was not lost.
    pub const fn is_orderly(self) -> bool {
        matches!(self, Self::Done | Self::Busy | Self::Unsupported | Self::Failed | Self::Complete)
    }

    /// True where the same attempt again has no better chance: the token, the certificate or the
    /// version is wrong, or the peer's program has ended it for good.
    pub const fn is_final(self) -> bool {
        self.is_misconfigured()
            || matches!(self, Self::Busy | Self::Unsupported | Self::Failed | Self::Complete)
    }

    /// True where the user has to change something: the token, the certificate or the version.
    pub const fn is_misconfigured(self) -> bool {
        matches!(self, Self::WrongToken | Self::Untrusted | Self::IncompatibleVersion)
    }
}

/// That a connection is over: why, for programs and for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Why.
    pub reason: CloseReason,
    /// The peer's own words; empty where it had none. At most 200 bytes.
    pub said: String,
    /// A sentence for people, in lower case.
    pub sentence: String,
}

impl Closed {
    /// What this side finds by itself.
    pub fn found(reason: CloseReason, sentence: impl Into<String>) -> Self {
        Self { reason, said: String::new(), sentence: sentence.into() }
    }

    /// What this side's program has closed.
    pub fn by_this_side() -> Self {
        Self::found(CloseReason::Done, "it was closed by this side")
    }

    /// What the peer closed with an application error code, and its words.
    pub(crate) fn by_peer(code: u64, said: &[u8]) -> Self {
        let (reason, said) = (CloseReason::of_code(code), String::from_utf8_lossy(said));
        let sentence = match reason {
            CloseReason::WrongToken => "the peer refused our token".to_owned(),
            reason if reason.is_orderly() => format!("the peer closed: {said}"),
            _ => format!("the peer gave up: {said}"),
        };
        Self { reason, said: said.into_owned(), sentence }
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
        assert_eq!(CloseReason::of_code(8), CloseReason::Other(8));
        assert_eq!(CloseReason::Other(8).code(), Some(8));
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
}
