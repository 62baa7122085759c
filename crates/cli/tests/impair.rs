//! `ontempo impair` between sockets, and between `ontempo send` and `ontempo receive`.

mod common;

use common::{ListeningProgram, Place, Ran, interrupt};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// 4 Mbit/s and 20 ms to the server, 5 ms back, losses to the server alone.
fn line(loss: &str) -> String {
    format!(
        r#"duration = "1 s"
[topology]
kind = "dumbbell"
bottleneck = {{ rate = "4 Mbit/s", delay = "20 ms", loss = {{ kind = "bernoulli", rate = {loss} }} }}
reverse = {{ rate = "100 Mbit/s", delay = "5 ms" }}
access = {{ rate = "1 Gbit/s", delay = "0 s" }}
[flows.one]
application = {{ kind = "ftp" }}
transport = {{ kind = "tcp" }}
"#
    )
}

/// The relay, and the address where clients reach it.
fn start(place: &Place, server: SocketAddr, more: &[&str]) -> (ListeningProgram, SocketAddr) {
    let server = server.to_string();
    let words = ["impair", "--listen", ":0", "--to", &server, "--scenario", "s.toml"];
    let program = ListeningProgram::start(place, &[&words, more].concat());
    let address: SocketAddr = program.local.parse().expect("an address");
    assert!(address.ip().is_loopback(), "a port alone is one of the loopback: {address}");
    (program, address)
}

/// Ctrl-C; the counters.
fn end(program: ListeningProgram) -> Value {
    interrupt(&program.child.0);
    let (events, code) = program.end();
    assert_eq!(code, Some(0));
    let last = events.last().expect("a summary").clone();
    assert_eq!(last["event"], "summary");
    last
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(2))).expect("set");
    socket
}

/// Sends `count` datagrams of 972 bytes (1,000 on the wire), one each `gap`; which arrive, with the
/// time since each was sent, and the time from the first arrival to the last.
fn cross(to: SocketAddr, server: &UdpSocket, count: u32, gap: Duration) -> Crossed {
    let client = socket();
    let begun = Instant::now();
    let sender = std::thread::spawn(move || {
        for number in 0..count {
            let due = begun + gap * number;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let mut bytes = [0; 972];
            bytes[..4].copy_from_slice(&number.to_be_bytes());
            let nanos = begun.elapsed().as_nanos() as u64;
            bytes[4..12].copy_from_slice(&nanos.to_be_bytes());
            client.send_to(&bytes, to).expect("sent");
        }
    });
    let mut crossed = Crossed::default();
    let mut bytes = [0; 2_000];
    let mut ends: Option<(Duration, Duration)> = None;
    // The socket's patience ends it.
    while let Ok(size) = server.recv(&mut bytes) {
        let now = begun.elapsed();
        assert_eq!(size, 972);
        let number = u32::from_be_bytes(bytes[..4].try_into().expect("four"));
        let sent = u64::from_be_bytes(bytes[4..12].try_into().expect("eight"));
        crossed.arrived.push(number);
        crossed.delays.push(now.saturating_sub(Duration::from_nanos(sent)));
        crossed.times.push(now.as_secs_f64());
        ends = Some((ends.map_or(now, |ends| ends.0), now));
    }
    sender.join().expect("the sender");
    crossed.span = ends.map(|ends| ends.1 - ends.0).unwrap_or_default();
    crossed.delays.sort();
    crossed
}

#[derive(Default)]
struct Crossed {
    arrived: Vec<u32>,
    /// Arrivals, in seconds.
    times: Vec<f64>,
    /// In order of size.
    delays: Vec<Duration>,
    span: Duration,
}

#[test]
fn rate_and_delay_are_those_of_the_scenario() {
    let place = Place::new("impair-rate", &line("0"));
    let server = socket();
    let (program, to) = start(&place, server.local_addr().expect("an address"), &[]);
    // One each 10 ms, at a fifth of the rate: 2 ms of transmission, 20 ms of propagation, and the
    // access links.
    let slow = cross(to, &server, 200, Duration::from_millis(10));
    assert_eq!(slow.arrived, (0..200).collect::<Vec<_>>(), "all, in order");
    let model = Duration::from_micros(22_016);
    assert!(slow.delays[0] >= model, "earlier than the model: {:?}", slow.delays[0]);
    let median = slow.delays[100];
    // What a busy machine may add.
    assert!(median < model + Duration::from_millis(10), "the median is {median:?}");
    // All at once: one each 2 ms leaves.
    let fast = cross(to, &server, 300, Duration::ZERO);
    assert_eq!(fast.arrived.len(), 300);
    let (span, expected) = (fast.span.as_secs_f64(), 299.0 * 0.002);
    assert!((span / expected - 1.0).abs() < 0.05, "{span} s for {expected} s");
    let report = end(program);
    let forward = &report["forward"];
    assert_eq!((&forward["packets"], &forward["delivered"]), (&500.into(), &500.into()));
    let p50 = forward["delay_p50_s"].as_f64().expect("a time");
    assert!(p50 >= 0.0217, "{report}");
    assert!(report["late_p99_s"].as_f64().is_some(), "{report}");
    assert_eq!(report["clients"]["admitted"], 2);
}

/// Twice as much as passes crosses a link that has 4 Mbit/s for a second and then 1 Mbit/s for a
/// second, again and again.
fn crosses_steps(queue: &str) {
    let steps = "schedule = { kind = \"periodic\", steps = [{ for = \"1 s\", rate = \"4 Mbit/s\" }, \
                 { for = \"1 s\", rate = \"1 Mbit/s\" }] }";
    let scenario = line("0").replace(
        "delay = \"20 ms\",",
        &format!(
            "delay = \"20 ms\", {steps}, queue = {{ kind = \"{queue}\", limit = \"9 packets\" }},"
        ),
    );
    let place = Place::new(&format!("impair-{queue}"), &scenario);
    let server = socket();
    let (program, to) = start(&place, server.local_addr().expect("an address"), &[]);
    let crossed = cross(to, &server, 5_500, Duration::from_millis(1));
    let within = |from: f64, to: f64| {
        crossed.times.iter().filter(|at| (from..to).contains(*at)).count() as f64
    };
    // Two whole periods: 10 Mbit; what is late to begin with is late in the end.
    let sent = within(1.0, 5.0);
    assert!((sent / 1_250.0 - 1.0).abs() < 0.03, "{queue}: {sent} in 4 s");
    let tenths: Vec<f64> =
        (10..50).map(|at| within(f64::from(at) / 10.0, f64::from(at + 1) / 10.0)).collect();
    let near = |rate: f64| tenths.iter().filter(|sent| (*sent / rate - 1.0).abs() < 0.3).count();
    assert!(near(50.0) >= 12 && near(12.5) >= 12, "{queue}: {tenths:?}");
    let report = end(program);
    let arrived = crossed.arrived.len() as u64;
    assert_eq!(report["forward"]["delivered"], arrived, "{report}");
}

#[test]
fn a_schedule_offers_its_steps_to_a_queue_that_decides_at_enqueue() {
    crosses_steps("drop-tail");
}

#[test]
fn a_schedule_offers_its_steps_to_a_queue_that_decides_at_dequeue() {
    crosses_steps("codel");
}

#[test]
fn a_schedule_offers_its_steps_to_fair_queueing() {
    crosses_steps("wfq");
}

#[test]
fn the_same_seed_loses_the_same_datagrams() {
    let place = Place::new("impair-seed", &line("0.1"));
    let server = socket();
    let run = |seed: &str| {
        let at = server.local_addr().expect("an address");
        let (program, to) = start(&place, at, &["--seed", seed]);
        let crossed = cross(to, &server, 1_000, Duration::from_micros(2_500));
        (crossed.arrived, end(program))
    };
    let (one, report) = run("1");
    assert_eq!(run("1").0, one);
    let (other, _) = run("2");
    assert_ne!(other, one);
    // 100 are expected: four standard deviations are 38.
    for arrived in [&one, &other] {
        let lost = 1_000 - arrived.len();
        assert!((62..=138).contains(&lost), "{lost} of 1,000 are lost");
    }
    let dropped = &report["forward"]["dropped"];
    assert_eq!(dropped["loss"].as_u64(), Some(1_000 - one.len() as u64), "{report}");
    assert_eq!(dropped["full"], 0, "{report}");
}

#[test]
fn answers_come_back_to_the_client_that_asked() {
    let place = Place::new("impair-answers", &line("0"));
    let server = socket();
    let (program, to) = start(&place, server.local_addr().expect("an address"), &[]);
    let clients = [socket(), socket(), socket()];
    for (number, client) in clients.iter().enumerate() {
        client.send_to(&[number as u8], to).expect("sent");
    }
    let mut bytes = [0; 10];
    for _ in &clients {
        let (_, from) = server.recv_from(&mut bytes).expect("a question");
        server.send_to(&[bytes[0], 42], from).expect("sent");
    }
    for (number, client) in clients.iter().enumerate() {
        let (size, from) = client.recv_from(&mut bytes).expect("an answer");
        assert_eq!((&bytes[..size], from), (&[number as u8, 42][..], to));
    }
    let report = end(program);
    assert_eq!(report["reverse"]["delivered"], 3);
    assert!(report["reverse"]["delay_p50_s"].as_f64() >= Some(0.0049), "{report}");
}

#[test]
fn a_file_crosses_five_percent_of_loss_whole() {
    let place = Place::new("impair-file", &line("0.05"));
    let content: Vec<u8> =
        (0..600_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(place.path("in"), &content).expect("written");
    let listen = ["receive", "--listen", "127.0.0.1:0", "--token", "open", "--to", "out"];
    let mut command = place.command(&listen);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut receiver = common::Killed(command.spawn().expect("the program starts"));
    let mut err = BufReader::new(receiver.0.stderr.take().expect("its errors"));
    let mut begun = String::new();
    err.read_line(&mut begun).expect("a line");
    let words: Vec<&str> = begun.split([' ', ',', '\n']).collect();
    let after = |word: &str| {
        let at = words.iter().position(|found| *found == word).expect("the word");
        words[at + 1..].iter().find(|word| !word.is_empty()).expect("its value").to_string()
    };
    let (program, to) = start(&place, after("at").parse().expect("an address"), &[]);
    let sent = place.run(&[
        "send",
        "--from",
        "in",
        "--to",
        &to.to_string(),
        "--token",
        "open",
        "--insecure",
    ]);
    sent.succeeds();
    assert!(receiver.0.wait().expect("it ends").success());
    assert!(fs::read(place.path("out")).expect("read") == content, "another file");
    let report = end(program);
    let forward = &report["forward"];
    let (lost, packets) =
        (&forward["dropped"]["loss"], forward["packets"].as_u64().expect("a count"));
    assert!(packets > 400 && lost.as_u64() > Some(packets / 50), "{report}");
}

#[test]
fn what_cannot_be_done_is_an_error_that_names_the_option() {
    let several = line("0") + "count = 3\n";
    let place = Place::new("impair-errors", &several);
    let run = |more: &[&str]| -> Ran {
        place.run(&[&["impair", "--scenario", "s.toml"][..], more].concat())
    };
    let good = ["--listen", ":0", "--to", "127.0.0.1:9"];
    run(&good).fails(2, &["--flow", "3 flows", "one.0, one.1, one.2"]);
    run(&[&good[..], &["--flow", "two.0"]].concat()).fails(2, &["--flow", "no flow `two.0`"]);
    run(&["--listen", ":x", "--to", "127.0.0.1:9"]).fails(2, &["--listen :x", "`x` is no port"]);
    run(&["--listen", ":0", "--to", "127.0.0.1"])
        .fails(2, &["--to 127.0.0.1", "the port is missing"]);
    run(&["--listen", ":0", "--to", "[::1]:9"]).fails(2, &["one is IPv4, the other IPv6"]);
    for listen in [":5999", "0.0.0.0:5999"] {
        let to_itself = run(&["--listen", listen, "--to", "127.0.0.1:5999"]);
        to_itself.fails(2, &["--to 127.0.0.1:5999: it is where --listen receives"]);
    }
    let set = ["--set", "topology.bottleneck.rate=fast"];
    run(&[&good[..], &set].concat()).fails(2, &["topology.bottleneck.rate"]);
}

#[test]
fn who_relays_for_everybody_is_told() {
    let place = Place::new("impair-anyone", &line("0.0"));
    let said = |at: &str| {
        let words = ["impair", "--listen", at, "--to", "127.0.0.1:9", "--scenario", "s.toml"];
        ListeningProgram::start(&place, &words).said_until_interrupted()
    };
    let open = said("0.0.0.0:0");
    assert_eq!(open.lines().count(), 1, "{open}");
    for words in ["anyone who reaches 0.0.0.0:", "127.0.0.1:9", "256 clients, 64 of a host"] {
        assert!(open.contains(words), "`{words}` is missing: {open}");
    }
    assert_eq!(said("127.0.0.1:0"), "", "no other host reaches it");
}

#[test]
fn who_takes_all_places_and_gets_no_answer_does_not_lock_others_out() {
    let place = Place::new("impair-places", &line("0"));
    let server = socket();
    let (program, to) = start(&place, server.local_addr().expect("an address"), &[]);
    // Four hosts with 64 clients each.
    let flood: Vec<UdpSocket> = (0..256)
        .map(|number| UdpSocket::bind(("127.0.0.".to_owned() + &(2 + number / 64).to_string(), 0)))
        .map(|socket| socket.expect("a socket"))
        .collect();
    let mut bytes = [0; 10];
    for socket in &flood {
        socket.send_to(&[], to).expect("sent");
        assert_eq!(server.recv(&mut bytes).expect("it crosses"), 0);
    }
    let client = socket();
    client.send_to(b"good", to).expect("sent");
    let (size, from) = server.recv_from(&mut bytes).expect("a newcomer is heard");
    assert_eq!(&bytes[..size], b"good");
    server.send_to(b"answer", from).expect("sent");
    assert_eq!(client.recv(&mut bytes).expect("an answer"), 6);
    let report = end(program);
    assert_eq!(report["clients"]["replaced"], 1, "{report}");
}
