//! The memory of all connections together.

use std::collections::BTreeMap;

use ontempo_foundation::Time;

use super::Endpoint;
use crate::admission::Origin;

/// Memory of a connection that has received nothing, bytes: the QUIC and TLS states. They have 69 kB
/// allocated, the rest of which is touched over minutes (docs/security.md, soak).
pub(super) const CONNECTION_COST: u64 = 48 << 10;

/// Part of the endpoint's memory that connections may use which hold nothing, as a fraction: what
/// others receive has the rest.
const CONNECTIONS_PART: (u64, u64) = (3, 4);

impl Endpoint {
    /// Whether there is memory for one more connection.
    pub(super) fn has_memory(&self) -> bool {
        let all = self.config.receive_memory.get();
        let (part, of) = CONNECTIONS_PART;
        let cost = CONNECTION_COST * (self.share.connections() as u64 + 1);
        self.memory + CONNECTION_COST <= self.memory_limit(self.count + 1)
            && cost <= all / of * part
    }

    /// Memory that this endpoint may use with `count` connections. One of several has, beside what each
    /// connection costs, an equal part of what all the connections that there may be leave: so all
    /// together keep within the memory, and no peer of one takes that of another.
    fn memory_limit(&self, count: usize) -> u64 {
        let all = self.config.receive_memory.get();
        match self.share.count().get() {
            1 => all,
            endpoints => {
                let left = all.saturating_sub(CONNECTION_COST * self.config.connections as u64);
                CONNECTION_COST * count as u64 + left / u64::from(endpoints)
            }
        }
    }

    /// Counts a connection's memory anew, and keeps the sum within its limit.
    pub(super) fn count_memory(&mut self, now: Time, place: usize) {
        let Some(Some(kept)) = self.connections.get_mut(place) else { return };
        self.memory -= kept.memory;
        kept.memory = CONNECTION_COST + kept.connection.memory();
        self.memory += kept.memory;
        if self.memory > self.memory_limit(self.count) {
            self.relieve(now);
        }
    }

    /// Closes connections until the memory is within its limit: of the origin that holds most, the
    /// one that holds most. So a peer with many connections does not displace the others.
    pub(super) fn relieve(&mut self, now: Time) {
        self.memory = 0;
        let limit = self.memory_limit(self.count);
        let mut origins: BTreeMap<Origin, u64> = BTreeMap::new();
        for kept in self.connections.iter_mut().flatten() {
            // Meanwhile the program may have taken some of it.
            kept.memory = CONNECTION_COST + kept.connection.memory();
            self.memory += kept.memory;
            *origins.entry(kept.origin).or_default() += kept.memory;
        }
        while self.memory > limit {
            let most = origins.iter_mut().max_by_key(|(_, memory)| **memory);
            let Some((origin, of_origin)) = most else { return };
            let held = |place: &usize| {
                let kept = self.connections[*place].as_ref()?;
                (kept.origin == *origin && kept.memory > CONNECTION_COST).then_some(kept.memory)
            };
            let place = (0..self.connections.len())
                .filter(|place| held(place).is_some())
                .max_by_key(|place| held(place));
            let Some(place) = place else {
                // Only connections without data: new ones are refused.
                *of_origin = 0;
                if origins.values().all(|memory| *memory == 0) {
                    return;
                }
                continue;
            };
            let Some(Some(kept)) = self.connections.get_mut(place) else { return };
            let freed = kept.memory - CONNECTION_COST;
            kept.memory = CONNECTION_COST;
            self.memory -= freed;
            *of_origin -= freed;
            kept.connection.overload(now);
            self.settle(place);
            self.queue(place);
        }
    }
}
