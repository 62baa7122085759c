//! A scheduled link in the simulator: the link, and its one pending event.

use ontempo_foundation::Time;
use ontempo_network::{Departure, Dropped, Queued, ScheduledLink};

/// A scheduled link, its next event, and the packets that it dropped.
pub(crate) struct Scheduled {
    link: Box<ScheduledLink>,
    /// When its earliest event comes; [`Time::NEVER`] if none is pending. A later event that is
    /// still pending is ignored.
    asked_at: Time,
    drops: Vec<Dropped>,
}

impl Scheduled {
    pub(crate) fn new(link: Box<ScheduledLink>) -> Self {
        Self { link, asked_at: Time::NEVER, drops: Vec::new() }
    }

    pub(crate) fn link(&self) -> &ScheduledLink {
        &self.link
    }

    pub(crate) fn enqueue(&mut self, now: Time, packet: Queued) {
        self.link.enqueue(now, packet, &mut self.drops);
    }

    pub(crate) fn dequeue(&mut self, now: Time) -> Option<Departure> {
        self.link.dequeue(now, &mut self.drops)
    }

    /// One of the packets dropped by earlier calls.
    pub(crate) fn take_drop(&mut self) -> Option<Dropped> {
        self.drops.pop()
    }

    /// Called at an event of the link: true if it is the expected one.
    pub(crate) fn is_due(&mut self, now: Time) -> bool {
        let is_due = now == self.asked_at;
        if is_due {
            self.asked_at = Time::NEVER;
        }
        is_due
    }

    /// True if serving the link at `time` needs a new event.
    pub(crate) fn needs_event_at(&mut self, time: Time) -> bool {
        let is_new = time < self.asked_at;
        if is_new {
            self.asked_at = time;
        }
        is_new
    }
}
