//! Links: rates, delays, queues, losses; and the topology that they form.

use std::collections::BTreeSet;

use ontempo_foundation::{Bytes, Duration, Packets, Rate};
use ontempo_network::RedParameters;

use super::{Findings, varying};
use crate::backbone::MAX_HOPS;
use crate::model::{
    AggregationSpec, Delay, DelayLaw, GraphLink, LinkSpec, LossSpec, PolicerSpec, QueueLimit,
    QueueSpec, ScheduleSpec, Topology,
};
use crate::path::FieldPath;

/// The longest delay that a link can have.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(3600);
/// The smallest MTU: an ACK of 40 bytes, and a byte.
const MIN_MTU: Bytes = Bytes::new(41);
const MAX_STAGES: u32 = 1_000;
/// Linux's largest `flows` of FQ-CoDel.
const MAX_FLOW_QUEUES: u32 = 65_536;

pub(super) fn topology(topology: &Topology, duration: Duration, findings: &mut Findings) {
    let link = |spec: &LinkSpec, path: &FieldPath, findings: &mut Findings| {
        both_ways(spec, duration, path, findings);
    };
    let path = FieldPath::root("topology");
    match topology {
        Topology::Dumbbell { bottleneck, reverse, access, receiver_access } => {
            link(bottleneck, &path.key("bottleneck"), findings);
            link(access, &path.key("access"), findings);
            for (field, spec) in [("reverse", reverse), ("receiver-access", receiver_access)] {
                if let Some(spec) = spec {
                    link(spec, &path.key(field), findings);
                }
            }
            let one_way = [("bottleneck", Some(bottleneck).filter(|_| reverse.is_some()))];
            for (field, spec) in one_way.into_iter().chain([("reverse", reverse.as_ref())]) {
                if spec.is_some_and(|spec| spec.back.is_some()) {
                    let what = "the way back is given as `reverse` already; leave one out";
                    findings.add(&path.key(field).key("back"), what);
                }
            }
        }
        Topology::ParkingLot { hops, bottleneck, access } => {
            if *hops == 0 || *hops > MAX_HOPS {
                let what = format!("{hops} hops will not do; 1 to {MAX_HOPS} are possible");
                findings.add(&path.key("hops"), what);
            }
            link(bottleneck, &path.key("bottleneck"), findings);
            link(access, &path.key("access"), findings);
        }
        Topology::Graph { links } => graph(links, duration, &path.key("links"), findings),
    }
}

fn graph(links: &[GraphLink], duration: Duration, path: &FieldPath, findings: &mut Findings) {
    findings.require(!links.is_empty(), path, "there is no link; write [[topology.links]]");
    let mut taken = BTreeSet::new();
    for (place, one) in links.iter().enumerate() {
        let path = path.index(place);
        both_ways(&one.link, duration, &path, findings);
        if !one.duplex && one.link.back.is_some() {
            let what = "the link carries packets one way only; leave out `duplex` or this";
            findings.add(&path.key("back"), what);
        }
        for (field, name) in [("from", &one.from), ("to", &one.to)] {
            findings.require(!name.is_empty(), &path.key(field), "a node needs a name");
        }
        if one.from == one.to {
            let what = format!("the link leads from `{0}` to `{0}`; name another node", one.to);
            findings.add(&path.key("to"), what);
            continue;
        }
        let ways = [(&one.from, &one.to), (&one.to, &one.from)];
        for (from, to) in ways.into_iter().take(if one.duplex { 2 } else { 1 }) {
            if !taken.insert((from, to)) {
                let what = format!(
                    "there is a link `{from} -> {to}` already; a duplex link carries packets both \
                     ways unless duplex = false"
                );
                findings.add(&path, what);
            }
        }
    }
}

fn both_ways(spec: &LinkSpec, duration: Duration, path: &FieldPath, findings: &mut Findings) {
    link(spec, path, findings);
    varying::link(spec, duration, path, findings);
    let Some(back) = &spec.back else { return };
    let path = path.key("back");
    link(back, &path, findings);
    varying::link(back, duration, &path, findings);
    let what = "a link has two directions; leave this one out";
    findings.require(back.back.is_none(), &path.key("back"), what);
}

fn link(spec: &LinkSpec, path: &FieldPath, findings: &mut Findings) {
    if let Some(profile) = spec.profile {
        let what = format!("the values of {} are filled in by a reader", profile.name());
        findings.add(&path.key("profile"), what);
    }
    let what = "only a link with a profile has a direction; write profile = \"lte-driving\"";
    findings.require(spec.direction.is_none(), &path.key("direction"), what);
    let carries = spec.rate > Rate::from_bits_per_sec(0);
    findings.require(carries, &path.key("rate"), "the rate is zero, so that nothing passes");
    let delay_path = path.key("delay");
    if let Delay::Law(law) = &spec.delay {
        delay_law(law, &delay_path, findings);
    }
    let mean = spec.delay.mean();
    if mean > MAX_DELAY {
        findings.add(&delay_path, format!("a delay of {mean} is absurd; at most 1 h will do"));
    }
    if let Some(mtu) = spec.mtu.filter(|mtu| *mtu < MIN_MTU) {
        let what = format!("{mtu} are too few; headers alone are 40 bytes");
        findings.add(&path.key("mtu"), what);
    }
    queue(&spec.queue, spec.rate, &path.key("queue"), findings);
    if let Some(loss) = &spec.loss {
        let path = path.key("loss");
        match loss {
            LossSpec::Bernoulli { rate } => findings.probability(&path.key("rate"), *rate),
            LossSpec::Gilbert { p, q } => {
                findings.probability(&path.key("p"), *p);
                findings.probability(&path.key("q"), *q);
            }
            LossSpec::Trace { .. } => {}
        }
    }
    findings.probability(&path.key("duplicate"), spec.duplicate);
    findings.probability(&path.key("corrupt"), spec.corrupt);
    if let Some(spec) = &spec.policer {
        policer(spec, &path.key("policer"), findings);
    }
    if let Some(aggregation) = &spec.aggregation {
        let path = path.key("aggregation");
        let is_trace = matches!(
            spec.schedule,
            Some(ScheduleSpec::Mahimahi { .. } | ScheduleSpec::Cellreplay { .. })
        );
        let what = "a trace of opportunities says itself when packets leave; leave out one of both";
        findings.require(!is_trace, &path, what);
        self::aggregation(aggregation, &path, findings);
    }
}

fn aggregation(spec: &AggregationSpec, path: &FieldPath, findings: &mut Findings) {
    let times = [
        ("every", spec.every.unwrap_or_default()),
        ("access", spec.access),
        ("contention", spec.contention),
    ];
    for (field, time) in times {
        if time > MAX_DELAY {
            findings.add(&path.key(field), format!("{time} is absurd; at most 1 h will do"));
        }
    }
    let what = "opportunities at a distance of zero are no distance; write every = \"5 ms\"";
    findings.require(spec.every != Some(Duration::ZERO), &path.key("every"), what);
    let what = "without a wait each packet leaves on its own; write access = \"118 us\", \
                contention = \"135 us\" or every = \"5 ms\"";
    findings.require(times.iter().any(|(_, time)| *time > Duration::ZERO), path, what);
    let what = "an aggregate holds a packet at least; write packets = \"64 packets\"";
    findings.require(spec.packets != Some(Packets::new(0)), &path.key("packets"), what);
    let what = "an aggregate holds a packet at least; write bytes = \"65535 bytes\"";
    findings.require(spec.bytes != Some(Bytes::ZERO), &path.key("bytes"), what);
}

fn policer(spec: &PolicerSpec, path: &FieldPath, findings: &mut Findings) {
    if spec.rate == Rate::from_bits_per_sec(0) || spec.rate == Rate::UNLIMITED {
        let what = "a policer has a rate above zero that is limited; write rate = \"10 Mbit/s\"";
        return findings.add(&path.key("rate"), what);
    }
    let (field, example) = match (spec.burst, spec.burst_time) {
        (Some(_), None) => ("burst", "burst = \"100 kB\""),
        (None, Some(_)) => ("burst-time", "burst-time = \"50 ms\""),
        (None, None) => {
            let what = "nothing says what passes at once; write burst = \"100 kB\", or \
                        burst-time = \"50 ms\"";
            return findings.add(path, what);
        }
        (Some(_), Some(_)) => {
            return findings.add(&path.key("burst-time"), "give it or `burst`, not both");
        }
    };
    if spec.bucket() < MIN_MTU {
        let what =
            format!("a bucket of {} is smaller than any packet; write {example}", spec.bucket());
        findings.add(&path.key(field), what);
    }
}

fn delay_law(law: &DelayLaw, path: &FieldPath, findings: &mut Findings) {
    match law {
        DelayLaw::Constant { .. } | DelayLaw::Exponential { .. } => {}
        DelayLaw::Uniform { low, high, .. } => {
            if low > high {
                let what = format!("{high} is less than `low`, {low}");
                findings.add(&path.key("high"), what);
            }
        }
        DelayLaw::HyperExponential { probabilities, means } => {
            hyper_exponential(probabilities, means, path, findings);
        }
        DelayLaw::Erlang { k, .. } => {
            if *k == 0 || *k > MAX_STAGES {
                let what = format!("{k} stages will not do; 1 to {MAX_STAGES} are possible");
                findings.add(&path.key("k"), what);
            }
        }
        DelayLaw::Sum { terms } => {
            let path = path.key("terms");
            findings.require(!terms.is_empty(), &path, "the sum has no terms");
            for (place, term) in terms.iter().enumerate() {
                delay_law(term, &path.index(place), findings);
            }
        }
    }
}

fn hyper_exponential(
    probabilities: &[f64],
    means: &[Duration],
    path: &FieldPath,
    findings: &mut Findings,
) {
    let probabilities_path = path.key("probabilities");
    if probabilities.len() != means.len() {
        let (many, other) = (means.len(), probabilities.len());
        let what = format!("{many} means for {other} probabilities; each branch needs one of both");
        findings.add(&path.key("means"), what);
    }
    for (place, probability) in probabilities.iter().enumerate() {
        findings.probability(&probabilities_path.index(place), *probability);
    }
    let sum: f64 = probabilities.iter().sum();
    if (sum - 1.0).abs() > ontempo_network::DelayLaw::SUM_TOLERANCE {
        let what = format!("the probabilities sum to {sum}; together they must be 1");
        findings.add(&probabilities_path, what);
    }
}

fn queue(spec: &QueueSpec, rate: Rate, path: &FieldPath, findings: &mut Findings) {
    match spec {
        QueueSpec::Codel { interval, .. } => {
            let what = "the interval is zero; write interval = \"100 ms\"";
            findings.require(*interval > Duration::ZERO, &path.key("interval"), what);
        }
        QueueSpec::FqCodel { interval, quantum, queues, .. } => {
            let what = "the interval is zero; write interval = \"100 ms\"";
            findings.require(*interval > Duration::ZERO, &path.key("interval"), what);
            let what = "the quantum is zero; write quantum = \"1514 bytes\"";
            findings.require(*quantum > Bytes::ZERO, &path.key("quantum"), what);
            if !(1..=MAX_FLOW_QUEUES).contains(queues) {
                let what = format!("{queues} queues will not do; 1 to {MAX_FLOW_QUEUES} will");
                findings.add(&path.key("queues"), what);
            }
        }
        QueueSpec::Dualpi2 { update, coupling, classic_share, .. } => {
            let what = "the time between updates is zero; write update = \"16 ms\"";
            findings.require(*update > Duration::ZERO, &path.key("update"), what);
            let what = "the coupling is a number above 0; write coupling = 2";
            let is_number = coupling.is_finite() && *coupling > 0.0;
            findings.require(is_number, &path.key("coupling"), what);
            let what = "the share of the classic queue is a number above 0 and below 1; write \
                        classic-share = 0.1";
            let is_share = *classic_share > 0.0 && *classic_share < 1.0;
            findings.require(is_share, &path.key("classic-share"), what);
        }
        QueueSpec::Pie { update, .. } => {
            let what = "the time between updates is zero; write update = \"15 ms\"";
            findings.require(*update > Duration::ZERO, &path.key("update"), what);
        }
        QueueSpec::Wfq { limit, resume, reservable, .. } => {
            check_resume(*limit, *resume, path, findings);
            check_reservable(*reservable, path, findings);
        }
        QueueSpec::Cbq { reservable, .. } => check_reservable(*reservable, path, findings),
        QueueSpec::DropTail { .. } => {}
        QueueSpec::Red { .. } => red(spec, rate, path, findings),
    }
}

/// Something must be left to what is not reserved.
fn check_reservable(reservable: f64, path: &FieldPath, findings: &mut Findings) {
    if !(0.0..1.0).contains(&reservable) {
        let what = format!(
            "{reservable} of a link cannot be reserved; something must be left to other packets: \
             a number from 0 to below 1 is needed"
        );
        findings.add(&path.key("reservable"), what);
    }
}

/// A queue that drains to `resume` after a drop must have a limit beyond that.
fn check_resume(
    limit: Option<QueueLimit>,
    resume: Option<Packets>,
    path: &FieldPath,
    findings: &mut Findings,
) {
    let Some(resume) = resume else { return };
    let what = "no packet would ever be taken again; write resume = \"16 packets\"";
    findings.require(resume > Packets::new(0), &path.key("resume"), what);
    let beyond = match limit {
        Some(QueueLimit::Packets(limit)) => limit >= resume,
        Some(QueueLimit::Bytes(_)) => true,
        None => false,
    };
    let what = "a queue resumes after it was full; write limit = \"64 packets\", or another limit \
                that is no smaller than `resume`";
    findings.require(beyond, &path.key("resume"), what);
}

fn red(spec: &QueueSpec, rate: Rate, path: &FieldPath, findings: &mut Findings) {
    let QueueSpec::Red { min_th, max_th, max_p, weight, mean_packet, .. } = spec else { return };
    findings.probability(&path.key("max-p"), *max_p);
    if let Some(weight) = weight {
        findings.probability(&path.key("weight"), *weight);
        let what = "the weight is zero, so that the average never moves";
        findings.require(*weight != 0.0, &path.key("weight"), what);
    }
    let what = "the mean packet is empty; write mean-packet = \"500 bytes\"";
    let has_size = *mean_packet > Bytes::ZERO;
    findings.require(has_size, &path.key("mean-packet"), what);
    match (min_th, max_th) {
        (Some(min_th), Some(max_th)) if min_th >= max_th => {
            let what = format!("{max_th} are not more than `min-th`, {min_th}");
            findings.add(&path.key("max-th"), what);
        }
        (None, Some(max_th)) if has_size => {
            let automatic =
                RedParameters::automatic(rate, *mean_packet, RedParameters::TARGET_DELAY).min_th;
            if automatic >= max_th.get() as f64 {
                let what = format!(
                    "{max_th} are not more than `min-th`, which at {rate} is {automatic:.1} packets \
                     where it is not given; write `min-th`, too"
                );
                findings.add(&path.key("max-th"), what);
            }
        }
        _ => {}
    }
}
