//! The dashboard of delivery: a real Prometheus scrapes a host that delivers, and answers every query.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ontempo_testing::require_programs;
use serde_json::Value;

use crate::common::{Killed, wait_until};
use crate::delivering::{Delivering, REPORTS};
use crate::prometheus;

fn house() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn dashboard() -> Value {
    let text = fs::read_to_string(house().join("dashboards/ontempo-delivery.json"));
    serde_json::from_str(&text.expect("the dashboard")).expect("JSON")
}

/// Title of the panel and query of each target.
fn queries() -> Vec<(String, String)> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    panels
        .flat_map(|panel| {
            let title = panel["title"].as_str().expect("a title");
            let targets = panel["targets"].as_array().expect("queries").iter();
            let one = |target: &Value| target["expr"].as_str().expect("a query").to_owned();
            targets.map(one).map(|query| (title.to_owned(), query)).collect::<Vec<_>>()
        })
        .collect()
}

/// The metrics of delivery that a text names.
fn metrics(text: &str) -> BTreeSet<String> {
    let is_of_name = |one: char| one.is_ascii_alphanumeric() || one == '_';
    let words = text.split(|one: char| !is_of_name(one));
    words.filter(|word| word.starts_with("ontempo_delivery_")).map(str::to_owned).collect()
}

/// A metric in the table of the documentation: a histogram's series stand under its name.
fn documented(metric: &str) -> String {
    let endings = ["_bucket", "_sum", "_count"];
    let name = endings.iter().find_map(|ending| metric.strip_suffix(ending)).unwrap_or(metric);
    format!("`{name}`")
}

/// As Grafana would fill them in.
fn filled(query: &str) -> String {
    let all = [("$__rate_interval", "20s"), ("$__range", "60s")];
    let query = all.iter().fold(query.to_owned(), |query, (name, by)| query.replace(name, by));
    ["$instance", "$role", "$place"].iter().fold(query, |query, name| query.replace(name, ".*"))
}

/// A real Prometheus that scrapes the exporter each second.
struct Prometheus {
    _server: Killed,
    address: String,
}

impl Prometheus {
    fn start(folder: &Path, exporter: &str) -> Self {
        let config = format!(
            "global: {{ scrape_interval: 1s }}\nscrape_configs:\n  - job_name: ontempo\n    \
             static_configs: [{{ targets: ['{exporter}'] }}]\n"
        );
        fs::write(folder.join("prometheus.yml"), config).expect("written");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("its address").to_string();
        drop(free);
        let mut command = Command::new("prometheus");
        command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
        command.arg(format!("--web.listen-address={address}")).current_dir(folder);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let server = Killed(command.spawn().expect("it starts"));
        Self { _server: server, address }
    }

    /// The answer to a query; `None` if it does not listen yet.
    fn query(&self, query: &str) -> Option<Value> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let mut connection = TcpStream::connect(&self.address).ok()?;
        write!(connection, "GET /api/v1/query?query={encoded} HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    }
}

#[test]
fn a_real_prometheus_answers_every_query_of_the_dashboard() {
    if !require_programs(&["prometheus"]) {
        return;
    }
    let delivering = Delivering::start("top-dashboard");
    let words = ["export", "--prometheus", "127.0.0.1:0", "--folder", REPORTS];
    let mut exporting = Killed(delivering.place.spawn(&words));
    let exporter = prometheus::address_of(&mut exporting);
    let server = Prometheus::start(&delivering.place.0, &exporter);
    // Of the same package.
    if require_programs(&["promtool"]) {
        let page = prometheus::page(&exporter, "*/*");
        prometheus::check_with_promtool(&page);
    }
    let queries = queries();
    assert!(queries.len() >= 20, "{}", queries.len());
    for (title, query) in &queries {
        let query = filled(query);
        wait_until(&format!("an answer to {title}: {query}"), || {
            let Some(answer) = server.query(&query) else { return false };
            assert_eq!(answer["status"], "success", "{title}: {query}: {answer}");
            answer["data"]["result"].as_array().is_some_and(|series| !series.is_empty())
        });
    }
}

#[test]
fn the_dashboard_and_the_documentation_have_every_exported_metric_and_no_other() {
    let delivering = Delivering::start("top-metrics");
    let words = ["export", "--prometheus", "127.0.0.1:0", "--folder", REPORTS];
    let mut exporting = Killed(delivering.place.spawn(&words));
    let exporter = prometheus::address_of(&mut exporting);
    let printed = || {
        let page = prometheus::page(&exporter, "*/*");
        let samples: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
        metrics(&samples.join("\n"))
    };
    let all: Vec<_> = queries().into_iter().map(|(_, query)| query).collect();
    let shown = metrics(&all.join("\n"));
    wait_until("all that the dashboard shows", || shown.is_subset(&printed()));
    let docs = fs::read_to_string(house().join("docs/top.md")).expect("the page");
    let undocumented: Vec<_> =
        printed().into_iter().filter(|name| !docs.contains(&documented(name))).collect();
    assert!(undocumented.is_empty(), "docs/top.md says nothing of {undocumented:?}");
    let table = metrics(&docs);
    let printed: BTreeSet<_> = printed().iter().map(|name| documented(name)).collect();
    let unknown: Vec<_> = table
        .iter()
        .filter(|name| !name.ends_with("left_out") && !name.ends_with('_'))
        .filter(|name| !printed.contains(&documented(name)))
        .collect();
    assert!(unknown.is_empty(), "docs/top.md has what nobody prints: {unknown:?}");
}
