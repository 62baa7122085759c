//! The senders and reservations of each application connection.

use std::collections::{BTreeMap, BTreeSet};

use ontempo_foundation::Time;
use ontempo_reservation::local::Notice;
use ontempo_reservation::machine::Machine;
use ontempo_reservation::message::{AdSpec, Descriptor, Sender, Session, Style, TrafficSpec};

use crate::applications::Id;
use crate::routes::Kernel;

/// Senders, receivers and subscriptions by their connection.
#[derive(Default)]
pub(super) struct Owners {
    pub(super) senders: BTreeMap<(Session, Sender), Id>,
    pub(super) receivers: BTreeMap<Session, BTreeMap<Id, Wanted>>,
    pub(super) watchers: BTreeSet<(Session, Id)>,
    held: BTreeMap<Id, Held>,
    /// Senders to this host, for later subscribers.
    pub(super) paths: BTreeMap<(Session, Sender), (TrafficSpec, Option<AdSpec>)>,
}

/// How much connections have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Senders, reservations and watched sessions.
    pub(super) places: usize,
    /// Flow descriptors of the reservations.
    pub(super) flows: usize,
}

/// What applications reserve of a session.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) style: Style,
    pub(super) flows: Vec<Descriptor>,
    pub(super) confirm: bool,
}

impl Wanted {
    /// With what another application wants, whose senders are others; `None` unless each sender has a
    /// reservation of its own.
    fn join(mut self, other: &Self) -> Option<Self> {
        let mut own = self.flows.iter().flat_map(|flow| &flow.filters);
        let is_others = |sender| other.flows.iter().any(|flow| flow.filters.contains(sender));
        let is_fixed = |one: &Self| one.style == Style::FixedFilter;
        if !is_fixed(&self) || !is_fixed(other) || own.any(is_others) {
            return None;
        }
        self.flows.extend(other.flows.iter().cloned());
        self.confirm |= other.confirm;
        Some(self)
    }

    /// Whether one of these flows is its own: with a style that shares, it has all of its session.
    fn has_any(&self, flows: &[Descriptor]) -> bool {
        if self.style != Style::FixedFilter {
            return true;
        }
        let of = |flows: &[Descriptor]| -> BTreeSet<Sender> {
            flows.iter().flat_map(|flow| flow.filters.iter().copied()).collect()
        };
        !of(&self.flows).is_disjoint(&of(flows))
    }
}

/// Senders and reservations to end.
#[derive(Default)]
pub(super) struct Ending {
    senders: Vec<(Session, Sender)>,
    /// With what other applications have reserved of the session.
    receivers: Vec<(Session, Option<Wanted>)>,
}

impl Owners {
    /// The senders and reservations of one application, or of all.
    pub(super) fn all_of(&self, id: Option<Id>) -> Ending {
        let is = |owner: &Id| id.is_none_or(|id| *owner == id);
        let senders = self.senders.iter().filter(|(_, owner)| is(owner));
        let receivers = self.receivers.iter().filter(|(_, owners)| owners.keys().any(is));
        Ending {
            senders: senders.map(|(key, _)| *key).collect(),
            receivers: receivers
                .map(|(key, _)| (*key, id.and_then(|id| self.rest(key, id))))
                .collect(),
        }
    }

    /// What all applications reserve of a session once this one wants `own`; `None` where they
    /// contradict each other.
    pub(super) fn joined(&self, session: &Session, id: Id, own: Wanted) -> Option<Wanted> {
        self.others(session, id).try_fold(own, Wanted::join)
    }

    /// What applications other than this one have reserved of a session.
    pub(super) fn rest(&self, session: &Session, id: Id) -> Option<Wanted> {
        let mut others = self.others(session, id);
        let first = others.next()?.clone();
        others.try_fold(first, Wanted::join)
    }

    fn others(&self, session: &Session, id: Id) -> impl Iterator<Item = &Wanted> {
        let all = self.receivers.get(session).into_iter().flatten();
        all.filter(move |(owner, _)| **owner != id).map(|(_, wanted)| wanted)
    }

    pub(super) fn add_sender(&mut self, sender: (Session, Sender), id: Id) {
        let is_new = self.senders.insert(sender, id).is_none();
        self.held.entry(id).or_default().places += usize::from(is_new);
    }

    pub(super) fn is_receiver(&self, session: &Session, id: Id) -> bool {
        self.receivers.get(session).is_some_and(|owners| owners.contains_key(&id))
    }

    pub(super) fn add_receiver(&mut self, session: Session, id: Id, wanted: Wanted) {
        let flows = wanted.flows.len();
        let before = self.receivers.entry(session).or_default().insert(id, wanted);
        let held = self.held.entry(id).or_default();
        held.places += usize::from(before.is_none());
        held.flows = held.flows + flows - before.map_or(0, |before| before.flows.len());
    }

    /// How many flow descriptors a connection has of a session.
    pub(super) fn flows_of(&self, session: &Session, id: Id) -> usize {
        let own = self.receivers.get(session).and_then(|owners| owners.get(&id));
        own.map_or(0, |own| own.flows.len())
    }

    pub(super) fn add_watcher(&mut self, session: Session, id: Id) {
        let is_new = self.watchers.insert((session, id));
        self.held.entry(id).or_default().places += usize::from(is_new);
    }

    pub(super) fn remove_sender(&mut self, sender: &(Session, Sender)) {
        if let Some(id) = self.senders.remove(sender) {
            self.release(id, 0);
        }
    }

    pub(super) fn remove_receiver(&mut self, session: &Session, id: Id) {
        let Some(owners) = self.receivers.get_mut(session) else { return };
        let own = owners.remove(&id);
        if owners.is_empty() {
            self.receivers.remove(session);
        }
        if let Some(own) = own {
            self.release(id, own.flows.len());
        }
    }

    fn release(&mut self, id: Id, flows: usize) {
        if let Some(held) = self.held.get_mut(&id) {
            held.places -= 1;
            held.flows -= flows;
        }
    }

    /// What these connections have together.
    pub(super) fn held_by(&self, ids: impl Iterator<Item = Id>) -> Held {
        let all = ids.filter_map(|id| self.held.get(&id));
        all.fold(Held::default(), |sum, one| Held {
            places: sum.places + one.places,
            flows: sum.flows + one.flows,
        })
    }

    /// Forgets a connection; returns the sessions that nobody watches any more.
    pub(super) fn forget(&mut self, id: Id) -> Vec<Session> {
        self.held.remove(&id);
        self.senders.retain(|_, owner| *owner != id);
        self.receivers.retain(|_, owners| {
            owners.remove(&id);
            !owners.is_empty()
        });
        let (gone, rest): (BTreeSet<_>, _) =
            core::mem::take(&mut self.watchers).into_iter().partition(|(_, owner)| *owner == id);
        self.watchers = rest;
        let is_watched = |session: &Session| {
            self.watchers.range((*session, Id::FIRST)..).next().is_some_and(|(to, _)| to == session)
        };
        gone.into_iter().map(|(session, _)| session).filter(|one| !is_watched(one)).collect()
    }

    /// The connections that get a notice.
    pub(super) fn recipients(&self, notice: &Notice) -> BTreeSet<Id> {
        let session = notice.session();
        match notice {
            Notice::Path { .. } | Notice::PathGone { .. } => {
                let of = self.watchers.iter().filter(|(watched, _)| watched == session);
                of.map(|(_, id)| *id).collect()
            }
            Notice::Reserved { .. } => {
                let of = self.senders.iter().filter(|((to, _), _)| to == session);
                of.map(|(_, id)| *id).collect()
            }
            Notice::PathError { sender, .. } => {
                self.senders.get(&(*session, *sender)).copied().into_iter().collect()
            }
            Notice::ResvError { flow, .. } => {
                self.receivers_of(session, std::slice::from_ref(flow))
            }
            Notice::Confirmed { flows, .. } => self.receivers_of(session, flows),
        }
    }

    /// The applications whose flows these are.
    fn receivers_of(&self, session: &Session, flows: &[Descriptor]) -> BTreeSet<Id> {
        let owners = self.receivers.get(session).into_iter().flatten();
        owners.filter(|(_, wanted)| wanted.has_any(flows)).map(|(id, _)| *id).collect()
    }

    /// The notice as this application gets it: of the flows that are confirmed its own.
    pub(super) fn notice_for(&self, notice: &Notice, id: Id) -> Notice {
        let mut notice = notice.clone();
        if let Notice::Confirmed { session, flows, .. } = &mut notice {
            let own = self.receivers.get(session).and_then(|owners| owners.get(&id));
            flows.retain(|flow| own.is_some_and(|own| own.has_any(std::slice::from_ref(flow))));
        }
        notice
    }

    /// Records senders to this host.
    pub(super) fn record(&mut self, notice: &Notice) {
        match notice {
            Notice::Path { session, sender, traffic, adspec } => {
                self.paths.insert((*session, *sender), (*traffic, *adspec));
            }
            Notice::PathGone { session, sender } => {
                self.paths.remove(&(*session, *sender));
            }
            _ => {}
        }
    }
}

/// An application has no more reservations of a session; others may.
pub(super) fn leave(
    machine: &mut Machine<Kernel>,
    now: Time,
    session: Session,
    rest: Option<Wanted>,
) {
    // What is left was accepted before.
    let kept = rest
        .map(|rest| machine.reserve(now, session, rest.style, &rest.flows, rest.confirm).is_ok());
    if kept != Some(true) {
        machine.release(now, session);
    }
}

impl Ending {
    pub(super) fn end(self, machine: &mut Machine<Kernel>, now: Time) {
        for (session, rest) in self.receivers {
            leave(machine, now, session, rest);
        }
        for (session, sender) in self.senders {
            machine.withdraw(now, session, sender);
        }
    }
}

#[cfg(test)]
mod tests {
    use ontempo_reservation::message::FlowSpec;

    use super::*;

    fn sender(port: u16) -> Sender {
        Sender { address: [192, 0, 2, 1].into(), port }
    }

    /// A reservation for each of these senders.
    fn wanted(ports: &[u16]) -> Wanted {
        let traffic =
            TrafficSpec { rate: 1e4, burst: 4e3, peak: 1e4, smallest: 64, largest: 1_500 };
        let flow = |port: &u16| Descriptor {
            flowspec: FlowSpec::ControlledLoad(traffic),
            filters: vec![sender(*port)],
        };
        let flows = ports.iter().map(flow).collect();
        Wanted { style: Style::FixedFilter, flows, confirm: false }
    }

    #[test]
    fn applications_reserve_for_different_senders_of_a_session_and_hear_of_their_own() {
        let mut owners = Owners::default();
        let session = Session { destination: [192, 0, 2, 2].into(), protocol: 17, port: 9 };
        let ids = Id::some();
        let joined = |owners: &Owners, id, wanted| owners.joined(&session, id, wanted);
        for (id, port) in ids.into_iter().zip(1..) {
            let all = joined(&owners, id, wanted(&[port])).expect("another sender");
            assert_eq!(all.flows.len(), usize::from(port));
            owners.add_receiver(session, id, wanted(&[port]));
        }
        // In place of its own before, but not with the sender of another, or with a style that shares.
        assert_eq!(joined(&owners, ids[0], wanted(&[1, 7])).expect("its own").flows.len(), 4);
        assert!(joined(&owners, ids[0], wanted(&[1, 2])).is_none());
        let shared = Wanted { style: Style::SharedExplicit, ..wanted(&[8]) };
        assert!(joined(&owners, ids[0], shared).is_none());
        let flows = wanted(&[2]).flows;
        let node = sender(2).address;
        let recipients = owners.recipients(&Notice::Confirmed { session, flows, node });
        assert_eq!(recipients, BTreeSet::from([ids[1]]));
        // Of one for all, each is notified of its own flows.
        let flows = wanted(&[1, 2, 3, 9]).flows;
        let all = Notice::Confirmed { session, flows, node };
        assert_eq!(owners.recipients(&all), ids.into());
        let flows = wanted(&[2]).flows;
        assert_eq!(owners.notice_for(&all, ids[1]), Notice::Confirmed { session, flows, node });
        // A style that shares has one application, which is notified of all.
        let group = Session { port: 10, ..session };
        let (flows, shared) =
            (wanted(&[1]).flows, Wanted { style: Style::Wildcard, ..wanted(&[]) });
        owners.add_receiver(group, ids[0], shared);
        let all = Notice::Confirmed { session: group, flows, node };
        assert_eq!(owners.recipients(&all), BTreeSet::from([ids[0]]));
        assert_eq!(owners.notice_for(&all, ids[0]), all);
        owners.remove_receiver(&group, ids[0]);
        assert_eq!(owners.rest(&session, ids[1]).expect("two").flows.len(), 2);
        owners.forget(ids[0]);
        owners.remove_receiver(&session, ids[1]);
        assert!(owners.rest(&session, ids[2]).is_none());
        owners.remove_receiver(&session, ids[2]);
        assert_eq!((owners.receivers.len(), owners.held_by(ids.into_iter())), (0, Held::default()));
    }

    #[test]
    fn what_the_connections_of_a_user_have_is_counted_until_it_ends() {
        let (mut owners, id) = (Owners::default(), Id::FIRST);
        let address = [192, 0, 2, 1].into();
        let session = |port| Session { destination: address, protocol: 17, port };
        let sender = Sender { address, port: 1 };
        for port in 0..100 {
            // A change counts once.
            for _ in 0..2 {
                owners.add_receiver(session(port), id, wanted(&[1]));
                owners.add_sender((session(port), sender), id);
                owners.add_watcher(session(port), id);
            }
        }
        let held = |owners: &Owners| {
            let Held { places, flows } = owners.held_by([id].into_iter());
            (places, flows)
        };
        assert_eq!(held(&owners), (300, 100));
        owners.add_receiver(session(2), id, wanted(&[1, 2, 3]));
        assert_eq!((held(&owners), owners.flows_of(&session(2), id)), ((300, 102), 3));
        owners.remove_receiver(&session(2), id);
        owners.remove_receiver(&session(1), id);
        owners.remove_receiver(&session(1), id);
        owners.remove_sender(&(session(1), sender));
        assert_eq!(held(&owners), (297, 98));
        assert_eq!(owners.forget(id).len(), 100);
        assert_eq!(held(&owners), (0, 0));
    }
}
