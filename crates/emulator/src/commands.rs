//! Programs of the scenario, each in the namespace of its host.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration as StdDuration;

use ontempo_foundation::{Duration, Time};
use ontempo_scenario::Layout;
use ontempo_scenario::model::{Application, Scenario};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::carriers::{self, Carrier};
use crate::clock::Clock;
use crate::error::EmulationError;
use crate::namespace::Namespaces;
use crate::{Control, sys};
use ontempo_runtime::{End, Version};

/// How often commands are polled.
const LOOK_EVERY: StdDuration = StdDuration::from_millis(5);

/// A supervisor that looks so much later than it should was kept from running by other work.
const OVERDUE: Duration = Duration::from_millis(100);

/// How long a command may take to end after SIGTERM, before SIGKILL.
const GRACE: StdDuration = StdDuration::from_secs(1);

/// How long the receivers of films may take until they listen.
const LISTENS_WITHIN: StdDuration = StdDuration::from_secs(10);

/// Output of a program that is kept: its first bytes and its last, so many of each.
const KEPT: u64 = 8 << 20;

/// A program to run.
pub(crate) struct Task {
    /// `GROUP.INDEX.source` or `GROUP.INDEX.sink`.
    pub(crate) label: String,
    words: Vec<String>,
    namespace: String,
    /// `None` for a program that is started before the run.
    start: Option<Time>,
    role: Role,
}

impl Task {
    /// Its label and its command.
    fn name(&self) -> String {
        format!("{}: `{}`", self.label, self.words.join(" "))
    }
}

/// What a program is to the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// A flow's own traffic, which a failure makes worthless.
    Traffic,
    /// The receiver of a film, listening at a port.
    Receiver(u16),
    /// The sender of a film, fed at a port.
    Sender(u16),
}

/// Standard output and standard error of a program.
#[derive(Clone, Debug)]
pub struct Log {
    /// The flow and the end at which the program ran.
    pub label: String,
    /// Its output; of more than 16 MiB the first 8 and the last 8, and between them a line that says how much is
    /// missing.
    pub text: Vec<u8>,
}

/// Checks that the scenario's programs exist.
///
/// # Errors
/// Names the first missing program.
pub(crate) fn check(scenario: &Scenario) -> Result<(), EmulationError> {
    for (name, group) in &scenario.flows {
        // Whichever flow it is, the programs are the same.
        carriers::carrier(&group.transport, 0, Version::default())
            .map_err(|why| EmulationError::Input(format!("flows.{name}.transport.kind: {why}")))?;
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
pub(crate) fn is_program(word: &str) -> bool {
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
) -> Result<Vec<Task>, EmulationError> {
    let mut tasks = Vec::new();
    for (number, flow) in layout.flows.iter().enumerate() {
        let name = &layout.groups[flow.group];
        let Some(group) = scenario.flows.get(name) else { continue };
        let (source, sink) = (End::source(number), End::sink(number));
        let filled = |words: &[String]| -> Vec<String> {
            let address = |end: End| end.ip(version).to_string();
            let word = |word: &String| {
                word.replace("{source}", &address(source)).replace("{sink}", &address(sink))
            };
            words.iter().map(word).collect()
        };
        let carrier = carriers::carrier(&group.transport, number, version);
        let carrier = carrier.map_err(EmulationError::Input)?;
        let both = match (&group.application, carrier) {
            (Application::Command { command, peer }, _) => [
                (filled(command), source, "source", Some(flow.start), Role::Traffic),
                (filled(peer), sink, "sink", None, Role::Traffic),
            ],
            (_, Some(Carrier { send, receive, ports })) => [
                (send, source, "source", Some(flow.start), Role::Sender(ports.input)),
                (receive, sink, "sink", None, Role::Receiver(ports.wire)),
            ],
            _ => continue,
        };
        for (words, end, side, start, role) in both {
            if !words.is_empty() {
                let label = format!("{name}.{}.{side}", flow.index);
                let namespace = namespaces.of(end).to_owned();
                tasks.push(Task { label, words, namespace, start, role });
            }
        }
    }
    Ok(tasks)
}

/// The command that runs `words` in `namespace`.
pub(crate) fn inside(namespace: &str, words: &[String]) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).args(words);
    command
}

/// What a program writes, in memory.
struct Written {
    file: File,
    /// Up to here from [`KEPT`] on nothing is kept.
    given_up: u64,
}

impl Written {
    fn new() -> io::Result<Self> {
        let file = File::from(memfd_create("log", MemfdFlags::CLOEXEC)?);
        Ok(Self { file, given_up: KEPT })
    }

    /// Gives the memory back of what is neither the beginning nor the end.
    fn bound(&mut self) -> io::Result<()> {
        let end = self.file.metadata()?.len();
        // Not at each line.
        if end < self.given_up + 2 * KEPT {
            return Ok(());
        }
        let until = end - KEPT;
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, hole, self.given_up, until - self.given_up)?;
        self.given_up = until;
        Ok(())
    }

    /// What is kept, and how many bytes were left out.
    fn read(&self) -> io::Result<Vec<u8>> {
        // Its offset is the program's, which may still write.
        let read = |from: u64, length: u64| -> io::Result<Vec<u8>> {
            let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
            self.file.read_exact_at(&mut bytes, from)?;
            Ok(bytes)
        };
        let end = self.file.metadata()?.len();
        if end <= 2 * KEPT {
            return read(0, end);
        }
        let mut text = read(0, KEPT)?;
        let missing = end - 2 * KEPT;
        text.extend(format!("\n[ontempo: {missing} bytes are left out]\n").bytes());
        text.append(&mut read(end - KEPT, KEPT)?);
        Ok(text)
    }
}

/// A running or finished program.
struct Running {
    task: Task,
    child: Child,
    log: Written,
    status: Option<ExitStatus>,
}

impl Running {
    fn start(task: Task) -> io::Result<Self> {
        let log = Written::new()?;
        let mut command = inside(&task.namespace, &task.words);
        command
            .stdin(Stdio::null())
            .stdout(log.file.try_clone()?)
            .stderr(log.file.try_clone()?)
            // Ctrl-C must reach only this process, which then ends the program.
            .process_group(0);
        if task.role != Role::Traffic {
            // What carries a film precedes other work, as the film's source and sink do.
            sys::begin_with_realtime_priority(&mut command);
        }
        let child = command.spawn()?;
        Ok(Self { task, child, log, status: None })
    }

    /// Its status, the first time that it is found to have ended. Bounds its output: for every
    /// [`LOOK_EVERY`].
    fn has_ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.log.bound()?;
        if self.status.is_some() {
            return Ok(None);
        }
        self.status = self.child.try_wait()?;
        Ok(self.status)
    }

    /// Looks whether it has ended, `when` after the start. Returns a sentence if its end means that a film is lost.
    ///
    /// # Errors
    /// If it has failed and is the flow's own traffic.
    fn look(&mut self, when: fmt::Arguments) -> Result<Option<String>, EmulationError> {
        let ended = self.has_ended();
        let ended = ended.map_err(|error| EmulationError::system(&self.name(), &error))?;
        let is_traffic = self.task.role == Role::Traffic;
        // A command may have done its work; what carries a film has not.
        let Some(status) = ended.filter(|status| !is_traffic || !status.success()) else {
            return Ok(None);
        };
        let (name, words) = (self.name(), self.last_words());
        if is_traffic {
            return Err(EmulationError::System(format!(
                "{name} failed {when} after the start, with {status}: {words}"
            )));
        }
        let what = "so that the rest of its film is lost";
        Ok(Some(format!("{name} ended {when} after the start, with {status}, {what}: {words}")))
    }

    fn signal(&self, signal: Signal) {
        if self.status.is_none()
            && let Some(group) = Pid::from_raw(self.child.id().cast_signed())
        {
            // A program that has just ended needs no signal.
            let _ = kill_process_group(group, signal);
        }
    }

    fn name(&self) -> String {
        self.task.name()
    }

    fn log(&self) -> Log {
        // An in-memory file that cannot be read counts as empty.
        let text = self.log.read().unwrap_or_default();
        Log { label: self.task.label.clone(), text }
    }

    /// The last line that it has written.
    fn last_words(&self) -> String {
        let log = self.log();
        let text = String::from_utf8_lossy(&log.text);
        let said = text.lines().rfind(|line| !line.trim().is_empty());
        said.unwrap_or("it said nothing").to_owned()
    }

    /// What of the film the kernel dropped since the sender did not read it, if it is one.
    fn unread(&self) -> Option<String> {
        let Role::Sender(port) = self.task.role else { return None };
        if self.status.is_some() {
            return None;
        }
        let dropped = carriers::dropped_at(self.child.id(), port)?;
        (dropped > 0).then(|| {
            let what = "datagrams of the film before it read them, which count as lost; send the film \
                        paced, or give sockets a larger buffer (sysctl net.core.rmem_default)";
            format!("{}: the kernel dropped {dropped} {what}", self.name())
        })
    }
}

/// The programs of a run; dropping it ends them.
#[derive(Default)]
pub(crate) struct Programs {
    waiting: Vec<Task>,
    running: Vec<Running>,
    /// A sentence for each way in which programs that carry films have failed.
    failures: Vec<String>,
}

/// What programs leave.
#[derive(Default)]
pub(crate) struct Supervised {
    pub(crate) logs: Vec<Log>,
    pub(crate) failures: Vec<String>,
}

impl Drop for Programs {
    fn drop(&mut self) {
        end_all(&mut self.running);
    }
}

impl Programs {
    /// Starts the receivers of films among `tasks`, and waits until they listen.
    ///
    /// # Errors
    /// If one cannot be started, or does not listen; [`EmulationError::Cancelled`] if `control` was.
    pub(crate) fn begin(tasks: Vec<Task>, control: &Control) -> Result<Self, EmulationError> {
        let mut programs = Self::default();
        programs.waiting = tasks;
        let is_receiver = |task: &mut Task| matches!(task.role, Role::Receiver(_));
        for task in programs.waiting.extract_if(.., is_receiver).collect::<Vec<_>>() {
            programs.start(task)?;
        }
        let mut waited = StdDuration::ZERO;
        for one in &mut programs.running {
            let Role::Receiver(port) = one.task.role else { continue };
            while carriers::dropped_at(one.child.id(), port).is_none() {
                if control.is_cancelled() {
                    return Err(EmulationError::Cancelled);
                }
                let name = one.name();
                let ended = one.has_ended();
                let ended = ended.map_err(|error| EmulationError::system(&name, &error))?;
                if let Some(why) = ended
                    .map(|status| format!("ended with {status}"))
                    .or_else(|| (waited > LISTENS_WITHIN).then(|| "does not listen".to_owned()))
                {
                    let words = one.last_words();
                    return Err(EmulationError::System(format!("{name} {why}: {words}")));
                }
                sleep(LOOK_EVERY);
                waited += LOOK_EVERY;
            }
        }
        Ok(programs)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    fn start(&mut self, task: Task) -> Result<(), EmulationError> {
        let name = task.name();
        let started = Running::start(task);
        self.running.push(started.map_err(|error| EmulationError::system(&name, &error))?);
        Ok(())
    }

    /// Runs them until `end`, or until `control` is cancelled, ends those that still run, and
    /// returns their output.
    ///
    /// # Errors
    /// If one cannot be started, was not started before the end though it was due, or fails before
    /// the end and is the flow's own traffic.
    pub(crate) fn supervise(
        mut self,
        clock: Clock,
        end: Time,
        control: &Control,
    ) -> Result<Supervised, EmulationError> {
        let mut looked = Time::ZERO;
        while !self.is_empty() {
            let now = clock.now();
            if control.is_cancelled() {
                break;
            }
            if now >= end {
                self.check_at_the_end(end, looked, now)?;
                break;
            }
            let is_due =
                |task: &mut Task| task.start.is_none_or(|start| start <= now && now > Time::ZERO);
            for task in self.waiting.extract_if(.., is_due).collect::<Vec<_>>() {
                self.start(task)?;
            }
            for one in &mut self.running {
                self.failures.extend(one.look(format_args!("{:.1} s", now.as_secs_f64()))?);
            }
            looked = now;
            sleep(LOOK_EVERY);
        }
        self.failures.extend(self.running.iter().filter_map(Running::unread));
        end_all(&mut self.running);
        let logs = self.running.iter().map(Running::log).collect();
        Ok(Supervised { logs, failures: std::mem::take(&mut self.failures) })
    }

    /// Checks what other work of this machine may have kept [`Programs::supervise`] from seeing
    /// before `end`, as it looked last at `looked` and is here `now`.
    fn check_at_the_end(
        &mut self,
        end: Time,
        looked: Time,
        now: Time,
    ) -> Result<(), EmulationError> {
        let was_due = |task: &&Task| task.start.is_none_or(|start| start + OVERDUE <= end);
        if let Some(task) = self.waiting.iter().find(was_due) {
            return Err(EmulationError::System(format!(
                "{} was not started before the end of the run: this machine was too busy",
                task.name()
            )));
        }
        if end.since(looked) < OVERDUE {
            return Ok(());
        }
        // What carries a film ends with its input: its end says nothing now.
        let (from, to) = (looked.as_secs_f64(), now.as_secs_f64());
        for one in self.running.iter_mut().filter(|one| one.task.role == Role::Traffic) {
            one.look(format_args!("between {from:.1} and {to:.1} s"))?;
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn task(start: Time) -> Task {
        let words = vec!["false".to_owned()];
        let (label, namespace) = ("one.0.source".to_owned(), "none".to_owned());
        Task { label, words, namespace, start: Some(start), role: Role::Traffic }
    }

    #[test]
    fn a_program_that_was_due_and_never_started_fails_the_run() {
        let clock = Clock::starting_in(Duration::ZERO);
        let end = Time::ZERO + OVERDUE;
        sleep(StdDuration::from_millis(150));
        let supervised = |start| {
            let mut programs = Programs::default();
            programs.waiting.push(task(start));
            programs.supervise(clock, end, &Control::default())
        };
        let failed = supervised(Time::ZERO).err().expect("a failure").to_string();
        assert!(
            failed.contains("one.0.source: `false` was not started before the end"),
            "{failed}"
        );
        assert!(supervised(Time::from_nanos(1)).is_ok());
    }

    #[test]
    fn a_failure_that_a_late_look_finds_at_the_end_fails_the_run() {
        let ended = |end: Time| {
            let task = task(Time::ZERO);
            let mut child = Command::new(&task.words[0]).spawn().expect("false");
            child.wait().expect("its end");
            let log = Written::new().expect("memory");
            let mut programs = Programs::default();
            programs.running.push(Running { task, child, log, status: None });
            let clock = Clock::starting_in(Duration::ZERO);
            sleep(StdDuration::from_millis(150));
            programs.supervise(clock, end, &Control::default())
        };
        let late = Time::ZERO + OVERDUE;
        let failed = ended(late).err().expect("a failure").to_string();
        assert!(failed.contains("one.0.source: `false` failed between 0.0 and 0."), "{failed}");
        assert!(ended(late - Duration::from_millis(1)).is_ok());
    }

    #[test]
    fn of_much_output_the_beginning_and_the_end_are_kept_and_the_rest_is_counted() {
        let mut written = Written::new().expect("memory");
        let mut program = written.file.try_clone().expect("its end");
        let line = |number: u64| format!("{number:>1023}\n");
        let lines = 9 * KEPT / 1024;
        for number in 0..lines {
            program.write_all(line(number).as_bytes()).expect("written");
            written.bound().expect("given back");
        }
        let held = written.file.metadata().expect("its size").blocks() * 512;
        assert!(held <= 3 * KEPT + (1 << 16), "{held} bytes are held");
        let text = String::from_utf8(written.read().expect("read")).expect("text");
        let (first, rest) = text.split_at(KEPT as usize);
        let (missing, last) = rest.split_at(rest.len() - KEPT as usize);
        let all = |from: u64, to: u64| (from..to).map(line).collect::<String>();
        assert!(first == all(0, KEPT / 1024), "not the beginning");
        assert!(last == all(lines - KEPT / 1024, lines), "not the end");
        assert_eq!(missing, format!("\n[ontempo: {} bytes are left out]\n", 7 * KEPT));
    }

    #[test]
    fn little_output_is_kept_as_it_is() {
        let mut written = Written::new().expect("memory");
        assert_eq!(written.read().expect("read"), b"");
        (&written.file).write_all(b"said\n").expect("written");
        written.bound().expect("nothing to give back");
        assert_eq!(written.read().expect("read"), b"said\n");
    }
}
