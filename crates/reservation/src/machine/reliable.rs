//! Numbered messages (RFC 2961): acknowledged, sent again, refreshed by number.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ontempo_foundation::{Duration, RandomStream, Time};

use super::Machine;
use super::boundary::{InterfaceId, Routes};
use super::send::Envelope;
use super::state::{Announced, Neighbour, OurId, TheirId};
use super::timers::Timer;
use crate::message::{Ack, Body, Message, Sender, Session, Srefresh};

const EPOCH_MASK: u32 = 0x00ff_ffff;
/// Numbers in one Srefresh, so that it fits 1,280 bytes, the least MTU of IPv6.
const IDS_IN_SUMMARY: usize = 290;
/// Delta (RFC 2961 section 6): each wait is longer by this share of the one before.
const BACK_OFF: u64 = 1;

/// The state of ours that a number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Path(Session, Sender, InterfaceId),
    Resv(Session, Neighbour),
}

/// A message that waits for its acknowledgement.
#[derive(Clone, Debug)]
struct Pending {
    envelope: Envelope,
    message: Vec<u8>,
    sent: u32,
    wait: Duration,
    at: Time,
}

#[derive(Clone, Debug)]
struct Summary {
    ids: BTreeSet<u32>,
    at: Time,
}

#[derive(Clone, Debug, Default)]
struct Received {
    epoch: u32,
    states: BTreeMap<u32, Announced>,
}

#[derive(Clone, Debug)]
pub(super) struct Reliable {
    epoch: u32,
    next: u32,
    pending: BTreeMap<u32, Pending>,
    owners: BTreeMap<u32, Owner>,
    summaries: BTreeMap<Neighbour, Summary>,
    received: BTreeMap<IpAddr, Received>,
    acks: BTreeMap<Neighbour, Vec<Ack>>,
}

impl Reliable {
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

    fn announced(&self, neighbour: IpAddr, epoch: u32, id: u32) -> Option<Announced> {
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

impl<R: Routes> Machine<R> {
    /// Waits for the message's acknowledgement, if there is room for one more.
    pub(super) fn await_ack(&mut self, now: Time, id: u32, envelope: Envelope, message: Vec<u8>) {
        if self.reliable.pending.len() >= self.config.limits.states {
            return;
        }
        let wait = self.config.retransmit_after;
        let mut pending = Pending { envelope, message, sent: 1, wait, at: Time::NEVER };
        self.timers.set(&mut pending.at, now + wait, Timer::Retransmit(id));
        self.reliable.pending.insert(id, pending);
    }

    pub(super) fn on_retransmit(&mut self, now: Time, id: u32) {
        let Some(mut pending) = self.reliable.pending.remove(&id) else { return };
        pending.at = Time::NEVER;
        if pending.sent >= self.config.most_transmissions {
            // The state lives on by refreshes in full; a late acknowledgement still counts.
            return;
        }
        self.transmit(&pending.envelope, &pending.message);
        pending.sent += 1;
        pending.wait = pending.wait * (1 + BACK_OFF);
        self.timers.set(&mut pending.at, now + pending.wait, Timer::Retransmit(id));
        self.reliable.pending.insert(id, pending);
    }

    /// A message's number means nothing any more: its state has changed or ended.
    pub(super) fn forget(&mut self, ours: &mut OurId) {
        let OurId { id: Some(id), acked_by } = core::mem::take(ours) else { return };
        self.settle(id);
        self.reliable.owners.remove(&id);
        let Some(neighbour) = acked_by else { return };
        let Some(summary) = self.reliable.summaries.get_mut(&neighbour) else { return };
        summary.ids.remove(&id);
        if summary.ids.is_empty() {
            self.timers.clear(&mut summary.at, Timer::Summary(neighbour.0, neighbour.1));
            self.reliable.summaries.remove(&neighbour);
        }
    }

    /// Nobody waits for the acknowledgement any more.
    fn settle(&mut self, id: u32) {
        if let Some(mut pending) = self.reliable.pending.remove(&id) {
            self.timers.clear(&mut pending.at, Timer::Retransmit(id));
        }
    }

    pub(super) fn on_ack(&mut self, now: Time, from: Neighbour, ack: &Ack) {
        if ack.epoch != self.reliable.epoch {
            return;
        }
        self.settle(ack.id);
        let Some(&owner) = self.reliable.owners.get(&ack.id) else { return };
        if ack.negative {
            self.announce_again(now, owner);
            return;
        }
        let (session, marked) = match owner {
            Owner::Path(session, ..) | Owner::Resv(session, _) => {
                (session, OurId { id: Some(ack.id), acked_by: Some(from) })
            }
        };
        let Some(state) = self.sessions.get_mut(&session) else { return };
        let place = match owner {
            Owner::Path(_, sender, interface) => {
                state.paths.get_mut(&sender).and_then(|path| path.sent.get_mut(&interface))
            }
            Owner::Resv(_, previous) => state.upstream.get_mut(&previous).map(|up| &mut up.sent),
        };
        match place {
            Some(place) if place.id == Some(ack.id) && place.acked_by.is_none() => *place = marked,
            _ => return,
        }
        if !self.reliable.summaries.contains_key(&from) {
            let mut summary = Summary { ids: BTreeSet::new(), at: Time::NEVER };
            let at = now + self.jittered_refresh();
            self.timers.set(&mut summary.at, at, Timer::Summary(from.0, from.1));
            self.reliable.summaries.insert(from, summary);
        }
        if let Some(summary) = self.reliable.summaries.get_mut(&from) {
            summary.ids.insert(ack.id);
        }
    }

    /// The neighbour does not know the number: it is told the state in full.
    fn announce_again(&mut self, now: Time, owner: Owner) {
        match owner {
            Owner::Path(session, sender, interface) => {
                self.edit(session, |machine, state| {
                    machine.send_path(now, &session, state, &sender, Some(interface));
                });
            }
            Owner::Resv(session, previous) => {
                self.edit(session, |machine, state| {
                    machine.send_resv(now, &session, state, previous, None);
                });
            }
        }
    }

    pub(super) fn on_summary(&mut self, now: Time, to: Neighbour) {
        let at = now + self.jittered_refresh();
        let Some(summary) = self.reliable.summaries.get_mut(&to) else { return };
        summary.at = Time::NEVER;
        self.timers.set(&mut summary.at, at, Timer::Summary(to.0, to.1));
        let ids: Vec<u32> = summary.ids.iter().copied().collect();
        for part in ids.chunks(IDS_IN_SUMMARY) {
            let refresh = Srefresh { epoch: self.reliable.epoch, ids: part.to_vec() };
            self.send_plain(to, Body::Srefresh(refresh));
        }
    }

    /// Who challenges has lost what it knew: it is refreshed soon, so that it asks for the rest.
    pub(super) fn hasten_summary(&mut self, now: Time, to: Neighbour) {
        let soon = now + self.config.retransmit_after;
        let Some(summary) = self.reliable.summaries.get_mut(&to) else { return };
        if soon < summary.at {
            self.timers.set(&mut summary.at, soon, Timer::Summary(to.0, to.1));
        }
    }

    pub(super) fn on_srefresh(&mut self, now: Time, from: Neighbour, refresh: &Srefresh) {
        for &id in &refresh.ids {
            let known = self.reliable.announced(from.1, refresh.epoch, id);
            if !known.is_some_and(|announced| self.refreshed(now, announced)) {
                self.reliable.queue_ack(from, Ack { negative: true, epoch: refresh.epoch, id });
            }
        }
    }

    fn refreshed(&mut self, now: Time, announced: Announced) -> bool {
        match announced {
            Announced::Path(session, sender) => {
                let state = self.sessions.get_mut(&session);
                let Some(path) = state.and_then(|state| state.paths.get_mut(&sender)) else {
                    return false;
                };
                path.expires = now + self.config.lifetime(path.period);
            }
            Announced::Resv(session, next) => {
                let state = self.sessions.get_mut(&session);
                let Some(resv) = state.and_then(|state| state.reservations.get_mut(&next)) else {
                    return false;
                };
                let expires = now + self.config.lifetime(resv.period);
                resv.flows.values_mut().for_each(|flow| flow.expires = expires);
            }
        }
        true
    }

    /// Sends what is to be acknowledged, one message a neighbour.
    pub(super) fn flush_acks(&mut self) {
        for (to, acks) in core::mem::take(&mut self.reliable.acks) {
            for part in acks.chunks(IDS_IN_SUMMARY / 3) {
                let mut message = Message::new(Body::Ack);
                message.acks = part.to_vec();
                self.send_message(to, message);
            }
        }
    }
}
