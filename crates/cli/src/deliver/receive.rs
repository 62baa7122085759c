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

use super::figures::Figures;
use super::{USUAL, configuration, failure, token};
use crate::address::{resolve, socket_at, socket_for};
use crate::arguments::{Place, Receive as Arguments};
use crate::failure::{Failure, environment};
use crate::output::emit;
use crate::signals::stop_flag;

pub(crate) fn receive(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.json && arguments.to == Place::Pipe {
        return Err(Failure::Input(
            "--json and --to - both want standard output: write to a file".to_owned(),
        ));
    }
    let stop = stop_flag()?;
    let identity = identity(arguments.identity.as_deref())?;
    let socket = SocketOptions { dscp: arguments.dscp.unwrap_or_default(), ..Default::default() };
    let configuration = configuration(arguments.qlog.as_deref())?;
    let options = Options { socket, configuration, ..Options::default() };
    let socket = socket_at(&arguments.listen, "--listen", USUAL, socket)?;
    let token = token(arguments.token.as_deref())?;
    let listener = Listener::new(socket, &identity, token, &options)
        .map_err(|error| failure(Error::Transport(error)))?;
    let fingerprint = identity.fingerprint().to_string();
    let figures = Figures::new(arguments.json);
    let local = listener.local().to_string();
    if arguments.json {
        let document = json!({ "event": "listening", "local": local, "fingerprint": fingerprint });
        emit(&document.to_string())?;
    } else {
        figures.say(&format!("listening at {local}, fingerprint {fingerprint}"));
    }
    let is_file = !matches!(arguments.to, Place::Udp(_));
    let once = arguments.once || is_file;
    let options = ReceiverOptions { latency: arguments.latency, once, stop };
    let shown = Shown { arguments, figures, failed: None };
    let mut receiver = Receiver::new(listener, options, shown);
    let ended = receiver.run();
    let shown = receiver.handler();
    shown.figures.end();
    if let Some(failed) = shown.failed.take() {
        return Err(failed);
    }
    match ended.map_err(failure)? {
        Outcome::Stopped { midstream: true } if is_file => {
            Err(Failure::Interrupted("interrupted before the end of the stream".to_owned()))
        }
        Outcome::Stopped { .. } | Outcome::StreamEnded => Ok(ExitCode::SUCCESS),
    }
}

/// The certificate and key of a file, or made now, and then kept there.
pub(crate) fn identity(path: Option<&Path>) -> Result<Identity, Failure> {
    let names = ["localhost"];
    let Some(path) = path else { return Identity::self_made(&names).map_err(environment) };
    Identity::kept(path, &names).map_err(|error| match error {
        IdentityError::In(..) => Failure::Input(format!("--identity {error}")),
        IdentityError::Read(..) | IdentityError::Write(..) => {
            Failure::Environment(format!("--identity {error}"))
        }
        error => environment(error),
    })
}

/// What is printed, and where streams go to.
struct Shown<'a> {
    arguments: &'a Arguments,
    figures: Figures,
    /// The target cannot be opened, or the output is gone.
    failed: Option<Failure>,
}

impl ReceiverHandler for Shown<'_> {
    fn open(&mut self) -> Result<Target, String> {
        target(&self.arguments.to).map_err(|failure| {
            self.failed = Some(failure);
            "the target cannot be opened".to_owned()
        })
    }

    fn on_event(&mut self, event: ReceiverEvent<'_>) -> ControlFlow<()> {
        match event {
            ReceiverEvent::Refused { remote, reason } => {
                let who = remote.map_or_else(|| "somebody".to_owned(), |at| at.to_string());
                self.figures.say(&format!("{who} was refused: {reason}"));
            }
            ReceiverEvent::Receiving(remote) => {
                self.figures.say(&format!("receiving from {remote}"));
            }
            ReceiverEvent::Lost(remote, reason) => {
                self.figures.say(&format!("lost {remote}: {reason}"));
            }
            ReceiverEvent::Unreadable(what) => {
                self.figures.warn(&format!("a unit cannot be read: {what}"));
            }
            ReceiverEvent::Missed(sentence) => self.figures.warn(&sentence),
            ReceiverEvent::Progress(report, flow) => {
                let shown = self.progress(report, flow);
                return self.done(shown);
            }
            ReceiverEvent::StreamEnded(report) => {
                self.figures.end();
                let shown = self.totals(report);
                return self.done(shown);
            }
            // There may be more kinds one day.
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Shown<'_> {
    fn done(&mut self, shown: Result<(), Failure>) -> ControlFlow<()> {
        match shown {
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
            now.delay.least,
            now.delay.greatest,
            now.delay.mean_jitter(),
        );
        let document = json!({
            "event": "figures",
            "seconds": self.figures.begun.elapsed().as_secs_f64(),
            "throughput_bps": now.throughput.as_bits_per_sec(),
            "least_delay_s": now.delay.least.as_secs_f64(),
            "mean_jitter_s": now.delay.mean_jitter().as_secs_f64(),
            "clock_uncertainty_s": now.delay.uncertainty.map(Duration::as_secs_f64),
            "blocking_time_s": now.blocked.as_secs_f64(),
            "held_bytes": now.held_bytes,
            "stream": report,
        });
        self.figures.show(&line, &document)
    }

    fn totals(&self, report: &Report) -> Result<(), Failure> {
        if self.arguments.json {
            return emit(&json!({ "event": "totals", "stream": report }).to_string());
        }
        self.figures.say(&format!(
            "received {} units, {} bytes: {} late, {} dropped; {} datagrams handed on whole, {} \
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
                Failure::Environment(format!("--to {name}: cannot make it: {error}"))
            })?;
            Ok(Target::Bytes { to: Box::new(file), name })
        }
    }
}
