//! Programs of the scenario, each in the namespace of its host.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration as StdDuration;

use ontempo_foundation::Time;
use ontempo_scenario::Layout;
use ontempo_scenario::model::{Application, Scenario};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::Control;
use crate::clock::Clock;
use crate::error::EmulationError;
use crate::namespace::Namespaces;
use ontempo_runtime::{End, Version};

/// How often commands are polled.
const LOOK_EVERY: StdDuration = StdDuration::from_millis(5);

/// How long a command may take to end after SIGTERM, before SIGKILL.
const GRACE: StdDuration = StdDuration::from_secs(1);

/// A program to run.
pub(crate) struct Task {
    /// `GROUP.INDEX.source` or `GROUP.INDEX.sink`.
    pub(crate) label: String,
    words: Vec<String>,
    namespace: String,
    /// `None` for a program that is started before the run.
    start: Option<Time>,
}

/// Standard output and standard error of a program.
#[derive(Clone, Debug)]
pub struct Log {
    /// The flow and the end at which the program ran.
    pub label: String,
    /// Its output.
    pub text: Vec<u8>,
}

/// Checks that the scenario's programs exist.
///
/// # Errors
/// Names the first missing program.
pub(crate) fn check(scenario: &Scenario) -> Result<(), EmulationError> {
    for (name, group) in &scenario.flows {
        let Application::Command { command, peer } = &group.application else { continue };
        for (field, words) in [("command", command), ("peer", peer)] {
            if let Some(program) = words.first().filter(|program| !is_program(program)) {
                return Err(EmulationError::Input(format!(
                    "flows.{name}.application.{field}: there is no program `{program}` on this \
                     machine"
                )));
            }
        }
    }
    Ok(())
}

/// Checks that the program of the command `words` is on this machine.
///
/// # Errors
/// [`EmulationError::Input`] that names it.
pub fn require_program(words: &[String]) -> Result<(), EmulationError> {
    match words.first().filter(|program| !is_program(program)) {
        Some(program) => {
            Err(EmulationError::Input(format!("there is no program `{program}` on this machine")))
        }
        None => Ok(()),
    }
}

/// Whether a program of this name, or at this path, is on this machine.
fn is_program(word: &str) -> bool {
    if word.contains('/') {
        return Path::new(word).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(word).is_file())
}

/// The programs of a scenario.
pub(crate) fn tasks(
    scenario: &Scenario,
    layout: &Layout,
    namespaces: &Namespaces,
    version: Version,
) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (number, flow) in layout.flows.iter().enumerate() {
        let group = &layout.groups[flow.group];
        let Some(Application::Command { command, peer }) =
            scenario.flows.get(group).map(|group| &group.application)
        else {
            continue;
        };
        let (source, sink) = (End::source(number), End::sink(number));
        let filled = |word: &String| {
            let word = word.replace("{source}", &source.ip(version).to_string());
            word.replace("{sink}", &sink.ip(version).to_string())
        };
        let both = [(command, source, "source", Some(flow.start)), (peer, sink, "sink", None)];
        for (words, end, side, start) in both {
            if !words.is_empty() {
                tasks.push(Task {
                    label: format!("{group}.{}.{side}", flow.index),
                    words: words.iter().map(filled).collect(),
                    namespace: namespaces.of(end).to_owned(),
                    start,
                });
            }
        }
    }
    tasks
}

/// The command that runs `words` in `namespace`.
pub(crate) fn inside(namespace: &str, words: &[String]) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).args(words);
    command
}

/// A running or finished program.
struct Running {
    task: Task,
    child: Child,
    log: File,
    status: Option<ExitStatus>,
}

impl Running {
    fn start(task: Task) -> io::Result<Self> {
        let log = File::from(memfd_create("log", MemfdFlags::CLOEXEC)?);
        let child = inside(&task.namespace, &task.words)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log.try_clone()?)
            // Ctrl-C must reach only this process, which then ends the program.
            .process_group(0)
            .spawn()?;
        Ok(Self { task, child, log, status: None })
    }

    /// True the first time that it is found to have ended.
    fn has_ended(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_some() {
            return Ok(None);
        }
        self.status = self.child.try_wait()?;
        Ok(self.status)
    }

    fn signal(&self, signal: Signal) {
        if self.status.is_none()
            && let Some(group) = Pid::from_raw(self.child.id().cast_signed())
        {
            // A program that has just ended needs no signal.
            let _ = kill_process_group(group, signal);
        }
    }

    fn log(mut self) -> Log {
        let mut text = Vec::new();
        // An in-memory file that cannot be read counts as empty.
        let _ = self.log.rewind().and_then(|()| self.log.read_to_end(&mut text));
        Log { label: self.task.label, text }
    }
}

/// Runs `tasks` until `end`, or until `control` is cancelled, ends those that still run, and
/// returns their output.
///
/// # Errors
/// If one cannot be started, or fails before the end.
pub(crate) fn supervise(
    tasks: Vec<Task>,
    clock: Clock,
    end: Time,
    control: &Control,
) -> Result<Vec<Log>, EmulationError> {
    let mut running = Vec::new();
    let supervised = supervise_all(tasks, &mut running, clock, end, control);
    end_all(&mut running);
    supervised?;
    Ok(running.into_iter().map(Running::log).collect())
}

fn supervise_all(
    mut tasks: Vec<Task>,
    running: &mut Vec<Running>,
    clock: Clock,
    end: Time,
    control: &Control,
) -> Result<(), EmulationError> {
    loop {
        let now = clock.now();
        if now >= end || control.is_cancelled() {
            return Ok(());
        }
        let is_due =
            |task: &mut Task| task.start.is_none_or(|start| start <= now && now > Time::ZERO);
        for task in tasks.extract_if(.., is_due) {
            let name = format!("{}: `{}`", task.label, task.words.join(" "));
            let started = Running::start(task);
            running.push(started.map_err(|error| EmulationError::system(&name, &error))?);
        }
        for place in 0..running.len() {
            let one = &mut running[place];
            let name = format!("{}: `{}`", one.task.label, one.task.words.join(" "));
            let ended = one.has_ended().map_err(|error| EmulationError::system(&name, &error))?;
            if let Some(status) = ended.filter(|status| !status.success()) {
                let log = running.swap_remove(place).log();
                let text = String::from_utf8_lossy(&log.text);
                let said = text.lines().rfind(|line| !line.trim().is_empty());
                return Err(EmulationError::System(format!(
                    "{name} failed {:.1} s after the start, with {status}: {}",
                    now.as_secs_f64(),
                    said.unwrap_or("it said nothing")
                )));
            }
        }
        sleep(LOOK_EVERY);
    }
}

/// Ends the processes that still run: SIGTERM first, then SIGKILL.
fn end_all(running: &mut [Running]) {
    for signal in [Signal::TERM, Signal::KILL] {
        running.iter().for_each(|one| one.signal(signal));
        let mut waited = StdDuration::ZERO;
        while waited < GRACE {
            let mut left = 0;
            for one in running.iter_mut() {
                // A process that cannot be waited for has ended.
                left += u32::from(one.has_ended().is_ok() && one.status.is_none());
            }
            if left == 0 {
                return;
            }
            sleep(LOOK_EVERY);
            waited += LOOK_EVERY;
        }
    }
}

/// Runs `words` in `namespace` with this process's input and output, until it ends by itself or
/// `control` is cancelled.
pub(crate) fn attached(
    namespace: &str,
    words: &[String],
    control: &Control,
) -> io::Result<ExitStatus> {
    let mut child = inside(namespace, words).spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if control.is_cancelled() {
            // An interactive shell ignores SIGTERM.
            child.kill()?;
            return child.wait();
        }
        sleep(LOOK_EVERY);
    }
}
