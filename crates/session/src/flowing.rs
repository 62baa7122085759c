//! What flows through a receiver, and how long units took.

use ontempo_foundation::{Duration, Time};
use ontempo_transport::{ConnectionStatistics, Unit};

/// Upper bounds of the buckets; the last bucket has none.
pub const DELAY_BOUNDS: [Duration; 12] = [
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(150),
    Duration::from_millis(200),
    Duration::from_millis(300),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

/// What flows through a [`Receiver`](crate::Receiver).
#[derive(Clone, Copy, Debug)]
pub struct Flowing {
    /// The latency of the stream; `None` with full reliability.
    pub latency: Option<Duration>,
    /// Bytes written to the target since the beginning of the stream.
    pub written_bytes: u64,
    /// The connection; `None` if it has just been closed.
    pub connection: Option<ConnectionStatistics>,
    /// Delays of all units so far, of all streams.
    pub delays: Delays,
}

/// Delays of a receiver's units, of all its streams: from their entry into the sender's send queue, or
/// a relay's, to their complete arrival here, before they wait for their time. Over several paths each counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Units in each bucket: longer than the bound before it, at most as long as its own.
    pub counts: [u64; DELAY_BOUNDS.len() + 1],
    /// The sum of all delays.
    pub sum: Duration,
}

impl Delays {
    /// Counts a unit, if its sender says when it had it.
    pub(crate) fn count(&mut self, unit: &Unit) {
        if let Some(sent) = unit.sent.filter(|sent| *sent > Time::ZERO) {
            self.add(unit.arrived.since(sent));
        }
    }

    /// Counts what others have counted, too.
    pub(crate) fn add_all(&mut self, others: &Self) {
        self.counts.iter_mut().zip(others.counts).for_each(|(all, more)| *all += more);
        self.sum += others.sum;
    }

    fn add(&mut self, delay: Duration) {
        let bucket = DELAY_BOUNDS.partition_point(|bound| *bound < delay);
        self.counts[bucket] += 1;
        self.sum += delay;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let mut delays = Delays::default();
        for (millis, bucket) in
            [(0, 0), (5, 0), (6, 1), (300, 7), (301, 8), (5_000, 11), (5_001, 12)]
        {
            let before = delays.counts[bucket];
            delays.add(Duration::from_millis(millis));
            assert_eq!(delays.counts[bucket], before + 1, "{millis} ms");
        }
        assert_eq!(delays.counts.iter().sum::<u64>(), 7);
        assert_eq!(delays.sum, Duration::from_millis(10_613));
    }
}
