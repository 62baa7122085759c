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

/// Ends the processes in `namespace`: by SIGTERM, and those that still run by SIGKILL.
///
/// # Errors
/// As [`run`]; also where a line of `ip netns pids` is no process.
pub(crate) fn end_processes(namespace: &str) -> Result<(), String> {
    for signal in [Signal::TERM, Signal::KILL] {
        for _ in 0..MAX_WAITS {
            let running = processes(namespace)?;
            if running.is_empty() {
                return Ok(());
            }
            for process in running {
                // One that has just ended needs no signal.
                let _ = kill_process(process, signal);
            }
            sleep(GRACE);
        }
    }
    Ok(())
}

/// The processes in `namespace`, but for this one. `ip netns pids` has no JSON (iproute2 6.1).
fn processes(namespace: &str) -> Result<Vec<Pid>, String> {
    let printed = run(&["netns", "pids", namespace])?;
    let own = rustix::process::getpid();
    let mut found = read_processes(&printed)?;
    found.retain(|process| *process != own);
    Ok(found)
}

fn read_processes(printed: &str) -> Result<Vec<Pid>, String> {
    let read = |line: &str| {
        let process = line.trim().parse().ok().and_then(Pid::from_raw);
        process.ok_or_else(|| format!("ip netns pids: process: {line:?} is not a process number"))
    };
    printed.lines().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_number_that_cannot_be_read_is_an_error() {
        let processes = read_processes("17\n42\n").expect("two processes");
        assert_eq!(processes.iter().map(|one| one.as_raw_nonzero().get()).sum::<i32>(), 59);
        let error = "ip netns pids: process: \"4x\" is not a process number";
        assert_eq!(read_processes("17\n4x\n"), Err(error.to_owned()));
    }
}
