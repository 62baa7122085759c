//! Processing of RESV, ResvTear, ResvErr and ResvConf (RFC 2209 section 2).

use std::collections::{BTreeMap, BTreeSet};

use ontempo_foundation::Time;

use super::admission::acceptable;
use super::boundary::{Change, Handle, InterfaceId, Routes};
use super::message_ids::is_stale;
use super::node::{Machine, PacketInfo, unknown_cause};
use super::path::{NOT_TRUSTED, TOO_MANY};
use super::shares::of_neighbours;
use super::state::{
    Flow, FlowId, Neighbour, PathState, RefreshedState, ResvState, SessionState, flow_id,
};
use crate::message::{
    Cause, Dclass, Descriptor, ErrorSpec, FlowSpec, Marked, Message, Resv, ResvConf, ResvErr,
    ResvTear, Sender, Session, Style,
};

impl<R: Routes> Machine<R> {
    pub(super) fn on_resv(
        &mut self,
        now: Time,
        packet_info: &PacketInfo,
        message: &Message,
        resv: &Resv,
    ) -> Result<(), &'static str> {
        let by = InterfaceId(resv.hop.interface);
        if !self.interfaces.contains_key(&by) {
            return Err("a RESV names an interface that this node does not have");
        }
        let next = (by, resv.hop.address);
        let is_trusted = self.serves_others(packet_info.interface) && self.serves_others(by);
        let of_own_senders = if is_trusted { None } else { self.of_own_senders(resv, by)? };
        let asked = resv;
        let resv = of_own_senders.as_ref().unwrap_or(asked);
        let known = self.sessions.get(&resv.session).is_some_and(|state| !state.paths.is_empty());
        let refusal = match message.unknown {
            Some(unknown) => Some(unknown_cause(unknown)),
            None => (!known).then_some(Cause::NoPath),
        };
        if refusal == Some(Cause::NoPath) && self.recovers(now) {
            return Err("a RESV after a restart is here before its PATH; it is asked for again");
        }
        if let Some(cause) = refusal {
            if let Some(flow) = resv.flows.first() {
                let error = self.error(next, &resv.session, cause);
                self.refuse_resv(now, next, resv, flow.descriptor.clone(), error);
            }
            return Ok(());
        }
        let message_id = packet_info.message_id_of(message, resv.hop.address);
        self.edit(resv.session, |machine, state| {
            if is_stale(state.reservations.get(&next).and_then(|known| known.source), message_id) {
                return;
            }
            let (changed, accepted) = machine.take_resv(now, state, next, resv);
            if let Some(known) = state.reservations.get_mut(&next) {
                known.ttls = (packet_info.ttl, message.send_ttl);
                // A refused RESV leaves no state, so that its MESSAGE_ID must not refresh any. Neither must one
                // of whose senders not all have a PATH yet: it is to come again in full when they have.
                let filters = asked.flows.iter().flat_map(|flow| &flow.descriptor.filters);
                let has_path =
                    |sender| state.paths.get(sender).is_some_and(|path| path.reaches(by));
                let is_whole =
                    accepted.len() == resv.flows.len() && filters.into_iter().all(has_path);
                let message_id = message_id.filter(|_| is_whole);
                let named: BTreeSet<FlowId> =
                    accepted.iter().map(|flow| flow_id(resv.style, flow)).collect();
                for (id, flow) in &mut known.flows {
                    flow.is_of_source = named.contains(id);
                }
                known.whole = known.named();
                if known.source != message_id {
                    let limits = (machine.config.limits.neighbours, machine.config.limits.states);
                    let announced = RefreshedState::Resv(resv.session, next);
                    machine.message_ids.record_received(
                        &mut known.source,
                        message_id,
                        announced,
                        limits,
                    );
                }
            }
            if changed {
                let (session, (by, next)) = (resv.session, next);
                machine.changed(Change::Resv { session, next, by });
            }
            let sent = changed && machine.update(now, &resv.session, state, resv.confirm);
            // What is reserved, though others of its flows are refused: they may be of other
            // applications.
            if let Some(confirm) = resv.confirm.filter(|_| !accepted.is_empty() && !sent) {
                let error = machine.error(next, &resv.session, Cause::Confirmed);
                let flows = accepted.into_iter().cloned().collect();
                let (session, style) = (resv.session, resv.style);
                let conf = ResvConf { session, error, confirm, style, flows };
                machine.send_resv_conf(now, packet_info.interface, state, conf);
            }
        });
        Ok(())
    }

    /// What a RESV by an interface that serves this node's applications alone asks for their flows;
    /// `None` stands for all of it.
    fn of_own_senders(&self, resv: &Resv, by: InterfaceId) -> Result<Option<Resv>, &'static str> {
        let Some(state) = self.sessions.get(&resv.session) else { return Ok(None) };
        let is_own = |path: &PathState| path.incoming == InterfaceId::LOCAL;
        let is_transit = |path: &PathState| !is_own(path) && path.reaches(by);
        if !state.paths.is_empty() && !state.paths.values().any(|path| is_own(path)) {
            return Err(NOT_TRUSTED);
        }
        if !state.paths.values().any(|path| is_transit(path)) {
            return Ok(None);
        }
        // A wildcard cannot be narrowed.
        if resv.style == Style::Wildcard {
            return Err(NOT_TRUSTED);
        }
        let mut own = resv.clone();
        for Marked { descriptor: flow, .. } in &mut own.flows {
            flow.filters.retain(|sender| state.paths.get(sender).is_some_and(|path| is_own(path)));
        }
        own.flows.retain(|flow| !flow.descriptor.filters.is_empty());
        if own.flows.is_empty() { Err(NOT_TRUSTED) } else { Ok(Some(own)) }
    }

    /// Merges a RESV into the state; returns whether something changed, and the flow descriptors that
    /// were accepted.
    fn take_resv<'a>(
        &mut self,
        now: Time,
        state: &mut SessionState,
        next: Neighbour,
        resv: &'a Resv,
    ) -> (bool, Vec<&'a Descriptor>) {
        if let Err(cause) = self.resv_fits(state, next, resv) {
            if let Some(flow) = resv.flows.first() {
                let error = self.error(next, &resv.session, cause);
                self.refuse_resv(now, next, resv, flow.descriptor.clone(), error);
            }
            return (false, Vec::new());
        }
        let period = self.config.bounded_period(resv.refresh);
        let expires = now + self.config.lifetime(period);
        let (mut changed, mut accepted, mut refused) = (false, Vec::new(), Vec::new());
        if state.reservations.get(&next).is_some_and(|known| known.style != resv.style) {
            let old = state.reservations.remove(&next);
            self.message_ids.remove_received(old.and_then(|old| old.source));
            changed = true;
        }
        let known = state.reservations.entry(next).or_insert_with(|| {
            Box::new(ResvState {
                style: resv.style,
                flows: BTreeMap::new(),
                source: None,
                whole: 0,
                period,
                ttls: (0, 0),
                confirm: None,
            })
        });
        known.period = period;
        for marked in &resv.flows {
            let descriptor = &marked.descriptor;
            match self.take_flow(now, state, next, resv, marked, expires) {
                Ok(new) => {
                    changed |= new;
                    accepted.push(descriptor);
                }
                Err((cause, in_place)) => {
                    let error = ErrorSpec { in_place, ..self.error(next, &resv.session, cause) };
                    refused.push((descriptor, error));
                }
            }
        }
        // One error for a RESV, whatever it has; its refreshes get those of the others in turn.
        if !refused.is_empty() {
            let (descriptor, error) = refused[self.refusals % refused.len()];
            self.refusals = self.refusals.wrapping_add(1);
            self.refuse_resv(now, next, resv, descriptor.clone(), error);
        }
        (changed, accepted)
    }

    /// Checks the style and the number of next hops.
    fn resv_fits(&self, state: &SessionState, next: Neighbour, resv: &Resv) -> Result<(), Cause> {
        let other = state.reservations.iter().find(|(hop, known)| {
            **hop != next && !known.flows.is_empty() && known.style != resv.style
        });
        if let Some((_, known)) = other {
            return Err(Cause::ConflictingStyle(known.style as u16));
        }
        let full = state.reservations.len() >= self.config.limits.next_hops;
        if full && !state.reservations.contains_key(&next) {
            return Err(Cause::System(TOO_MANY));
        }
        Ok(())
    }

    /// Applies one flow descriptor; returns whether it is new or different. Where it is refused,
    /// the flow descriptor before it stays and is refreshed by this message (RFC 2205 section 3.5:
    /// InPlace).
    fn take_flow(
        &mut self,
        now: Time,
        state: &mut SessionState,
        next: Neighbour,
        resv: &Resv,
        Marked { descriptor, dclass }: &Marked,
        expires: Time,
    ) -> Result<bool, (Cause, bool)> {
        let by = next.0;
        let interface = self.interfaces.get(&by).ok_or((Cause::System(0), false))?;
        let fits = acceptable(&descriptor.flowspec, &interface.config);
        let reached =
            |sender: &Sender| state.paths.get(sender).is_some_and(|path| path.reaches(by));
        let filters: BTreeSet<Sender> =
            descriptor.filters.iter().copied().filter(reached).collect();
        let any = match resv.style {
            Style::Wildcard => state.paths.values().any(|path| path.reaches(by)),
            _ => !filters.is_empty(),
        };
        let flow_id = flow_id(resv.style, descriptor);
        // Otherwise whoever can send a RESV could have a host's packets go ahead of routing protocols.
        let (dclass, unmarkable) = (dclass.and(Dclass::MARKABLE), dclass.without(Dclass::MARKABLE));
        let flowspec = descriptor.flowspec;
        let (is_of_source, changed) = (false, now);
        let flow = Flow { flowspec, filters, dclass, unmarkable, expires, is_of_source, changed };
        let (flows_elsewhere, flows_here) = (self.flow_count, state.flow_count());
        let Some(known) = state.reservations.get_mut(&next) else { return Ok(false) };
        let before = known.flows.get_mut(&flow_id).map(|before| {
            before.expires = expires;
            before.clone()
        });
        let in_place = before.is_some();
        if !any {
            return Err((Cause::NoSender, in_place));
        }
        fits.map_err(|cause| (cause, in_place))?;
        if !in_place && flows_elsewhere + flows_here >= of_neighbours(self.config.limits.all_flows)
        {
            return Err((Cause::System(TOO_MANY), false));
        }
        if before.as_ref().is_some_and(|before| before.is_equal_to(&flow)) {
            return Ok(false);
        }
        known.flows.insert(flow_id, flow);
        let Err(cause) = self.install(&resv.session, state, by, flow_id) else {
            let was_so = before.is_some_and(|before| before.unmarkable == unmarkable);
            if !unmarkable.is_empty() && !was_so {
                let (session, (by, next), dscps) = (resv.session, next, unmarkable);
                self.changed(Change::Unmarkable { session, next, by, dscps });
            }
            return Ok(true);
        };
        if let Some(known) = state.reservations.get_mut(&next) {
            match before {
                Some(before) => known.flows.insert(flow_id, before),
                None => known.flows.remove(&flow_id),
            };
        }
        Err((cause, in_place))
    }

    #[allow(clippy::too_many_arguments)] // one message's parts
    fn refuse(
        &mut self,
        now: Time,
        session: &Session,
        next: Neighbour,
        style: Style,
        flow: Descriptor,
        cause: Cause,
        in_place: bool,
    ) {
        let error = ErrorSpec { in_place, ..self.error(next, session, cause) };
        self.send_resv_err(now, (session, InterfaceId::LOCAL), next, style, flow, error);
    }

    pub(super) fn on_resv_tear(
        &mut self,
        now: Time,
        packet_info: &PacketInfo,
        message: &Message,
        tear: &ResvTear,
    ) {
        let next = (InterfaceId(tear.hop.interface), tear.hop.address);
        let message_id = packet_info.message_id_of(message, tear.hop.address);
        self.edit(tear.session, |machine, state| {
            let Some(known) = state.reservations.get_mut(&next) else { return };
            if known.style != tear.style || is_stale(known.source, message_id) {
                return;
            }
            match tear.style {
                Style::Wildcard => known.flows.clear(),
                Style::FixedFilter => tear.filters.iter().for_each(|sender| {
                    known.flows.remove(&Some(*sender));
                }),
                Style::SharedExplicit => known.flows.retain(|_, flow| {
                    flow.filters.retain(|sender| !tear.filters.contains(sender));
                    !flow.filters.is_empty()
                }),
            }
            machine.update(now, &tear.session, state, None);
        });
    }

    /// A reservation failed upstream: creates blockade state, and forwards the ResvErr to the next
    /// hops with a flowspec of at least that size (RFC 2205 section 3.5).
    pub(super) fn on_resv_err(&mut self, now: Time, packet_info: &PacketInfo, failed: &ResvErr) {
        let previous = (packet_info.interface, failed.hop.address);
        let until = now + self.config.blockade();
        let refused = failed.flow.flowspec;
        let admission = failed.error.cause.is_admission();
        self.edit(failed.session, |machine, state| {
            let mut matching: BTreeSet<Sender> = BTreeSet::new();
            for (sender, path) in &mut state.paths {
                let named = failed.style == Style::Wildcard || failed.flow.filters.contains(sender);
                if named && path.previous() == previous {
                    matching.insert(*sender);
                    if admission {
                        path.blockade = Some((refused, until));
                    }
                }
            }
            if matching.is_empty() {
                return;
            }
            for (next, style, flow) in matching_descriptors(state, &matching) {
                let is_guilty = !admission || !is_smaller(&flow.flowspec, &refused);
                if is_guilty || next.0 == InterfaceId::LOCAL {
                    let error = ErrorSpec { not_guilty: !is_guilty, ..failed.error };
                    let drawn = (&failed.session, packet_info.interface);
                    machine.send_resv_err(now, drawn, next, style, flow, error);
                }
            }
            if admission {
                machine.update(now, &failed.session, state, None);
            }
        });
    }

    /// Takes a ResvConf from the neighbour whom this node has asked for it, by its interface.
    pub(super) fn on_resv_conf(
        &mut self,
        now: Time,
        packet_info: &PacketInfo,
        conf: &ResvConf,
    ) -> Result<(), &'static str> {
        let asked = (packet_info.interface, packet_info.source);
        let state = self.sessions.get(&conf.session);
        let up = state.and_then(|state| state.upstream.get(&asked));
        if !up.is_some_and(|up| up.confirms.is_asked(now, conf.confirm)) {
            return Err(NOT_ASKED);
        }
        self.edit(conf.session, |machine, state| {
            machine.send_resv_conf(now, packet_info.interface, state, conf.clone());
        });
        Ok(())
    }

    /// The system's traffic control has refused a request: the reservation is removed, and its next
    /// hops get a ResvErr (code 22).
    pub fn control_failed(&mut self, now: Time, by: InterfaceId, handle: Handle, value: u16) {
        let holds = |state: &SessionState| {
            let mut there = state.installed.iter();
            there.find(|((at, _), known)| *at == by && known.handle == handle).map(|(key, _)| *key)
        };
        let mut sessions = self.sessions.iter();
        let found = sessions.find_map(|(session, state)| Some((*session, holds(state)?)));
        let Some((session, (_, flow_id))) = found else { return };
        self.edit(session, |machine, state| {
            let mut affected = Vec::new();
            for (next, resv) in &mut state.reservations {
                let Some(flow) = (next.0 == by).then(|| resv.flows.remove(&flow_id)).flatten()
                else {
                    continue;
                };
                let filters = flow.filters.into_iter().collect();
                affected.push((*next, resv.style, Descriptor { flowspec: flow.flowspec, filters }));
            }
            for (next, style, flow) in affected {
                let cause = Cause::TrafficControlSystem(value);
                machine.refuse(now, &session, next, style, flow, cause, false);
            }
            machine.update(now, &session, state, None);
        });
    }

    /// Removes the state whose cleanup timeout has passed.
    pub(super) fn expire(&mut self, now: Time, session: Session) {
        self.edit(session, |machine, state| {
            let gone: Vec<Sender> = state
                .paths
                .iter()
                .filter(|(_, path)| path.expires <= now)
                .map(|(sender, _)| *sender)
                .collect();
            let mut changed = !gone.is_empty();
            for sender in gone {
                machine.end_path(now, &session, state, &sender);
            }
            for path in state.paths.values_mut() {
                changed |= path.blockade.take_if(|(_, until)| *until <= now).is_some();
                changed |= path.old_route.as_ref().is_some_and(|(_, until)| *until <= now);
            }
            for resv in state.reservations.values_mut() {
                let before = resv.flows.len();
                resv.flows.retain(|_, flow| flow.expires > now);
                changed |= resv.flows.len() != before;
            }
            if changed {
                machine.update(now, &session, state, None);
            }
        });
    }
}

/// Why a ResvConf is dropped.
const NOT_ASKED: &str = "a ResvConf that this node has not asked that neighbour for";

/// The flow descriptors that match any of these senders, with their next hops and styles.
fn matching_descriptors(
    state: &SessionState,
    matching: &BTreeSet<Sender>,
) -> Vec<(Neighbour, Style, Descriptor)> {
    let mut found = Vec::new();
    for (next, resv) in &state.reservations {
        for flow in resv.flows.values() {
            if resv.style == Style::Wildcard || !flow.filters.is_disjoint(matching) {
                let filters = flow.filters.iter().copied().collect();
                let flow = Descriptor { flowspec: flow.flowspec, filters };
                found.push((*next, resv.style, flow));
            }
        }
    }
    found
}

fn is_smaller(one: &FlowSpec, other: &FlowSpec) -> bool {
    one.partial_cmp(other) == Some(core::cmp::Ordering::Less)
}
