//! What few links have.

use ontempo_foundation::{Bytes, Duration, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A policer before the queue of a link: a bucket of tokens that fills at a rate. A packet for which
/// there are not enough tokens is dropped and takes none (RFC 2697 with one bucket;
/// `tc ... police`). Give `burst` or `burst-time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PolicerSpec {
    /// How fast the bucket fills: the rate that passes in the long run.
    pub rate: Rate,
    /// What the bucket holds, full at the start: the most that passes at once. A larger packet
    /// never passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<Bytes>,
    /// The same as the time in which `rate` fills the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_time: Option<Duration>,
}

impl PolicerSpec {
    /// What the bucket holds: `burst`, or what `rate` carries in `burst-time`.
    pub fn bucket(&self) -> Bytes {
        const BITS_TIMES_NANOS: u128 = 8 * 1_000_000_000;
        let filled = |time: Duration| {
            let bits = u128::from(self.rate.as_bits_per_sec()) * u128::from(time.as_nanos());
            Bytes::new(u64::try_from(bits / BITS_TIMES_NANOS).unwrap_or(u64::MAX))
        };
        self.burst.or_else(|| self.burst_time.map(filled)).unwrap_or_default()
    }
}
