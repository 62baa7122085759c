//! Applies changes of a session's state to traffic control and to the previous hops.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ontempo_foundation::{Bytes, Time};

use super::admission::Share;
use super::boundary::{Change, ControlRequest, Event, InterfaceId, NextHop, Routes};
use super::merge::{enforced, flow_ids, merged_resv, removed_filters};
use super::node::Machine;
use super::state::{
    Confirms, Flow, FlowId, Installed, Neighbour, OwnMessageId, Requested, SessionState,
    UpstreamResv,
};
use super::timers::Timer;
use crate::message::{Cause, Dclass, Descriptor, ErrorSpec, FlowSpec, Sender, Session, Style};

impl<R: Routes> Machine<R> {
    /// Updates the installed reservations and the RESVs to previous hops after a change of state.
    /// `confirm` is the receiver for RESV_CONFIRM; returns whether a RESV was sent.
    pub(super) fn update(
        &mut self,
        now: Time,
        session: &Session,
        state: &mut SessionState,
        confirm: Option<IpAddr>,
    ) -> bool {
        self.tear_down_old_routes(now, session, state);
        prune(state);
        for (by, flow_id) in flow_ids(state) {
            if let Err(cause) = self.install(session, state, by, flow_id) {
                self.refuse_installed(now, session, state, by, flow_id, cause);
            }
        }
        prune(state);
        self.forget_cut(state);
        let previous: BTreeSet<Neighbour> = state
            .paths
            .values()
            .map(|path| path.previous())
            .chain(state.upstream.keys().copied())
            .collect();
        let local = (InterfaceId::LOCAL, session.destination);
        let pending_confirm = state.reservations.get(&local).and_then(|resv| resv.confirm);
        let mut sent = false;
        for neighbour in previous {
            sent |=
                self.update_upstream(now, session, state, neighbour, confirm.or(pending_confirm));
        }
        // RESV_CONFIRM stays while the path state of a sender is missing: its RESV has it, too.
        let known =
            |flow: &Flow| flow.filters.iter().all(|sender| state.paths.contains_key(sender));
        if let Some(resv) = state.reservations.get_mut(&local).filter(|_| sent)
            && resv.flows.values().all(known)
        {
            resv.confirm = None;
        }
        sent
    }

    /// A RESV of which something has ended here is to come again in full: its number stands for all of it.
    fn forget_cut(&mut self, state: &mut SessionState) {
        for resv in state.reservations.values_mut() {
            if resv.source.is_some() && resv.named() < resv.whole {
                self.message_ids.remove_received(resv.source.take());
            }
        }
    }

    /// Tears down old routes whose reservation the new route has, or whose time is over (RFC 2205
    /// section 3.6).
    fn tear_down_old_routes(&mut self, now: Time, session: &Session, state: &mut SessionState) {
        let senders: Vec<Sender> = state.paths.keys().copied().collect();
        for sender in senders {
            let Some(path) = state.paths.get_mut(&sender) else { continue };
            let Some((old, until)) = &path.old_route else { continue };
            let is_new = |by: &InterfaceId| path.outgoing.iter().any(|hop| hop.interface == *by);
            let replaced = state.reservations.iter().any(|((by, _), resv)| {
                let names = |(id, flow): (&FlowId, &super::state::Flow)| {
                    *id == Some(sender)
                        || resv.style == Style::Wildcard
                        || flow.filters.contains(&sender)
                };
                is_new(by) && resv.flows.iter().any(names)
            });
            if !replaced && *until > now {
                continue;
            }
            let old: Vec<NextHop> =
                old.iter().filter(|hop| !is_new(&hop.interface)).copied().collect();
            path.old_route = None;
            let path = path.clone();
            self.send_path_tear(now, session, &sender, &path, &old);
        }
    }

    /// Installs, changes or removes one reservation of one interface, after admission control.
    pub(super) fn install(
        &mut self,
        session: &Session,
        state: &mut SessionState,
        by: InterfaceId,
        flow_id: FlowId,
    ) -> Result<(), Cause> {
        let desired = enforced(session, state, self.link(by), flow_id)?;
        let key = (by, flow_id);
        let Some(desired) = desired else {
            if let Some(installed) = state.installed.remove(&key) {
                self.uninstall(by, &installed);
            }
            return Ok(());
        };
        let share = Share { rate: desired.rate, burst: desired.burst };
        let interface = self.interfaces.get_mut(&by).ok_or(Cause::System(0))?;
        match state.installed.get_mut(&key) {
            Some(installed) if installed.reservation == desired => installed.refused = None,
            Some(installed) => {
                interface.admission.replace(installed.share, share)?;
                installed.share = share;
                installed.refused = None;
                installed.reservation = desired.clone();
                let request = ControlRequest::Modify(by, installed.handle, desired);
                self.controls.push_back(request);
            }
            None => {
                interface.admission.replace(Share::default(), share)?;
                let Some(handle) = interface.take_handle() else {
                    interface.admission.replace(share, Share::default())?;
                    return Err(Cause::System(1));
                };
                self.controls.push_back(ControlRequest::Add(by, handle, desired.clone()));
                let installed = Installed { handle, share, reservation: desired, refused: None };
                state.installed.insert(key, Box::new(installed));
            }
        }
        Ok(())
    }

    /// An interface, with what its link adds to each packet.
    fn link(&self, by: InterfaceId) -> (InterfaceId, Bytes) {
        (by, self.interfaces.get(&by).map_or(Bytes::ZERO, |known| known.config.overhead))
    }

    /// Removes an installed reservation.
    fn uninstall(&mut self, by: InterfaceId, installed: &Installed) {
        let Some(interface) = self.interfaces.get_mut(&by) else { return };
        // A smaller reservation is never refused.
        let _ = interface.admission.replace(installed.share, Share::default());
        interface.free_handles.insert(installed.handle.0);
        self.controls.push_back(ControlRequest::Remove(by, installed.handle));
    }

    /// A change of senders cannot be admitted. An installed reservation stays in place, and the
    /// next hops get one ResvErr; one that is not installed is refused.
    fn refuse_installed(
        &mut self,
        now: Time,
        session: &Session,
        state: &mut SessionState,
        by: InterfaceId,
        flow_id: FlowId,
        cause: Cause,
    ) {
        let share = match enforced(session, state, self.link(by), flow_id) {
            Ok(Some(desired)) => Some(Share { rate: desired.rate, burst: desired.burst }),
            _ => None,
        };
        let in_place = match state.installed.get_mut(&(by, flow_id)) {
            Some(installed) if share.is_some() && installed.refused == share => return,
            Some(installed) => {
                installed.refused = share;
                true
            }
            None => false,
        };
        let mut affected = Vec::new();
        for (next, resv) in &mut state.reservations {
            let Some(flow) = resv.flows.get(&flow_id).filter(|_| next.0 == by) else { continue };
            let filters = flow.filters.iter().copied().collect();
            affected.push((*next, resv.style, Descriptor { flowspec: flow.flowspec, filters }));
            if !in_place {
                resv.flows.remove(&flow_id);
            }
        }
        for (next, style, flow) in affected {
            let error = ErrorSpec { in_place, ..self.error(next, session, cause) };
            self.send_resv_err(now, (session, InterfaceId::LOCAL), next, style, flow, error);
        }
    }

    /// Sends RESV to a previous hop where the merged flow descriptors have changed.
    fn update_upstream(
        &mut self,
        now: Time,
        session: &Session,
        state: &mut SessionState,
        previous: Neighbour,
        confirm: Option<IpAddr>,
    ) -> bool {
        let handle = state
            .paths
            .values()
            .find(|path| path.previous() == previous)
            .map(|path| path.hop.interface);
        let aggregate = |by, flowspec: &FlowSpec| self.aggregate(by, flowspec);
        let merged_resv = merged_resv(state, previous, aggregate).zip(handle);
        if let Some(((_, flows), _)) = &merged_resv {
            self.tell_of_marks(session, state, previous, flows);
        }
        let before = state.upstream.get_mut(&previous);
        match (merged_resv, before) {
            (None, None) => false,
            (None, Some(_)) => {
                self.tear_down_upstream(now, session, state, previous);
                false
            }
            (Some(((style, flows), handle)), Some(before))
                if (before.style, before.handle) == (style, handle)
                    && before
                        .flows
                        .iter()
                        .map(|requested| &requested.marked)
                        .eq(flows.iter().map(|requested| &requested.marked)) =>
            {
                before.flows = flows;
                false
            }
            (Some(((style, flows), handle)), before) => {
                let gone = before
                    .filter(|before| before.style == style)
                    .map_or(Vec::new(), |before| removed_filters(&before.flows, &flows));
                self.send_changed_resv(
                    now,
                    session,
                    state,
                    previous,
                    (style, flows, handle),
                    confirm,
                );
                if !gone.is_empty() && previous.0 != InterfaceId::LOCAL {
                    self.send_resv_tear(now, session, previous, handle, style, gone);
                }
                previous.0 != InterfaceId::LOCAL
            }
        }
    }

    /// The DSCP of the aggregate that a reservation is in on an interface, if a host can be asked for
    /// it; `None` where it is in none.
    fn aggregate(&self, by: InterfaceId, flowspec: &FlowSpec) -> Option<Dclass> {
        let aggregates = &self.interfaces.get(&by)?.config.aggregates;
        let aggregate = aggregates.iter().find(|one| one.takes(flowspec))?;
        Some(Dclass::of(aggregate.dscp).and(Dclass::MARKABLE))
    }

    /// Tells the operator where senders are to mark otherwise than before.
    fn tell_of_marks(
        &mut self,
        session: &Session,
        state: &SessionState,
        previous: Neighbour,
        flows: &[Requested],
    ) {
        let before = state.upstream.get(&previous).map_or(&[][..], |up| &up.flows);
        for requested in flows {
            let senders = &requested.marked.descriptor.filters;
            let is_same = |other: &&Requested| {
                let others = &other.marked.descriptor.filters;
                others == senders || others.iter().any(|sender| senders.contains(sender))
            };
            let of = |requested: &Requested| (requested.marked.dclass, requested.unserved);
            let (dscps, unserved) = of(requested);
            if before.iter().find(is_same).map(of).unwrap_or_default() != (dscps, unserved) {
                let (session, senders) = (*session, senders.clone());
                let (by, previous) = previous;
                self.changed(Change::Marked { session, senders, dscps, unserved, previous, by });
            }
        }
    }

    fn send_changed_resv(
        &mut self,
        now: Time,
        session: &Session,
        state: &mut SessionState,
        previous: Neighbour,
        (style, flows, handle): (Style, Vec<Requested>, u32),
        confirm: Option<IpAddr>,
    ) {
        let (refresh_at, sent, confirms) = state
            .upstream
            .remove(&previous)
            .map_or((Time::NEVER, OwnMessageId::default(), Confirms::default()), |before| {
                (before.refresh_at, before.sent, before.confirms)
            });
        let affected = flows.iter().map(|requested| requested.marked.descriptor.clone()).collect();
        let marks = flows.iter().filter_map(Requested::mark).collect();
        let up = UpstreamResv { handle, style, flows, refresh_at, sent, confirms, changed: now };
        state.upstream.insert(previous, Box::new(up));
        if previous.0 == InterfaceId::LOCAL {
            let (session, flows) = (*session, affected);
            self.events.push_back(Event::Reserved { session, style, flows, marks });
        } else {
            self.send_resv(now, session, state, previous, confirm);
        }
    }

    /// Sends ResvTear to a previous hop and removes its state.
    fn tear_down_upstream(
        &mut self,
        now: Time,
        session: &Session,
        state: &mut SessionState,
        previous: Neighbour,
    ) {
        let Some(mut up) = state.upstream.remove(&previous) else { return };
        let timer = Timer::Resv(*session, previous.0, previous.1);
        self.timers.clear(&mut up.refresh_at, timer);
        self.forget(&mut up.sent);
        if previous.0 == InterfaceId::LOCAL {
            let (session, flows, marks) = (*session, Vec::new(), Vec::new());
            self.events.push_back(Event::Reserved { session, style: up.style, flows, marks });
        } else {
            let filters = removed_filters(&up.flows, &[]);
            self.send_resv_tear(now, session, previous, up.handle, up.style, filters);
        }
    }
}

/// Removes reservations of next hops without a matching sender (RFC 2209). Those of the node's own
/// applications stay until their senders' path state is there.
fn prune(state: &mut SessionState) {
    let SessionState { paths, reservations, .. } = state;
    for ((by, _), resv) in reservations.iter_mut() {
        if *by == InterfaceId::LOCAL {
            continue;
        }
        let style = resv.style;
        let reached = |sender: &Sender| paths.get(sender).is_some_and(|path| path.reaches(*by));
        resv.flows.retain(|_, flow| {
            flow.filters.retain(reached);
            match style {
                Style::Wildcard => paths.values().any(|path| path.reaches(*by)),
                _ => !flow.filters.is_empty(),
            }
        });
    }
}
