//! Proof that a sender has the receiver's token.

use std::fmt;

use ontempo_udp::Cookie;
use ontempo_udp::secret::hash;

/// A secret shared by sender and receiver, derived from a text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token([u8; 16]);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// The token of `text`.
    pub fn new(text: &str) -> Self {
        Self(hash(&[0; 16], &[text.as_bytes()]))
    }

    /// Keyed hash of this cookie and session; it proves possession of the token.
    pub(super) fn proof(token: Option<Self>, cookie: &Cookie, session: u64) -> Cookie {
        token.map_or([0; 16], |token| hash(&token.0, &[cookie, &session.to_be_bytes()]))
    }
}
