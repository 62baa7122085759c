//! Tables as lines of a width: where there is no room, columns go, the least important first.

use ratatui::text::Span;

use super::history::Histories;
use super::sections::{Cell, Column, Row, Section};

/// Columns between two figures.
const GAP: usize = 2;
/// A name has as many at least.
const NAME: usize = 22;
/// A sparkline has as many, at least and at most: one for each second.
const BARS: (usize, usize) = (11, 60);

/// What a part of a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Plain,
    Title,
    Head,
    Bars,
    Bad,
    Faint,
}

/// A line: texts and what each is.
pub(super) type Line = Vec<(String, Look)>;

/// Columns that a text takes on a terminal.
fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// `text` in exactly so many columns.
fn fitted(text: &str, columns: usize, is_right: bool) -> String {
    let mut shown = text.to_owned();
    if width(&shown) > columns {
        while width(&shown) + 1 > columns && shown.pop().is_some() {}
        if columns > 0 {
            shown.push('…');
        }
    }
    let blank = " ".repeat(columns.saturating_sub(width(&shown)));
    if is_right { blank + &shown } else { shown + &blank }
}

/// Which figures are shown, how wide each is, and the widths of name and sparkline.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    shown: Vec<(usize, usize)>,
    name: usize,
    bars: usize,
}

/// Columns that a cell takes at most: a figure of another user may have hundreds of digits.
const MAX_FIGURE: usize = 28;

impl Plan {
    fn of(section: &Section, all: usize, has_bars: bool) -> Self {
        let cell_width = |place: usize| {
            let cells = section.rows.iter().filter_map(|row: &Row| row.cells.get(place));
            cells.map(|cell: &Cell| width(&cell.text)).max().unwrap_or(0)
        };
        let wide = |place: usize, column: &Column| {
            cell_width(place).min(MAX_FIGURE).max(width(column.head))
        };
        let mut shown: Vec<(usize, usize)> = section
            .columns
            .iter()
            .enumerate()
            .map(|(place, column)| (place, wide(place, column)))
            .collect();
        let figures =
            |shown: &[(usize, usize)]| shown.iter().map(|(_, width)| width + GAP).sum::<usize>();
        let mut bars = if has_bars { BARS.0 + GAP } else { 0 };
        let goes = |(place, _): &(usize, usize)| section.columns[*place].goes;
        while NAME + bars + figures(&shown) > all && shown.len() > 1 {
            let Some(last) = shown.iter().map(goes).max() else { break };
            shown.retain(|one| goes(one) != last);
        }
        if NAME + bars + figures(&shown) > all {
            bars = 0;
        }
        let rest = all.saturating_sub(bars + figures(&shown));
        let longest = section.rows.iter().map(|row| width(&row.name)).max().unwrap_or(0);
        let name = rest.min(longest.max(width(section.title)).max(NAME));
        let more = (rest - name).min(BARS.1 - BARS.0);
        let bars = if bars == 0 { 0 } else { bars - GAP + more };
        Self { shown, name, bars }
    }
}

/// The lines of a table.
pub(super) fn lines(section: &Section, histories: Option<&Histories>, all: usize) -> Vec<Line> {
    let plan = Plan::of(section, all, histories.is_some());
    let title = format!("{} ({})", section.title, section.rows.len());
    if section.rows.is_empty() {
        let empty = format!("{}: {}", section.title, section.empty);
        return vec![vec![(fitted(&empty, all, false).trim_end().to_owned(), Look::Faint)]];
    }
    let gap = || (" ".repeat(GAP), Look::Plain);
    let mut head: Line = vec![(fitted(&title, plan.name, false), Look::Title)];
    if plan.bars > 0 {
        head.extend([gap(), (fitted("last minute", plan.bars, false), Look::Head)]);
    }
    for (place, width) in &plan.shown {
        head.extend([gap(), (fitted(section.columns[*place].head, *width, true), Look::Head)]);
    }
    let row = |row: &Row| {
        let mut line: Line = vec![(fitted(&row.name, plan.name, false), Look::Plain)];
        if let Some(histories) = histories.filter(|_| plan.bars > 0) {
            line.extend([gap(), (histories.sparkline(&row.key, plan.bars), Look::Bars)]);
        }
        for (place, width) in &plan.shown {
            let cell = &row.cells[*place];
            let look = if cell.is_bad { Look::Bad } else { Look::Plain };
            line.extend([gap(), (fitted(&cell.text, *width, true), look)]);
        }
        line
    };
    std::iter::once(head).chain(section.rows.iter().map(row)).collect()
}

/// All tables as text, without sparklines: nothing is known yet of the last minute.
pub(super) fn plain(sections: &[Section], all: usize) -> String {
    let text = |line: &Line| {
        let text: String = line.iter().map(|(text, _)| text.as_str()).collect();
        text.trim_end().to_owned()
    };
    let tables = sections
        .iter()
        .map(|section| lines(section, None, all).iter().map(text).collect::<Vec<_>>().join("\n"));
    tables.collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::super::sections::{self, tests::look};
    use super::*;
    use crate::arguments::SortBy;

    #[test]
    fn no_line_is_longer_than_the_screen_and_the_rate_stays() {
        let sections = sections::of(&look(), SortBy::Rate);
        let histories = Histories::default();
        for all in [20, 30, 40, 60, 80, 120, 300] {
            for section in &sections {
                let lines = lines(section, Some(&histories), all);
                for line in &lines {
                    let text: String = line.iter().map(|(text, _)| text.as_str()).collect();
                    // A figure and the shortest name stay, whatever the width.
                    assert!(width(&text) <= all.max(30), "{all}: {text:?}");
                }
                let head: String = lines[0].iter().map(|(text, _)| text.as_str()).collect();
                let first = section.columns.iter().find(|column| column.goes == 0);
                let is_there = first.is_some_and(|column| head.contains(column.head));
                assert!(section.rows.is_empty() || is_there, "{all}: {head}");
            }
        }
    }

    #[test]
    fn a_figure_of_hundreds_of_digits_does_not_push_out_the_rest() {
        let mut sections = sections::of(&look(), SortBy::Rate);
        sections[0].rows[0].cells[0].text = "9".repeat(300);
        let plan = Plan::of(&sections[0], 300, true);
        assert_eq!(plan.shown.len(), sections[0].columns.len());
        assert!(plan.shown.iter().all(|(_, wide)| *wide <= MAX_FIGURE), "{:?}", plan.shown);
    }

    #[test]
    fn a_wide_screen_shows_all_columns_and_a_bar_for_each_second() {
        let sections = sections::of(&look(), SortBy::Rate);
        let plan = Plan::of(&sections[0], 300, true);
        assert_eq!((plan.shown.len(), plan.bars), (sections[0].columns.len(), 60));
        let plan = Plan::of(&sections[0], 24, true);
        assert_eq!((plan.shown.len(), plan.bars), (1, 0));
    }

    #[test]
    fn wide_characters_take_their_columns() {
        assert_eq!(fitted("映画", 6, false), "映画  ");
        assert_eq!(fitted("映画祭", 5, false), "映画…");
        assert_eq!(fitted("映画祭", 4, false), "映… ");
        assert_eq!(fitted("3", 4, true), "   3");
        assert_eq!(fitted("long", 0, true), "");
    }

    #[test]
    fn the_plain_table_has_every_row() {
        let text = plain(&sections::of(&look(), SortBy::Rate), 120);
        for word in
            ["senders (2)", "film udp://:5000", "  stream a", "95 % in", "guaranteed", "reserved"]
        {
            assert!(text.contains(word), "{word}\nis not in\n{text}");
        }
        assert!(text.contains("QoS sockets: no process has a QoS socket"), "{text}");
        assert!(!text.contains('▁') && !text.lines().any(|line| line.ends_with(' ')), "{text}");
    }
}
