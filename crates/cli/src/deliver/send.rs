//! `ontempo send`.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration as Wall;

use ontempo_session::{
    Backlog, Sender, SenderEvent, SenderHandler, SenderOptions, SenderTotals, Source,
};
use ontempo_transport::live::Options;
use ontempo_transport::{Configuration, ConnectionStatistics, Trust};
use ontempo_udp::SocketOptions;
use serde_json::json;

use super::status_line::StatusLine;
use super::{EXAMPLE_PORT, configuration, failure, read};
use crate::access::Destination;
use crate::address::{resolve, socket_at};
use crate::arguments::{Place, Repair, Send as Arguments};
use crate::failure::{Failure, environment};
use crate::output::emit;
use crate::signals::stop_flag;

pub(crate) fn send(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let stop = stop_flag()?;
    let is_live = matches!(arguments.from, Place::Udp(_));
    let destination = Destination::read(&arguments.to, "--to: ")?;
    let trust = destination.trust(arguments.fingerprint, || other_trust(arguments))?;
    let token = destination.token(&arguments.credentials)?;
    let remote = resolve(&destination.address, "--to ")?;
    let default_reliability = if is_live { Repair::Deadline } else { Repair::Full };
    let configuration = Configuration {
        congestion: arguments.congestion.chosen().map_err(Failure::Input)?,
        ..configuration(arguments.qlog.as_deref())?
    };
    let socket = SocketOptions { dscp: arguments.dscp.unwrap_or_default(), ..Default::default() };
    let max_bytes = usize::try_from(arguments.buffer.get()).unwrap_or(usize::MAX);
    let backlog = Arc::new(Backlog::new(max_bytes, is_live));
    let source = source(&arguments.from, &backlog, arguments.realtime)?;
    let options = SenderOptions {
        remote,
        name: destination.name,
        trust,
        token,
        transport: Options { configuration, socket, ..Options::default() },
        latency: arguments.latency,
        order: arguments.delivery.of_flow(),
        reliability: arguments.reliability.unwrap_or(default_reliability).of_flow(),
        stream: arguments.stream.clone(),
        give_up: Wall::from_nanos(arguments.give_up.as_nanos()),
        stop,
    };
    let status = StatusLine::new(arguments.json);
    let handler = OutputHandler { status, to: remote.to_string(), failed: None };
    let mut sender = Sender::connect(options, backlog, source, handler).map_err(failure)?;
    let done = sender.run();
    let totals = sender.totals();
    let is_stopped = sender.is_stopped();
    let handler = sender.handler();
    handler.status.end();
    handler.totals(arguments.json, &totals)?;
    if let Some(failed) = handler.failed.take() {
        return Err(failed);
    }
    done.map_err(failure)?;
    if is_stopped && !is_live {
        return Err(Failure::Interrupted("interrupted before the end of the source".to_owned()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The verification that `--trust` or `--insecure` ask for.
fn other_trust(arguments: &Arguments) -> Result<Option<Trust>, Failure> {
    match &arguments.trust {
        Some(path) => Trust::from_pem(&read(path, "--trust")?)
            .map(Some)
            .map_err(|error| Failure::Input(format!("--trust {}: {error}", path.display()))),
        None => Ok(arguments.insecure.then_some(Trust::Insecure)),
    }
}

fn source(from: &Place, backlog: &Arc<Backlog>, realtime: bool) -> Result<Source, Failure> {
    let started = match from {
        Place::Udp(address) => {
            let socket =
                socket_at(address, "--from udp://", EXAMPLE_PORT, SocketOptions::default())?;
            Source::datagrams(socket, backlog)
        }
        Place::Pipe => Source::bytes(io::stdin(), "standard input", backlog, realtime),
        Place::File(path) => {
            let name = path.display().to_string();
            let file = File::open(path).map_err(|error| {
                Failure::Environment(format!("--from {name}: cannot be opened: {error}"))
            })?;
            Source::bytes(file, &name, backlog, realtime)
        }
    };
    started.map_err(environment)
}

/// Writes events to the terminal.
struct OutputHandler {
    status: StatusLine,
    /// The receiver.
    to: String,
    /// Set if the output is closed.
    failed: Option<Failure>,
}

impl SenderHandler for OutputHandler {
    fn on_event(&mut self, event: SenderEvent<'_>) -> ControlFlow<()> {
        let to = &self.to;
        match event {
            SenderEvent::Connected { again: false } => {
                self.status.message(&format!("connected to {to}"));
            }
            SenderEvent::Connected { again: true } => {
                self.status.connection(&format!("connected to {to} again"));
            }
            SenderEvent::Lost(reason) => {
                self.status.connection(&format!("lost {to}: {reason}; reconnecting"));
            }
            SenderEvent::Overflow(dropped) => self.status.warn(&format!(
                "the source is faster than the network: {} units of {} bytes dropped",
                dropped.units, dropped.bytes
            )),
            SenderEvent::Missed(sentence) => self.status.warn(&sentence),
            SenderEvent::Waiting => self
                .status
                .message("all units acknowledged; waiting until the receiver has written them"),
            SenderEvent::Unreported => {
                self.status
                    .message("all units acknowledged, but the receiver sent no final report");
            }
            SenderEvent::Progress(totals, connection) => return self.progress(totals, connection),
            // The enum is non-exhaustive.
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl OutputHandler {
    fn progress(&mut self, all: &SenderTotals, over: &ConnectionStatistics) -> ControlFlow<()> {
        let viewers = all.viewers.map_or_else(String::new, |viewers| {
            format!(
                ", {} viewers, {:.1} % of datagrams bad at the median one, {:.1} % at the worst",
                viewers.count,
                viewers.median_bad_share * 100.0,
                viewers.worst_bad_share * 100.0
            )
        });
        let line = format!(
            "{} units, {:.1} MB sent, {} dropped, {} waiting, RTT {}, {} of {} packets lost{viewers}",
            all.flow.units,
            all.flow.bytes as f64 / 1e6,
            all.flow.dropped + all.overflow.units,
            all.flow.held_units,
            over.round_trip.map_or_else(|| "-".to_owned(), |rtt| rtt.to_string()),
            over.packets_lost,
            over.packets_sent + over.packets_lost,
        );
        match self.status.show(&line, &self.document("figures", all, Some(over))) {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                self.failed = Some(failure);
                ControlFlow::Break(())
            }
        }
    }

    fn document(
        &self,
        event: &str,
        all: &SenderTotals,
        over: Option<&ConnectionStatistics>,
    ) -> serde_json::Value {
        json!({
            "event": event,
            "seconds": self.status.started.elapsed().as_secs_f64(),
            "units": all.flow.units,
            "bytes": all.flow.bytes,
            "arrived_units": all.flow.arrived,
            "dropped_units": all.flow.dropped,
            "overflow_units": all.overflow.units,
            "overflow_bytes": all.overflow.bytes,
            "waiting_bytes": all.waiting_bytes,
            "reconnected": all.reconnected,
            "round_trip_s": over.and_then(|over| over.round_trip).map(|rtt| rtt.as_secs_f64()),
            "packets_lost": over.map(|over| over.packets_lost),
            "packets_sent": over.map(|over| over.packets_sent + over.packets_lost),
            "window_bytes": over.map(|over| over.window.get()),
            "receiver": all.report,
            "viewers": all.viewers,
        })
    }

    fn totals(&self, as_json: bool, all: &SenderTotals) -> Result<(), Failure> {
        if as_json {
            return emit(&self.document("totals", all, None).to_string());
        }
        let (datagrams, wrong) = all.report.datagrams();
        self.status.message(&format!(
            "sent {} units, {} bytes in {:.1} s: {} arrived, {} dropped at their deadline, {} by \
             buffer overflow; the receiver delivered {} of {datagrams} datagrams undamaged, {wrong} \
             were missing or damaged, {} units were late; {} reconnections",
            all.flow.units,
            all.flow.bytes,
            self.status.started.elapsed().as_secs_f64(),
            all.flow.arrived,
            all.flow.dropped,
            all.overflow.units,
            all.report.whole_datagrams,
            all.report.late_units,
            all.reconnected,
        ));
        Ok(())
    }
}
