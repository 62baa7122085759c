//! Offset of the peer's clock.

use ontempo_foundation::{Duration, Time};

/// Maximum drift between two clocks: 50 ppm, the tolerance of common crystals.
const DRIFT: u64 = 20_000;

/// A measured offset: its error is at most half of the round trip of the measurement (RFC 5905,
/// section 8), plus the drift since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// The peer's clock minus ours, ns.
    pub(super) offset: i64,
    error: Duration,
    at: Time,
}

impl Sample {
    /// From the four times of an exchange: sent here, received there, sent there, received here.
    /// `None` if they are impossible.
    pub(super) fn of_exchange(sent: u64, arrived: u64, back: u64, now: Time) -> Option<Self> {
        let [sent, arrived, back, here] = [sent, arrived, back, now.as_nanos()].map(i128::from);
        let round_trip = u64::try_from((here - sent) - (back - arrived)).ok()?;
        let offset = i64::try_from(((arrived - sent) + (back - here)) / 2).ok()?;
        Some(Self { offset, error: Duration::from_nanos(round_trip / 2), at: now })
    }

    /// As if the first message had a delay of zero: valid for changes of delay only.
    pub(super) fn assumed(sent: u64, now: Time) -> Self {
        let offset = sent.wrapping_sub(now.as_nanos()).cast_signed();
        Self { offset, error: Duration::from_nanos(u64::MAX), at: now }
    }

    /// From the peer's measurement: its clock is ours minus `offset`.
    pub(super) fn of_peer(offset: i64, error: u64, now: Time) -> Option<Self> {
        Some(Self { offset: offset.checked_neg()?, error: Duration::from_nanos(error), at: now })
    }

    /// The error bound at `now`.
    pub(super) fn error(&self, now: Time) -> Duration {
        self.error.saturating_add(Duration::from_nanos(now.since(self.at).as_nanos() / DRIFT))
    }

    /// A time of the peer's clock by ours; our zero if it was earlier.
    pub(super) fn here(&self, there: u64) -> Time {
        let here = i128::from(there) - i128::from(self.offset);
        Time::from_nanos(u64::try_from(here.max(0)).unwrap_or(u64::MAX))
    }

    /// The one with the smaller error.
    pub(super) fn better(self, other: Option<Self>, now: Time) -> Self {
        other.filter(|other| other.error(now) <= self.error(now)).unwrap_or(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_difference_is_never_further_off_than_told(
            offset in -1_000_000_000i64..1_000_000_000, there in 0u64..1_000_000,
            held in 0u64..1_000_000_000, back in 0u64..1_000_000, sent in 2_000_000_000u64..3_000_000_000,
        ) {
            let arrived = (sent + there).checked_add_signed(offset).unwrap();
            let now = Time::from_nanos(sent + there + held + back);
            let sample = Sample::of_exchange(sent, arrived, arrived + held, now).unwrap();
            prop_assert!(sample.offset.abs_diff(offset) <= sample.error(now).as_nanos() + 1);
        }
    }

    #[test]
    fn an_old_sample_gives_way_to_one_that_is_surer_by_now() {
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let old = Sample { offset: 5, error: Duration::from_micros(100), at: at(0) };
        let new = Sample { offset: 7, error: Duration::from_micros(200), at: at(10) };
        assert_eq!(new.better(Some(old), at(1)).offset, 5);
        assert_eq!(new.better(Some(old), at(10)).offset, 7);
    }

    #[test]
    fn times_that_cannot_be_are_no_sample() {
        let now = Time::from_nanos(1_000);
        assert_eq!(Sample::of_exchange(2_000, 0, 0, now), None);
        assert_eq!(Sample::of_exchange(0, 0, u64::MAX, now), None);
        assert_eq!(Sample::of_peer(i64::MIN, 0, now), None);
    }
}
