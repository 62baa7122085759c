//! A connection whose program comes by so often that its thread need not look at the socket.

use ontempo_foundation::{Duration, Time};

use super::{Connection, Stage};

/// For how long after a loss what arrives is read at once.
const LOSSY_FOR: Duration = Duration::from_secs(1);

impl Connection {
    /// It is asked for packets again until then.
    pub(crate) fn expect_visit(&mut self, until: Time) {
        self.acks.expect_visit(until);
    }

    /// True if nothing waits for what arrives, and nothing was lost lately either way, so that no repair waits for it: it may be
    /// read a moment later, with the time at which it came.
    pub(crate) fn may_read_later(&self, now: Time) -> bool {
        let account = self.account.read();
        let is_lossy = account.lost_at.is_some_and(|at| now.since(at) < LOSSY_FOR);
        let has_room = account.in_flight.get() < account.window.get() / 4 * 3;
        let is_governed = account.spacing.is_none() && has_room && !is_lossy;
        self.stage == Stage::Open
            && is_governed
            && self.acks.is_orderly(now, LOSSY_FOR)
            && !self.sending.waits()
            && !self.stack.has_pending_retransmits()
    }
}
