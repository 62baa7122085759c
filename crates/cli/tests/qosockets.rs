//! QoSockets with live RSVP daemons: two hosts and two routers, real packets, HTB classes. Needs
//! root; skipped tests are reported.

mod common;
mod reserved;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::{Killed, wait_until};
use reserved::{BOTTLENECK, Network, can_reserve, run};
use serde_json::Value;

/// 480 kbit/s of messages, of which at most 5 % may be lost.
const SPECIFICATION: &str = r#"
max_rate = "80 messages/s"
size = "1000 bytes"
loss = "5 %"
coerced = true
"#;

const TIMEOUT: Duration = Duration::from_secs(15);

/// `ontempo netvideo` at a host, and its events.
struct Program {
    child: Killed,
    lines: Receiver<Value>,
    seen: Vec<Value>,
}

impl Program {
    fn start(network: &Network, host: &str, words: &[&str]) -> Self {
        let mut command = network.ontempo(host, &[&["netvideo"], words, &["--json"]].concat());
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
    let words = ["receive", "--listen", "10.0.3.2:5004", "--over", over];
    let mut program = Program::start(network, "h2", &[&words, more].concat());
    let listening = program.until(|value| value["event"] == "listening");
    let url = listening["url"].as_str().unwrap_or_default().to_owned();
    (program, url)
}

/// `url` is that of the receiver over QUIC, and empty over others.
fn sender(network: &Network, (over, url): (&str, &str), more: &[&str]) -> Program {
    let to = if url.is_empty() { "10.0.3.2:5004" } else { url };
    let words = ["send", to, "--over", over, "--rate", "60 messages/s", "--size", "1000"];
    Program::start(network, "h1", &[&words, more].concat())
}

/// Packets sent by the flow's class at the first router.
fn passed(network: &Network) -> u64 {
    let shown =
        run("tc", &["-n", &network.namespace("r1"), "-s", "class", "show", "dev", BOTTLENECK]);
    let (_, of_flow) = shown.split_once("class htb 1:1001").expect("the flow's class");
    let (_, sent) = of_flow.split_once("bytes ").expect("a count");
    sent.split(' ').next().and_then(|count| count.parse().ok()).expect("a number")
}

/// One flow beside an overload of the routers' link: messages sent, delivered and lost.
fn beside_an_overload(network: &Network, over: &str, reserve: bool) -> (u64, u64, u64) {
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
    let before = if reserve { passed(network) } else { 0 };
    let flood = network.sending((4001, 5005), 3000, Duration::from_secs(3));
    let (flood, counted) = std::thread::scope(|scope| {
        let flood = scope.spawn(flood);
        std::thread::sleep(Duration::from_millis(2_500));
        let counted = if reserve { passed(network) - before } else { 0 };
        (flood.join().expect("it sends"), counted)
    });
    assert!(flood.1 < flood.0 * 9 / 10, "no overload: {flood:?}");
    let (sent, is_well) = here.end();
    assert!(is_well, "the sender over {over} failed: {sent}");
    let (got, _) = there.end();
    eprintln!(
        "{over}, reserved: {reserve}: {counted} packets in the class; {got}; flood {flood:?}"
    );
    if reserve {
        // 60 messages a second, a packet each.
        assert!(counted >= 120, "over {over} {counted} packets passed the class in 2.5 s");
        network.wait_for_teardown("r1", BOTTLENECK);
        network.wait_for_teardown("r2", "l3");
    }
    let number = |name: &str| got[name].as_u64().expect("a number");
    let sent = sent["sent_messages"].as_u64().expect("a number");
    (sent, number("messages"), number("lost_messages"))
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
        let (sent, got, lost) = beside_an_overload(&network, over, true);
        assert_eq!((got, lost), (sent, 0), "over {over}, reserved");
    }
    let (sent, got, lost) = beside_an_overload(&network, "udp", false);
    assert!(lost > sent / 10, "unreserved, {got} of {sent} came, {lost} were lost");
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
