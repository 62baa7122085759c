//! Connections whose programs come by.

use ontempo_foundation::Time;

use super::Endpoint;

/// Connections of which each is asked whether it may be read later.
const MAX_ASKED: usize = 4;

impl Endpoint {
    /// It is asked for packets again until then.
    pub(crate) fn expect_visit(&mut self, until: Time) {
        let all = self.connections.iter_mut().flatten().take(MAX_ASKED);
        all.for_each(|kept| kept.connection.expect_visit(until));
    }

    /// True if what arrives may be handled a moment later, with the time at which it came: nothing that is to be sent
    /// waits for it. False of many connections, whom nobody asks.
    pub(crate) fn may_read_later(&self, now: Time) -> bool {
        let mut all = self.connections.iter().flatten();
        (1..=MAX_ASKED).contains(&self.count) && all.all(|kept| kept.connection.may_read_later(now))
    }
}
