//! What few links have.

use ontempo_foundation::{Bytes, Duration, Packets, Rate};
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

/// A link that sends in aggregates, as Wi-Fi (A-MPDU) does, or in grants as DOCSIS and LTE do. After
/// each aggregate, and for the first packet of an idle link, the transmitter waits: until the next
/// multiple of `every`, then for `access` and a random part of `contention`. Then all that waits
/// leaves back to back at the link's rate, up to `packets` or `bytes`. Give at least one of the
/// three times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AggregationSpec {
    /// Opportunities come at multiples of this time since the start of the run; at any time where
    /// not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Duration>,
    /// What each aggregate waits beyond that: interframe spaces, preamble, acknowledgement.
    #[serde(default)]
    pub access: Duration,
    /// The longest random wait of an aggregate, drawn uniformly: a contention window.
    #[serde(default)]
    pub contention: Duration,
    /// An aggregate of so many packets is full; no limit where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<Packets>,
    /// An aggregate of so many bytes or more is full; no limit where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
}
