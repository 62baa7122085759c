//! The counters of a link.

use ontempo_foundation::{Bytes, Packets, Time};

use super::ahead::Later;
use super::{Ahead, Drops, Link};
use crate::wire::Harm;

/// Packets and bytes waiting in a queue, without the packet in transmission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// How many packets.
    pub packets: Packets,
    /// Their bytes.
    pub bytes: Bytes,
}

/// Counters of a link up to a point in time.
///
/// Of all `arrivals`, some were refused ([`Drops::refused`]), some are `waiting` and the
/// others were `departures`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkStatistics {
    /// Packets offered, including dropped ones.
    pub arrivals: Packets,
    /// Packets whose transmission has started, including those lost on the wire.
    pub departures: Packets,
    /// Packets still waiting; on a link with a [`CellReplay`](crate::CellReplay), also those that are
    /// still delayed before its queue.
    pub waiting: Packets,
    /// Packets dropped.
    pub drops: Drops,
    /// Packets marked (ECN).
    pub marks: Packets,
    /// Packets that arrive with bit errors.
    pub corrupted: Packets,
    /// Packets that arrive twice.
    pub duplicated: Packets,
    /// Bytes of the departures.
    pub bytes_departed: Bytes,
    /// Packets waiting, averaged over time from the start, without the one in transmission.
    pub mean_packets: f64,
    /// Fraction of time, 0 to 1, in which the link transmitted.
    pub busy: f64,
}

impl Link {
    /// Counters from the start to `until`, which must not be before the last packet was
    /// offered or the last call of [`Link::occupancy`].
    pub fn statistics(&self, until: Time) -> LinkStatistics {
        self.statistics_without(until, &[])
    }

    /// As [`statistics`](Self::statistics) if the packets `ahead`, the last ones, were offered before they
    /// reach the link, each after `until`; by time. Only a link that
    /// [may be](Self::may_be_offered_ahead) offered packets ahead is.
    pub fn statistics_without(&self, until: Time, ahead: &[Ahead]) -> LinkStatistics {
        let Later { left, wait, busy } = self.later(until, ahead);
        let ahead = Packets::new(ahead.len() as u64);
        let sent = self.sent();
        let span = until.as_nanos() as f64;
        let mean = |total: f64| if until > Time::ZERO { total / span } else { 0.0 };
        // No more than all, where what was forgotten leaves a small error.
        let wait = self.rest.wait.saturating_sub(wait);
        let busy = (sent.busy - busy.min(sent.busy)).min(until.since(Time::ZERO));
        let harm = self.rest.wire.as_ref().map_or(Harm::default(), |wire| wire.harm());
        LinkStatistics {
            arrivals: Packets::new(sent.packets) + self.rest.drops.refused() - ahead,
            departures: Packets::new(sent.packets) - left.packets,
            waiting: left.packets - ahead,
            drops: self.rest.drops,
            marks: Packets::new(self.rest.marks),
            corrupted: harm.corrupted,
            duplicated: harm.duplicated,
            bytes_departed: sent.bytes - left.bytes,
            mean_packets: mean(wait as f64),
            busy: mean(busy.as_nanos() as f64),
        }
    }
}
