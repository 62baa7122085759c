//! The screen at a terminal.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as Wall, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::Paragraph;

use super::gather::{Gatherer, Look};
use super::history::Histories;
use super::layout::{self, Look as Part};
use super::sections;
use crate::arguments::SortBy;
use crate::failure::Failure;

/// How often keys and the stop flag are looked for.
const STEP: Wall = Wall::from_millis(100);

/// Maximum of what is read of keys before the screen is drawn again: somebody may lean on one.
const MAX_KEYS: usize = 256;

/// What the user has chosen.
#[derive(Clone, Debug)]
struct View {
    sort: SortBy,
    /// Lines above the screen.
    above: usize,
    has_colours: bool,
}

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Nothing,
    Draw,
    End,
}

impl View {
    fn key(&mut self, key: KeyEvent, page: usize) -> Done {
        if key.kind == KeyEventKind::Release {
            return Done::Nothing;
        }
        let above = match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Done::End;
            }
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => return Done::End,
            KeyCode::Char('s') => {
                self.sort = next(self.sort);
                self.above
            }
            KeyCode::Up | KeyCode::Char('k') => self.above.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.above.saturating_add(1),
            KeyCode::PageUp => self.above.saturating_sub(page),
            KeyCode::PageDown | KeyCode::Char(' ') => self.above.saturating_add(page),
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            _ => return Done::Nothing,
        };
        self.above = above;
        Done::Draw
    }

    fn style(&self, part: Part) -> Style {
        let colour =
            |colour: Color| if self.has_colours { Style::new().fg(colour) } else { Style::new() };
        match part {
            Part::Plain => Style::new(),
            Part::Title => Style::new().add_modifier(Modifier::BOLD),
            Part::Head => colour(Color::Cyan),
            Part::Bars => colour(Color::Green),
            // It is told without colours, too.
            Part::Bad => colour(Color::Red).add_modifier(Modifier::BOLD),
            Part::Faint => Style::new().add_modifier(Modifier::DIM),
        }
    }
}

const fn next(sort: SortBy) -> SortBy {
    match sort {
        SortBy::Rate => SortBy::Loss,
        SortBy::Loss => SortBy::Late,
        SortBy::Late => SortBy::Name,
        SortBy::Name => SortBy::Rate,
    }
}

const fn named(sort: SortBy) -> &'static str {
    match sort {
        SortBy::Rate => "rate",
        SortBy::Loss => "loss",
        SortBy::Late => "late",
        SortBy::Name => "name",
    }
}

/// Shows the screen until `q`, Ctrl-C or `stopped`.
pub(super) fn run(
    gatherer: &mut Gatherer,
    sort: SortBy,
    every: Wall,
    stopped: &AtomicBool,
) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::Environment(format!(
            "the terminal cannot be used as a screen: {error}; `ontempo top --once` prints a table"
        ))
    };
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut view = View { sort, above: 0, has_colours };
    let shown = show(&mut terminal, gatherer, &mut view, every, stopped);
    // What was there before is shown again, whatever happened.
    let restored = ratatui::try_restore();
    shown.and(restored).map_err(failed)
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    gatherer: &mut Gatherer,
    view: &mut View,
    every: Wall,
    stopped: &AtomicBool,
) -> io::Result<()> {
    loop {
        let looked = Instant::now();
        let look = gatherer.look(looked);
        let mut must_draw = true;
        while looked.elapsed() < every || must_draw {
            if std::mem::take(&mut must_draw) {
                terminal.draw(|frame| draw(frame, &look, gatherer.history(), view))?;
            }
            let page = usize::from(terminal.size()?.height.saturating_sub(3));
            let mut wait = STEP.min(every.saturating_sub(looked.elapsed()));
            for _ in 0..MAX_KEYS {
                if stopped.load(Ordering::Relaxed) {
                    return Ok(());
                }
                if !polled(wait)? {
                    break;
                }
                wait = Wall::ZERO;
                match event::read()? {
                    Event::Key(key) => match view.key(key, page) {
                        Done::End => return Ok(()),
                        Done::Draw => must_draw = true,
                        Done::Nothing => {}
                    },
                    Event::Resize(..) => must_draw = true,
                    _ => {}
                }
            }
        }
    }
}

/// Whether there is an event; a signal ends the wait.
fn polled(wait: Wall) -> io::Result<bool> {
    match event::poll(wait) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        polled => polled,
    }
}

/// Draws all tables, or the part that fits.
fn draw(frame: &mut Frame<'_>, look: &Look, histories: &Histories, view: &mut View) {
    let rows = Layout::vertical([Constraint::Min(1), Constraint::Length(1)]);
    let [tables, foot] = rows.areas(frame.area());
    let mut lines: Vec<Line<'_>> = Vec::new();
    for section in sections::of(look, view.sort) {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        for line in layout::lines(&section, Some(histories), usize::from(tables.width)) {
            let spans = line.into_iter().map(|(text, part)| Span::styled(text, view.style(part)));
            lines.push(Line::from_iter(spans));
        }
    }
    if let Some(one) = look.skipped.first() {
        let more = look.skipped.len() - 1;
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        lines.push(Line::default());
        lines.push(Line::styled(format!("not shown: {one}{more}"), view.style(Part::Bad)));
    }
    let below = lines.len().saturating_sub(usize::from(tables.height));
    view.above = view.above.min(below);
    let visible = lines.into_iter().skip(view.above).take(usize::from(tables.height));
    frame.render_widget(Paragraph::new(Text::from_iter(visible)), tables);
    let scroll = if below > 0 { "  up and down scroll" } else { "" };
    let keys = format!("q ends  s sorts: {}{scroll}", named(view.sort));
    frame.render_widget(Paragraph::new(Line::styled(keys, view.style(Part::Faint))), foot);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Buffer;

    use super::super::history::Key;
    use super::super::sections::tests::look;
    use super::*;

    fn view(has_colours: bool) -> View {
        View { sort: SortBy::Rate, above: 0, has_colours }
    }

    fn drawn(look: &Look, (width, height): (u16, u16), view: &mut View) -> Buffer {
        let mut histories = Histories::default();
        let start = Instant::now();
        for second in 0..60 {
            let rates = vec![(Key::Flow(1), 4e6), (Key::Flow(2), second as f64 * 1e5)];
            histories.add(start + Wall::from_secs(second), rates);
        }
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, look, &histories, view)).unwrap();
        terminal.backend().buffer().clone()
    }

    fn text(buffer: &Buffer) -> Vec<String> {
        let rows = buffer.content.chunks(usize::from(buffer.area.width));
        rows.map(|row| {
            row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()
        })
        .collect()
    }

    #[test]
    fn eighty_columns_show_rates_sparklines_and_what_is_wrong() {
        let shown = text(&drawn(&look(), (80, 30), &mut view(true)));
        let all = shown.join("\n");
        for word in ["senders (2)", "Mbit/s", "receivers (1)", "relays (3)", "reservations (1)"] {
            assert!(all.contains(word), "{word}\nis not in\n{all}");
        }
        let news = shown.iter().find(|line| line.starts_with("news")).unwrap();
        assert!(news.contains('█') && news.contains("8.00") && news.contains("2.0 %"), "{news}");
        assert_eq!(shown.last().unwrap(), "q ends  s sorts: rate");
    }

    #[test]
    fn a_narrow_or_low_screen_shows_what_fits_and_scrolls() {
        for size in [(80, 24), (40, 10), (20, 5), (10, 3), (1, 1)] {
            let _ = drawn(&look(), size, &mut view(true));
        }
        let mut view = view(true);
        let first = text(&drawn(&look(), (40, 8), &mut view));
        assert!(first[0].starts_with("senders"), "{first:#?}");
        assert_eq!(view.key(KeyEvent::from(KeyCode::End), 5), Done::Draw);
        let last = text(&drawn(&look(), (40, 8), &mut view));
        assert!(last[6].starts_with("udp 10.0.3.2"), "{last:#?}");
        assert!(view.above < 100, "it stays at the end of the tables");
        assert_eq!(view.key(KeyEvent::from(KeyCode::Home), 5), Done::Draw);
        assert_eq!(view.above, 0);
    }

    #[test]
    fn without_colours_there_are_none() {
        let is_coloured = |buffer: &Buffer| {
            buffer.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
        };
        assert!(is_coloured(&drawn(&look(), (80, 30), &mut view(true))));
        assert!(!is_coloured(&drawn(&look(), (80, 30), &mut view(false))));
    }

    #[test]
    fn keys_end_and_sort() {
        let mut view = view(true);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for key in [KeyEvent::from(KeyCode::Char('q')), control_c] {
            assert_eq!(view.key(key, 5), Done::End);
        }
        assert_eq!(view.key(KeyEvent::from(KeyCode::Char('x')), 5), Done::Nothing);
        for sort in ["loss", "late", "name", "rate"] {
            assert_eq!(view.key(KeyEvent::from(KeyCode::Char('s')), 5), Done::Draw);
            assert_eq!(named(view.sort), sort);
        }
    }

    #[test]
    fn text_of_other_users_is_not_obeyed() {
        let mut look = look();
        look.flows[0].flow.name = "\u{1b}[2J\u{9b}31m\u{202e}".to_owned();
        look.skipped.push(ontempo_monitor::Skipped {
            path: "/run/\u{1b}[31m".into(),
            reason: "is no report: \u{7}".to_owned(),
        });
        let buffer = drawn(&look, (120, 40), &mut view(true));
        let is_obeyed = |one: char| one.is_control() || matches!(one, '\u{2028}'..='\u{202e}');
        assert!(!buffer.content.iter().any(|cell| cell.symbol().contains(is_obeyed)));
        let shown = text(&buffer).join("\n");
        assert!(shown.contains(r"\u001b[2J") && shown.contains("not shown: "), "{shown}");
    }
}
