//! Summaries as text tables.

use std::collections::HashMap;

use comfy_table::{CellAlignment, Table, presets};

use crate::summary::{Group, Link, Playout, Summary};

/// Maximum number of links shown.
const MAX_LINKS: usize = 12;

/// Statistics of one run, or the means over several runs.
pub(crate) fn show(summaries: &[Summary]) -> String {
    let Some(first) = summaries.first() else { return String::new() };
    let mut flows = table(&[
        "group",
        "flows",
        "transport",
        "goodput",
        "lost",
        "sent again",
        "timeouts",
        "RTT",
        "least RTT",
    ]);
    let mut late = table(&["group", "start-up delay", "units", "late"]);
    for group in &first.flows {
        let every = |figure: &dyn Fn(&Group) -> Option<f64>| {
            let groups = summaries.iter().flat_map(|summary| &summary.flows);
            mean(groups.filter(|other| other.group == group.group).filter_map(figure))
        };
        let transport = [Some(group.transport.as_str()), group.congestion.as_deref()];
        let is_tcp = group.transport == "tcp";
        flows.add_row([
            group.group.clone(),
            group.flows.to_string(),
            transport.into_iter().flatten().collect::<Vec<_>>().join(" "),
            or_dash(every(&|group| Some(group.goodput_bps)), rate),
            or_dash(every(&|group| Some(group.loss())), percent),
            or_dash(every(&|group| is_tcp.then(|| group.retransmissions())), percent),
            or_dash(every(&|group| is_tcp.then_some(group.timeouts as f64)), count),
            or_dash(every(&|group| group.srtt_s), milliseconds),
            or_dash(every(&|group| group.min_rtt_s), milliseconds),
        ]);
        for (place, playout) in group.playout.iter().enumerate() {
            let every = |figure: fn(&Playout) -> f64| {
                every(&|group: &Group| group.playout.get(place).map(figure))
            };
            late.add_row([
                group.group.clone(),
                format!("{} s", playout.startup_delay_s),
                or_dash(every(|playout| playout.units as f64), count),
                or_dash(every(Playout::late_share), percent),
            ]);
        }
    }
    let mut parts = vec![flows.trim_fmt()];
    if late.row_iter().next().is_some() {
        parts.push(late.trim_fmt());
    }
    parts.push(links(summaries));
    let mut text = parts.join("\n\n");
    if summaries.len() > 1 {
        text = format!("Means of {} runs\n\n{text}", summaries.len());
    }
    text
}

/// Statistics of one link, summed over runs.
#[derive(Default)]
struct LinkSums<'a> {
    name: &'a str,
    runs: f64,
    busy: f64,
    dropped: f64,
    drop_rate: f64,
    queue: f64,
}

impl LinkSums<'_> {
    fn add(&mut self, link: &Link) {
        self.runs += 1.0;
        self.busy += link.busy;
        self.dropped += link.dropped as f64;
        self.drop_rate += link.drop_rate();
        self.queue += link.mean_packets;
    }
}

/// The links, at most `MAX_LINKS`: those with the longest queues.
fn links(summaries: &[Summary]) -> String {
    let mut rows: Vec<LinkSums<'_>> = Vec::new();
    let mut places = HashMap::new();
    for link in summaries.iter().flat_map(|summary| &summary.links) {
        let place = *places.entry(link.link.as_str()).or_insert_with(|| {
            rows.push(LinkSums { name: &link.link, ..LinkSums::default() });
            rows.len() - 1
        });
        rows[place].add(link);
    }
    let more = rows.len().saturating_sub(MAX_LINKS);
    if more > 0 {
        let queue = |row: &LinkSums<'_>| row.queue / row.runs;
        rows.sort_by(|a, b| queue(b).total_cmp(&queue(a)));
        rows.truncate(MAX_LINKS);
    }
    let mut table = table(&["link", "busy", "dropped", "drop rate", "mean queue"]);
    for row in rows {
        table.add_row([
            row.name.to_owned(),
            percent(row.busy / row.runs),
            count(row.dropped / row.runs),
            percent(row.drop_rate / row.runs),
            format!("{:.1} packets", row.queue / row.runs),
        ]);
    }
    let rest = format!("\nand {more} more, in the table `links`");
    format!("{}{}", table.trim_fmt(), if more > 0 { &rest } else { "" })
}

fn table(heads: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(heads.iter().copied());
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if place > 0 && heads[place] != "transport" {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn mean(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = figures.fold((0.0, 0.0), |(sum, count), figure| (sum + figure, count + 1.0));
    (count > 0.0).then_some(sum / count)
}

fn or_dash(figure: Option<f64>, write: fn(f64) -> String) -> String {
    figure.map_or_else(|| "-".to_owned(), write)
}

fn rate(bits_per_second: f64) -> String {
    let scales = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    let scale = scales.into_iter().find(|(scale, _)| bits_per_second >= *scale);
    let (scale, unit) = scale.unwrap_or((1.0, "bit/s"));
    format!("{:.3} {unit}", bits_per_second / scale)
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

fn count(count: f64) -> String {
    if count.fract() == 0.0 { format!("{count:.0}") } else { format!("{count:.1}") }
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.1} ms", 1e3 * seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(goodput_bps: f64, timeouts: u64, links: usize) -> Summary {
        let group = Group {
            group: "bulk".to_owned(),
            transport: "tcp".to_owned(),
            flows: 3,
            goodput_bps,
            sent_packets: 200,
            retransmitted: 3,
            timeouts,
            srtt_s: (timeouts == 0).then_some(0.05),
            ..Group::default()
        };
        let link = |number: usize| Link {
            link: format!("hop {number}"),
            busy: 0.5,
            arrivals: 10,
            dropped: 1,
            mean_packets: number as f64,
        };
        Summary { flows: vec![group], links: (0..links).map(link).collect() }
    }

    fn words<'a>(text: &'a str, line: &str) -> Vec<&'a str> {
        let found = text.lines().find(|text| text.starts_with(line));
        found.unwrap_or_default().split_whitespace().collect()
    }

    #[test]
    fn means_are_taken_over_the_runs_that_have_the_value() {
        let text = show(&[run(1e6, 0, 1), run(2e6, 1, 1)]);
        assert!(text.starts_with("Means of 2 runs\n"), "{text}");
        let bulk = ["bulk", "3", "tcp", "1.500", "Mbit/s", "0.00", "%", "1.50", "%"];
        assert_eq!(words(&text, "bulk"), [&bulk[..], &["0.5", "50.0", "ms", "-"]].concat());
        let hop = ["hop", "0", "50.00", "%", "1", "10.00", "%", "0.0", "packets"];
        assert_eq!(words(&text, "hop 0"), hop);
    }

    #[test]
    fn only_the_links_with_the_longest_queues_are_shown_and_the_rest_counted() {
        let text = show(&[run(1e6, 0, MAX_LINKS + 5)]);
        assert_eq!(text.lines().filter(|line| line.starts_with("hop")).count(), MAX_LINKS);
        assert!(words(&text, "hop 4 ").is_empty() && !words(&text, "hop 5 ").is_empty());
        assert!(text.ends_with("and 5 more, in the table `links`"), "{text}");
    }
}
