//! What a side does that hears nothing, or of which nothing is acknowledged.

use noq_proto::Transmit;
use ontempo_foundation::{Bytes, Duration, Rate, Time};

use super::{Connection, MAX_PROBES, Stage};

/// Silence begins so long after the expected times.
const SILENCE: Duration = Duration::from_millis(500);

/// The interval at which the stack's own probing is restarted in silence: its probes are of 1,200 bytes at most, for a
/// path whose MTU has shrunk, and it sends none while others leave more often.
const RESTART: Duration = Duration::from_secs(1);

/// Probes begin when nothing was acknowledged for three round trips, in which the stack probes twice (RFC 9002,
/// section 6.2.1), and so much longer.
const UNACKNOWLEDGED: Duration = Duration::from_millis(100);

/// Probes have one eighth of the rate that was acknowledged before, in the first second of an initial window in each
/// round trip, within the bounds below: flows of a path that became silent together offer it so much less than it
/// carried. The stack's own interval doubles with each probe; a burst of losses that lasts for a number of packets, not
/// for a time, then lasts for seconds.
const PROBE_SHARE: u64 = 8;

/// Bytes that a probe counts for: the longest packets of most paths.
const PROBE_SIZE: u64 = 1_500;

/// The least interval of probes.
const MIN_PROBE: Duration = Duration::from_millis(25);

/// The largest interval, but no less than a round trip: media goes on so soon after the path has come back. It is the
/// interval of all probes after [`QUICK`].
const MAX_PROBE: Duration = Duration::from_millis(250);

/// How long a path is probed by the rate that it carried.
const QUICK: Duration = Duration::from_secs(10);

/// What was acknowledged before a silence, over one second or more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried {
    /// Two times at which more was acknowledged than at the one before, with the bytes: the first is the begin.
    marks: [(Time, Bytes); 2],
}

impl Carried {
    const SPAN: Duration = Duration::from_secs(1);

    pub(super) fn starting(now: Time) -> Self {
        Self { marks: [(now, Bytes::ZERO); 2] }
    }

    /// Notes how many bytes were acknowledged by `last`, when the wait for the next acknowledgement began.
    pub(super) fn note(&mut self, last: Time, acknowledged: Bytes) {
        let (at, before) = self.marks[1];
        if acknowledged > before && last.since(at) >= Self::SPAN {
            self.marks = [self.marks[1], (last, acknowledged)];
        }
    }

    /// The rate until `until`, of so many bytes. `None` before the first second with acknowledgements.
    fn rate(&self, until: Time, acknowledged: Bytes) -> Option<Rate> {
        let [(from, before), (then, _)] = self.marks;
        (then > from).then(|| Rate::of(acknowledged - before, until.since(from)))
    }
}

impl Connection {
    /// When a client that receives nothing restarts the stack's probing, once a round trip at most. Everything sent is answered within a
    /// round trip: units soon, and something is sent at each clock comparison or keep-alive. A server
    /// that must validate the client's new address can only do so when it receives a packet.
    pub(super) fn silent_at(&self) -> Time {
        if self.stack.side().is_server() || self.stage != Stage::Open {
            return Time::NEVER;
        }
        if self.tried > self.heard {
            return self.tried + RESTART.max(self.round_trips(1));
        }
        let interval = self.config.clock_interval;
        let interval = self.config.keep_alive.map_or(interval, |alive| interval.min(alive));
        let expected = match self.asked {
            Some(asked) if asked > self.heard => asked,
            _ => self.heard + interval,
        };
        expected + self.round_trips(3) + SILENCE
    }

    /// Units were sent: the first after what was heard last begins a wait for an answer.
    pub(super) fn note_asked(&mut self, now: Time) {
        if self.asked.is_none_or(|asked| asked <= self.heard) {
            self.asked = Some(now);
        }
    }

    /// When a side of which nothing is acknowledged sends a probe, whether it receives or not. The stack leaves even
    /// acknowledgements unsent while the window is full.
    pub(super) fn unacknowledged_at(&self) -> Time {
        let Some(since) = self.account.waits_since().filter(|_| self.stage == Stage::Open) else {
            return Time::NEVER;
        };
        // The stack's own comes first.
        if self.owes_stack_probe && self.tried > since {
            return self.tried + RESTART;
        }
        if self.probed > since {
            return self.probed + self.probe_interval(since);
        }
        since + self.round_trips(3) + UNACKNOWLEDGED
    }

    /// From one probe to the next while nothing is acknowledged since `since`.
    fn probe_interval(&self, since: Time) -> Duration {
        let longest = MAX_PROBE.max(self.round_trips(1));
        if self.probed.since(since) >= QUICK {
            return longest;
        }
        let carried = self.carried.rate(since, self.account.read().delivered);
        // What any new connection may send (RFC 9002, section 7.2).
        let initial = Bytes::new(self.config.initial_window.get().saturating_mul(PROBE_SIZE));
        let rate = carried.unwrap_or_else(|| Rate::of(initial, self.round_trips(1)));
        rate.time_to_send(Bytes::new(PROBE_SIZE * PROBE_SHARE)).clamp(MIN_PROBE, longest)
    }

    /// Restarts the stack's probing, whose interval grows with time, or sends a probe beside it.
    pub(super) fn try_harder(&mut self, now: Time) {
        let is_silent = now >= self.silent_at();
        if !is_silent && now < self.unacknowledged_at() {
            return;
        }
        let since = self.account.waits_since().unwrap_or(now);
        let is_due = now >= self.tried.max(since) + RESTART && !self.owes_stack_probe;
        if is_silent || is_due {
            self.tried = now;
            self.owes_stack_probe = true;
            self.stack.handle_network_change(None, self.epoch.instant(now));
        } else {
            self.probed = now;
            self.owes_probe = true;
            self.owes_stack_probe = false;
            self.stack.ping();
        }
        self.urgent = true;
        self.probes = MAX_PROBES;
    }

    /// A packet beyond the window that is owed as a probe (RFC 9002, section 7.5).
    pub(super) fn probe(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        if !std::mem::take(&mut self.owes_probe) || self.stage != Stage::Open {
            return None;
        }
        self.beyond_window(now, out)
    }

    /// When a peer is given up that sends packets but answers nothing: a clock comparison is
    /// pending.
    pub(super) fn answerless_at(&self) -> Time {
        let interval = self.config.clock_interval;
        self.answered + self.config.idle_timeout.max(interval * 2) + interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn the_rate_before_a_silence_is_of_one_to_two_seconds() {
        let mut carried = Carried::starting(at(0));
        let acknowledged = |ms: u64| Bytes::new(ms * 100);
        for ms in (0..=900).step_by(10) {
            carried.note(at(ms), acknowledged(ms));
        }
        assert_eq!(carried.rate(at(900), acknowledged(900)), None);
        for ms in (910..=2_990).step_by(10) {
            carried.note(at(ms), acknowledged(ms));
        }
        // Nothing is acknowledged any more.
        for _ in 0..100 {
            carried.note(at(2_990), acknowledged(2_990));
        }
        let rate = carried.rate(at(2_990), acknowledged(2_990));
        assert_eq!(rate, Some(Rate::from_bits_per_sec(800_000)));
    }

    #[test]
    fn a_lone_acknowledgement_in_a_silence_does_not_make_the_rate_higher() {
        let mut carried = Carried::starting(at(0));
        for ms in (0..=2_000).step_by(10) {
            carried.note(at(ms), Bytes::new(ms * 100));
        }
        carried.note(at(4_000), Bytes::new(201_500));
        let rate = carried.rate(at(4_000), Bytes::new(201_500)).expect("more than a second");
        assert!(rate < Rate::from_bits_per_sec(400_000), "{rate:?}");
    }
}
