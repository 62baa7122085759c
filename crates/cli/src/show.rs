//! Summaries as text tables.

use comfy_table::{CellAlignment, Table, presets};
use ontempo_simulator::StandstillEntry;

use crate::means::{LinkMeans, Means};
use crate::output::columns;
use crate::statistics::Mean;
use crate::summary::{Summary, sentence};

/// Maximum number of links shown.
const MAX_LINKS: usize = 12;

/// Space between two columns.
const GAP: u16 = 2;

/// Columns of the flows' table.
const FLOWS: [&str; 9] = [
    "group",
    "flows",
    "transport",
    "goodput",
    "lost",
    "sent again",
    "timeouts",
    "RTT",
    "least RTT",
];

/// A film for a player of a latency: pictures that can be decoded on time, sound on time, freezes, when
/// frames arrived, bytes on the wire for each of the film's.
const FILMS: [&str; 9] =
    ["film", "player", "pictures", "sound", "freezes", "longest", "p50", "p99", "bytes"];

/// Statistics of one run, or the means over several runs, as wide as the terminal.
pub(crate) fn show(summaries: &[Summary]) -> String {
    show_in(columns(), summaries)
}

/// The same in `width` columns.
fn show_in(width: usize, summaries: &[Summary]) -> String {
    if summaries.is_empty() {
        return String::new();
    }
    let mut means = Means::of(summaries);
    let are_equal = means.equal;
    if are_equal {
        means = Means::of(&summaries[..1]);
    }
    let (mut flows, mut late, mut films) = (Vec::new(), Vec::new(), Vec::new());
    for group in &means.flows {
        let transport = [Some(group.transport.as_str()), group.congestion.as_deref()];
        flows.push([
            group.group.clone(),
            group.flows.to_string(),
            transport.into_iter().flatten().collect::<Vec<_>>().join(" "),
            cell(group.goodput_bps, rate),
            cell(group.loss, percent),
            cell(group.retransmissions, percent),
            cell(group.timeouts, count),
            cell(group.srtt_s, milliseconds),
            cell(group.min_rtt_s, milliseconds),
        ]);
        for playout in &group.playout {
            late.push([
                group.group.clone(),
                format!("{} s", playout.startup_delay_s),
                cell(playout.units, count),
                cell(playout.late, percent),
            ]);
        }
        for film in &group.films {
            films.push([
                group.group.clone(),
                format!("{:.0} ms", film.player_latency_s * 1e3),
                cell(film.decodable, percent),
                cell(film.sound, percent),
                cell(film.freezes, count),
                cell(film.longest_freeze_s, |seconds, _| format!("{seconds:.2} s")),
                cell(film.latency_p50_s, whole_milliseconds),
                cell(film.latency_p99_s, whole_milliseconds),
                cell(film.bytes, |bytes, _| format!("{bytes:.2}")),
            ]);
        }
    }
    let mut parts = vec![fitted(width, FLOWS, &flows)];
    if !films.is_empty() {
        parts.push(fitted(width, FILMS, &films));
    }
    if !late.is_empty() {
        parts.push(fitted(width, ["group", "start-up delay", "units of the run", "late"], &late));
    }
    parts.push(links(width, means.links));
    parts.extend(standstills(summaries, are_equal));
    let text = parts.join("\n\n");
    let runs = summaries.len();
    if runs == 1 {
        text
    } else if are_equal {
        format!("All {runs} runs are equal: nothing in them depends on the seed.\n\n{text}")
    } else {
        format!("Means of {runs} runs, ± half of the 95 % confidence interval\n\n{text}")
    }
}

/// Sentences about links over which nothing passes any more: those of the first run that has it.
fn standstills(summaries: &[Summary], are_equal: bool) -> Option<String> {
    let mut seen: Vec<(&StandstillEntry, usize)> = Vec::new();
    for found in summaries.iter().flat_map(|summary| &summary.standstills) {
        match seen.iter_mut().find(|(first, _)| first.link == found.link) {
            Some((_, runs)) => *runs += 1,
            None => seen.push((found, 1)),
        }
    }
    let runs = summaries.len();
    let said = |(found, of): &(&StandstillEntry, usize)| match are_equal || runs == 1 {
        true => sentence(found),
        false => format!("In {of} of {runs} runs, of which the first: {}", sentence(found)),
    };
    let more = seen.len().saturating_sub(MAX_LINKS);
    let mut lines: Vec<_> = seen.iter().take(MAX_LINKS).map(said).collect();
    if more > 0 {
        lines.push(format!("and {more} more links over which nothing passes"));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// The links, at most `MAX_LINKS`: those with the longest queues.
fn links(width: usize, mut rows: Vec<LinkMeans>) -> String {
    let more = rows.len().saturating_sub(MAX_LINKS);
    if more > 0 {
        let queue = |row: &LinkMeans| row.mean_packets.map_or(0.0, |queue| queue.mean);
        rows.sort_by(|a, b| queue(b).total_cmp(&queue(a)));
        rows.truncate(MAX_LINKS);
    }
    let row = |row: &LinkMeans| {
        [
            row.link.clone(),
            cell(row.busy, percent),
            cell(row.dropped, count),
            cell(row.drop_rate, percent),
            cell(row.mean_packets, |packets, _| format!("{packets:.1} packets")),
        ]
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    let table = fitted(width, ["link", "busy", "dropped", "drop rate", "mean queue"], &rows);
    let rest = format!("\nand {more} more, in the table `links`");
    format!("{table}{}", if more > 0 { &rest } else { "" })
}

/// A table in `width` columns: columns that do not fit follow below, again with the first one. So no cell
/// is broken; a table of two columns may be wider.
fn fitted<const N: usize>(width: usize, heads: [&str; N], rows: &[[String; N]]) -> String {
    let whole = table(&heads, rows, &(0..N).collect::<Vec<_>>());
    let widths = whole.column_max_content_widths();
    let wide = |places: &[usize]| {
        let columns: u16 = places.iter().map(|place| widths[*place] + GAP).sum();
        usize::from(columns.saturating_sub(GAP))
    };
    let mut blocks = vec![vec![0]];
    for place in 1..N {
        match blocks.last_mut() {
            Some(block) if block.len() == 1 || wide(&[&block[..], &[place]].concat()) <= width => {
                block.push(place);
            }
            _ => blocks.push(vec![0, place]),
        }
    }
    let texts: Vec<_> = blocks.iter().map(|block| table(&heads, rows, block).trim_fmt()).collect();
    texts.join("\n\n")
}

/// The columns `places` of a table, without borders.
fn table<const N: usize>(heads: &[&str; N], rows: &[[String; N]], places: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(places.iter().map(|place| heads[*place]));
    for row in rows {
        table.add_row(places.iter().map(|place| row[*place].as_str()));
    }
    for (column, place) in table.column_iter_mut().zip(places) {
        column.set_padding((0, GAP));
        if *place > 0 && heads[*place] != "transport" {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A mean and, on a second line, its interval; a dash if no run has the value. `write` gets a value
/// and the mean, whose unit both have.
fn cell(mean: Option<Mean>, write: impl Fn(f64, f64) -> String) -> String {
    let Some(Mean { mean, ci95, .. }) = mean else { return "-".to_owned() };
    match ci95 {
        Some(half) => format!("{}\n± {}", write(mean, mean), write(half, mean)),
        None => write(mean, mean),
    }
}

fn rate(bits_per_second: f64, mean: f64) -> String {
    let scales = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    let scale = scales.into_iter().find(|(scale, _)| mean >= *scale);
    let (scale, unit) = scale.unwrap_or((1.0, "bit/s"));
    format!("{:.3} {unit}", bits_per_second / scale)
}

fn percent(share: f64, _: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

fn count(count: f64, _: f64) -> String {
    if count.fract() == 0.0 { format!("{count:.0}") } else { format!("{count:.1}") }
}

fn whole_milliseconds(seconds: f64, _: f64) -> String {
    format!("{:.0} ms", seconds * 1e3)
}

fn milliseconds(seconds: f64, _: f64) -> String {
    format!("{:.1} ms", 1e3 * seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::{Group, Link};

    fn run(goodput_bps: f64, timeouts: u64, links: usize) -> Summary {
        let group = Group {
            group: "bulk".to_owned(),
            transport: "tcp".to_owned(),
            flows: 3,
            goodput_bps,
            sent_packets: 200,
            retransmitted: Some(3),
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
        Summary { flows: vec![group], links: (0..links).map(link).collect(), ..Summary::default() }
    }

    /// Columns in which every table is whole.
    const WIDE: usize = 120;

    fn words<'a>(text: &'a str, line: &str) -> Vec<&'a str> {
        let found = text.lines().find(|text| text.starts_with(line));
        found.unwrap_or_default().split_whitespace().collect()
    }

    #[test]
    fn means_are_taken_over_the_runs_that_have_the_value_and_have_their_interval_below() {
        let text = show_in(WIDE, &[run(1e6, 0, 1), run(2e6, 1, 1)]);
        let head = "Means of 2 runs, ± half of the 95 % confidence interval\n";
        assert!(text.starts_with(head), "{text}");
        let bulk = ["bulk", "3", "tcp", "1.500", "Mbit/s", "0.00", "%", "1.50", "%"];
        assert_eq!(words(&text, "bulk"), [&bulk[..], &["0.5", "50.0", "ms", "-"]].concat());
        // Student's t of one degree of freedom, 12.706, times 0.5 / sqrt(2) * sqrt(2).
        let spread = text.lines().find(|line| line.trim_start().starts_with('±'));
        let spread: Vec<_> = spread.unwrap_or_default().split_whitespace().collect();
        assert_eq!(spread[..3], ["±", "6.353", "Mbit/s"]);
        let hop = ["hop", "0", "50.00", "%", "1", "10.00", "%", "0.0", "packets"];
        assert_eq!(words(&text, "hop 0"), hop);
    }

    #[test]
    fn equal_runs_are_not_called_means() {
        let text = show_in(WIDE, &[run(1e6, 0, 1), run(1e6, 0, 1)]);
        assert!(text.starts_with("All 2 runs are equal: nothing in them depends on the seed."));
    }

    #[test]
    fn columns_that_do_not_fit_follow_below_with_the_names_of_the_rows() {
        for runs in [&[run(1e6, 0, 2)][..], &[run(1e6, 0, 2), run(2e6, 1, 2)]] {
            let whole = show_in(WIDE, runs);
            assert!(whole.lines().any(|line| line.chars().count() > 80), "{whole}");
            for width in [80, 60, 40] {
                let text = show_in(width, runs);
                let table = |line: &&str| !line.starts_with("Means");
                let widest = text.lines().filter(table).map(|line| line.chars().count()).max();
                assert!(widest <= Some(width), "{width} columns:\n{text}");
                for head in FLOWS.into_iter().skip(1) {
                    assert_eq!(text.matches(head).count(), whole.matches(head).count(), "{text}");
                }
                let named = text.lines().filter(|line| line.starts_with("bulk ")).count();
                assert_eq!(named, text.matches("group ").count(), "{text}");
            }
        }
    }

    #[test]
    fn only_the_links_with_the_longest_queues_are_shown_and_the_rest_counted() {
        let text = show_in(WIDE, &[run(1e6, 0, MAX_LINKS + 5)]);
        assert_eq!(text.lines().filter(|line| line.starts_with("hop")).count(), MAX_LINKS);
        assert!(words(&text, "hop 4 ").is_empty() && !words(&text, "hop 5 ").is_empty());
        assert!(text.ends_with("and 5 more, in the table `links`"), "{text}");
    }
}
