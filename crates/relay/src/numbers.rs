//! Numbers of units in a viewer's flow by their numbers in the stream.

use std::collections::VecDeque;

/// Runs that are remembered: what they do not hold has no number.
const MAX_RUNS: usize = 64;

/// So many units after each other in both flows.
#[derive(Clone, Copy, Debug)]
struct Run {
    from: u64,
    to: u64,
    count: u64,
}

/// Numbers in another flow. Both mostly number upwards without gaps: memory is by gap, not by unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    /// In the order of `from`, disjoint.
    runs: VecDeque<Run>,
}

impl Numbers {
    /// The unit `from`, which has no number yet, has the number `to` in the other flow.
    pub(crate) fn pass(&mut self, from: u64, to: u64) {
        let place = self.runs.partition_point(|run| run.from <= from);
        if let Some(before) = place.checked_sub(1).and_then(|before| self.runs.get_mut(before)) {
            let ahead = from - before.from;
            if ahead < before.count {
                return;
            }
            if ahead == before.count && to == before.to + before.count {
                before.count += 1;
                return;
            }
        }
        self.runs.insert(place, Run { from, to, count: 1 });
        if self.runs.len() > MAX_RUNS {
            self.runs.pop_front();
        }
    }

    /// The number of the unit `from`, if it has one that is remembered.
    pub(crate) fn of(&self, from: u64) -> Option<u64> {
        let place = self.runs.partition_point(|run| run.from <= from);
        let run = self.runs.get(place.checked_sub(1)?)?;
        (from - run.from < run.count).then(|| run.to + (from - run.from))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_is_that_of_its_unit_or_unknown_in_whatever_order_units_come(
            units in proptest::collection::vec(0u64..400, 1..300),
            gaps in proptest::collection::vec(1u64..3, 300),
        ) {
            let (mut numbers, mut all, mut to) = (Numbers::default(), BTreeMap::new(), 0);
            for (from, gap) in units.into_iter().zip(gaps) {
                to += gap;
                if !all.contains_key(&from) && numbers.of(from).is_none() {
                    numbers.pass(from, to);
                    all.insert(from, to);
                }
                prop_assert!(numbers.runs.len() <= MAX_RUNS);
            }
            for from in 0..401 {
                if let Some(to) = numbers.of(from) {
                    prop_assert_eq!(all.get(&from), Some(&to));
                }
            }
        }

        #[test]
        fn units_in_order_with_few_gaps_all_keep_their_numbers(
            gaps in proptest::collection::vec(1u64..30, 1..MAX_RUNS),
        ) {
            let (mut numbers, mut from, mut to) = (Numbers::default(), 0, 0);
            for gap in gaps {
                for _ in 0..gap {
                    numbers.pass(from, to);
                    prop_assert_eq!(numbers.of(from), Some(to));
                    from += 1;
                    to += 1;
                }
                prop_assert_eq!(numbers.of(from), None);
                from += 1;
            }
            prop_assert_eq!(numbers.of(0), Some(0));
        }
    }
}
