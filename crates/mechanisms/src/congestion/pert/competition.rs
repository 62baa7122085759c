//! Whether loss-based flows keep the queue full in spite of early responses (ours, not the thesis').
//!
//! Where all flows respond early, certain responses empty a queue within a few round trips. A queue that
//! stays full under them belongs to flows that respond to losses only, and who goes on responding gives
//! them its share. Then a flow is Reno: no early responses. It cannot see from there whether the others
//! have left, for it fills the queue itself. Therefore it responds again after a while, on trial:
//! either the queue stays short, or it is Reno again. Trials begin where the queue is short, that is after a
//! loss, which tends to be a common time for all flows.

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
    /// The queue was full at each ACK of this round trip.
    stayed_full: bool,
    /// Round trips on end with a full queue.
    full: u64,
    /// Round trips since the last turn.
    rounds: u64,
    /// Round trips as Reno before the next trial.
    hold: u64,
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
    /// Least round trips as Reno: several periods of its sawtooth, in which it finds its share again.
    const MIN_HOLD: u64 = 256;
    /// Most round trips as Reno before a trial may begin.
    const MAX_HOLD: u64 = 1024;
    /// A flow is Reno four times as long as its last trial took, so that trials cost a fifth of the time.
    const HOLD_OF_TRIAL: u64 = 4;
    /// Where the queue is never short, a trial begins after so many times `hold`.
    const FORCED: u64 = 2;

    pub(super) fn new() -> Self {
        Self {
            as_reno: false,
            next_round: Time::ZERO,
            stayed_full: true,
            full: 0,
            rounds: 0,
            hold: Self::MIN_HOLD,
            window: 0.0,
        }
    }

    /// True while the flow is Reno.
    pub(super) fn as_reno(&self) -> bool {
        self.as_reno
    }

    /// An ACK with a sample of the round-trip time at `now`, of a flow with this smoothed round-trip time
    /// and window in packets; `full`: the sample tells of a queue as long as loss-based flows make it.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        srtt: Duration,
        cwnd: f64,
        full: bool,
        has_lost: bool,
    ) -> Option<Turn> {
        self.stayed_full &= full;
        if now < self.next_round {
            return None;
        }
        self.next_round = now + srtt;
        self.rounds += 1;
        let stayed_full = std::mem::replace(&mut self.stayed_full, true);
        if self.as_reno {
            let hold = if stayed_full { Self::FORCED * self.hold } else { self.hold };
            return (self.rounds >= hold).then(|| {
                self.window = cwnd;
                self.turn(false);
                Turn::ToEarly
            });
        }
        self.full = if stayed_full { self.full + 1 } else { 0 };
        let on_trial = self.window > 0.0 && self.rounds <= self.hold;
        if self.full == 1 && !on_trial {
            self.window = cwnd;
        }
        let futile = if has_lost { Self::FUTILE } else { Self::FUTILE_WITHOUT_LOSS };
        (self.full >= futile).then(|| {
            let longer = if on_trial { Self::HOLD_OF_TRIAL * self.rounds } else { 0 };
            self.hold = longer.clamp(Self::MIN_HOLD, Self::MAX_HOLD);
            self.turn(true);
            Turn::ToReno { window: self.window }
        })
    }

    fn turn(&mut self, as_reno: bool) {
        self.as_reno = as_reno;
        self.full = 0;
        self.rounds = 0;
    }
}
