//! Network namespaces: hosts with one interface, whose other end this process holds; or hosts and
//! routers, with an interface for each of their links.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::thread;

use ontempo_foundation::Bytes;
use ontempo_scenario::Layout;
use ontempo_scenario::model::{Scenario, TcpSpec, Transport};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use socket2::{Domain, Socket, Type};

use crate::assemble::largest_packet;
use crate::error::EmulationError;
use crate::routers::Routed;
use crate::routes::{Host, hosts};
use crate::run_lock::RunLock;
use crate::{Options, iproute, sys};
use ontempo_runtime::{End, Version};

/// Minimum MTU of an interface: IPv6's 1280 (RFC 8200, section 5) and Ethernet's 1500.
pub(crate) const MIN_MTU: Bytes = Bytes::new(1500);

/// Name of a host's only interface.
const INTERFACE: &str = "ontempo0";

/// Transmit queue of an interface, in packets. The network's queues are those of its links; nothing
/// should ever be dropped here.
const INTERFACE_QUEUE: u32 = 20_000;

/// Maximum socket buffer in bytes: enough for 1 Gbit/s over 250 ms.
const MAX_BUFFERED: u32 = 32 << 20;

/// The namespaces of a run, with the other ends of their interfaces.
pub(crate) struct Namespaces {
    pub(crate) lock: RunLock,
    /// The hosts, and the routers if kernels route.
    pub(crate) hosts: Vec<Host>,
    /// The namespace of each of them.
    pub(crate) names: Vec<String>,
    pub(crate) interfaces: Vec<File>,
    /// MTU of the interfaces, in bytes.
    pub(crate) mtu: usize,
    /// The versions of IP of which they have addresses.
    pub(crate) versions: &'static [Version],
}

impl Namespaces {
    /// Creates the namespaces of `layout`, with the routers `routed` if kernels route.
    ///
    /// # Errors
    /// If a name is taken, or the system refuses.
    pub(crate) fn make(
        scenario: &Scenario,
        layout: &Layout,
        routed: Option<&Routed>,
        options: &Options,
    ) -> Result<Self, EmulationError> {
        let versions = versions(Socket::new(Domain::IPV6, Type::DGRAM, None), options.version)?;
        let own = std::process::id().to_string();
        let lock = RunLock::set(options.name.as_deref().unwrap_or(&own))?;
        let hosts = routed.map_or_else(|| hosts(layout), |routed| routed.namespaces.clone());
        let mut namespaces = Self {
            names: names(&lock, &hosts),
            lock,
            hosts,
            interfaces: Vec::new(),
            mtu: largest_packet(scenario).max(MIN_MTU).get() as usize,
            versions,
        };
        if let Some(taken) = namespaces.names.iter().find(|name| iproute::path(name).exists()) {
            return Err(EmulationError::System(format!(
                "the namespace {taken} is taken, and not by a run of ontempo; remove it with: ip \
                 netns delete {taken}, or give this run another name with --name"
            )));
        }
        namespaces.lock.note(&namespaces.names.clone())?;
        let lines: String =
            namespaces.names.iter().map(|name| format!("netns add {name}\n")).collect();
        iproute::batch("ip", None, &lines).map_err(EmulationError::System)?;
        let mut interfaces = Vec::new();
        for (place, (host, name)) in namespaces.hosts.iter().zip(&namespaces.names).enumerate() {
            let mtu = namespaces.mtu;
            let configuration =
                configuration(scenario, layout, routed, (place, host), versions, mtu);
            interfaces.extend(configure(name, namespaces.mtu, &configuration)?);
        }
        interfaces.sort_by_key(|(place, _)| *place);
        namespaces.interfaces = interfaces.into_iter().map(|(_, device)| device).collect();
        Ok(namespaces)
    }

    /// The namespace in which `end` is.
    pub(crate) fn of(&self, end: End) -> &str {
        let place = self.hosts.iter().position(|host| host.ends.contains(&end));
        place.map_or("", |place| &self.names[place])
    }
}

/// A namespace's name for each host; a number where two hosts' would be the same.
fn names(lock: &RunLock, hosts: &[Host]) -> Vec<String> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let unique = |host: &Host| {
        let name = lock.name(&host.name);
        let times = seen.entry(name.clone()).or_default();
        *times += 1;
        if *times == 1 { name } else { format!("{name}~{times}") }
    };
    hosts.iter().map(unique).collect()
}

/// Runs `work` in `namespace` on a new thread, so that no thread ever has to leave a namespace.
///
/// # Errors
/// If the namespace cannot be entered.
pub(crate) fn inside<T: Send>(
    namespace: &str,
    work: impl FnOnce() -> T + Send,
) -> Result<T, EmulationError> {
    let enter = || -> io::Result<T> {
        let space = File::open(iproute::path(namespace))?;
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&space), kind)?;
        Ok(work())
    };
    let done = thread::scope(|scope| scope.spawn(enter).join());
    match done {
        Ok(done) => done.map_err(|error| {
            EmulationError::System(format!("cannot enter the namespace {namespace}: {error}"))
        }),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// The kernel's id of a namespace: the inode of its file.
pub(crate) fn number(namespace: &str) -> io::Result<u32> {
    let number = fs::metadata(iproute::path(namespace))?.ino();
    u32::try_from(number).map_err(io::Error::other)
}

/// Configuration of a namespace.
struct Configuration {
    /// Names of its interfaces, each with its index among those of the run.
    interfaces: Vec<(usize, String)>,
    /// Addresses and routes, as commands of `ip -batch`.
    lines: String,
    /// Queues, as commands of `tc -batch`.
    queues: String,
    versions: &'static [Version],
    forwards: bool,
}

/// The versions of IP of which hosts have addresses: both, unless the kernel refuses a socket of IPv6.
///
/// # Errors
/// If it does, and the flows are to use it.
fn versions<T>(
    of_ipv6: io::Result<T>,
    chosen: Version,
) -> Result<&'static [Version], EmulationError> {
    match of_ipv6 {
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => match chosen {
            Version::V4 => Ok(&[Version::V4]),
            Version::V6 => Err(EmulationError::System(
                "this kernel has no IPv6 (ipv6.disable=1 on its command line?); leave out --ipv6"
                    .to_owned(),
            )),
        },
        // Any other failure is told of where a socket is needed.
        _ => Ok(&[Version::V4, Version::V6]),
    }
}

/// That of `host`, which is at `place` among the hosts.
fn configuration(
    scenario: &Scenario,
    layout: &Layout,
    routed: Option<&Routed>,
    (place, host): (usize, &Host),
    versions: &'static [Version],
    mtu: usize,
) -> Configuration {
    match routed {
        Some(routed) => router_configuration(scenario, layout, routed, (host, versions), mtu),
        None => Configuration {
            interfaces: vec![(place, INTERFACE.to_owned())],
            lines: route_to_all(INTERFACE, versions)
                + &host_lines(scenario, layout, (host, versions), |_| INTERFACE.to_owned()),
            queues: String::new(),
            versions,
            forwards: false,
        },
    }
}

/// Configures the interfaces, addresses and routes of `namespace`; returns the other ends of the
/// interfaces, each with its index.
///
/// # Errors
/// If the system refuses one of them.
fn configure(
    namespace: &str,
    mtu: usize,
    configuration: &Configuration,
) -> Result<Vec<(usize, File)>, EmulationError> {
    let devices = inside(namespace, || -> io::Result<Vec<_>> {
        settings(configuration)?;
        let interfaces = configuration.interfaces.iter();
        interfaces.map(|(place, name)| Ok((*place, sys::open_tun(name)?))).collect()
    })?;
    let refused = |error: &dyn std::fmt::Display| EmulationError::system(&namespace, error);
    let devices = devices.map_err(|error| refused(&error))?;
    let lines = link_lines(configuration, mtu) + &configuration.lines;
    iproute::batch("ip", Some(namespace), &lines).map_err(|error| refused(&error))?;
    if !configuration.queues.is_empty() {
        iproute::batch("tc", Some(namespace), &configuration.queues).map_err(|error| {
            let lacks = error.contains("kind is unknown");
            let why = "; routers = \"kernel\" takes a kernel with CONFIG_NET_SCH_HTB";
            refused(&format!("{error}{}", if lacks { why } else { "" }))
        })?;
    }
    Ok(devices)
}

/// Addresses of a host, and its routes to the other ends of its flows.
fn host_lines(
    scenario: &Scenario,
    layout: &Layout,
    (host, versions): (&Host, &[Version]),
    name: impl Fn(End) -> String,
) -> String {
    let mut lines = String::new();
    for end in &host.ends {
        lines += &own_address(*end, &name(*end), versions);
    }
    for end in &host.ends {
        let (name, peer) = (name(*end), end.peer());
        let group = scenario.flows.get(&layout.groups[layout.flows[end.flow()].group]);
        let options = match group.map(|group| &group.transport) {
            Some(Transport::Tcp(spec)) => tcp_route(spec),
            _ => String::new(),
        };
        for version in versions {
            let (to, from) = (whole(peer.ip(*version)), end.ip(*version));
            lines += &format!("route add {to} dev {name} src {from} {options}\n");
        }
    }
    lines
}

/// An address as a network of one.
fn whole(address: IpAddr) -> String {
    format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })
}

/// Brings the interfaces up.
fn link_lines(configuration: &Configuration, mtu: usize) -> String {
    let mut lines = "link set lo up\n".to_owned();
    for (_, name) in &configuration.interfaces {
        lines += &format!("link set {name} mtu {mtu} txqueuelen {INTERFACE_QUEUE}\n");
        if configuration.versions.contains(&Version::V6) {
            lines += &format!("link set {name} addrgenmode none\n");
        }
        lines += &format!("link set {name} up\n");
    }
    lines
}

/// Gives the interface `name` the addresses of `end`.
fn own_address(end: End, name: &str, versions: &[Version]) -> String {
    let line = |version: &Version| {
        let address = end.ip(*version);
        let at_once = if address.is_ipv6() { " nodad" } else { "" };
        format!("address add {} dev {name}{at_once}\n", whole(address))
    };
    versions.iter().map(line).collect()
}

/// A route to all addresses of a run, for a namespace with one way out.
fn route_to_all(name: &str, versions: &[Version]) -> String {
    let line = |version: &Version| {
        let all = match version {
            Version::V4 => "10.0.0.0/8",
            Version::V6 => "fd6f:6e74:656d:706f::/64",
        };
        format!("route add {all} dev {name}\n")
    };
    versions.iter().map(line).collect()
}

/// What a connection on a route begins with, as `ip route` writes it.
fn tcp_route(spec: &TcpSpec) -> String {
    let millis = spec.min_rto.as_nanos().div_ceil(1_000_000);
    let ecn = if spec.ecn { " features ecn" } else { "" };
    let window = spec.initial_window.get().min(u64::from(u16::MAX));
    format!("initcwnd {window} rto_min {millis}ms{ecn}")
}

/// Configuration of a node if all nodes are namespaces.
fn router_configuration(
    scenario: &Scenario,
    layout: &Layout,
    routed: &Routed,
    (space, versions): (&Host, &'static [Version]),
    mtu: usize,
) -> Configuration {
    let interface = |link| (link, routed.interface_name(link));
    let interfaces: Vec<_> = routed.interfaces(space.node).map(interface).collect();
    let name = |end| routed.interface_name(routed.first_link(end));
    let mut lines = host_lines(scenario, layout, (space, versions), name);
    for (link, end) in routed.addresses(space) {
        lines += &own_address(end, &routed.interface_name(link), versions);
    }
    let forwards = routed.forwards(space.node);
    if forwards {
        let is_peer = |end: &End| space.ends.iter().any(|own| own.peer() == *end);
        for (end, link) in routed.routes(space.node).iter().filter(|(end, _)| !is_peer(end)) {
            let name = routed.interface_name(*link);
            for version in versions {
                lines += &format!("route add {} dev {name}\n", whole(end.ip(*version)));
            }
        }
    } else {
        interfaces.iter().for_each(|(_, name)| lines += &route_to_all(name, versions));
    }
    let links = interfaces.iter().map(|(link, _)| routed.shaping(*link, mtu));
    Configuration { queues: links.collect(), interfaces, lines, versions, forwards }
}

/// Sysctls of the calling thread's namespace: no metrics cached from earlier connections, and
/// socket buffers large enough not to limit a connection.
fn settings(configuration: &Configuration) -> io::Result<()> {
    let buffers = format!("4096 131072 {MAX_BUFFERED}");
    let of_all = [
        ("ipv4/tcp_no_metrics_save", "1"),
        ("ipv4/tcp_rmem", &buffers),
        ("ipv4/tcp_wmem", &buffers),
    ];
    // A router reports every packet whose hop limit is exceeded, wherever packets come from.
    let of_routers = [
        ("ipv4/ip_forward", "1"),
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv4/icmp_ratelimit", "0"),
        ("ipv6/icmp/ratelimit", "0"),
    ];
    // A kernel may have it turned off in new namespaces (ipv6.disable_ipv6=1 on its command line).
    let of_ipv6 = [("ipv6/conf/all/disable_ipv6", "0")];
    let has_ipv6 = configuration.versions.contains(&Version::V6);
    let of_routers = of_routers.into_iter().filter(|_| configuration.forwards);
    let settings = of_all.into_iter().chain(of_ipv6).chain(of_routers);
    for (name, value) in settings.filter(|(name, _)| has_ipv6 || !name.starts_with("ipv6")) {
        let path = format!("/proc/sys/net/{name}");
        fs::write(&path, value)
            .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: &str = r#"
duration = "1 s"
[topology]
kind = "dumbbell"
bottleneck = { rate = "20 Mbit/s", delay = "10 ms" }
access = { rate = "1 Gbit/s", delay = "2 ms" }
[flows.a]
application = { kind = "ftp" }
transport = { kind = "tcp" }
"#;

    /// All that is set up of a scenario, as commands.
    fn lines(routers: &str, versions: &'static [Version]) -> String {
        let text = format!("{SCENARIO}[emulation]\nrouters = \"{routers}\"\n");
        let scenario = ontempo_scenario::parse(&text, "s.toml").expect("a scenario");
        let layout = scenario.layout(1).expect("a layout");
        let routed = crate::limits::routed(&scenario, &layout).expect("routers");
        let all = match &routed {
            Some(routed) => routed.namespaces.clone(),
            None => hosts(&layout),
        };
        let of = |host: &Host| {
            let configuration =
                configuration(&scenario, &layout, routed.as_ref(), (0, host), versions, 1500);
            link_lines(&configuration, 1500) + &configuration.lines
        };
        all.iter().map(of).collect()
    }

    #[test]
    fn without_ipv6_nothing_of_it_is_set_up() {
        for routers in ["modelled", "kernel"] {
            let of_ipv6 = |line: &&str| line.contains(':') || line.contains("addrgenmode");
            let both = lines(routers, &[Version::V4, Version::V6]);
            let v4 = lines(routers, &[Version::V4]);
            let (some, others): (Vec<&str>, Vec<&str>) = both.lines().partition(of_ipv6);
            assert!(some.len() > 6, "{some:?}");
            assert_eq!(v4.lines().collect::<Vec<_>>(), others);
        }
    }

    #[test]
    fn a_kernel_without_ipv6_is_named_where_it_is_chosen() {
        let refused = || Err::<(), _>(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
        assert_eq!(versions(refused(), Version::V4).expect("IPv4 does"), [Version::V4]);
        let error = versions(refused(), Version::V6).expect_err("there is none").to_string();
        assert!(error.contains("no IPv6") && error.contains("--ipv6"), "{error}");
        assert_eq!(versions(Ok(()), Version::V6).expect("both").len(), 2);
    }
}
