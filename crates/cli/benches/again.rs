//! How soon is media there again, after a restart of the receiver or the sender, or a cut of the path?
//!
//! `make bench-again`, or `cargo bench -p ontempo-cli --bench again -- SECONDS ...`, the pauses. For each
//! kind of failure and each pause a stream of datagrams, 1 Mbit/s, runs from `ontempo send` to `ontempo
//! receive` over a path of its own through this program, 10 ms each way, all at the same time. Measured
//! is the time from the end of the pause (the program is started, the path carries again) to the first
//! datagram of the player that the encoder has sent after the pause began; what the player never got; and
//! how much of that `ontempo send` says is missing.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const ONTEMPO: &str = env!("CARGO_BIN_EXE_ontempo");

/// 1 Mbit/s.
const INTERVAL: Duration = Duration::from_micros(10_528);
const SIZE: usize = 1_316;

const DELAY: Duration = Duration::from_millis(10);
const BEFORE: Duration = Duration::from_secs(4);
const AFTER: Duration = Duration::from_secs(8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Receiver,
    Sender,
    Path,
}

impl Failure {
    fn name(self) -> &'static str {
        match self {
            Self::Receiver => "the receiver's restart",
            Self::Sender => "the sender's restart",
            Self::Path => "the path's cut",
        }
    }
}

/// A path that delays, and can be cut; gone with this.
struct Wire {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
}

impl Wire {
    fn start(server: SocketAddr) -> Self {
        let bind = || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            socket.set_nonblocking(true).expect("set");
            socket
        };
        let (front, back) = (bind(), bind());
        let address = front.local_addr().expect("an address");
        let (is_cut, ends) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (cut, end) = (Arc::clone(&is_cut), Arc::clone(&ends));
        spawn(move || {
            let mut ways: [VecDeque<(Instant, Vec<u8>)>; 2] = Default::default();
            let (mut client, mut room) = (None, [0; 2_048]);
            while !end.load(Ordering::Relaxed) {
                for (way, socket) in [&front, &back].into_iter().enumerate() {
                    while let Ok((length, from)) = socket.recv_from(&mut room) {
                        // The last that sent, as behind a NAT.
                        client = if way == 0 { Some(from) } else { client };
                        if !cut.load(Ordering::Relaxed) {
                            ways[way].push_back((Instant::now() + DELAY, room[..length].to_vec()));
                        }
                    }
                }
                for (way, waiting) in ways.iter_mut().enumerate() {
                    while waiting.front().is_some_and(|(due, _)| *due <= Instant::now())
                        && let Some((_, bytes)) = waiting.pop_front()
                    {
                        let _ = match (way, client) {
                            (0, _) => back.send_to(&bytes, server),
                            (_, Some(client)) => front.send_to(&bytes, client),
                            _ => Ok(0),
                        };
                    }
                }
                sleep(Duration::from_millis(1));
            }
        });
        Self { address, is_cut, ends }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// A program, ended with this.
struct Program(Child);

impl Program {
    /// With what it writes to standard output, line by line.
    fn start(words: &[&str]) -> (Self, mpsc::Receiver<Value>) {
        let mut command = Command::new(ONTEMPO);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let (documents, all) = mpsc::channel();
        spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = serde_json::from_str(&line).map(|document| documents.send(document));
            }
        });
        (Self(child), all)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What was measured once.
struct Row {
    failure: Failure,
    pause: Duration,
    again: Option<Duration>,
    missing: u64,
    /// What `ontempo send` says is missing; a sender that was killed says nothing.
    said: Option<u64>,
}

type Arrivals = Arc<Mutex<Vec<(Instant, u64)>>>;

fn player(ends: &Arc<AtomicBool>) -> (u16, Arrivals) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
    let port = socket.local_addr().expect("an address").port();
    let (arrivals, end) = (Arrivals::default(), Arc::clone(ends));
    let coming = Arc::clone(&arrivals);
    spawn(move || {
        let mut room = [0; 2_048];
        while !end.load(Ordering::Relaxed) {
            if let Ok(SIZE) = socket.recv(&mut room) {
                let number = room[..8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
                let mut all = coming.lock().unwrap_or_else(PoisonError::into_inner);
                all.push((Instant::now(), number));
            }
        }
    });
    (port, arrivals)
}

/// Sends until told to end; counts.
fn encoder(port: u16, sent: &Arc<AtomicU64>, ends: &Arc<AtomicBool>) {
    let (sent, ends) = (Arc::clone(sent), Arc::clone(ends));
    spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let begun = Instant::now();
        for number in 0u64.. {
            sleep((begun + INTERVAL * number as u32).saturating_duration_since(Instant::now()));
            if ends.load(Ordering::Relaxed) {
                return;
            }
            let mut datagram = vec![7; SIZE];
            datagram[..8].copy_from_slice(&number.to_be_bytes());
            let _ = socket.send_to(&datagram, ("127.0.0.1", port));
            sent.store(number + 1, Ordering::Relaxed);
        }
    });
}

fn free_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.local_addr().expect("an address").port()
}

fn write_token(path: PathBuf) -> PathBuf {
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(&path);
    file.and_then(|mut file| file.write_all(b"loopback-only-0123456789")).expect("a token");
    path
}

fn measure(folder: &Path, number: usize, failure: Failure, pause: Duration) -> Row {
    let path = |name: &str| folder.join(format!("{name}-{number}")).display().to_string();
    let token = write_token(path("token").into());
    let (ends, encoding) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (port, arrivals) = player(&ends);
    let (to, token) = (format!("udp://127.0.0.1:{port}"), token.display().to_string());
    let (identity, listen) = (path("identity"), format!("127.0.0.1:{}", free_port()));
    let receive = ["receive", "--json", "--listen", &listen, "--to", &to];
    let receive = [&receive[..], &["--identity", &identity, "--token-file", &token]].concat();
    let (receiver, documents) = Program::start(&receive);
    let mut receiver = Some(receiver);
    let listening = documents.recv().expect("it listens");
    let fingerprint = listening["fingerprint"].as_str().expect("its own").to_owned();
    let wire = Wire::start(listen.parse().expect("an address"));
    let input = free_port();
    let (from, at) = (format!("udp://127.0.0.1:{input}"), wire.address.to_string());
    let send = ["send", "--json", "--from", &from, "--to", &at, "--token-file", &token];
    let send = [&send[..], &["--fingerprint", &fingerprint]].concat();
    let (sender, mut figures) = Program::start(&send);
    let mut sender = Some(sender);
    sleep(Duration::from_secs(1));
    let sent = Arc::<AtomicU64>::default();
    encoder(input, &sent, &encoding);
    sleep(BEFORE);

    let first = sent.load(Ordering::Relaxed);
    match failure {
        Failure::Receiver => drop(receiver.take()),
        Failure::Sender => drop(sender.take()),
        Failure::Path => wire.is_cut.store(true, Ordering::Relaxed),
    }
    sleep(pause);
    let back = Instant::now();
    match failure {
        Failure::Receiver => receiver = Some(Program::start(&receive).0),
        Failure::Sender => {
            let (again, documents) = Program::start(&send);
            (sender, figures) = (Some(again), documents);
        }
        Failure::Path => wire.is_cut.store(false, Ordering::Relaxed),
    }
    sleep(AFTER);
    encoding.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(2));
    if let Some(sender) = &mut sender {
        let _ = kill(Pid::from_raw(sender.0.id() as i32), Signal::SIGINT);
        let _ = sender.0.wait();
    }
    let totals = figures.iter().filter(|document| document["event"] == "totals").last();
    drop(receiver);
    ends.store(true, Ordering::Relaxed);

    let arrivals = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
    let again = arrivals.iter().find(|(at, number)| *at >= back && *number >= first);
    let came: BTreeSet<u64> = arrivals.iter().map(|(_, number)| *number).collect();
    Row {
        failure,
        pause,
        again: again.map(|(at, _)| at.duration_since(back)),
        missing: sent.load(Ordering::Relaxed) - came.len() as u64,
        said: totals
            .filter(|_| failure != Failure::Sender)
            .and_then(|totals| totals["bad_datagrams"].as_u64()),
    }
}

fn main() {
    let numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<f64>().ok());
    let mut pauses: Vec<Duration> = numbers.map(Duration::from_secs_f64).collect();
    if pauses.is_empty() {
        pauses = [0.1, 0.5, 1.0, 5.0, 30.0].map(Duration::from_secs_f64).to_vec();
    }
    let folder = std::env::temp_dir().join(format!("ontempo-again-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let mut running = Vec::new();
    for failure in [Failure::Receiver, Failure::Path, Failure::Sender] {
        for pause in &pauses {
            let (folder, number, pause) = (folder.clone(), running.len(), *pause);
            running.push(spawn(move || measure(&folder, number, failure, pause)));
        }
    }
    println!("{:24} {:>8} {:>9} {:>8} {:>8}", "after", "pause", "again", "missing", "reported");
    for measured in running {
        let Row { failure, pause, again, missing, said } = measured.join().expect("no panic");
        let again = again.map_or_else(|| "-".to_owned(), |at| format!("{:.2} s", at.as_secs_f64()));
        let said = said.map_or_else(|| "-".to_owned(), |said| said.to_string());
        let pause = pause.as_secs_f64();
        println!("{:24} {pause:>6.1} s {again:>9} {missing:>8} {said:>8}", failure.name());
    }
    let _ = fs::remove_dir_all(&folder);
}
