//! Reservations end to end: daemons on two hosts and two routers, real packets, HTB classes. Needs
//! root; skipped tests are reported.

mod common;
mod reserved;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Ran, wait_until};
use ontempo_reservation::local::{MAX_LINE_LEN, Notice};
use ontempo_testing::require_programs;
use reserved::{BOTTLENECK, NODES, Network, SPARE, can_reserve, is_reserved, run, until};

/// The round trip between the hosts.
fn round_trip(network: &Network, to: &str) -> f64 {
    let printed = network.exec("h1", &format!("ping -q -c 5 -i 0.02 {to}"));
    let (_, times) = printed.split_once("mdev = ").expect("times");
    times.split('/').nth(1).and_then(|mean| mean.parse().ok()).expect("a mean")
}

#[test]
fn a_reservation_over_two_routers_protects_a_flow_and_leaves_no_state() {
    if !can_reserve() {
        return;
    }
    let network = Network::running("protects", false);
    let rtt = round_trip(&network, "10.0.3.2");
    let mut sender = network.announced(500);
    let mut receiver = network.subscribed_client();
    let mut took = Vec::new();
    for _ in 0..5 {
        let begun = Instant::now();
        network.reserve(&mut receiver, 600);
        until(&mut sender, is_reserved);
        took.push(begun.elapsed().as_secs_f64() * 1e3);
        until(&mut receiver, |event| matches!(event, Notice::Confirmed { .. }));
        // The requested rate is at most the sending rate.
        assert_eq!(network.classes("r1", BOTTLENECK), ["1:1001 507Kbit"]);
        receiver
            .ask(ontempo_reservation::local::Request::Release { session: network.session() })
            .expect("it is released");
        network.wait_for_teardown("r1", BOTTLENECK);
        until(&mut sender, |event| !is_reserved(event));
    }
    took.sort_by(f64::total_cmp);
    eprintln!("set up in {took:.1?} ms; round trip {rtt:.2} ms");
    assert!(took[0] < 3.0 * rtt + 50.0, "{took:?} ms, round trip {rtt} ms");
    // 2.5 Mbit/s into 1.5, of which 0.5 are or are not reserved.
    let overloaded = || {
        let span = Duration::from_secs(2);
        std::thread::scope(|scope| {
            let flood = scope.spawn(|| network.flow((4001, 5005), 2000, span));
            let flow = network.flow((4000, 5004), 480, span);
            (flow, flood.join().expect("it sends"))
        })
    };
    let (open, _) = overloaded();
    network.reserve(&mut receiver, 600);
    until(&mut sender, is_reserved);
    let (protected, flood) = overloaded();
    let shown =
        run("tc", &["-n", &network.namespace("r1"), "-s", "class", "show", "dev", BOTTLENECK]);
    eprintln!(
        "sent and got: {open:?} without a reservation, {protected:?} with one, beside {flood:?}\n{shown}"
    );
    assert!(open.1 < open.0 * 9 / 10, "{open:?} without a reservation");
    assert_eq!(protected.1, protected.0, "a packet of the reserved flow was lost");
    let socket = network.place.path("r1.sock").display().to_string();
    let status = network.place.run(&["rsvp", "status", "--socket", &socket]);
    for word in
        ["l1", "1:1001", "udp 10.0.3.2:5004", "10.0.0.1:4000", "controlled load, 600 kbit/s"]
    {
        assert!(status.succeeds().out.contains(word), "{word}: {}", status.out);
    }
    let top = network.place.run(&["top", "--json", "--once", "--folder", ".", "--rsvp", &socket]);
    let reserved = &top.succeeds().json()["reservations"][0];
    for (field, value) in [
        ("session", "udp 10.0.3.2:5004"),
        ("senders", "10.0.0.1:4000"),
        ("interface", BOTTLENECK),
        ("class", "1:1001"),
    ] {
        assert_eq!(reserved[field], value, "{reserved}");
    }
    // An application that is gone wants nothing more.
    drop(receiver);
    network.wait_for_teardown("r1", BOTTLENECK);
    until(&mut sender, |event| !is_reserved(event));
    network.end();
}

#[test]
fn a_router_with_aggregates_serves_what_is_reserved_by_its_dscp_alone() {
    if !can_reserve() {
        return;
    }
    let mut network = Network::new("aggregates", false);
    for node in NODES {
        let is_router = node.starts_with('r');
        let aggregates = "aggregates = [\n  { dscp = \"EF\", service = \"guaranteed\" },\n  \
                          { dscp = \"AF41\", up-to = \"600 kbit/s\" },\n]";
        network.configure(node, if is_router { aggregates } else { "" });
        network.start(node);
    }
    let (mut sender, mut receiver) = network.reserved(500);
    // The sender's host knows which DSCP to mark with.
    let socket = network.socket("h1");
    let status = network.place.run(&["rsvp", "status", "--socket", &socket]);
    assert!(status.succeeds().out.contains("AF41"), "{}", status.out);
    let json = network.place.run(&["rsvp", "status", "--json", "--socket", &socket]);
    let session = &json.succeeds().json()["sessions"][0];
    for what in ["paths", "reservations"] {
        assert_eq!(session[what][0]["dscps"], serde_json::json!([34]), "{session}");
    }
    // That of AF41 has its code point; the host before the router has a class for the flow alone.
    let class = |node: &str, interface: &str| {
        let status = network.status(node);
        let one = status.interfaces.iter().find(|one| one.name == interface).expect("it is there");
        one.enforced.iter().map(|one| one.class.clone()).collect::<Vec<_>>()
    };
    assert_eq!(class("r1", BOTTLENECK), ["1:f022"]);
    assert_eq!(class("h1", "l0"), ["1:1001"]);
    let shown = run("tc", &["-n", &network.namespace("r1"), "class", "show", "dev", BOTTLENECK]);
    assert!(shown.contains("class htb 1:f022 ") && shown.contains("rate 507Kbit"), "{shown}");

    let span = Duration::from_secs(3);
    let beside_a_flood = |dscp: u8| {
        let flow = network.sending_marked((4000, 5004), 480, span, dscp);
        let flood = network.sending((4001, 5005), 2000, span);
        std::thread::scope(|scope| {
            let flood = scope.spawn(flood);
            let flow = flow();
            let flood = flood.join().expect("it sends");
            assert!(flood.1 < flood.0 * 9 / 10, "no overload: {flood:?}");
            flow
        })
    };
    let marked = beside_a_flood(34);
    assert_eq!(marked.0, marked.1, "a packet of the reserved flow was lost");
    // Who reserves and does not mark is best effort there.
    let unmarked = beside_a_flood(0);
    assert!(unmarked.1 < unmarked.0 * 9 / 10, "{unmarked:?}");
    // More than the aggregate takes has a class of its own, and needs no mark.
    let marks = |event: &Notice| match event {
        Notice::Reserved { marks, .. } => marks.iter().map(|mark| mark.dscps.first()).collect(),
        _ => vec![None],
    };
    let more = ontempo_reservation::local::Request::Send {
        session: network.session(),
        sender: network.sender(),
        traffic: reserved::traffic(700),
    };
    sender.ask(more).expect("it is announced");
    network.reserve(&mut receiver, 700);
    until(&mut sender, |event| is_reserved(event) && marks(event).is_empty());
    network.reserve(&mut receiver, 300);
    until(&mut sender, |event| marks(event) == [Some(34)]);
    network.end();
}

#[test]
fn ipv6_reserves_as_ipv4_does_and_a_crashed_sender_is_torn_down() {
    if !can_reserve() {
        return;
    }
    let network = Network::running("version", true);
    let socket = network.place.path("h1.sock");
    let mut sender = network
        .place
        .command(&["rsvp", "send", "[fd00:3::2]:5004", "--from", "[fd00::1]:4000", "--rate"])
        .args(["500 kbit/s", "--burst", "4 kB", "--json", "--socket"])
        .arg(socket)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut receiver = network.subscribed_client();
    network.reserve(&mut receiver, 500);
    let mut line = String::new();
    BufReader::new(sender.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(line.contains("reserved") && line.contains("62500"), "{line}");
    assert_eq!(network.classes("r1", BOTTLENECK), ["1:1001 507Kbit"]);
    let filters = run("tc", &["-n", &network.namespace("r1"), "filter", "show", "dev", BOTTLENECK]);
    assert!(filters.contains("protocol ipv6") && filters.contains("0fa0138c/ffffffff at 40"));
    let status = network.status("r2");
    assert_eq!((status.census.paths, status.census.enforced), (1, 1), "{status:?}");
    assert_eq!(status.dropped.len(), 0, "{status:?}");
    sender.kill().expect("it runs");
    sender.wait().expect("it ends");
    until(&mut receiver, |event| matches!(event, Notice::PathGone { .. }));
    network.wait_for_teardown("r1", BOTTLENECK);
    network.end();
}

#[test]
fn a_reservation_beyond_the_link_rate_is_refused_and_existing_ones_stay() {
    if !can_reserve() {
        return;
    }
    let network = Network::running("refused", false);
    let mut sender = network.announced(2000);
    let mut receiver = network.subscribed_client();
    // 90 % of 1.5 Mbit/s may be reserved.
    network.reserve(&mut receiver, 1400);
    let refused = |event: &Notice| match event {
        Notice::ResvError { failure, .. } => Some(failure.clone()),
        _ => None,
    };
    let event = until(&mut receiver, |event| refused(event).is_some());
    let failure = refused(&event).expect("as waited for");
    assert_eq!(failure.reason, "the bandwidth is not available");
    assert_eq!((failure.code, failure.value), (1, 2));
    assert_eq!(failure.node.to_string(), "10.0.1.1", "the router before the bottleneck");
    assert!(network.classes("r1", BOTTLENECK).is_empty());
    network.reserve(&mut receiver, 1300);
    until(&mut sender, is_reserved);
    assert_eq!(network.classes("r1", BOTTLENECK), ["1:1001 1318Kbit"]);
    network.reserve(&mut receiver, 1500);
    let event = until(&mut receiver, |event| refused(event).is_some());
    assert!(refused(&event).is_some_and(|failure| failure.in_place), "{event:?}");
    assert_eq!(network.classes("r1", BOTTLENECK), ["1:1001 1318Kbit"]);
    network.end();
}

#[test]
fn a_killed_router_daemon_causes_no_gap_and_refreshes_restore_its_state() {
    if !can_reserve() {
        return;
    }
    let mut network = Network::running("killed", false);
    let (_sender, _receiver) = network.reserved(500);
    let before = network.classes("r1", BOTTLENECK);
    // A class that no reservation will claim.
    let stale = "tc class add dev l1 parent 1:fff0 classid 1:1007 htb rate 100kbit ceil 1500kbit; \
                 tc filter add dev l1 parent 1: protocol ip prio 14 u32 match ip dst 10.0.3.2/32 \
                 match ip protocol 17 0xff match ip dport 9 0xffff flowid 1:1007";
    network.exec("r1", stale);
    let span = Duration::from_secs(5);
    let (flow, flood) = std::thread::scope(|scope| {
        let flow = network.sending((4000, 5004), 480, span);
        let flood = network.sending((4001, 5005), 2000, span);
        let (flow, flood) = (scope.spawn(flow), scope.spawn(flood));
        std::thread::sleep(Duration::from_millis(700));
        network.signal("r1", "-KILL");
        assert!(network.classes("r1", BOTTLENECK).contains(&before[0]));
        std::thread::sleep(Duration::from_millis(300));
        network.start("r1");
        let begun = Instant::now();
        wait_until("recovery", || network.status("r1").census.enforced == 1);
        eprintln!("recovered {:.0?} after the restart", begun.elapsed());
        assert!(network.classes("r1", BOTTLENECK).contains(&before[0]));
        (flow.join().expect("it sends"), flood.join().expect("it sends"))
    });
    eprintln!("sent and got: {flow:?} with a reservation, beside {flood:?}");
    assert_eq!(flow.0, flow.1, "a packet of the reserved flow was lost");
    assert!(flood.1 < flood.0 * 9 / 10, "no overload: {flood:?}");
    // Lifetime is 3.5 * 1.5 refresh periods.
    wait_until("the end of what nobody asks for", || network.classes("r1", BOTTLENECK) == before);
    let log = network.log("r1");
    assert!(log.contains("l1: took over 2 classes") && log.contains("removed 1 class"), "{log}");
    network.end();
}

#[test]
fn a_reservation_follows_its_flow_when_routes_change_and_links_break() {
    if !can_reserve() {
        return;
    }
    let network = Network::running("moves", false);
    let (_sender, _receiver) = network.reserved(500);
    assert_eq!(network.classes("r1", BOTTLENECK), ["1:1001 507Kbit"]);
    let begun = Instant::now();
    network.exec("r1", "ip route del 10.0.3.0/24 via 10.0.1.2 metric 10");
    wait_until("the new way", || !network.classes("r1", SPARE).is_empty());
    let moved = begun.elapsed();
    network.wait_for_teardown("r1", BOTTLENECK);
    let left = begun.elapsed();
    network.exec("r1", "ip route add 10.0.3.0/24 via 10.0.1.2 metric 30");
    let begun = Instant::now();
    network.exec("r1", "ip link set l2 down");
    wait_until("the way back", || !network.classes("r1", BOTTLENECK).is_empty());
    eprintln!(
        "route changed: reserved after {moved:.0?}, old way free after {left:.0?}; link cut: \
         reserved after {:.0?}",
        begun.elapsed()
    );
    network.end();
}

#[test]
fn unauthenticated_messages_are_dropped_and_counted_if_a_key_is_set() {
    if !can_reserve() {
        return;
    }
    let mut network = Network::new("sealed", false);
    let secret = network.place.path("secret");
    fs::write(&secret, "a secret of sixteen bytes and more\n").expect("a secret");
    run("chmod", &["600", &secret.display().to_string()]);
    let key = format!("key = {{ id = 7, secret-file = {:?} }}", secret.display().to_string());
    for node in NODES {
        network.configure(node, if node == "h1" { "" } else { &key });
        network.start(node);
    }
    let unsealed = network.announced(500);
    let reason = "the message has no INTEGRITY object";
    wait_until("a drop", || network.status("r1").dropped.get(reason).is_some_and(|n| *n >= 2));
    assert_eq!(network.status("r1").census.paths, 0);
    assert!(network.log("r1").contains(&format!("from 10.0.0.1 by l0: {reason}")));
    drop(unsealed);
    network.signal("h1", "-TERM");
    network.configure("h1", &key);
    network.start("h1");
    let (_sender, receiver) = network.reserved(500);
    assert_eq!(network.classes("r1", BOTTLENECK), ["1:1001 507Kbit"]);
    assert!(network.status("r2").interfaces.iter().all(|one| one.authenticated));
    drop(receiver);
    network.end();
}

#[test]
fn tshark_finds_nothing_malformed_in_a_real_reservation() {
    if !can_reserve() || !require_programs(&["tshark"]) {
        return;
    }
    for v6 in [false, true] {
        let network = Network::running(if v6 { "sharksix" } else { "sharkfour" }, v6);
        let file = network.place.path("packets.pcap").display().to_string();
        let mut capture = network
            .program("r1", "tshark")
            .args(["-q", "-i", "l0", "-i", "l1"])
            .args(["-f", "ip proto 46 or ip6", "-w", &file])
            .stderr(Stdio::piped())
            .spawn()
            .expect("tshark");
        let mut printed = BufReader::new(capture.stderr.take().expect("a pipe")).lines();
        let ready = |line: &std::io::Result<String>| {
            line.as_ref().is_ok_and(|line| line.contains("Capturing on"))
        };
        assert!(printed.any(|line| ready(&line)), "tshark captures");
        std::thread::sleep(Duration::from_millis(700));
        let (sender, mut receiver) = network.reserved(500);
        network.reserve(&mut receiver, 5000);
        std::thread::sleep(Duration::from_millis(1500));
        drop((sender, receiver));
        network.wait_for_teardown("r1", BOTTLENECK);
        std::thread::sleep(Duration::from_millis(300));
        // It ends in the same way, and a shell's background job may ignore SIGINT.
        run("kill", &["-TERM", &capture.id().to_string()]);
        capture.wait().expect("it ends");
        let read = |words: &[&str]| run("tshark", &[&["-r", &file], words].concat());
        let filter = "rsvp && (_ws.malformed || _ws.expert.severity >= 0x400000)";
        let wrong = read(&["-Y", filter, "-V"]);
        assert!(wrong.is_empty(), "{wrong}");
        let kinds = read(&["-Y", "rsvp", "-T", "fields", "-e", "rsvp.msg"]);
        for kind in ["1", "2", "5"] {
            assert!(kinds.lines().any(|line| line == kind), "no message {kind}: {kinds}");
        }
        eprintln!("{}", read(&["-Y", "rsvp"]));
        // PATH, and it alone, asks routers to look.
        let alert = if v6 { "ipv6.opt.router_alert" } else { "ip.opt.ra" };
        let alone = read(&["-Y", &format!("rsvp.msg == 1 && !{alert}")]);
        assert!(alone.is_empty(), "{alone}");
        network.end();
    }
}

#[test]
fn a_second_daemon_an_unprivileged_user_and_bad_input_are_refused() {
    if !can_reserve() {
        return;
    }
    let mut network = Network::new("second", false);
    network.configure("r1", "");
    network.start("r1");
    let second = Ran::of(network.daemon("r1").output().expect("ip is there"));
    second.fails(3, &["another ontempo rsvpd runs on this host"]);
    let config = network.place.path("r1.toml");
    let text = fs::read_to_string(&config).expect("a configuration");
    let mut user = Command::new(network.place.copy_of_program());
    let done = user.arg("rsvpd").arg(&config).uid(65534).output().expect("the program starts");
    Ran::of(done).fails(3, &["the rights of root"]);
    let bad = network.place.path("bad.toml");
    for (from, to, words) in [
        ("1.5 Mbit/s", "1.5", ["rate", "Mbit/s"]),
        ("rate =", "speed =", ["speed", "rate"]),
        ("\"500 ms\"", "\"1 ms\"", ["refresh", "between"]),
        ("[interfaces.l1]", "[interfaces.\"l 1\"]", ["l 1", "letters"]),
        ("[interfaces.l1]", "group = 5\n[interfaces.l1]", ["group", "unknown field"]),
    ] {
        fs::write(&bad, text.replace(from, to)).expect("a configuration");
        let ran = network.place.run(&["rsvpd", "--check", "bad.toml"]);
        ran.fails(2, &["bad.toml", words[0], words[1]]);
    }
    network.place.run(&["rsvpd", "--check", "r1.toml"]).succeeds();
    // A qdisc that is not ours stays.
    network.signal("r1", "-TERM");
    network.exec("r1", "tc qdisc add dev l1 root handle 7: tbf rate 1mbit burst 3k latency 9ms");
    let theirs = Ran::of(network.daemon("r1").output().expect("ip is there"));
    theirs.fails(3, &["l1", "somebody else's", "tbf 7:", "enforce = false"]);
    let left = network.exec("r1", "tc qdisc show");
    assert!(!left.contains("htb"), "it has not started: {left}");
    network.exec("r1", "tc qdisc del dev l1 root handle 7:");
    network.start("r1");
    for nonsense in [b"{\"id\":1,\"request\":\"fly\"}\n".to_vec(), vec![b'x'; MAX_LINE_LEN + 2]] {
        let mut stream = UnixStream::connect(network.place.path("r1.sock")).expect("a socket");
        stream.write_all(&nonsense).expect("it is taken");
        let mut printed = Vec::new();
        // With or without an error message, the connection ends.
        let _ = std::io::Read::read_to_end(&mut stream, &mut printed);
        let printed = String::from_utf8_lossy(&printed);
        assert!(printed.is_empty() || printed.contains("unknown variant `fly`"), "{printed}");
    }
    assert_eq!(network.status("r1").census.sessions, 0);
    network.end();
}
