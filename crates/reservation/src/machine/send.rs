//! Encoding and sending of messages.

use std::net::IpAddr;

use ontempo_foundation::{Duration, Time};

use super::boundary::{Change, Envelope, Event, InterfaceId, NextHop, Routes, Transmit};
use super::message_ids::Owner;
use super::node::{MAX_EVENTS, Machine};
use super::state::{Neighbour, OwnMessageId, PathState, SessionState};
use super::timers::Timer;
use crate::message::{
    AdSpec, Body, Cause, Descriptor, ErrorSpec, Hop, LATENCY_UNKNOWN, Message, MessageId, Path,
    PathErr, PathTear, RawObject, Resv, ResvConf, ResvErr, ResvTear, Sender, Session, Style,
};

impl<R: Routes> Machine<R> {
    /// A random interval between 0.5 R and 1.5 R (RFC 2205 section 3.7).
    pub(super) fn jittered_refresh(&mut self) -> Duration {
        let refresh = self.config.refresh;
        refresh.mul_f64(self.random.uniform_between(0.5, 1.5))
    }

    /// The interface's address of the same family as `other`.
    pub(super) fn address(&self, interface: InterfaceId, other: IpAddr) -> Option<IpAddr> {
        let config = &self.interfaces.get(&interface)?.config;
        config.addresses.iter().copied().find(|address| address.is_ipv4() == other.is_ipv4())
    }

    fn hop(&self, interface: InterfaceId, other: IpAddr) -> Option<Hop> {
        let address = self.address(interface, other)?;
        Some(Hop { address, interface: interface.0 })
    }

    /// Addressed to a neighbour.
    fn envelope(&self, to: Neighbour) -> Option<Envelope> {
        let (interface, destination) = to;
        Some(Envelope {
            interface,
            source: self.address(interface, destination)?,
            destination,
            neighbour: Some(destination),
            router_alert: false,
            ttl: self.config.ttl,
        })
    }

    /// Sends a message, with a MESSAGE_ID where refresh reduction is on; returns that MESSAGE_ID.
    fn send(
        &mut self,
        now: Time,
        envelope: Envelope,
        body: Body,
        forwarded: &[RawObject],
        owner: Option<Owner>,
    ) -> Option<u32> {
        let interface = self.interfaces.get(&envelope.interface)?;
        let numbered = interface.config.refresh_reduction;
        let mut message = Message::new(body);
        message.send_ttl = envelope.ttl;
        message.refresh_reduction = numbered;
        message.forwarded = forwarded.to_vec();
        if numbered {
            let (epoch, id) = (self.message_ids.epoch(), self.message_ids.number());
            message.id = Some(MessageId { ack_desired: true, epoch, id });
        }
        let id = message.id.map(|id| id.id);
        let bytes = match message.encode() {
            Ok(bytes) => bytes,
            Err(error) => {
                self.dropped(envelope.interface, envelope.destination, &error.to_string());
                return None;
            }
        };
        self.transmit(&envelope, &bytes);
        if let Some(id) = id {
            if let Some(owner) = owner {
                self.message_ids.own(id, owner);
            }
            self.await_ack(now, id, envelope, bytes);
        }
        id
    }

    /// Sends a message without MESSAGE_ID to a neighbour.
    pub(super) fn send_message(&mut self, to: Neighbour, message: Message) {
        self.send_sealed_for(to, Some(to.1), message);
    }

    /// Answers a Challenge, with the key that is meant.
    pub(super) fn respond(&mut self, to: Neighbour, sealed_for: Option<IpAddr>, body: Body) {
        self.send_sealed_for(to, sealed_for, Message::new(body));
    }

    fn send_sealed_for(&mut self, to: Neighbour, neighbour: Option<IpAddr>, mut message: Message) {
        let Some(envelope) = self.envelope(to) else { return };
        let envelope = Envelope { neighbour, ..envelope };
        message.send_ttl = envelope.ttl;
        message.refresh_reduction =
            self.interfaces.get(&to.0).is_some_and(|known| known.config.refresh_reduction);
        if let Ok(bytes) = message.encode() {
            self.transmit(&envelope, &bytes);
        }
    }

    pub(super) fn send_plain(&mut self, to: Neighbour, body: Body) {
        self.send_message(to, Message::new(body));
    }

    /// Seals the message, where the interface has a key, and queues it. A retransmission is sealed
    /// anew, so that it is no replay.
    pub(super) fn transmit(&mut self, envelope: &Envelope, bytes: &[u8]) {
        let own = self.address(envelope.interface, envelope.destination);
        let Some(interface) = self.interfaces.get_mut(&envelope.interface) else { return };
        let payload = match &mut interface.config.guard {
            None => bytes.to_vec(),
            Some(guard) => match own.and_then(|own| guard.seal(own, envelope.neighbour, bytes)) {
                Some(sealed) => sealed,
                None => {
                    let (by, to) = (envelope.interface, envelope.destination);
                    self.dropped(by, to, "there is no key for a message to this address");
                    return;
                }
            },
        };
        self.transmits.push_back(Transmit {
            interface: envelope.interface,
            source: envelope.source,
            destination: envelope.destination,
            router_alert: envelope.router_alert,
            ttl: envelope.ttl,
            payload,
        });
    }

    /// A challenge is not sealed (RFC 2747 section 4.3).
    pub(super) fn transmit_open(&mut self, to: Neighbour, message: &Message) {
        let Some(envelope) = self.envelope(to) else { return };
        let Ok(payload) = message.encode() else { return };
        let Envelope { interface, source, destination, router_alert, ttl, .. } = envelope;
        self.transmits.push_back(Transmit {
            interface,
            source,
            destination,
            router_alert,
            ttl,
            payload,
        });
    }

    /// PATH and PathTear have the addresses of the flow's packets, to follow their route.
    fn downstream(
        &self,
        path: &PathState,
        sender: &Sender,
        session: &Session,
        next: NextHop,
    ) -> Option<(Envelope, Hop)> {
        let ttl = match path.incoming {
            InterfaceId::LOCAL => self.config.ttl,
            _ => path.ttl.checked_sub(1).filter(|&ttl| ttl > 0)?,
        };
        let envelope = Envelope {
            interface: next.interface,
            source: sender.address,
            destination: session.destination,
            // A group's neighbours must all be able to check the seal.
            neighbour: (!session.destination.is_multicast()).then_some(next.gateway),
            router_alert: true,
            ttl,
        };
        Some((envelope, self.hop(next.interface, session.destination)?))
    }

    /// Sends a sender's PATH by one outgoing interface, or by all.
    pub(super) fn send_path(
        &mut self,
        now: Time,
        session: &Session,
        state: &mut SessionState,
        sender: &Sender,
        only: Option<InterfaceId>,
    ) {
        let Some(path) = state.paths.get_mut(sender) else { return };
        for next in path.outgoing.clone() {
            let by = next.interface;
            if by == InterfaceId::LOCAL || only.is_some_and(|only| only != by) {
                continue;
            }
            let mut ours = path.sent.remove(&by).unwrap_or_default();
            self.forget(&mut ours);
            let Some((envelope, hop)) = self.downstream(path, sender, session, next) else {
                continue;
            };
            let body = Body::Path(Path {
                session: *session,
                hop,
                refresh: self.config.refresh,
                sender: *sender,
                traffic: path.traffic,
                adspec: path.adspec.map(|adspec| self.advertise(by, adspec, path.non_rsvp_hop())),
            });
            let owner = Owner::Path(*session, *sender, by);
            ours.id = self.send(now, envelope, body, &path.forwarded, Some(owner));
            path.sent.insert(by, ours);
        }
    }

    /// PATH refresh: sent in full where no neighbour has acknowledged its MESSAGE_ID.
    pub(super) fn refresh_path(
        &mut self,
        now: Time,
        session: &Session,
        state: &mut SessionState,
        sender: &Sender,
    ) {
        let Some(path) = state.paths.get(sender) else { return };
        let unkept: Vec<InterfaceId> = path
            .outgoing
            .iter()
            .map(|hop| hop.interface)
            .filter(|by| path.sent.get(by).is_none_or(|ours| ours.acked_by.is_none()))
            .collect();
        for by in unkept {
            self.send_path(now, session, state, sender, Some(by));
        }
        let at = now + self.jittered_refresh();
        if let Some(path) = state.paths.get_mut(sender) {
            self.timers.set(&mut path.refresh_at, at, Timer::Path(*session, *sender));
        }
    }

    /// ADSPEC with this node's and the link's contribution (RFC 2210 section 3.3, RFC 2212).
    fn advertise(&self, by: InterfaceId, adspec: AdSpec, non_rsvp_hop: bool) -> AdSpec {
        let Some(interface) = self.interfaces.get(&by) else { return adspec };
        let config = &interface.config;
        let bandwidth = (config.rate.as_bits_per_sec() as f64 / 8.0) as f32;
        let latency = match config.latency {
            Some(latency) if adspec.latency != LATENCY_UNKNOWN => {
                adspec.latency.saturating_add(micros(latency))
            }
            _ => LATENCY_UNKNOWN,
        };
        let guaranteed = adspec.guaranteed.map(|mut ad| {
            ad.broken |= non_rsvp_hop || config.guaranteed.is_none();
            if let Some(terms) = config.guaranteed {
                let c = u32::try_from(terms.c.get()).unwrap_or(u32::MAX);
                let d = micros(terms.d);
                ad.c_total = ad.c_total.saturating_add(c);
                ad.d_total = ad.d_total.saturating_add(d);
                ad.c_since = ad.c_since.saturating_add(c);
                ad.d_since = ad.d_since.saturating_add(d);
            }
            ad
        });
        AdSpec {
            broken: adspec.broken || non_rsvp_hop,
            hops: adspec.hops.saturating_add(1),
            bandwidth: adspec.bandwidth.min(bandwidth),
            latency,
            mtu: adspec.mtu.min(config.mtu),
            guaranteed,
            controlled_load_broken: adspec
                .controlled_load_broken
                .map(|broken| broken || non_rsvp_hop),
        }
    }

    /// Sends PathTear to these next hops.
    pub(super) fn send_path_tear(
        &mut self,
        now: Time,
        session: &Session,
        sender: &Sender,
        path: &PathState,
        hops: &[NextHop],
    ) {
        for next in hops {
            if let Some((mut envelope, hop)) = self.downstream(path, sender, session, *next) {
                // No route leads there any more: for the session's destination the system would look on
                // the old link itself. The old next hop has to do, which is the next node where that has
                // RSVP.
                if !path.outgoing.contains(next) {
                    envelope.destination = next.gateway;
                }
                let tear = PathTear { session: *session, hop, sender: *sender };
                self.send(now, envelope, Body::PathTear(tear), &[], None);
            }
        }
    }

    /// Sends the RESV of the session's upstream state to a previous hop.
    pub(super) fn send_resv(
        &mut self,
        now: Time,
        session: &Session,
        state: &mut SessionState,
        previous: Neighbour,
        confirm: Option<IpAddr>,
    ) {
        let at = now + self.jittered_refresh();
        let Some(up) = state.upstream.get_mut(&previous) else { return };
        let timer = Timer::Resv(*session, previous.0, previous.1);
        self.timers.set(&mut up.refresh_at, at, timer);
        let Some(envelope) = self.envelope(previous) else { return };
        let body = Body::Resv(Resv {
            session: *session,
            // RSVP_HOP: this node's address with the LIH from the previous hop's PATH (section
            // 3.1.4).
            hop: Hop { address: envelope.source, interface: up.handle },
            refresh: self.config.refresh,
            confirm,
            scope: Vec::new(),
            style: up.style,
            flows: up.flows.iter().map(|requested| requested.marked.clone()).collect(),
        });
        if let Some(receiver) = confirm {
            let until = now + self.config.lifetime(self.config.refresh);
            up.confirms.ask(now, receiver, until);
        }
        self.forget(&mut up.sent);
        up.sent.id = self.send(now, envelope, body, &[], Some(Owner::Resv(*session, previous)));
    }

    /// RESV refresh: sent in full unless the neighbour has acknowledged its MESSAGE_ID.
    pub(super) fn refresh_resv(
        &mut self,
        now: Time,
        session: &Session,
        state: &mut SessionState,
        previous: Neighbour,
    ) {
        let at = now + self.jittered_refresh();
        let Some(up) = state.upstream.get_mut(&previous) else { return };
        if up.sent.acked_by.is_none() {
            self.send_resv(now, session, state, previous, None);
        } else {
            let timer = Timer::Resv(*session, previous.0, previous.1);
            self.timers.set(&mut up.refresh_at, at, timer);
        }
    }

    pub(super) fn send_resv_tear(
        &mut self,
        now: Time,
        session: &Session,
        previous: Neighbour,
        handle: u32,
        style: Style,
        filters: Vec<Sender>,
    ) {
        let Some(envelope) = self.envelope(previous) else { return };
        let tear = ResvTear {
            session: *session,
            hop: Hop { address: envelope.source, interface: handle },
            scope: Vec::new(),
            style,
            filters,
        };
        self.send(now, envelope, Body::ResvTear(tear), &[], None);
    }

    /// Whether an application gets a notice of an error that came by this interface: a neighbour must not
    /// fill what applications have not read.
    fn may_notify_error(&mut self, now: Time, drawn_by: InterfaceId) -> bool {
        let drawing = self.interfaces.get_mut(&drawn_by);
        drawing.is_none_or(|known| known.error_notices.take(now))
    }

    /// Sends ResvErr to a next hop, or an event to an application; `drawn_by` is the interface by
    /// which the error came, or [`InterfaceId::LOCAL`].
    pub(super) fn send_resv_err(
        &mut self,
        now: Time,
        (session, drawn_by): (&Session, InterfaceId),
        next: Neighbour,
        style: Style,
        flow: Descriptor,
        error: ErrorSpec,
    ) {
        if next.0 == InterfaceId::LOCAL {
            if !self.may_notify_error(now, drawn_by) {
                return;
            }
            self.events.push_back(Event::ResvError { session: *session, flow, error });
            return;
        }
        let Some(envelope) = self.envelope(next) else { return };
        if !self.may_send_error(now, next) {
            return;
        }
        let hop = Hop { address: envelope.source, interface: next.0.0 };
        let scope = Vec::new();
        let body = ResvErr { session: *session, hop, error, scope, style, flow };
        self.send(now, envelope, Body::ResvErr(body), &[], None);
    }

    /// Answers a refused RESV with a ResvErr, sent once: no state is kept for an address that may
    /// be forged. One that is lost is sent again at the next refresh of the RESV.
    pub(super) fn refuse_resv(
        &mut self,
        now: Time,
        next: Neighbour,
        resv: &Resv,
        flow: Descriptor,
        error: ErrorSpec,
    ) {
        let Some(address) = self.address(next.0, next.1) else { return };
        self.refused(&resv.session, next, error.cause);
        if self.may_send_error(now, next) {
            let hop = Hop { address, interface: next.0.0 };
            let (session, style, scope) = (resv.session, resv.style, Vec::new());
            let body = ResvErr { session, hop, error, scope, style, flow };
            self.send_plain(next, Body::ResvErr(body));
        }
    }

    /// Answers a refused PATH with a PathErr, sent once.
    pub(super) fn refuse_path(&mut self, now: Time, previous: Neighbour, body: PathErr) {
        self.refused(&body.session, previous, body.error.cause);
        if self.may_send_error(now, previous) {
            self.send_plain(previous, Body::PathErr(body));
        }
    }

    fn refused(&mut self, session: &Session, (by, neighbour): Neighbour, cause: Cause) {
        let session = *session;
        self.changed(Change::Refused { session, neighbour, by, cause });
    }

    /// Tells the operator.
    pub(super) fn changed(&mut self, change: Change) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(Event::Changed(change));
        }
    }

    fn may_send_error(&mut self, now: Time, to: Neighbour) -> bool {
        self.interfaces.get_mut(&to.0).is_some_and(|known| known.errors.take(now))
    }

    /// Sends PathErr to a previous hop, or an event to an application, as of a ResvErr.
    pub(super) fn send_path_err(
        &mut self,
        now: Time,
        drawn_by: InterfaceId,
        previous: Neighbour,
        body: PathErr,
    ) {
        if previous.0 == InterfaceId::LOCAL {
            if !self.may_notify_error(now, drawn_by) {
                return;
            }
            let PathErr { session, sender, error, .. } = body;
            self.events.push_back(Event::PathError { session, sender, error });
            return;
        }
        if let Some(envelope) = self.envelope(previous)
            && self.may_send_error(now, previous)
        {
            self.send(now, envelope, Body::PathErr(body), &[], None);
        }
    }

    /// Sends ResvConf to the address in RESV_CONFIRM, which may be forged: only by an interface that
    /// the session has a reservation of, and at a rate for each interface that draws them.
    pub(super) fn send_resv_conf(
        &mut self,
        now: Time,
        drawn_by: InterfaceId,
        state: &SessionState,
        conf: ResvConf,
    ) {
        let drawing = self.interfaces.get_mut(&drawn_by);
        if !drawing.is_some_and(|known| known.confirmations.take(now)) {
            return;
        }
        let is_reserved = |by: InterfaceId| state.reservations.keys().any(|next| next.0 == by);
        if self.is_ours(conf.confirm) {
            if !is_reserved(InterfaceId::LOCAL) {
                return;
            }
            let ResvConf { session, flows, error, .. } = conf;
            self.events.push_back(Event::Confirmed { session, flows, node: error.node });
            return;
        }
        let Some(next) = self.routes.towards(conf.confirm, conf.error.node).first().copied() else {
            return;
        };
        if !is_reserved(next.interface) {
            return;
        }
        let Some(source) = self.address(next.interface, conf.confirm) else { return };
        let envelope = Envelope {
            interface: next.interface,
            source,
            destination: conf.confirm,
            neighbour: Some(next.gateway),
            router_alert: true,
            ttl: self.config.ttl,
        };
        self.send(now, envelope, Body::ResvConf(conf), &[], None);
    }

    /// The ERROR_SPEC of an error found by this node.
    pub(super) fn error(&self, towards: Neighbour, session: &Session, cause: Cause) -> ErrorSpec {
        let node = self.address(towards.0, session.destination);
        let any =
            || self.interfaces.values().flat_map(|known| known.config.addresses.iter().copied());
        let same = |address: &IpAddr| address.is_ipv4() == session.destination.is_ipv4();
        let node = node.or_else(|| any().find(same)).unwrap_or(session.destination);
        ErrorSpec { node, in_place: false, not_guilty: false, cause }
    }

    pub(super) fn dropped(&mut self, interface: InterfaceId, source: IpAddr, reason: &str) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(Event::Dropped { interface, source, reason: reason.into() });
        }
    }

    /// Ends the MESSAGE_IDs of a path's messages.
    pub(super) fn forget_all(&mut self, ids: impl Iterator<Item = OwnMessageId>) {
        ids.for_each(|mut ours| self.forget(&mut ours));
    }
}

fn micros(span: Duration) -> u32 {
    u32::try_from(span.as_nanos().div_ceil(1000)).unwrap_or(LATENCY_UNKNOWN - 1)
}
