//! The rate of the bottleneck over time, from when packets left it.

use super::control::QUEUED;

/// A window in which the bottleneck was busy for less than this share has mostly an interpolated
/// rate.
const BUSY_SHARE: f64 = 0.5;

/// Busy time beside a gap that gives the gap its rate, and the least of it that says something: arrivals
/// have errors of some tenths of a millisecond. Both ns.
const EDGE: f64 = 20e6;
const MIN_EDGE: f64 = 5e6;

/// Where so many times the bits pass that the rate before a gap allows, the rate has grown.
const GROWN: f64 = 1.5;

/// Busy spans further from the gap than this, ns, or than so many others are not beside it.
const REACH: (i64, usize) = (100_000_000, 1_000);

/// The path is in use once the bottleneck was busy for most of this time, ns.
const RAMP: i64 = 100_000_000;
const RAMP_SHARE: f64 = 0.8;

/// Or once this share of the highest rate that is allowed has passed in this time.
pub(super) const USED_SHARE: f64 = 0.7;

/// A packet that left the bottleneck.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    /// When it came to the bottleneck, ns.
    pub(super) came: i64,
    /// When it left, ns.
    pub(super) left: i64,
    pub(super) bits: f64,
}

/// Time in which the bottleneck was either busy throughout, or not seen busy.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// ns.
    from: i64,
    until: i64,
    /// Bits that left in it.
    bits: f64,
    is_busy: bool,
}

impl Span {
    fn length(&self) -> f64 {
        (self.until - self.from) as f64
    }
}

/// What is known of a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    /// How long the bottleneck was busy, ns.
    busy: f64,
    /// Bits that it sent while it was busy, and would have sent otherwise.
    possible: f64,
    /// Bits that left.
    pub(super) bits: f64,
}

impl Window {
    /// Whether the rate was seen for most of this window of `length` ns.
    pub(super) fn is_known(&self, length: i64) -> bool {
        self.busy >= BUSY_SHARE * length as f64
    }

    /// bit/s, of a window of `length` ns.
    pub(super) fn rate(&self, length: i64) -> f64 {
        self.possible.max(self.bits) / length as f64 * 1e9
    }
}

/// The window of `length` ns, one of `count`, in which something left.
pub(super) fn place_of(left: i64, length: i64, count: usize) -> usize {
    usize::try_from(left.max(0) / length).unwrap_or(0).min(count - 1)
}

/// A span for each departure, without holes.
fn spans(departures: impl Iterator<Item = Departure>) -> Vec<Span> {
    let mut before: Option<i64> = None;
    let span = |departure: Departure| {
        let from = before.unwrap_or(departure.left);
        let until = departure.left.max(from);
        let is_busy = before.is_some_and(|before| before - departure.came >= QUEUED);
        before = Some(until);
        Span { from, until, bits: departure.bits, is_busy }
    };
    departures.map(span).collect()
}

/// When the path was first in use, ns: until then the sender had not yet found its rate. `None` if
/// it never was.
pub(super) fn first_use(departures: impl Iterator<Item = Departure>, max_rate: f64) -> Option<i64> {
    let spans = spans(departures);
    let (mut end, mut busy, mut bits) = (0, 0.0, 0.0);
    let enough = USED_SHARE * max_rate * RAMP as f64 / 1e9;
    for first in &spans {
        while end < spans.len() && spans[end].from < first.from + RAMP {
            bits += spans[end].bits;
            busy += if spans[end].is_busy { spans[end].length() } else { 0.0 };
            end += 1;
        }
        if (first.is_busy && busy >= RAMP_SHARE * RAMP as f64) || bits >= enough {
            return Some(first.from);
        }
        bits -= first.bits;
        busy -= if first.is_busy { first.length() } else { 0.0 };
    }
    None
}

/// What the bottleneck sent in `count` windows of `length` ns from 0 on.
///
/// While it is busy that is what left. A gap, in which it was not seen busy, gets the mean of the
/// rates right before and right after it, at least what passed; from where more passes than at the rate
/// before it, the rate after it. A queue that runs empty because the
/// rate grew does so at the new rate, so that this is among what was seen before the gap.
pub(super) fn windows(
    departures: impl Iterator<Item = Departure>,
    length: i64,
    count: usize,
) -> Vec<Window> {
    let spans = spans(departures);
    let mut windows = vec![Window::default(); count];
    let end = length.saturating_mul(count as i64);
    for span in spans.iter().filter(|span| (0..end).contains(&span.until)) {
        windows[place_of(span.until, length, count)].bits += span.bits;
    }
    let mut from = 0;
    while let Some(first) = spans.get(from) {
        let same = spans[from..].iter().take_while(|span| span.is_busy == first.is_busy).count();
        let until = from + same;
        if first.is_busy {
            spans[from..until].iter().for_each(|span| add(span, length, &mut windows));
        } else {
            let before = edge(spans[..from].iter().rev(), first.from);
            let after = edge(spans[until..].iter(), spans[until - 1].until);
            let beside = match (before, after) {
                (Some(before), Some(after)) => f64::midpoint(before, after),
                (one, other) => one.or(other).unwrap_or(0.0),
            };
            let grown = from + before.map_or(same, |before| refuted(&spans[from..until], before));
            for (part, rate) in [(from..grown, beside), (grown..until, after.unwrap_or(beside))] {
                let Some(first) = spans[part.clone()].first() else { continue };
                let passed = spans[part.clone()].iter().map(|span| span.bits).sum::<f64>();
                let mut gap = Span { until: spans[part.end - 1].until, ..*first };
                // A gap at an end of the recording is as long as that.
                gap.from = if part.start == 0 { gap.from.min(0) } else { gap.from };
                gap.until = if part.end == spans.len() { gap.until.max(end) } else { gap.until };
                gap.bits = passed.max(rate * gap.length());
                add(&gap, length, &mut windows);
            }
        }
        from = until;
    }
    windows
}

/// The first of these spans of a gap from which on more passed, for [`EDGE`], than at this rate: it
/// had grown already, though it was not seen to.
fn refuted(gap: &[Span], rate: f64) -> usize {
    let (mut end, mut bits) = (0, 0.0);
    for (number, first) in gap.iter().enumerate() {
        while end < gap.len() && ((gap[end].until - first.from) as f64) < EDGE {
            bits += gap[end].bits;
            end += 1;
        }
        if end < gap.len() && bits > EDGE * rate * GROWN {
            return number;
        }
        bits = if end > number { bits - first.bits } else { 0.0 };
        end = end.max(number + 1);
    }
    gap.len()
}

/// The rate of the busy spans nearest to the time `to`, bits in a ns.
fn edge<'a>(spans: impl Iterator<Item = &'a Span>, to: i64) -> Option<f64> {
    let (mut bits, mut time) = (0.0, 0.0);
    let is_near = |span: &&Span| (span.from - to).max(to - span.until) <= REACH.0;
    for span in spans.take(REACH.1).take_while(is_near).filter(|span| span.is_busy) {
        bits += span.bits;
        time += span.length();
        if time >= EDGE {
            break;
        }
    }
    (time >= MIN_EDGE).then(|| bits / time)
}

/// Adds what left evenly in this span.
fn add(span: &Span, length: i64, windows: &mut [Window]) {
    let count = windows.len();
    let end = length.saturating_mul(count as i64);
    if span.until == span.from {
        if (0..end).contains(&span.until) {
            windows[place_of(span.until, length, count)].possible += span.bits;
        }
        return;
    }
    let mut from = span.from.max(0);
    while from < span.until.min(end) {
        let until = (from / length + 1).saturating_mul(length).min(span.until);
        let part = (until - from) as f64;
        let one = &mut windows[place_of(from, length, count)];
        one.busy += if span.is_busy { part } else { 0.0 };
        one.possible += span.bits * part / span.length();
        from = until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// Packets of 10,000 bits that wait 10 ms and leave at `rate` Mbit/s, from a time to another, ms.
    fn queued(from: i64, until: i64, rate: i64) -> Vec<Departure> {
        let gap = 10 * MS / rate;
        let left = (1..).map(|number| from * MS + number * gap);
        let left = left.take_while(|left| *left <= until * MS);
        left.map(|left| Departure { came: left - gap - 10 * MS, left, bits: 1e4 }).collect()
    }

    fn rates(departures: &[Departure], count: usize) -> Vec<f64> {
        let windows = windows(departures.iter().copied(), 100 * MS, count);
        windows.iter().map(|one| (one.rate(100 * MS) / 1e5).round() / 10.0).collect()
    }

    #[test]
    fn a_gap_has_the_mean_of_the_rates_beside_it() {
        let all = [queued(0, 100, 2), queued(250, 400, 6)].concat();
        assert_eq!(rates(&all, 4), [2.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn a_queue_that_ran_empty_at_a_new_rate_gives_the_gap_behind_it_that_rate() {
        let all = [queued(0, 180, 2), queued(180, 200, 8), queued(270, 300, 8)].concat();
        assert_eq!(rates(&all, 3), [2.0, 3.2, 8.0]);
    }

    /// The rate grew in a pause: the packets after it pass without a queue, the window still grows.
    #[test]
    fn a_gap_in_which_more_passes_than_before_it_has_the_rate_after_it() {
        let passing = (120..=300).step_by(2);
        let passing = passing.map(|at| Departure { came: at * MS, left: at * MS, bits: 1e4 });
        let all = [queued(0, 100, 2), passing.collect(), queued(300, 400, 16)].concat();
        assert_eq!(rates(&all, 4), [2.0, 14.6, 16.0, 16.0]);
    }

    #[test]
    fn a_gap_in_which_more_passed_has_at_least_that() {
        let passing = (100..300).map(|at| Departure { came: at * MS, left: at * MS, bits: 1e4 });
        let all: Vec<_> = [queued(0, 100, 2), passing.collect(), queued(300, 400, 2)].concat();
        let rates = rates(&all, 4);
        assert!((9.9..=10.1).contains(&rates[1]) && rates[0] == 2.0, "{rates:?}");
    }

    #[test]
    fn two_packets_close_together_give_a_gap_no_rate() {
        let pair = [90 * MS, 90 * MS + MS / 100].map(|left| Departure {
            came: left - 5 * MS,
            left,
            bits: 1e4,
        });
        let alone = Departure { came: 60 * MS, left: 60 * MS, bits: 1e4 };
        let all = [vec![alone], pair.to_vec(), queued(150, 400, 2)].concat();
        assert_eq!(rates(&all, 4)[1..], [2.0, 2.0, 2.0]);
    }

    #[test]
    fn a_path_is_in_use_once_it_is_busy_or_carries_nearly_all_that_is_allowed() {
        let slowly = |from: i64, until: i64| {
            (from..until).map(|tens| Departure {
                came: tens * 10 * MS,
                left: tens * 10 * MS,
                bits: 1e4,
            })
        };
        let all: Vec<_> = slowly(0, 30).chain(queued(300, 500, 2)).collect();
        let begun = first_use(all.iter().copied(), 50e6).expect("it was busy");
        assert!((290 * MS..310 * MS).contains(&begun), "{begun}");
        assert_eq!(first_use(slowly(0, 50), 50e6), None);
        assert_eq!(first_use(slowly(0, 50), 1e6), Some(0));
        // A packet takes longer than the time that is looked at.
        let slow: Vec<_> = queued(0, 3_000, 1)
            .into_iter()
            .map(|one| Departure { left: one.left * 50, came: 0, ..one })
            .collect();
        assert_eq!(first_use(slow.into_iter(), 50e6), Some(500 * MS));
    }

    #[test]
    fn departures_all_at_once_or_out_of_order_are_borne() {
        for times in [[5, 5, 5, 5], [9, -3, 4, 1_000_000], [-1, -1, -1, -1]] {
            let all = times.map(|left| Departure { came: left - 2, left: left * MS, bits: 1e4 });
            assert_eq!(rates(&all, 2).len(), 2);
            let _ = first_use(all.into_iter(), 50e6);
        }
    }
}
