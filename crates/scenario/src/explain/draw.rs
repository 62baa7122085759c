//! Topologies drawn with box characters, as wide as the terminal where they have so much to show, but not
//! narrower than [`COLUMNS`]; descriptions in a graph are broken where the terminal is.

use super::{COLUMNS, MAX_LINES, broken, words};
use crate::backbone::Backbone;
use crate::model::{Delay, FlowGroup, LinkSpec, Scenario, Topology};

/// The most flow groups of which each has a line of its own.
const MAX_GROUPS: usize = 9;

pub(super) fn topology(
    scenario: &Scenario,
    backbone: &Backbone<'_>,
    columns: usize,
) -> Vec<String> {
    match &scenario.topology {
        Topology::Dumbbell { bottleneck, .. } => {
            dumbbell(scenario, backbone, bottleneck, columns.max(COLUMNS))
        }
        Topology::ParkingLot { bottleneck, .. } => {
            parking_lot(scenario, backbone, bottleneck, columns.max(COLUMNS))
        }
        Topology::Graph { .. } => graph(backbone, columns),
    }
}

/// The text, cut with an ellipsis where it is longer than `width`.
fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn short_link(spec: &LinkSpec) -> String {
    let delay = match &spec.delay {
        Delay::Fixed(delay) => delay.to_string(),
        Delay::Law(law) => format!("~{}", words::rounded(law.mean())),
    };
    clip(&format!("{}, {delay}", spec.rate), 30)
}

/// What each group is called in a drawing, and whether it runs from the first end to the last.
fn groups<'a>(
    scenario: &'a Scenario,
    backbone: &'a Backbone<'_>,
) -> impl Iterator<Item = (String, (usize, usize))> + 'a {
    let label = |(name, group): (&String, &FlowGroup)| {
        let ends = backbone.ends(group).ok()?;
        Some((format!("{} × {name}", words::grouped(u64::from(group.count))), ends))
    };
    scenario.flows.iter().take(MAX_GROUPS).filter_map(label)
}

fn further_groups(scenario: &Scenario) -> Option<String> {
    let further = scenario.flows.len().checked_sub(MAX_GROUPS).filter(|count| *count > 0)?;
    Some(format!("  … and {} of flows", words::count(further as u64, "further group")))
}

/// One line for each group, which meet at the routers:
///
/// ```text
///   25 × long → ─┐                                      ┌─ → 25 × long
///   10 × back ← ─┴─ left ═══ 25 Mbit/s, 30 ms ═══ right ─┴─ ← 10 × back
/// ```
fn dumbbell(
    scenario: &Scenario,
    backbone: &Backbone<'_>,
    bottleneck: &LinkSpec,
    columns: usize,
) -> Vec<String> {
    let middle = format!(" left ═══ {} ═══ right ", short_link(bottleneck));
    let middle_width = middle.chars().count();
    let widest = columns.saturating_sub(middle_width + 14) / 2;
    let groups: Vec<(String, bool)> = groups(scenario, backbone)
        .map(|(label, (from, to))| (clip(&label, widest), from < to))
        .collect();
    let width = groups.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    let centre = groups.len() / 2;
    let mut lines = Vec::new();
    for (row, (label, is_rightward)) in groups.iter().enumerate() {
        let arrow = if *is_rightward { '→' } else { '←' };
        let (left, right) = match (row == 0, row + 1 == groups.len(), row == centre) {
            (true, true, _) => ('─', '─'),
            (_, true, true) => ('┴', '┴'),
            (_, _, true) => ('┼', '┼'),
            (true, ..) => ('┐', '┌'),
            (_, true, _) => ('┘', '└'),
            _ => ('┤', '├'),
        };
        let between = match row == centre {
            true => format!("─{middle}─"),
            false => " ".repeat(middle_width + 2),
        };
        lines.push(format!("  {label:>width$} {arrow} ─{left}{between}{right}─ {arrow} {label}"));
    }
    lines.extend(further_groups(scenario));
    lines
}

/// The routers in a row, and below it the stretch that each group takes.
fn parking_lot(
    scenario: &Scenario,
    backbone: &Backbone<'_>,
    bottleneck: &LinkSpec,
    columns: usize,
) -> Vec<String> {
    let last = backbone.nodes.len() - 1;
    let legend = format!("  each ══ is {}", short_link(bottleneck));
    let cell = format!("r{last} ══ ").chars().count();
    let room = columns.saturating_sub((last + 1) * cell + 3);
    if room < 12 {
        let row = format!("  r0 ══ r1 ══ r2 ══ … ══ r{} ══ r{last}", last - 1);
        return vec![row, legend];
    }
    let labels: Vec<(String, (usize, usize))> =
        groups(scenario, backbone).map(|(label, ends)| (clip(&label, room), ends)).collect();
    let width = labels.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    let mut row = format!("  {:width$} ", "");
    for (place, name) in backbone.nodes.iter().enumerate() {
        let padding = cell - name.chars().count() - 1;
        row += name;
        if place < last {
            row += &format!(" {} ", "═".repeat(padding - 1));
        }
    }
    let mut lines = vec![row];
    for (label, (from, to)) in labels {
        let (first, second) = (from.min(to), from.max(to));
        let stretch = "─".repeat((second - first) * cell - 1);
        let stretch =
            if from < to { format!("├{stretch}→") } else { format!("←{stretch}┤") };
        lines.push(format!("  {label:width$} {}{stretch}", " ".repeat(first * cell)));
    }
    lines.extend(further_groups(scenario));
    lines.push(legend);
    lines
}

/// Each node and the links that leave it.
fn graph(backbone: &Backbone<'_>, columns: usize) -> Vec<String> {
    let mut outgoing = vec![Vec::new(); backbone.nodes.len()];
    for link in &backbone.links {
        outgoing[link.from].push(link);
    }
    let longest = backbone.nodes.iter().map(|name| name.chars().count()).max().unwrap_or(0).min(24);
    // A node or a link each, and the lines that it takes.
    let mut parts = Vec::new();
    for (name, links) in backbone.nodes.iter().zip(outgoing) {
        parts.push(vec![clip(&format!("  {name}"), columns)]);
        for (place, link) in links.iter().enumerate() {
            let (branch, below) = if place + 1 == links.len() {
                ("└─→", "   ")
            } else {
                ("├─→", "│  ")
            };
            let to = clip(&backbone.nodes[link.to], longest);
            let first = format!("  {branch} {to:longest$}  ");
            let further = format!("  {below} {:longest$}  ", "");
            parts.push(broken(&first, &further, &words::link(link.spec), columns));
        }
    }
    let further = parts.len().saturating_sub(MAX_LINES);
    parts.truncate(MAX_LINES);
    let mut lines = parts.concat();
    if further > 0 {
        lines.push(format!("  … and {further} further lines"));
    }
    lines
}
