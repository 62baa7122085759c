//! The loads.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use ontempo_foundation::{Bytes, Duration as Span, Rate, Time};
use ontempo_reservation::local::Request;
use ontempo_reservation::message::{Descriptor, FlowSpec, Sender, Session, Style, TrafficSpec};
use ontempo_transport::live::{Caller, Connection, Listener, Options};
use ontempo_transport::simulated::{Network as SimulatedNetwork, Path};
use ontempo_transport::{
    Configuration, Endpoint, Event, FlowConfig, Identity, Outgoing, Token, Trust,
};

use crate::measure::{Watch, Watching, holds, trim};
use crate::reserved::overload::{Agreed, median};
use crate::reserved::{Network, can_reserve, traffic};

pub(crate) const CONNECTIONS: usize = 4_000;
const REPLACED_A_SECOND: f64 = 20.0;
const RESERVATIONS: u16 = 500;
const CHANGES_A_SECOND: u32 = 50;
const OUTAGES: u32 = 1_000;
/// Of the flow at its agreed rate, over each IP version.
const AGREED: Duration = Duration::from_secs(600);
/// Of virtual time.
const CHURN: Span = Span::from_secs(3600);
const TOKEN: &str = "a token for the soak";

fn token() -> Token {
    Token::new(TOKEN.as_bytes()).expect("it is short")
}

/// This program in another role.
fn role(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    let output = child.stdout.as_mut().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("a line");
    line.trim().to_owned()
}

/// What is left of a child's output, after it has been ended.
fn stop(mut child: Child) -> String {
    drop(child.stdin.take());
    let mut rest = String::new();
    if let Some(mut output) = child.stdout.take() {
        let _ = output.read_to_string(&mut rest);
    }
    let _ = child.wait();
    rest.trim().to_owned()
}

/// Ends this process once its standard input ends: when the soak does.
fn until_input_ends(at_end: impl FnOnce() + Send + 'static) {
    spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        at_end();
        std::process::exit(0);
    });
}

pub(crate) fn connections(span: Duration, count: usize) -> Vec<Watch> {
    let count = count.to_string();
    let mut server = role(&["serve-connections"]).spawn().expect("the server starts");
    let said = first_line(&mut server);
    let (address, fingerprint) = said.split_once(' ').expect("an address and a fingerprint");
    let client =
        role(&["keep-connections", address, fingerprint, &count]).spawn().expect("it starts");
    let served = Watching::start("connections, server", server.id());
    let kept = Watching::start("connections, client", client.id());
    sleep(span);
    let (kept, done) = (kept.end(String::new()), stop(client));
    let served = served.end(String::new());
    stop(server);
    vec![served.did(done), kept]
}

/// All connections are of one host, and more than fit into the memory of the defaults.
fn many() -> Options {
    let mut options = Options::default();
    options.configuration.connections_of_host = options.configuration.connections;
    options.configuration.receive_memory = Bytes::new(320 << 20);
    options
}

/// Says now and then what this process holds; at the end also what is left once free memory was
/// given back.
fn say_what_is_held() {
    let begun = Instant::now();
    spawn(move || {
        loop {
            sleep(Duration::from_secs(15));
            eprintln!("listener, {:.0} s: {}", begun.elapsed().as_secs_f64(), holds());
        }
    });
    until_input_ends(|| {
        eprintln!("listener, at the end: {}", holds());
        trim();
        eprintln!("listener, trimmed: {}", holds());
    });
}

/// Takes whatever comes, and reads it.
pub(crate) fn serve_connections() {
    let identity = Identity::self_signed(&["localhost"]).expect("a certificate");
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = Listener::bind(at, &identity, token(), &many()).expect("a socket");
    println!("{} {}", listener.local(), identity.fingerprint());
    say_what_is_held();
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        let until = Instant::now() + Duration::from_millis(100);
        while let Some(accepted) =
            listener.accept_within(until.saturating_duration_since(Instant::now()))
        {
            if let ontempo_transport::live::Accepted::Connection(connection) = accepted {
                connections.push(connection);
            }
        }
        connections.retain(|connection| {
            while let Some(Ok(flow)) = connection.accept_flow_within(Duration::ZERO) {
                while let Some(Ok(Some(_))) = flow.receive_within(Duration::from_millis(1)) {}
            }
            connection.is_closed().is_none()
        });
    }
}

/// Keeps connections open, and replaces the oldest ones.
pub(crate) fn keep_connections(address: &str, fingerprint: &str, count: usize) {
    let remote: SocketAddr = address.parse().expect("an address");
    let trust = Trust::Fingerprint(fingerprint.parse().expect("a fingerprint"));
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let caller = Caller::bind(at, &Options::default()).expect("a socket");
    let counted = std::sync::Arc::new([const { std::sync::atomic::AtomicU64::new(0) }; 3]);
    let [opened, failed, open] = [0, 1, 2];
    let shown = counted.clone();
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    until_input_ends(move || {
        let [opened, failed, open] = [0, 1, 2].map(|at: usize| shown[at].load(relaxed));
        println!("{opened} opened, {failed} failed, {open} open at the end");
    });
    let mut connections = VecDeque::new();
    loop {
        if connections.len() >= count {
            // As old as those of the full number become.
            sleep(Duration::from_secs_f64(CONNECTIONS as f64 / count as f64 / REPLACED_A_SECOND));
            connections.pop_front();
        }
        match caller.connect(remote, "localhost", &trust, token()) {
            Ok(connection) => {
                counted[opened].fetch_add(1, relaxed);
                if let Ok(flow) = connection.open_flow(FlowConfig::default()) {
                    let _ = flow.send(bytes::Bytes::from_static(&[7; 1_000]));
                    flow.finish();
                }
                connections.push_back(connection);
            }
            Err(_) => {
                counted[failed].fetch_add(1, relaxed);
                sleep(Duration::from_millis(100));
            }
        }
        counted[open].store(connections.len() as u64, relaxed);
    }
}

pub(crate) fn virtual_churn(span: Duration) -> Vec<Watch> {
    let churning = role(&["churn"]).spawn().expect("it starts");
    let watching = Watching::start("churn, virtual time", churning.id());
    let begun = Instant::now();
    let mut churning = churning;
    let mut done = String::new();
    let mut output = BufReader::new(churning.stdout.take().expect("a pipe"));
    while begun.elapsed() < span && output.read_line(&mut done).is_ok_and(|read| read > 0) {}
    let watch = watching.end(done.lines().last().unwrap_or("nothing").to_owned());
    let _ = churning.kill();
    let _ = churning.wait();
    vec![watch]
}

/// A client connects, sends and closes, ten times a second of virtual time, for an hour of it.
pub(crate) fn churn() {
    let identity = Identity::self_signed(&["server"]).expect("a certificate");
    let trust = Trust::Fingerprint(identity.fingerprint());
    let config = Configuration::default();
    let address = |host| SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 4433));
    let client = Endpoint::new(config.clone(), [1; 32]);
    let mut server = Endpoint::new(config, [2; 32]);
    server.listen(&identity, token()).expect("the identity can be used");
    let mut network = SimulatedNetwork::new(1);
    let path = Path::clean(Rate::from_bits_per_sec(100_000_000), Span::from_millis(10));
    let (client, server) = (network.add(client, address(1)), network.add(server, address(2)));
    network.join(client, server, &path, &path);
    let (mut opened, mut closed, mut at) = (0_u64, 0_u64, Time::ZERO);
    while at < Time::ZERO + CHURN {
        at += Span::from_millis(100);
        let now = network.now();
        let connecting =
            network.endpoint(client).connect(now, address(2), "server", &trust, token());
        connecting.expect("the handshake can be started");
        network.flush(client);
        while network.step(at).is_some() {
            for node in [client, server] {
                while let Some(event) = network.endpoint(node).poll_event() {
                    let now = network.now();
                    match event {
                        Event::Connected { connection, .. } if node == client => {
                            opened += 1;
                            let Some(connection) = network.endpoint(client).connection(connection)
                            else {
                                continue;
                            };
                            let flow = connection.open_flow(FlowConfig::default()).expect("open");
                            let unit =
                                Outgoing { data: vec![7; 3_000].into(), ..Outgoing::default() };
                            connection.send(now, flow, unit).expect("it is taken");
                            connection.finish_flow(flow);
                        }
                        Event::FlowOpened { connection, flow, .. }
                        | Event::Readable { connection, flow }
                            if node == server =>
                        {
                            let known = network.endpoint(server).connection(connection);
                            if let Some(connection) = known {
                                while connection.receive(flow).is_some() {}
                            }
                        }
                        Event::FlowSettled { connection, .. } if node == client => {
                            if let Some(connection) =
                                network.endpoint(client).connection(connection)
                            {
                                connection.close(now, "");
                            }
                        }
                        Event::Closed { .. } if node == server => closed += 1,
                        _ => {}
                    }
                    network.flush(node);
                }
            }
        }
        if opened.is_multiple_of(600) {
            let seconds = at.since(Time::ZERO).as_secs_f64();
            println!("{seconds:.0} s of virtual time, {opened} connections, {closed} closed");
        }
    }
    println!("{:.0} s of virtual time, {opened} connections, {closed} closed", CHURN.as_secs_f64());
    let _ = std::io::stdout().flush();
}

pub(crate) fn reservations(span: Duration) -> Vec<Watch> {
    if !can_reserve() {
        return Vec::new();
    }
    let mut network = Network::new("soak", false);
    for node in crate::reserved::NODES {
        network.configure(node, "buffer = \"100 MB\"");
        network.start(node);
    }
    let watching: Vec<Watching> = crate::reserved::NODES
        .iter()
        .map(|node| Watching::start(&format!("rsvpd at {node}"), network.process(node)))
        .collect();
    let begun = Instant::now();
    let session = |number: u16| Session { port: 5_000 + number, ..network.session() };
    let sender = |number: u16| Sender { port: 4_000 + number, ..network.sender() };
    let flow = |number: u16, bytes: f32| {
        let spec = TrafficSpec { rate: bytes, burst: 1_500.0, ..traffic(1) };
        vec![Descriptor { flowspec: FlowSpec::ControlledLoad(spec), filters: vec![sender(number)] }]
    };
    let (mut near, mut far) = (network.client("h1"), network.client("h2"));
    for number in 0..RESERVATIONS {
        let traffic = TrafficSpec { rate: 300.0, burst: 1_500.0, ..traffic(1) };
        let (session, sender) = (session(number), sender(number));
        near.ask(Request::Send { session, sender, traffic }).expect("it is announced");
    }
    let (mut changes, mut refused) = (0_u32, 0_u32);
    while begun.elapsed() < span {
        let number = (changes % u32::from(RESERVATIONS)) as u16;
        let rate = 150.0 + f32::from((changes / u32::from(RESERVATIONS)) as u16 % 2) * 100.0;
        let flows = flow(number, rate);
        let (session, style) = (session(number), Style::FixedFilter);
        let asked = far.ask(Request::Reserve { session, style, flows, confirm: false });
        refused += u32::from(asked.is_err());
        changes += 1;
        // What the daemons report is taken, as an application would.
        for client in [&mut near, &mut far] {
            while let Ok(Some(_)) = client.event(Some(Duration::ZERO)) {}
        }
        let next = Duration::from_secs(1) * changes / CHANGES_A_SECOND;
        sleep(next.saturating_sub(begun.elapsed()));
    }
    let classes = network.status("r1").census.enforced;
    let done = format!("{changes} changes, {refused} refused, {classes} enforced at r1");
    let watches = watching.into_iter().map(|one| one.end(done.clone())).collect();
    drop((near, far));
    network.end();
    watches
}

/// A flow at exactly its agreed rate over IPv4, then over IPv6, beside twice what the link carries.
pub(crate) fn agreed(span: Duration) -> Vec<Watch> {
    if !can_reserve() {
        println!("agreed: skipped, this needs root, ip and tc");
        return Vec::new();
    }
    for v6 in [false, true] {
        let network = Network::running(if v6 { "agreedsix" } else { "agreedfour" }, v6);
        let clients = network.agreed();
        let flood = network.flood("h1", "h2", 3000);
        let Agreed { delays, sent, stalled } = network.send_agreed(AGREED.min(span / 2));
        drop(flood);
        let minutes: Vec<f64> = delays.chunks(60 * 80).map(median).collect();
        let most = delays.iter().copied().fold(0.0, f64::max);
        println!(
            "agreed, IPv6 {v6}: {} of {sent} packets came; median delay of each minute {minutes:.2?} ms, at \
             most {most:.1}; the sender stood still for {:.1} s",
            delays.len(),
            stalled.as_secs_f64()
        );
        let (first, last) = (minutes.first().copied(), minutes.last().copied());
        assert_eq!(delays.len(), sent, "a packet of the reserved flow was lost");
        assert!(last.zip(first).is_some_and(|(last, first)| last < first + 40.0), "a queue grew");
        drop(clients);
        network.end();
    }
    Vec::new()
}

pub(crate) fn outages(span: Duration) -> Vec<Watch> {
    if !can_reserve() {
        return Vec::new();
    }
    let network = Network::new("outages", false);
    let words = ["receive", "--listen", "10.0.3.2:4433", "--to", "-", "--token", TOKEN];
    let mut receive = network.ontempo("h2", &words);
    let mut receive =
        receive.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut output = receive.stdout.take().expect("a pipe");
    let received = spawn(move || {
        let (mut bytes, mut piece) = (0_u64, vec![0; 1 << 16]);
        while let Ok(read) = output.read(&mut piece)
            && read > 0
        {
            bytes += read as u64;
        }
        bytes
    });
    sleep(Duration::from_secs(1));
    let words = [
        "send",
        "--from",
        "-",
        "--to",
        "10.0.3.2:4433",
        "--insecure",
        "--token",
        TOKEN,
        "--reliability",
        "full",
        "--json",
    ];
    let mut send = network.ontempo("h1", &words);
    let mut send = send.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    let sending = Watching::start("send, through outages", send.id());
    let receiving = Watching::start("receive, through outages", receive.id());
    let mut input = send.stdin.take().expect("a pipe");
    let writing = spawn(move || {
        let (begun, mut bytes) = (Instant::now(), 0_u64);
        while begun.elapsed() < span && input.write_all(&[7; 2_000]).is_ok() {
            bytes += 2_000;
            sleep(Duration::from_millis(20));
        }
        bytes
    });
    // The connection stands before the first outage.
    sleep(Duration::from_secs(2));
    let (begun, mut count) = (Instant::now(), 0);
    let period = span.saturating_sub(Duration::from_secs(4)) / OUTAGES;
    while count < OUTAGES {
        // Every second time the routes go, too; otherwise packets vanish on the way.
        let (cut, mend) = match count % 2 {
            0 => (
                "ip route add blackhole 10.0.3.0/24 metric 1",
                "ip route del blackhole 10.0.3.0/24 metric 1",
            ),
            _ => {
                ("ip link set l3 down", "ip link set l3 up; ip route replace default via 10.0.3.1")
            }
        };
        let node = if count % 2 == 0 { "r1" } else { "h2" };
        network.exec(node, cut);
        sleep(period / 3);
        network.exec(node, mend);
        count += 1;
        sleep((period * count).saturating_sub(begun.elapsed()));
    }
    let sent = writing.join().expect("it writes");
    let ended = send.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    let sending = sending.end(format!("{count} outages, {sent} bytes in, {ended}"));
    let receiving = receiving.end(String::new());
    let _ = receive.kill();
    let _ = receive.wait();
    let got = received.join().expect("it reads");
    vec![sending, receiving.did(format!("{got} bytes out"))]
}
