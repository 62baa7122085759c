//! Phrases for the parts of a scenario.

use ontempo_foundation::{Duration, Rate};

use super::varying;
use crate::model::{
    AckKind, AduSpec, AggregationSpec, Application, Congestion, Delay, DelayLaw, DeliveryKind,
    Dependencies, Direction, Drawn, EcnCode, FlowGroup, LinkSpec, LossSpec, PacingKind, QueueLimit,
    QueueSpec, RecoveryKind, Reservation, Service, SpacingFeedback, SpacingFrom, SpacingIncrease,
    SpacingKind, Start, TcpSpec, Transport, Unreserved,
};

/// `1 flow`, `25 flows`.
pub(super) fn count(number: u64, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", grouped(number))
}

/// A number with its thousands apart.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The duration with about four digits.
pub(super) fn rounded(duration: Duration) -> String {
    let step = 10u64.pow(duration.as_nanos().max(1).ilog10().saturating_sub(3));
    Duration::from_nanos(duration.as_nanos().saturating_add(step / 2) / step * step).to_string()
}

/// The rate with about four digits.
pub(super) fn rounded_rate(rate: Rate) -> Rate {
    let bits = rate.as_bits_per_sec();
    let step = 10u64.pow(bits.max(1).ilog10().saturating_sub(3));
    Rate::from_bits_per_sec(bits.saturating_add(step / 2) / step * step)
}

pub(crate) fn link(spec: &LinkSpec) -> String {
    let nominal = if spec.schedule.is_some() { " nominal" } else { "" };
    let mut parts = vec![rate(spec.rate) + nominal, delay(&spec.delay), queue(&spec.queue)];
    if let Some(mtu) = spec.mtu {
        parts.push(format!("packets of at most {mtu}"));
    }
    if let Some(spec) = &spec.loss {
        parts.push(loss(spec));
    }
    if spec.reordering {
        parts.push("packets may overtake".to_owned());
    }
    parts.extend(varying::link(spec));
    if let Some(policer) = &spec.policer {
        let burst = match policer.burst_time {
            Some(time) => format!("{time} ({})", policer.bucket()),
            None => policer.bucket().to_string(),
        };
        parts.push(format!("policed to {} with bursts of {burst}", policer.rate));
    }
    parts.extend(spec.aggregation.as_ref().map(aggregation));
    for (does, probability) in [("duplicated", spec.duplicate), ("corrupted", spec.corrupt)] {
        if probability > 0.0 {
            parts.push(format!("each packet {does} with probability {probability}"));
        }
    }
    parts.join(", ")
}

pub(super) fn rate(rate: Rate) -> String {
    match rate {
        Rate::UNLIMITED => "no limit of rate".to_owned(),
        rate => rate.to_string(),
    }
}

fn delay(delay: &Delay) -> String {
    match delay {
        Delay::Fixed(delay) => format!("{delay} of delay"),
        Delay::Law(law) => format!("a delay {}", self::law(law)),
    }
}

fn law(law: &DelayLaw) -> String {
    match law {
        DelayLaw::Constant { value } => format!("of {value}"),
        DelayLaw::Uniform { low, high, drawn } => {
            let drawn = match drawn {
                Drawn::PerPacket => "drawn for each packet",
                Drawn::PerLink => "drawn once for each link",
            };
            format!("between {low} and {high} ({drawn})")
        }
        DelayLaw::Exponential { mean } => format!("exponential with mean {mean}"),
        DelayLaw::HyperExponential { means, .. } => {
            let mean = rounded(law.mean());
            format!("hyper-exponential of {} branches with mean {mean}", means.len())
        }
        DelayLaw::Erlang { k, mean } => format!("Erlang of {k} stages with mean {mean}"),
        DelayLaw::Sum { terms } => {
            let terms: Vec<String> = terms.iter().map(self::law).collect();
            format!("that is a sum of one {}", terms.join(", one "))
        }
    }
}

fn queue(spec: &QueueSpec) -> String {
    match spec {
        QueueSpec::DropTail { limit: None } => "an endless queue".to_owned(),
        QueueSpec::DropTail { limit: Some(limit) } => format!("a drop-tail queue of {limit}"),
        QueueSpec::Wfq { limit, resume, unreserved, .. } => {
            let each = match unreserved {
                Unreserved::Together => "",
                Unreserved::ByFlow => " for each flow",
            };
            let drained = resume
                .map_or(String::new(), |resume| format!(", drained to {resume} after a drop"));
            format!("weighted fair queueing, {}{each}{drained}", unreserved_room(*limit))
        }
        QueueSpec::Cbq { limit, borrow, .. } => {
            let borrowing = if *borrow { "with borrowing" } else { "without borrowing" };
            format!("class-based queueing {borrowing}, {}", unreserved_room(*limit))
        }
        QueueSpec::Red { limit, ecn, byte_mode, mean_packet, .. } => {
            let acts = if *ecn { "marks" } else { "drops" };
            // What the user calls packets are none of the flows'.
            let each = match limit {
                QueueLimit::Packets(_) if *byte_mode => format!(" of {mean_packet} each"),
                _ => String::new(),
            };
            format!("a RED queue of {limit}{each} that {acts}")
        }
        QueueSpec::Codel { limit, ecn, .. } => {
            let acts = if *ecn { "marks" } else { "drops" };
            format!("a CoDel queue of {limit} that {acts}")
        }
        QueueSpec::FqCodel { limit, ecn, .. } => {
            let act = if *ecn { "mark" } else { "drop" };
            format!("FQ-CoDel queues of {limit} that {act}")
        }
        QueueSpec::Dualpi2 { limit, .. } => {
            format!("DualPI2 queues of {limit}, for L4S and classic packets")
        }
        QueueSpec::Pie { limit, ecn, .. } => {
            let acts = if *ecn { "marks" } else { "drops" };
            format!("a PIE queue of {limit} that {acts}")
        }
    }
}

fn loss(spec: &LossSpec) -> String {
    match spec {
        LossSpec::Bernoulli { rate } => {
            format!("each packet lost with probability {rate}")
        }
        LossSpec::Gilbert { p, q } => {
            let share = 100.0 * p / (p + q);
            format!("losses in bursts ({share:.2} % of packets, {:.1} at a time)", 1.0 / q)
        }
        LossSpec::Trace { lost } => {
            format!("{} lost by number", count(lost.len() as u64, "packet"))
        }
    }
}

/// `sent in aggregates of at most 64 packets after 118 us and up to 135 us at random`.
fn aggregation(spec: &AggregationSpec) -> String {
    let limits = [spec.packets.map(|limit| limit.to_string()), spec.bytes.map(|it| it.to_string())];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    let most = match limits.is_empty() {
        true => String::new(),
        false => format!(" of at most {}", limits.join(" or ")),
    };
    let mut waits = Vec::new();
    waits.extend((spec.access > Duration::ZERO).then(|| format!("after {}", spec.access)));
    let contention = (spec.contention > Duration::ZERO).then_some(spec.contention);
    waits.extend(contention.map(|longest| format!("up to {longest} at random")));
    let every = spec.every.map_or(String::new(), |every| format!(" every {every}"));
    let waits = if waits.is_empty() { String::new() } else { format!(" {}", waits.join(" and ")) };
    format!("sent in aggregates{most}{every}{waits}")
}

fn unreserved_room(limit: Option<QueueLimit>) -> String {
    match limit {
        Some(limit) => format!("{limit} of what is not reserved"),
        None => "no limit to what is not reserved".to_owned(),
    }
}

/// One reservation, such as `controlled load for nv: 614.4 kbit/s, …`.
pub(super) fn reservation(reservation: &Reservation) -> String {
    let service = match reservation.service {
        Service::ControlledLoad => "controlled load",
        Service::Guaranteed => "guaranteed service",
    };
    let flows = match reservation.index {
        Some(index) => format!("flow {index} of {}", reservation.flows),
        None => format!("each flow of {}", reservation.flows),
    };
    let what = match reservation.direction {
        Direction::Data => "",
        Direction::Acks => " (ACKs)",
    };
    let mut text =
        format!("{service} for {flows}{what}: {}, bucket {}", reservation.rate, reservation.bucket);
    if let Some(peak) = reservation.peak {
        text += &format!(", peak {peak}");
    }
    if let Some(reserved) = reservation.reserved {
        text += &format!(", {reserved} reserved");
    }
    text + &format!("; on {}", reservation.links.join(", "))
}

/// `25 video flows: 300 kbit/s constant bit rate over TCP with PERT, …`.
pub(super) fn group(name: &str, group: &FlowGroup) -> String {
    let flows = if group.count == 1 { "flow" } else { "flows" };
    let mut text = format!("{} {name} {flows}: ", grouped(u64::from(group.count)));
    text += &format!("{} over {}", application(&group.application), transport(&group.transport));
    let ends = [("from", &group.from), ("to", &group.to)];
    let ends: Vec<String> =
        ends.iter().filter_map(|(word, node)| Some(format!("{word} {}", node.as_ref()?))).collect();
    if !ends.is_empty() {
        text += &format!("; {}", ends.join(" "));
    }
    text += &match group.start {
        Start::At(Duration::ZERO) => "; starting at once".to_owned(),
        Start::At(start) => format!("; starting at {start}"),
        Start::Between { low: Duration::ZERO, high } => format!("; starting within {high}"),
        Start::Between { low, high } => format!("; starting between {low} and {high}"),
    };
    if let Some(stop) = group.stop {
        text += &format!(", stopping at {stop}");
    }
    if let [first, more @ ..] = &group.address_changes[..] {
        text += &format!(", with another address from {first} on");
        text.extend(more.iter().map(|at| format!(", and again from {at} on")));
    }
    if !group.playout.is_empty() {
        let delays: Vec<String> = group.playout.iter().map(Duration::to_string).collect();
        text += &format!("; played out after {}", delays.join(", "));
    }
    text
}

fn application(application: &Application) -> String {
    match application {
        Application::Ftp {} => "endless bulk data".to_owned(),
        Application::File { size } => format!("a file of {size}"),
        Application::Cbr { rate: Some(rate), .. } => format!("{rate} constant bit rate"),
        Application::Cbr { interval: Some(interval), .. } => format!("a packet every {interval}"),
        Application::Cbr { .. } => "constant bit rate".to_owned(),
        Application::OnOff { rate, on, off, shape } => {
            let law = match shape {
                Some(shape) => format!("Pareto with exponent {shape}"),
                None => "exponential".to_owned(),
            };
            format!("{rate} for {on}, silence for {off} (means, {law})")
        }
        Application::Http { think, objects, size, .. } => {
            format!("web pages of {objects} objects of {size}, {think} apart (means, Pareto)")
        }
        Application::Messages { interval, .. } if interval.low == interval.high => {
            format!("a message every {}", interval.low)
        }
        Application::Messages { interval, .. } => {
            format!("a message every {} to {}", interval.low, interval.high)
        }
        Application::Request { of, size, think } => {
            format!("requests of {size} to {of}, {think} after each answer")
        }
        Application::Respond { smallest, largest } => {
            format!("answers of {smallest} to {largest}")
        }
        Application::Adus { count, processing, depends } => {
            let which = match depends {
                Dependencies::None {} => String::new(),
                Dependencies::Images { adus, tables, .. } => {
                    format!(", in images of {adus}, {tables} of them tables")
                }
                Dependencies::Listed { adus } => {
                    format!(", {} that depend on others", adus.len())
                }
            };
            format!("{count} ADUs{which}, each processed for {processing}")
        }
        Application::Media { .. } => match crate::film::plan(application) {
            Some(Ok(plan)) => format!("a film of {}", plan.offered()),
            _ => "a film".to_owned(),
        },
        Application::Command { command, .. } => format!("the command `{}`", command.join(" ")),
    }
}

fn transport(transport: &Transport) -> String {
    match transport {
        Transport::Udp { packet, ecn } => {
            let code = match ecn {
                EcnCode::None => "",
                EcnCode::Ect0 => " with ECT(0)",
                EcnCode::Ect1 => " with ECT(1)",
            };
            format!("UDP in packets of {packet}{code}")
        }
        Transport::Tcp(spec) => tcp(spec),
        Transport::Spaced { packet, controller, spacing, spacing_from, feedback, increase } => {
            let how = match (controller, spacing) {
                (Some(SpacingKind::Psp), _) => "spaced by PSP".to_owned(),
                (Some(SpacingKind::PspDamped), _) => "spaced by damped PSP".to_owned(),
                (Some(SpacingKind::PspDampedLast), _) => {
                    "spaced by PSP, damped by its last decision".to_owned()
                }
                (None, Some(spacing)) => format!("{spacing} apart"),
                (None, None) => "spaced".to_owned(),
            };
            let from = match spacing_from {
                SpacingFrom::Start => "start to start",
                SpacingFrom::End => "end to start",
            };
            let on = match feedback {
                None => "",
                Some(SpacingFeedback::EachReport) => ", deciding on each report",
                Some(SpacingFeedback::Fresh) => ", deciding on fresh reports",
            };
            let by = match increase {
                None => "",
                Some(SpacingIncrease::FixedStep) => ", faster by 2 us",
                Some(SpacingIncrease::PacketPerRoundTrip) => ", faster by a packet per round trip",
            };
            format!("UDP in packets of {packet}, {how}{on}{by}, {from}")
        }
        Transport::Adu(spec) => adu(spec),
        Transport::Ontempo(spec) => {
            let latency = spec.latency.map(|latency| format!("latency {latency}"));
            let latency = latency.unwrap_or_else(|| "latency by the round trip".to_owned());
            format!("ontempo, {latency}, {}", spec.congestion)
        }
        Transport::Srt(spec) => format!("SRT, latency {}", spec.latency),
        Transport::Rist(spec) => format!("RIST, buffer {}", spec.buffer),
        Transport::Own {} => "whatever it opens".to_owned(),
    }
}

fn adu(spec: &AduSpec) -> String {
    let order = match spec.delivery {
        DeliveryKind::InOrder => "in order",
        DeliveryKind::OutOfOrder => "out of order",
        DeliveryKind::PartialOrder => "in partial order",
    };
    let pace = match spec.interval {
        Duration::ZERO => "as fast as the window allows".to_owned(),
        interval => format!("one every {interval}"),
    };
    format!(
        "ADU transport in packets of {}, {pace}, a window of {}, an ACK for every {}, \
         delivered {order}",
        spec.packet, spec.window, spec.ack_every
    )
}

fn tcp(spec: &TcpSpec) -> String {
    let mut parts = vec![
        format!("TCP with {}", congestion(&spec.congestion)),
        format!("packets of {}", spec.packet),
        match spec.recovery {
            RecoveryKind::Reno => "Reno recovery".to_owned(),
            RecoveryKind::NewReno => "NewReno recovery".to_owned(),
            RecoveryKind::Sack => "SACK recovery".to_owned(),
            RecoveryKind::Rack if spec.tail_loss_probe => {
                "RACK recovery with tail loss probes".to_owned()
            }
            RecoveryKind::Rack => "RACK recovery".to_owned(),
        },
        match spec.ack {
            AckKind::Immediate {} => "an ACK for each packet".to_owned(),
            AckKind::Linux { timeout } => {
                format!("ACKs as Linux sends them, for each second packet or after {timeout}")
            }
            AckKind::Delayed { timeout } => {
                format!("an ACK for each second packet or after {timeout}")
            }
            AckKind::Adaptive { most } => format!("an ACK for up to {most}, adapted"),
        },
    ];
    let pacing = match spec.pacing {
        PacingKind::Off => None,
        PacingKind::Window => Some("paced by the window"),
        PacingKind::Controller => Some("paced by the controller"),
    };
    let corrected =
        spec.correct_self_induced_delay.then_some("RTT corrected for self-induced delay");
    let ecn = spec.ecn.then_some("ECN");
    let reduction =
        spec.proportional_rate_reduction.then_some("a proportional reduction of the window");
    let handshake = spec.handshake.then_some("a handshake");
    let all = [pacing, corrected, ecn, reduction, handshake];
    parts.extend(all.into_iter().flatten().map(str::to_owned));
    parts.join(", ")
}

fn congestion(congestion: &Congestion) -> String {
    let known = match congestion {
        Congestion::Kernel { name } | Congestion::Custom { name, .. } => return name.clone(),
        Congestion::Known(known) => known,
    };
    let title = known.name().title();
    let changed = known.changed();
    if changed.is_empty() {
        return title.to_owned();
    }
    let changed: Vec<_> = changed.iter().map(|(name, value)| format!("{name} {value}")).collect();
    format!("{title} ({})", changed.join(", "))
}
