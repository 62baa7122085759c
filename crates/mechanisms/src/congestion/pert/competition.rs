//! Whether loss-based flows keep the queue full in spite of early responses (ours, not the thesis').
//!
//! Where all flows respond early, certain responses empty a queue within a few round trips. A queue that
//! stays full under them belongs to flows that respond to losses only, and who goes on responding gives
//! them its share. Then a flow is Reno: no early responses. It cannot see from there whether the others
//! have left, for it fills the queue itself. Therefore it responds again after a while, on trial:
//! either the queue stays short, or it is Reno again.
//!
//! One flow's trial fails where others that would respond, too, are Reno at that time. So all try at once, by
//! the wall clock: at the multiples of a number of seconds that is a power of two. Whatever the round
//! trips of two flows, each time of the one that tries less often is one of the other.

use ontempo_foundation::{Duration, Time};

/// What a flow is told to do at an ACK.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Turn {
    /// No more early responses; slow start to this window, in packets.
    ToReno { window: f64 },
    /// Respond early again.
    ToEarly,
}

/// Counts round trips in which the queue stayed full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Competition {
    as_reno: bool,
    next_round: Time,
    /// As Reno: when the next trial begins.
    next_trial: Time,
    /// The queue was full at each ACK of this round trip.
    stayed_full: bool,
    /// ACKs of this round trip at which the window limited the flow, less those at which the application did.
    limited: i64,
    /// Round trips on end with a full queue.
    full: u64,
    /// Round trips on end with a short queue, as Reno at the time of a trial.
    short: u64,
    /// Responds early, and has not done so for as many round trips as lie between trials.
    on_trial: bool,
    /// Round trips since the last turn; as Reno, since the time of a trial.
    rounds: u64,
    /// The window that responses to a full queue began to reduce, in packets.
    window: f64,
}

impl Competition {
    /// Responses in this many round trips on end without effect tell of loss-based flows: reductions by a
    /// third leave a twenty-fifth of the window then.
    const FUTILE: u64 = 8;
    /// The same for a flow that has lost nothing yet. A queue that never overflowed is more likely full of
    /// flows that respond early, too, and have just begun.
    const FUTILE_WITHOUT_LOSS: u64 = 64;
    /// Least round trips between trials: several periods of Reno's sawtooth, in which it finds its share again.
    const MIN_BETWEEN: u64 = 256;
    /// Trials are at least four times as far apart as the last one took, so that they cost a fifth of the time.
    const BETWEEN_OF_TRIAL: u64 = 4;

    pub(super) fn new() -> Self {
        Self {
            as_reno: false,
            next_round: Time::ZERO,
            next_trial: Time::ZERO,
            stayed_full: true,
            limited: 0,
            full: 0,
            short: 0,
            on_trial: false,
            rounds: 0,
            window: 0.0,
        }
    }

    /// True while the flow is Reno.
    pub(super) fn as_reno(&self) -> bool {
        self.as_reno
    }

    /// An ACK with a sample of the round-trip time at `now`, of a flow with this smoothed round-trip time
    /// and window in packets; `full`: the sample tells of a queue as long as loss-based flows make it;
    /// `limits`: the window, not the application, limits the flow.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        srtt: Duration,
        cwnd: f64,
        full: bool,
        has_lost: bool,
        limits: bool,
    ) -> Option<Turn> {
        self.stayed_full &= full;
        self.limited += if limits { 1 } else { -1 };
        if now < self.next_round {
            return None;
        }
        self.next_round = now + srtt;
        let stayed_full = std::mem::replace(&mut self.stayed_full, true);
        let fills = std::mem::take(&mut self.limited) > 0;
        if self.as_reno && now < self.next_trial {
            return None;
        }
        self.rounds += 1;
        if self.as_reno {
            self.short = if stayed_full { 0 } else { self.short + 1 };
            return self.try_early(now, srtt, cwnd, fills);
        }
        self.full = if stayed_full { self.full + 1 } else { 0 };
        self.on_trial &= self.rounds <= Self::MIN_BETWEEN;
        if self.full == 1 && !self.on_trial {
            self.window = cwnd;
        }
        let futile = if has_lost { Self::FUTILE } else { Self::FUTILE_WITHOUT_LOSS };
        (self.full >= futile).then(|| {
            let longer = if self.on_trial { Self::BETWEEN_OF_TRIAL * self.rounds } else { 0 };
            self.next_trial = Self::trial_after(now, srtt * longer.max(Self::MIN_BETWEEN));
            self.turn(true);
            Turn::ToReno { window: self.window }
        })
    }

    /// The time of a trial has come. A flow that its application limits does not fill the queue: it goes on
    /// as it is and sees whether others fill it. After as many round trips with a short queue as tell of
    /// loss-based flows with a full one, none do.
    fn try_early(&mut self, now: Time, srtt: Duration, cwnd: f64, fills: bool) -> Option<Turn> {
        if (fills && self.rounds == 1) || self.short >= Self::FUTILE {
            self.window = cwnd;
            self.turn(false);
            return Some(Turn::ToEarly);
        }
        if self.short == 0 && self.rounds >= Self::FUTILE {
            self.next_trial = Self::trial_after(now, srtt * Self::MIN_BETWEEN);
            self.rounds = 0;
        }
        None
    }

    /// The first multiple after `now` of the least power of two of seconds that is at least `between`.
    pub(super) fn trial_after(now: Time, between: Duration) -> Time {
        let seconds = between.as_nanos().div_ceil(Duration::from_secs(1).as_nanos());
        let period = Duration::from_secs(seconds.max(1).next_power_of_two()).as_nanos();
        Time::from_nanos((now.as_nanos() / period + 1) * period)
    }

    fn turn(&mut self, as_reno: bool) {
        (self.as_reno, self.on_trial) = (as_reno, !as_reno);
        (self.full, self.short, self.rounds) = (0, 0, 0);
    }
}
