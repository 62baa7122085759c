//! Three namespaces in a row: a sender, a router with the bottleneck, a receiver.

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Where the receiver listens.
const RECEIVER: &str = "10.77.2.2";
const PORT: &str = "5201";

/// The bottleneck's rate in bit/s, headers of Ethernet counted in.
const RATE: f64 = 100e6;

/// What was seen of the bottleneck.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bottleneck {
    /// The share of its rate that was sent.
    pub(crate) busy: f64,
    /// The mean of what waited, as the time that it takes to send.
    pub(crate) queue_ms: f64,
}

/// Runs a command that must succeed; returns what it printed.
#[track_caller]
pub(crate) fn run(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = Command::new(words[0]).args(&words[1..]).output().expect(words[0]);
    assert!(output.status.success(), "{line}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The namespaces, and what runs in them; all gone at the end.
pub(crate) struct Testbed {
    mark: String,
    running: Vec<Child>,
}

impl Testbed {
    /// A bottleneck of 100 Mbit/s with a drop-tail queue of 100 ms; the round trip of an empty
    /// path is below a millisecond.
    pub(crate) fn new(test: &str) -> Self {
        let bed = Self { mark: format!("ontempo-{test}-{}", std::process::id()), running: vec![] };
        let [sender, router, receiver] =
            ["sender", "router", "receiver"].map(|role| bed.namespace(role));
        for namespace in [&sender, &router, &receiver] {
            run(&format!("ip netns add {namespace}"));
            run(&format!("ip -n {namespace} link set lo up"));
        }
        for (near, far, subnet) in [(&sender, &router, 1), (&router, &receiver, 2)] {
            run(&format!("ip link add right netns {near} type veth peer name left netns {far}"));
            for (namespace, device, host) in [(near, "right", 1), (far, "left", 2)] {
                // Packets as on a wire, not 64 kB at once.
                run(&format!("ip -n {namespace} link set {device} gso_max_segs 1 up"));
                run(&format!(
                    "ip -n {namespace} address add 10.77.{subnet}.{host}/24 dev {device}"
                ));
            }
        }
        run(&format!("ip -n {sender} route add default via 10.77.1.2"));
        run(&format!("ip -n {receiver} route add default via 10.77.2.1"));
        run(&format!("ip netns exec {router} sysctl -qw net.ipv4.ip_forward=1"));
        run(&format!(
            "tc -n {router} qdisc add dev right root tbf rate 100mbit burst 16kb limit 1250000"
        ));
        bed
    }

    pub(crate) fn namespace(&self, role: &str) -> String {
        format!("{}-{role}", self.mark)
    }

    fn start(&mut self, role: &str, line: &str) -> &mut Child {
        let child = Command::new("ip")
            .args(["netns", "exec", &self.namespace(role)])
            .args(line.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ip starts");
        self.running.push(child);
        self.running.last_mut().expect("just started")
    }

    /// Begins a transfer of `flows` flows for `seconds`.
    pub(crate) fn transfer(&mut self, congestion: &str, flows: u32, seconds: u32) {
        self.start("receiver", &format!("iperf3 --server --one-off --port {PORT}"));
        let receiver = self.namespace("receiver");
        let begun = Instant::now();
        while !run(&format!("ip netns exec {receiver} ss -Hltn")).contains(PORT) {
            assert!(begun.elapsed() < Duration::from_secs(20), "iperf3 does not listen");
            sleep(Duration::from_millis(20));
        }
        self.start(
            "sender",
            &format!(
                "iperf3 --client {RECEIVER} --port {PORT} --congestion {congestion} \
                 --parallel {flows} --time {seconds} --json"
            ),
        );
    }

    /// Waits for the transfer's end; its report.
    pub(crate) fn report(&mut self) -> Value {
        let client = self.running.pop().expect("a transfer was begun");
        let output = client.wait_with_output().expect("iperf3 ends");
        let report: Value = serde_json::from_slice(&output.stdout).expect("iperf3's report");
        assert!(report.get("error").is_none(), "{report}");
        report
    }

    /// Watches the bottleneck for `span`.
    pub(crate) fn watch(&self, span: Duration) -> Bottleneck {
        let show = format!("tc -n {} -s -j qdisc show dev right", self.namespace("router"));
        let read = || {
            let shown: Value = serde_json::from_str(&run(&show)).expect("tc's JSON");
            let figure = |key: &str| shown[0][key].as_f64().expect("a figure");
            (Instant::now(), figure("bytes"), figure("backlog"))
        };
        let (begun, sent_before, mut waiting) = read();
        let mut samples = 1.0;
        loop {
            sleep(Duration::from_millis(50));
            let (now, sent, backlog) = read();
            waiting += backlog;
            samples += 1.0;
            let watched = now - begun;
            if watched >= span {
                return Bottleneck {
                    busy: (sent - sent_before) * 8.0 / watched.as_secs_f64() / RATE,
                    queue_ms: waiting / samples * 8.0 / RATE * 1e3,
                };
            }
        }
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
        for role in ["sender", "router", "receiver"] {
            let _ = Command::new("ip").args(["netns", "delete", &self.namespace(role)]).status();
        }
    }
}

/// The mean rate that arrived in Mbit/s, without the first `skip` seconds.
pub(crate) fn goodput_mbit(report: &Value, skip: f64) -> f64 {
    let intervals = report["intervals"].as_array().expect("intervals");
    let sums = intervals.iter().map(|interval| &interval["sum"]);
    let later = sums.filter(|sum| sum["start"].as_f64().is_some_and(|start| start >= skip));
    let (bytes, seconds) = later.fold((0.0, 0.0), |(bytes, seconds), sum| {
        let figure = |key: &str| sum[key].as_f64().expect("a figure");
        (bytes + figure("bytes"), seconds + figure("seconds"))
    });
    bytes * 8.0 / seconds / 1e6
}
