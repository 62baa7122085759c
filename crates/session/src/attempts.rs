//! When a sender tries to connect, at first and after its connection is lost, without I/O.
//!
//! An attempt costs two round trips where the path works (one, where units are sent before the Welcome), and
//! otherwise nothing comes back, or late: each loss of a handshake costs a timeout. How long to wait for an
//! answer is not known: the path may be another one now. So an attempt is begun every 250 ms, and given up
//! after a second, beside one that is given the whole time limit of a handshake. The first that is answered
//! carries the stream. Of a packet each, and one to end it, these are some ten packets a second.

use ontempo_foundation::{Duration, Time};

/// From one attempt to the next, but no less than the last round trip known.
const INTERVAL: Duration = Duration::from_millis(250);

/// Attempts of limited patience at a time.
const HASTY: u64 = 4;

/// Connections of an endpoint that makes attempts: those under way, and those that are ending.
pub(crate) const PLACES: usize = 64;

/// An attempt that is under way.
struct Attempt<T> {
    connection: T,
    /// When it is given up; [`Time::NEVER`]: when its handshake's time limit is over.
    ends: Time,
}

/// Attempts to connect.
pub(crate) struct Attempts<T> {
    interval: Duration,
    next: Time,
    under_way: Vec<Attempt<T>>,
}

impl<T> Attempts<T> {
    /// The first is due at `now`; `round_trip` is the last one known.
    pub(crate) fn new(now: Time, round_trip: Option<Duration>) -> Self {
        let interval = INTERVAL.max(round_trip.unwrap_or_default());
        Self { interval, next: now, under_way: Vec::new() }
    }

    /// When something is to be done.
    pub(crate) fn next_timeout(&self) -> Time {
        self.under_way.iter().map(|attempt| attempt.ends).fold(self.next, Time::min)
    }

    /// True if an attempt is to be begun.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        now >= self.next
    }

    /// An attempt was begun, or could not be.
    pub(crate) fn begun(&mut self, now: Time, connection: Option<T>) {
        self.next = now + self.interval;
        let is_patient = self.under_way.iter().all(|attempt| attempt.ends != Time::NEVER);
        let ends = if is_patient { Time::NEVER } else { now + self.interval * HASTY };
        self.under_way.extend(connection.map(|connection| Attempt { connection, ends }));
    }

    /// Those that are given up at `now`.
    pub(crate) fn given_up(&mut self, now: Time) -> Vec<T> {
        let over = self.under_way.extract_if(.., |attempt| attempt.ends <= now);
        over.map(|attempt| attempt.connection).collect()
    }

    /// Those under way.
    #[cfg(test)]
    pub(crate) fn under_way(&self) -> impl Iterator<Item = &T> {
        self.under_way.iter().map(|attempt| &attempt.connection)
    }

    /// The first of which something is true, which is one of them no more.
    pub(crate) fn take(&mut self, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let place = self.under_way.iter().position(|attempt| is_it(&attempt.connection))?;
        Some(self.under_way.remove(place).connection)
    }

    /// All of them.
    pub(crate) fn into_all(self) -> impl Iterator<Item = T> {
        self.under_way.into_iter().map(|attempt| attempt.connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_bounded_and_one_of_them_is_patient() {
        for round_trip in [None, Some(Duration::from_millis(600))] {
            let begin = Time::from_nanos(5_000_000_000);
            let mut attempts = Attempts::new(begin, round_trip);
            let (mut now, mut begun, mut most) = (begin, 0u64, 0);
            while now < begin + Duration::from_secs(30) {
                let _ = attempts.given_up(now);
                if attempts.is_due(now) {
                    attempts.begun(now, Some(begun));
                    begun += 1;
                }
                most = most.max(attempts.under_way().count());
                now = attempts.next_timeout();
            }
            let interval = INTERVAL.max(round_trip.unwrap_or_default());
            assert_eq!(begun, 30_000_000_000u64.div_ceil(interval.as_nanos()));
            assert_eq!(most, 5);
            assert!(attempts.under_way().any(|first| *first == 0), "the first is patient");
        }
    }
}
