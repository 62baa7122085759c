//! Message identifiers (RFC 2961 section 4): those of this node and those of its neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ontempo_foundation::{Duration, RandomStream, Time};

use super::boundary::{Envelope, InterfaceId};
use super::state::{Announced, Neighbour, TheirId};
use crate::message::{Ack, Sender, Session};

const EPOCH_MASK: u32 = 0x00ff_ffff;

/// The state of ours that a number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Path(Session, Sender, InterfaceId),
    Resv(Session, Neighbour),
}

/// A message that waits for its acknowledgement.
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
    states: BTreeMap<u32, Announced>,
}

#[derive(Clone, Debug)]
pub(super) struct MessageIds {
    pub(super) epoch: u32,
    next: u32,
    pub(super) pending: BTreeMap<u32, Pending>,
    pub(super) owners: BTreeMap<u32, Owner>,
    pub(super) summaries: BTreeMap<Neighbour, Summary>,
    received: BTreeMap<IpAddr, Received>,
    pub(super) acks: BTreeMap<Neighbour, Vec<Ack>>,
}

impl MessageIds {
    /// An epoch that differs from that before a restart, but for one in 16 million.
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

    /// A number that no message has; after 2^32 of them those still in use are passed over.
    pub(super) fn number(&mut self) -> u32 {
        while self.owners.contains_key(&self.next) || self.pending.contains_key(&self.next) {
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

    /// Notes which state a neighbour's message announces, in place of what announced it before.
    pub(super) fn note(
        &mut self,
        place: &mut Option<TheirId>,
        new: Option<TheirId>,
        state: Announced,
        limits: (usize, usize),
    ) {
        self.unnote(place.take());
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

    /// The state of that number is gone.
    pub(super) fn unnote(&mut self, id: Option<TheirId>) {
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

    /// What the reliable delivery keeps: unacknowledged messages, numbers of our states, numbers
    /// of neighbours' states.
    pub(super) fn kept(&self) -> usize {
        let theirs: usize = self.received.values().map(|known| known.states.len()).sum();
        self.pending.len() + self.owners.len() + theirs
    }

    pub(super) fn announced(&self, neighbour: IpAddr, epoch: u32, id: u32) -> Option<Announced> {
        let known = self.received.get(&neighbour).filter(|known| known.epoch == epoch)?;
        known.states.get(&id).copied()
    }
}

/// Whether the number is of an earlier message than the last one of this state: it was overtaken
/// (RFC 2961 section 4.4).
pub(super) fn is_stale(last: Option<TheirId>, new: Option<TheirId>) -> bool {
    match (last, new) {
        (Some(last), Some(new)) if (last.neighbour, last.epoch) == (new.neighbour, new.epoch) => {
            new.id.wrapping_sub(last.id) > u32::MAX / 2
        }
        _ => false,
    }
}
