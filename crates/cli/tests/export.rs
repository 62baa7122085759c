//! The figures of QoS sockets as others read them: net-snmp's agent and tools, and plain HTTP.

mod common;
mod prometheus;
mod snmp;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use common::{Killed, Place, Terminal, interrupt, wait_until};
use ontempo_testing::{require_programs, skip};
use serde_json::{Value, json};
use snmp::{Master, base_modules, house, own_module};

const ROOT: &str = "1.3.6.1.4.1.8072.9999.9999.2000";

/// A report of this process's, with as many violations of `max_delay`.
fn publish(place: &Place, violations: u64) {
    let process = std::process::id();
    let violated: Vec<_> = (1..=violations)
        .map(|number| {
            let begins = number % 2 == 1;
            json!({ "number": number, "parameter": 6, "begins": begins, "asked": 100_000, "delivered": 320_000 })
        })
        .collect();
    let stat = fs::read_to_string("/proc/self/stat").expect("its start is field 22");
    let (_, fields) = stat.rsplit_once(')').expect("a program's name");
    let started: u64 = fields.split_whitespace().nth(19).expect("22").parse().expect("ticks");
    let report = json!({ "process": process, "started": started, "sockets": [{
        "id": 1, "name": "film", "role": "receiver", "carrier": "udp",
        "local": "192.0.2.1:5000", "remote": "192.0.2.2:5000", "dscp": 34,
        "reservation": "controlled-load", "reason": "", "opened_ms": 0,
        "sent_messages": 40, "sent_bytes": 51_200, "messages": 35, "bytes": 44_800,
        "lost_messages": 5, "throughput": 614_400.0, "loss": 12.5, "delay": 0.0125,
        "delay_error": 0.0005, "jitter": 0.001,
        "parameters": [{ "parameter": 6, "asked": 80_000, "agreed": 100_000, "coerced": false,
            "delivered": 320_000, "violated": violations % 2 == 1, "begun": violations.div_ceil(2),
            "changed_ms": null }],
        "violations": violated,
    }] });
    let folder = place.path("reports");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("new"), report.to_string()).expect("a report");
    fs::rename(folder.join("new"), folder.join(format!("{process}.json"))).expect("in its place");
}

#[test]
fn snmpd_serves_every_object_and_snmptrapd_receives_violations() {
    if !require_programs(&["snmpd", "snmptrapd", "snmpwalk"]) {
        return;
    }
    let master = Master::new("export");
    publish(&master.place, 0);
    let _traps = master.traps();
    let agent = master.agent();
    let to = master.to();
    let exporting = Killed(master.place.spawn(&["export", &to, "--folder", "reports"]));
    let count = format!("{ROOT}.1.1.0");
    wait_until("the sub-agent", || master.query("snmpget", &count).contains("= 1"));

    let walked = master.query("snmpwalk", ROOT);
    assert_eq!(walked.lines().count(), 1 + 24 + 7, "{walked}");
    assert!(walked.contains(&format!(".{ROOT}.1.2.1.2.1 = \"film\"")), "{walked}");
    assert!(walked.contains(&format!(".{ROOT}.1.2.1.19.1 = 12500")), "{walked}");
    // GetBulk finds what GetNext finds.
    assert_eq!(master.query("snmpbulkwalk", ROOT), walked);

    publish(&master.place, 1);
    let begun = format!(".{ROOT}.0.1");
    wait_until("the notification", || master.log("snmptrapd").contains(&begun));
    publish(&master.place, 2);
    let ended = format!(".{ROOT}.0.2");
    wait_until("its end", || master.log("snmptrapd").contains(&ended));
    let trap_log = master.log("snmptrapd");
    assert_eq!(trap_log.matches(&begun).count(), 1, "notified twice: {trap_log}");
    assert!(trap_log.contains(&format!(".{ROOT}.1.3.1.4.1.6 = Gauge32: 320000")), "{trap_log}");

    // A master that restarts is found again.
    drop(agent);
    let _ = fs::remove_file(master.place.path("master"));
    let _agent = master.agent();
    wait_until("the sub-agent again", || master.query("snmpget", &count).contains("= 1"));

    interrupt(&exporting.0);
    let mut exporting = exporting;
    assert_eq!(exporting.0.wait().expect("it ends").code(), Some(0));
}

#[test]
fn smilint_finds_no_errors_in_the_mib() {
    if !require_programs(&["smilint"]) {
        return;
    }
    let Some(base) = base_modules() else {
        skip!("the modules SNMPv2-SMI, -TC and -CONF are missing; npm fetches them");
    };
    let output = Command::new("smilint")
        .args(["-l", "6"])
        .arg(own_module())
        .env("SMIPATH", &base)
        .output()
        .expect("smilint starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    let ours: Vec<_> = printed.lines().filter(|line| line.contains("ONTEMPO-QOS-MIB")).collect();
    assert!(ours.is_empty(), "{ours:#?}");
}

/// The exporter's page for a report with all values, requested with `Accept: kind`.
fn page(test: &str, kind: &str) -> String {
    let place = Place::new(test, "");
    publish(&place, 1);
    let mut exporting =
        Killed(place.spawn(&["export", "--prometheus", "127.0.0.1:0", "--folder", "reports"]));
    prometheus::page(&prometheus::address_of(&mut exporting), kind)
}

#[test]
fn prometheus_reads_the_same_values() {
    let page = page("prometheus", "application/openmetrics-text");
    assert!(page.contains("ontempo_qos_violated{") && page.contains("parameter=\"max_delay\"} 1"));
    assert!(page.contains("ontempo_qos_delay_seconds{"), "{page}");
    assert!(page.ends_with("# EOF\n"), "{page}");
}

/// Connections that send a byte of a request now and then, until the scope ends: how often.
fn dribble(address: &str, ended: &AtomicBool) -> usize {
    let connect = || TcpStream::connect(address).expect("it listens");
    let mut all: Vec<TcpStream> = (0..12).map(|_| connect()).collect();
    for sent in 0..60 {
        if ended.load(Relaxed) {
            return sent;
        }
        // Those that the exporter has closed fail.
        all.iter_mut().for_each(|one| drop(one.write_all(b"x")));
        std::thread::sleep(Duration::from_millis(500));
    }
    60
}

#[test]
fn a_scrape_and_the_end_do_not_wait_for_connections_that_dribble() {
    let place = Place::new("prometheus-dribble", "");
    publish(&place, 1);
    let words = ["export", "--prometheus", "127.0.0.1:0", "--folder", "reports"];
    let mut exporting = Killed(place.spawn(&words));
    let address = prometheus::address_of(&mut exporting);
    let during = |what: &mut dyn FnMut()| {
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let dribbling = scope.spawn(|| dribble(&address, &ended));
            std::thread::sleep(Duration::from_millis(200));
            what();
            ended.store(true, Relaxed);
            dribbling.join().expect("it counts")
        })
    };
    let sent = during(&mut || drop(prometheus::page(&address, "*/*")));
    assert!(sent < 60, "the page came only when nobody dribbled any more");
    let sent = during(&mut || {
        interrupt(&exporting.0);
        assert_eq!(exporting.0.wait().expect("it ends").code(), Some(0));
    });
    assert!(sent < 60, "it ended only when nobody dribbled any more");
}

#[test]
fn a_request_for_another_host_gets_no_figures() {
    let place = Place::new("prometheus-host", "");
    publish(&place, 1);
    let status = |more: &[&str], host: &str| {
        let words = ["export", "--prometheus", "127.0.0.1:0", "--folder", "reports"];
        let mut exporting = Killed(place.spawn(&[&words, more].concat()));
        let address = prometheus::address_of(&mut exporting);
        let mut connection = TcpStream::connect(address).expect("it listens");
        write!(connection, "GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("asked");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("answered");
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(status(&[], "evil.example:9464"), "421");
    assert_eq!(status(&[], "127.0.0.1:9464"), "200");
    assert_eq!(status(&["--host-name", "a", "--host-name", "here"], "here:9464"), "200");
}

#[test]
fn promtool_finds_no_errors_in_the_metrics() {
    // Debian's package prometheus has it.
    if !require_programs(&["promtool"]) {
        return;
    }
    let page = page("promtool", "*/*");
    prometheus::check_with_promtool(&page);
}

/// The metrics of QoS sockets that a text names.
fn metrics(text: &str) -> BTreeSet<String> {
    metrics_of("ontempo_qos_", text)
}

fn metrics_of(prefix: &str, text: &str) -> BTreeSet<String> {
    let is_of_name = |one: char| one.is_ascii_alphanumeric() || one == '_';
    let words = text.split(|one: char| !is_of_name(one));
    words.filter(|word| word.starts_with(prefix)).map(str::to_owned).collect()
}

/// All texts below a field of this name.
fn texts_of<'a>(name: &str, document: &'a Value) -> Vec<&'a str> {
    let within = |all: &mut dyn Iterator<Item = &'a Value>| -> Vec<&'a str> {
        all.flat_map(|one| texts_of(name, one)).collect()
    };
    match document {
        Value::Object(fields) => {
            let own = fields.get(name).and_then(Value::as_str);
            own.into_iter().chain(within(&mut fields.values())).collect()
        }
        Value::Array(all) => within(&mut all.iter()),
        _ => Vec::new(),
    }
}

fn dashboard(name: &str) -> Value {
    let path = house().join(format!("dashboards/{name}.json"));
    let text = fs::read_to_string(path).expect("the dashboard");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn the_dashboard_uses_exported_metrics_and_all_of_them_are_documented() {
    let page = page("dashboard", "*/*");
    let samples: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
    let printed = metrics(&samples.join("\n"));
    assert!(printed.len() >= 12, "{printed:?}");
    let dashboard = dashboard("ontempo-qos");
    let queries = [texts_of("expr", &dashboard), texts_of("query", &dashboard)].concat();
    let shown = metrics(&queries.join("\n"));
    let unknown: Vec<_> = shown.difference(&printed).collect();
    assert!(unknown.is_empty(), "the dashboard asks for what nobody prints: {unknown:?}");
    let docs = fs::read_to_string(house().join("docs/qosockets.md")).expect("the page");
    let undocumented: Vec<_> =
        printed.iter().filter(|name| !docs.contains(&format!("`{name}`"))).collect();
    assert!(undocumented.is_empty(), "docs/qosockets.md says nothing of {undocumented:?}");
}

#[test]
fn the_alerts_use_documented_metrics_and_promtool_finds_no_errors_in_them() {
    let path = house().join("dashboards/ontempo-qos-alerts.yml");
    let text = fs::read_to_string(&path).expect("the alerts");
    let used: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "))
        .flat_map(metrics)
        .collect();
    assert!(used.len() >= 3, "{used:?}");
    let docs = fs::read_to_string(house().join("docs/qosockets.md")).expect("the page");
    let unknown: Vec<_> = used.iter().filter(|name| !docs.contains(&format!("`{name}`"))).collect();
    assert!(unknown.is_empty(), "docs/qosockets.md says nothing of {unknown:?}");
    // Debian's package prometheus has it.
    if require_programs(&["promtool"]) {
        let checked = Command::new("promtool").args(["check", "rules"]).arg(&path).output();
        let checked = checked.expect("it starts");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }
}

#[test]
fn what_dashboard_and_alerts_ask_of_the_rsvp_daemon_is_documented() {
    let read = |path: &str| fs::read_to_string(house().join(path)).expect(path);
    let docs = read("docs/reservations.md");
    for path in ["dashboards/ontempo-qos.json", "dashboards/ontempo-qos-alerts.yml"] {
        let used = metrics_of("ontempo_rsvpd_", &read(path));
        assert!(used.len() >= 2, "{path}: {used:?}");
        let unknown: Vec<_> =
            used.iter().filter(|name| !docs.contains(&format!("`{name}`"))).collect();
        assert!(unknown.is_empty(), "docs/reservations.md says nothing of {unknown:?}");
    }
}

#[test]
fn grafana_can_load_the_dashboards() {
    for name in ["ontempo-qos", "ontempo-delivery"] {
        can_be_loaded(&dashboard(name), name);
    }
}

fn can_be_loaded(dashboard: &Value, uid: &str) {
    assert_eq!(dashboard["uid"], uid);
    assert_eq!(dashboard["schemaVersion"], 39, "Grafana 11; later ones migrate it");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        assert!(
            ids.insert(panel["id"].as_u64().expect("a number")),
            "{title}: its id is another's"
        );
        let [x, y, w, h] =
            ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().expect("a place"));
        assert!(x + w <= 24, "{title}: is wider than the grid");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{title}: lies over another");
        }
        let targets = panel["targets"].as_array().expect("queries");
        let names: BTreeSet<_> = targets.iter().map(|one| one["refId"].to_string()).collect();
        assert_eq!(names.len(), targets.len(), "{title}: two queries of one name");
    }
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let names: BTreeSet<_> = variables.iter().filter_map(|one| one["name"].as_str()).collect();
    for text in [texts_of("expr", dashboard), texts_of("uid", dashboard)].concat() {
        for used in text.split('$').skip(1) {
            let used = used.trim_start_matches('{');
            let end = used.find(|one: char| !one.is_alphanumeric() && one != '_');
            let used = &used[..end.unwrap_or(used.len())];
            // Grafana's own begin so.
            assert!(used.starts_with("__") || names.contains(used), "${used} is no variable");
        }
    }
}

#[test]
fn monitor_shows_violated_parameters() {
    let place = Place::new("monitor", "");
    publish(&place, 1);
    let ran = place.run(&["monitor", "--folder", "reports"]);
    let shown = &ran.succeeds().out;
    assert!(shown.contains("film from 192.0.2.2:5000") && shown.contains("max_delay"), "{shown}");
    let ran = place.run(&["monitor", "--json", "--once", "--folder", "reports"]);
    assert_eq!(ran.succeeds().json()["sockets"][0]["socket"]["messages"], 35);
    let parameter = &ran.json()["sockets"][0]["socket"]["parameters"][0];
    let shown = (&parameter["parameter"], &parameter["unit"], &parameter["agreed"]);
    assert_eq!(shown, (&"max_delay".into(), &"s".into(), &0.1.into()));
    place.run(&["monitor", "--folder", "nowhere"]).fails(2, &["--folder nowhere: cannot be read"]);
    fs::create_dir(place.path("empty")).expect("a folder");
    let ran = place.run(&["monitor", "--folder", "empty"]);
    assert!(ran.succeeds().out.contains("no process of this host has a QoS socket"));
}

#[test]
fn q_ends_monitor_at_a_terminal() {
    if !ontempo_testing::require_programs(&["script"]) {
        return;
    }
    let place = Place::new("monitor-q", "");
    fs::create_dir(place.path("empty")).expect("a folder");
    let line = format!("{} monitor --folder empty", env!("CARGO_BIN_EXE_ontempo"));
    let mut terminal = Terminal::start(&line, |script| {
        script.current_dir(&place.0);
    });
    terminal.wait_until(|shown| shown.contains("q ends"));
    terminal.end_by(b"q");
}

#[test]
fn export_targets_are_validated() {
    let place = Place::new("where", "");
    place.run(&["export"]).fails(2, &["--agentx", "--prometheus"]);
    place.run(&["export", "--agentx=here"]).fails(2, &["`here` is neither a path"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    place.run(&["export", "--prometheus", &address]).fails(3, &["cannot listen on", &address]);
}
