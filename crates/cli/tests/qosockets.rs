//! QoSockets with live RSVP daemons: two hosts and two routers, real packets, HTB classes. Needs
//! root; skipped tests are reported.

mod common;
mod reserved;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::{Killed, interrupt, wait_until};
use reserved::{BOTTLENECK, Network, can_reserve};
use serde_json::Value;

/// 480 kbit/s of messages, of which at most 5 % may be lost.
const SPECIFICATION: &str = r#"
max_rate = "80 messages/s"
size = "1000 bytes"
loss = "5 %"
coerced = true
"#;

const TIMEOUT: Duration = Duration::from_secs(15);

/// `ontempo netvideo` or `gateway` at a host, and its events.
struct Program {
    child: Killed,
    lines: Receiver<Value>,
    seen: Vec<Value>,
}

impl Program {
    fn start(network: &Network, host: &str, words: &[&str]) -> Self {
        let mut command = network.ontempo(host, &[words, &["--json"]].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Killed(command.spawn().expect("it starts"));
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.0.stdout.take().expect("a pipe"));
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let Ok(value) = serde_json::from_str(&line) else { continue };
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        Self { child, lines, seen: Vec::new() }
    }

    /// Waits for a line.
    #[track_caller]
    fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            if let Ok(value) = self.lines.recv_timeout(Duration::from_millis(200)) {
                self.seen.push(value.clone());
                if is_it(&value) {
                    return value;
                }
            }
        }
        panic!("timeout waiting for a line; seen: {:?}", self.seen);
    }

    /// Waits for a reservation event with this state and a reason that starts with `reason`.
    #[track_caller]
    fn until_reserved(&mut self, state: &str, reason: &str) {
        self.until(|value| {
            value["event"] == "reservation"
                && value["state"] == state
                && value["reason"].as_str().is_some_and(|why| why.starts_with(reason))
        });
    }

    /// Its summary, and whether it succeeded.
    #[track_caller]
    fn end(mut self) -> (Value, bool) {
        let summary = self.until(|value| value["event"] == "summary");
        (summary, self.child.0.wait().expect("it ends").success())
    }
}

fn receiver(network: &Network, over: &str, more: &[&str]) -> (Program, String) {
    let words = ["netvideo", "receive", "--listen", "10.0.3.2:5004", "--over", over];
    let mut program = Program::start(network, "h2", &[&words, more].concat());
    let listening = program.until(|value| value["event"] == "listening");
    let url = listening["url"].as_str().unwrap_or_default().to_owned();
    (program, url)
}

/// `url` is that of the receiver over QUIC, and empty over others.
fn sender(network: &Network, (over, url): (&str, &str), more: &[&str]) -> Program {
    let to = if url.is_empty() { "10.0.3.2:5004" } else { url };
    let words = ["netvideo", "send", to, "--over", over];
    let words = [&words[..], &["--rate", "60 messages/s", "--size", "1000"]].concat();
    Program::start(network, "h1", &[&words, more].concat())
}

/// Over UDP and QUIC at most the 5 % are lost that the specification allows. Packets of one burst may overtake each
/// other between the CPUs of a host, and a message that comes behind a later one is not delivered.
#[track_caller]
fn assert_keeps_the_specification(over: &str, [sent, got, lost]: [u64; 3]) {
    assert_eq!(got + lost, sent, "over {over}");
    assert!(lost <= if over == "tcp" { 0 } else { sent / 20 }, "over {over} {lost} of {sent}");
}

/// Overloads the routers' link for 3 s; returns the packets of a class in the first 2.5 s, of which it drops none.
fn overload(network: &Network, class: Option<&str>) -> u64 {
    let count = || class.map_or([0; 2], |class| network.counted(class));
    let [before, dropped_before] = count();
    let flood = network.sending((4001, 5005), 3000, Duration::from_secs(3));
    let (flood, [counted, dropped]) = std::thread::scope(|scope| {
        let flood = scope.spawn(flood);
        std::thread::sleep(Duration::from_millis(2_500));
        let counted = count();
        (flood.join().expect("it sends"), counted)
    });
    assert!(flood.1 < flood.0 * 9 / 10, "no overload: {flood:?}");
    assert_eq!(dropped, dropped_before, "packets of {class:?} were dropped");
    counted - before
}

/// One flow beside an overload of the routers' link: messages sent, delivered and lost.
fn beside_an_overload(network: &Network, over: &str, reserve: bool) -> [u64; 3] {
    let spec = network.place.path("spec.toml").display().to_string();
    let quality = ["--spec", &spec];
    let asking = ["--reserve", "controlled-load"];
    let more = if reserve { [&quality[..], &asking].concat() } else { quality.to_vec() };
    let (mut there, url) = receiver(network, over, &more);
    let must = [&more[..], &["--must-reserve", "--seconds", "3"]].concat();
    let words = if reserve { &must[..] } else { &[&more[..], &["--seconds", "3"]].concat() };
    let here = sender(network, (over, &url), words);
    if reserve {
        there.until_reserved("controlled load", "");
        assert_eq!(network.classes("r1", BOTTLENECK).len(), 1, "over {over}");
        assert_eq!(network.classes("r2", "l3").len(), 1, "over {over}");
    }
    let counted = overload(network, if reserve { Some("1:1001") } else { None });
    let (sent, is_well) = here.end();
    assert!(is_well, "the sender over {over} failed: {sent}");
    let (got, _) = there.end();
    eprintln!("{over}, reserved: {reserve}: {counted} packets in the class; {got}");
    if reserve {
        // 60 messages a second, a packet each.
        assert!(counted >= 120, "over {over} {counted} packets passed the class in 2.5 s");
        network.wait_for_teardown("r1", BOTTLENECK);
        network.wait_for_teardown("r2", "l3");
    }
    let number = |name: &str| got[name].as_u64().expect("a number");
    let sent = sent["sent_messages"].as_u64().expect("a number");
    [sent, number("messages"), number("lost_messages")]
}

fn network(test: &str) -> Network {
    let network = Network::running(test, false);
    fs::write(network.place.path("spec.toml"), SPECIFICATION).expect("a specification");
    network
}

#[test]
fn a_reserved_flow_passes_an_overload_over_each_transport_and_leaves_no_state() {
    if !can_reserve() {
        return;
    }
    let network = network("qospass");
    for over in ["udp", "tcp", "quic"] {
        assert_keeps_the_specification(over, beside_an_overload(&network, over, true));
    }
    let [sent, got, lost] = beside_an_overload(&network, "udp", false);
    assert!(lost > sent / 10, "unreserved, {got} of {sent} came, {lost} were lost");
    network.end();
}

/// A reserved flow beside an overload, with these options of its sender: packets in the aggregate's class at
/// the first router; messages sent, delivered and lost.
fn in_an_aggregate(network: &Network, over: &str, of_sender: &[&str]) -> (u64, [u64; 3]) {
    let spec = network.place.path("spec.toml").display().to_string();
    let more = ["--spec", &spec, "--reserve", "controlled-load"];
    let (there, url) = receiver(network, over, &more);
    let must = [&more[..], &["--must-reserve", "--seconds", "3"], of_sender].concat();
    let here = sender(network, (over, &url), &must);
    wait_until("the reservation", || network.status("r1").census.enforced == 1);
    let counted = overload(network, Some(AGGREGATE));
    let (sent, is_well) = here.end();
    assert!(is_well, "the sender over {over} failed: {sent}");
    let (got, _) = there.end();
    eprintln!("{over} {of_sender:?}: {counted} packets in the aggregate; {got}");
    wait_until("teardown", || network.status("r1").census.enforced == 0);
    let number = |of: &Value, name: &str| of[name].as_u64().expect("a number");
    let sent = number(&sent, "sent_messages");
    (counted, [sent, number(&got, "messages"), number(&got, "lost_messages")])
}

/// The class of AF23, which no specification is marked with by itself.
const AGGREGATE: &str = "1:f016";

#[test]
fn a_sender_marks_as_the_first_router_asks_it_to_unless_its_user_says_otherwise() {
    if !can_reserve() {
        return;
    }
    let mut network = Network::new("qosdclass", false);
    fs::write(network.place.path("spec.toml"), SPECIFICATION).expect("a specification");
    // No host has a word about DSCPs; the routers do not agree.
    for (node, aggregates) in [
        ("h1", ""),
        ("r1", "aggregates = [{ dscp = \"AF23\" }]"),
        ("r2", "aggregates = [{ dscp = \"AF13\" }]"),
        ("h2", ""),
    ] {
        network.configure(node, aggregates);
        network.start(node);
    }
    for over in ["udp", "tcp", "quic"] {
        let (counted, messages) = in_an_aggregate(&network, over, &[]);
        // 60 messages a second, a packet each.
        assert!(counted >= 120, "over {over} {counted} packets passed the class in 2.5 s");
        assert_keeps_the_specification(over, messages);
    }
    // Its packets are best effort at the router, as the user will have it.
    let (counted, [sent, _, lost]) = in_an_aggregate(&network, "udp", &["--dscp", "af41"]);
    assert!(counted < 10 && lost > sent / 10, "{counted} in the class, {lost} of {sent} lost");
    for (node, lines) in [
        ("h1", &["DSCP AF23 is asked of an application of this host for udp 10.0.3.2:5004"][..]),
        ("r1", &["DSCP AF23 is asked of 10.0.0.1 by l0 for", "; AF13, which others ask for"]),
        ("r2", &["DSCP AF13 is asked of 10.0.1.1 by l1 for"]),
    ] {
        let log = network.log(node);
        assert!(lines.iter().all(|line| log.contains(line)), "{node}: {log}");
        assert_eq!(network.status(node).dropped.len(), 0, "{node}");
    }
    network.end();
}

#[test]
fn a_reservation_beyond_the_link_rate_is_refused_and_the_flow_continues_or_ends() {
    if !can_reserve() {
        return;
    }
    let network = network("qosmuch");
    let much = SPECIFICATION.replace("80 messages/s", "200 messages/s");
    let spec = network.place.path("much.toml");
    fs::write(&spec, much).expect("a specification");
    let spec = spec.display().to_string();
    let more = ["--spec", &spec, "--reserve", "controlled-load"];
    for over in ["udp", "tcp"] {
        let (mut there, _) = receiver(&network, over, &more);
        let mut here = sender(&network, (over, ""), &[&more[..], &["--seconds", "3"]].concat());
        let reason = "10.0.1.1: the bandwidth is not available";
        there.until_reserved("refused", reason);
        here.until_reserved("refused", &format!("at the receiver: {reason}"));
        assert_eq!(network.classes("r1", BOTTLENECK), [""; 0]);
        let (summary, is_well) = here.end();
        assert!(is_well, "{summary}");
        assert!(there.end().0["messages"].as_u64() > Some(100));
        let (mut there, _) = receiver(&network, over, &more);
        let mut here = sender(&network, (over, ""), &[&more[..], &["--must-reserve"]].concat());
        there.until_reserved("refused", "10.0.1.1");
        assert_eq!(here.child.0.wait().expect("it ends").code(), Some(3), "over {over}");
        let mut printed = String::new();
        here.child.0.stderr.take().expect("a pipe").read_to_string(&mut printed).expect("text");
        let expected = format!("nothing is reserved: at the receiver: {reason}");
        assert!(printed.contains(&expected), "{printed}");
    }
    network.end();
}

#[test]
fn a_restarted_daemon_has_the_reservation_again() {
    if !can_reserve() {
        return;
    }
    let mut network = network("qoskill");
    let spec = network.place.path("spec.toml").display().to_string();
    let more = ["--spec", &spec, "--reserve", "controlled-load"];
    for over in ["udp", "tcp"] {
        let (mut there, _) = receiver(&network, over, &more);
        let mut here = sender(&network, (over, ""), &[&more[..], &["--seconds", "8"]].concat());
        here.until_reserved("controlled load", "");
        there.until_reserved("controlled load", "");
        let class = network.classes("r1", BOTTLENECK);
        assert_eq!(class.len(), 1);
        // A router's state is restored by refreshes, a host's by its applications.
        network.signal("r1", "-KILL");
        network.start("r1");
        wait_until("the router's state", || network.status("r1").census.enforced == 1);
        for (host, program) in [("h1", &mut here), ("h2", &mut there)] {
            network.signal(host, "-KILL");
            program.until_reserved("lost", "the RSVP daemon cannot be reached");
            network.start(host);
            program.until_reserved("controlled load", "");
        }
        assert_eq!(network.classes("r1", BOTTLENECK), class, "over {over}");
        let (sent, is_well) = here.end();
        assert!(is_well, "{sent}");
        assert_eq!(there.end().0["lost_messages"], 0, "over {over}");
        network.wait_for_teardown("r1", BOTTLENECK);
    }
    network.end();
}

/// Chunks of a stream through gateways, and the time between them: 320 kbit/s.
const CHUNK: usize = 1_000;
const CHUNKS: u32 = 120;
const CHUNK_GAP: Duration = Duration::from_millis(25);

/// Sends chunks at their times: when the first was sent.
fn send_chunks(mut to: &TcpStream) -> Instant {
    let begun = Instant::now();
    for number in 0..CHUNKS {
        std::thread::sleep((CHUNK_GAP * number).saturating_sub(begun.elapsed()));
        to.write_all(&[7; CHUNK]).expect("written");
    }
    begun
}

/// When each chunk was there.
fn take_chunks(mut from: &TcpStream) -> Vec<Instant> {
    from.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let mut room = [0; CHUNK];
    (0..CHUNKS).map_while(|_| from.read_exact(&mut room).is_ok().then(Instant::now)).collect()
}

/// Two streams at once from `h1` to `h2` through gateways over QUIC, beside an overload of the
/// routers' link: how much later than it was sent the latest chunk of each came, and the packets that
/// passed the first class. In the direction `receive` their server is at `h1`, otherwise at `h2`.
fn streams_beside_an_overload(
    network: &Network,
    direction: &str,
    reserve: bool,
) -> (Vec<Duration>, u64) {
    let spec = network.place.path("stream.toml").display().to_string();
    let quality = ["--spec", &spec, "--direction", direction];
    let asking: &[&str] = if reserve { &["--reserve", "controlled-load"] } else { &[] };
    let (at_server, at_client, listen) = match direction {
        "receive" => ("h1", "h2", "10.0.0.1:7070"),
        _ => ("h2", "h1", "10.0.3.2:7070"),
    };
    let server = network.inside(at_server, || TcpListener::bind("127.0.0.1:8000").expect("a port"));
    let words = ["gateway", "--listen", listen, "--server", "127.0.0.1:8000"];
    let start = |host, words: &[&str]| {
        Program::start(network, host, &[words, &quality[..], asking].concat())
    };
    let mut near_server = start(at_server, &words);
    let listening = near_server.until(|value| value["event"] == "listening");
    let url = listening["url"].as_str().expect("a URL");
    let mut near_client = start(at_client, &["gateway", "--listen", "127.0.0.1:8000", "--to", url]);
    near_client.until(|value| value["event"] == "listening");
    let connect = || TcpStream::connect("127.0.0.1:8000").expect("connected");
    let ends: Vec<_> = (0..2)
        .map(|_| {
            let near = network.inside(at_client, connect);
            let far = server.accept().expect("a stream").0;
            let (at_h2, (from, to)) = match direction {
                "receive" => (&mut near_client, (far, near)),
                _ => (&mut near_server, (near, far)),
            };
            if reserve {
                at_h2.until_reserved("controlled load", "");
            }
            (from, to)
        })
        .collect();
    if reserve {
        assert_eq!(network.classes("r1", BOTTLENECK).len(), 2, "each stream has its own");
        assert_eq!(network.classes("r2", "l3").len(), 2);
    }
    let before = if reserve { network.counted("1:1001")[0] } else { 0 };
    let flood = network.sending((4001, 5005), 3000, Duration::from_secs(4));
    let (flood, streams) = std::thread::scope(|scope| {
        let flood = scope.spawn(flood);
        let streams: Vec<_> = ends
            .iter()
            .map(|(from, to)| {
                let sent = scope.spawn(|| send_chunks(from));
                (sent, scope.spawn(|| take_chunks(to)))
            })
            .collect();
        let lag = |(number, at): (usize, &Instant), begun: Instant| {
            at.saturating_duration_since(begun + CHUNK_GAP * number as u32)
        };
        let streams: Vec<_> = streams
            .into_iter()
            .map(|(sent, taken)| {
                let begun = sent.join().expect("it sends");
                let taken = taken.join().expect("it takes");
                assert_eq!(taken.len(), CHUNKS as usize, "all come");
                taken.iter().enumerate().map(|one| lag(one, begun)).max().expect("many")
            })
            .collect();
        (flood.join().expect("it sends"), streams)
    });
    assert!(flood.1 < flood.0 * 9 / 10, "no overload: {flood:?}");
    let counted = if reserve { network.counted("1:1001")[0] - before } else { 0 };
    // Their reservations end with them.
    drop(ends);
    eprintln!("{direction}, reserved: {reserve}: {streams:?} late, {counted} packets, {flood:?}");
    for gateway in [near_client, near_server] {
        interrupt(&gateway.child.0);
        let Program { mut child, .. } = gateway;
        assert_eq!(child.0.wait().expect("it ends").code(), Some(0));
    }
    network.wait_for_teardown("r1", BOTTLENECK);
    network.wait_for_teardown("r2", "l3");
    (streams, counted)
}

#[test]
fn reserved_streams_through_gateways_over_quic_pass_an_overload_each_with_its_own_reservation() {
    if !can_reserve() {
        return;
    }
    let network = network("qosgate");
    let spec = SPECIFICATION.replace("80 messages/s", "60 messages/s");
    fs::write(network.place.path("stream.toml"), spec).expect("a specification");
    for direction in ["receive", "send"] {
        let (late, counted) = streams_beside_an_overload(&network, direction, true);
        assert!(late.iter().all(|late| *late < Duration::from_secs(1)), "{direction}: {late:?}");
        // A packet for each chunk, or nearly.
        assert!(counted > u64::from(CHUNKS) / 2, "{counted} packets passed the class");
    }
    let (late, _) = streams_beside_an_overload(&network, "receive", false);
    assert!(late.iter().any(|late| *late > Duration::from_secs(1)), "unreserved: {late:?}");
    network.end();
}
