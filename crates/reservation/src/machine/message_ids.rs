//! Message identifiers (RFC 2961 section 4): those of this node and those of its neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ontempo_foundation::{Duration, RandomStream, Time};

use super::boundary::{Envelope, InterfaceId};
use super::state::{Neighbour, NeighbourMessageId, OwnMessageId, RefreshedState};
use crate::message::{Ack, Body, Message, Sender, Session};

const EPOCH_MASK: u32 = 0x00ff_ffff;

/// The state of this node that its MESSAGE_ID refreshes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Path(Session, Sender, InterfaceId),
    Resv(Session, Neighbour),
}

/// A message that is retransmitted until it is acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) envelope: Envelope,
    pub(super) message: Vec<u8>,
    pub(super) sent: u32,
    pub(super) wait: Duration,
    pub(super) at: Time,
}

#[derive(Clone, Debug)]
pub(super) struct Summary {
    pub(super) ids: BTreeSet<u32>,
    pub(super) at: Time,
}

#[derive(Clone, Debug, Default)]
struct Received {
    epoch: u32,
    states: BTreeMap<u32, RefreshedState>,
}

#[derive(Clone, Debug)]
pub(super) struct MessageIds {
    pub(super) epoch: u32,
    next: u32,
    pub(super) pending: BTreeMap<u32, Pending>,
    pub(super) owners: BTreeMap<u32, Owner>,
    pub(super) summaries: BTreeMap<Neighbour, Summary>,
    received: BTreeMap<Neighbour, Received>,
    pub(super) acks: BTreeMap<Neighbour, Vec<Ack>>,
}

impl MessageIds {
    /// With a random epoch of 24 bits, so that it differs from the one before a restart.
    pub(super) fn new(random: &mut RandomStream) -> Self {
        Self {
            epoch: (random.next_u64() >> 40) as u32 & EPOCH_MASK,
            next: 1,
            pending: BTreeMap::new(),
            owners: BTreeMap::new(),
            summaries: BTreeMap::new(),
            received: BTreeMap::new(),
            acks: BTreeMap::new(),
        }
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The next Message_Identifier that is not in use.
    pub(super) fn number(&mut self) -> u32 {
        let is_taken = |id: u32| {
            // 0 is no state's: see `Machine::ask`.
            id == 0 || self.owners.contains_key(&id) || self.pending.contains_key(&id)
        };
        while is_taken(self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        id
    }

    pub(super) fn own(&mut self, id: u32, owner: Owner) {
        self.owners.insert(id, owner);
    }

    pub(super) fn queue_ack(&mut self, to: Neighbour, ack: Ack) {
        self.acks.entry(to).or_default().push(ack);
    }

    /// Whether the message is sent again until it is acknowledged.
    pub(super) fn awaits_ack(&self, ours: &OwnMessageId) -> bool {
        ours.id.is_some_and(|id| self.pending.contains_key(&id))
    }

    /// The receiver in the RESV_CONFIRM of a RESV that is not acknowledged yet.
    pub(super) fn awaited_confirm(&self, ours: &OwnMessageId) -> Option<IpAddr> {
        let pending = self.pending.get(&ours.id?)?;
        match Message::decode(&pending.message).ok()?.body {
            Body::Resv(resv) => resv.confirm,
            _ => None,
        }
    }

    /// Records the MESSAGE_ID that refreshes a state, in place of the one before.
    pub(super) fn record_received(
        &mut self,
        place: &mut Option<NeighbourMessageId>,
        new: Option<NeighbourMessageId>,
        state: RefreshedState,
        limits: (usize, usize),
    ) {
        self.remove_received(place.take());
        let Some(id) = new else { return };
        let (neighbours, states) = limits;
        if !self.received.contains_key(&id.neighbour) && self.received.len() >= neighbours {
            return;
        }
        let known = self.received.entry(id.neighbour).or_default();
        if known.epoch != id.epoch {
            *known = Received { epoch: id.epoch, states: BTreeMap::new() };
        }
        if known.states.len() < states {
            known.states.insert(id.id, state);
            *place = Some(id);
        }
    }

    /// Removes the MESSAGE_ID of a state that has ended.
    pub(super) fn remove_received(&mut self, id: Option<NeighbourMessageId>) {
        let Some(id) = id else { return };
        if let Some(known) = self.received.get_mut(&id.neighbour) {
            if known.epoch == id.epoch {
                known.states.remove(&id.id);
            }
            if known.states.is_empty() {
                self.received.remove(&id.neighbour);
            }
        }
    }

    /// Number of unacknowledged messages and of MESSAGE_IDs, own and neighbours'.
    pub(super) fn kept(&self) -> usize {
        let theirs: usize = self.received.values().map(|known| known.states.len()).sum();
        self.pending.len() + self.owners.len() + theirs
    }

    pub(super) fn refreshed_state(
        &self,
        neighbour: Neighbour,
        epoch: u32,
        id: u32,
    ) -> Option<RefreshedState> {
        let known = self.received.get(&neighbour).filter(|known| known.epoch == epoch)?;
        known.states.get(&id).copied()
    }
}

/// Whether the MESSAGE_ID is older than the last one of this state: the message arrived out of
/// order (RFC 2961 section 4.4).
pub(super) fn is_stale(last: Option<NeighbourMessageId>, new: Option<NeighbourMessageId>) -> bool {
    match (last, new) {
        (Some(last), Some(new)) if (last.neighbour, last.epoch) == (new.neighbour, new.epoch) => {
            new.id.wrapping_sub(last.id) > u32::MAX / 2
        }
        _ => false,
    }
}
