//! Shares of sessions and senders: no neighbour takes those of the others, nor all of them those of
//! this node's applications.

use std::collections::BTreeMap;

use super::boundary::InterfaceId;
use super::state::Neighbour;

/// Eighths of a limit that one previous hop, the previous hops of one interface, and all previous
/// hops may use. The rest is for this node's applications. Without a key the address of a previous
/// hop can be forged, but not the interface.
const OF_HOP: usize = 4;
const OF_INTERFACE: usize = 6;
const OF_ALL: usize = 7;

/// What all neighbours together may use of a limit.
pub(super) fn of_neighbours(limit: usize) -> usize {
    eighths(limit, OF_ALL)
}

fn eighths(limit: usize, of_eight: usize) -> usize {
    limit * of_eight / 8
}

/// How many sessions or senders there are, and by whom.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    total: usize,
    foreign: usize,
    interfaces: BTreeMap<InterfaceId, usize>,
    hops: BTreeMap<Neighbour, usize>,
}

impl Usage {
    pub(super) fn add(&mut self, by: Neighbour) {
        self.total += 1;
        self.foreign += usize::from(by.0 != InterfaceId::LOCAL);
        *self.interfaces.entry(by.0).or_default() += 1;
        *self.hops.entry(by).or_default() += 1;
    }

    pub(super) fn remove(&mut self, by: Neighbour) {
        self.total -= 1;
        self.foreign -= usize::from(by.0 != InterfaceId::LOCAL);
        decrease(&mut self.interfaces, by.0);
        decrease(&mut self.hops, by);
    }

    /// Whether one more would exceed the limit or a share of it.
    pub(super) fn is_full(&self, limit: usize, by: Neighbour) -> bool {
        let share = |of_eight: usize| eighths(limit, of_eight).max(1);
        let of_interface = self.interfaces.get(&by.0).copied().unwrap_or(0);
        let of_hop = self.hops.get(&by).copied().unwrap_or(0);
        let exceeds_share = self.foreign >= share(OF_ALL)
            || of_interface >= share(OF_INTERFACE)
            || of_hop >= share(OF_HOP);
        self.total >= limit || by.0 != InterfaceId::LOCAL && exceeds_share
    }
}

fn decrease<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
