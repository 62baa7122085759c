//! The rest that a thread owes which goes before all ordinary ones.
//!
//! Where such a thread leaves a core less than a twentieth of the time, the kernel takes it for
//! the ordinary ones, 50 ms in one piece each second (the fair server of Linux 6.12, the throttle
//! before it), in which no packet leaves. So the thread leaves a little more of its own accord, in
//! pieces that hardly delay a packet.

use ontempo_foundation::{Duration, Time};

/// For so much time awake, one part is rest: more than a twentieth, with something to spare.
const SHARE: u64 = 8;

/// What going to sleep and waking take of a sleep: time that is nobody's.
const WAKING: Duration = Duration::from_micros(10);

/// What is owed before a wait is slept through, though looking at the clock would end it better.
const SLEEP_FROM: Duration = Duration::from_micros(50);

/// What is owed before rest is taken though packets are due.
const REST_FROM: Duration = Duration::from_micros(150);

/// What a thread owes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest {
    owed: Duration,
    counted: Time,
}

impl Rest {
    /// Counts until `now`, of which the last `slept` were slept.
    pub(crate) fn count(&mut self, now: Time, slept: Duration) {
        let passed = now.since(self.counted).saturating_sub(slept);
        self.owed = (self.owed + passed / SHARE).saturating_sub(slept.saturating_sub(WAKING));
        self.counted = now;
    }

    /// Whether the next wait should be slept through.
    pub(crate) fn is_owed(&self) -> bool {
        self.owed >= SLEEP_FROM
    }

    /// How long to rest at once, whatever is due.
    pub(crate) fn is_overdue(&self) -> Option<Duration> {
        (self.owed >= REST_FROM).then_some(self.owed + WAKING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_never_sleeps_rests_a_ninth_of_the_time_in_short_pieces() {
        let mut rest = Rest::default();
        let (mut now, mut rested) = (Time::ZERO, Duration::ZERO);
        while now < Time::from_secs_f64(1.0) {
            now += Duration::from_micros(10);
            rest.count(now, Duration::ZERO);
            if let Some(pause) = rest.is_overdue() {
                assert!(pause < Duration::from_micros(175));
                now += pause;
                rested += pause;
                rest.count(now, pause);
            }
        }
        let share = rested.as_secs_f64();
        assert!((0.105..0.13).contains(&share), "{share}");
    }

    #[test]
    fn who_sleeps_enough_owes_nothing() {
        let mut rest = Rest::default();
        for tenth in 1..100 {
            rest.count(Time::ZERO + Duration::from_millis(tenth), Duration::from_micros(200));
            assert!(!rest.is_owed());
        }
    }
}
