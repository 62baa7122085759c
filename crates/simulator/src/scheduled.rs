//! A scheduled link in the simulator: the link, and the one event that will serve it.

use ontempo_foundation::Time;
use ontempo_network::{Departure, Dropped, Queued, ScheduledLink};

/// A scheduled link, when it will be asked next, and what it dropped meanwhile.
pub(crate) struct Scheduled {
    link: Box<ScheduledLink>,
    /// When its earliest event comes; [`Time::NEVER`] where none waits. A later one that still
    /// waits is ignored when it comes.
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

    /// One of the packets dropped by the calls before.
    pub(crate) fn take_drop(&mut self) -> Option<Dropped> {
        self.drops.pop()
    }

    /// Called when an event of it comes: true where it is the one that is awaited.
    pub(crate) fn is_due(&mut self, now: Time) -> bool {
        let is_due = now == self.asked_at;
        if is_due {
            self.asked_at = Time::NEVER;
        }
        is_due
    }

    /// True where it takes a new event for the link to be asked at `time`.
    pub(crate) fn must_be_asked_at(&mut self, time: Time) -> bool {
        let is_new = time < self.asked_at;
        if is_new {
            self.asked_at = time;
        }
        is_new
    }
}
