//! The programs that carry films, with their commands: those of SRT, of RIST, and this one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ontempo_foundation::Duration;
use ontempo_runtime::{End, Version};
use ontempo_scenario::model::{
    DeliveryKind, OntempoSpec, ReliabilityKind, RistSpec, SrtSpec, Transport,
};

use crate::commands::is_program;

/// The first of the ports of these programs, below those that the kernel gives away itself.
const FIRST_PORT: u16 = 20_000;

/// Ports of a flow: for the wire (RIST takes even ones), into the sender and out of the receiver.
const PORTS: u16 = 4;

/// The programs of a flow.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Carrier {
    /// The command of the source's host.
    pub(crate) send: Vec<String>,
    /// The command of the sink's host.
    pub(crate) receive: Vec<String>,
    pub(crate) ports: Ports,
}

/// The ports of a flow: several flows may have their ends in one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    /// At which the receiver listens.
    pub(crate) wire: u16,
    /// At which the sender takes the film.
    pub(crate) input: u16,
    /// To which the receiver gives it.
    pub(crate) output: u16,
}

impl Ports {
    fn of(flow: usize) -> Self {
        // The number of flows has a bound far below this one.
        let flow = u16::try_from(flow).unwrap_or(u16::MAX / PORTS);
        let wire = FIRST_PORT.saturating_add(flow.saturating_mul(PORTS));
        Self { wire, input: wire.saturating_add(1), output: wire.saturating_add(2) }
    }
}

/// An address of the loopback: both programs are fed and heard there.
pub(crate) fn inner(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// The programs that carry `transport`; `None` where the kernel does.
///
/// # Errors
/// The first program that is missing, with the package that has it.
pub(crate) fn carrier(
    transport: &Transport,
    flow: usize,
    version: Version,
) -> Result<Option<Carrier>, String> {
    let ports = Ports::of(flow);
    let at = SocketAddr::new(End::sink(flow).ip(version), ports.wire);
    let (input, output) = (inner(ports.input), inner(ports.output));
    let (send, receive) = match transport {
        Transport::Srt(spec) => srt(spec, at, (input, output))?,
        Transport::Rist(spec) => rist(spec, at, (input, output))?,
        Transport::Ontempo(spec) => ontempo(spec, at, (input, output))?,
        _ => return Ok(None),
    };
    Ok(Some(Carrier { send, receive, ports }))
}

/// The commands of both ends, the sender's first.
type Commands = (Vec<String>, Vec<String>);

/// Where a film goes in and comes out.
type Inner = (SocketAddr, SocketAddr);

fn srt(spec: &SrtSpec, at: SocketAddr, (input, output): Inner) -> Result<Commands, String> {
    require("srt-live-transmit", "srt-tools")?;
    let latency = millis(spec.latency);
    // In bytes a second.
    let most = spec.max_bandwidth.map(|rate| rate.as_bits_per_sec() / 8);
    let most = most.map(|rate| format!("&maxbw={rate}")).unwrap_or_default();
    let to = format!("srt://{at}?mode=caller&latency={latency}{most}");
    let from = format!("srt://{at}?mode=listener&latency={latency}");
    let input = format!("udp://{input}?rcvbuf={INPUT_BUFFER}");
    let command = |from: &str, to: &str| words(&["srt-live-transmit", "-q", from, to]);
    Ok((command(&input, &to), command(&from, &format!("udp://{output}"))))
}

fn rist(spec: &RistSpec, at: SocketAddr, (input, output): Inner) -> Result<Commands, String> {
    require("ristsender", "rist-tools")?;
    require("ristreceiver", "rist-tools")?;
    let buffer = millis(spec.buffer);
    // The main profile, no statistics, errors alone.
    let command = |name: &str, deletes: bool, from: &str, to: &str| {
        let mut command = words(&[name, "-p", "1", "-S", "0", "-v", "3"]);
        command.extend(deletes.then(|| "-n".to_owned()));
        command.extend(words(&["-i", from, "-o", to]));
        command
    };
    let to = format!("rist://{at}?buffer={buffer}");
    let from = format!("rist://@{at}?buffer={buffer}");
    let deletes = spec.null_packet_deletion;
    let send = command("ristsender", deletes, &format!("udp://@{input}"), &to);
    Ok((send, command("ristreceiver", false, &from, &format!("udp://{output}"))))
}

fn ontempo(spec: &OntempoSpec, at: SocketAddr, (input, output): Inner) -> Result<Commands, String> {
    let program = own_program()?;
    let order = match spec.order {
        DeliveryKind::InOrder => "in-order",
        DeliveryKind::OutOfOrder => "out-of-order",
        DeliveryKind::PartialOrder => "partial-order",
    };
    let reliability = match spec.reliability {
        ReliabilityKind::Full => "full",
        ReliabilityKind::Deadline => "deadline",
        ReliabilityKind::None => "none",
    };
    let (input, output) = (format!("udp://{input}"), format!("udp://{output}"));
    let at = at.to_string();
    let mut send = words(&[&program, "send", "--from", &input, "--to", &at, "--insecure"]);
    send.extend(words(&["--delivery", order, "--reliability", reliability]));
    let latency = spec.latency.map(|latency| latency.to_string());
    send.extend(latency.into_iter().flat_map(|latency| ["--latency".to_owned(), latency]));
    send.extend(["--grace".to_owned(), spec.grace.to_string()]);
    send.extend(words(&["--congestion", &spec.congestion]));
    for (name, value) in spec.set_congestion() {
        send.extend(["--set-congestion".to_owned(), format!("{name}={value}")]);
    }
    let receive = [&*program, "receive", "--listen", &at, "--to", &output, "--anyone"];
    Ok((send, words(&receive)))
}

fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|word| (*word).to_owned()).collect()
}

/// Bytes that wait for a program to read them: a key picture comes at once.
const INPUT_BUFFER: u32 = 4 << 20;

fn millis(time: Duration) -> u64 {
    time.as_nanos() / 1_000_000
}

/// Whether the programs, which take whole milliseconds, can wait so long.
pub(crate) fn is_whole_millis(time: Duration) -> bool {
    time.as_nanos().is_multiple_of(1_000_000)
}

fn require(program: &str, package: &str) -> Result<(), String> {
    if is_program(program) {
        return Ok(());
    }
    Err(format!(
        "there is no program `{program}` on this machine; install it with: sudo apt-get install \
         {package}"
    ))
}

/// This program where it is `ontempo`, or the one on the path.
fn own_program() -> Result<String, String> {
    const NAME: &str = "ontempo";
    let is_it = |path: &PathBuf| path.file_name().is_some_and(|name| name == NAME);
    if let Some(own) = std::env::current_exe().ok().filter(is_it).filter(|own| own.is_file()) {
        return Ok(own.to_string_lossy().into_owned());
    }
    if is_program(NAME) {
        return Ok(NAME.to_owned());
    }
    Err(format!("there is no program `{NAME}` on the path; install it with: pip install ontempo"))
}

/// What the kernel tells of the UDP socket of a process's namespace with this port: the datagrams that
/// it dropped since nobody read them. `None` if there is no such socket.
pub(crate) fn dropped_at(process: u32, port: u16) -> Option<u64> {
    let tables = ["udp", "udp6"].map(|name| format!("/proc/{process}/net/{name}"));
    let texts = tables.iter().filter_map(|path| std::fs::read_to_string(Path::new(path)).ok());
    let found: Vec<u64> = texts.filter_map(|text| dropped_in(&text, port)).collect();
    found.into_iter().reduce(|one, other| one + other)
}

/// The same, in a table as `/proc/net/udp` has it: `local_address` is its second column, `drops` the last.
fn dropped_in(table: &str, port: u16) -> Option<u64> {
    let end = format!(":{port:04X}");
    table.lines().skip(1).find_map(|line| {
        let mut columns = line.split_whitespace();
        columns.nth(1).filter(|local| local.ends_with(&end))?;
        columns.last()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_have_ports_of_their_own_and_those_of_rist_are_even() {
        let ports: Vec<Ports> = (0..1_000).map(Ports::of).collect();
        assert!(ports.iter().all(|ports| ports.wire % 2 == 0 && ports.output < 32_768));
        let mut all: Vec<u16> =
            ports.iter().flat_map(|one| [one.wire, one.input, one.output]).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 3_000);
    }

    #[test]
    fn the_settings_of_a_scenario_are_those_of_the_programs() {
        let of = |transport: Transport, version| match carrier(&transport, 1, version) {
            Ok(carrier) => carrier.map(|one| [one.send.join(" "), one.receive.join(" ")]),
            Err(missing) => {
                assert!(missing.contains("apt-get install"), "{missing}");
                None
            }
        };
        let latency = Duration::from_millis(300);
        let max_bandwidth = Some(ontempo_foundation::Rate::from_bits_per_sec(8_000_000));
        let srt = Transport::Srt(SrtSpec { latency, max_bandwidth });
        if let Some([send, receive]) = of(srt, Version::V6) {
            let at = "srt://[fd6f:6e74:656d:706f::5]:20004?mode=";
            assert!(send.ends_with(&format!("{at}caller&latency=300&maxbw=1000000")), "{send}");
            assert!(receive.contains(&format!("{at}listener&latency=300")), "{receive}");
            assert!(receive.ends_with("udp://127.0.0.1:20006"), "{receive}");
        }
        let rist = Transport::Rist(RistSpec { buffer: latency, null_packet_deletion: true });
        if let Some([send, receive]) = of(rist, Version::V4) {
            let input = "-n -i udp://@127.0.0.1:20005 -o rist://10.0.0.5:20004?buffer=300";
            assert!(send.ends_with(input), "{send}");
            assert!(receive.contains("-i rist://@10.0.0.5:20004?buffer=300"), "{receive}");
        }
        assert_eq!(of(Transport::Own {}, Version::V4), None);
    }

    #[test]
    fn what_the_kernel_dropped_is_the_last_column_of_the_ports_line() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   \
                     uid  timeout inode ref pointer drops\n\
                     12: 0100007F:4E21 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 7 2 \
                     0000000000000000 42\n";
        assert_eq!(dropped_in(table, 20_001), Some(42));
        assert_eq!(dropped_in(table, 20_002), None);
        assert_eq!(dropped_in("", 20_001), None);
    }
}
