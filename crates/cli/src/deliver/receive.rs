//! `ontempo receive`.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;

use ontempo_foundation::Duration;
use ontempo_session::message::Report;
use ontempo_session::{
    Error, Outcome, Receiver, ReceiverEvent, ReceiverHandler, ReceiverOptions, Target,
};
use ontempo_transport::live::{Listener, Options};
use ontempo_transport::{Identity, IdentityError, ReceiveStatistics};
use ontempo_udp::SocketOptions;
use serde_json::json;

use super::status_line::StatusLine;
use super::{EXAMPLE_PORT, configuration, failure, token};
use crate::address::{resolve, socket_at, socket_for};
use crate::arguments::{Place, Receive as Arguments};
use crate::failure::{Failure, environment};
use crate::output::emit;
use crate::signals::stop_flag;

pub(crate) fn receive(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.json && arguments.to == Place::Pipe {
        return Err(Failure::Input(
            "--json and --to - both use standard output: write to a file".to_owned(),
        ));
    }
    let stop = stop_flag()?;
    let identity = identity(arguments.identity.as_deref())?;
    let socket = SocketOptions { dscp: arguments.dscp.unwrap_or_default(), ..Default::default() };
    let configuration = configuration(arguments.qlog.as_deref())?;
    let options = Options { socket, configuration, ..Options::default() };
    let socket = socket_at(&arguments.listen, "--listen", EXAMPLE_PORT, socket)?;
    let token = token(arguments.token.as_deref())?;
    let listener = Listener::new(socket, &identity, token, &options)
        .map_err(|error| failure(Error::Transport(error)))?;
    let fingerprint = identity.fingerprint().to_string();
    let status = StatusLine::new(arguments.json);
    let local = listener.local().to_string();
    if arguments.json {
        let document = json!({ "event": "listening", "local": local, "fingerprint": fingerprint });
        emit(&document.to_string())?;
    } else {
        status.message(&format!("listening at {local}, fingerprint {fingerprint}"));
    }
    let is_file = !matches!(arguments.to, Place::Udp(_));
    let once = arguments.once || is_file;
    let options = ReceiverOptions { latency: arguments.latency, once, stop };
    let handler = OutputHandler { arguments, status, failed: None };
    let mut receiver = Receiver::new(listener, options, handler);
    let ended = receiver.run();
    let handler = receiver.handler();
    handler.status.end();
    if let Some(failed) = handler.failed.take() {
        return Err(failed);
    }
    match ended.map_err(failure)? {
        Outcome::Stopped { midstream: true } if is_file => {
            Err(Failure::Interrupted("interrupted before the end of the stream".to_owned()))
        }
        Outcome::Stopped { .. } | Outcome::StreamEnded => Ok(ExitCode::SUCCESS),
    }
}

/// Loads certificate and key from a file, or creates them there; without a file, they are not
/// saved.
pub(crate) fn identity(path: Option<&Path>) -> Result<Identity, Failure> {
    let names = ["localhost"];
    let Some(path) = path else { return Identity::self_signed(&names).map_err(environment) };
    Identity::load_or_create(path, &names).map_err(|error| match error {
        IdentityError::In(..) => Failure::Input(format!("--identity {error}")),
        IdentityError::Read(..) | IdentityError::Write(..) => {
            Failure::Environment(format!("--identity {error}"))
        }
        error => environment(error),
    })
}

/// Writes events to the terminal and opens the target of streams.
struct OutputHandler<'a> {
    arguments: &'a Arguments,
    status: StatusLine,
    /// Set if the target cannot be opened, or the output is closed.
    failed: Option<Failure>,
}

impl ReceiverHandler for OutputHandler<'_> {
    fn open(&mut self) -> Result<Target, String> {
        target(&self.arguments.to).map_err(|failure| {
            self.failed = Some(failure);
            "the target cannot be opened".to_owned()
        })
    }

    fn on_event(&mut self, event: ReceiverEvent<'_>) -> ControlFlow<()> {
        match event {
            ReceiverEvent::Refused { remote, reason } => {
                let sender = remote.map_or_else(|| "a sender".to_owned(), |at| at.to_string());
                self.status.message(&format!("{sender} was refused: {reason}"));
            }
            ReceiverEvent::Receiving(remote) => {
                self.status.message(&format!("receiving from {remote}"));
            }
            ReceiverEvent::Lost(remote, reason) => {
                self.status.message(&format!("lost {remote}: {reason}"));
            }
            ReceiverEvent::Unreadable(what) => {
                self.status.warn(&format!("a unit cannot be read: {what}"));
            }
            ReceiverEvent::Missed(sentence) => self.status.warn(&sentence),
            ReceiverEvent::Progress(report, flow) => {
                let written = self.progress(report, flow);
                return self.done(written);
            }
            ReceiverEvent::StreamEnded(report) => {
                self.status.end();
                let written = self.totals(report);
                return self.done(written);
            }
            // The enum is non-exhaustive.
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl OutputHandler<'_> {
    fn done(&mut self, written: Result<(), Failure>) -> ControlFlow<()> {
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                self.failed = Some(failure);
                ControlFlow::Break(())
            }
        }
    }

    fn progress(&self, report: &Report, now: &ReceiveStatistics) -> Result<(), Failure> {
        let line = format!(
            "{:.2} Mbit/s, {} units, {} late, {} dropped, delay {} to {}, jitter {}",
            now.throughput.as_mbit_per_sec(),
            report.units,
            report.late_units,
            report.dropped_units,
            now.delay.min,
            now.delay.max,
            now.delay.mean_jitter(),
        );
        let document = json!({
            "event": "figures",
            "seconds": self.status.started.elapsed().as_secs_f64(),
            "throughput_bps": now.throughput.as_bits_per_sec(),
            "min_delay_s": now.delay.min.as_secs_f64(),
            "mean_jitter_s": now.delay.mean_jitter().as_secs_f64(),
            "clock_uncertainty_s": now.delay.uncertainty.map(Duration::as_secs_f64),
            "blocking_time_s": now.blocked.as_secs_f64(),
            "held_bytes": now.held_bytes,
            "stream": report,
        });
        self.status.show(&line, &document)
    }

    fn totals(&self, report: &Report) -> Result<(), Failure> {
        if self.arguments.json {
            return emit(&json!({ "event": "totals", "stream": report }).to_string());
        }
        self.status.message(&format!(
            "received {} units, {} bytes: {} late, {} dropped; {} datagrams undamaged, {} \
             damaged, {} missing",
            report.units,
            report.bytes,
            report.late_units,
            report.dropped_units,
            report.whole_datagrams,
            report.damaged_datagrams,
            report.missing_datagrams,
        ));
        Ok(())
    }
}

fn target(to: &Place) -> Result<Target, Failure> {
    match to {
        Place::Udp(address) => {
            let to = resolve(address, "--to udp://")?;
            Ok(Target::Datagrams { socket: socket_for(to)?, to })
        }
        Place::Pipe => {
            Ok(Target::Bytes { to: Box::new(io::stdout()), name: "standard output".to_owned() })
        }
        Place::File(path) => {
            let name = path.display().to_string();
            let file = File::create(path).map_err(|error| {
                Failure::Environment(format!("--to {name}: cannot be created: {error}"))
            })?;
            Ok(Target::Bytes { to: Box::new(file), name })
        }
    }
}
