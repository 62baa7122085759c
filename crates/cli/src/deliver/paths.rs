//! Several paths of `ontempo send`: which, and what is said of them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ontempo_foundation::Duration;
use ontempo_monitor::PathReport;
use ontempo_session::paths::{
    CarryReason, MAX_PATHS, PathAddress, PathEvent, PathFigures, PathOptions, PathSender,
};
use ontempo_session::{Backlog, Error, Sender, SenderHandler, SenderOptions, SenderTotals, Source};
use serde_json::{Value, json};

use crate::access::Destination;
use crate::address::resolve;
use crate::arguments::{PathsArgument, Send as Arguments};
use crate::failure::Failure;

/// A sender over one path or several.
pub(super) enum AnySender<H> {
    One(Box<Sender<H>>),
    Several(Box<PathSender<H>>),
}

impl<H: SenderHandler> AnySender<H> {
    pub(super) fn connect(
        options: SenderOptions,
        paths: Option<&PathOptions>,
        (backlog, source): (Arc<Backlog>, Source),
        handler: H,
    ) -> Result<Self, Error> {
        Ok(match paths {
            None => Self::One(Box::new(Sender::connect(options, backlog, source, handler)?)),
            Some(paths) => {
                let sender = PathSender::connect(options, paths, backlog, source, handler)?;
                Self::Several(Box::new(sender))
            }
        })
    }

    pub(super) fn run(&mut self) -> Result<(), Error> {
        match self {
            Self::One(sender) => sender.run(),
            Self::Several(sender) => sender.run(),
        }
    }

    pub(super) fn totals(&self) -> SenderTotals {
        match self {
            Self::One(sender) => sender.totals(),
            Self::Several(sender) => sender.totals(),
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        match self {
            Self::One(sender) => sender.is_stopped(),
            Self::Several(sender) => sender.is_stopped(),
        }
    }

    pub(super) fn handler(&mut self) -> &mut H {
        match self {
            Self::One(sender) => sender.handler(),
            Self::Several(sender) => sender.handler(),
        }
    }
}

fn wrong(sentence: impl Into<String>) -> Failure {
    Failure::Input(sentence.into())
}

/// The paths of the arguments; `None` if there is one, from the system's address.
pub(super) fn options(
    arguments: &Arguments,
    first: &Destination,
) -> Result<Option<PathOptions>, Failure> {
    let count = arguments.to.len().max(arguments.bind.len());
    if count == 1 && arguments.bind.is_empty() {
        return match arguments.paths {
            Some(_) => Err(wrong("--paths: there is one path: give --to or --bind several times")),
            None => Ok(None),
        };
    }
    if count > MAX_PATHS {
        return Err(wrong(format!("--to, --bind: {count} paths: there may be {MAX_PATHS}")));
    }
    if arguments.stream.is_some() {
        return Err(wrong(
            "--stream: a relay takes a stream over one path: give one --to, no --bind",
        ));
    }
    let fits = |given: usize| given <= 1 || given == count;
    if !fits(arguments.to.len()) || !fits(arguments.bind.len()) {
        return Err(wrong(
            "--to, --bind: give one of them once, or both as often, each --bind for the --to in its place",
        ));
    }
    let mut remotes = vec![resolve(&first.address, "--to ")?];
    for text in &arguments.to[1..] {
        let other = Destination::read(text, "--to: ")?;
        if !first.is_same_receiver(&other) {
            return Err(wrong("--to: the URLs are of different receivers: all paths lead to one"));
        }
        remotes.push(resolve(&other.address, "--to ")?);
    }
    let locals = arguments.bind.iter().map(|text| local(text)).collect::<Result<Vec<_>, _>>()?;
    let path = |place: usize| {
        let remote = remotes.get(place).copied().unwrap_or(remotes[0]);
        let local = locals.get(place).or(locals.first()).copied();
        match local {
            Some(local) if local.is_ipv4() != remote.is_ipv4() => {
                Err(wrong(format!("--bind {}: {remote} has another version of IP", local.ip())))
            }
            _ => Ok(PathAddress { remote, local }),
        }
    };
    let paths = (0..count).map(path).collect::<Result<Vec<_>, _>>()?;
    if paths.iter().enumerate().any(|(place, path)| paths[..place].contains(path)) {
        return Err(wrong("--to, --bind: two paths have the same addresses"));
    }
    let mode = arguments.paths.unwrap_or(PathsArgument::Duplicate).of_session();
    Ok(Some(PathOptions { mode, paths }))
}

fn local(text: &str) -> Result<SocketAddr, Failure> {
    let ip = |text: &str| text.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    let address = text.parse().ok().or_else(|| ip(text).map(|ip| SocketAddr::new(ip, 0)));
    address.ok_or_else(|| {
        wrong(format!("--bind {text}: write an address of this machine, such as 192.0.2.7"))
    })
}

/// The name of a path: its number, and its addresses.
pub(super) fn name(path: usize, address: &PathAddress) -> String {
    let from = address.local.map_or_else(String::new, |local| format!("from {} ", local.ip()));
    format!("path {} ({from}to {})", path + 1, address.remote)
}

/// The sentence for what happens to a path, and its document.
pub(super) fn event(event: PathEvent, paths: &[PathAddress]) -> (String, Value) {
    let millis = |time: Duration| format!("{:.0} ms", time.as_secs_f64() * 1e3);
    let (path, state, does, silence) = match event {
        PathEvent::Up(path) => (path, "up", "is up".to_owned(), None),
        PathEvent::Down(path) => (path, "down", "is down: it does not answer".to_owned(), None),
        PathEvent::Carries { path, why } => {
            let (why, silence) = match why {
                CarryReason::Silent(silence) => {
                    (format!("the one before was silent for {}", millis(silence)), Some(silence))
                }
                CarryReason::TooSlow(round_trip) => {
                    let round_trip = millis(round_trip);
                    let late = "what the one before brings comes too late";
                    (format!("{late}, its round trip is {round_trip}"), None)
                }
                CarryReason::Preferred => ("it is preferred".to_owned(), None),
            };
            (path, "carries", format!("carries the stream: {why}"), silence)
        }
    };
    let named = paths.get(path).map_or_else(String::new, |address| name(path, address));
    let sentence = format!("{named} {does}");
    let remote = paths.get(path).map(|address| address.remote.to_string());
    let document = json!({
        "path": path + 1,
        "to": remote,
        "state": state,
        "silent_s": silence.map(Duration::as_secs_f64),
        "text": sentence,
    });
    (sentence, document)
}

/// The share of a path in all units that were given to paths.
fn share(figures: &[PathFigures], path: &PathFigures) -> f64 {
    let all: u64 = figures.iter().map(|path| path.units).sum();
    path.units as f64 / all.max(1) as f64
}

/// The part of the line about paths.
pub(super) fn line(figures: &[PathFigures]) -> String {
    let one = |(place, path): (usize, &PathFigures)| {
        let state = match (path.is_up, path.carries) {
            (false, _) => "down",
            (true, true) => "carries",
            (true, false) => "stands by",
        };
        format!(
            "; path {} {state}, RTT {}, {} of {} packets lost, {:.0} % of units",
            place + 1,
            path.round_trip.map_or_else(|| "-".to_owned(), super::status_line::millis),
            path.packets_lost,
            path.packets_sent,
            share(figures, path) * 100.0,
        )
    };
    figures.iter().enumerate().map(one).collect()
}

/// Each path, to publish.
pub(super) fn reports(figures: &[PathFigures], paths: &[PathAddress]) -> Vec<PathReport> {
    let one = |(number, (path, address)): (u32, (&PathFigures, &PathAddress))| PathReport {
        path: number,
        peer: address.remote.to_string(),
        up: Some(path.is_up),
        carries: Some(path.carries),
        round_trip_s: path.round_trip.map(Duration::as_secs_f64),
        bytes: path.bytes_sent,
        packets: Some(path.packets_sent),
        lost_packets: Some(path.packets_lost),
    };
    (1..).zip(figures.iter().zip(paths)).map(one).collect()
}

/// Fields of each path, for the documents.
pub(super) fn documents(figures: &[PathFigures], paths: &[PathAddress]) -> Value {
    let one = |(place, (path, address)): (usize, (&PathFigures, &PathAddress))| {
        let all = path.packets_sent;
        json!({
            "path": place + 1,
            "to": address.remote.to_string(),
            "from": address.local.map(|local| local.ip().to_string()),
            "up": path.is_up,
            "carries": path.carries,
            "round_trip_s": path.round_trip.map(Duration::as_secs_f64),
            "bytes_sent": path.bytes_sent,
            "packets_sent": all,
            "packets_lost": path.packets_lost,
            "loss": if all > 0 { Some(path.packets_lost as f64 / all as f64) } else { None },
            "units": path.units,
            "share": share(figures, path),
            "failures": path.failures,
        })
    };
    figures.iter().zip(paths).enumerate().map(one).collect()
}
