//! Reservations: flows and links that exist, buckets that make sense, room on every link.

use std::collections::{BTreeMap, BTreeSet};

use ontempo_foundation::{Bytes, Rate};

use super::Findings;
use crate::backbone::Backbone;
use crate::model::{Direction, FlowGroup, QueueSpec, Reservation, Scenario, Service};
use crate::path::FieldPath;

/// Which reservations a link has granted: the sum of their rates, and whose they are.
#[derive(Default)]
struct Granted {
    rate: u64,
    flows: BTreeSet<(String, u32, bool)>,
}

pub(super) fn all(scenario: &Scenario, backbone: &Backbone<'_>, findings: &mut Findings) {
    let mut granted: BTreeMap<usize, Granted> = BTreeMap::new();
    for (place, reservation) in scenario.reservations.iter().enumerate() {
        let path = FieldPath::root("reservations").index(place);
        specification(reservation, &path, findings);
        let Some(group) = scenario.flows.get(&reservation.flows) else {
            let known = scenario.flows.keys().map(String::as_str);
            findings.unknown(&path.key("flows"), "flow group", &reservation.flows, known);
            continue;
        };
        if let Some(index) = reservation.index.filter(|index| *index >= group.count) {
            let what = format!(
                "`{}` has no flow {index}; it has {}, counted from 0",
                reservation.flows, group.count
            );
            findings.add(&path.key("index"), what);
            continue;
        }
        let links = path.key("links");
        let what = "it stands on no link; write links = [\"bottleneck\"]";
        findings.require(!reservation.links.is_empty(), &links, what);
        for (place, name) in reservation.links.iter().enumerate() {
            let path = links.index(place);
            link(reservation, group, name, backbone, &mut granted, &path, findings);
        }
    }
}

fn specification(reservation: &Reservation, path: &FieldPath, findings: &mut Findings) {
    let Reservation { rate, bucket, peak, smallest, largest, reserved, .. } = reservation;
    let is_rate = *rate > Rate::from_bits_per_sec(0) && *rate < Rate::UNLIMITED;
    let what = format!("{rate} is no rate to reserve; write rate = \"600 kbit/s\"");
    findings.require(is_rate, &path.key("rate"), &what);
    if bucket < largest {
        let what = format!("{bucket} do not hold the largest packet, {largest}");
        findings.add(&path.key("bucket"), what);
    }
    if let Some(peak) = peak.filter(|peak| peak < rate) {
        findings.add(&path.key("peak"), format!("{peak} is less than `rate`, {rate}"));
    }
    findings.require(*largest > Bytes::ZERO, &path.key("largest"), "no packet is that small");
    if smallest > largest {
        let what = format!("{smallest} are more than `largest`, {largest}");
        findings.add(&path.key("smallest"), what);
    }
    match (reservation.service, reserved) {
        (Service::ControlledLoad, Some(_)) => {
            let what = "only service = \"guaranteed\" has a reserved rate beside its token rate";
            findings.add(&path.key("reserved"), what);
        }
        (Service::Guaranteed, Some(reserved)) if reserved < rate => {
            findings.add(&path.key("reserved"), format!("{reserved} is less than `rate`, {rate}"));
        }
        _ => {}
    }
}

fn link(
    reservation: &Reservation,
    group: &FlowGroup,
    name: &str,
    backbone: &Backbone<'_>,
    granted: &mut BTreeMap<usize, Granted>,
    path: &FieldPath,
    findings: &mut Findings,
) {
    let Some(place) = backbone.links.iter().position(|link| link.name == name) else {
        let known = backbone.links.iter().map(|link| link.name.as_str());
        return findings.unknown(path, "link between routers", name, known);
    };
    let spec = backbone.links[place].spec;
    let (QueueSpec::Wfq { reservable, .. } | QueueSpec::Cbq { reservable, .. }) = &spec.queue
    else {
        let what = format!(
            "`{name}` keeps no reservation; give it queue = {{ kind = \"wfq\" }} or \
             {{ kind = \"cbq\" }}"
        );
        return findings.add(path, what);
    };
    // Ends that do not exist were reported with the flows.
    let Ok((from, to)) = backbone.ends(group) else { return };
    let way = match reservation.direction {
        Direction::Data => backbone.route(from, to),
        Direction::Acks => backbone.route(to, from),
    };
    let Some(way) = way else { return };
    if !way.contains(&place) {
        let names: Vec<&str> = way.iter().map(|one| backbone.links[*one].name.as_str()).collect();
        let what = format!(
            "`{}` does not cross `{name}` in this direction; it crosses {}",
            reservation.flows,
            names.join(", ")
        );
        return findings.add(path, what);
    }
    let granted = granted.entry(place).or_default();
    let acks = reservation.direction == Direction::Acks;
    let mut is_second = false;
    for index in reservation.index.map_or(0..group.count, |index| index..index + 1) {
        let flow = (reservation.flows.clone(), index, acks);
        is_second |= !granted.flows.insert(flow);
    }
    if is_second {
        let what =
            format!("a flow of `{}` has a reservation on `{name}` already", reservation.flows);
        return findings.add(path, what);
    }
    let flows = if reservation.index.is_some() { 1 } else { u64::from(group.count) };
    let rate = reservation.class_rate().as_bits_per_sec().saturating_mul(flows);
    granted.rate = granted.rate.saturating_add(rate);
    let most = (spec.rate.as_bits_per_sec() as f64 * reservable) as u64;
    if granted.rate > most {
        let what = format!(
            "{} are reserved on `{name}`; of its {} at most {} can be (`reservable` is {reservable})",
            Rate::from_bits_per_sec(granted.rate),
            spec.rate,
            Rate::from_bits_per_sec(most),
        );
        findings.add(path, what);
    }
}

impl Reservation {
    /// The rate of its class on a link: R of a guaranteed service, else r.
    pub fn class_rate(&self) -> Rate {
        self.reserved.unwrap_or(self.rate)
    }
}
