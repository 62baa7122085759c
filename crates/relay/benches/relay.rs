//! How many viewers does a relay bear?
//!
//! `make bench-relay`, or `cargo bench -p ontempo-relay --bench relay -- SECONDS VIEWERS ...`. A relay, in a
//! process of its own, gets a stream of 25 frames of 5,000 bytes a second, 1 Mbit/s, and gives it to
//! viewers that are all in this process, over loopback, each over a connection of its own that reports
//! once a second. Measured is what the relay's process uses of the processor and of memory, what share of
//! the frames arrived, and how late. The viewers need as much of another core.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command as Process, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::sleep;
use std::time::{Duration as Wall, Instant};

use bytes::{Bytes, BytesMut};
use ontempo_foundation::{Duration, Time};
use ontempo_media::Kind;
use ontempo_relay::{Relay, RelayDriver, RelayOptions, configuration};
use ontempo_session::latency::GRACE;
use ontempo_session::message::{Label, REPORTS, Report};
use ontempo_session::with_name;
use ontempo_transport::{
    Configuration, CongestionName, ConnectionId, Delivery, DeliveryOrder, Endpoint, Event,
    FlowConfig, FlowId, Identity, Outgoing, Poll, Reliability, Source, Token, Trust,
};
use ontempo_udp::{
    Clock, Datagram, Driver, DriverOptions, Next, Protocol, Socket, SocketOptions, Transmit,
};

const FRAME: Duration = Duration::from_millis(40);
const FRAME_BYTES: usize = 5_000;
const KEY_EVERY: u64 = 25;
const LATENCY: Duration = Duration::from_millis(500);
const REPORT: Duration = Duration::from_secs(1);

/// Connections begun at a time: all at once would overflow the sockets' buffers.
const AT_ONCE: usize = 20;

fn options(viewers: usize) -> RelayOptions {
    let memory = ontempo_foundation::Bytes::new(256 << 20);
    RelayOptions {
        viewers,
        viewers_of_host: viewers,
        memory,
        has_viewers_token: true,
        ..RelayOptions::default()
    }
}

fn token(text: &[u8]) -> Token {
    Token::new(text).expect("short")
}

/// The process of the relay: prints its port, ends with its standard input.
fn serve(viewers: usize) {
    let identity = Identity::self_signed(&["relay"]).expect("an identity");
    let options = options(viewers);
    let congestion = CongestionName::FOR_MEDIA.over_udp(&[]).expect("the default");
    let configuration = Configuration { congestion, half_open: 512, ..configuration(&options) };
    let mut endpoint = Endpoint::new(configuration, [1; 32]);
    endpoint.listen(&identity, token(b"publish")).expect("it listens");
    endpoint.admit(token(b"view"));
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = Socket::bind(at, SocketOptions::default()).expect("a socket");
    let port = socket.local_address().expect("an address").port();
    let protocol = RelayDriver::new(endpoint, Relay::new(options, 1));
    let driver = Driver::spawn(socket, protocol, Clock::new(), DriverOptions::default());
    let driver = driver.expect("a thread");
    println!("{port} {}", identity.fingerprint());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(driver);
}

/// A viewer: its flow of reports, and what has come.
#[derive(Default)]
struct Viewer {
    reports: Option<FlowId>,
    report_due: Time,
    frames: u64,
}

/// What has come to all viewers.
#[derive(Clone, Debug, Default)]
struct Figures {
    open: usize,
    closed: usize,
    sent: u64,
    frames: u64,
    /// Times from the source to a viewer, ms.
    delays: Vec<f32>,
}

/// The source and all viewers, over one socket.
struct Clients {
    endpoint: Endpoint,
    relay: SocketAddr,
    trust: Trust,
    wanted: usize,
    under_way: usize,
    source: Option<(ConnectionId, Option<FlowId>)>,
    viewers: BTreeMap<ConnectionId, Viewer>,
    next_frame: Time,
    wake: Time,
    figures: Figures,
}

/// What is asked of it: the figures since the last time.
struct Ask(SyncSender<Figures>);

impl Clients {
    fn connect(&mut self, now: Time, secret: &[u8]) -> ConnectionId {
        let trust = self.trust.clone();
        let begun = self.endpoint.connect(now, self.relay, "relay", &trust, token(secret));
        begun.expect("a connection can be begun")
    }

    fn work(&mut self, now: Time) {
        while let Some(event) = self.endpoint.poll_event() {
            self.on_event(now, event);
        }
        if self.source.is_none() {
            self.source = Some((self.connect(now, b"publish"), None));
        }
        while self.under_way < AT_ONCE && self.viewers.len() < self.wanted {
            let id = self.connect(now, b"view");
            self.viewers.insert(id, Viewer::default());
            self.under_way += 1;
        }
        if now >= self.next_frame {
            self.next_frame = self.next_frame.max(now - FRAME) + FRAME;
            self.send(now);
        }
    }

    fn send(&mut self, now: Time) {
        let Some((id, Some(flow))) = self.source else { return };
        let number = self.figures.sent;
        let is_key = number.is_multiple_of(KEY_EVERY);
        let mut data = now.as_nanos().to_be_bytes().to_vec();
        data.resize(FRAME_BYTES, number as u8);
        let outgoing = Outgoing {
            data: data.into(),
            deadline: Some(now + LATENCY),
            priority: if is_key { Kind::Key } else { Kind::Frame }.priority(),
            depends_on: if is_key { vec![] } else { vec![number - number % KEY_EVERY] },
            continues: None,
        };
        let connection = self.endpoint.connection(id).expect("the source is connected");
        connection.send(now, flow, outgoing).expect("there is room");
        self.figures.sent += 1;
    }

    fn on_event(&mut self, now: Time, event: Event) {
        match event {
            Event::Connected { connection: id, .. } => {
                let is_source = self.source.is_some_and(|(source, _)| source == id);
                let label = Label { session: 7, latency: LATENCY, grace: GRACE, before: 0 };
                let label = if is_source { with_name(label, None) } else { REPORTS.to_owned() };
                let (order, reliability) = (DeliveryOrder::PartialOrder, Reliability::Deadline);
                let config = match is_source {
                    true => FlowConfig { label, order, reliability },
                    false => FlowConfig { label, ..FlowConfig::default() },
                };
                let opened = self.endpoint.connection(id).map(|open| open.open_flow(config));
                let flow = opened.and_then(Result::ok);
                if is_source {
                    self.source = Some((id, flow));
                } else if let Some(viewer) = self.viewers.get_mut(&id) {
                    viewer.reports = flow;
                    self.under_way -= 1;
                    self.figures.open += 1;
                }
            }
            Event::Readable { connection, flow } => self.read(now, connection, flow),
            Event::Closed { connection, closed } => {
                if self.figures.closed == 0 {
                    println!("closed: {closed}");
                }
                self.figures.closed += 1;
                let viewer = self.viewers.get(&connection);
                self.under_way -=
                    usize::from(viewer.is_some_and(|viewer| viewer.reports.is_none()));
            }
            _ => {}
        }
    }

    fn read(&mut self, now: Time, id: ConnectionId, flow: FlowId) {
        let Some(connection) = self.endpoint.connection(id) else { return };
        let viewer = self.viewers.get_mut(&id);
        let Some(viewer) = viewer else {
            // The reports of the relay to the source.
            while connection.receive(flow).is_some() {}
            return;
        };
        while let Some(delivery) = connection.receive(flow) {
            let Delivery::Unit(unit) = delivery else { continue };
            viewer.frames += 1;
            self.figures.frames += 1;
            let at = unit.data.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
            let delay = now.since(Time::from_nanos(at)).as_secs_f64() * 1e3;
            self.figures.delays.push(delay as f32);
        }
        if let Some(reports) = viewer.reports.filter(|_| now >= viewer.report_due) {
            viewer.report_due = now + REPORT;
            let (units, whole_datagrams) = (viewer.frames, viewer.frames);
            let report = Report { units, whole_datagrams, ..Report::default() };
            let data: Bytes = serde_json::to_vec(&report).expect("JSON").into();
            let _ = connection.send(now, reports, Outgoing { data, ..Outgoing::default() });
        }
    }
}

impl Protocol for Clients {
    type Command = Ask;

    fn handle(&mut self, now: Time, datagram: Datagram<'_>) {
        let data = BytesMut::from(datagram.data);
        self.endpoint.handle(now, Source::from(&datagram), data);
    }

    fn handle_command(&mut self, _: Time, Ask(reply): Ask) {
        let Figures { open, closed, sent, .. } = self.figures;
        let after = Figures { open, closed, sent, ..Figures::default() };
        let _ = reply.send(std::mem::replace(&mut self.figures, after));
    }

    fn handle_timeout(&mut self, now: Time) {
        self.wake = Time::NEVER;
        self.endpoint.handle_timeout(now);
        self.work(now);
    }

    fn next_timeout(&self) -> Time {
        self.wake.min(self.next_frame)
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next {
        self.work(now);
        let poll = self.endpoint.poll_transmit(now, buffer);
        self.wake = Time::NEVER;
        match poll {
            Poll::Transmit(of) => {
                buffer.truncate(of.size);
                Next::Transmit(Transmit::from(&of))
            }
            Poll::WaitUntil(until) => {
                self.wake = until;
                Next::WaitUntil(until)
            }
            Poll::Idle => Next::Idle,
        }
    }
}

/// Seconds of the processor that a process has used, and its memory in MB.
fn used(child: &Child) -> (f64, f64) {
    let read = |what: &str| {
        fs::read_to_string(format!("/proc/{}/{what}", child.id())).expect("the relay runs")
    };
    let stat = read("stat");
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // utime and stime: proc_pid_stat(5), fields 14 and 15; the first here is field 3. Linux counts
    // them in hundredths of a second on all machines of today.
    let field = |place: usize| fields[place].parse::<f64>().expect("a number") / 100.0;
    let status = read("status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its memory");
    let kilobytes: f64 = line.split_whitespace().nth(1).expect("kB").parse().expect("a number");
    (field(11) + field(12), kilobytes / 1e3)
}

/// The source and the viewers of the relay at this port, on a thread.
fn clients(viewers: usize, port: u16, trust: Trust) -> Driver<Clients> {
    let (places, half_open) = (viewers + 2, viewers + 2);
    let configuration =
        Configuration { connections: places, half_open, ..ontempo_session::configuration() };
    let clients = Clients {
        endpoint: Endpoint::new(configuration, [2; 32]),
        relay: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        trust,
        wanted: viewers,
        under_way: 0,
        source: None,
        viewers: BTreeMap::new(),
        next_frame: Time::ZERO,
        wake: Time::NEVER,
        figures: Figures::default(),
    };
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let buffer = Some(ontempo_foundation::Bytes::new(4 << 20));
    let options =
        SocketOptions { receive_buffer: buffer, send_buffer: buffer, ..SocketOptions::default() };
    let socket = Socket::bind(at, options).expect("a socket");
    let driver = Driver::spawn(socket, clients, Clock::new(), DriverOptions::default());
    driver.expect("a thread")
}

fn measure(viewers: usize, span: Wall) {
    let mut relay = Process::new(std::env::current_exe().expect("this program"));
    relay.args(["relay", &viewers.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut relay = relay.spawn().expect("the relay starts");
    let mut line = String::new();
    let mut out = BufReader::new(relay.stdout.take().expect("it is piped"));
    out.read_line(&mut line).expect("its port");
    let (port, fingerprint) = line.trim().split_once(' ').expect("port and fingerprint");
    let port: u16 = port.parse().expect("a port");
    let trust = Trust::Fingerprint(fingerprint.parse().expect("a fingerprint"));
    let driver = clients(viewers, port, trust);
    let ask = || {
        let (reply, answer) = sync_channel(1);
        assert!(driver.command(Ask(reply)).is_ok(), "the clients run");
        answer.recv().expect("they answer")
    };
    let begun = Instant::now();
    while ask().open < viewers && begun.elapsed() < Wall::from_secs(120) {
        sleep(Wall::from_millis(100));
    }
    // A key frame for all, and slow start.
    sleep(Wall::from_secs(3));
    let (first, (before, _), begun) = (ask(), used(&relay), Instant::now());
    sleep(span);
    let (last, (after, memory), took) = (ask(), used(&relay), begun.elapsed().as_secs_f64());
    let frames = (last.sent - first.sent) * last.open as u64;
    let mut delays = last.delays;
    delays.sort_by(f32::total_cmp);
    let at = |share: f64| delays.get((delays.len() as f64 * share) as usize).copied();
    let core = (after - before) / took;
    println!(
        "{:>8} {:>9.1} % {:>8.1} % {:>9.3} {:>9.0} {:>9.1} MB {:>8.1} ms {:>8.1} ms {:>7}",
        last.open,
        core * 100.0,
        last.frames as f64 / frames.max(1) as f64 * 100.0,
        core / last.open.max(1) as f64 * 1e3,
        last.open as f64 / core,
        memory,
        at(0.5).unwrap_or(f32::NAN),
        at(0.99).unwrap_or(f32::NAN),
        last.closed,
    );
    drop(relay.stdin.take());
    let _ = relay.wait();
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [what, viewers] = &words[..]
        && what == "relay"
    {
        return serve(viewers.parse().expect("a number"));
    }
    let numbers: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let seconds = numbers.first().copied().unwrap_or(10).max(1);
    let viewers =
        numbers.get(1..).filter(|rest| !rest.is_empty()).unwrap_or(&[50, 200, 500, 1_000]);
    println!("1 Mbit/s to each viewer for {seconds} s; processor and memory of the relay alone");
    println!(
        "{:>8} {:>11} {:>10} {:>9} {:>9} {:>12} {:>11} {:>11} {:>7}",
        "viewers",
        "of a core",
        "arrived",
        "ms/s each",
        "a core",
        "memory",
        "delay",
        "99 %",
        "closed"
    );
    for viewers in viewers {
        measure(*viewers, Wall::from_secs(seconds as u64));
    }
}
