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

use super::figures::Figures;
use super::{USUAL, configuration, failure, read, token};
use crate::address::{resolve, socket_at};
use crate::arguments::{Place, Repair, Send as Arguments};
use crate::failure::{Failure, environment};
use crate::output::emit;
use crate::signals::stop_flag;

pub(crate) fn send(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let stop = stop_flag()?;
    let is_live = matches!(arguments.from, Place::Udp(_));
    let trust = trust(arguments)?;
    let remote = resolve(&arguments.to, "--to ")?;
    let host = arguments.to.rsplit_once(':').map_or("", |(host, _)| host);
    let usual = if is_live { Repair::Deadline } else { Repair::Full };
    let configuration = Configuration {
        congestion: arguments.congestion.chosen().map_err(Failure::Input)?,
        ..configuration(arguments.qlog.as_deref())?
    };
    let socket = SocketOptions { dscp: arguments.dscp.unwrap_or_default(), ..Default::default() };
    let most = usize::try_from(arguments.buffer.get()).unwrap_or(usize::MAX);
    let backlog = Arc::new(Backlog::new(most, is_live));
    let source = source(&arguments.from, &backlog, arguments.realtime)?;
    let options = SenderOptions {
        remote,
        name: host.trim_matches(['[', ']']).to_owned(),
        trust,
        token: token(arguments.token.as_deref())?,
        transport: Options { configuration, socket, ..Options::default() },
        latency: arguments.latency,
        order: arguments.delivery.of_flow(),
        reliability: arguments.reliability.unwrap_or(usual).of_flow(),
        give_up: Wall::from_nanos(arguments.give_up.as_nanos()),
        stop,
    };
    let figures = Figures::new(arguments.json);
    let shown = Shown { figures, to: remote.to_string(), failed: None };
    let mut sender = Sender::connect(options, backlog, source, shown).map_err(failure)?;
    let done = sender.run();
    let totals = sender.totals();
    let is_stopped = sender.is_stopped();
    let shown = sender.handler();
    shown.figures.end();
    shown.totals(arguments.json, &totals)?;
    if let Some(failed) = shown.failed.take() {
        return Err(failed);
    }
    done.map_err(failure)?;
    if is_stopped && !is_live {
        return Err(Failure::Interrupted("interrupted before the end of the source".to_owned()));
    }
    Ok(ExitCode::SUCCESS)
}

fn trust(arguments: &Arguments) -> Result<Trust, Failure> {
    match (&arguments.fingerprint, &arguments.trust) {
        (Some(fingerprint), _) => Ok(Trust::Fingerprint(*fingerprint)),
        (None, Some(path)) => Trust::from_pem(&read(path, "--trust")?)
            .map_err(|error| Failure::Input(format!("--trust {}: {error}", path.display()))),
        (None, None) if arguments.insecure => Ok(Trust::Anybody),
        (None, None) => Err(Failure::Input(
            "whom to trust is missing: give --fingerprint, which the receiver prints, --trust FILE, \
             or --insecure"
                .to_owned(),
        )),
    }
}

fn source(from: &Place, backlog: &Arc<Backlog>, realtime: bool) -> Result<Source, Failure> {
    let begun = match from {
        Place::Udp(address) => {
            let socket = socket_at(address, "--from udp://", USUAL, SocketOptions::default())?;
            Source::datagrams(socket, backlog)
        }
        Place::Pipe => Source::bytes(io::stdin(), "standard input", backlog, realtime),
        Place::File(path) => {
            let name = path.display().to_string();
            let file = File::open(path).map_err(|error| {
                Failure::Environment(format!("--from {name}: cannot open it: {error}"))
            })?;
            Source::bytes(file, &name, backlog, realtime)
        }
    };
    begun.map_err(environment)
}

/// What is printed.
struct Shown {
    figures: Figures,
    /// The receiver.
    to: String,
    /// The output is gone.
    failed: Option<Failure>,
}

impl SenderHandler for Shown {
    fn on_event(&mut self, event: SenderEvent<'_>) -> ControlFlow<()> {
        let to = &self.to;
        match event {
            SenderEvent::Connected { again: false } => {
                self.figures.say(&format!("connected to {to}"));
            }
            SenderEvent::Connected { again: true } => {
                self.figures.say(&format!("connected to {to} again"));
            }
            SenderEvent::Lost(closed) => {
                self.figures.say(&format!("lost {to}: {closed}; looking for it"));
            }
            SenderEvent::Overflow(dropped) => self.figures.warn(&format!(
                "the source is faster than the network: {} units of {} bytes dropped",
                dropped.units, dropped.bytes
            )),
            SenderEvent::Missed(sentence) => self.figures.warn(&sentence),
            SenderEvent::Waiting => {
                self.figures.say("the receiver has all; it is waited for until it has handed it on")
            }
            SenderEvent::Unreported => {
                self.figures.say("the receiver has all, but said nothing at the end");
            }
            SenderEvent::Progress(totals, connection) => return self.progress(totals, connection),
            // There may be more kinds one day.
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Shown {
    fn progress(&mut self, all: &SenderTotals, over: &ConnectionStatistics) -> ControlFlow<()> {
        let line = format!(
            "{} units, {:.1} MB sent, {} dropped, {} waiting, RTT {}, {} of {} packets lost",
            all.flow.units,
            all.flow.bytes as f64 / 1e6,
            all.flow.dropped + all.overflow.units,
            all.flow.held_units,
            over.round_trip.map_or_else(|| "-".to_owned(), |rtt| rtt.to_string()),
            over.packets_lost,
            over.packets_sent + over.packets_lost,
        );
        match self.figures.show(&line, &self.document("figures", all, Some(over))) {
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
            "seconds": self.figures.begun.elapsed().as_secs_f64(),
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
        })
    }

    fn totals(&self, as_json: bool, all: &SenderTotals) -> Result<(), Failure> {
        if as_json {
            return emit(&self.document("totals", all, None).to_string());
        }
        let (datagrams, wrong) = all.report.datagrams();
        self.figures.say(&format!(
            "sent {} units, {} bytes in {:.1} s: {} arrived, {} dropped at their deadline, {} for \
             want of room; the receiver handed on {} of {datagrams} datagrams whole, {wrong} were \
             missing or damaged, {} units came late; {} reconnections",
            all.flow.units,
            all.flow.bytes,
            self.figures.begun.elapsed().as_secs_f64(),
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
