//! Playout: how many units of a stream are late, for many start-up delays at once.
//!
//! Pert, ch. III: a unit sent at a constant rate is played at its sending time plus the
//! start-up delay and is late if it arrives after that; a stream succeeds if its late
//! fraction stays below 1e-4.

use ontempo_foundation::{Duration, Time};

/// Counts the late units of one stream for each of a list of start-up delays.
///
/// A unit due at `s` and arrived at `a` is late for every start-up delay below `a - s`. It is judged for
/// the delays whose deadline, `s` plus the delay, is no later than the end of the run, whether it arrived
/// or not: of later deadlines only those units would be known that are in time, and the late fraction
/// would be too small. Binary searches find the bins of the delays that it misses and for which it is
/// judged; results are sums of bins. Exact at the listed delays, `O(log n)` per unit, no allocation after
/// [`new`](Self::new).
#[derive(Clone, Debug)]
pub struct Playout {
    /// The start-up delays, ascending.
    delays: Box<[Duration]>,
    /// When the run ends.
    end: Time,
    /// `late[j]`: units late for exactly the `j` smallest delays; one more entry than delays.
    late: Box<[u64]>,
    /// `judged[j]`: units judged for exactly the `j` smallest delays.
    judged: Box<[u64]>,
}

impl Playout {
    /// Counts for these start-up delays, which get sorted: index 0 is the smallest. The run ends at `end`.
    pub fn new(delays: &[Duration], end: Time) -> Self {
        let mut delays: Box<[Duration]> = delays.into();
        delays.sort_unstable();
        let bins = delays.len() + 1;
        Self { delays, end, late: vec![0; bins].into(), judged: vec![0; bins].into() }
    }

    /// A unit that was due to be sent at `due` arrived at `arrived`.
    pub fn on_unit(&mut self, due: Time, arrived: Time) {
        let judged = self.judged_of(due);
        let lateness = arrived.since(due);
        let missed = self.delays.partition_point(|&delay| delay < lateness);
        self.late[missed.min(judged)] += 1;
        self.judged[judged] += 1;
    }

    /// `count` units that were due to be sent at `due` had not arrived when the run ended: late for each
    /// delay for which they are judged.
    pub fn on_missing(&mut self, count: u64, due: Time) {
        let judged = self.judged_of(due);
        self.late[judged] += count;
        self.judged[judged] += count;
    }

    /// The start-up delays, ascending.
    pub fn delays(&self) -> &[Duration] {
        &self.delays
    }

    /// Units late for the start-up delay at `index` of [`delays`](Self::delays); zero beyond.
    pub fn late(&self, index: usize) -> u64 {
        self.late.iter().skip(index + 1).sum()
    }

    /// Units whose deadline for the start-up delay at `index` came before the end; zero beyond.
    pub fn judged(&self, index: usize) -> u64 {
        self.judged.iter().skip(index + 1).sum()
    }

    /// The fraction of these units that was late, 0 to 1; zero if there are none.
    pub fn late_fraction(&self, index: usize) -> f64 {
        match self.judged(index) {
            0 => 0.0,
            judged => self.late(index) as f64 / judged as f64,
        }
    }

    /// For how many of the delays a unit due at `due` is judged.
    fn judged_of(&self, due: Time) -> usize {
        // Most units are due long before the end.
        match self.delays.last() {
            Some(&largest) if due + largest > self.end => {
                self.delays.partition_point(|&delay| due + delay <= self.end)
            }
            _ => self.delays.len(),
        }
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
        let mut playout = Playout::new(&[3, 1, 2].map(Duration::from_secs), at(30.0));
        playout.on_unit(at(10.0), at(10.5));
        playout.on_unit(at(11.0), at(12.5));
        playout.on_unit(at(12.0), at(20.0));
        assert_eq!(playout.delays(), [1, 2, 3].map(Duration::from_secs));
        assert_eq!([0, 1, 2].map(|i| playout.late(i)), [2, 1, 1]);
        assert_eq!(playout.judged(2), 3);
        assert_eq!(playout.late_fraction(0), 2.0 / 3.0);
    }

    #[test]
    fn arriving_on_the_deadline_is_in_time() {
        let mut playout = Playout::new(&[Duration::from_secs(1)], at(30.0));
        playout.on_unit(at(1.0), at(2.0));
        assert_eq!(playout.late(0), 0);
        playout.on_unit(at(1.0), at(2.0) + Duration::from_nanos(1));
        assert_eq!(playout.late(0), 1);
    }

    #[test]
    fn arriving_before_the_sending_time_is_never_late() {
        let mut playout = Playout::new(&[Duration::ZERO], at(30.0));
        playout.on_unit(at(2.0), at(1.0));
        assert_eq!(playout.late(0), 0);
    }

    #[test]
    fn a_unit_is_judged_where_its_deadline_comes_before_the_end_whether_it_arrived_or_not() {
        let mut playout = Playout::new(&[1, 5].map(Duration::from_secs), at(10.0));
        playout.on_unit(at(0.0), at(0.5));
        // In time for both deadlines, of which the second is after the end.
        playout.on_unit(at(7.0), at(7.5));
        // Late for the first; the second is after the end.
        playout.on_unit(at(8.0), at(9.5));
        playout.on_missing(2, at(7.0));
        playout.on_missing(1, at(9.5));
        assert_eq!([playout.judged(0), playout.judged(1)], [5, 1]);
        assert_eq!([playout.late(0), playout.late(1)], [3, 0]);
        assert_eq!(playout.late_fraction(0), 3.0 / 5.0);
        assert_eq!(playout.late_fraction(1), 0.0);
    }

    #[test]
    fn the_end_of_the_run_does_not_change_the_late_fraction() {
        let mut playout = Playout::new(&[1, 5, 9].map(Duration::from_secs), at(10.0));
        for number in 0_u32..1_000 {
            let due = at(f64::from(number) / 100.0);
            match number % 10 {
                0 => playout.on_missing(1, due),
                _ => playout.on_unit(due, due + Duration::from_millis(30)),
            }
        }
        for (index, judged) in [901, 501, 101].into_iter().enumerate() {
            assert_eq!(playout.judged(index), judged);
            assert_eq!(playout.late(index), judged / 10 + 1);
        }
    }

    proptest! {
        #[test]
        fn the_bins_agree_with_counting_each_delay_by_itself(
            delays in proptest::collection::vec(0u64..50, 1..12),
            units in proptest::collection::vec((0u64..1000, 0u64..1060), 0..80),
            end in 0u64..1100,
        ) {
            let delays: Vec<_> = delays.into_iter().map(Duration::from_nanos).collect();
            let end = Time::from_nanos(end);
            let mut playout = Playout::new(&delays, end);
            let units: Vec<_> =
                units.into_iter().map(|(s, a)| (Time::from_nanos(s), Time::from_nanos(a))).collect();
            for &(due, arrived) in &units {
                if arrived <= end {
                    playout.on_unit(due, arrived);
                } else {
                    playout.on_missing(1, due);
                }
            }
            for (index, &delay) in playout.delays().iter().enumerate() {
                let judged: Vec<_> = units.iter().filter(|(due, _)| *due + delay <= end).collect();
                let late = judged.iter().filter(|(due, arrived)| *arrived > *due + delay).count();
                prop_assert_eq!(playout.judged(index), judged.len() as u64);
                prop_assert_eq!(playout.late(index), late as u64);
            }
        }
    }
}
