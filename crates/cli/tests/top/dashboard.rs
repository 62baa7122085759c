//! The dashboard of delivery: a real Prometheus scrapes a host that delivers, and answers every query.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ontempo_testing::require_programs;

use crate::common::{Killed, wait_until};
use crate::delivering::{Delivering, REPORTS};
use crate::prometheus;
use crate::server::{self, Prometheus};

fn house() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Title of the panel and query of each target.
fn queries() -> Vec<(String, String)> {
    server::queries("ontempo-delivery")
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
    server.answers(&queries);
    server.evaluates_alerts();
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
    let alerts = fs::read_to_string(house().join("dashboards/ontempo-delivery-alerts.yml"));
    let alerts = alerts.expect("the alerts");
    let asked = metrics(
        &alerts
            .lines()
            .filter(|line| line.contains("ontempo_delivery_"))
            .collect::<Vec<_>>()
            .join("\n"),
    );
    let known = printed();
    let unknown: Vec<_> =
        asked.iter().filter(|name| !name.ends_with("left_out") && !known.contains(*name)).collect();
    assert!(
        asked.len() >= 8 && unknown.is_empty(),
        "the alerts ask for what nobody prints: {unknown:?}"
    );
    let table = metrics(&docs);
    let printed: BTreeSet<_> = printed().iter().map(|name| documented(name)).collect();
    let unknown: Vec<_> = table
        .iter()
        .filter(|name| !name.ends_with("left_out") && !name.ends_with('_'))
        .filter(|name| !printed.contains(&documented(name)))
        .collect();
    assert!(unknown.is_empty(), "docs/top.md has what nobody prints: {unknown:?}");
}
