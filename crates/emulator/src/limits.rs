//! Limits of emulation, and the kernel's names for its congestion controls.

use ontempo_foundation::{Bytes, Duration};
use ontempo_mechanisms::congestion::{
    BbrParameters, CongestionName, UnknownCongestion, Value, World,
};
use ontempo_scenario::model::{
    Application, Congestion, FlowGroup, Routers, Scenario, TcpProfile, TcpSpec, Topology, Transport,
};
use ontempo_scenario::{FieldPath, Layout};

use crate::carriers::is_whole_millis;
use crate::error::EmulationError;
use crate::routers::{Impossible, Routed};
use crate::traffic::STAMP;
use ontempo_runtime::Version;

/// Maximum number of flows in a run: most have their own hosts.
const MAX_FLOWS: u64 = 1_000;

/// Headers of TCP with timestamps, and of UDP, in bytes.
const TCP_HEADER: u64 = 20;
const TIMESTAMPS: u64 = 12;
const UDP_HEADER: u64 = 8;

/// Minimum segment size of the kernel (`TCP_MIN_MSS`).
const MIN_SEGMENT: u64 = 88;

/// MTU of the interfaces.
const MAX_PACKET: u64 = 65_535;

/// Payload of a full TCP packet of this size, and the MSS to set.
pub(crate) fn tcp_payload(packet: Bytes, version: Version) -> (u64, u64) {
    let segment = packet.get().saturating_sub(version.header() + TCP_HEADER);
    (segment.saturating_sub(TIMESTAMPS), segment)
}

/// Payload of a UDP packet of this size.
pub(crate) fn udp_payload(packet: Bytes, version: Version) -> u64 {
    packet.get().saturating_sub(version.header() + UDP_HEADER)
}

/// The kernel's name for a congestion control.
///
/// # Errors
/// Why it exists only in the simulator.
pub(crate) fn kernel_name(congestion: &Congestion) -> Result<&str, String> {
    let known = match congestion {
        Congestion::Kernel { name } => return Ok(name),
        Congestion::Known(known) => known,
        Congestion::Custom { name, .. } => {
            return Err(format!("`{name}` is a program's own; the kernel cannot run it"));
        }
    };
    let name = known.name();
    let kernel =
        name.kernel().ok_or_else(|| UnknownCongestion::not_in(World::Kernel, name).to_string())?;
    // The kernel's BBR is version 1; what the profile of Linux sets is what the kernel does.
    let first_bbr =
        (name == CongestionName::Bbr).then_some(("variant", Value::Word(BbrParameters::V1)));
    let of_kernel = TcpProfile::Linux.congestion_parameters(name.name());
    let is_kernels = |parameter: &str, value: &Value| {
        of_kernel
            .iter()
            .map(|(name, expected)| (*name, Value::Word(expected)))
            .chain(first_bbr)
            .any(|(name, expected)| name == parameter && *value == expected)
    };
    let changed = known.changed().into_iter();
    let changed: Vec<_> = changed
        .filter(|(parameter, value)| !is_kernels(parameter, value))
        .map(|(parameter, _)| parameter)
        .collect();
    if changed.is_empty() {
        return Ok(kernel);
    }
    let (changed, title) = (changed.join(", "), name.title());
    Err(match name {
        CongestionName::Pert => format!(
            "{changed}: PERT's parameters are set when it is loaded into the kernel, not for a \
             flow; write congestion = \"pert\""
        ),
        _ => format!(
            "{changed}: the kernel's {title} has no such parameter; write congestion = \"{}\"",
            name.name()
        ),
    })
}

/// Checks whether `scenario` can be emulated, as far as that does not depend on the machine.
///
/// # Errors
/// [`EmulationError::Refused`] names each field that only a simulation supports, and the reason.
pub fn check(scenario: &Scenario, version: Version) -> Result<(), EmulationError> {
    check_fields(scenario, version)?;
    if scenario.emulation.routers == Routers::Modelled {
        return Ok(());
    }
    // The flows of a group are on the same links.
    let mut one_each = scenario.clone();
    one_each.flows.values_mut().for_each(|group| group.count = group.count.min(1));
    let layout = one_each.layout(scenario.seed)?;
    routed(&one_each, &layout).map(|_| ())
}

/// The same, without what needs the scenario's layout.
pub(crate) fn check_fields(scenario: &Scenario, version: Version) -> Result<(), EmulationError> {
    let mut problems = Vec::new();
    let flows: u64 = scenario.flows.values().map(|group| u64::from(group.count)).sum();
    if flows > MAX_FLOWS {
        let why = format!(
            "{flows} are too many to be emulated, since each has namespaces of its own; at most \
             {MAX_FLOWS} will do"
        );
        problems.push((FieldPath::root("flows"), why));
    }
    if let Topology::Graph { links } = &scenario.topology
        && links.is_empty()
    {
        problems.push((FieldPath::root("topology").key("links"), "there is none".to_owned()));
    }
    let kernel_routes = scenario.emulation.routers == Routers::Kernel;
    for (name, group) in &scenario.flows {
        if kernel_routes && !group.address_changes.is_empty() {
            let why = "routers of the kernel have no routes to addresses that come later; leave out \
                       emulation.routers";
            let path = FieldPath::root("flows").key(name).key("address-changes");
            problems.push((path, why.to_owned()));
        }
        let found = of_group(group, version);
        problems.extend(found.into_iter().map(|(fields, why)| {
            let path = FieldPath::root("flows").key(name);
            (fields.split('.').fold(path, |path, field| path.key(field)), why)
        }));
    }
    refuse("this scenario can only be simulated", problems)
}

/// The routers of `layout` if the kernel routes; otherwise `None`.
///
/// # Errors
/// Names each part that kernel routers do not support.
pub(crate) fn routed(
    scenario: &Scenario,
    layout: &Layout,
) -> Result<Option<Routed>, EmulationError> {
    if scenario.emulation.routers == Routers::Modelled {
        return Ok(None);
    }
    let impossible = match Routed::new(layout) {
        Ok(routed) => return Ok(Some(routed)),
        Err(impossible) => impossible,
    };
    let mut problems: Vec<(FieldPath, String)> = Vec::new();
    for Impossible { link, field, why } in impossible {
        let path = match field {
            None => scenario.path_of_change(&link),
            Some(field @ "reservations") => FieldPath::root(field),
            Some(field) => scenario.path_of_link(&link).key(field),
        };
        // Several links may have one description.
        if problems.iter().all(|(known, _)| *known != path) {
            problems.push((path, why));
        }
    }
    let what = "the kernel's routers (emulation.routers = \"kernel\") cannot do this";
    refuse(what, problems).map(|()| None)
}

fn refuse(what: &'static str, problems: Vec<(FieldPath, String)>) -> Result<(), EmulationError> {
    if problems.is_empty() { Ok(()) } else { Err(EmulationError::Refused { what, problems }) }
}

fn of_group(group: &FlowGroup, version: Version) -> Option<(&'static str, String)> {
    if let Application::Adus { .. } = group.application {
        let why = "no kernel has an ADU transport, and over TCP ADUs are a file; write \
                   application = { kind = \"file\", size = \"1 MB\" }";
        return Some(("application.kind", why.to_owned()));
    }
    match &group.transport {
        Transport::Tcp(spec) => of_tcp(spec, version),
        Transport::Udp { packet, .. } | Transport::Spaced { packet, .. } => {
            let headers = version.header() + UDP_HEADER;
            let least = headers + STAMP as u64;
            (packet.get() < least || packet.get() > MAX_PACKET).then(|| {
                let what = "its headers, number and time of sending";
                let why = format!("a packet of {packet} has no room for {what}: {least} B");
                ("transport.packet", why)
            })
        }
        Transport::Own {} => None,
        Transport::Srt(spec) => whole(spec.latency, "transport.latency", "srt-live-transmit"),
        Transport::Rist(spec) => whole(spec.buffer, "transport.buffer", "ristsender"),
        Transport::Ontempo(_) => None,
        Transport::Adu(_) => Some(("transport.kind", "no kernel has an ADU transport".to_owned())),
    }
}

fn whole(time: Duration, field: &'static str, program: &str) -> Option<(&'static str, String)> {
    (!is_whole_millis(time)).then(|| {
        let millis = time.as_nanos().div_ceil(1_000_000);
        (field, format!("{program} takes whole milliseconds, not {time}; write \"{millis} ms\""))
    })
}

fn of_tcp(spec: &TcpSpec, version: Version) -> Option<(&'static str, String)> {
    if let Err(why) = kernel_name(&spec.congestion) {
        return Some(("transport.congestion", why));
    }
    let (_, segment) = tcp_payload(spec.packet, version);
    if segment < MIN_SEGMENT {
        let least = MIN_SEGMENT + version.header() + TCP_HEADER;
        let why = format!("the kernel makes no packets of {}; at least {least} B", spec.packet);
        return Some(("transport.packet", why));
    }
    if spec.correct_self_induced_delay {
        let why = "the kernel's RTT samples cannot be corrected";
        return Some(("transport.correct-self-induced-delay", why.to_owned()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_bbr_is_version_1_and_has_no_parameters() {
        let of = |set: &[(&str, &str)]| {
            let known = CongestionName::Bbr.with(set.iter().copied()).expect("BBR has it");
            kernel_name(&Congestion::Known(known)).map(str::to_owned)
        };
        assert_eq!(of(&[]), Ok("bbr".to_owned()));
        assert_eq!(of(&[("variant", "v1")]), Ok("bbr".to_owned()));
        let error = of(&[("variant", "v1"), ("cwnd-gain", "3")]).expect_err("a parameter");
        assert!(error.starts_with("cwnd-gain: the kernel's BBR has no such parameter"), "{error}");
    }

    #[test]
    fn the_kernel_does_not_run_a_programs_own_controller() {
        let parameters = Default::default();
        let own = Congestion::Custom { name: "mine".to_owned(), parameters };
        let error = kernel_name(&own).expect_err("it is in Python");
        assert_eq!(error, "`mine` is a program's own; the kernel cannot run it");
    }
}
