//! A set of numbers that lie close together.

use std::collections::BTreeMap;

/// Numbers, kept as ranges: memory grows by what is missing between them, not by how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The first of each range, and the last. No two ranges touch.
    ranges: BTreeMap<u64, u64>,
}

impl Numbers {
    /// Adds a number; false if it was there.
    pub fn insert(&mut self, number: u64) -> bool {
        let before = self.ranges.range(..=number).next_back().map(|(&first, &last)| (first, last));
        if before.is_some_and(|(_, last)| last >= number) {
            return false;
        }
        let first = match before {
            Some((first, last)) if last + 1 == number => first,
            _ => number,
        };
        let after = number.checked_add(1).and_then(|next| self.ranges.remove(&next));
        self.ranges.insert(first, after.unwrap_or(number));
        true
    }

    /// Whether it is there.
    pub fn contains(&self, number: u64) -> bool {
        let before = self.ranges.range(..=number).next_back();
        before.is_some_and(|(_, &last)| last >= number)
    }

    /// Takes a number out; false if it was not there.
    pub fn remove(&mut self, number: u64) -> bool {
        let Some((&first, &last)) = self.ranges.range(..=number).next_back() else { return false };
        if last < number {
            return false;
        }
        self.ranges.remove(&first);
        if first < number {
            self.ranges.insert(first, number - 1);
        }
        if number < last {
            self.ranges.insert(number + 1, last);
        }
        true
    }

    /// Takes the least numbers out, at most so many.
    pub fn take(&mut self, most: usize) -> Vec<u64> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some((first, last)) = self.ranges.pop_first()
        {
            let room = (most - taken.len()) as u64;
            let end = last.min(first.saturating_add(room - 1));
            taken.extend(first..=end);
            if end < last {
                self.ranges.insert(end + 1, last);
            }
        }
        taken
    }

    /// Adds what lies between the two lowest ranges, while there are more than so many.
    pub fn limit_ranges(&mut self, most: usize) {
        while self.ranges.len() > most.max(1)
            && let Some((first, _)) = self.ranges.pop_first()
            && let Some((_, last)) = self.ranges.pop_first()
        {
            self.ranges.insert(first, last);
        }
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_has_what_a_set_has(changes in prop::collection::vec((any::<bool>(), 0_u64..40), 0..200), most in 0_usize..50) {
            let (mut numbers, mut set) = (Numbers::default(), BTreeSet::new());
            for (is_added, number) in changes {
                if is_added {
                    prop_assert_eq!(numbers.insert(number), set.insert(number));
                } else {
                    prop_assert_eq!(numbers.remove(number), set.remove(&number));
                }
                prop_assert_eq!(numbers.contains(number), is_added);
                let starts = set.iter().filter(|&&one| one == 0 || !set.contains(&(one - 1)));
                prop_assert_eq!(numbers.ranges.len(), starts.count());
            }
            let expected: Vec<_> = set.iter().copied().take(most).collect();
            prop_assert_eq!(numbers.take(most), expected);
            prop_assert_eq!(numbers.is_empty(), set.len() <= most);
        }
    }

    #[test]
    fn the_largest_number_has_no_next() {
        let mut numbers = Numbers::default();
        assert!(numbers.insert(u64::MAX) && numbers.insert(u64::MAX - 1));
        assert!(!numbers.insert(u64::MAX) && numbers.contains(u64::MAX));
        assert_eq!(numbers.take(5), [u64::MAX - 1, u64::MAX]);
    }

    #[test]
    fn beyond_the_limit_the_lowest_gaps_close() {
        let mut numbers = Numbers::default();
        (0..10).for_each(|number| assert!(numbers.insert(number * 10)));
        numbers.limit_ranges(3);
        assert_eq!(numbers.ranges, BTreeMap::from([(0, 70), (80, 80), (90, 90)]));
    }
}
