//! `ontempo qos run`: marking, reservation and monitoring for an unmodified program.
//!
//! Nothing is injected into the program. Its sockets are found in `/proc`; each is duplicated with
//! `pidfd_getfd`, marked and the duplicate closed at once, so that the socket still closes with the
//! program's descriptor. Traffic counters are read with `ss`.

mod followed;
mod reports;
mod reservations;
mod sockets;
mod traffic;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ontempo_reservation::qos as mapping;
use rustix::process::{Pid, Signal, kill_process, set_child_subreaper};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::followed::Followed;
use self::reports::Reports;
use self::reservations::Reservations;
use self::sockets::Marker;
use crate::arguments::{FlowDirection, QosCommand, WrappedRun};
use crate::failure::Failure;
use crate::output::write_stderr;
use crate::quality::read;
use crate::signals::set_by;

/// Interval between scans for new sockets; packets sent before the first scan are not marked.
const SOCKET_SCAN_INTERVAL: Duration = Duration::from_millis(20);
/// Interval between measurements and reports, as for QoS sockets.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

pub(crate) fn qos(command: &QosCommand) -> Result<ExitCode, Failure> {
    match command {
        QosCommand::Run(arguments) => run(arguments),
    }
}

fn run(arguments: &WrappedRun) -> Result<ExitCode, Failure> {
    let specification = read(&arguments.spec)?;
    let dscp = mapping::dscp(&specification).bits();
    let mut marker = Marker::new(dscp);
    let mut reservations = Reservations::new(arguments, &specification)?;
    let Some((program, program_arguments)) = arguments.command.split_first() else {
        return Err(Failure::Input("no command is given".to_owned()));
    };
    let mut reports = Reports::new(program, arguments.direction);
    let signals = Signals::set()?;
    // Orphaned descendants become children of this process, so that their sockets are still found.
    set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| Failure::Environment(format!("cannot adopt processes: {error}")))?;
    let mut child = Command::new(program)
        .args(program_arguments)
        .spawn()
        .map_err(|error| Failure::Input(format!("{program}: cannot be run: {error}")))?;
    let failed = |error: io::Error| Failure::Environment(format!("{program}: {error}"));
    let mut followed = Followed::default();
    let mut measured = Instant::now();
    let mut ended = None;
    loop {
        if ended.is_none() {
            ended = child.try_wait().map_err(failed)?;
            if ended.is_some() {
                signals.forget_interrupt();
                if !reservations.are_made() {
                    return Ok(ended.map_or(ExitCode::SUCCESS, code_of));
                }
            } else if signals.is_terminated() {
                terminate(&child);
            }
        }
        let open = marker.mark_new(child.id());
        marker.reap();
        if ended.is_some() || measured.elapsed() >= REPORT_INTERVAL {
            measured = Instant::now();
            let mut remain = 0;
            match traffic::connected() {
                Ok(flows) => {
                    let flows = followed.select(measured, flows, &open);
                    remain = flows.iter().filter(|flow| flow.is_closed).count();
                    reservations.follow(&flows);
                    marker.ask(reservations.asked_of(&flows));
                    reports.publish(&flows, &reservations, &marker);
                }
                Err(error) => reports.warn_once(&error),
            }
            if let Some(status) = ended {
                // What the kernel still sends needs its reservation; a signal ends it.
                if remain == 0 || !reservations.are_made() || signals.is_any() {
                    return Ok(code_of(status));
                }
                std::thread::sleep(REPORT_INTERVAL);
            }
        }
        std::thread::sleep(SOCKET_SCAN_INTERVAL);
    }
}

/// Signals to this process.
struct Signals {
    /// Ctrl-C: the program receives it from the terminal, so that this process ignores it while the
    /// program runs.
    interrupted: Arc<AtomicBool>,
    terminated: Arc<AtomicBool>,
}

impl Signals {
    fn set() -> Result<Self, Failure> {
        let signals = Self { interrupted: Arc::default(), terminated: Arc::default() };
        set_by(&[SIGINT], &signals.interrupted)?;
        set_by(&[SIGTERM, SIGHUP], &signals.terminated)?;
        Ok(signals)
    }

    /// Whether one to terminate has come since the last call.
    fn is_terminated(&self) -> bool {
        self.terminated.swap(false, Ordering::Relaxed)
    }

    fn forget_interrupt(&self) {
        self.interrupted.store(false, Ordering::Relaxed);
    }

    fn is_any(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed) || self.terminated.load(Ordering::Relaxed)
    }
}

/// Passes SIGTERM on to the program.
fn terminate(child: &Child) {
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(process) = process
        && let Err(error) = kill_process(process, Signal::TERM)
    {
        write_stderr(&format!("cannot end process {}: {error}", child.id()));
    }
}

/// The program's exit code, or 128 + the number of the signal that ended it, as in shells.
fn code_of(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

impl FlowDirection {
    fn sends(self) -> bool {
        self != Self::Receive
    }

    fn receives(self) -> bool {
        self != Self::Send
    }
}
