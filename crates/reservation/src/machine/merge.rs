//! Merging: the reservations that a session's state requires, on interfaces and upstream. Pure
//! functions; [`update`](super::update) applies the changes.

use std::collections::BTreeSet;

use ontempo_foundation::Bytes;

use super::admission::Share;
use super::boundary::{InterfaceId, Reservation};
use super::state::{Flow, FlowId, Neighbour, Requested, ResvState, SessionState};
use crate::message::{
    Cause, Dclass, Descriptor, FlowSpec, Marked, Sender, Session, Style, TrafficSpec,
};

/// The reservation to install on an interface (RFC 2209, UPDATE TRAFFIC CONTROL): the flowspecs of
/// the next hops merged, bounded by the sum of the TSpecs of the senders; rate and burst as the link
/// takes them, which adds `overhead` bytes to each packet.
///
/// # Errors
/// Where the next hops' services cannot be merged.
pub(super) fn enforced(
    session: &Session,
    state: &SessionState,
    (by, overhead): (InterfaceId, Bytes),
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
    let flowspec = bounded_by(&flowspec, &sent);
    let Share { rate, burst } = Share::of(&flowspec, session, overhead);
    let filters =
        if wildcard { Vec::new() } else { senders.into_iter().map(|(sender, _)| sender).collect() };
    Ok(Some(Reservation { session: *session, filters, flowspec, rate, burst }))
}

/// The flowspec bounded by the senders' TSpec, but for its largest packet (RFC 2205 section 3.11.2:
/// TC_AddFlowspec takes both). Of both minimum policed units the larger one counts: what conforms to
/// both TSpecs has no more packets than either permits.
fn bounded_by(flowspec: &FlowSpec, sent: &TrafficSpec) -> FlowSpec {
    let required = flowspec.traffic();
    flowspec.with_traffic(TrafficSpec {
        rate: required.rate.min(sent.rate),
        burst: required.burst.min(sent.burst),
        peak: required.peak.min(sent.peak),
        smallest: required.smallest.max(sent.smallest.min(required.largest)),
        ..*required
    })
}

/// Style and flow descriptors of the RESV to a previous hop (RFC 2209, RESV REFRESH); `None` where
/// nothing is reserved for its senders. `aggregate` is the DSCP of the aggregate that a flowspec is in
/// on an interface: `None` where it is in none.
pub(super) fn merged_resv(
    state: &SessionState,
    previous: Neighbour,
    aggregate: impl Fn(InterfaceId, &FlowSpec) -> Option<Dclass>,
) -> Option<(Style, Vec<Requested>)> {
    let style = state.style()?;
    let senders: Vec<Sender> = state
        .paths
        .iter()
        .filter(|(_, path)| path.previous() == previous)
        .map(|(sender, _)| *sender)
        .collect();
    let requested = |flowspec, filters, of: &[Sender], flow_id| {
        let (dclass, unserved) = dclass_towards(state, of, flow_id, &aggregate);
        Requested {
            marked: Marked { descriptor: Descriptor { flowspec, filters }, dclass },
            unserved,
        }
    };
    let flows: Vec<Requested> = if style == Style::FixedFilter {
        senders
            .iter()
            .filter_map(|sender| {
                let flowspec = merged_towards(state, &[*sender], Some(*sender))?;
                Some(requested(flowspec, vec![*sender], &[*sender], Some(*sender)))
            })
            .collect()
    } else {
        let flowspec = merged_towards(state, &senders, None)?;
        let filters = match style {
            Style::Wildcard => Vec::new(),
            _ => named(state, &senders),
        };
        vec![requested(flowspec, filters, &senders, None)]
    };
    (!flows.is_empty()).then_some((style, flows))
}

/// The senders that a filterspec of a reservation on their route names.
fn named(state: &SessionState, senders: &[Sender]) -> Vec<Sender> {
    let is_named = |sender: &&Sender| {
        state.reservations.iter().any(|((by, _), resv)| {
            let on_the_way = state.paths.get(sender).is_some_and(|path| path.reaches(*by));
            on_the_way && resv.flows.values().any(|flow| flow.filters.contains(sender))
        })
    };
    senders.iter().filter(is_named).copied().collect()
}

/// The merge of all flowspecs for any of these senders. One that is not strictly smaller than the
/// flowspec of the blockade state is left out; where all are, their greatest lower bound is used
/// (RFC 2205 section 3.5, RFC 2209).
fn merged_towards(state: &SessionState, senders: &[Sender], flow_id: FlowId) -> Option<FlowSpec> {
    let mut open: Option<FlowSpec> = None;
    let mut blocked: Option<FlowSpec> = None;
    for ((by, _), resv) in &state.reservations {
        let Some(flow) = resv.flows.get(&flow_id) else { continue };
        let matching = |sender: &&Sender| is_for(state, (*by, resv), flow, sender);
        let mut matching = senders.iter().filter(matching).peekable();
        if matching.peek().is_none() {
            continue;
        }
        let is_blocked = matching.any(|sender| {
            let blockade = state.paths.get(sender).and_then(|path| path.blockade);
            blockade.is_some_and(|(refused, _)| !smaller(&flow.flowspec, &refused))
        });
        let place = if is_blocked { &mut blocked } else { &mut open };
        *place = Some(match place.take() {
            None => flow.flowspec,
            // Services that cannot be merged were refused on arrival.
            Some(before) if is_blocked => before.meet(&flow.flowspec).unwrap_or(before),
            Some(before) => before.merge(&flow.flowspec).unwrap_or(before),
        });
    }
    open.or(blocked)
}

/// Whether a next hop's flow descriptor is for this sender, whose packets leave by its interface.
fn is_for(
    state: &SessionState,
    (by, resv): (InterfaceId, &ResvState),
    flow: &Flow,
    sender: &Sender,
) -> bool {
    let named = resv.style == Style::Wildcard || flow.filters.contains(sender);
    named && state.paths.get(sender).is_some_and(|path| path.reaches(by))
}

/// The DSCPs for packets of these senders, which each marks with one: those that all interfaces and next
/// hops with a wish have in common; and what those ask for that these cannot serve.
///
/// What an interface has a reservation's aggregate for goes before what its next hop asks for: packets are
/// marked for the network that they come to first, and beyond it whoever borders on it marks them anew
/// (RFC 2996 section 1.1).
fn dclass_towards(
    state: &SessionState,
    senders: &[Sender],
    flow_id: FlowId,
    aggregate: impl Fn(InterfaceId, &FlowSpec) -> Option<Dclass>,
) -> (Dclass, Dclass) {
    let (mut wishes, mut common) = (Vec::new(), None);
    for ((by, _), resv) in &state.reservations {
        let Some(flow) = resv.flows.get(&flow_id) else { continue };
        if !senders.iter().any(|sender| is_for(state, (*by, resv), flow, sender)) {
            continue;
        }
        let installed = state.installed.get(&(*by, flow_id));
        let own = installed.and_then(|known| aggregate(*by, &known.reservation.flowspec));
        let asked = own.unwrap_or(flow.dclass);
        // Who has no wish is served by any.
        if !asked.is_empty() {
            common = Some(common.map_or(asked, |common: Dclass| common.and(asked)));
        }
        wishes.extend([asked, flow.dclass]);
    }
    let common = common.unwrap_or_default();
    let is_served = |wish: &Dclass| !wish.and(common).is_empty();
    let unserved = wishes.into_iter().filter(|wish| !is_served(wish));
    (common, unserved.fold(Dclass::NONE, Dclass::or))
}

/// Strictly smaller.
fn smaller(one: &FlowSpec, other: &FlowSpec) -> bool {
    one.partial_cmp(other) == Some(core::cmp::Ordering::Less)
}

/// The filterspecs of `before` that `after` lacks: for them a ResvTear is due. Under WF there are
/// none.
pub(super) fn removed_filters(before: &[Requested], after: &[Requested]) -> Vec<Sender> {
    let kept: BTreeSet<&Sender> = filters_of(after).collect();
    let all = filters_of(before);
    all.filter(|sender| !kept.contains(sender)).copied().collect()
}

fn filters_of(requested: &[Requested]) -> impl Iterator<Item = &Sender> {
    requested.iter().flat_map(|requested| &requested.marked.descriptor.filters)
}

/// The reservations that are installed or required, by interface.
pub(super) fn flow_ids(state: &SessionState) -> BTreeSet<(InterfaceId, FlowId)> {
    let required = state
        .reservations
        .iter()
        .flat_map(|((by, _), resv)| resv.flows.keys().map(move |flow_id| (*by, *flow_id)));
    let installed = state.installed.keys().copied();
    required.chain(installed).filter(|(by, _)| *by != InterfaceId::LOCAL).collect()
}
