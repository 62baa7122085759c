//! HyStart, the hybrid slow start of Linux's CUBIC (Ha and Rhee, 2011; `hystart_update` of
//! Linux 6.1).

use ontempo_foundation::{Bytes, Duration, Time};

use super::super::{Ack, Timeout};

/// Finds when slow start should end: by the length of a train of ACKs, and by the delay.
#[derive(Clone, Debug)]
pub(super) struct HyStart {
    packet_size: Bytes,
    /// The least RTT since the start or the last timeout (`delay_min`).
    least_rtt: Option<Duration>,
    /// Whether slow start has been ended; a timeout begins another.
    found: bool,
    round_start: Time,
    /// The last ACK of the train.
    last_ack: Time,
    /// The round ends when this packet is acknowledged.
    end: u64,
    /// The least RTT of this round, and its samples.
    round_rtt: Duration,
    samples: u64,
}

impl HyStart {
    /// The smallest window at which slow start is left, in packets (`hystart_low_window`).
    const LOW_WINDOW: f64 = 16.0;
    /// ACKs no further apart than this are a train (`hystart_ack_delta_us`).
    const ACK_DELTA: Duration = Duration::from_millis(2);
    /// Samples of a round before its least RTT counts (`HYSTART_MIN_SAMPLES`).
    const MIN_SAMPLES: u64 = 8;
    /// Bounds of the increase of the delay, an eighth of the least RTT otherwise
    /// (`HYSTART_DELAY_MIN`, `HYSTART_DELAY_MAX`).
    const DELAY_MIN: Duration = Duration::from_millis(4);
    const DELAY_MAX: Duration = Duration::from_millis(16);
    /// Bytes whose time at the pacing rate, and how much of it at most, a train may last longer
    /// because segments leave together (`hystart_ack_delay`: four times 64 KiB, 1 ms).
    const BURST: f64 = 4.0 * 65_536.0;
    const BURST_DELAY_MAX: Duration = Duration::from_millis(1);

    pub(super) fn new(packet_size: Bytes) -> Self {
        Self {
            packet_size,
            least_rtt: None,
            found: false,
            round_start: Time::ZERO,
            last_ack: Time::ZERO,
            end: 0,
            round_rtt: Duration::from_nanos(u64::MAX),
            samples: 0,
        }
    }

    /// Slow start begins again after a timeout. Its first round begins with the timeout, not with an
    /// ACK, and ends with what had been sent by then (`bictcp_hystart_reset`). The least RTT is
    /// forgotten (`bictcp_reset`).
    pub(super) fn restart(&mut self, timeout: &Timeout) {
        let Timeout { now, next, .. } = *timeout;
        *self = Self { round_start: now, last_ack: now, end: next, ..Self::new(self.packet_size) };
    }

    /// `ack` gave the sample `rtt`; `window` is the window in packets during slow start. True if slow
    /// start should end.
    pub(super) fn on_sample(&mut self, ack: &Ack, rtt: Duration, window: Option<f64>) -> bool {
        let least = self.least_rtt.map_or(rtt, |least| least.min(rtt));
        self.least_rtt = Some(least);
        let Some(window) = window.filter(|_| !self.found) else { return false };
        if ack.acked >= self.end {
            self.round_start = ack.now;
            self.last_ack = ack.now;
            self.end = ack.next;
            self.round_rtt = Duration::from_nanos(u64::MAX);
            self.samples = 0;
        }
        if window < Self::LOW_WINDOW {
            return false;
        }
        self.found = self.train_is_long(ack, least, window) | self.delay_has_grown(rtt, least);
        self.found
    }

    /// A train of ACKs lasts half of the least RTT: the packets of a window fill the path's delay
    /// one way.
    fn train_is_long(&mut self, ack: &Ack, least: Duration, window: f64) -> bool {
        if ack.now.since(self.last_ack) > Self::ACK_DELTA {
            return false;
        }
        self.last_ack = ack.now;
        // In slow start the pacing rate is twice the window a round trip.
        let rate = 2.0 * window * self.packet_size.get() as f64 / ack.srtt.as_secs_f64().max(1e-9);
        let burst = Duration::from_secs_f64(Self::BURST / rate).min(Self::BURST_DELAY_MAX);
        ack.now.since(self.round_start) > (least + burst) / 2
    }

    fn delay_has_grown(&mut self, rtt: Duration, least: Duration) -> bool {
        self.round_rtt = self.round_rtt.min(rtt);
        if self.samples < Self::MIN_SAMPLES {
            self.samples += 1;
            return false;
        }
        self.round_rtt > least + (least / 8).clamp(Self::DELAY_MIN, Self::DELAY_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::tests::{ack_at, timeout};

    #[test]
    fn after_a_timeout_the_long_round_trips_of_an_outage_do_not_end_slow_start() {
        let start = Time::ZERO + Duration::from_secs(1);
        let mut hystart = HyStart::new(Bytes::new(1500));
        let rtt = Duration::from_millis(40);
        assert!(!hystart.on_sample(&ack_at(start, rtt), rtt, Some(20.0)));
        hystart.restart(&Timeout { now: start, ..timeout(1_000) });
        // What waited for the end of the outage, one after another.
        for packet in 0..40 {
            let now = start + Duration::from_millis(1_000 + packet);
            let rtt = Duration::from_millis(1_000 - 7 * packet);
            assert!(!hystart.on_sample(&ack_at(now, rtt), rtt, Some(20.0)), "packet {packet}");
        }
    }
}
