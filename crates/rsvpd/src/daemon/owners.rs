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

    /// Forgets a connection; returns the sessions that nobody watches any more.
    pub(super) fn forget(&mut self, id: Id) -> Vec<Session> {
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
