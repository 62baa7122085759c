//! A text plot of two curves.

/// Height of the plot in lines; odd, so that one is in the middle.
const LINES: usize = 13;

/// Marks points that both curves share.
const BOTH: char = '*';

/// Characters for the labels of an axis.
const MARGIN: usize = 9;

/// Minimum characters per point on the horizontal axis.
const MIN_WIDTH: usize = 4;

/// A curve, from 0 to `max`.
pub(crate) struct Curve<'a> {
    /// Name of the measure.
    pub(crate) name: &'a str,
    /// Its unit.
    pub(crate) unit: &'a str,
    /// Characters for points, and for the line between them.
    pub(crate) letters: (char, char),
    /// One value per point.
    pub(crate) values: Vec<f64>,
    /// The upper end of its axis, above 0.
    pub(crate) max: f64,
}

impl Curve<'_> {
    /// The line of a value, from the top.
    fn line(&self, value: f64) -> usize {
        let share = (value / self.max).clamp(0.0, 1.0);
        ((1.0 - share) * (LINES - 1) as f64).round() as usize
    }

    /// The axis label of a line: only the ends and the middle have one.
    fn number(&self, line: usize) -> String {
        let share = match line {
            0 => 1.0,
            line if line == LINES / 2 => 1.0 - line as f64 / (LINES - 1) as f64,
            line if line == LINES - 1 => 0.0,
            _ => return String::new(),
        };
        let value = self.max * share;
        if value >= 10.0 || value == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
    }
}

/// Draws two curves over the `places` of an `axis`, at equal distances, at most `width` characters
/// wide: the first on the left scale, the second on the right.
pub(crate) fn two_curves(
    axis: &str,
    places: &[String],
    left: &Curve<'_>,
    right: &Curve<'_>,
    width: usize,
) -> String {
    let inner = width.saturating_sub(2 * MARGIN).max(MIN_WIDTH * places.len());
    let gap = inner / places.len().max(1);
    let column = |place: usize| gap / 2 + place * gap;
    let mut field = vec![vec![' '; inner]; LINES];
    // Lines first, so that they hide no points.
    for curve in [left, right] {
        draw_line(&mut field, curve, column);
    }
    let mut meet = false;
    for curve in [right, left] {
        for (place, value) in curve.values.iter().enumerate() {
            let letter = &mut field[curve.line(*value)][column(place)];
            let is_taken = *letter == right.letters.0;
            meet |= is_taken;
            *letter = if is_taken { BOTH } else { curve.letters.0 };
        }
    }
    let mut lines = vec![format!("{:>MARGIN$}{:inner$}{}", left.unit, "", right.unit)];
    for (at, letters) in field.into_iter().enumerate() {
        let letters: String = letters.into_iter().collect();
        let (one, other) = (left.number(at), right.number(at));
        let width = MARGIN - 2;
        lines.push(format!("{one:>width$} |{letters}| {other}"));
    }
    lines.push(format!("{:>MARGIN$}{}+", "+", "-".repeat(inner)));
    lines.extend(labels(places, gap, inner));
    let key = |curve: &Curve<'_>| format!("{} {}", curve.letters.0, curve.name);
    let both = if meet { format!("    {BOTH} both") } else { String::new() };
    lines.push(format!("{:MARGIN$}over the {axis}:", ""));
    lines.push(format!("{:MARGIN$}{}    {}{both}", "", key(left), key(right)));
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

/// Draws the line between a curve's points.
fn draw_line(field: &mut [Vec<char>], curve: &Curve<'_>, column: impl Fn(usize) -> usize) {
    for (place, pair) in curve.values.windows(2).enumerate() {
        let (from, to) = (column(place), column(place + 1));
        let mut before = curve.line(pair[0]);
        for at in from..=to {
            let share = (at - from) as f64 / (to - from).max(1) as f64;
            let now = curve.line(pair[0] + (pair[1] - pair[0]) * share);
            let (top, bottom) = (now.min(before), now.max(before));
            // The previous column already has the line it starts from.
            let begin = if before < now { top + 1 } else { top };
            let end = if before > now { bottom - 1 } else { bottom };
            field[begin.min(end)..=end].iter_mut().for_each(|line| line[at] = curve.letters.1);
            before = now;
        }
    }
}

/// Labels of the places; if too wide for one line, alternating on two.
fn labels(places: &[String], gap: usize, inner: usize) -> Vec<String> {
    let lines = if places.iter().all(|name| name.len() < gap) { 1 } else { 2 };
    let width = gap * lines;
    (0..lines.min(places.len()))
        .map(|line| {
            let mut text = " ".repeat(MARGIN);
            for (place, name) in places.iter().enumerate().skip(line).step_by(lines) {
                let name: String = name.chars().take(width.saturating_sub(1).max(1)).collect();
                let middle = MARGIN + gap / 2 + place * gap;
                let begin = middle.saturating_sub(name.len() / 2).min(MARGIN + inner);
                let free = begin.saturating_sub(text.len());
                text.push_str(&" ".repeat(free));
                text.push_str(&name);
            }
            text
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(width: usize) -> String {
        let places: Vec<_> = ["none", "50 us", "100 us", "1 ms"].map(str::to_owned).into();
        let rate = Curve {
            name: "throughput",
            unit: "Mbit/s",
            letters: ('o', '.'),
            values: vec![62.0, 64.0, 62.0, 11.0],
            max: 64.0,
        };
        let loss = Curve {
            name: "loss",
            unit: "%",
            letters: ('x', ','),
            values: vec![90.0, 60.0, 35.0, 0.0],
            max: 100.0,
        };
        two_curves("spacing", &places, &rate, &loss, width)
    }

    #[test]
    fn a_plot_is_as_wide_as_asked_and_names_places_units_and_curves() {
        for width in [40, 80, 120] {
            let text = drawn(width);
            assert!(text.lines().all(|line| line.len() <= width), "{text}");
            for name in ["Mbit/s", "%", "none", "100 us", "1 ms", "o throughput", "x loss"] {
                assert!(text.contains(name), "{name} is missing:\n{text}");
            }
            let points =
                |letter| text.lines().take(LINES + 1).collect::<String>().matches(letter).count();
            assert_eq!((points('o'), points('x')), (4, 4), "{text}");
        }
    }

    #[test]
    fn points_stand_on_the_line_of_their_value() {
        let text = drawn(80);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].contains('o') && lines[1].trim_start().starts_with("64 |"), "{text}");
        assert!(lines[LINES].contains('x') && lines[LINES].ends_with("| 0"), "{text}");
    }

    #[test]
    fn one_place_and_none_are_drawn() {
        let curve = |values| Curve { name: "a", unit: "b", letters: ('o', '.'), values, max: 1.0 };
        assert!(
            two_curves("a", &["x".to_owned()], &curve(vec![1.0]), &curve(vec![0.0]), 60)
                .contains('x')
        );
        assert!(two_curves("a", &[], &curve(vec![]), &curve(vec![]), 60).contains('+'));
    }
}
