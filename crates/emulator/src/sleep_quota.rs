//! The sleep that a real-time thread must take.
//!
//! If a `SCHED_FIFO` thread leaves a core idle less than 5 % of the time, the kernel takes the core
//! away for 50 ms once a second (the fair server of Linux 6.12, RT throttling before it), during
//! which no packet is forwarded. The thread therefore sleeps slightly more than that by itself, in
//! pieces so short that they hardly delay a packet.

use ontempo_foundation::{Duration, Time};

/// One part of sleep for so many parts awake: more than 5 %, with a margin.
const SHARE: u64 = 8;

/// The part of a sleep that falling asleep and waking take; the kernel does not count it as idle.
const WAKING: Duration = Duration::from_micros(10);

/// Sleep owed from which a wait is slept to its end, although polling would end it more exactly.
const SLEEP_FROM: Duration = Duration::from_micros(50);

/// Sleep owed from which the thread sleeps although packets are due.
const REST_FROM: Duration = Duration::from_micros(150);

/// The sleep that the thread owes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SleepQuota {
    owed: Duration,
    counted: Time,
}

impl SleepQuota {
    /// Counts the time until `now`, of which the last `slept` were sleep.
    pub(crate) fn count(&mut self, now: Time, slept: Duration) {
        let passed = now.since(self.counted).saturating_sub(slept);
        self.owed = (self.owed + passed / SHARE).saturating_sub(slept.saturating_sub(WAKING));
        self.counted = now;
    }

    /// Whether the next wait should be slept to its end.
    pub(crate) fn is_owed(&self) -> bool {
        self.owed >= SLEEP_FROM
    }

    /// How long to sleep immediately, whatever is due; `None` if not yet.
    pub(crate) fn is_overdue(&self) -> Option<Duration> {
        (self.owed >= REST_FROM).then_some(self.owed + WAKING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_never_sleeps_sleeps_a_ninth_of_the_time_in_short_pieces() {
        let mut rest = SleepQuota::default();
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
    fn a_thread_that_sleeps_enough_owes_nothing() {
        let mut rest = SleepQuota::default();
        for tenth in 1..100 {
            rest.count(Time::ZERO + Duration::from_millis(tenth), Duration::from_micros(200));
            assert!(!rest.is_owed());
        }
    }
}
