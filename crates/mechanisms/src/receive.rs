//! The receiver of a reliable transport: which packets have arrived, and what to acknowledge.

use crate::recovery::SackBlock;

/// Maximum SACK blocks in a TCP header with timestamps (RFC 2018, section 3).
const MAX_BLOCKS: usize = 3;

/// Classification of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The expected packet, with no gap behind it.
    InOrder,
    /// The expected packet; it filled a gap, so that held packets became deliverable.
    FillsGap,
    /// Beyond a gap.
    OutOfOrder,
    /// Received before.
    Duplicate,
}

/// Which packets have arrived: everything below [`next`](Self::next), and runs beyond it.
#[derive(Clone, Debug, Default)]
pub struct Reassembly {
    next: u64,
    /// Runs beyond `next`, the most recently changed first, as RFC 2018 orders the report.
    held: Vec<SackBlock>,
}

impl Reassembly {
    /// The lowest packet that has not arrived: the cumulative acknowledgement.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The runs to report, the most recent first (RFC 2018, section 4); at most three.
    #[inline]
    pub fn blocks(&self) -> &[SackBlock] {
        &self.held[..self.held.len().min(MAX_BLOCKS)]
    }

    /// How many packets are held beyond a gap.
    pub fn held_packets(&self) -> u64 {
        self.held.iter().map(|run| run.end - run.start).sum()
    }

    /// `packet` arrived, if it is the expected one and no gap is behind it: [`Arrival::InOrder`]. Else
    /// false, and nothing changes.
    #[inline]
    pub fn receive_next(&mut self, packet: u64) -> bool {
        let is_next = packet == self.next && self.held.is_empty();
        self.next += u64::from(is_next);
        is_next
    }

    /// `packet` arrived.
    #[inline]
    pub fn receive(&mut self, packet: u64) -> Arrival {
        if self.receive_next(packet) {
            return Arrival::InOrder;
        }
        if packet == self.next {
            self.next += 1;
            if let Some(at) = self.held.iter().position(|run| run.start == self.next) {
                self.next = self.held.remove(at).end;
            }
            return Arrival::FillsGap;
        }
        if packet < self.next || self.held.iter().any(|run| (run.start..run.end).contains(&packet))
        {
            return Arrival::Duplicate;
        }
        self.hold(packet);
        Arrival::OutOfOrder
    }

    fn hold(&mut self, packet: u64) {
        let mut run = SackBlock { start: packet, end: packet + 1 };
        if let Some(front) = self.held.first_mut()
            && front.end == packet
            && self.held.iter().all(|other| other.start != packet + 1)
        {
            self.held[0].end += 1;
            return;
        }
        self.held.retain(|other| {
            let joins = other.end == run.start || other.start == run.end;
            if joins {
                run = SackBlock { start: run.start.min(other.start), end: run.end.max(other.end) };
            }
            !joins
        });
        self.held.insert(0, run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_most_recent_run_is_reported_first() {
        let mut receiver = Reassembly::default();
        for packet in [0, 2, 4, 6, 8, 3] {
            receiver.receive(packet);
        }
        let block = |start, end| SackBlock { start, end };
        assert_eq!(receiver.blocks(), [block(2, 5), block(8, 9), block(6, 7)]);
        assert_eq!(receiver.receive(1), Arrival::FillsGap);
        assert_eq!(receiver.next(), 5);
    }

    #[test]
    fn the_next_packet_is_taken_at_once_only_with_no_gap_behind_it() {
        let mut receiver = Reassembly::default();
        assert!(receiver.receive_next(0) && !receiver.receive_next(0) && !receiver.receive_next(2));
        receiver.receive(2);
        assert!(!receiver.receive_next(1), "2 is held");
        assert_eq!((receiver.receive(1), receiver.next()), (Arrival::FillsGap, 3));
    }

    proptest! {
        #[test]
        fn each_packet_is_taken_once_in_whatever_order_it_comes(
            order in proptest::collection::vec(0u64..60, 1..300)
        ) {
            let mut receiver = Reassembly::default();
            let mut seen = std::collections::BTreeSet::new();
            for packet in order {
                let fresh = seen.insert(packet);
                prop_assert_eq!(receiver.receive(packet) != Arrival::Duplicate, fresh);
                let expected = (0..).find(|number| !seen.contains(number)).unwrap_or(0);
                prop_assert_eq!(receiver.next(), expected);
                let beyond = seen.iter().filter(|number| **number >= expected).count() as u64;
                prop_assert_eq!(receiver.held_packets(), beyond);
            }
        }
    }
}
