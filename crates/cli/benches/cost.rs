//! What does a stream cost the processor, by ontempo and by SRT?
//!
//! `make bench-cost`, or `cargo bench -p ontempo-cli --bench cost -- SECONDS MBIT/S`. One transport
//! stream of constant rate is sent to the senders of all pairs of programs at once, datagram by
//! datagram of 1,316 bytes, so that whatever else the machine does disturbs all alike: `ontempo send` and
//! `ontempo receive`, which encrypt (AES-128-GCM, by QUIC), and two `srt-live-transmit` (package
//! srt-tools) without and with encryption (AES-128). All take and give UDP over loopback, with a latency
//! of 120 ms. Counted is the time of the processor, user and system, of both programs between two
//! moments in the stream, what has arrived, and how far apart the fastest and the slowest percent of
//! datagrams were in their time on the way. `ONTEMPO_BESIDE=PROGRAM` adds another build of ontempo.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration as Wall, Instant};

use nix::unistd::{SysconfVar, sysconf};
use ontempo_foundation::{Duration, Rate};
use ontempo_media::{Film, GeneratorParameters, Sending, generate};

const ONTEMPO: &str = env!("CARGO_BIN_EXE_ontempo");

/// Before anything is counted: handshakes, and slow start.
const WARM_UP: Wall = Wall::from_secs(3);

/// A sender of SRT's that has not been given a passphrase encrypts nothing.
const PASSPHRASE: &str = "passphrase=loopback-only&pbkeylen=16";

/// When datagrams were sent, or came, in order.
type Times = Arc<Mutex<Vec<Instant>>>;

fn lock(times: &Times) -> MutexGuard<'_, Vec<Instant>> {
    times.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two programs, and what they are given and give.
struct Pair {
    name: &'static str,
    receiver: Child,
    sender: Child,
    /// The sender's UDP port.
    input: u16,
    output: Output,
}

/// Counts the datagrams that a receiver gives.
struct Output {
    /// When each came.
    datagrams: Times,
    ending: Arc<AtomicBool>,
    counting: Option<JoinHandle<()>>,
    port: u16,
}

impl Output {
    fn open() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(Wall::from_millis(100))).expect("a timeout");
        let port = socket.local_addr().expect("an address").port();
        let (datagrams, ending) = (Times::default(), Arc::<AtomicBool>::default());
        let (count, end) = (Arc::clone(&datagrams), Arc::clone(&ending));
        let counting = spawn(move || {
            let mut room = [0; 2_048];
            while !end.load(Ordering::Relaxed) {
                if socket.recv(&mut room).is_ok() {
                    lock(&count).push(Instant::now());
                }
            }
        });
        Self { datagrams, ending, counting: Some(counting), port }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        if let Some(counting) = self.counting.take() {
            let _ = counting.join();
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for child in [&mut self.sender, &mut self.receiver] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A UDP port that nobody uses now.
fn free_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.local_addr().expect("an address").port()
}

fn start(program: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the program starts")
}

fn ontempo(name: &'static str, program: &str, folder: &Path) -> Pair {
    let output = Output::open();
    let to = format!("udp://127.0.0.1:{}", output.port);
    let token = folder.join(name);
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(&token);
    file.and_then(|mut file| file.write_all(b"loopback-only-0123456789")).expect("a token");
    let token = token.to_str().expect("a path in UTF-8");
    let mut receiver = Command::new(program);
    receiver.args(["receive", "--listen", "127.0.0.1:0", "--to", &to, "--token-file", token]);
    receiver.arg("--json").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut receiver = receiver.spawn().expect("the program starts");
    let mut lines = BufReader::new(receiver.stdout.take().expect("it is piped")).lines();
    let line = lines.next().expect("it listens").expect("text");
    let listening: serde_json::Value = serde_json::from_str(&line).expect("a document");
    let url = listening["url"].as_str().expect("its address").to_owned();
    // Its further documents are read, so that it is not kept waiting.
    spawn(move || lines.for_each(drop));
    let input = free_port();
    let from = format!("udp://127.0.0.1:{input}");
    let arguments = ["send", "--from", &from, "--to", &url, "--token-file", token];
    let sender = start(program, &[&arguments[..], &["--latency", "120 ms"]].concat());
    Pair { name, receiver, sender, input, output }
}

fn srt(name: &'static str, more: &str) -> Pair {
    let output = Output::open();
    let (port, input) = (free_port(), free_port());
    let to = format!("udp://127.0.0.1:{}", output.port);
    let listen = format!("srt://127.0.0.1:{port}?mode=listener&latency=120&{more}");
    let receiver = start("srt-live-transmit", &["-q", &listen, &to]);
    let call = format!("srt://127.0.0.1:{port}?mode=caller&latency=120&{more}");
    let from = format!("udp://127.0.0.1:{input}");
    let sender = start("srt-live-transmit", &["-q", &from, &call]);
    Pair { name, receiver, sender, input, output }
}

/// What a process has used of the processor, all its threads: user, system.
fn used(child: &Child) -> (f64, f64) {
    let path = format!("/proc/{}/stat", child.id());
    let line = fs::read_to_string(path).expect("the program runs");
    let fields: Vec<&str> =
        line.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().expect("it is known") as f64;
    let field = |place: usize| fields[place].parse::<f64>().expect("a number") / ticks;
    // utime and stime: proc_pid_stat(5), fields 14 and 15; the first here is field 3.
    (field(11), field(12))
}

/// Sends a film to all inputs until told to end; what it has sent so far is counted.
fn play(rate: Rate, inputs: Vec<u16>, ending: &AtomicBool, sending: &Times) {
    let duration = Duration::from_secs(10);
    // The multiplexer's own packets and the sound need room, too: 15 %.
    let video = Rate::from_bits_per_sec(rate.as_bits_per_sec() / 100 * 85);
    let parameters =
        GeneratorParameters { rate: video, duration, ..GeneratorParameters::default() };
    let table = generate(&parameters).expect("parameters are valid");
    let film = Film::new(table, &Sending::Paced { rate, stuffing: true });
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let (begun, mut bytes) = (Instant::now(), Vec::new());
    for number in 0.. {
        let sent = film.datagram(number).expect("it goes on");
        let due = begun + Wall::from_nanos(sent.at.as_nanos());
        sleep(due.saturating_duration_since(Instant::now()));
        if ending.load(Ordering::Relaxed) {
            return;
        }
        bytes.clear();
        film.write(&sent, &mut bytes);
        lock(sending).push(Instant::now());
        for port in &inputs {
            let _ = socket.send_to(&bytes, ("127.0.0.1", *port));
        }
    }
}

/// What a pair has used so far, and given.
struct Reading {
    sender: (f64, f64),
    receiver: (f64, f64),
    datagrams: usize,
}

fn read(pair: &Pair) -> Reading {
    Reading {
        sender: used(&pair.sender),
        receiver: used(&pair.receiver),
        datagrams: lock(&pair.output.datagrams).len(),
    }
}

/// What lies between the fastest and the slowest percent of times on the way, in ms; `None` if
/// datagrams are missing, so that it is not known which came when.
fn spread(sent: &[Instant], came: &[Instant], first: usize, last: usize) -> Option<f64> {
    let pairs = sent.get(first..last)?.iter().zip(came.get(first..last)?);
    let mut transits: Vec<f64> =
        pairs.map(|(sent, came)| came.duration_since(*sent).as_secs_f64() * 1e3).collect();
    transits.sort_by(f64::total_cmp);
    let at = |share: f64| transits.get((transits.len() as f64 * share) as usize).copied();
    // All that came until now was sent before, and some are on their way.
    (came.len() <= sent.len()).then(|| Some(at(0.99)? - at(0.01)?)).flatten()
}

fn main() {
    let numbers: Vec<u64> =
        std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let seconds = numbers.first().copied().unwrap_or(60).max(1);
    let megabits = numbers.get(1).copied().unwrap_or(8).max(1);
    if Command::new("srt-live-transmit").arg("-version").output().is_err() {
        println!("SKIPPED: there is no srt-live-transmit to compare with (package srt-tools)");
        return;
    }
    let folder = std::env::temp_dir().join(format!("ontempo-cost-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    measure(&folder, seconds, Rate::from_bits_per_sec(megabits * 1_000_000));
    let _ = fs::remove_dir_all(&folder);
}

fn measure(folder: &Path, seconds: u64, rate: Rate) {
    let mut pairs = vec![
        srt("SRT, not encrypted", ""),
        srt("SRT, encrypted", PASSPHRASE),
        ontempo("ontempo, encrypted", ONTEMPO, folder),
    ];
    if let Ok(program) = std::env::var("ONTEMPO_BESIDE") {
        pairs.push(ontempo("the other ontempo", &program, folder));
    }
    sleep(Wall::from_secs(1));
    let (ending, sent) = (Arc::<AtomicBool>::default(), Times::default());
    let inputs = pairs.iter().map(|pair| pair.input).collect();
    let (end, sending) = (Arc::clone(&ending), Arc::clone(&sent));
    let playing = spawn(move || play(rate, inputs, &end, &sending));
    sleep(WARM_UP);
    let before: Vec<Reading> = pairs.iter().map(read).collect();
    let (begun, first) = (Instant::now(), lock(&sent).len());
    sleep(Wall::from_secs(seconds));
    let after: Vec<Reading> = pairs.iter().map(read).collect();
    let (took, last) = (begun.elapsed().as_secs_f64(), lock(&sent).len());
    ending.store(true, Ordering::Relaxed);
    playing.join().expect("the film was sent");

    println!("{rate} for {took:.0} s, ms of the processor for each second of the stream");
    println!(
        "{:20} {:>7} {:>7} {:>9} {:>7} {:>7} {:>6} {:>9} {:>9}",
        "", "sender", "system", "receiver", "system", "both", "times", "arrived", "spread"
    );
    let sums = |place: usize| {
        let change =
            |of: fn(&Reading) -> f64| (of(&after[place]) - of(&before[place])) * 1e3 / took;
        [
            change(|reading| reading.sender.0),
            change(|reading| reading.sender.1),
            change(|reading| reading.receiver.0),
            change(|reading| reading.receiver.1),
        ]
    };
    let plain: f64 = sums(0).iter().sum();
    for (place, pair) in pairs.iter().enumerate() {
        let [sender, sender_system, receiver, receiver_system] = sums(place);
        let both = sender + sender_system + receiver + receiver_system;
        let (sent, came) = (lock(&sent), lock(&pair.output.datagrams));
        let from = before[place].datagrams;
        let spread = spread(&sent, &came, from, after[place].datagrams)
            .map_or_else(|| "-".to_owned(), |spread| format!("{spread:.1} ms"));
        let arrived = after[place].datagrams - before[place].datagrams;
        println!(
            "{:20} {sender:>7.2} {sender_system:>7.2} {receiver:>9.2} {receiver_system:>7.2} {both:>7.2} {:>6.2} {:>7.1} % {spread:>9}",
            pair.name,
            both / plain,
            arrived as f64 * 100.0 / (last - first) as f64,
        );
    }
}
