//! Stable index numbers.

use std::collections::BTreeMap;

/// The largest number: an SNMP index is a positive `Integer32`.
const LAST: u32 = i32::MAX as u32;

/// Assigns each item a number that it keeps as long as it is present at every update.
#[derive(Debug)]
pub(super) struct Numbers<K> {
    known: BTreeMap<K, u32>,
    last: u32,
}

impl<K> Default for Numbers<K> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), last: 0 }
    }
}

impl<K: Ord + Clone> Numbers<K> {
    /// The numbers of the present items, in this order. Absent items are forgotten; numbers
    /// are assigned in rotation, so that one is not reused soon.
    pub(super) fn look(&mut self, keys: impl IntoIterator<Item = K>) -> Vec<u32> {
        let before = std::mem::take(&mut self.known);
        let number = |key: K| {
            let known = before.get(&key).or_else(|| self.known.get(&key)).copied();
            let number = known.unwrap_or_else(|| {
                self.last = self.last % LAST + 1;
                self.last
            });
            self.known.insert(key, number);
            number
        };
        keys.into_iter().map(number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_keeps_its_number_and_what_comes_back_gets_another() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.look(["a", "b"]), [1, 2]);
        assert_eq!(numbers.look(["b", "c"]), [2, 3]);
        assert_eq!(numbers.look(["a", "c"]), [4, 3]);
    }

    #[test]
    fn numbers_stay_those_of_an_index() {
        let mut numbers = Numbers { known: BTreeMap::new(), last: LAST };
        assert_eq!(numbers.look(["a"]), [1]);
    }
}
