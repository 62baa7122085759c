//! Processing of PATH, PathTear and PathErr (RFC 2209 section 2).

use std::collections::BTreeMap;
use std::net::IpAddr;

use ontempo_foundation::{Duration, Time};

use super::admission::consistent;
use super::boundary::{Change, Event, InterfaceId, NextHop, Routes};
use super::message_ids::is_stale;
use super::node::{Machine, PacketInfo, unknown_cause};
use super::state::{Neighbour, NeighbourMessageId, PathState, RefreshedState, SessionState};
use super::timers::Timer;
use crate::message::{
    AdSpec, Cause, Hop, Message, Path, PathErr, PathTear, RawObject, Sender, Session, TrafficSpec,
    class,
};

/// The contents of a PATH, or of an application's request to send.
pub(super) struct PathUpdate {
    pub(super) incoming: InterfaceId,
    pub(super) hop: Hop,
    pub(super) traffic: TrafficSpec,
    pub(super) adspec: Option<AdSpec>,
    pub(super) forwarded: Vec<RawObject>,
    pub(super) ttl: u8,
    pub(super) send_ttl: u8,
    pub(super) period: Duration,
    pub(super) expires: Time,
    pub(super) source: Option<NeighbourMessageId>,
}

impl<R: Routes> Machine<R> {
    pub(super) fn on_path(
        &mut self,
        now: Time,
        packet_info: &PacketInfo,
        message: &Message,
        path: &Path,
    ) -> Result<(), &'static str> {
        let Path { session, hop, sender, traffic, .. } = path;
        if self.is_ours(sender.address) {
            return Err("a PATH of this node has come back in a loop");
        }
        let incoming = packet_info.interface;
        if self.takes_from_guarded(session, sender, incoming) {
            return Err(NOT_BY_ITS_KEY);
        }
        // The routes are asked last: it costs a system call.
        if !self.serves_others(incoming) && self.is_transit(session, sender, incoming) {
            return Err(NOT_TRUSTED);
        }
        let period = self.config.bounded_period(path.refresh);
        let expires = now + self.config.lifetime(period);
        if !self.serves_others(incoming) && !self.is_open(session) {
            self.unopened.keep(expires, packet_info, message);
            return Err(NOT_OPENED);
        }
        let previous = (incoming, hop.address);
        let refusal = if !consistent(traffic) {
            Some(Cause::BadTspec)
        } else {
            message.unknown.map(unknown_cause).or_else(|| self.port_conflict(session, sender))
        };
        let refusal = refusal.or_else(|| self.path_limit(session, sender, previous));
        let cause = refusal.or_else(|| self.budget_limit(session, sender, &message.forwarded));
        if let Some(cause) = cause {
            let error = self.error(previous, session, cause);
            let (session, sender, traffic) = (*session, *sender, *traffic);
            self.refuse_path(now, previous, PathErr { session, error, sender, traffic });
            return Ok(());
        }
        let path_update = PathUpdate {
            incoming: packet_info.interface,
            hop: *hop,
            traffic: *traffic,
            adspec: path.adspec,
            forwarded: message.forwarded.clone(),
            ttl: packet_info.ttl,
            send_ttl: message.send_ttl,
            period,
            expires,
            source: packet_info.message_id_of(message, hop.address),
        };
        self.ensure_session(session, previous);
        self.edit(*session, |machine, state| {
            machine.take_path(now, session, state, sender, path_update);
        });
        Ok(())
    }

    /// Whether a PATH by an interface without a key would replace one that came by an interface with
    /// a key. Only the end of that one lets it: a PathTear with the key, or the cleanup timeout. A
    /// sealed PATH by another interface with a key is a route change, and taken at once.
    fn takes_from_guarded(
        &self,
        session: &Session,
        sender: &Sender,
        incoming: InterfaceId,
    ) -> bool {
        let state = self.sessions.get(session);
        let path = state.and_then(|state| state.paths.get(sender));
        !self.is_guarded(incoming) && path.is_some_and(|path| self.is_guarded(path.incoming))
    }

    /// Whether the flow is forwarded, and not for this node alone.
    fn is_transit(&self, session: &Session, sender: &Sender, incoming: InterfaceId) -> bool {
        let hops = self.outgoing_hops(session, sender, incoming);
        hops.iter().any(|hop| hop.interface != InterfaceId::LOCAL)
    }

    /// Whether what comes by this interface may make state for other nodes' flows.
    pub(super) fn serves_others(&self, interface: InterfaceId) -> bool {
        self.config.trust_network || self.is_guarded(interface)
    }

    /// RFC 2205 section 3.2: sessions and senders with and without ports do not mix.
    pub(super) fn port_conflict(&self, session: &Session, sender: &Sender) -> Option<Cause> {
        if self.destination_conflicts(session) {
            return Some(Cause::ConflictingDestinationPorts);
        }
        let state = self.sessions.get(session)?;
        let mixed = state.paths.keys().any(|other| {
            other.address == sender.address && (other.port == 0) != (sender.port == 0)
        });
        mixed.then_some(Cause::ConflictingSenderPorts)
    }

    /// Whether another session to this destination has ports and this one has none, or the reverse.
    pub(super) fn destination_conflicts(&self, session: &Session) -> bool {
        let zero = Session { port: 0, ..*session };
        let last = Session { port: u16::MAX, ..*session };
        let conflicts = |other: &Session| (other.port == 0) != (session.port == 0);
        // With port 0 sorted first, a conflict is at one of the range's ends.
        let mut range = self.sessions.range(zero..=last);
        let ends = [range.next(), range.next_back()];
        ends.into_iter().flatten().any(|(other, _)| conflicts(other))
    }

    /// The error for a new sender beyond the limits.
    pub(super) fn path_limit(
        &self,
        session: &Session,
        sender: &Sender,
        previous: Neighbour,
    ) -> Option<Cause> {
        let limits = &self.config.limits;
        let full = match self.sessions.get(session) {
            Some(state) if state.paths.contains_key(sender) => return None,
            Some(state) => state.paths.len() >= limits.senders,
            None => self.session_usage.is_full(limits.sessions, previous),
        };
        let full = full || self.sender_usage.is_full(limits.all_senders, previous);
        full.then_some(Cause::System(TOO_MANY))
    }

    /// Creates the session where there is none; it counts as the neighbour's.
    pub(super) fn ensure_session(&mut self, session: &Session, by: Neighbour) {
        self.sessions.entry(*session).or_insert_with(|| {
            self.session_usage.add(by);
            SessionState { opened_by: Some(by), ..SessionState::default() }
        });
    }

    /// The error for a PATH whose forwarded objects exceed the budget of all paths.
    fn budget_limit(
        &self,
        session: &Session,
        sender: &Sender,
        forwarded: &[RawObject],
    ) -> Option<Cause> {
        let path = self.sessions.get(session).and_then(|state| state.paths.get(sender));
        let old = path.map_or(0, |path| weight(&path.forwarded));
        let new = weight(forwarded);
        let exceeds = self.forwarded_bytes - old + new > self.config.forwarded_bytes;
        (exceeds && new > old).then_some(Cause::System(TOO_MANY))
    }

    /// Creates or updates the path state of a sender; forwards PATH at once where it has changed.
    pub(super) fn take_path(
        &mut self,
        now: Time,
        session: &Session,
        state: &mut SessionState,
        sender: &Sender,
        new: PathUpdate,
    ) {
        let outgoing = self.outgoing_hops(session, sender, new.incoming);
        let limits = (self.config.limits.neighbours, self.config.limits.states);
        let refreshed_state = RefreshedState::Path(*session, *sender);
        let source = new.source;
        let forwarded = weight(&new.forwarded);
        let (changed, moved) = match state.paths.get_mut(sender) {
            Some(path) => {
                if is_stale(path.source, source) {
                    return;
                }
                let changed = path.differs(&new);
                self.forwarded_bytes -= weight(&path.forwarded);
                self.sender_usage.remove(path.previous());
                path.replace(new);
                self.sender_usage.add(path.previous());
                if changed {
                    path.changed = now;
                }
                (changed, outgoing != path.outgoing)
            }
            None => {
                let path = Box::new(PathState::of(now, new, outgoing.clone()));
                let (session, (by, previous)) = (*session, path.previous());
                self.changed(Change::Path { session, sender: *sender, previous, by });
                self.sender_usage.add(path.previous());
                state.paths.insert(*sender, path);
                (true, false)
            }
        };
        self.forwarded_bytes += forwarded;
        if let Some(path) = state.paths.get_mut(sender)
            && (path.source != source || source.is_none())
        {
            self.message_ids.record_received(&mut path.source, source, refreshed_state, limits);
        }
        if changed || moved {
            self.reroute(now, session, state, sender, outgoing);
            self.notify_path(session, state, sender);
            self.update(now, session, state, None);
        }
    }

    /// Sends PATH along the present route; the reservation on the old route stays for a while.
    fn reroute(
        &mut self,
        now: Time,
        session: &Session,
        state: &mut SessionState,
        sender: &Sender,
        outgoing: Vec<NextHop>,
    ) {
        let Some(path) = state.paths.get_mut(sender) else { return };
        if path.outgoing != outgoing {
            let old = core::mem::replace(&mut path.outgoing, outgoing);
            let is_left = |by: &InterfaceId| path.outgoing.iter().all(|hop| hop.interface != *by);
            let left: Vec<NextHop> =
                old.into_iter().filter(|hop| is_left(&hop.interface)).collect();
            let unused: Vec<InterfaceId> = path.sent.keys().copied().filter(is_left).collect();
            let ids: Vec<_> = unused.iter().filter_map(|by| path.sent.remove(by)).collect();
            if !left.is_empty() {
                path.old_route = Some((left, now + self.config.refresh));
            }
            self.forget_all(ids.into_iter());
        }
        self.send_path(now, session, state, sender, None);
        let at = now + self.jittered_refresh();
        if let Some(path) = state.paths.get_mut(sender) {
            self.timers.set(&mut path.refresh_at, at, Timer::Path(*session, *sender));
        }
    }

    fn notify_path(&mut self, session: &Session, state: &SessionState, sender: &Sender) {
        let Some(path) = state.paths.get(sender) else { return };
        if path.outgoing.iter().any(|hop| hop.interface == InterfaceId::LOCAL) {
            let (session, sender, traffic, adspec) = (*session, *sender, path.traffic, path.adspec);
            self.events.push_back(Event::Path { session, sender, traffic, adspec });
        }
    }

    /// The outgoing interfaces of a sender's flow, without the incoming one (a routing loop).
    fn outgoing_hops(
        &self,
        session: &Session,
        sender: &Sender,
        incoming: InterfaceId,
    ) -> Vec<NextHop> {
        let gateway = session.destination;
        if self.is_ours(gateway) {
            return vec![NextHop { interface: InterfaceId::LOCAL, gateway }];
        }
        let mut hops = self.routes.towards(gateway, sender.address);
        hops.retain(|hop| {
            hop.interface != incoming && self.interfaces.contains_key(&hop.interface)
        });
        hops
    }

    /// Routes or interfaces have changed: PATH is sent along each new route at once (local repair,
    /// RFC 2205 section 3.6).
    pub fn routes_changed(&mut self, now: Time) {
        let sessions: Vec<Session> = self.sessions.keys().copied().collect();
        for session in sessions {
            self.edit(session, |machine, state| {
                let senders: Vec<Sender> = state.paths.keys().copied().collect();
                for sender in senders {
                    let Some(path) = state.paths.get(&sender) else { continue };
                    let outgoing = machine.outgoing_hops(&session, &sender, path.incoming);
                    if outgoing != path.outgoing {
                        machine.reroute(now, &session, state, &sender, outgoing);
                        machine.notify_path(&session, state, &sender);
                        machine.update(now, &session, state, None);
                    }
                }
            });
        }
        self.flush_acks();
    }

    pub(super) fn on_path_tear(
        &mut self,
        now: Time,
        packet_info: &PacketInfo,
        message: &Message,
        tear: &PathTear,
    ) {
        let previous = (packet_info.interface, tear.hop.address);
        let message_id = packet_info.message_id_of(message, tear.hop.address);
        self.edit(tear.session, |machine, state| {
            // A PathTear of the old route does not end the state of the new one.
            let matches = state.paths.get(&tear.sender).is_some_and(|path| {
                path.previous() == previous && !is_stale(path.source, message_id)
            });
            if matches {
                machine.end_path(now, &tear.session, state, &tear.sender);
                machine.update(now, &tear.session, state, None);
            }
        });
    }

    /// Removes the path state of a sender and sends PathTear downstream.
    pub(super) fn end_path(
        &mut self,
        now: Time,
        session: &Session,
        state: &mut SessionState,
        sender: &Sender,
    ) {
        let Some(mut path) = state.paths.remove(sender) else { return };
        self.changed(Change::PathEnded { session: *session, sender: *sender });
        self.sender_usage.remove(path.previous());
        self.forwarded_bytes -= weight(&path.forwarded);
        self.timers.clear(&mut path.refresh_at, Timer::Path(*session, *sender));
        self.message_ids.remove_received(path.source.take());
        let mut hops = path.outgoing.clone();
        if hops.iter().any(|hop| hop.interface == InterfaceId::LOCAL) {
            self.events.push_back(Event::PathGone { session: *session, sender: *sender });
        }
        hops.extend(path.old_route.take().into_iter().flat_map(|(old, _)| old));
        let ids = core::mem::take(&mut path.sent);
        self.forget_all(ids.into_values());
        self.send_path_tear(now, session, sender, &path, &hops);
    }

    pub(super) fn on_path_err(
        &mut self,
        now: Time,
        packet_info: &PacketInfo,
        error: &PathErr,
    ) -> Result<(), &'static str> {
        if matches!(error.error.cause, Cause::UnknownClass(class::MESSAGE_ID, _)) {
            // A neighbour without RFC 2961 on this interface: MESSAGE_ID is no longer sent (section
            // 2).
            if let Some(interface) = self.interfaces.get_mut(&packet_info.interface) {
                interface.config.refresh_reduction = false;
            }
        }
        let state = self.sessions.get(&error.session);
        let path = state.and_then(|state| state.paths.get(&error.sender));
        if let Some(path) = path.filter(|path| path.reaches(packet_info.interface)) {
            let previous = path.previous();
            if previous.0 != InterfaceId::LOCAL && !self.serves_others(packet_info.interface) {
                return Err(NOT_TRUSTED);
            }
            self.send_path_err(now, packet_info.interface, previous, error.clone());
        }
        Ok(())
    }

    /// Whether the address is one of this node's.
    pub(super) fn is_ours(&self, address: IpAddr) -> bool {
        self.interfaces.values().any(|known| known.config.addresses.contains(&address))
    }
}

/// What objects take of the budget: their bytes, and those of the list that holds them.
pub(super) fn weight(objects: &[RawObject]) -> usize {
    objects.iter().map(|object| size_of::<RawObject>() + object.body.len()).sum()
}

/// Value of error 23 where a limit is reached.
pub(super) const TOO_MANY: u16 = 2;
/// Why a message for another node's flow is dropped.
pub(super) const NOT_TRUSTED: &str = "the interface has no key and the network is not trusted: \
                                      only this host's applications are served";
/// Why a PATH is dropped that would redirect state of a neighbour with a key.
const NOT_BY_ITS_KEY: &str =
    "the interface has no key, and the sender's path is by a neighbour with a key";
/// Why a PATH is dropped that no application of this node awaits.
const NOT_OPENED: &str = "the interface has no key and no application of this host has opened the \
                          session";

impl PathState {
    fn of(now: Time, new: PathUpdate, outgoing: Vec<NextHop>) -> Self {
        let PathUpdate { incoming, hop, traffic, adspec, forwarded, .. } = new;
        Self {
            incoming,
            hop,
            traffic,
            adspec,
            forwarded,
            ttl: new.ttl,
            send_ttl: new.send_ttl,
            period: new.period,
            expires: new.expires,
            outgoing,
            old_route: None,
            refresh_at: Time::NEVER,
            sent: BTreeMap::new(),
            source: None,
            blockade: None,
            changed: now,
        }
    }

    /// Whether the change must be forwarded.
    fn differs(&self, new: &PathUpdate) -> bool {
        let non_rsvp_hop = new.send_ttl != new.ttl;
        (self.incoming, self.hop, self.traffic, self.adspec, self.non_rsvp_hop())
            != (new.incoming, new.hop, new.traffic, new.adspec, non_rsvp_hop)
            || self.forwarded != new.forwarded
            // In a routing loop the TTL falls with each round, until the PATH is dropped.
            || self.ttl != new.ttl
    }

    fn replace(&mut self, new: PathUpdate) {
        let PathUpdate { incoming, hop, traffic, adspec, forwarded, .. } = new;
        let moved = (self.incoming, self.hop.address) != (incoming, hop.address);
        if moved {
            self.blockade = None;
        }
        (self.incoming, self.hop, self.traffic, self.adspec) = (incoming, hop, traffic, adspec);
        (self.forwarded, self.ttl, self.send_ttl) = (forwarded, new.ttl, new.send_ttl);
        (self.period, self.expires) = (new.period, new.expires);
    }
}
