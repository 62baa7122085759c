//! What strangers cannot guess: cookies and session numbers.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr};

use ontempo_foundation::{Duration, Time};
use siphasher::sip128::{Hasher128, SipHasher24};

/// Sixteen bytes that only who has seen them can send.
pub type Cookie = [u8; 16];

/// A cookie is good for one to two of these.
const COOKIE_LIFE: Duration = Duration::from_secs(10);

/// 64 bits that nobody can foresee, from the system by way of the standard library.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Makes cookies and knows them again, without keeping any.
#[derive(Clone, Copy)]
pub struct CookieJar {
    secret: [u8; 16],
}

impl fmt::Debug for CookieJar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieJar(..)")
    }
}

impl CookieJar {
    /// One that knows the cookies of `secret`, which nobody else may know.
    pub const fn new(secret: u128) -> Self {
        Self { secret: secret.to_be_bytes() }
    }

    /// The cookie of `peer`'s address and port and of `session`, for the next 10 to 20 s.
    pub fn bake(&self, now: Time, peer: SocketAddr, session: u64) -> Cookie {
        self.of_period(period(now), peer, session)
    }

    /// Whether `cookie` was baked for `peer` and `session` in the last 10 to 20 s.
    pub fn knows(&self, now: Time, peer: SocketAddr, session: u64, cookie: &Cookie) -> bool {
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
pub fn hash(key: &[u8; 16], parts: &[&[u8]]) -> Cookie {
    let mut hasher = SipHasher24::new_with_key(key);
    for part in parts {
        hasher.write(part);
    }
    hasher.finish128().as_bytes()
}

/// Takes as long wherever the two differ.
pub fn equal(one: &Cookie, other: &Cookie) -> bool {
    one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}
