//! A policer: what is beyond its rate is lost, and nothing waits.

use super::loss::{Fate, Fates, Losses, MAX_COUNTED, windows_of_span};
use super::rate::place_of;
use super::recorder::Recording;
use super::refused::shrunk;

/// A second in which so many are refused without a queue shows the policer's rate.
const POLICED: f64 = 0.1;

/// Packets that may pass between two refusals beyond the rate: what was there for less than one, and one for the times
/// of sending, which are not those at which packets come to the policer.
const BEYOND: f64 = 2.0;

/// From a loss to the next one, with nothing but full packets between.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Interval {
    /// Bits that passed.
    bits: f64,
    /// s.
    time: f64,
}

/// The intervals between refusals, and the rate at which packets passed in them, bit/s. If a loss was the path's, the policer may have had
/// for more than a packet: such an interval has more than its rate and is left out. The rate falls each time that one is, and
/// none is left out that was between two refusals as long as it is too high.
fn between_refusals(mut intervals: Vec<Interval>, packet: f64) -> Option<(Vec<Interval>, f64)> {
    loop {
        let (bits, time) = intervals
            .iter()
            .fold((0.0, 0.0), |(bits, time), one| (bits + one.bits, time + one.time));
        if bits <= 0.0 || time <= 0.0 {
            return None;
        }
        let rate = bits / time;
        let count = intervals.len();
        intervals.retain(|one| one.bits <= rate * one.time + BEYOND * packet);
        if intervals.len() == count {
            return Some((intervals, rate));
        }
    }
}

fn time(intervals: &[Interval]) -> f64 {
    intervals.iter().map(|one| one.time).sum()
}

/// How far what passes in a second is from the rate of its span: the variance, bit^2/s. The path's losses are among what makes it
/// so.
fn spread(spans: &[Option<(Vec<Interval>, f64)>]) -> f64 {
    let spans = || spans.iter().flatten();
    let apart = spans().flat_map(|(intervals, rate)| {
        intervals.iter().map(move |one| (one.bits - rate * one.time) * (one.bits - rate * one.time))
    });
    apart.sum::<f64>() / spans().map(|(intervals, _)| time(intervals)).sum::<f64>()
}

impl Recording {
    /// Losses of a path that refuses what is beyond a rate: `loss`, and outages.
    pub(super) fn losses_policed(
        &self,
        all: &Fates,
        passing: &[i64],
        (begun, window): (i64, i64),
        loss: f64,
    ) -> Losses {
        let Fates { fates, bursts, .. } = all;
        let count = passing.len();
        let span = windows_of_span(window);
        let place = |left: i64| place_of(left, window, count) / span;
        let mut packets = vec![0_u64; count.div_ceil(span)];
        let mut refused = packets.clone();
        for fate in fates.iter().flatten() {
            packets[place(fate.left)] += 1;
        }
        // In pauses it saves for later, or saves no more.
        let mut intervals: Vec<Vec<Interval>> = vec![Vec::new(); packets.len()];
        let mut before: Option<usize> = None;
        for burst in bursts.iter().filter(|burst| !self.is_behind(burst, begun)) {
            refused[place(burst.left.1)] += burst.count() as u64;
            let first = burst.numbers.0;
            let Some(from) = before.replace(first) else { continue };
            if self.packets[from..=first].iter().any(|packet| packet.is_scout) {
                continue;
            }
            let is_passed = |fate: &&Option<Fate>| fate.is_some_and(|fate| !fate.is_lost);
            let passed = fates[from..first].iter().filter(is_passed).count();
            let time = (self.packets[first].sent - self.packets[from].sent) as f64 / 1e9;
            let interval = Interval { bits: passed as f64 * self.bits.0, time };
            intervals[place(burst.left.1)].push(interval);
        }
        let seen =
            intervals.into_iter().zip(refused.iter().zip(&packets)).map(|(one, (lost, all))| {
                between_refusals(one, self.bits.0).filter(|_| *lost as f64 > POLICED * *all as f64)
            });
        let seen: Vec<_> = seen.collect();
        let spread = spread(&seen);
        let known = seen.iter().map(|one| {
            let (intervals, rate) = one.as_ref()?;
            Some((*rate, spread / time(intervals)))
        });
        let rates = shrunk(&known.collect::<Vec<_>>());
        let rates: Vec<_> =
            rates.into_iter().map(|rate| Some(rate? / (1.0 - loss.min(MAX_COUNTED)))).collect();
        let by_window =
            passing.iter().map(|passed| 1.0 - (1.0 - loss) * (*passed as f64 / window as f64));
        Losses {
            by_window: by_window.collect(),
            unplaced: vec![loss.min(MAX_COUNTED); count],
            policed: (0..count).map(|place| rates[place / span]).collect(),
            ..Losses::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of packets of 1 bit, at 100 a second.
    fn steady(count: usize) -> Vec<Interval> {
        vec![Interval { bits: 1.0, time: 0.01 }; count]
    }

    #[test]
    fn what_a_policer_had_saved_is_no_rate_and_what_it_refuses_is_none_left_out() {
        let (kept, rate) = between_refusals(steady(50), 1.0).expect("a rate");
        assert_eq!((kept.len(), rate.round()), (50, 100.0));
        // The path lost one of the first packets after a pause.
        let saved = Interval { bits: 20.0, time: 0.02 };
        let (kept, rate) =
            between_refusals([vec![saved], steady(50)].concat(), 1.0).expect("a rate");
        assert_eq!((kept.len(), rate.round()), (50, 100.0));
        assert_eq!(between_refusals(Vec::new(), 1.0), None);
    }

    #[test]
    fn seconds_that_are_uncertain_are_those_of_all_and_certain_ones_are_not() {
        let noise = [3.0, -2.0, 1.0, -4.0, 2.0, 0.0];
        let values = noise.map(|noise| Some((100.0 + noise, 9.0)));
        let one = shrunk(&values);
        assert!(one.iter().flatten().all(|value| (value - 100.0).abs() < 0.1), "{one:?}");
        let two = [100.0, 102.0, 99.0, 201.0, 198.0, 200.0].map(|value| Some((value, 9.0)));
        let kept = shrunk(&two);
        for (kept, value) in kept.iter().flatten().zip(two.iter().flatten()) {
            assert!((kept - value.0).abs() < 1.0, "{kept} of {value:?}");
        }
        assert_eq!(shrunk(&[None, Some((5.0, 0.0)), None]), [None, Some(5.0), None]);
        assert_eq!(shrunk(&[Some((5.0, 1.0))]), [Some(5.0)]);
    }
}
