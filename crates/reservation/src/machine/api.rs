//! The application interface (RFC 2205 section 3.11.1): SENDER, RESERVE and their ends.

use std::collections::{BTreeMap, BTreeSet};

use ontempo_foundation::Time;

use super::admission::consistent;
use super::boundary::{InterfaceId, RequestError, Routes};
use super::node::Machine;
use super::path::PathUpdate;
use super::state::{Flow, ResvState, flow_id};
use crate::message::{
    AdSpec, Dclass, Descriptor, FlowSpec, GuaranteedAd, Hop, Sender, Session, Style, TrafficSpec,
};

impl<R: Routes> Machine<R> {
    /// An application of this node becomes a sender (RFC 2205: SENDER call): PATH is sent and
    /// refreshed.
    ///
    /// # Errors
    /// Where the traffic contradicts itself, the sender's address is not this node's, the ports
    /// cannot be beside those of others, or a limit is reached.
    pub fn announce(
        &mut self,
        now: Time,
        session: Session,
        sender: Sender,
        traffic: TrafficSpec,
    ) -> Result<(), RequestError> {
        if !consistent(&traffic) {
            return Err(RequestError::Contradiction);
        }
        if session.destination.is_ipv4() != sender.address.is_ipv4() {
            return Err(RequestError::MixedFamilies);
        }
        if !self.is_ours(sender.address) {
            return Err(RequestError::NotOurs);
        }
        if lacks_port(&session) || self.port_conflict(&session, &sender).is_some() {
            return Err(RequestError::Ports);
        }
        let own = (InterfaceId::LOCAL, sender.address);
        if self.path_limit(&session, &sender, own).is_some() {
            return Err(RequestError::TooMany);
        }
        let path_update = PathUpdate {
            incoming: InterfaceId::LOCAL,
            hop: Hop { address: sender.address, interface: InterfaceId::LOCAL.0 },
            traffic,
            adspec: Some(AdSpec {
                broken: false,
                hops: 0,
                bandwidth: f32::INFINITY,
                latency: 0,
                mtu: u32::MAX,
                guaranteed: Some(GuaranteedAd::default()),
                controlled_load_broken: Some(false),
            }),
            forwarded: Vec::new(),
            ttl: self.config.ttl,
            send_ttl: self.config.ttl,
            period: self.config.refresh,
            expires: Time::NEVER,
            source: None,
        };
        self.ensure_session(&session, own);
        self.edit(session, |machine, state| {
            machine.take_path(now, &session, state, &sender, path_update);
        });
        self.take_unopened(now, &session);
        Ok(())
    }

    /// An application is no longer a sender: PathTear is sent.
    pub fn withdraw(&mut self, now: Time, session: Session, sender: Sender) {
        self.edit(session, |machine, state| {
            let path = state.paths.get(&sender);
            if path.is_some_and(|path| path.incoming == InterfaceId::LOCAL) {
                machine.end_path(now, &session, state, &sender);
                machine.update(now, &session, state, None);
            }
        });
    }

    /// An application of this node reserves for flows to it (RFC 2205: RESERVE call), in place of
    /// its reservation before. RESV is sent for each sender once its path state is there. With
    /// `confirm`, [`Event::Confirmed`](super::Event::Confirmed) follows when the ResvConf arrives,
    /// from the sender or from the node where the request merged with an equal or larger one.
    ///
    /// # Errors
    /// Where a request contradicts itself or the style, the destination is not this node's, its port
    /// cannot be beside those of others, or a limit is reached.
    pub fn reserve(
        &mut self,
        now: Time,
        session: Session,
        style: Style,
        flows: &[Descriptor],
        confirm: bool,
    ) -> Result<(), RequestError> {
        check_flows(&session, style, flows)?;
        if !self.is_ours(session.destination) {
            return Err(RequestError::NotOurs);
        }
        if lacks_port(&session) || self.destination_conflicts(&session) {
            return Err(RequestError::Ports);
        }
        let own = (InterfaceId::LOCAL, session.destination);
        let full = self.session_usage.is_full(self.config.limits.sessions, own);
        let senders = flows.iter().map(|flow| flow.filters.len()).sum::<usize>();
        if full && !self.sessions.contains_key(&session) || senders > self.config.limits.senders {
            return Err(RequestError::TooMany);
        }
        // What is no more than before is never refused.
        let before = self.sessions.get(&session).and_then(|state| state.reservations.get(&own));
        let before = before.map_or(0, |resv| resv.flows.len());
        let more = flows.len().saturating_sub(before);
        if more > 0 && self.flow_count + more > self.config.limits.all_flows {
            return Err(RequestError::TooMany);
        }
        let entry = |flow: &Descriptor| {
            let id = flow_id(style, flow);
            let filters: BTreeSet<Sender> = flow.filters.iter().copied().collect();
            let flow = Flow {
                flowspec: flow.flowspec,
                filters,
                dclass: Dclass::NONE,
                unmarkable: Dclass::NONE,
                expires: Time::NEVER,
                is_of_source: false,
                changed: now,
            };
            (id, flow)
        };
        let state = Box::new(ResvState {
            style,
            flows: flows.iter().map(entry).collect::<BTreeMap<_, _>>(),
            source: None,
            whole: 0,
            period: self.config.refresh,
            ttls: (self.config.ttl, self.config.ttl),
            confirm: confirm.then_some(session.destination),
        });
        self.ensure_session(&session, own);
        self.edit(session, |machine, known| {
            known.reservations.insert(own, state);
            machine.update(now, &session, known, None);
        });
        self.take_unopened(now, &session);
        Ok(())
    }

    /// An application releases its reservations of the session (RFC 2205: RELEASE call).
    pub fn release(&mut self, now: Time, session: Session) {
        self.edit(session, |machine, state| {
            let local = (InterfaceId::LOCAL, session.destination);
            if state.reservations.remove(&local).is_some() {
                machine.update(now, &session, state, None);
            }
        });
    }
}

/// Whether its protocol has ports (TCP, UDP, DCCP, SCTP, UDP-Lite) and it names none: to such a
/// session no other of the destination could be beside it (RFC 2205 section 3.2).
fn lacks_port(session: &Session) -> bool {
    session.port == 0 && [6, 17, 33, 132, 136].contains(&session.protocol)
}

/// Checks one application's request to reserve, before it is joined to those of others.
///
/// # Errors
/// Where it contradicts itself or the style.
pub fn check_flows(
    session: &Session,
    style: Style,
    flows: &[Descriptor],
) -> Result<(), RequestError> {
    let fits = match (style, flows) {
        (Style::FixedFilter, [_, ..]) => flows.iter().all(|flow| flow.filters.len() == 1),
        (Style::SharedExplicit, [flow]) => !flow.filters.is_empty(),
        (Style::Wildcard, [flow]) => flow.filters.is_empty(),
        _ => false,
    };
    if !fits {
        return Err(RequestError::Descriptors);
    }
    for flow in flows {
        let family = |sender: &Sender| sender.address.is_ipv4() == session.destination.is_ipv4();
        if !flow.filters.iter().all(family) {
            return Err(RequestError::MixedFamilies);
        }
        if !consistent(flow.flowspec.traffic()) {
            return Err(RequestError::Contradiction);
        }
        if let FlowSpec::Guaranteed { traffic, rate, .. } = flow.flowspec
            && rate < traffic.rate
        {
            return Err(RequestError::RateBelowTraffic);
        }
    }
    Ok(())
}
