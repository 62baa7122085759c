//! A network of namespaces in which every node runs `ontempo rsvpd`: a host, two routers with two
//! links between them, a host.
//!
//! ```text
//! h1 --- r1 === r2 --- h2      10 Mbit/s, but 1.5 Mbit/s between the routers
//! ```

// Each test program uses a part of this.
#![allow(dead_code)]

pub(crate) mod overload;

use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ontempo_reservation::local::{Answer, Client, Notice, Request, Status};
use ontempo_reservation::message::{Descriptor, FlowSpec, Sender, Session, Style, TrafficSpec};
use ontempo_testing::{require_programs, require_root};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::common::{Place, wait_until};

pub(crate) const NODES: [&str; 4] = ["h1", "r1", "r2", "h2"];
/// Ends of links; the second between the routers is the one that is not used at first.
const LINKS: [(&str, &str); 4] = [("h1", "r1"), ("r1", "r2"), ("r1", "r2"), ("r2", "h2")];
/// What the routers' link takes from each to the other.
pub(crate) const BOTTLENECK: &str = "l1";
pub(crate) const SPARE: &str = "l2";
const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Network {
    pub(crate) place: Place,
    daemons: Vec<(&'static str, Child)>,
    prefix: String,
    v6: bool,
}

/// True if this process may create namespaces with HTB; otherwise the test is recorded as skipped.
pub(crate) fn can_reserve() -> bool {
    require_root() && require_programs(&["ip", "tc"])
}

/// Runs `ip` or `tc` with these words.
#[track_caller]
pub(crate) fn run(program: &str, words: &[&str]) -> String {
    let done = Command::new(program).args(words).output().expect("iproute2 is there");
    let printed = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {}: {printed}", words.join(" "));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

impl Network {
    /// A network for `test`, without daemons.
    pub(crate) fn new(test: &str, v6: bool) -> Self {
        let place = Place::new(test, "");
        let prefix = format!("rsvp-{test}-{}-", std::process::id());
        let network = Self { place, daemons: Vec::new(), prefix, v6 };
        for node in NODES {
            run("ip", &["netns", "add", &network.namespace(node)]);
        }
        for (number, (one, other)) in LINKS.iter().enumerate() {
            network.link(number, one, other);
        }
        for router in ["r1", "r2"] {
            network.exec(
                router,
                "echo 1 > /proc/sys/net/ipv4/ip_forward; \
                                  echo 1 > /proc/sys/net/ipv6/conf/all/forwarding; \
                                  echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter; \
                                  echo 0 > /proc/sys/net/ipv4/conf/default/rp_filter",
            );
        }
        network.exec(
            "h1",
            "ip route add default via 10.0.0.2; \
                            ip -6 route add default via fd00::2",
        );
        network.exec(
            "h2",
            "ip route add default via 10.0.3.1; \
                            ip -6 route add default via fd00:3::1",
        );
        // The backup link is equal, and only used if the other is down.
        for (link, metric) in [(1, 10), (2, 20)] {
            network.exec(
                "r1",
                &format!(
                    "ip route add 10.0.3.0/24 via 10.0.{link}.2 metric {metric}; \
                 ip -6 route add fd00:3::/64 via fd00:{link}::2 metric {metric}"
                ),
            );
            network.exec(
                "r2",
                &format!(
                    "ip route add 10.0.0.0/24 via 10.0.{link}.1 metric {metric}; \
                 ip -6 route add fd00::/64 via fd00:{link}::1 metric {metric}"
                ),
            );
        }
        network
    }

    fn link(&self, number: usize, one: &str, other: &str) {
        let name = format!("l{number}");
        let (here, there) = (self.namespace(one), self.namespace(other));
        run(
            "ip",
            &[
                "link", "add", &name, "netns", &here, "type", "veth", "peer", "name", &name,
                "netns", &there,
            ],
        );
        let subnet = if number == 0 { "fd00:".to_owned() } else { format!("fd00:{number}:") };
        for (node, end) in [(one, 1), (other, 2)] {
            // Until a look for duplicates ends, two seconds at most, there is no link-local address, and a
            // router without one cannot ask for the neighbour of what it forwards.
            self.exec(
                node,
                &format!(
                    "ip link set lo up; \
                 echo 0 > /proc/sys/net/ipv6/conf/{name}/accept_dad; \
                 ip addr add 10.0.{number}.{end}/24 dev {name}; \
                 ip addr add {subnet}:{end}/64 dev {name} nodad; \
                 ip link set {name} txqueuelen 64 up"
                ),
            );
        }
    }

    /// With a daemon on each node.
    pub(crate) fn running(test: &str, v6: bool) -> Self {
        let mut network = Self::new(test, v6);
        for node in NODES {
            network.configure(node, "");
            network.start(node);
        }
        network
    }

    /// The name of a node's namespace.
    pub(crate) fn namespace(&self, node: &str) -> String {
        format!("{}{node}", self.prefix)
    }

    /// Runs a script at a node.
    #[track_caller]
    pub(crate) fn exec(&self, node: &str, script: &str) -> String {
        run("ip", &["netns", "exec", &self.namespace(node), "sh", "-ec", script])
    }

    /// Writes a node's configuration, with `more` for each interface.
    pub(crate) fn configure(&self, node: &str, more: &str) {
        let mut text = format!(
            "refresh = \"500 ms\"\ntrust-network = {}\nsocket = {:?}\n",
            !more.contains("key ="),
            self.socket(node)
        );
        for (number, _) in LINKS.iter().enumerate().filter(|(_, (a, b))| *a == node || *b == node) {
            let rate = if matches!(number, 1 | 2) { "1.5 Mbit/s" } else { "10 Mbit/s" };
            text += &format!("[interfaces.l{number}]\nrate = \"{rate}\"\n{more}\n");
        }
        fs::write(self.place.path(&format!("{node}.toml")), text).expect("a configuration");
    }

    /// Changes a node's configuration.
    pub(crate) fn rewrite(&self, node: &str, change: impl FnOnce(&str) -> String) {
        let path = self.place.path(&format!("{node}.toml"));
        let text = fs::read_to_string(&path).expect("a configuration");
        fs::write(path, change(&text)).expect("it is written");
    }

    pub(crate) fn socket(&self, node: &str) -> String {
        self.place.path(&format!("{node}.sock")).display().to_string()
    }

    /// A program at a node.
    pub(crate) fn program(&self, node: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(node), program]);
        // By which it ends with the test.
        command.current_dir(&self.place.0);
        command
    }

    /// `ontempo` at a node, whose daemon is the one that it finds.
    pub(crate) fn ontempo(&self, node: &str, words: &[&str]) -> Command {
        let mut command = self.program(node, env!("CARGO_BIN_EXE_ontempo"));
        command.args(words).env("ONTEMPO_RSVP_SOCKET", self.socket(node));
        command
    }

    /// The command that runs a node's daemon.
    pub(crate) fn daemon(&self, node: &str) -> Command {
        let mut command = self.ontempo(node, &["rsvpd"]);
        command.arg(self.place.path(&format!("{node}.toml")));
        command
    }

    /// Starts a node's daemon and waits until it answers.
    #[track_caller]
    pub(crate) fn start(&mut self, node: &'static str) {
        let log = File::options().create(true).append(true).open(self.log_path(node));
        let mut command = self.daemon(node);
        command.stdin(Stdio::null()).stderr(log.expect("a log"));
        self.daemons.push((node, command.spawn().expect("ip is there")));
        wait_until("a daemon", || Client::connect(self.socket(node).as_ref()).is_ok());
    }

    /// The process of a node's daemon.
    pub(crate) fn process(&self, node: &str) -> u32 {
        self.daemons.iter().find(|(of, _)| *of == node).expect("it runs").1.id()
    }

    fn log_path(&self, node: &str) -> std::path::PathBuf {
        self.place.path(&format!("{node}.log"))
    }

    pub(crate) fn log(&self, node: &str) -> String {
        fs::read_to_string(self.log_path(node)).expect("a log")
    }

    /// Sends a signal to a node's daemon and waits for its end.
    #[track_caller]
    pub(crate) fn signal(&mut self, node: &str, signal: &str) {
        let at = self.daemons.iter().position(|(of, _)| *of == node).expect("it runs");
        let (_, mut daemon) = self.daemons.remove(at);
        run("kill", &[signal, &daemon.id().to_string()]);
        let ended = daemon.wait().expect("it ends");
        assert!(signal != "-TERM" || ended.success(), "{ended}: {}", self.log(node));
    }

    pub(crate) fn client(&self, node: &str) -> Client {
        Client::connect(self.socket(node).as_ref()).expect("a daemon")
    }

    pub(crate) fn status(&self, node: &str) -> Status {
        match self.client(node).ask(Request::Status) {
            Ok(Answer::Status(status)) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// Classes of ours that `tc` shows on an interface, with their rates.
    pub(crate) fn classes(&self, node: &str, interface: &str) -> Vec<String> {
        let shown = run("tc", &["-n", &self.namespace(node), "class", "show", "dev", interface]);
        shown
            .lines()
            .filter_map(|line| line.strip_prefix("class htb 1:10"))
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                format!("1:10{} {}", words[0], words[words.len() - 7])
            })
            .collect()
    }

    /// Packets sent and dropped by a class at the first router.
    pub(crate) fn counted(&self, class: &str) -> [u64; 2] {
        let shown =
            run("tc", &["-n", &self.namespace("r1"), "-s", "class", "show", "dev", BOTTLENECK]);
        let (_, rest) = shown.split_once(&format!("class htb {class} ")).expect("the class");
        let number = |before: &str, after: &str| {
            let (_, rest) = rest.split_once(before).expect("a counter");
            rest.split_once(after)
                .and_then(|(number, _)| number.trim().parse().ok())
                .expect("a number")
        };
        [number(" bytes ", " pkt"), number("(dropped ", ",")]
    }

    /// Waits until an interface has neither classes nor filters of ours.
    #[track_caller]
    pub(crate) fn wait_for_teardown(&self, node: &str, interface: &str) {
        let filters =
            || run("tc", &["-n", &self.namespace(node), "filter", "show", "dev", interface]);
        let is_clean =
            || self.classes(node, interface).is_empty() && !filters().contains("flowid 1:10");
        wait_until("teardown", is_clean);
    }

    fn address(&self, node: &str) -> IpAddr {
        let text = match (node, self.v6) {
            ("h1", false) => "10.0.0.1",
            ("h1", true) => "fd00::1",
            (_, false) => "10.0.3.2",
            (_, true) => "fd00:3::2",
        };
        text.parse().expect("an address")
    }

    pub(crate) fn session(&self) -> Session {
        Session { destination: self.address("h2"), protocol: 17, port: 5004 }
    }

    pub(crate) fn sender(&self) -> Sender {
        Sender { address: self.address("h1"), port: 4000 }
    }

    /// A connection of an application of `h1` that announces the flow.
    #[track_caller]
    pub(crate) fn announced(&self, kilobits: u32) -> Client {
        self.announced_at(self.sender().port, kilobits)
    }

    /// The same of a flow from another port.
    #[track_caller]
    pub(crate) fn announced_at(&self, port: u16, kilobits: u32) -> Client {
        let mut client = self.client("h1");
        let (session, sender) = (self.session(), Sender { port, ..self.sender() });
        let traffic = traffic(kilobits);
        client.ask(Request::Send { session, sender, traffic }).expect("it is announced");
        client
    }

    /// A client of the daemon at `h2` that has received the flow's PATH.
    #[track_caller]
    pub(crate) fn subscribed_client(&self) -> Client {
        let mut client = self.client("h2");
        client.ask(Request::Watch { session: self.session() }).expect("it is watched");
        until(&mut client, |event| matches!(event, Notice::Path { .. }));
        client
    }

    /// Requests a reservation of the flow.
    #[track_caller]
    pub(crate) fn reserve(&self, client: &mut Client, kilobits: u32) {
        self.reserve_at(client, self.sender().port, kilobits);
    }

    /// The same of a flow from another port, in place of what is reserved.
    #[track_caller]
    pub(crate) fn reserve_at(&self, client: &mut Client, port: u16, kilobits: u32) {
        let flowspec = FlowSpec::ControlledLoad(traffic(kilobits));
        let flows = vec![Descriptor { flowspec, filters: vec![Sender { port, ..self.sender() }] }];
        let (session, style) = (self.session(), Style::FixedFilter);
        let request = Request::Reserve { session, style, flows, confirm: true };
        client.ask(request).expect("the request is accepted");
    }

    /// The clients of both ends, after the sender was notified of the reservation.
    #[track_caller]
    pub(crate) fn reserved(&self, kilobits: u32) -> (Client, Client) {
        let mut sender = self.announced(kilobits);
        let mut receiver = self.subscribed_client();
        self.reserve(&mut receiver, kilobits);
        until(&mut sender, is_reserved);
        (sender, receiver)
    }

    /// Sends packets of 1,000 bytes of IP from `h1` to `h2`, and counts those that come: sent, got.
    pub(crate) fn flow(&self, ports: (u16, u16), kilobits: u32, span: Duration) -> (u64, u64) {
        self.sending(ports, kilobits, span)()
    }

    /// The same, to be done later.
    pub(crate) fn sending(
        &self,
        ports: (u16, u16),
        kilobits: u32,
        span: Duration,
    ) -> impl FnOnce() -> (u64, u64) + Send + use<> {
        self.sending_marked(ports, kilobits, span, 0)
    }

    /// The same with a DSCP; over IPv4.
    pub(crate) fn sending_marked(
        &self,
        ports: (u16, u16),
        kilobits: u32,
        span: Duration,
        dscp: u8,
    ) -> impl FnOnce() -> (u64, u64) + Send + use<> {
        let headers = if self.v6 { 48 } else { 28 };
        let payload = vec![0; 1000 - headers];
        let to = SocketAddr::new(self.address("h2"), ports.1);
        let sink = self.inside("h2", || UdpSocket::bind(to).expect("a port"));
        let from = SocketAddr::new(self.address("h1"), ports.0);
        let source = self.inside("h1", || UdpSocket::bind(from).expect("a port"));
        if dscp > 0 {
            rustix::net::sockopt::set_ip_tos(&source, dscp << 2).expect("a DSCP");
        }
        let gap = Duration::from_secs_f64(8.0 / f64::from(kilobits));
        let count = (span.as_secs_f64() / gap.as_secs_f64()) as u32;
        move || {
            let got = std::thread::spawn(move || {
                sink.set_read_timeout(Some(Duration::from_millis(700))).expect("a timeout");
                std::iter::from_fn(|| sink.recv(&mut [0; 2000]).ok()).count() as u64
            });
            let begun = Instant::now();
            for number in 0..count {
                std::thread::sleep((gap * number).saturating_sub(begun.elapsed()));
                source.send_to(&payload, to).expect("it is sent");
            }
            (u64::from(count), got.join().expect("it counts"))
        }
    }

    /// Does `work` in a node's namespace.
    pub(crate) fn inside<T: Send>(&self, node: &str, work: impl FnOnce() -> T + Send) -> T {
        let space = format!("/run/netns/{}", self.namespace(node));
        let enter = move || {
            let file = File::open(space).expect("a namespace");
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("it is entered");
            work()
        };
        std::thread::scope(|scope| scope.spawn(enter).join()).expect("no panic")
    }

    /// Ends all daemons; nothing of theirs must be left.
    #[track_caller]
    pub(crate) fn end(mut self) {
        for node in NODES {
            if self.daemons.iter().any(|(of, _)| *of == node) {
                self.signal(node, "-TERM");
            }
            let left = run("tc", &["-n", &self.namespace(node), "qdisc", "show"]);
            assert!(!left.contains("htb"), "{node}: {left}");
            assert!(!self.place.path(&format!("{node}.sock")).exists(), "{node}'s socket is left");
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for (_, daemon) in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        for node in NODES {
            if std::thread::panicking() {
                let log = fs::read_to_string(self.log_path(node)).unwrap_or_default();
                eprintln!("{node}: {log}");
            }
            let _ = Command::new("ip").args(["netns", "delete", &self.namespace(node)]).status();
        }
    }
}

pub(crate) fn traffic(kilobits: u32) -> TrafficSpec {
    let rate = kilobits as f32 * 125.0;
    TrafficSpec { rate, burst: 4000.0, peak: f32::INFINITY, smallest: 1000, largest: 1500 }
}

pub(crate) fn is_reserved(event: &Notice) -> bool {
    matches!(event, Notice::Reserved { flows, .. } if !flows.is_empty())
}

/// Waits for an event.
#[track_caller]
pub(crate) fn until(client: &mut Client, is_it: impl Fn(&Notice) -> bool) -> Notice {
    let begun = Instant::now();
    let mut seen = Vec::new();
    while begun.elapsed() < TIMEOUT {
        match client.event(Some(TIMEOUT)).expect("the daemon runs") {
            Some(event) if is_it(&event) => return event,
            Some(event) => seen.push(event),
            None => {}
        }
    }
    panic!("in vain waited for an event; seen: {seen:?}");
}
