//! What 10,000 reservations cost a router's traffic control, with a class each and in ten aggregates
//! (RFC 2998), as root: `cargo bench -p ontempo-rsvpd`; an argument is the number of reservations.
//!
//! In a network namespace of its own, on one end of a pair of virtual Ethernets: the daemon's lines, made and
//! carried out by `tc`; what the daemon and the kernel hold for them; and what a packet costs that finds its
//! class. RSVP itself costs the same in both cases: `cargo bench -p ontempo-reservation`.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use ontempo_foundation::{Bytes, Rate};
use ontempo_reservation::htb::{Aggregate, Device, Htb, QueueKind, Serves};
use ontempo_reservation::machine::{ControlRequest, Handle, InterfaceId, Reservation};
use ontempo_reservation::message::{FlowSpec, Sender, Session, TrafficSpec};
use ontempo_rsvpd::class_counters;
use ontempo_testing::CountingAllocator;
use socket2::SockRef;

#[global_allocator]
static HEAP: CountingAllocator = CountingAllocator::new();

/// Ten code points, and the rates of their reservations: 100 to 1,000 kbit/s.
const DSCPS: [u8; 10] = [10, 12, 14, 18, 20, 22, 26, 28, 34, 46];
const BY: InterfaceId = InterfaceId(0);
const DEVICE: &str = "d0";
const THERE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
/// Packets of each measurement, of which the fastest of so many counts.
const PACKETS: usize = 200_000;
const ROUNDS: usize = 5;

fn run(program: &str, words: &str) {
    let done = Command::new(program).args(words.split_whitespace()).status();
    assert!(done.is_ok_and(|status| status.success()), "{program} {words}");
}

fn tc(lines: &[String]) {
    assert!(takes(lines), "tc refuses");
}

/// Whether `tc` carries all out.
fn takes(lines: &[String]) -> bool {
    let mut tc = Command::new("tc")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("tc of iproute2 is there");
    let text = lines.join("\n") + "\n";
    tc.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("tc reads");
    tc.wait().expect("tc ends").success()
}

/// Processor time of programs that have ended, from `/proc/self/stat`, in hundredths of a second.
fn of_children() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let (_, fields) = stat.rsplit_once(')').expect("a program's name");
    let ticks: u64 = fields
        .split_whitespace()
        .skip(13)
        .take(2)
        .map(|field| field.parse::<u64>().expect("ticks"))
        .sum();
    Duration::from_millis(ticks * 10)
}

/// Memory of the kernel's objects, bytes.
fn kernel() -> u64 {
    let info = fs::read_to_string("/proc/meminfo").expect("Linux has it");
    let of = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name)).expect(name);
        line.split_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok()).expect("kB")
    };
    1024 * (of("SUnreclaim:") + of("Percpu:"))
}

/// The reservation with this number, from 0: its aggregate is its number modulo ten.
fn reservation(number: usize) -> Reservation {
    let place = number % DSCPS.len();
    let rate = (place as u64 + 1) * 100_000;
    let traffic = TrafficSpec {
        rate: rate as f32 / 8.0,
        burst: 3_000.0,
        peak: f32::INFINITY,
        smallest: 100,
        largest: 1_500,
    };
    let (source, port) = (Ipv4Addr::new(10, 1, 0, 1), 4_000 + place as u16);
    Reservation {
        session: Session { destination: THERE.into(), protocol: 17, port: 10_000 + number as u16 },
        filters: vec![Sender { address: source.into(), port }],
        flowspec: FlowSpec::ControlledLoad(traffic),
        rate: Rate::from_bits_per_sec(rate),
        burst: Bytes::new(3_000),
    }
}

fn aggregates() -> Vec<Aggregate> {
    let numbered = DSCPS.iter().enumerate();
    let one = |(place, dscp): (usize, &u8)| Aggregate {
        dscp: *dscp,
        serves: Serves::ControlledLoad,
        up_to: Some(Rate::from_bits_per_sec((place as u64 + 1) * 100_000)),
    };
    numbered.map(one).collect()
}

/// Nanoseconds for each packet of all flows in turn, from a socket to the other end of the link.
fn packets(count: usize) -> f64 {
    let sockets: Vec<UdpSocket> = (0..DSCPS.len())
        .map(|place| {
            let at = SocketAddr::new(Ipv4Addr::new(10, 1, 0, 1).into(), 4_000 + place as u16);
            let socket = UdpSocket::bind(at).expect("a port");
            let class = u32::from(DSCPS[place]) << 2;
            SockRef::from(&socket).set_tos_v4(class).expect("a DSCP");
            socket
        })
        .collect();
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begins = Instant::now();
        for packet in 0..PACKETS {
            // In an order that no cache foresees.
            let number = packet.wrapping_mul(7_919) % count.max(1);
            let to = SocketAddr::new(IpAddr::V4(THERE), 10_000 + number as u16);
            // A queue may be full.
            let _ = sockets[number % DSCPS.len()].send_to(&[0; 100], to);
        }
        best = best.min(begins.elapsed().as_nanos() as f64 / PACKETS as f64);
    }
    best
}

struct Cost {
    classes: usize,
    lines: usize,
    making: Duration,
    tc: Duration,
    daemon: usize,
    kernel: u64,
    packet: f64,
}

/// Sets all up, measures, and takes it down again.
fn measure(count: usize, aggregates: Vec<Aggregate>) -> Cost {
    run("ip", "link add d0 type veth peer name d1");
    run("ip", "addr add 10.1.0.1/24 dev d0");
    run("ip", "link set d0 up");
    run("ip", "link set d1 up");
    // Nobody's address: what arrives is dropped at once.
    run("ip", "neigh add 10.1.0.2 lladdr 02:00:00:00:00:99 dev d0");
    let device = Device {
        name: DEVICE.to_owned(),
        rate: Rate::from_bits_per_sec(20_000_000_000),
        reservable: Rate::from_bits_per_sec(18_000_000_000),
        mtu: Bytes::new(1_500),
        header: Bytes::new(14),
        uncounted: Bytes::ZERO,
    };
    let mut htb = Htb::new(device).expect("a name").with_aggregates(aggregates);
    tc(&htb.begin());
    // As the daemon does.
    if !takes(&htb.best_effort(QueueKind::FqCodel)) {
        tc(&htb.best_effort(QueueKind::Fifo));
    }
    let requests: Vec<ControlRequest> = (0..count)
        .map(|number| ControlRequest::Add(BY, Handle(number as u16 + 1), reservation(number)))
        .collect();
    let (kernel_before, tc_before, held) = (kernel(), of_children(), HEAP.held());
    let (mut lines, mut making) = (0, Duration::ZERO);
    for some in requests.chunks(100) {
        let begins = Instant::now();
        let more: Vec<String> = some.iter().flat_map(|request| htb.lines(request)).collect();
        making += begins.elapsed();
        lines += more.len();
        tc(&more);
    }
    let (tc, kernel) = (of_children() - tc_before, kernel().saturating_sub(kernel_before));
    let daemon = HEAP.held().saturating_sub(held);
    let packet = packets(count);
    let counters = class_counters(DEVICE).expect("the kernel answers");
    let sent_by = |least: u16, most: u16| {
        let is_in = |name: &str| {
            let minor =
                name.strip_prefix("1:").and_then(|minor| u16::from_str_radix(minor, 16).ok());
            minor.is_some_and(|minor| (least..=most).contains(&minor))
        };
        let of = counters.iter().filter(|(name, _)| is_in(name));
        of.fold((0, 0), |(classes, sent), (_, one)| (classes + 1, sent + one.sent))
    };
    let (classes, sent) = sent_by(0x1000, 0xf03f);
    let all = (PACKETS * ROUNDS) as u64;
    assert!(count == 0 || sent > all * 9 / 10, "{sent} of {all} packets have found their class");
    run("ip", "link del d0");
    Cost { classes, lines, making, tc, daemon, kernel, packet }
}

fn main() {
    let argument = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let count: usize = argument.unwrap_or(10_000).min(30_000);
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        println!("no network namespace of its own: {error}; this needs root");
        return;
    }
    run("ip", "link set lo up");
    // The first one warms up.
    measure(count / 10, Vec::new());
    let none = measure(0, Vec::new());
    println!(
        "{:>22} {:>8} {:>8} {:>12} {:>10} {:>14} {:>14} {:>12}",
        "",
        "classes",
        "lines of tc",
        "making them",
        "tc",
        "daemon holds",
        "kernel holds",
        "a packet"
    );
    for (name, aggregates) in [("a class each", Vec::new()), ("ten aggregates", aggregates())] {
        let cost = measure(count, aggregates);
        let each = |bytes: f64| format!("{:.0} B each", bytes / count.max(1) as f64);
        println!(
            "{name:>22} {:>8} {:>11} {:>9.1} ms {:>8.2} s {:>14} {:>14} {:>9.0} ns",
            cost.classes,
            cost.lines,
            cost.making.as_secs_f64() * 1e3,
            cost.tc.as_secs_f64(),
            each(cost.daemon as f64),
            each(cost.kernel as f64),
            cost.packet,
        );
    }
    println!(
        "{count} reservations; without any a packet takes {:.0} ns, as best effort",
        none.packet
    );
}
