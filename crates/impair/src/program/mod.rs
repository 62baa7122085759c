//! The program: `ontempo impair`, and `ontempo-impair` on systems that the rest of ontempo is not built for.

mod arguments;

use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use indicatif::ProgressBar;
use ontempo_foundation::{AddressError, resolve};
use ontempo_scenario::model::Scenario;
use ontempo_scenario::{Overrides, ScenarioError, load_with};
use serde_json::{Value, json};

use crate::{ImpairError, Limits, Path, Relay, Report, WayReport};

pub use arguments::Arguments;

/// Payload on the path at most, in bytes.
const MAX_HELD_BYTES: u64 = 64 << 20;

/// Headers of IPv4 and IPv6, with that of UDP.
const HEADER_BYTES: [u64; 2] = [28, 48];

/// For error messages.
const EXAMPLE_PORT: u16 = 5000;

/// Why the program ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The scenario or an option is wrong.
    Input(String),
    /// The network or the output.
    Environment(String),
}

impl From<ScenarioError> for Trouble {
    fn from(error: ScenarioError) -> Self {
        Self::Input(error.to_string())
    }
}

impl From<ImpairError> for Trouble {
    fn from(error: ImpairError) -> Self {
        Self::Input(match error {
            ImpairError::Scenario(_) | ImpairError::Element(_) => error.to_string(),
            ImpairError::WhichFlow(_) | ImpairError::NoFlow(..) => format!("--flow: {error}"),
        })
    }
}

/// What the program says and hears of its user.
pub trait Terminal {
    /// Prints a text.
    ///
    /// # Errors
    /// If the output takes none.
    fn print(&self, text: &str) -> Result<(), Trouble>;

    /// Tells a sentence on standard error.
    fn tell(&self, text: &str);

    /// Whether the user has ended the program.
    fn is_stopped(&self) -> bool;
}

/// Carries datagrams until the user ends it, and prints the counters.
///
/// # Errors
/// If the scenario, an option, a socket or the output is wrong.
pub fn run(arguments: &Arguments, terminal: &impl Terminal) -> Result<(), Trouble> {
    let scenario = scenario(arguments, terminal)?;
    let at = listening_address(&arguments.listen)?;
    let server = address(&arguments.to, "--to ")?;
    if server.is_ipv4() != at.is_ipv4() {
        return Err(Trouble::Input(format!(
            "--listen {at} and --to {server}: one is IPv4, the other IPv6; the path has headers of \
             one size"
        )));
    }
    let every_address = at.ip().is_unspecified() && server.ip().is_loopback();
    if at.port() == server.port() && (at.ip() == server.ip() || every_address) {
        return Err(Trouble::Input(format!(
            "--to {server}: it is where --listen receives; name the server's own port"
        )));
    }
    let seed = arguments.seed.unwrap_or(scenario.seed);
    let header_bytes = HEADER_BYTES[usize::from(at.is_ipv6())];
    let flow = arguments.flow.as_deref();
    let path = Path::of(&scenario, flow, seed, header_bytes, MAX_HELD_BYTES)?;
    let cannot =
        |error: &dyn std::fmt::Display| Trouble::Environment(format!("--listen {at}: {error}"));
    let socket = UdpSocket::bind(at).map_err(|error| cannot(&error))?;
    let local = socket.local_addr().map_err(|error| cannot(&error))?;
    let limits = Limits::default();
    let mut relay = Relay::new(socket, server, path, limits).map_err(|error| cannot(&error))?;
    terminal.print(&begin(arguments, local, server, seed))?;
    if !local.ip().to_canonical().is_loopback() {
        let (most, of_host, port) = (limits.clients, limits.clients_of_host, local.port());
        terminal.tell(&format!(
            "anyone who reaches {local} may send to {server}: {most} clients, {of_host} of a host; \
             --listen :{port} admits this machine alone"
        ));
    }
    let is_terminal = !arguments.json && std::io::stderr().is_terminal();
    let bar = is_terminal.then(ProgressBar::new_spinner);
    let report = relay.run(
        || terminal.is_stopped(),
        |report| {
            if let Some(bar) = &bar {
                bar.set_message(status(report));
                bar.tick();
            }
        },
    );
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    let report = report.map_err(|error| Trouble::Environment(error.to_string()))?;
    if !arguments.json {
        return terminal.print(&summary(&report));
    }
    let mut document = json!(report);
    document["event"] = Value::from("summary");
    terminal.print(&document.to_string())
}

fn scenario(arguments: &Arguments, terminal: &impl Terminal) -> Result<Scenario, Trouble> {
    let overrides = Overrides::parse(&arguments.set)?;
    let scenario = load_with(&arguments.scenario, &overrides)?;
    let lost = overrides.fields_lost(&arguments.scenario)?;
    lost.iter().for_each(|sentence| terminal.tell(sentence));
    Ok(scenario)
}

fn address(text: &str, option: &str) -> Result<SocketAddr, Trouble> {
    resolve(text).map_err(|error| match error {
        AddressError::Written(what) => Trouble::Input(format!("{option}{text}: {what}")),
        AddressError::Unknown(what) => Trouble::Environment(format!("{option}{what}")),
    })
}

/// The address of `--listen`: a port alone is one of the loopback.
fn listening_address(text: &str) -> Result<SocketAddr, Trouble> {
    let Some(port) = text.strip_prefix(':').or_else(|| (!text.contains(':')).then_some(text))
    else {
        return address(text, "--listen ");
    };
    let port = port.parse().map_err(|_| {
        Trouble::Input(format!("--listen {text}: `{port}` is no port: write :{EXAMPLE_PORT}"))
    })?;
    Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
}

fn begin(arguments: &Arguments, local: SocketAddr, server: SocketAddr, seed: u64) -> String {
    if arguments.json {
        let document = json!({
            "event": "listening",
            "local": local.to_string(),
            "server": server.to_string(),
            "seed": seed,
        });
        return document.to_string();
    }
    let flow = arguments.flow.as_deref();
    let others =
        flow.map(|flow| format!("; of its flows only the path of {flow} is used, none is run"));
    format!(
        "listening at {local}, to {server} over {}, seed {seed}{}; Ctrl-C ends it",
        arguments.scenario.display(),
        others.unwrap_or_else(|| "; its flow is not run".to_owned())
    )
}

fn milliseconds(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{:.1} ms", 1e3 * seconds))
}

fn status(report: &Report) -> String {
    let way = |way: &WayReport| {
        format!(
            "{} packets, {} dropped, p50 {}",
            way.packets,
            way.dropped.total(),
            milliseconds(way.delay_p50_s)
        )
    };
    format!(
        "{:.0} s, {} clients; to the server {}; back {}; clock late p99 {}",
        report.seconds,
        report.clients.now,
        way(&report.forward),
        way(&report.reverse),
        milliseconds(report.late_p99_s)
    )
}

fn summary(report: &Report) -> String {
    let way = |name: &str, way: &WayReport| {
        let dropped = &way.dropped;
        let causes = [
            ("queue full", dropped.full),
            ("early", dropped.early),
            ("on the wire", dropped.loss),
            ("too large", dropped.too_large),
            ("policed", dropped.policer),
            ("bit errors", dropped.corrupt),
            ("limit of this program", dropped.limit),
            ("client gone", dropped.gone),
            ("not taken by the system", dropped.unsent),
        ];
        let causes = causes.iter().filter(|(_, count)| *count > 0);
        let causes: Vec<_> = causes.map(|(cause, count)| format!("{cause} {count}")).collect();
        let causes =
            if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
        let copies = match way.duplicated {
            0 => String::new(),
            copies => format!(" and {copies} copies"),
        };
        format!(
            "{name}: {} packets{copies}, {} delivered, {} dropped{causes}; delay p50 {}, p95 {}, p99 {}\n",
            way.packets,
            way.delivered,
            dropped.total(),
            milliseconds(way.delay_p50_s),
            milliseconds(way.delay_p95_s),
            milliseconds(way.delay_p99_s)
        )
    };
    let refused = match report.clients.refused_packets {
        0 => String::new(),
        count => format!(", {count} packets of others refused"),
    };
    format!(
        "{}{}{} clients{refused}; sent later than due: p50 {}, p99 {}",
        way("to the server", &report.forward),
        way("back", &report.reverse),
        report.clients.admitted,
        milliseconds(report.late_p50_s),
        milliseconds(report.late_p99_s)
    )
}
