use ontempo_foundation::Packets;

use crate::{DropReason, Limit, Offered, Verdict};

/// First in, first out; a packet that would exceed the limit is dropped.
///
/// A packet that finds the link idle never waits, so no limit can drop it.
///
/// # Compared with ns-2
///
/// `Queue/DropTail` of ns-2 2.35 drops a packet if `length + 1 >= limit_`, so its `limit_` of
/// L lets L - 1 packets wait besides the one in transmission: L in the system. Here the limit
/// counts waiting packets only; [`DropTail::like_ns2`] converts.
#[derive(Clone, Copy, Debug, Default)]
pub struct DropTail {
    limit: Limit,
}

impl DropTail {
    /// A queue with this limit on waiting packets.
    pub const fn new(limit: Limit) -> Self {
        Self { limit }
    }

    /// A queue that never drops.
    pub const fn unlimited() -> Self {
        Self::new(Limit::NONE)
    }

    /// The equivalent of ns-2 2.35's `limit_` in packets (see above): one fewer may wait.
    /// (With a `limit_` of 1 ns-2 drops everything; here a packet still passes on an
    /// idle link.)
    pub const fn like_ns2(limit: u64) -> Self {
        Self::new(Limit::packets(Packets::new(limit.saturating_sub(1))))
    }

    /// The limit on waiting packets.
    pub const fn limit(&self) -> Limit {
        self.limit
    }

    /// Decides about one packet.
    #[inline]
    pub fn admit(&self, offered: &Offered) -> Verdict {
        if offered.idle.is_none() && self.limit.is_exceeded_by(offered.waiting, offered.size) {
            Verdict::Drop(DropReason::QueueFull)
        } else {
            Verdict::Accept
        }
    }
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::{Bytes, Duration, Rate, Time};

    use super::*;
    use crate::Occupancy;

    fn offered(packets: u64, bytes: u64) -> Offered {
        Offered {
            now: Time::ZERO,
            wait: Duration::ZERO,
            size: Bytes::new(1000),
            ecn_capable: false,
            waiting: Occupancy { packets: Packets::new(packets), bytes: Bytes::new(bytes) },
            idle: None,
            rate: Rate::from_bits_per_sec(1_000_000),
        }
    }

    const FULL: Verdict = Verdict::Drop(DropReason::QueueFull);

    #[test]
    fn the_packet_that_fills_the_queue_is_kept_and_the_next_is_dropped() {
        let queue = DropTail::new(Limit::packets(Packets::new(3)));
        assert_eq!(queue.admit(&offered(2, 2000)), Verdict::Accept);
        assert_eq!(queue.admit(&offered(3, 3000)), FULL);
    }

    #[test]
    fn a_limit_in_bytes_counts_the_packet_itself() {
        let queue = DropTail::new(Limit::bytes(Bytes::new(3000)));
        assert_eq!(queue.admit(&offered(9, 2000)), Verdict::Accept);
        assert_eq!(queue.admit(&offered(1, 2001)), FULL);
    }

    #[test]
    fn of_two_limits_the_first_reached_binds() {
        let limit = Limit { packets: Some(Packets::new(2)), bytes: Some(Bytes::new(10_000)) };
        let queue = DropTail::new(limit);
        assert_eq!(queue.admit(&offered(2, 100)), FULL);
        assert_eq!(queue.admit(&offered(1, 9_500)), FULL);
        assert_eq!(queue.admit(&offered(1, 9_000)), Verdict::Accept);
    }

    #[test]
    fn an_unlimited_queue_never_drops() {
        assert_eq!(DropTail::unlimited().admit(&offered(1 << 40, 1 << 50)), Verdict::Accept);
    }

    #[test]
    fn a_packet_that_finds_the_link_idle_needs_no_queue() {
        let queue = DropTail::new(Limit::packets(Packets::new(0)));
        assert_eq!(queue.admit(&offered(0, 0)), FULL);
        let idle = Offered { idle: Some(Duration::ZERO), ..offered(0, 0) };
        assert_eq!(queue.admit(&idle), Verdict::Accept);
    }

    #[test]
    fn ns2_counts_the_packet_in_transmission_against_its_limit() {
        let queue = DropTail::like_ns2(5);
        assert_eq!(queue.admit(&offered(3, 3000)), Verdict::Accept);
        assert_eq!(queue.admit(&offered(4, 4000)), FULL);
    }
}
