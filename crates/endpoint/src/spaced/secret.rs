//! What strangers cannot guess: cookies, proofs, session numbers.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr};

use ontempo_foundation::{Duration, Time};
use siphasher::sip128::{Hasher128, SipHasher24};

use super::wire::Cookie;

/// A cookie is good for one to two of these.
const COOKIE_LIFE: Duration = Duration::from_secs(10);

/// 64 bits that nobody can foresee, from the system by way of the standard library.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

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

/// Makes cookies and knows them again, without keeping any.
#[derive(Clone, Copy)]
pub(crate) struct CookieJar {
    secret: [u8; 16],
}

impl fmt::Debug for CookieJar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieJar(..)")
    }
}

impl CookieJar {
    pub(crate) const fn new(secret: u128) -> Self {
        Self { secret: secret.to_be_bytes() }
    }

    pub(crate) fn bake(&self, now: Time, peer: SocketAddr, session: u64) -> Cookie {
        self.of_period(period(now), peer, session)
    }

    pub(crate) fn knows(&self, now: Time, peer: SocketAddr, session: u64, cookie: &Cookie) -> bool {
        let this = period(now);
        [Some(this), this.checked_sub(1)]
            .into_iter()
            .flatten()
            .any(|period| equal(&self.of_period(period, peer, session), cookie))
    }

    fn of_period(&self, period: u64, peer: SocketAddr, session: u64) -> Cookie {
        let address = match peer.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        hash(
            &self.secret,
            &[
                &period.to_be_bytes(),
                &address.octets(),
                &peer.port().to_be_bytes(),
                &session.to_be_bytes(),
            ],
        )
    }
}

fn period(now: Time) -> u64 {
    now.as_nanos() / COOKIE_LIFE.as_nanos()
}

/// SipHash-2-4 of 128 bits: both ends compute it, so that it must not be the standard library's,
/// which may change.
fn hash(key: &[u8; 16], parts: &[&[u8]]) -> Cookie {
    let mut hasher = SipHasher24::new_with_key(key);
    for part in parts {
        hasher.write(part);
    }
    hasher.finish128().as_bytes()
}

/// Takes as long wherever the two differ.
pub(super) fn equal(one: &Cookie, other: &Cookie) -> bool {
    one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}
