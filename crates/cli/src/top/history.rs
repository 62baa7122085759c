//! Rates of the last minute.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration as Wall, Instant};

/// How far back it goes.
pub(super) const SPAN: Wall = Wall::from_secs(60);

/// Maximum rates of a row: four a second. Of looks that are more frequent the last one counts.
const MAX_RATES: usize = 240;
const STEP: Wall = Wall::from_millis(250);

/// Maximum rows whose rates are kept.
const MAX_ROWS: usize = 20_000;

/// Whose rates.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Flow(u32),
    Socket(u32),
    Reservation(String),
}

/// The rates of all rows.
#[derive(Debug, Default)]
pub(super) struct Histories {
    of: BTreeMap<Key, VecDeque<(Instant, f64)>>,
    now: Option<Instant>,
}

impl Histories {
    /// Adds the present rates; rows that have none are forgotten.
    pub(super) fn add(&mut self, now: Instant, rates: Vec<(Key, f64)>) {
        self.now = Some(now);
        let mut before = std::mem::take(&mut self.of);
        for (key, rate) in rates.into_iter().take(MAX_ROWS) {
            let mut rates = before.remove(&key).unwrap_or_default();
            match rates.back_mut() {
                Some((at, last)) if now.saturating_duration_since(*at) < STEP => *last = rate,
                _ => rates.push_back((now, rate)),
            }
            let is_old = |at: &Instant| now.saturating_duration_since(*at) >= SPAN;
            while rates.len() > MAX_RATES || rates.front().is_some_and(|(at, _)| is_old(at)) {
                rates.pop_front();
            }
            self.of.insert(key, rates);
        }
    }

    /// The rates of a row, the oldest first.
    pub(super) fn rates(&self, key: &Key) -> Vec<f64> {
        self.of.get(key).into_iter().flatten().map(|(_, rate)| *rate).collect()
    }

    /// The last minute in so many columns, the present in the last one: the largest rate of each part of
    /// the minute, `None` where nothing is known.
    fn parts(&self, key: &Key, columns: usize) -> Vec<Option<f64>> {
        let mut parts = vec![None; columns];
        let (Some(now), Some(rates)) = (self.now, self.of.get(key)) else { return parts };
        for (at, rate) in rates {
            let age = now.saturating_duration_since(*at).as_secs_f64() / SPAN.as_secs_f64();
            let back = (age * columns as f64) as usize;
            if let Some(part) = columns.checked_sub(back + 1).and_then(|place| parts.get_mut(place))
            {
                *part = Some(part.unwrap_or(0.0_f64).max(*rate));
            }
        }
        parts
    }

    /// The same as bars; the highest is the row's own largest rate.
    pub(super) fn sparkline(&self, key: &Key, columns: usize) -> String {
        const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let parts = self.parts(key, columns);
        let most = parts.iter().flatten().copied().fold(0.0, f64::max);
        let bar = |rate: f64| {
            let height = if most > 0.0 { (rate / most * 7.0).round() as usize } else { 0 };
            BARS[height.min(7)]
        };
        parts.into_iter().map(|part| part.map_or(' ', bar)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_has_the_last_minute_and_forgets_what_is_older() {
        let start = Instant::now();
        let mut histories = Histories::default();
        let key = || Key::Flow(1);
        for second in 0..90 {
            let rate = if second == 85 { 8e6 } else { 4e6 };
            histories.add(start + Wall::from_secs(second), vec![(key(), rate)]);
        }
        assert_eq!(histories.rates(&key()).len(), 60);
        let shown = histories.sparkline(&key(), 60);
        assert_eq!(shown.chars().filter(|bar| *bar == '█').count(), 1);
        assert_eq!(shown.chars().rev().nth(4), Some('█'), "four seconds ago: {shown}");
        // A narrower one has the largest of each part.
        assert_eq!(histories.sparkline(&key(), 6), "▅▅▅▅▅█");
        assert_eq!(histories.sparkline(&Key::Flow(2), 3), "   ", "one that is not known");
        histories.add(start + Wall::from_secs(91), Vec::new());
        assert_eq!(histories.rates(&key()), [0.0; 0]);
    }

    #[test]
    fn memory_of_a_row_is_bounded_however_often_it_is_looked_at() {
        let start = Instant::now();
        let mut histories = Histories::default();
        for step in 0..80_000 {
            let now = start + Wall::from_millis(step);
            histories.add(now, vec![(Key::Socket(1), 0.0)]);
        }
        assert_eq!(histories.rates(&Key::Socket(1)).len(), MAX_RATES);
        assert!(histories.sparkline(&Key::Socket(1), 20).ends_with("▁▁"));
    }
}
