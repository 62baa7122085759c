//! `ontempo monitor`: specification, delivery and reservation of this host's QoS sockets.

pub(crate) mod document;
mod keys;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration as StdDuration, Instant};

use ontempo_foundation::printable;
use ontempo_monitor::{Collected, Collector, ReportFolder, Reservation, Role};
use ontempo_udp::Clock;

use self::document::Document;
use self::keys::Keys;
use crate::arguments::Monitor;
use crate::failure::Failure;
use crate::output::{
    emit, emit_json_line, emit_on_clear_terminal, has_reader, table, write_stderr,
};
use crate::signals::stop_flag;

/// How often the stop flag is read.
const POLL_INTERVAL: StdDuration = StdDuration::from_millis(50);

pub(crate) fn monitor(arguments: &Monitor) -> Result<(), Failure> {
    let is_interactive = !arguments.json && !arguments.once && std::io::stdout().is_terminal();
    let repeat = is_interactive || (arguments.json && !arguments.once);
    if let Some(folder) = &arguments.folder {
        std::fs::read_dir(folder).map_err(|error| {
            Failure::Input(format!("--folder {}: cannot be read: {error}", folder.display()))
        })?;
    }
    let stopped = stop_flag()?;
    let keys = is_interactive.then(Keys::read).flatten();
    let is_over = || stopped.load(Ordering::Relaxed) || keys.as_ref().is_some_and(Keys::is_quit);
    let mut collector = Collector::new();
    let every = StdDuration::from_nanos(arguments.every.as_nanos());
    loop {
        let (sockets, skipped) = collector.collect(&folders(arguments.folder.as_ref()));
        if arguments.json {
            emit_json_line(&Document::of(&sockets))?;
        } else if is_interactive {
            emit_on_clear_terminal(&sockets_table(&sockets), Some("q ends"))?;
        } else {
            emit(&sockets_table(&sockets))?;
        }
        skipped.iter().for_each(|one| write_stderr(&one.to_string()));
        if !repeat || !has_reader() {
            return Ok(());
        }
        let shown = Instant::now();
        loop {
            if is_over() {
                return Ok(());
            }
            let left = every.saturating_sub(shown.elapsed());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(POLL_INTERVAL));
        }
    }
}

/// Milliseconds since 1970, the time stamps of reports.
pub(crate) fn since_1970_ms() -> u64 {
    Clock::wall() / 1_000_000
}

/// The folders that reports are read from.
pub(crate) fn folders(only: Option<&PathBuf>) -> Vec<ReportFolder> {
    only.map_or_else(ReportFolder::to_collect, |folder| vec![ReportFolder::At(folder.clone())])
}

fn sockets_table(sockets: &[Collected]) -> String {
    if sockets.is_empty() {
        return "no process of this host has a QoS socket".to_owned();
    }
    let heads =
        ["socket", "process", "flow", "kbit/s", "loss", "delay", "jitter", "reserved", "violated"];
    let mut table = table(&heads, &[0, 1, 3, 4, 5, 6]);
    for one in sockets {
        let socket = &one.socket;
        let arrow = match socket.role {
            Role::Sender => "to",
            Role::Receiver => "from",
        };
        let mut name = printable(&socket.name).into_owned();
        if !name.is_empty() {
            name.push(' ');
        }
        let milliseconds = |seconds: Option<f64>| {
            seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{:.2} ms", seconds * 1e3))
        };
        table.add_row([
            one.index.to_string(),
            one.process.to_string(),
            format!("{name}{arrow} {}", socket.remote),
            format!("{:.0}", socket.throughput / 1e3),
            socket.loss.map_or_else(|| "-".to_owned(), |loss| format!("{loss:.2} %")),
            milliseconds(socket.delay),
            milliseconds(socket.jitter),
            reserved(socket.reservation, &socket.reason),
            violated(one),
        ]);
    }
    table.trim_fmt()
}

/// The state of a reservation as text.
pub(crate) fn reserved(reservation: Reservation, reason: &str) -> String {
    let state = match reservation {
        Reservation::None => "no",
        Reservation::Requested => "requested",
        Reservation::ControlledLoad => "controlled load",
        Reservation::Guaranteed => "guaranteed",
        Reservation::Refused => "refused",
        Reservation::Lost => "lost",
    };
    if reason.is_empty() { state.to_owned() } else { format!("{state}: {}", printable(reason)) }
}

pub(crate) fn violated(one: &Collected) -> String {
    let names: Vec<_> = one
        .socket
        .parameters
        .iter()
        .filter(|parameter| parameter.violated)
        .filter_map(|parameter| parameter.which())
        .map(|which| which.name())
        .collect();
    if names.is_empty() { "-".to_owned() } else { names.join(", ") }
}
