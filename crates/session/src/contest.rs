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

/// Between two looks no more time counts than this: what the holder sends while this host stands still is read only
/// after it.
const MAX_STEP: Duration = Duration::from_millis(75);

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
    looked: Time,
    asked: Option<Time>,
    /// Since the other sender has come, as far as it counts.
    waited: Duration,
    /// Since the holder's last packet, as far as it counts; not known before the first look.
    silence: Option<Duration>,
}

impl Contest {
    /// The other sender has come.
    pub fn new(now: Time) -> Self {
        Self { looked: now, asked: None, waited: Duration::ZERO, silence: None }
    }

    /// Looks at the holder.
    pub fn judge(&mut self, now: Time, holder: Holder) -> Verdict {
        let since_look = now.since(std::mem::replace(&mut self.looked, now));
        let step = since_look.min(MAX_STEP);
        self.waited += step;
        let silence = match self.silence {
            None => holder.silence,
            Some(_) if holder.silence < since_look => holder.silence.min(step),
            Some(before) => before + step,
        };
        self.silence = Some(silence);
        // As long as the holder makes it: it answers late at will.
        let round_trip = holder.round_trip.unwrap_or_default().min(MAX_SILENT);
        if silence + round_trip.max(LEFT_OVER) < self.waited {
            return Verdict::Stays;
        }
        let patience = |least: Duration| least.max((round_trip * 3).min(MAX_SILENT));
        if silence.min(holder.held) >= patience(SILENT) && self.waited >= patience(ANSWER) {
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
    fn time_in_which_this_host_stands_still_is_not_the_holders_silence() {
        let at = |ms: u64| Time::ZERO + MS(ms);
        // Looks at the contest at these times, each with the time of the holder's last packet that was read.
        let last = |looks: &[(u64, u64)]| {
            let mut contest = Contest::new(at(1_000));
            let judge = |&(now, heard): &(u64, u64)| {
                let (silence, held) = (MS(now - heard), MS(5_000));
                contest.judge(at(now), Holder { silence, held, round_trip: Some(MS(1)) })
            };
            looks.iter().map(judge).find(|verdict| !matches!(verdict, Verdict::Open { .. }))
        };
        // It is asked at once and answers, which is read half a second later, after the look.
        let asked = [(1_000, 400), (1_600, 400), (1_625, 1_601), (1_650, 1_630), (1_675, 1_630)];
        assert_eq!(last(&asked), Some(Verdict::Stays));
        // It is gone: looked at for 200 ms in all, of which the pause is 75.
        let gone = [1_000, 1_600, 1_625, 1_650, 1_675, 1_700, 1_725].map(|now| (now, 400));
        assert_eq!(last(&gone[..6]), None);
        assert_eq!(last(&gone), Some(Verdict::Follows));
        // The pause comes after its last packet was read: it counts as 75 ms of its silence.
        let silent = [(1_000, 990), (1_050, 990), (1_700, 1_060), (1_725, 1_060)];
        assert_eq!(last(&silent), None);
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
