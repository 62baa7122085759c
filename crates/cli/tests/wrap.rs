//! `ontempo qos run` with programs that know nothing of it: what their packets bear on the wire,
//! what is
//! reserved for them and shown of them. Namespaces need the rights of root; the test says so where
//! it
//! is skipped.

mod common;
mod reserved;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Killed, Place, wait_until};
use ontempo_testing::require_programs;
use reserved::{BOTTLENECK, Network, can_reserve, run};
use serde_json::Value;

/// 40 packets of 1,332 bytes a second with their headers, 426 kbit/s; marked AF41, code point 34.
const SPECIFICATION: &str = r#"max_rate = "40 messages/s"
size = "1280 bytes"
max_delay = "100 ms"
"#;
const AF41: &str = "34";

/// A program at a node, run by `ontempo qos run` there.
fn wrapped(network: &Network, node: &str, words: &[&str]) -> Command {
    let mut command = network.ontempo(node, &["qos", "run"]);
    command
        .args(["--spec", "flow.toml", "--reserve", "controlled-load", "--direction"])
        .args(words)
        .current_dir(&network.place.0)
        .env("ONTEMPO_QOS_FOLDER", network.place.path("reports"))
        .stdout(Stdio::null());
    command
}

/// The report of a connection in one direction, if there is one with traffic.
fn report(network: &Network, role: &str) -> Option<Value> {
    let ran = network.place.run(&["monitor", "--json", "--once", "--folder", "reports"]);
    let sockets = ran.succeeds().json()["sockets"].take();
    let is_it = |one: &&Value| {
        let socket = &one["socket"];
        socket["role"] == role && socket["throughput"].as_f64() > Some(100e3)
    };
    sockets.as_array().and_then(|all| all.iter().find(is_it)).map(|one| one["socket"].clone())
}

/// Writes down what passes the routers' link.
fn capture(network: &Network, trace: &str) -> Killed {
    let capture = network
        .program("r1", "tshark")
        .args(["-q", "-i", BOTTLENECK, "-w", trace])
        .args(["-f", "tcp port 5201"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Killed(capture.expect("ip is there"))
}

/// What the packets that carry data bore on the routers' link.
#[track_caller]
fn check_marks(trace: &str) {
    let fields =
        ["-r", trace, "-T", "fields", "-e", "ip.dsfield.dscp", "-e", "ip.src", "-e", "tcp.len"];
    let shown = run("tshark", &fields);
    let of = |source: &str| -> Vec<&str> {
        let lines = shown.lines().map(|line| line.split('\t').collect::<Vec<_>>());
        lines.filter(|line| line[1] == source && line[2] != "0").map(|line| line[0]).collect()
    };
    let sent = of("10.0.0.1");
    let marked = sent.iter().filter(|dscp| **dscp == AF41).count();
    eprintln!("{marked} of {} packets with data bear AF41", sent.len());
    assert!(sent.len() > 100 && marked * 10 >= sent.len() * 9, "{sent:?}");
    // A listener passes its mark on to what it accepts, so that no packet of the server's lacks it.
    let answered = of("10.0.3.2");
    assert!(answered.iter().all(|dscp| *dscp == AF41), "{answered:?}");
}

#[test]
fn unmodified_iperf_is_marked_reserved_and_monitored() {
    if !can_reserve() || !require_programs(&["iperf3", "tshark", "ss"]) {
        return;
    }
    let network = Network::running("wrap", false);
    fs::write(network.place.path("flow.toml"), SPECIFICATION).expect("a specification");
    fs::create_dir_all(network.place.path("reports")).expect("a folder");
    let trace = network.place.path("trace.pcapng").display().to_string();
    let capture = capture(&network, &trace);
    wait_until("the capture", || fs::metadata(&trace).is_ok_and(|file| file.len() > 0));
    let server = ["receive", "--", "iperf3", "-s", "-1", "-p", "5201"];
    let mut server = Killed(wrapped(&network, "h2", &server).spawn().expect("ip is there"));
    // What it accepts before its listening socket is marked, some 100 ms, bears no mark.
    let marked = || network.exec("h2", "ss -tlnH --tos sport = :5201").contains("tos:0x88");
    wait_until("the server, marked", marked);
    let client = [
        "send", "--", "iperf3", "-c", "10.0.3.2", "-p", "5201", "-t", "8", "-b", "350k", "-l",
        "1280",
    ];
    let mut client = Killed(wrapped(&network, "h1", &client).spawn().expect("ip is there"));

    // A connection for control and one for data.
    wait_until("both reservations", || network.classes("r1", BOTTLENECK).len() == 2);
    eprintln!("reserved: {:?}", network.classes("r1", BOTTLENECK));
    for role in ["sender", "receiver"] {
        let is_reserved = |one: &Value| one["reservation"] == "controlled-load";
        wait_until(role, || report(&network, role).as_ref().is_some_and(is_reserved));
        let shown = report(&network, role).expect("it goes on");
        assert_eq!((&shown["name"], &shown["dscp"]), (&"iperf3".into(), &34.into()), "{shown}");
        let throughput = shown["throughput"].as_f64().expect("a number");
        eprintln!("{role}: {:.0} kbit/s of 350", throughput / 1e3);
    }
    assert_eq!(client.0.wait().expect("it ends").code(), Some(0));
    assert_eq!(server.0.wait().expect("it ends").code(), Some(0));
    network.wait_for_teardown("r1", BOTTLENECK);
    assert_eq!(common::files(&network.place.path("reports")), Vec::<String>::new());

    drop(capture);
    check_marks(&trace);
    network.end();
}

/// Sends a packet of 1,000 bytes every 20 ms until the file `stop` is there; the second connection has a
/// code point of its own, CS1.
const STEADY: &str = "
import os, socket, time
peers = [socket.create_connection((os.environ['PEER'], 5201)) for _ in range(2)]
time.sleep(0.5)
own = peers[1]
if own.family == socket.AF_INET6:
    own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 32)
else:
    own.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 32)
ends = False
while not ends:
    # The last ones bear what was asked for when the file came.
    ends = os.path.exists('stop')
    for peer in peers: peer.sendall(bytes(1000))
    time.sleep(0.02)
";

/// Takes two connections and all that they send.
const TAKING: &str = "
import socket, threading
server = socket.create_server(('::', 5201), family=socket.AF_INET6, dualstack_ipv6=True)
def take(peer):
    while peer.recv(65536): pass
threads = [threading.Thread(target=take, args=(server.accept()[0],)) for _ in range(2)]
for thread in threads: thread.start()
";

/// The code points of `h1`'s sockets, as `ss` has them, in order.
fn code_points(network: &Network) -> Vec<u8> {
    let shown = network.exec("h1", "ss -tnOH --tos state established dport = :5201");
    let of = |line: &str| {
        let v6 = line.contains("[fd00");
        let word = if v6 { "tclass:0x" } else { "tos:0x" };
        let octet = line.split_once(word).map_or("0", |(_, rest)| rest);
        let octet = octet.split_whitespace().next().unwrap_or_default();
        u8::from_str_radix(octet, 16).expect("an octet") >> 2
    };
    let mut found: Vec<u8> = shown.lines().map(of).collect();
    found.sort_unstable();
    found
}

/// A program whose sockets the network asks for a DSCP bears it as long as it does.
fn follows_what_the_network_asks_for(v6: bool) {
    let mut network = Network::new(if v6 { "wrapsix" } else { "wrapmark" }, v6);
    fs::write(network.place.path("flow.toml"), SPECIFICATION).expect("a specification");
    fs::create_dir_all(network.place.path("reports")).expect("a folder");
    let aggregates = |dscp: &str| format!("aggregates = [{{ dscp = {dscp:?} }}]");
    for (node, more) in [("h1", ""), ("r1", &*aggregates("AF23")), ("r2", ""), ("h2", "")] {
        network.configure(node, more);
        network.start(node);
    }
    let trace = network.place.path("trace.pcapng").display().to_string();
    let capture = capture(&network, &trace);
    wait_until("the capture", || fs::metadata(&trace).is_ok_and(|file| file.len() > 0));
    let server = ["receive", "--", "python3", "-c", TAKING];
    let mut server = Killed(wrapped(&network, "h2", &server).spawn().expect("ip is there"));
    wait_until("the server", || network.exec("h2", "ss -tlnH sport = :5201").contains("5201"));
    let client = ["send", "--", "python3", "-c", STEADY];
    let mut client = wrapped(&network, "h1", &client);
    client.env("PEER", if v6 { "fd00:3::2" } else { "10.0.3.2" });
    let mut client = Killed(client.spawn().expect("ip is there"));

    // AF23 in place of AF41; what has CS1 of its own is left alone.
    wait_until("AF23", || code_points(&network) == [8, 22]);
    let reported = || report(&network, "sender").map(|one| one["dscp"].clone());
    wait_until("a report", || reported() == Some(22.into()));
    // The network asks for another one in the middle of the flow.
    network.signal("r1", "-USR1");
    network.configure("r1", &aggregates("AF13"));
    network.start("r1");
    wait_until("AF13", || code_points(&network) == [8, 14]);
    // Without the daemon nothing is asked for.
    network.signal("h1", "-KILL");
    wait_until("AF41", || code_points(&network) == [8, 34]);
    network.start("h1");
    wait_until("AF13 again", || code_points(&network) == [8, 14]);
    fs::write(network.place.path("stop"), "").expect("written");
    assert_eq!(client.0.wait().expect("it ends").code(), Some(0));
    assert_eq!(server.0.wait().expect("it ends").code(), Some(0));
    // What is captured comes to the file within some 100 ms.
    std::thread::sleep(Duration::from_millis(500));
    drop(capture);

    let fields = ["-r", &trace, "-T", "fields", "-e", "ip.dsfield.dscp", "-e", "ipv6.tclass.dscp"];
    let fields = [&fields[..], &["-e", "tcp.srcport", "-Y", "tcp.dstport == 5201 && tcp.len > 0"]];
    let shown = run("tshark", &fields.concat());
    let mut seen: std::collections::BTreeMap<&str, Vec<&str>> = Default::default();
    for line in shown.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let points = seen.entry(words[1]).or_default();
        if points.last() != Some(&words[0]) {
            points.push(words[0]);
        }
    }
    let seen: Vec<Vec<&str>> = seen.into_values().collect();
    eprintln!("code points on the wire: {seen:?}");
    let is_asked = |points: &Vec<&str>| points.ends_with(&["22", "14", "34", "14"]);
    let is_own = |points: &Vec<&str>| points.ends_with(&["8"]) && !points.contains(&"22");
    assert!(seen.len() == 2 && seen.iter().any(is_asked) && seen.iter().any(is_own), "{seen:?}");
    network.end();
}

#[test]
fn a_program_is_marked_as_the_network_asks_for_unless_it_marks_by_itself() {
    if !can_reserve() || !require_programs(&["python3", "tshark", "ss"]) {
        return;
    }
    for v6 in [false, true] {
        follows_what_the_network_asks_for(v6);
    }
}

/// Sends more than its peer has read when it ends.
const HASTY: &str = "
import socket, time
peer = socket.create_connection(('10.0.3.2', 5201))
peer.sendall(bytes(1000))
time.sleep(3)
peer.sendall(bytes(300000))
";

/// Reads 300,000 bytes in 6 s or more.
const SLOW: &str = "
import socket, time
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
server.bind(('', 5201))
server.listen()
peer, _ = server.accept()
while peer.recv(5000, socket.MSG_WAITALL): time.sleep(0.1)
";

#[test]
fn a_reservation_lasts_until_the_kernel_has_sent_what_the_program_wrote() {
    if !can_reserve() || !require_programs(&["python3", "ss"]) {
        return;
    }
    let network = Network::running("wrap-close", false);
    fs::write(network.place.path("flow.toml"), SPECIFICATION).expect("a specification");
    fs::create_dir_all(network.place.path("reports")).expect("a folder");
    let server = ["receive", "--", "python3", "-c", SLOW];
    let mut server = Killed(wrapped(&network, "h2", &server).spawn().expect("ip is there"));
    wait_until("the server", || network.exec("h2", "ss -tlnH sport = :5201").contains("5201"));
    let client = ["send", "--", "python3", "-c", HASTY];
    let mut client = Killed(wrapped(&network, "h1", &client).spawn().expect("ip is there"));
    wait_until("the reservation", || network.classes("r1", BOTTLENECK).len() == 1);

    let closing = || network.exec("h1", "ss -tnH state fin-wait-1 dport = :5201");
    wait_until("the program's end", || !closing().is_empty());
    let mut looks = 0;
    while !closing().is_empty() {
        let classes = network.classes("r1", BOTTLENECK);
        // Whether the kernel was still sending when the classes were read.
        let still = !closing().is_empty();
        assert!(!still || classes.len() == 1, "after {looks} looks: {classes:?}");
        looks += u32::from(still);
    }
    eprintln!("reserved at {looks} looks while the kernel was still sending");
    assert!(looks > 3, "{looks}");
    assert_eq!(client.0.wait().expect("it ends").code(), Some(0));
    assert_eq!(server.0.wait().expect("it ends").code(), Some(0));
    network.wait_for_teardown("r1", BOTTLENECK);
    network.end();
}

#[test]
fn the_exit_code_is_the_programs() {
    let place = Place::new("wrapped", "");
    fs::write(place.path("flow.toml"), SPECIFICATION).expect("a specification");
    let run =
        |words: &[&str]| place.run(&[&["qos", "run", "--spec", "flow.toml", "--"], words].concat());
    assert_eq!(run(&["sh", "-c", "exit 7"]).code, Some(7));
    assert_eq!(run(&["sh", "-c", "kill -9 $$"]).code, Some(128 + 9));
    run(&["no-such-program"]).fails(2, &["no-such-program: cannot be run"]);
    place.run(&["qos", "run", "--spec", "flow.toml"]).fails(2, &["COMMAND"]);
    fs::write(place.path("flow.toml"), "min_rate = \"40 messages/s\"\n").expect("a specification");
    let words = ["qos", "run", "--spec", "flow.toml", "--reserve", "controlled-load", "--", "true"];
    place.run(&words).fails(2, &["flow.toml: a reservation needs size"]);
}

/// Orphans that end; whether their numbers are free again within 10 s, which a zombie's is not.
const ORPHANS: &str = "
: > pids
for n in 1 2 3 4 5; do (sh -c 'echo $$ >> pids' &); done
for n in $(seq 100); do
    sleep 0.1
    left=$((5 - $(wc -l < pids)))
    for pid in $(cat pids); do kill -0 $pid 2> kill.txt && left=$((left + 1)); done
    [ $left = 0 ] && exit 0
done
exit 9
";

#[test]
fn orphans_that_end_leave_no_zombies() {
    let place = Place::new("orphans", "");
    fs::write(place.path("flow.toml"), SPECIFICATION).expect("a specification");
    let ran = place.run(&["qos", "run", "--spec", "flow.toml", "--", "sh", "-c", ORPHANS]);
    assert_eq!(ran.code, Some(0));
}
