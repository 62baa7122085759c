//! How exact is the emulated network, and how much can it carry?
//!
//! `make bench-emulator`, or `cargo bench -p ontempo-cli --bench accuracy`, with the rights of
//! root and nothing else running. Packets of 200 bytes go one way over one link of 10 ms. Each
//! carries the time of its sending; the kernel notes the time of its arrival, as soon as the
//! emulator hands it over, so that no receiver's sleep counts. What such a packet took beyond
//! what the link says is its error. The most packets a second are those that arrive while a
//! sender sends all it can; the emulator carries them on one thread.

use std::fs;
use std::io::IoSliceMut;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};

const ONTEMPO: &str = env!("CARGO_BIN_EXE_ontempo");

const SCENARIO: &str = r#"
duration = "1 s"
[topology]
kind = "graph"
[[topology.links]]
from = "a"
to = "b"
rate = "10 Gbit/s"
delay = "10 ms"
[flows.probe]
from = "a"
to = "b"
application = { kind = "cbr", interval = "1 s" }
transport = { kind = "udp" }
"#;

/// What the link adds to a packet of 200 bytes, in nanoseconds.
const DELAY: i64 = 10_000_000 + 160;

/// Payload of a packet of 200 bytes.
const PAYLOAD: usize = 200 - 28;

const SINK: &str = "10.0.0.3:7000";

/// How long each rate is sent for.
const SPAN: Duration = Duration::from_secs(5);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("probe-source") => source(&arguments[2], arguments[3].parse().expect("a rate")),
        Some("probe-sink") => sink(),
        Some("probe-flood") => flood(&arguments[2]),
        _ => measure(),
    }
}

fn measure() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: emulated networks need the rights of root");
        return;
    }
    println!("Error of the delay that one link adds, and the emulator's share of one core:\n");
    println!("| packets a second | p50 | p99 | p99.9 | largest | arrived | core |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for rate in ["1000", "10000", "50000"] {
        shell(&["probe-source", "RUN", rate]);
    }
    println!("\nThe most packets a second over one link:\n");
    shell(&["probe-flood", "RUN"]);
}

/// Runs this program in the host `a`.
fn shell(words: &[&str]) {
    let folder = std::env::temp_dir().join(format!("ontempo-accuracy-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("link.toml");
    fs::write(&file, SCENARIO).expect("a scenario");
    let run = format!("accuracy{}", std::process::id());
    let own = std::env::current_exe().expect("this program");
    let words = words.iter().map(|word| if *word == "RUN" { run.as_str() } else { word });
    let status = Command::new(ONTEMPO)
        .arg("shell")
        .arg(&file)
        // A sender that is interrupted between its clock and its packet would measure itself.
        .args(["a", "--name", &run, "--", "nice", "-n", "-20"])
        .arg(own)
        .args(words)
        .status()
        .expect("ontempo starts");
    fs::remove_dir_all(&folder).expect("the folder is ours");
    assert!(status.success(), "{status}");
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_nanos()).expect("before 2262")
}

/// Sends at `rate`, on time to less than a microsecond, and has the sink say how it was.
fn source(run: &str, rate: u64) {
    let mut sink = Command::new("ip")
        .args(["netns", "exec", &format!("ontempo-{run}-b")])
        .arg(std::env::current_exe().expect("this program"))
        .arg("probe-sink")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the sink starts");
    std::thread::sleep(Duration::from_millis(500));
    let socket = UdpSocket::bind("10.0.0.2:0").expect("an address of ours");
    let interval = Duration::from_nanos(1_000_000_000 / rate);
    let (begun, busy) = (Instant::now(), cpu_time());
    let count = rate * SPAN.as_secs();
    let mut payload = [0; PAYLOAD];
    for number in 0..count {
        let due = interval * u32::try_from(number).expect("few packets");
        while begun.elapsed() < due {
            if due.saturating_sub(begun.elapsed()) > Duration::from_micros(200) {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        payload[..8].copy_from_slice(&now().to_be_bytes());
        socket.send_to(&payload, SINK).expect("the packet is sent");
    }
    let core = (cpu_time() - busy) / begun.elapsed().as_secs_f64();
    std::thread::sleep(Duration::from_millis(100));
    socket.send_to(&[0; 8], SINK).expect("the end is sent");
    let mut said = String::new();
    let mut pipe = sink.stdout.take().expect("a pipe");
    std::io::Read::read_to_string(&mut pipe, &mut said).expect("the sink says something");
    sink.wait().expect("the sink ends");
    let errors: Vec<i64> = said.lines().map(|line| line.parse().expect("a number")).collect();
    let at = |share: f64| errors[((errors.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    println!(
        "| {rate} | {:.1} us | {:.1} us | {:.1} us | {:.0} us | {:.2} % | {:.0} % |",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
        errors.len() as f64 / count as f64 * 100.0,
        core * 100.0
    );
}

/// Prints the error of each packet, in nanoseconds, in rising order.
fn sink() {
    let socket = UdpSocket::bind(SINK).expect("an address of ours");
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true).expect("times of arrival");
    setsockopt(&socket, sockopt::RcvBufForce, &(64 << 20)).expect("a large buffer");
    let mut errors = Vec::new();
    loop {
        let mut payload = [0; PAYLOAD];
        let mut slices = [IoSliceMut::new(&mut payload)];
        let mut room = nix::cmsg_space!(nix::sys::time::TimeSpec);
        let fd = socket.as_raw_fd();
        let message = recvmsg::<()>(fd, &mut slices, Some(&mut room), MsgFlags::empty())
            .expect("a packet comes");
        let length = message.bytes;
        let arrived = message.cmsgs().expect("whole messages").find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(time) => {
                Some(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
            }
            _ => None,
        });
        if length < PAYLOAD {
            break;
        }
        let sent = i64::from_be_bytes(payload[..8].try_into().expect("8 bytes"));
        errors.push(arrived.expect("a time of arrival") - sent - DELAY);
    }
    errors.sort_unstable();
    let lines: Vec<String> = errors.iter().map(i64::to_string).collect();
    println!("{}", lines.join("\n"));
}

/// Sends all it can, and says how many packets a second reach the other host.
fn flood(run: &str) {
    let socket = UdpSocket::bind("10.0.0.2:0").expect("an address of ours");
    let arrived = || {
        let inside = ["netns", "exec", &format!("ontempo-{run}-b")].map(str::to_owned);
        let file = "/sys/class/net/ontempo0/statistics/rx_packets";
        let read = Command::new("ip").args(inside).args(["cat", file]).output();
        let text = String::from_utf8(read.expect("ip starts").stdout).expect("text");
        text.trim().parse::<u64>().expect("a number")
    };
    let payload = [0; PAYLOAD];
    let (mut before, mut begun, mut busy) = (0, Instant::now(), 0.0);
    // The first second fills the link.
    for span in [Duration::from_secs(1), SPAN] {
        (before, busy) = (arrived(), cpu_time());
        begun = Instant::now();
        while begun.elapsed() < span {
            for _ in 0..64 {
                // What the interface has no room for is not sent.
                let _ = socket.send_to(&payload, SINK);
            }
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let rate = (arrived() - before) as f64 / seconds;
    let core = (cpu_time() - busy) / seconds * 100.0;
    println!("{:.0} thousand, on {core:.0} % of one core", rate / 1000.0);
}

/// Seconds that the emulator, whose child this is, has computed so far.
fn cpu_time() -> f64 {
    let parent = std::os::unix::process::parent_id();
    let stat = fs::read_to_string(format!("/proc/{parent}/stat")).expect("the parent is there");
    let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.map(|ticks| ticks.parse::<u64>().expect("a number")).sum();
    let each = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK);
    ticks as f64 / each.ok().flatten().expect("ticks a second") as f64
}
