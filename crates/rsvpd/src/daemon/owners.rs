//! The senders and reservations of each application connection.

use std::collections::{BTreeMap, BTreeSet};

use ontempo_foundation::Time;
use ontempo_reservation::local::Notice;
use ontempo_reservation::machine::Machine;
use ontempo_reservation::message::{AdSpec, Sender, Session, TrafficSpec};

use crate::applications::Id;
use crate::routes::Kernel;

/// Senders, receivers and subscriptions by their connection.
#[derive(Default)]
pub(super) struct Owners {
    pub(super) senders: BTreeMap<(Session, Sender), Id>,
    pub(super) receivers: BTreeMap<Session, Id>,
    pub(super) watchers: BTreeSet<(Session, Id)>,
    /// How many of the three each connection has.
    held: BTreeMap<Id, usize>,
    /// Senders to this host, for later subscribers.
    pub(super) paths: BTreeMap<(Session, Sender), (TrafficSpec, Option<AdSpec>)>,
}

/// Senders and reservations to end.
#[derive(Default)]
pub(super) struct Ending {
    senders: Vec<(Session, Sender)>,
    receivers: Vec<Session>,
}

impl Owners {
    /// The senders and reservations of one application, or of all.
    pub(super) fn all_of(&self, id: Option<Id>) -> Ending {
        let is = |owner: &Id| id.is_none_or(|id| *owner == id);
        let senders = self.senders.iter().filter(|(_, owner)| is(owner));
        let receivers = self.receivers.iter().filter(|(_, owner)| is(owner));
        Ending {
            senders: senders.map(|(key, _)| *key).collect(),
            receivers: receivers.map(|(key, _)| *key).collect(),
        }
    }

    pub(super) fn add_sender(&mut self, sender: (Session, Sender), id: Id) {
        let is_new = self.senders.insert(sender, id).is_none();
        *self.held.entry(id).or_default() += usize::from(is_new);
    }

    pub(super) fn add_receiver(&mut self, session: Session, id: Id) {
        let is_new = self.receivers.insert(session, id).is_none();
        *self.held.entry(id).or_default() += usize::from(is_new);
    }

    pub(super) fn add_watcher(&mut self, session: Session, id: Id) {
        let is_new = self.watchers.insert((session, id));
        *self.held.entry(id).or_default() += usize::from(is_new);
    }

    pub(super) fn remove_sender(&mut self, sender: &(Session, Sender)) {
        let owner = self.senders.remove(sender);
        self.release(owner);
    }

    pub(super) fn remove_receiver(&mut self, session: &Session) {
        let owner = self.receivers.remove(session);
        self.release(owner);
    }

    fn release(&mut self, owner: Option<Id>) {
        if let Some(held) = owner.and_then(|id| self.held.get_mut(&id)) {
            *held -= 1;
        }
    }

    /// Senders, reservations and watched sessions of these connections.
    pub(super) fn held_by(&self, ids: impl Iterator<Item = Id>) -> usize {
        ids.filter_map(|id| self.held.get(&id)).sum()
    }

    /// Forgets a connection; returns the sessions that nobody watches any more.
    pub(super) fn forget(&mut self, id: Id) -> Vec<Session> {
        self.held.remove(&id);
        self.senders.retain(|_, owner| *owner != id);
        self.receivers.retain(|_, owner| *owner != id);
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
            Notice::ResvError { .. } | Notice::Confirmed { .. } => {
                self.receivers.get(session).copied().into_iter().collect()
            }
        }
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

impl Ending {
    pub(super) fn end(self, machine: &mut Machine<Kernel>, now: Time) {
        for session in self.receivers {
            machine.release(now, session);
        }
        for (session, sender) in self.senders {
            machine.withdraw(now, session, sender);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_connections_of_a_user_have_is_counted_until_it_ends() {
        let (mut owners, id) = (Owners::default(), Id::FIRST);
        let address = [192, 0, 2, 1].into();
        let session = |port| Session { destination: address, protocol: 17, port };
        let sender = Sender { address, port: 1 };
        for port in 0..100 {
            // A change counts once.
            for _ in 0..2 {
                owners.add_receiver(session(port), id);
                owners.add_sender((session(port), sender), id);
                owners.add_watcher(session(port), id);
            }
        }
        assert_eq!(owners.held_by([id].into_iter()), 300);
        owners.remove_receiver(&session(1));
        owners.remove_receiver(&session(1));
        owners.remove_sender(&(session(1), sender));
        assert_eq!(owners.held_by([id].into_iter()), 298);
        assert_eq!(owners.forget(id).len(), 100);
        assert_eq!(owners.held_by([id].into_iter()), 0);
    }
}
