//! `ontempo probe --trace`: the rate, delay and loss of a live path over time.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError};

use ontempo_foundation::{Bytes, Duration};
use ontempo_place::Output;
use ontempo_probe::{Progress, Recorder, RecorderOptions, Refused, SenderOptions, Token, Trace};
use ontempo_session::StoppableWriter;
use ontempo_udp::random;
use serde_json::json;

use super::{reach, refused, run_to_end};
use crate::access::presented_text;
use crate::arguments::Probe as Arguments;
use crate::failure::Failure;
use crate::output::{emit, emit_json, write_stderr};
use crate::place::output_failure;
use crate::signals::{is_stopped, stop_flag};

/// Default of --seconds.
const SECONDS: u64 = 60;

/// The longest outage that is recorded, rather than taken for the end of the path.
const SILENCE: Duration = Duration::from_secs(10);

/// The smallest packet of a recording: scouts must be much smaller.
const MIN_PACKET: u64 = 500;

/// From this doubt on it is reported: otherwise the loss is about as exact as that.
const IN_DOUBT: f64 = 0.01;

/// A new file, which goes again if nothing is written.
struct NewFile {
    path: PathBuf,
    place: Output,
    file: File,
    /// It was made here, and nothing is in it.
    is_ours_and_empty: bool,
}

impl NewFile {
    fn create(path: &Path) -> Result<Self, Failure> {
        let named = format!("--trace {}", path.display());
        let failed = |error| output_failure(&named, &error);
        let place = Output::at(path, true).map_err(failed)?;
        match place.create_new(0o666) {
            Ok(file) => Ok(Self { path: path.to_owned(), place, file, is_ours_and_empty: true }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if place.is_file() {
                    let what = format!("{named}: it exists; name a new file, or remove it");
                    return Err(Failure::Input(what));
                }
                // A pipe or a device.
                let file = place.open(is_stopped).map_err(failed)?;
                Ok(Self { path: path.to_owned(), place, file, is_ours_and_empty: false })
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Writes the recording. The reader of a named pipe may take nothing: then it ends once `stopped` is
    /// set.
    fn write(&mut self, text: &str, stopped: &Arc<AtomicBool>) -> Result<(), Failure> {
        self.is_ours_and_empty = false;
        let path = self.path.display();
        let failed = |error| Failure::Environment(format!("--trace {path}: {error}"));
        let to = Box::new(self.file.try_clone().map_err(failed)?);
        let mut out = StoppableWriter::new(to, Arc::clone(stopped)).map_err(failed)?;
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.map_err(|error| {
            if !out.is_given_up() {
                return failed(error);
            }
            Failure::Interrupted(format!(
                "interrupted while --trace {path} takes nothing: at least {} of {} bytes of the \
                 recording are not written",
                out.unwritten(),
                text.len()
            ))
        })
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.is_ours_and_empty {
            // Nothing of value is left behind if it fails.
            let _ = self.place.remove(&self.file);
        }
    }
}

fn options(arguments: &Arguments, destination: SocketAddr) -> Result<RecorderOptions, Failure> {
    let seconds = arguments.seconds.unwrap_or(SECONDS);
    if arguments.packet < MIN_PACKET {
        let packet = arguments.packet;
        let what = format!("--packet {packet}: with --trace at least {MIN_PACKET} bytes");
        return Err(Failure::Input(what));
    }
    let options = RecorderOptions {
        duration: Duration::from_secs(seconds),
        max_rate: arguments.max_rate,
        packet: Bytes::new(arguments.packet),
        sender: SenderOptions {
            token: presented_text(&arguments.credentials)?.as_deref().map(Token::new),
            dscp: arguments.dscp,
            ..SenderOptions::to(destination)
        },
        silence: SILENCE,
    };
    let longest = options.longest();
    if options.duration > longest {
        return Err(Failure::Input(format!(
            "--seconds {seconds}: with --max-rate \"{}\" and --packet {} at most {:.0}; a lower rate \
             or larger packets allow more",
            arguments.max_rate,
            arguments.packet,
            longest.as_secs_f64().floor()
        )));
    }
    Ok(options)
}

pub(super) fn record(arguments: &Arguments, receiver: &str, path: &Path) -> Result<(), Failure> {
    let stopped = stop_flag()?;
    let (destination, socket) = reach(arguments, receiver)?;
    let options = options(arguments, destination)?;
    // Before anything is sent: who cannot store what is measured need not measure.
    let mut file = NewFile::create(path)?;
    let is_quiet = arguments.json;
    let recorder = Recorder::new(options, random(), move |progress| {
        if !is_quiet {
            write_stderr(&progress_line(&progress));
        }
    });
    let recording = recorder.recording();
    let (is_interrupted, ended) = run_to_end(socket, recorder, &stopped)?;
    let recording = recording.lock().unwrap_or_else(PoisonError::into_inner);
    let trace = recording.trace(arguments.window);
    let failed = recording.failure.map(|failure| refused(destination, failure));
    let failed = ended
        .err()
        .or(failed)
        .or_else(|| is_interrupted.then(|| Failure::Interrupted("interrupted".to_owned())));
    let (Some(_), Some(_)) = (trace.rows.first(), trace.rows.last()) else {
        let nothing = || Failure::Environment(format!("{destination}: no packet arrived"));
        return Err(failed.unwrap_or_else(nothing).and("nothing was recorded"));
    };
    file.write(&trace.csv(&format!("recorded by ontempo probe to {destination}")), &stopped)?;
    let recorded = arguments.window.as_secs_f64() * trace.rows.len() as f64;
    if arguments.json {
        emit_json(&document(destination, arguments, path, &trace, failed.is_some()))?;
    } else {
        emit(&text(path, &trace, recorded))?;
    }
    if trace.is_limited {
        write_stderr(&format!(
            "the path carried all of {}: its rate may be higher; see --max-rate",
            arguments.max_rate
        ));
    }
    match failed {
        None => Ok(()),
        Some(failed) => {
            Err(failed.and(&format!("{recorded:.1} s were recorded: {}", path.display())))
        }
    }
}

fn progress_line(progress: &Progress) -> String {
    let rate = progress.rate.map_or(0.0, |rate| rate.as_mbit_per_sec());
    format!("{:.0} s: {rate:.2} Mbit/s", progress.time.as_secs_f64())
}

/// Smallest, mean and largest value.
fn range(values: impl Iterator<Item = f64> + Clone) -> [f64; 3] {
    let count = values.clone().count().max(1) as f64;
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let most = values.clone().fold(f64::NEG_INFINITY, f64::max);
    [least, values.sum::<f64>() / count, most]
}

fn text(path: &Path, trace: &Trace, recorded: f64) -> String {
    let rows = trace.rows.iter();
    let rate = range(rows.clone().map(|row| row.rate.as_mbit_per_sec()));
    let delay = range(rows.clone().map(|row| row.delay.as_secs_f64() * 1e3));
    let loss = range(rows.map(|row| row.loss * 100.0));
    let (sent, arrived) = trace.packets;
    let path = path.display();
    format!(
        "{path}: {recorded:.1} s in {} rows\n\
         left out    {:.2} s, until the path was in use\n\
         rate        {:.2} to {:.2} Mbit/s, mean {:.2}\n\
         delay       {:.1} to {:.1} ms\n\
         loss        {:.2} %, its own queue's not counted{}\n{}\
         round trip  {:.1} ms at least\n\
         packets     {sent} sent, {arrived} arrived\n\n\
         In a scenario, for a link:\n    \
         schedule = {{ kind = \"csv\", file = \"{path}\" }}",
        trace.rows.len(),
        trace.left_out.as_secs_f64(),
        rate[0],
        rate[2],
        rate[1],
        delay[0],
        delay[2],
        loss[1],
        doubt(trace),
        refused_by(trace.refused),
        trace.round_trip.as_secs_f64() * 1e3,
    )
}

/// How much more or less the loss may be, if that is much.
fn doubt(trace: &Trace) -> String {
    if trace.loss_doubt < IN_DOUBT {
        return String::new();
    }
    let points = trace.loss_doubt * 100.0;
    format!("; in doubt by {points:.1} points: its causes are not told apart better")
}

/// The line that names what refused packets.
fn refused_by(refused: Refused) -> &'static str {
    match refused {
        Refused::Nothing => "",
        Refused::ByQueue => {
            "refused     by a queue that drops packets before it is full, or is short: not among the loss\n"
        }
        Refused::ByPolicer => {
            "refused     by a policer: what is beyond its rate is not among the loss; a link of a scenario makes it wait\n"
        }
    }
}

fn document(
    destination: SocketAddr,
    arguments: &Arguments,
    path: &Path,
    trace: &Trace,
    is_partial: bool,
) -> serde_json::Value {
    let rows = trace.rows.iter();
    let rate = range(rows.clone().map(|row| row.rate.as_bits_per_sec() as f64));
    let delay = range(rows.clone().map(|row| row.delay.as_secs_f64()));
    let loss = range(rows.clone().map(|row| row.loss));
    let measured = rows.filter(|row| row.is_measured).count();
    json!({
        "receiver": destination.to_string(),
        "trace": path.display().to_string(),
        "rows": trace.rows.len(),
        "rows_measured": measured,
        "left_out_s": trace.left_out.as_secs_f64(),
        "window_s": arguments.window.as_secs_f64(),
        "rate_min_bps": rate[0],
        "rate_mean_bps": rate[1],
        "rate_max_bps": rate[2],
        "delay_min_s": delay[0],
        "delay_max_s": delay[2],
        "loss": loss[1],
        "loss_doubt": trace.loss_doubt,
        "refused_by": match trace.refused {
            Refused::Nothing => None,
            Refused::ByQueue => Some("queue"),
            Refused::ByPolicer => Some("policer"),
        },
        "base_rtt_s": trace.round_trip.as_secs_f64(),
        "sent_packets": trace.packets.0,
        "received_packets": trace.packets.1,
        "limited": trace.is_limited,
        "partial": is_partial,
    })
}
