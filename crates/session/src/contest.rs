//! Whether a sender that comes while another holds the place of a stream gets it, without I/O: one rule for receivers
//! and relays.
//!
//! The holder is asked, by a report, which one that is there acknowledges. If it answers, it stays; if nothing has come
//! of it for half a second, the other follows. So who is heard keeps its place, whoever else has the token, and the
//! place changes at most twice a second, however many come.

use ontempo_foundation::{Duration, Time};

/// Silence after which another sender follows, but no less than three round trips.
const SILENT: Duration = Duration::from_millis(500);

/// The holder has at least this time to answer, and three round trips: one that has nothing to send is silent for a
/// second at a time.
const ANSWER: Duration = Duration::from_millis(200);

/// What had been sent before the other came, and waited on its way, is no answer: this comes later than that, and than
/// a round trip.
const LEFT_OVER: Duration = Duration::from_millis(100);

/// Interval at which the holder is asked.
const ASK: Duration = Duration::from_millis(50);

/// Maximum of what round trips add: about the time after which a connection without answer is lost.
const MAX_SILENT: Duration = Duration::from_secs(4);

/// How often a contest is to be looked at.
pub const CONTEST_STEP: Duration = Duration::from_millis(25);

/// The sender that holds the place, as it is seen now.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    /// Since its last packet.
    pub silence: Duration,
    /// Since it got the place.
    pub held: Duration,
    /// The last round trip known.
    pub round_trip: Option<Duration>,
}

/// What becomes of a contest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is not known yet. The holder is to be asked now if `ask`.
    Open {
        /// Whether it is time to ask.
        ask: bool,
    },
    /// The holder is there: the other is refused.
    Stays,
    /// The holder is gone: the other has its place.
    Follows,
}

/// A sender waits for the place of another.
#[derive(Clone, Copy, Debug)]
pub struct Contest {
    since: Time,
    asked: Option<Time>,
}

impl Contest {
    /// The other sender has come.
    pub fn new(now: Time) -> Self {
        Self { since: now, asked: None }
    }

    /// Looks at the holder.
    pub fn judge(&mut self, now: Time, holder: Holder) -> Verdict {
        let waited = now.since(self.since);
        // As long as the holder makes it: it answers late at will.
        let round_trip = holder.round_trip.unwrap_or_default().min(MAX_SILENT);
        if holder.silence + round_trip.max(LEFT_OVER) < waited {
            return Verdict::Stays;
        }
        let patience = |least: Duration| least.max((round_trip * 3).min(MAX_SILENT));
        let silence = holder.silence.min(holder.held);
        if silence >= patience(SILENT) && waited >= patience(ANSWER) {
            return Verdict::Follows;
        }
        let ask = self.asked.is_none_or(|asked| now.since(asked) >= ASK);
        if ask {
            self.asked = Some(now);
        }
        Verdict::Open { ask }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// The verdict on a holder of which packets come at these times, and when it falls; the other comes at 10 s.
    fn decided(held: Duration, heard: &[Duration], round_trip: Duration) -> (Verdict, Duration) {
        let at = |span: Duration| Time::ZERO + span;
        let came = MS(10_000);
        let mut contest = Contest::new(at(came));
        let mut now = came;
        loop {
            let last = heard.iter().filter(|heard| **heard <= now).max().expect("one before");
            let silence = at(now).since(at(*last));
            let held = at(now).since(at(held));
            let holder = Holder { silence, held, round_trip: Some(round_trip) };
            match contest.judge(at(now), holder) {
                Verdict::Open { .. } => now += CONTEST_STEP,
                verdict => return (verdict, at(now).since(at(came))),
            }
        }
    }

    #[test]
    fn who_is_heard_stays_and_who_is_silent_is_followed() {
        let (begun, quick) = (MS(0), MS(1));
        // Its packets go on.
        let all: Vec<Duration> = (0..2_000).map(|n| MS(n * 10)).collect();
        assert_eq!(decided(begun, &all, quick), (Verdict::Stays, MS(125)));
        // Killed as the other comes, a second before, and long before.
        assert_eq!(decided(begun, &[MS(9_990)], quick), (Verdict::Follows, MS(500)));
        assert_eq!(decided(begun, &[MS(9_000)], quick), (Verdict::Follows, MS(200)));
        // Three round trips if they are longer, but no more than 4 s.
        assert_eq!(decided(begun, &[MS(9_000)], MS(300)), (Verdict::Follows, MS(900)));
        assert_eq!(decided(begun, &[MS(10_000)], MS(60_000)), (Verdict::Follows, MS(4_000)));
        // One that answers late at will and goes on keeps the other waiting no longer either.
        let all: Vec<Duration> = (0..20_000).map(|n| MS(n * 10)).collect();
        assert_eq!(decided(begun, &all, MS(60_000)), (Verdict::Stays, MS(4_025)));
    }

    #[test]
    fn who_has_nothing_to_send_is_asked_and_stays() {
        let (begun, quick) = (MS(0), MS(20));
        assert_eq!(decided(begun, &[MS(9_100), MS(10_120)], quick), (Verdict::Stays, MS(125)));
        let answers: Vec<Duration> = (0..20).map(|n| MS(10_020 + n * 50)).collect();
        assert_eq!(decided(begun, &[&[MS(9_100)], &answers[..]].concat(), quick).0, Verdict::Stays);
    }

    #[test]
    fn what_was_on_its_way_when_the_other_came_is_no_answer() {
        assert_eq!(decided(MS(0), &[MS(9_990), MS(10_090)], MS(1)), (Verdict::Follows, MS(600)));
    }

    #[test]
    fn the_place_changes_at_most_twice_a_second() {
        // Nothing came of it while it waited itself.
        assert_eq!(decided(MS(9_990), &[MS(9_000)], MS(1)), (Verdict::Follows, MS(500)));
    }

    #[test]
    fn the_holder_is_asked_every_50_ms() {
        let at = |nanos: u64| Time::from_nanos(nanos);
        let mut contest = Contest::new(at(0));
        let (held, round_trip) = (MS(9_000), None);
        let asked = (0..250u64).filter(|ms| {
            let holder = Holder { silence: MS(ms + 200), held, round_trip };
            contest.judge(at(ms * 1_000_000), holder) == Verdict::Open { ask: true }
        });
        assert!(asked.eq([0, 50, 100, 150, 200]));
    }
}
