//! Summaries as tables for people.

use comfy_table::{CellAlignment, Table, presets};

use crate::summary::{Group, Link, Playout, Summary};

/// The most links that are shown.
const MOST_LINKS: usize = 12;

/// One run's figures, or the means of several runs'.
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
    let mut parts = vec![flows.to_string()];
    if late.row_iter().next().is_some() {
        parts.push(late.to_string());
    }
    parts.push(links(summaries));
    let mut text = parts.join("\n\n");
    if summaries.len() > 1 {
        text = format!("Means of {} runs\n\n{text}", summaries.len());
    }
    text
}

/// The links, at most so many: those with the longest queues.
fn links(summaries: &[Summary]) -> String {
    struct Means<'a>(&'a str, [Option<f64>; 4]);
    let mut names: Vec<&str> = Vec::new();
    for link in summaries.iter().flat_map(|summary| &summary.links) {
        if names.len() <= 10_000 && !names.contains(&link.link.as_str()) {
            names.push(&link.link);
        }
    }
    let means = |name| {
        let every = |figure: fn(&Link) -> f64| {
            let links = summaries.iter().flat_map(|summary| &summary.links);
            mean(links.filter(|link| link.link == name).map(figure))
        };
        let figures = [
            every(|link| link.busy),
            every(|link| link.dropped as f64),
            every(Link::drop_rate),
            every(|link| link.mean_packets),
        ];
        Means(name, figures)
    };
    let mut rows: Vec<Means> = names.into_iter().map(means).collect();
    let all = rows.len();
    let queue = |row: &Means| row.1[3].unwrap_or_default();
    if all > MOST_LINKS {
        rows.sort_by(|a, b| queue(b).total_cmp(&queue(a)));
        rows.truncate(MOST_LINKS);
    }
    let mut links = table(&["link", "busy", "dropped", "drop rate", "mean queue"]);
    for Means(name, [busy, dropped, drop_rate, queue]) in rows {
        links.add_row([
            name.to_owned(),
            or_dash(busy, percent),
            or_dash(dropped, count),
            or_dash(drop_rate, percent),
            or_dash(queue, |packets| format!("{packets:.1} packets")),
        ]);
    }
    let more = if all > MOST_LINKS {
        format!("\nand {} more, in the table `links`", all - MOST_LINKS)
    } else {
        String::new()
    };
    format!("{links}{more}")
}

fn table(heads: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(heads.iter().copied());
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if place > 0 {
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
