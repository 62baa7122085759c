//! The counters of a link at a time before the last packets reach it: the simulator offers some packets
//! ahead of their time.

use ontempo_foundation::{Bytes, Duration, Packets, Time};

use super::{Link, Occupancy};

/// A packet that was offered to a link ahead of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// When it reaches the link.
    pub at: Time,
    /// Its size.
    pub size: Bytes,
}

/// What of a link's counters belongs to the time after the one asked for.
pub(super) struct Later {
    /// Packets whose transmission starts later.
    pub(super) left: Occupancy,
    /// Nanoseconds of waiting.
    pub(super) wait: u128,
    /// Time of transmission.
    pub(super) busy: Duration,
}

impl Link {
    /// What is counted and comes after `until`; `ahead` are packets that reach the link then, by time.
    ///
    /// A packet whose transmission started before the last of `ahead` reaches the link is forgotten, and
    /// so may be one packet's rest of transmission.
    pub(super) fn later(&self, until: Time, ahead: &[Ahead]) -> Later {
        let wire = self.rest.wire.as_deref();
        if let Some(replay) = wire.and_then(|wire| wire.replay()) {
            return Later {
                left: replay.not_started(until),
                wait: replay.wait_after(until),
                busy: replay.busy_after(until),
            };
        }
        let started = self.rest.waiting.partition_point(|packet| packet.starts <= until);
        let mut waiting = self.rest.waiting.range(started..);
        let mut later = Later { left: Occupancy::default(), wait: 0, busy: Duration::ZERO };
        let count = |later: &mut Later, size: Bytes| {
            later.left.packets += Packets::new(1);
            later.left.bytes += size;
        };
        // From the first wait on, the link is continuously busy.
        let mut ends = self.busy_until;
        for packet in ahead.iter().rev() {
            count(&mut later, packet.size);
            later.busy += self.rest.rate.time_to_send(packet.size);
            // Without a wait of its own, the link was idle before it.
            ends = until;
            if let Some(last) = waiting.clone().next_back()
                && last.starts > packet.at
            {
                later.wait += u128::from(last.starts.since(packet.at).as_nanos());
                ends = last.starts;
                waiting.next_back();
            }
        }
        for packet in waiting {
            count(&mut later, packet.size);
            later.wait += u128::from(packet.starts.since(until).as_nanos());
        }
        later.busy += match wire.and_then(|wire| wire.aggregator()) {
            Some(aggregator) => aggregator.busy_after(until),
            None => ends.since(until),
        };
        later
    }
}
