use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use ontempo_foundation::{RandomStream, Rate, Time};

use super::admission::Ledger;
use super::boundary::{
    Arrival, ControlRequest, Event, Handle, InterfaceConfig, InterfaceId, Reservation, Routes,
    Transmit,
};
use super::config::Config;
use super::message_ids::MessageIds;
use super::state::{Neighbour, SessionState, TheirId};
use super::timers::{Timer, Timers};
use crate::integrity::Verdict;
use crate::message::{Ack, Body, Cause, Message, Session, Unknown};

/// Events about dropped packets that wait at most; whoever sends rubbish fills no memory.
pub(super) const MAX_EVENTS: usize = 10_000;
/// Reservations of one interface: each takes two of the 2^16 preferences that filters can have.
const MAX_HANDLES: u16 = 0x7ff0;

/// The RSVP of one host or router; see the [module](super).
#[derive(Clone, Debug)]
pub struct Machine<R> {
    pub(super) config: Config,
    pub(super) routes: R,
    pub(super) interfaces: BTreeMap<InterfaceId, Interface>,
    pub(super) sessions: BTreeMap<Session, SessionState>,
    pub(super) timers: Timers,
    pub(super) message_ids: MessageIds,
    pub(super) random: RandomStream,
    pub(super) transmits: VecDeque<Transmit>,
    pub(super) controls: VecDeque<ControlRequest>,
    pub(super) events: VecDeque<Event>,
}

#[derive(Clone, Debug)]
pub(super) struct Interface {
    pub(super) config: InterfaceConfig,
    pub(super) ledger: Ledger,
    pub(super) free_handles: BTreeSet<u16>,
    last_handle: u16,
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

/// How a packet came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) interface: InterfaceId,
    pub(super) source: IpAddr,
    pub(super) ttl: u8,
}

impl Heard {
    /// The neighbour that a message of this hop comes from.
    pub(super) fn neighbour(&self, hop: Option<IpAddr>) -> Neighbour {
        (self.interface, hop.unwrap_or(self.source))
    }

    /// The number of a message of this neighbour.
    pub(super) fn their_id(&self, message: &Message, neighbour: IpAddr) -> Option<TheirId> {
        message.id.map(|id| TheirId { neighbour, epoch: id.epoch, id: id.id })
    }
}

/// How much a node keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Sessions with any state.
    pub sessions: usize,
    /// Senders.
    pub paths: usize,
    /// Flows that next hops or applications have asked for.
    pub reservations: usize,
    /// Reservations that are enforced.
    pub enforced: usize,
    /// Numbers of messages that are remembered, own and neighbours'.
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
            timers: Timers::default(),
            message_ids: MessageIds::new(&mut random),
            random,
            transmits: VecDeque::new(),
            controls: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Speaks RSVP on an interface from now on, with nothing reserved on it; state that could use
    /// it does so at [`Machine::routes_changed`].
    pub fn add_interface(&mut self, id: InterfaceId, config: InterfaceConfig) {
        let ledger = Ledger::new(&config);
        let interface = Interface { config, ledger, free_handles: BTreeSet::new(), last_handle: 0 };
        self.interfaces.insert(id, interface);
    }

    /// The interface is gone, and what was enforced on it with it; [`Machine::routes_changed`]
    /// is to follow. Nothing is asked of its traffic control.
    pub fn remove_interface(&mut self, now: Time, id: InterfaceId) {
        self.interfaces.remove(&id);
        let sessions: Vec<Session> = self.sessions.keys().copied().collect();
        for session in sessions {
            self.edit(session, |machine, state| {
                state.installed.retain(|(by, _), _| *by != id);
                state.reservations.retain(|(by, _), resv| {
                    if *by == id {
                        machine.message_ids.unnote(resv.source);
                    }
                    *by != id
                });
                machine.update(now, &session, state, None);
            });
        }
        self.routes_changed(now);
    }

    /// The node's routes, to be changed; [`Machine::routes_changed`] then has to follow.
    pub fn routes_mut(&mut self) -> &mut R {
        &mut self.routes
    }

    /// Sum of the rates promised on an interface; never more than its reservable share.
    pub fn reserved(&self, id: InterfaceId) -> Rate {
        self.interfaces.get(&id).map_or(Rate::default(), |known| known.ledger.reserved())
    }

    /// What is enforced on an interface.
    pub fn enforced(&self, id: InterfaceId) -> impl Iterator<Item = (Handle, &Reservation)> {
        let installed = self.sessions.values().flat_map(|state| state.installed.iter());
        installed
            .filter(move |((by, _), _)| *by == id)
            .map(|(_, known)| (known.handle, &known.reservation))
    }

    /// How much the node keeps.
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

    /// A packet of protocol 46 has come. What is wrong with it is told as an
    /// [`Event::Dropped`], or to the neighbour as RSVP has it.
    pub fn on_packet(&mut self, now: Time, arrival: Arrival<'_>) {
        let Arrival { interface, source, ttl, payload } = arrival;
        let heard = Heard { interface, source, ttl };
        if !self.interfaces.contains_key(&interface) {
            self.dropped(interface, source, "the interface does not speak RSVP");
            return;
        }
        match Message::decode(payload) {
            Err(error) => self.dropped(interface, source, &error.to_string()),
            Ok(message) => match self.authenticate(now, &heard, &message, payload) {
                Ok(true) => self.dispatch(now, &heard, &message),
                Ok(false) => {}
                Err(reason) => self.dropped(interface, source, &reason),
            },
        }
        self.flush_acks();
    }

    /// Whether the message is to be looked at; challenges and their answers end here.
    fn authenticate(
        &mut self,
        now: Time,
        heard: &Heard,
        message: &Message,
        payload: &[u8],
    ) -> Result<bool, String> {
        let known = self.interfaces.get_mut(&heard.interface);
        let Some(guard) = known.and_then(|known| known.config.guard.as_mut()) else {
            return Ok(true);
        };
        if let Body::Challenge { key, cookie } = &message.body {
            if *key == guard.key_id() {
                let body = Body::Response { key: *key, cookie: cookie.clone() };
                let peer = (heard.interface, heard.source);
                self.send_plain(peer, body);
                self.hasten_summary(now, peer);
            }
            return Ok(false);
        }
        let response = match &message.body {
            Body::Response { cookie, .. } => Some(cookie.as_slice()),
            _ => None,
        };
        let peer = heard.neighbour(hop_of(message));
        match guard.check(now, peer.1, payload, response) {
            Verdict::Accept => Ok(response.is_none()),
            Verdict::Refuse(refusal, challenge) => {
                let key = guard.key_id();
                if let Some(cookie) = challenge {
                    self.transmit_open(peer, &Message::new(Body::Challenge { key, cookie }));
                }
                Err(refusal.to_string())
            }
        }
    }

    fn dispatch(&mut self, now: Time, heard: &Heard, message: &Message) {
        let peer = heard.neighbour(hop_of(message));
        for ack in &message.acks {
            self.on_ack(now, peer, ack);
        }
        if let Some(id) = message.id.filter(|id| id.ack_desired) {
            let ack = Ack { negative: false, epoch: id.epoch, id: id.id };
            self.message_ids.queue_ack(peer, ack);
        }
        if message.unknown.is_some() && !matches!(message.body, Body::Path(_) | Body::Resv(_)) {
            self.dropped(heard.interface, heard.source, "an object of the message is unknown");
            return;
        }
        let taken = match &message.body {
            Body::Path(path) => self.on_path(now, heard, message, path),
            Body::Resv(resv) => self.on_resv(now, heard, message, resv),
            body => {
                self.dispatch_rest(now, heard, message, body);
                Ok(())
            }
        };
        if let Err(reason) = taken {
            self.dropped(heard.interface, heard.source, reason);
        }
    }

    fn dispatch_rest(&mut self, now: Time, heard: &Heard, message: &Message, body: &Body) {
        match body {
            Body::PathErr(error) => self.on_path_err(now, heard, error),
            Body::ResvErr(error) => self.on_resv_err(now, heard, error),
            Body::PathTear(tear) => self.on_path_tear(now, heard, message, tear),
            Body::ResvTear(tear) => self.on_resv_tear(now, heard, message, tear),
            Body::ResvConf(conf) => self.on_resv_conf(now, conf),
            Body::Bundle(messages) => {
                messages.iter().for_each(|message| self.dispatch(now, heard, message));
            }
            Body::Srefresh(refresh) => {
                self.on_srefresh(now, (heard.interface, heard.source), refresh);
            }
            // Without a key here there is nothing to prove.
            Body::Ack | Body::Challenge { .. } | Body::Response { .. } => {}
            Body::Path(_) | Body::Resv(_) => {}
        }
    }

    /// When [`Machine::on_timeout`] is to be called next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Does all that is due by `now`.
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

    /// The next change of what is enforced.
    pub fn poll_control(&mut self) -> Option<ControlRequest> {
        self.controls.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Works on a session's state apart from the node's. Afterwards what is empty is gone, and the
    /// session's timer is set to no later than its next end.
    pub(super) fn edit(
        &mut self,
        session: Session,
        work: impl FnOnce(&mut Self, &mut SessionState),
    ) {
        let Some(mut state) = self.sessions.remove(&session) else { return };
        work(self, &mut state);
        let message_ids = &mut self.message_ids;
        state.reservations.retain(|_, resv| {
            if resv.flows.is_empty() {
                message_ids.unnote(resv.source);
            }
            !resv.flows.is_empty()
        });
        let timer = Timer::Expiry(session);
        if state.is_empty() {
            self.timers.clear(&mut state.expiry_at.0, timer);
            return;
        }
        let ends = state.ends();
        if ends < state.expiry_at.0 {
            self.timers.set(&mut state.expiry_at.0, ends, timer);
        }
        self.sessions.insert(session, state);
    }
}

/// The neighbour that a message names itself.
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

/// How an unknown object is told of (RFC 2205 appendix B).
pub(super) fn unknown_cause(unknown: Unknown) -> Cause {
    if unknown.class_known {
        Cause::UnknownCType(unknown.class, unknown.ctype)
    } else {
        Cause::UnknownClass(unknown.class, unknown.ctype)
    }
}
