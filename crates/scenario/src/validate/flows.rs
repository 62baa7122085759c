//! Flow groups: applications, transports, times, and the way through the network.

use ontempo_foundation::{Bytes, Duration, Packets, Rate};

use super::{Findings, MOST_FLOWS, adus};
use crate::backbone::{Backbone, EndError};
use crate::model::{
    AckKind, Application, Congestion, CongestionSpec, FlowGroup, Start, TcpSpec, Transport,
};
use crate::path::FieldPath;

/// IP and TCP headers, and a byte.
const SMALLEST_TCP: Bytes = Bytes::new(41);
/// IP and UDP headers, and a byte.
pub(super) const SMALLEST_UDP: Bytes = Bytes::new(29);
/// What IP's length field holds.
const LARGEST_PACKET: Bytes = Bytes::new(65_535);
/// RFC 5681, section 4.2.
const LONGEST_ACK_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) fn group(group: &FlowGroup, path: &FieldPath, findings: &mut Findings) {
    if group.count == 0 || u64::from(group.count) > MOST_FLOWS {
        let what = format!("{} flows will not do; 1 to {MOST_FLOWS} are possible", group.count);
        findings.add(&path.key("count"), what);
    }
    application(&group.application, &path.key("application"), findings);
    match &group.transport {
        Transport::Tcp(spec) => tcp(spec, &path.key("transport"), findings),
        Transport::Udp { packet } => {
            packet_size(*packet, SMALLEST_UDP, &path.key("transport").key("packet"), findings);
        }
        Transport::Adu(spec) => adus::transport(spec, &path.key("transport"), findings),
    }
    let has_adus = matches!(group.application, Application::Adus { .. });
    if matches!(group.transport, Transport::Adu(_)) && !has_adus {
        let what = "the ADU transport carries ADUs alone; write application = \
                    { kind = \"adus\", count = 1000 }";
        findings.add(&path.key("application").key("kind"), what);
    }
    let is_paced = matches!(group.application, Application::Cbr { .. } | Application::OnOff { .. });
    if matches!(group.transport, Transport::Udp { .. }) && !is_paced {
        let what = "UDP takes packets without end, which only `cbr` and `on-off` can feed; \
                    write transport = { kind = \"tcp\" }";
        findings.add(&path.key("transport").key("kind"), what);
    }
    let is_cbr = matches!(group.application, Application::Cbr { .. });
    let what = "only a `cbr` application has units that are played out";
    findings.require(group.playout.is_empty() || is_cbr, &path.key("playout"), what);
    times(group, path, findings);
}

fn times(group: &FlowGroup, path: &FieldPath, findings: &mut Findings) {
    let latest = match group.start {
        Start::At(start) => start,
        Start::Between { low, high } => {
            if low > high {
                let what = format!("{high} is less than `low`, {low}");
                findings.add(&path.key("start").key("high"), what);
            }
            high
        }
    };
    if let Some(stop) = group.stop.filter(|stop| *stop <= latest) {
        findings.add(&path.key("stop"), format!("{stop} is not after the start, {latest}"));
    }
}

fn application(application: &Application, path: &FieldPath, findings: &mut Findings) {
    match application {
        Application::Ftp {} => {}
        Application::File { size } => {
            findings.require(*size > Bytes::ZERO, &path.key("size"), "the file is empty");
        }
        Application::Cbr { rate: Some(_), interval: Some(_) } => {
            findings.add(path, "both `rate` and `interval` are given; give one of them");
        }
        Application::Cbr { rate: None, interval: None } => {
            let what = "neither `rate` nor `interval` is given; write rate = \"300 kbit/s\"";
            findings.add(path, what);
        }
        Application::Cbr { rate, interval } => {
            if let Some(rate) = rate {
                sending_rate(*rate, path, findings);
            }
            let zero = *interval == Some(Duration::ZERO);
            findings.require(!zero, &path.key("interval"), "the interval is zero");
        }
        Application::OnOff { rate, on, off: _, shape } => {
            sending_rate(*rate, path, findings);
            findings.require(*on > Duration::ZERO, &path.key("on"), "the mean time on is zero");
            if let Some(shape) = shape {
                tail_exponent(*shape, &path.key("shape"), findings);
            }
        }
        Application::Http { think: _, think_shape, objects, objects_shape, size, size_shape } => {
            tail_exponent(*think_shape, &path.key("think-shape"), findings);
            tail_exponent(*objects_shape, &path.key("objects-shape"), findings);
            tail_exponent(*size_shape, &path.key("size-shape"), findings);
            if !(1.0..=1e6).contains(objects) {
                let what = format!("{objects} objects in a page will not do; 1 to 1000000 will");
                findings.add(&path.key("objects"), what);
            }
            findings.require(*size > Bytes::ZERO, &path.key("size"), "the objects are empty");
        }
        Application::Adus { count, processing: _, depends } => {
            adus::application(*count, depends, path, findings);
        }
    }
}

fn sending_rate(rate: Rate, path: &FieldPath, findings: &mut Findings) {
    let is_finite = rate > Rate::from_bits_per_sec(0) && rate < Rate::UNLIMITED;
    let what = format!("{rate} is no rate to send at; write rate = \"300 kbit/s\"");
    findings.require(is_finite, &path.key("rate"), &what);
}

/// A Pareto law has a mean only where its exponent is above 1.
fn tail_exponent(shape: f64, path: &FieldPath, findings: &mut Findings) {
    if shape.is_nan() || shape <= 1.0 {
        let what = format!("a tail exponent of {shape} has no mean; more than 1 is needed");
        findings.add(path, what);
    }
}

pub(super) fn packet_size(size: Bytes, smallest: Bytes, path: &FieldPath, findings: &mut Findings) {
    if size < smallest {
        let what = format!(
            "{size} are too few: headers take {} of them; at least {smallest} are needed",
            smallest.get() - 1
        );
        findings.add(path, what);
    }
    if size > LARGEST_PACKET {
        findings.add(path, format!("{size} are too many; at most {LARGEST_PACKET} will do"));
    }
}

fn tcp(spec: &TcpSpec, path: &FieldPath, findings: &mut Findings) {
    packet_size(spec.packet, SMALLEST_TCP, &path.key("packet"), findings);
    let windows =
        [("initial-window", spec.initial_window), ("receive-window", spec.receive_window)];
    for (field, window) in windows {
        let opens = window > Packets::new(0);
        findings.require(opens, &path.key(field), "the window is zero, so that nothing is sent");
    }
    let has_rto = spec.min_rto > Duration::ZERO;
    let what = "the timeout is zero; write min-rto = \"200 ms\"";
    findings.require(has_rto, &path.key("min-rto"), what);
    match spec.ack {
        AckKind::Delayed { timeout } if timeout > LONGEST_ACK_TIMEOUT => {
            let what = format!("{timeout} is too long; at most 500 ms will do (RFC 5681, 4.2)");
            findings.add(&path.key("ack").key("timeout"), what);
        }
        AckKind::Adaptive { most } if most == Packets::new(0) => {
            let what = "an ACK covers at least one packet; write most = \"4 packets\"";
            findings.add(&path.key("ack").key("most"), what);
        }
        _ => {}
    }
    if let Congestion::With(CongestionSpec::Pert { t_min, t_max, p_max, alpha_max, .. }) =
        &spec.congestion
    {
        let path = path.key("congestion");
        if let Some(p_max) = p_max {
            findings.probability(&path.key("p-max"), *p_max);
        }
        if let (Some(t_min), Some(t_max)) = (t_min, t_max)
            && t_min >= t_max
        {
            findings.add(&path.key("t-max"), format!("{t_max} is not more than `t-min`, {t_min}"));
        }
        let what = "the largest increase is at least the smallest, 1 packet per round trip";
        let grows = alpha_max.is_none_or(|alpha| alpha >= 1.0);
        findings.require(grows, &path.key("alpha-max"), what);
    }
}

/// Whether the group's ends exist, a way leads there and back, and its packets fit through.
pub(super) fn route(
    group: &FlowGroup,
    backbone: &Backbone<'_>,
    path: &FieldPath,
    findings: &mut Findings,
) {
    let (from, to) = match backbone.ends(group) {
        Ok(ends) => ends,
        Err(EndError::Unknown { field, name }) => {
            let known = backbone.nodes.iter().map(String::as_str);
            return findings.unknown(&path.key(field), "node", name, known);
        }
        Err(EndError::Missing { field }) => {
            let what = format!("missing field `{field}`; a flow of a graph needs `from` and `to`");
            return findings.add(path, what);
        }
    };
    let (from_name, to_name) = (&backbone.nodes[from], &backbone.nodes[to]);
    if from == to {
        let what = format!("the flow begins and ends at `{to_name}`; name two nodes");
        return findings.add(&path.key("to"), what);
    }
    let Some(forward) = backbone.route(from, to) else {
        let what = format!("no way leads from `{from_name}` to `{to_name}`");
        return findings.add(&path.key("to"), what);
    };
    if backbone.route(to, from).is_none() {
        let what = format!("no way leads back from `{to_name}` to `{from_name}`");
        return findings.add(&path.key("to"), what);
    }
    let packet = match &group.transport {
        Transport::Tcp(spec) => spec.packet,
        Transport::Udp { packet } => *packet,
        Transport::Adu(spec) => spec.packet,
    };
    let between = forward.iter().map(|place| {
        let link = &backbone.links[*place];
        (format!("`{}`", link.name), link.spec)
    });
    let source = backbone.source_access.map(|spec| ("the sender's access".to_owned(), spec));
    let sink = backbone.sink_access.map(|spec| ("the receiver's access".to_owned(), spec));
    for (name, spec) in source.into_iter().chain(between).chain(sink) {
        if let Some(mtu) = spec.mtu.filter(|mtu| packet > *mtu) {
            let what = format!("packets of {packet} do not pass {name}, whose mtu is {mtu}");
            return findings.add(&path.key("transport").key("packet"), what);
        }
    }
}
