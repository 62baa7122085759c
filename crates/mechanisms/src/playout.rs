//! Playout: how many units of a stream are late, for many start-up delays at once.
//!
//! Pert, ch. III: a unit sent at a constant rate is played at its sending time plus the
//! start-up delay and is late if it arrives after that; a stream succeeds if its late
//! fraction stays below 1e-4.

use ontempo_foundation::{Duration, Time};

/// Counts the late units of one stream for each of a list of start-up delays.
///
/// A unit due at `s` and arrived at `a` is late for every start-up delay below `a - s`. One
/// binary search finds the bin of the delays that it misses; results are sums of
/// bins. Exact at the listed delays, `O(log n)` per unit, no allocation after [`new`](Self::new).
#[derive(Clone, Debug)]
pub struct Playout {
    /// The start-up delays, ascending.
    delays: Box<[Duration]>,
    /// `late[j]`: units late for exactly the `j` smallest delays; one more entry than delays.
    late: Box<[u64]>,
    /// `open[j]`: units that never arrived and are known to be late for the `j` smallest
    /// delays only, the run having ended before the other deadlines. Also counted in `late`.
    open: Box<[u64]>,
    units: u64,
}

impl Playout {
    /// Counts for these start-up delays, which get sorted: index 0 is the smallest.
    pub fn new(delays: &[Duration]) -> Self {
        let mut delays: Box<[Duration]> = delays.into();
        delays.sort_unstable();
        let bins = delays.len() + 1;
        Self { delays, late: vec![0; bins].into(), open: vec![0; bins].into(), units: 0 }
    }

    /// A unit that was due to be sent at `due` arrived at `arrived`.
    pub fn on_unit(&mut self, due: Time, arrived: Time) {
        let missed = self.missed_after(arrived.since(due));
        self.late[missed] += 1;
        self.units += 1;
    }

    /// `count` units that were due to be sent at `due` had not arrived when the run ended at
    /// `end`: late for each delay whose deadline had passed by then, unknown for the others.
    pub fn on_missing(&mut self, count: u64, due: Time, end: Time) {
        let missed = self.missed_after(end.since(due));
        self.late[missed] += count;
        self.open[missed] += count;
        self.units += count;
    }

    /// The start-up delays, ascending.
    pub fn delays(&self) -> &[Duration] {
        &self.delays
    }

    /// Units counted, arrived or missing.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Units late for the start-up delay at `index` of [`delays`](Self::delays); zero beyond.
    pub fn late(&self, index: usize) -> u64 {
        self.late.iter().skip(index + 1).sum()
    }

    /// Units known to be late or in time for the start-up delay at `index`.
    pub fn judged(&self, index: usize) -> u64 {
        let unknown: u64 = self.open.iter().take(index + 1).sum();
        self.units - unknown
    }

    /// The fraction of these units that was late, 0 to 1; zero if there are none.
    pub fn late_fraction(&self, index: usize) -> f64 {
        match self.judged(index) {
            0 => 0.0,
            judged => self.late(index) as f64 / judged as f64,
        }
    }

    /// How many of the delays a unit misses that arrives `lateness` after its sending time.
    fn missed_after(&self, lateness: Duration) -> usize {
        self.delays.partition_point(|&delay| delay < lateness)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    #[test]
    fn a_unit_is_late_for_every_delay_shorter_than_its_lateness() {
        let mut playout = Playout::new(&[3, 1, 2].map(Duration::from_secs));
        playout.on_unit(at(10.0), at(10.5));
        playout.on_unit(at(11.0), at(12.5));
        playout.on_unit(at(12.0), at(20.0));
        assert_eq!(playout.delays(), [1, 2, 3].map(Duration::from_secs));
        assert_eq!([0, 1, 2].map(|i| playout.late(i)), [2, 1, 1]);
        assert_eq!(playout.units(), 3);
        assert_eq!(playout.late_fraction(0), 2.0 / 3.0);
    }

    #[test]
    fn arriving_on_the_deadline_is_in_time() {
        let mut playout = Playout::new(&[Duration::from_secs(1)]);
        playout.on_unit(at(1.0), at(2.0));
        assert_eq!(playout.late(0), 0);
        playout.on_unit(at(1.0), at(2.0) + Duration::from_nanos(1));
        assert_eq!(playout.late(0), 1);
    }

    #[test]
    fn arriving_before_the_sending_time_is_never_late() {
        let mut playout = Playout::new(&[Duration::ZERO]);
        playout.on_unit(at(2.0), at(1.0));
        assert_eq!(playout.late(0), 0);
    }

    #[test]
    fn a_unit_that_never_arrived_is_judged_only_where_its_deadline_passed() {
        let mut playout = Playout::new(&[1, 5].map(Duration::from_secs));
        playout.on_unit(at(0.0), at(0.5));
        playout.on_missing(2, at(7.0), at(10.0));
        assert_eq!([playout.late(0), playout.late(1)], [2, 0]);
        assert_eq!([playout.judged(0), playout.judged(1)], [3, 1]);
        assert_eq!(playout.late_fraction(0), 2.0 / 3.0);
        assert_eq!(playout.late_fraction(1), 0.0);
    }

    proptest! {
        #[test]
        fn the_bins_agree_with_counting_each_delay_by_itself(
            delays in proptest::collection::vec(0u64..50, 1..12),
            units in proptest::collection::vec((0u64..1000, 0u64..1060), 0..80),
        ) {
            let delays: Vec<_> = delays.into_iter().map(Duration::from_nanos).collect();
            let mut playout = Playout::new(&delays);
            let units: Vec<_> =
                units.into_iter().map(|(s, a)| (Time::from_nanos(s), Time::from_nanos(a))).collect();
            for &(due, arrived) in &units {
                playout.on_unit(due, arrived);
            }
            for (index, &delay) in playout.delays().iter().enumerate() {
                let late = units.iter().filter(|(due, arrived)| *arrived > *due + delay).count();
                prop_assert_eq!(playout.late(index), late as u64);
            }
        }
    }
}
