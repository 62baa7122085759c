use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use ontempo_foundation::{RandomStream, Rate, Time};

use super::admission::AdmissionControl;
use super::boundary::{
    Arrival, Change, ControlRequest, Event, Handle, InterfaceConfig, InterfaceId, Reservation,
    Routes, Transmit,
};
use super::config::Config;
use super::message_ids::MessageIds;
use super::shares::Usage;
use super::state::{Neighbour, NeighbourMessageId, SessionState};
use super::timers::{Timer, Timers};
use super::unopened::Unopened;
use crate::integrity::{Audience, Verdict};
use crate::message::{Ack, Body, Cause, Message, Session, Unknown};

/// Queued events about dropped packets, at most: invalid packets must not fill the memory.
pub(super) const MAX_EVENTS: usize = 10_000;
/// Reservations of one interface: each takes two of the 2^16 preferences that filters can have.
const MAX_HANDLES: u16 = 0x7ff0;

/// PathErr and ResvErr that one interface sends, and ResvConf that what comes by it draws: mean
/// rate and burst.
const MAX_PER_SECOND: u64 = 100;
const MAX_BURST: u64 = 200;

/// The RSVP of one host or router; see the [module](super).
#[derive(Clone, Debug)]
pub struct Machine<R> {
    pub(super) config: Config,
    pub(super) routes: R,
    pub(super) interfaces: BTreeMap<InterfaceId, Interface>,
    pub(super) sessions: BTreeMap<Session, SessionState>,
    pub(super) session_usage: Usage,
    pub(super) sender_usage: Usage,
    /// Flow descriptors of the sessions that are not being edited.
    pub(super) flow_count: usize,
    /// Sessions whose senders applications of this node await.
    pub(super) opened: BTreeSet<Session>,
    pub(super) unopened: Unopened,
    pub(super) timers: Timers,
    pub(super) message_ids: MessageIds,
    pub(super) random: RandomStream,
    /// Bytes of forwarded objects in all path state.
    pub(super) forwarded_bytes: usize,
    /// Refused RESVs and PATHs so far.
    pub(super) refusals: usize,
    pub(super) transmits: VecDeque<Transmit>,
    pub(super) controls: VecDeque<ControlRequest>,
    pub(super) events: VecDeque<Event>,
    /// When neighbours were heard last.
    heard: BTreeMap<Neighbour, Time>,
    /// Until then state of before a restart is asked for.
    pub(super) recovers_until: Time,
}

#[derive(Clone, Debug)]
pub(super) struct Interface {
    pub(super) config: InterfaceConfig,
    pub(super) admission: AdmissionControl,
    pub(super) errors: Budget,
    pub(super) confirmations: Budget,
    /// Errors that come by it and of which applications get a notice.
    pub(super) error_notices: Budget,
    pub(super) free_handles: BTreeSet<u16>,
    last_handle: u16,
}

/// A token bucket of messages: whoever sends requests under other addresses must not make this node
/// send to them without bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    tokens: u64,
    filled: Time,
}

impl Default for Budget {
    fn default() -> Self {
        Self { tokens: MAX_BURST, filled: Time::ZERO }
    }
}

impl Budget {
    /// Takes a token; false where there is none.
    pub(super) fn take(&mut self, now: Time) -> bool {
        let new = now.since(self.filled).as_nanos() / (1_000_000_000 / MAX_PER_SECOND);
        if new > 0 {
            self.tokens = self.tokens.saturating_add(new).min(MAX_BURST);
            self.filled = now;
        }
        let has_one = self.tokens > 0;
        self.tokens -= u64::from(has_one);
        has_one
    }
}

impl Interface {
    pub(super) fn take_handle(&mut self) -> Option<Handle> {
        if let Some(handle) = self.free_handles.pop_first() {
            return Some(Handle(handle));
        }
        (self.last_handle < MAX_HANDLES).then(|| {
            self.last_handle += 1;
            Handle(self.last_handle)
        })
    }
}

/// Incoming interface, source and TTL of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketInfo {
    pub(super) interface: InterfaceId,
    pub(super) source: IpAddr,
    pub(super) ttl: u8,
}

impl PacketInfo {
    /// The neighbour by its RSVP_HOP; by the source address of a message without one.
    pub(super) fn neighbour(&self, hop: Option<IpAddr>) -> Neighbour {
        (self.interface, hop.unwrap_or(self.source))
    }

    /// The MESSAGE_ID of a message whose RSVP_HOP has this address.
    pub(super) fn message_id_of(
        &self,
        message: &Message,
        hop: IpAddr,
    ) -> Option<NeighbourMessageId> {
        let neighbour = (self.interface, hop);
        message.id.map(|id| NeighbourMessageId { neighbour, epoch: id.epoch, id: id.id })
    }
}

/// The number of each kind of state of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Sessions with any state.
    pub sessions: usize,
    /// Senders.
    pub paths: usize,
    /// Flow descriptors of all reservation state.
    pub reservations: usize,
    /// Reservations that are enforced.
    pub enforced: usize,
    /// Unacknowledged messages and MESSAGE_IDs, own and neighbours'.
    pub numbers: usize,
}

impl<R: Routes> Machine<R> {
    /// A node without interfaces or state. `random` gives jitter and the epoch; after a restart it
    /// must be another one than before.
    pub fn new(config: Config, routes: R, mut random: RandomStream) -> Self {
        Self {
            config,
            routes,
            interfaces: BTreeMap::new(),
            sessions: BTreeMap::new(),
            session_usage: Usage::default(),
            sender_usage: Usage::default(),
            flow_count: 0,
            opened: BTreeSet::new(),
            unopened: Unopened::default(),
            timers: Timers::default(),
            message_ids: MessageIds::new(&mut random),
            random,
            forwarded_bytes: 0,
            refusals: 0,
            transmits: VecDeque::new(),
            controls: VecDeque::new(),
            events: VecDeque::new(),
            heard: BTreeMap::new(),
            recovers_until: Time::ZERO,
        }
    }

    /// Enables RSVP on an interface. State uses it after the next [`Machine::routes_changed`].
    pub fn add_interface(&mut self, id: InterfaceId, config: InterfaceConfig) {
        let admission = AdmissionControl::new(&config);
        let interface = Interface {
            config,
            admission,
            errors: Budget::default(),
            confirmations: Budget::default(),
            error_notices: Budget::default(),
            free_handles: BTreeSet::new(),
            last_handle: 0,
        };
        self.interfaces.insert(id, interface);
    }

    /// The node's routes; after a change [`Machine::routes_changed`] must be called.
    pub fn routes_mut(&mut self) -> &mut R {
        &mut self.routes
    }

    /// Sum of the rates reserved on an interface, at most its reservable rate.
    pub fn reserved(&self, id: InterfaceId) -> Rate {
        self.interfaces.get(&id).map_or(Rate::default(), |known| known.admission.reserved())
    }

    /// The reservations installed on an interface.
    pub fn enforced(&self, id: InterfaceId) -> impl Iterator<Item = (Handle, &Reservation)> {
        let installed = self.sessions.values().flat_map(|state| state.installed.iter());
        installed
            .filter(move |((by, _), _)| *by == id)
            .map(|(_, known)| (known.handle, &known.reservation))
    }

    /// Neighbours whose messages have counted, and when the last one came; of the number that the
    /// limits have, those that were heard last.
    pub fn neighbours(&self) -> impl Iterator<Item = (InterfaceId, IpAddr, Time)> {
        self.heard.iter().map(|((by, address), at)| (*by, *address, *at))
    }

    fn heard_of(&mut self, now: Time, peer: Neighbour) {
        let is_full = self.heard.len() >= self.config.limits.neighbours.max(1);
        if is_full && !self.heard.contains_key(&peer) {
            let oldest = self.heard.iter().min_by_key(|(_, at)| **at).map(|(peer, _)| *peer);
            oldest.and_then(|peer| self.heard.remove(&peer));
        }
        self.heard.insert(peer, now);
    }

    /// The number of each kind of state of the node.
    pub fn census(&self) -> Census {
        let mut census = Census { numbers: self.message_ids.kept(), ..Census::default() };
        for state in self.sessions.values() {
            census.sessions += 1;
            census.paths += state.paths.len();
            census.reservations +=
                state.reservations.values().map(|resv| resv.flows.len()).sum::<usize>();
            census.enforced += state.installed.len();
        }
        census
    }

    /// Processes a packet of IP protocol 46. An invalid one gives an [`Event::Dropped`] or a
    /// PathErr or ResvErr to the neighbour.
    pub fn on_packet(&mut self, now: Time, arrival: Arrival<'_>) {
        let Arrival { interface, source, ttl, payload } = arrival;
        let packet_info = PacketInfo { interface, source, ttl };
        if !self.interfaces.contains_key(&interface) {
            self.dropped(interface, source, "RSVP is not configured on the interface");
            return;
        }
        match Message::decode(payload) {
            Err(error) => self.dropped(interface, source, &error.to_string()),
            Ok(message) => {
                let known = self.check_sender(&packet_info, &message).map_err(str::to_owned);
                match known.and_then(|()| self.authenticate(now, &packet_info, &message, payload)) {
                    Ok(true) => self.dispatch(now, &packet_info, &message),
                    Ok(false) => {}
                    Err(reason) => self.dropped(interface, source, &reason),
                }
            }
        }
        self.flush_acks();
    }

    /// Answers go to the sender's address: it must be one that another host can have.
    fn check_sender(
        &self,
        packet_info: &PacketInfo,
        message: &Message,
    ) -> Result<(), &'static str> {
        let parts = match &message.body {
            Body::Bundle(parts) => parts.as_slice(),
            _ => &[],
        };
        for one in core::iter::once(message).chain(parts) {
            let (_, address) = packet_info.neighbour(hop_of(one));
            if self.is_ours(address) {
                return Err("a message of this node has come back in a loop");
            }
            if !is_of_host(address) {
                return Err("its sender's address is no host's");
            }
        }
        Ok(())
    }

    /// Whether the message is to be processed; Challenge and Response end here.
    fn authenticate(
        &mut self,
        now: Time,
        packet_info: &PacketInfo,
        message: &Message,
        payload: &[u8],
    ) -> Result<bool, String> {
        let incoming = packet_info.interface;
        let mut guarded = BTreeSet::from([incoming]);
        named_interfaces(message, &mut guarded);
        guarded.retain(|id| self.is_guarded(*id));
        if guarded.is_empty() {
            return Ok(true);
        }
        if let Body::Challenge { key, cookie } = &message.body {
            self.on_challenge(now, packet_info, *key, cookie);
            return Ok(false);
        }
        let peer = packet_info.neighbour(hop_of(message));
        let audience = audience_of(message);
        // One seal is of one sender (RFC 2747 section 2.1).
        if let Body::Bundle(parts) = &message.body
            && parts.iter().any(|part| packet_info.neighbour(hop_of(part)) != peer)
        {
            return Err("a part of the bundle is another node's than the bundle".to_owned());
        }
        let response = match &message.body {
            Body::Response { cookie, .. } => Some(cookie.as_slice()),
            _ => None,
        };
        for id in guarded {
            let interface = self.interfaces.get_mut(&id);
            let Some(guard) = interface.and_then(|known| known.config.guard.as_mut()) else {
                continue;
            };
            // An answer has the key of the question.
            let asked = |audience| guard.receiving_id(peer.1, audience);
            let audience = match &message.body {
                Body::Response { key, .. } if asked(Audience::Many) == Some(*key) => Audience::Many,
                _ => audience,
            };
            match guard.check(now, (peer.1, audience), payload, response) {
                Verdict::Accept => {}
                Verdict::Refuse(refusal, _) if id != incoming => {
                    return Err(format!("{refusal}, of the interface that its RSVP_HOP names"));
                }
                Verdict::Refuse(refusal, challenge) => {
                    let key = guard.receiving_id(peer.1, audience);
                    if let Some((cookie, key)) = challenge.zip(key) {
                        self.transmit_open(peer, &Message::new(Body::Challenge { key, cookie }));
                    }
                    return Err(refusal.to_string());
                }
            }
        }
        Ok(response.is_none())
    }

    /// Answers a Challenge for the key that this node sends with.
    fn on_challenge(&mut self, now: Time, packet_info: &PacketInfo, key: u64, cookie: &[u8]) {
        let peer = (packet_info.interface, packet_info.source);
        let own = self.address(peer.0, peer.1);
        let interface = self.interfaces.get(&peer.0);
        let guard = interface.and_then(|known| known.config.guard.as_ref());
        let challenged = own.zip(guard).and_then(|(own, guard)| guard.challenged(own, peer.1, key));
        if let Some(sealed_for) = challenged {
            self.respond(peer, sealed_for, Body::Response { key, cookie: cookie.to_vec() });
            self.hasten_summary(now, peer);
        }
    }

    /// Whether messages on the interface must be sealed.
    pub(super) fn is_guarded(&self, id: InterfaceId) -> bool {
        self.interfaces.get(&id).is_some_and(|known| known.config.guard.is_some())
    }

    /// Whether a message on one interface would change state of another one that has a key.
    pub(super) fn bypasses(&self, incoming: InterfaceId, of_state: InterfaceId) -> bool {
        incoming != of_state && self.is_guarded(of_state)
    }

    fn dispatch(&mut self, now: Time, packet_info: &PacketInfo, message: &Message) {
        let peer = packet_info.neighbour(hop_of(message));
        self.heard_of(now, peer);
        for ack in &message.acks {
            self.on_ack(now, peer, ack);
        }
        if let Some(id) = message.id.filter(|id| id.ack_desired) {
            let ack = Ack { negative: false, epoch: id.epoch, id: id.id };
            self.message_ids.queue_ack(peer, ack);
        }
        if message.unknown.is_some() && !matches!(message.body, Body::Path(_) | Body::Resv(_)) {
            self.dropped(
                packet_info.interface,
                packet_info.source,
                "an object of the message is unknown",
            );
            return;
        }
        let taken = match &message.body {
            Body::Path(path) => self.on_path(now, packet_info, message, path),
            Body::Resv(resv) => self.on_resv(now, packet_info, message, resv),
            Body::PathErr(error) => self.on_path_err(now, packet_info, error),
            Body::ResvConf(conf) => self.on_resv_conf(now, packet_info, conf),
            body => {
                self.dispatch_rest(now, packet_info, message, body);
                Ok(())
            }
        };
        if let Err(reason) = taken {
            self.dropped(packet_info.interface, packet_info.source, reason);
        }
    }

    fn dispatch_rest(
        &mut self,
        now: Time,
        packet_info: &PacketInfo,
        message: &Message,
        body: &Body,
    ) {
        match body {
            Body::ResvErr(error) => self.on_resv_err(now, packet_info, error),
            Body::PathTear(tear) => self.on_path_tear(now, packet_info, message, tear),
            Body::ResvTear(tear) => self.on_resv_tear(now, packet_info, message, tear),
            Body::Bundle(messages) => {
                messages.iter().for_each(|message| self.dispatch(now, packet_info, message));
            }
            Body::Srefresh(refresh) => {
                self.on_srefresh(now, (packet_info.interface, packet_info.source), refresh);
            }
            // Without a key on this interface there is no security association to prove.
            Body::Ack | Body::Challenge { .. } | Body::Response { .. } => {}
            Body::Path(_) | Body::Resv(_) | Body::PathErr(_) | Body::ResvConf(_) => {}
        }
    }

    /// When [`Machine::on_timeout`] is to be called next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Processes all timers due by `now`.
    pub fn on_timeout(&mut self, now: Time) {
        while let Some(timer) = self.timers.due(now) {
            match timer {
                Timer::Path(session, sender) => {
                    self.edit(session, |machine, state| {
                        if let Some(path) = state.paths.get_mut(&sender) {
                            path.refresh_at = Time::NEVER;
                        }
                        machine.refresh_path(now, &session, state, &sender);
                    });
                }
                Timer::Resv(session, interface, address) => {
                    self.edit(session, |machine, state| {
                        let previous = (interface, address);
                        if let Some(up) = state.upstream.get_mut(&previous) {
                            up.refresh_at = Time::NEVER;
                        }
                        machine.refresh_resv(now, &session, state, previous);
                    });
                }
                Timer::Expiry(session) => {
                    if let Some(state) = self.sessions.get_mut(&session) {
                        state.expiry_at.0 = Time::NEVER;
                    }
                    self.expire(now, session);
                }
                Timer::Retransmit(id) => self.on_retransmit(now, id),
                Timer::Summary(interface, address) => self.on_summary(now, (interface, address)),
            }
        }
    }

    /// The next packet to be sent.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next change of the installed reservations.
    pub fn poll_control(&mut self) -> Option<ControlRequest> {
        self.controls.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Changes the state of a session, taken out of the node's for this. Afterwards empty state is
    /// removed, and the cleanup timer is set to the next cleanup timeout of the session.
    pub(super) fn edit(
        &mut self,
        session: Session,
        work: impl FnOnce(&mut Self, &mut SessionState),
    ) {
        let Some(mut state) = self.sessions.remove(&session) else { return };
        self.flow_count -= state.flow_count();
        work(self, &mut state);
        let message_ids = &mut self.message_ids;
        let mut ended = Vec::new();
        state.reservations.retain(|(by, next), resv| {
            if resv.flows.is_empty() {
                message_ids.remove_received(resv.source);
                ended.push(Change::ResvEnded { session, next: *next, by: *by });
            }
            !resv.flows.is_empty()
        });
        ended.into_iter().for_each(|change| self.changed(change));
        self.flow_count += state.flow_count();
        let timer = Timer::Expiry(session);
        if state.is_empty() {
            self.timers.clear(&mut state.expiry_at.0, timer);
            if let Some(by) = state.opened_by {
                self.session_usage.remove(by);
            }
            return;
        }
        let ends = state.ends();
        if ends < state.expiry_at.0 {
            self.timers.set(&mut state.expiry_at.0, ends, timer);
        }
        self.sessions.insert(session, state);
    }
}

/// Adds the interfaces whose state a message changes by its LIH: those of RESV and ResvTear.
fn named_interfaces(message: &Message, found: &mut BTreeSet<InterfaceId>) {
    match &message.body {
        Body::Resv(resv) => {
            found.insert(InterfaceId(resv.hop.interface));
        }
        Body::ResvTear(tear) => {
            found.insert(InterfaceId(tear.hop.interface));
        }
        Body::Bundle(messages) => {
            messages.iter().for_each(|message| named_interfaces(message, found));
        }
        _ => {}
    }
}

/// For whom a message is: PATH and PathTear to a multicast group have many receivers.
fn audience_of(message: &Message) -> Audience {
    let session = match &message.body {
        Body::Path(path) => path.session,
        Body::PathTear(tear) => tear.session,
        _ => return Audience::One,
    };
    if session.destination.is_multicast() { Audience::Many } else { Audience::One }
}

/// The address in the RSVP_HOP object, which all messages but some have.
fn hop_of(message: &Message) -> Option<IpAddr> {
    match &message.body {
        Body::Path(path) => Some(path.hop.address),
        Body::Resv(resv) => Some(resv.hop.address),
        Body::ResvErr(error) => Some(error.hop.address),
        Body::PathTear(tear) => Some(tear.hop.address),
        Body::ResvTear(tear) => Some(tear.hop.address),
        _ => None,
    }
}

/// Whether another host can have the address: no group, broadcast, loopback or unspecified one.
pub fn is_of_host(address: IpAddr) -> bool {
    !(address.is_multicast()
        || address.is_loopback()
        || address.is_unspecified()
        || address == IpAddr::V4(Ipv4Addr::BROADCAST))
}

/// The error of an unknown object (RFC 2205 appendix B).
pub(super) fn unknown_cause(unknown: Unknown) -> Cause {
    if unknown.class_known {
        Cause::UnknownCType(unknown.class, unknown.ctype)
    } else {
        Cause::UnknownClass(unknown.class, unknown.ctype)
    }
}
