//! What a sender with the token can make `ontempo receive` hold, anybody `ontempo impair`
//! and `ontempo probe --listen`, and another local user `ontempo export` and `ontempo monitor`.

mod common;
mod prometheus;

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{Killed, ListeningProgram, Place, peak_memory};
use ontempo_foundation::Time;
use ontempo_media::{Kind, Part, Span, Unit};
use ontempo_probe::wire;
use ontempo_session::latency::GRACE;
use ontempo_session::message::{Label, media};
use ontempo_testing::hostile::Dice;
use ontempo_transport::live::{Connection, Error, Message, Options, connect};
use ontempo_transport::{FlowConfig, Reliability, Token, Trust};
use serde_json::json;

/// What a process may hold, whatever comes from the network, bytes.
const MAX_MEMORY: u64 = 300 << 20;

/// A connection of a sender, and its label.
fn sender(to: &str, session: u128) -> Result<(Connection, String), Error> {
    let options = Options { configuration: ontempo_session::configuration(), ..Options::default() };
    let token = Token::new(b"open").expect("short");
    let to = to.parse().expect("an address");
    let connection = connect(to, "localhost", &Trust::Insecure, token, &options)?;
    let latency = ontempo_foundation::Duration::from_secs(60);
    Ok((connection, Label::of(session, latency, GRACE).to_string()))
}

fn unit(datagram: u64, length: u16, spans: Vec<Span>) -> Unit {
    let data = vec![7; spans.iter().map(|span| usize::from(span.length)).sum()];
    let parts = vec![Part { datagram, length, arrived: Time::ZERO, spans, stuffing: vec![] }];
    let (kind, dependencies) = (Kind::Datagram, Vec::new());
    Unit {
        id: datagram,
        kind,
        media_time: None,
        slack: None,
        continues: None,
        dependencies,
        parts,
        data,
    }
}

/// Sends units of datagrams from 1 on until the receiver takes no more, or for twenty seconds.
fn attack(place: &Place, to: &str, reliability: Reliability, of: impl Fn(u64) -> Unit) -> u64 {
    let words = ["receive", "--listen", "127.0.0.1:0", "--to", to, "--token", "open"];
    let receiver = ListeningProgram::start(place, &words);
    let (connection, label) = sender(&receiver.local, 1).expect("connected");
    let flow = connection
        .open_flow(FlowConfig { reliability, label, ..FlowConfig::default() })
        .expect("a flow");
    let begun = Instant::now();
    let mut bytes = 0;
    for datagram in 1.. {
        let data = media(&of(datagram));
        bytes += data.len();
        let sent = flow.send_within(Message::from(data), Duration::from_secs(2));
        if sent.is_err() || bytes > 30_000_000 || begun.elapsed() > Duration::from_secs(20) {
            break;
        }
    }
    sleep(Duration::from_secs(1));
    peak_memory(receiver.child.0.id())
}

#[test]
fn units_of_single_bytes_of_datagrams_that_are_never_complete() {
    let place = Place::new("memory-shreds", "");
    let sink = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = format!("udp://{}", sink.local_addr().expect("an address"));
    let span = |place: u16| Span { offset: 2 * place, length: 1 };
    let shreds = |datagram| unit(datagram, u16::MAX, (0..32_767).map(span).collect());
    let crumbs = |datagram| unit(datagram, 2, vec![Span { offset: 0, length: 1 }]);
    for to in [to.as_str(), "file"] {
        let peak = attack(&place, to, Reliability::Full, shreds);
        assert!(peak < MAX_MEMORY, "{peak} bytes held");
        let _ = fs::remove_file(place.path("file"));
        let peak = attack(&place, to, Reliability::Full, crumbs);
        assert!(peak < MAX_MEMORY, "{peak} bytes held");
        let _ = fs::remove_file(place.path("file"));
    }
}

#[test]
fn large_units_that_wait_for_a_time_that_never_comes() {
    let place = Place::new("memory-large", "");
    let sink = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = format!("udp://{}", sink.local_addr().expect("an address"));
    let large = |number: u64| {
        let spans = |_| vec![Span { offset: 0, length: 60_000 }];
        let part = |place| Part {
            datagram: number * 64 + place,
            length: 60_000,
            arrived: Time::from_nanos((number * 64 + place) * 1_000_000_000),
            spans: spans(place),
            stuffing: vec![],
        };
        let parts: Vec<Part> = (0..64).map(part).collect();
        Unit { parts, data: vec![7; 64 * 60_000], ..unit(number, 0, Vec::new()) }
    };
    let peak = attack(&place, &to, Reliability::Deadline, large);
    assert!(peak < MAX_MEMORY, "{peak} bytes held");
}

#[test]
fn many_connections_of_which_none_is_read() {
    let place = Place::new("memory-connections", "");
    let words = ["receive", "--listen", "127.0.0.1:0", "--to", "-", "--token", "open"];
    // Nobody reads its standard output: it reads no more from the network.
    let mut command = place.command(&words);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = common::Killed(command.spawn().expect("it starts"));
    let mut line = String::new();
    let mut err = std::io::BufReader::new(child.0.stderr.take().expect("its errors"));
    std::io::BufRead::read_line(&mut err, &mut line).expect("a line");
    let local = line.split([' ', ',']).nth(2).expect("an address").to_owned();
    let mut all = Vec::new();
    for session in 0..40 {
        let Ok((connection, label)) = sender(&local, session) else { break };
        for _ in 0..16 {
            let config = FlowConfig { label: label.clone(), ..FlowConfig::default() };
            let Ok(flow) = connection.open_flow(config) else { break };
            let data = media(&unit(0, 60_000, vec![Span { offset: 0, length: 60_000 }]));
            for _ in 0..200 {
                let one = Message::from(Bytes::clone(&data));
                if flow.send_within(one, Duration::from_millis(50)).is_err() {
                    break;
                }
            }
            all.push(flow);
        }
    }
    sleep(Duration::from_secs(2));
    let peak = peak_memory(child.0.id());
    assert!(peak < MAX_MEMORY, "{peak} bytes held");
}

/// `impair` with this bottleneck towards `server`, and where its clients reach it.
fn relay(place: &Place, server: &UdpSocket) -> (ListeningProgram, UdpSocket) {
    let server = server.local_addr().expect("an address").to_string();
    let words = ["impair", "--listen", ":0", "--to", &server, "--scenario", "s.toml"];
    let relay = ListeningProgram::start(place, &words);
    let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    client.connect(&relay.local).expect("connected");
    (relay, client)
}

fn line(rate: &str, delay: &str) -> String {
    format!(
        r#"duration = "1 s"
[topology]
kind = "dumbbell"
bottleneck = {{ rate = "{rate}", delay = "{delay}" }}
access = {{ rate = "100 Gbit/s", delay = "0 s" }}
[flows.one]
application = {{ kind = "ftp" }}
transport = {{ kind = "tcp" }}
"#
    )
}

#[test]
fn small_datagrams_in_the_places_of_large_ones() {
    let place = Place::new("memory-places", &line("100 Gbit/s", "1500 ms"));
    let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    server.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let (relay, client) = relay(&place, &server);
    let large = vec![7; 65_000];
    // Small ones take the places that large ones had, then large ones take others.
    for round in 0..8 {
        for number in 0..round * 900 {
            client.send(b"x").expect("sent");
            if number % 50 == 0 {
                sleep(Duration::from_micros(500));
            }
        }
        // 31 MiB, of the 36 that one client may have on the path.
        for _ in 0..500 {
            client.send(&large).expect("sent");
            sleep(Duration::from_micros(300));
        }
        client.send(b"the end").expect("sent");
        let mut bytes = [0; 10];
        while server.recv(&mut bytes).expect("the last one arrives") != 7 {}
    }
    let peak = peak_memory(relay.child.0.id());
    assert!(peak < MAX_MEMORY, "{peak} bytes held");
}

#[test]
fn a_flood_of_datagrams_without_payload_leaves_memory_and_room_for_others() {
    // Each client has a queue of its own, in which 285 of them leave in a second: what the relay may hold
    // is filled in a moment and stays full.
    let queue = "queue = { kind = \"fq-codel\", limit = \"1000000 packets\" }";
    let text = line("64 kbit/s", "1 ms")
        .replace("delay = \"1 ms\"", &format!("delay = \"1 ms\", {queue}"));
    let place = Place::new("memory-empty", &text);
    let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let (relay, flood) = relay(&place, &server);
    std::thread::spawn(move || {
        let mut bytes = [0; 10];
        while let Ok((size, from)) = server.recv_from(&mut bytes) {
            let _ = server.send_to(&bytes[..size], from);
        }
    });
    let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    client.connect(&relay.local).expect("connected");
    client.set_read_timeout(Some(Duration::from_millis(200))).expect("set");
    let begun = Instant::now();
    let answers = std::thread::scope(|scope| {
        scope.spawn(|| {
            while begun.elapsed() < Duration::from_secs(20) {
                for _ in 0..64 {
                    flood.send(&[]).expect("sent");
                }
                // Some 60,000 a second: the relay's socket has room for others.
                sleep(Duration::from_millis(1));
            }
        });
        sleep(Duration::from_secs(8));
        let (mut answers, mut asked) = (0, 0);
        while begun.elapsed() < Duration::from_secs(19) {
            client.send(b"good").expect("sent");
            asked += 1;
            answers += usize::from(client.recv(&mut [0; 10]).is_ok_and(|size| size == 4));
        }
        (answers, asked)
    });
    let (answers, asked) = answers;
    let peak = peak_memory(relay.child.0.id());
    common::interrupt(&relay.child.0);
    let (events, code) = relay.end();
    assert_eq!(code, Some(0));
    let report = events.last().expect("a summary");
    println!("{answers} of {asked} answered, {peak} bytes: {report}");
    assert!(
        report["forward"]["dropped"]["limit"].as_u64() > Some(0),
        "it was not filled: {report}"
    );
    assert!(peak < MAX_MEMORY, "{peak} bytes held");
    // The system drops those that find the relay's socket full.
    assert!(3 * answers > asked, "{answers} of {asked} answered beside the flood: {report}");
}

/// All sessions of `probe --listen`, from four hosts, whose senders say whatever a message can say.
#[test]
fn sixteen_senders_that_lie_to_a_probe() {
    let place = Place::new("memory-probe", "");
    let receiver = ListeningProgram::start(&place, &["probe", "--listen", "127.0.0.1:0"]);
    let to: SocketAddr = receiver.local.parse().expect("an address");
    let mut room = vec![0; 65_535];
    let mut begin = |session: u64| {
        let from = SocketAddr::from(([127, 0, 0, 2 + session as u8 / 4], 0));
        let socket = UdpSocket::bind(from).expect("a socket");
        socket.connect(to).expect("connected");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        let mut ask = |message: &wire::Message<'_>| {
            let mut bytes = Vec::new();
            wire::write(session, message, &mut bytes);
            socket.send(&bytes).expect("sent");
            let size = socket.recv(&mut room).expect("an answer");
            match wire::read(&room[..size]).expect("an answer").1 {
                wire::Message::Challenge { cookie, .. } => cookie,
                wire::Message::Accept { .. } => [0; 16],
                other => panic!("{other:?}"),
            }
        };
        let cookie = ask(&wire::Message::Hello { stamp: 0 });
        ask(&wire::Message::Start { stamp: 0, cookie, proof: [0; 16] });
        socket.set_nonblocking(true).expect("set");
        socket
    };
    let sockets: Vec<UdpSocket> = (0..16).map(&mut begin).collect();
    let mut dice = Dice::new(1, "lies");
    let payload = vec![7; 60_000];
    let begun = Instant::now();
    let (mut bytes, mut came) = (Vec::new(), 0_u64);
    while begun.elapsed() < Duration::from_secs(10) {
        for (session, socket) in sockets.iter().enumerate() {
            let number = dice.number(came);
            let payload = &payload[..[0, 10, 1_400, 60_000][dice.below(4) as usize]];
            let (step, stamp) = (dice.below(3) as u16, dice.any());
            let message = match dice.below(4) {
                0 => {
                    wire::Message::Data(wire::Data { step, number, base_rtt_us: 0, stamp, payload })
                }
                1 => wire::Message::RequestReport { step, round: number as u16 },
                _ => {
                    let (is_urgent, number) = (number.is_multiple_of(2), number as u32);
                    wire::Message::Load(wire::Load { is_urgent, number, stamp, payload })
                }
            };
            bytes.clear();
            wire::write(session as u64, &message, &mut bytes);
            // The system may have no room.
            let _ = socket.send(&bytes);
            while socket.recv(&mut room).is_ok() {
                came += 1;
            }
        }
    }
    let peak = peak_memory(receiver.child.0.id());
    println!("{came} reports, {peak} bytes");
    assert!(came > 100, "it answers: {came}");
    assert!(peak < MAX_MEMORY / 5, "{peak} bytes held");
}

/// A report of `process` with 1,024 sockets, their texts as long as may be and in need of escapes.
fn largest_report(process: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("its start is field 22");
    let (_, fields) = stat.rsplit_once(')').expect("a program's name");
    let started: u64 = fields.split_whitespace().nth(19).expect("22").parse().expect("ticks");
    let text = "\u{1}\"\\é".repeat(51);
    let address = "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535";
    let parameters: Vec<_> = (1..=8)
        .map(|parameter| {
            json!({ "parameter": parameter, "asked": 80_000, "agreed": 100_000, "coerced": true, "delivered": 320_000,
                "violated": true, "begun": 2, "changed_ms": 1 })
        })
        .collect();
    let violations: Vec<_> = (1..=32)
        .map(|number| {
            json!({ "number": number, "parameter": 1 + number % 8, "begins": number % 2 == 1,
                "asked": 100_000, "delivered": 320_000 })
        })
        .collect();
    let socket = |id: u32| {
        json!({ "id": id, "name": text, "role": "receiver", "carrier": "udp", "local": address,
            "remote": address, "dscp": 34, "reservation": "controlled-load", "reason": text,
            "opened_ms": 0, "sent_messages": 40, "sent_bytes": 51_200, "messages": 35,
            "bytes": 44_800, "lost_messages": 5, "throughput": 614_400.0, "loss": 12.5,
            "delay": 0.0125, "delay_error": 0.0005, "jitter": 0.001, "parameters": parameters,
            "violations": violations })
    };
    let sockets: Vec<_> = (1..=1_024).map(socket).collect();
    json!({ "process": process, "started": started, "sockets": sockets }).to_string()
}

/// A quarter of what all users together may publish: the largest reports of one user.
#[test]
fn the_largest_reports_of_a_user() {
    let place = Place::new("memory-reports", "");
    fs::create_dir(place.path("reports")).expect("a folder");
    let sleeping = || {
        let mut command = std::process::Command::new("sleep");
        Killed(command.arg("600").spawn().expect("it starts"))
    };
    let processes = [sleeping(), sleeping()];
    for process in &processes {
        let id = process.0.id();
        let report = largest_report(id);
        assert!(report.len() < 8 << 20, "{} bytes are refused", report.len());
        fs::write(place.path(&format!("reports/{id}.json")), report).expect("written");
    }
    let words = ["export", "--prometheus", "127.0.0.1:0", "--folder", "reports"];
    let mut exporting = Killed(place.spawn(&words));
    let address = prometheus::address_of(&mut exporting);
    for kind in ["text/plain", "application/openmetrics-text"] {
        let page = prometheus::page(&address, kind);
        assert!(page.contains("ontempo_qos"), "{}", &page[..page.len().min(500)]);
    }
    let exporter = peak_memory(exporting.0.id());
    let words = ["monitor", "--json", "--folder", "reports"];
    let mut monitoring = Killed(place.spawn(&words));
    let mut out = std::io::BufReader::new(monitoring.0.stdout.take().expect("its output"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).expect("a line");
    let sockets = line.matches("\"dscp\":34").count();
    let monitor = peak_memory(monitoring.0.id());
    println!("export {exporter} bytes, monitor {monitor} bytes of {sockets} sockets");
    assert_eq!(sockets, 2_048, "not all are read: {}", &line[..line.len().min(500)]);
    assert!(exporter < MAX_MEMORY / 4, "{exporter} bytes held");
    assert!(monitor < MAX_MEMORY / 4, "{monitor} bytes held");
}
