//! What a pair of gateways costs: bytes from a program to a server, directly and through the pair over
//! TCP and over QUIC, in turn, so that other load on the machine touches all alike.
//!
//! `make bench-gateway`, or `cargo bench -p ontempo-cli --bench gateway -- [ROUNDS [MB [MBIT]]]`. Measured is
//! the wall time from the program's first byte to the answer of the server that has read all. Over loopback
//! nothing but the processors is the limit: through the pair each byte crosses the kernel three times
//! instead of once. With MBIT, as root and with iproute2, program and server are in two namespaces with a
//! link of that rate between them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::spawn;
use std::time::{Duration, Instant};

use ontempo_testing::Link;
use serde_json::Value;

const ONTEMPO: &str = env!("CARGO_BIN_EXE_ontempo");

/// A gateway; ends with this.
struct Gateway {
    child: Child,
    local: String,
    url: String,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Gateway {
    /// In a namespace, if one is named.
    fn start(space: Option<&str>, listen: &str, words: &[&str]) -> Self {
        let mut command = within(space, ONTEMPO);
        command.args(["gateway", "--json", "--anyone", "--listen", listen]).args(words);
        command.env_remove("ONTEMPO_TOKEN").env("ONTEMPO_RSVP_SOCKET", "/nonexistent");
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        let printed: Value = serde_json::from_str(&line).expect("JSON");
        spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        let text = |name: &str| printed[name].as_str().unwrap_or_default().to_owned();
        Self { child, local: text("local"), url: text("url") }
    }
}

/// A program, in a namespace if one is named.
fn within(space: Option<&str>, program: &str) -> Command {
    let Some(space) = space else { return Command::new(program) };
    let mut command = Command::new("ip");
    command.args(["netns", "exec", space, program]);
    command
}

/// A server that reads all and answers with one byte.
fn serve(listener: &TcpListener) {
    let mut room = vec![0; 256 << 10];
    for mut one in listener.incoming().flatten() {
        while let Ok(1..) = one.read(&mut room) {}
        let _ = one.write_all(b"!");
    }
}

/// Sends so many bytes: seconds until the server has them all.
fn transfer(to: &str, bytes: usize) -> f64 {
    let piece = vec![7; 64 << 10];
    let mut stream = TcpStream::connect(to).expect("connected");
    let begun = Instant::now();
    let mut left = bytes;
    while left > 0 {
        let some = left.min(piece.len());
        stream.write_all(&piece[..some]).expect("written");
        left -= some;
    }
    stream.shutdown(Shutdown::Write).expect("ended");
    stream.read_exact(&mut [0]).expect("the answer");
    begun.elapsed().as_secs_f64()
}

/// The same by a program in that namespace.
fn transfer_within(space: Option<&str>, to: &str, bytes: usize) -> f64 {
    if space.is_none() {
        return transfer(to, bytes);
    }
    let own = std::env::current_exe().expect("this program");
    let mut command = within(space, own.to_str().expect("a path as text"));
    let ran = command.args(["send", to, &bytes.to_string()]).output().expect("it starts");
    String::from_utf8_lossy(&ran.stdout).trim().parse().expect("seconds")
}

/// Each way so often, in turn: its seconds.
fn measure(spaces: [Option<&str>; 2], at: [&str; 2], rounds: usize, bytes: usize) -> [Vec<f64>; 3] {
    let [near, far] = spaces;
    let mut serving = None;
    let direct = match far {
        None => {
            let listener = TcpListener::bind((at[1], 0)).expect("a port");
            let address = listener.local_addr().expect("an address").to_string();
            spawn(move || serve(&listener));
            address
        }
        Some(_) => {
            let own = std::env::current_exe().expect("this program");
            let address = format!("{}:9000", at[1]);
            let mut command = within(far, own.to_str().expect("a path as text"));
            serving = Some(command.args(["serve", &address]).spawn().expect("it starts"));
            std::thread::sleep(Duration::from_millis(500));
            address
        }
    };
    let (here, there) = (format!("{}:0", at[0]), format!("{}:0", at[1]));
    let tcp_server = Gateway::start(far, &there, &["--over", "tcp", "--server", &direct]);
    let tcp = Gateway::start(near, &here, &["--over", "tcp", "--to", &tcp_server.local]);
    let quic_server = Gateway::start(far, &there, &["--server", &direct]);
    let quic = Gateway::start(near, &here, &["--to", &quic_server.url]);
    let mut all: [Vec<f64>; 3] = Default::default();
    for round in 0..=rounds {
        for (times, to) in all.iter_mut().zip([&direct, &tcp.local, &quic.local]) {
            let took = transfer_within(near, to, bytes);
            // The first warms up.
            if round > 0 {
                times.push(took);
            }
        }
    }
    if let Some(mut serving) = serving {
        let _ = serving.kill();
        let _ = serving.wait();
    }
    all
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|one| one != "--bench").collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", at] => return serve(&TcpListener::bind(at).expect("a port")),
        ["send", to, bytes] => {
            return println!("{}", transfer(to, bytes.parse().expect("a number")));
        }
        _ => {}
    }
    let number = |place: usize| words.get(place).map(|one| one.parse::<usize>().expect("a number"));
    let (rounds, bytes) = (number(0).unwrap_or(9), number(1).unwrap_or(100) * 1_000_000);
    let all = match number(2) {
        None => measure([None; 2], ["127.0.0.1"; 2], rounds, bytes),
        Some(mbit) => {
            let link = Link::new(Some(mbit as u64));
            let spaces = link.spaces.each_ref().map(|space| Some(space.as_str()));
            measure(spaces, Link::ADDRESSES, rounds, bytes)
        }
    };
    println!("| way | seconds | range | of direct |\n| --- | --- | --- | --- |");
    let mut first = None;
    for (mut times, name) in all.into_iter().zip(["direct", "over TCP", "over QUIC"]) {
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        let of_direct = *first.get_or_insert(median) / median;
        let (least, most) = (times[0], times[times.len() - 1]);
        println!("| {name} | {median:.3} | {least:.3} to {most:.3} | {of_direct:.2} |");
    }
}
