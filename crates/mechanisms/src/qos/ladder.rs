//! When to step down to a lower specification, and when to step up again.

use ontempo_foundation::{Duration, Time};

/// A step of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To the rung of this number, a lesser one.
    Down(usize),
    /// To the rung of this number, a better one.
    Up(usize),
}

/// A ladder of specifications, the best first: one rung down when a violation has lasted, one up
/// when there has been none for long enough.
///
/// After a step up that did not hold, the next one is tried after twice the time, up to
/// sixteen times, so that a flow does not swing between two rungs.
#[derive(Clone, Debug)]
pub struct Ladder {
    rungs: usize,
    rung: usize,
    step_down_after: Duration,
    step_up_after: Duration,
    doubled: u32,
    since: Option<Time>,
    violated: bool,
    tried_up: bool,
}

impl Ladder {
    const MAX_DOUBLED: u32 = 4;

    /// A ladder of so many `rungs` (one at least) that begins at the best: a step down after a
    /// violation of `step_down_after`, a step up after `step_up_after` without one.
    pub fn new(rungs: usize, step_down_after: Duration, step_up_after: Duration) -> Self {
        Self {
            rungs: rungs.max(1),
            rung: 0,
            step_down_after,
            step_up_after,
            doubled: 0,
            since: None,
            violated: false,
            tried_up: false,
        }
    }

    /// The rung in use; 0 is the best.
    pub fn rung(&self) -> usize {
        self.rung
    }

    /// Call it at every interval with whether anything is violated; returns the step to make.
    pub fn on_interval(&mut self, now: Time, violated: bool) -> Option<Step> {
        if self.violated != violated || self.since.is_none() {
            (self.violated, self.since) = (violated, Some(now));
        }
        let lasted = now.since(self.since?);
        if violated && lasted >= self.step_down_after && self.rung + 1 < self.rungs {
            if self.tried_up {
                self.doubled = (self.doubled + 1).min(Self::MAX_DOUBLED);
            }
            self.tried_up = false;
            self.rung += 1;
            self.since = Some(now);
            return Some(Step::Down(self.rung));
        }
        let step_up_after =
            Duration::from_nanos(self.step_up_after.as_nanos().saturating_mul(1 << self.doubled));
        if !violated && lasted >= step_up_after {
            if self.tried_up {
                // The last step up has held.
                self.doubled = 0;
            }
            self.tried_up = self.rung > 0;
            self.since = Some(now);
            if self.rung > 0 {
                self.rung -= 1;
                return Some(Step::Up(self.rung));
            }
        }
        None
    }
}
