//! `ontempo gateway --udp`: datagrams of unmodified programs, a flow for each client.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{ChildStdout, Stdio};
use std::thread::spawn;
use std::time::Duration;

use common::{Killed, Place, wait_until};
use serde_json::Value;

struct Gateway {
    child: Killed,
    local: String,
    url: String,
    out: BufReader<ChildStdout>,
}

impl Gateway {
    fn start(place: &Place, words: &[&str]) -> Self {
        Self::of(place, &[&["--udp"], words].concat())
    }

    /// One for connections, unless the words say `--udp`.
    fn of(place: &Place, words: &[&str]) -> Self {
        let mut command = place.command(&["gateway", "--json", "--listen", "127.0.0.1:0"]);
        command.args(words).env_remove("ONTEMPO_TOKEN");
        command.env("ONTEMPO_RSVP_SOCKET", place.path("no.sock"));
        let mut child = Killed(
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts"),
        );
        let mut out = BufReader::new(child.0.stdout.take().expect("its output"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        let printed: Value = serde_json::from_str(&line).expect("JSON");
        let text = |name: &str| printed[name].as_str().unwrap_or_default().to_owned();
        Self { child, local: text("local"), url: text("url"), out }
    }

    /// Ends it by Ctrl-C: its documents, and what it has written on standard error.
    fn end(mut self) -> (Vec<Value>, String) {
        common::interrupt(&self.child.0);
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).expect("text");
        self.child.0.stderr.take().expect("its errors").read_to_string(&mut err).expect("text");
        assert_eq!(self.child.0.wait().expect("it ends").code(), Some(0), "{err}");
        let lines = out.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        (lines.collect(), err)
    }
}

#[test]
fn the_line_to_paste_is_of_a_gateway_for_datagrams_and_examples_of_the_help_can_be_pasted() {
    let place = Place::new("gateway-udp-line", "");
    let words = ["gateway", "--udp", "--listen", "127.0.0.1:0", "--server", "127.0.0.1:9"];
    let mut command = place.command(&words);
    let mut child = Killed(command.stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut lines = BufReader::new(child.0.stdout.take().expect("its output")).lines();
    let line = lines.nth(1).expect("a second line").expect("text");
    assert!(line.starts_with("ontempo gateway --udp --listen ... --to ontempo://"), "{line}");
    let help = place.run(&["gateway", "--help"]).succeeds().out.clone();
    let examples: Vec<&str> =
        help.lines().filter(|line| line.contains("ontempo gateway ")).collect();
    assert!(examples.len() > 1, "{help}");
    for example in examples {
        // Over QUIC a gateway is verified.
        let over_quic = example.contains("--to ") && !example.contains("--over tcp");
        assert!(!over_quic || example.contains("--to ontempo://"), "{example}");
        assert!(!example.contains("--anyone"), "a gateway for everybody: {example}");
    }
}

/// A server that returns each datagram with its sender's port before it; its address.
fn server() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("an address").to_string();
    spawn(move || {
        let mut room = vec![0; 65_535];
        while let Ok((length, from)) = socket.recv_from(&mut room) {
            let answer = [format!("{} ", from.port()).as_bytes(), &room[..length]].concat();
            let _ = socket.send_to(&answer, from);
        }
    });
    address
}

fn client(to: &str) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.connect(to).expect("connected");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    socket
}

/// The server's answer: the port of the flow's socket, and the datagram.
fn exchange(client: &UdpSocket, datagram: &[u8]) -> (u16, Vec<u8>) {
    client.send(datagram).expect("sent");
    let mut room = vec![0; 65_535];
    let length = client.recv(&mut room).expect("an answer");
    let place = room[..length].iter().position(|byte| *byte == b' ').expect("a port");
    let port = String::from_utf8_lossy(&room[..place]).parse().expect("a port");
    (port, room[place + 1..length].to_vec())
}

#[test]
fn datagrams_keep_their_boundaries_and_each_client_has_a_flow_of_its_own() {
    for over in ["quic", "tcp"] {
        let place = Place::new(&format!("gateway-udp-{over}"), "");
        let words = ["--over", over, "--server", &server()];
        let near_server = Gateway::start(&place, &words);
        let to = if over == "tcp" { &near_server.local } else { &near_server.url };
        let near_client = Gateway::start(&place, &["--over", over, "--to", to]);
        let clients: Vec<UdpSocket> = (0..5).map(|_| client(&near_client.local)).collect();
        let mut ports = Vec::new();
        for (number, client) in clients.iter().enumerate() {
            for datagram in [&vec![number as u8; 1_200][..], b"", &vec![7; 60_000]] {
                let (port, back) = exchange(client, datagram);
                assert_eq!(back, datagram, "over {over}");
                ports.push(port);
            }
        }
        ports.dedup();
        assert_eq!(ports.len(), 5, "a flow each: {ports:?}");
        for gateway in [near_client, near_server] {
            let (documents, err) = gateway.end();
            assert_eq!(err, "", "over {over}");
            let sent = |one: &&Value| one["direction"] == "sending" && one["event"] == "summary";
            let sent: Vec<_> = documents.iter().filter(sent).collect();
            assert_eq!(sent.len(), 5, "{documents:#?}");
        }
    }
}

#[test]
fn a_flow_without_datagrams_ends_and_the_next_datagram_begins_another() {
    let place = Place::new("gateway-udp-idle", "");
    let near_server = Gateway::start(&place, &["--server", &server(), "--idle", "1 s"]);
    let near_client = Gateway::start(&place, &["--to", &near_server.url, "--idle", "1 s"]);
    let client = client(&near_client.local);
    let (first, _) = exchange(&client, b"one");
    assert_eq!(exchange(&client, b"two").0, first, "the same flow");
    wait_until("another flow", || {
        std::thread::sleep(Duration::from_millis(2_500));
        exchange(&client, b"three").0 != first
    });
    let (_, err) = near_client.end();
    assert_eq!(err, "");
}

#[test]
fn where_one_gateway_alone_carries_datagrams_both_name_the_option() {
    for [near, far] in [[&["--udp"][..], &[]], [&[], &["--udp"][..]]] {
        let place = Place::new("gateway-udp-mixed", "");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let accepting = || listener.local_addr().expect("an address").to_string();
        let server = if far.is_empty() { accepting() } else { server() };
        let near_server = Gateway::of(&place, &[&["--server", &server], far].concat());
        let near_client = Gateway::of(&place, &[&["--to", &near_server.url], near].concat());
        let _stream = if near.is_empty() {
            let mut stream = TcpStream::connect(&near_client.local).expect("connected");
            stream.write_all(b"one").expect("sent");
            Some(stream)
        } else {
            client(&near_client.local).send(b"one").expect("sent");
            None
        };
        // Both stay until both have said so: one that is ended notifies the other of nothing.
        let mut both = [near_client, near_server];
        for gateway in &mut both {
            let mut err = BufReader::new(gateway.child.0.stderr.take().expect("its errors"));
            let mut line = String::new();
            err.read_line(&mut line).expect("text");
            assert!(line.contains("only one of the two gateways has --udp"), "{line}");
        }
    }
}

#[test]
fn what_is_longer_than_agreed_is_dropped_and_counted() {
    let place = Place::new("gateway-udp-long", "");
    let spec = "max_rate = \"1000 messages/s\"\nsize = \"1000 bytes\"\nloss = \"10 %\"\n\
                permutable = true\n";
    std::fs::write(place.path("spec.toml"), spec).expect("a specification");
    let spec = ["--spec", "spec.toml", "--idle", "1 s"];
    let near_server = Gateway::start(
        &place,
        &[&["--server", &server(), "--direction", "send"][..], &spec].concat(),
    );
    let to = ["--to", &near_server.url, "--direction", "send"];
    let mut near_client = Gateway::start(&place, &[&to[..], &spec].concat());
    let client = client(&near_client.local);
    client.send(&[0; 1_001]).expect("sent");
    assert_eq!(exchange(&client, b"fits").1, b"fits", "the flow goes on");
    let mut line = String::new();
    while !line.contains("\"dropped\"") {
        line.clear();
        assert!(near_client.out.read_line(&mut line).expect("a line") > 0, "it has ended");
    }
    let document: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(document["datagrams"], 1, "{line}");
}
