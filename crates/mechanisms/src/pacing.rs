//! Pacing: spreads the packets of a window over time.
//!
//! Aggarwal, Savage and Anderson (INFOCOM 2000) send one packet every `srtt / cwnd`; a
//! controller that names a rate is paced at that rate. The caller computes the interval, the
//! [`Pacer`] keeps the time.

use ontempo_foundation::{Bytes, Duration, Packets, Rate, Time};

use crate::congestion::Window;

/// The distance between packets of `size` at `rate`; [`Duration::MAX`] at a rate of zero.
pub fn interval_at_rate(rate: Rate, size: Bytes) -> Duration {
    rate.time_to_send(size)
}

/// The distance that spreads `window` over one `srtt`; a window below one counts as one.
pub fn interval_of_window(srtt: Duration, window: Window) -> Duration {
    srtt.mul_f64(1.0 / window.packets().max(1.0))
}

/// Computes when the next packet may be sent.
///
/// It keeps the time at which the packets sent so far would all have left at the paced rate
/// (the generic cell rate algorithm, ITU-T I.371). A packet may leave ahead of that time by
/// the burst allowance. Time that passes unused is lost: after any idle period the most that
/// leaves back to back is one burst.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    /// Packets that may be sent back to back, at least one; with
    /// [`on_sent_in_quantum`](Self::on_sent_in_quantum), those left of the quantum and one.
    burst: u64,
    /// When all packets sent so far would have been sent, evenly spaced, and the next is due.
    due: Time,
    /// How far ahead of `due` a packet may be sent: all but one of a burst's intervals.
    allowance: Duration,
}

impl Default for Pacer {
    fn default() -> Self {
        Self::new(Packets::new(1))
    }
}

impl Pacer {
    /// A pacer that allows `burst` packets back to back; zero counts as one.
    pub fn new(burst: Packets) -> Self {
        Self { burst: burst.get().max(1), due: Time::ZERO, allowance: Duration::ZERO }
    }

    /// Changes the burst allowance, from the next packet on.
    pub fn set_burst(&mut self, burst: Packets) {
        self.burst = burst.get().max(1);
    }

    /// The earliest time at which the next packet may leave.
    #[inline]
    pub fn earliest(&self) -> Time {
        if self.due == Time::NEVER { Time::NEVER } else { self.due - self.allowance }
    }

    /// A packet was sent at `now`; `interval` is the spacing after it.
    pub fn on_sent(&mut self, now: Time, interval: Duration) {
        self.due = self.due.max(now) + interval;
        self.allowance = interval * (self.burst - 1);
    }

    /// Like [`on_sent`](Self::on_sent), for a sender that lets `quantum` packets leave at once and then
    /// waits for all of them, as a host that hands large segments to its interface does.
    pub fn on_sent_in_quantum(&mut self, now: Time, interval: Duration, quantum: Packets) {
        self.due = self.due.max(now) + interval;
        self.burst = if self.burst <= 1 { quantum.get().max(1) } else { self.burst - 1 };
        self.allowance = if self.burst > 1 { self.due.since(now) } else { Duration::ZERO };
    }

    /// Forgets what was sent: the next packet may be sent immediately.
    pub fn reset(&mut self) {
        self.due = Time::ZERO;
        self.allowance = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn packets_leave_at_the_interval_that_spreads_a_window_over_a_round_trip() {
        let interval = interval_of_window(Duration::from_millis(100), Window::of_packets(8.0));
        assert_eq!(interval, Duration::from_micros(12_500));
        let mut pacer = Pacer::default();
        let mut now = Time::from_secs_f64(1.0);
        for packet in 0..4 {
            assert!(pacer.earliest() <= now || packet > 0);
            now = now.max(pacer.earliest());
            pacer.on_sent(now, interval);
            assert_eq!(pacer.earliest(), now + interval);
        }
    }

    #[test]
    fn a_rate_of_ten_megabit_spaces_packets_of_a_kilobyte_by_eight_tenths_of_a_millisecond() {
        let rate = Rate::from_bits_per_sec(10_000_000);
        assert_eq!(interval_at_rate(rate, Bytes::new(1000)), Duration::from_micros(800));
    }

    #[test]
    fn a_quantum_leaves_at_once_and_is_waited_for_whole() {
        let interval = Duration::from_millis(1);
        for quantum in 1..5 {
            let (mut pacer, mut now) = (Pacer::default(), Time::from_secs_f64(1.0));
            for packet in 0..20 {
                if packet % quantum == 0 && packet > 0 {
                    assert_eq!(pacer.earliest(), now + interval * quantum);
                    now = pacer.earliest();
                }
                assert!(pacer.earliest() <= now);
                pacer.on_sent_in_quantum(now, interval, Packets::new(quantum));
            }
        }
    }

    #[test]
    fn a_rate_of_zero_sends_one_packet_and_then_never() {
        let mut pacer = Pacer::new(Packets::new(4));
        let interval = interval_at_rate(Rate::from_bits_per_sec(0), Bytes::new(1));
        pacer.on_sent(Time::ZERO, interval);
        assert_eq!(pacer.earliest(), Time::NEVER);
    }

    #[test]
    fn idleness_earns_one_burst_and_no_more() {
        let interval = Duration::from_millis(10);
        let mut pacer = Pacer::new(Packets::new(3));
        pacer.on_sent(Time::ZERO, interval);
        let now = Time::from_secs_f64(100.0);
        let mut burst = 0;
        while pacer.earliest() <= now {
            pacer.on_sent(now, interval);
            burst += 1;
        }
        assert_eq!(burst, 3);
        assert_eq!(pacer.earliest(), now + interval);
    }

    proptest! {
        #[test]
        fn no_span_of_time_ever_sees_more_than_its_rate_and_one_burst(
            burst in 1u64..6,
            interval in 1u64..1_000,
            waits in proptest::collection::vec(0u64..3_000, 1..60),
        ) {
            let mut pacer = Pacer::new(Packets::new(burst));
            let mut now = Time::ZERO;
            let mut sent = Vec::new();
            for wait in waits {
                now = (now + Duration::from_nanos(wait)).max(pacer.earliest());
                pacer.on_sent(now, Duration::from_nanos(interval));
                sent.push(now);
            }
            for (first, &start) in sent.iter().enumerate() {
                for (last, &end) in sent.iter().enumerate().skip(first) {
                    let packets = (last - first + 1) as u64;
                    prop_assert!(packets <= burst + end.since(start).as_nanos() / interval);
                }
            }
        }
    }
}
