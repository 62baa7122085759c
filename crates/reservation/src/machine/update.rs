//! Carries out what a session's state asks for, where it differs from what was asked before.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ontempo_foundation::Time;

use super::admission::Share;
use super::boundary::{ControlRequest, Event, InterfaceId, NextHop, Routes};
use super::merge::{enforced, flow_ids, given_up, wanted};
use super::node::Machine;
use super::state::{Flow, FlowId, Installed, Neighbour, OurId, SessionState, Upstream};
use super::timers::Timer;
use crate::message::{Cause, Descriptor, ErrorSpec, Sender, Session, Style};

impl<R: Routes> Machine<R> {
    /// Brings enforcement and the previous hops into line with the session's state. `confirm` is
    /// who wants the change confirmed; whether a previous hop was asked for it is returned.
    pub(super) fn update(
        &mut self,
        now: Time,
        session: &Session,
        state: &mut SessionState,
        confirm: Option<IpAddr>,
    ) -> bool {
        self.leave_old_ways(now, session, state);
        prune(state);
        for (by, flow_id) in flow_ids(state) {
            if let Err(cause) = self.install(session, state, by, flow_id) {
                self.refuse_installed(now, session, state, by, flow_id, cause);
            }
        }
        prune(state);
        let previous: BTreeSet<Neighbour> = state
            .paths
            .values()
            .map(|path| path.previous())
            .chain(state.upstream.keys().copied())
            .collect();
        let local = (InterfaceId::LOCAL, session.destination);
        let waiting = state.reservations.get(&local).and_then(|resv| resv.confirm);
        let mut asked = false;
        for neighbour in previous {
            asked |= self.ask(now, session, state, neighbour, confirm.or(waiting));
        }
        // While a sender is waited for, what is asked for it then is to be confirmed, too.
        let known =
            |flow: &Flow| flow.filters.iter().all(|sender| state.paths.contains_key(sender));
        if let Some(resv) = state.reservations.get_mut(&local).filter(|_| asked)
            && resv.flows.values().all(known)
        {
            resv.confirm = None;
        }
        asked
    }

    /// Old ways that a reservation on the new way has replaced, or whose time is over, end
    /// (RFC 2205 section 3.6).
    fn leave_old_ways(&mut self, now: Time, session: &Session, state: &mut SessionState) {
        let senders: Vec<Sender> = state.paths.keys().copied().collect();
        for sender in senders {
            let Some(path) = state.paths.get_mut(&sender) else { continue };
            let Some((old, until)) = &path.leaving else { continue };
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
            path.leaving = None;
            let path = path.clone();
            self.send_path_tear(now, session, &sender, &path, &old);
        }
    }

    /// Brings one reservation of one interface into line.
    pub(super) fn install(
        &mut self,
        session: &Session,
        state: &mut SessionState,
        by: InterfaceId,
        flow_id: FlowId,
    ) -> Result<(), Cause> {
        let desired = enforced(session, state, by, flow_id)?;
        let key = (by, flow_id);
        let Some(desired) = desired else {
            if let Some(installed) = state.installed.remove(&key) {
                self.give_back(by, &installed);
            }
            return Ok(());
        };
        let share = Share { rate: desired.rate, burst: desired.burst };
        let interface = self.interfaces.get_mut(&by).ok_or(Cause::System(0))?;
        match state.installed.get_mut(&key) {
            Some(installed) if installed.reservation == desired => installed.refused = None,
            Some(installed) => {
                interface.ledger.replace(installed.share, share)?;
                installed.share = share;
                installed.refused = None;
                installed.reservation = desired.clone();
                let request = ControlRequest::Modify(by, installed.handle, desired);
                self.controls.push_back(request);
            }
            None => {
                interface.ledger.replace(Share::default(), share)?;
                let Some(handle) = interface.take_handle() else {
                    interface.ledger.replace(share, Share::default())?;
                    return Err(Cause::System(1));
                };
                self.controls.push_back(ControlRequest::Add(by, handle, desired.clone()));
                let installed = Installed { handle, share, reservation: desired, refused: None };
                state.installed.insert(key, Box::new(installed));
            }
        }
        Ok(())
    }

    /// Ends a reservation's enforcement.
    fn give_back(&mut self, by: InterfaceId, installed: &Installed) {
        let Some(interface) = self.interfaces.get_mut(&by) else { return };
        // To give back is never refused.
        let _ = interface.ledger.replace(installed.share, Share::default());
        interface.free_handles.insert(installed.handle.0);
        self.controls.push_back(ControlRequest::Remove(by, installed.handle));
    }

    /// What was admitted cannot follow a change of its senders. What stands stays in place and the
    /// next hops are told once; what does not stand is refused.
    fn refuse_installed(
        &mut self,
        now: Time,
        session: &Session,
        state: &mut SessionState,
        by: InterfaceId,
        flow_id: FlowId,
        cause: Cause,
    ) {
        let share = match enforced(session, state, by, flow_id) {
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
        let mut told = Vec::new();
        for (next, resv) in &mut state.reservations {
            let Some(flow) = resv.flows.get(&flow_id).filter(|_| next.0 == by) else { continue };
            let filters = flow.filters.iter().copied().collect();
            told.push((*next, resv.style, Descriptor { flowspec: flow.flowspec, filters }));
            if !in_place {
                resv.flows.remove(&flow_id);
            }
        }
        for (next, style, flow) in told {
            let error = ErrorSpec { in_place, ..self.error(next, session, cause) };
            self.send_resv_err(now, session, next, style, flow, error);
        }
    }

    /// Asks a previous hop for what its senders need, if that has changed.
    fn ask(
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
        let wanted = wanted(state, previous).zip(handle);
        let before = state.upstream.get(&previous);
        match (wanted, before) {
            (None, None) => false,
            (None, Some(_)) => {
                self.give_up(now, session, state, previous);
                false
            }
            (Some(((style, flows), handle)), Some(before))
                if (before.style, &before.flows, before.handle) == (style, &flows, handle) =>
            {
                false
            }
            (Some(((style, flows), handle)), before) => {
                let gone = before
                    .filter(|before| before.style == style)
                    .map_or(Vec::new(), |before| given_up(&before.flows, &flows));
                self.ask_anew(now, session, state, previous, (style, flows, handle), confirm);
                if !gone.is_empty() && previous.0 != InterfaceId::LOCAL {
                    self.send_resv_tear(now, session, previous, handle, style, gone);
                }
                previous.0 != InterfaceId::LOCAL
            }
        }
    }

    fn ask_anew(
        &mut self,
        now: Time,
        session: &Session,
        state: &mut SessionState,
        previous: Neighbour,
        (style, flows, handle): (Style, Vec<Descriptor>, u32),
        confirm: Option<IpAddr>,
    ) {
        let (refresh_at, sent) = state
            .upstream
            .get(&previous)
            .map_or((Time::NEVER, OurId::default()), |before| (before.refresh_at, before.sent));
        let told = flows.clone();
        let up = Upstream { handle, style, flows, refresh_at, sent, changed: now };
        state.upstream.insert(previous, Box::new(up));
        if previous.0 == InterfaceId::LOCAL {
            self.events.push_back(Event::Reserved { session: *session, style, flows: told });
        } else {
            self.send_resv(now, session, state, previous, confirm);
        }
    }

    /// Nothing is wanted of a previous hop any more.
    fn give_up(
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
            let (session, flows) = (*session, Vec::new());
            self.events.push_back(Event::Reserved { session, style: up.style, flows });
        } else {
            let filters = given_up(&up.flows, &[]);
            self.send_resv_tear(now, session, previous, up.handle, up.style, filters);
        }
    }
}

/// Reservations of next hops end with the last sender that they are for (RFC 2209); those of the
/// node's own applications wait for senders to come.
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
