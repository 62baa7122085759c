//! Whose turn it is to send.

use ontempo_foundation::Time;

use super::Endpoint;

/// Transmissions of a connection after which others have their turn.
const MAX_IN_A_ROW: u8 = 4;

impl Endpoint {
    pub(super) fn queue(&mut self, place: usize) {
        if let Some(Some(kept)) = self.connections.get_mut(place)
            && !kept.queued
        {
            kept.queued = true;
            self.ready.push_back(place);
        }
    }

    /// A connection has sent something, and mostly has no more: it is asked again at once, while the
    /// processor has its state at hand, and not after all others.
    pub(super) fn queue_again(&mut self, place: usize) {
        let Some(Some(kept)) = self.connections.get_mut(place) else { return };
        kept.in_a_row += 1;
        if kept.in_a_row < MAX_IN_A_ROW && !kept.queued {
            kept.queued = true;
            self.ready.push_front(place);
        } else {
            kept.in_a_row = 0;
            self.queue(place);
        }
    }

    /// A connection has nothing to send before `until`, or before an event.
    pub(super) fn rest(&mut self, place: usize, until: Option<Time>) {
        let Some(Some(kept)) = self.connections.get_mut(place) else { return };
        kept.in_a_row = 0;
        let wake = kept.connection.wake_at().min(until.unwrap_or(Time::NEVER));
        if wake != kept.wake {
            self.timers.remove(&(kept.wake, place));
            kept.wake = wake;
            if wake < Time::NEVER {
                self.timers.insert((wake, place));
            }
        }
    }
}
