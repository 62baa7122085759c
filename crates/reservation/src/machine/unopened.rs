//! Sessions that applications of this node have opened, and the last PATHs for others.
//!
//! By an interface that serves this node's applications alone, anybody can send PATHs for any
//! session. They make no state before an application opens the session. A few are kept, so that
//! an application that opens its session after the sender need not wait for the next refresh.

use std::collections::VecDeque;

use ontempo_foundation::Time;

use super::boundary::{InterfaceId, Routes};
use super::node::{Machine, PacketInfo};
use super::path::weight;
use crate::message::{Body, Message, Path, Session};

/// PATHs kept. Beyond, the oldest goes, and its sender's next refresh replaces it.
const MAX_KEPT: usize = 256;
/// Bytes of the forwarded objects of a PATH that is kept.
const MAX_FORWARDED: usize = 1_024;

#[derive(Clone, Debug, Default)]
pub(super) struct Unopened(VecDeque<Kept>);

#[derive(Clone, Debug)]
struct Kept {
    until: Time,
    packet_info: PacketInfo,
    message: Message,
}

impl Kept {
    fn path(&self) -> Option<&Path> {
        match &self.message.body {
            Body::Path(path) => Some(path),
            _ => None,
        }
    }
}

impl Unopened {
    /// Keeps a PATH in place of the sender's PATH before.
    pub(super) fn keep(&mut self, until: Time, packet_info: &PacketInfo, message: &Message) {
        let kept = Kept { until, packet_info: *packet_info, message: message.clone() };
        let Some(path) = kept.path().filter(|_| weight(&message.forwarded) <= MAX_FORWARDED) else {
            return;
        };
        let key = (path.session, path.sender);
        self.0.retain(|one| one.path().is_none_or(|path| (path.session, path.sender) != key));
        if self.0.len() >= MAX_KEPT {
            self.0.pop_front();
        }
        self.0.push_back(kept);
    }

    fn take(&mut self, now: Time, session: &Session) -> Vec<Kept> {
        let mut taken = Vec::new();
        for one in core::mem::take(&mut self.0) {
            if one.path().is_some_and(|path| path.session == *session) {
                taken.push(one);
            } else {
                self.0.push_back(one);
            }
        }
        taken.retain(|one| one.until > now);
        taken
    }
}

impl<R: Routes> Machine<R> {
    /// An application of this node awaits senders of the session. PATHs for it make state from now
    /// on, also by interfaces without a key in a network that is not trusted.
    pub fn open(&mut self, now: Time, session: Session) {
        self.opened.insert(session);
        self.take_unopened(now, &session);
    }

    /// No application awaits senders of the session any more; its state ends with its cleanup
    /// timeout.
    pub fn close(&mut self, session: Session) {
        self.opened.remove(&session);
    }

    /// Whether an application of this node awaits senders of the session, sends or reserves.
    pub(super) fn is_open(&self, session: &Session) -> bool {
        let local = (InterfaceId::LOCAL, session.destination);
        self.opened.contains(session)
            || self.sessions.get(session).is_some_and(|state| {
                state.reservations.contains_key(&local)
                    || state.paths.values().any(|path| path.incoming == InterfaceId::LOCAL)
            })
    }

    /// Processes the PATHs that came before the session was opened.
    pub(super) fn take_unopened(&mut self, now: Time, session: &Session) {
        for Kept { packet_info, message, .. } in self.unopened.take(now, session) {
            let PacketInfo { interface, source, .. } = packet_info;
            let Body::Path(path) = &message.body else { continue };
            if self.interfaces.contains_key(&interface)
                && let Err(reason) = self.on_path(now, &packet_info, &message, path)
            {
                self.dropped(interface, source, reason);
            }
        }
    }
}
