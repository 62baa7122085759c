//! A real Prometheus, which scrapes an exporter and evaluates the alerts, and what the dashboards ask it.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Killed, wait_until};

fn dashboards() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dashboards")
}

/// The files with alerts.
pub(crate) fn alerts() -> [PathBuf; 2] {
    ["ontempo-qos-alerts.yml", "ontempo-delivery-alerts.yml"].map(|name| dashboards().join(name))
}

/// Title of the panel and query of each target of a dashboard.
pub(crate) fn queries(dashboard: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(dashboards().join(format!("{dashboard}.json")));
    let dashboard: Value = serde_json::from_str(&text.expect("the dashboard")).expect("JSON");
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

/// As Grafana would fill them in, for all that there is.
fn filled(query: &str) -> String {
    let all = [("$__rate_interval", "20s"), ("$__range", "60s")];
    let query = all.iter().fold(query.to_owned(), |query, (name, by)| query.replace(name, by));
    let variables = ["$instance", "$role", "$place", "$flow"];
    variables.iter().fold(query, |query, name| query.replace(name, ".*"))
}

/// A Prometheus that scrapes the exporter each second.
pub(crate) struct Prometheus {
    _server: Killed,
    address: String,
}

impl Prometheus {
    /// In a folder of its own, which is there.
    pub(crate) fn start(folder: &Path, exporter: &str) -> Self {
        let rules = alerts().map(|path| format!("'{}'", path.display())).join(", ");
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [{rules}]\n\
             scrape_configs:\n  - job_name: ontempo\n    static_configs: [{{ targets: ['{exporter}'] }}]\n"
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

    /// The answer to a request; `None` if it does not listen yet.
    fn get(&self, path: &str) -> Option<Value> {
        let mut connection = TcpStream::connect(&self.address).ok()?;
        write!(connection, "GET /api/v1/{path} HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    }

    /// The series that answer a query of a dashboard; none if it does not listen yet.
    pub(crate) fn series(&self, query: &str) -> Vec<Value> {
        let encoded: String = filled(query).bytes().map(|byte| format!("%{byte:02X}")).collect();
        let Some(mut answer) = self.get(&format!("query?query={encoded}")) else {
            return Vec::new();
        };
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        let series = answer["data"]["result"].take();
        series.as_array().cloned().unwrap_or_default()
    }

    /// Their values.
    #[allow(dead_code)] // not each test asks for them
    pub(crate) fn values(&self, query: &str) -> Vec<f64> {
        let value = |one: &Value| one["value"][1].as_str().and_then(|text| text.parse().ok());
        self.series(query).iter().filter_map(value).collect()
    }

    /// Waits until each query is answered.
    #[track_caller]
    pub(crate) fn answers(&self, queries: &[(String, String)]) {
        for (title, query) in queries {
            wait_until(&format!("an answer to {title}: {query}"), || {
                !self.series(query).is_empty()
            });
        }
    }

    /// Waits until all alerts have been evaluated without an error; returns how many there are.
    #[track_caller]
    pub(crate) fn evaluates_alerts(&self) -> usize {
        let rules = || {
            let groups = self.get("rules").map(|mut answer| answer["data"]["groups"].take());
            let groups = groups.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
            let of = |group: &Value| group["rules"].as_array().cloned().unwrap_or_default();
            groups.iter().flat_map(of).collect::<Vec<_>>()
        };
        wait_until("the alerts", || {
            let rules = rules();
            let failed: Vec<_> = rules.iter().filter(|rule| rule["health"] == "err").collect();
            assert!(failed.is_empty(), "{failed:#?}");
            !rules.is_empty() && rules.iter().all(|rule| rule["health"] == "ok")
        });
        rules().len()
    }
}
