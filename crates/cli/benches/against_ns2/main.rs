//! How fast is a simulation, beside ns-2 and with many flows?
//!
//! `make bench`, or `cargo bench -p ontempo-cli`. Every run is a process of its own, from its
//! start to its end, with its tables written; ns-2 (Debian's package `ns2`) runs the same
//! scenario without traces, in turn with ours. Of several runs the fastest counts, since
//! whatever else the machine does can only slow one down. A packet is one that has left the
//! bottleneck.

mod adus;
mod queues;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use arrow_array::StringArray;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use ontempo_scenario::tables::LINKS;
use ontempo_simulator::{MANIFEST, read_table};

const ONTEMPO: &str = env!("CARGO_BIN_EXE_ontempo");
const NS2_SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../simulator/tests/validation/ns2");
const LONG_FLOWS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../scenario/tests/scenarios/many.toml");
const VIDEO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/pert/video.toml");

/// What the simulator holds of a packet: itself, its next event, its place in a queue.
const BYTES_OF_PACKET: u64 = 64 + 16 + 16;

/// As ns-2's hosts and TCP; without it a scenario has those of Linux.
const AS_NS2: [&str; 2] = ["tcp-profile=\"ns-2\"", "hosts.jitter=\"0 s\""];

fn main() {
    let few = Dumbbell { flows: 25, megabits: 25, buffer: 150, seconds: 200 };
    let many = Dumbbell { flows: 500, megabits: 250, buffer: 1500, seconds: 20 };
    let most = Dumbbell { flows: 10_000, megabits: 5000, buffer: 30_000, seconds: 20 };
    println!("Packets past the bottleneck for each second of wall time:\n");
    let of_few = beside_ns2(&few, 5);
    beside_ns2(&many, 2);
    let as_linux = fastest((0..2).map(|_| simulate(LONG_FLOWS, &few.overrides())));
    println!("{few}, TCP of Linux, hosts that jitter: ontempo {}", rate(as_linux.expect("it ran")));
    let of_most = ontempo(&most, 2);
    println!("{most}: ontempo {}", rate(of_most));
    let cost = of_few.per_second() / of_most.per_second();
    println!("\nA packet of {} flows costs {cost:.2} times one of {}.", most.flows, few.flows);
    memory(&most, of_most, of_few);
    thesis_cell();
    queues::spacing();
    queues::disciplines();
    adus::cost();
}

/// Long Reno flows through one bottleneck, each over access links of its own.
struct Dumbbell {
    flows: u32,
    megabits: u32,
    /// As ns-2 counts it: the packet in transmission included.
    buffer: u32,
    seconds: u32,
}

impl Dumbbell {
    fn overrides(&self) -> Vec<String> {
        vec![
            format!("flows.long.count={}", self.flows),
            format!("topology.bottleneck.rate=\"{} Mbit/s\"", self.megabits),
            format!("topology.bottleneck.queue.limit=\"{} packets\"", self.buffer - 1),
            format!("duration=\"{} s\"", self.seconds),
        ]
    }
}

impl std::fmt::Display for Dumbbell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { flows, megabits, seconds, .. } = self;
        write!(f, "{flows} flows, {megabits} Mbit/s, {seconds} s")
    }
}

/// One run of a process.
#[derive(Clone, Copy)]
struct Run {
    packets: u64,
    most_under_way: u64,
    wall: Duration,
    /// The most memory that it had, in bytes.
    memory: u64,
}

impl Run {
    fn per_second(&self) -> f64 {
        self.packets as f64 / self.wall.as_secs_f64()
    }
}

fn rate(run: Run) -> String {
    format!("{:.3} million ({:.2} s)", run.per_second() / 1e6, run.wall.as_secs_f64())
}

fn fastest(runs: impl Iterator<Item = Run>) -> Option<Run> {
    runs.min_by_key(|run| run.wall)
}

/// Runs both in turn and prints the ratio; answers ours.
fn beside_ns2(dumbbell: &Dumbbell, times: u32) -> Run {
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    for _ in 0..times {
        ours.push(ontempo(dumbbell, 1));
        theirs.extend(ns2(dumbbell));
    }
    beside(&dumbbell.to_string(), ours, theirs)
}

/// Prints the fastest of both beside each other; answers ours.
fn beside(what: &str, ours: Vec<Run>, theirs: Vec<Run>) -> Run {
    let ours = fastest(ours.into_iter()).expect("it ran");
    match fastest(theirs.into_iter()) {
        Some(theirs) => println!(
            "{what}: ontempo {}, ns-2 {}: {:.1} times",
            rate(ours),
            rate(theirs),
            ours.per_second() / theirs.per_second()
        ),
        None => println!(
            "{what}: ontempo {}; no comparison, for there is no `ns` (apt-get install ns2)",
            rate(ours)
        ),
    }
    ours
}

fn ontempo(dumbbell: &Dumbbell, times: u32) -> Run {
    let mut overrides = dumbbell.overrides();
    overrides.extend(AS_NS2.map(str::to_owned));
    fastest((0..times).map(|_| simulate(LONG_FLOWS, &overrides))).expect("it ran")
}

fn simulate(scenario: &str, overrides: &[String]) -> Run {
    simulate_over("bottleneck", scenario, overrides)
}

/// A run whose packets are those that left `link`.
fn simulate_over(link: &str, scenario: &str, overrides: &[String]) -> Run {
    let out = Folder::new();
    let mut command = Command::new(ONTEMPO);
    command.args(["simulate", scenario, "--seed", "1", "--json", "--out"]).arg(&out.0);
    for value in overrides {
        command.args(["--set", value]);
    }
    let (wall, memory, _) = watch(&mut command).expect("ontempo starts");
    let manifest = fs::read_to_string(out.0.join(MANIFEST)).expect("the run wrote it");
    let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("it is JSON");
    let most_under_way = manifest["work"]["most_packets_under_way"].as_u64().unwrap_or(0);
    Run { packets: departures(&out.0, link), most_under_way, wall, memory }
}

/// `None` where there is no ns-2.
fn ns2(dumbbell: &Dumbbell) -> Option<Run> {
    let Dumbbell { flows, megabits, buffer, seconds } = dumbbell;
    ns2_script(&format!("many.tcl Sack1 Sack1 {flows} {megabits} {buffer} DropTail {seconds} 1"))
}

/// Runs a script of the reference; `None` where there is no ns-2.
fn ns2_script(arguments: &str) -> Option<Run> {
    let mut command = Command::new("ns");
    command.args(arguments.split(' ')).current_dir(NS2_SCRIPTS);
    let (wall, memory, printed) = watch(&mut command)?;
    let mut words = printed.split_whitespace().skip_while(|word| *word != "departures");
    let packets = words.nth(1)?.parse().ok()?;
    Some(Run { packets, most_under_way: 0, wall, memory })
}

/// Runs a command to its end: how long it took, its most memory in bytes, what it printed.
fn watch(command: &mut Command) -> Option<(Duration, u64, String)> {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let status = format!("/proc/{}/status", child.id());
    let mut memory = 0;
    while child.try_wait().ok()?.is_none() {
        memory = memory.max(peak_memory(&status).unwrap_or(0));
        sleep(Duration::from_millis(1));
    }
    let wall = start.elapsed();
    let output = child.wait_with_output().ok()?;
    assert!(output.status.success(), "{command:?} failed");
    Some((wall, memory, String::from_utf8_lossy(&output.stdout).into_owned()))
}

fn peak_memory(status: &str) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

fn departures(folder: &Path, link: &str) -> u64 {
    let links = read_table(folder, &LINKS).expect("the run wrote its links").batch;
    let names = links["link"].as_any_dictionary();
    let words: &StringArray = names.values().as_string();
    let mut places = names.normalized_keys().into_iter();
    let row = places.position(|key| words.value(key) == link).expect("it has one");
    links["departures"].as_primitive::<UInt64Type>().value(row)
}

/// Memory of a run with many flows beyond that of one with few.
fn memory(most: &Dumbbell, of_most: Run, of_few: Run) {
    let under_way = of_most.most_under_way * BYTES_OF_PACKET;
    let rest = of_most.memory.saturating_sub(of_few.memory + under_way);
    println!(
        "Memory: {:.1} MB; besides up to {} packets under way of {BYTES_OF_PACKET} B each, {:.2} \
         kB a flow.",
        of_most.memory as f64 / 1e6,
        of_most.most_under_way,
        rest as f64 / f64::from(most.flows) / 1e3,
    );
}

/// One cell of the largest published grid: 7,000 s of 25 videos, 25 files and 300 web users.
fn thesis_cell() {
    let run = simulate(VIDEO, &[]);
    println!(
        "One cell of pert, chapter III (7,000 s; 25 videos, 25 files, 300 web users): {:.1} s, \
         {:.2} million packets past the bottleneck.",
        run.wall.as_secs_f64(),
        run.packets as f64 / 1e6
    );
}

/// A folder that goes when it is done with.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("ontempo-bench-{}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
