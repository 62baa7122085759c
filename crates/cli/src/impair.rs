//! `ontempo impair`: a scenario's path between UDP programs.

use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::Ordering::Relaxed;

use indicatif::ProgressBar;
use ontempo_impair::{ImpairError, Limits, Path, Relay, Report, WayReport};
use serde_json::{Value, json};

use crate::access::tell_of_anyone;
use crate::address::resolve;
use crate::arguments::{Impair, Input};
use crate::check::load;
use crate::failure::{Failure, environment};
use crate::output::{emit, scenario_failure};
use crate::signals::stop_flag;

/// Payload on the path at most, in bytes.
const MAX_HELD_BYTES: u64 = 64 << 20;

/// Headers of IPv4 and IPv6, with that of UDP.
const HEADER_BYTES: [u64; 2] = [28, 48];

/// For error messages.
const EXAMPLE_PORT: u16 = 5000;

pub(crate) fn impair(arguments: &Impair) -> Result<(), Failure> {
    let input = Input { file: arguments.scenario.clone(), set: arguments.set.clone(), json: false };
    let scenario = load(&input)?;
    let at = listening_address(&arguments.listen)?;
    let server = resolve(&arguments.to, "--to ")?;
    if server.is_ipv4() != at.is_ipv4() {
        return Err(Failure::Input(format!(
            "--listen {at} and --to {server}: one is IPv4, the other IPv6; the path has headers of \
             one size"
        )));
    }
    let seed = arguments.seed.unwrap_or(scenario.seed);
    let header_bytes = HEADER_BYTES[usize::from(at.is_ipv6())];
    let flow = arguments.flow.as_deref();
    let path = Path::of(&scenario, flow, seed, header_bytes, MAX_HELD_BYTES).map_err(refused)?;
    let stop = stop_flag()?;
    let cannot =
        |error: &dyn std::fmt::Display| Failure::Environment(format!("--listen {at}: {error}"));
    let socket = UdpSocket::bind(at).map_err(|error| cannot(&error))?;
    let local = socket.local_addr().map_err(|error| cannot(&error))?;
    let limits = Limits::default();
    let mut relay = Relay::new(socket, server, path, limits).map_err(|error| cannot(&error))?;
    begin(arguments, local, server, seed)?;
    let (most, of_host) = (limits.clients, limits.clients_of_host);
    let what = format!(
        "send to {server}: {most} clients, {of_host} of a host; --listen :{} admits this machine alone",
        local.port()
    );
    tell_of_anyone(local, &what);
    let is_terminal = !arguments.json && std::io::stderr().is_terminal();
    let bar = is_terminal.then(ProgressBar::new_spinner);
    let report = relay.run(
        || stop.load(Relaxed),
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
    let report = report.map_err(environment)?;
    if arguments.json {
        let mut document = serde_json::to_value(&report).map_err(environment)?;
        document["event"] = Value::from("summary");
        emit(&document.to_string())
    } else {
        emit(&summary(&report))
    }
}

/// The address of `--listen`: a port alone is one of the loopback.
fn listening_address(text: &str) -> Result<SocketAddr, Failure> {
    let Some(port) = text.strip_prefix(':').or_else(|| (!text.contains(':')).then_some(text))
    else {
        return resolve(text, "--listen ");
    };
    let port = port.parse().map_err(|_| {
        Failure::Input(format!("--listen {text}: `{port}` is no port: write :{EXAMPLE_PORT}"))
    })?;
    Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
}

fn refused(error: ImpairError) -> Failure {
    match error {
        ImpairError::Scenario(error) => scenario_failure(error, false),
        ImpairError::Element(error) => Failure::Input(error.to_string()),
        ImpairError::WhichFlow(_) | ImpairError::NoFlow(..) => {
            Failure::Input(format!("--flow: {error}"))
        }
    }
}

fn begin(
    arguments: &Impair,
    local: SocketAddr,
    server: SocketAddr,
    seed: u64,
) -> Result<(), Failure> {
    if arguments.json {
        let document = json!({
            "event": "listening",
            "local": local.to_string(),
            "server": server.to_string(),
            "seed": seed,
        });
        return emit(&document.to_string());
    }
    let flow = arguments.flow.as_deref();
    let others =
        flow.map(|flow| format!("; of its flows only the path of {flow} is used, none is run"));
    emit(&format!(
        "listening at {local}, to {server} over {}, seed {seed}{}; Ctrl-C ends it",
        arguments.scenario.display(),
        others.unwrap_or_else(|| "; its flow is not run".to_owned())
    ))
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
