//! Unpredictable values: cookies and session numbers.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr};

use ontempo_foundation::{Duration, Time};
use siphasher::sip128::{Hasher128, SipHasher24};

/// Sixteen bytes that only their receiver can return.
pub type Cookie = [u8; 16];

/// A cookie is valid for one to two of these.
const COOKIE_LIFE: Duration = Duration::from_secs(10);

/// 64 unpredictable bits, from the system by way of the standard library.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Creates and verifies cookies without storing them.
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
    /// A jar with the key `secret`, which must be unpredictable.
    pub const fn new(secret: u128) -> Self {
        Self { secret: secret.to_be_bytes() }
    }

    /// The cookie of `peer`'s address and port and of `session`, for the next 10 to 20 s.
    pub fn bake(&self, now: Time, peer: SocketAddr, session: u64) -> Cookie {
        self.of_period(period(now), peer, session)
    }

    /// Whether `cookie` was created for `peer` and `session` in the last 10 to 20 s.
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

/// Compares in constant time.
pub fn equal(one: &Cookie, other: &Cookie) -> bool {
    let differs = one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b));
    // Otherwise the compiler may stop at the first difference.
    std::hint::black_box(differs) == 0
}
