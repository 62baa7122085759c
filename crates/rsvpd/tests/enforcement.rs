//! What `tc` makes of our lines, in a network namespace of its own.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};
use ontempo_foundation::{Bytes, Rate};
use ontempo_reservation::htb::{
    Aggregate, Device, Htb, Objects, Root, Serves, left_on, lines_to_end, root_of,
};
use ontempo_reservation::machine::{ControlRequest, Handle, InterfaceId, Reservation};
use ontempo_reservation::message::{FlowSpec, Sender, Session, TrafficSpec};

const BY: InterfaceId = InterfaceId(0);
const LINK: u64 = 1_500_000;

fn htb() -> Htb {
    let (rate, reservable) = (Rate::from_bits_per_sec(LINK), Rate::from_bits_per_sec(LINK / 3 * 2));
    let (mtu, header, uncounted) = (Bytes::new(1500), Bytes::ZERO, Bytes::new(24));
    let name = "d0".to_owned();
    Htb::new(Device { name, rate, reservable, mtu, header, uncounted }).expect("d0 is a name")
}

fn reservation(destination: IpAddr, sources: &[IpAddr], kilobits: u64) -> Reservation {
    let traffic = TrafficSpec {
        rate: kilobits as f32 * 125.0,
        burst: 3_000.0,
        peak: f32::INFINITY,
        smallest: 64,
        largest: 1_500,
    };
    Reservation {
        session: Session { destination, protocol: 17, port: 5004 },
        filters: sources.iter().map(|address| Sender { address: *address, port: 4000 }).collect(),
        flowspec: FlowSpec::ControlledLoad(traffic),
        rate: Rate::from_bits_per_sec(kilobits * 1000),
        burst: Bytes::new(3_000),
    }
}

/// Runs the lines on an interface of a new namespace; gives what `show` prints then, and the
/// kernel's objects. `None`, with a recorded skip, where this machine gives no namespace.
fn applied(lines: &[String], show: &str) -> Option<(String, Objects)> {
    // A namespace belongs to a thread; its name tells which test a skip is of.
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(test);
        let thread = thread.spawn_scoped(scope, || in_a_namespace(lines, show));
        thread.expect("a thread").join().expect("no panic")
    })
}

fn in_a_namespace(lines: &[String], show: &str) -> Option<(String, Objects)> {
    if !ontempo_testing::require_programs(&["ip", "tc"]) {
        return None;
    }
    let skipped = |why: &dyn std::fmt::Display| {
        ontempo_testing::record_skip(&format!("no namespace of its own: {why}"));
        None
    };
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        return skipped(&error);
    }
    let script =
        format!("ip tuntap add d0 mode tun && ip link set d0 up || exit 42; tc -batch - && {show}");
    let mut run = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell");
    // Where the interface is refused nobody reads.
    let _ = run.stdin.take().expect("a pipe").write_all((lines.join("\n") + "\n").as_bytes());
    let done = run.wait_with_output().expect("the shell ends");
    let error = String::from_utf8_lossy(&done.stderr);
    if done.status.code() == Some(42) {
        return skipped(&error);
    }
    assert!(done.status.success(), "{error}\n{}", lines.join("\n"));
    let shown = String::from_utf8_lossy(&done.stdout).into_owned();
    Some((shown, ontempo_rsvpd::objects("d0").expect("the kernel answers")))
}

fn tc(lines: &[String], show: &str) -> Option<String> {
    applied(lines, show).map(|(shown, _)| shown)
}

const HERE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3))];
const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 2));

#[test]
fn classes_and_filters_follow_every_request() {
    let mut htb = htb();
    let mut lines = htb.begin();
    let far = IpAddr::V6(Ipv6Addr::LOCALHOST);
    for request in [
        ControlRequest::Add(BY, Handle(1), reservation(THERE, &HERE[..1], 400)),
        ControlRequest::Add(BY, Handle(2), reservation(far, &[far], 100)),
        ControlRequest::Add(BY, Handle(0x7ff0), reservation(THERE, &[], 64)),
        ControlRequest::Modify(BY, Handle(1), reservation(THERE, &HERE, 300)),
        ControlRequest::Modify(BY, Handle(1), reservation(THERE, &HERE, 350)),
        ControlRequest::Remove(BY, Handle(2)),
    ] {
        lines.extend(htb.lines(&request));
    }
    let Some(shown) =
        tc(&lines, "tc class show dev d0; tc filter show dev d0; tc qdisc show dev d0")
    else {
        return;
    };
    assert_eq!(shown.matches("class htb").count(), 7, "{shown}");
    // 3,000 bytes in packets that count as 64 at least.
    assert_eq!(shown.matches("limit 64p").count(), 2, "{shown}");
    assert!(shown.contains("class htb 1:1001 parent 1:fff0 leaf"), "{shown}");
    assert!(shown.contains("prio 7 rate 350Kbit overhead 24 ceil 1500Kbit"), "{shown}");
    assert!(shown.contains("class htb 1:8ff0 parent 1:fff0 leaf"), "{shown}");
    assert!(shown.contains("prio 7 rate 64Kbit"), "{shown}");
    assert_eq!(shown.matches("flowid 1:1001 ").count(), 2, "{shown}");
    assert_eq!(shown.matches("flowid 1:8ff0 ").count(), 1);
    assert_eq!(shown.matches("match 0a000003/ffffffff at 12").count(), 1);
}

#[test]
fn nothing_is_left_after_the_last_reservation_and_after_the_end() {
    let mut htb = htb();
    let mut lines = htb.begin();
    for handle in 1..=50 {
        let add = ControlRequest::Add(BY, Handle(handle), reservation(THERE, &HERE, 10));
        lines.extend(htb.lines(&add));
    }
    for handle in 1..=50 {
        lines.extend(htb.lines(&ControlRequest::Remove(BY, Handle(handle))));
    }
    let show = "tc class show dev d0; tc filter show dev d0";
    let Some(shown) = tc(&lines, show) else { return };
    assert_eq!(shown.matches("class htb").count(), 5);
    assert!(!shown.contains("flowid 1:10"), "{shown}");
    lines.extend(htb.end());
    let shown = tc(&lines, "tc class show dev d0; tc qdisc show dev d0").unwrap();
    assert!(!shown.contains("htb"), "{shown}");
}

/// What `tc` shows, parted as it was asked for.
const SHOW: &str =
    "tc qdisc show dev d0; echo =; tc class show dev d0; echo =; tc filter show dev d0";

fn other() -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 1, 9))
}

/// What a daemon finds that starts after another was killed.
fn restarted(objects: &Objects) -> (Htb, Vec<String>) {
    assert_eq!(root_of(objects), Root::Ours);
    let mut htb = htb();
    let lines = htb.adopt(left_on(objects));
    (htb, lines)
}

#[test]
fn what_a_killed_daemon_left_is_taken_over_and_the_rest_ends_with_its_lifetime() {
    let mut before = htb();
    let mut lines = before.begin();
    for request in [
        ControlRequest::Add(BY, Handle(1), reservation(other(), &HERE[1..], 100)),
        ControlRequest::Add(BY, Handle(2), reservation(THERE, &HERE, 400)),
    ] {
        lines.extend(before.lines(&request));
    }
    let Some((_, found)) = applied(&lines, SHOW) else { return };
    let (mut after, mut more) = restarted(&found);
    assert_eq!(after.adopted(), 2);
    // Senders of handle 2 before come back one by one, now under handle 1.
    let first = ControlRequest::Add(BY, Handle(1), reservation(THERE, &HERE[..1], 400));
    let change = after.lines(&first);
    assert!(!change.iter().any(|line| line.starts_with("filter")), "{change:?}");
    assert!(change[0].contains("1:1002"), "{change:?}");
    more.extend(change);
    let both = ControlRequest::Modify(BY, Handle(1), reservation(THERE, &HERE, 400));
    more.extend(after.lines(&both));
    assert_eq!((after.class_name(Handle(1)).as_deref(), after.adopted()), (Some("1:1002"), 1));
    // A handle whose class is taken has another.
    let new = reservation(IpAddr::V4(Ipv4Addr::LOCALHOST), &[], 64);
    more.extend(after.lines(&ControlRequest::Add(BY, Handle(2), new)));
    assert_eq!(after.class_name(Handle(2)).as_deref(), Some("1:1003"));
    more.extend(after.purge());
    lines.extend(more);
    let shown = tc(&lines, SHOW).expect("a namespace, as before");
    assert_eq!(shown.matches("class htb").count(), 7, "{shown}");
    assert!(!shown.contains("1:1001 "), "{shown}");
    assert_eq!(shown.matches("flowid 1:1002 ").count(), 2, "{shown}");
}

/// Another program's discipline.
fn theirs() -> Vec<String> {
    let lines = [
        "qdisc add dev d0 root handle 1: htb default 2",
        "class add dev d0 parent 1: classid 1:1 htb rate 1mbit quantum 1500",
        "class add dev d0 parent 1:1 classid 1:2 htb rate 1mbit quantum 1500",
        "class add dev d0 parent 1:1 classid 1:10 htb rate 1mbit quantum 1500",
        "filter add dev d0 parent 1: protocol ip prio 1 u32 match ip dport 9 0xffff flowid 1:10",
    ];
    lines.map(str::to_owned).to_vec()
}

/// The kernel lists classes in no order.
fn sorted(shown: &str) -> Vec<String> {
    let mut lines: Vec<String> = shown.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn below_somebody_elses_root_all_of_ours_goes_and_nothing_else() {
    let mut lines = theirs();
    let Some((before, found)) = applied(&lines, SHOW) else { return };
    assert_eq!(root_of(&found), Root::Theirs);
    let mut htb = htb().under_theirs();
    lines.extend(htb.tables());
    lines.extend(htb.adopt(left_on(&found)));
    let any = Session { destination: THERE, protocol: 17, port: 0 };
    let mut wildcard = reservation(THERE, &[], 64);
    wildcard.session = any;
    for (handle, reservation) in [(1, wildcard), (2, reservation(THERE, &HERE, 100))] {
        lines.extend(htb.lines(&ControlRequest::Add(BY, Handle(handle), reservation)));
    }
    let shown = tc(&lines, SHOW).expect("a namespace, as before");
    assert!(shown.contains("class htb 1:1002 parent 1:1 leaf"), "{shown}");
    assert!(shown.contains("fh 5e3::1 "), "sessions without a port have a table: {shown}");
    lines.extend(htb.end());
    let (after, found) = applied(&lines, SHOW).expect("a namespace, as before");
    assert_eq!(sorted(&after), sorted(&before));
    // The tables are there still, unseen: the next daemon needs no others.
    let mut next = self::htb().under_theirs();
    lines.extend(next.adopt(left_on(&found)));
    let add = ControlRequest::Add(BY, Handle(1), reservation(THERE, &HERE, 100));
    lines.extend(next.lines(&add));
    let shown = tc(&lines, SHOW).expect("a namespace, as before");
    assert_eq!(shown.matches("flowid 1:1001 ").count(), 2, "{shown}");
    lines.extend(next.end());
    let after = tc(&lines, SHOW).expect("a namespace, as before");
    assert_eq!(sorted(&after), sorted(&before));
}

/// Two aggregates: small reservations of controlled load, and all others of it up to 400 kbit/s.
fn aggregated() -> Htb {
    let kilobits = |count: u64| Some(Rate::from_bits_per_sec(count * 1_000));
    let one =
        |dscp, most| Aggregate { dscp, serves: Serves::ControlledLoad, up_to: kilobits(most) };
    htb().with_aggregates(vec![one(46, 100), one(34, 400)])
}

#[test]
fn reservations_of_an_aggregate_share_a_class_and_its_dscp_is_all_that_finds_it() {
    let mut htb = aggregated();
    let mut lines = htb.begin();
    let mut changed = Vec::new();
    for request in [
        ControlRequest::Add(BY, Handle(1), reservation(THERE, &HERE[..1], 64)),
        ControlRequest::Add(BY, Handle(2), reservation(THERE, &HERE[1..], 80)),
        ControlRequest::Add(BY, Handle(3), reservation(other(), &HERE, 300)),
        // None takes it: it has a class of its own.
        ControlRequest::Add(BY, Handle(4), reservation(other(), &[], 500)),
    ] {
        changed.extend(htb.lines(&request));
    }
    let names: Vec<_> = (1..=5).map(|handle| htb.class_name(Handle(handle))).collect();
    let names: Vec<_> = names.iter().map(Option::as_deref).collect();
    assert_eq!(names, [Some("1:f02e"), Some("1:f02e"), Some("1:f022"), Some("1:1004"), None]);
    let filters: Vec<_> = changed.iter().filter(|line| line.starts_with("filter")).collect();
    assert!(filters.len() == 1 && filters[0].contains("1:1004"), "{filters:?}");
    lines.extend(changed);
    let show = "tc class show dev d0; tc filter show dev d0";
    let Some(shown) = tc(&lines, show) else { return };
    let class = |shown: &str, name: &str| {
        let head = format!("class htb 1:{name} ");
        shown.lines().find(|line| line.starts_with(&head)).map(str::to_owned).unwrap_or_default()
    };
    assert!(class(&shown, "f02e").contains("rate 144Kbit"), "{shown}");
    assert!(class(&shown, "f022").contains("rate 300Kbit"), "{shown}");
    // EF and AF41, in IPv4 at byte 1, in IPv6 behind the version.
    for (class, v4, v6) in [("f02e", "00b8", "0b80"), ("f022", "0088", "0880")] {
        assert_eq!(shown.matches(&format!("flowid 1:{class} ")).count(), 2, "{shown}");
        assert!(shown.contains(&format!("match {v4}0000/00fc0000 at 0")), "{v4}: {shown}");
        assert!(shown.contains(&format!("match {v6}0000/0fc00000 at 0")), "{v6}: {shown}");
    }

    // From one aggregate to the other, out of one, into one, and away.
    for request in [
        ControlRequest::Modify(BY, Handle(1), reservation(THERE, &HERE[..1], 128)),
        ControlRequest::Modify(BY, Handle(3), reservation(other(), &HERE, 450)),
        ControlRequest::Modify(BY, Handle(4), reservation(other(), &[], 96)),
        ControlRequest::Remove(BY, Handle(2)),
        // What is not there is not made.
        ControlRequest::Modify(BY, Handle(7), reservation(other(), &[], 96)),
        ControlRequest::Remove(BY, Handle(8)),
    ] {
        lines.extend(htb.lines(&request));
    }
    let shown = tc(&lines, show).expect("a namespace, as before");
    assert!(class(&shown, "f02e").contains("rate 96Kbit"), "{shown}");
    assert!(class(&shown, "f022").contains("rate 128Kbit"), "{shown}");
    assert!(class(&shown, "1003").contains("rate 450Kbit"), "{shown}");
    assert!(class(&shown, "1004").is_empty(), "{shown}");
    assert_eq!(shown.matches("flowid 1:1003 ").count(), 2, "{shown}");

    for handle in [1, 3, 4] {
        lines.extend(htb.lines(&ControlRequest::Remove(BY, Handle(handle))));
    }
    let shown = tc(&lines, show).expect("a namespace, as before");
    for name in ["f02e", "f022"] {
        assert!(class(&shown, name).contains("rate 8Kbit"), "{shown}");
    }
    lines.extend(htb.end());
    let shown = tc(&lines, "tc class show dev d0; tc qdisc show dev d0").unwrap();
    assert!(!shown.contains("htb"), "{shown}");
}

#[test]
fn aggregates_keep_their_rates_over_a_restart_until_state_is_back() {
    let mut before = aggregated();
    let mut lines = before.begin();
    lines.extend(before.lines(&ControlRequest::Add(BY, Handle(1), reservation(THERE, &HERE, 300))));
    let Some((_, found)) = applied(&lines, SHOW) else { return };
    assert_eq!(root_of(&found), Root::Ours);
    let mut after = aggregated();
    let adopting = after.adopt(left_on(&found));
    assert!(!adopting.iter().any(|line| line.starts_with("filter")), "{adopting:?}");
    lines.extend(adopting);
    assert!(after.is_recovering());
    let (shown, _) = applied(&lines, SHOW).expect("a namespace, as before");
    assert!(shown.contains("class htb 1:f022 ") && shown.contains("rate 300Kbit"), "{shown}");
    assert_eq!(shown.matches("flowid 1:f022 ").count(), 2, "{shown}");
    // What comes back is the same; what does not ends with its lifetime.
    lines.extend(after.lines(&ControlRequest::Add(BY, Handle(5), reservation(THERE, &HERE, 200))));
    lines.extend(after.purge());
    assert!(!after.is_recovering());
    let (shown, found) = applied(&lines, SHOW).expect("a namespace, as before");
    assert!(shown.contains("rate 200Kbit") && !shown.contains("rate 300Kbit"), "{shown}");

    // A daemon without aggregates leaves nothing of them, once state had the time to come back.
    let mut other = htb();
    lines.extend(other.adopt(left_on(&found)));
    let (shown, _) = applied(&lines, SHOW).expect("a namespace, as before");
    assert_eq!((shown.matches("flowid 1:f022 ").count(), shown.matches("1:f02e ").count()), (2, 0));
    lines.extend(other.purge());
    let (shown, _) = applied(&lines, SHOW).expect("a namespace, as before");
    assert!(!shown.contains("1:f0"), "{shown}");
}

#[test]
fn what_a_daemon_left_where_nothing_is_enforced_any_more_goes_and_nothing_else() {
    let mut lines = theirs();
    let Some((before, free)) = applied(&lines, SHOW) else { return };
    // A class of the daemon's range alone is not the daemon's.
    let other = "class add dev d0 parent 1:1 classid 1:1005 htb rate 1mbit quantum 1500".to_owned();
    let (_, found) = applied(&[lines.as_slice(), &[other]].concat(), SHOW).expect("as before");
    assert_eq!(lines_to_end("d0", &found), [""; 0]);
    let mut below = aggregated().under_theirs();
    lines.extend(below.tables());
    lines.extend(below.adopt(left_on(&free)));
    let mut own = aggregated();
    let mut alone = own.begin();
    for (handle, kilobits) in [(1, 64), (2, 300), (3, 500)] {
        let add = ControlRequest::Add(BY, Handle(handle), reservation(THERE, &HERE, kilobits));
        lines.extend(below.lines(&add));
        alone.extend(own.lines(&add));
    }
    let (shown, found) = applied(&lines, SHOW).expect("a namespace, as before");
    assert!(shown.contains("1:f02e") && shown.contains("flowid 1:1003 "), "{shown}");
    lines.extend(lines_to_end("d0", &found));
    let (after, _) = applied(&lines, SHOW).expect("a namespace, as before");
    assert_eq!(sorted(&after), sorted(&before));
    // The root is a daemon's.
    let (_, found) = applied(&alone, SHOW).expect("a namespace, as before");
    alone.extend(lines_to_end("d0", &found));
    let (after, found) = applied(&alone, SHOW).expect("a namespace, as before");
    assert_eq!((root_of(&found), after.matches("htb").count()), (Root::Free, 0), "{after}");
    assert_eq!(lines_to_end("d0", &found), [""; 0]);
}
