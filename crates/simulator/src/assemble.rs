//! From a scenario to agents, links and routes.

use std::collections::BTreeMap;
use std::sync::Arc;

use ontempo_elements::link;
use ontempo_foundation::{Bytes, Duration, RandomStream, Rate, Time};
use ontempo_mechanisms::ack::{
    AckPolicy, AdaptiveAck, AdaptiveAckParameters, DelayedAck, LinuxAck,
};
use ontempo_mechanisms::adu::{
    AduReceiver, AduSender, AduSenderParameters, Retransmission, WindowRule,
};
use ontempo_mechanisms::congestion::{
    CongestionControl, CongestionName, Controller, CustomLaw, Governor, PertSamples, Start,
    UnknownCongestion, Window, World,
};
use ontempo_mechanisms::delivery::DeliveryOrder;
use ontempo_mechanisms::playout::Playout;
use ontempo_mechanisms::recovery::{LossRecovery, RecoveryStyle};
use ontempo_mechanisms::rist::RistParameters;
use ontempo_mechanisms::rtt::{RtoParameters, RttEstimator, Sampling};
use ontempo_mechanisms::srt::{MaxBandwidth, SrtParameters};
use ontempo_media::Film;
use ontempo_runtime::{
    AddressChanges, Distance, FilmSource, Pace, Prompts, Showing, Source, messages, prompts, source,
};
use ontempo_scenario::model::{
    AckKind, AduSpec, Application, Congestion, DeliveryKind, EcnCode, FlowGroup, PacingKind,
    RecoveryKind, ReliabilityKind, RetransmissionKind, RtoKind, Scenario, TcpSpec, Transport,
    WindowCounts,
};
use ontempo_scenario::{CustomParameters, LaidFlow, Layout, film};
use ontempo_session::simulated::StreamOptions;
use ontempo_transport::Reliability;

use crate::agents::{
    Adu, Adus, Agent, Carried, Consumer, Ends, ExtensionSettings, Extensions, Ontempo, Plain,
    Receiver, Rist, SenderSettings, Spaced, Srt, Tcp, Udp,
};
use crate::custom::CustomLaws;
use crate::errors::SetupError;
use crate::fabric::Fabric;
use crate::hosts::Hosts;
use crate::watch::Watch;

/// Headers of a TCP segment in bytes.
const TCP_HEADERS: u64 = 40;

/// Headers of a UDP packet in bytes.
const UDP_HEADERS: u64 = 28;

/// The parts of a run.
pub(crate) struct Assembly {
    pub(crate) layout: Layout,
    pub(crate) agents: Vec<Agent>,
    pub(crate) fabric: Fabric,
}

pub(crate) fn assemble(
    scenario: &Scenario,
    seed: u64,
    laws: &dyn CustomLaws,
) -> Result<Assembly, SetupError> {
    let layout = scenario.layout(seed)?;
    let links = (0..layout.links.len())
        .map(|place| Ok(link(&layout, place, seed)?))
        .collect::<Result<Vec<_>, SetupError>>()?;
    let groups: Arc<[u32]> = layout.flows.iter().map(|flow| flow.group as u32).collect();
    let watches = layout
        .links
        .iter()
        .map(|laid| {
            let count = scenario.measure.queues.contains(&laid.name);
            let record = scenario.measure.packets.contains(&laid.name);
            let watch = || Watch::new(groups.clone(), layout.groups.len(), count, record);
            (count || record).then(|| Box::new(watch()))
        })
        .collect();
    let routes: Vec<&[usize]> = layout
        .flows
        .iter()
        .flat_map(|flow| [flow.forward.as_slice(), flow.reverse.as_slice()])
        .collect();
    let jitter = scenario.hosts.jitter;
    let name = |flow: &LaidFlow| format!("{}.{}", layout.groups[flow.group], flow.index);
    let names = layout.flows.iter().map(name);
    let hosts = (jitter > Duration::ZERO).then(|| Hosts::new(jitter, seed, names));
    let (mut fabric, starts) = Fabric::new(links, &routes, watches, groups.clone(), hosts);
    let mut outside = Outside { laws, films: Films::default() };
    let mut agents = layout
        .flows
        .iter()
        .enumerate()
        .map(|(number, flow)| {
            let name = &layout.groups[flow.group];
            let route = (number as u32, starts[2 * number], starts[2 * number + 1]);
            let interface =
                flow.forward.first().map_or(Rate::UNLIMITED, |link| layout.links[*link].rate);
            let prompts = prompts(scenario, &layout, flow);
            let mut agent =
                agent(scenario, name, flow, route, (interface, prompts), &mut outside, seed)?;
            if flow.forward.iter().any(|link| layout.links[*link].duplicate > 0.0) {
                agent.expect_copies();
            }
            Ok(agent)
        })
        .collect::<Result<Vec<_>, SetupError>>()?;
    tell_losses(scenario, &layout, &mut fabric);
    allow_answers_ahead(&mut agents, &layout, &fabric);
    Ok(Assembly { layout, agents, fabric })
}

/// Lets the network tell losses to the flows that ask for it.
fn tell_losses(scenario: &Scenario, layout: &Layout, fabric: &mut Fabric) {
    for (number, flow) in layout.flows.iter().enumerate() {
        let group = scenario.flows.get(&layout.groups[flow.group]);
        if let Some(Transport::Adu(spec)) = group.map(|group| &group.transport)
            && let Some(after) = spec.loss_known_after
        {
            fabric.tell_losses(number as u32, after);
        }
    }
}

fn allow_answers_ahead(agents: &mut [Agent], layout: &Layout, fabric: &Fabric) {
    let mut users = vec![0u32; layout.links.len()];
    for link in layout.flows.iter().flat_map(|flow| flow.forward.iter().chain(&flow.reverse)) {
        users[*link] += 1;
    }
    for (agent, flow) in agents.iter_mut().zip(&layout.flows) {
        let in_order = fabric.keeps_order(&flow.forward);
        match agent {
            Agent::Tcp(tcp)
                if fabric.answers_can_be_computed_ahead(&flow.forward, &flow.reverse, &users) =>
            {
                tcp.allow_answers_ahead();
            }
            Agent::Udp(udp) if in_order => udp.allow_counting_ahead(),
            Agent::Spaced(spaced) if in_order => spaced.allow_counting_ahead(),
            _ => {}
        }
    }
}

fn agent(
    scenario: &Scenario,
    name: &str,
    flow: &LaidFlow,
    (number, route, back): (u32, u32, u32),
    (interface, prompts): (Rate, Option<Prompts>),
    outside: &mut Outside<'_>,
    seed: u64,
) -> Result<Agent, SetupError> {
    let group = scenario.flows.get(name).ok_or_else(|| SetupError::unknown_group(name))?;
    let stream =
        |purpose: &str| RandomStream::new(seed, &format!("flow {name}.{} {purpose}", flow.index));
    let stop = flow.stop.unwrap_or(Time::NEVER);
    let end = Time::ZERO + scenario.duration;
    let playout = (!group.playout.is_empty()).then(|| Playout::new(&group.playout, end));
    let film = outside.films.of(flow.group, &group.application);
    let laws = |custom: &str, parameters: &CustomParameters| {
        let law = outside.laws.law(&format!("{name}.{}", flow.index), custom, parameters);
        law.ok_or_else(|| SetupError::unknown_controller(name, custom))
    };
    let ends = match &film {
        Some(film) => {
            let seed = stream("transport").next_u64();
            ends_of((group, name), film, flow.start, seed, &laws)?
        }
        None => None,
    };
    let changes = AddressChanges::new(&flow.address_changes);
    if let (Some(film), Some(ends)) = (&film, ends) {
        let carried = Carried::new((number, route, back), film.clone(), (flow.start, stop), ends);
        return Ok(Agent::Carried(Box::new(carried.with_address_changes(changes))));
    }
    let source = |packet: Bytes, headers: Bytes| match &film {
        Some(film) => {
            let film = FilmSource::new(Arc::clone(film), flow.start, packet - headers);
            Source::Film(Box::new(film))
        }
        None => source(group, flow.start, (packet, headers), stream("application")),
    };
    let receiver = |payload: Bytes| match consumer(group, flow.start, scenario.measure.adus) {
        None if let Some(film) = &film => {
            let showing = Showing::new(Arc::clone(film), flow.start);
            Receiver::of_film_in_stream(showing, payload.get())
        }
        Some(consumer) => Receiver::of_adus(consumer),
        None => {
            let messages = messages(scenario, group, payload, prompts);
            Receiver::new(playout, scenario.measure.adus, messages)
        }
    };
    Ok(match &group.transport {
        Transport::Udp { packet, ecn } => {
            let headers = Bytes::new(UDP_HEADERS);
            let source = source(*packet, headers);
            let receiver = receiver(*packet - headers);
            let udp = Udp::new((number, route), wire_size(*packet), source, stop, receiver);
            Agent::Udp(udp.with_ecn(*ecn))
        }
        Transport::Spaced { packet, spacing, controller, spacing_from, feedback, increase } => {
            let headers = Bytes::new(UDP_HEADERS);
            let source = source(*packet, headers);
            let receiver = receiver(*packet - headers);
            let udp = Udp::new((number, route), wire_size(*packet), source, stop, receiver);
            let distance = Distance::new(*spacing_from, *packet, interface);
            let pace = Pace::new(*spacing, *controller, *feedback, *increase);
            let spaced = Spaced::new((number, back), udp, pace, distance);
            Agent::Spaced(Box::new(spaced))
        }
        Transport::Tcp(tcp) => {
            let headers = Bytes::new(TCP_HEADERS);
            let source = source(tcp.packet, headers);
            let mut controller = controller(tcp, name, stream("congestion"), &laws)?;
            let is_rate_based = controller.delivery_rates().is_some();
            let machinery = (
                loss_recovery(tcp),
                controller,
                RttEstimator::new(rto_parameters(tcp)),
                Extensions::new(extension_settings(tcp, is_rate_based)),
            );
            let flow_of_tcp = Tcp::new(
                (number, route, back),
                sender_settings(tcp, stop, is_rate_based),
                source,
                machinery,
                ack_policy(tcp.ack, (tcp.packet - headers).get()),
                tcp.correct_self_induced_delay,
                receiver(tcp.packet - headers),
            );
            Agent::Tcp(flow_of_tcp.with_address_changes(changes))
        }
        Transport::Adu(spec) => Agent::Adu(Box::new(Adu::new(
            (number, route, back),
            wire_size(spec.packet),
            (adus_of(group), stop),
            adu_ends(spec),
            receiver(spec.packet),
        ))),
        Transport::Ontempo(_) | Transport::Srt(_) | Transport::Rist(_) => {
            let why = "it carries films alone";
            return Err(SetupError::not_simulated(name, "transport.kind", why));
        }
        Transport::Own {} => {
            let why = "a simulation has no programs";
            return Err(SetupError::not_simulated(name, "application.kind", why));
        }
    })
}

/// What the agents of a run are given.
struct Outside<'a> {
    laws: &'a dyn CustomLaws,
    films: Films,
}

/// The law of a controller of the program, by its name and parameters.
type Laws<'a> = &'a dyn Fn(&str, &CustomParameters) -> Result<CustomLaw, SetupError>;

/// The films of the groups, each made once.
#[derive(Default)]
struct Films(BTreeMap<usize, Option<Arc<Film>>>);

impl Films {
    fn of(&mut self, group: usize, application: &Application) -> Option<Arc<Film>> {
        self.0.entry(group).or_insert_with(|| film::of(application).map(Arc::new)).clone()
    }
}

/// Both ends of a transport that carries a film in datagrams of its own; `None` for others.
fn ends_of(
    (group, name): (&FlowGroup, &str),
    film: &Arc<Film>,
    start: Time,
    seed: u64,
    laws: Laws<'_>,
) -> Result<Option<Box<dyn Ends + Send>>, SetupError> {
    Ok(match &group.transport {
        Transport::Udp { ecn, .. } => Some(Box::new(Plain::new(*ecn != EcnCode::None))),
        Transport::Ontempo(spec) => {
            let called = spec.congestion.clone();
            let (congestion, custom) = match spec.known_congestion() {
                Some(known) => {
                    let field = "transport.congestion-parameters";
                    let known = known.map_err(|error| {
                        SetupError::not_simulated(name, field, &error.to_string())
                    });
                    (known?, None)
                }
                None => {
                    let law = laws(&called, &spec.congestion_parameters)?;
                    (CongestionName::default().into(), Some(law))
                }
            };
            let options = StreamOptions {
                latency: spec.latency,
                grace: spec.grace,
                order: delivery_order(spec.order),
                reliability: match spec.reliability {
                    ReliabilityKind::Full => Reliability::Full,
                    ReliabilityKind::Deadline => Reliability::Deadline,
                    ReliabilityKind::None => Reliability::None,
                },
                congestion,
                custom,
            };
            let ontempo = Ontempo::new(Arc::clone(film), start, called, options, seed);
            Some(Box::new(ontempo.map_err(|error| {
                SetupError::not_simulated(name, "transport", &error.to_string())
            })?))
        }
        Transport::Adu(spec) => {
            let order = delivery_order(spec.delivery);
            Some(Box::new(Adus::new(Arc::clone(film), adu_ends(spec), order)))
        }
        Transport::Srt(spec) => {
            let max_bandwidth = match spec.max_bandwidth {
                Some(rate) => MaxBandwidth::Fixed(rate),
                None => MaxBandwidth::Unlimited,
            };
            let latency = spec.latency;
            let parameters = SrtParameters { latency, max_bandwidth, ..SrtParameters::default() };
            Some(Box::new(Srt::new(start, parameters)))
        }
        Transport::Rist(spec) => {
            let parameters = RistParameters {
                buffer: spec.buffer,
                null_packet_deletion: spec.null_packet_deletion,
                ..RistParameters::default()
            };
            Some(Box::new(Rist::new(start, parameters)))
        }
        _ => None,
    })
}

fn adus_of(group: &FlowGroup) -> u64 {
    match group.application {
        Application::Adus { count, .. } => count,
        _ => 0,
    }
}

/// The receiving application of ADUs; `None` for other applications. Over TCP, ADUs arrive in
/// sequence, and are all due at the start.
fn consumer(group: &FlowGroup, start: Time, records: bool) -> Option<Consumer> {
    let Application::Adus { count, processing, depends } = &group.application else { return None };
    let (interval, order) = match &group.transport {
        Transport::Adu(spec) => (spec.interval, delivery_order(spec.delivery)),
        _ => (Duration::ZERO, DeliveryOrder::InOrder),
    };
    let work = (*processing, depends.into());
    Some(Consumer::new((start, interval), *count, order, work, records))
}

fn delivery_order(kind: DeliveryKind) -> DeliveryOrder {
    match kind {
        DeliveryKind::InOrder => DeliveryOrder::InOrder,
        DeliveryKind::OutOfOrder => DeliveryOrder::OutOfOrder,
        DeliveryKind::PartialOrder => DeliveryOrder::PartialOrder,
    }
}

fn adu_ends(spec: &AduSpec) -> (AduSender, AduReceiver) {
    let rule = match spec.window_counts {
        WindowCounts::Buffers => WindowRule::Buffers,
        WindowCounts::Numbers => WindowRule::Sequence,
    };
    let sender = AduSender::new(AduSenderParameters {
        interval: spec.interval,
        window: spec.window,
        rule,
        retransmission: match spec.retransmission {
            RetransmissionKind::Paced => Retransmission::Paced,
            RetransmissionKind::AtOnce => Retransmission::AtOnce,
        },
        reordering: spec.lost_after.get(),
        rto: RtoParameters {
            initial: spec.initial_rto,
            minimum: spec.min_rto,
            ..RtoParameters::default()
        },
        back_off: spec.back_off,
        told_losses: spec.loss_known_after.is_some(),
    });
    (sender, AduReceiver::new(spec.ack_every.get(), rule, spec.tells_space))
}

fn wire_size(packet: Bytes) -> u32 {
    u32::try_from(packet.get()).unwrap_or(u32::MAX)
}

/// `is_rate_based`: the controller sets the rate of sending, whatever the setting of pacing.
fn sender_settings(tcp: &TcpSpec, stop: Time, is_rate_based: bool) -> SenderSettings {
    SenderSettings {
        packet_size: wire_size(tcp.packet),
        receive_window: tcp.receive_window.get(),
        pacing: if is_rate_based { PacingKind::Controller } else { tcp.pacing },
        timestamps: tcp.timestamps,
        grow_when_application_limited: tcp.grow_when_application_limited,
        idle_restart: tcp.idle_restart,
        ecn: tcp.ecn,
        samples: match &tcp.congestion {
            Congestion::Known(known) => known.samples(),
            Congestion::Kernel { .. } | Congestion::Custom { .. } => PertSamples::All,
        },
        stop,
    }
}

fn loss_recovery(tcp: &TcpSpec) -> LossRecovery {
    let recovery = LossRecovery::new(recovery_style(tcp.recovery), tcp.limited_transmit);
    if tcp.sack_after_timeout { recovery } else { recovery.without_sack_after_timeout() }
}

fn recovery_style(kind: RecoveryKind) -> RecoveryStyle {
    match kind {
        RecoveryKind::Reno => RecoveryStyle::Reno,
        RecoveryKind::NewReno => RecoveryStyle::NewReno,
        RecoveryKind::Sack => RecoveryStyle::Sack,
        RecoveryKind::Rack => RecoveryStyle::Rack,
    }
}

/// `is_rate_based`: the controller sets the window of loss episodes itself.
fn extension_settings(tcp: &TcpSpec, is_rate_based: bool) -> ExtensionSettings {
    ExtensionSettings {
        handshake: tcp.handshake,
        variation: (tcp.rto == RtoKind::Linux).then_some(tcp.min_rto),
        proportional: tcp.proportional_rate_reduction && !is_rate_based,
        validates_usage: !tcp.grow_when_application_limited,
        decays: tcp.idle_decay,
        undoes_timeouts: tcp.undo_timeouts,
        by_time: tcp.recovery == RecoveryKind::Rack,
        probes: tcp.tail_loss_probe.then_some(tcp.min_rto),
    }
}

fn rto_parameters(tcp: &TcpSpec) -> RtoParameters {
    if tcp.rto == RtoKind::Linux {
        return RtoParameters { minimum: tcp.min_rto, ..RtoParameters::linux() };
    }
    if tcp.clock == Duration::ZERO {
        return RtoParameters { minimum: tcp.min_rto, ..RtoParameters::default() };
    }
    RtoParameters {
        minimum: tcp.min_rto,
        granularity: tcp.clock,
        sampling: Sampling::Ticks,
        ..RtoParameters::ns2()
    }
}

fn ack_policy(kind: AckKind, payload: u64) -> AckPolicy {
    match kind {
        AckKind::Immediate {} => AckPolicy::Immediate,
        AckKind::Delayed { timeout } => {
            AckPolicy::Delayed(DelayedAck::new(ontempo_foundation::Packets::new(2), timeout))
        }
        AckKind::Linux { timeout } => AckPolicy::Linux(Box::new(LinuxAck::new(payload, timeout))),
        AckKind::Adaptive { most } => {
            AckPolicy::Adaptive(Box::new(AdaptiveAck::new(AdaptiveAckParameters {
                maximum: most.get(),
                ..AdaptiveAckParameters::default()
            })))
        }
    }
}

fn controller(
    tcp: &TcpSpec,
    name: &str,
    random: RandomStream,
    laws: Laws<'_>,
) -> Result<Controller, SetupError> {
    let window = |packets: u64| Window::of_packets(packets as f64);
    let start = Start {
        packet_size: tcp.packet,
        initial_window: window(tcp.initial_window.get()),
        initial_ssthresh: tcp
            .initial_ssthresh
            .map_or(Window::of_packets(f64::INFINITY), |packets| window(packets.get())),
        timestamps: tcp.timestamps,
    };
    match &tcp.congestion {
        Congestion::Known(known) => match known.governor() {
            Governor::Window(law) => Ok(law.start(start, random)),
            Governor::Spacing(_) => {
                let why = UnknownCongestion::not_in(World::Simulation, known.name()).to_string();
                Err(SetupError::not_simulated(name, "transport.congestion", &why))
            }
        },
        Congestion::Custom { name, parameters } => {
            Ok(Controller::Custom(laws(name, parameters)?.start(start, random)))
        }
        Congestion::Kernel { .. } => {
            let why = "it is in the Linux kernel alone";
            Err(SetupError::not_simulated(name, "transport.congestion", why))
        }
    }
}
