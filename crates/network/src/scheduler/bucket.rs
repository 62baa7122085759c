//! Policing: whether a packet conforms to its flow's reservation.

use std::fmt;

use ontempo_foundation::{Bytes, Rate, Time};

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// The traffic that a flow may send: the TSpec of integrated services (RFC 2215, section 3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficSpec {
    /// Token rate r: more than zero.
    pub rate: Rate,
    /// Bucket depth b: at least the largest packet.
    pub bucket: Bytes,
    /// Peak rate p, at least r; not policed if `None`.
    pub peak: Option<Rate>,
    /// Minimum policed unit m: a smaller packet counts as one of this size.
    pub smallest: Bytes,
    /// Maximum packet size M: a larger packet does not conform.
    pub largest: Bytes,
}

/// Why a [`TrafficSpec`] is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficSpecError {
    /// The token rate is zero.
    NoRate,
    /// The largest packet does not fit into the bucket.
    ShallowBucket,
    /// The peak rate is below the token rate.
    LowPeak,
    /// The minimum policed unit is larger than the maximum packet size.
    Sizes,
}

impl fmt::Display for TrafficSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRate => "the token rate is zero",
            Self::ShallowBucket => "the bucket does not hold the largest packet",
            Self::LowPeak => "the peak rate is below the token rate",
            Self::Sizes => "the smallest policed unit is larger than the largest packet",
        })
    }
}

impl std::error::Error for TrafficSpecError {}

/// A meter of one flow against its [`TrafficSpec`].
///
/// Over any span T the conforming bytes are at most `b + r T` and, with a peak rate,
/// `M + p T` (RFC 2212, section 7). A packet that does not conform takes no tokens. Exact:
/// tokens are counted in bits times nanoseconds.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    spec: TrafficSpec,
    tokens: Tokens,
    peak: Option<Tokens>,
    updated: Time,
}

/// A token bucket filled at a rate.
#[derive(Clone, Copy, Debug)]
struct Tokens {
    /// Bits per second, which are bits times nanoseconds per nanosecond and 10^9.
    rate: u128,
    most: u128,
    level: u128,
}

impl Tokens {
    fn full(rate: Rate, depth: Bytes) -> Self {
        let most = cost(depth);
        Self { rate: u128::from(rate.as_bits_per_sec()), most, level: most }
    }

    fn fill(&mut self, nanos: u64) {
        self.level = self.most.min(self.level + self.rate * u128::from(nanos));
    }
}

/// A size in bits times 10^9.
fn cost(size: Bytes) -> u128 {
    u128::from(size.get()) * 8 * NANOS_PER_SECOND
}

impl TokenBucket {
    /// A meter with a full bucket.
    ///
    /// # Errors
    /// If the specification is invalid.
    pub fn new(spec: TrafficSpec) -> Result<Self, TrafficSpecError> {
        if spec.rate.as_bits_per_sec() == 0 {
            return Err(TrafficSpecError::NoRate);
        }
        if spec.bucket < spec.largest {
            return Err(TrafficSpecError::ShallowBucket);
        }
        if spec.peak.is_some_and(|peak| peak < spec.rate) {
            return Err(TrafficSpecError::LowPeak);
        }
        if spec.smallest > spec.largest {
            return Err(TrafficSpecError::Sizes);
        }
        Ok(Self {
            spec,
            tokens: Tokens::full(spec.rate, spec.bucket),
            peak: spec.peak.map(|peak| Tokens::full(peak, spec.largest)),
            updated: Time::ZERO,
        })
    }

    /// A policer of one rate and one burst: the committed rate and burst size of RFC 2697 without an
    /// excess burst, so that packets either conform (green) or not (red). As in Linux
    /// (`tc ... police rate R burst B conform-exceed drop`), a packet larger than the burst never
    /// conforms.
    ///
    /// # Errors
    /// If the rate is zero.
    pub fn policer(rate: Rate, burst: Bytes) -> Result<Self, TrafficSpecError> {
        let smallest = Bytes::ZERO;
        Self::new(TrafficSpec { rate, bucket: burst, peak: None, smallest, largest: burst })
    }

    /// Whether a packet of this size conforms at `now`; if so, its tokens are taken.
    pub fn conforms(&mut self, now: Time, size: Bytes) -> bool {
        let nanos = now.since(self.updated).as_nanos();
        self.updated = self.updated.max(now);
        self.tokens.fill(nanos);
        if let Some(peak) = &mut self.peak {
            peak.fill(nanos);
        }
        if size > self.spec.largest {
            return false;
        }
        let cost = cost(size.max(self.spec.smallest));
        let allows = |tokens: &Tokens| tokens.level >= cost;
        if !allows(&self.tokens) || !self.peak.as_ref().is_none_or(allows) {
            return false;
        }
        self.tokens.level -= cost;
        if let Some(peak) = &mut self.peak {
            peak.level -= cost;
        }
        true
    }
}
