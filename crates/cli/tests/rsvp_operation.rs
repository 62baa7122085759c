//! The RSVP daemon for its operator: log, reload, restart. Needs root; skipped tests are
//! reported.

mod common;
mod reserved;

use std::time::{Duration, Instant};

use common::wait_until;
use ontempo_reservation::local::{Notice, Request};
use ontempo_reservation::message::{Descriptor, FlowSpec, Sender, Style};
use reserved::{BOTTLENECK, NODES, Network, SPARE, can_reserve, is_reserved, run, traffic, until};

fn reload(network: &Network, node: &str) {
    run("kill", &["-HUP", &network.process(node).to_string()]);
}

/// A network whose nodes refresh their state after 5 minutes at the soonest.
fn with_rare_refreshes(name: &str) -> Network {
    let mut network = Network::new(name, false);
    for node in NODES {
        network.configure(node, "");
        network.rewrite(node, |text| text.replacen("500 ms", "600 s", 1));
        network.start(node);
    }
    network
}

fn waits_for_line(network: &Network, node: &str, words: &[&str]) {
    let has = |line: &str| words.iter().all(|word| line.contains(word));
    wait_until(&words.join(" "), || network.log(node).lines().any(has));
}

#[test]
fn the_log_has_a_line_for_each_neighbour_flow_class_and_refusal() {
    if !can_reserve() {
        return;
    }
    let network = Network::running("logs", false);
    let (sender, mut receiver) = network.reserved(500);
    network.reserve(&mut receiver, 5000);
    until(&mut receiver, |event| matches!(event, Notice::Confirmed { .. }));
    let mut other = network.announced_at(4002, 2000);
    network.reserve_at(&mut receiver, 4002, 2000);
    until(&mut receiver, |event| matches!(event, Notice::ResvError { .. }));
    for words in [
        &["ready, process"][..],
        &["l1: has RSVP"],
        &["neighbour 10.0.1.2 by l1 is up"],
        &["PATH of 10.0.0.1:4000 to udp 10.0.3.2:5004 from 10.0.0.1 by l0"],
        &["RESV for udp 10.0.3.2:5004 from 10.0.1.2 by l1"],
        &["l1: class 1:1001 made: 507 kbit/s for udp 10.0.3.2:5004"],
        &["refused a request for udp 10.0.3.2:5004 from 10.0.1.2 by l1", "bandwidth"],
    ] {
        waits_for_line(&network, "r1", words);
    }
    let _ = other.event(Some(Duration::from_millis(1)));
    drop((sender, other, receiver));
    waits_for_line(&network, "r1", &["l1: class 1:1001 removed"]);
    waits_for_line(&network, "r1", &["PATH of 10.0.0.1:4000", "has ended"]);
    network.end();
}

#[test]
fn a_reload_takes_over_rates_and_interfaces_and_touches_nothing_that_stands() {
    if !can_reserve() {
        return;
    }
    let network = Network::running("reloads", false);
    let (_sender, _receiver) = network.reserved(500);
    let before = network.status("r1");
    let span = Duration::from_secs(5);
    let (flow, flood) = std::thread::scope(|scope| {
        let flow = network.sending((4000, 5004), 480, span);
        let flood = network.sending((4001, 5005), 2000, span);
        let (flow, flood) = (scope.spawn(flow), scope.spawn(flood));
        std::thread::sleep(Duration::from_millis(500));
        network.rewrite("r1", |text| {
            text.replacen("1.5 Mbit/s", "1.2 Mbit/s", 1)
                .replace("[interfaces.l2]", "[interfaces.l9]")
        });
        reload(&network, "r1");
        waits_for_line(&network, "r1", &["reloaded the configuration"]);
        (flow.join().expect("it sends"), flood.join().expect("it sends"))
    });
    assert_eq!(flow.0, flow.1, "a packet of the reserved flow was lost");
    assert!(flood.1 < flood.0 * 9 / 10, "no overload: {flood:?}");
    let shown = run("tc", &["-n", &network.namespace("r1"), "class", "show", "dev", BOTTLENECK]);
    assert!(
        shown.contains("class htb 1:1001") && shown.contains("rate 507Kbit ceil 1200Kbit"),
        "{shown}"
    );
    assert!(shown.contains("1:fff0 root rate 1200Kbit ceil 1200Kbit"), "{shown}");
    let spare = run("tc", &["-n", &network.namespace("r1"), "qdisc", "show", "dev", "l2"]);
    assert!(!spare.contains("htb"), "an interface that is no longer named: {spare}");
    let after = network.status("r1");
    assert_eq!(after.process, before.process);
    assert_eq!(
        after.interfaces.iter().map(|one| one.rate).collect::<Vec<_>>(),
        [10_000_000, 1_200_000]
    );
    // What is wrong, or cannot change, is refused as a whole.
    for (from, to, words) in [
        ("1.2 Mbit/s", "1.2", &["not reloaded", "r1.toml", "Mbit/s"][..]),
        ("r1.sock", "other.sock", &["not reloaded", "socket", "restart"]),
        (
            "[interfaces.l1]",
            "[interfaces.l1]\nenforce = false",
            &["not reloaded", "interfaces.l1.enforce"],
        ),
        ("rate = \"10", "speed = \"10", &["not reloaded", "unknown field `speed`"]),
    ] {
        let mut good = String::new();
        network.rewrite("r1", |text| {
            good = text.to_owned();
            text.replacen(from, to, 1)
        });
        reload(&network, "r1");
        let log = || network.log("r1");
        wait_until(&words.join(" "), || words.iter().all(|word| log().contains(word)));
        network.rewrite("r1", |_| good);
    }
    assert_eq!(network.status("r1").interfaces[1].rate, 1_200_000, "the old one stays");
    network.rewrite("r1", |text| text.replace("[interfaces.l9]", "[interfaces.l2]"));
    reload(&network, "r1");
    wait_until("the spare link", || network.status("r1").interfaces.len() == 3);
    network.end();
}

#[test]
fn a_restart_with_another_configuration_leaves_no_flow_without_its_class() {
    if !can_reserve() {
        return;
    }
    let mut network = Network::running("again", false);
    let (_sender, _receiver) = network.reserved(500);
    let span = Duration::from_secs(5);
    let (flow, flood) = std::thread::scope(|scope| {
        let flow = network.sending((4000, 5004), 480, span);
        let flood = network.sending((4001, 5005), 2000, span);
        let (flow, flood) = (scope.spawn(flow), scope.spawn(flood));
        std::thread::sleep(Duration::from_millis(500));
        network.signal("r1", "-USR1");
        assert_eq!(network.classes("r1", BOTTLENECK), ["1:1001 507Kbit"]);
        network.rewrite("r1", |text| text.replacen("1.5 Mbit/s", "1.4 Mbit/s", 1));
        network.start("r1");
        assert_eq!(network.classes("r1", BOTTLENECK), ["1:1001 507Kbit"]);
        wait_until("recovery", || network.status("r1").census.enforced == 1);
        (flow.join().expect("it sends"), flood.join().expect("it sends"))
    });
    assert_eq!(flow.0, flow.1, "a packet of the reserved flow was lost");
    assert!(flood.1 < flood.0 * 9 / 10, "no overload: {flood:?}");
    let log = network.log("r1");
    assert!(log.contains("ends for a restart") && log.contains("l1: took over 1 classes"), "{log}");
    network.end();
}

#[test]
fn another_address_or_mtu_of_a_link_ends_no_reservation() {
    if !can_reserve() {
        return;
    }
    for v6 in [false, true] {
        let network = Network::running(if v6 { "addresssix" } else { "addressfour" }, v6);
        let (mut sender, _receiver) = network.reserved(500);
        let class = network.classes("h1", "l0");
        assert_eq!(class.len(), 1);
        let first = network.status("r1").interfaces[1].addresses.clone();
        for change in [
            "ip addr add 10.9.9.9/32 dev l1",
            "ip addr add fd00:1::9/64 dev l1 nodad",
            "ip link set l1 mtu 1600",
            "ip addr del 10.9.9.9/32 dev l1; ip addr del fd00:1::9/64 dev l1",
        ] {
            network.exec("r1", change);
            let until = Instant::now() + Duration::from_secs(1);
            while let Some(left) = until.checked_duration_since(Instant::now()) {
                if let Some(event) = sender.event(Some(left)).expect("the daemon runs") {
                    assert!(is_reserved(&event), "{change}: {event:?}");
                }
            }
            assert_eq!(network.classes("h1", "l0"), class, "{change}");
            assert_eq!(network.classes("r1", BOTTLENECK), class, "{change}");
            let addresses = network.status("r1").interfaces[1].addresses.clone();
            assert!(addresses.starts_with(&first), "{change}: {addresses:?}");
        }
        assert_eq!(network.status("r1").interfaces[1].mtu, 1600);
        waits_for_line(&network, "r1", &["l1: changed"]);
        let log = network.log("r2");
        assert!(!log.contains("neighbour fd00:1::9"), "another hop: {log}");
        network.end();
    }
}

#[test]
fn after_a_flap_the_log_does_not_call_the_daemons_own_classes_anothers() {
    if !can_reserve() {
        return;
    }
    let network = Network::running("flaps", false);
    let (_sender, _receiver) = network.reserved(500);
    network.exec("r1", "ip link set l1 down");
    waits_for_line(&network, "r1", &["l1: is down"]);
    network.exec("r1", "ip link set l1 up");
    waits_for_line(&network, "r1", &["l1: took over 1 classes that this daemon has made"]);
    let log = network.log("r1");
    assert!(!log.contains("a daemon before this one"), "{log}");
    network.end();
}

#[test]
fn after_a_flap_the_neighbour_is_asked_and_its_refresh_not_waited_for() {
    if !can_reserve() {
        return;
    }
    let network = with_rare_refreshes("asks-flap");
    let (_sender, _receiver) = network.reserved(500);
    waits_for_line(&network, "r1", &["neighbour 10.0.1.2 by l1 is up"]);
    // There is no other way, which its neighbour would see.
    network.exec("r1", "ip route del 10.0.3.0/24 via 10.0.2.2; ip link set l1 down");
    waits_for_line(&network, "r1", &["l1: is down"]);
    wait_until("its end", || network.status("r1").census.enforced == 0);
    network.exec("r1", "ip link set l1 up; ip route add 10.0.3.0/24 via 10.0.1.2");
    let begun = Instant::now();
    // The refresh would come after 5 minutes at least.
    wait_until("recovery", || network.status("r1").census.enforced == 1);
    eprintln!("reserved again {:.0?} after the link was up", begun.elapsed());
    network.end();
}

#[test]
fn traffic_control_that_another_program_removes_is_set_up_again() {
    if !can_reserve() {
        return;
    }
    let network = Network::running("removed", false);
    let (_sender, _receiver) = network.reserved(500);
    let class = network.classes("r1", BOTTLENECK);
    assert_eq!(class.len(), 1);
    network.exec("r1", "tc qdisc del dev l1 root");
    waits_for_line(&network, "r1", &["l1: another program has removed"]);
    waits_for_line(&network, "r1", &["l1: set up again, with 1 reservations"]);
    wait_until("its class", || network.classes("r1", BOTTLENECK) == class);
    let log = network.log("r1");
    assert!(!log.contains("has ended"), "nothing was torn down: {log}");
    // What somebody else has put there is not removed: it is told, and the flow is not reserved.
    network.exec("r1", "tc qdisc replace dev l1 root pfifo");
    waits_for_line(&network, "r1", &["tc qdisc del dev l1 root", "until then l1 has no RSVP"]);
    assert!(network.status("r1").interfaces.iter().all(|one| one.name != BOTTLENECK));
    let logged = || network.log("r1").matches("its queue discipline is somebody else's").count();
    assert_eq!(logged(), 1);
    network.exec("r1", "tc qdisc del dev l1 root");
    // Nobody has to tell the daemon.
    wait_until("its class", || network.classes("r1", BOTTLENECK) == class);
    network.end();
}

#[test]
fn of_what_traffic_control_refuses_no_class_is_said_to_be_removed() {
    if !can_reserve() {
        return;
    }
    let network = Network::running("refuses", false);
    // Its class is another one's.
    network.exec("r1", "tc class add dev l1 parent 1:fff0 classid 1:1001 htb rate 8kbit");
    let _sender = network.announced(500);
    let mut receiver = network.subscribed_client();
    network.reserve(&mut receiver, 500);
    until(&mut receiver, |event| matches!(event, Notice::ResvError { .. }));
    waits_for_line(&network, "r1", &["traffic control refused"]);
    let log = network.log("r1");
    assert!(!log.contains(" removed"), "{log}");
    network.end();
}

#[test]
fn a_class_that_is_changed_and_ended_at_once_has_its_name_in_the_log() {
    if !can_reserve() {
        return;
    }
    let mut network = Network::running("named", false);
    let mut sender = network.announced(500);
    let _other = network.announced_at(4002, 500);
    let mut receiver = network.subscribed_client();
    let filters = [4000, 4002].map(|port| Sender { port, ..network.sender() }).to_vec();
    let flows = vec![Descriptor { flowspec: FlowSpec::ControlledLoad(traffic(800)), filters }];
    let (session, style) = (network.session(), Style::SharedExplicit);
    receiver.ask(Request::Reserve { session, style, flows, confirm: true }).expect("accepted");
    let has_both = |flow: &Descriptor| flow.filters.len() == 2;
    until(
        &mut sender,
        |event| matches!(event, Notice::Reserved { flows, .. } if flows.iter().any(has_both)),
    );
    // Both senders end one after the other, before traffic control is asked.
    network.signal("h1", "-TERM");
    let log = network.log("h1");
    assert!(log.contains("l0: class 1:1001 removed") && !log.contains("class  "), "{log}");
    network.end();
}

#[test]
fn an_interface_that_cannot_be_set_up_keeps_no_other_from_it() {
    if !can_reserve() {
        return;
    }
    let mut network = Network::new("taken", false);
    let taken = "ip link set l1 down; ip link set l2 down; \
                 tc qdisc add dev l1 root handle 7: tbf rate 1mbit burst 3k latency 9ms";
    network.exec("r1", taken);
    network.configure("r1", "");
    network.start("r1");
    network.exec("r1", "ip link set l1 up; ip link set l2 up");
    waits_for_line(&network, "r1", &["l1: its queue discipline is somebody else's"]);
    waits_for_line(&network, "r1", &["l2: has RSVP"]);
    network.end();
}

#[test]
fn what_is_enforced_no_more_after_a_restart_or_a_reload_has_no_classes_of_before() {
    if !can_reserve() {
        return;
    }
    let mut network = Network::running("leftover", false);
    let (_sender, _receiver) = network.reserved(500);
    let has_htb = |network: &Network, interface: &str| {
        let namespace = network.namespace("r1");
        run("tc", &["-n", &namespace, "qdisc", "show", "dev", interface]).contains("htb")
    };
    network.signal("r1", "-USR1");
    assert!(["l0", "l1", "l2"].iter().all(|one| has_htb(&network, one)));
    network.rewrite("r1", |text| {
        text.replace("[interfaces.l1]", "[interfaces.l1]\nenforce = false")
            .replace("[interfaces.l2]", "[interfaces.l9]")
    });
    network.start("r1");
    for one in ["l1", "l2"] {
        waits_for_line(&network, "r1", &[one, "removed the classes of a daemon before"]);
        assert!(!has_htb(&network, one), "{one}");
    }
    assert!(has_htb(&network, "l0"));
    // No longer named while it is down.
    network.exec("r1", "ip link set l0 down");
    waits_for_line(&network, "r1", &["l0: is down"]);
    network.rewrite("r1", |text| text.replace("[interfaces.l0]", "[interfaces.l8]"));
    reload(&network, "r1");
    waits_for_line(&network, "r1", &["reloaded the configuration"]);
    network.exec("r1", "ip link set l0 up");
    assert!(!has_htb(&network, "l0"));
    network.end();
}

#[test]
fn an_interface_that_is_down_all_the_time_keeps_no_qdisc_of_a_daemon_before() {
    if !can_reserve() {
        return;
    }
    let mut network = Network::running("downleft", false);
    let has_htb = |network: &Network| {
        let namespace = network.namespace("r1");
        run("tc", &["-n", &namespace, "qdisc", "show", "dev", SPARE]).contains("htb")
    };
    let down = |network: &mut Network| {
        network.signal("r1", "-USR1");
        network.exec("r1", &format!("ip link set {SPARE} down"));
        network.start("r1");
        waits_for_line(network, "r1", &[SPARE, "not used until it is up"]);
        assert!(has_htb(network));
    };
    down(&mut network);
    network.signal("r1", "-TERM");
    assert!(!has_htb(&network), "after the end");
    network.exec("r1", &format!("ip link set {SPARE} up"));
    network.start("r1");
    wait_until("its qdisc", || has_htb(&network));
    down(&mut network);
    network.rewrite("r1", |text| text.replace("[interfaces.l2]", "[interfaces.l9]"));
    reload(&network, "r1");
    waits_for_line(&network, "r1", &["reloaded the configuration"]);
    assert!(!has_htb(&network), "after it is no longer named");
    network.end();
}

#[test]
fn a_killed_daemon_asks_its_neighbours_and_does_not_wait_for_their_refreshes() {
    if !can_reserve() {
        return;
    }
    let mut network = with_rare_refreshes("asks");
    let (_sender, _receiver) = network.reserved(500);
    waits_for_line(&network, "r1", &["neighbour 10.0.1.2 by l1 is up"]);
    waits_for_line(&network, "r1", &["neighbour 10.0.0.1 by l0 is up"]);
    network.signal("r1", "-KILL");
    network.start("r1");
    let begun = Instant::now();
    // Their refreshes would come after 5 minutes at least.
    wait_until("recovery", || network.status("r1").census.enforced == 1);
    eprintln!("state was back {:.0?} after the start", begun.elapsed());
    waits_for_line(&network, "r1", &["asks 2 neighbours"]);
    assert_eq!(network.status("r1").interfaces[1].adopted, 0);
    network.end();
}

#[test]
fn the_host_of_a_sender_has_its_reservation_again_once_its_application_asks() {
    if !can_reserve() {
        return;
    }
    let mut network = with_rare_refreshes("asks-late");
    let (_sender, _receiver) = network.reserved(500);
    // At once: the neighbour was just heard.
    network.signal("h1", "-USR1");
    network.start("h1");
    waits_for_line(&network, "h1", &["asks 1 neighbours"]);
    // The questions of the start are over: no RESV can be taken yet.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(network.status("h1").census.enforced, 0);
    let begun = Instant::now();
    let mut sender = network.announced(500);
    // The receiver's refresh would come after 5 minutes at least.
    until(&mut sender, is_reserved);
    eprintln!("reserved again {:.0?} after the application asked", begun.elapsed());
    network.end();
}
