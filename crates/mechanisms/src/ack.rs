//! When a receiver acknowledges: at once, delayed, or adaptively coalesced.
//!
//! A policy decides for each segment; the receiver owns the timer. A held acknowledgement
//! is sent at the deadline of the last [`AckDecision::HoldUntil`], unless a later segment
//! triggers it before.

use ontempo_foundation::{Duration, Packets, Time};

mod linux;

pub use linux::LinuxAck;

/// Maximum time for which an acknowledgement may be held (RFC 1122, section 4.2.3.2).
pub const MAX_HOLD: Duration = Duration::from_millis(500);

/// A segment that arrived, as a policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// False for one beyond a gap, for a duplicate, for one that fills a gap in whole or in part,
    /// and for one with a congestion mark: each of these is acknowledged at once (RFC 5681, section
    /// 4.2).
    pub in_order: bool,
    /// It ends what the sender's application wrote (TCP's PSH flag).
    pub ends_write: bool,
    /// The highest cumulative acknowledgement that its sender had when it sent it.
    pub acknowledged: u64,
}

impl Segment {
    /// One in order, in the middle of a write, sent before anything was acknowledged.
    pub fn in_order() -> Self {
        Self { in_order: true, ends_write: false, acknowledged: 0 }
    }
}

/// The decision on the acknowledgement of the segment just received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckDecision {
    /// Send it now; it covers the held segments.
    SendNow,
    /// Hold it until this time, which replaces any earlier deadline.
    HoldUntil(Time),
}

/// A receiver's acknowledgement policy.
#[derive(Clone, Debug, Default)]
pub enum AckPolicy {
    /// Every segment immediately (ns-2's `TCPSink`).
    #[default]
    Immediate,
    /// Every second segment or after a timeout (RFC 5681, section 4.2).
    Delayed(DelayedAck),
    /// As a Linux receiver. Boxed, being large.
    Linux(Box<LinuxAck>),
    /// One ACK for one to four segments, depending on the stream's regularity (thesis, ch. IV).
    /// Boxed, being large and rarely used.
    Adaptive(Box<AdaptiveAck>),
}

impl AckPolicy {
    /// A segment arrived.
    #[inline]
    pub fn on_segment(&mut self, now: Time, segment: Segment) -> AckDecision {
        match self {
            Self::Immediate => AckDecision::SendNow,
            Self::Delayed(policy) => policy.on_segment(now, segment.in_order),
            Self::Linux(policy) => policy.on_segment(now, segment),
            Self::Adaptive(policy) => policy.on_segment(now, segment.in_order),
        }
    }

    /// An acknowledgement of all segments below `number` is being sent.
    #[inline]
    pub fn on_sent(&mut self, now: Time, number: u64) {
        if let Self::Linux(policy) = self {
            policy.on_sent(now, number);
        }
    }

    /// The deadline has passed and the held acknowledgement is being sent.
    pub fn on_timer(&mut self, now: Time) {
        match self {
            Self::Immediate => {}
            Self::Delayed(policy) => policy.on_timer(now),
            Self::Linux(policy) => policy.on_timer(now),
            Self::Adaptive(policy) => policy.on_timer(now),
        }
    }
}

/// Delayed acknowledgements (RFC 5681, section 4.2; RFC 1122, section 4.2.3.2).
#[derive(Clone, Debug)]
pub struct DelayedAck {
    every: u64,
    timeout: Duration,
    /// Segments held.
    held: u64,
    /// When the first held segment must be acknowledged; meaningless if none is held.
    deadline: Time,
}

impl Default for DelayedAck {
    /// Every second segment, or 100 ms (ns-2 2.35, `TCPSink/DelAck`'s `interval_`).
    fn default() -> Self {
        Self::new(Packets::new(2), Duration::from_millis(100))
    }
}

impl DelayedAck {
    /// Acknowledges each `every`-th segment, or `timeout` after the first held one; at least
    /// every segment, and at most [`MAX_HOLD`].
    pub fn new(every: Packets, timeout: Duration) -> Self {
        let every = every.get().max(1);
        Self { every, timeout: timeout.min(MAX_HOLD), held: 0, deadline: Time::ZERO }
    }

    /// See [`AckPolicy::on_segment`].
    pub fn on_segment(&mut self, now: Time, in_order: bool) -> AckDecision {
        if self.held == 0 {
            self.deadline = now + self.timeout;
        }
        self.held += 1;
        if !in_order || self.held >= self.every {
            self.held = 0;
            return AckDecision::SendNow;
        }
        AckDecision::HoldUntil(self.deadline)
    }

    /// See [`AckPolicy::on_timer`].
    pub fn on_timer(&mut self, _now: Time) {
        self.held = 0;
    }
}

/// Parameters of [`AdaptiveAck`].
#[derive(Clone, Copy, Debug)]
pub struct AdaptiveAckParameters {
    /// Segments covered by one acknowledgement initially and after a gap or timeout, at least 1
    /// (thesis, algorithm 1: 1).
    pub minimum: u64,
    /// Maximum number of segments covered by one acknowledgement (thesis, algorithm 1: 4).
    pub maximum: u64,
    /// Weight of the old value in the average of the inter-arrival time, 0 to 1 (thesis,
    /// algorithm 2: 0.9).
    pub weight: f64,
    /// The timer, in average inter-arrival times, above 1 (thesis, algorithm 3: 2).
    pub tolerance: f64,
    /// Maximum time for which a segment is held (RFC 1122: 500 ms; longer values are reduced).
    pub longest_hold: Duration,
}

impl Default for AdaptiveAckParameters {
    fn default() -> Self {
        Self { minimum: 1, maximum: 4, weight: 0.9, tolerance: 2.0, longest_hold: MAX_HOLD }
    }
}

/// Adaptive delayed acknowledgements (thesis, ch. IV, algorithms 1 to 3).
///
/// Each segment in order lets one more segment share an acknowledgement, up to the maximum;
/// a gap or an expired timer resets the number to the minimum. Two errors in the printed
/// algorithms are corrected: the count of held segments (not the
/// threshold) is compared with the threshold and cleared on a gap, and the average
/// inter-arrival time starts from the first interval seen.
#[derive(Clone, Debug)]
pub struct AdaptiveAck {
    parameters: AdaptiveAckParameters,
    /// Segments that the next acknowledgement covers (`curPktPerAck`).
    threshold: u64,
    /// The sender's window: a threshold above it would wait for segments that cannot arrive.
    limit: u64,
    /// Segments held (`counter`).
    held: u64,
    /// When the first held segment arrived; meaningless if none is held.
    held_since: Time,
    /// When the last segment in order arrived.
    last_arrival: Option<Time>,
    /// Average inter-arrival time of segments in order.
    interval: Option<Duration>,
}

impl Default for AdaptiveAck {
    fn default() -> Self {
        Self::new(AdaptiveAckParameters::default())
    }
}

impl AdaptiveAck {
    /// A policy at the start of its connection.
    pub fn new(mut parameters: AdaptiveAckParameters) -> Self {
        parameters.minimum = parameters.minimum.max(1);
        parameters.maximum = parameters.maximum.max(parameters.minimum);
        parameters.longest_hold = parameters.longest_hold.min(MAX_HOLD);
        Self {
            parameters,
            threshold: parameters.minimum,
            limit: u64::MAX,
            held: 0,
            held_since: Time::ZERO,
            last_arrival: None,
            interval: None,
        }
    }

    /// Sets the sender's window, if the receiver knows it: no acknowledgement then waits
    /// for more segments than that. Without it the timer ends such a wait.
    pub fn limit_to(&mut self, window: Packets) {
        self.limit = window.get().max(1);
    }

    /// Segments that the next acknowledgement will cover without a gap or timeout.
    pub fn packets_per_ack(&self) -> u64 {
        self.threshold.min(self.limit)
    }

    /// See [`AckPolicy::on_segment`].
    pub fn on_segment(&mut self, now: Time, in_order: bool) -> AckDecision {
        if !in_order {
            self.start_over();
            return AckDecision::SendNow;
        }
        self.measure_interval(now);
        if self.held == 0 {
            self.held_since = now;
        }
        self.held += 1;
        let decision = self.decide(now);
        if decision == AckDecision::SendNow {
            self.held = 0;
        }
        self.threshold = (self.threshold + 1).min(self.parameters.maximum);
        decision
    }

    /// See [`AckPolicy::on_timer`].
    pub fn on_timer(&mut self, _now: Time) {
        self.start_over();
    }

    fn decide(&self, now: Time) -> AckDecision {
        let Some(interval) = self.interval else { return AckDecision::SendNow };
        if self.held >= self.packets_per_ack() {
            return AckDecision::SendNow;
        }
        let tolerated = now + interval.mul_f64(self.parameters.tolerance);
        let deadline = tolerated.min(self.held_since + self.parameters.longest_hold);
        if deadline <= now { AckDecision::SendNow } else { AckDecision::HoldUntil(deadline) }
    }

    /// Algorithm 2: only segments in order.
    fn measure_interval(&mut self, now: Time) {
        if let Some(last) = self.last_arrival {
            let sample = now.since(last);
            let weight = self.parameters.weight;
            self.interval = Some(match self.interval {
                None => sample,
                Some(old) => old.mul_f64(weight) + sample.mul_f64(1.0 - weight),
            });
        }
        self.last_arrival = Some(now);
    }

    fn start_over(&mut self) {
        self.held = 0;
        self.threshold = self.parameters.minimum;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at_millis(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn segment(in_order: bool) -> Segment {
        Segment { in_order, ..Segment::in_order() }
    }

    /// Segments in order, one per millisecond: how many segments each ACK covers.
    fn runs(policy: &mut AckPolicy, segments: u64) -> Vec<u64> {
        let mut runs = Vec::new();
        let mut held = 0;
        for millis in 0..segments {
            held += 1;
            if policy.on_segment(at_millis(millis), segment(true)) == AckDecision::SendNow {
                runs.push(held);
                held = 0;
            }
        }
        runs
    }

    #[test]
    fn immediate_acknowledges_every_segment() {
        assert_eq!(runs(&mut AckPolicy::default(), 3), [1, 1, 1]);
    }

    #[test]
    fn delayed_acknowledges_every_second_segment() {
        let mut policy = AckPolicy::Delayed(DelayedAck::default());
        assert_eq!(runs(&mut policy, 6), [2, 2, 2]);
    }

    #[test]
    fn delayed_holds_a_lone_segment_for_a_tenth_of_a_second() {
        let mut policy = AckPolicy::Delayed(DelayedAck::default());
        let decision = policy.on_segment(at_millis(5), segment(true));
        assert_eq!(decision, AckDecision::HoldUntil(at_millis(105)));
        policy.on_timer(at_millis(105));
        let decision = policy.on_segment(at_millis(200), segment(true));
        assert_eq!(decision, AckDecision::HoldUntil(at_millis(300)));
    }

    #[test]
    fn a_gap_is_acknowledged_at_once_and_takes_the_held_segments_along() {
        for mut policy in
            [AckPolicy::Delayed(DelayedAck::default()), AckPolicy::Adaptive(Box::default())]
        {
            runs(&mut policy, 7);
            assert_eq!(policy.on_segment(at_millis(8), segment(false)), AckDecision::SendNow);
        }
    }

    #[test]
    fn adaptive_rises_from_one_segment_to_four() {
        let mut policy = AckPolicy::Adaptive(Box::default());
        assert_eq!(runs(&mut policy, 13), [1, 4, 4, 4]);
    }

    #[test]
    fn adaptive_starts_over_after_a_gap() {
        let mut policy = AckPolicy::Adaptive(Box::default());
        runs(&mut policy, 12);
        policy.on_segment(at_millis(12), segment(false));
        assert_eq!(policy.on_segment(at_millis(13), segment(true)), AckDecision::SendNow);
        assert!(matches!(
            policy.on_segment(at_millis(14), segment(true)),
            AckDecision::HoldUntil(_)
        ));
    }

    #[test]
    fn adaptive_waits_for_twice_the_mean_interval_and_then_starts_over() {
        let mut policy = AdaptiveAck::default();
        assert_eq!(policy.on_segment(at_millis(0), true), AckDecision::SendNow);
        // The first interval is taken whole: 10 ms.
        let decision = policy.on_segment(at_millis(10), true);
        assert_eq!(decision, AckDecision::HoldUntil(at_millis(30)));
        // 0.9 * 10 + 0.1 * 20 = 11 ms.
        let decision = policy.on_segment(at_millis(30), true);
        assert_eq!(decision, AckDecision::HoldUntil(at_millis(52)));
        policy.on_timer(at_millis(52));
        assert_eq!(policy.packets_per_ack(), 1);
        assert_eq!(policy.on_segment(at_millis(60), true), AckDecision::SendNow);
    }

    #[test]
    fn adaptive_never_waits_for_more_than_the_senders_window() {
        let mut adaptive = AdaptiveAck::default();
        adaptive.limit_to(Packets::new(2));
        assert_eq!(runs(&mut AckPolicy::Adaptive(Box::new(adaptive)), 7), [1, 2, 2, 2]);
    }

    proptest! {
        #[test]
        fn no_policy_holds_too_many_segments_or_too_long(
            kind in 0u8..3,
            segments in proptest::collection::vec((0u64..700_000_000, 0u8..10), 1..200),
        ) {
            let linux = LinuxAck::new(1_448, Duration::from_millis(40));
            let (mut policy, most) = match kind {
                0 => (AckPolicy::Adaptive(Box::default()), 4),
                1 => (AckPolicy::Delayed(DelayedAck::default()), 2),
                _ => (AckPolicy::Linux(Box::new(linux)), 2),
            };
            let mut now = Time::ZERO;
            let mut held = 0;
            let mut oldest = Time::ZERO;
            let mut deadline = None;
            for (wait, luck) in segments {
                now += Duration::from_nanos(wait);
                if let Some(due) = deadline.take_if(|due| *due <= now) {
                    policy.on_timer(due);
                    held = 0;
                }
                if held == 0 {
                    oldest = now;
                }
                held += 1;
                match policy.on_segment(now, segment(luck > 0)) {
                    AckDecision::SendNow => {
                        prop_assert!(held <= most);
                        (held, deadline) = (0, None);
                    }
                    AckDecision::HoldUntil(due) => {
                        prop_assert!(luck > 0 && held < most && due > now);
                        prop_assert!(due.since(oldest) <= MAX_HOLD);
                        deadline = Some(due);
                    }
                }
            }
        }
    }
}
