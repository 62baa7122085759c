//! What the path does to packets, as it is set on the page.

use ontempo_impair::{ImpairError, Path};
use ontempo_scenario::parse;
use serde::{Deserialize, Serialize};

/// Bounds of the fields. More loss and no connection comes about; less rate, and a picture takes minutes.
const MAX_LOSS: f64 = 30.0;
const MAX_ROUND_TRIP: u32 = 2_000;
const RATES: std::ops::RangeInclusive<u32> = 100..=100_000;

/// Headers of IPv4 and UDP.
const HEADER_BYTES: u64 = 28;

/// Bytes on the path at most.
const MAX_HELD_BYTES: u64 = 16 << 20;

/// Loss, delay and rate of a path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Impairment {
    /// Packets lost on the way to the receiver, each by itself, percent: 0 to 30.
    pub loss_percent: f64,
    /// Round trip without queueing, milliseconds: 0 to 2,000; half of it each way.
    pub round_trip_ms: u32,
    /// Rate of both ways, kbit/s: 100 to 100,000.
    pub rate_kbps: u32,
}

impl Default for Impairment {
    /// 5 % and 100 ms at 5 Mbit/s.
    fn default() -> Self {
        Self { loss_percent: 5.0, round_trip_ms: 100, rate_kbps: 5_000 }
    }
}

impl Impairment {
    /// Itself, if its fields are within their bounds.
    ///
    /// # Errors
    /// A sentence that names the field.
    pub fn check(self) -> Result<Self, String> {
        // No number is none of these.
        if !(0.0..=MAX_LOSS).contains(&self.loss_percent) {
            return Err(format!("loss_percent {}: it is 0 to {MAX_LOSS}", self.loss_percent));
        }
        if self.round_trip_ms > MAX_ROUND_TRIP {
            let most = MAX_ROUND_TRIP;
            return Err(format!("round_trip_ms {}: it is 0 to {most}", self.round_trip_ms));
        }
        if !RATES.contains(&self.rate_kbps) {
            let (least, most) = RATES.into_inner();
            return Err(format!("rate_kbps {}: it is {least} to {most}", self.rate_kbps));
        }
        Ok(self)
    }

    /// The path that does it. Two of one seed lose the same packets, counted from the first.
    pub(crate) fn path(self, seed: u64) -> Result<Path, ImpairError> {
        let Self { loss_percent, round_trip_ms, rate_kbps } = self;
        let (loss, delay) = (loss_percent / 100.0, f64::from(round_trip_ms) / 2.0);
        let text = format!(
            r#"
duration = "1 s"
[topology]
kind = "dumbbell"
bottleneck = {{ rate = "{rate_kbps} kbit/s", delay = "{delay} ms", loss = {{ kind = "bernoulli", rate = {loss:?} }} }}
reverse = {{ rate = "{rate_kbps} kbit/s", delay = "{delay} ms" }}
access = {{ rate = "1 Gbit/s", delay = "0 s" }}
[flows.line]
application = {{ kind = "cbr", rate = "1 Mbit/s" }}
transport = {{ kind = "udp" }}
"#
        );
        let scenario = parse(&text, "the path").map_err(ImpairError::from)?;
        Path::of(&scenario, None, seed, HEADER_BYTES, MAX_HELD_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_page_may_set_is_a_path_and_what_is_beyond_is_refused_by_name() {
        for loss_percent in [0.0, 0.1, 5.0, MAX_LOSS] {
            for round_trip_ms in [0, 1, 75, MAX_ROUND_TRIP] {
                for rate_kbps in [100, 5_000, 100_000] {
                    let some = Impairment { loss_percent, round_trip_ms, rate_kbps };
                    let path = some.check().map(|some| some.path(1));
                    assert!(matches!(path, Ok(Ok(_))), "{some:?}: {path:?}");
                }
            }
        }
        let good = Impairment::default();
        for loss_percent in [-0.1, 30.1, f64::NAN, f64::INFINITY] {
            let refused = Impairment { loss_percent, ..good }.check().expect_err("too much");
            assert!(refused.contains("loss_percent"), "{refused}");
        }
        let refused = Impairment { round_trip_ms: 2_001, ..good }.check().expect_err("too long");
        assert!(refused.contains("round_trip_ms"), "{refused}");
        let refused = Impairment { rate_kbps: 99, ..good }.check().expect_err("too slow");
        assert!(refused.contains("rate_kbps"), "{refused}");
    }
}
