//! From a scenario's reservations to the discipline of a scheduled link.

use std::fmt::Display;

use ontempo_foundation::Rate;
use ontempo_network::{
    Cbq, ClassParameters, Discipline, Limit, Reserving, Scheduler, TokenBucket, TrafficSpec, Wfq,
};
use ontempo_scenario::model::{QueueSpec, Reservation, Unreserved};
use ontempo_scenario::{LaidLink, Layout};

use crate::elements::limit;

/// CBQ's priorities: reserved classes go first.
const RESERVED_PRIORITY: u8 = 0;
const BEST_EFFORT_PRIORITY: u8 = 1;

/// The discipline of the link at `place` if its queue is a scheduler of reservations; `None`
/// for other queues.
///
/// Classes: first the unreserved ones, which share the remaining rate, then one for each
/// reservation.
///
/// # Errors
/// If the scheduler or a token bucket refuses its parameters.
pub(crate) fn discipline(
    layout: &Layout,
    place: usize,
) -> Result<Option<Box<dyn Discipline>>, String> {
    let link = &layout.links[place];
    let (most, resume, unreserved, borrows) = match link.queue {
        QueueSpec::Wfq { limit, resume, unreserved, .. } => (limit, resume, unreserved, true),
        QueueSpec::Cbq { limit, borrow, .. } => (limit, None, Unreserved::Together, borrow),
        _ => return Ok(None),
    };
    let reserved: Vec<(usize, &Reservation)> = layout
        .reservations
        .iter()
        .filter(|laid| laid.link == place)
        .map(|laid| (laid.flow, &laid.reservation))
        .collect();
    let separate = match unreserved {
        Unreserved::Together => Vec::new(),
        Unreserved::ByFlow => crossing(layout, place),
    };
    let best_effort = separate.len().max(1);
    let best_effort_class = ClassParameters {
        rate: unreserved_rate(link, &reserved, best_effort),
        limit: most.map_or(Limit::NONE, limit),
        resume,
        priority: BEST_EFFORT_PRIORITY,
        borrows: true,
    };
    let class = |(_, reservation): &(usize, &Reservation)| ClassParameters {
        rate: reservation.class_rate(),
        // Policed, its backlog stays within the bucket; see docs/mechanisms/scheduling.md.
        limit: Limit::NONE,
        resume: None,
        priority: RESERVED_PRIORITY,
        borrows,
    };
    let mut classes = vec![best_effort_class; best_effort];
    classes.extend(reserved.iter().map(class));
    let scheduler = match link.queue {
        QueueSpec::Cbq { .. } => Cbq::new(link.rate, &classes).map(Scheduler::Cbq),
        _ => Wfq::new(link.rate, &classes).map(Scheduler::Wfq),
    };
    let mut reserving = Reserving::new(scheduler.map_err(text)?, 0);
    for (class, flow) in separate.into_iter().enumerate() {
        reserving.separate(flow as u32, class);
    }
    for (number, (flow, reservation)) in reserved.into_iter().enumerate() {
        let meter = TokenBucket::new(traffic_spec(reservation)).map_err(text)?;
        reserving.reserve(flow as u32, best_effort + number, meter);
    }
    Ok(Some(Box::new(reserving)))
}

fn text(error: impl Display) -> String {
    error.to_string()
}

fn traffic_spec(reservation: &Reservation) -> TrafficSpec {
    TrafficSpec {
        rate: reservation.rate,
        bucket: reservation.bucket,
        peak: reservation.peak,
        smallest: reservation.smallest,
        largest: reservation.largest,
    }
}

/// The rate of each of `parts` classes that share the unreserved rate.
fn unreserved_rate(link: &LaidLink, reserved: &[(usize, &Reservation)], parts: usize) -> Rate {
    let rates = reserved.iter().map(|(_, reservation)| reservation.class_rate());
    let sum = rates.fold(0u64, |sum, rate| sum.saturating_add(rate.as_bits_per_sec()));
    Rate::from_bits_per_sec(link.rate.as_bits_per_sec().saturating_sub(sum) / parts as u64)
}

/// Flows whose data or ACKs cross the link.
fn crossing(layout: &Layout, place: usize) -> Vec<usize> {
    let crosses = |flow: usize| {
        let laid = &layout.flows[flow];
        laid.forward.contains(&place) || laid.reverse.contains(&place)
    };
    (0..layout.flows.len()).filter(|flow| crosses(*flow)).collect()
}
