//! Timers that cost one pending event each, however often they are set.

use ontempo_foundation::Time;

use crate::fabric::{Event, Fabric};

/// A deadline that moves far more often than it passes (a retransmission timer is set anew by
/// every ACK). One event waits for the earliest deadline; if the deadline has moved on when the
/// event comes, the event is rescheduled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LazyTimer {
    deadline: Time,
    scheduled: Time,
}

impl LazyTimer {
    pub(crate) const fn unset() -> Self {
        Self { deadline: Time::NEVER, scheduled: Time::NEVER }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.deadline != Time::NEVER
    }

    /// When it expires; [`Time::NEVER`] if it is not set.
    pub(crate) fn deadline(&self) -> Time {
        self.deadline
    }

    pub(crate) fn clear(&mut self) {
        self.deadline = Time::NEVER;
    }

    /// Sets the deadline; `event` comes no later than then.
    #[inline]
    pub(crate) fn set(&mut self, deadline: Time, event: Event, fabric: &mut Fabric) {
        self.deadline = deadline;
        if deadline < self.scheduled {
            self.scheduled = deadline;
            fabric.schedule(deadline, event);
        }
    }

    /// Called at its event: true if the deadline has passed, which clears the timer.
    #[inline]
    pub(crate) fn expires(&mut self, now: Time, event: Event, fabric: &mut Fabric) -> bool {
        if now != self.scheduled {
            return false;
        }
        self.scheduled = Time::NEVER;
        if self.deadline > now {
            if self.deadline != Time::NEVER {
                self.scheduled = self.deadline;
                fabric.schedule(self.deadline, event);
            }
            return false;
        }
        self.deadline = Time::NEVER;
        true
    }
}
