//! Flow groups: applications, transports, times, and the way through the network.

use std::collections::BTreeSet;

use ontempo_foundation::{Bytes, Duration, Packets, Rate};
use ontempo_mechanisms::congestion::PertSamples;

use super::{Findings, MAX_FLOWS, adus};
use crate::backbone::{Backbone, EndError};
use crate::custom::CustomNames;
use crate::model::{
    AckKind, Application, Congestion, FlowGroup, Interval, RecoveryKind, RtoKind, Scenario, Start,
    TcpSpec, Transport,
};
use crate::path::FieldPath;

/// IP and TCP headers, and a byte.
const MIN_TCP: Bytes = Bytes::new(41);
/// IP and UDP headers, and a byte.
pub(super) const MIN_UDP: Bytes = Bytes::new(29);
/// What IP's length field holds.
const MAX_PACKET: Bytes = Bytes::new(65_535);
/// The most changes of a sender's address.
const MAX_ADDRESS_CHANGES: usize = 100;
/// RFC 5681, section 4.2.
const MAX_ACK_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) fn group(
    group: &FlowGroup,
    duration: Duration,
    controllers: &CustomNames,
    path: &FieldPath,
    findings: &mut Findings,
) {
    if group.count == 0 || u64::from(group.count) > MAX_FLOWS {
        let what = format!("{} flows will not do; 1 to {MAX_FLOWS} are possible", group.count);
        findings.add(&path.key("count"), what);
    }
    application(&group.application, &path.key("application"), findings);
    match &group.transport {
        Transport::Tcp(spec) => tcp(spec, &path.key("transport"), findings),
        Transport::Udp { packet, .. } => {
            packet_size(*packet, MIN_UDP, &path.key("transport").key("packet"), findings);
        }
        Transport::Spaced { packet, spacing, controller, feedback, increase, .. } => {
            let path = path.key("transport");
            packet_size(*packet, MIN_UDP, &path.key("packet"), findings);
            let what = "give one of `spacing` and `controller`; write spacing = \"1 ms\"";
            findings.require(spacing.is_some() != controller.is_some(), &path, what);
            let what = "a constant spacing takes no feedback; remove it, or give `controller`";
            let is_needless = feedback.is_some() && controller.is_none();
            findings.require(!is_needless, &path.key("feedback"), what);
            let what = "a constant spacing never grows faster; remove it, or give `controller`";
            let is_needless = increase.is_some() && controller.is_none();
            findings.require(!is_needless, &path.key("increase"), what);
            let asks = matches!(group.application, Application::Http { .. });
            let what = "a web user waits for answers, which UDP does not give";
            findings.require(!asks, &path.key("kind"), what);
        }
        Transport::Adu(spec) => adus::transport(spec, &path.key("transport"), findings),
        Transport::Ontempo(spec) => {
            super::media::ontempo(spec, controllers, &path.key("transport"), findings);
        }
        Transport::Srt(spec) => super::media::srt(spec, &path.key("transport"), findings),
        Transport::Rist(spec) => super::media::rist(spec, &path.key("transport"), findings),
        Transport::Own {} => {}
    }
    super::media::carried(group, path, findings);
    let is_command = matches!(group.application, Application::Command { .. });
    let is_own = matches!(group.transport, Transport::Own {});
    let what = if is_command {
        "a command opens its transport itself; write transport = { kind = \"own\" }"
    } else {
        "only a `command` opens its transport itself; write transport = { kind = \"tcp\" }"
    };
    findings.require(is_command == is_own, &path.key("transport").key("kind"), what);
    let has_adus =
        matches!(group.application, Application::Adus { .. } | Application::Media { .. });
    if matches!(group.transport, Transport::Adu(_)) && !has_adus {
        let what = "the ADU transport carries ADUs and films; write application = \
                    { kind = \"adus\", count = 1000 }";
        findings.add(&path.key("application").key("kind"), what);
    }
    let is_paced = matches!(
        group.application,
        Application::Cbr { .. }
            | Application::OnOff { .. }
            | Application::Messages { .. }
            | Application::Media { .. }
    );
    if matches!(group.transport, Transport::Udp { .. }) && !is_paced && !is_command {
        let what = "UDP takes packets without end, which only `cbr`, `on-off` and `messages` can feed; \
                    write transport = { kind = \"tcp\" }";
        findings.add(&path.key("transport").key("kind"), what);
    }
    let is_cbr = matches!(group.application, Application::Cbr { .. });
    let what = "only a `cbr` application has units that are played out";
    findings.require(group.playout.is_empty() || is_cbr, &path.key("playout"), what);
    times(group, duration, path, findings);
    address_changes(group, duration, path, findings);
}

fn times(group: &FlowGroup, duration: Duration, path: &FieldPath, findings: &mut Findings) {
    let start = path.key("start");
    let (first, latest, field) = match group.start {
        Start::At(at) => (at, at, start),
        Start::Between { low, high } => {
            if low > high {
                let what = format!("{high} is less than `low`, {low}");
                findings.add(&start.key("high"), what);
            }
            (low, high, start.key("low"))
        }
    };
    // A run that takes no time is reported by itself.
    if first >= duration && duration > Duration::ZERO {
        findings.add(&field, format!("{first} is not before the end of the run, {duration}"));
    }
    if let Some(stop) = group.stop.filter(|stop| *stop <= latest) {
        findings.add(&path.key("stop"), format!("{stop} is not after the start, {latest}"));
    }
}

/// Changes of the sender's address: after its start, while it sends, each after the one before.
fn address_changes(
    group: &FlowGroup,
    duration: Duration,
    path: &FieldPath,
    findings: &mut Findings,
) {
    let changes = &group.address_changes;
    if changes.is_empty() {
        return;
    }
    let path = path.key("address-changes");
    if changes.len() > MAX_ADDRESS_CHANGES {
        let what = format!(
            "{} changes of an address are too many; at most {MAX_ADDRESS_CHANGES} will do",
            changes.len()
        );
        return findings.add(&path, what);
    }
    if let Transport::Adu(_) | Transport::Spaced { .. } = group.transport {
        let what = "no document says what this transport does when its sender's address changes; \
                    leave it out, or write another transport, such as { kind = \"udp\" }";
        findings.add(&path, what);
    }
    let latest = match group.start {
        Start::At(start) => start,
        Start::Between { high, .. } => high,
    };
    let mut before = latest;
    for (place, at) in changes.iter().enumerate() {
        let path = path.index(place);
        if place == 0 && *at <= latest {
            let what = format!(
                "{at} is not after the start of the flow, {latest}: there is no address yet"
            );
            findings.add(&path, what);
        } else if place > 0 && *at <= before {
            let what = format!(
                "{at} is not after the change before it, {before}; write them in ascending order"
            );
            findings.add(&path, what);
        }
        match group.stop {
            Some(stop) if *at >= stop => {
                let what =
                    format!("{at} is not before the flow's stop, {stop}: it sends nothing more");
                findings.add(&path, what);
            }
            _ if *at >= duration => {
                let what = format!("{at} is not before the end of the run, {duration}");
                findings.add(&path, what);
            }
            _ => {}
        }
        before = *at;
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
        Application::Messages { interval, buffer } => messages(*interval, *buffer, path, findings),
        Application::Request { of: _, size, think: _ } => {
            findings.require(*size > Bytes::ZERO, &path.key("size"), "the requests are empty");
        }
        Application::Respond { smallest, largest } => {
            let is_some = *smallest > Bytes::ZERO;
            findings.require(is_some, &path.key("smallest"), "the answers are empty");
            if smallest > largest {
                let what = format!("{largest} are less than `smallest`, {smallest}");
                findings.add(&path.key("largest"), what);
            }
        }
        Application::Adus { count, processing: _, depends } => {
            adus::application(*count, depends, path, findings);
        }
        Application::Media { .. } => super::media::application(application, path, findings),
        Application::Command { command, peer } => {
            let has_program = |words: &[String]| words.first().is_some_and(|word| !word.is_empty());
            let what = "no program is named; write command = [\"ping\", \"{sink}\"]";
            findings.require(has_program(command), &path.key("command"), what);
            let what = "no program is named; leave `peer` out where there is none";
            findings.require(peer.is_empty() || has_program(peer), &path.key("peer"), what);
        }
    }
}

fn messages(
    interval: Interval,
    buffer: Option<Packets>,
    path: &FieldPath,
    findings: &mut Findings,
) {
    let Interval { low, high } = interval;
    let takes_time = low > Duration::ZERO;
    let what =
        "the shortest interval is zero; write interval = { low = \"10 ms\", high = \"20 ms\" }";
    findings.require(takes_time, &path.key("interval").key("low"), what);
    if low > high {
        let what = format!("{high} is less than `low`, {low}");
        findings.add(&path.key("interval").key("high"), what);
    }
    let holds = buffer != Some(Packets::new(0));
    findings.require(
        holds,
        &path.key("buffer"),
        "the buffer holds nothing, so that nothing is sent",
    );
}

/// Whether each asking group finds a group that answers it alone.
pub(super) fn conversations(scenario: &Scenario, path: &FieldPath, findings: &mut Findings) {
    let mut answered = BTreeSet::new();
    for (name, group) in &scenario.flows {
        let Application::Request { of, .. } = &group.application else { continue };
        let field = path.key(name).key("application").key("of");
        let Some(answering) = scenario.flows.get(of) else {
            findings.unknown(&field, "flow group", of, scenario.flows.keys().map(String::as_str));
            continue;
        };
        if !matches!(answering.application, Application::Respond { .. }) {
            let what = format!("`{of}` does not answer; its application must be `respond`");
            findings.add(&field, what);
        } else if !answered.insert(of) {
            findings.add(&field, format!("`{of}` answers another group already"));
        } else if answering.count != group.count {
            let what = format!(
                "`{of}` has {} flows to answer {} that ask; write count = {}",
                answering.count, group.count, group.count
            );
            findings.add(&field, what);
        }
    }
    for (name, group) in &scenario.flows {
        if matches!(group.application, Application::Respond { .. }) && !answered.contains(name) {
            let what = format!(
                "nobody asks `{name}`; another group needs application = {{ kind = \"request\", \
                 of = \"{name}\" }}"
            );
            findings.add(&path.key(name).key("application"), what);
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
    if size > MAX_PACKET {
        findings.add(path, format!("{size} are too many; at most {MAX_PACKET} will do"));
    }
}

fn tcp(spec: &TcpSpec, path: &FieldPath, findings: &mut Findings) {
    packet_size(spec.packet, MIN_TCP, &path.key("packet"), findings);
    let windows =
        [("initial-window", spec.initial_window), ("receive-window", spec.receive_window)];
    for (field, window) in windows {
        let opens = window > Packets::new(0);
        findings.require(opens, &path.key(field), "the window is zero, so that nothing is sent");
    }
    let has_rto = spec.min_rto > Duration::ZERO;
    let what = "the timeout is zero; write min-rto = \"200 ms\"";
    findings.require(has_rto, &path.key("min-rto"), what);
    let by_time = spec.recovery == RecoveryKind::Rack;
    let what = "tail loss probes find losses by time; write recovery = \"rack\"";
    findings.require(by_time || !spec.tail_loss_probe, &path.key("tail-loss-probe"), what);
    let selective = by_time || spec.recovery == RecoveryKind::Sack;
    let what = "it counts what is delivered; write recovery = \"rack\" or recovery = \"sack\"";
    let field = path.key("proportional-rate-reduction");
    findings.require(selective || !spec.proportional_rate_reduction, &field, what);
    let echoes = spec.timestamps || !spec.undo_timeouts;
    let what = "a spurious timeout is seen by the times that ACKs echo; leave out `timestamps`";
    findings.require(echoes, &path.key("undo-timeouts"), what);
    if let Congestion::Known(known) = &spec.congestion {
        let field = path.key("congestion").key("samples");
        let samples = known.samples();
        let echoes = spec.timestamps || samples != PertSamples::EveryAck;
        let what = "`every-ack` measures against the time stamps that ACKs echo; leave out \
                    `timestamps`, or write samples = \"all\"";
        findings.require(echoes, &field, what);
        // Equation 5.1 says itself from which packet the corrected sample runs.
        let own = spec.correct_self_induced_delay && samples.needs_simulated_tcp();
        let what = "`correct-self-induced-delay` has samples of its own, from a train's first \
                    packet; leave one of both out";
        findings.require(!own, &field, what);
    }
    let exact = spec.clock == Duration::ZERO || spec.rto == RtoKind::Rfc6298;
    let what =
        "Linux's timeout has no clock of ticks; leave out `clock`, or write rto = \"rfc6298\"";
    findings.require(exact, &path.key("rto"), what);
    match spec.ack {
        AckKind::Delayed { timeout } | AckKind::Linux { timeout } if timeout > MAX_ACK_TIMEOUT => {
            let what = format!("{timeout} is too long; at most 500 ms will do (RFC 5681, 4.2)");
            findings.add(&path.key("ack").key("timeout"), what);
        }
        AckKind::Adaptive { most } if most == Packets::new(0) => {
            let what = "an ACK covers at least one packet; write most = \"4 packets\"";
            findings.add(&path.key("ack").key("most"), what);
        }
        _ => {}
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
        Transport::Udp { packet, .. } | Transport::Spaced { packet, .. } => *packet,
        Transport::Adu(spec) => spec.packet,
        // How large its packets are, the command decides.
        Transport::Own {} | Transport::Ontempo(_) | Transport::Srt(_) | Transport::Rist(_) => {
            return;
        }
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
        if let Some(burst) =
            spec.policer.map(|policer| policer.bucket()).filter(|burst| packet > *burst)
        {
            let what = format!(
                "packets of {packet} never pass {name}, whose policer has a bucket of {burst}"
            );
            return findings.add(&path.key("transport").key("packet"), what);
        }
    }
}
