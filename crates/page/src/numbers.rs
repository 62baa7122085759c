//! Numbers as the page shows them in text.

/// `scale` and unit of the largest scale that is no more than the value.
fn scaled(value: f64, scales: &[(f64, &str)]) -> String {
    let magnitude = value.abs();
    let scale = scales.iter().find(|(scale, _)| magnitude >= *scale).or(scales.last());
    let (scale, unit) = scale.copied().unwrap_or((1.0, ""));
    format!("{} {unit}", digits(value / scale))
}

/// Three significant digits; more if they stand before the point.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 || size == 0.0 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A rate in bits per second.
pub(crate) fn rate(bits_per_second: f64) -> String {
    let scales = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")];
    scaled(bits_per_second, &scales)
}

/// A time in seconds.
pub(crate) fn seconds(seconds: f64) -> String {
    scaled(seconds, &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")])
}

/// A share from 0 to 1, in percent. One that is not 0 is never written as 0.
pub(crate) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent.abs() {
        0.0 => "0 %".to_owned(),
        size if size < 0.01 => "< 0.01 %".to_owned(),
        size if !(0.995..99.995).contains(&size) => format!("{percent:.2} %").replace(".00 ", " "),
        _ => format!("{percent:.1} %"),
    }
}

/// A count, with a thin space before each group of three digits.
pub(crate) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{2009}');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit_that_fits() {
        assert_eq!(rate(9_876_543.0), "9.88 Mbit/s");
        assert_eq!(rate(64_000.0), "64.0 kbit/s");
        assert_eq!(rate(0.0), "0 bit/s");
        assert_eq!(seconds(0.0415), "41.5 ms");
        assert_eq!(seconds(2.0), "2.00 s");
        assert_eq!(seconds(0.000_05), "50.0 µs");
        assert_eq!(count(1_234_567), "1\u{2009}234\u{2009}567");
        assert_eq!(count(12), "12");
    }

    #[test]
    fn a_small_share_is_not_shown_as_none() {
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(0.000_001), "< 0.01 %");
        assert_eq!(percent(0.0005), "0.05 %");
        assert_eq!(percent(0.123), "12.3 %");
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.9996), "100.0 %");
    }
}
