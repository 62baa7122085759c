//! `ontempo rsvpd` and `ontempo rsvp`: reservations of this host.

use std::io::{ErrorKind, IsTerminal};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ontempo_foundation::Rate;
use ontempo_reservation::local::{self, Answer, Client, ClientError, Notice, Request, Status};
use ontempo_reservation::message::{
    Descriptor, FlowSpec, Mark, Sender, Session, Style, TrafficSpec,
};
use ontempo_rsvpd::{Config, DaemonError, Level, Signals};
use signal_hook::consts::{SIGHUP, SIGUSR1};

use crate::arguments::{
    Announce, Bucket, FlowOptions, Reserve, ReserveStyle, Rsvp, RsvpCommand, Rsvpd,
};
use crate::failure::Failure;
use crate::limited::{LineLimit, Share};
use crate::output::{
    emit, emit_json, emit_on_clear_terminal, has_reader, table, try_stderr, write_stderr,
};
use crate::signals::{pause, stop_flag, stop_stream, stream_of};

/// Lines of the daemon: at once, and then one in each interval.
const LINES: Share = Share { burst: 256, interval: Duration::from_secs(1) };

/// Interval at which Ctrl-C is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How often a daemon that does not answer is asked again, at least.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

impl From<DaemonError> for Failure {
    fn from(error: DaemonError) -> Self {
        match error {
            DaemonError::Input(what) => Self::Input(what),
            DaemonError::System(what) => Self::Environment(what),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(reason) => Self::Input(reason),
            error => Self::Environment(error.to_string()),
        }
    }
}

pub(crate) fn rsvpd(arguments: &Rsvpd) -> Result<(), Failure> {
    let trusting = |config: Config| {
        if arguments.trust_network { config.trusting_network() } else { config }
    };
    let config = trusting(Config::read(&arguments.file)?);
    if arguments.check {
        config.check_group()?;
        return emit(&format!(
            "{}: the configuration is valid\n{}",
            arguments.file.display(),
            config.shown()
        ));
    }
    // Neighbours and applications cause most lines; those that matter have a share of their own.
    let mut limits = [(); 2].map(|()| LineLimit::new(Instant::now(), LINES));
    // journald reads levels from prefixes (sd-daemon(3)).
    let with_levels = std::env::var_os("JOURNAL_STREAM").is_some();
    // Its neighbours wait for the daemon, which waits for no reader of its log.
    let mut unread = 0_u64;
    let mut log = |level: Level, line: &str| {
        let limit = &mut limits[usize::from(level >= Level::Info)];
        for line in limit.lines(Instant::now(), "neighbours and applications", line) {
            let prefix = if with_levels { format!("<{}>", level.number()) } else { String::new() };
            // journald reads each line by itself: the cause of an error of a file is in its last.
            let lines = line.lines().map(|line| format!("{prefix}{line}"));
            let missing = (unread > 0)
                .then(|| format!("{prefix}{unread} lines are missing, which nobody read in time"));
            let lines: Vec<_> = missing.into_iter().chain(lines).collect();
            unread = if try_stderr(&lines.join("\n")) { 0 } else { unread + 1 };
        }
    };
    let (stop, restart, reload) = (stop_stream()?, stream_of(&[SIGUSR1])?, stream_of(&[SIGHUP])?);
    let read = || Config::read_again(&arguments.file).map(trusting);
    let signals = Signals { stop: &stop, restart: &restart, reload: &reload, read: &read };
    ontempo_rsvpd::run(config, signals, &mut log)?;
    Ok(())
}

pub(crate) fn rsvp(arguments: &Rsvp) -> Result<(), Failure> {
    let path = arguments.socket.clone().unwrap_or_else(local::socket);
    let mut client = Client::connect(&path).map_err(|error| {
        Failure::Environment(format!(
            "{}: the RSVP daemon cannot be reached ({error}); is `ontempo rsvpd` running, and may \
             this user access its socket?",
            path.display()
        ))
    })?;
    match &arguments.command {
        RsvpCommand::Status(arguments) => {
            let Some(every) = arguments.watch else {
                let answer = client.ask(Request::Status).map_err(unavailable)?;
                return show_status(answer, arguments.json.json, false);
            };
            let every = Duration::from_nanos(every.as_nanos()).max(POLL_INTERVAL);
            watch(&path, client, every, arguments.json.json)
        }
        RsvpCommand::Send(send) => announce(&mut client, send),
        RsvpCommand::Reserve(reserve) => reserve_flows(&mut client, reserve),
    }
}

fn announce(client: &mut Client, send: &Announce) -> Result<(), Failure> {
    let session = session(send.destination, &send.options);
    let (sender, traffic) = (sender(send.from), traffic(&send.bucket));
    client.ask(Request::Send { session, sender, traffic })?;
    follow(client, &send.options)
}

fn reserve_flows(client: &mut Client, reserve: &Reserve) -> Result<(), Failure> {
    let session = session(reserve.destination, &reserve.options);
    let traffic = traffic(&reserve.bucket);
    let flowspec = match reserve.guaranteed {
        None => FlowSpec::ControlledLoad(traffic),
        Some(rate) => FlowSpec::Guaranteed { traffic, rate: bytes_a_second(rate), slack: 0 },
    };
    let senders: Vec<Sender> = reserve.senders.iter().map(|from| sender(*from)).collect();
    let chosen = if senders.is_empty() { ReserveStyle::Wf } else { ReserveStyle::Ff };
    let (style, flows) = match reserve.style.unwrap_or(chosen) {
        ReserveStyle::Ff => {
            let flow = |sender: &Sender| Descriptor { flowspec, filters: vec![*sender] };
            (Style::FixedFilter, senders.iter().map(flow).collect())
        }
        ReserveStyle::Se => {
            (Style::SharedExplicit, vec![Descriptor { flowspec, filters: senders }])
        }
        ReserveStyle::Wf => (Style::Wildcard, vec![Descriptor { flowspec, filters: senders }]),
    };
    client.ask(Request::Watch { session })?;
    client.ask(Request::Reserve { session, style, flows, confirm: true })?;
    follow(client, &reserve.options)
}

/// Shows the status again and again until Ctrl-C. A daemon that restarts is waited for: it is what an
/// operator watches.
fn watch(path: &Path, client: Client, every: Duration, json: bool) -> Result<(), Failure> {
    let stopped = stop_flag()?;
    let (mut client, mut waits) = (Some(client), false);
    while !stopped.load(Ordering::Relaxed) && has_reader() {
        match ask_again(path, &mut client) {
            Ok(answer) => {
                waits = false;
                show_status(answer, json, std::io::stdout().is_terminal())?;
            }
            Err(error @ ClientError::NoReply(_)) => return Err(unavailable(error)),
            Err(error) => {
                if !std::mem::replace(&mut waits, true) {
                    write_stderr(&format!("the daemon does not answer; waiting for it ({error})"));
                }
            }
        }
        pause(if waits { every.min(RETRY_INTERVAL) } else { every }, &stopped);
    }
    Ok(())
}

/// A status needs no input that could be wrong.
fn unavailable(error: ClientError) -> Failure {
    Failure::Environment(error.to_string())
}

/// Asks for the status by the connection, or by a new one where that is over.
fn ask_again(path: &Path, client: &mut Option<Client>) -> Result<Answer, ClientError> {
    if let Some(known) = client {
        match known.ask(Request::Status) {
            // One that is only slow may answer the next question.
            Err(ClientError::Io(error)) if error.kind() != ErrorKind::TimedOut => *client = None,
            answered => return answered,
        }
    }
    let mut new = Client::connect(path)?;
    let answer = new.ask(Request::Status)?;
    *client = Some(new);
    Ok(answer)
}

/// `clears`: a table replaces what a terminal shows.
fn show_status(answer: Answer, json: bool, clears: bool) -> Result<(), Failure> {
    let Answer::Status(status) = answer else {
        return Err(Failure::Environment("the daemon has sent no status".into()));
    };
    if json {
        emit_json(&serde_json::json!(status))
    } else if clears {
        emit_on_clear_terminal(&status_text(&status), None)
    } else {
        emit(&status_text(&status))
    }
}

/// Prints events until Ctrl-C or the end of the duration.
fn follow(client: &mut Client, options: &FlowOptions) -> Result<(), Failure> {
    let stopped = stop_flag()?;
    let started = Instant::now();
    let span = options.span.map(|span| Duration::from_nanos(span.as_nanos()));
    while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
        let left = span.map(|span| span.saturating_sub(started.elapsed()));
        if left == Some(Duration::ZERO) {
            break;
        }
        let timeout = left.map_or(POLL_INTERVAL, |left| left.min(POLL_INTERVAL));
        // A signal may end the wait early.
        let event = client.event(Some(timeout))?;
        if let Some(event) = event {
            let at = started.elapsed().as_secs_f64();
            emit(&if options.json {
                serde_json::json!({ "at_s": at, "event": event }).to_string()
            } else {
                format!("{at:8.3} s  {}", sentence(&event))
            })?;
        }
    }
    Ok(())
}

fn session(destination: SocketAddr, options: &FlowOptions) -> Session {
    Session { destination: destination.ip(), protocol: options.protocol, port: destination.port() }
}

fn sender(from: SocketAddr) -> Sender {
    Sender { address: from.ip(), port: from.port() }
}

fn bytes_a_second(rate: Rate) -> f32 {
    (rate.as_bits_per_sec() as f64 / 8.0) as f32
}

fn traffic(bucket: &Bucket) -> TrafficSpec {
    let size = |bytes: ontempo_foundation::Bytes| u32::try_from(bytes.get()).unwrap_or(u32::MAX);
    TrafficSpec {
        rate: bytes_a_second(bucket.rate),
        burst: bucket.burst.get() as f32,
        peak: bucket.peak.map_or(f32::INFINITY, bytes_a_second),
        smallest: size(bucket.smallest),
        largest: size(bucket.largest),
    }
}

fn sentence(event: &Notice) -> String {
    match event {
        Notice::Path { sender, traffic, .. } => {
            format!("{} sends {}", from(sender), kilobits(f64::from(traffic.rate) * 8.0))
        }
        Notice::PathGone { sender, .. } => format!("{} no longer sends", from(sender)),
        Notice::Reserved { flows, .. } if flows.is_empty() => "nothing is reserved".to_owned(),
        Notice::Reserved { flows, marks, .. } => {
            let mark =
                |mark: &Mark| format!("; DSCP {} for {}", mark.dscps, senders(&mark.senders));
            let marks: String = marks.iter().map(mark).collect();
            format!("reserved: {}{marks}", flows_text(flows))
        }
        Notice::PathError { failure, .. } => {
            format!("PATH failed at {}: {}", failure.node, failure.reason)
        }
        Notice::ResvError { flow, failure, .. } => format!(
            "RESV failed at {}: {} ({}){}",
            failure.node,
            failure.reason,
            flows_text(std::slice::from_ref(flow)),
            if failure.in_place { "; the reservation before stays in place" } else { "" }
        ),
        Notice::Confirmed { flows, node, .. } => {
            format!("confirmed by {node}: {}", flows_text(flows))
        }
    }
}

fn flows_text(flows: &[Descriptor]) -> String {
    let one =
        |flow: &Descriptor| format!("{} for {}", service(&flow.flowspec), senders(&flow.filters));
    flows.iter().map(one).collect::<Vec<_>>().join(", ")
}

pub(crate) fn service(flowspec: &FlowSpec) -> String {
    let rate = kilobits(f64::from(flowspec.reserved_rate()) * 8.0);
    match flowspec {
        FlowSpec::ControlledLoad(_) => format!("controlled load, {rate}"),
        FlowSpec::Guaranteed { .. } => format!("guaranteed, {rate}"),
    }
}

pub(crate) fn senders(filters: &[Sender]) -> String {
    if filters.is_empty() {
        return "all senders".to_owned();
    }
    filters.iter().map(from).collect::<Vec<_>>().join(" and ")
}

fn from(sender: &Sender) -> String {
    SocketAddr::new(sender.address, sender.port).to_string()
}

pub(crate) fn to(session: &Session) -> String {
    let place = SocketAddr::new(session.destination, session.port);
    match session.protocol {
        17 => format!("udp {place}"),
        6 => format!("tcp {place}"),
        other => format!("protocol {other}, {place}"),
    }
}

fn kilobits(bits: f64) -> String {
    format!("{:.0} kbit/s", bits / 1e3)
}

fn status_text(status: &Status) -> String {
    let mut interfaces =
        table(&["interface", "addresses", "rate", "reservable", "reserved", "key"], &[2, 3, 4]);
    let mut classes = table(&["interface", "class", "to", "from", "rate"], &[4]);
    for one in &status.interfaces {
        let addresses: Vec<_> = one.addresses.iter().map(ToString::to_string).collect();
        interfaces.add_row([
            one.name.clone(),
            addresses.join(" "),
            kilobits(one.rate as f64),
            kilobits(one.reservable as f64),
            kilobits(one.reserved as f64),
            if one.authenticated { "yes" } else { "no" }.to_owned(),
        ]);
        for reservation in &one.enforced {
            classes.add_row([
                one.name.clone(),
                reservation.class.clone(),
                to(&reservation.session),
                senders(&reservation.senders),
                kilobits(reservation.rate as f64),
            ]);
        }
    }
    // Only where a network asks for one.
    let mut paths = status.sessions.iter().flat_map(|session| &session.paths);
    let dscps = paths.any(|path| !path.dscps.is_empty());
    let columns = ["session", "sender", "TSpec rate", "PHOP", "next hops", "flowspecs", "DSCP"];
    let mut flows = table(&columns[..columns.len() - usize::from(!dscps)], &[2]);
    for session in &status.sessions {
        for path in &session.paths {
            let matching = session.reservations.iter().filter(|reservation| {
                reservation.senders.is_empty() || reservation.senders.contains(&path.sender)
            });
            let (by, what): (Vec<_>, Vec<_>) = matching
                .map(|reservation| (reservation.next.to_string(), service(&reservation.flowspec)))
                .unzip();
            let mut row = vec![
                to(&session.session),
                from(&path.sender),
                kilobits(f64::from(path.traffic.rate) * 8.0),
                path.previous.to_string(),
                by.join(", "),
                what.join(", "),
            ];
            row.extend(dscps.then(|| path.dscps.to_string()));
            flows.add_row(row);
        }
    }
    let mut parts = vec![interfaces.trim_fmt()];
    if !status.sessions.is_empty() {
        parts.push(flows.trim_fmt());
    }
    if status.census.enforced > 0 {
        parts.push(classes.trim_fmt());
    }
    parts.extend(cut(status));
    let dropped = status.dropped.iter().map(|(why, count)| format!("dropped {count}: {why}"));
    parts.extend(dropped);
    parts.join("\n\n")
}

/// What the lists leave out.
fn cut(status: &Status) -> Option<String> {
    let paths = status.sessions.iter().map(|session| session.paths.len()).sum::<usize>();
    let reservations = status.sessions.iter().map(|session| session.reservations.len());
    let enforced = status.interfaces.iter().map(|one| one.enforced.len()).sum::<usize>();
    let census = &status.census;
    let left_out: Vec<String> = [
        ("sessions", status.sessions.len(), census.sessions),
        ("senders", paths, census.paths),
        ("flow descriptors", reservations.sum(), census.reservations),
        ("enforced reservations", enforced, census.enforced),
    ]
    .into_iter()
    .filter(|(_, listed, all)| listed < all)
    .map(|(what, listed, all)| format!("{listed} of {all} {what}"))
    .collect();
    (!left_out.is_empty()).then(|| format!("listed: {}", left_out.join(", ")))
}
