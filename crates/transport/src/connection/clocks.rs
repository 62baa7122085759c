//! Offset of the peer's clock, and its error bound.

use std::collections::VecDeque;

use ontempo_foundation::{Duration, Time};

use crate::wire::Sent;

/// Number of comparisons kept: the best of them is used, so that drift is followed.
const REMEMBERED: usize = 8;

/// A clock comparison.
#[derive(Clone, Copy, Debug)]
struct Comparison {
    /// Our clock minus the peer's, in nanoseconds.
    offset: i128,
    /// The round trip, without the peer's processing time.
    round_trip: Duration,
}

/// The clock offset by the comparison with the smallest round trip (RFC 5905, section 10): its
/// error is at most half of it, reached if all the delay is in one direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Clocks {
    comparisons: VecDeque<Comparison>,
    /// Of all, also those that are not kept.
    count: u64,
}

impl Clocks {
    /// Takes a comparison: sent and received by our clock, received and sent by the peer's.
    pub(super) fn on_answer(&mut self, asked: Time, came: Time, left: Time, heard: Time) {
        let nanos = |time: Time| i128::from(time.as_nanos());
        let sum = (nanos(asked) - nanos(came)) + (nanos(heard) - nanos(left));
        let round_trip = heard.since(asked) - left.since(came);
        if self.comparisons.len() == REMEMBERED {
            self.comparisons.pop_front();
        }
        self.comparisons.push_back(Comparison { offset: sum / 2, round_trip });
        self.count += 1;
    }

    /// Number of comparisons.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Median round trip of the comparisons kept, the upper one of two; `None` before the first.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        let mut all: Vec<Duration> = self.comparisons.iter().map(|one| one.round_trip).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied()
    }

    /// Converts a time of the peer's clock to ours; `None` before the first comparison.
    pub(super) fn ours(&self, theirs: Time) -> Option<Time> {
        let offset = self.best()?.offset;
        let nanos = i128::from(theirs.as_nanos()) + offset;
        Some(Time::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)))
    }

    /// The time of our clock at which a unit was sent that has arrived at `now`.
    pub(super) fn ours_of(&self, sent: Sent, now: Time) -> Option<Time> {
        let theirs = i128::from(now.as_nanos()) - self.best()?.offset;
        let theirs = Time::from_nanos(u64::try_from(theirs.max(0)).unwrap_or(u64::MAX));
        self.ours(sent.by(theirs))
    }

    /// Error bound of [`ours`](Self::ours).
    pub(super) fn uncertainty(&self) -> Option<Duration> {
        self.best().map(|best| best.round_trip / 2)
    }

    fn best(&self) -> Option<&Comparison> {
        self.comparisons.iter().min_by_key(|comparison| comparison.round_trip)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_offset_is_wrong_by_no_more_than_its_uncertainty(
            shift in 0u64..1_000_000_000,
            trips in proptest::collection::vec((0u64..50_000_000, 0u64..50_000_000, 0u64..9_000), 1..20),
        ) {
            let mut clocks = Clocks::default();
            let mut now = 5_000_000_000;
            for (there, back, thought) in trips {
                let [came, left] = [now + there, now + there + thought].map(|at| at + shift);
                let heard = now + there + thought + back;
                let [asked, came, left, heard] = [now, came, left, heard].map(Time::from_nanos);
                clocks.on_answer(asked, came, left, heard);
                now += 1_000_000_000;
            }
            let ours = clocks.ours(Time::from_nanos(now + shift)).unwrap();
            let wrong = ours.since(Time::from_nanos(now)).as_nanos()
                .max(Time::from_nanos(now).since(ours).as_nanos());
            prop_assert!(wrong <= clocks.uncertainty().unwrap().as_nanos() + 1);
        }
    }
}
