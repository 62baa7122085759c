//! `ontempo-impair`: `ontempo impair` as a program of its own, for any system.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;
use ontempo_foundation::printable_lines;
use ontempo_impair::program::{self, Terminal, Trouble};

/// Put a scenario's path between any two UDP programs, in real time, without root
#[derive(Parser)]
#[command(name = "ontempo-impair", version, after_help = ontempo_impair::impair_help!("ontempo-impair"))]
struct Arguments {
    #[command(flatten)]
    impair: program::Arguments,
}

struct Console {
    stop: Arc<AtomicBool>,
}

impl Terminal for Console {
    fn print(&self, text: &str) -> Result<(), Trouble> {
        let mut out = std::io::stdout().lock();
        let written =
            writeln!(out, "{}", printable_lines(text).trim_end()).and_then(|()| out.flush());
        match written {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(Trouble::Environment(format!("cannot write to standard output: {error}")))
            }
            _ => Ok(()),
        }
    }

    fn tell(&self, text: &str) {
        let _ = writeln!(std::io::stderr(), "{}", printable_lines(text));
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Lets Ctrl-C, and the signal to terminate, set `stop`.
#[cfg(unix)]
fn handle_signals(stop: &Arc<AtomicBool>) -> std::io::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(stop))?;
    }
    Ok(())
}

/// Lets Ctrl-C, and the end of the console, set `stop`.
#[cfg(windows)]
fn handle_signals(stop: &Arc<AtomicBool>) -> Result<(), ctrlc::Error> {
    let stop = Arc::clone(stop);
    ctrlc::set_handler(move || stop.store(true, Ordering::Relaxed))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let console = Console { stop: Arc::default() };
    if let Err(error) = handle_signals(&console.stop) {
        console.tell(&format!("cannot handle signals: {error}"));
        return ExitCode::from(3);
    }
    let (what, code) = match program::run(&arguments.impair, &console) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Trouble::Input(what)) => (what, 2),
        Err(Trouble::Environment(what)) => (what, 3),
    };
    console.tell(&what);
    ExitCode::from(code)
}
