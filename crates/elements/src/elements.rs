//! The links.

use std::fmt::{self, Display};
use std::sync::Arc;

use ontempo_foundation::{Bytes, Duration, Packets, RandomStream, Time};
use ontempo_network::{
    Admitting, AggregationParameters, Capacity, CoDel, CoDelParameters, DelayLaw, Discipline,
    DropTail, DualPi2, DualPi2Parameters, Extras, FqCoDel, FqCoDelParameters, Limit, Link,
    LinkParameters, LossModel, Pie, PieParameters, Queue, RateLaw, Red, RedError, RedMeasure,
    RedParameters, Schedule, ScheduledLink, ScheduledLinkParameters, TokenBucket, TrafficSpecError,
};
use ontempo_scenario::model::{self, Delay, LossSpec, PolicerSpec, QueueLimit, QueueSpec};
use ontempo_scenario::{LaidLink, Layout};

use crate::reservations;

/// A link of either kind, as a run uses it.
#[derive(Debug)]
pub enum Element {
    /// First in, first out: when and whether a packet leaves is known when it is offered.
    Link(Link),
    /// Served packet by packet.
    Scheduled(Box<ScheduledLink>),
}

impl Element {
    /// Whether a packet may overtake an earlier one.
    pub fn reorders(&self) -> bool {
        match self {
            Self::Link(link) => link.reorders(),
            Self::Scheduled(link) => link.reorders(),
        }
    }

    /// Whether packets may arrive twice, or with bit errors.
    pub fn harms(&self) -> bool {
        match self {
            Self::Link(link) => link.harms(),
            Self::Scheduled(link) => link.harms(),
        }
    }

    /// Whether packets may be offered before their time: to a link without extras that decides at
    /// once.
    pub fn may_be_offered_ahead(&self) -> bool {
        matches!(self, Self::Link(link) if link.may_be_offered_ahead())
    }
}

/// A network element refused its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementError {
    /// The link that it belongs to.
    pub link: String,
    /// What is wrong with its parameters.
    pub problem: String,
}

impl fmt::Display for ElementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link `{}`: {}", self.link, self.problem)
    }
}

impl std::error::Error for ElementError {}

/// The link at `place`, with the random streams derived from its name.
///
/// # Errors
/// If an element refuses its parameters.
pub fn link(layout: &Layout, place: usize, seed: u64) -> Result<Element, ElementError> {
    build(layout, place, seed, None)
}

/// The same link, but its schedule may be replaced while it is used
/// ([`ScheduledLink::set_schedule`]); one that sends aggregates, or follows a pair of traces, is as [`link`]
/// builds it.
///
/// # Errors
/// If an element refuses its parameters.
pub fn changeable_link(layout: &Layout, place: usize, seed: u64) -> Result<Element, ElementError> {
    let laid = &layout.links[place];
    let is_replay = laid.schedule.as_ref().is_some_and(|schedule| schedule.cellreplay.is_some());
    if laid.aggregation.is_some() || is_replay {
        return link(layout, place, seed);
    }
    let constant = || {
        let capacity = Capacity::new([(Time::ZERO, RateLaw::Constant(laid.rate))]).ok()?;
        Some(Arc::new(Schedule { capacity, delay: None, loss: None, cellreplay: None }))
    };
    build(layout, place, seed, laid.schedule.clone().or_else(constant))
}

/// `changeable` is the schedule of a changeable link.
fn build(
    layout: &Layout,
    place: usize,
    seed: u64,
    changeable: Option<Arc<Schedule>>,
) -> Result<Element, ElementError> {
    let laid = &layout.links[place];
    let refused = |problem: &dyn Display| ElementError {
        link: laid.name.clone(),
        problem: problem.to_string(),
    };
    let delay = match &laid.delay {
        Delay::Fixed(delay) => DelayLaw::Constant(*delay),
        Delay::Law(law) => delay_law(law).map_err(|error| refused(&error))?,
    };
    let loss = match &laid.loss {
        None => LossModel::None,
        Some(spec) => loss_model(spec).map_err(|error| refused(&error))?,
    };
    let name = format!("link {}", laid.name);
    let mut extras = extras(laid).map_err(|error| refused(&error))?;
    let is_changeable = changeable.is_some();
    extras.schedule = changeable.or(extras.schedule);
    let reserving = reservations::discipline(layout, place).map_err(|error| refused(&error))?;
    let mut discipline = reserving.or_else(|| discipline(laid, seed, &name));
    if is_changeable && discipline.is_none() {
        let queue = queue(laid, delay.mean()).map_err(|error| refused(&error))?;
        let random = RandomStream::new(seed, &format!("{name} queue"));
        discipline = Some(Box::new(Admitting::new(queue, random)));
    }
    if let Some(discipline) = discipline {
        let parameters = ScheduledLinkParameters {
            rate: laid.rate,
            delay,
            mtu: laid.mtu,
            discipline,
            loss,
            reordering: laid.reordering,
            extras,
        };
        let link = ScheduledLink::new(parameters, seed, &name);
        let link = if is_changeable { link.changeable() } else { link };
        return Ok(Element::Scheduled(Box::new(link)));
    }
    let queue = queue(laid, delay.mean()).map_err(|error| refused(&error))?;
    let parameters = LinkParameters {
        rate: laid.rate,
        delay,
        mtu: laid.mtu,
        queue,
        loss,
        reordering: laid.reordering,
        extras,
    };
    Ok(Element::Link(Link::new(parameters, seed, &name)))
}

fn extras(laid: &LaidLink) -> Result<Extras, TrafficSpecError> {
    let policer = |spec: &PolicerSpec| TokenBucket::policer(spec.rate, spec.bucket());
    Ok(Extras {
        schedule: laid.schedule.clone(),
        policer: laid.policer.as_ref().map(policer).transpose()?,
        duplicate: laid.duplicate,
        corrupt: laid.corrupt,
        aggregation: laid.aggregation.as_ref().map(|spec| AggregationParameters {
            every: spec.every,
            access: spec.access,
            contention: spec.contention,
            limit: Limit { packets: spec.packets, bytes: spec.bytes },
        }),
    })
}

/// The discipline that decides at dequeue; `None` if the queue decides at enqueue.
fn discipline(laid: &LaidLink, seed: u64, name: &str) -> Option<Box<dyn Discipline>> {
    let codel = |most: QueueLimit, target, interval, ecn| CoDelParameters {
        target,
        interval,
        ecn,
        limit: limit(most),
        ..CoDelParameters::default()
    };
    match &laid.queue {
        QueueSpec::Codel { limit, target, interval, ecn } => {
            Some(Box::new(CoDel::new(codel(*limit, *target, *interval, *ecn))))
        }
        QueueSpec::FqCodel { limit, target, interval, ecn, quantum, queues } => {
            let parameters = FqCoDelParameters {
                codel: codel(*limit, *target, *interval, *ecn),
                quantum: *quantum,
                queues: *queues,
            };
            let mut random = RandomStream::new(seed, &format!("{name} queue"));
            Some(Box::new(FqCoDel::new(parameters, &mut random)))
        }
        QueueSpec::Dualpi2 { limit: most, target, update, step, coupling, classic_share } => {
            Some(Box::new(DualPi2::new(DualPi2Parameters {
                target: *target,
                update: *update,
                step: *step,
                coupling: *coupling,
                classic_share: *classic_share,
                limit: limit(*most),
                ..DualPi2Parameters::default()
            })))
        }
        QueueSpec::DropTail { .. }
        | QueueSpec::Red { .. }
        | QueueSpec::Pie { .. }
        | QueueSpec::Wfq { .. }
        | QueueSpec::Cbq { .. } => None,
    }
}

fn delay_law(law: &model::DelayLaw) -> Result<DelayLaw, ontempo_network::DelayLawError> {
    match law {
        model::DelayLaw::Constant { value } => Ok(DelayLaw::Constant(*value)),
        model::DelayLaw::Uniform { low, high, .. } => DelayLaw::uniform(*low, *high),
        model::DelayLaw::Exponential { mean } => Ok(DelayLaw::Exponential(*mean)),
        model::DelayLaw::HyperExponential { probabilities, means } => {
            DelayLaw::hyper_exponential(probabilities.iter().copied().zip(means.iter().copied()))
        }
        model::DelayLaw::Erlang { k, mean } => DelayLaw::erlang(*k, *mean),
        model::DelayLaw::Sum { terms } => {
            DelayLaw::sum(terms.iter().map(delay_law).collect::<Result<Vec<_>, _>>()?)
        }
    }
}

fn loss_model(spec: &LossSpec) -> Result<LossModel, ontempo_network::LossModelError> {
    match spec {
        LossSpec::Bernoulli { rate } => LossModel::bernoulli(*rate),
        LossSpec::Gilbert { p, q } => LossModel::gilbert(*p, *q),
        LossSpec::Trace { lost } => LossModel::trace(lost.iter().copied(), None),
    }
}

pub(crate) fn limit(spec: QueueLimit) -> Limit {
    match spec {
        QueueLimit::Packets(packets) => Limit::packets(packets),
        QueueLimit::Bytes(bytes) => Limit::bytes(bytes),
    }
}

fn queue(laid: &LaidLink, mean_delay: Duration) -> Result<Queue, RedError> {
    match &laid.queue {
        QueueSpec::DropTail { limit: most } => Ok(Queue::DropTail(
            most.map_or(DropTail::unlimited(), |most| DropTail::new(limit(most))),
        )),
        QueueSpec::Red { .. } => {
            Red::new(red_parameters(laid, mean_delay)).map(|red| Queue::Red(Box::new(red)))
        }
        QueueSpec::Pie { limit: most, target, update, burst, ecn } => {
            Ok(Queue::Pie(Box::new(Pie::new(PieParameters {
                target: *target,
                update: *update,
                burst: *burst,
                ecn: *ecn,
                limit: limit(*most),
                ..PieParameters::default()
            }))))
        }
        QueueSpec::Codel { .. }
        | QueueSpec::FqCodel { .. }
        | QueueSpec::Dualpi2 { .. }
        | QueueSpec::Wfq { .. }
        | QueueSpec::Cbq { .. } => Ok(Queue::unlimited()),
    }
}

fn red_parameters(laid: &LaidLink, mean_delay: Duration) -> RedParameters {
    let QueueSpec::Red {
        limit: most,
        min_th,
        max_th,
        max_p,
        weight,
        gentle,
        mean_packet,
        byte_mode,
        ecn,
    } = &laid.queue
    else {
        return RedParameters::automatic(laid.rate, Bytes::new(500), RedParameters::TARGET_DELAY);
    };
    let automatic = RedParameters::automatic(laid.rate, *mean_packet, RedParameters::TARGET_DELAY);
    let packets = |threshold: &Option<Packets>| threshold.map(|packets| packets.get() as f64);
    let min_th = packets(min_th).unwrap_or(automatic.min_th);
    let computed_weight = || RedParameters::automatic_weight(laid.rate, *mean_packet, mean_delay);
    RedParameters {
        min_th,
        max_th: packets(max_th).unwrap_or(3.0 * min_th),
        max_p: *max_p,
        weight: weight.unwrap_or_else(computed_weight),
        gentle: *gentle,
        measure: if *byte_mode { RedMeasure::Bytes } else { RedMeasure::Packets },
        by_size: *byte_mode,
        ecn: *ecn,
        limit: in_measured_unit(limit(*most), *byte_mode, *mean_packet),
        ..automatic
    }
}

/// Converts a limit in packets for a queue measured in bytes: packets times mean size (as ns-2).
fn in_measured_unit(limit: Limit, byte_mode: bool, mean_packet: Bytes) -> Limit {
    match limit.packets {
        Some(packets) if byte_mode => Limit::bytes(mean_packet * packets.get()),
        _ => limit,
    }
}
