//! A folder of its own for each test, and the program run in it.

// Each test program uses a part of this.
#![allow(dead_code)]

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

mod terminal;
#[allow(unused_imports)] // not each test has a terminal
pub(crate) use terminal::Terminal;

/// A dumbbell whose lines the tests count on; it drops packets within its three seconds.
pub(crate) const SCENARIO: &str = r#"title = "Video and bulk"
duration = "3 s"

[topology]
kind = "dumbbell"

[topology.bottleneck]
rate = "2 Mbit/s"
delay = "20 ms"
queue = { kind = "drop-tail", limit = "15 packets" }

[topology.access]
rate = "100 Mbit/s"
delay = "2 ms"

[flows.bulk]
application = { kind = "ftp" }
transport = { kind = "tcp" }

[flows.video]
count = 2
application = { kind = "cbr", rate = "300 kbit/s" }
transport = { kind = "tcp", congestion = "pert" }
playout = ["1 s"]

[flows.voice]
application = { kind = "cbr", rate = "64 kbit/s" }
transport = { kind = "udp", packet = "201 B" }
"#;

/// The same, for longer than any test waits.
pub(crate) fn endless() -> String {
    SCENARIO.replace("duration = \"3 s\"", "duration = \"100000000 s\"")
}

/// A folder with `s.toml` in it, gone when the test ends.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new(test: &str, scenario: &str) -> Self {
        let place = std::env::temp_dir().join(format!("ontempo-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).expect("a folder for the test");
        fs::write(place.join("s.toml"), scenario).expect("a scenario for the test");
        Self(place)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A copy of the program here: another user may have no access to the build folder.
    pub(crate) fn copy_of_program(&self) -> PathBuf {
        let copy = self.path("ontempo");
        fs::copy(env!("CARGO_BIN_EXE_ontempo"), &copy).expect("a copy of the program");
        copy
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ontempo"));
        command.args(arguments).current_dir(&self.0);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().expect("the program starts"))
    }

    pub(crate) fn spawn(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the program starts")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        end_processes_in(&self.0);
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Ends the processes whose working directory is `folder`, which a test that fails leaves behind: one that has the
/// test program's standard output keeps whoever reads that waiting.
fn end_processes_in(folder: &Path) {
    let Ok(processes) = fs::read_dir("/proc") else { return };
    for process in processes.flatten() {
        let is_in = fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == *folder);
        let number = process.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = number.and_then(Pid::from_raw).filter(|_| is_in) {
            // It may end by itself meanwhile.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Exit code and output of a finished program.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).expect("text"),
            err: String::from_utf8(output.stderr).expect("text"),
        }
    }

    /// Checks the exit code and that standard error contains each of `words`.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        for word in words {
            assert!(
                self.err.contains(word),
                "`{word}` is missing from standard error: {}",
                self.err
            );
        }
        assert!(!self.err.contains("panicked"), "{}", self.err);
    }

    #[track_caller]
    pub(crate) fn succeeds(&self) -> &Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).expect("standard output is one JSON document")
    }
}

/// What a program that ends has printed.
pub(crate) fn ran(child: Child) -> Ran {
    Ran::of(child.wait_with_output().expect("it ends"))
}

/// Starts `ontempo send` to `to`.
pub(crate) fn send_with(place: &Place, to: &str, from: &str, more: &[&str]) -> Child {
    let mut command = place.command(&[&["send", "--from", from, "--to", to], more].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

/// Bytes that no codec could shorten.
pub(crate) fn noise(count: usize) -> Vec<u8> {
    let mut state = 1u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Everything below `folder`, hidden files too, by name.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The files of a whole run without traces.
pub(crate) const WHOLE: [&str; 14] = [
    "adus.parquet",
    "capacity.parquet",
    "events.parquet",
    "flows.parquet",
    "frames.parquet",
    "intervals.parquet",
    "links.parquet",
    "media.parquet",
    "messages.parquet",
    "packets.parquet",
    "playout.parquet",
    "queues.parquet",
    "run.json",
    "samples.parquet",
];

/// Waits until `condition` holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(60), "in vain waited for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A program that writes again and again into a pipe ends, without a failure, once nobody reads it.
#[track_caller]
pub(crate) fn check_ends_with_its_reader(mut command: Command) {
    let child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
    let mut child = Killed(child);
    let mut reader = BufReader::new(child.0.stdout.take().expect("a pipe"));
    reader.read_line(&mut String::new()).expect("a line");
    drop(reader);
    let child = RefCell::new(child);
    let ended = || child.borrow_mut().0.try_wait().expect("a process");
    wait_until("its end", || ended().is_some());
    assert!(ended().is_some_and(|status| status.success()));
}

/// Presses Ctrl-C.
pub(crate) fn interrupt(child: &Child) {
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()), "kill -INT");
}

/// A port of loopback that was free a moment ago, for UDP and TCP.
pub(crate) fn free_port() -> u16 {
    loop {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("its address");
        if TcpListener::bind(address).is_ok() {
            return address.port();
        }
    }
}

/// A child that is killed when the test ends, however it ends.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A listening program, killed if the test ends first.
pub(crate) struct ListeningProgram {
    pub(crate) child: Killed,
    pub(crate) out: BufReader<ChildStdout>,
    /// Its local address.
    pub(crate) local: String,
}

impl ListeningProgram {
    /// Starts it with `--json` and without an RSVP daemon.
    pub(crate) fn start(place: &Place, arguments: &[&str]) -> Self {
        let mut command = place.command(&[arguments, &["--json"]].concat());
        command.env("ONTEMPO_RSVP_SOCKET", place.path("no.sock"));
        let (program, printed) = Self::of(command);
        assert_eq!(printed["event"], "listening");
        program
    }

    /// The program that this command starts, and its first document.
    pub(crate) fn of(mut command: Command) -> (Self, Value) {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Killed(command.spawn().expect("the program starts"));
        let mut out = BufReader::new(child.0.stdout.take().expect("its output"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        let printed: Value = serde_json::from_str(&line).expect("JSON");
        let local = printed["local"].as_str().expect("an address").to_owned();
        (Self { child, out, local }, printed)
    }

    /// The next event of this name.
    #[track_caller]
    pub(crate) fn next_event(&mut self, name: &str) -> Value {
        loop {
            let mut line = String::new();
            let count = self.out.read_line(&mut line).expect("a line");
            assert!(count > 0, "it ended before `{name}`");
            let event: Value = serde_json::from_str(&line).expect("JSON");
            if event["event"] == name {
                return event;
            }
        }
    }

    /// Ends it by Ctrl-C, and checks that its output is JSON and its exit code 0: what it has said on
    /// standard error.
    pub(crate) fn said_until_interrupted(mut self) -> String {
        let mut err = self.child.0.stderr.take().expect("its standard error");
        interrupt(&self.child.0);
        assert_eq!(self.end().1, Some(0));
        let mut said = String::new();
        err.read_to_string(&mut said).expect("text");
        said
    }

    /// Waits for its end: the events since the start, and the exit code.
    pub(crate) fn end(mut self) -> (Vec<Value>, Option<i32>) {
        let mut text = String::new();
        self.out.read_to_string(&mut text).expect("text");
        (json_lines(&text), self.child.0.wait().expect("it ends").code())
    }
}

/// JSON documents, one a line.
pub(crate) fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// The largest resident memory of a process so far, bytes.
pub(crate) fn peak_memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
}
