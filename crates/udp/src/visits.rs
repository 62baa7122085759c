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

/// Visits so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Visits {
    last: Time,
    /// Until when the driver's thread leaves it to others; zero if it does not.
    until: Time,
    /// They do what is due, too.
    take_all: bool,
}

impl Visits {
    /// One begins at `now`; they are to follow each other within `patience`.
    pub(super) fn note(&mut self, now: Time, patience: Duration, takes: Takes) {
        let is_soon = now.since(self.last) <= patience;
        self.until = if is_soon { now + patience * 2 } else { Time::ZERO };
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
    fn others_read_from_the_second_visit_of_two_that_follow_each_other_in_time() {
        assert!(!visited(&[100], Takes::All).read(at(101)));
        assert!(!visited(&[100, 109], Takes::All).read(at(110)));
        let visits = visited(&[100, 108], Takes::All);
        assert!(visits.read(at(123)) && !visits.read(at(124)));
    }

    #[test]
    fn what_is_due_waits_for_one_who_takes_all() {
        let due = at(110);
        assert_eq!(visited(&[100, 105], Takes::Datagrams).wake(at(106), due), due);
        assert_eq!(visited(&[100, 105], Takes::All).wake(at(106), due), at(121));
        assert_eq!(visited(&[100, 105], Takes::All).wake(at(106), at(105)), at(105), "overdue");
    }

    #[test]
    fn the_thread_wakes_up_to_read_if_no_visit_follows() {
        assert_eq!(visited(&[100, 105], Takes::All).wake(at(106), Time::NEVER), at(121));
        assert_eq!(visited(&[100, 105], Takes::Datagrams).wake(at(106), Time::NEVER), at(121));
    }
}
