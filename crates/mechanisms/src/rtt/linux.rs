//! The variation's term of Linux's retransmission timeout (`tcp_rtt_estimator`, Linux 6.1).

use ontempo_foundation::Duration;

/// How far the round-trip time varies, as Linux estimates it: RTO = SRTT + this.
///
/// The term is the greatest smoothed deviation of a round trip and never below the minimum
/// timeout. It rises at once and falls by a quarter of the difference a round trip; a falling RTT
/// counts an eighth.
#[derive(Clone, Copy, Debug)]
pub struct LinuxVariation {
    /// The least value: `tcp_rto_min`, 200 ms.
    minimum: Duration,
    /// 8 SRTT in nanoseconds; zero before the first sample.
    srtt8: u64,
    /// 4 times the mean deviation in nanoseconds (`mdev_us`).
    deviation4: u64,
    /// The greatest `deviation4` of this round trip (`mdev_max_us`).
    greatest4: u64,
    /// The term in nanoseconds (`rttvar_us`).
    term: u64,
    /// The round trip ends when a packet from this one on is acknowledged (`rtt_seq`).
    end: u64,
}

impl LinuxVariation {
    /// Before the first sample; `minimum` is the least value.
    pub fn new(minimum: Duration) -> Self {
        Self { minimum, srtt8: 0, deviation4: 0, greatest4: 0, term: minimum.as_nanos(), end: 0 }
    }

    /// A round trip of `rtt` was measured; `first` is the lowest packet not acknowledged before, and
    /// `next` the next new one.
    #[inline]
    pub fn on_sample(&mut self, rtt: Duration, first: u64, next: u64) {
        let (sample, minimum) = (rtt.as_nanos().max(1), self.minimum.as_nanos());
        if self.srtt8 == 0 {
            self.srtt8 = sample * 8;
            self.deviation4 = sample * 2;
            self.term = self.deviation4.max(minimum);
            self.greatest4 = self.term;
            self.end = next;
            return;
        }
        let mean = self.srtt8 / 8;
        self.srtt8 = self.srtt8 + sample - mean;
        let deviation = self.deviation4 / 4;
        let change = sample.abs_diff(mean);
        if sample < mean && change > deviation {
            self.deviation4 += (change - deviation) / 8;
        } else {
            self.deviation4 = self.deviation4 + change - deviation;
        }
        if self.deviation4 > self.greatest4 {
            self.greatest4 = self.deviation4;
            self.term = self.term.max(self.greatest4);
        }
        if first > self.end {
            self.term -= self.term.saturating_sub(self.greatest4) / 4;
            self.end = next;
            self.greatest4 = minimum;
        }
    }

    /// The term: the retransmission timeout is SRTT and this.
    #[inline]
    pub fn term(&self) -> Duration {
        Duration::from_nanos(self.term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// `count` samples of `rtt`, ten a round trip.
    fn feed(variation: &mut LinuxVariation, packet: &mut u64, rtt: Duration, count: u64) {
        for _ in 0..count {
            *packet += 1;
            variation.on_sample(rtt, *packet, *packet + 10);
        }
    }

    #[test]
    fn the_first_sample_counts_twice_and_at_least_200_ms() {
        for (sample, term) in [(40, 200), (99, 200), (150, 300)] {
            let mut variation = LinuxVariation::new(millis(200));
            variation.on_sample(millis(sample), 0, 10);
            assert_eq!(variation.term(), millis(term));
        }
    }

    #[test]
    fn the_term_rises_at_once_and_falls_by_quarters_once_a_round_trip() {
        let mut variation = LinuxVariation::new(millis(200));
        let mut packet = 0;
        feed(&mut variation, &mut packet, millis(40), 100);
        assert_eq!(variation.term(), millis(200));
        feed(&mut variation, &mut packet, millis(1040), 1);
        // The mean deviation was almost 0: a quarter of 1 s, times four.
        let risen = variation.term();
        assert!(risen > millis(990) && risen <= millis(1010), "{risen}");
        feed(&mut variation, &mut packet, millis(40), 400);
        let fallen = variation.term();
        assert!(fallen < millis(260) && fallen >= millis(200), "{fallen}");
    }

    #[test]
    fn a_fall_of_the_round_trip_time_hardly_raises_it() {
        let mut variation = LinuxVariation::new(millis(200));
        let mut packet = 0;
        feed(&mut variation, &mut packet, millis(500), 300);
        let before = variation.term();
        feed(&mut variation, &mut packet, millis(40), 1);
        assert!(variation.term() <= before + millis(60), "{}", variation.term());
    }
}
