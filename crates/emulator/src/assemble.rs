//! From a laid-out scenario to namespaces, the network between them, and the flows' traffic.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use ontempo_elements::{changeable_link, link};
use ontempo_foundation::{Bytes, RandomStream, Rate, Time};
use ontempo_mechanisms::playout::Playout;
use ontempo_media::Film;
use ontempo_runtime::{Distance, FilmSource, Pace, Source, messages, prompts, source};
use ontempo_scenario::model::{EcnCode, FlowGroup, Scenario, TcpSpec, Transport};
use ontempo_scenario::{Layout, film};
use socket2::{Domain, Protocol, Socket, Type};

use crate::Options;
use crate::carriers::{Carrier, carrier, inner};
use crate::error::EmulationError;
use crate::limits::{kernel_name, tcp_payload, udp_payload};
use crate::namespace::{MIN_MTU, Namespaces, inside, number};
use crate::network::{Network, Spans};
use crate::numbering::Numbering;
use crate::routers::Routed;
use crate::routes::{ByAddress, ByLink, Routes};
use crate::sys::{limit_window, set_receive_buffer, stamp_arrivals};
use crate::traffic::{
    Agent, FilmFlow, FilmStream, Receiver, Spaced, Tcp, TcpSockets, Telling, Traffic, Udp,
    UdpSockets, Way,
};
use crate::watch::Watch;
use ontempo_runtime::{End, Version};

/// The destination port of flows.
const PORT: u16 = 5000;

/// Maximum unsent data in the kernel: enough to keep it busy until the next write.
const UNSENT: u32 = 256 << 10;

/// Receive buffer of a film's sink in bytes: a transport may give out a second of it at once.
const FILM_BUFFER: i32 = 16 << 20;

/// Receive window in packets if the scenario does not limit it.
const DEFAULT_WINDOW: u64 = 100_000;

/// Receive buffer over the window that it is for, and its least size in bytes.
const WINDOW_OVERHEAD: i32 = 4;
const MIN_ROOM: i32 = 64 << 10;

/// Largest packet of a flow's own traffic; commands are limited by the interface.
pub(crate) fn largest_packet(scenario: &Scenario) -> Bytes {
    let packet = |group: &FlowGroup| match &group.transport {
        Transport::Tcp(spec) => spec.packet,
        Transport::Udp { packet, .. } | Transport::Spaced { packet, .. } => *packet,
        Transport::Own {}
        | Transport::Adu(_)
        | Transport::Ontempo(_)
        | Transport::Srt(_)
        | Transport::Rist(_) => MIN_MTU,
    };
    scenario.flows.values().map(packet).max().unwrap_or(MIN_MTU)
}

/// The network of a run.
pub(crate) fn network(
    scenario: &Scenario,
    layout: &Layout,
    options: &Options,
    routed: Option<&Routed>,
    spans: Spans,
    changeable: bool,
) -> Result<Network, EmulationError> {
    let build = if changeable && routed.is_none() { changeable_link } else { link };
    let behind_queues = routed.map(Routed::behind_queues);
    let elements = (0..layout.links.len())
        .map(|place| Ok(build(behind_queues.as_ref().unwrap_or(layout), place, options.seed)?))
        .collect::<Result<Vec<_>, EmulationError>>()?;
    let groups: Arc<[u32]> = layout.flows.iter().map(|flow| flow.group as u32).collect();
    let measure = &scenario.measure;
    let watches = layout.links.iter().map(|laid| {
        // Packets waiting in HTB are not seen here.
        let is_seen = routed.is_none_or(|routed| !routed.is_shaped(laid));
        let count = is_seen && measure.queues.contains(&laid.name);
        let record = measure.packets.contains(&laid.name);
        let watch = || Watch::new(groups.clone(), layout.groups.len(), count, record);
        (count || record).then(watch)
    });
    let payload = |flow: usize| match group_of(scenario, layout, flow).map(|group| &group.transport)
    {
        Some(Transport::Tcp(spec)) => tcp_payload(spec.packet, options.version).0,
        _ => 1,
    };
    let numbering = if measure.packets.is_empty() {
        Vec::new()
    } else {
        (0..layout.flows.len()).map(|flow| Numbering::new(payload(flow))).collect()
    };
    let routes = match routed {
        Some(routed) => Routes::ByLink(ByLink::new(layout, &routed.opposite)),
        None => Routes::ByAddress(ByAddress::new(layout)),
    };
    Ok(Network::new(elements, layout, routes, watches.collect(), numbering, spans))
}

fn group_of<'a>(scenario: &'a Scenario, layout: &Layout, flow: usize) -> Option<&'a FlowGroup> {
    scenario.flows.get(&layout.groups[layout.flows[flow].group])
}

/// The traffic of a run, with its sockets created in their hosts.
pub(crate) fn traffic(
    scenario: &Scenario,
    layout: &Layout,
    options: &Options,
    namespaces: &Namespaces,
) -> Result<Traffic, EmulationError> {
    let measure = &scenario.measure;
    let mut agents = Vec::with_capacity(layout.flows.len());
    let mut films = BTreeMap::new();
    for flow in 0..layout.flows.len() {
        let film = films.entry(layout.flows[flow].group).or_insert_with(|| {
            let group = group_of(scenario, layout, flow);
            group.and_then(|group| film::of(&group.application)).map(Arc::new)
        });
        agents.push(agent(scenario, layout, options, namespaces, (flow, film.as_ref()))?);
    }
    let wanted = |group: &str| {
        let is_named = |names: &Vec<String>| names.iter().any(|name| name == group);
        measure.sample_flows.as_ref().is_none_or(is_named)
    };
    let is_sampled = layout.flows.iter().map(|flow| wanted(&layout.groups[flow.group]));
    Ok(Traffic {
        starts: layout.flows.iter().map(|flow| flow.start).collect(),
        is_sampled: is_sampled.collect(),
        sample_every: measure.sample_every,
        measured_from: Time::ZERO + measure.from,
        samples: Vec::new(),
        before: vec![ontempo_runtime::FlowTotals::default(); agents.len()],
        telling: Telling::among(
            agents.iter().flatten().filter_map(|agent| agent.tcp().map(Tcp::congestion)),
        ),
        agents,
    })
}

fn agent(
    scenario: &Scenario,
    layout: &Layout,
    options: &Options,
    namespaces: &Namespaces,
    (number, film): (usize, Option<&Arc<Film>>),
) -> Result<Option<Agent>, EmulationError> {
    let Some(group) = group_of(scenario, layout, number) else { return Ok(None) };
    let flow = &layout.flows[number];
    let name = format!("{}.{}", layout.groups[flow.group], flow.index);
    let random = RandomStream::new(options.seed, &format!("flow {name} application"));
    let stop = flow.stop.unwrap_or(Time::NEVER);
    if let Some(film) = film
        && let Some(way) = film_way(group, namespaces, options.version, number)
            .map_err(|error| EmulationError::system(&format!("flow {name}"), &error))?
    {
        let film = FilmFlow::new(way, Arc::clone(film), (flow.start, stop));
        return Ok(Some(Agent::Film(Box::new(film))));
    }
    let end = Time::ZERO + scenario.duration;
    let playout = (!group.playout.is_empty()).then(|| Playout::new(&group.playout, end));
    let receiver = |payload: u64| {
        let prompts = prompts(scenario, layout, flow);
        let messages = messages(scenario, group, Bytes::new(payload), prompts);
        Receiver::new(playout, scenario.measure.adus, messages)
    };
    Ok(match &group.transport {
        Transport::Tcp(spec) => {
            let congestion = kernel_name(&spec.congestion).map_err(EmulationError::Input)?;
            let (payload, _) = tcp_payload(spec.packet, options.version);
            let sockets = tcp_sockets(namespaces, options.version, number, spec, congestion)
                .map_err(|error| refused(&name, spec, &error))?;
            let headers = Bytes::new(spec.packet.get() - payload);
            let source = match film {
                // The bytes of the film, one by one.
                Some(film) => Source::Film(Box::new(FilmSource::new(
                    Arc::clone(film),
                    flow.start,
                    Bytes::new(1),
                ))),
                None => source(group, flow.start, (spec.packet, headers), random),
            };
            let sizes = (spec.packet.get(), payload);
            let times = (flow.start, stop);
            let congestion = congestion.to_owned();
            let mut tcp = Tcp::new(sockets, congestion, sizes, source, times, receiver(payload));
            if let Some(film) = film {
                tcp = tcp.with_film(FilmStream::new(Arc::clone(film), flow.start));
            }
            Some(Agent::Tcp(Box::new(tcp)))
        }
        Transport::Udp { packet, .. } | Transport::Spaced { packet, .. } => {
            let payload = udp_payload(*packet, options.version);
            let sockets = udp_sockets(namespaces, options.version, number, group)
                .map_err(|error| EmulationError::system(&format!("flow {name}"), &error))?;
            let headers = Bytes::new(packet.get().saturating_sub(payload));
            let source = source(group, flow.start, (*packet, headers), random);
            let sizes = (packet.get(), payload as usize);
            let udp = Udp::new(sockets, sizes, source, stop, receiver(payload));
            let Transport::Spaced { spacing, spacing_from, controller, feedback, increase, .. } =
                &group.transport
            else {
                return Ok(Some(Agent::Udp(Box::new(udp))));
            };
            let first = flow.forward.first().map(|link| layout.links[*link].rate);
            let interface = first.unwrap_or(Rate::UNLIMITED);
            let distance = Distance::new(*spacing_from, *packet, interface);
            let pace = Pace::new(*spacing, *controller, *feedback, *increase);
            Some(Agent::Spaced(Box::new(Spaced::new(udp, pace, distance, flow.start))))
        }
        Transport::Own {}
        | Transport::Adu(_)
        | Transport::Ontempo(_)
        | Transport::Srt(_)
        | Transport::Rist(_) => None,
    })
}

/// The error sentence for a socket that could not be created.
fn refused(flow: &str, spec: &TcpSpec, error: &io::Error) -> EmulationError {
    let name = kernel_name(&spec.congestion).unwrap_or_default();
    if error.kind() != io::ErrorKind::NotFound {
        return EmulationError::system(&format!("flow {flow}"), error);
    }
    const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let known = std::fs::read_to_string(AVAILABLE).unwrap_or_default();
    let known: Vec<&str> = known.split_whitespace().collect();
    let load = if name == "pert" { "; load it with: ontempo kernel load pert" } else { "" };
    EmulationError::System(format!(
        "flow {flow}: this kernel has no congestion control `{name}`, only: {}{load}",
        known.join(", ")
    ))
}

fn address(end: End, version: Version, port: u16) -> socket2::SockAddr {
    SocketAddr::new(end.ip(version), port).into()
}

fn socket(version: Version, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let domain = match version {
        Version::V4 => Domain::IPV4,
        Version::V6 => Domain::IPV6,
    };
    let socket = Socket::new(domain, kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Creates a value in the namespace of `end`.
fn made<T: Send>(
    namespaces: &Namespaces,
    end: End,
    make: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    inside(namespaces.of(end), make).map_err(|error| io::Error::other(error.to_string()))?
}

fn tcp_sockets(
    namespaces: &Namespaces,
    version: Version,
    flow: usize,
    spec: &TcpSpec,
    congestion: &str,
) -> io::Result<TcpSockets> {
    let (payload, segment) = tcp_payload(spec.packet, version);
    let window = spec.receive_window.get();
    let window = (window != DEFAULT_WINDOW).then(|| {
        // That many full packets, whose bytes of data are what a window counts.
        i32::try_from(window.saturating_mul(payload)).unwrap_or(i32::MAX)
    });
    let segment = u32::try_from(segment).unwrap_or(u32::MAX);
    let (from, to) = (End::source(flow), End::sink(flow));
    let listener = made(namespaces, to, || {
        let socket = socket(version, Type::STREAM, Protocol::TCP)?;
        socket.set_tcp_mss(segment)?;
        if let Some(bytes) = window {
            // Small packets take several times their size; half of the largest `int`, since the kernel doubles it.
            let room = bytes.saturating_mul(WINDOW_OVERHEAD).clamp(MIN_ROOM, i32::MAX / 2);
            set_receive_buffer(socket.as_fd(), room)?;
            limit_window(socket.as_fd(), bytes)?;
        }
        socket.bind(&address(to, version, PORT))?;
        socket.listen(1)?;
        Ok(socket)
    })?;
    let source = made(namespaces, from, || {
        let socket = socket(version, Type::STREAM, Protocol::TCP)?;
        socket.set_tcp_congestion(congestion.as_bytes())?;
        socket.set_tcp_mss(segment)?;
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_notsent_lowat(UNSENT)?;
        // Data unsent at the end is discarded, so that it does not keep its namespace alive.
        socket.set_linger(Some(std::time::Duration::ZERO))?;
        socket.bind(&address(from, version, 0))?;
        Ok(socket)
    })?;
    let peer = SocketAddr::new(to.ip(version), PORT);
    let connection = (number(namespaces.of(from))?, from.ip(version), peer);
    Ok(TcpSockets { listener, source, to: peer.into(), connection, window })
}

/// How a film in datagrams is carried; `None` over TCP.
fn film_way(
    group: &FlowGroup,
    namespaces: &Namespaces,
    version: Version,
    flow: usize,
) -> io::Result<Option<Way>> {
    let name = match &group.transport {
        Transport::Udp { .. } => {
            let sockets = udp_sockets(namespaces, version, flow, group)?;
            stamp_arrivals(sockets.sink.as_fd(), FILM_BUFFER)?;
            return Ok(Some(Way { sockets, to: None, name: ("udp", None) }));
        }
        Transport::Srt(_) => ("srt", None),
        Transport::Rist(_) => ("rist", None),
        Transport::Ontempo(spec) => ("ontempo", Some(spec.congestion.clone())),
        _ => return Ok(None),
    };
    let carrier = carrier(&group.transport, flow, version).map_err(io::Error::other)?;
    let Some(Carrier { ports, .. }) = carrier else { return Ok(None) };
    let source = made(namespaces, End::source(flow), || {
        // Not connected: what the program does not take yet would else make the next call fail.
        socket(Version::V4, Type::DGRAM, Protocol::UDP)
    })?;
    let sink = made(namespaces, End::sink(flow), || {
        let socket = socket(Version::V4, Type::DGRAM, Protocol::UDP)?;
        socket.bind(&inner(ports.output).into())?;
        Ok(socket)
    })?;
    stamp_arrivals(sink.as_fd(), FILM_BUFFER)?;
    let sockets = UdpSockets { source, sink };
    Ok(Some(Way { sockets, to: Some(inner(ports.input).into()), name }))
}

/// The ECN field of the packets of UDP (RFC 3168, section 5).
fn ecn_of(transport: &Transport) -> u32 {
    match transport {
        Transport::Udp { ecn: EcnCode::Ect0, .. } => 0b10,
        Transport::Udp { ecn: EcnCode::Ect1, .. } => 0b01,
        _ => 0,
    }
}

fn udp_sockets(
    namespaces: &Namespaces,
    version: Version,
    flow: usize,
    group: &FlowGroup,
) -> io::Result<UdpSockets> {
    let ecn = ecn_of(&group.transport);
    let (from, to) = (End::source(flow), End::sink(flow));
    let sink = made(namespaces, to, || {
        let socket = socket(version, Type::DGRAM, Protocol::UDP)?;
        socket.set_recv_buffer_size(UNSENT as usize * 16)?;
        socket.bind(&address(to, version, PORT))?;
        // A connected socket takes nothing from another address.
        if group.address_changes.is_empty() {
            socket.connect(&address(from, version, PORT))?;
        }
        Ok(socket)
    })?;
    let source = made(namespaces, from, || {
        let socket = socket(version, Type::DGRAM, Protocol::UDP)?;
        socket.bind(&address(from, version, PORT))?;
        socket.connect(&address(to, version, PORT))?;
        match version {
            Version::V4 => socket.set_tos_v4(ecn)?,
            Version::V6 => socket.set_tclass_v6(ecn)?,
        }
        Ok(socket)
    })?;
    Ok(UdpSockets { source, sink })
}
