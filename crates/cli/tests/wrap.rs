//! `ontempo qos run` with programs that know nothing of it: what their packets bear on the wire,
//! what is
//! reserved for them and shown of them. Namespaces need the rights of root; the test says so where
//! it
//! is skipped.

mod common;
mod reserved;

use std::fs;
use std::process::{Command, Stdio};

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
