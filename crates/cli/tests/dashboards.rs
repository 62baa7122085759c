//! The dashboard of QoS sockets and reservations: a real Prometheus scrapes a host with both, and answers every
//! query; and the alerts, which it evaluates and promtool tests. Reservations need root; skipped tests are reported.

mod common;
mod prometheus;
mod reserved;
#[path = "prometheus/server.rs"]
mod server;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Killed, Place, free_port, wait_until};
use ontempo_testing::require_programs;
use reserved::{Network, can_reserve};
use server::{Prometheus, alerts, queries};

const DASHBOARD: &str = "ontempo-qos";
const REPORTS: &str = "reports";

/// The queries about the RSVP daemon, or the others.
fn queries_of(of_daemon: bool) -> Vec<(String, String)> {
    let of = |query: &str| query.contains("ontempo_rsvpd_") == of_daemon;
    queries(DASHBOARD).into_iter().filter(|(_, query)| of(query)).collect()
}

/// An exporter and a Prometheus, both ended with the test.
fn watched(place: &Place, more: &[&str]) -> (Killed, Prometheus) {
    fs::create_dir_all(place.path(REPORTS)).expect("a folder");
    let words = ["export", "--prometheus", "127.0.0.1:0", "--folder", REPORTS];
    let mut exporting = Killed(place.spawn(&[&words, more].concat()));
    let exporter = prometheus::address_of(&mut exporting);
    let server = Prometheus::start(&place.0, &exporter);
    // Of the same package.
    if require_programs(&["promtool"]) {
        prometheus::check_with_promtool(&prometheus::page(&exporter, "*/*"));
    }
    (exporting, server)
}

/// Both ends of `ontempo netvideo` over loopback.
fn netvideo(place: &Place) -> [Killed; 2] {
    let specification =
        "max_rate = \"80 messages/s\"\nsize = \"1280 bytes\"\nmax_delay = \"2 s\"\n";
    fs::write(place.path("video.toml"), specification).expect("a specification");
    let port = free_port();
    let at = format!("127.0.0.1:{port}");
    let start = |words: &[&str]| {
        let mut command = place.command(&[&["netvideo"], words].concat());
        command.args(["--spec", "video.toml", "--json"]);
        command.env("ONTEMPO_QOS_FOLDER", place.path(REPORTS));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Killed(command.spawn().expect("it starts"))
    };
    let receiver = start(&["receive", "--listen", &at]);
    wait_until("the receiver", || {
        let bound = fs::read_to_string("/proc/net/udp").unwrap_or_default();
        bound.contains(&format!(":{port:04X} "))
    });
    [receiver, start(&["send", &at, "--rate", "40 messages/s", "--seconds", "600"])]
}

#[test]
fn a_real_prometheus_answers_every_query_about_qos_sockets() {
    if !require_programs(&["prometheus"]) {
        return;
    }
    let place = Place::new("dashboards-qos", "");
    fs::create_dir_all(place.path(REPORTS)).expect("a folder");
    let _ends = netvideo(&place);
    let (_exporting, server) = watched(&place, &[]);
    let asked = queries_of(false);
    assert!(asked.len() >= 15, "{}", asked.len());
    server.answers(&asked);
    let sockets = &asked.iter().find(|(title, _)| title == "Sockets").expect("the panel").1;
    wait_until("both ends", || server.values(sockets) == [2.0]);
    assert!(server.evaluates_alerts() >= 10);
}

#[test]
fn a_real_prometheus_answers_every_query_about_a_real_rsvp_daemon() {
    if !can_reserve() || !require_programs(&["prometheus"]) {
        return;
    }
    let mut network = Network::running("panels", false);
    let _ends = network.reserved(500);
    let (_exporting, server) = watched(&network.place, &["--rsvp", &network.socket("r1")]);
    let asked = queries_of(true);
    assert!(asked.len() >= 9, "{}", asked.len());
    server.answers(&asked);

    // What is shown is so.
    let state = |name: &str| server.values(&format!("ontempo_rsvpd_{name}"));
    wait_until("neighbours", || state("neighbours") == [2.0]);
    assert_eq!(state("sessions"), [1.0]);
    assert_eq!(state("classes"), [1.0]);
    let bits = |what: &str| {
        let query =
            format!("8 * ontempo_rsvpd_interface_{what}_bytes_per_second{{interface=\"l1\"}}");
        server.values(&query)
    };
    assert_eq!(bits("rate"), [1_500_000.0]);
    let reserved = bits("reserved");
    assert!(reserved.len() == 1 && (500_000.0..520_000.0).contains(&reserved[0]), "{reserved:?}");
    wait_until("a rate of packets", || {
        server
            .values("rate(ontempo_rsvpd_received_packets_total[20s])")
            .iter()
            .all(|rate| *rate > 0.0)
    });

    // A daemon that ends is seen, and an alert begins.
    network.signal("r1", "-KILL");
    wait_until("its end", || state("up") == [0.0]);
    wait_until("the alert", || !server.series("ALERTS{alertname=\"OntempoRsvpdDown\"}").is_empty());
}

#[test]
fn promtool_finds_the_alerts_where_they_are_to_be_and_nowhere_else() {
    // Debian's package prometheus has it.
    if !require_programs(&["promtool"]) {
        return;
    }
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/alerts");
    for rules in alerts() {
        let name = rules.file_name().expect("a name");
        for (what, path) in [("check", rules.clone()), ("test", tests.join(name))] {
            let ran = Command::new("promtool").args([what, "rules"]).arg(&path).output();
            let ran = ran.expect("it starts");
            let said = [ran.stdout, ran.stderr].concat();
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&said));
        }
        // Each alert is tested: that it comes, and that it does not.
        let read = |path: &Path| fs::read_to_string(path).expect("the file");
        let tested = read(&tests.join(name));
        let rules = read(&rules);
        let alerts: Vec<_> =
            rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
        assert!(alerts.len() >= 5, "{alerts:?}");
        for alert in alerts {
            let of: Vec<_> =
                tested.split("- eval_time").filter(|one| one.contains(alert)).collect();
            let fires = |one: &&&str| one.contains("exp_labels");
            assert!(of.iter().any(|one| fires(&one)), "{alert} is never expected");
            assert!(of.iter().any(|one| !fires(&one)), "{alert} is always expected");
        }
    }
}
