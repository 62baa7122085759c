//! The proof that a sender knows the receiver's token.

use std::fmt;

use ontempo_udp::Cookie;
use ontempo_udp::secret::hash;

/// What sender and receiver both know, made from a text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token([u8; 16]);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// That of `text`.
    pub fn new(text: &str) -> Self {
        Self(hash(&[0; 16], &[text.as_bytes()]))
    }

    /// Proves that the token is known, for this cookie and session only.
    pub(super) fn proof(token: Option<Self>, cookie: &Cookie, session: u64) -> Cookie {
        token.map_or([0; 16], |token| hash(&token.0, &[cookie, &session.to_be_bytes()]))
    }
}
