//! What a session's state asks for: of traffic control, and of each previous hop. Pure functions;
//! [`update`](super::update) carries out what differs from before.

use std::collections::BTreeSet;

use super::admission::Share;
use super::boundary::{InterfaceId, Reservation};
use super::state::{FlowId, Neighbour, SessionState};
use crate::message::{Cause, Descriptor, FlowSpec, Sender, Session, Style, TrafficSpec};

/// What is to be enforced on an interface for one reservation of the session (RFC 2209, UPDATE
/// TRAFFIC CONTROL): the merge over next hops, at most what its senders say that they send.
///
/// # Errors
/// Where the next hops' services cannot be merged.
pub(super) fn enforced(
    session: &Session,
    state: &SessionState,
    by: InterfaceId,
    flow_id: FlowId,
) -> Result<Option<Reservation>, Cause> {
    let mut merged: Option<FlowSpec> = None;
    let mut filters = BTreeSet::new();
    let mut wildcard = false;
    for ((interface, _), resv) in &state.reservations {
        let Some(flow) = resv.flows.get(&flow_id).filter(|_| *interface == by) else { continue };
        merged = Some(match merged {
            None => flow.flowspec,
            Some(before) => before.merge(&flow.flowspec).ok_or(Cause::ServiceConflict)?,
        });
        filters.extend(flow.filters.iter().copied());
        wildcard |= resv.style == Style::Wildcard;
    }
    let Some(flowspec) = merged else { return Ok(None) };
    let senders: Vec<(Sender, TrafficSpec)> = state
        .paths
        .iter()
        .filter(|(sender, path)| (wildcard || filters.contains(sender)) && path.reaches(by))
        .map(|(sender, path)| (*sender, path.traffic))
        .collect();
    let Some(sent) = senders.iter().map(|(_, traffic)| *traffic).reduce(|a, b| a.sum(&b)) else {
        return Ok(None);
    };
    let flowspec = at_most(&flowspec, &sent);
    let Share { rate, burst } = Share::of(&flowspec);
    let filters =
        if wildcard { Vec::new() } else { senders.into_iter().map(|(sender, _)| sender).collect() };
    Ok(Some(Reservation { session: *session, filters, flowspec, rate, burst }))
}

/// A request for no more than is sent (RFC 2205 section 2.2: TC_AddFlowspec takes both; RFC 2211
/// section on MIN). The request's packet sizes stand.
fn at_most(flowspec: &FlowSpec, sent: &TrafficSpec) -> FlowSpec {
    let asked = flowspec.traffic();
    flowspec.with_traffic(TrafficSpec {
        rate: asked.rate.min(sent.rate),
        burst: asked.burst.min(sent.burst),
        peak: asked.peak.min(sent.peak),
        ..*asked
    })
}

/// What a previous hop is to be asked for (RFC 2209, RESV REFRESH), the style with it; `None`
/// where nothing is reserved for its senders.
pub(super) fn wanted(
    state: &SessionState,
    previous: Neighbour,
) -> Option<(Style, Vec<Descriptor>)> {
    let style = state.style()?;
    let senders: Vec<Sender> = state
        .paths
        .iter()
        .filter(|(_, path)| path.previous() == previous)
        .map(|(sender, _)| *sender)
        .collect();
    let flows: Vec<Descriptor> = if style == Style::FixedFilter {
        senders
            .iter()
            .filter_map(|sender| {
                let flowspec = merged_towards(state, &[*sender], Some(*sender))?;
                Some(Descriptor { flowspec, filters: vec![*sender] })
            })
            .collect()
    } else {
        let flowspec = merged_towards(state, &senders, None)?;
        let filters = match style {
            Style::Wildcard => Vec::new(),
            _ => named(state, &senders),
        };
        vec![Descriptor { flowspec, filters }]
    };
    (!flows.is_empty()).then_some((style, flows))
}

/// The senders that some reservation on their way names.
fn named(state: &SessionState, senders: &[Sender]) -> Vec<Sender> {
    let is_named = |sender: &&Sender| {
        state.reservations.iter().any(|((by, _), resv)| {
            let on_the_way = state.paths.get(sender).is_some_and(|path| path.reaches(*by));
            on_the_way && resv.flows.values().any(|flow| flow.filters.contains(sender))
        })
    };
    senders.iter().filter(is_named).copied().collect()
}

/// The merge of all requests for any of these senders. One that is not strictly smaller than what
/// was refused before stays out; where that holds for all, the greatest lower bound is tried
/// (RFC 2205 section 3.5, RFC 2209).
fn merged_towards(state: &SessionState, senders: &[Sender], flow_id: FlowId) -> Option<FlowSpec> {
    let mut open: Option<FlowSpec> = None;
    let mut blocked: Option<FlowSpec> = None;
    for ((by, _), resv) in &state.reservations {
        let Some(flow) = resv.flows.get(&flow_id) else { continue };
        let meant = |sender: &&Sender| {
            let named = resv.style == Style::Wildcard || flow.filters.contains(sender);
            named && state.paths.get(sender).is_some_and(|path| path.reaches(*by))
        };
        let mut meant = senders.iter().filter(meant).peekable();
        if meant.peek().is_none() {
            continue;
        }
        let is_blocked = meant.any(|sender| {
            let blockade = state.paths.get(sender).and_then(|path| path.blockade);
            blockade.is_some_and(|(refused, _)| !smaller(&flow.flowspec, &refused))
        });
        let place = if is_blocked { &mut blocked } else { &mut open };
        *place = Some(match place.take() {
            None => flow.flowspec,
            // Services that do not merge were refused when they came.
            Some(before) if is_blocked => before.meet(&flow.flowspec).unwrap_or(before),
            Some(before) => before.merge(&flow.flowspec).unwrap_or(before),
        });
    }
    open.or(blocked)
}

/// Strictly smaller.
fn smaller(one: &FlowSpec, other: &FlowSpec) -> bool {
    one.partial_cmp(other) == Some(core::cmp::Ordering::Less)
}

/// The senders of `before` that `after` no longer has: for them a teardown is due. Under WF all or
/// none.
pub(super) fn given_up(before: &[Descriptor], after: &[Descriptor]) -> Vec<Sender> {
    let kept: BTreeSet<&Sender> = after.iter().flat_map(|flow| &flow.filters).collect();
    let all = before.iter().flat_map(|flow| &flow.filters);
    all.filter(|sender| !kept.contains(sender)).copied().collect()
}

/// Which reservations of which interface there are or should be.
pub(super) fn flow_ids(state: &SessionState) -> BTreeSet<(InterfaceId, FlowId)> {
    let asked = state
        .reservations
        .iter()
        .flat_map(|((by, _), resv)| resv.flows.keys().map(move |flow_id| (*by, *flow_id)));
    let there = state.installed.keys().copied();
    asked.chain(there).filter(|(by, _)| *by != InterfaceId::LOCAL).collect()
}
