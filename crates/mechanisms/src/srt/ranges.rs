/// A set of sequence numbers as ascending ranges, none of which touches another (`list.cpp`).
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    /// First and last of each.
    ranges: Vec<(u64, u64)>,
}

impl Ranges {
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn first(&self) -> Option<u64> {
        self.ranges.first().map(|range| range.0)
    }

    pub(super) fn as_slice(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// Adds `first..=last`; an empty range adds nothing. Returns how many numbers are new.
    pub(super) fn insert(&mut self, first: u64, last: u64) -> u64 {
        if first > last {
            return 0;
        }
        let from = self.ranges.partition_point(|range| range.1.saturating_add(1) < first);
        let to = self.ranges.partition_point(|range| range.0 <= last.saturating_add(1));
        let had: u64 = self.ranges[from..to].iter().map(|range| range.1 - range.0 + 1).sum();
        let merged = match (self.ranges[from..to].first(), self.ranges[from..to].last()) {
            (Some(low), Some(high)) => (low.0.min(first), high.1.max(last)),
            _ => (first, last),
        };
        self.ranges.splice(from..to, [merged]);
        merged.1 - merged.0 + 1 - had
    }

    /// Removes `first..=last`; an empty range removes nothing.
    pub(super) fn remove(&mut self, first: u64, last: u64) {
        if first > last {
            return;
        }
        let from = self.ranges.partition_point(|range| range.1 < first);
        let to = self.ranges.partition_point(|range| range.0 <= last);
        if from >= to {
            return;
        }
        let (low, high) = (self.ranges[from].0, self.ranges[to - 1].1);
        let before = (low < first).then(|| (low, first - 1));
        let after = (high > last).then(|| (last + 1, high));
        self.ranges.splice(from..to, before.into_iter().chain(after));
    }

    /// Removes all before `next`.
    pub(super) fn remove_before(&mut self, next: u64) {
        if let Some(last) = next.checked_sub(1) {
            self.remove(0, last);
        }
    }

    /// Removes and returns the lowest.
    pub(super) fn pop(&mut self) -> Option<u64> {
        let first = self.first()?;
        self.remove(first, first);
        Some(first)
    }
}
