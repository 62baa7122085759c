//! Live QoS sockets as an operator sees them: the same figures by SNMP, at the Prometheus endpoint
//! and from `ontempo monitor`, and a violation at `snmptrapd`.

mod common;
mod prometheus;
mod snmp;

use std::fs;
use std::process::{Command, Stdio};

use common::{Killed, free_port, interrupt, wait_until};
use ontempo_testing::{require_programs, skip};
use serde_json::Value;
use snmp::{Master, modules};

const ROOT: &str = "1.3.6.1.4.1.8072.9999.9999.2000";
/// What both ends ask for; the sender sends 40 messages a second, so that `int_delay` is violated.
const SPECIFICATION: &str = r#"max_rate = "80 messages/s"
size = "1280 bytes"
max_delay = "2 s"
int_delay = "20 ms"
"#;

/// A counter of the receiving socket, read through each interface.
trait Asked {
    fn counter(&self, counter: Counter) -> u64;
}

/// What is counted, as the MIB's column, Prometheus's name and the report's field.
#[derive(Clone, Copy)]
struct Counter(u32, &'static str, &'static str);

const COUNTERS: [Counter; 4] = [
    Counter(12, "sent_messages", "sent_messages"),
    Counter(13, "sent_bytes", "sent_bytes"),
    Counter(14, "messages", "messages"),
    Counter(15, "delivered_bytes", "bytes"),
];

/// By SNMP, of the socket with this number.
struct BySnmp<'a>(&'a Master, u32);

impl Asked for BySnmp<'_> {
    fn counter(&self, Counter(column, ..): Counter) -> u64 {
        let printed = self.0.query("snmpget", &format!("{ROOT}.1.2.1.{column}.{}", self.1));
        let value = printed.rsplit(' ').next().unwrap_or_default().trim();
        value.parse().unwrap_or_else(|_| panic!("no counter: {printed}"))
    }
}

/// By Prometheus at this address, of the socket with this number.
struct ByPrometheus<'a>(&'a str, u32);

impl ByPrometheus<'_> {
    fn value(&self, name: &str) -> Option<f64> {
        let head = format!("ontempo_qos_{name}{{socket=\"{}\",", self.1);
        let page = page(self.0);
        let line = page.lines().find(|line| line.starts_with(&head))?;
        line.rsplit(' ').next()?.parse().ok()
    }
}

impl Asked for ByPrometheus<'_> {
    fn counter(&self, Counter(_, name, _): Counter) -> u64 {
        self.value(&format!("{name}_total")).expect("a counter") as u64
    }
}

/// By `ontempo monitor`, of the socket of this role.
struct ByMonitor<'a>(&'a Master, &'a str);

impl ByMonitor<'_> {
    fn socket(&self) -> Option<Value> {
        let ran = self.0.place.run(&["monitor", "--json", "--once", "--folder", "reports"]);
        let sockets = ran.succeeds().json()["sockets"].take();
        let is_it = |one: &&Value| one["socket"]["role"] == self.1;
        sockets.as_array().and_then(|all| all.iter().find(is_it)).cloned()
    }
}

impl Asked for ByMonitor<'_> {
    fn counter(&self, Counter(.., field): Counter) -> u64 {
        self.socket().expect("the socket")["socket"][field].as_u64().expect("a number")
    }
}

fn page(address: &str) -> String {
    prometheus::page(address, "*/*")
}

/// `ontempo netvideo`, both ends over loopback, which report into the place's folder `reports`.
fn netvideo(master: &Master) -> [Killed; 2] {
    fs::write(master.place.path("video.toml"), SPECIFICATION).expect("a specification");
    fs::create_dir_all(master.place.path("reports")).expect("a folder");
    let at = format!("127.0.0.1:{}", free_port());
    let start = |words: &[&str]| {
        let mut command = master.place.command(&[&["netvideo"], words].concat());
        command
            .args(["--spec", "video.toml", "--json"])
            .env("ONTEMPO_QOS_FOLDER", master.place.path("reports"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Killed(command.spawn().expect("it starts"))
    };
    let receiver = start(&["receive", "--listen", &at]);
    let port = at.rsplit(':').next().unwrap_or_default().to_owned();
    wait_until("the receiver", || {
        let bound = fs::read_to_string("/proc/net/udp").unwrap_or_default();
        bound.contains(&format!(":{:04X} ", port.parse::<u16>().expect("a port")))
    });
    [receiver, start(&["send", &at, "--rate", "40 messages/s", "--seconds", "600"])]
}

/// Each counter, read in four ways one after the other.
fn check_counters(master: &Master, address: &str, index: u32) {
    // Counters only grow, so that what is read later is no less: no tolerance is needed.
    let ways: [&dyn Asked; 4] = [
        &ByMonitor(master, "receiver"),
        &BySnmp(master, index),
        &ByPrometheus(address, index),
        &ByMonitor(master, "receiver"),
    ];
    for counter in COUNTERS {
        let read = ways.map(|way| {
            // The exporter's values are at most 250 ms older than the report.
            std::thread::sleep(std::time::Duration::from_millis(300));
            way.counter(counter)
        });
        assert!(read.is_sorted() && read[0] > 0, "{}: {read:?}", counter.2);
        eprintln!("{}: {read:?} by monitor, SNMP, Prometheus, monitor", counter.2);
    }
}

fn check_what_was_agreed(master: &Master, index: u32) {
    // What was agreed does not change.
    let socket = ByMonitor(master, "receiver").socket().expect("the socket");
    let column = |column: u32| {
        let printed = master.query("snmpget", &format!("{ROOT}.1.2.1.{column}.{index}"));
        printed.split_once(" = ").map(|(_, value)| value.trim().trim_matches('"').to_owned())
    };
    assert_eq!(column(6).as_deref(), socket["socket"]["local"].as_str());
    assert_eq!(column(7).as_deref(), socket["socket"]["remote"].as_str());
    assert_eq!(column(8), Some(socket["socket"]["dscp"].to_string()));
}

#[test]
fn a_live_socket_has_the_same_values_in_snmp_prometheus_and_monitor() {
    if !require_programs(&["snmpd", "snmptrapd", "snmpget", "snmptable"]) {
        return;
    }
    let master = Master::new("live");
    let _traps = master.traps();
    let _agent = master.agent();
    let _video = netvideo(&master);
    let to = master.to();
    let words = ["export", &to, "--prometheus", "127.0.0.1:0", "--folder", "reports"];
    let mut exporting = Killed(master.place.spawn(&words));
    let address = &prometheus::address_of(&mut exporting);

    // Both ends, one of them with messages that have come.
    let monitor = ByMonitor(&master, "receiver");
    wait_until("messages", || {
        monitor.socket().is_some_and(|one| one["socket"]["messages"].as_u64() > Some(0))
    });
    let count = format!("{ROOT}.1.1.0");
    wait_until("both sockets", || master.query("snmpget", &count).contains("= 2"));
    // The number that the exporter gave the socket, the same for both of its readers.
    let role = |index: u32| master.query("snmpget", &format!("{ROOT}.1.2.1.4.{index}"));
    let index = if role(1).contains("= 2") { 1 } else { 2 };
    assert!(role(index).contains("= 2"), "no receiver: {}", role(index));

    check_counters(&master, address, index);
    check_what_was_agreed(&master, index);

    // The sender is too slow for what was agreed: `int_delay` is the seventh parameter.
    let begun = format!(".{ROOT}.0.1");
    wait_until("the notification", || master.log("snmptrapd").contains(&begun));
    let trap_log = master.log("snmptrapd");
    let agreed = format!(".{ROOT}.1.3.1.8.{index}.7 = Gauge32: 20000");
    assert!(trap_log.contains(&agreed), "{agreed} is not in {trap_log}");
    let violated = |page: &str| {
        page.lines().any(|line| {
            line.starts_with("ontempo_qos_violated{")
                && line.contains("role=\"receiver\"")
                && line.ends_with("parameter=\"int_delay\"} 1")
        })
    };
    wait_until("the violation at Prometheus", || violated(&page(address)));
    let shown = master.place.run(&["monitor", "--folder", "reports"]);
    assert!(shown.succeeds().out.contains("int_delay"), "{}", shown.out);
    table(&master);
    interrupt(&exporting.0);
    assert_eq!(exporting.0.wait().expect("it ends").code(), Some(0));
}

/// The tables by name, if the MIB modules that ours imports are installed.
fn table(master: &Master) {
    let Some(modules) = modules() else {
        skip!("the modules SNMPv2-SMI, -TC and -CONF are missing; npm fetches them");
    };
    let show = |table: &str| {
        let mut command = Command::new("snmptable");
        command
            .args(["-v2c", "-c", "public", "-Ci", "-Cw", "400", "-M", &modules])
            .args(["-m", "ONTEMPO-QOS-MIB", &master.address(), table])
            .env("SNMP_PERSISTENT_DIR", master.place.path("kept"));
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let sockets = show("ONTEMPO-QOS-MIB::ontempoQosSocketTable");
    for word in ["netvideo", "sender", "receiver", "udp"] {
        assert!(sockets.contains(word), "{word} is not in {sockets}");
    }
    let parameters = show("ONTEMPO-QOS-MIB::ontempoQosParameterTable");
    assert!(parameters.contains("20000"), "{parameters}");
    eprintln!("{sockets}\n{parameters}");
}
