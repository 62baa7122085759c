//! How many viewers does a relay bear, and what do idle ones hold?
//!
//! `make bench-relay`, or `cargo bench -p ontempo-relay --bench relay -- [--json] [--seconds SECONDS]
//! [--threads COUNT] [--idle] --program ONTEMPO [VIEWERS ...]`. The program `ontempo relay` gets a stream of 25 frames of 5,000 bytes a
//! second, 1 Mbit/s, and gives it to viewers that are all in this process, over loopback, each over a
//! connection of its own that reports once a second. Measured is how many viewers have 99 % of the
//! frames within 500 ms, what the relay's process uses of the processor and of memory, and what this
//! process uses of another core. It ends with the first number of viewers of which one in a hundred is not
//! served.
//!
//! With `--idle` there is no source: the viewers wait, and the relay's memory is what is measured.

mod load;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command as Process, Stdio};
use std::thread::{sleep, spawn};
use std::time::{Duration as Wall, Instant};

use load::{Figures, Load, Target};
use ontempo_session::ReceiverUrl;
use ontempo_testing::used;
use ontempo_transport::{Token, Trust};
use serde_json::{Value, json};

/// Until all viewers are connected, and until what is late has come.
const CONNECTING: Wall = Wall::from_secs(120);
const STRAGGLERS: Wall = Wall::from_secs(1);

/// After the connections: a key frame for all, and slow start.
const SETTLING: Wall = Wall::from_secs(3);

/// The program, and the number of its threads if not that of processors.
struct Program {
    file: PathBuf,
    threads: Option<String>,
}

/// The program's process; ends with this.
struct Relay(Child, Target);

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &Program, viewers: usize) -> Relay {
    let count = viewers.to_string();
    let mut command = Process::new(&program.file);
    command.args(["relay", "--json", "--listen", "127.0.0.1:0"]);
    command.args(["--viewers", &count, "--viewers-of-host", &count]).env_remove("ONTEMPO_TOKEN");
    if let Some(threads) = &program.threads {
        command.args(["--threads", threads]);
    }
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
    let mut out = BufReader::new(child.stdout.take().expect("its output"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    let said: Value = serde_json::from_str(&line).expect("where it listens, as JSON");
    let text = |name: &str| said[name].as_str().expect("a text").to_owned();
    let url = |name: &str| -> ReceiverUrl { text(name).parse().expect("a URL") };
    let token = |url: &ReceiverUrl| Token::new(url.token.as_bytes()).expect("short");
    let (source, viewer) = (url("url"), url("viewers_url"));
    let target = Target {
        address: text("local").parse().expect("an address"),
        trust: Trust::Fingerprint(source.fingerprint),
        source: token(&source),
        viewer: token(&viewer),
    };
    Relay(child, target)
}

/// What was measured with so many viewers.
struct Measured {
    figures: Figures,
    /// Parts of a core.
    relay: f64,
    load: f64,
    memory: f64,
    /// Packets a second from the relay to the viewers, and back in calls.
    packets: f64,
}

fn await_viewers(load: &Load, viewers: usize) {
    let begun = Instant::now();
    while load.figures().open < viewers && begun.elapsed() < CONNECTING {
        sleep(Wall::from_millis(100));
    }
}

/// What viewers without a stream cost.
fn measure_idle(program: &Program, viewers: usize, span: Wall, is_json: bool) {
    let relay = start(program, viewers);
    let process = relay.0.id().to_string();
    let (_, before) = used(&process);
    let load = Load::start(viewers, false, relay.1.clone());
    await_viewers(&load, viewers);
    let (cpu_before, opened) = used(&process);
    sleep(span);
    let ((cpu, after), Figures { open, closed, .. }) = (used(&process), load.figures());
    let each = (after - before) / open.max(1) as f64 * 1e3;
    let core = (cpu - cpu_before) / span.as_secs_f64();
    if is_json {
        let document = json!({
            "idle": viewers, "connected": open, "closed": closed, "relay_mb_before": before,
            "relay_mb_opened": opened, "relay_mb": after, "kb_each": each, "relay_cores": core,
        });
        println!("{document}");
    } else {
        println!(
            "{open} idle, {closed} closed: the relay has {opened:.0} MB, {after:.0} MB {} s later, \
             {before:.0} MB without them: {each:.1} kB each; {:.1} % of a core",
            span.as_secs(),
            core * 100.0
        );
    }
}

fn measure(program: &Program, viewers: usize, span: Wall) -> Measured {
    let relay = start(program, viewers);
    let process = relay.0.id().to_string();
    let load = Load::start(viewers, true, relay.1.clone());
    await_viewers(&load, viewers);
    sleep(SETTLING);
    load.begin();
    let (begun, before) = (Instant::now(), load.carried());
    let ((relay_before, _), (load_before, _)) = (used(&process), used("self"));
    sleep(span);
    load.end();
    let (took, after) = (begun.elapsed().as_secs_f64(), load.carried());
    let ((relay_after, memory), (load_after, _)) = (used(&process), used("self"));
    sleep(STRAGGLERS);
    Measured {
        figures: load.figures(),
        relay: (relay_after - relay_before) / took,
        load: (load_after - load_before) / took,
        memory,
        packets: (after.received - before.received) as f64 / took,
    }
}

impl Measured {
    fn delay(&self, share: f64) -> f32 {
        let delays = &self.figures.delays;
        delays.get((delays.len() as f64 * share) as usize).copied().unwrap_or(f32::NAN)
    }

    fn in_time(&self, viewers: usize) -> f64 {
        self.figures.in_time as f64 / (self.figures.frames * viewers as u64).max(1) as f64
    }

    fn print(&self, viewers: usize, is_json: bool) {
        let Figures { open, closed, served, reason, .. } = &self.figures;
        let each = self.relay / viewers as f64 * 1e3;
        if is_json {
            let document = json!({
                "viewers": viewers, "connected": open, "closed": closed, "served": served,
                "in_time_share": self.in_time(viewers), "delay_median_ms": self.delay(0.5),
                "delay_99_ms": self.delay(0.99), "relay_cores": self.relay,
                "relay_ms_per_s_and_viewer": each, "relay_mb": self.memory,
                "packets_per_s": self.packets, "load_cores": self.load,
            });
            println!("{document}");
            return;
        }
        println!(
            "| {viewers} | {served} | {:.1} | {:.0}; {:.0} | {:.1} | {each:.2} | {:.0} | {:.0} | {:.1} |",
            self.in_time(viewers) * 100.0,
            self.delay(0.5),
            self.delay(0.99),
            self.relay * 100.0,
            self.memory,
            self.packets,
            self.load * 100.0,
        );
        if let Some(reason) = reason {
            println!("{closed} closed, the first: {reason}");
        }
    }
}

fn main() {
    let (mut is_json, mut is_idle, mut seconds) = (false, false, 10);
    let (mut program, mut threads, mut numbers) = (None, None, Vec::new());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--bench" => {}
            "--json" => is_json = true,
            "--idle" => is_idle = true,
            "--seconds" => {
                seconds =
                    words.next().and_then(|word| word.parse().ok()).expect("--seconds SECONDS");
            }
            "--threads" => threads = words.next(),
            "--program" => program = words.next().map(PathBuf::from),
            word => numbers.push(word.parse::<usize>().expect("a number of viewers")),
        }
    }
    let program = Program { file: program.expect("--program ONTEMPO"), threads };
    if is_idle {
        let numbers = if numbers.is_empty() { vec![1_000, 10_000] } else { numbers };
        let span = Wall::from_secs(seconds);
        numbers.into_iter().for_each(|viewers| measure_idle(&program, viewers, span, is_json));
        return;
    }
    if numbers.is_empty() {
        numbers = vec![50, 200, 500, 1_000, 2_000];
    }
    if !is_json {
        println!("1 Mbit/s to each viewer for {seconds} s over loopback");
        println!(
            "| viewers | of these served | frames in time, % | delay, median; 99 %, ms | relay: % of \
             a core | ms a second and viewer | MB | packets a second | viewers' process: % of a core |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    }
    for viewers in numbers {
        let measured = measure(&program, viewers, Wall::from_secs(seconds));
        measured.print(viewers, is_json);
        if measured.figures.served * 100 < viewers * 99 {
            break;
        }
    }
}
