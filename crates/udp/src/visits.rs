//! Other threads that run a driver's protocol again and again, and read for it.

use ontempo_foundation::{Duration, Time};

/// What a driver's thread leaves to one that [visits](super::Driver::visit) its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Reading what has arrived.
    Datagrams,
    /// That, and what is due, packets that are paced among it: both may be late.
    All,
}

/// Visits that follow each other within this part of what they may be apart are one.
const SAME: u64 = 8;

/// Visits so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Visits {
    last: Time,
    /// Between the last two; `None` if it was too long.
    gap: Option<Duration>,
    /// Until when the driver's thread leaves it to others; zero if it does not.
    until: Time,
    /// They do what is due, too.
    take_all: bool,
}

impl Visits {
    /// One begins at `now`; they are to follow each other within `patience`.
    pub(super) fn note(&mut self, now: Time, patience: Duration, takes: Takes) {
        let gap = now.since(self.last);
        if gap < patience / SAME {
            return;
        }
        let before = self.gap;
        self.gap = Some(gap).filter(|gap| *gap <= patience);
        // A stream in bursts has none that are followed by others for long: they are expected as soon as they came.
        let longest = self.gap.zip(before).map(|(gap, before)| gap.max(before));
        let until = longest.map(|gap| now + (gap * 3).min(patience * 2));
        self.until = until.map_or(Time::ZERO, |until| until.max(self.until));
        self.take_all = takes == Takes::All;
        self.last = now;
    }

    /// Whether another thread reads what arrives.
    pub(super) fn read(&self, now: Time) -> bool {
        self.until > now
    }

    /// When the driver's thread wakes up that would do so at `due`, while [another reads](Self::read).
    pub(super) fn wake(&self, now: Time, due: Time) -> Time {
        if self.take_all && due > now { self.until } else { due.min(self.until) }
    }

    /// The driver's thread has to read again.
    pub(super) fn end(&mut self) {
        self.until = Time::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(8);

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn visited(times: &[u64], takes: Takes) -> Visits {
        let mut visits = Visits::default();
        times.iter().for_each(|&time| visits.note(at(time), PATIENCE, takes));
        visits
    }

    #[test]
    fn others_read_from_the_third_visit_of_three_that_follow_each_other_in_time() {
        assert!(!visited(&[100, 105], Takes::All).read(at(106)));
        assert!(!visited(&[100, 109, 115], Takes::All).read(at(116)));
        let visits = visited(&[100, 105, 110], Takes::All);
        assert!(visits.read(at(124)) && !visits.read(at(125)));
    }

    #[test]
    fn visits_of_a_burst_are_one_or_soon_expected_again() {
        let visits = visited(&[100, 100, 100, 100], Takes::All);
        assert!(!visits.read(at(101)));
        let visits = visited(&[100, 101, 102, 103], Takes::All);
        assert!(visits.read(at(105)) && !visits.read(at(106)));
        let visits = visited(&[100, 101, 102, 103, 140], Takes::All);
        assert!(!visits.read(at(141)));
    }

    #[test]
    fn what_is_due_waits_for_one_who_takes_all() {
        let (visits, due) = ([95, 100, 105], at(110));
        assert_eq!(visited(&visits, Takes::Datagrams).wake(at(106), due), due);
        assert_eq!(visited(&visits, Takes::All).wake(at(106), due), at(120));
        assert_eq!(visited(&visits, Takes::All).wake(at(106), at(105)), at(105), "overdue");
    }

    #[test]
    fn the_thread_wakes_up_to_read_if_no_visit_follows() {
        for takes in [Takes::All, Takes::Datagrams] {
            assert_eq!(visited(&[95, 100, 105], takes).wake(at(106), Time::NEVER), at(120));
            let slow = visited(&[89, 97, 105], takes);
            assert_eq!(slow.wake(at(106), Time::NEVER), at(121), "twice the patience");
        }
    }
}
