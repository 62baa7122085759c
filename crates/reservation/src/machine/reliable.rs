//! Reliable delivery and summary refresh (RFC 2961 sections 4 and 5).

use std::collections::BTreeSet;
use std::net::IpAddr;

use ontempo_foundation::Time;

use super::boundary::{Envelope, InterfaceId, Routes};
use super::message_ids::{Owner, Pending, Summary};
use super::node::Machine;
use super::state::{Neighbour, OwnMessageId, RefreshedState};
use super::timers::Timer;
use crate::message::{Ack, Body, Message, Srefresh};

/// Message_Identifiers in one Srefresh, so that it fits 1,280 bytes, the least MTU of IPv6.
const IDS_IN_SUMMARY: usize = 290;
/// The Message_Identifier that no state has: in a Srefresh alone it says that this node has lost
/// its state. A neighbour that does not know this answers with a MESSAGE_ID_NACK, which refers to
/// nothing.
const NO_STATE: u32 = 0;
/// Delta (RFC 2961 section 6): each wait is longer by this share of the one before.
const BACK_OFF: u64 = 1;

impl<R: Routes> Machine<R> {
    /// Retransmits the message until it is acknowledged, where the limit of such messages allows
    /// it.
    pub(super) fn await_ack(&mut self, now: Time, id: u32, envelope: Envelope, message: Vec<u8>) {
        if self.message_ids.pending.len() >= self.config.limits.states {
            return;
        }
        let wait = self.config.retransmit_after;
        let mut pending = Pending { envelope, message, sent: 1, wait, at: Time::NEVER };
        self.timers.set(&mut pending.at, now + wait, Timer::Retransmit(id));
        self.message_ids.pending.insert(id, pending);
    }

    pub(super) fn on_retransmit(&mut self, now: Time, id: u32) {
        let Some(mut pending) = self.message_ids.pending.remove(&id) else { return };
        pending.at = Time::NEVER;
        if pending.sent >= self.config.max_transmissions {
            // The state is refreshed in full from now on; a late acknowledgement still counts.
            return;
        }
        self.transmit(&pending.envelope, &pending.message);
        pending.sent += 1;
        pending.wait = pending.wait * (1 + BACK_OFF);
        self.timers.set(&mut pending.at, now + pending.wait, Timer::Retransmit(id));
        self.message_ids.pending.insert(id, pending);
    }

    /// Ends a MESSAGE_ID: its state has changed or ended.
    pub(super) fn forget(&mut self, ours: &mut OwnMessageId) {
        let OwnMessageId { id: Some(id), acked_by } = core::mem::take(ours) else { return };
        self.settle(id);
        self.message_ids.owners.remove(&id);
        let Some(neighbour) = acked_by else { return };
        let Some(summary) = self.message_ids.summaries.get_mut(&neighbour) else { return };
        summary.ids.remove(&id);
        if summary.ids.is_empty() {
            self.timers.clear(&mut summary.at, Timer::Summary(neighbour.0, neighbour.1));
            self.message_ids.summaries.remove(&neighbour);
        }
    }

    /// Ends the retransmission of a message.
    fn settle(&mut self, id: u32) {
        if let Some(mut pending) = self.message_ids.pending.remove(&id) {
            self.timers.clear(&mut pending.at, Timer::Retransmit(id));
        }
    }

    pub(super) fn on_ack(&mut self, now: Time, from: Neighbour, ack: &Ack) {
        if ack.epoch != self.message_ids.epoch {
            return;
        }
        let owner = self.message_ids.owners.get(&ack.id).copied();
        let sent_by = match owner {
            Some(Owner::Path(_, _, interface)) => Some(interface),
            Some(Owner::Resv(_, previous)) => Some(previous.0),
            None => self.message_ids.pending.get(&ack.id).map(|known| known.envelope.interface),
        };
        if sent_by.is_some_and(|sent_by| self.bypasses(from.0, sent_by)) {
            return;
        }
        self.settle(ack.id);
        let Some(owner) = owner else { return };
        if ack.negative {
            self.resend_in_full(now, owner);
            return;
        }
        let (session, marked) = match owner {
            Owner::Path(session, ..) | Owner::Resv(session, _) => {
                (session, OwnMessageId { id: Some(ack.id), acked_by: Some(from) })
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
        if !self.message_ids.summaries.contains_key(&from) {
            let mut summary = Summary { ids: BTreeSet::new(), at: Time::NEVER };
            let at = now + self.jittered_refresh();
            self.timers.set(&mut summary.at, at, Timer::Summary(from.0, from.1));
            self.message_ids.summaries.insert(from, summary);
        }
        if let Some(summary) = self.message_ids.summaries.get_mut(&from) {
            summary.ids.insert(ack.id);
        }
    }

    /// Sends the state in full after a MESSAGE_ID_NACK (RFC 2961 section 5.4).
    fn resend_in_full(&mut self, now: Time, owner: Owner) {
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
        let Some(summary) = self.message_ids.summaries.get_mut(&to) else { return };
        summary.at = Time::NEVER;
        self.timers.set(&mut summary.at, at, Timer::Summary(to.0, to.1));
        let ids: Vec<u32> = summary.ids.iter().copied().collect();
        for part in ids.chunks(IDS_IN_SUMMARY) {
            let refresh = Srefresh { epoch: self.message_ids.epoch, ids: part.to_vec() };
            self.send_plain(to, Body::Srefresh(refresh));
        }
    }

    /// State of before a restart is asked for until then: a RESV whose PATH is not here yet is no
    /// error of the receiver's, who would be told of a failure.
    pub fn recover(&mut self, until: Time) {
        self.recovers_until = until;
    }

    /// Whether state of before a restart can still come back.
    pub fn recovers(&self, now: Time) -> bool {
        now < self.recovers_until
    }

    /// Asks a neighbour of this node before its restart for what it has: an Srefresh of the new epoch
    /// with the identifier 0 alone. Nothing where the interface has no refresh reduction.
    pub fn ask(&mut self, interface: InterfaceId, neighbour: IpAddr) {
        let reduces =
            self.interfaces.get(&interface).is_some_and(|known| known.config.refresh_reduction);
        if reduces {
            let refresh = Srefresh { epoch: self.message_ids.epoch, ids: vec![NO_STATE] };
            self.send_plain((interface, neighbour), Body::Srefresh(refresh));
        }
    }

    /// Hastens the summary refresh to a neighbour that has restarted, as its Challenge or its question
    /// shows: it answers the Srefresh with a MESSAGE_ID_NACK for each state that it lost. Questions
    /// draw no more than one summary in each rapid retransmission interval.
    pub(super) fn hasten_summary(&mut self, now: Time, to: Neighbour) {
        let soon = now + self.config.retransmit_after;
        let Some(summary) = self.message_ids.summaries.get_mut(&to) else { return };
        if soon < summary.at {
            self.timers.set(&mut summary.at, soon, Timer::Summary(to.0, to.1));
        }
    }

    pub(super) fn on_srefresh(&mut self, now: Time, from: Neighbour, refresh: &Srefresh) {
        if refresh.ids == [NO_STATE] {
            return self.hasten_summary(now, from);
        }
        for &id in &refresh.ids {
            let known = self.message_ids.refreshed_state(from, refresh.epoch, id);
            if !known.is_some_and(|refreshed_state| self.refreshed(now, from.0, refreshed_state)) {
                self.message_ids.queue_ack(from, Ack { negative: true, epoch: refresh.epoch, id });
            }
        }
    }

    fn refreshed(
        &mut self,
        now: Time,
        incoming: InterfaceId,
        refreshed_state: RefreshedState,
    ) -> bool {
        let of_state = match refreshed_state {
            RefreshedState::Path(session, sender) => {
                let state = self.sessions.get(&session);
                state.and_then(|state| state.paths.get(&sender)).map(|path| path.incoming)
            }
            RefreshedState::Resv(_, next) => Some(next.0),
        };
        if of_state.is_some_and(|of_state| self.bypasses(incoming, of_state)) {
            return false;
        }
        match refreshed_state {
            RefreshedState::Path(session, sender) => {
                let state = self.sessions.get_mut(&session);
                let Some(path) = state.and_then(|state| state.paths.get_mut(&sender)) else {
                    return false;
                };
                path.expires = now + self.config.lifetime(path.period);
            }
            RefreshedState::Resv(session, next) => {
                let state = self.sessions.get_mut(&session);
                let Some(resv) = state.and_then(|state| state.reservations.get_mut(&next)) else {
                    return false;
                };
                let expires = now + self.config.lifetime(resv.period);
                // One that the RESV with this number does not have ends, though its ResvTear was lost.
                let named = resv.flows.values_mut().filter(|flow| flow.is_of_source);
                named.for_each(|flow| flow.expires = expires);
            }
        }
        true
    }

    /// Sends the acknowledgements due, in one Ack message for each neighbour.
    pub(super) fn flush_acks(&mut self) {
        for (to, acks) in core::mem::take(&mut self.message_ids.acks) {
            for part in acks.chunks(IDS_IN_SUMMARY / 3) {
                let mut message = Message::new(Body::Ack);
                message.acks = part.to_vec();
                self.send_message(to, message);
            }
        }
    }
}
