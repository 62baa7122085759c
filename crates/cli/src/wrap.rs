//! `ontempo qos run`: marking, reservation and monitoring for a program that knows nothing of them.
//!
//! Nothing is put into the program. Its sockets are found in `/proc`; each is fetched by
//! `pidfd_getfd`, marked and given back at once, so that it still ends when the program closes it.
//! What its connections carry is read from the kernel by `ss`.

mod reports;
mod reservations;
mod sockets;
mod traffic;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ontempo_reservation::qos as mapping;
use rustix::process::{Pid, Signal, kill_process, set_child_subreaper};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::reports::Reports;
use self::reservations::Reservations;
use self::sockets::Marker;
use crate::arguments::{FlowDirection, QosCommand, WrappedRun};
use crate::failure::Failure;
use crate::output::complain;
use crate::quality::read;
use crate::signals::set_by;

/// How often new sockets are looked for: what leaves earlier is not marked.
const TURN: Duration = Duration::from_millis(20);
/// How often traffic is measured and told, as QoS sockets do it.
const INTERVAL: Duration = Duration::from_millis(500);

pub(crate) fn qos(command: &QosCommand) -> Result<ExitCode, Failure> {
    match command {
        QosCommand::Run(arguments) => run(arguments),
    }
}

fn run(arguments: &WrappedRun) -> Result<ExitCode, Failure> {
    let asked = read(&arguments.spec)?;
    let dscp = mapping::dscp(&asked).bits();
    let mut marker = Marker::new(dscp);
    let mut reservations = Reservations::new(arguments, &asked)?;
    let Some((program, words)) = arguments.command.split_first() else {
        return Err(Failure::Input("no command is given".to_owned()));
    };
    let mut reports = Reports::new(program, dscp, arguments.direction);
    // A Ctrl-C is for the program, which has it from the terminal.
    set_by(&[SIGINT], &Arc::default())?;
    let ended = Arc::default();
    set_by(&[SIGTERM, SIGHUP], &ended)?;
    // What the program leaves behind when it is not waited for stays in the family.
    set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| Failure::Environment(format!("cannot adopt processes: {error}")))?;
    let mut child = Command::new(program)
        .args(words)
        .spawn()
        .map_err(|error| Failure::Input(format!("{program}: cannot be run: {error}")))?;
    let failed = |error: io::Error| Failure::Environment(format!("{program}: {error}"));
    let mut measured = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(code_of(status));
        }
        if ended.swap(false, Ordering::Relaxed) {
            terminate(&child);
        }
        let open = marker.look(child.id());
        if measured.elapsed() >= INTERVAL {
            measured = Instant::now();
            match traffic::established() {
                Ok(mut flows) => {
                    flows.retain(|flow| open.contains(&flow.inode));
                    reservations.follow(&flows);
                    reports.tell(&flows, &reservations);
                }
                Err(why) => reports.complain_once(&why),
            }
        }
        std::thread::sleep(TURN);
    }
}

/// Passes the wish to end on.
fn terminate(child: &Child) {
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(process) = process
        && let Err(error) = kill_process(process, Signal::TERM)
    {
        complain(&format!("cannot end process {}: {error}", child.id()));
    }
}

/// The program's own code; as shells have it, 128 and the number of the signal that ended it.
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
