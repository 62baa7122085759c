//! Namespaces, interfaces and queues, by the programs `ip` and `tc` of iproute2: they are
//! documented, and their errors are sentences.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Where `ip netns` keeps namespaces.
const FOLDER: &str = "/run/netns";

/// How long processes may take to end after SIGTERM.
const GRACE: Duration = Duration::from_millis(20);
const MAX_WAITS: u32 = 25;

/// The file by which a namespace is entered.
pub(crate) fn path(namespace: &str) -> PathBuf {
    Path::new(FOLDER).join(namespace)
}

/// Runs `ip` with these arguments and returns its output.
///
/// # Errors
/// Its error message, or why it could not be started.
pub(crate) fn run(arguments: &[&str]) -> Result<String, String> {
    finish("ip", Command::new("ip").args(arguments).stdin(Stdio::null()), "")
}

/// Runs `program`, `ip` or `tc`, on `lines`, one command each, in `namespace` where one is given.
///
/// # Errors
/// As [`run`].
pub(crate) fn batch(program: &str, namespace: Option<&str>, lines: &str) -> Result<String, String> {
    let mut command = Command::new(program);
    if let Some(namespace) = namespace {
        command.args(["-netns", namespace]);
    }
    finish(program, command.args(["-batch", "-"]).stdin(Stdio::piped()), lines)
}

fn finish(program: &str, command: &mut Command, input: &str) -> Result<String, String> {
    let missing = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            format!(
                "the program `{program}` is missing; install it with: sudo apt-get install iproute2"
            )
        }
        _ => format!("cannot run `{program}`: {error}"),
    };
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(missing)?;
    if let Some(mut pipe) = child.stdin.take() {
        // Where it has ended already, its status says why.
        let _ = pipe.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(missing)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().next().map(|line| line.trim().to_owned());
    Err(first.unwrap_or_else(|| format!("{program} failed without a word")))
}

/// Ends the processes in `namespace`: asks first, and then does not ask.
pub(crate) fn end_processes(namespace: &str) {
    for signal in [Signal::TERM, Signal::KILL] {
        for _ in 0..MAX_WAITS {
            let running = processes(namespace);
            if running.is_empty() {
                return;
            }
            for process in running {
                // One that has just ended needs no signal.
                let _ = kill_process(process, signal);
            }
            sleep(GRACE);
        }
    }
}

fn processes(namespace: &str) -> Vec<Pid> {
    let printed = run(&["netns", "pids", namespace]).unwrap_or_default();
    let own = rustix::process::getpid();
    let numbers = printed.lines().filter_map(|line| line.trim().parse().ok());
    numbers.filter_map(Pid::from_raw).filter(|process| *process != own).collect()
}
