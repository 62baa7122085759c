//! Resident memory of a program with QoS sockets, under peers that mean to fill it.
//!
//! Each victim is a process of its own, so that its memory is not that of its attackers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration as Wall, Instant};

use ontempo_qos::wire::{Header, Kind, MAX_SETUP, Offer, Setup, TCP_HEADER};
use ontempo_qos::{Accepted, QosConnection, QosListener, QosOptions, QosSocket, is_exhausted};
use ontempo_transport::{Identity, Token, Trust};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the memory of a program with the defaults stays below, in kB.
const MAX_RESIDENT_KB: u64 = 300_000;

/// Names the victim that this process is.
const ROLE: &str = "ONTEMPO_TEST_VICTIM";

/// As many as a gateway relays.
const TCP_CONNECTIONS: u64 = 512;

/// As many as a UDP listener has.
const UDP_FLOWS: u64 = 1_024;

fn token() -> Token {
    Token::new(b"shared").expect("short")
}

/// As many files as the system allows: both sides have more than the usual 1,024.
fn raise_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Accepts connections, keeps them and never reads.
fn hoard<C>(max: u64, mut accept: impl FnMut() -> std::io::Result<Accepted<C>>) {
    let mut held = Vec::new();
    while let Ok(accepted) = accept() {
        match accepted {
            Accepted::Connection(connection, _) if (held.len() as u64) < max => {
                held.push(connection);
                // The test reads how many there are.
                println!("accepted {}", held.len());
            }
            Accepted::Exhausted(error) => assert!(is_exhausted(&error)),
            _ => {}
        }
    }
}

fn serve(role: &str) -> ! {
    raise_limit();
    thread::spawn(|| {
        // It ends with the test.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let at = SocketAddr::from(([127, 0, 0, 1], 0));
    match role {
        "tcp" => {
            let listener = QosListener::bind(at, QosOptions::default()).expect("bound");
            println!("listens at {}", listener.local_address().expect("an address"));
            hoard(TCP_CONNECTIONS, || listener.accept_or_refuse());
        }
        "udp" => {
            let listener = QosSocket::bind(at, QosOptions::default()).expect("bound");
            println!("listens at {}", listener.local_address());
            hoard(u64::MAX, || listener.accept_or_refuse());
        }
        _ => {
            let identity = Identity::self_signed(&["victim"]).expect("made");
            let bound = QosConnection::bind(at, (&identity, &token()), QosOptions::default());
            let listener = bound.expect("bound");
            println!("listens at {}", listener.local_address());
            hoard(u64::MAX, || listener.accept_or_refuse());
        }
    }
    std::process::exit(1)
}

/// A victim's process.
struct Victim {
    child: Child,
    address: SocketAddr,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    _input: ChildStdin,
}

impl Victim {
    fn start(role: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program has a file"))
            .args(["--exact", "a_victim_that_nobody_attacks_is_small", "--nocapture"])
            .env(ROLE, role)
            .env("ONTEMPO_RSVP_SOCKET", "/nonexistent/rsvpd.sock")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the victim starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let line = lines.by_ref().map_while(Result::ok).find(|line| line.contains("listens at"));
        let line = line.expect("the victim listens");
        let address = line.rsplit(' ').next().and_then(|text| text.parse().ok());
        let input = child.stdin.take().expect("it is piped");
        Self { child, address: address.expect("an address"), lines, _input: input }
    }

    /// Waits until it has so many connections.
    fn has(&mut self, count: u64) {
        let wanted = format!("accepted {count}");
        let found = self.lines.by_ref().map_while(Result::ok).any(|line| line == wanted);
        assert!(found, "the victim has ended");
    }

    /// Its resident memory in kB, the largest so far or the present.
    fn memory(&self, which: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("the victim runs");
        let line = status.lines().find(|line| line.starts_with(which)).expect("Linux reports it");
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
    }

    /// Checks the largest so far.
    fn check(&self, what: &str) {
        let peak = self.memory("VmHWM:");
        println!("{what}: at most {peak} kB");
        assert!(peak < MAX_RESIDENT_KB, "{what}: {peak} kB");
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // Its end is not an error of the test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other tests start this one as their victim.
#[test]
fn a_victim_that_nobody_attacks_is_small() {
    if let Ok(role) = std::env::var(ROLE) {
        serve(&role);
    }
    for role in ["tcp", "udp", "quic"] {
        let peak = Victim::start(role).memory("VmHWM:");
        assert!(peak < MAX_RESIDENT_KB / 5, "{role}: {peak} kB");
    }
}

#[test]
fn tcp_connections_that_are_never_read_do_not_fill_the_memory() {
    raise_limit();
    let mut victim = Victim::start("tcp");
    let hello = Setup::Hello { session: 1, cookie: [0; 16], sent: 0, offer: Offer::default() };
    let data = Header { kind: Kind::Data, length: (1 << 24) - 1, sequence: 0, sent: 0 };
    let room = vec![7; 100_000];
    let mut peers = Vec::new();
    for number in 1..=TCP_CONNECTIONS {
        let mut peer = TcpStream::connect(victim.address).expect("connected");
        peer.write_all(&hello.to_bytes()).expect("written");
        victim.has(number);
        // One message, as long as any, which nobody reads.
        peer.write_all(&data.to_tcp()).expect("written");
        // More than the victim reads ahead; what the kernel takes is no memory of the victim.
        peer.set_nonblocking(true).expect("set");
        let _ = (peer.write(&room), peer.write(&room));
        peers.push(peer);
    }
    // Handshakes that do not go on, more than there may be.
    for _ in 0..200 {
        let mut peer = TcpStream::connect(victim.address).expect("connected");
        let _ = peer.write_all(&hello.to_bytes()[..100]);
        peers.push(peer);
    }
    thread::sleep(Wall::from_secs(2));
    victim.check("512 connections over TCP");
}

/// A UDP flow of a raw socket at an address of this host.
fn flow(from: [u8; 4], to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(SocketAddr::from((from, 0))).expect("a port");
    socket.connect(to).expect("connected");
    socket.set_read_timeout(Some(Wall::from_secs(5))).expect("set");
    let hello = |cookie| Setup::Hello { session: 1, cookie, sent: 0, offer: Offer::default() };
    socket.send(&hello([0; 16]).to_bytes()).expect("sent");
    let mut room = [0; MAX_SETUP];
    let got = socket.recv(&mut room).expect("an answer");
    let Ok(Setup::Challenge { cookie, .. }) = Setup::read(&room[..got]) else {
        panic!("no challenge")
    };
    socket.send(&hello(cookie).to_bytes()).expect("sent");
    socket
}

#[test]
fn udp_flows_that_are_never_read_do_not_fill_the_memory() {
    raise_limit();
    let mut victim = Victim::start("udp");
    let data = Header { kind: Kind::Data, length: 60_000, sequence: 0, sent: 0 };
    let datagram = [data.to_udp(1).to_vec(), vec![7; 60_000]].concat();
    let flows: Vec<UdpSocket> = (1..=UDP_FLOWS)
        .map(|number| {
            // As many of a host as it may have.
            let socket = flow([127, 0, 0, 1 + ((number - 1) / 256) as u8], victim.address);
            victim.has(number);
            socket
        })
        .collect();
    for _ in 0..3 {
        for flow in &flows {
            let _ = flow.send(&datagram);
        }
        thread::sleep(Wall::from_secs(1));
    }
    victim.check("1,024 flows over UDP");
}

#[test]
fn quic_connections_that_are_never_read_do_not_fill_the_memory() {
    let mut victim = Victim::start("quic");
    let until = Instant::now() + Wall::from_secs(8);
    let at = victim.address;
    let (trust, token) = (Trust::Insecure, token());
    let mut senders = Vec::new();
    for number in 1..=16 {
        let options = QosOptions::default();
        let connected = QosConnection::connect(at, "victim", (&trust, &token), &options);
        let connection = connected.expect("connected");
        victim.has(number);
        senders.push(thread::spawn(move || {
            connection.set_write_timeout(Some(Wall::from_secs(1)));
            let message = vec![7; 60_000];
            while Instant::now() < until && connection.send_message(&message).is_ok() {}
            thread::sleep(until.saturating_duration_since(Instant::now()));
            drop(connection);
        }));
    }
    for sender in senders {
        sender.join().expect("it sends");
    }
    victim.check("16 connections over QUIC");
}

/// A status message is as long as a peer's control messages are.
#[test]
fn control_messages_of_peers_that_read_no_answer_do_not_fill_the_memory() {
    let mut victim = Victim::start("tcp");
    let hello = Setup::Hello { session: 1, cookie: [0; 16], sent: 0, offer: Offer::default() };
    let body = ontempo_qos::wire::Status::default().to_bytes();
    let header = Header { kind: Kind::Status, length: body.len(), sequence: 0, sent: 0 };
    let one = [header.to_tcp().to_vec(), body].concat();
    let many = one.repeat((1 << 16) / (TCP_HEADER + one.len()));
    let mut peers = Vec::new();
    for number in 1..=16 {
        let mut peer = TcpStream::connect(victim.address).expect("connected");
        peer.write_all(&hello.to_bytes()).expect("written");
        victim.has(number);
        peer.set_write_timeout(Some(Wall::from_millis(500))).expect("set");
        peers.push(peer);
    }
    let until = Instant::now() + Wall::from_secs(4);
    while Instant::now() < until {
        for peer in &mut peers {
            let _ = peer.write(&many);
        }
    }
    victim.check("control messages over TCP");
}
